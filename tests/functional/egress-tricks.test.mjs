// Ways around a policy of names that are no names: other families of addresses, other protocols, tunnels in those that pass.
// Each is tried where nothing stops it, too, so that a refusal is the policy's.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

let server, sdk, closed, open
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  closed = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience, network: { allowOut: ['web.test', '*.allowed.test'], denyOut: ['0.0.0.0/0'] } })
  open = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
})
after(() => server.destroy())

// As root: it may open raw sockets as far as anybody inside may.
async function python(sandbox, code) {
  const result = await shell(sandbox, `python3 - <<'EOP'\nimport socket, ssl, struct, time\n${code}\nEOP`, { user: 'root', timeoutMs: 60_000 * patience })
  assert.equal(result.exitCode, 0, result.stderr)
  return result.stdout.trim()
}
const both = async (code) => [await python(open, code), await python(closed, code)]

test('IPv6, plain and with an IPv4 address in it', async () => {
  const code = (host) => `
socket.getaddrinfo('web.test', 80, socket.AF_INET)
s = socket.socket(socket.AF_INET6); s.settimeout(5); begin = time.time()
try: s.connect(('${host}', 80)); s.send(b'GET / HTTP/1.1\\r\\nHost: ${host === '::ffff:203.0.113.1' ? '203.0.113.1' : 'web.test'}\\r\\n\\r\\n'); print(s.recv(4096)[9:12].decode())
except OSError as e: print('refused', time.time() - begin < 3)`
  assert.deepEqual(await both(code('2001:db8::1')), ['refused True', 'refused True'])
  assert.deepEqual(await both(code('64:ff9b::203.0.113.1')), ['refused True', 'refused True'])
  assert.deepEqual(await both(code('::ffff:203.0.113.1')), ['200', '403'])
  // The same address in the same way, with a name that may.
  assert.equal(await python(closed, code('::ffff:203.0.113.1').replace('Host: 203.0.113.1', 'Host: web.test')), '200')
})

describe('DNS by other ways', () => {
  const tls = (name, port, payload) => `
socket.getaddrinfo('web.test', 80, socket.AF_INET)
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
try:
    s = c.wrap_socket(socket.create_connection(('203.0.113.1', ${port}), 10), server_hostname=${name}); s.send(${payload}); print(s.recv(100)[:4])
except OSError as e: print('refused')`
  const question = `struct.pack('>H', 30) + struct.pack('>HHHHHH', 1, 256, 1, 0, 0, 0) + b'\\x04evil\\x04test\\0\\0\\1\\0\\1'`

  test('over TLS and over HTTPS, to the address of an allowed name', async () => {
    for (const name of ['None', "'dns.test'", "'203.0.113.1'"])
      for (const port of [443, 853]) {
        const [there, here] = await both(tls(name, port, `b'POST /dns-query HTTP/1.1\\r\\nHost: dns.test\\r\\nContent-Length: 2\\r\\n\\r\\nxx'`))
        assert.equal(there, "b'HTTP'", `${name} ${port}`)
        assert.equal(here, 'refused', `${name} ${port}`)
      }
    const [, here] = await both(tls('None', 853, question))
    assert.equal(here, 'refused')
  })

  test('what is no question goes nowhere, by datagram and by stream', async () => {
    // Port 53 of an address where something else listens would be a tunnel: only our resolver hears it.
    const code = `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.connect(('203.0.113.1', 53))
s.send(b'tunnelled data that is no question at all, padded ' + b'x' * 400)
try: a = s.recv(1000); print(b'tunnel' in a, a[3] & 15)
except OSError as e: print('nothing')
t = socket.create_connection(('203.0.113.1', 53), 5); t.settimeout(2)
try:
    t.send(b'SSH-2.0-client\\r\\n'); print(b'SSH' in t.recv(100))
except OSError: print('nothing')`
    assert.match(await python(closed, code), /^(nothing|False \d+)\n(nothing|False)$/)
  })
})

describe('other protocols', () => {
  test('ICMP carries nothing, of any size, to any address', async () => {
    for (const host of ['203.0.113.1', '203.0.113.2', '198.51.100.1']) {
      assert.equal((await shell(open, `ping -c1 -W5 -s 1000 ${host}`)).exitCode, 0, host)
      assert.notEqual((await shell(closed, `ping -c1 -W2 -s 1000 ${host}`)).exitCode, 0, host)
    }
    assert.notEqual((await shell(closed, 'ping -c1 -W2 web.test')).exitCode, 0)
  })

  test('datagrams to any port, DNS aside', async () => {
    const code = `
out = []
for port in (7, 123, 443, 500, 853, 1194, 4500, 51820, 5353, 3478, 1701, 69):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.connect(('198.51.100.1', port)) # whose echo answers from there
    try: s.send(b'hello'); out.append(s.recv(10).decode())
    except OSError as e: out.append(type(e).__name__)
print(out[0], len([one for one in out if one == 'hello']), len([one for one in out if one == 'timeout' or one == 'TimeoutError']))`
    const [there, here] = await both(code)
    assert.match(there, /^hello 1 /)
    assert.match(here, /^(ConnectionRefusedError|PermissionError|OSError) 0 0$/, 'refused at once, all of them')
  })

  test('tunnels of the kernel and raw packets', async () => {
    const code = `
out = []
for proto in (4, 41, 47, 50, 132, 136, 253):
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, proto); s.settimeout(0.5); s.sendto(b'x' * 40, ('203.0.113.1', 0)); out.append('sent')
    except OSError as e: out.append('refused')
print(set(out))`
    // Whoever may send them at all sees nothing come back, and nothing of them leaves (docs/network.md: protocols).
    assert.match(await python(closed, code), /refused|sent/)
    assert.notEqual((await shell(closed, 'ip link add gre9 type gre local 203.0.113.9 remote 203.0.113.1 2>&1 || ip tunnel add t0 mode ipip remote 203.0.113.1', { user: 'root' })).exitCode, 0)
  })
})

test('domain fronting: the name of the hello decides, and a Host that it hides is told in docs/network.md', async () => {
  const curl = (args) => shell(closed, `curl -sk -m 10 -o /dev/null -w '%{http_code}' ${args}`, { timeoutMs: 30_000 * patience })
  assert.equal((await curl(`--connect-to other.test:443:web.test:443 https://other.test/`)).stdout, '000', 'another name in the hello')
  assert.equal((await curl(`-H 'Host: other.test' http://web.test/`)).stdout, '403', 'another Host that is seen')
  assert.match((await curl(`-x http://web.test:80 http://other.test/`)).stdout, /000|403/, 'through a proxy at an allowed name')
  assert.equal((await curl(`--proxytunnel -x http://web.test:80 https://other.test/`)).stdout, '000', 'by CONNECT')
})
