// Output of commands that is kept because it was asked for: what is in it, how much of it, how long, and whose it is.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { refused, startRuntime } from '../harness/runtime.mjs'

const SECRET = 'ghp_0123456789012345678901234567890123456789'

let one, box
before(async () => {
  one = await startRuntime()
  box = await one.create({ agent_id: 'a1', task_id: 't1', key: 'kept' })
})
after(() => one.destroy())
afterEach(() => assert.ok(one.server.alive(), `the server died:\n${one.server.tail()}`))

const list = async (id = box.id, query = '') => one.ok(200, 'GET', `/sandboxes/${id}/executions${query}`)
const read = (id, sandbox = box.id) => one.ok(200, 'GET', `/sandboxes/${sandbox}/executions/${id}`)
// Runs it with its output kept, and reads that.
async function kept(command, more = {}, sandbox = box.id) {
  const result = await one.execute(sandbox, command, { keep_output: true, ...more })
  assert.equal(result.kept, true, JSON.stringify(result))
  return read(result.process_id, sandbox)
}
async function streamed(command, more = {}) {
  const answer = await one.v1('POST', `/sandboxes/${box.id}/execute`, { command, stream: true, ...more })
  assert.equal(answer.status, 200, answer.text)
  return answer.text.trim().split('\n').map((line) => JSON.parse(line))
}

describe('what is kept', () => {
  test('nothing unless it is asked for', async () => {
    const plain = await one.execute(box.id, 'echo plain')
    assert.deepEqual(Object.keys(plain).sort(), ['duration_ms', 'exit_code', 'stderr', 'stdout', 'timed_out', 'truncated'])
    await one.execute(box.id, 'echo plain', { keep_output: false })
    assert.ok(!('kept' in (await streamed('echo plain')).at(-1)))
    assert.deepEqual(await list(), { executions: [], next: null })
  })

  test('both outputs, the end, the command, whose it was and when, under the id of its events', async () => {
    const before = Date.now()
    const result = await one.execute(box.id, 'echo out; echo err >&2; exit 3', { keepOutput: true })
    assert.deepEqual([result.stdout, result.exit_code, result.kept], ['out\n', 3, true])
    const found = await read(result.process_id)
    const { started_at, ended_at, actor, duration_ms, ...rest } = found
    assert.deepEqual(rest, {
      id: result.process_id, process_id: result.process_id, sandbox_id: box.id, agent_id: 'a1', task_id: 't1', command: 'echo out; echo err >&2; exit 3',
      exit_code: 3, error: null, timed_out: false, truncated: false, stdout: 'out\n', stderr: 'err\n',
    })
    assert.equal(duration_ms, result.duration_ms)
    assert.ok(actor && Date.parse(started_at) >= before - 1 && Date.parse(ended_at) >= Date.parse(started_at), JSON.stringify(found))
    const events = await one.events({ process_id: result.process_id })
    assert.deepEqual(events.map(({ type }) => type), ['process.started', 'process.exited'])
    const { stdout, stderr, ...listed } = found
    assert.deepEqual((await list()).executions[0], listed, 'a list has all but the outputs')
    assert.deepEqual(await read(found.id, 'key:kept'), found)
    assert.deepEqual(await read(found.id, '-'), found)
  })

  test('that of a stream too', async () => {
    const records = await streamed('echo out; echo err >&2', { keep_output: true })
    const end = records.at(-1)
    assert.deepEqual([end.type, end.kept, end.process_id], ['exit', true, records[0].process_id])
    const found = await read(end.process_id)
    assert.deepEqual([found.stdout, found.stderr, found.exit_code], ['out\n', 'err\n', 0])
    const cut = await read((await streamed('seq 1000', { keep_output: true, output_limit: 5 })).at(-1).process_id)
    assert.deepEqual([cut.stdout, cut.truncated], ['1\n2\n3', true])
  })

  test('how it failed: no program, a time limit', async () => {
    const missing = await kept(undefined, { argv: ['/no/such/program'] })
    assert.equal(missing.exit_code, 127)
    assert.match(missing.stderr, /No such file/)
    const late = await kept('echo begun; sleep 100', { timeout: 3 })
    assert.deepEqual([late.stdout, late.exit_code, late.timed_out], ['begun\n', 124, true])
  })

  test('wrong requests are refused', async () => {
    const path = `/sandboxes/${box.id}/execute`
    refused(await one.v1('POST', path, { command: 'true', keep_output: 'yes' }), 400, 'invalid', /keep_output/)
    refused(await one.v1('POST', path, { command: 'true', keep_outptu: true }), 400, 'invalid', /did you mean 'keep_output'/)
    refused(await one.v1('POST', path, { command: 'true', keep_output: true, background: true }), 400, 'invalid', /in its log/)
    refused(await one.v1('GET', `/sandboxes/${box.id}/executions?limit=0`), 400, 'invalid')
    refused(await one.v1('GET', `/sandboxes/${box.id}/executions/exe_none`), 404, 'not_found')
  })
})

describe('as it is kept', () => {
  test('secrets are masked, also across the end of what is kept', async () => {
    assert.equal((await kept(`printf 'a ${SECRET} b'`)).stdout, 'a *** b')
    assert.ok(!(await kept(`: ${SECRET}`)).command.includes(SECRET))
    const fill = (bytes) => `head -c ${bytes} /dev/zero | tr '\\0' x`
    for (const [bytes, rest] of [[65530, 0], [65530, 500_000], [98_290, 500_000], [98_300, 0]]) {
      const { stdout, truncated } = await kept(`${fill(bytes)}; printf ' ${SECRET} '; ${fill(rest)}`)
      assert.ok(!/gh|0123/.test(stdout), `${bytes}: ${stdout.slice(-100)}`)
      assert.ok(stdout.length <= 65536 && stdout.length > 65000, `${bytes}: ${stdout.length}`)
      assert.equal(truncated, bytes + rest > 65530, `${bytes}`)
    }
    // Masked, all that was taken is less than what is kept: its end, the beginning of a secret, must not be.
    const many = await kept(`printf 0123456789ab; yes ${SECRET} | head -c 500000`)
    assert.ok(!many.stdout.includes('ghp'), many.stdout.slice(-100))
    assert.equal(many.truncated, true)
  })

  test('it is cut where its output is, and at 64 KiB at most', async () => {
    const short = await kept('seq 1000; seq 1000 >&2', { output_limit: 6 })
    assert.deepEqual([short.stdout, short.stderr, short.truncated], ['1\n2\n3\n', '1\n2\n3\n', true])
    const much = await kept('head -c 300000 /dev/zero | tr "\\0" y', { output_limit: 1_000_000 })
    assert.deepEqual([much.stdout.length, much.truncated], [65536, true])
    const exact = await kept('printf 12345', { output_limit: 5 })
    assert.deepEqual([exact.stdout, exact.truncated], ['12345', false])
    assert.equal((await kept("printf 'a\u00fc'", { output_limit: 2 })).stdout, 'a', 'no half of a character')
  })

  test('it is text', async () => {
    assert.equal((await kept("printf 'a\\000b\\377c'")).stdout, 'a\ufffdb\ufffdc')
  })
})

test('a profile asks for all commands of its sandboxes, a request may refuse', async () => {
  await one.ok(200, 'PUT', '/profiles/keeping', { network: { mode: 'allow-all' }, keep_output: true })
  assert.equal((await one.ok(200, 'GET', '/profiles/keeping')).keepOutput, true)
  refused(await one.v1('PUT', '/profiles/wrong', { network: { mode: 'allow-all' }, keepOutput: 1 }), 400, 'invalid')
  const { id } = await one.create({ profile: 'keeping' })
  const result = await one.execute(id, 'echo by profile')
  assert.equal((await read(result.process_id, id)).stdout, 'by profile\n')
  assert.ok(!('kept' in (await one.execute(id, 'echo not', { keep_output: false }))))
  const job = await one.start(id, 'echo job')
  assert.equal((await one.process(job.id, '?wait=30')).exit_code, 0)
  assert.deepEqual((await list(id)).executions.map((item) => item.command), ['echo by profile'])
  await one.remove(id)
})

test('it outlives its sandbox and the server', async () => {
  const { id } = await one.create()
  const found = await kept('echo lasts', {}, id)
  await one.remove(id)
  await one.server.restart()
  assert.deepEqual(await read(found.id, id), found)
  assert.deepEqual((await list(id)).executions.map((item) => item.id), [found.id])
})

test('the oldest of a sandbox go, the rest is told page by page', async () => {
  const { id } = await one.create()
  for (let i = 0; i < 103; i++) await one.execute(id, `: ${i}`, { keep_output: true })
  const numbers = []
  let next = ''
  do {
    const page = await list(id, `?limit=40${next && `&before=${next}`}`)
    numbers.push(...page.executions.map((item) => Number(item.command.slice(2))))
    next = page.next
  } while (next)
  assert.deepEqual(numbers, Array.from({ length: 100 }, (_, i) => 102 - i))
  await one.remove(id)
})

test('nobody else reads it: another team, another agent, another sandbox', async () => {
  const found = await kept('echo ours')
  const admin = async (target, body) => (await one.server.api('POST', target, body)).body
  const team = await admin('/admin/teams', { name: 'others' })
  const stranger = { key: (await admin(`/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).key }
  for (const sandbox of [box.id, 'key:kept', '-'])
    for (const rest of ['', `/${found.id}`]) refused(await one.v1('GET', `/sandboxes/${sandbox}/executions${rest}`, undefined, stranger), 404, 'not_found')
  for (const sandbox of [box.id, '-']) refused(await one.v1('GET', `/sandboxes/${sandbox}/executions/${found.id}?agent_id=a2`), 403, 'forbidden')
  refused(await one.v1('GET', `/sandboxes/${box.id}/executions?agent_id=a2`), 403, 'forbidden')
  const { id } = await one.create()
  refused(await one.v1('GET', `/sandboxes/${id}/executions/${found.id}`), 404, 'not_found')
  await one.remove(id)
})
