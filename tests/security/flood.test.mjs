// Clients that want too much of the control plane: memory, connections and workers before anybody knows who they are,
// and one team's share of what is for all.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, patience, startServer } from '../harness/server.mjs'

const MB = 1024 * 1024
const CONNECTIONS = 500

let server
before(async () => {
  server = await startServer({ args: ['--request-seconds', '3', '--body-memory', '8', '--warm', '2'] })
})
after(() => server.destroy())

const head = (...lines) => lines.join('\r\n') + '\r\n\r\n'
const status = (text) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1])
const residentBytes = () => Number(/^VmRSS:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'latin1'))[1]) * 1024

// Connections that have sent a head and all but the last byte of 1 MiB, as far as the server takes it.
async function holdBodies(method, target, keyOf) {
  const body = Buffer.alloc(MB - 1, ' ')
  const sockets = []
  for (let i = 0; i < CONNECTIONS; i++) {
    const socket = await server.connect()
    const key = keyOf(i)
    socket.write(head(`${method} ${target} HTTP/1.1`, 'Host: x', ...(key ? [`X-API-KEY: ${key}`] : []), `Content-Length: ${MB}`))
    socket.write(body)
    sockets.push(socket)
  }
  return sockets
}

describe('memory before the key', () => {
  const randomKey = () => `e2b_${crypto.randomBytes(20).toString('hex')}`
  const wrong = randomKey()

  for (const [method, target] of [
    ['POST', '/sandboxes'],
    ['POST', '/events/webhooks'],
    ['POST', '/api/v1/sandboxes'],
    ['GET', '/api/v1/health'],
  ]) {
    for (const [what, keyOf] of [
      ['no key', () => undefined],
      ['the same wrong key', () => wrong],
      ['a wrong key each', randomKey],
    ]) {
      test(`${CONNECTIONS} bodies of 1 MiB with ${method} ${target} and ${what} take no memory`, async (t) => {
        const before = residentBytes()
        const sockets = await holdBodies(method, target, keyOf)
        try {
          const answered = (socket) => [200, 401, 429, 503].includes(status(socket.received))
          await eventually('all are answered before their bodies are whole', () => sockets.every(answered), 30_000)
          const grown = residentBytes() - before
          t.diagnostic(`${(grown / MB).toFixed(1)} MB more`)
          assert.ok(grown < 48 * MB, `${(grown / MB).toFixed(1)} MB more`)
          assert.equal((await server.api('GET', '/sandboxes')).status, 200)
        } finally {
          for (const socket of sockets) socket.destroy()
        }
      })
    }
  }

  test('a wrong key is refused without 100 Continue, a right one gets it', async () => {
    const ask = (key) => head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${key}`, 'Content-Length: 29', 'Expect: 100-continue')
    const text = await server.raw(ask(randomKey()))
    assert.equal(status(text), 401, text)
    const socket = await server.connect()
    socket.write(ask(server.key))
    await eventually('100', () => status(socket.received) === 100)
    socket.write('{"templateID":"nothing-here"}')
    await eventually('404', () => /HTTP\/1\.1 404/.test(socket.received))
    socket.destroy()
  })

  test('a connection goes on after a short body with a wrong key', async () => {
    const socket = await server.connect()
    const body = '{"templateID":"base"}'
    socket.write(head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${wrong}`, `Content-Length: ${body.length}`) + body)
    socket.write(head('GET /health HTTP/1.1', 'Host: x'))
    await eventually('both answers', () => /^HTTP\/1\.1 401 [^]*HTTP\/1\.1 200 /.test(socket.received))
    socket.destroy()
  })

  test('a flood of wrong keys does not keep a right one out', async () => {
    let going = true
    const guess = async () => {
      while (going) await server.api('POST', '/sandboxes', '{}', { key: randomKey() }).catch(() => {})
    }
    const guesses = Array.from({ length: 100 }, guess)
    try {
      for (let i = 0; i < 50; i++) assert.equal((await server.api('GET', '/v2/sandboxes')).status, 200)
    } finally {
      going = false
      await Promise.all(guesses)
    }
  })
})

describe('with a key', () => {
  test('a body that comes in drops is cut after the time for a whole request', async () => {
    const socket = await server.connect()
    socket.write(head('POST /sandboxes HTTP/1.1', 'Host: x', `X-API-KEY: ${server.key}`, `Content-Length: ${MB}`))
    const drip = setInterval(() => socket.write(' '), 200)
    const began = Date.now()
    try {
      await Promise.race([socket.ended, sleep(20_000 * patience, undefined, { ref: false })])
    } finally {
      clearInterval(drip)
    }
    assert.equal(status(socket.received), 408, `after ${Date.now() - began} ms: ${socket.received}`)
    socket.destroy()
  })

  for (const [target, extra] of [
    ['/sandboxes', []],
    ['/api/v1/sandboxes', []],
    ['/api/v1/sandboxes', ['Transfer-Encoding: chunked']],
  ]) {
    test(`one team’s bodies have a limit: ${target} ${extra}`, async () => {
      const length = extra.length ? extra : [`Content-Length: ${MB}`]
      const sockets = []
      try {
        for (let i = 0; i < 6; i++) {
          const socket = await server.connect()
          socket.write(head(`POST ${target} HTTP/1.1`, 'Host: x', `X-API-KEY: ${server.key}`, ...length))
          sockets.push(socket)
        }
        // Half of 8 MB is one team's: four wait for their bytes, two are told to come back.
        const told = () => sockets.filter((socket) => status(socket.received) === 429)
        await eventually('two are refused', () => told().length === 2)
        for (const socket of told()) assert.match(socket.received, /\r\nRetry-After: \d/)
        assert.equal((await server.api('GET', '/sandboxes')).status, 200)
      } finally {
        for (const socket of sockets) socket.destroy()
      }
      await eventually('the room is given back', async () => (await server.api('POST', '/sandboxes', `{"templateID":"nothing-here","x":"${'x'.repeat(MB - 100)}"}`)).status === 404)
    })
  }
})
