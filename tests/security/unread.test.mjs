// Clients that ask and do not read: what they leave unread has a budget per connection, address and team, other clients
// are served meanwhile, and the memory goes back to the system afterwards.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, describe, test } from 'node:test'
import { ERROR, RawHttp2, get } from '../harness/http2-raw.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

const MB = 1024 * 1024
const residentBytes = (server) => Number(/^VmRSS:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'latin1'))[1]) * 1024
const shown = (bytes) => `${(bytes / MB).toFixed(1)} MB`

async function heldBytes(server) {
  const metrics = await server.api('GET', '/metrics')
  assert.equal(metrics.status, 200, metrics.text)
  return Number(/^quicksand_unread_response_bytes (\d+)$/m.exec(metrics.text)[1])
}

// A server that has HTTPS at :443 besides.
const DOMAIN = 'boxes.test'
async function startSecure(options) {
  const server = await startServer({
    ...options,
    args: [...options.args, '--domain', DOMAIN, '--listen-tls', ':443'],
    prepare: ({ data }) => execFileSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', data]),
  })
  server.ca = fs.readFileSync(path.join(server.data, 'tls/ca.pem'))
  return server
}
const openSecure = (server, protocol) =>
  new Promise((done, fail) => {
    const socket = tls.connect({ host: '127.0.0.1', port: 443, servername: `api.${DOMAIN}`, ca: server.ca, ALPNProtocols: [protocol] })
    socket.once('error', fail)
    socket.once('secureConnect', () => done(socket))
  })

// Makes the list of teams longer, by some 16 kB a round.
async function fillTeams(server, rounds) {
  for (let i = 0; i < rounds; i++) {
    const names = Array.from({ length: 50 }, (_, j) => `${'t'.repeat(50)}${i}-${j}`)
    const answers = await Promise.all(names.map((name) => server.api('POST', '/admin/teams', { name })))
    for (const answer of answers) assert.equal(answer.status, 201, answer.text)
  }
}

describe('as shipped', () => {
  let server, start
  before(async () => {
    server = await startSecure({ args: ['--warm', '0'] })
    await fillTeams(server, 30)
    start = residentBytes(server)
  })
  after(() => server.destroy())

  // attack() gives what to close. Until settled() is true, and for a while after, the server may not grow.
  async function bounded(t, attack, settled) {
    let peak = start
    const watch = setInterval(() => (peak = Math.max(peak, residentBytes(server))), 10)
    const sockets = []
    try {
      await attack(sockets)
      await eventually('all requests are answered or refused', () => settled(sockets), 60_000)
      for (let i = 0; i < 10; i++) assert.equal((await server.request({ path: '/health' })).status, 200)
      peak = Math.max(peak, residentBytes(server))
    } finally {
      clearInterval(watch)
      for (const socket of sockets) socket.destroy()
    }
    t.diagnostic(`${shown(peak - start)} more at most`)
    assert.ok(peak - start < 64 * MB, `${shown(peak - start)} more`)
    await eventually('the memory is back', () => residentBytes(server) - start < 16 * MB, 20_000)
    t.diagnostic(`${shown(residentBytes(server) - start)} more afterwards`)
  }

  const STREAMS = 110
  const plain = () => RawHttp2.open({ host: '127.0.0.1', port: server.port }, { window: 0 })
  const secure = async () => new RawHttp2(await openSecure(server, 'h2'), { window: 0 })
  const overHttp2 = (t, fields, streams = STREAMS, open = plain) => {
    const connections = []
    return bounded(
      t,
      async (sockets) => {
        for (let i = 0; i < 40; i++) {
          const connection = await open()
          sockets.push(connection.socket)
          connections.push(connection)
          connection.ask(fields, streams)
        }
      },
      () => connections.every((one) => one.over || new Set([...one.statuses.keys(), ...one.resets.keys()]).size === streams)
    )
  }

  test('40 connections of HTTP/2 that never open a window: the description of the API', (t) => overHttp2(t, get('/api/v1/openapi.json')))
  test('… the same over HTTPS', (t) => overHttp2(t, get('/api/v1/openapi.json'), STREAMS, secure))
  test('… a long list over HTTPS', { timeout: 180_000 * patience }, (t) => overHttp2(t, get('/admin/teams', [['x-api-key', server.key]]), 60, secure))
  test('… a script of the dashboard', async (t) => {
    const page = await server.request({ path: '/', headers: { Accept: 'text/html' } })
    await overHttp2(t, get(/src="([^"]+\.js)"/.exec(page.text)[1]))
  })
  test('… pages that do not exist', (t) => overHttp2(t, get('/ui/nothing')))
  test('… requests without a key', (t) => overHttp2(t, get('/sandboxes')))
  test('… with a key, a long list', { timeout: 180_000 * patience }, (t) => overHttp2(t, get('/admin/teams', [['x-api-key', server.key]]), 60))

  for (const [what, target, key, port] of [
    ['without a key', '/api/v1/openapi.json', false],
    ['with a key', '/admin/teams', true],
    ['with a key over HTTPS', '/admin/teams', true, 443],
  ]) {
    test(`300 connections of HTTP/1.1 with pipelined requests, ${what}`, { timeout: 180_000 * patience }, async (t) => {
      const request = `GET ${target} HTTP/1.1\r\nHost: x\r\n${key ? `X-API-KEY: ${server.key}\r\n` : ''}\r\n`
      let closed = 0, last, since
      await bounded(
        t,
        async (sockets) => {
          for (let i = 0; i < 300; i++) {
            const socket = port ? await openSecure(server, 'http/1.1') : net.connect({ host: '127.0.0.1', port: server.port })
            sockets.push(socket)
            socket.pause()
            socket.on('error', () => {})
            socket.on('close', () => closed++)
            socket.write(request.repeat(30))
          }
        },
        () => {
          // Every connection is full, or was ended. The kernel holds of each what it may send, not megabytes.
          const waiting = execFileSync('ss', ['-tnmH', 'state', 'established', `sport = :${port ?? server.port}`], { encoding: 'latin1' })
          const queued = [...waiting.matchAll(/,w(\d+),/g)].map(([, bytes]) => Number(bytes))
          assert.ok(Math.max(0, ...queued) < 2 * MB, `the kernel holds ${shown(Math.max(...queued))} of one connection`)
          const full = queued.filter((bytes) => bytes > 64 * 1024).length
          if (!port) return full + closed >= 300
          // Clients of TLS that do not read do not see their end, and the kernel has all of 30 short refusals: nothing changes any more.
          if (String(queued) !== last) [last, since] = [String(queued), performance.now()]
          return full > 20 && performance.now() - since > 2000
        }
      )
    })
  }
})

// Shares: 8 MB for all, 4 for a team, 2 for an address, 1 for a connection. An unread answer counts as 16 KiB at least.
describe('with 8 MB for unread responses', () => {
  let server
  const open = []
  before(async () => {
    for (let i = 1; i <= 20; i++) {
      execFileSync('ip', ['-6', 'address', 'add', `fd00:64::${i.toString(16)}/128`, 'dev', 'lo'])
      execFileSync('ip', ['-6', 'address', 'add', `fd00:${(100 + i).toString(16)}::1/128`, 'dev', 'lo'])
    }
    server = await startSecure({ listen: '[::]:0', args: ['--warm', '0', '--response-memory', '8', '--loops', '2'] })
    server.host = '127.0.0.1'
  })
  after(() => server.destroy())

  const connect = async (localAddress, options) => {
    const connection = await RawHttp2.open({ host: localAddress ? 'fd00:64::1' : '127.0.0.1', port: server.port, localAddress }, options)
    open.push(connection)
    return connection
  }
  const closeAll = async () => {
    for (const connection of open.splice(0)) connection.close()
    await eventually('nothing is held any more', async () => (await heldBytes(server)) < 64 * 1024)
  }
  const settled = (streams) => () => open.every((one) => one.over || new Set([...one.statuses.keys(), ...one.resets.keys()]).size === streams)

  test('the addresses of an IPv6 /64 share one budget', async () => {
    for (let i = 1; i <= 20; i++) (await connect(`fd00:64::${i.toString(16)}`)).ask(get('/api/v1/openapi.json'), 50)
    await eventually('all are answered or refused', settled(50))
    const one = await heldBytes(server)
    assert.ok(one <= 2 * MB && one > MB, `${shown(one)} of one /64`)
    const ended = open.flatMap((connection) => [...connection.resets.values()])
    assert.ok(ended.length > 0 && ended.every((error) => error === ERROR.calm), [...new Set(ended)].join())
    await closeAll()
    for (let i = 1; i <= 20; i++) (await connect(`fd00:${(100 + i).toString(16)}::1`)).ask(get('/api/v1/openapi.json'), 50)
    await eventually('all are answered or refused', settled(50))
    const many = await heldBytes(server)
    assert.ok(many <= 8 * MB && many > 4 * MB, `${shown(many)} of twenty /64s`)
    await closeAll()
  })

  test('a connection has its share', async () => {
    const connection = await connect(undefined)
    connection.ask(get('/api/v1/openapi.json'), 110)
    await eventually('all are answered or refused', settled(110))
    const held = await heldBytes(server)
    assert.ok(held <= MB && held > MB / 2, shown(held))
    await closeAll()
  })

  test('an address that leaves much unread gets 503, reads and is served again; others do not notice', async () => {
    const ask = async (localAddress) => {
      const socket = net.connect({ host: 'fd00:64::1', port: server.port, localAddress })
      let text = ''
      for await (const chunk of socket.end('GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')) text += chunk
      return text
    }
    // Faster than answers become old enough to be ended for a new request.
    await eventually('503', async () => {
      for (let i = 0; i < 4; i++) (await connect('fd00:64::2', { window: 0 })).ask(get('/health'), 60)
      const text = await ask('fd00:64::3')
      return /^HTTP\/1\.1 503 [^]*too many unread responses are waiting for your address/.test(text)
    })
    assert.match(await ask('fd00:65::1'), /^HTTP\/1\.1 200 /)
    // After a second the oldest unread ones make place, without any of them being read.
    await eventually('200 again', async () => (await ask('fd00:64::3')).startsWith('HTTP/1.1 200 '))
    await closeAll()
  })

  test('a team has its share, another team is served', { timeout: 120_000 * patience }, async () => {
    await fillTeams(server, 30)
    const { body: team } = await server.api('POST', '/admin/teams', { name: 'other' })
    const { body: other } = await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })
    let refused = 0
    const watch = (async () => {
      while (!refused) refused += (await server.api('GET', '/admin/teams')).status === 429
    })()
    for (let i = 0; i < 20; i++) (await connect(undefined)).ask(get('/admin/teams', [['x-api-key', server.key]]), 20)
    for (let i = 0; i < 5; i++) assert.equal((await server.api('GET', '/sandboxes', undefined, { key: other.key })).status, 200)
    await eventually('all are answered or refused', settled(20), 60_000)
    for (const connection of open) connection.ask(get('/admin/teams', [['x-api-key', server.key]]), 20)
    await watch
    await closeAll()
    assert.equal((await server.api('GET', '/admin/teams')).status, 200)
  })

  test('a response that is longer than its share is sent whole', { timeout: 120_000 * patience }, async () => {
    await fillTeams(server, 100)
    const socket = net.connect({ host: '127.0.0.1', port: server.port })
    const chunks = []
    const ended = new Promise((done, fail) => socket.on('error', fail).on('end', done))
    socket.write(`GET /admin/teams HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${server.key}\r\nConnection: close\r\n\r\n`)
    await eventually('more than the connection’s share waits', async () => (await heldBytes(server)) > MB)
    socket.on('data', (chunk) => chunks.push(chunk))
    await ended
    const text = Buffer.concat(chunks).toString()
    assert.equal(text.length - text.indexOf('\r\n\r\n') - 4, Number(/content-length: (\d+)/i.exec(text)[1]))
  })

  // A record that waits, and the library's buffers: 32 KiB on top of the 12 that each unread answer counts for.
  test('a connection with TLS counts for its buffers', { timeout: 120_000 * patience }, async () => {
    await fillTeams(server, 60)
    const held = async (open) => {
      const socket = await open()
      socket.pause()
      socket.write(`GET /admin/teams HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${server.key}\r\n\r\n`)
      let bytes
      await eventually('it waits', async () => {
        const before = bytes
        bytes = await heldBytes(server)
        return bytes > 512 * 1024 && bytes === before
      })
      socket.destroy()
      await eventually('nothing is held any more', async () => (await heldBytes(server)) < 64 * 1024)
      return bytes
    }
    const bare = await held(() => net.connect({ host: '127.0.0.1', port: server.port }))
    const more = (await held(() => openSecure(server, 'http/1.1'))) - bare
    assert.ok(more >= 32 * 1024, `${more} bytes more`)
  })
})

// What programs inside give as a picture (16 MB) or a download (64 MB) waits on the disk, charged to the team.
describe('large answers of bytes', () => {
  const SIZE = 8_000_000
  let server, box, team
  const open = []
  const spooled = async () => Number(/^quicksand_spool_bytes (\d+)$/m.exec((await server.api('GET', '/metrics')).text)[1])
  const inMemory = () => {
    const directory = `/proc/${server.servingPid}/fd`
    const sizes = fs.readdirSync(directory).map((fd) => {
      try {
        return fs.readlinkSync(`${directory}/${fd}`).startsWith('/memfd:') ? fs.statSync(`${directory}/${fd}`).blocks * 512 : 0
      } catch {
        return 0 // it was closed meanwhile
      }
    })
    return sizes.reduce((sum, one) => sum + one, 0)
  }
  before(async () => {
    server = await startServer({ args: ['--warm', '0'] })
    const { teamID } = (await server.api('POST', '/admin/teams', { name: 'pictures' })).body
    team = { teamID, key: (await server.api('POST', `/admin/teams/${teamID}/api-keys`, { name: 'k' })).body.key }
    const made = await server.api('POST', '/api/v1/sandboxes', {}, { key: team.key })
    assert.equal(made.status, 201, made.text)
    box = made.body.id
    const program = `#!/bin/sh\nprintf '\\211PNG\\r\\n\\032\\n'\nhead -c ${SIZE - 8} /dev/zero\n`
    const command = `echo ${Buffer.from(program).toString('base64')} | base64 -d >/tmp/shot && sudo install /tmp/shot /usr/local/bin/desktop-screenshot`
    const put = await server.api('POST', `/api/v1/sandboxes/${box}/execute`, { command }, { key: team.key })
    assert.equal(put.body.exit_code, 0, put.text)
  })
  after(async () => {
    for (const connection of open) connection.close()
    await server.api('DELETE', `/api/v1/sandboxes/${box}`, undefined, { key: team.key })
    await server.destroy()
  })

  const picture = () => server.api('GET', `/api/v1/sandboxes/${box}/desktop/screenshot`, undefined, { key: team.key, timeoutMs: 60_000 })

  test('pictures that nobody reads are not held in memory, and only as many are made as the team’s limit of disk allows', { timeout: 240_000 * patience }, async (t) => {
    await server.api('PATCH', `/admin/teams/${team.teamID}`, { maxDiskMB: 100 })
    const start = residentBytes(server)
    let peak = start
    const watch = setInterval(() => (peak = Math.max(peak, residentBytes(server))), 10)
    t.after(() => clearInterval(watch))
    const ask = async () => {
      const connection = await RawHttp2.open({ host: '127.0.0.1', port: server.port }, { window: 0 })
      open.push(connection)
      connection.ask(get(`/api/v1/sandboxes/${box}/desktop/screenshot`, [['x-api-key', team.key]]), 4)
    }
    const settled = () => eventually('all are answered or refused', () => open.every((one) => one.over || new Set([...one.statuses.keys(), ...one.resets.keys()]).size === 4), 120_000)
    // At once, the memory for what is being made refuses some; then a few at a time, until the disk's limit does.
    for (let i = 0; i < 10; i++) await ask()
    await settled()
    for (let i = 0; i < 5; i++) {
      await ask()
      await settled()
    }
    t.diagnostic(`${shown(inMemory())} in memory, ${shown(await spooled())} on the disk`)
    assert.equal(inMemory(), 0)
    // One team may hold half of body-memory while they are made.
    t.diagnostic(`${shown(peak - start)} more at most`)
    assert.ok(peak - start < 128 * MB, `${shown(peak - start)} more`)
    const held = await spooled()
    assert.ok(held > 8 * SIZE && held <= 100 * MB, `${shown(held)} on the disk`)
    assert.match((await picture()).text, /temporary files hold \d+ MiB/)
    for (const connection of open.splice(0)) connection.close()
    await eventually('all space was given back', async () => (await spooled()) === 0)
  })

  test('several pictures at once arrive whole', { timeout: 120_000 * patience }, async () => {
    for (const answer of await Promise.all([picture(), picture(), picture()])) {
      assert.equal(answer.status, 200, answer.text.slice(0, 500))
      assert.equal(answer.headers['content-type'], 'image/png')
      assert.equal(answer.bytes.length, SIZE)
    }
  })
})
