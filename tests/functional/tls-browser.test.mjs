// A browser (Debian's chromium, headless) at https://PORT-ID.DOMAIN, which trusts the authority that `quicksand tls init` made
// and nothing else of ours: pages, what they load, streams and WebSockets of a server inside, by HTTP/2 where it is chosen.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, repository, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

const { chromium } = createRequire(path.join(repository, 'build/npm/web/'))('playwright-core')
const DOMAIN = 'boxes.test'
const PORT = 7300

// A page that asks for more, and says what came of it.
const SITE = String.raw`
const http = require('node:http'), crypto = require('node:crypto')
const page = '<title>inside</title><script>' +
  'fetch("/data", { method: "POST", body: "x".repeat(1000000) }).then((r) => r.text()).then((t) => { window.posted = t });' +
  'new EventSource("/events").onmessage = (e) => { window.event = e.data };' +
  'const ws = new WebSocket("wss://" + location.host + "/ws"); ws.onmessage = (e) => { window.spoken = e.data };' +
  'document.cookie = "own=yes"; localStorage.own = "yes"</script>'
const server = http.createServer((request, response) => {
  if (request.url === '/data') {
    let length = 0
    request.on('data', (chunk) => (length += chunk.length)).on('end', () => response.end(String(length)))
  } else if (request.url === '/events') {
    response.setHeader('content-type', 'text/event-stream')
    response.write('data: streamed\n\n')
  } else {
    response.setHeader('content-type', 'text/html')
    response.end(page + '<p>' + request.headers['x-forwarded-proto'] + '</p>')
  }
})
server.on('upgrade', (request, socket) => {
  const accept = crypto.createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n')
  socket.write(Buffer.concat([Buffer.from([0x81, 6]), Buffer.from('spoken')]))
})
server.listen(7300)
`

let server, sandbox, home
before(async () => {
  server = await startServer({
    listen: ':0',
    args: ['--domain', DOMAIN, '--listen-tls', ':443'],
    prepare: (one) => assert.equal(spawnSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', one.data]).status, 0),
  })
  sandbox = await (await loadSdk(server)).Sandbox.create('base', { timeoutMs: 600_000 * patience })
  await sandbox.files.write('/home/user/site.js', SITE)
  await sandbox.commands.run('node /home/user/site.js', { background: true, timeoutMs: 0 })
  await eventually('the site', async () => (await server.sandbox(sandbox.sandboxId, PORT, '/')).status === 200)
  home = path.join(server.home, 'browser')
  fs.mkdirSync(path.join(home, '.pki/nssdb'), { recursive: true })
  certutil('-N', '--empty-password')
})
after(() => server.destroy())

function certutil(...args) {
  const { status, signal, error, stderr } = spawnSync('certutil', ['-d', `sql:${home}/.pki/nssdb`, ...args], { encoding: 'utf8' })
  assert.equal(status, 0, `${args[0]}: ${signal ?? error ?? stderr}`)
}

async function browse(fn) {
  const browser = await chromium.launch({ timeout: 120_000 * patience, executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', env: { ...process.env, HOME: home }, args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
  try {
    return await fn(await (await browser.newContext()).newPage())
  } finally {
    await browser.close()
  }
}
const url = () => `https://${PORT}-${sandbox.sandboxId}.${DOMAIN}/`

test('does not trust it by itself', () => browse((page) => assert.rejects(page.goto(url(), { timeout: 120_000 * patience }), /ERR_CERT_AUTHORITY_INVALID/)))

test('a site in a sandbox, with all that it loads', () => {
  certutil('-A', '-t', 'C,,', '-n', 'quicksand', '-i', path.join(server.data, 'tls/ca.pem'))
  return browse(async (page) => {
    const answer = await page.goto(url(), { timeout: 60_000 * patience })
    assert.equal(answer.status(), 200)
    assert.equal(await page.title(), 'inside')
    assert.equal(await page.locator('p').innerText(), 'https')
    await page.waitForFunction(() => window.posted && window.event && window.spoken, undefined, { timeout: 30_000 * patience })
    assert.deepEqual(await page.evaluate(() => [window.posted, window.event, window.spoken, document.cookie, localStorage.own, isSecureContext]), ['1000000', 'streamed', 'spoken', 'own=yes', 'yes', true])
    assert.equal(await page.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol), 'h2')
    // The page for people where nobody listens, and the server's own pages.
    const nobody = await page.goto(url().replace(String(PORT), '7399'))
    assert.equal(nobody.status(), 502)
    assert.match(nobody.headers()['content-type'], /text\/html/)
    assert.equal((await page.goto(`https://api.${DOMAIN}/ui/`)).status(), 200)
  })
})
