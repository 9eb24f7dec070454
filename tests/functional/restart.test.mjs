// Stopping, killing and starting again: sandboxes stay what they were, and nothing is left of half-done work.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, startServer } from '../harness/server.mjs'
import { randomFrom } from '../harness/random.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { cgroups, counts, files, findProcesses, isEnvd, isOurs, ofSandbox } from '../harness/leftovers.mjs'

let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server.destroy())

async function busySandbox() {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000, metadata: { kept: 'yes' }, envs: { KEPT: 'env' } })
  await sandbox.files.write('/home/user/kept', 'file')
  const handle = await sandbox.commands.run('while true; do date +%s%N > /tmp/beat; sleep 0.1; done', { background: true, timeoutMs: 0 })
  // Its stream breaks with the server; that is not what is tested.
  handle.wait().catch(() => {})
  return { sandbox, pid: handle.pid, handle }
}

async function assertUnharmed({ sandbox, pid }) {
  const again = await sdk.Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('/home/user/kept'), 'file')
  assert.equal((await again.commands.run('echo $KEPT')).stdout, 'env\n')
  assert.ok((await again.commands.list()).some((one) => one.pid === pid), 'its process is gone')
  const first = await again.files.read('/tmp/beat')
  await eventually('its process runs', async () => (await again.files.read('/tmp/beat')) !== first)
  assert.deepEqual((await again.getInfo()).metadata, { kept: 'yes' })
}

test('SIGTERM: exit 0, sandboxes live on, a new server finds them', async () => {
  const busy = await busySandbox()
  busy.handle.disconnect?.()
  const { code, signal } = await server.stop()
  assert.equal(code, 0, `${code} ${signal}\n${server.tail()}`)
  assert.deepEqual(findProcesses(isOurs), [])
  await server.start()
  await assertUnharmed(busy)
  await busy.sandbox.kill()
  assert.deepEqual(ofSandbox(busy.sandbox.sandboxId, server.data), [])
})

test('SIGTERM lets a request finish', async () => {
  const box = await server.create()
  const socket = await server.connect()
  const body = '{"timeout":100}'
  socket.write(`POST /sandboxes/${box.sandboxID}/timeout HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: ${server.key}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`)
  await eventually('the server waits for the body', () => /^HTTP\/1\.1 100 /.test(socket.received))
  const before = server.log.length
  server.child.kill('SIGTERM')
  await eventually('it is stopping', () => /server: stopping/.test(server.log.slice(before)))
  socket.write(body)
  await socket.ended
  assert.match(socket.received, /\r\n\r\nHTTP\/1\.1 204/)
  assert.equal((await server.exited).code, 0)
  await server.start()
  await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
})

// The server's own processes by role: what is killed must come back with everything it was responsible for.
function roles() {
  const all = findProcesses(isOurs)
  const main = all.find((one) => one.pid === server.child.pid)
  return { main, others: all.filter((one) => one.pid !== server.child.pid) }
}

async function killEverything() {
  const targets = findProcesses(isOurs)
  for (const one of targets) {
    try {
      process.kill(one.pid, 'SIGKILL')
    } catch {}
  }
  await server.exited
}

describe('kill -9', () => {
  test('of the server: sandboxes live on, a new server adopts them', async () => {
    const busy = await busySandbox()
    await server.kill9()
    await server.start()
    await assertUnharmed(busy)
    await busy.sandbox.kill()
    assert.deepEqual(ofSandbox(busy.sandbox.sandboxId, server.data), [])
  })

  test('of all of its processes at once: the same', async () => {
    const busy = await busySandbox()
    await killEverything()
    await server.start()
    await assertUnharmed(busy)
    await busy.sandbox.kill()
    assert.deepEqual(ofSandbox(busy.sandbox.sandboxId, server.data), [])
  })

  test('of each other process of the server: it recovers or ends, and a new one works', async () => {
    const busy = await busySandbox()
    for (const role of roles().others) {
      try {
        process.kill(role.pid, 'SIGKILL')
      } catch {
        continue
      }
      // Either it brings its helper back by itself or it gives up and the supervisor starts it again.
      await Promise.race([server.exited, sleep(1500)])
      if (!server.alive()) await server.start()
      const box = await eventually('create after the kill', async () => {
        try {
          const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })
          return answer.status === 201 && answer.body
        } catch {
          if (!server.alive()) await server.start()
        }
      })
      await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
    }
    await assertUnharmed(busy)
    await busy.sandbox.kill()
  })

  test('at random moments of creates and kills: nothing is lost or leaked', async () => {
    const steady = await busySandbox()
    const known = new Set()
    const random = randomFrom(12345)
    for (let round = 0; round < 8; round++) {
      const work = Array.from({ length: 12 }, async (_, at) => {
        try {
          const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 600 }, { timeoutMs: 5000 })
          if (answer.status !== 201) return
          known.add(answer.body.sandboxID)
          if (at % 2 === 0) {
            const gone = await server.api('DELETE', `/sandboxes/${answer.body.sandboxID}`, undefined, { timeoutMs: 5000 })
            if (gone.status === 204) known.delete(answer.body.sandboxID)
          }
        } catch {}
      })
      await sleep(random(120))
      if (round % 2) await killEverything()
      else await server.kill9()
      await Promise.all(work)
      await server.start()
      // A kill whose answer was lost may or may not have been done; everything else that answered 201 lives.
      const live = new Set(await server.ids())
      assert.ok(live.has(steady.sandbox.sandboxId), `round ${round}: the steady sandbox was lost`)
      for (const id of live) {
        const health = await server.sandbox(id, 49983, '/health')
        assert.equal(health.status, 204, `round ${round}: ${id} is listed but does not answer`)
      }
      for (const id of known) if (!live.has(id)) assert.deepEqual(ofSandbox(id, server.data), [], `round ${round}: remains of ${id}`)
    }
    await assertUnharmed(steady)
    const ids = await server.killAll()
    for (const id of new Set([...ids, ...known])) await eventually(`nothing of ${id} is left`, () => ofSandbox(id, server.data).length === 0)
  })
})

test('creates and kills leak nothing without a name either', async () => {
  const cycle = async (n) => {
    const boxes = await Promise.all(Array.from({ length: n }, () => server.create()))
    await Promise.all(boxes.map((box) => server.api('DELETE', `/sandboxes/${box.sandboxID}`)))
  }
  await cycle(20)
  let before
  await eventually('counts stand still', () => {
    const last = JSON.stringify(before)
    before = counts(server.servingPid)
    return last === JSON.stringify(before)
  }, 15_000, 1000)
  for (let round = 0; round < 5; round++) await cycle(20)
  await eventually('counts back where they were', () => {
    const now = counts(server.servingPid)
    return Object.keys(before).every((name) => now[name] <= before[name] + (name === 'descriptors' ? 4 : 1))
  }, 15_000, 300).catch((error) => {
    assert.deepEqual(counts(server.servingPid), before, error.message)
  })
})

test('a data directory from a machine that was switched off: rows without boxes are ended', async () => {
  const box = await server.create({ timeout: 600 })
  assert.ok(findProcesses(isEnvd).length > 0)
  await killEverything()
  for (const one of findProcesses(isEnvd)) process.kill(one.pid, 'SIGKILL')
  await eventually('they are gone', () => findProcesses(isEnvd).length === 0)
  await server.start()
  assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).status, 404)
  assert.deepEqual(await server.ids(), [])
  await eventually('nothing of it is left', () => ofSandbox(box.sandboxID, server.data).length === 0)
})

test('the first process of a sandbox dies: the sandbox is gone, the server goes on', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 60_000 })
  const mine = findProcesses(isEnvd).filter((one) => fs.readFileSync(`/proc/${one.pid}/cgroup`, 'utf8').includes(sandbox.sandboxId))
  assert.equal(mine.length, 1, 'its envd is in a cgroup with its name')
  process.kill(mine[0].pid, 'SIGKILL')
  await eventually('it is ended', async () => (await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).status === 404)
  await eventually('nothing is left', () => ofSandbox(sandbox.sandboxId, server.data).length === 0)
})

test('helpers used above find what is there', async () => {
  const box = await server.create()
  assert.ok([...cgroups(box.sandboxID), ...files(server.data, box.sandboxID)].length > 0, 'a live sandbox must be visible to the leftovers check')
  await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
})
