// Clients that hold more connections than is fair: others still find a place. A small server, so that few are many; in the
// lab 198.51.100.2 is an address of this host that is not loopback.
import assert from 'node:assert/strict'
import net from 'node:net'
import { after, before, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'

let server
before(async () => {
  server = await startServer({ listen: '0.0.0.0:0', args: ['--connections', '64', '--connections-per-address', '20', '--loops', '1'] })
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
