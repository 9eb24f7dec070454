// Names in a policy: enforced by our DNS answers together with the proxy in the gateway, each rule both ways, and
// against whoever tries to get around them. The internet is that of the lab (tests/harness/world.mjs).
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const CLOSED = ['0.0.0.0/0']
const POLICY = { allowOut: ['web.test', '*.allowed.test'], denyOut: CLOSED }

let server, sdk, box
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  box = await create(POLICY)
})
after(() => server.destroy())

async function create(network) {
  const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, network })
  assert.equal(answer.status, 201, answer.text)
  return sdk.Sandbox.connect(answer.body.sandboxID)
}
const put = async (sandbox, network) => assert.equal((await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, network)).status, 204)
const curl = (args, sandbox = box) => shell(sandbox, `curl -sk -m ${8 * patience} ${args}`, { timeoutMs: 30_000 * patience })
const python = (code, sandbox = box) => shell(sandbox, `python3 - <<'EOP'\n${code}\nEOP`, { timeoutMs: 30_000 * patience })
const logs = async (sandbox = box) => (await server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1000`)).body.logs.filter((one) => one.fields.event === 'network').map((one) => ({ level: one.level, message: one.message, ...one.fields }))
const logged = (what, sandbox = box) => eventually(`a line in the log with ${JSON.stringify(what)}`, async () => (await logs(sandbox)).find((one) => Object.entries(what).every(([key, value]) => (value instanceof RegExp ? value.test(one[key]) : one[key] === value))))

// Asks a resolver by hand: code, addresses. `via` is udp or tcp.
const DNS = `
import socket, struct, sys, time
def ask(name, kind=1, via='udp', to='203.0.113.53', raw=None):
    q = raw or struct.pack('>HHHHHH', 77, 256, 1, 0, 0, 0) + b''.join(bytes([len(l)]) + l.encode() for l in name.split('.')) + b'\\0' + struct.pack('>HH', kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if via == 'udp' else socket.SOCK_STREAM)
    s.settimeout(30)
    s.connect((to, 53))
    s.send(q if via == 'udp' else struct.pack('>H', len(q)) + q)
    if via == 'udp': a = s.recv(65535)
    else:
        a = b''
        while len(a) < 2 or len(a) < 2 + struct.unpack('>H', a[:2])[0]:
            more = s.recv(65535)
            if not more: break
            a += more
        a = a[2:]
    count = struct.unpack('>H', a[6:8])[0]
    return a[3] & 15, count, bool(a[2] & 2), a
`

describe('names', () => {
  test('an allowed one is reached by HTTP and HTTPS, on any port', async () => {
    for (const url of ['http://web.test/', 'https://web.test/', 'http://web.test:8080/', 'https://web.test:8443/', 'https://api.allowed.test/x']) {
      const result = await curl(url)
      assert.equal(result.exitCode, 0, `${url}: ${result.stderr}`)
      const seen = JSON.parse(result.stdout)
      assert.equal(seen.peer, '198.51.100.2')
      assert.equal(seen.host, new URL(url).host)
      if (url.startsWith('https:')) assert.equal(seen.sni, new URL(url).hostname)
    }
    const line = await logged({ name: 'api.allowed.test', verdict: 'allowed' })
    assert.deepEqual([line.rule, line.port, line.protocol, line.address], ['*.allowed.test', 443, 'tcp', '203.0.113.1'])
  })

  test('a large answer is whole', async () => {
    for (const url of ['http://web.test/bytes?n=20000000', 'https://web.test/bytes?n=20000000'])
      assert.equal((await curl(`'${url}' | wc -c`)).stdout.trim(), '20000000')
  })

  test('others are refused at once, and logged', async () => {
    for (const name of ['other.test', 'allowed.test', 'xallowed.test', 'nowhere.test', 'data-in-a-label.evil.test']) {
      const result = await python(`${DNS}\nbegin = time.time()\nprint(ask('${name}')[0], ask('${name}', 16)[0], ask('${name}', 1, 'tcp')[0], time.time() - begin < ${2 * patience})`)
      assert.equal(result.stdout, '5 5 5 True\n', `${name}: ${result.stderr}`)
      assert.equal((await curl(`https://${name}/`)).exitCode, 6, name)
    }
    const line = await logged({ name: 'other.test', protocol: 'dns', verdict: 'denied' })
    assert.deepEqual([line.rule, line.level], ['0.0.0.0/0', 'warn'])
    assert.match(line.message, /no rule allows this name/)
  })

  test('whichever resolver is asked, ours answers', async () => {
    const result = await python(`${DNS}\nprint(ask('web.test', to='203.0.113.1')[:2], ask('other.test', to='8.8.8.8')[:2], ask('web.test', via='tcp', to='8.8.8.8')[:2])`)
    assert.equal(result.stdout, '(0, 1) (5, 0) (0, 1)\n', result.stderr)
  })

  test('IPv6 and service bindings are empty', async () => {
    const result = await python(`${DNS}\nprint(ask('web.test', 28)[:2], ask('web.test', 65)[:2])`)
    assert.equal(result.stdout, '(0, 0) (0, 0)\n', result.stderr)
  })

  test('chains, circles, many addresses and broken answers', async () => {
    const result = await python(`${DNS}
print(ask('chain.allowed.test')[:2], ask('circle.allowed.test')[1], ask('broken.allowed.test')[0])
print(ask('many.allowed.test')[1:3], ask('many.allowed.test', via='tcp')[:2])`)
    assert.equal(result.stdout, '(0, 1) 0 2\n(0, True) (0, 60)\n', result.stderr)
    assert.equal((await curl('https://chain.allowed.test/')).exitCode, 0)
    assert.notEqual((await curl('https://edge.cdn.test/')).exitCode, 0)
  })

  test('malformed and huge questions hurt nobody', async () => {
    const result = await python(`${DNS}
import os
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('203.0.113.53', 53))
for n in (0, 1, 11, 12, 100, 1400, 60000): s.send(os.urandom(n))
print(ask('', raw=struct.pack('>HHHHHH', 1, 256, 9, 0, 0, 0) + b'\\xc0\\x0c' * 40)[0], ask('', raw=struct.pack('>HHHHHH', 1, 256, 1, 0, 0, 0) + b'\\x03a.b\\0' + struct.pack('>HH', 1, 1))[0])
t = socket.create_connection(('203.0.113.53', 53)); t.send(b'\\xff\\xff' + os.urandom(100000)); t.close()
print(ask('web.test')[:2])`)
    assert.equal(result.stdout, '1 5\n(0, 1)\n', result.stderr)
  })

  test('a name that leads inside is refused, and told', async () => {
    const result = await python(`${DNS}\nprint(ask('inside.allowed.test')[:2], ask('metadata.allowed.test')[:2], ask('mixed.allowed.test')[:2])`)
    assert.equal(result.stdout, '(5, 0) (5, 0) (0, 1)\n', result.stderr)
    await logged({ name: 'metadata.allowed.test', verdict: 'denied', reason: /not of the internet/ })
  })
})

describe('connections', () => {
  test('a raw address is refused: 403 with the rule for HTTP, an end for the rest', async () => {
    const plain = await curl(`-w '\\n%{http_code}' http://203.0.113.1/`)
    const [body, code] = plain.stdout.split('\n')
    assert.equal(code, '403', plain.stdout)
    assert.deepEqual([JSON.parse(body).egress.rule, JSON.parse(body).egress.address, JSON.parse(body).code], ['0.0.0.0/0', '203.0.113.1', 403])
    for (const url of ['https://203.0.113.1/', 'https://203.0.113.2:8443/', 'http://203.0.113.1:7/'])
      assert.match((await curl(`-w '%{http_code}' -o /dev/null ${url}`)).stdout, /^(000|403)$/, url)
    const line = await logged({ address: '203.0.113.2', port: 8443, verdict: 'denied' })
    assert.match(line.reason, /SNI/)
  })

  test('protocols without a name are refused fast', async () => {
    const result = await python(`
import socket, time
for host, port in (('192.0.2.9', 22), ('web.test', 7)):
    s = socket.create_connection((host, port)); s.settimeout(20); begin = time.time()
    if port == 7: s.send(b'\\x00\\x01\\x02')
    try: print(s.recv(100) or 'end')
    except ConnectionResetError: print('reset', time.time() - begin < ${3 * patience})`)
    assert.equal(result.stdout, 'reset True\nreset True\n', result.stderr)
  })

  test('an allowed name at another address is refused', async () => {
    assert.equal((await curl('https://web.test/')).exitCode, 0)
    for (const scheme of ['http', 'https']) {
      const port = scheme === 'http' ? 80 : 443
      const result = await curl(`-w '%{http_code}' -o /dev/null --resolve web.test:${port}:203.0.113.2 ${scheme}://web.test/`)
      assert.match(result.stdout, scheme === 'http' ? /403/ : /000/, result.stderr)
    }
    await logged({ name: 'web.test', address: '203.0.113.2', verdict: 'denied', reason: /never answered/ })
  })

  test('another name at an allowed address is refused (fronting)', async () => {
    assert.equal((await curl('https://web.test/')).exitCode, 0)
    assert.match((await curl(`-w '%{http_code}' -o /dev/null --resolve other.test:443:203.0.113.1 https://other.test/`)).stdout, /000/)
    assert.match((await curl(`-w '%{http_code}' -H 'Host: other.test' http://web.test/`)).stdout, /403$/)
    assert.match((await curl(`-w '%{http_code}' --resolve dns.test:853:203.0.113.1 https://dns.test:853/`)).stdout, /000/)
    assert.match((await curl(`-w '%{http_code}' --resolve dns.test:443:203.0.113.1 -H 'content-type: application/dns-message' --data x https://dns.test/dns-query`)).stdout, /000/)
  })

  test('every request of a connection is looked at', async () => {
    const result = await python(`
import socket
s = socket.create_connection(('web.test', 80)); s.settimeout(10)
def one(host, path='/'):
    try:
        s.send(f'GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n'.encode())
        return s.recv(4096)[9:12].decode() or 'end'
    except OSError: return 'broken'
print(one('web.test'), one('web.test'), one('other.test'))
s = socket.create_connection(('web.test', 80)); s.settimeout(10)
s.send(b'POST / HTTP/1.1\\r\\nHost: web.test\\r\\nContent-Length: 3\\r\\n\\r\\nabcGET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')
got = b''
try:
    while True:
        more = s.recv(4096)
        if not more: break
        got += more
except OSError: pass
print(b'other.test' in got)`)
    assert.match(result.stdout, /^200 200 (end|broken)\nFalse\n$/, result.stderr)
  })

  const TLS = `
import socket, ssl, time
def hello(name):
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    t = c.wrap_bio(i, o, server_hostname=name)
    try: t.do_handshake()
    except ssl.SSLWantReadError: pass
    return o.read()
def answer(parts, host='web.test'):
    s = socket.create_connection((host, 443)); s.settimeout(10); s.setsockopt(6, 1, 1)
    try:
        for p in parts: s.send(p); time.sleep(0.002)
        return s.recv(1)[:1]
    except OSError: return b''
def records(h, size):
    body = h[5:]
    return b''.join(b'\\x16\\x03\\x01' + len(body[i:i+size]).to_bytes(2, 'big') + body[i:i+size] for i in range(0, len(body), size))
`
  test('a hello in pieces is put together, whoever it is for', async () => {
    const result = await python(`${TLS}
good, bad = hello('web.test'), hello('other.test')
print([answer([h]) == b'\\x16' for h in (good, bad)])
print([answer([h[i:i+1] for i in range(len(h))]) == b'\\x16' for h in (good, bad)])
print([answer([records(h, 7)]) == b'\\x16' for h in (good, bad)])
print(answer([hello(None)]), answer([b'\\x16\\x03\\x01\\x00\\x05\\x01\\x00\\x00\\x01\\x00']), answer([good[:20]])[:1])`)
    assert.equal(result.stdout, "[True, False]\n[True, False]\n[True, False]\nb'\\x15' b'' b''\n", result.stderr)
  })

  test('a range that is allowed needs no name', async () => {
    const sandbox = await create({ allowOut: ['web.test', '203.0.113.2'], denyOut: CLOSED })
    assert.equal((await curl('http://203.0.113.2/', sandbox)).exitCode, 0)
    const greeting = await python(`import socket\ns = socket.create_connection(('203.0.113.2', 22)); s.settimeout(5)\nprint(s.recv(100))`, sandbox)
    assert.match(greeting.stdout, /SSH-2.0-world/, greeting.stderr)
    assert.match((await curl(`-w '%{http_code}' http://203.0.113.1/`, sandbox)).stdout, /403$/)
    await sandbox.kill()
  })

  test('neither UDP, QUIC nor ping gets out, and fails at once', async () => {
    const result = await python(`
import socket, time
for port in (7, 443, 5353):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.connect(('203.0.113.1', port)); begin = time.time()
    try: s.send(b'x'); print(s.recv(10))
    except OSError as e: print(type(e).__name__, time.time() - begin < 2)`)
    for (const line of result.stdout.trim().split('\n')) assert.match(line, /^(ConnectionRefusedError|PermissionError|OSError) True$/, result.stderr)
    assert.notEqual((await shell(box, 'ping -c1 -W2 203.0.113.1')).exitCode, 0)
  })

  test('what is not of the internet stays out of reach', async () => {
    for (const host of ['10.9.9.9', '169.254.169.254', '192.168.77.1', '127.0.0.1', '169.254.0.1', '198.51.100.2'])
      for (const port of [80, 7053, 7443, server.port]) assert.doesNotMatch((await curl(`-m 5 -H 'Host: web.test' http://${host}:${port}/`)).stdout, /peer/, `${host}:${port}`)
  })
})

describe('changes', () => {
  test('a rule that goes cuts what is open, within 50 ms', async () => {
    const sandbox = await create(POLICY)
    const running = shell(sandbox, `python3 - <<'EOP'
import socket, time
s = socket.create_connection(('web.test', 80)); s.send(b'GET /drip HTTP/1.1\\r\\nHost: web.test\\r\\n\\r\\n')
s.settimeout(20); last = 0
try:
    while s.recv(100):
        if not last: open('/tmp/flows', 'w').close()
        last = time.time()
except OSError: pass
print(last)
EOP`, { timeoutMs: 60_000 })
    await logged({ name: 'web.test', verdict: 'allowed' }, sandbox)
    await eventually('bytes flow', async () => (await shell(sandbox, 'test -e /tmp/flows')).exitCode === 0)
    const begin = Date.now()
    await put(sandbox, { allowOut: ['api.allowed.test'], denyOut: CLOSED })
    const told = Date.now()
    const last = Number((await running).stdout) * 1000
    assert.ok(last > begin - 200 && last < told + 50 * patience, `the last byte came ${last - told} ms after the answer`)
    assert.equal((await curl('https://api.allowed.test/', sandbox)).exitCode, 0)
    assert.notEqual((await curl('https://web.test/', sandbox)).exitCode, 0)
    await put(sandbox, {})
    assert.equal((await curl('https://other.test/', sandbox)).exitCode, 0)
    await put(sandbox, POLICY)
    assert.notEqual((await curl('https://other.test/', sandbox)).exitCode, 0)
    assert.equal((await curl('https://web.test/', sandbox)).exitCode, 0)
    await sandbox.kill()
  })

  test('10,000 names', async () => {
    const allowOut = Array.from({ length: 9999 }, (_, i) => (i % 2 ? `*.n${i}.test` : `n${i}.test`)).concat('web.test')
    const sandbox = await create({ allowOut, denyOut: CLOSED })
    assert.equal((await curl('https://web.test/', sandbox)).exitCode, 0)
    assert.notEqual((await curl('https://other.test/', sandbox)).exitCode, 0)
    await sandbox.kill()
  })

  test('through pause, a boot from disk and a fork', async () => {
    const sandbox = await create(POLICY)
    const holds = async (one) => {
      assert.equal((await curl('https://web.test/', one)).exitCode, 0)
      assert.notEqual((await curl('https://other.test/', one)).exitCode, 0)
      assert.match((await curl(`-w '%{http_code}' http://203.0.113.2/`, one)).stdout, /403$/)
    }
    for (const memory of [true, false]) {
      assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory })).status, 204)
      assert.ok((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 300 })).status < 300)
      await holds(sandbox)
    }
    await sandbox.kill()
  })
})

// Between its end and its next start there is none.
const egressPids = () => fs.readdirSync('/proc').filter((pid) => {
  try {
    return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('quicksand\0serve-egress')
  } catch {
    return false
  }
}).map(Number)

describe('the process', () => {
  test('has nothing but its sockets', async () => {
    const [pid] = egressPids()
    const status = fs.readFileSync(`/proc/${pid}/status`, 'utf8')
    assert.match(status, /^Uid:\s+64739\s+64739\s+64739\s+64739$/m)
    assert.match(status, /^CapEff:\s+0+$/m)
    assert.match(status, /^CapPrm:\s+0+$/m)
    assert.match(status, /^NoNewPrivs:\s+1$/m)
    assert.match(status, /^Seccomp:\s+2$/m)
    assert.notEqual(fs.readlinkSync(`/proc/${pid}/ns/net`), fs.readlinkSync('/proc/self/ns/net'))
  })

  test('killed, it is started again and everything holds as before', async () => {
    const [pid] = egressPids()
    process.kill(pid, 'SIGKILL')
    await eventually('another one', () => egressPids().some((one) => one !== pid))
    await eventually('it works', async () => (await curl('https://web.test/')).exitCode === 0)
    assert.notEqual((await curl('https://other.test/')).exitCode, 0)
    assert.match((await curl(`-w '%{http_code}' http://203.0.113.2/`)).stdout, /403$/)
  })
})
