// Bad HTTP: what a broken or hostile client sends must be answered or cut off, and must not hurt the next one.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, startServer, timely } from '../harness/server.mjs'
import { counts } from '../harness/leftovers.mjs'

let server, key
before(async () => {
  // No boxes in reserve: while they are made the server gets descriptors of its own, which are counted below.
  server = await startServer({ args: ['--warm', '0'] })
  key = server.key
})
after(() => server.destroy())
afterEach(async () => {
  assert.ok(server.alive(), `the server died:\n${server.tail()}`)
  assert.ok((await server.api('GET', '/health')).status < 300)
})

const status = (text) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1])
const head = (...lines) => lines.join('\r\n') + '\r\n\r\n'

describe('malformed', () => {
  const cases = [
    ['garbage', 'hello\r\n\r\n', [400]],
    ['binary', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', [400]],
    ['no version', 'GET /health\r\n\r\n', [400, 505]],
    ['unknown version', head('GET /health HTTP/9.9', 'Host: x'), [400, 505]],
    ['space in the path', head('GET /a b HTTP/1.1', 'Host: x'), [400]],
    ['NUL in a header', head('GET /health HTTP/1.1', 'Host: x', 'A: b\0c'), [400]],
    ['no colon', head('GET /health HTTP/1.1', 'Host: x', 'nocolon'), [400]],
    ['space before colon', head('GET /health HTTP/1.1', 'Host : x'), [400]],
    ['folded header', head('GET /health HTTP/1.1', 'Host: x', 'A: b', ' c'), [200, 204, 400]],
    ['two lengths', head('POST /sandboxes HTTP/1.1', 'Host: x', 'Content-Length: 3', 'Content-Length: 4') + 'abcd', [400]],
    ['length and chunked', head('POST /sandboxes HTTP/1.1', 'Host: x', 'Content-Length: 3', 'Transfer-Encoding: chunked') + '0\r\n\r\n', [400]],
    ['negative length', head('POST /sandboxes HTTP/1.1', 'Host: x', 'Content-Length: -1'), [400]],
    ['huge length', head('POST /sandboxes HTTP/1.1', 'Host: x', 'Content-Length: 99999999999999999999'), [400, 413]],
    ['bad chunk size', head('POST /sandboxes HTTP/1.1', 'Host: x', 'X-API-KEY: @', 'Transfer-Encoding: chunked') + 'zz\r\n', [400]],
    ['chunk size overflow', head('POST /sandboxes HTTP/1.1', 'Host: x', 'X-API-KEY: @', 'Transfer-Encoding: chunked') + 'fffffffffffffffff\r\n', [400, 413]],
    ['unknown transfer coding', head('POST /sandboxes HTTP/1.1', 'Host: x', 'Transfer-Encoding: sausage'), [400, 501]],
    ['CONNECT', head('CONNECT example.com:443 HTTP/1.1', 'Host: example.com'), [400, 404, 405, 501]],
  ]
  for (const [name, bytes, wanted] of cases) {
    test(name, async () => {
      const text = await server.raw(bytes.replace('@', key), { limitMs: 3000 })
      assert.ok(wanted.includes(status(text)), `got: ${JSON.stringify(text.slice(0, 200))}`)
    })
  }

  test('path tricks reach nothing', async () => {
    for (const path of ['/../../etc/passwd', '/%2e%2e/%2e%2e/etc/passwd', '//etc/passwd', '/sandboxes/../../etc/passwd', '/sandboxes/%00', '/./health/..']) {
      const text = await server.raw(head(`GET ${path} HTTP/1.1`, 'Host: 127.0.0.1', `X-API-KEY: ${key}`, 'Connection: close'))
      assert.ok([400, 404].includes(status(text)), `${path}: ${text.slice(0, 100)}`)
      assert.ok(!text.includes('root:'))
    }
  })
})

describe('limits', () => {
  test('a header of 1 MiB is refused', async () => {
    const text = await server.raw(head('GET /health HTTP/1.1', 'Host: x', `A: ${'b'.repeat(1 << 20)}`))
    assert.ok([400, 413, 431].includes(status(text)) || text === '', text.slice(0, 200))
  })

  test('10000 headers are refused', async () => {
    const text = await server.raw(head('GET /health HTTP/1.1', 'Host: x', ...Array.from({ length: 10000 }, (_, at) => `A${at}: b`)))
    assert.ok([400, 413, 431].includes(status(text)) || text === '', text.slice(0, 200))
  })

  test('a target of 1 MiB is refused', async () => {
    const text = await server.raw(head(`GET /${'a'.repeat(1 << 20)} HTTP/1.1`, 'Host: x'))
    assert.ok([400, 414, 431].includes(status(text)) || text === '', text.slice(0, 200))
  })

  test('a body that is too large is refused by its length, before it is sent', async () => {
    const text = await server.raw(head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${key}`, 'Content-Type: application/json', 'Content-Length: 500000000'), { limitMs: 3000 })
    assert.equal(status(text), 413, text.slice(0, 200))
  })

  test('a chunked body that grows too large is refused', async () => {
    const socket = await server.connect()
    socket.write(head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${key}`, 'Content-Type: application/json', 'Transfer-Encoding: chunked'))
    const chunk = `10000\r\n${'a'.repeat(65536)}\r\n`
    for (let at = 0; at < 400 && !socket.received && !socket.destroyed; at++) {
      if (!socket.write(chunk)) await Promise.race([new Promise((done) => socket.once('drain', done)), socket.ended, sleep(1000)])
    }
    // What was still on its way may have cost us the answer, but not the end of the connection.
    await socket.ended
    assert.ok(socket.received === '' || status(socket.received) === 413, socket.received.slice(0, 200))
    socket.destroy()
  })
})

describe('connections', () => {
  test('keep-alive serves many requests', async () => {
    const socket = await server.connect()
    for (let at = 1; at <= 20; at++) {
      socket.write(head('GET /health HTTP/1.1', 'Host: x'))
      await eventually('answer', () => (socket.received.match(/HTTP\/1\.1 20\d/g) ?? []).length === at)
    }
    socket.destroy()
  })

  test('pipelined requests are answered in order', async () => {
    const socket = await server.connect()
    const one = (path) => head(`GET ${path} HTTP/1.1`, 'Host: 127.0.0.1', `X-API-KEY: ${key}`)
    socket.write(one('/sandboxes') + one('/nothing') + one('/health') + one('/sandboxes') + one('/nothing'))
    await eventually('five answers', () => (socket.received.match(/HTTP\/1\.1 \d+/g) ?? []).length === 5)
    const seen = socket.received.match(/HTTP\/1\.1 \d+/g).map((line) => Math.floor(Number(line.slice(9)) / 100))
    assert.deepEqual(seen, [2, 4, 2, 2, 4])
    socket.destroy()
  })

  test('a head that arrives byte by byte is read', async () => {
    const socket = await server.connect()
    socket.setNoDelay(true)
    for (const byte of head('GET /health HTTP/1.1', 'Host: x')) {
      socket.write(byte)
      await sleep(2)
    }
    await eventually('answer', () => /^HTTP\/1\.1 20\d/.test(socket.received))
    socket.destroy()
  })

  test('Expect: 100-continue', async () => {
    const body = '{"templateID":"nothing-here"}'
    const socket = await server.connect()
    socket.write(head('POST /sandboxes HTTP/1.1', 'Host: 127.0.0.1', `X-API-KEY: ${key}`, 'Content-Type: application/json', `Content-Length: ${body.length}`, 'Expect: 100-continue'))
    await eventually('100', () => /^HTTP\/1\.1 100/.test(socket.received))
    socket.write(body)
    await eventually('404', () => /HTTP\/1\.1 404/.test(socket.received))
    socket.destroy()
  })

  test('a client that ends its side after the request still gets the answer', async () => {
    const text = await server.raw(head('GET /health HTTP/1.1', 'Host: x'), { end: true })
    assert.match(text, /^HTTP\/1\.1 20\d/)
  })

  test('a client that ends in the middle of a body is let go', async () => {
    const text = await server.raw(head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${key}`, 'Content-Length: 100') + '{"tem', { end: true, limitMs: 3000 })
    assert.ok(text === '' || status(text) === 400, text)
  })

  test('HTTP/1.0 gets one answer and the end', async () => {
    const text = await server.raw('GET /health HTTP/1.0\r\n\r\n')
    assert.match(text, /^HTTP\/1\.[01] 20\d/)
  })

  test('HEAD has no body', async () => {
    const text = await server.raw(head('HEAD /sandboxes HTTP/1.1', 'Host: 127.0.0.1', `X-API-KEY: ${key}`, 'Connection: close'))
    assert.match(text, /^HTTP\/1\.1 \d+/)
    assert.equal(text.split('\r\n\r\n')[1], '')
  })

  test('300 connections that say nothing do not stop others', async () => {
    const idle = await Promise.all(Array.from({ length: 300 }, () => server.connect()))
    for (const socket of idle) socket.write('GET /hea')
    await timely('an answer', 1000, async () => {
      const began = Date.now()
      assert.ok((await server.api('GET', '/health')).status < 300)
      return Date.now() - began
    })
    for (const socket of idle) socket.destroy()
  })

  test('descriptors come back after 2000 connections', async () => {
    await server.api('GET', '/health')
    const before = counts(server.servingPid).descriptors
    for (let round = 0; round < 20; round++) {
      const sockets = await Promise.all(Array.from({ length: 100 }, () => server.connect()))
      sockets.forEach((socket, at) => {
        if (at % 3 === 0) socket.write(head('GET /health HTTP/1.1', 'Host: x'))
        if (at % 3 === 1) socket.write('POST /sandboxes HTTP/1.1\r\nContent-Le')
        at % 2 ? socket.destroy() : socket.end()
      })
    }
    await eventually('descriptors closed', () => counts(server.servingPid).descriptors <= before + 5, 10_000, 200)
  })
})
