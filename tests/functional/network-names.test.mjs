// Domains in a sandbox's policy: reached by name, refused otherwise, through all that can happen to a sandbox.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const EVERYTHING = '0.0.0.0/0'
const life = { timeoutMs: 300_000 * patience }
let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
})
after(() => server.destroy())

const fetch = (sandbox, url) => shell(sandbox, `curl -fsS -m ${5 * patience} ${url}`, { timeoutMs: 30_000 * patience })
const reaches = async (sandbox, url = 'http://web.test/') => (await fetch(sandbox, url)).exitCode === 0

test('a name that is allowed is reached; its address, other names and other ways are not', async () => {
  const network = { allowOut: ['web.test'], denyOut: [EVERYTHING] }
  const sandbox = await sdk.Sandbox.create('base', { ...life, network })
  const answer = await fetch(sandbox, 'http://web.test/by-name')
  assert.equal(answer.exitCode, 0, answer.stderr)
  assert.equal(JSON.parse(answer.stdout).host, 'web.test')
  for (const url of ['http://203.0.113.1/', 'http://inside.test/', 'http://metadata.test/', 'http://198.51.100.1/', 'http://10.9.9.9/', 'http://169.254.0.1:7443/'])
    assert.equal(await reaches(sandbox, url), false, url)
  for (const command of ['getent hosts inside.test', 'ping -c1 -W2 203.0.113.1', `curl -fsS -m 3 -H 'Host: other.test' http://web.test/`])
    assert.notEqual((await shell(sandbox, command, { timeoutMs: 30_000 * patience })).exitCode, 0, command)
  const { network: told } = await sandbox.getInfo()
  assert.deepEqual([told.allowOut, told.denyOut], [network.allowOut, network.denyOut])
  await sandbox.kill()
})

test('kept through pauses, restarts and forks, and changed while it runs', async () => {
  const sandbox = await sdk.Sandbox.create('base', { ...life, network: { allowOut: ['web.test'], denyOut: [EVERYTHING] } })
  const check = async (one = sandbox) => {
    await eventually('the name is reached', () => reaches(one))
    assert.equal(await reaches(one, 'http://203.0.113.1/'), false)
  }
  await check()
  for (const memory of [true, false]) {
    await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory })
    await sdk.Sandbox.connect(sandbox.sandboxId, life)
    await check()
  }
  await server.restart()
  await check()
  const forks = (await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 1, timeout: 300 })).body
  const fork = await sdk.Sandbox.connect((forks[0].sandbox ?? forks[0]).sandboxID, life)
  await check(fork)
  await fork.kill()
  await sandbox.updateNetwork({ allowOut: ['other.test', '198.51.100.1'], denyOut: [EVERYTHING] })
  assert.equal(await reaches(sandbox), false)
  assert.equal(await reaches(sandbox, 'http://198.51.100.1/'), true)
  await sandbox.updateNetwork({ allowOut: ['*.test'], denyOut: [EVERYTHING] })
  assert.equal(await reaches(sandbox), true)
  await sandbox.updateNetwork({})
  assert.equal(await reaches(sandbox, 'http://203.0.113.1/'), true)
  await sandbox.kill()
})
