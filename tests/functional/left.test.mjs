// Clients that leave before the answer to their create: what was made for nobody ends.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'

let server
before(async () => {
  server = await startServer({ args: ['--warm', '0'] }) // a create needs the root process
})
after(() => server.destroy())
afterEach(() => server.killAll())

const head = (...lines) => lines.join('\r\n') + '\r\n\r\n'
const body = { '/sandboxes': '{"templateID":"base","timeout":300}', '/v2/sandboxes': '{"templateID":"base","timeout":300}', '/api/v1/sandboxes': '{}' }
const underWay = async () => Number(/^quicksand_creates_under_way (\d+)$/m.exec((await server.api('GET', '/metrics')).text)[1])

// Creates `count` at once; leave(socket) happens while all of them are at work.
async function createAndLeave(target, leave, { headers = [], text = body[target], count = 1 } = {}) {
  const sockets = []
  process.kill(server.child.pid, 'SIGSTOP')
  try {
    for (let i = 0; i < count; i++) {
      const socket = await server.connect()
      socket.write(head(`POST ${target} HTTP/1.1`, 'Host: x', `X-API-KEY: ${server.key}`, ...headers, 'Content-Type: application/json', `Content-Length: ${text.length}`) + text)
      sockets.push(socket)
    }
    await eventually('all are under way', async () => (await underWay()) === count)
    for (const socket of sockets) leave(socket)
  } finally {
    process.kill(server.child.pid, 'SIGCONT')
  }
  await eventually('all are over', async () => (await underWay()) === 0, 20_000)
  return sockets
}
const takenBack = () => [...server.log.matchAll(/is taken back: its client left before the answer/g)].length

for (const target of Object.keys(body)) {
  describe(`POST ${target}`, () => {
    for (const [what, leave] of [
      ['closes', (socket) => socket.destroy()],
      ['resets', (socket) => socket.resetAndDestroy()],
    ]) {
      // More than there are workers: some leave while they wait for one.
      test(`30 clients of which each ${what} the connection leave no sandbox`, async () => {
        const before = takenBack()
        await createAndLeave(target, leave, { count: 30 })
        await eventually('none is left', async () => (await server.ids()).length === 0, 20_000)
        await eventually('the log tells', () => takenBack() > before)
        if (!target.startsWith('/api')) return
        const rows = async () => (await server.api('GET', '/api/v1/sandboxes?state=running')).body.sandboxes
        await eventually('the runtime knows of none', async () => (await rows()).length === 0)
      })
    }

    test('a client that ends its side is told that it counts as gone', async () => {
      const [socket] = await createAndLeave(target, (one) => one.end())
      await eventually('an answer', () => /^HTTP\/1\.1 400 [^]*closed before the answer/.test(socket.received))
      await eventually('none is left', async () => (await server.ids()).length === 0)
      socket.destroy()
    })

    test('who has the answer and goes keeps the sandbox', async () => {
      for (let i = 0; i < 10; i++) {
        const socket = await server.connect()
        socket.write(head(`POST ${target} HTTP/1.1`, 'Host: x', `X-API-KEY: ${server.key}`, 'Content-Type: application/json', `Content-Length: ${body[target].length}`) + body[target])
        socket.on('data', () => socket.resetAndDestroy()) // at the first bytes
        await socket.ended
        assert.match(socket.received, /^HTTP\/1\.1 201 /)
      }
      assert.equal((await server.ids()).length, 10)
    })
  })
}

test('with an idempotency key the sandbox stays, and is what is asked for again', async () => {
  const key = { headers: ['Idempotency-Key: left-once'] }
  await createAndLeave('/sandboxes', (socket) => socket.destroy(), key)
  const [id] = await eventually('it is there', async () => ((await server.ids()).length ? server.ids() : null))
  const again = await server.api('POST', '/sandboxes', body['/sandboxes'], { headers: { 'Idempotency-Key': 'left-once' } })
  assert.equal(again.body.sandboxID, id)
})

test('what the runtime makes for a key stays', async () => {
  await createAndLeave('/api/v1/sandboxes', (socket) => socket.destroy(), { text: '{"key":"left"}' })
  const [id] = await eventually('it is there', async () => ((await server.ids()).length ? server.ids() : null))
  const again = await server.api('POST', '/api/v1/sandboxes', { key: 'left' })
  assert.equal(again.body.external_id, id, again.text)
})
