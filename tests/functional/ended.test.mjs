// Why a sandbox ended is told where its user looks: info, logs, events, and the answer of its address.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { findProcesses, isEnvd } from '../harness/leftovers.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, eventually, startServer } from '../harness/server.mjs'

let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server?.destroy())

async function checkEnded(id, reason, line) {
  const info = await eventually(
    `${id} has ended`,
    async () => {
      const answer = await server.api('GET', `/sandboxes/${id}`)
      return answer.status === 404 && /ended at/.test(answer.text) && answer
    },
    20_000
  )
  assert.equal(info.body.code, 404)
  assert.match(info.body.message, new RegExp(`not found: it ended at \\S+Z \\(${reason}\\)`))
  for (const port of [49983, 8000]) {
    const answer = await server.sandbox(id, port, '/')
    assert.equal(answer.status, 502)
    assert.deepEqual(answer.body, { sandboxId: id, message: 'The sandbox was not found', reason, code: 502 })
  }
  const page = await server.sandbox(id, 80, '/', { headers: { 'User-Agent': 'Mozilla/5.0' } })
  assert.match(page.text, new RegExp(`Why it ended: ${reason}`))
  const { logs } = (await server.api('GET', `/v2/sandboxes/${id}/logs`)).body
  assert.match(logs.at(-1).message, line)
  assert.equal(logs.at(-1).level, ['killed', 'timeout'].includes(reason) ? 'info' : 'error')
  const [event] = (await server.api('GET', `/events/sandboxes/${id}`)).body
  assert.equal(event.type, 'sandbox.lifecycle.killed')
  assert.equal(event.event_data.detail, reason)
  // A stranger learns nothing.
  const { body: team } = await server.api('POST', '/admin/teams', { name: `t${Math.random().toString(36).slice(2)}` })
  const { body: key } = await server.api('POST', `/admin/teams/${team.teamID ?? team.id}/api-keys`, { name: 'k' })
  const other = await server.api('GET', `/sandboxes/${id}`, undefined, { key: key.key })
  assert.equal(other.status, 404)
  assert.ok(!other.text.includes(reason), other.text)
}

test('killed', async () => {
  const { sandboxID } = await server.create()
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await checkEnded(sandboxID, 'killed', /^Sandbox killed$/)
})

test('its time was up', async () => {
  const { sandboxID } = await server.create({ timeout: 1 })
  await checkEnded(sandboxID, 'timeout', /its time was up/)
})

const envdOf = (id) => findProcesses(isEnvd).find((one) => fs.readFileSync(`/proc/${one.pid}/cgroup`, 'utf8').includes(id))

test('its envd crashed', async () => {
  const { sandboxID } = await server.create()
  process.kill(envdOf(sandboxID).pid, 'SIGKILL')
  await checkEnded(sandboxID, 'crashed', /its first process crashed/)
})

test('out of memory', async () => {
  // A shared segment outlives the program that the kernel ends for it; then envd alone is there to ask for memory.
  const sandbox = await sdk.Sandbox.create()
  const segment = `import ctypes
c = ctypes.CDLL(None)
c.shmat.restype = ctypes.c_void_p
ctypes.memset(c.shmat(c.shmget(0, 1 << 29, 0o1600), None, 0), 1, 1 << 29)`
  await sandbox.commands.run(`python3 -c '${segment}'`, { user: 'root' }).catch(() => {})
  const file = Buffer.alloc(64 << 20, 'x')
  await eventually('envd is ended', async () => {
    await sandbox.files.write('/run/x', new Blob([file]), { user: 'root', requestTimeoutMs: 5000 }).catch(() => {})
    return !(await sandbox.isRunning().catch(() => false))
  }, 30_000)
  await checkEnded(sandbox.sandboxId, 'out of memory', /out of memory/)
})

test('it crashed while nobody looked', async () => {
  const { sandboxID } = await server.create()
  const serving = server.servingPid
  await server.kill9()
  try {
    process.kill(serving, 'SIGKILL')
  } catch {}
  for (const one of findProcesses(isEnvd)) process.kill(one.pid, 'SIGKILL')
  await eventually('they are gone', () => findProcesses(isEnvd).length === 0)
  await server.start()
  await checkEnded(sandboxID, 'crashed', /its first process crashed/)
})

test('the host restarted', async () => {
  // For a sandbox `down` is the same: its processes are gone, its files are there.
  const { sandboxID } = await server.create()
  await server.stop()
  execFileSync(binary, ['down', '--data', server.data], { stdio: 'pipe' })
  await server.start()
  await checkEnded(sandboxID, 'host restart', /the host restarted/)
})
