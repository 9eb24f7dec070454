// What sandboxes do to tables of the kernel that they share with the host and with each other.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { patience, startServer } from '../harness/server.mjs'
import { loadSdk, python } from '../harness/sdk.mjs'

let server, sdk, neighbour
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  neighbour = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
})
after(() => server.destroy())

// The tests are in the network namespace that is the server's host.
const tracked = () => Number(readFileSync('/proc/sys/net/netfilter/nf_conntrack_count', 'utf8'))

test('connections that the host tracks are limited, DNS included, and go with their sandbox', async () => {
  const greedy = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  const before = tracked()
  const filled = await python(
    greedy,
    `import socket
question = bytes(5) + b'\\x01' + bytes(6) + b'\\x03web\\x04test\\x00\\x00\\x01\\x00\\x01'
sockets = []
sent = 0
for address, port in (('203.0.113.53', 53), ('203.0.113.1', 9)):
    for source in range(2000, 8000):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(('', source))
        try:
            one.sendto(question, (address, port))
            sent += 1
        except OSError:
            pass
        one.close()
held = 0
for n in range(200):
    try:
        sockets.append(socket.create_connection(('203.0.113.1', 80), 5))
        held += 1
    except OSError:
        pass
result = [sent, held]`,
    { timeoutMs: 120_000 },
  )
  const full = tracked() - before
  assert.ok(full > 3500, `only ${full} connections, ${filled} were made`)
  assert.ok(full < 4200, `${full} connections of one sandbox`)
  // The neighbour's own still pass.
  const curl = await neighbour.commands.run(`curl -sS -m ${10 * patience} http://203.0.113.1/hello`)
  assert.match(curl.stdout, /198\.51\.100\.2/)
  await greedy.kill()
  const left = tracked() - before
  assert.ok(left < 20, `${left} connections are left of a sandbox that is gone`)
})
