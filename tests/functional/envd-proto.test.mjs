// envd's binary codec, spoken to by a generated client: our .proto files compiled by buf, the
// published Connect runtime in front of them.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { eventually, repository, startServer } from '../harness/server.mjs'

const require = createRequire(path.join(repository, 'build/npm/connect/index.js'))
const { createFileRegistry, fromBinary } = require('@bufbuild/protobuf')
const { FileDescriptorProtoSchema, FileDescriptorSetSchema, timestampDate } = require('@bufbuild/protobuf/wkt')
const { Code, createClient } = require('@connectrpc/connect')
const { createConnectTransport } = require('@connectrpc/connect-node')

const FILE = 1
const DIRECTORY = 2
const SIGKILL = 9

let server, box, descriptors, processes, files, jsonProcesses
before(async () => {
  const buf = path.join(repository, 'build/npm/connect/node_modules/.bin/buf')
  const built = spawnSync(buf, ['build', path.join(repository, 'src/protocol/envd'), '-o', '-#format=binpb'], { env: { ...process.env, HOME: '/tmp' } })
  assert.equal(built.status, 0, String(built.stderr))
  descriptors = fromBinary(FileDescriptorSetSchema, built.stdout)
  const registry = createFileRegistry(descriptors)

  server = await startServer()
  box = (await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 300 })).body
  const client = (name, useBinaryFormat) => {
    const route = (next) => (request) => {
      for (const [key, value] of Object.entries(routing())) request.header.set(key, value)
      return next(request)
    }
    return createClient(registry.getService(name), createConnectTransport({ baseUrl: server.url, httpVersion: '1.1', useBinaryFormat, interceptors: [route] }))
  }
  processes = client('process.Process', true)
  files = client('filesystem.Filesystem', true)
  jsonProcesses = client('process.Process', false)
})
after(() => server.destroy())

const routing = () => ({ 'E2b-Sandbox-Id': box.sandboxID, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': box.envdAccessToken })
const bash = (script) => ({ cmd: '/bin/bash', args: ['-c', script] })
const byPid = (pid) => ({ selector: { case: 'pid', value: pid } })
const byTag = (tag) => ({ selector: { case: 'tag', value: tag } })
const as = (user) => ({ headers: { Authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` } })

// Everything a stream of process events says.
async function collect(stream, seen = {}) {
  Object.assign(seen, { stdout: [], stderr: [], pty: [], keepalives: 0 })
  for await (const { event } of stream) {
    const { case: kind, value } = event.event
    if (kind === 'start') seen.pid = value.pid
    if (kind === 'data') seen[value.output.case].push(Buffer.from(value.output.value))
    if (kind === 'keepalive') seen.keepalives++
    if (kind === 'end') seen.end = value
  }
  for (const channel of ['stdout', 'stderr', 'pty']) seen[channel] = Buffer.concat(seen[channel])
  return seen
}

const fails = (promise, code, message) =>
  assert.rejects(promise, (error) => {
    assert.equal(Code[error.code], Code[code], error.message)
    assert.match(error.rawMessage, message)
    return true
  })

// What of a file's descriptor is on the wire.
function wire(file) {
  const found = {}
  const add = (message, prefix) => {
    found[prefix + message.name] = message.field
      .map((field) => [field.number, field.name, field.type, field.label, field.typeName, field.proto3Optional, field.proto3Optional ? '' : field.oneofIndex].join(' '))
      .sort()
    for (const inner of message.nestedType) add(inner, `${prefix}${message.name}.`)
  }
  for (const message of file.messageType) add(message, '')
  for (const one of file.enumType) found[`enum ${one.name}`] = one.value.map((value) => `${value.name} ${value.number}`).sort()
  for (const service of file.service) {
    for (const method of service.method) found[`${service.name}/${method.name}`] = [method.inputType, method.outputType, method.clientStreaming, method.serverStreaming].join(' ')
  }
  return found
}

test('our .proto files say what the published SDK says', () => {
  const bundle = fs.readFileSync(path.join(repository, 'build/npm/latest/node_modules/e2b/dist/index.mjs'), 'utf8')
  const theirs = [...bundle.matchAll(/fileDesc\d*\(\s*"([A-Za-z0-9+/=]+)"/g)].map((match) => fromBinary(FileDescriptorProtoSchema, Buffer.from(match[1], 'base64')))
  assert.deepEqual(theirs.map((file) => file.package).sort(), ['filesystem', 'process'])
  for (const file of theirs) assert.deepEqual(wire(descriptors.file.find((one) => one.package === file.package)), wire(file))
})

describe('processes', () => {
  test('start: arguments, environment, directory, both outputs, exit code', async () => {
    const seen = await collect(processes.start({ process: { ...bash('pwd; echo "$A-$B-$0" >&2; whoami; exit 3'), envs: { A: 'ä', B: '' }, cwd: '/etc' } }))
    assert.ok(seen.pid > 0)
    assert.equal(seen.stdout.toString(), '/etc\nuser\n')
    assert.equal(seen.stderr.toString(), 'ä--/bin/bash\n')
    assert.equal(seen.end.exitCode, 3)
    assert.equal(seen.end.exited, true)
    assert.equal(seen.end.status, 'exit status 3')
    assert.equal(seen.end.error, 'exit status 3')
    const good = await collect(processes.start({ process: bash('whoami') }, as('root')))
    assert.equal(good.stdout.toString(), 'root\n')
    assert.equal(good.end.exitCode, 0)
    assert.equal(good.end.error, undefined)
  })

  test('output is byte exact, short and long', async () => {
    const every = await collect(processes.start({ process: bash("printf '\\\\x%02x' $(seq 0 255) | xargs -0 printf") }))
    assert.deepEqual([...every.stdout], [...Array(256).keys()])
    const long = await collect(processes.start({ process: bash('head -c 20000000 /dev/urandom | tee /tmp/random; sha256sum /tmp/random >&2') }))
    assert.equal(long.stdout.length, 20_000_000)
    assert.equal(long.stderr.toString().split(' ')[0], crypto.createHash('sha256').update(long.stdout).digest('hex'))
  })

  test('stdin: SendInput, CloseStdin, and by tag', async () => {
    const seen = {}
    const done = collect(processes.start({ process: { cmd: 'cat' }, tag: 'the cat', stdin: true }), seen)
    await eventually('start', () => seen.pid)
    await processes.sendInput({ process: byTag('the cat'), input: { input: { case: 'stdin', value: Buffer.from([0, 255, 10]) } } })
    await processes.sendInput({ process: byPid(seen.pid), input: { input: { case: 'stdin', value: Buffer.from('é') } } })
    await processes.closeStdin({ process: byPid(seen.pid) })
    await done
    assert.deepEqual(seen.stdout, Buffer.from([0, 255, 10, 0xc3, 0xa9]))
    assert.equal(seen.end.exitCode, 0)
  })

  test('StreamInput: a client stream, in order', async () => {
    const seen = {}
    const done = collect(processes.start({ process: { cmd: 'cat' }, stdin: true }), seen)
    await eventually('start', () => seen.pid)
    const parts = Array.from({ length: 200 }, (_, at) => Buffer.alloc(at * 50, at))
    await processes.streamInput(
      (async function* () {
        yield { event: { case: 'start', value: { process: byPid(seen.pid) } } }
        for (const value of parts) yield { event: { case: 'data', value: { input: { input: { case: 'stdin', value } } } } }
        yield { event: { case: 'keepalive', value: {} } }
      })(),
    )
    await processes.closeStdin({ process: byPid(seen.pid) })
    await done
    assert.deepEqual(seen.stdout, Buffer.concat(parts))
  })

  test('a terminal: size, resize, input', async () => {
    const seen = {}
    const done = collect(processes.start({ process: { cmd: '/bin/bash', args: ['-i', '-l'], envs: { TERM: 'xterm' } }, pty: { size: { cols: 91, rows: 17 } } }), seen)
    await eventually('start', () => seen.pid)
    const type = (text) => processes.sendInput({ process: byPid(seen.pid), input: { input: { case: 'pty', value: Buffer.from(text) } } })
    const shown = () => Buffer.concat(seen.pty).toString()
    await type('stty size\n')
    await eventually('size', () => shown().includes('17 91'))
    await processes.update({ process: byPid(seen.pid), pty: { size: { cols: 120, rows: 40 } } })
    await type('stty size; exit 5\n')
    await done
    assert.match(seen.pty.toString(), /40 120/)
    assert.equal(seen.end.exitCode, 5)
  })

  test('List, Connect in both codecs, SendSignal', async () => {
    const starter = {}
    const first = collect(processes.start({ process: { cmd: '/bin/bash', args: ['-c', 'read x; echo "$x"; sleep 300', 'a"b\\c\n'], envs: { E: 'ü' }, cwd: '/tmp' }, tag: 'watched', stdin: true }), starter)
    await eventually('start', () => starter.pid)
    const listed = (await processes.list({})).processes.find((one) => one.pid === starter.pid)
    assert.equal(listed.tag, 'watched')
    assert.equal(listed.config.cmd, '/bin/bash')
    assert.equal(listed.config.args[2], 'a"b\\c\n')
    assert.deepEqual(listed.config.envs, { E: 'ü' })
    assert.equal(listed.config.cwd, '/tmp')

    const binary = {}
    const json = {}
    const others = [collect(processes.connect({ process: byTag('watched') }), binary), collect(jsonProcesses.connect({ process: byPid(starter.pid) }), json)]
    await eventually('both watch', () => binary.pid === starter.pid && json.pid === starter.pid)
    await processes.sendInput({ process: byPid(starter.pid), input: { input: { case: 'stdin', value: Buffer.from('hello\n') } } })
    await eventually('all saw it', () => [starter, binary, json].every((one) => Buffer.concat(one.stdout).toString() === 'hello\n'))
    await processes.sendSignal({ process: byPid(starter.pid), signal: SIGKILL })
    await Promise.all([first, ...others])
    for (const one of [starter, binary, json]) {
      assert.equal(one.end.exitCode, -1)
      assert.equal(one.end.exited, false)
      assert.equal(one.end.status, 'signal: killed')
    }
    const late = await collect(processes.connect({ process: byTag('watched') }))
    assert.equal(late.pid, starter.pid)
    assert.equal(late.end.status, 'signal: killed')
  })

  test('keepalive events', async () => {
    const seen = await collect(processes.start({ process: { cmd: 'sleep', args: ['2.5'] } }, { headers: { 'Keepalive-Ping-Interval': '1' } }))
    assert.ok(seen.keepalives >= 1, `${seen.keepalives} keepalives`)
    assert.equal(seen.end.exitCode, 0)
  })

  test('errors, in streams and in single calls', async () => {
    await fails(collect(processes.connect({ process: byPid(99999) })), Code.NotFound, /process with pid 99999 not found/)
    await fails(collect(processes.start({ process: { cmd: 'true', cwd: '/nowhere' } })), Code.InvalidArgument, /cwd '\/nowhere' does not exist/)
    await fails(collect(processes.start({ process: { cmd: 'true' } }, as('nobody-here'))), Code.Unauthenticated, /nobody-here/)
    await fails(collect(processes.start({ process: { cmd: 'sleep', args: ['30'] } }, { timeoutMs: 500 })), Code.DeadlineExceeded, /./)
    await fails(processes.sendSignal({ process: byTag('nothing'), signal: SIGKILL }), Code.NotFound, /process with tag 'nothing' not found/)
    await fails(processes.sendSignal({ process: {} }), Code.InvalidArgument, /./)
    await fails(
      processes.streamInput(
        (async function* () {
          yield { event: { case: 'data', value: { input: { input: { case: 'stdin', value: Buffer.from('x') } } } } }
        })(),
      ),
      Code.InvalidArgument,
      /start/,
    )
  })
})

describe('files', () => {
  test('MakeDir, Stat, ListDir, Move, Remove', async () => {
    const { entry: made } = await files.makeDir({ path: 'codec/deep' })
    assert.equal(made.path, '/home/user/codec/deep')
    assert.equal(made.type, DIRECTORY)
    const began = Date.now()
    await collect(processes.start({ process: bash("cd ~/codec && truncate -s 5000000000 big; ln -s deep link; touch 'naïve \"name\"'; python3 -c 'import os; os.setxattr(\"big\", \"user.e2b.key\", \"välue\".encode())'; chmod 640 big") }))
    const { entry: big } = await files.stat({ path: '/home/user/codec/big' })
    assert.equal(big.size, 5_000_000_000n)
    assert.equal(big.type, FILE)
    assert.equal(big.mode, 0o640)
    assert.equal(big.permissions, '-rw-r-----')
    assert.equal(`${big.owner}:${big.group}`, 'user:user')
    assert.ok(Math.abs(timestampDate(big.modifiedTime).getTime() - began) < 60_000)
    assert.equal(big.symlinkTarget, undefined)
    assert.deepEqual(big.metadata, { key: 'välue' })
    const { entries } = await files.listDir({ path: 'codec', depth: 1 })
    assert.deepEqual(entries.map((one) => one.name), ['big', 'deep', 'link', 'naïve "name"'])
    assert.equal(entries[2].symlinkTarget, '/home/user/codec/deep')
    assert.equal(entries[2].type, DIRECTORY)
    const { entry: moved } = await files.move({ source: 'codec/big', destination: 'codec/deep/er/small' })
    assert.equal(moved.path, '/home/user/codec/deep/er/small')
    assert.deepEqual((await files.listDir({ path: 'codec', depth: 3 })).entries.map((one) => one.name), ['deep', 'er', 'small', 'link', 'naïve "name"'])
    await files.remove({ path: 'codec' })
    await fails(files.stat({ path: 'codec' }), Code.NotFound, /does not exist/)
    await fails(files.makeDir({ path: '/etc/passwd' }), Code.InvalidArgument, /not a directory/)
    await fails(files.makeDir({ path: '/etc' }), Code.AlreadyExists, /already exists/)
  })

  test('a long listing', async () => {
    await collect(processes.start({ process: bash('mkdir ~/many && cd ~/many && seq -f "file-number-%05g" 20000 | xargs touch') }))
    const { entries } = await files.listDir({ path: 'many' })
    assert.equal(entries.length, 20_000)
    assert.equal(entries[19_999].name, 'file-number-20000')
    await files.remove({ path: 'many' })
  })

  test('WatchDir', async () => {
    await files.makeDir({ path: 'watched' })
    const stop = new AbortController()
    const events = []
    let started = false
    const done = (async () => {
      for await (const { event } of files.watchDir({ path: 'watched', recursive: true, includeEntry: true }, { signal: stop.signal })) {
        if (event.case === 'start') started = true
        if (event.case === 'filesystem') events.push(event.value)
      }
    })().catch((error) => error)
    await eventually('start', () => started)
    await files.makeDir({ path: 'watched/sub' })
    await collect(processes.start({ process: bash('echo x > ~/watched/sub/file') }))
    await eventually('the write', () => events.some((one) => one.name === 'sub/file' && one.type === 2))
    const created = events.find((one) => one.name === 'sub/file' && one.type === 1)
    assert.equal(created.entry.path, '/home/user/watched/sub/file')
    assert.equal(created.entry.type, FILE)
    assert.equal(events[0].name, 'sub')
    stop.abort()
    assert.equal((await done).code, Code.Canceled)
    await fails(collect(files.watchDir({ path: '/no/such' })), Code.NotFound, /./)
  })

  test('CreateWatcher, GetWatcherEvents, RemoveWatcher', async () => {
    await files.makeDir({ path: 'polled' })
    const { watcherId } = await files.createWatcher({ path: 'polled' })
    await files.makeDir({ path: 'polled/new' })
    const [event] = await eventually('an event', async () => {
      const { events } = await files.getWatcherEvents({ watcherId })
      return events.length && events
    })
    assert.equal(event.name, 'new')
    assert.equal(event.type, 1)
    await files.removeWatcher({ watcherId })
    await fails(files.getWatcherEvents({ watcherId }), Code.NotFound, /./)
  })
})

describe('the wire', () => {
  const post = (target, type, body) => server.request({ method: 'POST', path: target, headers: { ...routing(), 'Content-Type': type }, body })

  test('answers name their codec; errors are JSON in both', async () => {
    const good = await post('/process.Process/List', 'application/proto', Buffer.alloc(0))
    assert.equal(good.status, 200)
    assert.equal(good.headers['content-type'], 'application/proto')
    const bad = await post('/filesystem.Filesystem/Stat', 'application/proto', Buffer.from('\x0a\x05/none'))
    assert.equal(bad.status, 404)
    assert.equal(bad.headers['content-type'], 'application/json')
    assert.equal(bad.body.code, 'not_found')
    const stream = await post('/process.Process/Connect', 'application/connect+proto', Buffer.from([0, 0, 0, 0, 4, 0x0a, 2, 0x08, 1]))
    assert.equal(stream.status, 200)
    assert.equal(stream.headers['content-type'], 'application/connect+proto')
    assert.equal(stream.bytes[0], 2)
    assert.equal(JSON.parse(stream.bytes.subarray(5)).error.code, 'not_found')
  })

  test('damaged messages are invalid arguments', async () => {
    for (const bytes of ['\x0a', '\x0a\x05abc', '\x08\x80', '\x0a\x01\xff', '\x00\x01', '\x0f', '\x0a\x02a\x00']) {
      const answer = await post('/filesystem.Filesystem/Stat', 'application/proto', Buffer.from(bytes, 'latin1'))
      assert.equal(answer.status, 400, JSON.stringify(bytes))
      assert.equal(answer.body.code, 'invalid_argument')
    }
  })

  test('codecs do not mix with kinds of calls', async () => {
    assert.equal((await post('/process.Process/List', 'application/connect+proto', Buffer.alloc(5))).status, 415)
    assert.equal((await post('/process.Process/Start', 'application/proto', Buffer.alloc(0))).status, 415)
    assert.equal((await post('/process.Process/List', 'application/grpc', Buffer.alloc(0))).status, 415)
  })
})
