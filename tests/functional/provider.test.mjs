// The same contract for the providers that need nothing but this repository: E2B, spoken to a second
// server as if it were far away, and plain processes, started by the caller or by the server.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { contract } from '../harness/contract.mjs'
import { findProcesses } from '../harness/leftovers.mjs'
import { binary, eventually, startServer } from '../harness/server.mjs'

const SERVER_UID = 64737
const withoutLives = { allowSkips: ['pause and connect keep files', 'snapshot and restore'] }
const agent = path.join(path.dirname(binary), 'envd')
const uidOf = (pid) => Number(/^Uid:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
const plainAgents = () => findProcesses((one) => /(^|\/)envd .*--parent-fd/.test(one.cmdline))

describe('e2b, another server', () => {
  let server
  before(async () => (server = await startServer()))
  after(() => server?.destroy())

  test('contract', (t) => contract(t, { type: 'e2b', api_url: server.url, api_key: server.key, image: 'base' }))

  test('contract, not secured', (t) =>
    contract(t, { type: 'e2b', api_url: server.url, api_key: server.key, secure: false, only: 'e' }))

  test('nothing is left there', async () => {
    assert.deepEqual(await server.ids(), [])
  })
})

describe('process, started by the caller', () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'process-'))
  before(() => {
    fs.chownSync(home, 64800, 64800)
    fs.copyFileSync(agent, path.join(home, 'envd'))
    fs.chmodSync(path.join(home, 'envd'), 0o755)
  })
  after(() => fs.rmSync(home, { recursive: true }))

  test('contract', (t) =>
    contract(t, { type: 'process', agent: path.join(home, 'envd'), root: path.join(home, 'root') }, { uid: 64800, ...withoutLives }))

  test('nothing is left', () => {
    assert.deepEqual(fs.readdirSync(path.join(home, 'root')), [])
    assert.deepEqual(plainAgents(), [])
  })
})

describe('process, served by the server', () => {
  let server
  before(async () => (server = await startServer({ args: ['--process-provider', '1'] })))
  after(() => server?.destroy())

  const socket = () => path.join(server.data, 'run/process.sock')

  test('contract', (t) => contract(t, { type: 'process', socket: socket() }, { uid: SERVER_UID, ...withoutLives }))

  test('it runs as a third user, whom only the server may call', () => {
    const [one, ...more] = plainAgents()
    assert.deepEqual(more, [])
    assert.equal(uidOf(one.pid), SERVER_UID + 1)
    const { uid, mode } = fs.statSync(socket())
    assert.equal(uid, SERVER_UID)
    assert.equal(mode & 0o777, 0o600)
    assert.equal(fs.statSync(path.join(server.data, 'process')).mode & 0o777, 0o700)
  })

  test('it is started again when it dies', async (t) => {
    const [one] = plainAgents()
    process.kill(one.pid, 'SIGKILL')
    await eventually('another agent', () => plainAgents().some((other) => other.pid !== one.pid))
    await contract(t, { type: 'process', socket: socket(), only: 'create' }, { uid: SERVER_UID })
  })

  test('it ends with the server', async () => {
    await server.stop()
    assert.deepEqual(plainAgents(), [])
    assert.equal(fs.existsSync(socket()), false)
    await server.start()
    await eventually('the agent', () => plainAgents().length === 1)
    await server.kill9()
    await eventually('no agent', () => plainAgents().length === 0)
    await server.start()
  })
})
