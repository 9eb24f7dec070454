// Clients that want too much of the control plane: memory, connections and workers before anybody knows who they are,
// and one team's share of what is for all.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { cgroups } from '../harness/leftovers.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

const MB = 1024 * 1024
const CONNECTIONS = 500
const WORKERS = 16 // of the control lane, that one team may have

let server
before(async () => {
  server = await startServer({ args: ['--request-seconds', String(3 * patience), '--body-memory', '8', '--create-queue', '16', '--warm', '0', '--workers', String(WORKERS)] })
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
    ['PUT', '/api/v1/sandboxes/i0000000000000000000/files?path=/tmp/x'],
    ['PUT', '/volumecontent/v0000000000000000000/file?path=/x'],
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
          const answered = (socket) => [200, 401, 403, 404, 429, 503].includes(status(socket.received))
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

async function newTeam() {
  const { body: team } = await server.api('POST', '/admin/teams', { name: `t${crypto.randomBytes(6).toString('hex')}` })
  const { body } = await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })
  return body.key
}

// The envd of a sandbox in which nothing else runs.
function envdOf(id) {
  for (const group of cgroups(id)) {
    const pids = fs.readFileSync(path.join(group, 'cgroup.procs'), 'latin1').split('\n').filter(Boolean)
    if (pids.length) return Number(pids[0])
  }
  throw new Error(`no process in the cgroups of ${id}`)
}

describe('one team’s slow requests', () => {
  test('a stopped envd whose logs 64 clients want delays its own team only', { timeout: 120_000 * patience }, async () => {
    const [greedy, other] = [await newTeam(), await newTeam()]
    const victim = await server.create({}, { key: greedy })
    const healthy = await server.create({}, { key: other })
    const envd = envdOf(victim.sandboxID)
    process.kill(envd, 'SIGSTOP')
    let going = true
    const asking = Array.from({ length: 64 }, async () => {
      while (going) await server.api('GET', `/v2/sandboxes/${victim.sandboxID}/logs`, undefined, { key: greedy, timeoutMs: 60_000 })
    })
    try {
      const waiting = () => fs.readFileSync('/proc/net/unix', 'latin1').split('\n').filter((line) => line.endsWith(`/${victim.sandboxID}.sock`)).length - 1 // but for the one that listens
      await eventually('the workers that it may have are taken', () => waiting() >= WORKERS)
      for (const target of ['/sandboxes', `/sandboxes/${healthy.sandboxID}`, `/v2/sandboxes/${healthy.sandboxID}/logs`, `/sandboxes/${healthy.sandboxID}/metrics`]) {
        const began = Date.now()
        assert.equal((await server.api('GET', target, undefined, { key: other })).status, 200)
        assert.ok(Date.now() - began < 1900 * patience, `GET ${target} of the other team took ${Date.now() - began} ms`)
      }
      const began = Date.now()
      assert.equal((await server.api('GET', '/sandboxes', undefined, { key: greedy })).status, 200)
      assert.ok(Date.now() - began < 1900 * patience, `its own list took ${Date.now() - began} ms`)
    } finally {
      going = false
      process.kill(envd, 'SIGCONT')
      await Promise.all(asking)
    }
    assert.equal((await server.api('DELETE', `/sandboxes/${victim.sandboxID}`, undefined, { key: greedy })).status, 204)
    assert.equal((await server.api('DELETE', `/sandboxes/${healthy.sandboxID}`, undefined, { key: other })).status, 204)
  })
})

describe('the root process stands still', () => {
  let sandboxes, pending
  before(async () => {
    sandboxes = []
    for (let i = 0; i < 30; i++) sandboxes.push(await server.create())
    process.kill(server.child.pid, 'SIGSTOP')
    pending = sandboxes.slice(1).map(({ sandboxID }) => server.api('DELETE', `/sandboxes/${sandboxID}`, undefined, { timeoutMs: 120_000 }))
    // Of the 8 channels to it, 2 are kept for others.
    const unread = () => execFileSync('ss', ['-xnpH'], { encoding: 'utf8' }).split('\n').filter((line) => line.includes(`pid=${server.child.pid},`) && Number(line.split(/\s+/)[2]) > 0)
    await eventually('they have taken every way to it that they may', () => unread().length >= 6)
  })
  after(() => process.kill(server.child.pid, 'SIGCONT'))

  const quickly = async (what, promise) => {
    const began = Date.now()
    const answer = await promise
    assert.ok(Date.now() - began < 2000 * patience, `${what} took ${Date.now() - began} ms`)
    return answer
  }

  test('lists and status are answered', async () => {
    const one = sandboxes[0].sandboxID
    for (const target of ['/sandboxes', '/v2/sandboxes?limit=10', `/sandboxes/${one}`, '/templates', '/snapshots', '/volumes', '/metrics', `/events/sandboxes/${one}`, '/api/v1/sandboxes', '/api/v1/health'])
      assert.equal((await quickly(target, server.api('GET', target))).status, 200, target)
    assert.equal((await quickly('timeout', server.api('POST', `/sandboxes/${one}/timeout`, { timeout: 500 }))).status, 204)
    assert.equal((await quickly('refresh', server.api('POST', `/sandboxes/${one}/refreshes`, { duration: 600 }))).status, 204)
  })

  test('creates beyond the limit are refused at once, with when to come back', async () => {
    const creates = Array.from({ length: 40 }, () => server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 }, { timeoutMs: 120_000 }))
    pending.push(...creates)
    const refused = () => creates.answers.filter(({ status }) => status === 429)
    creates.answers = []
    for (const create of creates) create.then((answer) => creates.answers.push(answer), () => {})
    // Three quarters of 16 are one team's.
    await eventually('28 are refused', () => refused().length === 28)
    for (const answer of refused()) {
      assert.ok(Number(answer.headers['retry-after']) >= 1)
      assert.match(answer.body.message, /your team has as many creates under way as it may/)
    }
    const metrics = (await server.api('GET', '/metrics')).text
    assert.match(metrics, /^quicksand_creates_under_way 12$/m)
    assert.match(metrics, /^quicksand_creates_max 16$/m)
    assert.ok(Number(/^quicksand_creates_refused_total (\d+)$/m.exec(metrics)[1]) >= 28)
    const v1 = await quickly('a create of the runtime', server.api('POST', '/api/v1/sandboxes', {}))
    assert.equal(v1.status, 429, v1.text)
    assert.ok(Number(v1.headers['retry-after']) >= 1)
  })

  test('and all that waited is done when it goes on', async () => {
    process.kill(server.child.pid, 'SIGCONT')
    const answers = await Promise.all(pending)
    const count = (status) => answers.filter((answer) => answer.status === status).length
    assert.equal(count(204), 29)
    assert.equal(count(201), 12, answers.map((answer) => `${answer.status} ${answer.text}`).join('\n'))
  })
})
