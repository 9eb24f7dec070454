// Starting from anything against a warm create of the base: templates, snapshots, forks; many at once; many live.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findProcesses, isEnvd } from '../tests/harness/leftovers.mjs'
import { repository } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const probe = path.join(repository, 'build/bench/probe')
const rounds = Number(process.env.BENCH_ROUNDS ?? 30)
const live = Number(process.env.BENCH_LIVE ?? 5000)

// Milliseconds of each run of the probe.
async function probed(...args) {
  const { stdout } = await execute(probe, args.map(String), { maxBuffer: 1 << 26 })
  return stdout.trim().split('\n').map((line) => Number(line) / 1000)
}

// Layers of a few files on the base, and a template of them, as an operator installs one.
async function install(server, name, layers) {
  const names = Array.from({ length: layers }, (_, i) => `${name}${i}`)
  for (const one of names) {
    const dir = path.join(server.data, 'layers', one, 'opt', one)
    fs.mkdirSync(dir, { recursive: true })
    fs.writeFileSync(path.join(dir, 'file'), one)
  }
  const script = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10)
db.row_factory = sqlite3.Row
row = dict(db.execute("SELECT * FROM templates WHERE alias = 'base'").fetchone())
row.update(id=sys.argv[2], alias=sys.argv[2], layers=row['layers'] + ',' + sys.argv[3])
db.execute('INSERT INTO templates (%s) VALUES (%s)' % (','.join(row), ','.join('?' * len(row))), list(row.values()))
db.commit()`
  await execute('python3', ['-c', script, path.join(server.data, 'store/quicksand.db'), name, names.join(',')])
  return name
}

// A template that somebody built just now.
async function build(server, name) {
  const { templateID, buildID } = (await server.api('POST', '/v3/templates', { name })).body
  await server.api('POST', `/v2/templates/${templateID}/builds/${buildID}`, { fromTemplate: 'base', steps: [{ type: 'RUN', args: [`echo ${name} > /etc/built`, 'root'] }] })
  for (;;) {
    const { status } = (await server.api('GET', `/templates/${templateID}/builds/${buildID}/status`)).body
    if (status === 'ready') break
    if (status === 'error') throw new Error(`the build of ${name} failed`)
    await sleep(50)
  }
  await sleep(1000) // its boxes go, and one of it is made
  return name
}

const removeAll = async (server) => {
  for (;;) {
    const ids = (await server.api('GET', '/v2/sandboxes?limit=100')).body.map((one) => one.sandboxID)
    if (!ids.length) return
    await Promise.all(ids.map((id) => server.api('DELETE', `/sandboxes/${id}`)))
  }
}

export async function partStart(server, { measured, show, spread, note }) {
  const box = (await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 3600 })).body.sandboxID
  const times = { base: [], layers: [], fresh: [], snapshot: [], fork: [] }
  const one = (template) => probed('create', 1, server.port, server.key, 0, template)
  const many = await install(server, 'twenty', 20)
  const snapshot = (await server.api('POST', `/sandboxes/${box}/snapshots`, {})).body.snapshotID
  // A connection's first request costs more than others: all of them are first ones.
  for (let i = 0; i < rounds; i++) {
    const fresh = await build(server, `fresh${i}`)
    for (const [what, measure] of Object.entries({
      base: () => one('base'),
      layers: () => one(many),
      fresh: () => one(fresh),
      snapshot: () => one(snapshot),
      fork: () => probed('fork', 1, server.port, server.key, box),
    })) {
      await sleep(20) // what the one before left to do
      times[what].push(...(await measure()))
    }
  }
  const names = { base: 'create, warm, of the base', layers: 'create from 20 layers', fresh: 'create from a template never started', snapshot: 'create from a snapshot', fork: 'fork of one' }
  for (const [what, list] of Object.entries(times)) show(names[what], spread(list))
  const warm = spread(times.base).p50
  measured.layers_vs_warm_create = spread(times.layers).p50 / warm
  measured.fresh_vs_warm_create = spread(times.fresh).p50 / warm
  measured.snapshot_vs_warm_create = spread(times.snapshot).p50 / warm
  measured.fork_one_vs_warm_create = spread(times.fork).p50 / warm
  await removeAll(server)
  await sleep(1000)
  const sequence = spread(await probed('create', 2000, server.port, server.key, 20))
  show('create, 2000 one after another', sequence)
  measured.create_p99_vs_p50 = sequence.p99 / sequence.p50
  await sleep(2000)
  const burst = await probed('burst', 100, server.port, server.key)
  note('100 creates at once (C client), all answered', Math.max(...burst), 'ms')
  measured.burst_ms = Math.max(...burst)
  await removeAll(server)
}

const availableMib = () => {
  fs.writeFileSync('/proc/sys/vm/drop_caches', '3')
  return Number(/MemAvailable:\s+(\d+)/.exec(fs.readFileSync('/proc/meminfo', 'utf8'))[1]) / 1024
}

// Blank boxes are made of nothing but what every box has: the second server has 200 more of them.
export async function partBlank(server, { measured, note }) {
  const settled = async (boxes) => {
    while (findProcesses(isEnvd).length < boxes) await sleep(100)
    await execute('sync')
    await sleep(3000)
    return availableMib()
  }
  const before = await settled(0)
  server.args = [...server.args, '--warm', '0', '--blank', '200']
  await server.restart()
  const after = await settled(200)
  measured.blank_memory_mib = (before - after) / 200
  note('idle memory of a blank box', measured.blank_memory_mib, 'MiB')
}

export async function partMany(server, { measured, show, note, spread }) {
  await sleep(3000)
  const start = availableMib()
  await probed('hold', 10, server.port, server.key)
  const few = spread(await probed('create', 100, server.port, server.key, 5))
  show('create with 10 live', few)
  for (let held = 10; held < live; held += 110) await probed('hold', Math.min(110, live - held), server.port, server.key)
  await sleep(5000)
  measured.idle_memory_5000_mib = (start - availableMib()) / live
  note(`host memory of an idle sandbox with ${live} live`, measured.idle_memory_5000_mib, 'MiB')
  const lots = spread(await probed('create', 100, server.port, server.key, 5))
  show(`create with ${live} live`, lots)
  measured.create_5000_vs_10 = lots.p50 / few.p50
  await removeAll(server)
}
