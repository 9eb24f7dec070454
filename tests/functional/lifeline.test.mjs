// Time limits hold when nobody is there to see to them: envd ends its sandbox by itself.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, startServer } from '../harness/server.mjs'
import { envdOf } from '../harness/chaos.mjs'
import { findProcesses, isOurs, ofSandbox } from '../harness/leftovers.mjs'

let server
before(async () => {
  server = await startServer({ args: ['--warm', '1', '--grace', '3'] })
})
after(() => server.destroy())

async function killEverything() {
  for (const one of findProcesses(isOurs)) {
    try {
      process.kill(one.pid, 'SIGKILL')
    } catch {}
  }
  await server.exited
}

const file = (box, method, body) =>
  server.sandbox(box.sandboxID, 49983, '/files?path=/home/user/kept&username=user', {
    method,
    body,
    headers: { 'Content-Type': 'application/octet-stream', ...(box.envdAccessToken ? { 'X-Access-Token': box.envdAccessToken } : {}) },
  })

const setTimeLeft = async (box, timeout) => assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/timeout`, { timeout })).status, 204)

test('without server and warden, sandboxes end after their time and not before', { timeout: 60_000 }, async () => {
  const extended = await server.create({ timeout: 5 })
  await setTimeLeft(extended, 600)
  const frozen = await server.create({ timeout: 5 })
  assert.equal((await server.api('POST', `/sandboxes/${frozen.sandboxID}/pause`, { memory: true })).status, 204)
  const paused = await server.create({ timeout: 600, autoPause: true })
  assert.equal((await file(paused, 'POST', 'file')).status, 200)
  const shortened = await server.create({ timeout: 600 })
  // Last, so that none reaches its end while the server is there to see to it.
  const [killed] = await Promise.all([server.create({ timeout: 3 }), setTimeLeft(paused, 3), setTimeLeft(shortened, 3)])
  await killEverything()
  const all = [killed, paused, extended, shortened, frozen]
  for (const box of all) assert.ok(envdOf(box.sandboxID), 'it goes on for the time being')
  await eventually('they are gone', () => [killed, paused, shortened].every((box) => !envdOf(box.sandboxID)), 15_000, 100)
  await sleep(3000) // these do not follow
  assert.ok(envdOf(extended.sandboxID), 'one whose time was extended goes on')
  assert.ok(envdOf(frozen.sandboxID), 'one that stands still is no burden')
  await server.start()
  for (const box of [killed, shortened]) {
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).status, 404)
    const events = await server.api('GET', `/events/sandboxes/${box.sandboxID}`)
    assert.equal(events.body[0].event_data.detail, 'timeout')
    await eventually('nothing is left', () => ofSandbox(box.sandboxID, server.data).length === 0)
  }
  // Who wanted a pause at the end has its files.
  const info = await server.api('GET', `/sandboxes/${paused.sandboxID}`)
  assert.equal(info.body.state, 'paused')
  const resumed = await server.api('POST', `/sandboxes/${paused.sandboxID}/connect`, { timeout: 60 })
  assert.equal(resumed.status, 201)
  assert.equal((await server.api('GET', `/sandboxes/${paused.sandboxID}`)).body.resumedFrom, 'disk')
  assert.equal((await file(paused, 'GET')).text, 'file')
  assert.equal((await server.sandbox(extended.sandboxID, 49983, '/health')).status, 204)
})

// Paused during the next two tests, which takes longer than its time.
let still, stillSince
test('one with little time left is paused', async () => {
  still = await server.create({ timeout: 3 })
  assert.equal((await server.api('POST', `/sandboxes/${still.sandboxID}/pause`, { memory: true })).status, 204)
  stillSince = Date.now()
})

for (const who of ['server', 'warden']) {
  test(`a ${who} that stood still past their end tells their ends truly, and connect finds what lists say`, { timeout: 120_000 }, async () => {
    const make = (body) => Promise.all(Array.from({ length: 12 }, () => server.create({ timeout: 600, ...body })))
    const ended = await make({})
    const paused = await make({ autoPause: true })
    const pid = who === 'server' ? server.servingPid : server.child.pid
    await Promise.all([...ended, ...paused].map((box) => setTimeLeft(box, 4)))
    process.kill(pid, 'SIGSTOP')
    try {
      await eventually('their envds have ended them', () => [...ended, ...paused].every((box) => !envdOf(box.sandboxID)), 30_000, 100)
    } finally {
      process.kill(pid, 'SIGCONT')
    }
    // Those that still wait for their pause are as good as paused.
    const answers = await Promise.all(paused.map((box) => server.api('POST', `/sandboxes/${box.sandboxID}/connect`, { timeout: 60 })))
    assert.deepEqual(answers.map((one) => (one.status === 201 ? 201 : one.text)), paused.map(() => 201))
    for (const box of paused) assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.resumedFrom, 'disk')
    for (const box of ended) {
      const told = await eventually('its end is told', async () => (await server.api('GET', `/events/sandboxes/${box.sandboxID}`)).body.find((one) => one.type.endsWith('killed')))
      assert.equal(told.event_data.detail, 'timeout')
    }
    await Promise.all(paused.map((box) => server.api('DELETE', `/sandboxes/${box.sandboxID}`)))
  })
}

test('one that stood still for longer than its time goes on when it is resumed', { timeout: 60_000 }, async () => {
  const box = still
  await sleep(Math.max(0, stillSince + 8000 - Date.now())) // its 3 s and the grace of 3 s pass
  assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/connect`, { timeout: 60 })).status, 201)
  assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.resumedFrom, 'memory')
  await sleep(8000) // by now its envd would have ended it, had it not got the new time
  assert.equal((await server.sandbox(box.sandboxID, 49983, '/health')).status, 204)
})
