// Commands whose output is told while they run: what arrives, how fast, with what memory, and how they end.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { binary, eventually } from '../harness/server.mjs'
import { findProcesses } from '../harness/leftovers.mjs'
import { destroyAll, startRuntime } from '../harness/runtime.mjs'

let runtime
let server
let other // with a list of allowed commands
before(async () => {
  runtime = await startRuntime({ providers: { local: { type: 'process' } }, default_provider: 'e2b' }, { args: ['--process-provider', '1'] })
  server = runtime.server
})
after(() => destroyAll(...[runtime, other].filter(Boolean)))
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

// Opens a stream; .next() gives records, .all() the rest of them.
function open(id, body, { headers = {}, to = server } = {}) {
  return new Promise((done, fail) => {
    const request = http.request(
      { host: to.host, port: to.port, method: 'POST', path: `/api/v1/sandboxes/${id}/execute`, agent: false, headers: { 'X-API-KEY': to.key, 'Content-Type': 'application/json', ...headers } },
      (response) => done(new Stream(request, response)),
    )
    request.on('error', fail)
    request.end(JSON.stringify(body))
  })
}

class Stream {
  constructor(request, response) {
    Object.assign(this, { request, response, status: response.statusCode, type: response.headers['content-type'] })
    this.records = this.read()
  }
  async *read() {
    let rest = ''
    for await (const chunk of this.response) {
      const lines = (rest + chunk.toString('latin1')).split('\n')
      rest = lines.pop()
      for (const line of lines) if (line) yield JSON.parse(Buffer.from(line, 'latin1'))
    }
    if (rest) throw new Error(`half a record: ${rest}`)
  }
  async next() {
    return (await this.records.next()).value
  }
  async all() {
    const list = []
    for await (const one of this.records) list.push(one)
    return list
  }
  close() {
    this.request.destroy()
  }
}

const bytesOf = (records, type) => Buffer.concat(records.filter((one) => one.type === type).map((one) => Buffer.from(one.data, 'base64')))
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1]) / 1024
const running = async (id, pattern) => (await runtime.output(id, `pgrep -fc '[${pattern[0]}]${pattern.slice(1)}' || true`)).trim() !== '0'

for (const provider of ['e2b', 'local']) {
  describe(`on ${provider}`, () => {
    let id
    before(async () => {
      id = (await runtime.create({ provider })).id
    })
    after(() => runtime.remove(id))

    test('records come as they are made', async () => {
      const stream = await open(id, { command: 'echo one; sleep 1; echo two >&2; exit 3', stream: true })
      assert.deepEqual([stream.status, stream.type], [200, 'application/x-ndjson'])
      const started = await stream.next()
      assert.equal(started.type, 'started')
      assert.match(started.process_id, /^exe_[0-9a-z]{20}$/)
      assert.deepEqual(await stream.next(), { type: 'stdout', data: 'one\n' })
      const begin = Date.now()
      assert.deepEqual(await stream.next(), { type: 'stderr', data: 'two\n' })
      assert.ok(Date.now() - begin > 500, 'it came with the rest')
      const { duration_ms, ...exit } = await stream.next()
      assert.deepEqual(exit, { type: 'exit', exit_code: 3, timed_out: false, truncated: false })
      assert.ok(duration_ms >= 1000 && duration_ms < 20_000)
      assert.equal(await stream.next(), undefined)
      const events = await runtime.events({ process_id: started.process_id })
      assert.deepEqual(events.map((one) => one.type), ['process.started', 'process.exited'])
      assert.equal(events[1].data.exit_code, 3)
    })

    test('as server-sent events', async () => {
      const answer = await runtime.v1('POST', `/sandboxes/${id}/execute`, { argv: ['echo', 'é'] }, { headers: { Accept: 'text/event-stream' } })
      assert.equal(answer.headers['content-type'], 'text/event-stream; charset=utf-8')
      const [started, output, exit, rest] = answer.text.split('\n\n')
      assert.match(started, /^event: started\ndata: \{.*"process_id":"exe_/)
      assert.equal(output, 'event: stdout\ndata: {"type":"stdout","data":"é\\n"}')
      assert.match(exit, /^event: exit\ndata: \{.*"exit_code":0/)
      assert.equal(rest, '')
    })

    test('bytes are as they were', async () => {
      const script = `python3 -c 'import sys,hashlib,random; d=random.Random(7).randbytes(3000001); sys.stdout.buffer.write(d); sys.stderr.write(hashlib.sha256(d).hexdigest())'`
      const records = await (await open(id, { command: script, stream: true, encoding: 'base64' })).all()
      const bytes = bytesOf(records, 'stdout')
      assert.equal(bytes.length, 3_000_001)
      assert.equal(crypto.createHash('sha256').update(bytes).digest('hex'), bytesOf(records, 'stderr').toString())
      // As text, characters are whole however their bytes come.
      const text = await (await open(id, { command: String.raw`printf '\303'; sleep 0.3; printf '\251\360\237'; sleep 0.3; printf '\230\200\377'`, stream: true })).all()
      assert.equal(text.filter((one) => one.type === 'stdout').map((one) => one.data).join(''), 'é😀\ufffd')
    })

    test('input, signals, time limits', async () => {
      const cat = await open(id, { argv: ['cat'], stream: true, stdin: true, encoding: 'base64' })
      const { process_id } = await cat.next()
      const input = (body, status = 204) => runtime.ok(status, 'POST', `/sandboxes/${id}/processes/${process_id}/input`, body)
      await input({ data: 'text ' })
      assert.equal(Buffer.from((await cat.next()).data, 'base64').toString(), 'text ')
      await input({ data_base64: Buffer.from([0, 255, 10]).toString('base64'), close: true })
      assert.deepEqual([...bytesOf(await cat.all(), 'stdout')], [0, 255, 10])
      await input({ data: 'late' }, 404)

      const slow = await open(id, { argv: ['sleep', '60'], stream: true })
      const target = `/sandboxes/${id}/processes/${(await slow.next()).process_id}`
      assert.equal((await runtime.v1('POST', `${target}/input`, { data: 'x' })).status, 409)
      assert.equal((await runtime.v1('POST', `${target}/signal`, { signal: 'TERM' }, { headers: { 'X-Agent-ID': 'thief' } })).status, 403)
      await runtime.ok(204, 'POST', `${target}/signal`, { signal: 'SIGTERM' })
      assert.equal((await slow.all()).at(-1).exit_code, 143)

      const late = (await (await open(id, { command: 'echo begun; sleep 60', stream: true, timeout: 3 })).all()).slice(1)
      assert.deepEqual(late.map((one) => one.type), ['stdout', 'exit'])
      assert.deepEqual([late[1].exit_code, late[1].timed_out], [124, true])
    })

    test('a client that goes ends its command', async () => {
      const stream = await open(id, { command: 'sleep 4321 & sleep 4321', stream: true })
      const { process_id } = await stream.next()
      await eventually('it runs', () => running(id, 'sleep 4321'))
      stream.close()
      await eventually('all of it has ended', async () => !(await running(id, 'sleep 4321')))
      const last = await eventually('the event', async () => (await runtime.events({ process_id, type: 'process.exited' }))[0])
      assert.equal(last.data.reason, 'its client has gone')
      assert.equal(last.data.exit_code, 137)
      // Also one that does not read what is written without end.
      const loud = await open(id, { command: 'yes loud-and-endless', stream: true })
      loud.response.pause()
      await eventually('it runs', () => running(id, 'yes loud-and-endless'))
      const { pid } = findProcesses((one) => one.cmdline === 'yes loud-and-endless')[0]
      let before = -1
      await eventually('all buffers on the way are full', () => {
        const now = Number(/^wchar: (\d+)/m.exec(fs.readFileSync(`/proc/${pid}/io`, 'latin1'))[1])
        const still = now > 0 && now === before
        before = now
        return still
      }, 10_000, 100)
      loud.close()
      await eventually('it has ended', async () => !(await running(id, 'yes loud-and-endless')))
    })

    test('what keeps a command from running is an ordinary answer', async () => {
      const none = await (await open(id, { argv: ['/no/such/program'], stream: true })).all()
      assert.deepEqual(none.slice(1).map((one) => one.data ?? one.exit_code), ['/no/such/program: No such file or directory\n', 127])
      for (const [body, status] of [[{ stream: true }, 400], [{ argv: ['true'], cwd: '/no/such', stream: true }, 400], [{ argv: ['true'], stream: 1 }, 400]]) {
        const answer = await runtime.v1('POST', `/sandboxes/${id}/execute`, body)
        assert.equal(answer.status, status, answer.text)
        assert.ok(answer.body.error.message)
      }
      assert.equal((await runtime.v1('POST', '/sandboxes/sbx_00000000000000000000/execute', { argv: ['true'], stream: true })).status, 404)
    })
  })
}

test('100 MB pass through little memory, and a slow reader stops the command', async () => {
  const { id } = await runtime.create()
  await (await open(id, { argv: ['head', '-c', '5000000', '/dev/zero'], stream: true, encoding: 'base64' })).all()
  const before = memory()
  let most = 0
  const watch = setInterval(() => (most = Math.max(most, memory())), 20)
  const stream = await open(id, { command: 'head -c 100000000 /dev/zero; touch /tmp/written', stream: true, encoding: 'base64' })
  assert.equal((await stream.next()).type, 'started')
  stream.response.pause()
  await sleep(1500) // in which it would be done
  const there = await runtime.execute(id, 'test -e /tmp/written')
  assert.equal(there.exit_code, 1, 'it was written although nobody reads')
  let bytes = 0
  let last
  for (let one; (one = await stream.next()); last = one) if (one.data) bytes += Buffer.from(one.data, 'base64').length
  clearInterval(watch)
  assert.equal(bytes, 100_000_000)
  assert.equal(last.exit_code, 0)
  assert.ok(most - before < 40, `${before} MiB became ${most} MiB`)
  const cut = await (await open(id, { argv: ['head', '-c', '100000', '/dev/zero'], stream: true, encoding: 'base64', output_limit: 70_000 })).all()
  assert.equal(bytesOf(cut, 'stdout').length, 70_000)
  assert.equal(cut.at(-1).truncated, true)
  await runtime.remove(id)
})

// A body that is sent as it comes, to the input of a process; .sent counts what was taken from us.
function feed(id, process, query = '') {
  const request = http.request({ host: server.host, port: server.port, method: 'PUT', agent: false, path: `/api/v1/sandboxes/${id}/processes/${process}/input${query}`, headers: { 'X-API-KEY': server.key, 'Content-Type': 'application/octet-stream' } })
  request.answer = new Promise((done) => {
    request.on('response', (response) => response.resume().on('end', () => done(response.statusCode)))
    request.on('error', (error) => done(error.code))
  })
  return request
}

describe('input as the body of a request', () => {
  for (const provider of ['e2b', 'local']) {
    test(`much of it, whole and in order, on ${provider}`, async () => {
      const { id } = await runtime.create({ provider })
      const stream = await open(id, { command: 'sha256sum', stream: true, stdin: true })
      const { process_id } = await stream.next()
      const hash = crypto.createHash('sha256')
      const before = memory()
      for (const [count, query] of [[80, ''], [0, ''], [80, '?close=true']]) {
        const request = feed(id, process_id, query)
        for (let i = 0; i < count; i++) {
          const piece = crypto.randomBytes(500_001)
          hash.update(piece)
          if (!request.write(piece)) await new Promise((done) => request.once('drain', done))
        }
        request.end()
        assert.equal(await request.answer, 204)
      }
      const records = await stream.all()
      assert.equal(records.find((one) => one.type === 'stdout').data.split(' ')[0], hash.digest('hex'))
      assert.ok(memory() - before < 32, `${memory() - before} MB more for 80 MB of input`)
      await runtime.remove(id)
    })
  }

  test('a process that does not read holds the sender back, and its end ends the request', async () => {
    const { id } = await runtime.create()
    const stream = await open(id, { command: 'read -r line; echo got; read -r line; exit 0', stream: true, stdin: true })
    const { process_id } = await stream.next()
    const request = feed(id, process_id)
    const before = memory()
    request.write('first\n')
    assert.equal((await stream.next()).data, 'got\n')
    // One line of 64 MB: bash reads it byte by byte and never to its end.
    request.write(Buffer.alloc(64 << 20, 'x'))
    let last = -1
    await eventually('no more is taken', async () => {
      const now = request.socket.bytesWritten - request.socket.writableLength
      const still = now === last
      last = now
      await sleep(300)
      return still
    }, 60_000)
    assert.ok(memory() - before < 32, 'it piles up in the server')
    assert.equal((await runtime.v1('POST', `/sandboxes/${id}/processes/${process_id}/signal`, { signal: 'KILL' })).status, 204)
    assert.ok([404, 409].includes(await request.answer), String(await request.answer))
    assert.equal((await stream.all()).at(-1).exit_code, 137)
    request.destroy()
    await runtime.remove(id)
  })

  test('through the command line: whole, in bursts, and more than is wanted', async () => {
    const { id } = await runtime.create()
    const shell = (line) =>
      new Promise((done) => {
        const child = spawn('sh', ['-c', line], { env: { PATH: process.env.PATH, HOME: '/root', ...server.clientEnv(), Q: binary, ID: id } })
        let stdout = ''
        let stderr = ''
        child.stdout.on('data', (chunk) => (stdout += chunk))
        child.stderr.on('data', (chunk) => (stderr += chunk))
        child.on('close', (code) => done({ code, stdout, stderr }))
      })
    assert.deepEqual(await shell('head -c 20000000 /dev/zero | "$Q" exec "$ID" -- wc -c'), { code: 0, stdout: '20000000\n', stderr: '' })
    assert.deepEqual(await shell('(echo one; sleep 1.5; echo two) | "$Q" exec "$ID" -- cat'), { code: 0, stdout: 'one\ntwo\n', stderr: '' })
    assert.deepEqual(await shell('yes | "$Q" exec "$ID" -- head -n 1'), { code: 0, stdout: 'y\n', stderr: '' })
    assert.deepEqual(await shell('yes | "$Q" exec "$ID" -- sh -c "exec <&-; sleep 1; echo closed"'), { code: 0, stdout: 'closed\n', stderr: '' })
    assert.deepEqual(await shell('"$Q" exec "$ID" -- cat </dev/null'), { code: 0, stdout: '', stderr: '' })
    await runtime.remove(id)
  })

  test('one in the background takes it, too; others are refused', async () => {
    const { id } = await runtime.create()
    const job = await runtime.start(id, 'wc -c', { stdin: true })
    const request = feed(id, job.id, '?close=true')
    request.end(Buffer.alloc(3_000_000))
    assert.equal(await request.answer, 204)
    await runtime.process(job.id, '?wait=30')
    assert.equal((await runtime.v1('GET', `/sandboxes/-/processes/${job.id}/logs`)).text.trim(), '3000000')
    for (const [process, query, status] of [['exe_00000000000000000000', '', 404], ['job_none', '', 404], [job.id, '?close=maybe', 400]]) {
      const refused = feed(id, process, query)
      refused.end('x')
      assert.equal(await refused.answer, status, `${process}${query}`)
    }
    await runtime.remove(id)
  })
})

test('a sandbox is kept while its command runs', async () => {
  const { id } = await runtime.create({ lifecycle: { idleTimeoutSeconds: 4 } })
  const records = await (await open(id, { command: 'sleep 9; echo still there', stream: true })).all()
  assert.equal(records.at(-2).data, 'still there\n')
  await runtime.v1('DELETE', `/sandboxes/${id}`)
})

test('with a list of allowed commands, and when the server stops', async () => {
  other = await startRuntime({ commands: { allow: ['echo', 'sleep'] } })
  const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_URL: other.server.url, QUICKSAND_TOKEN: other.server.key }
  const quicksand = (...args) =>
    new Promise((done) => {
      const child = spawn(binary, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
      let stdout = ''
      let stderr = ''
      child.stdout.on('data', (chunk) => (stdout += chunk))
      child.stderr.on('data', (chunk) => (stderr += chunk))
      child.on('close', (code) => done({ code, stdout, stderr }))
    })
  const { id } = await other.create()
  const refused = await open(id, { argv: ['id'], stream: true }, { to: other.server })
  assert.equal(refused.status, 403)
  refused.close()
  assert.equal((await (await open(id, { argv: ['echo', 'hi'], stream: true }, { to: other.server })).all()).at(-1).exit_code, 0)
  // The command line has no other way.
  for (const args of [['exec', id, '--', 'id'], ['exec', id, 'echo a; id'], ['run', '--', 'id'], ['job', 'start', id, '--', 'id']]) {
    const answer = await quicksand(...args)
    assert.equal(answer.code, 1, args.join(' '))
    assert.match(answer.stderr, /commands\.allow/)
  }
  assert.deepEqual(await quicksand('exec', id, '--', 'echo', 'x'), { code: 0, stdout: 'x\n', stderr: '' })
  assert.deepEqual(await quicksand('exec', id, 'echo a line'), { code: 0, stdout: 'a line\n', stderr: '' })
  assert.deepEqual(await quicksand('run', '--', 'echo', 'y'), { code: 0, stdout: 'y\n', stderr: '' })
  const commands = (await other.events({ type: 'process.started' })).map((one) => one.data.command)
  assert.deepEqual(commands, ['echo hi', 'echo x', 'echo a line', 'echo y'])
  assert.equal((await other.events({ type: 'process.exited' })).length, 4)

  const stream = await open(id, { argv: ['sleep', '600'], stream: true }, { to: other.server })
  await stream.next()
  const sleeping = quicksand('exec', id, '--', 'sleep', '600')
  await eventually('it runs', async () => (await other.events({ type: 'process.started' })).length === 6)
  await other.server.stop()
  const [told] = await stream.all()
  assert.deepEqual([told.type, told.error.code], ['error', 'unavailable'])
  const left = await sleeping
  assert.equal(left.code, 1)
  assert.match(left.stderr, /the server stops/)
})
