// Random work for a long time, and what it costs: first without a break, where memory, descriptors, threads and what
// is on the host must come back to what they were after each round; then with restarts, after which nothing is left.
//
// The server remembers things up to a bound: 8192 events of the runtime, why the last 4096 sandboxes ended, 2 MB of pages
// for each connection to its database. FILL sandboxes before anything is measured fill what would look like a leak.
//
// SOAK_SECONDS says how long, SOAK_SEED what: each worker's choices follow from it, only their order among each
// other does not.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { envdOf } from '../harness/chaos.mjs'
import { cgroups, counts, ofSandbox } from '../harness/leftovers.mjs'
import { randomFrom, seedOf } from '../harness/random.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

const SECONDS = Number(process.env.SOAK_SECONDS ?? 300)
const SEED = seedOf('SOAK_SEED')
const WORKERS = 8
const MOST = 40 // sandboxes besides the steady ones
const STEADY = 3 // that live through all of it
const ROUND_SECONDS = 20
const FILL = 2100 // each is four events

// What may be more than after the first two rounds, however long it takes: KiB of memory that is nobody else's,
// descriptors, threads. Allocators keep what they once needed, pools of threads shrink late; the four connections that
// only read may still fill their pages, 2 MB each.
const MAY_GROW = {
  server: { memory: 8 * 1024, descriptors: 20, threads: 8 },
  warden: { memory: 2 * 1024, descriptors: 10, threads: 4 },
  envd: { memory: 1024, descriptors: 4, threads: 2 },
}
const MAY_GROW_HOST = { processes: 2, mounts: 2, networkNamespaces: 2, links: 2, cgroups: 4 }

let server, sdk
before(async () => {
  server = await startServer({ args: ['--warm', '2'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

function processCosts(pid) {
  const status = fs.readFileSync(`/proc/${pid}/status`, 'utf8')
  const value = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)[1])
  return { memory: value('RssAnon'), descriptors: fs.readdirSync(`/proc/${pid}/fd`).length, threads: value('Threads') }
}

function costs(steady) {
  const { descriptors, ...host } = counts()
  const processes = { server: processCosts(server.servingPid), warden: processCosts(server.child.pid) }
  steady.forEach((sandbox, at) => (processes[`envd ${at}`] = processCosts(envdOf(sandbox.sandboxId))))
  const instance = fs.readFileSync(`${server.data}/instance`, 'utf8').trim()
  return { processes, host: { ...host, cgroups: cgroups(instance).length } }
}

// Each as a line: what has grown by more than it may.
function grown(before, now) {
  const lines = []
  const compare = (who, old, value, limits) => {
    for (const [name, limit] of Object.entries(limits)) if (value[name] - old[name] > limit * patience) lines.push(`${who}: ${name} ${old[name]} became ${value[name]}`)
  }
  for (const [who, value] of Object.entries(now.processes)) compare(who, before.processes[who], value, MAY_GROW[who.split(' ')[0]])
  compare('host', before.host, now.host, MAY_GROW_HOST)
  return lines
}

const tally = {}
const live = new Map()
const ended = []
let steady = []

const actions = {
  async create() {
    if (live.size >= MOST) return
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
    live.set(sandbox.sandboxId, sandbox)
  },
  async command(sandbox, random) {
    const word = `w${random(1e9)}`
    assert.equal((await sandbox.commands.run(`echo ${word}`)).stdout, `${word}\n`)
  },
  async file(sandbox, random) {
    const name = `/tmp/soak-${random(1e9)}`
    const text = `${random(1e9)} `.repeat(5000)
    await sandbox.files.write(name, text)
    assert.equal(await sandbox.files.read(name), text)
    await sandbox.files.remove(name)
  },
  async busy(sandbox) {
    await shell(sandbox, 'head -c 20000000 /dev/urandom | md5sum')
  },
  async terminal(sandbox) {
    let seen = ''
    const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (seen += Buffer.from(data)) })
    await sandbox.pty.sendInput(handle.pid, new TextEncoder().encode('echo ter""minal\n'))
    await eventually('the terminal', () => seen.includes('terminal'), 30_000)
    await handle.kill()
  },
  async snapshot(sandbox) {
    if (steady.includes(sandbox)) return // two at once are refused
    const { snapshotId } = await sandbox.createSnapshot()
    await sdk.Sandbox.deleteSnapshot(snapshotId)
  },
  async pause(sandbox, random) {
    if (steady.includes(sandbox)) return
    await sandbox.pause({ keepMemory: random(2) === 0 })
    await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
  },
  async kill(sandbox) {
    if (steady.includes(sandbox)) return
    live.delete(sandbox.sandboxId)
    await sandbox.kill()
    ended.push(sandbox.sandboxId)
  },
}
const CHOICES = ['create', 'create', 'create', 'command', 'command', 'file', 'busy', 'terminal', 'snapshot', 'pause', 'kill', 'kill']

// Others may have paused or killed it meanwhile; a steady one is nobody's to end.
const otherHadIt = (sandbox) => !steady.includes(sandbox)

async function worker(random, end) {
  while (Date.now() < end) {
    const name = CHOICES[random(CHOICES.length)]
    const all = [...steady, ...live.values()]
    const sandbox = all[random(all.length)]
    try {
      await actions[name](sandbox, random)
      tally[name] = (tally[name] ?? 0) + 1
    } catch (error) {
      if (name === 'create' || !otherHadIt(sandbox)) throw error
      tally.disturbed = (tally.disturbed ?? 0) + 1
    }
  }
}

const randoms = Array.from({ length: WORKERS }, (_, at) => randomFrom(SEED * 100 + at))
const work = (seconds) => {
  const end = Date.now() + seconds * 1000
  return Promise.all(randoms.map((random) => worker(random, end)))
}

async function killAllButSteady() {
  await Promise.all([...live.values()].map((sandbox) => sandbox.kill()))
  ended.push(...live.keys())
  live.clear()
  for (const id of ended.splice(0)) await eventually(`nothing of ${id} is left`, () => ofSandbox(id, server.data).length === 0, 30_000)
}

async function fill() {
  let left = FILL
  const one = async () => {
    while (left-- > 0) {
      const { status, body } = await server.api('POST', '/sandboxes', { templateID: 'base' })
      assert.equal(status, 201, JSON.stringify(body))
      assert.equal((await server.api('DELETE', `/sandboxes/${body.sandboxID}`)).status, 204)
    }
  }
  await Promise.all(Array.from({ length: WORKERS }, one))
}

test(`random work for ${SECONDS} s, SOAK_SEED=${SEED}`, { timeout: (SECONDS * 2 + 600) * 1000 * patience }, async (t) => {
  steady = await Promise.all(Array.from({ length: STEADY }, () => sdk.Sandbox.create('base', { timeoutMs: 86_400_000 })))
  await fill()
  const rounds = Math.max(3, Math.round((SECONDS * 0.7) / ROUND_SECONDS))
  let warm
  for (let round = 0; round < rounds; round++) {
    await work((SECONDS * 0.7) / rounds)
    await killAllButSteady()
    if (round < 1) continue
    warm ??= costs(steady)
    const now = await eventually('costs are as after the first rounds', () => (grown(warm, costs(steady)).length ? undefined : costs(steady)), 30_000, 500).catch(() => costs(steady))
    t.diagnostic(`round ${round}: ${JSON.stringify(now)}`)
    assert.deepEqual(grown(warm, now), [], `after round ${round}: ${JSON.stringify(tally)}`)
  }
  for (const restart of [() => server.restart(), () => server.kill9().then(() => server.start())]) {
    await work((SECONDS * 0.3) / 2)
    await restart()
    await killAllButSteady()
  }
  t.diagnostic(JSON.stringify(tally))
  for (const name of new Set(CHOICES)) assert.ok(tally[name] > 0, `no ${name} was done`)
  for (const sandbox of steady) assert.equal((await sandbox.commands.run('echo there')).stdout, 'there\n')
  await server.killAll()
  await eventually('nobody is left', async () => (await server.ids()).length === 0)
})
