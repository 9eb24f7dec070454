// The commands of the runtime against a live server: sandboxes by key, jobs, terminals, sessions, events; with a
// second provider (plain processes) for what is not on the server's own engine, and through TLS.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { startGitHost } from '../harness/git-host.mjs'
import { binary, eventually, repository, startServer } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const repo = 'http://203.0.113.1/git/acme/app.git'

let server
let folder
let gitHost
before(async () => {
  gitHost = await startGitHost()
  folder = fs.mkdtempSync('/tmp/quicksand-cli-')
  fs.chmodSync(folder, 0o755)
  const config = path.join(folder, 'runtime.json')
  const settings = {
    default_provider: 'e2b',
    providers: { e2b: { type: 'e2b', api_url: 'embedded' }, local: { type: 'process', socket: path.join(folder, 'process.sock') } },
    profiles: { tuned: { provider: 'e2b', template: 'base', network: { mode: 'allow-all' }, timeout: 60 } },
    agents: { 'ci-fix': 'tuned' },
    sandbox_agent: { program },
    git_hosts: { '203.0.113.1': { type: 'forgejo', api_url: `${gitHost.url}/tea/api/v1` } },
  }
  fs.writeFileSync(config, JSON.stringify(settings), { mode: 0o644 })
  server = await startServer({ args: ['--runtime-config', config, '--process-provider', '1'] })
  // envd's socket is in the data directory, whose name was not known before.
  fs.symlinkSync(path.join(server.data, 'run/process.sock'), path.join(folder, 'process.sock'))
})
after(async () => {
  await server.destroy()
  await gitHost.close()
  fs.rmSync(folder, { recursive: true })
})

// Ctrl-C, once it has said something.
const interruptOnce = (word) => (child, output) => void eventually(`it says '${word}'`, () => output().includes(word)).then(() => child.kill('SIGINT'))

function quicksand(args, { input = '', env = {}, cwd, onStart } = {}) {
  return new Promise((done) => {
    const child = spawn(binary, args, {
      cwd: cwd ?? folder,
      env: { PATH: process.env.PATH, HOME: '/root', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key, ...env },
    })
    let stdout = Buffer.alloc(0)
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout = Buffer.concat([stdout, chunk])))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.on('error', () => {})
    child.stdin.on('error', () => {}) // it may have ended without reading
    if (input !== null) child.stdin.end(input)
    child.on('close', (code, signal) => done({ code, signal, bytes: stdout, stdout: stdout.toString(), stderr }))
    onStart?.(child, () => stdout.toString())
  })
}

async function good(...args) {
  const options = typeof args.at(-1) === 'object' ? args.pop() : {}
  const result = await quicksand(args, options)
  assert.equal(result.code, 0, `${args.join(' ')}: ${result.code} ${result.stdout} ${result.stderr}\n${server.tail(5)}`)
  return result.stdout.trim()
}

const json = async (...args) => JSON.parse(await good(...args, '--json'))

describe('sandboxes', () => {
  test('up, exec, pause, up again: the same one, made once', async () => {
    const id = await good('up', '--key', 'conversation:c1:s1', '--template', 'base', '-q')
    assert.match(id, /^i[0-9a-z]{19}$/)
    assert.equal(await good('exec', id, '--', 'sh', '-c', 'echo hi > /tmp/x; whoami'), 'user')
    assert.equal(await good('pause', id), `${id} paused`)
    assert.equal((await json('show', id)).state, 'paused')
    const again = await good('up', '--key', 'conversation:c1:s1', '--template', 'base')
    assert.equal(again, `${id} resumed on e2b, key conversation:c1:s1`)
    assert.equal(await good('exec', 'key:conversation:c1:s1', '--', 'cat', '/tmp/x'), 'hi')
    const made = (await good('events', '--sandbox', id, '--type', 'sandbox.created', '--json')).split('\n')
    assert.equal(made.length, 1, made.join('\n'))
    assert.equal(await good('resume', id), `${id} running`)
    assert.equal(await good('rm', 'key:conversation:c1:s1'), 'key:conversation:c1:s1')
    assert.equal((await json('show', id)).state, 'killed')
  })

  test('exec --keep, and log of what was kept, also when the sandbox is gone', async () => {
    const id = await good('up', '-q')
    await good('exec', id, '--', 'echo', 'not kept')
    assert.deepEqual(await json('log', id), [])
    const ran = await quicksand(['exec', '--keep', id, 'echo out; echo err >&2; exit 4'])
    assert.deepEqual([ran.code, ran.stdout, ran.stderr], [4, 'out\n', 'err\n'])
    await good('rm', id)
    const [{ id: execution, exit_code }] = await json('log', id)
    assert.equal(exit_code, 4)
    const table = await good('log', id)
    assert.ok(table.includes(execution) && table.includes('echo out'), table)
    const shown = await quicksand(['log', execution])
    assert.deepEqual([shown.code, shown.stdout, shown.stderr], [0, 'out\n', 'err\n'])
    assert.equal(await good('logs', '--commands', id), table, 'log is an alias')
    assert.deepEqual(await quicksand(['logs', execution]), shown)
    assert.equal((await quicksand(['logs', '--commands', '-f', id])).code, 2)
    assert.equal((await json('log', execution)).stdout, 'out\n')
    assert.equal((await quicksand(['log', 'exe_none'])).code, 1)
    assert.equal((await quicksand(['log'])).code, 2)
  })

  for (const provider of ['e2b', 'local']) {
    test(`exec on ${provider}: exit codes, streams, input, environment, folders, time limits, signals`, async () => {
      const id = await good('up', '--provider', provider, '-q', '-e', 'FROM_UP=1')
      const mixed = await quicksand(['exec', id, '--', 'sh', '-c', 'echo out; echo err >&2; exit 7'])
      assert.deepEqual([mixed.code, mixed.stdout, mixed.stderr], [7, 'out\n', 'err\n'])
      assert.equal(await good('exec', '-e', 'A=b=c', '-e', 'OURS', '-w', '/tmp', id, '--', 'sh', '-c', 'echo $A $OURS $FROM_UP $PWD', { env: { OURS: 'passed on' } }), 'b=c passed on 1 /tmp')
      assert.equal(await good('exec', id, 'echo a line | tr a-z A-Z'), 'A LINE')
      const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => (i * 7) % 256))
      const echoed = await quicksand(['exec', id, '--', 'cat'], { input: bytes })
      assert.ok(echoed.bytes.equals(bytes), `${echoed.bytes.length} ${echoed.stderr}`)
      const begin = Date.now()
      const late = await quicksand(['exec', '--timeout', '1s', id, '--', 'sleep', '60'])
      assert.deepEqual([late.code, late.stderr], [124, 'quicksand: the command reached its time limit\n'])
      assert.ok(Date.now() - begin < 20_000)
      assert.equal((await quicksand(['exec', id, '--', '/no/such/program'])).code, 127)
      // The first Ctrl-C asks it to end, the second kills it.
      const asked = await quicksand(['exec', '-n', id, '--', 'sh', '-c', 'echo up; exec sleep 30'], { onStart: interruptOnce('up') })
      assert.equal(asked.code, 143, asked.stderr)
      const stubborn = await quicksand(['exec', '-n', id, '--', 'sh', '-c', 'trap "echo no" TERM; echo up; while :; do sleep 0.1; done'], {
        onStart: (child, output) => {
          interruptOnce('up')(child, output)
          void eventually('it heard', () => output().includes('no')).then(() => child.kill('SIGINT'))
        },
      })
      assert.equal(stubborn.code, 137, stubborn.stderr)
      // Who reads no further ends it.
      const head = spawnSync('bash', ['-c', `set -o pipefail; ${binary} exec -n ${id} -- yes | head -1`], { env: { PATH: process.env.PATH, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key }, encoding: 'utf8', timeout: 20_000 })
      assert.equal(head.stdout, 'y\n', head.stderr)
      await eventually('yes has ended', async () => (await quicksand(['exec', id, 'pgrep -x yes'])).code === 1)
      if (provider === 'local') {
        const refused = await quicksand(['pause', id])
        assert.equal(refused.code, 1)
        assert.match(refused.stderr, /pause/)
      }
      await good('rm', id)
      const gone = await quicksand(['exec', id, '--', 'true'])
      assert.equal(gone.code, 1)
      assert.ok(gone.stderr.includes(id), gone.stderr)
    })
  }

  test('ls shows what the runtime and what an SDK has made, each once', async () => {
    const id = await good('up', '--key', 'k-ls', '--agent-id', 'a1', '--task-id', 't1', '-q')
    const plain = await good('create')
    const rows = (await good('ls')).split('\n')
    assert.match(rows[0], /^ID +NAME +KEY +TEMPLATE +STATE +ENDS +PORTS +PROVIDER +OWNER +AGE/)
    assert.match(rows.find((row) => row.startsWith(id)), / - +k-ls +\S+ +running +in \d+m +\S+ +e2b +a1\/t1/)
    assert.match(rows.find((row) => row.startsWith(plain)), / - +- +base +running +in \d+[sm] +\S+ +e2b/)
    const listed = await json('ls')
    const { endAt } = (await server.api('GET', `/sandboxes/${plain}`)).body
    assert.equal(listed.find((one) => one.id === plain).ends_at, endAt)
    assert.deepEqual(listed.map((one) => one.id).filter((one) => [id, plain].includes(one)), [plain, id], 'newest first')
    assert.deepEqual((await json('ls', '--agent-id', 'a1')).map((one) => one.id), [id])
    assert.deepEqual(await json('ls', '--agent-id', 'other'), [])
    assert.equal(await good('pause', plain), `${plain} paused`)
    assert.equal(await good('resume', plain), `${plain} running`)
    assert.equal(await good('exec', plain, '--', 'echo', 'awake'), 'awake')
    await good('rm', id, plain)
  })

  test('cp both ways, on both', async () => {
    const file = path.join(folder, 'bytes')
    fs.writeFileSync(file, Buffer.from(Array.from({ length: 700_000 }, (_, i) => (i * 7) % 251)))
    for (const provider of ['e2b', 'local']) {
      const id = await good('up', '--provider', provider, '--key', `cp:${provider}`, '-q')
      await good('cp', file, `${id}:dir/bytes`)
      await good('cp', `key:cp:${provider}:dir/bytes`, `${file}.back`)
      assert.ok(fs.readFileSync(file).equals(fs.readFileSync(`${file}.back`)), provider)
      await good('cp', '-', `${id}:note`, { input: 'from stdin' })
      assert.equal(await good('cp', `${id}:note`, '-'), 'from stdin')
      const missing = await quicksand(['cp', `${id}:nothing`, `${file}.none`])
      assert.equal(missing.code, 1)
      assert.ok(!fs.existsSync(`${file}.none`))
      await good('rm', id)
    }
  })

  test('snapshots, url', async () => {
    const id = await good('up', '-q')
    await good('exec', id, '--', 'sh', '-c', 'echo kept > ~/kept')
    const snapshot = await good('snapshot', 'create', id, '--alias', 'saved', '--ttl', '1h')
    assert.match(snapshot, /^snap_/)
    assert.match(await good('snapshot', 'ls', id), new RegExp(`${snapshot} +saved +e2b +ready`))
    const copy = await good('up', '--snapshot', 'saved', '-q')
    assert.equal(await good('exec', copy, '--', 'cat', '/home/user/kept'), 'kept')
    assert.match(await good('url', id, '8080'), /^https?:\/\/.*8080/)
    const browser = await quicksand(['url', '--cdp', id])
    assert.equal(browser.code, 1)
    assert.match(browser.stderr, /no browser/)
    await good('snapshot', 'rm', snapshot)
    assert.ok(!(await good('snapshot', 'ls')).includes(snapshot))
    await good('rm', id, copy)
  })
})

describe('run', () => {
  test('with a profile: the command’s exit code, and nothing is left', async () => {
    const before = (await json('ls')).length
    assert.equal(await good('run', '--profile', 'tuned', '--', 'python3 -c "print(1)"'), '1')
    assert.equal(await good('run', '--profile', 'tuned', '--', 'echo left | tee /tmp/left ~/left'), 'left')
    assert.equal(await good('run', '--profile', 'tuned', '--', 'ls /tmp/left ~/left 2>/dev/null; echo nothing'), 'nothing', 'something of the call before is there')
    const bad = await quicksand(['run', '--provider', 'local', '--', 'sh', '-c', 'exit 9'])
    assert.equal(bad.code, 9, bad.stderr)
    assert.equal((await quicksand(['run', '--profile', 'nothing', '--', 'true'])).code, 1)
    assert.equal((await json('ls')).length, before)
  })

  test('with a repository and a variable of ours', async () => {
    const text = await good('run', '--agent', 'ci-fix', '--repo', repo, '-e', 'GITHUB_TOKEN', '--', 'sh', '-c', 'pwd; cat README.md; echo $GITHUB_TOKEN', { env: { GITHUB_TOKEN: 'ghp_x' } })
    assert.equal(text, '/home/user/workspace/app\nhello from the world\nghp_x')
    const secret = await good('run', '--repo', 'http://203.0.113.1/private/acme/secret.git', '-e', 'GITHUB_TOKEN', '--', 'ls', { env: { GITHUB_TOKEN: 'ghp_worldtoken0123456789worldtoken0123456789' } })
    assert.equal(secret, 'README.md')
    const refused = await quicksand(['run', '--repo', 'http://203.0.113.1/private/acme/secret.git', '--', 'ls'])
    assert.equal(refused.code, 1)
    assert.match(refused.stderr, /could not be cloned/)
    assert.equal((await quicksand(['run', '-e', 'NOT_SET_HERE', '--', 'true'])).code, 2)
  })

  test('Ctrl-C ends it and removes the sandbox', async () => {
    for (const provider of ['e2b', 'local']) {
      const before = (await json('ls')).length
      const result = await quicksand(['run', '--provider', provider, '-n', '--', 'sh', '-c', 'echo up; exec sleep 60'], { onStart: interruptOnce('up') })
      assert.equal(result.code, 130, result.stderr)
      assert.equal((await json('ls')).length, before, provider)
    }
  })
})

describe('jobs', () => {
  for (const provider of ['e2b', 'local']) {
    test(`start, status, logs, wait, stop on ${provider}`, async () => {
      const id = await good('up', '--provider', provider, '-q')
      const job = await good('job', 'start', id, '-e', 'WHO=me', '--', 'sh', '-c', 'for i in 1 2 3; do echo $WHO $i; sleep 0.3; done; exit 5')
      assert.match(job, /^job_/)
      assert.equal(await good('job', 'status', job), `${job} running`)
      assert.equal(await good('job', 'logs', '-f', job), 'me 1\nme 2\nme 3')
      assert.equal((await quicksand(['job', 'wait', job])).code, 5)
      assert.equal(await good('job', 'status', job), `${job} failed 5`)
      assert.equal(await good('job', 'logs', '--after', '5', job), 'me 2\nme 3')
      const long = await good('job', 'start', id, '--', 'sleep', '600')
      if (provider === 'e2b') {
        await good('pause', id)
        assert.equal(await good('job', 'status', long), `${long} paused`)
        assert.match(await good('job', 'ls', id), new RegExp(`^${long} +${id} +paused`, 'm'))
        await good('resume', id)
      }
      assert.equal((await quicksand(['job', 'wait', '--timeout', '1', long])).code, 124)
      assert.match(await good('job', 'stop', long), /cancelled 143/)
      assert.match(await good('job', 'ls', id), new RegExp(`${long} +${id} +cancelled +143`))
      assert.ok((await json('job', 'ls')).some((one) => one.id === job))
      assert.equal((await quicksand(['job', 'status', 'job_nothing'])).code, 1)
      await good('rm', id)
    })
  }

  test('a callback is called, with its token', async () => {
    const seen = []
    const listener = http.createServer((request, response) => {
      let text = ''
      request.on('data', (chunk) => (text += chunk))
      request.on('end', () => {
        seen.push({ token: request.headers['x-job-token'], body: JSON.parse(text) })
        response.end('{}')
      })
    })
    await new Promise((done) => listener.listen(0, '127.0.0.1', done))
    const id = await good('up', '-q')
    const job = await good('job', 'start', id, '--callback', `http://127.0.0.1:${listener.address().port}/done`, '--token', 'tok-1', '--', 'true')
    await eventually('the callback', () => seen.length > 0)
    assert.equal(seen[0].token, 'tok-1')
    assert.deepEqual([seen[0].body.status, seen[0].body.response.exitCode], ['completed', 0])
    assert.match(await good('job', 'status', job), /completed 0/)
    listener.close()
    await good('rm', id)
  })
})

describe('terminals', () => {
  test('without a terminal of our own: input is passed on, the exit code comes back', async () => {
    for (const provider of ['e2b', 'local']) {
      const id = await good('up', '--provider', provider, '-q')
      const shell = await quicksand(['pty', '-w', '/tmp', id], { input: 'echo in-$((6*7)) $PWD\nexit 3\n' })
      assert.equal(shell.code, 3, shell.stderr)
      assert.match(shell.stdout, /in-42 \/tmp/)
      assert.equal((await quicksand(['pty', id], { input: '' })).code, 0)
      await good('rm', id)
    }
    const missing = await quicksand(['pty', 'sbx_00000000000000000000'])
    assert.equal(missing.code, 1)
    assert.match(missing.stderr, /sbx_0/)
  })

  test('in a terminal: raw, its size is passed on, also when it changes', async () => {
    const id = await good('up', '-q')
    const driver = `
import os, pty, sys, time, fcntl, termios, struct, signal, select
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], 'pty', sys.argv[2]])
def size(rows, cols): fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, cols, 0, 0))
seen = b''
def until(what):
    global seen
    end = time.time() + 20
    while what not in seen:
        if time.time() > end: sys.exit('no %r in %r' % (what, seen))
        if select.select([fd], [], [], 0.2)[0]: seen += os.read(fd, 65536)
size(31, 101)
until(b'$')
os.write(fd, b'stty size; echo mark-$((1+1))\\n')
until(b'mark-2')
size(40, 120)
os.kill(pid, signal.SIGWINCH)
for mark in range(20, 120):
    os.write(fd, b'stty size; echo mark-$((%d+1))\\n' % mark)
    until(b'mark-%d' % (mark + 1))
    if b'40 120' in seen: break
os.write(fd, b'echo begun-$((5+5)); sleep 100\\n')
until(b'begun-10')
os.write(fd, b'\\x03')
os.write(fd, b'exit 6\\n')
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(seen.decode(errors='replace'), code)
`
    const child = spawn('python3', ['-c', driver, binary, id], { env: { PATH: process.env.PATH, HOME: '/root', TERM: 'xterm', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key } })
    let text = ''
    child.stdout.on('data', (chunk) => (text += chunk))
    child.stderr.on('data', (chunk) => (text += chunk))
    await new Promise((done) => child.on('close', done))
    assert.match(text, /31 101/)
    assert.match(text, /40 120/)
    assert.match(text, / 6\n$/)
    await good('rm', id)
  })
})

test('sessions: new, send, tail, snapshot, approve, push, pause, rm', async () => {
  const id = await good('session', 'new', '--repo', repo, '--agent', 'mock', '-q')
  assert.match(id, /^ses_/)
  await good('session', 'send', id, 'hello', 'agent')
  const tail = await good('session', 'tail', id)
  assert.match(tail, /session\.provisioned/)
  assert.match(tail, /hello agent/)
  assert.match(tail, /session\.completed/)
  assert.match(await good('session', 'ls'), new RegExp(`${id} +mock +completed`))
  // Also what came after the first end.
  await good('session', 'send', id, 'a second turn')
  const both = await good('session', 'tail', id)
  assert.match(both, /hello agent[^]*session\.completed[^]*a second turn[^]*session\.completed/)
  const unclonable = await quicksand(['session', 'new', '--repo', 'http://203.0.113.1/private/acme/secret.git', '--agent', 'mock'])
  assert.equal(unclonable.code, 1, unclonable.stdout)
  assert.match(unclonable.stderr, /could not be cloned/)
  await good('session', 'rm', unclonable.stdout.split(' ')[0])
  assert.match(await good('session', 'snapshot', id, '--alias', 'github/acme/app#cli'), /^snap_\S+ github\/acme\/app#cli$/)
  const shell = await quicksand(['session', 'pty', id], { input: 'pwd\nexit\n' })
  assert.equal(shell.code, 0, shell.stderr)
  assert.match(shell.stdout, /workspace\/app/)
  const shown = await json('session', 'show', id)
  await good('exec', shown.sandbox_id, '--', 'sh', '-c', 'echo more >> ~/workspace/app/README.md')
  assert.match(await good('session', 'push', id, '-b', 'cli-1', '-m', 'feat: more'), /^cli-1 [0-9a-f]{40}$/)
  assert.equal(await good('session', 'push', id, '-b', 'cli-1'), 'nothing to push')
  const pull = ['session', 'push', id, '-b', 'cli-1', '--pr', '--title', 'A title', '--body', 'Why', '--base', 'main', '--draft', '--git-token-env', 'MY_TOKEN']
  assert.equal(await good(...pull, { env: { MY_TOKEN: 'cli-secret-token' } }), 'nothing to push\npull request 1 https://tea.example/acme/app/pulls/1')
  assert.deepEqual(gitHost.take().map(({ body, headers }) => [headers.authorization, body]), [['token cli-secret-token', { title: 'WIP: A title', head: 'cli-1', base: 'main', body: 'Why' }]])
  assert.match(await good(...pull, { env: { MY_TOKEN: 'cli-secret-token' } }), /\npull request 1 \(open already\) https:/)
  assert.equal((await quicksand(['session', 'push', id, '--title', 'x'])).code, 2)
  // Without -b: the branch of the session, which has no task.
  await good('exec', shown.sandbox_id, '--', 'sh', '-c', 'echo again >> ~/workspace/app/README.md')
  const [branch, commit] = (await good('session', 'push', id, '-m', 'fix: again')).split(' ')
  assert.equal(branch, `task-${id}`)
  assert.match(commit, /^[0-9a-f]{40}$/)
  assert.match(await good('exec', shown.sandbox_id, '--', 'git', 'ls-remote', repo), new RegExp(`^${commit}\trefs/heads/task-${id}$`, 'm'))
  const [head, first, second, third] = (await good('session', 'history', id)).split('\n')
  assert.match(head, /^COMMIT +AUTHOR +AGE +SUBJECT$/)
  assert.match(first, new RegExp(`^${commit} +Quicksand Agent +\\S+ +fix: again$`))
  assert.match(second, / feat: more$/)
  assert.ok(third, 'the commit that was cloned')
  assert.deepEqual((await json('session', 'history', id, '-n', '1')).map((one) => [one.commit, one.subject]), [[commit, 'fix: again']])
  assert.equal((await good('session', 'history', id, '-n', '2')).split('\n').length, 3)
  assert.match(await good('session', 'pause', id), /paused/)
  assert.match(await good('session', 'resume', id), new RegExp(id))
  const nothing = await quicksand(['session', 'approve', id])
  assert.equal(nothing.code, 1)
  assert.match(nothing.stderr, /asks for nothing/)
  assert.equal(await good('session', 'rm', id), id)
  assert.match(await good('session', 'show', id), /canceled/)
  assert.equal((await quicksand(['session', 'new'])).code, 2)
  assert.equal((await quicksand(['session', 'new', '--agent', '../x'])).code, 1)
})

test('events: a list, a stream that survives a restart', async () => {
  const id = await good('up', '-q')
  assert.match(await good('events', '--sandbox', id, '--since', '1h'), new RegExp(`sandbox\\.created ${id}`))
  let child, output
  const following = quicksand(['events', '-f', '--since', '1h', '--sandbox', id, '--json'], { onStart: (one, text) => ([child, output] = [one, text]) })
  const told = (type) => eventually(type, () => output().includes(type), 30_000)
  await told('sandbox.created')
  await good('pause', id)
  await told('sandbox.paused')
  await server.restart()
  await good('resume', id)
  await told('sandbox.resumed')
  child.kill('SIGTERM')
  const types = (await following).stdout.trim().split('\n').map((line) => JSON.parse(line).type)
  assert.ok(types.includes('sandbox.paused') && types.includes('sandbox.resumed'), types.join(' '))
  assert.equal(types.filter((type) => type === 'sandbox.paused').length, 1)
  await good('rm', id)
})

test('providers, profiles, stats, prune', async () => {
  const providers = await json('provider', 'ls')
  assert.ok(providers.some((one) => one.name === 'e2b' && one.default))
  assert.match(await good('provider', 'check', 'e2b', 'local'), /local +process +ok/)
  assert.equal((await quicksand(['provider', 'check', 'nowhere'])).code, 1)
  await good('provider', 'add', 'far', 'http://203.0.113.1:9', '--token', 't', '--max', '2')
  assert.ok((await good('provider', 'ls')).includes('far'))
  await good('provider', 'rm', 'far')

  const file = path.join(folder, 'p.json')
  fs.writeFileSync(file, JSON.stringify({ provider: 'e2b', persistent: true, envVars: { SECRET: 's3cret' } }))
  assert.equal(await good('profile', 'set', 'mine', file), 'mine')
  assert.match(await good('profile', 'ls'), /mine +e2b/)
  fs.writeFileSync(path.join(folder, 'wrapped.json'), JSON.stringify({ name: 'wrapped', config: { provider: 'local', network: { mode: 'allow-all' } } }))
  await good('profile', 'set', 'wrapped', path.join(folder, 'wrapped.json'))
  assert.match(await good('profile', 'ls'), /^wrapped +local +- +allow-all/m)
  assert.ok(!(await good('profile', 'show', 'mine')).includes('s3cret'))
  assert.equal(await good('profile', 'validate', 'mine'), 'mine: good')
  assert.equal(await good('run', '--profile', 'mine', '--', 'sh', '-c', 'echo $SECRET'), 's3cret')
  fs.writeFileSync(file, JSON.stringify({ provider: 'e2b', timeout: 'soon', network: { mode: 'sometimes' } }))
  const bad = await quicksand(['profile', 'validate', file])
  assert.equal(bad.code, 1)
  assert.match(bad.stderr, /timeout/)
  assert.match(bad.stderr, /network/)
  assert.equal((await quicksand(['profile', 'set', 'mine', file])).code, 1)
  assert.deepEqual(await json('profile', 'rm', 'mine'), ['mine'])

  const id = await good('up', '-q')
  const stats = await json('stats')
  assert.ok(stats.total.sandboxes >= 1)
  assert.match(await good('stats'), /^NAME +SANDBOXES/)
  assert.match(await good('stats', '--by', 'session'), /ses_\S+ +1 /)
  await sleep(1100) // its age
  assert.match(await good('prune', '--older-than', '1s', '--dry-run'), /^would remove [1-9]/)
  assert.match(await good('prune', '--older-than', '1s'), /^removed [1-9]/)
  assert.equal((await json('show', id)).state, 'killed')
})

test('https: calls, streams, terminals; an unknown authority is refused', async () => {
  const pem = (name) => path.join(folder, name)
  const made = spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', pem('key.pem'), '-out', pem('cert.pem'), '-days', '2', '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'])
  assert.equal(made.status, 0, String(made.stderr))
  const front = tls.createServer({ key: fs.readFileSync(pem('key.pem')), cert: fs.readFileSync(pem('cert.pem')) }, (socket) => {
    const inner = net.connect(server.port, server.host)
    socket.pipe(inner).pipe(socket)
    socket.on('error', () => inner.destroy())
    inner.on('error', () => socket.destroy())
  })
  await new Promise((done) => front.listen(0, '127.0.0.1', done))
  const env = { QUICKSAND_URL: `https://127.0.0.1:${front.address().port}`, SSL_CERT_FILE: pem('cert.pem') }
  const id = await good('up', '-q', { env })
  const bytes = Buffer.alloc(2_000_000, 'x')
  const echoed = await quicksand(['exec', id, '--', 'cat'], { env, input: bytes })
  assert.ok(echoed.bytes.equals(bytes), echoed.stderr)
  fs.writeFileSync(pem('large'), bytes)
  await good('cp', pem('large'), `${id}:large`, { env })
  await good('cp', `${id}:large`, pem('large.back'), { env })
  assert.ok(fs.readFileSync(pem('large.back')).equals(bytes))
  const shell = await quicksand(['pty', id], { env, input: 'exit 4\n' })
  assert.equal(shell.code, 4, shell.stderr)
  const stranger = await quicksand(['ls'], { env: { QUICKSAND_URL: env.QUICKSAND_URL } })
  assert.equal(stranger.code, 1)
  assert.match(stranger.stderr, /certificate/i)
  await good('rm', id, { env })
  front.close()
})

test('completion: bash completes commands, verbs and options', async () => {
  const script = await good('completion', 'bash')
  const complete = (...words) =>
    spawnSync('bash', ['-c', `${script}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _quicksand; echo "\${COMPREPLY[*]}"`], { encoding: 'utf8' }).stdout.trim()
  assert.equal(complete('quicksand', 'se'), 'serve session secret')
  assert.equal(complete('quicksand', 'sess'), 'session')
  assert.equal(complete('quicksand', 'session', 'p'), 'pause push pty')
  assert.equal(complete('quicksand', 'up', '--ke'), '--key')
  assert.equal(complete('quicksand', 'session', 'new', '--bra'), '--branch')
  for (const shell of ['zsh', 'fish']) assert.match(await good('completion', shell), /session/)
})

test('wrong use is 2, a refusal 1 with the server’s words', async () => {
  for (const args of [['up', 'x'], ['up', '--idle', 'soon'], ['job'], ['job', 'start'], ['job', 'frob'], ['session'], ['url', 'x'], ['pty'], ['prune', '--older-than', 'x'], ['completion'], ['events', '--since', 'yesterday'], ['snapshot', 'create']]) {
    const result = await quicksand(args)
    assert.equal(result.code, 2, `${args}: ${result.stderr}`)
    assert.notEqual(result.stderr, '')
  }
  const network = await quicksand(['up', '--network', 'sometimes'])
  assert.equal(network.code, 1)
  assert.match(network.stderr, /network|mode/)
  const provider = await quicksand(['up', '--provider', 'nowhere'])
  assert.equal(provider.code, 1)
  assert.match(provider.stderr, /nowhere/)
  const template = await quicksand(['template', 'build', 'x', '/nowhere'])
  assert.equal(template.code, 1)
  assert.match(template.stderr, /'\/nowhere\/Dockerfile': No such file or directory/)
})

test('what goes wrong is told in one line, at once', async () => {
  const id = await good('up', '-q')
  assert.match(await good('ls'), new RegExp(`${id}  +- +- +base +running`))
  const told = async (args, code, words, options) => {
    const begin = Date.now()
    const result = await quicksand(args, options)
    assert.equal(result.code, code, `${args.join(' ')}: ${result.stdout} ${result.stderr}`)
    assert.match(result.stderr, words)
    assert.equal(result.stderr.trim().split('\n').length, 1, result.stderr)
    assert.ok(Date.now() - begin < 5000, `${args.join(' ')} took ${Date.now() - begin} ms`)
  }
  await told(['cp', `${id}:/etc`, path.join(folder, 'etc')], 1, /'\/etc' is a directory/)
  assert.ok(!fs.existsSync(path.join(folder, 'etc')))
  await told(['cp', `${id}:/nothing`, '-'], 1, /path '\/nothing' does not exist/)
  await told(['up', '--template', 'nothing'], 1, /^quicksand: --template: provider 'e2b': template 'nothing' not found/)
  await told(['ls', '--state', 'sleeping'], 1, /'state' must be/)
  await told(['session', 'send'], 2, /needs SESSION TEXT/)
  await told(['events', '-f'], 1, /no server answers/, { env: { QUICKSAND_URL: 'http://127.0.0.1:9' } })
  await told(['ls'], 1, /the key is that of \$QUICKSAND_TOKEN/, { env: { QUICKSAND_TOKEN: `e2b_${'0'.repeat(40)}` } })
  // Nobody reads any further: no word, and no waiting for what nobody will see.
  const env = { PATH: process.env.PATH, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key }
  const piped = async (line) => {
    const child = spawn('bash', ['--norc', '-c', `set -o pipefail; ${line}`], { env })
    let text = ''
    child.stdout.on('data', (chunk) => (text += chunk))
    child.stderr.on('data', (chunk) => (text += chunk))
    const code = await new Promise((done) => child.on('close', done))
    return { code, text }
  }
  assert.deepEqual(await piped(`${binary} exec -n ${id} -- yes | head -1`), { code: 141, text: 'y\n' })
  let seen
  const follow = piped(`${binary} events -f --sandbox ${id} | head -1`).then((one) => (seen = one))
  while (!seen) await good('exec', '-n', id, 'true')
  assert.match((await follow).text, /^\S+ process\.(started|exited) [^\n]+\n$/)
  // The newest events, in their order.
  const [first, second] = (await good('events', '-n', '2', '--sandbox', id)).split('\n')
  assert.match(first, /process\.started/)
  assert.match(second, /process\.exited/)
  await good('rm', id)
})

test('exec --json and run --json: records, one per line', async () => {
  const { stdout: made } = await quicksand(['create', '--json'])
  const { id: sandboxID } = JSON.parse(made)
  for (const args of [['exec', '--json', sandboxID], ['run', '--json']]) {
    const { code, stdout } = await quicksand([...args, '--', 'sh', '-c', 'cat; echo bad >&2; exit 3'], { input: 'é"\n' })
    const records = stdout.trim().split('\n').map((line) => JSON.parse(line))
    assert.equal(code, 3, stdout)
    assert.equal(records[0].type, 'started')
    assert.deepEqual(records.filter((one) => one.type === 'stdout').map((one) => one.data).join(''), 'é"\n')
    assert.deepEqual(records.filter((one) => one.type === 'stderr').map((one) => one.data).join(''), 'bad\n')
    assert.deepEqual([records.at(-1).type, records.at(-1).exit_code], ['exit', 3])
  }
  await quicksand(['rm', sandboxID])
})

test('cp keeps what may be executed so, both ways', async () => {
  const { stdout: made } = await quicksand(['create', '--json'])
  const { id: sandboxID } = JSON.parse(made)
  const local = path.join(folder, 'tool')
  fs.writeFileSync(local, '#!/bin/sh\necho works\n', { mode: 0o755 })
  fs.writeFileSync(`${local}.txt`, 'plain', { mode: 0o644 })
  for (const place of ['/tmp/with space', 'relative']) {
    assert.equal((await quicksand(['cp', local, `${sandboxID}:${place}`])).code, 0)
    const ran = await quicksand(['exec', sandboxID, '--', 'sh', '-c', 'cd; exec "$0"', place.startsWith('/') ? place : `./${place}`])
    assert.deepEqual([ran.code, ran.stdout], [0, 'works\n'], ran.stderr)
    const back = path.join(folder, 'back')
    fs.rmSync(back, { force: true })
    assert.equal((await quicksand(['cp', `${sandboxID}:${place}`, back])).code, 0)
    assert.equal(fs.statSync(back).mode & 0o111, 0o111 & ~process.umask())
  }
  assert.equal((await quicksand(['cp', `${local}.txt`, `${sandboxID}:/tmp/plain`])).code, 0)
  assert.equal((await quicksand(['exec', sandboxID, '--', 'test', '-x', '/tmp/plain'])).code, 1)
  const plain = path.join(folder, 'plain')
  assert.equal((await quicksand(['cp', `${sandboxID}:/tmp/plain`, plain])).code, 0)
  assert.equal(fs.statSync(plain).mode & 0o111, 0)
  await quicksand(['rm', sandboxID])
})

test('a terminal whose sandbox is paused says so, and of no file', async () => {
  for (const memory of [true, false]) {
    const { id } = await json('up')
    const paused = await quicksand(['pty', id], {
      input: null,
      onStart: async (child, output) => {
        child.stdin.write('echo ready$((1+1))\n')
        await eventually('the shell', () => output().includes('ready2'))
        assert.equal((await server.api('POST', `/sandboxes/${id}/pause`, { memory })).status, 204)
      },
    })
    assert.equal(paused.code, 1)
    assert.match(paused.stderr, /the terminal was closed: .*(was stopped|went) before (the|its) answer ended/)
    assert.doesNotMatch(paused.stderr, /file/)
    await good('rm', id)
  }
})
