// A copy of the store in the place of a damaged one, as docs/operate.md installs it: what it does not know is kept.
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { HOUR, passTime } from '../harness/clock.mjs'
import { startRuntime } from '../harness/runtime.mjs'
import { binary, eventually } from '../harness/server.mjs'

let one
before(async () => (one = await startRuntime()))
after(() => one.destroy())

const store = () => path.join(one.server.data, 'store')
const upper = (id) => path.join(one.server.data, 'pool/boxes', id, 'upper')
const list = () => path.join(store(), 'kept-aside')

test('files of sandboxes newer than the copy stay until an operator deletes them', async () => {
  const { server } = one
  const known = await one.create({ key: 'known', template: 'base' })
  await one.execute(known.id, 'echo known >/home/user/f')
  const { sandboxID: over } = await server.create({ timeout: 600 })
  // A copy younger than an hour would be left alone.
  await server.stop()
  for (const name of fs.readdirSync(store())) if (name.startsWith('quicksand.db.backup')) fs.rmSync(path.join(store(), name))
  await server.start()
  await eventually('the copy is made', () => fs.existsSync(path.join(store(), 'quicksand.db.backup')))

  const keyed = await one.create({ key: 'new', template: 'base' })
  await one.execute(keyed.id, 'echo keyed >/home/user/f')
  const paused = await one.create({ key: 'paused', template: 'base' })
  await one.execute(paused.id, 'echo paused >/home/user/f; sync')
  await one.ok(200, 'POST', `/sandboxes/${paused.id}/pause`)
  await one.ok(201, 'POST', `/sandboxes/${keyed.id}/snapshots`, { alias: 'new' })
  assert.equal((await server.api('POST', `/sandboxes/${over}/pause`)).status, 204)
  await server.stop()

  execFileSync('sh', ['-ec', 'cd "$1" && mkdir damaged && mv quicksand.db quicksand.db-* damaged/ && cp -p quicksand.db.backup quicksand.db', 'sh', store()])
  // As a copy has it that was made during the snapshot: the layer has no user yet.
  const layer = fs.readdirSync(path.join(server.data, 'pool/layers')).find((name) => name.startsWith('snap'))
  const added = spawnSync('sqlite3', [path.join(store(), 'quicksand.db'), `INSERT INTO layers (name, team_id, created_at_us) SELECT '${layer}', id, 1 FROM teams LIMIT 1`], { encoding: 'utf8' })
  assert.equal(added.status, 0, added.stderr)
  // By the copy the time of one is over that was paused since.
  await passTime(server, HOUR)
  assert.equal((await one.create({ key: 'known', template: 'base' })).id, known.id)
  assert.equal(await one.output(known.id, 'cat /home/user/f'), 'known\n')
  const kept = () => fs.readFileSync(list(), 'utf8').trim().split('\n').sort()
  const boxes = [keyed.external_id, paused.external_id].map((id) => `box ${id}`).sort()
  assert.deepEqual(kept().filter((line) => line.startsWith('box ')), boxes)
  assert.deepEqual(kept().filter((line) => line.startsWith('layer ')), [`layer ${layer}`])
  assert.match(server.log, new RegExp(`kept box ${keyed.external_id}`))
  const check = () => JSON.parse(spawnSync(binary, ['doctor', '--json', '--data', server.data], { encoding: 'utf8' }).stdout).find((row) => row.name === 'kept aside')
  assert.equal(check().status, 'warn')
  assert.match(check().detail, new RegExp(keyed.external_id))
  // Also after a start with a store that is familiar by now, and after a crash.
  await server.kill9()
  await server.start()
  for (const [{ external_id: id }, text] of [[keyed, 'keyed\n'], [paused, 'paused\n']]) {
    assert.equal(fs.readFileSync(path.join(upper(id), 'home/user/f'), 'utf8'), text)
  }
  await eventually('it is paused', async () => (await server.api('GET', `/sandboxes/${over}`)).body.state === 'paused')
  assert.equal((await server.api('POST', `/sandboxes/${over}/connect`, { timeout: 300 })).status, 201)

  await server.stop()
  fs.writeFileSync(list(), kept().filter((line) => !line.includes(keyed.external_id)).join('\n') + '\n')
  await server.start()
  await eventually('what was taken off the list is deleted', () => !fs.existsSync(upper(keyed.external_id)))
  assert.equal(fs.readFileSync(path.join(upper(paused.external_id), 'home/user/f'), 'utf8'), 'paused\n')
  await server.stop()
  fs.rmSync(list())
  await server.start()
  await eventually('an empty list deletes all', () => !fs.existsSync(upper(paused.external_id)))
  assert.equal(check().status, 'ok')
})

test('a new store keeps what it finds, and leftovers of a crash go', async () => {
  const { server } = one
  const { sandboxID: id } = await server.create()
  await server.kill9()
  await server.start()
  assert.ok(!fs.existsSync(list()), 'warm boxes of a crash are not kept')
  await server.stop()
  const away = path.join(server.home, 'lost')
  fs.mkdirSync(away)
  for (const name of fs.readdirSync(store())) if (/^quicksand\.db(-|$)/.test(name)) fs.renameSync(path.join(store(), name), path.join(away, name))
  await server.start()
  assert.match(fs.readFileSync(list(), 'utf8'), new RegExp(`^box ${id}$`, 'm'))
  await server.stop()
  fs.rmSync(list())
  await server.start()
  await eventually('it is deleted', () => !fs.existsSync(upper(id)))
})
