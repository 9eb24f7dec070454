// Strangers at the HTTPS listener: handshakes that never end, grow or lie, and connections that are answered and stay. Each
// costs little, and others are served meanwhile. In the lab 198.51.100.2 is an address that is not loopback.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

const MB = 1024 * 1024
const DOMAIN = 'boxes.test'
const SERVERNAME = `api.${DOMAIN}`
let server, ca, hello
before(async () => {
  server = await startServer({
    listen: '0.0.0.0:0',
    args: ['--warm', '0', '--loops', '1', '--domain', DOMAIN, '--listen-tls', ':443', '--connections', '2048', '--connections-per-address', '1024'],
    prepare: (one) => {
      const made = spawnSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', one.data], { encoding: 'utf8' })
      assert.equal(made.status, 0, made.stderr)
    },
  })
  ca = fs.readFileSync(path.join(server.data, 'tls/ca.pem'))
  hello = await clientHello()
})
after(() => server.destroy())

// The first bytes of a real client.
const clientHello = () =>
  new Promise((done) => {
    const listener = net.createServer((socket) =>
      socket.once('data', (bytes) => {
        done(bytes)
        socket.destroy()
        listener.close()
      })
    )
    listener.listen(0, '127.0.0.1', () => tls.connect({ host: '127.0.0.1', port: listener.address().port, servername: SERVERNAME, ALPNProtocols: ['http/1.1'] }).on('error', () => {}))
  })

const record = (type, body, length = body.length) => Buffer.concat([Buffer.from([type, 3, 1, length >> 8, length & 255]), body])
const message = (length, body = Buffer.alloc(0)) => Buffer.concat([Buffer.from([1, length >> 16, (length >> 8) & 255, length & 255]), body])

const open = (host, bytes) =>
  new Promise((done, fail) => {
    const socket = net.connect({ host, port: 443, allowHalfOpen: true })
    socket.received = Buffer.alloc(0)
    socket.on('data', (chunk) => (socket.received = Buffer.concat([socket.received, chunk])))
    socket.on('close', () => (socket.over = true))
    socket.on('end', () => (socket.over = true))
    socket.once('error', fail)
    socket.once('connect', () => {
      socket.on('error', () => {})
      if (bytes?.length) socket.write(bytes)
      done(socket)
    })
  })

const connect = (options = {}) =>
  new Promise((done, fail) => {
    const socket = tls.connect({ host: '127.0.0.1', port: 443, servername: SERVERNAME, ca, ...options })
    socket.once('secureConnect', () => done(socket)).once('error', fail)
  })

async function health(options) {
  const socket = await connect(options)
  let text = ''
  for await (const chunk of socket.end('GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')) text += chunk
  return Number(text.slice(9, 12))
}

const residentBytes = () => Number(/^VmRSS:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'latin1'))[1]) * 1024

// 700 of them, from one address; then from loopback, which has no share of its own.
for (const host of ['198.51.100.2', '127.0.0.1']) {
  for (const [what, bytes] of [
    ['say nothing', () => Buffer.alloc(0)],
    ['announce a first message of 131 kB', () => record(22, message(131_396))],
    ['send most of a long record', () => Buffer.concat([record(22, message(16_000, Buffer.alloc(15_000, 1)), 16_004)])],
    ['stop after the server’s hello', () => hello],
    ['send their hello in drops', () => hello.subarray(0, 1)],
  ]) {
    test(`700 clients of ${host} that ${what} take little memory, and others are served`, { timeout: 120_000 * patience }, async (t) => {
      const start = residentBytes()
      const sockets = []
      try {
        for (let i = 0; i < 700; i++) sockets.push(await open(host, bytes()))
        const most = host === '127.0.0.1' ? 256 : 64
        await eventually(`at most ${most} handshakes are left`, () => sockets.filter((one) => !one.over).length <= most, 3000) // long before they are timed out
        for (let i = 0; i < 10; i++) assert.equal(await health(), 200)
        const grown = residentBytes() - start
        t.diagnostic(`${(grown / MB).toFixed(1)} MB more`)
        assert.ok(grown < 24 * MB, `${(grown / MB).toFixed(1)} MB more`)
      } finally {
        for (const socket of sockets) socket.destroy()
      }
    })
  }
}

test('handshakes end after the time of a request head', { timeout: 120_000 * patience }, async () => {
  // 15 s, whatever drops in: this is about time.
  const socket = await open('127.0.0.1', hello.subarray(0, 20))
  const began = Date.now()
  let at = 20
  const drip = setInterval(() => at < hello.length - 1 && socket.write(hello.subarray(at, ++at)), 100)
  try {
    await eventually('it is closed', () => socket.over, 30_000, 100)
  } finally {
    clearInterval(drip)
    socket.destroy()
  }
  assert.ok(Date.now() - began < 25_000 * patience, `after ${Date.now() - began} ms`)
})

test('answered connections that their clients keep open give their place to others', { timeout: 120_000 * patience }, async () => {
  const sockets = []
  const long = `POST /sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: ${100 * MB}\r\n\r\n`
  try {
    for (let i = 0; i < 2100; i++) {
      const socket = await new Promise((done) => {
        const one = net.connect({ host: '127.0.0.1', port: server.port, allowHalfOpen: true })
        one.on('error', () => {})
        one.on('connect', () => done(one))
        one.resume()
      })
      socket.write(long)
      sockets.push(socket)
    }
    for (let i = 0; i < 20; i++) assert.equal((await server.request({ path: '/health' })).status, 200)
  } finally {
    for (const socket of sockets) socket.destroy()
  }
})

test('what is not TLS, or no longer, is refused and logged by nobody', async () => {
  const shapes = {
    'plain HTTP': Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
    'HTTP/2 without TLS': Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    'a hello of SSL 2': Buffer.from([0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10, ...Array(40).fill(1)]),
    zeros: Buffer.alloc(64),
    noise: Buffer.from(Array.from({ length: 512 }, (_, i) => (i * 167 + 13) & 255)),
    'a record that is too long': record(22, message(20_000, Buffer.alloc(18_000))),
    'data first': record(23, Buffer.from('GET / HTTP/1.1\r\n\r\n')),
    'a second hello': Buffer.concat([hello, hello]),
    'data behind the hello': Buffer.concat([hello, record(23, Buffer.alloc(1000, 1))]),
  }
  // Too short to be judged: the server waits for the rest until the client ends or the handshake takes too long.
  const unfinished = {
    'an alert first': record(21, Buffer.from([2, 40])),
    'an empty record': record(22, Buffer.alloc(0)),
    'a head in pieces': Buffer.concat([record(22, Buffer.from([1])), record(22, Buffer.from([0, 2, 0]))]),
  }
  for (const [name, bytes] of Object.entries({ ...shapes, ...unfinished })) {
    const socket = await open('127.0.0.1', bytes)
    if (unfinished[name]) socket.end()
    await eventually(`${name} is closed`, () => socket.over)
    assert.doesNotMatch(socket.received.toString('latin1'), /HTTP\/1\.1 200/, name)
    socket.destroy()
  }
  assert.equal(await health(), 200)
  assert.doesNotMatch(server.log, /^.*(WARN|ERROR).*tls.*$/m)
})

test('a hello in two records is understood', async () => {
  const body = hello.subarray(5)
  const socket = await open('127.0.0.1', Buffer.concat([record(22, body.subarray(0, 100)), record(22, body.subarray(100))]))
  await eventually('a hello of the server', () => socket.received[0] === 22)
  socket.destroy()
})

test('names that nobody has are answered like none', async () => {
  for (const servername of ['x'.repeat(60), `${'a.'.repeat(120)}test`, '*.boxes.test', 'localhost..', '-', 'xn--', '%00', "' or 1=1", 'BOXES.TEST'])
    assert.equal(await health({ servername, rejectUnauthorized: false, checkServerIdentity: () => undefined }), 200, servername)
})

test('protocols that nobody speaks are refused', async () => {
  for (const ALPNProtocols of [['spdy/3'], ['h3'], ['x'.repeat(255)], Array.from({ length: 200 }, (_, i) => `p${i}`)])
    await assert.rejects(connect({ ALPNProtocols }), { code: /ALERT_NO_APPLICATION_PROTOCOL|ECONNRESET/ }, String(ALPNProtocols).slice(0, 40))
})

test('versions before 1.2 are refused, early data is not offered, renegotiation is refused', async () => {
  const openssl = (args, input = '') => spawnSync('openssl', ['s_client', '-connect', '127.0.0.1:443', '-servername', SERVERNAME, '-CAfile', path.join(server.data, 'tls/ca.pem'), ...args], { input, encoding: 'latin1', timeout: 20_000 * patience })
  for (const version of ['-tls1', '-tls1_1']) {
    const { stdout, stderr } = openssl([version, '-cipher', 'ALL:@SECLEVEL=0'])
    assert.match(stdout + stderr, /alert protocol version|no protocols available/, version)
  }
  const { stdout } = openssl(['-tls1_3', '-ign_eof'], 'GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  assert.match(stdout, /HTTP\/1\.1 200/)
  assert.match(stdout, /Max Early Data: 0/)
  const again = await connect({ maxVersion: 'TLSv1.2' })
  const refused = await new Promise((done) => {
    again.on('error', done)
    again.on('close', () => done(new Error('closed')))
    if (!again.renegotiate({ rejectUnauthorized: false }, (error) => error && done(error))) done(new Error('not begun'))
  })
  assert.ok(refused)
  again.destroy()
  assert.equal(await health(), 200)
})

test('tickets that nobody gave lead to a full handshake', async () => {
  const first = await connect({ maxVersion: 'TLSv1.2' })
  const [session, ticket] = [first.getSession(), first.getTLSTicket()]
  first.destroy()
  const again = await connect({ maxVersion: 'TLSv1.2', session })
  assert.ok(again.isSessionReused())
  again.destroy()
  for (const at of [0.5, 0.9]) {
    const broken = Buffer.from(session)
    const begin = broken.indexOf(ticket.subarray(0, 16))
    assert.ok(begin > 0)
    broken[begin + Math.floor(ticket.length * at)] ^= 1
    const full = await connect({ maxVersion: 'TLSv1.2', session: broken })
    assert.ok(!full.isSessionReused())
    full.destroy()
  }
})
