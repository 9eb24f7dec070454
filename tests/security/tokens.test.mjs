// Guessing: keys, sandboxes' tokens, traffic tokens, tokens of volumes, signatures. A wrong one is refused in the same words
// whatever exists, costs little, and writes nothing into the log. And WebSockets of ours whose client breaks the rules.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { after, afterEach, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk, sandbox, id
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience, network: { allowPublicTraffic: true } })
  id = sandbox.sandboxId
})
after(() => server.destroy())
afterEach(() => assert.ok(server.alive(), server.tail()))

const noId = 'i00000000000000000000'.slice(0, 21)
const shape = ({ status, text }, ...names) => [status, names.reduce((all, name) => all.replaceAll(name, 'X'), text)]

describe('a guess', () => {
  test('of a key tells nothing about ids', async () => {
    for (const key of [null, '', 'e2b_', `e2b_${'0'.repeat(40)}`, `e2b_${'0'.repeat(4000)}`, server.key.slice(0, -1), `${server.key}0`, server.key.toUpperCase()]) {
      for (const [method, path] of [['GET', ''], ['DELETE', ''], ['POST', '/connect'], ['POST', '/pause'], ['GET', '/logs'], ['GET', '/metrics']]) {
        const there = await server.api(method, `/sandboxes/${id}${path}`, undefined, { key })
        const nowhere = await server.api(method, `/sandboxes/${noId}${path}`, undefined, { key })
        assert.equal(there.status, 401, `${key} ${method} ${path}: ${there.text}`)
        assert.deepEqual(shape(there, id), shape(nowhere, noId), `${key} ${method} ${path}`)
      }
    }
    assert.ok(await sandbox.isRunning())
  })

  test('of a sandbox’s token: 401 with its id, nothing without', async () => {
    const token = (await server.api('GET', `/sandboxes/${id}`)).body.envdAccessToken
    for (const guess of ['', 'x', token.slice(0, -1), `${token}0`, token.toUpperCase() === token ? token.toLowerCase() : token.toUpperCase(), 'A'.repeat(4000)]) {
      const named = await server.sandbox(id, 49983, '/process.Process/List', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json', ...(guess && { 'X-Access-Token': guess }) } })
      assert.equal(named.status, 401, guess)
      if (!guess) continue
      const unnamed = await server.request({ method: 'POST', path: '/process.Process/List', body: '{}', headers: { 'Content-Type': 'application/json', 'X-Access-Token': guess } })
      assert.equal(unnamed.status, 502)
      assert.ok(!unnamed.text.includes(id))
    }
  })

  test('of a signature: the same 401 for every path, user, method and form', async () => {
    const good = await sandbox.downloadUrl('/etc/hostname', { useSignatureExpiration: 600 })
    const wrong = (change) => {
      const url = new URL(good)
      change(url.searchParams)
      return url.pathname + url.search
    }
    const targets = [
      wrong((query) => query.set('path', '/etc/passwd')),
      wrong((query) => query.set('path', '/not/there')),
      wrong((query) => query.set('username', 'root')),
      wrong((query) => query.set('signature_expiration', '99999999999')),
      wrong((query) => query.delete('signature_expiration')),
      wrong((query) => query.set('signature_expiration', '9'.repeat(5000))),
      wrong((query) => query.set('signature', 'v1_')),
      wrong((query) => query.set('signature', '')),
      wrong((query) => query.set('signature', `v1_${'A'.repeat(43)}`)),
      wrong((query) => query.set('signature', query.get('signature').slice(0, -1))),
      wrong((query) => query.set('signature', `v2_${query.get('signature').slice(3)}`)),
      `/files?path=${'a'.repeat(15_000)}&signature=v1_${'A'.repeat(43)}`,
    ]
    const answers = await Promise.all(targets.map((path) => server.request({ path })))
    answers.forEach((answer, at) => assert.deepEqual([answer.status, answer.text], [401, '{"code":401,"message":"invalid signature"}'], targets[at].slice(0, 200)))
    assert.equal((await server.request({ method: 'POST', path: wrong(() => {}), body: '' })).status, 401)
    assert.equal((await server.request({ path: wrong(() => {}) })).status, 200)
  })

  test('of a volume’s token: 401 for every volume, nothing in the log', async () => {
    const volume = (await server.api('POST', '/volumes', { name: 'guessed' })).body
    const ask = (target, token) => server.request({ path: `/volumecontent/${target}/dir?path=/`, headers: token === undefined ? {} : { Authorization: `Bearer ${token}` } })
    assert.equal((await ask(volume.volumeID, volume.token)).status, 200)
    const before = server.log.length
    const guesses = ['', 'x', volume.token.slice(0, -1), `${volume.token}0`, id, 'A'.repeat(2000), ...Array.from({ length: 200 }, () => crypto.randomBytes(20).toString('hex'))]
    const answers = await Promise.all(guesses.flatMap((guess) => [ask(volume.volumeID, guess), ask(crypto.randomUUID(), guess)]))
    const kinds = new Set(answers.map((answer) => `${answer.status} ${answer.text}`))
    assert.deepEqual([...kinds], ['401 {"code":"unauthenticated","message":"the volume\'s token is missing or wrong"}'])
    assert.equal((await ask(volume.volumeID)).status, 401)
    // Through a sandbox it is nothing.
    assert.equal((await server.sandbox(id, 49983, `/volumecontent/${volume.volumeID}/dir?path=/`, { headers: { Authorization: `Bearer ${volume.token}` } })).status, 404)
    assert.doesNotMatch(server.log.slice(before), /WARN|ERROR/i, 'a stranger writes our log')
    await server.api('DELETE', `/volumes/${volume.volumeID}`)
  })
})

describe('a WebSocket of ours', () => {
  let box
  const v1 = (method, target, body) => server.api(method, `/api/v1${target}`, body)
  before(async () => {
    box = (await v1('POST', '/sandboxes', {})).body
  })
  after(() => v1('DELETE', `/sandboxes/${box.id}`))

  // By hand: clients that follow the rules cannot break them.
  async function shakeHands(lines = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='], { key = server.key, version = '1.1', rest = '' } = {}) {
    const socket = await server.connect()
    socket.write(`GET /api/v1/sandboxes/${box.id}/terminal HTTP/${version}\r\nHost: x\r\nX-API-KEY: ${key}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n${rest}`)
    await eventually('an answer', () => socket.received.includes('\r\n\r\n'))
    return socket
  }
  const frame = (first, payload = '', { masked = true, length = payload.length, wide = false } = {}) => {
    const bit = masked ? 0x80 : 0
    const size = Buffer.alloc(wide ? 9 : length < 126 ? 1 : 3)
    if (wide) size.writeBigUInt64BE(BigInt(length), 1), (size[0] = bit | 127)
    else if (length < 126) size[0] = bit | length
    else size.writeUInt16BE(length, 1), (size[0] = bit | 126)
    return Buffer.concat([Buffer.from([first]), size, masked ? Buffer.alloc(4) : Buffer.alloc(0), Buffer.from(payload, 'latin1')])
  }
  // The code in the close frame at the end of what came.
  const closedWith = async (socket) => {
    const at = await eventually(`a close frame after ${JSON.stringify(socket.received.slice(-60))}`, () => {
      const found = socket.received.lastIndexOf('\x88')
      return socket.received.length >= found + 4 && Math.max(found, 0)
    }, 20_000)
    socket.end()
    await socket.ended
    return socket.received.charCodeAt(at + 2) * 256 + socket.received.charCodeAt(at + 3)
  }

  const BREACHES = {
    'a frame without a mask': [frame(0x81, 'hi', { masked: false }), 1002],
    'bits of extensions': [frame(0xc1, 'hi'), 1002],
    'an opcode nobody knows': [frame(0x83, 'hi'), 1002],
    'a control frame in pieces': [frame(0x09, 'hi'), 1002],
    'a control frame that is too long': [frame(0x89, 'x'.repeat(126)), 1002],
    'a continuation of nothing': [frame(0x80, 'hi'), 1002],
    'a second beginning': [Buffer.concat([frame(0x01, 'hi'), frame(0x01, 'hi')]), 1002],
    'a length of 2^63': [frame(0x82, '', { length: 2n ** 63n, wide: true }), 1009],
    'a length of 2^64 - 1': [frame(0x82, '', { length: 2n ** 64n - 1n, wide: true }), 1009],
    'two megabytes': [frame(0x82, '', { length: 2 << 20, wide: true }), 1009],
    'two megabytes in pieces': [Buffer.concat([frame(0x02, ''), ...Array.from({ length: 40 }, () => frame(0x00, 'x'.repeat(60_000)))]), 1009],
    'text that is none': [frame(0x81, '\xff\xfe'), 1007],
    'a close code that is none': [frame(0x88, '\x03\xec'), 1002],
    'a close frame of one byte': [frame(0x88, 'x'), 1002],
  }
  for (const [name, [bytes, code]] of Object.entries(BREACHES)) {
    test(`${name}: closed with ${code}`, async () => {
      const socket = await shakeHands()
      assert.match(socket.received, /^HTTP\/1\.1 101/)
      socket.write(bytes)
      assert.equal(await closedWith(socket), code)
      socket.destroy()
    })
  }

  test('handshakes that are none', async () => {
    const good = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']
    const without = (name) => good.filter((line) => !line.startsWith(name))
    for (const [lines, options] of [
      [without('Connection')], [without('Upgrade')], [without('Sec-WebSocket-Version')], [without('Sec-WebSocket-Key')],
      [[...without('Sec-WebSocket-Version'), 'Sec-WebSocket-Version: 8']],
      [[...without('Sec-WebSocket-Key'), 'Sec-WebSocket-Key: short']],
      [[...without('Upgrade'), 'Upgrade: h2c']],
      [[...good, 'Content-Length: 5'], { rest: 'hello' }],
      [[...good, 'Transfer-Encoding: chunked'], { rest: '0\r\n\r\n' }],
      [good, { version: '1.0' }],
      [good, { key: 'e2b_wrong' }],
    ]) {
      const socket = await shakeHands(lines, options)
      assert.match(socket.received, /^HTTP\/1\.1 4\d\d/, `${lines}: ${socket.received.slice(0, 80)}`)
      socket.destroy()
    }
  })

  test('many fragments, pings and empty frames cost nobody anything', async () => {
    const socket = await shakeHands()
    const storm = Buffer.concat(Array.from({ length: 20_000 }, () => Buffer.concat([frame(0x89, 'p'.repeat(100)), frame(0x01, ''), frame(0x80, '')])))
    socket.pause() // and does not read the answers
    socket.write(storm)
    const began = Date.now()
    for (let i = 0; i < 20; i++) assert.equal((await server.api('GET', '/health')).status, 200)
    assert.ok(Date.now() - began < 20_000 * patience, `${Date.now() - began} ms`)
    socket.destroy()
  })
})
