// HTTP/2 on the plain listener, by prior knowledge: the E2B flow, large files, many streams, hostile clients.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http2 from 'node:http2'
import { after, afterEach, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { eventually, patience, startServer } from '../harness/server.mjs'

const run = promisify(execFile)
let server, session, box
before(async () => {
  server = await startServer()
  session = http2.connect(server.url, { maxSessionMemory: 1000 })
  const answer = await ask('POST', '/sandboxes', { body: JSON.stringify({ templateID: 'base', timeout: 300 * patience, network: { httpsPorts: [7021] } }) })
  assert.equal(answer.status, 201, answer.text)
  box = JSON.parse(answer.text)
})
after(async () => {
  session.destroy()
  await server.destroy()
})
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

// One stream; body: a string, a Buffer, or a function that is given the stream.
function ask(method, path, { headers = {}, body, over = session, onData } = {}) {
  return new Promise((done, fail) => {
    const stream = over.request({ ':method': method, ':path': path, 'x-api-key': server.key, ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers }, { endStream: body === undefined })
    const chunks = []
    let head, trailers
    stream.setTimeout(120_000 * patience, () => stream.destroy(new Error(`${method} ${path}: no answer`)))
    stream.on('response', (all) => (head = all))
    stream.on('trailers', (all) => (trailers = all))
    stream.on('data', (chunk) => (onData ? onData(chunk, stream) : chunks.push(chunk)))
    stream.on('error', fail)
    stream.on('end', () => {
      const bytes = Buffer.concat(chunks)
      done({ status: head[':status'], headers: head, trailers, bytes, text: bytes.toString() })
    })
    if (typeof body === 'function') body(stream)
    else if (body !== undefined) stream.end(body)
  })
}

const inside = (port = 49983) => ({ 'e2b-sandbox-id': box.sandboxID, 'e2b-sandbox-port': String(port), ...(box.envdAccessToken ? { 'x-access-token': box.envdAccessToken } : {}) })

function envelope(message) {
  const json = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(json.length, 1)
  return Buffer.concat([head, json])
}

function messages(bytes) {
  const all = []
  for (let at = 0; at + 5 <= bytes.length; ) {
    const length = bytes.readUInt32BE(at + 1)
    all.push(JSON.parse(bytes.subarray(at + 5, at + 5 + length).toString()))
    at += 5 + length
  }
  return all
}

async function command(cmd) {
  const answer = await ask('POST', '/process.Process/Start', {
    headers: { ...inside(), 'content-type': 'application/connect+json', 'connect-protocol-version': '1' },
    body: envelope({ process: { cmd: '/bin/bash', args: ['-c', cmd], envs: {} } }),
  })
  assert.equal(answer.status, 200, answer.text)
  const all = messages(answer.bytes)
  return {
    stdout: all.map((one) => Buffer.from(one.event?.data?.stdout ?? '', 'base64').toString()).join(''),
    exit: all.find((one) => one.event?.end)?.event.end.status,
  }
}

describe('the control plane', () => {
  test('health, a list, an error', async () => {
    const health = await ask('GET', '/health')
    assert.equal(health.status, 200)
    assert.equal((await ask('HEAD', '/health')).bytes.length, 0)
    const list = await ask('GET', '/sandboxes')
    assert.deepEqual(JSON.parse(list.text).map((one) => one.sandboxID), [box.sandboxID])
    assert.equal((await ask('GET', '/sandboxes', { headers: { 'x-api-key': 'wrong' } })).status, 401)
    assert.equal((await ask('POST', '/sandboxes', { body: '{' })).status, 400)
  })
  test('a body that is too large is refused, and the connection lives on', async () => {
    const answer = await ask('POST', '/sandboxes', { body: Buffer.alloc(5_000_000, 'x') }).catch((error) => error)
    assert.ok(answer.status === 413 || answer.code === 'ERR_HTTP2_STREAM_ERROR', `${answer.status} ${answer}`)
    assert.equal((await ask('GET', '/health')).status, 200)
  })
})

describe('into a sandbox', () => {
  test('a command', async () => {
    assert.deepEqual(await command('echo over streams; exit 0'), { stdout: 'over streams\n', exit: 'exit status 0' })
  })
  test('100 commands at once on one connection', { timeout: 120_000 * patience }, async () => {
    const results = await Promise.all(Array.from({ length: 100 }, (_, i) => command(`echo ${i}`)))
    assert.deepEqual(results.map((one) => one.stdout), Array.from({ length: 100 }, (_, i) => `${i}\n`))
  })
  test('100 MB up and down, beside other streams', { timeout: 300_000 * patience }, async () => {
    const block = crypto.randomBytes(1_000_000)
    const up = crypto.createHash('sha256'), down = crypto.createHash('sha256')
    const put = ask('POST', '/files?path=/home/user/large', {
      headers: { ...inside(), 'content-type': 'application/octet-stream' },
      body: (stream) => {
        let left = 100
        const more = () => {
          while (left-- > 0) {
            up.update(block)
            if (!stream.write(block)) return void stream.once('drain', more)
          }
          stream.end()
        }
        more()
      },
    })
    assert.equal((await command('echo meanwhile')).stdout, 'meanwhile\n')
    const answer = await put
    assert.equal(answer.status, 200, answer.text)
    let bytes = 0
    const get = ask('GET', '/files?path=/home/user/large', { headers: inside(), onData: (chunk) => ((bytes += chunk.length), down.update(chunk)) })
    assert.equal((await command('echo meanwhile')).stdout, 'meanwhile\n')
    assert.equal((await get).status, 200)
    assert.equal(bytes, 100_000_000)
    assert.equal(down.digest('hex'), up.digest('hex'))
  })
  test('a download that nobody reads holds neither memory nor the other streams', { timeout: 120_000 * patience }, async () => {
    const rss = () => Number(/^VmRSS:\s+(\d+)/m.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1])
    const before = rss()
    // More would be over a connection's share of response-memory.
    const stuck = Array.from({ length: 10 }, () => {
      const stream = session.request({ ':path': '/files?path=/home/user/large', ...inside() })
      stream.on('error', () => {})
      stream.pause()
      return stream
    })
    await eventually('heads', () => stuck.every((one) => one.sentHeaders))
    for (let i = 0; i < 20; i++) assert.equal((await command('echo beside')).stdout, 'beside\n')
    assert.ok(rss() - before < 40_000, `${rss() - before} kB more`)
    stuck.forEach((one) => one.close(http2.constants.NGHTTP2_CANCEL))
  })
  test('an answer of HTTP/1 in chunks, and a port nobody listens on', async () => {
    await command('mkdir -p /tmp/www && cd /tmp/www && echo page > index.html && (setsid python3 -m http.server 7010 >/dev/null 2>&1 &)')
    const page = await eventually('port 7010', async () => {
      const answer = await ask('GET', '/index.html', { headers: inside(7010) })
      return answer.status === 200 && answer
    })
    assert.equal(page.text, 'page\n')
    const closed = await ask('GET', '/', { headers: inside(7999) })
    assert.equal(closed.status, 502)
    assert.equal(closed.headers.connection, undefined)
  })
  test('a client that leaves ends its command', async () => {
    const stream = session.request({ ':method': 'POST', ':path': '/process.Process/Start', ...inside(), 'content-type': 'application/connect+json', 'connect-protocol-version': '1' })
    stream.on('error', () => {})
    stream.end(envelope({ process: { cmd: '/bin/bash', args: ['-c', 'echo begun; exec sleep 4242'], envs: {} } }))
    await new Promise((done) => stream.once('data', done))
    stream.close(http2.constants.NGHTTP2_CANCEL)
    assert.equal((await ask('GET', '/health')).status, 200)
  })
})

// Speaks nothing but HTTP/2, as gRPC servers do: messages both ways at the same time, trailers at the end.
const GRPC_SERVER = String.raw`
const http2 = require('node:http2')
const fs = require('node:fs')
const serve = (stream, headers) => {
  stream.on('error', () => {})
  const path = headers[':path']
  if (path === '/test.Echo/Refuse') {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '7', 'grpc-message': 'not you' }, { endStream: true })
    return
  }
  if (path === '/test.Echo/Break') return void stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR)
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'x-scheme': headers[':scheme'], 'x-te': headers.te ?? '', 'x-host': headers[':authority'], 'x-for': headers['x-forwarded-for'] ?? '' }, { waitForTrailers: true })
  let bytes = 0, sent = {}
  stream.on('trailers', (trailers) => (sent = trailers))
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'x-bytes': String(bytes), 'x-sent': sent['x-client'] ?? '' }))
  stream.on('data', (chunk) => {
    bytes += chunk.length
    if (path === '/test.Echo/Count') return
    if (!stream.write(chunk)) { stream.pause(); stream.once('drain', () => stream.resume()) }
  })
  stream.on('end', () => stream.end())
}
http2.createServer().on('stream', serve).listen(7020, '127.0.0.1')
if (fs.existsSync('/home/user/key.pem'))
  http2.createSecureServer({ key: fs.readFileSync('/home/user/key.pem'), cert: fs.readFileSync('/home/user/cert.pem') }).on('stream', serve).listen(7021, '127.0.0.1')
`

describe('gRPC', () => {
  const grpc = { 'content-type': 'application/grpc+proto', te: 'trailers' }
  before(async () => {
    const put = await ask('POST', '/files?path=/home/user/grpc.js', { headers: { ...inside(), 'content-type': 'application/octet-stream' }, body: GRPC_SERVER })
    assert.equal(put.status, 200, put.text)
    await command('cd /home/user && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN=inside -days 2')
    await command('(setsid node /home/user/grpc.js >/tmp/grpc.log 2>&1 &)')
    await eventually('port 7020', async () => (await ask('POST', '/test.Echo/Count', { headers: { ...inside(7020), ...grpc }, body: 'x' })).status === 200)
  })
  test('a message, its answer, trailers both ways', async () => {
    const answer = await ask('POST', '/test.Echo/Say', {
      headers: { ...inside(7020), ...grpc },
      body: (stream) => stream.end(Buffer.from('message')),
    })
    assert.equal(answer.text, 'message')
    assert.equal(answer.headers['x-te'], 'trailers')
    assert.equal(answer.headers['x-for'], '127.0.0.1')
    assert.equal(answer.trailers['grpc-status'], '0')
    assert.equal(answer.trailers['x-bytes'], '7')
    const sent = await new Promise((done, fail) => {
      const stream = session.request({ ':method': 'POST', ':path': '/test.Echo/Count', ...inside(7020), ...grpc }, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-client': 'own' }))
      stream.on('trailers', done)
      stream.on('error', fail)
      stream.resume()
      stream.end('abc')
    })
    assert.equal(sent['x-sent'], 'own')
  })
  test('both directions at the same time', async () => {
    const stream = session.request({ ':method': 'POST', ':path': '/test.Echo/Chat', ...inside(7020), ...grpc }, { endStream: false })
    stream.setEncoding('utf8')
    for (let i = 0; i < 50; i++) {
      stream.write(`word ${i}`)
      assert.equal(await new Promise((done) => stream.once('data', done)), `word ${i}`)
    }
    const trailers = new Promise((done) => stream.once('trailers', done))
    stream.end()
    stream.resume()
    assert.equal((await trailers)['grpc-status'], '0')
  })
  test('20 MB both ways, and 40 calls at once', { timeout: 120_000 * patience }, async () => {
    const block = crypto.randomBytes(20_000_000)
    const answer = await ask('POST', '/test.Echo/Say', { headers: { ...inside(7020), ...grpc }, body: block })
    assert.ok(answer.bytes.equals(block))
    const many = await Promise.all(Array.from({ length: 40 }, (_, i) => ask('POST', '/test.Echo/Say', { headers: { ...inside(7020), ...grpc }, body: `call ${i}` })))
    assert.deepEqual(many.map((one) => one.text), Array.from({ length: 40 }, (_, i) => `call ${i}`))
  })
  test('to a server that speaks TLS', async () => {
    const block = crypto.randomBytes(3_000_000)
    const answer = await ask('POST', '/test.Echo/Say', { headers: { ...inside(7021), ...grpc }, body: block })
    assert.ok(answer.bytes.equals(block))
    assert.deepEqual([answer.headers['x-scheme'], answer.trailers['grpc-status']], ['https', '0'])
  })
  test('a refusal without a body, a broken stream, a server of HTTP/1', async () => {
    const refused = await ask('POST', '/test.Echo/Refuse', { headers: { ...inside(7020), ...grpc }, body: 'x' })
    assert.equal(refused.headers['grpc-status'], '7')
    assert.equal(refused.headers['grpc-message'], 'not you')
    const broken = await ask('POST', '/test.Echo/Break', { headers: { ...inside(7020), ...grpc }, body: 'x' }).catch((error) => error)
    assert.ok(broken.status === 502 || broken.code === 'ERR_HTTP2_STREAM_ERROR', `${broken.status} ${broken}`)
    assert.equal((await ask('POST', '/x', { headers: { ...inside(7010), ...grpc }, body: 'x' })).status, 502)
  })
})

describe('other clients', () => {
  test('curl', async () => {
    const { stdout } = await run('curl', ['-sS', '--http2-prior-knowledge', '-w', '%{http_version} %{http_code}', '-o', '/dev/null', `${server.url}/health`])
    assert.equal(stdout, '2 200')
    const upgrade = await run('curl', ['-sS', '--http2', '-w', '%{http_version} %{http_code}', '-o', '/dev/null', `${server.url}/health`])
    assert.equal(upgrade.stdout, '1.1 200') // the wish to upgrade is ignored
  })
  test('nghttp and h2load', async () => {
    const { stdout } = await run('nghttp', ['-nv', `${server.url}/health`])
    assert.match(stdout, /:status: 200/)
    const load = await run('h2load', ['-n', '2000', '-c', '4', '-m', '50', `${server.url}/health`])
    assert.match(load.stdout, /2000 succeeded, 0 failed/)
  })
})

test('resets without end lose the connection, and only that', async () => {
  const attacker = http2.connect(server.url)
  const gone = new Promise((done) => attacker.once('close', done))
  let code
  attacker.on('goaway', (error) => (code = error))
  attacker.on('error', () => {})
  for (let i = 0; i < 3000 && !attacker.destroyed && code === undefined; i++) {
    const stream = attacker.request({ ':path': '/sandboxes', 'x-api-key': server.key })
    stream.on('error', () => {})
    stream.close(http2.constants.NGHTTP2_CANCEL)
    if (i % 20 === 0) await new Promise((done) => setImmediate(done))
  }
  await gone
  // By our own account, or by nghttp2's.
  assert.ok([http2.constants.NGHTTP2_ENHANCE_YOUR_CALM, http2.constants.NGHTTP2_INTERNAL_ERROR].includes(code), String(code))
  assert.equal((await ask('GET', '/health')).status, 200)
})

test('a server that stops tells its clients to begin nothing more, and finishes what was begun', async () => {
  const client = http2.connect(server.url)
  const said = new Promise((done) => client.once('goaway', done))
  client.on('error', () => {})
  const running = session.request({ ':method': 'POST', ':path': '/process.Process/Start', ...inside(), 'content-type': 'application/connect+json', 'connect-protocol-version': '1' })
  running.on('error', () => {})
  running.resume()
  running.end(envelope({ process: { cmd: '/bin/sleep', args: ['1'], envs: {} } }))
  assert.equal((await ask('GET', '/health', { over: client })).status, 200)
  const stopped = server.stop()
  assert.equal(await said, 0)
  await stopped
  session.destroy()
  await server.start()
})
