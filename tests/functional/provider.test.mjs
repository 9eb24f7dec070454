// The same contract for the providers that need nothing but this repository: the engine in the same
// process, E2B, spoken to a second server as if it were far away, and plain processes, started by the
// caller or by the server.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { build, contract, report } from '../harness/contract.mjs'
import { findProcesses } from '../harness/leftovers.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

const SERVER_UID = 64737
const withoutLives = { allowSkips: ['pause and connect keep files', 'snapshot and restore'] }
const envd = path.join(path.dirname(binary), 'envd')
const uidOf = (pid) => Number(/^Uid:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1])
const plainEnvds = () => findProcesses((one) => /(^|\/)envd .*--parent-fd/.test(one.cmdline))

describe('e2b, the engine in the same process', () => {
  let server, folder
  before(async () => {
    // A server needs its other programs beside it.
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'engine-'))
    fs.chmodSync(folder, 0o755)
    for (const name of ['envd', 'unpack', 'interpreter', 'mcp-gateway']) fs.copyFileSync(path.join(path.dirname(binary), name), path.join(folder, name))
    fs.copyFileSync(build('src/quicksand/engine_contract'), path.join(folder, 'engine_contract'))
    server = await startServer({
      program: path.join(folder, 'engine_contract'),
      prepare: (made) => {
        const record = path.join(made.home, 'record.json')
        fs.writeFileSync(record, JSON.stringify({ type: 'e2b', api_url: 'embedded', image: 'base' }))
        made.args = ['--envd', envd, '--runtime-config', record]
      },
    })
  })
  after(async () => {
    await server?.destroy()
    fs.rmSync(folder, { recursive: true, force: true })
  })

  test('contract', async (t) => {
    const ended = /^\d+ passed, (\d+) failed, \d+ skipped$/m
    const [, failed] = await eventually('the contract ends', () => ended.exec(server.log), 240_000, 200)
    await report(t, server.log)
    assert.equal(failed, '0', server.log)
  })

  test('nothing is left there', async () => {
    assert.deepEqual(await server.ids(), [])
  })
})

describe('e2b, another server', () => {
  let server
  before(async () => (server = await startServer()))
  after(() => server?.destroy())

  test('contract', (t) => contract(t, { type: 'e2b', api_url: server.url, api_key: server.key, image: 'base' }))

  test('contract, not secured', (t) =>
    contract(t, { type: 'e2b', api_url: server.url, api_key: server.key, secure: false, only: 'e' }))

  // The test that E2B_API_KEY turns on is worth something only if it passes where the API is known to work.
  test('the live test passes', () => {
    const done = spawnSync(build('src/provider/test/provider_test'), ['e2b_live'], { encoding: 'utf8', timeout: 60_000 * patience, env: { PATH: process.env.PATH, E2B_API_KEY: server.key, E2B_API_URL: server.url } })
    assert.equal(done.status, 0, `${done.stdout}${done.stderr}`)
    assert.match(done.stdout + done.stderr, /1 passed, 0 failed, 0 skipped/)
  })

  test('nothing is left there', async () => {
    assert.deepEqual(await server.ids(), [])
  })
})

describe('process, started by the caller', () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'process-'))
  before(() => {
    fs.chownSync(home, 64800, 64800)
    fs.copyFileSync(envd, path.join(home, 'envd'))
    fs.chmodSync(path.join(home, 'envd'), 0o755)
  })
  after(() => fs.rmSync(home, { recursive: true }))

  test('contract', (t) =>
    contract(t, { type: 'process', envd: path.join(home, 'envd'), root: path.join(home, 'root') }, { uid: 64800, ...withoutLives }))

  test('nothing is left', () => {
    assert.deepEqual(fs.readdirSync(path.join(home, 'root')), [])
    assert.deepEqual(plainEnvds(), [])
  })
})

describe('process, served by the server', () => {
  let server
  before(async () => (server = await startServer({ args: ['--process-provider', '1'] })))
  after(() => server?.destroy())

  const socket = () => path.join(server.data, 'run/process.sock')

  test('contract', (t) => contract(t, { type: 'process', socket: socket() }, { uid: SERVER_UID, ...withoutLives }))

  test('it runs as a third user, whom only the server may call', () => {
    const [one, ...more] = plainEnvds()
    assert.deepEqual(more, [])
    assert.equal(uidOf(one.pid), SERVER_UID + 1)
    const { uid, mode } = fs.statSync(socket())
    assert.equal(uid, SERVER_UID)
    assert.equal(mode & 0o777, 0o600)
    assert.equal(fs.statSync(path.join(server.data, 'process')).mode & 0o777, 0o700)
  })

  test('it is started again when it dies', async (t) => {
    const [one] = plainEnvds()
    process.kill(one.pid, 'SIGKILL')
    await eventually('another envd', () => plainEnvds().some((other) => other.pid !== one.pid))
    await contract(t, { type: 'process', socket: socket(), only: 'create' }, { uid: SERVER_UID })
  })

  test('it ends with the server', async () => {
    await server.stop()
    assert.deepEqual(plainEnvds(), [])
    assert.equal(fs.existsSync(socket()), false)
    await server.start()
    await eventually('envd', () => plainEnvds().length === 1)
    await server.kill9()
    await eventually('no envd', () => plainEnvds().length === 0)
    await server.start()
  })
})

describe('runner', () => {
  const RUNNER_UID = 64801
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'runner-'))
  const root = path.join(home, 'work', 'root')
  let server, runner

  // Where its user may go.
  before(async () => {
    server = await startServer()
    fs.chmodSync(home, 0o755)
    fs.mkdirSync(path.dirname(root))
    fs.chownSync(path.dirname(root), RUNNER_UID, RUNNER_UID)
    for (const file of [binary, envd]) {
      fs.copyFileSync(file, path.join(home, path.basename(file)))
      fs.chmodSync(path.join(home, path.basename(file)), 0o755)
    }
  })
  after(async () => {
    runner?.child.kill('SIGKILL')
    await server?.destroy()
    fs.rmSync(home, { recursive: true })
  })

  async function start(uid = RUNNER_UID, words = []) {
    const args = ['runner', ...words, '--server', server.url, '--listen', '127.0.0.1:0', '--root', root, '--name', 'r1', '--max-sessions', '2']
    const child = spawn(path.join(home, 'quicksand'), args, {
      uid,
      gid: uid,
      env: { PATH: process.env.PATH, ...(words.length ? {} : { QUICKSAND_TOKEN: server.key }) },
    })
    const one = { child, log: '', url: undefined }
    child.stdout.on('data', (chunk) => (one.log += chunk))
    child.stderr.on('data', (chunk) => (one.log += chunk))
    one.exited = new Promise((done) => child.once('close', (code, signal) => done(code ?? signal)))
    one.url = await Promise.race([
      eventually('the runner', () => /^runner 'r1' at (\S+),/m.exec(one.log)?.[1]),
      one.exited.then(() => undefined),
    ])
    return one
  }

  test('root is refused', async () => {
    const one = await start(0)
    assert.equal(await one.exited, 2)
    assert.match(one.log, /not as root/)
  })

  test('a sandbox on it', async () => {
    runner = await start()
    assert.ok(runner.url, runner.log)
    const made = await server.api('POST', '/api/v1/sandboxes', { provider: 'runner', network: { mode: 'allow-all' } })
    assert.equal(made.status, 201, made.text)
    assert.equal(made.body.provider, 'r1')
    const ran = await server.api('POST', `/api/v1/sandboxes/${made.body.id}/execute`, { command: 'id -u; pwd; exit 4' })
    assert.equal(ran.body.exit_code, 4, ran.text)
    assert.equal(ran.body.stdout, `${RUNNER_UID}\n${root}/${made.body.external_id}\n`)
    // What it runs has its user, and still cannot read its key.
    const look = 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -acE "e2b_[0-9a-f]{40}"; grep -l quicksand.runner /proc/[0-9]*/cmdline | wc -l'
    const found = await server.api('POST', `/api/v1/sandboxes/${made.body.id}/execute`, { command: look })
    assert.match(found.body.stdout, /^0\n[1-9]\d*\n$/, found.text)
    assert.equal((await server.api('DELETE', `/api/v1/sandboxes/${made.body.id}`)).status, 204)
    assert.deepEqual(fs.readdirSync(root), [])
  })

  test('nobody calls its envd without the token', async () => {
    const answer = await fetch(`${runner.url}/process.Process/List`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    })
    assert.equal(answer.status, 401)
  })

  test('it says goodbye', async () => {
    runner.child.kill('SIGTERM')
    assert.equal(await runner.exited, 0)
    assert.deepEqual(plainEnvds(), [])
    assert.equal((await server.api('GET', '/api/v1/providers/r1')).status, 404)
  })

  test('its envd goes with it, however it ends', async () => {
    runner = await start(RUNNER_UID, ['--token', server.key])
    assert.doesNotMatch(fs.readFileSync(`/proc/${runner.child.pid}/cmdline`, 'latin1'), /e2b_/)
    assert.equal(plainEnvds().length, 1)
    runner.child.kill('SIGKILL')
    await runner.exited
    await eventually('no envd', () => plainEnvds().length === 0)
  })
})
