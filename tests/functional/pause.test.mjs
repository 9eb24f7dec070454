// Pausing and resuming: many times, many at once, and what is told of it.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { counts } from '../harness/leftovers.mjs'

let server, sdk
before(async () => {
  server = await startServer({ args: ['--warm', '0'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const pause = (id, body = {}) => server.api('POST', `/sandboxes/${id}/pause`, body)
const resume = (id, body = { timeout: 600 * patience }) => server.api('POST', `/sandboxes/${id}/connect`, body)
const info = async (id) => (await server.api('GET', `/sandboxes/${id}`)).body

test('a hundred times: nothing is lost, nothing grows', { timeout: 120_000 * patience }, async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience, envs: { KEPT: 'env' } })
  const id = sandbox.sandboxId
  const handle = await sandbox.commands.run('i=0; while true; do i=$((i+1)); echo $i > /home/user/beat; sleep 0.01; done', { background: true, timeoutMs: 0 })
  handle.wait().catch(() => {})
  await sandbox.files.write('/home/user/kept', 'file')
  let sizes
  for (let round = 0; round < 100; round++) {
    assert.equal((await pause(id)).status, 204)
    const answer = await resume(id)
    assert.equal(answer.status, 201)
    if (round === 4) sizes = counts(server.servingPid)
    if (round % 20 === 0) await sandbox.files.write(`/home/user/f${round}`, `${round}`)
  }
  assert.equal((await info(id)).resumedFrom, 'memory')
  assert.equal(await sandbox.files.read('/home/user/kept'), 'file')
  for (let round = 0; round < 100; round += 20) assert.equal(await sandbox.files.read(`/home/user/f${round}`), `${round}`)
  assert.ok((await sandbox.commands.list()).some((one) => one.pid === handle.pid), 'its process is gone')
  assert.equal((await sandbox.commands.run('echo $KEPT')).stdout, 'env\n')
  const now = counts(server.servingPid)
  for (const name of Object.keys(sizes)) assert.ok(now[name] <= sizes[name] + 5, `${name}: ${sizes[name]} before, ${now[name]} now`)
  await sandbox.kill()
})

test('with memory the same boot goes on, without it is another, and both are told', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  const other = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  const id = sandbox.sandboxId
  const boot = async (box) => (await box.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout.trim()
  const first = await boot(sandbox)
  assert.match(first, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/)
  assert.notEqual(await boot(other), first, 'each sandbox is a machine of its own')
  await other.kill()
  await pause(id, { memory: true })
  await resume(id)
  assert.equal(await boot(sandbox), first)
  assert.equal((await info(id)).resumedFrom, 'memory')
  await pause(id, { memory: false })
  await resume(id)
  assert.notEqual(await boot(sandbox), first)
  assert.equal((await info(id)).resumedFrom, 'disk')
  const events = (await server.api('GET', `/events/sandboxes/${id}`)).body.filter((event) => event.type.endsWith('resumed'))
  assert.deepEqual(events.map((event) => event.event_data.detail), ['disk', 'memory'])
  await sandbox.kill()
})

test('five at once on one id', async () => {
  const five = (fn) => Promise.all(Array.from({ length: 5 }, fn)).then((all) => all.map((one) => one.status).sort())
  const box = await server.create({ timeout: 600 * patience })
  const id = box.sandboxID
  const pauses = await five(() => pause(id))
  // On a busy machine one may come when it is done already, and is too late, as the next one.
  assert.ok(pauses[0] === 204 && pauses.every((status) => [204, 409].includes(status)), String(pauses))
  assert.equal((await pause(id)).status, 409)
  const resumes = await five(() => server.api('POST', `/sandboxes/${id}/resume`, { timeout: 600 * patience }))
  assert.equal(resumes.filter((status) => status === 201).length, 1, String(resumes))
  assert.ok(resumes.every((status) => status === 201 || status === 409), String(resumes))
  // All kinds at once: no server error, and a true state afterwards.
  const mixed = await Promise.all([0, 1, 2, 3, 4].flatMap(() => [pause(id), resume(id)]))
  for (const answer of mixed) assert.ok([200, 201, 204, 409].includes(answer.status), `${answer.status} ${answer.text}`)
  if ((await info(id)).state === 'paused') assert.equal((await resume(id)).status, 201)
  assert.equal((await server.sandbox(id, 49983, '/health')).status, 204)
  const kills = await five(() => server.api('DELETE', `/sandboxes/${id}`))
  assert.equal(kills.filter((status) => status === 204).length >= 1, true)
  assert.ok(kills.every((status) => status === 204 || status === 404), String(kills))
  assert.equal((await pause(id)).status, 404)
  assert.equal((await resume(id)).status, 404)
})
