// A file or a server in a sandbox, seen through the control plane's own host: in a browser (Debian's chromium, headless)
// none of it may act in the name of that origin, where the dashboard is.
import assert from 'node:assert/strict'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, repository, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

const require = createRequire(path.join(repository, 'build/npm/web/'))
const { chromium } = require('playwright-core')

let server, sandbox, id, browser
before(async () => {
  server = await startServer()
  const sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  id = sandbox.sandboxId
  await sandbox.files.write('/home/user/evil.html', '<script>localStorage.owned = "yes"; document.cookie = "owned=yes"</script>')
  await sandbox.files.write('/home/user/evil.svg', '<svg xmlns="http://www.w3.org/2000/svg"><script>localStorage.owned = "yes"</script></svg>')
  await sandbox.files.write('/home/user/evil.js', 'self.owned = "yes"; globalThis.localStorage && (localStorage.owned = "yes"); self.addEventListener("fetch", (event) => event.respondWith(new Response("taken over")))')
  await sandbox.files.write('/home/user/evil.py', EVIL)
  await sandbox.commands.run('python3 /home/user/evil.py', { background: true, timeoutMs: 0 })
  await eventually('the server inside', async () => (await server.sandbox(id, 7200, '/')).status === 200)
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
})
after(async () => {
  await browser?.close()
  await server.destroy()
})

// All that a server can say about its whole origin.
const EVIL = String.raw`
import base64, hashlib, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def evil(self):
        for name, value in (("Set-Cookie", "owned=yes; path=/"), ("Service-Worker-Allowed", "/"), ("Clear-Site-Data", '"storage", "cookies"'),
                            ("Strict-Transport-Security", "max-age=1000"), ("Alt-Svc", 'h2=":1"'), ("X-Inside", "yes")):
            self.send_header(name, value)
    def do_GET(self):
        if self.headers.get("Upgrade"):
            accept = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept); self.evil(); self.end_headers()
            self.connection.recv(1000); self.close_connection = True; return
        body = b"<script>window.ran = true; localStorage.owned = 'yes'</script>"
        self.send_response(200); self.evil(); self.send_header("Content-Type", "text/html"); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 7200), Handler).serve_forever()
`

const link = async (name) => {
  const url = await sandbox.downloadUrl(`/home/user/${name}`, { useSignatureExpiration: 600 })
  assert.ok(url.startsWith(`${server.url}/files?`), url)
  return url
}

// A page of the control plane's origin that has no policy of its own.
async function originPage() {
  const context = await browser.newContext({ acceptDownloads: true })
  const page = await context.newPage()
  await page.goto(`${server.url}/health`)
  await page.evaluate(() => localStorage.setItem('kept', 'secret'))
  return page
}
async function assertUntouched(page) {
  await page.goto(`${server.url}/health`)
  assert.deepEqual(await page.evaluate(() => [localStorage.owned ?? null, localStorage.kept ?? null, document.cookie, document.body.innerText]), [null, 'secret', '', 'Health check successful'])
  await page.context().close()
}

describe('a signed link without a host of the sandbox', () => {
  test('is saved, not shown', async () => {
    for (const name of ['evil.html', 'evil.svg', 'evil.js']) {
      const page = await originPage()
      const url = await link(name)
      const saved = page.waitForEvent('download')
      await page.goto(url).catch(() => {})
      assert.equal((await saved).suggestedFilename(), name)
      await assertUntouched(page)
    }
  })

  test('in a frame or a window of a foreign page, neither', async () => {
    const url = await link('evil.html')
    const foreign = http.createServer((_, answer) => answer.setHeader('Content-Type', 'text/html').end(`<iframe src="${url}"></iframe><script>window.open(${JSON.stringify(url)})</script>`))
    await new Promise((done) => foreign.listen(0, '127.0.0.1', done))
    const page = await originPage()
    await page.goto(`http://localhost:${foreign.address().port}/`)
    await page.waitForLoadState('load')
    await assertUntouched(page)
    foreign.closeAllConnections()
    foreign.close()
  })

  test('is no service worker, no worker and no script', async () => {
    const page = await originPage()
    const url = await link('evil.js')
    const worker = await page.evaluate((target) => navigator.serviceWorker.register(target, { scope: '/' }).then(() => 'registered', (error) => error.name), url)
    assert.notEqual(worker, 'registered')
    const others = await page.evaluate(async (target) => [
      await new Promise((done) => Object.assign(document.head.appendChild(document.createElement('script')), { onload: () => done('ran'), onerror: () => done('refused'), src: target })),
      await new Promise((done) => { const shared = new SharedWorker(target); shared.onerror = () => done('refused'); shared.port.onmessage = () => done('ran') }),
    ], url)
    assert.deepEqual(others, ['refused', 'refused'])
    await assertUntouched(page)
  })

  test('still gives what the SDK wants', async () => {
    const answer = await server.request({ path: (await link('evil.html')).slice(server.url.length) })
    assert.equal(answer.status, 200)
    assert.match(answer.text, /owned/)
    assert.equal(answer.headers['content-security-policy'], 'sandbox')
    assert.equal(answer.headers['x-content-type-options'], 'nosniff')
    assert.equal(answer.headers['content-disposition'], 'attachment; filename=evil.html')
    assert.match(answer.headers['content-type'], /text\/html/)
    const upload = await sandbox.uploadUrl('/home/user/up.txt', { useSignatureExpiration: 600 })
    const form = new FormData()
    form.append('file', new Blob(['sent']))
    assert.equal((await fetch(upload, { method: 'POST', body: form })).status, 200)
    assert.equal(await sandbox.files.read('/home/user/up.txt'), 'sent')
    for (const headers of [{ 'Service-Worker': 'script' }, { 'Sec-Fetch-Dest': 'sharedworker' }]) {
      assert.equal((await server.request({ path: (await link('evil.js')).slice(server.url.length), headers })).status, 403)
    }
  })

  test('on the host of the sandbox it is what it was', async () => {
    const target = (await link('evil.html')).slice(server.url.length)
    const answer = await server.request({ path: target, headers: { Host: `49983-${id}.localhost` } })
    assert.equal(answer.status, 200)
    assert.equal(answer.headers['content-disposition'], 'inline; filename=evil.html')
    assert.equal(answer.headers['content-security-policy'], undefined)
  })
})

describe('a port, named by headers', () => {
  test('sets nothing for the control plane’s origin', async () => {
    const page = await originPage()
    const got = await page.evaluate(async (sandboxId) => {
      const answer = await fetch('/x', { headers: { 'E2b-Sandbox-Id': sandboxId, 'E2b-Sandbox-Port': '7200' } })
      return [answer.status, answer.headers.get('x-inside'), answer.headers.get('content-security-policy')]
    }, id)
    assert.deepEqual(got, [200, 'yes', 'sandbox'])
    await assertUntouched(page)
  })

  test('nor with an upgrade', async () => {
    const socket = await server.connect()
    socket.write(`GET / HTTP/1.1\r\nHost: ${server.listen}\r\nE2b-Sandbox-Id: ${id}\r\nE2b-Sandbox-Port: 7200\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`)
    await eventually('101', () => socket.received.includes('\r\n\r\n'))
    socket.destroy()
    assert.match(socket.received, /^HTTP\/1\.1 101 [^]*x-inside/i)
    assert.doesNotMatch(socket.received, /set-cookie|clear-site-data/i)
  })

  test('on its own host it says what it likes', async () => {
    const answer = await server.request({ headers: { Host: `7200-${id}.localhost:${server.port}` } })
    assert.deepEqual(answer.headers['set-cookie'], ['owned=yes; path=/'])
    assert.equal(answer.headers['content-security-policy'], undefined)
  })

  test('whose name opens in the browser, as another origin', async () => {
    const page = await originPage()
    await page.goto(`http://${sandbox.getHost(7200)}/`)
    assert.deepEqual(await page.evaluate(() => [window.ran, location.host]), [true, sandbox.getHost(7200)])
    await assertUntouched(page)
  })
})
