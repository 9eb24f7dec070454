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
  const end = Date.now() + SECONDS * 1000
  const creates = []
  const kills = []
  const lists = []
  let refused = 0
  let failed = 0

  const timed = async (times, ...request) => {
    const began = performance.now()
    const answer = await ask(...request).catch((error) => ({ status: 0, headers: {}, text: error.message }))
    const took = performance.now() - began
    if (answer.status >= 200 && answer.status < 300) {
      times.push(took)
    } else if (answer.status === 429) {
      refused++
      await sleep(1000 * Number(answer.headers['retry-after'] ?? 1) * (0.5 + Math.random()))
    } else {
      if (!failed++) console.log(`  failed: ${request[0]} ${request[1]}: ${answer.status} ${answer.text}`)
    }
    return answer
  }
  const loop = async () => {
    while (Date.now() < end) {
      const { status, body: made } = await timed(creates, 'POST', '/sandboxes', body)
      if (status === 201) await timed(kills, 'DELETE', `/sandboxes/${made.sandboxID}`)
    }
  }
  const list = async () => {
    while (Date.now() < end) await timed(lists, 'GET', '/sandboxes')
  }

  try {
    await Promise.all([...Array.from({ length: LOOPS }, loop), ...Array.from({ length: LISTERS }, list)])
  } finally {
    agent.destroy()
  }
  show(`create, ${LOOPS} loops of create and kill`, spread(creates))
  show('kill, the same', spread(kills))
  show(`GET /sandboxes meanwhile, ${LISTERS} clients`, spread(lists))
  note('creates per second', creates.length / SECONDS, 'per second')
  note('creates refused with 429', refused / SECONDS, 'per second')
  note('GET /sandboxes meanwhile', lists.length / SECONDS, 'per second')
  measured.load_failed = failed
  measured.list_vs_create_load = spread(lists).p50 / spread(creates).p50
}
