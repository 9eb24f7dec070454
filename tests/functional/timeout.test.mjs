// The end of life: acted upon within one second, also when the server was not there at that moment.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { passTime } from '../harness/clock.mjs'
import { eventually, startServer, timely } from '../harness/server.mjs'
import { ofSandbox } from '../harness/leftovers.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

async function goneAfter(id, begin) {
  for (;;) {
    const answer = await server.api('GET', `/sandboxes/${id}`)
    if (answer.status === 404) return Date.now() - begin
    assert.ok(Date.now() - begin < 60_000, 'never ended')
    await sleep(20)
  }
}

test('a sandbox ends within a second of its time', async () => {
  await timely('its end', 3200, async () => {
    const begin = Date.now()
    const box = await server.create({ timeout: 2 })
    const took = await goneAfter(box.sandboxID, begin)
    assert.ok(took >= 1900, `${took} ms`)
    assert.equal((await server.sandbox(box.sandboxID, 49983, '/health')).status, 502)
    await eventually('nothing of it is left', () => ofSandbox(box.sandboxID, server.data).length === 0)
    return took
  })
})

test('twenty that end at the same time all end in time', async () => {
  await timely('the end of all', 4500, async () => {
    const boxes = await Promise.all(Array.from({ length: 20 }, () => server.create({ timeout: 3 })))
    const begin = Date.now()
    await eventually('all have ended', async () => (await server.ids()).length === 0, 60_000)
    const took = Date.now() - begin
    for (const box of boxes) await eventually('nothing of it is left', () => ofSandbox(box.sandboxID, server.data).length === 0)
    return took
  })
})

test('a time limit set later counts', async () => {
  await timely('its end', 2200, async () => {
    const box = await server.create({ timeout: 300 })
    const begin = Date.now()
    await server.api('POST', `/sandboxes/${box.sandboxID}/timeout`, { timeout: 1 })
    return goneAfter(box.sandboxID, begin)
  })
})

test('time limits survive a restart of the server', async () => {
  const late = await server.create({ timeout: 300 })
  await timely('the end of one that goes on after the restart', 5300, async () => {
    const soon = await server.create({ timeout: 2 })
    const begin = Date.now()
    const during = await server.create({ timeout: 7 })
    await passTime(server, 3)
    assert.equal((await server.api('GET', `/sandboxes/${late.sandboxID}`)).status, 200)
    await goneAfter(soon.sandboxID, Date.now())
    const took = await goneAfter(during.sandboxID, begin)
    assert.ok(took >= 3900, `${took} ms`)
    return took
  })
  await server.api('DELETE', `/sandboxes/${late.sandboxID}`)
})
