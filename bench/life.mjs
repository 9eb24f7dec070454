// What a sandbox's life costs: pause, resume, snapshot and fork, by how much was written.
import { loadSdk } from '../tests/harness/sdk.mjs'
import { podmanPeer } from './podman.mjs'

const sizes = [1, 100, 1000] // MB
const rounds = Number(process.env.BENCH_ROUNDS ?? 30)

const timed = async (fn) => {
  const began = performance.now()
  const value = await fn()
  return { value, ms: performance.now() - began }
}

async function creates(server, count) {
  const times = []
  for (let round = 0; round < count; round++) {
    const one = await timed(() => server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 }))
    times.push(one.ms)
    await server.api('DELETE', `/sandboxes/${one.value.body.sandboxID}`)
  }
  return times
}

async function prepare(sdk, megabytes) {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 3600_000 })
  await sandbox.commands.run(`head -c ${megabytes}000000 /dev/urandom > /home/user/data && sync`, { timeoutMs: 120_000 })
  return { sandbox, megabytes, times: { pause: [], resume: [], snapshot: [], fork: [] } }
}

async function round(server, { sandbox: { sandboxId: id }, times }) {
  times.pause.push((await timed(() => server.api('POST', `/sandboxes/${id}/pause`, {}))).ms)
  times.resume.push((await timed(() => server.api('POST', `/v2/sandboxes/${id}/connect`, { timeout: 600 }))).ms)
  const snapshot = await timed(() => server.api('POST', `/sandboxes/${id}/snapshots`, {}))
  times.snapshot.push(snapshot.ms)
  await server.api('DELETE', `/templates/${encodeURIComponent(snapshot.value.body.snapshotID)}`)
  const fork = await timed(() => server.api('POST', `/sandboxes/${id}/fork`, { count: 1, timeout: 600 }))
  times.fork.push(fork.ms)
  for (const child of fork.value.body) await server.api('DELETE', `/sandboxes/${child.sandbox.sandboxID}`)
}

export async function partLife(server, { measured, show, spread, note, scratch }) {
  const sdk = await loadSdk(server)
  const warm = spread((await creates(server, rounds + 5)).slice(5))
  show('create, warm (from the pool)', warm)
  const all = []
  for (const megabytes of sizes) all.push(await prepare(sdk, megabytes))
  // In turn, so that the sizes are compared in the same minute.
  for (let i = 0; i < rounds; i++) for (const one of all) await round(server, one)
  const p50 = {}
  for (const { megabytes, times } of all) {
    for (const [what, list] of Object.entries(times)) {
      show(`${what}, ${megabytes} MB written`, spread(list))
      ;(p50[what] ??= {})[megabytes] = spread(list).p50
    }
  }
  const many = await timed(() => server.api('POST', `/sandboxes/${all[1].sandbox.sandboxId}/fork`, { count: 100, timeout: 600 }, { timeoutMs: 120_000 }))
  const good = many.value.body.filter((one) => one.sandbox)
  note('100 forks at once, 100 MB written', many.ms, `ms, ${good.length} of 100`)
  measured.forks_failed = 100 - good.length
  await Promise.all(good.map((one) => server.api('DELETE', `/sandboxes/${one.sandbox.sandboxID}`)))
  for (const { sandbox } of all) await sandbox.kill()
  for (const [what, by] of Object.entries(p50)) note(`${what}: 1 GB against 1 MB, p50`, by[1000] / by[1], '×')
  measured.snapshot_1000_vs_1 = p50.snapshot[1000] / p50.snapshot[1]
  measured.fork_vs_warm_create = p50.fork[1] / warm.p50

  const podman = await podmanPeer(process.env.QUICKSAND_BASE_LAYER, scratch)
  if (podman.reason) {
    console.log(`  podman: not measured: ${podman.reason}`)
  } else {
    try {
      const times = []
      for (let round = 0; round < 15; round++) times.push(await podman.createAndStart())
      show('podman create+start (API socket)', spread(times))
      measured.resume_vs_podman = p50.resume[1] / spread(times).p50
    } finally {
      await podman.stop()
    }
  }

  // Without a pool every create starts a box, which is what a fork has to do as well; in turn again.
  server.args = [...server.args, '--warm', '0']
  await server.restart()
  const source = await prepare(sdk, 1)
  const cold = []
  const forks = []
  for (let i = 0; i < rounds; i++) {
    cold.push(...(await creates(server, 1)))
    const fork = await timed(() => server.api('POST', `/sandboxes/${source.sandbox.sandboxId}/fork`, { count: 1, timeout: 600 }))
    forks.push(fork.ms)
    for (const child of fork.value.body) await server.api('DELETE', `/sandboxes/${child.sandbox.sandboxID}`)
  }
  show('create, cold (--warm 0)', spread(cold))
  show('fork beside it', spread(forks))
  measured.fork_vs_cold_create = spread(forks).p50 / spread(cold).p50
  // Right behind the removal of a snapshot the disk is busy with it.
  for (let i = 0; i < rounds; i++) await round(server, source)
  show('fork behind a snapshot’s removal', spread(source.times.fork))
  await source.sandbox.kill()
}
