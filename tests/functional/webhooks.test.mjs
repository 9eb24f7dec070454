// Webhooks really delivered: over TLS with a certificate of our own, signed, again after failures, and
// kept while the server is down.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import https from 'node:https'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, repository, startServer } from '../harness/server.mjs'

let server, receiver, folder
const seen = []
let answer = () => 200

// A CA, and a certificate of it for 127.0.0.1.
function certificates() {
  const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', '/CN=test ca')
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'ca2.key', '-out', 'ca2.pem', '-days', '2', '-subj', '/CN=stranger', '-addext', 'subjectAltName=IP:127.0.0.1')
  openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'key.pem', '-out', 'request.pem', '-subj', '/CN=receiver')
  fs.writeFileSync(path.join(folder, 'extensions'), 'subjectAltName=IP:127.0.0.1\n')
  openssl('x509', '-req', '-in', 'request.pem', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-extfile', 'extensions', '-out', 'cert.pem')
}

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-webhook-'))
  fs.chmodSync(folder, 0o755)
  certificates()
  const files = { key: fs.readFileSync(path.join(folder, 'key.pem')), cert: fs.readFileSync(path.join(folder, 'cert.pem')) }
  receiver = https.createServer(files, (request, response) => {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks)
      const status = answer(JSON.parse(body))
      seen.push({ at: Date.now(), status, headers: request.headers, body, event: JSON.parse(body), url: request.url })
      response.writeHead(status).end('ok')
    })
  })
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done))
  server = await startServer({ args: ['--webhook-ca', path.join(folder, 'ca.pem'), '--webhook-pause', '1'] })
})
after(async () => {
  receiver?.closeAllConnections()
  receiver?.close()
  await server?.destroy()
  fs.rmSync(folder, { recursive: true, force: true })
})

const secret = 'a secret of the test'
const register = (events = ['sandbox.lifecycle.created', 'sandbox.lifecycle.killed']) =>
  server.api('POST', '/events/webhooks', { name: 'hook', url: `https://127.0.0.1:${receiver.address().port}/take?x=1`, enabled: true, events, signatureSecret: secret })
const of = (id, status = 200) => seen.filter((one) => one.event.sandbox_id === id && one.status === status)
const types = (list) => list.map((one) => one.event.type.split('.').at(-1))

test('delivered over TLS, signed, in order, in the documented shape', async () => {
  assert.equal((await register()).status, 201)
  const { sandboxID } = await server.create({ metadata: { who: 'me' } })
  await server.api('POST', `/sandboxes/${sandboxID}/timeout`, { timeout: 100 }) // nobody asked for this one
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await eventually('two deliveries', () => of(sandboxID).length === 2)
  assert.deepEqual(types(of(sandboxID)), ['created', 'killed'])
  for (const { headers, body, event, url } of of(sandboxID)) {
    assert.equal(url, '/take?x=1')
    assert.equal(headers['x-quicksand-signature'], `sha256=${crypto.createHmac('sha256', secret).update(body).digest('hex')}`)
    assert.equal(headers['e2b-signature'], crypto.createHash('sha256').update(secret).update(body).digest('base64').replace(/=+$/, ''))
    assert.equal(headers['content-type'], 'application/json')
    assert.ok(headers['e2b-webhook-id'] && headers['e2b-delivery-id'])
    assert.equal(event.version, 'v2')
    assert.deepEqual(event.event_data.sandbox_metadata, { who: 'me' })
    assert.ok(!body.includes(server.key))
  }
})

test('the check of a signature in the documents is right', async () => {
  const text = fs.readFileSync(path.join(repository, 'docs/operate.md'), 'utf8')
  const file = path.join(folder, 'genuine.mjs')
  fs.writeFileSync(file, /```js\n(import crypto[\s\S]*?isGenuine[\s\S]*?)```/.exec(text)[1])
  const { isGenuine } = await import(file)
  const { headers, body } = seen[0]
  assert.equal(isGenuine(headers, body, secret), true)
  assert.equal(isGenuine(headers, Buffer.concat([body, Buffer.from(' ')]), secret), false)
  assert.equal(isGenuine(headers, body, 'another secret'), false)
  assert.equal(isGenuine({}, body, secret), false)
})

test('a failing receiver is tried again, later each time, and gets everything in order', async () => {
  let failures = 3
  answer = () => (failures-- > 0 ? 500 : 200)
  const { sandboxID } = await server.create()
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await eventually('two deliveries', () => of(sandboxID).length === 2, 30_000)
  assert.deepEqual(types(of(sandboxID)), ['created', 'killed'])
  const failed = of(sandboxID, 500)
  assert.equal(failed.length, 3)
  assert.equal(new Set([...failed, of(sandboxID)[0]].map((one) => one.event.id)).size, 1, 'always the first one')
  const gaps = [...failed.slice(1), of(sandboxID)[0]].map((one, i) => one.at - failed[i].at)
  assert.ok(gaps[0] >= 900 && gaps[1] >= 1800 && gaps[2] >= 3600, `pauses of ${gaps} ms`)
})

test('kept across a restart of the server until they are delivered', async () => {
  answer = () => 503
  const { sandboxID } = await server.create()
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await eventually('a failed attempt', () => of(sandboxID, 503).length >= 1)
  process.kill(server.servingPid, 'SIGKILL')
  await server.restart()
  answer = () => 200
  await eventually('both are delivered', () => of(sandboxID).length === 2, 30_000)
  assert.deepEqual(types(of(sandboxID)), ['created', 'killed'])
})

test('a certificate that nobody vouches for, or of another name, is refused, and the reason logged', async () => {
  let taken = 0
  const stranger = https.createServer({ key: fs.readFileSync(path.join(folder, 'ca2.key')), cert: fs.readFileSync(path.join(folder, 'ca2.pem')) }, (_, response) => {
    taken++
    response.end()
  })
  await new Promise((done) => stranger.listen(0, '127.0.0.1', done))
  const hooks = []
  for (const url of [`https://127.0.0.1:${stranger.address().port}/`, `https://localhost:${receiver.address().port}/`]) {
    hooks.push((await server.api('POST', '/events/webhooks', { name: 'hook', url, enabled: true, events: ['sandbox.lifecycle.created'], signatureSecret: secret })).body.id)
  }
  const before = seen.filter((one) => one.url === '/').length
  await server.create()
  await eventually('the refusals are logged', () => /POST 127\.0\.0\.1:\d+: .*certificate problem/.test(server.log) && /POST localhost:\d+: .*certificate.* name/.test(server.log))
  assert.equal(taken, 0)
  assert.equal(seen.filter((one) => one.url === '/').length, before)
  for (const id of hooks) assert.ok((await server.api('DELETE', `/events/webhooks/${id}`)).status < 300)
  stranger.closeAllConnections()
  stranger.close()
})

test('a CA file that is none: the server says so and does not start', async () => {
  const file = path.join(folder, 'extensions')
  await assert.rejects(startServer({ args: ['--webhook-ca', file] }), /webhook-ca: .*extensions/)
})
