// Builds on a disk that is full: they fail with the reason, leave nothing, and the next goes on from what was sealed.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience } from '../harness/server.mjs'
import { discard, fill, onSmallDisk } from '../harness/small-disk.mjs'

let server
before(async () => {
  server = await onSmallDisk(6000)
})
after(() => server && discard(server))

const step = (...args) => ({ type: 'RUN', args })
async function build(name, steps) {
  const made = (await server.api('POST', '/v3/templates', { name })).body
  const answer = await server.api('POST', `/v2/templates/${made.templateID}/builds/${made.buildID}`, { fromTemplate: 'base', steps })
  assert.equal(answer.status, 202, answer.text)
  return eventually('the build has ended', async () => {
    const now = (await server.api('GET', `/templates/${made.templateID}/builds/${made.buildID}/status?limit=100`)).body
    return ['ready', 'error'].includes(now.status) && now
  }, 120_000)
}
const names = (...at) => fs.readdirSync(path.join(server.data, ...at))
// What builds leave on the host and nothing uses. Blank boxes come and go meanwhile, and have no layers.
function leftovers() {
  const uses = spawnSync('sqlite3', ['-cmd', '.timeout 5000', `${server.data}/store/quicksand.db`, 'SELECT DISTINCT layer FROM layer_uses'], { encoding: 'utf8' })
  assert.equal(uses.status, 0, uses.stderr)
  const used = uses.stdout.split('\n')
  return [
    ...[...names('layers'), ...names('pool', 'layers')].filter((name) => /^\.?(snap|tree)/.test(name) && !used.includes(name)),
    ...names('feeds').filter((name) => name !== 'unpack'),
    ...names('run').filter((name) => name.endsWith('.box') && /^layers ./m.test(fs.readFileSync(path.join(server.data, 'run', name), 'utf8'))),
  ]
}
const nothingLeft = () => eventually('nothing is left', () => leftovers().length === 0, 20_000)
const said = (end) => end.logEntries.map((entry) => entry.message).join('\n')
const cached = (end) => said(end).match(/^CACHED .*RUN/gm)?.length ?? 0

test('a build on a full disk fails with the reason and leaves nothing; with room again it goes on from what was sealed', { timeout: 300_000 * patience }, async () => {
  const sealed = step(`head -c 3M /dev/urandom > /home/user/sealed && echo ${crypto.randomUUID()}`)
  const first = await build('sealed', [sealed])
  assert.equal(first.status, 'ready', JSON.stringify(first.reason))
  await nothingLeft()

  const empty = fill(server)
  await eventually('the server knows', async () => /^quicksand_pool_held 1$/m.test((await server.api('GET', '/metrics')).text), 30_000)
  const steps = (name, amount) => [sealed, step(`head -c ${amount} /dev/urandom > /home/user/${name}`)]
  // More than there is; more than its share; and little enough for the box to be sealed, but not for the template's files.
  for (const [name, amount, at, reason] of [
    ['large', '2G', '2', /exit status 1; the disk is full/],
    ['medium', '24M', '2', /exit status 1; the disk is full/],
    ['small', '2M', 'finalize', /too little space is left where the layers are/],
  ]) {
    const end = await build(name, steps(name, amount))
    assert.equal(end.status, 'error', name)
    assert.match(end.reason.message, reason, name)
    assert.equal(end.reason.step, at, name)
    assert.equal(cached(end), 1, said(end))
    if (at === '2') assert.match(said(end), /No space left on device|Disk quota exceeded/, name)
    await nothingLeft()
  }
  assert.equal((await server.api('GET', '/sandboxes')).status, 200)

  empty()
  await eventually('there is room again', async () => /^quicksand_pool_held 0$/m.test((await server.api('GET', '/metrics')).text), 30_000)
  for (const [name, amount, fromCache] of [['medium', '24M', 1], ['small', '2M', 2]]) {
    const again = await build(name, steps(name, amount))
    assert.equal(again.status, 'ready', JSON.stringify(again.reason))
    assert.equal(cached(again), fromCache, said(again))
  }
  await nothingLeft()
  const box = await server.create({ templateID: 'medium' })
  for (const [name, bytes] of [['sealed', 3 << 20], ['medium', 24 << 20]]) {
    const file = await server.sandbox(box.sandboxID, 49983, `/files?path=/home/user/${name}&username=user`, { headers: box.envdAccessToken ? { 'X-Access-Token': box.envdAccessToken } : {} })
    assert.equal(file.status, 200, name)
    assert.equal(Number(file.headers['content-length'] ?? file.headers.get?.('content-length')), bytes)
  }
})
