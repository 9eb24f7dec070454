// A host without resolvers: nothing resolves in sandboxes but the names of their private networks.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

let server, sdk
before(async () => {
  server = await startServer({ args: ['--resolvers', '127.0.0.1'] }) // which sandboxes cannot reach
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
})
after(() => server.destroy())

const run = (sandbox, command) => shell(sandbox, command, { timeoutMs: 30_000 * patience })

test('members find each other, and nobody else anything', async () => {
  assert.match(server.log, /no DNS server found/)
  const member = async (name) => {
    const { sandboxID } = await server.create({ network: { peers: { network: 'shop', name } } })
    return sdk.Sandbox.connect(sandboxID, { timeoutMs: 300_000 * patience })
  }
  const [db, web] = [await member('db'), await member('web')]
  const plain = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  assert.equal((await run(web, 'getent hosts db.shop.internal')).stdout.split(/\s+/)[0], (await run(db, 'hostname -I')).stdout.trim())
  assert.equal((await run(web, `ping -c1 -W${2 * patience} db`)).exitCode, 0)
  for (const one of [web, plain]) assert.notEqual((await run(one, 'getent hosts web.test')).exitCode, 0)
  assert.notEqual((await run(plain, 'getent hosts db.shop.internal')).exitCode, 0)
  assert.equal((await run(plain, `curl -fsS -m ${5 * patience} http://203.0.113.1/`)).exitCode, 0)
})
