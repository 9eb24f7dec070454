// HTTP/2 over TLS, chosen by ALPN: node, curl, and Python's httpx with h2, as the Python SDK speaks.
import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http2 from 'node:http2'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { binary, patience, startServer } from '../harness/server.mjs'

const run = promisify(execFile)
const DOMAIN = 'boxes.test'
let server, caFile, ca, session, box
before(async () => {
  server = await startServer({
    listen: ':0',
    args: ['--domain', DOMAIN, '--listen-tls', ':443', '--hsts', '3600'],
    prepare: (one) => {
      const made = spawnSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', one.data], { encoding: 'utf8' })
      assert.equal(made.status, 0, made.stderr)
    },
  })
  caFile = path.join(server.data, 'tls/ca.pem')
  ca = fs.readFileSync(caFile)
  session = http2.connect(`https://api.${DOMAIN}`, { ca, maxSessionMemory: 1000 })
  const answer = await ask('POST', '/sandboxes', { body: JSON.stringify({ templateID: 'base', timeout: 300 * patience }) })
  assert.equal(answer.status, 201, answer.text)
  box = JSON.parse(answer.text)
})
after(async () => {
  session?.destroy()
  await server.destroy()
})

function ask(method, target, { headers = {}, body } = {}) {
  return new Promise((done, fail) => {
    const stream = session.request({ ':method': method, ':path': target, 'x-api-key': server.key, ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers }, { endStream: body === undefined })
    const chunks = []
    let head
    stream.setTimeout(120_000 * patience, () => stream.destroy(new Error(`${method} ${target}: no answer`)))
    stream.on('response', (all) => (head = all))
    stream.on('data', (chunk) => chunks.push(chunk))
    stream.on('error', fail)
    stream.on('end', () => done({ status: head[':status'], headers: head, bytes: Buffer.concat(chunks), text: Buffer.concat(chunks).toString() }))
    if (body !== undefined) stream.end(body)
  })
}

test('ALPN chooses h2, HTTP/1.1 for who asks for it, and that for who asks for nothing', async () => {
  assert.equal(session.alpnProtocol, 'h2')
  for (const [offered, chosen] of [[['h2', 'http/1.1'], 'h2'], [['http/1.1'], 'http/1.1'], [undefined, false]]) {
    const socket = tls.connect({ host: `api.${DOMAIN}`, servername: `api.${DOMAIN}`, port: 443, ca, ALPNProtocols: offered })
    await new Promise((done, fail) => socket.once('secureConnect', done).once('error', fail))
    assert.equal(socket.alpnProtocol, chosen)
    socket.destroy()
  }
  const { stdout } = await run('curl', ['-sS', '--cacert', caFile, '-w', '%{http_version} %{http_code}', '-o', '/dev/null', `https://api.${DOMAIN}/health`])
  assert.equal(stdout, '2 200')
})

test('what goes with every answer goes with these too', async () => {
  assert.equal((await ask('GET', '/health')).headers['strict-transport-security'], 'max-age=3600')
})

test('20 MB into a sandbox and out again', { timeout: 120_000 * patience }, async () => {
  const headers = { ':authority': `49983-${box.sandboxID}.${DOMAIN}`, ...(box.envdAccessToken ? { 'x-access-token': box.envdAccessToken } : {}) }
  const block = crypto.randomBytes(20_000_000)
  const put = await ask('POST', '/files?path=/home/user/block', { headers: { ...headers, 'content-type': 'application/octet-stream' }, body: block })
  assert.equal(put.status, 200, put.text)
  const got = await ask('GET', '/files?path=/home/user/block', { headers })
  assert.ok(got.bytes.equals(block))
})

test('100 streams at once', async () => {
  const all = await Promise.all(Array.from({ length: 100 }, () => ask('GET', '/sandboxes')))
  assert.ok(all.every((one) => one.status === 200))
})

test("Python's httpx, as the Python SDK asks", async () => {
  const script = `
import asyncio, httpx, json, ssl, sys
ca, key, domain = sys.argv[1:4]
async def main():
    async with httpx.AsyncClient(http2=True, verify=ssl.create_default_context(cafile=ca), headers={"X-API-KEY": key}) as client:
        base = "https://api." + domain
        first = await client.get(base + "/health")
        many = await asyncio.gather(*[client.get(base + "/v2/sandboxes") for _ in range(50)])
        bad = await client.post(base + "/sandboxes", content=b"{", headers={"Content-Type": "application/json"})
        made = await client.post(base + "/sandboxes", json={"templateID": "base", "timeout": 60})
        ended = await client.delete(base + "/sandboxes/" + made.json()["sandboxID"])
        print(json.dumps([first.http_version, first.status_code, sorted({one.status_code for one in many}), bad.status_code, made.status_code, ended.status_code]))
asyncio.run(main())
`
  const { stdout } = await run('/usr/bin/python3', ['-c', script, caFile, server.key, DOMAIN])
  assert.deepEqual(JSON.parse(stdout), ['HTTP/2', 200, [200], 400, 201, 204])
})
