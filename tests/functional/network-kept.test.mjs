// Connections of a filtered sandbox while the server, the egress process and the root process end and come back: what can go on goes on,
// what cannot breaks at once, and the rules hold all the time; also in forks.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

// One address directly, one name through the egress process.
const DIRECT = '203.0.113.1', POLICY = { allowOut: ['web.test', '203.0.113.1'], denyOut: ['0.0.0.0/0'] }, NAMED = { allowOut: ['web.test'], denyOut: ['0.0.0.0/0'] }
let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const processes = (role) => fs.readdirSync('/proc').map(Number).filter((pid) => {
  try {
    return pid && fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(`quicksand\0${role}\0`)
  } catch {
    return false
  }
})
async function create(network) {
  const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, network })
  assert.equal(answer.status, 201, answer.text)
  return sdk.Sandbox.connect(answer.body.sandboxID)
}
// Drips a byte every 20 ms into a file; says so when it ends.
const drip = (sandbox, host, file) => shell(sandbox, `nohup sh -c 'curl -sN http://${host}/drip > ${file}; echo ended >> ${file}.end' >/dev/null 2>&1 &`)
const goesOn = async (sandbox, file) => {
  const size = async () => Number((await shell(sandbox, `stat -c %s ${file}`)).stdout)
  const first = await size()
  return (await shell(sandbox, `test -e ${file}.end`)).exitCode !== 0 && eventually('more of it', async () => (await size()) > first)
}
const holds = async (sandbox) => {
  assert.notEqual((await shell(sandbox, `curl -s -m 5 http://203.0.113.2/ -f`)).exitCode, 0, 'another address')
  assert.notEqual((await shell(sandbox, 'curl -s -m 5 http://other.test/ -f')).exitCode, 0, 'another name')
}

describe('with connections open', () => {
  let direct, named
  before(async () => {
    direct = await create(POLICY)
    named = await create(NAMED)
    await drip(direct, DIRECT, '/tmp/d')
    await drip(named, 'web.test', '/tmp/d')
    for (const one of [direct, named]) await eventually('the first bytes', async () => Number((await shell(one, 'stat -c %s /tmp/d')).stdout) > 2)
  })

  test('the server may end: both go on', async () => {
    const [pid] = processes('serve-unprivileged')
    process.kill(pid, 'SIGKILL')
    await eventually('another server', () => processes('serve-unprivileged').some((one) => one !== pid))
    await eventually('it answers', async () => (await server.api('GET', '/sandboxes')).status === 200)
    for (const one of [direct, named]) {
      assert.ok(await goesOn(one, '/tmp/d'))
      await holds(one)
    }
  })

  test('a fork has the same rules, and connections of its own', async () => {
    const answer = await server.api('POST', `/sandboxes/${named.sandboxId}/fork`, { count: 1 })
    assert.equal(answer.status, 201, answer.text)
    const fork = await sdk.Sandbox.connect((answer.body[0].sandbox ?? answer.body[0]).sandboxID)
    await holds(fork)
    await eventually('the name', async () => (await shell(fork, 'curl -s -m 5 http://web.test/')).exitCode === 0)
    assert.ok(await goesOn(named, '/tmp/d'))
    await fork.kill()
  })

  test('the egress process may end: what it carried breaks at once, the rest goes on', async () => {
    const [pid] = processes('serve-egress')
    process.kill(pid, 'SIGKILL')
    await eventually('its connection to end', async () => (await shell(named, 'test -e /tmp/d.end')).exitCode === 0, 3000 * patience)
    assert.ok(await goesOn(direct, '/tmp/d'))
    await eventually('it works again', async () => (await shell(named, 'curl -s -m 5 http://web.test/')).exitCode === 0)
    for (const one of [direct, named]) await holds(one)
  })

  test('the root process may end: what goes directly goes on', async () => {
    await server.kill9()
    await server.start()
    assert.ok(await goesOn(direct, '/tmp/d'))
    await eventually('names work again', async () => (await shell(named, 'curl -s -m 5 http://web.test/')).exitCode === 0)
    for (const one of [direct, named]) {
      await holds(one)
      await one.kill()
    }
  })
})
