// Long requests of some teams: kill, connect, pause, list and logs of another team are answered meanwhile by every API, work
// for clients that left ends at once, and the server stops within seconds.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import http from 'node:http'
import path from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { findProcesses } from '../harness/leftovers.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

const TEAM_BUILDS = 2
const EXPORTS = 16 // of each team
const PROBES = 16
const UPLOADS = 400
const WORK_TEAMS = 8 // that take all workers of the work lane, 128 each
const WORK_SHARE = 128
const WAIT_TEAMS = 4 // that take all workers of the wait lane by Browserbase's API, 64 each
const WAIT_SHARE = 64
const QUICK_WRITES = 16 // of each team; two teams take all workers of the quick lane, 3 each
const FLOODS = 16 // connections of each team with one request after the other
const ANSWER_MS = 2500
const LEFT_MS = 3000 // for the end of work whose client left
const STOP_MS = 8000
const RECEIVER = '203.0.113.2'

let server, attackers, victim, receiver
before(async () => {
  receiver = await startReceiver()
  server = await startServer({ args: ['--team-builds', String(TEAM_BUILDS), '--builds', '64', '--webhook-pause', '1'] })
  attackers = [await newTeam(), await newTeam()]
  victim = await newTeam()
})
after(async () => {
  await server?.destroy()
  receiver?.stop()
})

// In the lab's second network, since webhooks of ordinary teams reach public addresses only. It accepts and says nothing.
async function startReceiver() {
  const listen = `const s = net.createServer((c) => {
    console.log('came')
    c.resume().on('error', () => {}).on('close', () => console.log('left'))
  }).listen(0, '${RECEIVER}', () => console.log('port', s.address().port))`
  const child = spawn('nsenter', [`--net=/proc/${process.env.QUICKSAND_LAB_WORLD}/ns/net`, process.execPath, '-e', listen])
  let printed = ''
  child.stdout.on('data', (text) => (printed += text))
  const port = await eventually('the receiver listens', () => /port (\d+)/.exec(printed)?.[1])
  const count = (word) => printed.split(word).length - 1
  return { url: `https://${RECEIVER}:${port}/`, came: () => count('came'), left: () => count('left'), stop: () => child.kill('SIGKILL') }
}

async function newTeam() {
  const { body: team } = await server.api('POST', '/admin/teams', { name: `t${crypto.randomBytes(6).toString('hex')}` })
  const { body } = await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })
  return body.key
}

const head = (...lines) => lines.join('\r\n') + '\r\n\r\n'
const send = async (method, target, key, ...more) => {
  const socket = await server.connect()
  socket.write(head(`${method} ${target} HTTP/1.1`, 'Host: x', `X-API-KEY: ${key}`, ...more))
  return socket
}

// The programs that read the files of a template in boxes.
const packers = () => findProcesses((one) => one.cmdline.startsWith('/run/feed/unpack pack '))
const underWay = () => packers().length

async function exportLayers() {
  const sockets = []
  for (const key of attackers) for (let i = 0; i < EXPORTS; i++) sockets.push(await send('GET', '/templates/base/layer', key))
  await eventually('exports of both teams are under way', () => underWay() >= 2 * TEAM_BUILDS, 30_000)
  return sockets
}

const hook = (enabled = true) => ({ name: 'h', url: receiver.url, enabled, signatureSecret: 'secret', events: ['sandbox.lifecycle.killed'] })

async function tryWebhooks(keys) {
  const before = receiver.came()
  const sockets = []
  for (const key of keys) {
    const made = await server.api('POST', '/events/webhooks', hook(), { key })
    assert.equal(made.status, 201, made.text)
    for (let i = 0; i < PROBES; i++) sockets.push(await send('POST', `/events/webhooks/${made.body.id}/test`, key, 'Content-Length: 0'))
  }
  await eventually('a probe is under way', () => receiver.came() > before)
  return sockets
}

// The longest time for which this process did not run is not the server's: a busy machine may stop it for seconds.
const stalls = monitorEventLoopDelay({ resolution: 10 })
stalls.enable()
async function timely(what, ask) {
  stalls.reset()
  const began = Date.now()
  const answer = await ask()
  const took = Math.round(Date.now() - began - stalls.max / 1e6)
  assert.ok(took < ANSWER_MS * patience, `${what} took ${took} ms`)
  return answer
}

const message = (name, args) => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } })

// Everything that a team needs to have its sandboxes under control, by both APIs: each answer within the bound.
async function control(what) {
  const { sandboxID: id } = await server.create({}, { key: victim })
  const other = await server.create({}, { key: victim })
  const steps = [
    ['GET', '/sandboxes', 200],
    ['GET', '/v2/sandboxes', 200],
    ['GET', `/sandboxes/${id}`, 200],
    ['GET', `/v2/sandboxes/${id}/logs`, 200],
    ['GET', `/sandboxes/${id}/metrics`, 200],
    ['POST', `/sandboxes/${id}/connect`, 200, { timeout: 300 }],
    ['POST', `/sandboxes/${id}/pause`, 204],
    ['POST', `/sandboxes/${id}/connect`, 201, { timeout: 300 }],
    ['DELETE', `/sandboxes/${id}`, 204],
    ['GET', '/api/v1/sandboxes', 200],
    ['GET', `/api/v1/sandboxes/${other.sandboxID}`, 200],
    ['POST', `/api/v1/sandboxes/${other.sandboxID}/pause`, 200],
    ['POST', `/api/v1/sandboxes/${other.sandboxID}/resume`, 200],
    ['DELETE', `/api/v1/sandboxes/${other.sandboxID}`, 204],
  ]
  for (const [method, target, status, body] of steps) {
    const answer = await timely(`${what}: ${method} ${target}`, () => server.api(method, target, body, { key: victim }))
    assert.equal(answer.status, status, `${method} ${target}: ${answer.text}`)
  }
}

// What the lists of every API say while nothing can be written to the store.
async function lists(what, id) {
  for (const target of ['/sandboxes', '/v2/sandboxes', `/sandboxes/${id}`, '/api/v1/sandboxes', `/api/v1/sandboxes/${id}`, '/v1/sessions']) {
    const answer = await timely(`${what}: ${target}`, () => server.api('GET', target, undefined, { key: victim }))
    assert.equal(answer.status, 200, `${target}: ${answer.text}`)
  }
  const answer = await timely(`${what}: sandbox_list`, () => server.api('POST', '/mcp', message('sandbox_list', {}), { key: victim }))
  assert.equal(answer.body?.result?.isError, false, answer.text)
}

// What control() does, by MCP.
async function controlMcp(what) {
  const { sandboxID: sandbox_id } = await server.create({}, { key: victim })
  for (const name of ['sandbox_list', 'sandbox_info', 'sandbox_pause', 'sandbox_resume', 'sandbox_kill']) {
    const args = name === 'sandbox_list' ? {} : { sandbox_id }
    const answer = await timely(`${what}: ${name}`, () => server.api('POST', '/mcp', message(name, args), { key: victim }))
    assert.equal(answer.body?.result?.isError, false, `${name}: ${answer.text}`)
  }
}

// What control() does, by Browserbase's API.
async function controlBrowsers(what, { id }) {
  const steps = [
    ['GET', '/v1/projects'],
    ['GET', '/v1/sessions'],
    ['GET', `/v1/sessions/${id}`],
    ['POST', `/v1/sessions/${id}`, { status: 'REQUEST_RELEASE' }],
  ]
  for (const [method, target, body] of steps) {
    const answer = await timely(`${what}: ${method} ${target}`, () => server.api(method, target, body, { key: victim }))
    assert.equal(answer.status, 200, `${method} ${target}: ${answer.text}`)
  }
}

// A request of the victim that has no worker, though it would be answered at once.
const waits = (what, method, target, body = '') =>
  eventually(
    `${what} waits for a worker`,
    async () => {
      const socket = await send(method, target, victim, 'Content-Type: application/json', `Content-Length: ${body.length}`)
      socket.write(body)
      await sleep(1000) // nothing happens meanwhile
      if (!socket.received) return socket
      socket.destroy()
    },
    30_000,
  )

// A session of a browser that never answers: all that a session needs is a template of that name.
async function newSession(key) {
  const made = await server.api('POST', '/v3/templates', { name: 'browser', cpuCount: 1, memoryMB: 256 }, { key })
  assert.equal(made.status, 202, made.text)
  const { templateID, buildID } = made.body
  const steps = [{ type: 'RUN', args: ["printf '#!/bin/sh\\nexec sleep 300\\n' >/usr/bin/curl && chmod 755 /usr/bin/curl", 'root'] }]
  const begun = await server.api('POST', `/v2/templates/${templateID}/builds/${buildID}`, { fromTemplate: 'base', steps }, { key })
  assert.equal(begun.status, 202, begun.text)
  const ended = await eventually('the build ends', async () => {
    const { body } = await server.api('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=0`, undefined, { key })
    return ['ready', 'error'].includes(body.status) && body
  }, 60_000)
  assert.equal(ended.status, 'ready', JSON.stringify(ended))
  const session = await server.api('POST', '/v1/sessions', { keepAlive: true }, { key })
  assert.equal(session.status, 201, session.text)
  return { ...session.body, key }
}

// Somebody else writes to the store, for as long as the holder lives: whoever wants to write waits up to 5 s.
async function lockStore() {
  const lock = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()`
  const holder = spawn('python3', ['-c', lock, path.join(server.data, 'store/quicksand.db')], { stdio: ['pipe', 'pipe', 'inherit'] })
  await new Promise((done) => holder.stdout.once('data', done))
  return () => holder.stdin.end()
}

const newWebhook = (key) => {
  const body = JSON.stringify(hook(false))
  return send('POST', '/events/webhooks', key, 'Content-Type: application/json', `Content-Length: ${body.length}`).then((socket) => (socket.write(body), socket))
}

// Connections of the attackers that each send one short request after the other, reads and writes in turn.
function flood(target, body) {
  const agent = new http.Agent({ keepAlive: true })
  const answers = { 200: 0 }
  let ended = false
  const one = async (key, { id }) => {
    while (!ended)
      for (const [method, path] of [['GET', target], ['PATCH', `${target}/${id}`]]) {
        const json = method === 'PATCH' ? JSON.stringify(body) : undefined
        const { status } = await server.request({ method, path, headers: { 'X-API-KEY': key, 'Content-Type': 'application/json' }, body: json, agent })
        answers[status] = (answers[status] ?? 0) + 1
      }
  }
  const start = (key, made) => Array.from({ length: FLOODS }, () => one(key, made))
  const end = async (all) => {
    ended = true
    await Promise.all(all)
    agent.destroy()
  }
  return { answers, start, end }
}

const leave = (sockets) => sockets.forEach((socket) => socket.destroy())

describe('layer exports', () => {
  test('of two teams take their build turns and nobody else’s worker', { timeout: 300_000 * patience }, async () => {
    await control('an idle server')
    const sockets = await exportLayers()
    try {
      await control('beside exports')
      assert.ok(underWay() > 0, 'the exports had ended before')
      assert.ok(underWay() <= 2 * TEAM_BUILDS, `${underWay()} exports at once`)
      assert.deepEqual(sockets.map((socket) => socket.received).filter((text) => text && !text.startsWith('HTTP/1.1 200 ')), [])
    } finally {
      leave(sockets)
    }
    await eventually('exports end when their clients have left', () => underWay() === 0, 3000)
  })
})

describe('webhook tests', () => {
  test('of two teams against a receiver that does not answer take nobody else’s worker', { timeout: 300_000 * patience }, async () => {
    const sockets = await tryWebhooks(attackers)
    try {
      await control('beside webhook tests')
    } finally {
      leave(sockets)
    }
  })

  test('end, and close their connections, when their clients have left', { timeout: 300_000 * patience }, async () => {
    const ended = () => server.log.match(/POST \/events\/webhooks\/\S+\/test status=.* client=gone/g)?.length ?? 0
    await eventually('nothing is left of the test before', () => receiver.left() === receiver.came())
    const before = ended()
    const sockets = await tryWebhooks(attackers)
    assert.equal(ended(), before, 'probes ended although their clients waited')
    assert.ok(receiver.left() < receiver.came(), 'no probe is under way')
    leave(sockets)
    await eventually('all probes have ended', () => ended() === before + sockets.length, LEFT_MS)
    await eventually('all connections are closed', () => receiver.left() === receiver.came(), LEFT_MS)
    const came = receiver.came()
    await sleep(1000) // no further probe is sent
    assert.equal(receiver.came(), came)
  })
})

describe('bodies that do not come', () => {
  test('of two teams take nobody else’s worker', { timeout: 300_000 * patience }, async () => {
    const sockets = []
    const sandboxes = []
    try {
      for (const key of attackers) {
        const { sandboxID: id } = await server.create({}, { key })
        sandboxes.push([id, key])
        for (let i = 0; i < UPLOADS; i++) sockets.push(await send('PUT', `/api/v1/sandboxes/${id}/files?path=/tmp/${i}`, key, 'Content-Length: 10', 'Content-Type: application/octet-stream'))
      }
      await control('beside uploads')
    } finally {
      leave(sockets)
    }
    for (const [id, key] of sandboxes) assert.equal((await server.api('DELETE', `/sandboxes/${id}`, undefined, { key })).status, 204)
  })
})

describe('full lanes', () => {
  let more
  before(async () => {
    more = [...attackers]
    while (more.length < WORK_TEAMS) more.push(await newTeam())
  })

  test('uploads that take all of the work lane leave MCP its kill, pause, resume and list', { timeout: 600_000 * patience }, async () => {
    const sockets = []
    const sandboxes = []
    try {
      for (const key of more) sandboxes.push([(await server.create({}, { key })).sandboxID, key])
      for (const [id, key] of sandboxes)
        for (let i = 0; i < WORK_SHARE; i++) sockets.push(await send('PUT', `/api/v1/sandboxes/${id}/files?path=/tmp/${i}`, key, 'Content-Length: 10', 'Content-Type: application/octet-stream'))
      sockets.push(await waits('a command by MCP', 'POST', '/mcp', JSON.stringify(message('run_command', { command: 'true', sandbox_id: 'sbx_none' }))))
      await controlMcp('with a full work lane')
      await control('with a full work lane')
    } finally {
      leave(sockets)
    }
    for (const [id, key] of sandboxes) assert.equal((await server.api('DELETE', `/sandboxes/${id}`, undefined, { key })).status, 204)
  })

  test('writes that take all of the quick lane leave every API its lists', { timeout: 300_000 * patience }, async () => {
    const { sandboxID: id } = await server.create({}, { key: victim })
    const sockets = []
    const unlock = await lockStore()
    try {
      for (const key of attackers) for (let i = 0; i < QUICK_WRITES; i++) sockets.push(await newWebhook(key))
      sockets.push(await waits('the list of templates', 'GET', '/templates'))
      await lists('with a full quick lane', id)
      assert.deepEqual(sockets.at(-1).received, '', 'the quick lane is not full any more')
    } finally {
      unlock()
      leave(sockets)
    }
    assert.equal((await server.api('DELETE', `/sandboxes/${id}`, undefined, { key: victim })).status, 204)
  })

  test('short requests of two teams without a pause delay no kill, connect, pause and list', { timeout: 300_000 * patience }, async () => {
    const { answers, start, end } = flood('/events/webhooks', hook(false))
    const all = []
    try {
      for (const key of attackers) {
        const made = await server.api('POST', '/events/webhooks', hook(false), { key })
        assert.equal(made.status, 201, made.text)
        all.push(...start(key, made.body))
      }
      await eventually('the requests are served', () => answers[200] > 4 * FLOODS)
      await control('beside short requests')
      await controlMcp('beside short requests')
    } finally {
      await end(all)
    }
    assert.deepEqual(Object.keys(answers), ['200'], JSON.stringify(answers))
  })

  test('calls into browsers that take all of the wait lane leave Browserbase’s API its release, get and list', { timeout: 600_000 * patience }, async () => {
    const own = await newSession(victim)
    const sessions = []
    for (const key of more.slice(0, WAIT_TEAMS)) sessions.push(await newSession(key))
    const sockets = []
    try {
      for (const { id, key } of sessions) for (let i = 0; i < 2 * WAIT_SHARE; i++) sockets.push(await send('GET', `/v1/sessions/${id}/debug`, key))
      sockets.push(await waits('the log of a session', 'GET', `/v1/sessions/${own.id}/logs`))
      await controlBrowsers('with a full wait lane', own)
    } finally {
      leave(sockets)
    }
    for (const { id, key } of sessions) assert.equal((await server.api('POST', `/v1/sessions/${id}`, { status: 'REQUEST_RELEASE' }, { key })).body.status, 'COMPLETED')
  })
})

test('SIGTERM ends webhook tests and exports at once', { timeout: 300_000 * patience }, async () => {
  const sockets = [...(await tryWebhooks([victim])), ...(await exportLayers())]
  const logged = server.log.length
  const began = Date.now()
  server.child.kill('SIGTERM')
  const { code } = await server.exited
  const took = Date.now() - began
  const log = server.log.slice(logged)
  leave(sockets)
  await server.start()
  assert.equal(code, 0)
  assert.ok(took < STOP_MS * patience, `it took ${took} ms`)
  assert.doesNotMatch(log, /still under way/, 'the server did not end by itself')
  await eventually('no export is left', () => underWay() === 0)
})

test('SIGTERM ends the server within seconds, with exports and a command under way', { timeout: 300_000 * patience }, async () => {
  const { sandboxID: id } = await server.create({}, { key: victim })
  const sockets = await exportLayers()
  const body = JSON.stringify({ command: 'exec sleep 12345' })
  const command = await send('POST', `/api/v1/sandboxes/${id}/execute`, victim, 'Content-Type: application/json', `Content-Length: ${body.length}`)
  command.write(body)
  await eventually('the command runs', () => findProcesses((one) => one.cmdline === 'sleep 12345').length)
  sockets.push(command)
  const began = Date.now()
  server.child.kill('SIGTERM')
  const { code } = await server.exited
  const took = Date.now() - began
  leave(sockets)
  await server.start()
  assert.equal((await server.api('DELETE', `/sandboxes/${id}`, undefined, { key: victim })).status, 204)
  assert.equal(code, 0)
  assert.ok(took < STOP_MS * patience, `it took ${took} ms`)
  await eventually('no export is left', () => underWay() === 0)
})
