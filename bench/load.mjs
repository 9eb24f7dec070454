// The control plane at its limit: loops that create and kill without a pause (of which a create-queue of 64 refuses some, who come
// back later, as they are told), and somebody who wants lists meanwhile.
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

const LOOPS = 300
const LISTERS = 4
const SECONDS = Number(process.env.QUICKSAND_BENCH_SECONDS ?? 60)

export async function partLoad(server, { measured, show, note, spread }) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: LOOPS + LISTERS })
  const ask = (method, path, body) =>
    server.request({ method, path, agent, timeoutMs: 120_000, headers: { 'X-API-KEY': server.key, ...(body ? { 'Content-Type': 'application/json' } : {}) }, body })
  const body = JSON.stringify({ templateID: 'base', timeout: 300 })
  let failed = 0

  const timed = async (seen, times, ...request) => {
    const began = performance.now()
    const answer = await ask(...request).catch((error) => ({ status: 0, headers: {}, text: error.message }))
    const took = performance.now() - began
    if (answer.status >= 200 && answer.status < 300) {
      times.push(took)
    } else if (answer.status === 429) {
      seen.refused++
      await sleep(1000 * Number(answer.headers['retry-after'] ?? 1) * (0.5 + Math.random()))
    } else {
      if (!failed++) console.log(`  failed: ${request[0]} ${request[1]}: ${answer.status} ${answer.text}`)
    }
    return answer
  }
  // LOOPS loops for so long, beside so many who list.
  const load = async (seconds, listers) => {
    const seen = { creates: [], kills: [], lists: [], refused: 0 }
    const end = Date.now() + seconds * 1000
    const loop = async () => {
      while (Date.now() < end) {
        const { status, body: made } = await timed(seen, seen.creates, 'POST', '/sandboxes', body)
        if (status === 201) await timed(seen, seen.kills, 'DELETE', `/sandboxes/${made.sandboxID}`)
      }
    }
    const list = async () => {
      while (Date.now() < end) await timed(seen, seen.lists, 'GET', '/sandboxes')
    }
    await Promise.all([...Array.from({ length: LOOPS }, loop), ...Array.from({ length: listers }, list)])
    return seen
  }

  try {
    const alone = await load(SECONDS, 0)
    show(`create, ${LOOPS} loops of create and kill`, spread(alone.creates))
    show('kill, the same', spread(alone.kills))
    note('creates per second', alone.creates.length / SECONDS, 'per second')
    note('creates refused with 429', alone.refused / SECONDS, 'per second')
    const listed = await load(SECONDS / 4, LISTERS)
    show(`GET /sandboxes meanwhile, ${LISTERS} clients`, spread(listed.lists))
    note('GET /sandboxes meanwhile', listed.lists.length / (SECONDS / 4), 'per second')
    measured.load_failed = failed
    measured.list_vs_create_load = spread(listed.lists).p50 / spread(alone.creates).p50
  } finally {
    agent.destroy()
  }
}
