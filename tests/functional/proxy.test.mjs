// Reaching into sandboxes: routing by headers and host names, streams, upgrades, and the errors in between.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import fs from 'node:fs'
import http from 'node:http'
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sandbox, id
before(async () => {
  server = await startServer()
  const sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 })
  id = sandbox.sandboxId
  await sandbox.files.write('/home/user/echo.py', ECHO)
  await sandbox.commands.run('python3 /home/user/echo.py', { background: true, timeoutMs: 0 })
  for (const port of [7001, 7002, 7003]) await eventually(`port ${port}`, async () => (await server.sandbox(id, port, '/')).status === 200)
})
after(() => server.destroy())

// A server inside that says what it was asked, on all addresses, IPv4 loopback and IPv6 loopback; port 7004
// speaks raw TCP after an upgrade.
const ECHO = String.raw`
import base64, hashlib, http.server, json, socket, socketserver, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def reply(self, body, status=200, headers=()):
        self.send_response(status)
        for k, v in headers: self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline(), 16)
                if n == 0: break
                out += self.rfile.read(n)
                self.rfile.readline()
            while line := self.rfile.readline().strip(): self.trailers.append(line.decode())
            return out
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))
    def do_GET(self):
        if self.headers.get("Upgrade"): return self.upgrade()
        if self.path == "/slow":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for i in range(3):
                self.wfile.write(b"6\r\ntick %d\r\n" % i); self.wfile.flush(); time.sleep(0.4)
            self.wfile.write(b"0\r\n\r\n"); return
        if self.path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
            for i in range(3):
                self.wfile.write(b"id: %d\ndata: x\n\n" % i); self.wfile.flush(); time.sleep(0.3)
            self.close_connection = True; return
        if self.path == "/poll":
            time.sleep(4)
            return self.reply(b"at last")
        if self.path == "/trailers":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.send_header("Trailer", "X-Sum"); self.end_headers()
            self.wfile.write(b"2\r\nok\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\n\r\n"); self.wfile.flush(); return
        if self.path == "/flood":
            self.send_response(200); self.send_header("Content-Length", str(1 << 28)); self.end_headers()
            sent = 0
            block = b"x" * 65536
            while sent < 1 << 28:
                self.wfile.write(block); sent += len(block)
                self.server.sent = sent
            return
        if self.path == "/sent": return self.reply(str(getattr(self.server, "sent", 0)).encode())
        if self.path == "/cut":
            self.send_response(200); self.send_header("Content-Length", "1000"); self.end_headers()
            self.wfile.write(b"part"); self.wfile.flush(); self.close_connection = True; return
        if self.path == "/teapot": return self.reply(b"short and stout", 418, [("X-Inside", "yes"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
        seen = {"path": self.path, "method": self.command, "headers": {k.lower(): v for k, v in self.headers.items()}}
        self.reply(json.dumps(seen).encode())
    def do_POST(self):
        if self.path == "/count":
            left = length = int(self.headers["Content-Length"])
            while left: left -= len(self.rfile.read(min(left, 1 << 20)))
            return self.reply(json.dumps({"length": length}).encode())
        self.trailers = []
        body = self.body()
        if self.path == "/trailers":
            return self.reply(json.dumps([len(body), self.trailers, self.headers.get_all("TE")]).encode())
        self.reply(json.dumps({"length": len(body), "sha": hashlib.sha256(body).hexdigest(), "method": self.command}).encode())
    do_PUT = do_DELETE = do_PATCH = do_POST
    def upgrade(self):
        key = self.headers.get("Sec-WebSocket-Key", "")
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        self.send_response(101); self.send_header("Upgrade", self.headers["Upgrade"]); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept); self.end_headers(); self.wfile.flush()
        while True:
            data = self.connection.recv(65536)
            if not data: break
            self.connection.sendall(data.upper())
        self.connection.sendall(b"bye")
        self.close_connection = True

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128
class Server6(Server):
    address_family = socket.AF_INET6
for cls, host, port in ((Server, "0.0.0.0", 7001), (Server, "127.0.0.1", 7002), (Server6, "::1", 7003)):
    threading.Thread(target=cls((host, port), Handler).serve_forever).start()
`

const inside = (port, path, options) => server.sandbox(id, port, path, options)

describe('routing', () => {
  test('by headers: what the client sent arrives', async () => {
    const answer = await inside(7001, '/a/b?c=d%20e', { headers: { 'X-Mine': 'yes', Cookie: 'x=y' } })
    assert.equal(answer.status, 200, answer.text)
    assert.equal(answer.body.path, '/a/b?c=d%20e')
    assert.equal(answer.body.headers['x-mine'], 'yes')
    assert.equal(answer.body.headers.cookie, 'x=y')
  })

  test('by host name, with and without client id and port', async () => {
    for (const host of [`7001-${id}.example.com`, `7001-${id}-6532622b.example.com`, `7001-${id}.sandbox.test:8443`, `7001-${id.toUpperCase()}.EXAMPLE.com`.toLowerCase()]) {
      const answer = await server.request({ path: '/hi', headers: { Host: host } })
      assert.equal(answer.status, 200, `${host}: ${answer.text}`)
      assert.equal(answer.body.headers.host, host)
    }
  })

  test('getHost() with nothing set: localhost, at the port that was asked', async () => {
    assert.equal(sandbox.getHost(7001), `7001-${id}.localhost:${server.port}`)
    const { stdout } = await promisify(execFile)('curl', ['-sS', '--max-time', '20', `http://${sandbox.getHost(7001)}/from/curl`])
    assert.equal(JSON.parse(stdout).path, '/from/curl')
    const told = async (host) => (await server.api('GET', `/sandboxes/${id}`, undefined, { headers: host ? { Host: host } : {} })).body.domain
    assert.equal(await told(), `localhost:${server.port}`)
    assert.equal(await told('localhost:8080'), 'localhost:8080') // a forwarded port
    assert.equal(await told('[::1]:8080'), 'localhost:8080')
    assert.equal(await told('LOCALHOST'), 'localhost')
    // Behind a proxy the client's E2B_DOMAIN holds, or --domain.
    for (const host of ['api.sandboxes.test', 'localhost.test', '10.0.0.1:3000', '127.0.0.1:x', '127.0.0.1:99999', '127.0.0.11']) assert.equal(await told(host), null, host)
  })

  test('ports bound to all addresses, 127.0.0.1 and ::1', async () => {
    for (const port of [7001, 7002, 7003]) assert.equal((await inside(port, '/')).status, 200, String(port))
  })

  test('status, headers and repeated headers pass through', async () => {
    const answer = await inside(7001, '/teapot', { headers: { Host: `7001-${id}.example.com` } })
    assert.equal(answer.status, 418)
    assert.equal(answer.text, 'short and stout')
    assert.equal(answer.headers['x-inside'], 'yes')
    assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2'])
  })

  test('bodies pass through, with a length and chunked', async () => {
    const body = crypto.randomBytes(3_000_000)
    const sha = crypto.createHash('sha256').update(body).digest('hex')
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      const answer = await inside(7001, '/', { method, body, headers: { 'Content-Length': body.length } })
      assert.deepEqual(answer.body, { length: body.length, sha, method })
    }
    const chunked = await inside(7001, '/', { method: 'POST', body, headers: { 'Transfer-Encoding': 'chunked' } })
    assert.equal(chunked.body.sha, sha)
  })

  test('two sandboxes do not see each other’s ports', async () => {
    const other = await server.create()
    const answer = await server.sandbox(other.sandboxID, 7001, '/')
    assert.equal(answer.status, 502)
    await server.api('DELETE', `/sandboxes/${other.sandboxID}`)
  })
})

describe('errors', () => {
  test('closed port: 502 with the documented body', async () => {
    const answer = await inside(7999, '/')
    assert.equal(answer.status, 502)
    assert.match(answer.headers['content-type'], /^application\/json/)
    assert.deepEqual(answer.body, { sandboxId: id, message: 'The sandbox is running but port is not open', port: 7999, code: 502 })
  })

  test('unknown sandbox: 502 with the documented body', async () => {
    const answer = await server.sandbox('inothingherenothing0', 80, '/')
    assert.equal(answer.status, 502)
    assert.equal(answer.body.message, 'The sandbox was not found')
    assert.equal(answer.body.sandboxId, 'inothingherenothing0')
    assert.equal(answer.body.code, 502)
  })

  test('a browser gets a page', async () => {
    const headers = { 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36', Accept: 'text/html' }
    const answer = await server.request({ headers: { Host: `80-inothinghere.example.com`, ...headers } })
    assert.equal(answer.status, 502)
    assert.match(answer.headers['content-type'], /^text\/html/)
    assert.match(answer.text, /^<html[\s\S]*Sandbox Not Found[\s\S]*<\/html>\s*$/i)
    const closed = await server.request({ headers: { Host: `7999-${id}.example.com`, ...headers } })
    assert.match(closed.text, /no service running on port/i)
  })

  test('one of the two headers: 400', async () => {
    assert.equal((await server.request({ path: '/x', headers: { 'E2b-Sandbox-Id': id } })).status, 400)
    assert.equal((await server.request({ path: '/x', headers: { 'E2b-Sandbox-Port': '80' } })).status, 400)
  })

  test('bad ids, ports and hosts: 400', async () => {
    for (const [one, port] of [['../../etc', '80'], [id, '0'], [id, '70000'], [id, '-1'], [id, 'x'], [id, '80abc'], [id, ''], ['', '80']]) {
      const answer = await server.request({ path: '/', headers: { 'E2b-Sandbox-Id': one, 'E2b-Sandbox-Port': port } })
      assert.equal(answer.status, 400, `${one} ${port}: ${answer.status} ${answer.text}`)
    }
    const answer = await server.request({ path: '/', headers: { Host: `99999-${id}.example.com` } })
    assert.equal(answer.status, 400, `${answer.status} ${answer.text}`)
  })

  test('control endpoints of envd are refused from outside', async () => {
    for (const path of ['/init', '/freeze', '/unfreeze', '/fsfreeze', '/fsthaw', '/upgrade', '/collapse', '/init/', '//init', '/%69nit', '/init?x=1', '/./init', '/a/../init']) {
      const answer = await inside(49983, path, { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json', 'X-Access-Token': 'x' } })
      assert.ok([400, 401, 404].includes(answer.status), `${path}: ${answer.status} ${answer.text}`)
    }
    assert.equal((await inside(49983, '/init', { method: 'POST', body: '{}' })).status, 404)
  })

  test('a server inside that hangs up early is seen as cut, not as complete', async () => {
    await assert.rejects(inside(7001, '/cut'))
  })
})

describe('streams', () => {
  test('pieces arrive as they are written', async () => {
    const times = []
    await new Promise((done, fail) => {
      const began = Date.now()
      const request = http.get({ host: server.host, port: server.port, path: '/slow', headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '7001' }, agent: false }, (response) => {
        response.on('data', () => times.push(Date.now() - began))
        response.on('end', done)
      })
      request.on('error', fail)
    })
    assert.ok(times.at(-1) - times[0] > 300, `pieces after ${times} ms`)
  })

  test('server-sent events, without a length and to the end of the connection', async () => {
    const times = []
    const text = await new Promise((done, fail) => {
      let all = ''
      http.get({ host: server.host, port: server.port, path: '/events', headers: { Host: `7001-${id}.example.com`, Accept: 'text/event-stream' }, agent: false }, (response) => {
        assert.equal(response.headers['content-type'], 'text/event-stream')
        response.on('data', (chunk) => (times.push(Date.now()), (all += chunk)))
        response.on('end', () => done(all))
      }).on('error', fail)
    })
    assert.equal(text, [0, 1, 2].map((at) => `id: ${at}\ndata: x\n\n`).join(''))
    assert.ok(times.at(-1) - times[0] > 300, 'they came one after the other')
  })

  test('a long poll is waited for', async () => {
    assert.equal((await inside(7001, '/poll')).text, 'at last')
  })

  test('trailers pass, but for what they must not say, and the connection goes on', async () => {
    const socket = await server.connect()
    const get = (path) => socket.write(`GET ${path} HTTP/1.1\r\nHost: 7001-${id}.example.com\r\nTE: trailers\r\n\r\n`)
    get('/trailers')
    await eventually('all of it', () => socket.received.endsWith('2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n'))
    assert.match(socket.received, /Trailer: X-Sum/)
    assert.doesNotMatch(socket.received, /Set-Cookie/)
    get('/teapot')
    await eventually('the next answer', () => socket.received.endsWith('short and stout'))
    socket.destroy()
    const sent = await server.raw(`POST /trailers HTTP/1.1\r\nHost: 7001-${id}.example.com\r\nConnection: close\r\nTE: gzip, trailers\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nHost: other\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n`)
    assert.deepEqual(JSON.parse(sent.slice(sent.indexOf('['))), [2, ['X-Sum: 1'], ['trailers']])
    assert.match(await server.raw(`POST / HTTP/1.1\r\nHost: 7001-${id}.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n`), /^HTTP\/1.1 400 /)
  })

  test('half a gigabyte in and out, and nothing of it stays', async () => {
    const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1]) / 1024
    const before = rss()
    const curl = (...args) => promisify(execFile)('curl', ['-sS', '--max-time', '120', '-H', `E2b-Sandbox-Id: ${id}`, '-H', 'E2b-Sandbox-Port: 7001', ...args])
    const down = await curl('-o', '/dev/null', '-w', '%{size_download}', `${server.url}/flood`)
    assert.equal(Number(down.stdout), 1 << 28)
    const file = `${server.home}/zeros`
    fs.writeFileSync(file, '')
    fs.truncateSync(file, 1 << 28)
    const up = await curl('-T', file, `${server.url}/count`)
    assert.equal(JSON.parse(up.stdout).length, 1 << 28)
    assert.ok(rss() - before < 32, `the proxy grew by ${rss() - before} MiB`)
  })

  test('a reader that stops does not make the proxy collect the answer', async () => {
    const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1]) / 1024
    const before = rss()
    const socket = await server.connect()
    socket.pause()
    socket.write(`GET /flood HTTP/1.1\r\nHost: 7001-${id}.example.com\r\n\r\n`)
    await sleep(1500) // in which it would take all of it
    const sent = Number((await inside(7001, '/sent')).text)
    assert.ok(sent < 64 << 20, `${sent >> 20} MiB were taken although nobody reads`)
    assert.ok(rss() - before < 32, `the proxy grew by ${rss() - before} MiB`)
    socket.destroy()
  })

  test('100 requests at once', async () => {
    const answers = await Promise.all(Array.from({ length: 100 }, (_, at) => inside(7001, `/n/${at}`)))
    answers.forEach((answer, at) => assert.equal(answer.body.path, `/n/${at}`))
  })
})

test('a client that goes away in the middle of a silent stream is let go', async () => {
  const sdk = await loadSdk(server)
  const connections = () => fs.readFileSync('/proc/net/tcp', 'utf8').split('\n').map((line) => line.trim().split(/\s+/))
  const port = `:${server.port.toString(16).toUpperCase().padStart(4, '0')}`
  const ofClients = () => connections().filter(([, , remote, state]) => state === '01' && remote.endsWith(port)).length
  const waiting = () => connections().filter(([, local, , state]) => state === '08' && local.endsWith(port)).length
  const again = await sdk.Sandbox.connect(id)
  const handle = await again.commands.run('sleep 300', { background: true, timeoutMs: 0 })
  handle.wait().catch(() => {})
  const before = ofClients()
  await handle.disconnect()
  await eventually('the client has closed its connection', () => ofClients() < before)
  await eventually('its connection is closed on our side too', () => waiting() === 0, 5000)
  assert.ok((await again.commands.list()).some((one) => one.pid === handle.pid), 'the process goes on')
  await again.commands.kill(handle.pid)
})

describe('upgrade', () => {
  async function upgrade(protocol, extra = '') {
    const socket = await server.connect()
    socket.write(`GET /ws HTTP/1.1\r\nHost: 7001-${id}.example.com\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n${extra}`)
    await eventually('101', () => socket.received.includes('\r\n\r\n'))
    assert.match(socket.received, /^HTTP\/1\.1 101/)
    return socket
  }

  test('WebSocket: accepted, bytes both ways, half close', async () => {
    const socket = await upgrade('websocket')
    assert.match(socket.received, /s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=/)
    socket.write('hello')
    await eventually('echo', () => socket.received.endsWith('HELLO'))
    socket.end()
    await eventually('goodbye after our end', () => socket.received.endsWith('bye'))
    await socket.ended
  })

  test('bytes sent together with the upgrade request are not lost', async () => {
    const socket = await upgrade('anything', 'early')
    await eventually('echo', () => socket.received.endsWith('EARLY'))
    socket.destroy()
  })

  test('a tunnel carries a megabyte', async () => {
    const socket = await upgrade('raw')
    const start = socket.received.length
    const body = 'abcdefgh'.repeat(131072)
    socket.write(body)
    await eventually('all of it', () => socket.received.length - start >= body.length)
    assert.equal(socket.received.slice(start), body.toUpperCase())
    socket.destroy()
  })
})

test('killing a sandbox cuts its streams in the middle', async () => {
  const sdk = await loadSdk(server)
  const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 })
  const run = other.commands.run('sleep 60')
  const failed = assert.rejects(run)
  await eventually('it runs', async () => (await other.commands.list()).length > 0)
  await other.kill()
  await failed
  assert.equal((await server.sandbox(other.sandboxId, 49983, '/health')).status, 502)
})
