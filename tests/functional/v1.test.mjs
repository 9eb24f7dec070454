// The runtime's API: what a client of /api/v1 sees.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, patience, startServer, timely } from '../harness/server.mjs'
import { openEvents } from '../harness/sse.mjs'

let server
before(async () => {
  server = await startServer()
})
after(async () => {
  const { body } = await v1('GET', '/sandboxes?limit=1000')
  for (const { id } of body.sandboxes) await v1('DELETE', `/sandboxes/${id}`)
  await server.destroy()
})
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

const v1 = (method, path, body, options) => server.api(method, `/api/v1${path}`, body, options)

function failed(answer, status, code) {
  assert.equal(answer.status, status, answer.text)
  assert.equal(answer.body.error.code, code, answer.text)
  assert.equal(typeof answer.body.error.message, 'string')
  assert.equal(typeof answer.body.error.retryable, 'boolean')
  assert.equal(typeof answer.body.error.details, 'object')
}

async function create(body = {}) {
  const answer = await v1('POST', '/sandboxes', body)
  assert.equal(answer.status, 201, answer.text)
  return answer.body
}

const run = async (id, command, more = {}) => {
  const answer = await v1('POST', `/sandboxes/${id}/execute`, { command, ...more })
  assert.equal(answer.status, 200, answer.text)
  return answer.body
}

const memory = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1]) * 1024

describe('a task', () => {
  test('is created, executed, looked at and destroyed', async () => {
    const box = await create({ agent_id: 'a1', task_id: 't1' })
    assert.match(box.sandbox_id, /^i[0-9a-z]{19}$/)
    assert.equal(box.id, box.sandbox_id)
    assert.equal(box.status, 'running')
    assert.equal(box.tier, 'created')
    assert.equal(box.agent_id, 'a1')
    assert.equal(box.task_id, 't1')
    const git = await run(box.id, 'git --version')
    assert.match(git.stdout, /^git version /)
    assert.deepEqual(Object.keys(git).sort(), ['duration_ms', 'exit_code', 'stderr', 'stdout', 'timed_out', 'truncated'])
    assert.deepEqual([git.stderr, git.exit_code, git.timed_out, git.truncated], ['', 0, false, false])
    const seen = await v1('GET', `/sandboxes/${box.id}`)
    assert.equal(seen.status, 200)
    assert.equal(seen.body.status, 'running')
    const listed = async (filter) => (await v1('GET', `/sandboxes?agent_id=a1${filter}`)).body.sandboxes.some((one) => one.id === box.id)
    assert.deepEqual([await listed(''), await listed('&state=running'), await listed('&state=killed')], [true, true, false])
    assert.equal((await v1('DELETE', `/sandboxes/${box.id}`)).status, 204)
    assert.equal((await v1('DELETE', `/sandboxes/${box.id}`)).status, 204, 'a second time')
    assert.ok(!(await server.ids()).includes(box.id), 'the engine still has it')
    const gone = await v1('GET', `/sandboxes/${box.id}`)
    assert.deepEqual([gone.status, gone.body.state, gone.body.status], [200, 'killed', 'stopped'], gone.text)
    assert.ok(Date.parse(gone.body.destroyed_at) >= Date.parse(gone.body.created_at), gone.text)
    assert.deepEqual([await listed(''), await listed('&state=running'), await listed('&state=killed')], [false, false, true])
    failed(await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true' }), 404, 'not_found')
    failed(await v1('DELETE', '/sandboxes/sbx_00000000000000000000'), 404, 'not_found')
  })

  test('the seven verbs of a sandbox service, for an agent and a task', async () => {
    const box = await create({ agent_id: 'verbs', task_id: 'task-7' }) // create_sandbox(agent, task)
    assert.equal((await run(box.id, 'echo $((6 * 7))')).stdout, '42\n') // execute_command
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7) % 256))
    const target = `/sandboxes/${box.id}/files?path=${encodeURIComponent('/home/user/up load.bin')}`
    const put = await v1('PUT', target, bytes, { headers: { 'content-type': 'application/octet-stream' } }) // upload_file
    assert.ok(put.status < 300, put.text)
    assert.equal((await run(box.id, 'sha256sum <"/home/user/up load.bin"')).stdout.split(' ')[0], crypto.createHash('sha256').update(bytes).digest('hex'))
    await run(box.id, 'cp "/home/user/up load.bin" /home/user/down.bin')
    const got = await v1('GET', `/sandboxes/${box.id}/files?path=/home/user/down.bin`) // download_file
    assert.equal(got.status, 200)
    assert.ok(bytes.equals(got.bytes))
    const seen = (await v1('GET', `/sandboxes/${box.id}`)).body // get_status
    assert.deepEqual([seen.status, seen.agent_id, seen.task_id], ['running', 'verbs', 'task-7'])
    const other = await create({ agent_id: 'verbs', task_id: 'task-8' })
    assert.equal((await v1('DELETE', `/sandboxes/${box.id}`)).status, 204) // destroy_sandbox
    assert.equal((await v1('GET', `/sandboxes/${box.id}`)).body.status, 'stopped')
    const as = { headers: { 'X-Agent-ID': 'verbs' } }
    await eventually('it is unused for a second', async () => (await v1('POST', '/prune', { older_than: 1 }, as)).body.sandboxes === 1) // cleanup_stale_sandboxes
    assert.equal((await v1('GET', `/sandboxes/${other.id}`)).body.status, 'stopped')
    assert.ok(!(await server.ids()).includes(other.id))
  })

  test('an exit code is a result', async () => {
    const box = await create()
    const result = await run(box.id, 'echo out; echo err >&2; exit 7')
    assert.deepEqual([result.stdout, result.stderr, result.exit_code], ['out\n', 'err\n', 7])
    const argv = await v1('POST', `/sandboxes/${box.id}/execute`, { argv: ['printf', '%s', '$HOME'], env: { A: 'b' } })
    assert.equal(argv.body.stdout, '$HOME')
    const env = await run(box.id, 'echo $A; pwd; cat', { env: { A: 'b' }, cwd: '/tmp', input: 'typed' })
    assert.equal(env.stdout, 'b\n/tmp\ntyped')
    const slow = await run(box.id, 'echo first; sleep 20', { timeout: 3 })
    assert.equal(slow.timed_out, true)
    assert.equal(slow.stdout, 'first\n')
    assert.ok(slow.duration_ms >= 2900 && slow.duration_ms < 15_000, `${slow.duration_ms}`)
    const long = await run(box.id, 'head -c 100000 /dev/zero | tr "\\0" x', { output_limit: 1000 })
    assert.equal(long.truncated, true)
    assert.ok(long.stdout.endsWith('\n[output truncated]') && long.stdout.length < 1100)
  })

  test('belongs to its agent', async () => {
    const box = await create({ agent_id: 'owner' })
    failed(await v1('GET', `/sandboxes/${box.id}?agent_id=thief`), 403, 'forbidden')
    failed(await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'id', agent_id: 'thief' }), 403, 'forbidden')
    failed(await v1('DELETE', `/sandboxes/${box.id}`, undefined, { headers: { 'X-Agent-ID': 'thief' } }), 403, 'forbidden')
    failed(await v1('GET', `/sandboxes/${box.id}/files?path=/etc/passwd&agent_id=thief`), 403, 'forbidden')
    assert.equal((await v1('GET', `/sandboxes/${box.id}?agent_id=owner`)).status, 200)
    assert.equal((await run(box.id, 'true', { agent_id: 'owner' })).exit_code, 0)
  })

  test('with a key is found again', async () => {
    const first = await create({ key: 'conversation:c1:s1', template: 'base' })
    await run(first.id, 'echo hi >/tmp/x')
    const paused = await v1('POST', `/sandboxes/${first.id}/pause`)
    assert.equal(paused.status, 200, paused.text)
    assert.equal(paused.body.state, 'paused')
    const again = await create({ key: 'conversation:c1:s1', template: 'base' })
    assert.equal(again.id, first.id)
    assert.equal(again.tier, 'resumed')
    assert.equal((await run(first.id, 'cat /tmp/x')).stdout, 'hi\n')
    const { body } = await v1('GET', `/events?sandbox_id=${first.id}&type=sandbox.created&limit=100&since=0`)
    assert.equal(body.events.length, 1)
    const byKey = await v1('GET', `/sandboxes/${encodeURIComponent('key:conversation:c1:s1')}`)
    assert.equal(byKey.body?.id, first.id, byKey.text)
  })

  test('a snapshot starts another', async () => {
    const box = await create()
    await run(box.id, 'echo kept >/home/user/kept')
    const taken = await v1('POST', `/sandboxes/${box.id}/snapshots`, { alias: 'github/o/r#main' })
    assert.equal(taken.status, 201, taken.text)
    const other = await create({ snapshot: 'github/o/r#main' })
    assert.equal((await run(other.id, 'cat /home/user/kept')).stdout, 'kept\n')
    const found = await v1('GET', `/snapshots/${encodeURIComponent('github/o/r#main')}`)
    assert.equal(found.body.id, taken.body.id, found.text)
    assert.ok((await v1('GET', `/sandboxes/${box.id}/snapshots`)).body.snapshots.some((one) => one.id === taken.body.id))
    assert.equal((await v1('DELETE', `/snapshots/${taken.body.id}`)).status, 204)
    failed(await v1('GET', `/snapshots/${taken.body.id}`), 404, 'not_found')
  })
})

describe('answers', () => {
  test('errors have one shape', async () => {
    failed(await v1('GET', '/sandboxes', undefined, { key: null }), 401, 'unauthorized')
    failed(await v1('GET', '/sandboxes', undefined, { key: 'e2b_wrong' }), 401, 'unauthorized')
    failed(await v1('GET', '/sandboxes/sbx_00000000000000000000'), 404, 'not_found')
    failed(await v1('GET', '/nothing'), 404, 'not_found')
    failed(await v1('PATCH', '/sandboxes'), 405, 'invalid')
    failed(await v1('POST', '/sandboxes', '{'), 400, 'invalid')
    failed(await v1('POST', '/sandboxes', '[]'), 400, 'invalid')
    failed(await v1('POST', '/sandboxes', { provider: 'nobody' }), 400, 'invalid')
    failed(await v1('POST', '/sandboxes', { template: 'no-such-template' }), 404, 'not_found')
    const mounted = await v1('POST', '/sandboxes', { mounts: [{ host_path: '/', guest_path: '/host' }] })
    assert.ok([400, 409].includes(mounted.status) && mounted.body.error.message.includes('mounts'), mounted.text)
    failed(await v1('POST', '/sandboxes', 'x'.repeat(2_000_000)), 413, 'too_large')
  })

  test('the key may come as Bearer or in the query, which is not logged', async () => {
    assert.equal((await v1('GET', '/sandboxes', undefined, { key: null, headers: { Authorization: `Bearer ${server.key}` } })).status, 200)
    assert.equal((await v1('GET', `/sandboxes?access_token=${server.key}`, undefined, { key: null })).status, 200)
    assert.ok(!server.log.includes(server.key))
  })

  test('health, providers, profiles, stats, description', async () => {
    assert.equal((await v1('GET', '/health', undefined, { key: null })).body.status, 'ok')
    const { providers } = (await v1('GET', '/providers?check=true')).body
    assert.equal(providers.find((one) => one.default).name, 'e2b')
    const description = (await v1('GET', '/openapi.json', undefined, { key: null })).body
    assert.ok(description.paths['/sandboxes/{id}/execute'].post)
    const stats = await v1('GET', '/stats')
    assert.ok(stats.body.total.sandboxes >= 1, stats.text)
    const bad = await v1('POST', '/profiles/x/validate', { provider: 'e2b', network: { mode: 'sometimes' }, timeout: -1 })
    assert.equal(bad.body.valid, false, bad.text)
    assert.ok(bad.body.faults.length >= 2, bad.text)
    const put = await v1('PUT', '/profiles/mine', { provider: 'e2b', network: { mode: 'allow-all' }, envVars: { TOKEN: 'secret-value' } })
    assert.equal(put.status, 200, put.text)
    assert.ok(!put.text.includes('secret-value'))
    const box = await create({ profile: 'mine' })
    assert.equal((await run(box.id, 'echo $TOKEN')).stdout, 'secret-value\n')
    assert.equal((await v1('DELETE', '/profiles/mine')).status, 204)
    failed(await v1('GET', '/profiles/mine'), 404, 'not_found')
    const pruned = await v1('POST', '/prune', { older_than: '24h', dry_run: true })
    assert.equal(pruned.status, 200, pruned.text)
    assert.equal(pruned.body.sandboxes, 0)
  })

  test('changes are in the audit log', async () => {
    const begin = Date.now()
    const box = await create({ agent_id: 'audited' })
    const as = { agent_id: 'audited' }
    const path = `/api/v1/sandboxes/${box.id}`
    assert.equal((await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true', ...as })).status, 200)
    assert.equal((await v1('PUT', `/sandboxes/${box.id}/files?path=/tmp/x&agent_id=audited`, 'x')).status, 200)
    assert.equal((await v1('POST', `/sandboxes/${box.id}/pause?agent_id=audited`)).status, 200)
    assert.equal((await v1('DELETE', `/sandboxes/${box.id}?agent_id=other`)).status, 403)
    assert.equal((await v1('DELETE', `/sandboxes/${box.id}?agent_id=audited`)).status, 204)
    const { body } = await server.api('GET', '/audit?limit=100')
    const ours = body.filter((one) => one.path.startsWith(path) || (one.path === '/api/v1/sandboxes' && one.agentID === 'audited')).reverse()
    assert.deepEqual(
      ours.map(({ method, path: target, status, agentID }) => [method, target.slice(path.length), status, agentID]),
      [['POST', '', 201, 'audited'], ['POST', '/execute', 200, 'audited'], ['PUT', '/files', 200, 'audited'], ['POST', '/pause', 200, 'audited'], ['DELETE', '', 403, 'other'], ['DELETE', '', 204, 'audited']],
    )
    for (const { timestamp } of ours) assert.ok(Date.parse(timestamp) >= begin - 1000 && Date.parse(timestamp) <= Date.now() + 1000, timestamp)
  })
})

describe('files', () => {
  const SIZE = 100 * 1024 * 1024

  test('100 MB go both ways in bounded memory', async () => {
    const box = await create()
    const block = crypto.randomBytes(1024 * 1024)
    const sent = crypto.createHash('sha256')
    const before = memory()
    let most = before
    const uploaded = await new Promise((done, fail) => {
      const request = http.request(
        { host: server.host, port: server.port, method: 'PUT', path: `/api/v1/sandboxes/${box.id}/files?path=/home/user/large`, headers: { 'X-API-KEY': server.key, 'Content-Length': SIZE } },
        (response) => {
          let text = ''
          response.on('data', (chunk) => (text += chunk))
          response.on('end', () => done({ status: response.statusCode, text }))
        },
      )
      request.on('error', fail)
      let left = SIZE / block.length
      const more = () => {
        while (left > 0) {
          left--
          sent.update(block)
          most = Math.max(most, memory())
          if (!request.write(block)) return request.once('drain', more)
        }
        request.end()
      }
      more()
    })
    assert.equal(uploaded.status, 200, uploaded.text)
    assert.equal(JSON.parse(uploaded.text).size, SIZE)
    const got = crypto.createHash('sha256')
    await new Promise((done, fail) => {
      http
        .get({ host: server.host, port: server.port, path: `/api/v1/sandboxes/${box.id}/files?path=/home/user/large`, headers: { 'X-API-KEY': server.key } }, (response) => {
          let count = 0
          response.on('data', (chunk) => {
            got.update(chunk)
            if (count++ % 50 === 0) most = Math.max(most, memory())
          })
          response.on('end', done)
        })
        .on('error', fail)
    })
    assert.equal(got.digest('hex'), sent.digest('hex'))
    assert.ok(most - before < 16 * 1024 * 1024, `${((most - before) / 1024 / 1024).toFixed(1)} MB more`)
  })

  test('are listed, removed and missed', async () => {
    const box = await create()
    const file = `/sandboxes/${box.id}/files?path=`
    assert.equal((await v1('PUT', `${file}/tmp/deep/er/a%20b`, Buffer.from([0, 255, 10]))).body.size, 3)
    assert.deepEqual((await v1('GET', `${file}/tmp/deep/er/a%20b`)).bytes, Buffer.from([0, 255, 10]))
    const listed = await v1('GET', `${file}/tmp/deep/er`)
    assert.deepEqual(listed.body.entries.map((one) => [one.name, one.type, one.size]), [['a b', 'file', 3]])
    assert.equal((await v1('PUT', `${file}/tmp/empty`, '')).body.size, 0)
    assert.equal((await v1('GET', `${file}/tmp/empty`)).bytes.length, 0)
    assert.equal((await v1('DELETE', `${file}/tmp/deep`)).status, 204)
    failed(await v1('GET', `${file}/tmp/deep/er/a%20b`), 404, 'not_found')
    failed(await v1('GET', `/sandboxes/${box.id}/files`), 400, 'invalid')
  })

  test('half an upload leaves no file', async () => {
    const box = await create()
    const socket = await server.connect()
    socket.write(`PUT /api/v1/sandboxes/${box.id}/files?path=/tmp/half HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${server.key}\r\nContent-Length: 1000000\r\n\r\n${'x'.repeat(500000)}`)
    await eventually('half of it is sent', () => socket.writableLength === 0)
    socket.destroy()
    await sleep(500) // none comes later either
    failed(await v1('GET', `/sandboxes/${box.id}/files?path=/tmp/half`), 404, 'not_found')
  })
})

describe('processes', () => {
  test('run in the background, with logs to follow', async () => {
    const box = await create()
    const started = await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'for i in 1 2 3; do echo line $i; sleep 0.5; done; exit 4', background: true })
    assert.equal(started.status, 202, started.text)
    const job = `/sandboxes/${box.id}/processes/${started.body.id}`
    assert.equal(started.body.state, 'running')
    const logs = await openEvents(server, `/api/v1${job}/logs`)
    const end = await logs.find((one) => one.event === 'exit')
    assert.equal(end.json.exit_code, 4)
    assert.equal(end.json.state, 'failed')
    const output = logs.events.filter((one) => one.event === 'output')
    assert.equal(output.map((one) => one.json.data).join(''), 'line 1\nline 2\nline 3\n')
    assert.ok(output.at(-1).at - output[0].at > 500, 'they came as they were written')
    const cursor = Number(output[0].id)
    assert.equal((await v1('GET', `${job}/logs?after=${cursor}&limit=6`)).text, 'line 2')
    assert.equal((await v1('GET', `${job}?wait=5`)).body.exit_code, 4)
    assert.ok((await v1('GET', `/sandboxes/${box.id}/processes`)).body.processes.some((one) => one.id === started.body.id))
    failed(await v1('GET', `/sandboxes/${box.id}/processes/job_none`), 404, 'not_found')
  })

  test('take input, signals and an end', async () => {
    const box = await create()
    const start = async (command) => (await v1('POST', `/sandboxes/${box.id}/execute`, { command, background: true, stdin: true })).body.id
    const process = (id, rest = '') => `/sandboxes/${box.id}/processes/${id}${rest}`
    const reader = await start('read a; echo got $a')
    const typed = await v1('POST', process(reader, '/input'), { data: 'x\n' })
    assert.equal(typed.status, 204, typed.text)
    assert.equal((await v1('GET', process(reader, '?wait=5'))).body.exit_code, 0)
    assert.equal((await v1('GET', process(reader, '/logs'))).text, 'got x\n')
    const sleeper = await start('sleep 100')
    const stopped = await v1('POST', process(sleeper, '/stop'))
    assert.equal(stopped.status, 200, stopped.text)
    assert.equal((await v1('GET', process(sleeper, '?wait=5'))).body.exit_code, 143)
    failed(await v1('POST', process(sleeper, '/signal'), { signal: 'NONE' }), 400, 'invalid')
  })
})

describe('events', () => {
  test('come at once, and again after Last-Event-ID', async () => {
    const stream = await openEvents(server, '/api/v1/events?agent_id=watched')
    assert.equal(stream.status, 200)
    assert.match(stream.headers['content-type'], /^text\/event-stream/)
    let box, created
    await timely('the event', 500, async () => {
      const begin = performance.now()
      box = await create({ agent_id: 'watched' })
      created = await stream.find((one) => one.event === 'sandbox.created' && one.json.sandbox === box.id)
      return created.at - begin
    })
    await create({ agent_id: 'unwatched' })
    await v1('DELETE', `/sandboxes/${box.id}`)
    await stream.find((one) => one.event === 'sandbox.killed')
    assert.ok(stream.events.every((one) => one.json.agent === 'watched'))
    stream.close()
    const again = await openEvents(server, '/api/v1/events?agent_id=watched', { headers: { 'Last-Event-ID': created.id } })
    await again.find((one) => one.event === 'sandbox.killed')
    assert.ok(again.events.every((one) => BigInt(one.id) > BigInt(created.id)))
    again.close()
    const list = await v1('GET', `/events?agent_id=watched&since=${created.id}`, undefined, { headers: { Accept: 'application/json' } })
    assert.deepEqual(list.body.events.map((one) => String(one.id)), again.events.map((one) => one.id))
    // Without 'since': the newest of its type, not the first.
    const newer = await create({ agent_id: 'watched' })
    await v1('DELETE', `/sandboxes/${newer.id}`)
    const { events } = (await v1('GET', '/events?agent_id=watched&type=sandbox.created&limit=1')).body
    assert.deepEqual(events.map((one) => [one.type, one.sandbox]), [['sandbox.created', newer.id]])
  })

  test('/sse begins with the last 10, and repeats at most 100 after Last-Event-ID', async () => {
    const box = await create({ agent_id: 'busy' })
    for (let i = 0; i < 55; i++) await run(box.id, 'true')
    await v1('DELETE', `/sandboxes/${box.id}`)
    const ids = (await v1('GET', '/events?agent_id=busy&since=0&limit=1000')).body.events.map((one) => String(one.id))
    assert.ok(ids.length > 110, `${ids.length} events`)
    // The next event comes after all that are repeated.
    const repeated = async (path, last) => {
      const stream = await openEvents(server, path, { headers: last ? { 'Last-Event-ID': last } : {} })
      const mark = await create({ agent_id: 'busy' })
      await stream.find((one) => one.json.sandbox === mark.id && one.json.type === 'sandbox.created')
      stream.close()
      await v1('DELETE', `/sandboxes/${mark.id}`)
      return stream.events.filter((one) => one.json.sandbox !== mark.id)
    }
    const all = async () => (await v1('GET', '/events?agent_id=busy&since=0&limit=1000')).body.events.map((one) => String(one.id))
    const last10 = await repeated('/api/v1/sse?agent_id=busy')
    assert.deepEqual(last10.map((one) => one.id), ids.slice(-10))
    assert.ok(last10.some((one) => one.event === 'sandbox_status' && one.json.type === 'sandbox.killed'))
    const now = await all()
    const [skipped, ...newest] = await repeated('/api/v1/sse?agent_id=busy', ids[0])
    assert.deepEqual(newest.map((one) => one.id), now.slice(-100))
    assert.deepEqual([skipped.event, skipped.id, skipped.json], ['events_skipped', undefined, { after: Number(ids[0]), before: Number(now.at(-100)) }])
    const few = await repeated('/api/v1/sse?agent_id=busy', now.at(-50))
    assert.equal(few[0].id, now.at(-49))
    assert.ok(!few.some((one) => one.event === 'events_skipped'))
    assert.equal((await repeated('/api/v1/events?agent_id=busy', ids[0]))[0].id, ids[1], '/events repeats all')
  })

  test('tell the output of commands and jobs to who watches now, bounded, masked and kept nowhere', async () => {
    const box = await create({ agent_id: 'printer' })
    const stream = await openEvents(server, '/api/v1/events?agent_id=printer&type=process.output')
    const recent = await openEvents(server, '/api/v1/sse?agent_id=printer')
    const text = (process, name) => stream.events.filter((one) => one.json.process === process && one.json.data.stream === name).map((one) => one.json.data.data).join('')
    const secret = 'ghp_0123456789012345678901234567890123456789'
    // While it runs: it waits for a file that comes after its first line was told.
    const running = run(box.id, `echo first; until test -e /tmp/go; do sleep 0.05; done; echo 'gr\u00fc\u00dfe ${secret}'; echo wrong >&2`)
    const { json } = await stream.find((one) => one.json.data.data === 'first\n')
    assert.deepEqual([json.sandbox, json.data.stream], [box.id, 'stdout'])
    await recent.find((one) => one.event === 'command_output' && one.json.type === 'process.output')
    await run(box.id, 'touch /tmp/go')
    assert.equal((await running).exit_code, 0)
    await stream.find((one) => one.json.data.stream === 'stderr')
    assert.equal(text(json.process, 'stdout'), 'first\ngr\u00fc\u00dfe ***\n')
    assert.equal(text(json.process, 'stderr'), 'wrong\n')
    const job = await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'echo from a job; sleep 100', background: true })
    const told = await stream.find((one) => one.json.data.data === 'from a job\n', 'the output of a job', 20_000)
    assert.equal(told.json.process, job.body.id)
    // Much more than anybody could read: the command is not held up, and what was left out is told.
    const flood = await run(box.id, 'head -c 30000000 /dev/zero | tr "\\0" x; sleep 1.2; echo end')
    assert.equal(flood.exit_code, 0)
    const end = await stream.find((one) => one.json.data.data.endsWith('end\n'))
    const parts = stream.events.filter((one) => one.json.process === end.json.process)
    const dropped = parts.reduce((sum, one) => sum + (one.json.data.dropped ?? 0), 0)
    assert.ok(dropped > 20_000_000, `${dropped}`)
    assert.equal(dropped + parts.reduce((sum, one) => sum + one.json.data.data.length, 0), 30_000_004)
    const kept = await v1('GET', '/events?agent_id=printer&since=0&limit=1000', undefined, { headers: { Accept: 'application/json' } })
    assert.ok(kept.body.events.length > 3 && !kept.body.events.some((one) => one.type === 'process.output'))
    stream.close()
    recent.close()
    await v1('DELETE', `/sandboxes/${box.id}`)
  })

  test('reach 100 listeners within half a second', async () => {
    const streams = await Promise.all(Array.from({ length: 100 }, () => openEvents(server, '/api/v1/events?agent_id=crowd')))
    await timely('the slowest', 500, async () => {
      const begin = performance.now()
      const box = await create({ agent_id: 'crowd' })
      const found = await Promise.all(streams.map((one) => one.find((event) => event.event === 'sandbox.created' && event.json.sandbox === box.id)))
      await v1('DELETE', `/sandboxes/${box.id}`)
      return Math.max(...found.map((one) => one.at)) - begin
    })
    for (const stream of streams) stream.close()
  })
})

test('a locked database delays who needs it, and no connection of others', async () => {
  const box = await create({})
  // The server waits 5 s for a lock; this one is held for less.
  const lock = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()`
  const holder = spawn('python3', ['-c', lock, path.join(server.data, 'store/quicksand.db')], { stdio: ['pipe', 'pipe', 'inherit'] })
  await new Promise((done) => holder.stdout.once('data', done))
  const until = Date.now() + 1500
  let made = 0
  const creates = Promise.all(Array.from({ length: 4 * os.availableParallelism() }, () => create({}).then((one) => (made++, one))))
  creates.catch(() => {}) // it is awaited below
  try {
    await sleep(300) // creates that did not wait would be made meanwhile
    do {
      const timeoutMs = 2000 * patience
      assert.ok((await server.api('GET', '/health', undefined, { key: null, timeoutMs })).status < 300)
      assert.ok((await server.sandbox(box.id, 49983, '/health', { timeoutMs })).status < 300)
    } while (Date.now() < until)
    assert.equal(made, 0, 'a create did not wait')
  } finally {
    holder.stdin.end()
  }
  for (const { id } of [box, ...(await creates)]) await v1('DELETE', `/sandboxes/${id}`)
})

test('a stopping server ends streams at once and goes on where it was', async () => {
  const box = await create({ key: 'over-restart' })
  const stream = await openEvents(server, '/api/v1/events?agent_id=x')
  const job = await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'sleep 3; echo done', background: true })
  const logs = await openEvents(server, `/api/v1/sandboxes/${box.id}/processes/${job.body.id}/logs`)
  const begin = performance.now()
  const { code } = await server.stop()
  assert.equal(code, 0)
  assert.ok(performance.now() - begin < 8000 * patience, `${performance.now() - begin} ms`)
  await server.start()
  await eventually('the streams end', () => stream.ended && logs.ended)
  const ended = await v1('GET', `/sandboxes/${box.id}/processes/${job.body.id}?wait=20`)
  assert.equal(ended.body?.state, 'completed', ended.text)
  assert.equal((await v1('GET', `/sandboxes/${box.id}/processes/${job.body.id}/logs`)).text, 'done\n')
  assert.equal((await create({ key: 'over-restart' })).id, box.id)
})
