// The agent runtime: what "the sandbox for this key" costs over a plain create, commands, jobs, and how fast the
// events of many sessions reach those who follow them.
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from '../tests/harness/mcp.mjs'
import { loadSdk } from '../tests/harness/sdk.mjs'
import { eventually } from '../tests/harness/server.mjs'

const timed = async (fn) => {
  const began = performance.now()
  const value = await fn()
  return { value, ms: performance.now() - began }
}

// Requests on kept connections, as any client of the runtime would make them.
function client(server) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
  return async (method, path, body) => {
    const answer = await server.request({
      method,
      path,
      headers: { 'X-API-KEY': server.key, 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      timeoutMs: 120_000,
      agent,
    })
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    return answer.body
  }
}

export async function partEnsure(server, { measured, show, spread }) {
  const call = client(server)
  const raw = []
  const miss = []
  const hit = []
  await call('POST', '/api/v1/sandboxes', { key: 'bench-hit' })
  // Each after the same rest: a server that was idle for a moment wakes slower than one at work.
  for (let round = 0; round < 150; round++) {
    await sleep(30)
    const plain = await timed(() => call('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 }))
    await call('DELETE', `/sandboxes/${plain.value.sandboxID}`)
    await sleep(30)
    const keyed = await timed(() => call('POST', '/api/v1/sandboxes', { key: `bench-${round}` }))
    await call('DELETE', `/api/v1/sandboxes/${keyed.value.id}`)
    await sleep(30)
    const again = await timed(() => call('POST', '/api/v1/sandboxes', { key: 'bench-hit' }))
    if (again.value.tier !== 'resumed') throw new Error(`tier ${again.value.tier}`)
    raw.push(plain.ms)
    miss.push(keyed.ms)
    hit.push(again.ms)
  }
  show('plain create', spread(raw))
  show('ensure, none there', spread(miss))
  show('ensure, it runs', spread(hit))
  measured.ensure_miss_ms = spread(miss).p50 - spread(raw).p50
  measured.ensure_miss_vs_create = spread(miss).p50 / spread(raw).p50
  measured.ensure_hit_vs_create = spread(hit).p50 / spread(raw).p50
}

async function execute(server, call, { measured, show, spread }) {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
  const ours = await call('POST', '/api/v1/sandboxes', {})
  const { client: mcp } = await connect(`${server.url}/mcp`, 'sdk', { headers: { Authorization: `Bearer ${server.key}` } })
  const owned = (await mcp.callTool({ name: 'run_command', arguments: { command: 'true' } })).structuredContent.sandbox_id
  const theirs = []
  const mine = []
  const tool = []
  for (let round = 0; round < 150; round++) {
    theirs.push((await timed(() => sandbox.commands.run('true'))).ms)
    mine.push((await timed(() => call('POST', `/api/v1/sandboxes/${ours.id}/execute`, { command: 'true' }))).ms)
    tool.push((await timed(() => mcp.callTool({ name: 'run_command', arguments: { command: 'true' } }))).ms)
  }
  show('execute through /api/v1', spread(mine))
  show('commands.run of the SDK', spread(theirs))
  show('run_command by MCP, in the own sandbox', spread(tool))
  measured.mcp_vs_sdk = spread(tool).p50 / spread(theirs).p50
  measured.execute_vs_sdk = spread(mine).p50 / spread(theirs).p50
  await mcp.close()
  await sandbox.kill()
  for (const id of [ours.id, owned]) await call('DELETE', `/api/v1/sandboxes/${id}`)
}

async function jobs(server, call, { note }) {
  const sandboxes = await Promise.all([...Array(5)].map(() => call('POST', '/api/v1/sandboxes', {})))
  let done = 0
  const began = performance.now()
  await Promise.all(
    sandboxes.flatMap((one) =>
      [...Array(4)].map(async () => {
        for (let i = 0; i < 10; i++) {
          const job = await call('POST', `/api/v1/sandboxes/${one.id}/execute`, { command: 'true', background: true })
          await eventually('job', async () => (await call('GET', `/api/v1/sandboxes/${one.id}/processes/${job.id}?wait=10`)).state === 'completed', 20_000, 5)
          done++
        }
      }),
    ),
  )
  note('background jobs, start to known end', (done / (performance.now() - began)) * 1000, 'jobs/s')
  await Promise.all(sandboxes.map((one) => call('DELETE', `/api/v1/sandboxes/${one.id}`)))
}

// Follows one session; notes how old each event is when it arrives. Event ids are microseconds of the wall clock.
function follow(server, id, ages) {
  return new Promise((done, fail) => {
    const request = http.get({ host: server.host, port: server.port, path: `/api/v1/sessions/${id}/stream`, headers: { 'X-API-KEY': server.key, accept: 'text/event-stream' }, agent: false }, (response) => {
      response.on('data', (chunk) => {
        const now = (performance.timeOrigin + performance.now()) * 1000
        for (const match of chunk.toString().matchAll(/^id: ?(\d+)$/gm)) ages.push((now - Number(match[1])) / 1000)
      })
      response.on('error', () => {})
      done(request)
    })
    request.on('error', fail)
  })
}

async function fanOut(server, call, { show, note, spread, measured }, sandboxCount, each) {
  const sessions = []
  const began = performance.now()
  for (let i = 0; i < sandboxCount; i++) {
    const sandbox = await call('POST', '/api/v1/sandboxes', { persistent: true, lifecycle: { idleTimeoutSeconds: 3600 } })
    sessions.push(await call('POST', '/api/v1/sessions', { agent: 'mock', sandbox_id: sandbox.id, wait: true }))
    const rest = await Promise.all([...Array(each - 1)].map(() => call('POST', '/api/v1/sessions', { agent: 'mock', sandbox_id: sandbox.id, wait: true })))
    sessions.push(...rest)
  }
  const bad = sessions.filter((one) => one.state !== 'running')
  if (bad.length) throw new Error(`${bad.length} sessions did not start: ${JSON.stringify(bad[0])}`)
  note(`${sessions.length} sessions provisioned`, (performance.now() - began) / 1000, 's')
  const ages = []
  const requests = await Promise.all(sessions.map((one) => follow(server, one.id, ages)))
  await sleep(1000)
  ages.length = 0
  for (const one of sessions) {
    await call('POST', `/api/v1/sessions/${one.id}/messages`, { message: 'hello' })
  }
  await sleep(1500)
  show(`age of an event at its reader, ${sessions.length} sessions`, spread(ages))
  measured.fan_out_ms = spread(ages).p50
  for (const request of requests) request.destroy()
  for (const one of (await call('GET', '/api/v1/sandboxes?limit=1000')).sandboxes) await call('DELETE', `/api/v1/sandboxes/${one.id}`)
}

export async function partRuntime(server, tools) {
  const call = client(server)
  await execute(server, call, tools)
  await jobs(server, call, tools)
  await fanOut(server, call, tools, Number(process.env.BENCH_SANDBOXES ?? 50), 20)
}
