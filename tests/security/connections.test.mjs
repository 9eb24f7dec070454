// Clients that hold more connections than is fair: others still find a place. A small server, so that few are many; in the
// lab 198.51.100.2 is an address of this host that is not loopback.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import net from 'node:net'
import { after, before, test } from 'node:test'
import { RawHttp2, get } from '../harness/http2-raw.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server
before(async () => {
  server = await startServer({ listen: '0.0.0.0:0', args: ['--connections', '64', '--connections-per-address', '20', '--connections-per-sandbox', '12', '--loops', '1'] })
})
after(() => server.destroy())

const open = (host, bytes = '') =>
  new Promise((done, fail) => {
    const socket = net.connect({ host, port: server.port })
    socket.received = ''
    socket.on('data', (chunk) => (socket.received += chunk))
    socket.on('close', () => (socket.over = true))
    socket.on('error', fail)
    socket.on('connect', () => {
      socket.write(bytes)
      done(socket)
    })
  })
const health = async (host) => (await fetch(`http://${host}:${server.port}/health`, { headers: { Connection: 'close' } })).status

test('idle and half-said ones give their place to whoever comes', async () => {
  const sockets = []
  for (let i = 0; i < 200; i++) sockets.push(await open('127.0.0.1', i % 2 ? 'GET /hea' : ''))
  for (let i = 0; i < 20; i++) assert.equal(await health('127.0.0.1'), 200)
  await eventually('the oldest are closed', () => sockets.filter((one) => one.over).length >= 136)
  sockets.push(await open('127.0.0.1', 'GET /hea'))
  assert.equal(await health('127.0.0.1'), 200)
  assert.ok(!sockets.at(-1).over, 'the newest is still there')
  sockets.forEach((one) => one.destroy())
})

test('one address has its share, others and loopback do not notice', async () => {
  const sockets = []
  for (let i = 0; i < 40; i++) sockets.push(await open('198.51.100.2'))
  await eventually('20 are refused', () => sockets.filter((one) => one.over).length === 20)
  for (const one of sockets.filter((socket) => socket.over)) assert.match(one.received, /^HTTP\/1\.1 503 [^]*too many connections from your address/)
  assert.equal(await health('198.51.100.2'), 503)
  for (let i = 0; i < 20; i++) assert.equal(await health('127.0.0.1'), 200)
  sockets.forEach((one) => one.destroy())
  await eventually('its share is given back', async () => (await health('198.51.100.2')) === 200)
})

test('streams that five addresses leave unread give their place to others', async () => {
  const connections = []
  const addresses = ['198.51.100.2']
  for (let i = 11; i < 15; i++) {
    execFileSync('ip', ['address', 'add', `198.51.100.${i}/32`, 'dev', 'lo'])
    addresses.push(`198.51.100.${i}`)
  }
  try {
    for (const localAddress of addresses) {
      const connection = await RawHttp2.open({ host: '198.51.100.2', port: server.port, localAddress }, { window: 0 })
      connections.push(connection)
      connection.ask(get('/health'), 16)
    }
    await eventually('all places are taken', () => connections.some((one) => one.over || one.resets.size))
    // An answer that nobody has read for a second makes place.
    await eventually('another client is served', async () => (await health('127.0.0.1')) === 200, 5000)
    for (let i = 0; i < 20; i++) assert.equal(await health('127.0.0.1'), 200)
  } finally {
    for (const connection of connections) connection.close()
  }
})

test('unread streams go before idle connections of addresses that have fewer', async () => {
  const attackers = ['198.51.100.21', '198.51.100.22', '198.51.100.23']
  const others = ['198.51.100.31', '198.51.100.32']
  for (const address of [...attackers, ...others]) execFileSync('ip', ['address', 'add', `${address}/32`, 'dev', 'lo'])
  const connections = []
  const idle = []
  const keep = async (localAddress) => {
    const socket = net.connect({ host: '198.51.100.2', port: server.port, localAddress })
    socket.received = ''
    socket.on('data', (chunk) => (socket.received += chunk))
    socket.on('error', () => {})
    socket.on('close', () => (socket.over = true))
    socket.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n')
    idle.push(socket)
    await eventually('an answer', () => socket.received.includes('\r\n\r\n') || socket.over)
    assert.match(socket.received, /^HTTP\/1\.1 20/)
  }
  const lost = () => idle.filter((one) => one.over).length
  const unread = async () => {
    for (const localAddress of attackers) {
      const connection = await RawHttp2.open({ host: '198.51.100.2', port: server.port, localAddress }, { window: 0 })
      connections.push(connection)
      connection.ask(get('/health'), 20) // which take the 20 places that one address may have
    }
  }
  try {
    for (let i = 0; i < 8; i++) await keep(others[0])
    await unread()
    // 8 and three times 20 are more than 64: the last ones find no place, and take none of who has fewer.
    await eventually('all places are taken', () => connections.every((one) => one.over || one.statuses.size + one.resets.size >= 20))
    assert.equal(lost(), 0, 'an address with many places takes none from the others')
    await new Promise((done) => setTimeout(done, 1200)) // unread responses may be ended after a second
    for (let i = 0; i < 6; i++) {
      await keep(others[1])
      assert.equal(lost(), 0, `the connection ${i} took the place of an idle one`)
    }
  } finally {
    for (const connection of connections) connection.close()
    for (const socket of idle) socket.destroy()
  }
})

// Whoever knows an id may open its ports: those of one sandbox are not all that there are.
test('one sandbox has its share of requests and tunnels, others do not notice', async () => {
  const sdk = await loadSdk(server)
  const boxes = await Promise.all([1, 2].map(() => sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })))
  const [{ sandboxId }, other] = boxes
  for (const box of boxes) {
    await box.files.write('/home/user/up.py', UPGRADES)
    await box.commands.run('python3 /home/user/up.py', { background: true, timeoutMs: 0 }).then((handle) => handle.disconnect())
  }
  const ask = (id, up) => open('127.0.0.1', `GET / HTTP/1.1\r\nHost: 7300-${id}.localhost\r\n${up ? 'Connection: Upgrade\r\nUpgrade: x' : 'Connection: close'}\r\n\r\n`)
  const status = async (id, up = true) => {
    const socket = await ask(id, up)
    await eventually('an answer', () => socket.received.includes('\r\n\r\n'))
    return [socket, Number(socket.received.slice(9, 12))]
  }
  for (const box of boxes) {
    await eventually('the server inside', async () => {
      const [socket, code] = await status(box.sandboxId, false)
      socket.destroy()
      return code === 200
    })
  }
  const held = []
  for (let i = 0; i < 10; i++) held.push(await status(sandboxId))
  const codes = held.map(([, code]) => code)
  assert.deepEqual([codes.filter((code) => code === 101).length, codes.filter((code) => code === 503).length], [4, 6], String(codes))
  const [free, fine] = await status(other.sandboxId)
  assert.equal(fine, 101)
  free.destroy()
  held.forEach(([socket]) => socket.destroy())
  await eventually('its share is given back', async () => {
    const [socket, code] = await status(sandboxId)
    socket.destroy()
    return code === 101
  })
})

const UPGRADES = String.raw`
import socketserver
class Up(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while b"\r\n\r\n" not in data:
            more = self.request.recv(65536)
            if not more: return
            data += more
        if b"Upgrade: x" not in data:
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); return
        self.request.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        while self.request.recv(65536): pass
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64
Server(("", 7300), Up).serve_forever()
`
