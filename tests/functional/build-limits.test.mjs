// What bounds builds: time, how many at once, what the cache may hold.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'

const SECONDS = 10 * patience // what others build here takes two, more on a busy machine
let server
before(async () => {
  server = await startServer({ args: ['--warm', '1', '--build-seconds', String(SECONDS), '--build-cache', '8', '--builds', '2', '--team-builds', '1'] })
})
after(() => server?.destroy())

const run = (...args) => ({ type: 'RUN', args })
const unique = () => crypto.randomBytes(6).toString('hex')
async function start(name, recipe) {
  const build = (await server.api('POST', '/v3/templates', { name })).body
  const answer = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, { fromTemplate: 'base', ...recipe })
  assert.equal(answer.status, 202, answer.text)
  return build
}
const status = async (build) => (await server.api('GET', `/templates/${build.templateID}/builds/${build.buildID}/status`)).body
const ended = (build) => eventually('the build has ended', async () => {
  const now = await status(build)
  return ['ready', 'error'].includes(now.status) && now
}, 60_000)
function sql(text) {
  const done = spawnSync('sqlite3', ['-cmd', '.timeout 5000', `${server.data}/store/quicksand.db`, text], { encoding: 'utf8' })
  assert.equal(done.status, 0, done.stderr)
  return done.stdout.trim()
}

test('a step that never ends is ended, and the build says why', async () => {
  const began = Date.now()
  const end = await ended(await start('endless', { steps: [run('sleep 100000')] }))
  assert.equal(end.status, 'error')
  assert.equal(end.reason.step, '1')
  assert.match(end.reason.message, new RegExp(`the build took longer than ${SECONDS} s`))
  assert.ok(Date.now() - began < (SECONDS + 10) * 1000)
  const ready = await ended(await start('never-ready', { startCmd: 'sleep 100000', readyCmd: 'false' }))
  assert.equal(ready.reason.step, 'finalize')
})

test('a team has its share at the same time; others wait, and say that they are building', async () => {
  const first = await start('queue-1', { steps: [run('sleep 1.5')] })
  const second = await start('queue-2', { steps: [run(`echo ${unique()}`)] })
  assert.equal((await status(second)).status, 'building')
  assert.deepEqual((await status(second)).logEntries, [])
  assert.equal((await ended(first)).status, 'ready')
  assert.equal((await ended(second)).status, 'ready')
  // One that waits for its turn is cancelled at once.
  const third = await start('queue-3', { steps: [run('sleep 2')] })
  const fourth = await start('queue-4', { steps: [run('sleep 2')] })
  const answer = await server.api('POST', `/templates/${fourth.templateID}/builds/${fourth.buildID}/cancel`)
  assert.ok(answer.status < 300, answer.text)
  assert.equal((await status(fourth)).status, 'error')
  await ended(third)
})

test('the longest unused results go when there is too much; what a template uses stays', async () => {
  const steps = (n) => [run(`head -c 3M /dev/urandom > /tmp/r; echo ${n} ${unique()}`)]
  const kept = await ended(await start('pruned-kept', { steps: steps(0) }))
  assert.equal(kept.status, 'ready', JSON.stringify(kept.reason))
  for (let i = 1; i < 6; i++) assert.equal((await ended(await start('pruned', { steps: steps(i) }))).status, 'ready')
  await eventually('the cache holds what it may', () => Number(sql('SELECT coalesce(sum(bytes), 0) FROM build_cache')) <= 8 * 1024 * 1024, 20_000)
  await eventually('unused layers are gone', () => {
    const used = sql('SELECT DISTINCT layer FROM layer_uses').split('\n')
    const there = [...fs.readdirSync(path.join(server.data, 'layers')), ...fs.readdirSync(path.join(server.data, 'pool/layers'))].filter((name) => /^(snap|tree)/.test(name))
    return there.every((name) => used.includes(name))
  }, 20_000)
  const sandbox = await server.api('POST', '/sandboxes', { templateID: 'pruned-kept', timeout: 60 })
  assert.equal(sandbox.status, 201, sandbox.text)
  await server.api('DELETE', `/sandboxes/${sandbox.body.sandboxID}`)
})
