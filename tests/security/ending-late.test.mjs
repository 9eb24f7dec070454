// Sandboxes whose killed processes do not leave the kernel in time: memory that is shared is not taken from the dying, so
// these finish their reads. Somebody comes back to them, whatever becomes of the server meanwhile.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { cgroups } from '../harness/leftovers.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, stayInKernel } from '../harness/sdk.mjs'

let server, sdk, instance
before(async () => {
  server = await startServer({ args: ['--warm', '0'] })
  sdk = await loadSdk(server)
  instance = fs.readFileSync(`${server.data}/instance`, 'utf8').trim()
})
after(() => server.destroy())

async function deleteBusy() {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  await stayInKernel(sandbox, { threads: 100, shared: true })
  const began = Date.now()
  const answer = await server.api('DELETE', `/sandboxes/${sandbox.sandboxId}`, undefined, { timeoutMs: 60_000 })
  assert.ok([204, 504].includes(answer.status), answer.text)
  assert.ok(Date.now() - began < 20_000 * patience, `an answer after ${Date.now() - began} ms`)
  assert.equal((await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).status, 404)
  return sandbox.sandboxId
}

test('what does not end in time is deleted in the background', { timeout: 600_000 * patience }, async () => {
  const id = await deleteBusy()
  await eventually('it has ended', () => server.log.includes(`ended id=${id} reason='killed'`), 300_000, 100)
  assert.deepEqual(cgroups(instance).filter((one) => one.includes(id)), [])
})

test('a server that ends meanwhile says what it leaves, and quicksand down removes it', { timeout: 600_000 * patience }, async () => {
  await deleteBusy()
  server.child.kill('SIGTERM')
  await server.exited
  if (cgroups(instance).length) assert.match(server.log, /leave processes, cgroups or mounts behind .*; the next start or 'quicksand down' removes them/)
  await eventually('quicksand down removes it', () => spawnSync(binary, ['down', '--data', server.data]).status === 0, 300_000, 100)
  assert.deepEqual(await server.left(instance), [])
})
