// The control plane: listing with many rows, coming back after a crash, and events on their way out.
import { execFile } from 'node:child_process'
import http from 'node:http'
import path from 'node:path'
import { promisify } from 'node:util'
import { eventually } from '../tests/harness/server.mjs'

const execute = promisify(execFile)

// SQL on the server's store, beside the running server.
const sql = (server, text) =>
  execute('python3', ['-c', `import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], timeout=30)\ndb.executescript(sys.argv[2])\ndb.close()`, path.join(server.data, 'store/quicksand.db'), text])

const mapped = async (items, width, fn) => {
  const left = [...items]
  await Promise.all(Array.from({ length: width }, async () => {
    while (left.length) await fn(left.pop())
  }))
}

// Copies of one real row, half of them paused and half ended, started before it. The server has no
// sandboxes for them, so pages are only taken from the newer, real ones; but every query goes through all.
async function fill(server, id, count) {
  const { stdout } = await execute('python3', ['-c', `import sqlite3, sys\nprint(','.join(row[1] for row in sqlite3.connect(sys.argv[1]).execute('pragma table_info(sandboxes)')))`, path.join(server.data, 'store/quicksand.db')])
  const columns = stdout.trim().split(',')
  const special = { id: `'ibench' || substr('0000000000000' || n, -14)`, started_at_us: 'started_at_us - 3600000000 - n * 1000', state: `case n % 2 when 0 then 'paused' else 'ended' end` }
  const values = columns.map((name) => special[name] ?? name)
  await sql(server, `with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${count}) insert into sandboxes (${columns}) select ${values} from sandboxes, numbers where id = '${id}';`)
}

const PAGE = 49 // the real ones make two

async function pages(server, query, count) {
  const times = []
  for (let i = 0; i < count; i++) {
    const began = performance.now()
    const answer = await server.api('GET', `/v2/sandboxes?limit=${PAGE}${query}`)
    times.push(performance.now() - began)
    if (answer.body?.length !== PAGE) throw new Error(`a page of ${answer.body?.length}: ${answer.text.slice(0, 200)}`)
  }
  return times
}

export async function partList(server, { measured, show, spread }) {
  const boxes = await hold(server, 100, { metadata: { who: 'bench' } })
  const kinds = { 'first page': '', 'second page': '', 'running only': '&state=running', 'by metadata': '&metadata=who%3Dbench&state=running' }
  const { headers } = await server.api('GET', `/v2/sandboxes?limit=${PAGE}`)
  kinds['second page'] = `&nextToken=${encodeURIComponent(headers['x-next-token'])}`
  const found = {}
  for (const rows of [100, 100_000]) {
    if (rows > 100) await fill(server, boxes.map((box) => box.sandboxID)[0], rows - 100)
    for (const [kind, query] of Object.entries(kinds)) {
      await pages(server, query, 10)
      const result = spread(await pages(server, query, 100))
      show(`list, ${kind}, ${rows} rows`, result)
      ;(found[kind] ??= []).push(result.p50)
    }
  }
  measured.list_100000_vs_100 = Math.max(...Object.values(found).map(([few, many]) => many / few))
  await sql(server, `delete from sandboxes where id like 'ibench%';`)
  await mapped(boxes, 8, (box) => server.api('DELETE', `/sandboxes/${box.sandboxID}`))
}

async function hold(server, count, body = {}) {
  const ids = []
  await mapped(Array(count).keys(), 8, async () => ids.push(await server.create({ timeout: 3600, ...body })))
  return ids
}

// Milliseconds until the API answers, and until every sandbox does.
async function backAfter(server, boxes, crash) {
  const began = performance.now()
  await crash()
  await eventually('the API answers', () => server.api('GET', '/v2/sandboxes?limit=1').then((answer) => answer.status === 200, () => false), 120_000, 5)
  const api = performance.now() - began
  const failed = []
  await mapped(boxes, 32, async (box) => {
    const answer = await server.sandbox(box.sandboxID, 49983, '/health').catch(() => ({ status: 0 }))
    if (answer.status !== 204) failed.push(box.sandboxID)
  })
  if (failed.length) throw new Error(`${failed.length} sandboxes are gone`)
  return { api, all: performance.now() - began }
}

export async function partRecovery(server, { measured, note }) {
  const count = Number(process.env.BENCH_SANDBOXES ?? 1000)
  const boxes = await hold(server, count)
  const serving = await backAfter(server, boxes, () => process.kill(server.servingPid, 'SIGKILL'))
  note(`kill -9 of the server with ${count} live: API answers`, serving.api, 'ms')
  note(`kill -9 of the server with ${count} live: all answer`, serving.all, 'ms')
  const both = await backAfter(server, boxes, async () => {
    const pid = server.servingPid
    await server.kill9()
    try {
      process.kill(pid, 'SIGKILL')
    } catch {}
    await server.start()
  })
  note(`kill -9 of server and root process with ${count}: API answers`, both.api, 'ms')
  note(`kill -9 of server and root process with ${count}: all answer`, both.all, 'ms')
  measured.recovery_s = Math.max(serving.all, both.all) / 1000
  await mapped(boxes, 16, (box) => server.api('DELETE', `/sandboxes/${box.sandboxID}`))
}

export async function partWebhooks(server, { measured, note }) {
  const count = 2000
  let taken = 0
  let began, ended
  const receiver = http.createServer((request, response) => {
    request.resume()
    request.on('end', () => {
      began ??= performance.now()
      taken++
      if (taken === count) ended = performance.now()
      response.end()
    })
  })
  const box = await server.create({ timeout: 3600 })
  // Nobody listens yet: the events wait, so that making them is no part of what is measured.
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done))
  const { port } = receiver.address()
  await new Promise((done) => receiver.close(done))
  const hook = await server.api('POST', '/events/webhooks', { name: 'bench', url: `http://127.0.0.1:${port}/`, enabled: true, events: ['sandbox.lifecycle.updated'], signatureSecret: 'bench' })
  if (hook.status !== 201) throw new Error(hook.text)
  await mapped(Array(count).keys(), 8, () => server.api('POST', `/sandboxes/${box.sandboxID}/timeout`, { timeout: 3600 }))
  await new Promise((done) => receiver.listen(port, '127.0.0.1', done))
  await eventually('all are delivered', () => ended, 300_000, 50)
  note('webhook events delivered', (count - 1) / ((ended - began) / 1000), 'per second')
  measured.webhook_events_per_s = (count - 1) / ((ended - began) / 1000)
  receiver.closeAllConnections()
  receiver.close()
}
