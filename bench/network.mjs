// What a policy costs: a create with one against a create without, and how long a change of one takes until it holds.
import { setTimeout as sleep } from 'node:timers/promises'

const rounds = Number(process.env.BENCH_ROUNDS ?? 100)

export async function partNetwork(server, { measured, show, spread }) {
  const few = { allowOut: ['198.51.100.0/24', '203.0.113.7'], denyOut: ['0.0.0.0/0'] }
  const many = { denyOut: Array.from({ length: 1000 }, (_, i) => `198.19.${i >> 8}.${i & 255}`) }
  const named = { allowOut: ['web.test', '*.allowed.test'], denyOut: ['0.0.0.0/0'] }
  const times = { without: [], few: [], named: [], many: [], change: [] }
  const create = async (name, network) => {
    const began = performance.now()
    const { status, body } = await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600, ...(network && { network }) })
    const took = performance.now() - began
    if (status !== 201) throw new Error(`create: ${status}`)
    times[name].push(took)
    return body.sandboxID
  }
  for (let i = 0; i < rounds; i++) {
    for (const [name, network] of [['without'], ['few', few], ['named', named], ['many', many]]) {
      const id = await create(name, network)
      if (name === 'many') {
        const began = performance.now()
        await server.api('PUT', `/sandboxes/${id}/network`, i % 2 ? {} : { ...many, allowOut: ['203.0.113.1'] })
        times.change.push(performance.now() - began)
      }
      await server.api('DELETE', `/sandboxes/${id}`)
      await sleep(20)
    }
  }
  for (const [name, text] of Object.entries({ without: 'create without a policy', few: 'create with one', named: 'create with one of names', many: 'create with one of 1,000 ranges', change: 'PUT of a policy of 1,000 ranges' }))
    show(text, spread(times[name].slice(3)))
  measured.policy_vs_plain_create = Math.max(spread(times.few).p50, spread(times.named).p50) / spread(times.without).p50
  measured.policy_change_ms = spread(times.change).p50
}
