// A directory with more entries than anybody expects. tests/soak has the same with a million.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

const ENTRIES = Number(process.env.DIRECTORY_ENTRIES ?? 205_000)
const WATCH_REMOVAL = ENTRIES >= 1_000_000
const LISTED = 20_000
const LONGEST_MS = 1000 // the machine may be busy with other things
const MEDIAN_MS = 25
const GREW_KIB = 4096
const directory = '/home/user/many'
const listed = '/home/user/listed'
const long = { timeoutMs: 0, requestTimeoutMs: 0 }

let server, sandbox, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 1_200_000 })
  const script = `
import os
for directory, count in (('${directory}', ${ENTRIES}), ('${listed}', ${LISTED})):
    os.mkdir(directory)
    os.chdir(directory)
    for i in range(count):
        os.close(os.open('entry-%07d' % i, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
`
  await sandbox.files.write('/tmp/make.py', script)
  await sandbox.commands.run('python3 /tmp/make.py', long)
})
after(() => server.destroy())

const memory = async () => Number(/VmRSS:\s+(\d+)/.exec((await sandbox.commands.run('cat /proc/1/status', { user: 'root' })).stdout)[1])

// Asks envd whether it is there, again and again, on a thread of its own: this one is busy with events.
const asker = `
const { parentPort, workerData } = require('node:worker_threads')
const http = require('node:http')
const waits = []
let done = false
function ask() {
  const from = performance.now()
  http.get({ ...workerData, path: '/health', agent: false }, (answer) => {
    answer.resume()
    answer.on('end', () => {
      waits.push(answer.statusCode === 204 ? performance.now() - from : Infinity)
      if (done) parentPort.postMessage(waits)
      else setTimeout(ask, 5)
    })
  })
}
parentPort.once('message', () => (done = true))
ask()
`

// Does something and says what others felt meanwhile: each question to envd must be answered soon.
async function watched(t, what, action) {
  const before = await memory()
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const worker = new Worker(asker, { eval: true, workerData: { host: server.host, port: server.port, headers } })
  await once(worker, 'online')
  const from = performance.now()
  let ms
  try {
    return await action()
  } finally {
    ms = performance.now() - from
    worker.postMessage('stop')
    const waits = (await once(worker, 'message'))[0].sort((a, b) => a - b)
    await worker.terminate()
    const most = waits.at(-1)
    t.diagnostic(`${what}: ${ms.toFixed(0)} ms; /health ${waits.length} times, median ${waits[waits.length >> 1].toFixed(1)} ms, 99 % ${waits[Math.floor(waits.length * 0.99)].toFixed(1)} ms, longest ${most.toFixed(1)} ms; agent ${before} KiB, then ${await memory()} KiB`)
    assert.ok(most < LONGEST_MS, `${what}: /health took ${most} ms`)
    if (waits.length > 100) assert.ok(waits[waits.length >> 1] < MEDIAN_MS, `${what}: /health takes ${waits[waits.length >> 1]} ms`)
  }
}

const tooMany = (error) => {
  assert.equal(error.constructor.name, 'RateLimitError', error.stack)
  assert.match(error.message, /resource_exhausted.*more than 200000 entries to list/)
  return true
}

test(`${ENTRIES} entries`, { timeout: 1_200_000 }, async (t) => {
  const first = await memory()

  await watched(t, 'ListDir', () => assert.rejects(sandbox.files.list(directory), tooMany))
  await watched(t, 'ListDir of the one above, two levels', () => assert.rejects(sandbox.files.list('/home/user', { depth: 2 }), tooMany))
  await watched(t, `ListDir of ${LISTED}, which is answered`, async () => assert.equal((await sandbox.files.list(listed)).length, LISTED))
  await watched(t, 'Stat', async () => {
    assert.equal((await sandbox.files.getInfo(directory)).type, 'dir')
    assert.equal((await sandbox.files.getInfo(`${directory}/entry-0000007`)).size, 0)
    assert.equal(await sandbox.files.exists(`${directory}/nothing`), false)
  })
  await watched(t, 'upload and download', async () => {
    await sandbox.files.write(`${directory}/entry-0000007`, 'replaced')
    await sandbox.files.write(`${directory}/zz/below`, 'new')
    assert.equal(await sandbox.files.read(`${directory}/entry-0000007`), 'replaced')
    assert.equal(await sandbox.files.read(`${directory}/zz/below`), 'new')
  })
  await watched(t, 'rename', async () => {
    await sandbox.files.rename(directory, `${directory}-2`)
    await sandbox.files.rename(`${directory}-2`, directory)
  })

  for (const recursive of [false, true]) {
    await watched(t, `WatchDir, recursive ${recursive}`, async () => {
      const seen = []
      const handle = await sandbox.files.watchDir(directory, (event) => seen.push(`${event.type} ${event.name}`), { recursive, timeoutMs: 0 })
      await sandbox.files.write(`${directory}/zz/watched`, 'x')
      await sandbox.files.write(`${directory}/plain`, 'x')
      await eventually('the events', () => seen.includes('create plain') && (!recursive || seen.includes('create zz/watched')), 30_000)
      await handle.stop()
      await sandbox.files.remove(`${directory}/plain`)
      await sandbox.files.remove(`${directory}/zz/watched`)
    })
  }

  // Every entry that goes is told, or the watcher is told that it was not. Takes as long again.
  let removed = 0
  let end
  if (WATCH_REMOVAL) await sandbox.files.watchDir(directory, (event) => (removed += event.type === 'remove'), { timeoutMs: 0, onExit: (error) => (end = error ?? 'ended') })
  await watched(t, 'Remove', () => sandbox.files.remove(directory, { requestTimeoutMs: 0 }))
  assert.equal(await sandbox.files.exists(directory), false)
  if (WATCH_REMOVAL) {
    await eventually('all events, or an error', () => removed >= ENTRIES || end, 60_000)
    if (removed < ENTRIES) assert.match(String(end?.message), /resource_exhausted/)
    t.diagnostic(`events of the removal: ${removed}${end ? `, then ${end.message}` : ''}`)
  }

  assert.equal((await sandbox.commands.run('echo fine')).stdout, 'fine\n')
  const last = await memory()
  assert.ok(last < first + GREW_KIB, `envd had ${first} KiB, now ${last}`)
})
