// Rates of the way out: each is held, for who goes directly and for who goes through the egress process, and for each sandbox by itself.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const WEB = '203.0.113.1', DNS = '203.0.113.53', NAMED = { allowOut: ['web.test'], denyOut: ['0.0.0.0/0'] }
let server, sdk
before(async () => {
  server = await startServer({ args: ['--sandbox-kbit', '16000', '--sandbox-packets', '20000', '--sandbox-new-connections', '20', '--sandbox-dns-queries', '20'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

async function create(network) {
  const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, network })
  assert.equal(answer.status, 201, answer.text)
  return sdk.Sandbox.connect(answer.body.sandboxID)
}
const python = (sandbox, code) => shell(sandbox, `python3 - <<'EOP'\n${code}\nEOP`, { timeoutMs: 60_000 * patience })
const told = (sandbox, protocol) => eventually('a line in the log', async () => (await server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1000`)).body.logs.find((one) => one.fields.event === 'network' && one.fields.protocol === protocol && /a second$/.test(one.fields.reason)))

for (const [kind, network] of [['directly', undefined], ['through the egress process', NAMED]])
  describe(kind, () => {
    let sandbox, neighbour
    before(async () => {
      sandbox = await create(network)
      neighbour = await create(network)
    })

    test('bits', async () => {
      const name = network ? 'web.test' : WEB
      const { stdout, exitCode } = await shell(sandbox, `curl -s -o /dev/null -w '%{time_total} %{size_download}' 'http://${name}/bytes?n=8000000'`, { timeoutMs: 60_000 * patience })
      const [seconds, bytes] = stdout.split(' ').map(Number)
      assert.deepEqual([exitCode, bytes], [0, 8_000_000])
      // Two megabytes a second, less what the bucket holds at first.
      assert.ok(seconds > 2.5 && seconds < 12 * patience, stdout)
    })

    test('connections', async () => {
      const { stdout, stderr } = await python(sandbox, `
import socket, time
how, begin = {}, time.time()
for i in range(200):
    s = socket.socket(); s.settimeout(5)
    e = s.connect_ex(('${WEB}', 80)); s.close(); how[e] = how.get(e, 0) + 1
print(how.get(0, 0), how.get(111, 0), sum(how.values()), time.time() - begin)`)
      const [through, refused, all, seconds] = stdout.split(' ').map(Number)
      assert.equal(through + refused, all, stdout + stderr)
      assert.ok(through >= 5 && through <= 40 + 25 * seconds && refused > 50, stdout)
      await told(sandbox, 'tcp')
      assert.equal((await shell(neighbour, `curl -s -o /dev/null http://${network ? 'web.test' : WEB}/`)).exitCode, 0)
      // Not at once again: who keeps asking beyond the rate has what came in until then taken by the first half of each try.
      await eventually('it may connect again', async () => (await shell(sandbox, `curl -s -o /dev/null http://${network ? 'web.test' : WEB}/`)).exitCode === 0, 10_000, 300)
    })

    test('DNS queries', async () => {
      const { stdout, stderr } = await python(sandbox, `
import socket, time
question = bytes.fromhex('0001010000010000000000000377656204746573740000010001')
answered, begin = 0, time.time()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); s.connect(('${DNS}', 53))
for i in range(200):
    try: s.send(question); s.recv(500); answered += 1
    except OSError: pass
print(answered, time.time() - begin)`)
      const [answered, seconds] = stdout.split(' ').map(Number)
      assert.ok(answered >= 5 && answered <= 40 + 25 * seconds && answered < 190, stdout + stderr)
      await told(sandbox, 'udp')
      assert.equal((await shell(neighbour, 'getent hosts web.test')).exitCode, 0)
    })

    test('a question is no connection', async () => {
      const { stdout, stderr } = await python(sandbox, `
import socket, time
question = bytes.fromhex('0001010000010000000000000377656204746573740000010001')
time.sleep(1)
for i in range(100):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('${DNS}', 53)); s.send(question); s.close()
print([socket.socket().connect_ex(('${WEB}', 80)) for i in range(6)])`)
      assert.equal(stdout, '[0, 0, 0, 0, 0, 0]\n', stderr)
    })
  })
