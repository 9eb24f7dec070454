// The way in when it is not open to everybody: traffic tokens, masked hosts, what browsers and programs are told.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

const HEADER = 'e2b-traffic-access-token'
const MISSING = `Sandbox is secured with traffic access token. Token header '${HEADER}' is missing`
const INVALID = `Sandbox is secured with traffic access token. Provided token in header '${HEADER}' is invalid`

// Answers with what it was asked.
const ECHO = String.raw`
import http.server, json, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", 7001), Handler).serve_forever()
`

// HTTPS: tells the host, counts a body, sends a large one, shouts after an upgrade.
const TLS = `
import fs from 'node:fs'
import https from 'node:https'
const server = https.createServer({ key: fs.readFileSync('key.pem'), cert: fs.readFileSync('cert.pem') }, (request, response) => {
  if (request.url === '/big') return response.end(Buffer.alloc(5000000, 'y'))
  let length = 0
  request.on('data', (chunk) => (length += chunk.length))
  request.on('end', () => response.end(JSON.stringify({ host: request.headers.host, length })))
})
server.on('upgrade', (request, socket, head) => {
  socket.write('HTTP/1.1 101 Yes\\r\\nConnection: Upgrade\\r\\nUpgrade: shout\\r\\n\\r\\n' + String(head).toUpperCase())
  socket.on('data', (chunk) => socket.write(String(chunk).toUpperCase()))
})
server.listen(7443, '127.0.0.1')
`

let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server.destroy())

async function create(network, options = {}) {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience, network, ...options })
  await sandbox.files.write('/home/user/echo.py', ECHO)
  await sandbox.commands.run('python3 /home/user/echo.py', { background: true, timeoutMs: 0 })
  await eventually('the server inside', async () => (await ask(sandbox, { [HEADER]: sandbox.trafficAccessToken ?? '' })).status === 200)
  return sandbox
}
const ask = (sandbox, headers = {}, port = 7001) => server.sandbox(sandbox.sandboxId, port, '/', { headers })

describe('a sandbox whose ports are not public', () => {
  let sandbox, token
  before(async () => {
    sandbox = await create({ allowPublicTraffic: false }, { lifecycle: { onTimeout: 'pause', autoResume: true } })
    token = sandbox.trafficAccessToken
  })

  async function holds(one, secret) {
    const missing = await ask(one)
    assert.equal(missing.status, 403)
    assert.deepEqual(missing.body, { sandboxId: one.sandboxId, message: MISSING, code: 403 })
    const wrong = await ask(one, { [HEADER]: `${secret}x` })
    assert.equal(wrong.status, 403)
    assert.deepEqual(wrong.body, { sandboxId: one.sandboxId, message: INVALID, code: 403 })
    const right = await ask(one, { 'E2B-Traffic-Access-Token': secret })
    assert.equal(right.status, 200, right.text)
    assert.equal(right.body.headers[HEADER], undefined, 'the server inside does not see the token')
  }

  test('needs its token at every port but envd’s', async () => {
    assert.match(token, /^ta_[0-9a-f]{64}$/)
    await holds(sandbox, token)
    const closed = await ask(sandbox, {}, 7002)
    assert.equal(closed.status, 403, 'nobody learns which ports are open')
    assert.ok(await sandbox.isRunning())
    assert.equal((await sandbox.commands.run('echo hi')).stdout, 'hi\n')
    const network = (await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body.network
    assert.equal(network.allowPublicTraffic, false)
  })

  test('tells browsers in a page', async () => {
    const browser = { 'User-Agent': 'Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0', Accept: 'text/html,*/*;q=0.8' }
    for (const [headers, title] of [[{}, 'Missing Traffic Access Token'], [{ [HEADER]: 'x' }, 'Invalid Traffic Access Token']]) {
      const answer = await ask(sandbox, { ...browser, ...headers })
      assert.equal(answer.status, 403)
      assert.match(answer.headers['content-type'], /^text\/html/)
      assert.match(answer.text, new RegExp(`^<html[\\s\\S]*${title}[\\s\\S]*</html>$`))
    }
    const script = await ask(sandbox, { ...browser, Accept: 'application/json' })
    assert.match(script.headers['content-type'], /^application\/json/)
  })

  test('upgrades need it, too', async () => {
    const upgrade = async (header) => {
      const socket = await server.connect()
      socket.write(`GET / HTTP/1.1\r\nHost: 7001-${sandbox.sandboxId}.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${header}\r\n`)
      await eventually('an answer', () => socket.received.includes('\r\n\r\n'))
      socket.destroy()
      return socket.received.slice(9, 12)
    }
    assert.equal(await upgrade(''), '403')
    assert.equal(await upgrade(`E2B-TRAFFIC-ACCESS-TOKEN: ${token}\r\n`), '200') // it is no WebSocket server
  })

  test('keeps it through pause and resume', async () => {
    await sandbox.pause()
    const again = await sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal(again.trafficAccessToken, token)
    await holds(sandbox, token)
  })

  test('is woken by its token only', async () => {
    await sandbox.pause()
    const state = async () => (await sandbox.getInfo()).state
    assert.deepEqual((await ask(sandbox)).body.message, MISSING)
    assert.deepEqual((await ask(sandbox, { [HEADER]: 'x' })).body.message, INVALID)
    assert.equal(await state(), 'paused')
    assert.equal((await ask(sandbox, { [HEADER]: token })).status, 200)
    assert.equal(await state(), 'running')
  })

  test('keeps it through a restart of the server', async () => {
    await server.restart()
    await holds(sandbox, token)
  })

  test('has forks with tokens of their own', async () => {
    const answer = await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 1, timeout: 300 })
    assert.equal(answer.status, 201, answer.text)
    const { sandboxID, trafficAccessToken } = answer.body[0].sandbox
    assert.match(trafficAccessToken, /^ta_[0-9a-f]{64}$/)
    assert.notEqual(trafficAccessToken, token)
    const fork = { sandboxId: sandboxID }
    assert.equal((await ask(fork, { [HEADER]: token })).status, 403)
    assert.equal((await ask(fork, { [HEADER]: trafficAccessToken })).status, 502) // its programs are gone
    await server.api('DELETE', `/sandboxes/${sandboxID}`)
  })
})

test('public is what nothing was said about', async () => {
  const sandbox = await create(undefined)
  assert.ok(!sandbox.trafficAccessToken)
  assert.equal((await ask(sandbox)).status, 200)
  assert.equal((await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body.network.allowPublicTraffic, true)
  await sandbox.kill()
})

test('httpsPorts: servers inside that speak TLS', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience, network: { httpsPorts: [7443], maskRequestHost: 'inside:${PORT}' } })
  await sandbox.commands.run('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN=inside -days 2')
  await sandbox.files.write('/home/user/tls.mjs', TLS)
  await sandbox.commands.run('node /home/user/tls.mjs', { background: true, timeoutMs: 0 })
  await eventually('the server inside', async () => (await ask(sandbox, {}, 7443)).status === 200)
  assert.deepEqual((await ask(sandbox, {}, 7443)).body, { host: 'inside:7443', length: 0 })
  const body = Buffer.alloc(3_000_000, 'x')
  const sent = await server.sandbox(sandbox.sandboxId, 7443, '/', { method: 'POST', body })
  assert.equal(sent.body.length, body.length)
  const big = await server.sandbox(sandbox.sandboxId, 7443, '/big')
  assert.ok(big.bytes.equals(Buffer.alloc(5_000_000, 'y')))
  const socket = await server.connect()
  socket.write(`GET / HTTP/1.1\r\nHost: 7443-${sandbox.sandboxId}.example.com\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nearly`)
  await eventually('echo', () => socket.received.endsWith('EARLY'))
  socket.destroy()
  await sandbox.pause()
  await sdk.Sandbox.connect(sandbox.sandboxId)
  assert.equal((await ask(sandbox, {}, 7443)).status, 200)
  // A server without TLS at such a port is not understood, and the other way round.
  await sandbox.commands.run('pkill node; sleep 0.2; python3 -m http.server 7443', { background: true, timeoutMs: 0 })
  await eventually('the other server', async () => (await ask(sandbox, {}, 7443)).body?.message === 'The service in the sandbox closed the connection')
  await sandbox.kill()
})

test('maskRequestHost: servers inside see another host, envd does not', async () => {
  const sandbox = await create({ maskRequestHost: 'localhost:${PORT}' })
  const host = `7001-${sandbox.sandboxId}.example.com`
  const seen = (await server.request({ path: '/', headers: { Host: host } })).body.headers
  assert.equal(seen.host, 'localhost:7001')
  assert.equal(seen['x-forwarded-host'], host)
  assert.ok(await sandbox.isRunning())
  assert.equal((await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body.network.maskRequestHost, 'localhost:${PORT}')
  await sandbox.pause()
  await sdk.Sandbox.connect(sandbox.sandboxId)
  assert.equal((await server.request({ path: '/', headers: { Host: host } })).body.headers.host, 'localhost:7001')
  await sandbox.kill()
  for (const bad of ['bad host', 'a\r\nb: c', 'hé.com', 'a/b', '${PORT', 'x'.repeat(300)]) {
    const answer = await server.api('POST', '/sandboxes', { templateID: 'base', network: { maskRequestHost: bad } })
    assert.equal(answer.status, 400, `${bad}: ${answer.text}`)
  }
})
