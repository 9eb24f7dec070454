// One sandbox, whoever made it: what happens to it by one API is true in the other, at once, with its events and its bill.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import { after, afterEach, before, test } from 'node:test'
import { promisify } from 'node:util'
import { findProcesses, isEnvd } from '../harness/leftovers.mjs'
import { refused, startRuntime } from '../harness/runtime.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, eventually, patience } from '../harness/server.mjs'

let one, server, sdk
before(async () => {
  // Nothing but the engine's own word can correct a row here: no comparing, no health checks.
  one = await startRuntime({
    providers: { e2b: { type: 'e2b', api_url: 'embedded', max_sandboxes: 2, usd_per_second: 1 } },
    health_interval_s: 86400,
  })
  server = one.server
  sdk = await loadSdk(server)
})
after(() => one?.destroy())
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

const envdOf = (id) => findProcesses(isEnvd).find((process) => fs.readFileSync(`/proc/${process.pid}/cgroup`, 'utf8').includes(id))
// Some 30 ms; nothing else would do it before the hour. A machine under load may take longer.
const soon = (what, check) => eventually(what, check, 5000 * patience)
const becomes = (id, state) => soon(`${id} is ${state}`, async () => (await one.get(id)).state === state)
const killed = async (id) => (await one.events({ sandbox_id: id, type: 'sandbox.killed' })).map((event) => event.data)
const quicksand = (...args) => {
  const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key }
  const running = promisify(execFile)(binary, args, { env })
  return Object.assign(running.then(({ stdout, stderr }) => ({ code: 0, stdout, stderr }), (error) => error), { child: running.child })
}

const parsed = async (...args) => {
  const { code, stdout, stderr } = await quicksand(...args)
  assert.equal(code, 0, `quicksand ${args.join(' ')}: ${stderr}`)
  return JSON.parse(stdout)
}

test('one that is killed through the other API is killed, frees its place and costs nothing more', async () => {
  const box = await one.create()
  const second = await one.create()
  refused(await one.v1('POST', '/sandboxes', {}), 429, 'quota', /max_sandboxes/)
  assert.equal((await server.api('DELETE', `/sandboxes/${box.external_id}`)).status, 204)
  await becomes(box.id, 'killed')
  const [{ reason, runtime_seconds: seconds }, ...more] = await killed(box.id)
  assert.deepEqual([reason, more.length], ['killed', 0])
  assert.ok(seconds > 0 && seconds < 60 * patience, String(seconds))
  assert.match((await one.get(box.id)).error, /killed through/)
  refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true' }), 404, 'not_found', /was killed/)
  const third = await one.create()
  await one.remove(second.id)
  await one.remove(third.id)
  const before = (await one.ok(200, 'GET', '/stats')).total
  assert.equal(before.running, 0)
  assert.deepEqual((await one.ok(200, 'GET', '/stats')).total.seconds, before.seconds, 'nothing runs, nothing is paid for')
  assert.deepEqual((await killed(second.id)).map((data) => data.reason), ['on request'], 'told once, by who asked for it')
})

test('one that crashed, and one whose time was up', async () => {
  const box = await one.create()
  const job = await one.start(box.id, 'sleep 1000')
  process.kill(envdOf(box.external_id).pid, 'SIGKILL')
  await becomes(box.id, 'killed')
  assert.equal((await killed(box.id))[0].reason, 'crashed')
  await soon('its job ended', async () => (await one.process(job.id)).state !== 'running')
  const short = await server.create({ timeout: 3 })
  assert.equal((await one.get(short.sandboxID)).state, 'running')
  await eventually('its time is up', async () => (await one.get(short.sandboxID)).state === 'killed')
  assert.equal((await killed(short.sandboxID))[0].reason, 'timeout')
})

test('paused and resumed elsewhere: the row follows, and only what ran is paid for', async () => {
  const box = await one.create({ key: 'paused elsewhere' })
  await server.api('POST', `/sandboxes/${box.external_id}/pause`)
  await becomes(box.id, 'paused')
  const paid = (await one.ok(200, 'GET', '/stats')).total
  await server.api('POST', `/sandboxes/${box.external_id}/connect`, { timeout: 60 })
  await becomes(box.id, 'running')
  await server.api('POST', `/sandboxes/${box.external_id}/pause`)
  await becomes(box.id, 'paused')
  const types = (await one.events({ sandbox_id: box.id })).map((event) => event.type).filter((type) => /paused|resumed/.test(type))
  assert.deepEqual(types, ['sandbox.paused', 'sandbox.resumed', 'sandbox.paused'])
  assert.ok((await one.ok(200, 'GET', '/stats')).total.seconds >= paid.seconds)
  assert.equal(await one.output(box.id, 'echo awake'), 'awake\n')
  const auto = await server.create({ timeout: 1, autoPause: true })
  await eventually('it is paused at its end', async () => (await one.get(auto.sandboxID)).state === 'paused')
  await one.remove(auto.sandboxID)
  await one.remove(box.id)
  assert.equal((await server.api('GET', `/sandboxes/${auto.sandboxID}`)).status, 404)
})

test('what ended while the server was down is known after its start', async () => {
  const box = await one.create()
  const other = await server.create()
  await server.stop()
  process.kill(envdOf(box.external_id).pid, 'SIGKILL')
  process.kill(envdOf(other.sandboxID).pid, 'SIGKILL')
  await server.start()
  for (const id of [box.id, other.sandboxID]) {
    await becomes(id, 'killed')
    assert.equal((await killed(id)).length, 1, id)
  }
  assert.equal((await one.ok(200, 'GET', '/stats')).total.running, 0)
})

test('one made by an SDK is in the same list, with the same id and shape, and everything works on it', async () => {
  const made = await sdk.Sandbox.create({ metadata: { who: 'sdk' }, timeoutMs: 120_000 * patience })
  const id = made.sandboxId
  const mine = await one.create()
  assert.equal(mine.id, mine.external_id)
  const { sandboxes } = await one.ok(200, 'GET', '/sandboxes')
  const listed = sandboxes.find((box) => box.id === id)
  assert.deepEqual(Object.keys(listed), Object.keys(sandboxes.find((box) => box.id === mine.id)))
  assert.deepEqual([listed.state, listed.metadata, listed.adopted, listed.provider], ['running', { who: 'sdk' }, true, 'e2b'])
  assert.deepEqual((await one.events({ sandbox_id: id, type: 'sandbox.created' })).map((event) => event.data.by), ['e2b'])

  assert.equal(await one.output(id, 'echo hello'), 'hello\n')
  const { total } = await one.ok(200, 'GET', '/stats')
  assert.ok(total.commands >= 1)
  assert.equal(await one.count(id, 'process.started'), 1)
  await one.ok(200, 'PUT', `/sandboxes/${id}/files?path=/tmp/a`, 'text')
  assert.equal(await made.files.read('/tmp/a'), 'text')
  assert.match((await one.ok(200, 'GET', `/sandboxes/${id}/ports/8000`)).url, new RegExp(`8000-${id}`))
  const job = await one.start(id, 'echo from a job')
  await eventually('the job ended', async () => (await one.process(job.id)).state === 'completed')
  const snapshot = await one.ok(201, 'POST', `/sandboxes/${id}/snapshots`, {})
  const copy = await one.create({ snapshot: snapshot.id })
  assert.equal(await one.output(copy.id, 'cat /tmp/a'), 'text')
  await one.remove(copy.id)
  assert.equal((await one.ok(200, 'POST', `/sandboxes/${id}/pause`)).state, 'paused')
  assert.equal(await one.output(id, 'echo back'), 'back\n')
  await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)

  // And the other way round.
  const there = await sdk.Sandbox.connect(mine.id)
  assert.equal((await there.commands.run('echo both')).stdout, 'both\n')

  // Every command.
  const rows = await parsed('ls', '--json')
  assert.deepEqual(Object.keys(rows[0]), Object.keys(rows[1]))
  assert.deepEqual(new Set(rows.map((row) => row.id)), new Set([id, mine.id]))
  assert.equal((await parsed('show', '--json', id)).id, id)
  assert.match((await quicksand('url', id, '8000')).stdout, new RegExp(`8000-${id}`))
  assert.equal((await quicksand('exec', id, '--', 'echo', 'cli')).stdout, 'cli\n')
  assert.match((await quicksand('job', 'start', id, '--', 'true')).stdout, /^job_/)
  const shell = quicksand('pty', id)
  shell.child.stdin.end('echo in a $((1 + 1))terminal; exit\n')
  assert.match((await shell).stdout, /in a 2terminal/)
  const page = await server.request({ path: `/ui/terminal?sandbox=${id}` })
  assert.equal(page.status, 200)
  const snap = (await quicksand('snapshot', 'create', id)).stdout.trim()
  assert.match(snap, /^snap_/)
  await quicksand('snapshot', 'rm', snap)
  assert.equal((await quicksand('rm', id)).code, 0)
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).status, 404)
  await one.remove(mine.id)
})

test('it keeps the limit it was made with, whatever the runtime does with it', async () => {
  const { sandboxID: id } = await server.create({ timeout: 100 })
  const end = (await server.api('GET', `/sandboxes/${id}`)).body.endAt
  assert.equal(await one.output(id, 'echo used'), 'used\n')
  assert.equal((await one.get(id)).idle_timeout, 100)
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.endAt, end)
  assert.equal((await one.ok(200, 'POST', '/prune', { older_than: 0 })).sandboxes, 0)
  assert.equal((await one.get(id)).state, 'running')
  await one.remove(id)
})

test('copies that the other API makes of the runtime’s are sandboxes too, and are not taken for left over', async () => {
  const box = await one.create()
  const { status, body, text } = await server.api('POST', `/sandboxes/${box.id}/fork`, {})
  assert.equal(status, 201, text)
  const id = body[0].sandbox.sandboxID
  // It has the labels of its source, as our own have before their row is there.
  await soon('the copy is in the list', async () => (await one.ok(200, 'GET', '/sandboxes')).sandboxes.some((each) => each.id === id))
  assert.deepEqual([(await one.get(id)).state, (await one.get(id)).adopted], ['running', true])
  assert.equal(await one.output(id, 'echo copy'), 'copy\n')
  // A copy of the copy; and the same after a restart.
  const again = (await server.api('POST', `/sandboxes/${id}/fork`, {})).body[0].sandbox.sandboxID
  await soon('the copy of the copy is there', async () => (await one.v1('GET', `/sandboxes/${again}`)).status === 200)
  await server.restart()
  for (const each of [id, again]) assert.deepEqual([(await one.get(each)).state, (await one.get(each)).adopted], ['running', true])
  await one.remove(again)
  await one.remove(id)
  await one.remove(box.id)
})

test('another team finds neither, by neither id', async () => {
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'other' })
  const { body: made } = await server.api('POST', `/admin/teams/${team.teamID ?? team.id}/api-keys`, { name: 'k' })
  const key = made.key
  const { sandboxID } = await server.create()
  const mine = await one.create({ key: 'mine' })
  for (const id of [sandboxID, mine.id]) {
    refused(await one.v1('GET', `/sandboxes/${id}`, undefined, { key }), 404, 'not_found')
    refused(await one.v1('POST', `/sandboxes/${id}/execute`, { command: 'true' }, { key }), 404, 'not_found')
    assert.equal((await server.api('GET', `/sandboxes/${id}`, undefined, { key })).status, 404)
  }
  assert.deepEqual((await one.ok(200, 'GET', '/sandboxes', undefined, { key })).sandboxes, [])
  await one.remove(sandboxID)
  await one.remove(mine.id)
})
