// What a sandbox's life costs: pause, resume, snapshot and fork, by how much was written.
import { loadSdk } from '../tests/harness/sdk.mjs'

const timed = async (fn) => {
  const began = performance.now()
  const value = await fn()
  return { value, ms: performance.now() - began }
}

export async function partLife(server, { measured, show, spread, note }) {
  const sdk = await loadSdk(server)
  const snapshots = {}
  const creates = []
  for (let round = 0; round < 20; round++) {
    const one = await timed(() => server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 }))
    creates.push(one.ms)
    await server.api('DELETE', `/sandboxes/${one.value.body.sandboxID}`)
  }
  for (const megabytes of [1, 100, 1000]) {
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
    const id = sandbox.sandboxId
    await sandbox.commands.run(`head -c ${megabytes}000000 /dev/urandom > /home/user/data && sync`, { timeoutMs: 120_000 })
    const pauses = []
    const resumes = []
    const taken = []
    for (let round = 0; round < 15; round++) {
      pauses.push((await timed(() => server.api('POST', `/sandboxes/${id}/pause`, {}))).ms)
      resumes.push((await timed(() => server.api('POST', `/v2/sandboxes/${id}/connect`, { timeout: 600 }))).ms)
      const one = await timed(() => server.api('POST', `/sandboxes/${id}/snapshots`, {}))
      taken.push(one.ms)
      await server.api('DELETE', `/templates/${encodeURIComponent(one.value.body.snapshotID)}`)
    }
    show(`pause, ${megabytes} MB written`, spread(pauses))
    show(`resume, ${megabytes} MB written`, spread(resumes))
    show(`snapshot, ${megabytes} MB written`, spread(taken))
    snapshots[megabytes] = spread(taken).p50
    if (megabytes === 1) measured.resume_vs_create = spread(resumes).p50 / spread(creates).p50
    if (megabytes === 100) {
      const forks = []
      for (let round = 0; round < 10; round++) {
        const one = await timed(() => server.api('POST', `/sandboxes/${id}/fork`, { count: 1, timeout: 600 }))
        forks.push(one.ms)
        for (const child of one.value.body) await server.api('DELETE', `/sandboxes/${child.sandbox.sandboxID}`)
      }
      show('fork, 100 MB written', spread(forks))
      const many = await timed(() => server.api('POST', `/sandboxes/${id}/fork`, { count: 100, timeout: 600 }))
      const good = many.value.body.filter((one) => one.sandbox)
      note('100 forks at once', many.ms, `ms, ${good.length} of 100`)
      await Promise.all(good.map((one) => server.api('DELETE', `/sandboxes/${one.sandbox.sandboxID}`)))
    }
    await sandbox.kill()
  }
  measured.snapshot_1000_vs_1 = snapshots[1000] / snapshots[1]
}
