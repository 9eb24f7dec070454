// Bytes on a client's connection: a sandbox that answers with something else than HTTP means must not get at
// what the client asks next on the same connection, and a client not at what others ask of the sandbox.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import http from 'node:http'
import { after, before, describe, test } from 'node:test'
import { RawHttp2, get } from '../harness/http2-raw.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk, sandbox, id
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  id = sandbox.sandboxId
  await sandbox.files.write('/home/user/raw.py', RAW)
  await sandbox.commands.run('python3 /home/user/raw.py', { background: true, timeoutMs: 0 })
  await eventually('the server inside', async () => (await server.sandbox(id, 7100, answer('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'))).status === 200)
})
after(() => server.destroy())

// Inside: answers with the bytes that the path asks for, then closes. Port 7101 tells what it got, head and all.
const RAW = String.raw`
import base64, json, socket, socketserver, threading, time

class Raw(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.request.recv(65536)
            if not more: return
            data += more
        path = data.split(b" ")[1][1:]
        data = base64.urlsafe_b64decode(path + b"=" * (-len(path) % 4))
        at = data.find(b"HTTP/1.1 200 OK\r\nX-Forged")
        self.request.sendall(data[:at] if at > 0 else data)
        if at > 0:
            time.sleep(0.2) # the client's next question is on its way by now
            self.request.sendall(data[at:])

class Tell(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        self.request.settimeout(1)
        try:
            while b"QUIT" not in data:
                more = self.request.recv(65536)
                if not more: break
                data += more
        except TimeoutError: pass
        body = json.dumps(data.decode("latin1")).encode()
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64
threading.Thread(target=Server(("", 7101), Tell).serve_forever).start()
Server(("", 7100), Raw).serve_forever()
`

const answer = (bytes) => `/${Buffer.from(bytes, 'latin1').toString('base64url')}`
const routed = (port = 7100) => ({ 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': String(port) })

const FORGED = 'HTTP/1.1 200 OK\r\nX-Forged: yes\r\nContent-Length: 8\r\n\r\n"FORGED"'
const chunks = `3\r\nabc\r\n0\r\n\r\n${FORGED}`
const head = (...lines) => `HTTP/1.1 200 OK\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`

// What a sandbox may say. Each is followed by an answer to a question that nobody has asked it.
const ANSWERS = {
  'chunked, then gzip in a header of its own': head('Transfer-Encoding: chunked', 'Transfer-Encoding: gzip') + chunks,
  'gzip, then chunked in a header of its own': head('Transfer-Encoding: gzip', 'Transfer-Encoding: chunked') + chunks,
  'chunked, then identity': head('Transfer-Encoding: chunked', 'Transfer-Encoding: identity') + chunks,
  'chunked twice': head('Transfer-Encoding: chunked', 'Transfer-Encoding: chunked') + chunks,
  'chunked, chunked': head('Transfer-Encoding: chunked, chunked') + chunks,
  'chunked, gzip': head('Transfer-Encoding: chunked, gzip') + chunks,
  'gzip, chunked': head('Transfer-Encoding: gzip, chunked') + chunks,
  'identity and chunks': head('Transfer-Encoding: identity') + chunks,
  'an encoding nobody knows': head('Transfer-Encoding: xchunked') + chunks,
  'an encoding with a tab of another kind': head('Transfer-Encoding: \x0bchunked') + chunks,
  'a folded encoding': head('Transfer-Encoding:\r\n chunked') + chunks,
  'a folded encoding in two halves': head('Transfer-Encoding: chun\r\n ked') + chunks,
  'an encoding with a space before its colon': head('Transfer-Encoding : chunked') + chunks,
  'line feeds alone': `HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n0\r\n\r\n${FORGED}`,
  'chunks in HTTP/1.0': `HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n${chunks}`,
  'length and chunks': head('Content-Length: 3', 'Transfer-Encoding: chunked') + chunks,
  'chunks and length': head('Transfer-Encoding: chunked', 'Content-Length: 13') + chunks,
  'two lengths': head('Content-Length: 0', `Content-Length: ${FORGED.length}`) + FORGED,
  'two lengths in one header': head(`Content-Length: 0, ${FORGED.length}`) + FORGED,
  'a length with a sign': head('Content-Length: +0') + FORGED,
  'no length, but kept': head('Connection: keep-alive') + FORGED,
  'more than the length': head('Content-Length: 3') + `abc${FORGED}`,
  'more than the chunks': head('Transfer-Encoding: chunked') + chunks,
  'a length hidden by Connection': head('Connection: content-length', 'Content-Length: 3') + `abc${FORGED}`,
  'chunks hidden by Connection': head('Connection: transfer-encoding', 'Transfer-Encoding: chunked') + chunks,
  'a chunk size with a sign': head('Transfer-Encoding: chunked') + `+3\r\nabc\r\n0\r\n\r\n${FORGED}`,
  'a chunk size that is too long': head('Transfer-Encoding: chunked') + `10000000000000003\r\nabc\r\n0\r\n\r\n${FORGED}`,
  'chunks that end with line feeds': head('Transfer-Encoding: chunked') + `3\nabc\n0\n\n${FORGED}`,
  'an extension with a line feed': head('Transfer-Encoding: chunked') + `3;\nabc\r\n0\r\n\r\n${FORGED}`,
  'a trailer that is an answer': head('Transfer-Encoding: chunked') + `3\r\nabc\r\n0\r\nContent-Length: 0\r\nX: y\r\n\r\n${FORGED}`,
  'a 100 that is one, and then one more': `HTTP/1.1 100 Continue\r\n\r\n${head('Content-Length: 3')}abc${FORGED}`,
  'a 103 with a body': `HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\nabc${FORGED}`,
  'a 204 with a body': `HTTP/1.1 204 No Content\r\nContent-Length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'a 204 with chunks': `HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`,
  'a 304 with a body': `HTTP/1.1 304 Not Modified\r\nContent-Length: ${FORGED.length}\r\n\r\n${FORGED}`,
  'a 101 that nobody asked for': `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n${FORGED}`,
  'a reason with a carriage return': `HTTP/1.1 200 OK\rContent-Length: 0\r\nContent-Length: 3\r\n\r\nabc${FORGED}`,
  'HTTP/0.9': `abc${FORGED}`,
}

// Two requests on one connection, if it is kept: the first to the sandbox, the second to the control plane.
const PYTHON = String.raw`
import concurrent.futures, http.client, json, sys
host, port, key, sandbox, cases = json.load(sys.stdin)
def ask(case):
    name, (method, path) = case
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request(method, path, headers={"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "7100"})
        connection.getresponse().read()
    except Exception:
        connection.close()
    connection.request("GET", "/sandboxes", headers={"X-API-KEY": key})
    answer = connection.getresponse()
    try:
        return name, [answer.status, answer.read().decode()]
    finally:
        connection.close()
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(json.dumps(dict(pool.map(ask, cases.items()))))
`
async function askPython(cases) {
  const child = spawn('python3', ['-c', PYTHON], { stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.end(JSON.stringify([server.host, server.port, server.key, id, cases]))
  let out = ''
  for await (const chunk of child.stdout) out += chunk
  return JSON.parse(out)
}

async function askNode(cases) {
  const one = async ([name, [method, path]]) => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
    await server.request({ method, path, headers: routed(), agent }).catch(() => {})
    const second = await server.request({ path: '/sandboxes', headers: { 'X-API-KEY': server.key }, agent }).finally(() => agent.destroy())
    return [name, [second.status, second.text]]
  }
  return Object.fromEntries(await Promise.all(Object.entries(cases).map(one)))
}

describe('what a sandbox answers does not reach the next question', () => {
  const cases = (method) => Object.fromEntries(Object.entries(ANSWERS).map(([name, bytes]) => [name, [method, answer(bytes)]]))
  for (const [client, ask] of [['http.client', askPython], ['Node', askNode]]) {
    for (const method of ['GET', 'HEAD', 'POST']) {
      test(`${client}, ${method}`, async () => {
        const results = await ask(cases(method))
        assert.equal(Object.keys(results).length, Object.keys(ANSWERS).length)
        for (const [name, [status, text]] of Object.entries(results)) {
          assert.equal(status, 200, `${name}: ${text}`)
          assert.deepEqual(JSON.parse(text).map((one) => one.sandboxID), [id], name)
        }
      })
    }
  }

  // Whatever came in, what goes out says once how it ends, and keeps the connection only if it does.
  test('one statement about the end', async () => {
    for (const [name, bytes] of Object.entries(ANSWERS)) {
      const socket = await server.connect()
      socket.write(`GET ${answer(bytes)} HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: ${id}\r\nE2b-Sandbox-Port: 7100\r\n\r\nGET /sandboxes HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${server.key}\r\nConnection: close\r\n\r\n`)
      await socket.ended
      socket.destroy()
      if (!socket.received) continue // cut: the body was none
      const first = socket.received.slice(0, socket.received.indexOf('\r\n\r\n'))
      const ends = first.match(/^(content-length|transfer-encoding):.*/gim) ?? []
      const closed = /^connection: close$/im.test(first)
      assert.ok(ends.length <= 1, `${name}:\n${first}`)
      assert.ok(!ends.length || /^(content-length: \d+|transfer-encoding: chunked)$/i.test(ends[0]), `${name}:\n${first}`)
      assert.ok(ends.length === 1 || closed || / (204|304) /.test(first), `${name}:\n${first}`)
    }
  })

  test('header names that are none are not passed on', async () => {
    for (const name of ['X Y', 'X\tY', 'X(Y', 'X\x80Y']) {
      const got = await server.sandbox(id, 7100, answer(`HTTP/1.1 200 OK\r\n${name}: z\r\nContent-Length: 3\r\n\r\nabc`))
      assert.equal(got.status, 502, `${JSON.stringify(name)}: ${got.text}`)
    }
  })

  test('what is plain HTTP still arrives', async () => {
    const bodies = {
      length: head('Content-Length: 3') + 'abc',
      chunked: head('Transfer-Encoding: Chunked') + '3;ext=1\r\nabc\r\n0\r\nX-Trailer: y\r\n\r\n',
      'until close': head() + 'abc',
      'until close, HTTP/1.0': 'HTTP/1.0 200 OK\r\n\r\nabc',
      'after hints': `HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n${head('Content-Length: 3')}abc`,
    }
    for (const [name, bytes] of Object.entries(bodies)) {
      const got = await server.sandbox(id, 7100, answer(bytes))
      assert.deepEqual([got.status, got.text], [200, 'abc'], name)
    }
    const got = await server.sandbox(id, 7100, answer(head('Content-Length: 3')), { method: 'HEAD' })
    assert.equal(got.headers['content-length'], '3')
  })
})

describe('upgrades', () => {
  const ask = async (upgrade, bytes, more = '') => {
    const socket = await server.connect()
    socket.write(`GET ${answer(bytes)} HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: ${id}\r\nE2b-Sandbox-Port: 7100\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n${more}\r\n`)
    await eventually('an answer', () => socket.received.includes('\r\n\r\n'))
    socket.destroy()
    return socket.received
  }
  const switched = (protocol) => `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\nContent-Length: 5\r\n\r\nhello`

  // Java's HttpClient offers h2c by itself and would send its next requests, keys included, into the sandbox.
  test('a sandbox cannot become the server of all that follows', async () => {
    for (const protocol of ['h2c', 'H2C', 'HTTP/2.0', 'websocket, h2c', 'TLS/1.0']) {
      assert.match(await ask(protocol, switched('h2c'), 'HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n'), /^HTTP\/1\.1 502/, protocol)
      assert.match(await ask(protocol, head('Content-Length: 3') + 'abc'), /^HTTP\/1\.1 200/, protocol)
    }
    assert.match(await ask('websocket', switched('h2c')), /^HTTP\/1\.1 502/)
  })

  test('what was asked for is switched to, without a length', async () => {
    const got = await ask('websocket', switched('websocket'))
    assert.match(got, /^HTTP\/1\.1 101/)
    assert.doesNotMatch(got, /content-length/i)
  })
})

// What reaches a server inside: one request at a time, with one statement about its end.
describe('requests that go in', () => {
  const inside = (lines, body = '') => server.raw(`POST / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: ${id}\r\nE2b-Sandbox-Port: 7101\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n${body}`, { limitMs: 20_000 })
  const SECOND = 'GET /second HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n'

  test('ambiguous ones are refused before', async () => {
    const shapes = {
      'both lengths': [['Content-Length: 5', 'Transfer-Encoding: chunked'], `0\r\n\r\n${SECOND}`],
      'two lengths': [['Content-Length: 5', 'Content-Length: 6'], `hello${SECOND}`],
      'two encodings': [['Transfer-Encoding: chunked', 'Transfer-Encoding: gzip'], `0\r\n\r\n${SECOND}`],
      'chunked twice': [['Transfer-Encoding: chunked, chunked'], `0\r\n\r\n${SECOND}`],
      'a folded header': [['X: y', ' Content-Length: 5'], `hello${SECOND}`],
      'a space before the colon': [['Transfer-Encoding : chunked'], `0\r\n\r\n${SECOND}`],
      'a carriage return alone': [['X: y\rContent-Length: 5'], `hello${SECOND}`],
      'a line feed alone': [['X: y\nContent-Length: 5'], `hello${SECOND}`],
    }
    for (const [name, [lines, body]] of Object.entries(shapes)) {
      const got = await inside(lines, body)
      assert.match(got, /^HTTP\/1\.1 (400|501) /, `${name}:\n${got}`)
      assert.doesNotMatch(got.slice(12), /HTTP\/1\.1 200/, `${name}:\n${got}`)
    }
  })

  // Neither reaches the server inside, nor does what follows become a request of its own.
  const CONTROLS = ['\0', '\x01', '\x0b', '\x1f', '\x7f']
  const malformed = {
    ...Object.fromEntries([...' \t"(),/;<=>?@[\\]{}\x80\xff', ...CONTROLS].map((c) => [`${JSON.stringify(c)} in a header name`, [[`X${c}Y: z`]]])),
    ...Object.fromEntries(CONTROLS.map((c) => [`${JSON.stringify(c)} in a header value`, [[`X: y${c}z`]]])),
    'a header name that ends with a tab': [['Content-Length\t: 5'], `hello${SECOND}`],
    'a header without a name': [[': x']],
    'a header without a colon': [['Content-Length 5'], `hello${SECOND}`],
    'folding with a tab': [['X: y', '\tz']],
    'a length with a sign': [['Content-Length: +5'], `hello${SECOND}`],
    'a negative length': [['Content-Length: -5'], SECOND],
    'a hexadecimal length': [['Content-Length: 0x5'], `hello${SECOND}`],
    'a length with a space': [['Content-Length: 5 5'], `hello${SECOND}`],
    'a list of lengths': [['Content-Length: 5, 5'], `hello${SECOND}`],
    'the same length twice': [['Content-Length: 5', 'Content-Length: 5'], `hello${SECOND}`],
    'a length of 2^64 + 5': [['Content-Length: 18446744073709551621'], `hello${SECOND}`],
    'an empty length': [['Content-Length:'], SECOND],
    'a length behind an encoding': [['Transfer-Encoding: chunked', 'Content-Length: 5'], `0\r\n\r\n${SECOND}`],
    'another encoding before chunked': [['Transfer-Encoding: gzip, chunked'], `0\r\n\r\n${SECOND}`],
    'an encoding with a parameter': [['Transfer-Encoding: chunked;q=1'], `0\r\n\r\n${SECOND}`],
    'an encoding that only ends with chunked': [['Transfer-Encoding: xchunked'], `0\r\n\r\n${SECOND}`],
    'an empty encoding': [['Transfer-Encoding:'], `0\r\n\r\n${SECOND}`],
    'two hosts': [['Host: y']],
  }
  for (const [name, [lines, body]] of Object.entries(malformed)) {
    test(`refused: ${name}`, async () => {
      const got = await inside(lines, body)
      assert.match(got, /^HTTP\/1\.1 (400|413|501) /, got)
      assert.doesNotMatch(got.slice(12), /HTTP\/1\.1 /, got)
    })
  }

  test('targets that others would read differently are refused', async () => {
    for (const target of ['/a#b', '/a b', '/a\tb', 'a', '/a\x7f', '/a\0', 'http://y/']) {
      const got = await server.raw(`GET ${target} HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: ${id}\r\nE2b-Sandbox-Port: 7101\r\n\r\n${SECOND}`, { limitMs: 20_000 })
      assert.match(got, /^HTTP\/1\.1 400 /, `${JSON.stringify(target)}: ${got}`)
      assert.doesNotMatch(got.slice(12), /HTTP\/1\.1 /, got)
    }
  })

  test('chunks that others would read differently end the connection', async () => {
    for (const chunk of ['0x5\r\nhello\r\n', '+5\r\nhello\r\n', '-5\r\nhello\r\n', '5 5\r\nhello\r\n', '5\nhello\r\n', '5\r\nhelloXX', '5\r\nhello\n', '\r\nhello\r\n', ';x\r\n', '10000000000000005\r\nhello\r\n', '5;x\0\r\nhello\r\n', `5;${'x'.repeat(5000)}\r\nhello\r\n`]) {
      const got = await inside(['Transfer-Encoding: chunked'], `${chunk}0\r\n\r\n${SECOND}`)
      assert.doesNotMatch(got, /HTTP\/1\.1 200/, `${JSON.stringify(chunk.slice(0, 40))}: ${got}`)
    }
    for (const trailer of ['X Y: z', 'X: y\n', ' x: y', ': y', 'x']) {
      const got = await inside(['Transfer-Encoding: chunked'], `9\r\nbody QUIT\r\n0\r\n${trailer}\r\n\r\n${SECOND}`)
      assert.doesNotMatch(got, /HTTP\/1\.1 200[^]*HTTP\/1\.1 /, `${JSON.stringify(trailer)}: ${got}`)
    }
    const padded = await inside(['Connection: close', 'Transfer-Encoding: chunked'], '9  \r\nbody QUIT\r\n0\r\n\r\n')
    assert.match(padded, /^HTTP\/1\.1 200 /, padded)
  })

  test('malformed heads of HTTP/2 are refused, one by one', async () => {
    const route = [['e2b-sandbox-id', id], ['e2b-sandbox-port', '7101']]
    const fine = get('/', route)
    const without = (name) => fine.filter(([one]) => one !== name)
    const instead = (name, value) => fine.map(([one, was]) => [one, one === name ? value : was])
    const shapes = {
      'an upper-case name': [...fine, ['X-Y', 'z']],
      'a space in a name': [...fine, ['x y', 'z']],
      'a colon in a name': [...fine, ['x:y', 'z']],
      'an empty name': [...fine, ['', 'z']],
      'a line end in a value': [...fine, ['x', 'y\r\nz: 1']],
      'a NUL in a value': [...fine, ['x', 'y\0']],
      'no method': without(':method'),
      'no path': without(':path'),
      'an empty path': instead(':path', ''),
      'a path that is a URL': instead(':path', 'http://y/'),
      'a path with a space': instead(':path', '/ HTTP/1.1'),
      'a path with a line end': instead(':path', '/ HTTP/1.1\r\nX: y'),
      'a method with a space': instead(':method', 'GET / HTTP/1.1'),
      'a second path': [...fine.slice(0, 4), [':path', '/b'], ...route],
      'an unknown pseudo field': [...fine.slice(0, 4), [':x', 'y'], ...route],
      'a pseudo field of responses': [...fine.slice(0, 4), [':status', '200'], ...route],
      'a protocol that was not offered': [...fine.slice(0, 4), [':protocol', 'websocket'], ...route],
      'a pseudo field behind a header': [...without(':path'), [':path', '/']],
      'another host': [...fine, ['host', 'other']],
      'a line end in the authority': instead(':authority', 'x\r\ny: z'),
      ...Object.fromEntries([['connection', 'close'], ['connection', 'x-y'], ['keep-alive', 'x'], ['proxy-connection', 'x'], ['transfer-encoding', 'chunked'], ['upgrade', 'websocket'], ['te', 'gzip']].map(([name, value]) => [`${name}: ${value}`, [...fine, [name, value]]])),
      'two lengths': [...fine, ['content-length', '0'], ['content-length', '5']],
      'a length that is not what follows': [...fine, ['content-length', '5']],
      'a length that is no number': [...fine, ['content-length', '+0']],
    }
    for (const [name, fields] of Object.entries(shapes)) {
      const connection = await RawHttp2.open({ host: server.host, port: server.port }, { window: 65535 })
      connection.ask(fields)
      await eventually(`${name}: an end`, () => connection.over || connection.resets.size || connection.ended.has(1) || connection.goaway !== undefined)
      assert.doesNotMatch(connection.body(1), /e2b|HTTP\/1\.1/, `${name} came in: ${connection.body(1)}`)
      // What is refused by a status has one of 4xx in HPACK's table or as a literal; none is 200 (0x88).
      assert.notEqual(connection.statuses.get(1), 0x88, name)
      connection.close()
    }
    const connection = await RawHttp2.open({ host: server.host, port: server.port }, { window: 65535 })
    connection.ask(fine)
    await eventually('the well-formed one comes in', () => connection.ended.has(1))
    assert.equal(connection.statuses.get(1), 0x88)
    connection.close()
  })

  test('a length hidden by Connection stays, trailers and extensions do not', async () => {
    for (const lines of [['Connection: close, content-length', 'Content-Length: 9'], ['Connection: close, transfer-encoding', 'Transfer-Encoding: chunked']]) {
      const got = await inside(lines, lines[1].startsWith('C') ? 'body QUIT' : '9;x=1\r\nbody QUIT\r\n0\r\nContent-Length: 100\r\n\r\n')
      const seen = JSON.parse(got.slice(got.indexOf('\r\n\r\n') + 4))
      assert.equal((seen.match(/^(content-length|transfer-encoding):/gim) ?? []).length, 1, seen)
      assert.doesNotMatch(seen, /x=1/)
      assert.match(seen, /^connection: close\r$/im)
    }
  })

  test('a wish for another protocol with a body is no wish', async () => {
    const got = await inside(['Connection: Upgrade, close', 'Upgrade: websocket', 'Content-Length: 9'], 'body QUIT')
    const seen = JSON.parse(got.slice(got.indexOf('\r\n\r\n') + 4))
    assert.doesNotMatch(seen, /^upgrade:/im)
    assert.match(seen, /^connection: close\r$/im)
  })
})
