// Background jobs of the runtime: their rows, logs, ends and callbacks, over restarts and killed sandboxes.
import assert from 'node:assert/strict'
import http from 'node:http'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { destroyAll, refused, startRuntime } from '../harness/runtime.mjs'
import { findProcesses } from '../harness/leftovers.mjs'
import { eventually, timely } from '../harness/server.mjs'
import { openEvents } from '../harness/sse.mjs'

let one, box
before(async () => {
  one = await startRuntime({ jobs_per_sandbox: 3 })
  box = await one.create({ key: 'jobs', agent_id: 'worker', task_id: 'task-1' })
})
after(() => destroyAll(one))
afterEach(() => assert.ok(one.server.alive(), `the server died:\n${one.server.tail()}`))

const engineId = async (id) => (await one.get(id)).external_id
const ended = (id, seconds = 20) => one.process(id, `?wait=${seconds}`)
const logs = async (id, rest = '') => (await one.v1('GET', `/sandboxes/-/processes/${id}/logs${rest}`)).text

// Somebody who wants to be told; fails as often as it is told to.
async function receiver(t, port = 0) {
  const one = { seen: [], failures: 0 }
  const server = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      const fails = one.failures-- > 0
      one.seen.push({ method: request.method, path: request.url, headers: request.headers, body: JSON.parse(text), at: performance.now(), fails })
      response.writeHead(fails ? 500 : 204).end()
    })
  })
  await new Promise((done) => server.listen(port, '127.0.0.1', done))
  one.port = server.address().port
  one.url = `http://127.0.0.1:${one.port}/sandbox-jobs/r1/complete`
  one.close = () => {
    server.closeAllConnections()
    return new Promise((done) => server.close(done))
  }
  t.after(() => one.close())
  return one
}

describe('a job', () => {
  test('has a row, a log with a cursor, and an end', async () => {
    const job = await one.start(box.id, 'echo out; echo err >&2; sleep 1; echo last; exit 5')
    assert.deepEqual([job.state, job.exit_code, job.agent_id, job.sandbox_id], ['running', null, 'worker', box.id])
    assert.match(job.id, /^job_[A-Za-z0-9_-]+$/)
    await eventually('output', async () => (await logs(job.id)) === 'out\nerr\n')
    assert.equal(await logs(job.id, '?after=4'), 'err\n')
    const stream = await openEvents(one.server, `/api/v1/sandboxes/-/processes/${job.id}/logs?after=4`)
    assert.equal((await stream.find((event) => event.event === 'exit')).json.exit_code, 5)
    assert.equal(stream.events.filter((event) => event.event === 'output').map((event) => event.json.data).join(''), 'err\nlast\n')
    const end = await ended(job.id)
    assert.deepEqual([end.state, end.exit_code], ['failed', 5])
    assert.ok(end.ended_at > end.started_at)
    assert.equal(await logs(job.id, '?after=8'), 'last\n')
    const types = (await one.events({ sandbox_id: box.id })).filter((event) => event.process === job.id)
    assert.deepEqual(types.map((event) => event.type), ['process.started', 'process.exited'])
    assert.deepEqual([types[1].data.exit_code, types[1].agent], [5, 'worker'])
  })

  test('that memory killed says so, as a command does: in the answer, the stream, the row and the events', { timeout: 300_000 }, async () => {
    const greedy = `python3 -c "
x = []
while True: x.append(bytearray(16 << 20))"`
    const told = await one.ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: greedy })
    assert.deepEqual([told.exit_code, told.reason], [137, 'out of memory'])
    const text = (await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: greedy, stream: true })).text
    const exit = JSON.parse(text.trim().split('\n').at(-1))
    assert.deepEqual([exit.type, exit.exit_code, exit.reason], ['exit', 137, 'out of memory'])
    const job = await one.start(box.id, greedy)
    const end = await ended(job.id)
    assert.deepEqual([end.state, end.exit_code, end.error], ['failed', 137, 'out of memory'])
    const reasons = (await one.events({ sandbox_id: box.id, type: 'process.exited' })).map((event) => event.data.reason).filter(Boolean)
    assert.deepEqual(reasons, Array(3).fill('out of memory'))
    // Not when it was something else.
    const other = await one.ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'kill -9 $$' })
    assert.deepEqual([other.exit_code, other.reason], [137, undefined])
  })

  test('runs in its directory with its variables, and without its caller', async () => {
    const job = await one.start(box.id, 'pwd; echo $A; sleep 1; cat', { cwd: '/tmp', env: { A: 'b c' } })
    assert.equal((await ended(job.id)).exit_code, 0, 'its standard input is empty')
    assert.equal(await logs(job.id), '/tmp\nb c\n')
  })

  test('that is stopped has 143, with all it has started; again is fine', async () => {
    const job = await one.start(box.id, '(trap "" TERM; exec -a left-over sleep 1000) & exec -a left-over sleep 1000')
    await eventually('both run', async () => (await one.output(box.id, 'pgrep -fc "^left-over" || true')) === '2\n')
    const stopped = await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${job.id}/stop`)
    assert.deepEqual([stopped.state, stopped.exit_code], ['cancelled', 143])
    assert.equal(await one.output(box.id, 'pgrep -fc "^left-over" || true'), '0\n')
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${job.id}/stop`)).exit_code, 143)
  })

  test('that gets a signal of its own has that end', async () => {
    const job = await one.start(box.id, 'trap "echo usr; exit 9" USR1; echo ready; while :; do sleep 0.1; done')
    await eventually('it listens', async () => (await logs(job.id)) === 'ready\n')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${job.id}/signal`, { signal: 'SIGUSR1' })
    assert.equal((await ended(job.id)).exit_code, 9)
  })

  test('has a timeout', async () => {
    const job = await one.start(box.id, 'sleep 100', { timeout: 1 })
    const end = await ended(job.id)
    assert.deepEqual([end.state, end.exit_code], ['failed', 124])
  })

  test('that is refused was never there', async (t) => {
    const there = await receiver(t)
    const list = async () => (await one.ok(200, 'GET', `/sandboxes/${box.id}/processes`)).processes.map(({ id }) => id)
    const before = await list()
    const body = { command: 'true', background: true, callback: { url: there.url } }
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { ...body, cwd: '/no/such/folder' }), 400, 'invalid', /no\/such\/folder/)
    assert.deepEqual(await list(), before)
    await ended((await one.start(box.id, 'true', { callback: { url: there.url } })).id)
    await eventually('the callback of the one that ran', () => there.seen.length === 1)
  })

  test('there may be so many at once', async () => {
    const jobs = []
    for (let i = 0; i < 3; i++) jobs.push(await one.start(box.id, 'sleep 100'))
    const full = await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true', background: true })
    refused(full, 429, 'quota', /3/)
    assert.ok(Number(full.headers['retry-after']) >= 1)
    for (const job of jobs) await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${job.id}/stop`)
    assert.equal((await ended((await one.start(box.id, 'true')).id)).exit_code, 0)
  })

  test('much output is in its log, and only that much is told', async () => {
    const job = await one.start(box.id, 'head -c 3000000 /dev/zero | tr "\\0" z; echo; echo end')
    await ended(job.id)
    assert.equal((await logs(job.id, '?limit=1000')).length, 1000)
    assert.equal(await logs(job.id, '?after=3000001'), 'end\n')
    assert.equal((await logs(job.id)).length, 3000005)
  })
})

describe('its sandbox', () => {
  test('is killed: 137', async () => {
    const other = await one.create()
    const job = await one.start(other.id, 'sleep 100')
    await one.remove(other.id)
    const end = await ended(job.id, 5)
    assert.deepEqual([end.state, end.exit_code], ['failed', 137])
    refused(await one.v1('GET', `/sandboxes/-/processes/${job.id}/logs`), 404, 'not_found')
  })

  test('is killed behind our back: 137 as well', async () => {
    const other = await one.create()
    const job = await one.start(other.id, 'sleep 100')
    await one.server.api('DELETE', `/sandboxes/${await engineId(other.id)}`)
    assert.equal((await ended(job.id, 15)).exit_code, 137)
    assert.equal((await one.get(other.id)).state, 'killed')
    await one.remove(other.id)
  })

  test('is paused: the job stands still, and goes on', async () => {
    const other = await one.create({ key: 'pausing' })
    const job = await one.start(other.id, 'for i in 1 2 3 4; do echo $i; sleep 0.5; done')
    await eventually('it runs', async () => (await logs(job.id)) !== '')
    await one.ok(200, 'POST', `/sandboxes/${other.id}/pause`)
    const still = await one.process(job.id)
    assert.deepEqual([still.state, still.sandbox_state], ['running', 'paused'])
    await sleep(500) // it would say the next number meanwhile
    await one.ok(200, 'POST', `/sandboxes/${other.id}/resume`)
    const over = await ended(job.id)
    assert.deepEqual([over.exit_code, over.sandbox_state], [0, null])
    assert.equal(await logs(job.id), '1\n2\n3\n4\n')
    await one.remove(other.id)
  })

  test('is paused and resumed at once through the engine\'s own API: the end is known soon', async () => {
    const other = await one.create({ key: 'blinking', lifecycle: { idleTimeoutSeconds: 3600 } })
    await timely('the end of a job after a pause', 4000, async () => {
      const job = await one.start(other.id, 'echo begun; sleep 0.5')
      await eventually('its output is read', async () => (await logs(job.id)) !== '')
      assert.equal((await one.server.api('POST', `/sandboxes/${other.id}/pause`)).status, 204)
      assert.equal((await one.server.api('POST', `/sandboxes/${other.id}/connect`, { timeout: 600 })).status, 201)
      const began = performance.now()
      assert.equal((await ended(job.id)).exit_code, 0)
      return performance.now() - began
    })
    await one.remove(other.id)
  })

  test('is kept awake by a job that takes longer than its idle time', async () => {
    const other = await one.create({ lifecycle: { idleTimeoutSeconds: 2 } })
    const job = await one.start(other.id, 'sleep 6; echo done')
    assert.equal((await ended(job.id)).exit_code, 0)
    await one.remove(other.id)
  })
})

describe('the server', () => {
  test('restarts, or dies, during a job', async () => {
    const job = await one.start(box.id, 'until [ -e /tmp/go-on ]; do sleep 0.1; done; echo through; exit 6')
    await one.server.restart()
    assert.equal((await one.process(job.id)).state, 'running')
    await one.server.kill9()
    await one.server.start()
    await one.execute(box.id, 'touch /tmp/go-on')
    const end = await ended(job.id)
    assert.deepEqual([end.state, end.exit_code], ['failed', 6])
    assert.equal(await logs(job.id), 'through\n')
  })

  test('is not there when it ends', async () => {
    const job = await one.start(box.id, 'sleep 1; echo meanwhile; exit 2')
    await one.server.kill9()
    await eventually('it has ended', () => findProcesses((process) => process.cmdline.includes('echo meanwhile')).length === 0)
    await one.server.start()
    assert.equal((await ended(job.id)).exit_code, 2)
    assert.equal(await logs(job.id), 'meanwhile\n')
  })
})

describe('a callback', () => {
  test('has the status, the exit code, the end of the log and the token', async (t) => {
    const there = await receiver(t)
    const job = await one.start(box.id, 'head -c 50000 /dev/zero | tr "\\0" x; echo; echo the end', { callback: { url: there.url, token: 'job-token-1' } })
    await ended(job.id)
    const [told] = await eventually('the callback', () => there.seen.length && there.seen)
    assert.deepEqual([told.method, told.path, told.headers['x-job-token'], told.headers['content-type']], ['POST', '/sandbox-jobs/r1/complete', 'job-token-1', 'application/json'])
    assert.equal(told.body.status, 'completed')
    assert.equal(told.body.response.exitCode, 0)
    assert.equal(told.body.response.logs.length, 32 * 1024)
    assert.ok(told.body.response.logs.endsWith('x\nthe end\n'))
    assert.ok(!('error' in told.body))
    await eventually('delivered', async () => (await one.process(job.id)).callback_state === 'delivered')
    assert.equal((await one.events({ sandbox_id: box.id, type: 'job.delivered' })).filter((event) => event.process === job.id).length, 1)
    await sleep(1500) // nothing more comes
    assert.equal(there.seen.length, 1, 'told once')
  })

  test('tells failures, stops and killed sandboxes', async (t) => {
    const there = await receiver(t)
    const callback = { url: there.url, token: 'job-token-2' }
    const failed = await one.start(box.id, 'echo oh; exit 3', { callback })
    await eventually('the first', () => there.seen.length === 1)
    assert.deepEqual(there.seen[0].body, { status: 'failed', response: { exitCode: 3, logs: 'oh\n' } })
    const stopped = await one.start(box.id, 'sleep 100', { callback })
    await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${stopped.id}/stop`)
    await eventually('the second', () => there.seen.length === 2)
    assert.deepEqual([there.seen[1].body.status, there.seen[1].body.response.exitCode], ['failed', 143])
    const other = await one.create()
    await one.start(other.id, 'sleep 100', { callback })
    await one.remove(other.id)
    await eventually('the third', () => there.seen.length === 3)
    assert.equal(there.seen[2].body.response.exitCode, 137)
    assert.match(there.seen[2].body.error, /sandbox is gone/)
    assert.ok(failed.id)
  })

  test('without a token gets one of its own', async (t) => {
    const there = await receiver(t)
    await one.start(box.id, 'true', { callback: { url: there.url } })
    await eventually('the callback', () => there.seen.length)
    assert.match(there.seen[0].headers['x-job-token'], /^[0-9a-f]{32}$/)
    assert.ok(!one.server.log.includes(there.seen[0].headers['x-job-token']))
  })

  test('is sent again until it is taken', async (t) => {
    const there = await receiver(t)
    there.failures = 2
    const job = await one.start(box.id, 'echo again', { callback: { url: there.url, token: 'job-token-3' } })
    await eventually('three tries', () => there.seen.length === 3, 15_000)
    assert.ok(there.seen[1].at - there.seen[0].at > 800 && there.seen[2].at - there.seen[1].at > 1600, 'it waits longer each time')
    assert.deepEqual(there.seen[2].body, there.seen[0].body)
    await eventually('delivered', async () => (await one.process(job.id)).callback_state === 'delivered')
    const failures = (await one.events({ sandbox_id: box.id, type: 'job.delivery_failed' })).filter((event) => event.process === job.id)
    assert.equal(failures.length, 1, 'only the first failure is told')
  })

  test('reaches a receiver that comes up later, after a restart of ours', async (t) => {
    const first = await receiver(t)
    const { port, url } = first
    await first.close()
    const job = await one.start(box.id, 'echo late; exit 1', { callback: { url, token: 'job-token-4' } })
    assert.equal((await ended(job.id)).exit_code, 1)
    assert.equal((await one.process(job.id)).callback_state, 'pending')
    await one.server.restart()
    const there = await receiver(t, port)
    await eventually('the callback', () => there.seen.length, 20_000)
    assert.deepEqual(there.seen[0].body, { status: 'failed', response: { exitCode: 1, logs: 'late\n' } })
    assert.equal(there.seen[0].headers['x-job-token'], 'job-token-4')
  })

  test('must be an address; and tokens are told to nobody else', async () => {
    for (const callback of [{ url: 'ftp://x' }, { url: 'file:///etc/passwd' }, {}, 7, { url: 'http://x', token: 'a b' }]) {
      refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true', background: true, callback }), 400, 'invalid')
    }
    const told = one.server.log + JSON.stringify(await one.events({})) + (await one.v1('GET', `/sandboxes/${box.id}/processes`)).text
    assert.ok(!/job-token-\d/.test(told))
    assert.equal((await one.execute(box.id, 'grep -rs job-token /home /tmp /proc/*/environ /proc/*/cmdline | grep -v grep')).stdout.replaceAll(/.*cmdline.*\n?/g, ''), '')
  })
})
