// `retention_days` from a file of settings, with the server's clock moved.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { DAY, HOUR, passTime } from '../harness/clock.mjs'
import { startRuntime } from '../harness/runtime.mjs'

let one
before(async () => (one = await startRuntime({ retention_days: 3 })))
after(() => one.destroy())

const events = (id, type) => one.events({ sandbox_id: id, type })
// The clean-up that runs each hour, asked for at once.
const cleanUp = () => one.ok(200, 'POST', '/prune', {})

test('retention_days announces a deletion on /events a day before, and a use cancels it', async () => {
  const make = async (key) => {
    const box = await one.create({ key, template: 'base' })
    await one.execute(box.id, 'echo mine >/home/user/f')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    return box
  }
  const unused = await make('unused')
  const used = await make('used')
  await passTime(one.server, 2 * DAY - HOUR)
  await cleanUp()
  assert.deepEqual(await events(unused.id, 'sandbox.expiring'), [])

  await passTime(one.server, 2 * HOUR)
  await cleanUp()
  for (const { id } of [unused, used]) {
    const [event, ...more] = await events(id, 'sandbox.expiring')
    assert.deepEqual(more, [])
    const { reason, unused_since: since, delete_after: at } = event.data
    assert.equal(reason, 'retention')
    const announced = Date.parse(event.ts)
    assert.ok(Date.parse(at) - announced >= (DAY - 60) * 1000, JSON.stringify(event))
    assert.ok(Math.abs(Date.parse(at) - Date.parse(since) - (3 * DAY + HOUR) * 1000) < 10 * 60_000, JSON.stringify(event))
    assert.equal((await one.get(id)).state, 'paused')
  }
  const again = await one.create({ key: 'used', template: 'base' })
  assert.deepEqual([again.id, again.tier], [used.id, 'resumed'])
  await one.ok(200, 'POST', `/sandboxes/${used.id}/pause`)

  await passTime(one.server, DAY + HOUR)
  await cleanUp()
  assert.equal((await one.get(unused.id)).state, 'killed')
  assert.equal((await events(unused.id, 'sandbox.killed')).length, 1)
  assert.equal((await events(unused.id, 'sandbox.expiring')).length, 1)
  assert.equal((await one.get(used.id)).state, 'paused')
  const created = await one.create({ key: 'unused', template: 'base' })
  assert.equal(created.tier, 'created')
  assert.equal(created.previous.id, unused.id)
  assert.match(created.previous.reason, /retention_days/)
  const kept = await one.create({ key: 'used', template: 'base' })
  assert.equal(await one.output(kept.id, 'cat /home/user/f'), 'mine\n')
})
