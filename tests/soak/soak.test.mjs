// Random work for a long time: creates, commands, files, kills, time limits and restarts, then nothing is left.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'
import { counts, ofSandbox } from '../harness/leftovers.mjs'

const SECONDS = Number(process.env.SOAK_SECONDS ?? 300)
const MAX_LIVE = 40
let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const pick = (list) => list[Math.floor(Math.random() * list.length)]
const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1]) / 1024

test(`random work for ${SECONDS} s`, { timeout: (SECONDS + 120) * 1000 }, async () => {
  const live = new Map()
  const ended = []
  const tally = {}
  const actions = {
    async create() {
      if (live.size >= MAX_LIVE) return
      const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
      live.set(sandbox.sandboxId, sandbox)
    },
    async command(sandbox) {
      const word = Math.random().toString(36)
      assert.equal((await sandbox.commands.run(`echo ${word}`)).stdout, `${word}\n`)
    },
    async file(sandbox) {
      const text = Math.random().toString(36).repeat(5000)
      await sandbox.files.write('/tmp/soak', text)
      assert.equal(await sandbox.files.read('/tmp/soak'), text)
    },
    async busy(sandbox) {
      await shell(sandbox, 'head -c 20000000 /dev/urandom | md5sum')
    },
    async kill(sandbox) {
      live.delete(sandbox.sandboxId)
      await sandbox.kill()
      ended.push(sandbox.sandboxId)
    },
  }
  const worker = async (end) => {
    while (Date.now() < end) {
      const name = pick(['create', 'create', 'command', 'command', 'file', 'busy', 'kill'])
      const sandbox = pick([...live.values()])
      if (!sandbox && name !== 'create') continue
      try {
        await actions[name](sandbox)
        tally[name] = (tally[name] ?? 0) + 1
      } catch (error) {
        // Somebody else may have killed it meanwhile.
        if (live.has(sandbox?.sandboxId)) throw error
      }
    }
  }
  const slices = Math.max(1, Math.round(SECONDS / 60))
  const memory = []
  for (let slice = 0; slice < slices; slice++) {
    const end = Date.now() + (SECONDS * 1000) / slices
    await Promise.all(Array.from({ length: 8 }, () => worker(end)))
    memory.push(Math.round(rss()))
    if (slice % 2) await server.restart()
    else if (slice % 4 === 2) {
      await server.kill9()
      await server.start()
    }
    for (const id of ended.splice(0)) assert.deepEqual(ofSandbox(id, server.data), [])
  }
  console.log('done:', JSON.stringify(tally), 'memory of the server, MiB:', memory.join(' '), JSON.stringify(counts(server.servingPid)))
  await server.killAll()
  await sleep(1000)
  assert.deepEqual(await server.ids(), [])
})
