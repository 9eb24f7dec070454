// Sandboxes of built templates: what they have of their build, and the programs that it starts.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { cgroups, findProcesses } from '../harness/leftovers.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk
before(async () => {
  server = await startServer({ args: ['--warm', '4'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`
function sql(text) {
  const done = spawnSync('sqlite3', ['-cmd', '.timeout 5000', `${server.data}/store/quicksand.db`, text], { encoding: 'utf8' })
  assert.equal(done.status, 0, done.stderr)
  return done.stdout.trim()
}

// Builds it, with a file of its own; then start and ready command may be made to fail, as they may do at any time.
async function make(name, { env = {}, user, workdir, start, ready, tag, cpu = 2, memory = 256, later } = {}) {
  const made = await server.api('POST', '/v3/templates', { name: tag ? `${name}:${tag}` : name, cpuCount: cpu, memoryMB: memory })
  assert.equal(made.status, 202, made.text)
  const { templateID, buildID } = made.body
  const steps = [{ type: 'RUN', args: ['echo built > /etc/built', 'root'] }]
  for (const [key, value] of Object.entries(env)) steps.push({ type: 'ENV', args: [key, value] })
  if (workdir) steps.push({ type: 'WORKDIR', args: [workdir] })
  if (user) steps.push({ type: 'USER', args: [user] })
  const begun = await server.api('POST', `/v2/templates/${templateID}/builds/${buildID}`, { fromTemplate: 'base', steps, startCmd: start, readyCmd: ready })
  assert.equal(begun.status, 202, begun.text)
  const status = await eventually('the build ends', async () => {
    const answer = await server.api('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=0`)
    return ['ready', 'error'].includes(answer.body.status) && answer.body
  }, 60_000)
  assert.equal(status.status, 'ready', JSON.stringify(status.reason))
  for (const [column, text] of Object.entries(later ?? {})) sql(`UPDATE builds SET ${column} = ${quoted(text)} WHERE id = ${quoted(buildID)}`)
  return templateID
}

const create = (templateID, more = {}) => server.api('POST', '/sandboxes', { templateID, timeout: 300 * patience, ...more })
const connect = async (id) => sdk.Sandbox.connect(id)
const output = async (sandbox, command) => (await sandbox.commands.run(command)).stdout.trim()

// Says when it was started and by whom, and answers on a port after a while.
const SERVE = 'echo "$(id -un) $PWD $A" >> /tmp/started; sleep 0.3; touch /tmp/up; exec sleep 1000000'
const UP = 'test -e /tmp/up'
const pidsOf = (cmdline) => findProcesses((one) => one.cmdline === cmdline).map((one) => one.pid)
const started = (sandbox) => output(sandbox, 'cat /tmp/started')
const listed = async (sandbox) => (await sandbox.commands.list()).filter((one) => one.args.includes(SERVE))

test('what a build says holds in its sandboxes', async () => {
  const id = await make('defaults', { env: { A: 'template', B: 'two words', C: '"quoted"' }, user: 'root', workdir: '/var/log', cpu: 1, memory: 128 })
  const answer = await create('defaults', { envVars: { A: 'request', D: 'x' } })
  assert.equal(answer.status, 201)
  assert.equal(answer.body.templateID, id)
  assert.equal(answer.body.alias, 'defaults')
  const sandbox = await connect(answer.body.sandboxID)
  assert.equal(await output(sandbox, 'echo "$(id -un) $PWD $A $B $C $D"'), 'root /var/log request two words "quoted" x')
  const info = await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)
  assert.deepEqual([info.body.cpuCount, info.body.memoryMB], [1, 128])
  assert.equal(await output(sandbox, 'cat /etc/built'), 'built')
  const listed = await server.api('GET', '/v2/sandboxes?template=defaults')
  assert.deepEqual(listed.body.map((one) => one.sandboxID), [sandbox.sandboxId])

  await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })
  await server.api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 300 })
  assert.equal(await output(sandbox, 'echo "$(id -un) $PWD $A $B $D"'), 'root /var/log request two words x')
  await sandbox.kill()
  assert.equal(sql(`SELECT spawn_count > 0 AND last_spawned_at_us > 1 FROM templates WHERE id = ${quoted(id)}`), '1')
})

test('a tag names its build', async () => {
  await make('tagged', { env: { V: '1' } })
  await make('tagged', { env: { V: '2' }, tag: 'v2' })
  for (const [name, value] of [['tagged', '1'], ['tagged:default', '1'], ['tagged:v2', '2']]) {
    const sandbox = await connect((await create(name)).body.sandboxID)
    assert.equal(await output(sandbox, 'echo $V'), value)
    await sandbox.kill()
  }
  assert.equal((await create('tagged:v3')).status, 404)
  sql(`DELETE FROM template_tags WHERE template_id = (SELECT id FROM templates WHERE name = 'tagged')`)
  const answer = await create('tagged')
  assert.equal(answer.status, 404)
  assert.match(answer.body.message, /template 'tagged' has no ready build yet/)
})

test('the start command runs and is ready, and the request cannot change that', async () => {
  await make('serving', { env: { A: 'template' }, workdir: '/usr', start: SERVE, ready: UP })
  const from = Date.now()
  const sandbox = await connect((await create('serving', { envVars: { A: 'request' } })).body.sandboxID)
  assert.ok(Date.now() - from >= 250, 'create did not wait')
  assert.equal(await started(sandbox), 'user /usr template')
  assert.equal(await output(sandbox, UP + '; echo $? $A'), '0 request')
  const processes = await listed(sandbox)
  assert.equal(processes.length, 1)
  assert.equal(processes[0].cmd, '/bin/bash')
  assert.deepEqual(processes[0].args, ['-l', '-c', SERVE])
  await sandbox.kill()
})

test('a warm box has it running already', async () => {
  const ready = () => server.log.split('ready id=').length - 1
  await eventually('boxes of it wait', () => ready() >= 2)
  let best = Infinity
  for (let i = 0; i < 5; i++) {
    const before = ready()
    const from = performance.now()
    const sandbox = await connect((await create('serving')).body.sandboxID)
    best = Math.min(best, performance.now() - from)
    assert.equal(await started(sandbox), 'user /usr template')
    assert.equal((await listed(sandbox)).length, 1)
    await sandbox.kill()
    await eventually('another one is ready', () => ready() > before)
  }
  assert.ok(best < 250 * patience, `${best} ms`)
})

test('a box yields the processors while it gets ready ahead, and no longer when it is handed out', { timeout: 120_000 * patience }, async () => {
  const all = `quicksand-${readFileSync(path.join(server.data, 'instance'), 'utf8').trim()}`
  // As a share of the usual weight, by the name of the box's cgroup.
  const weights = () => new Map(cgroups(`${all}/`).filter((group) => path.basename(path.dirname(group)) === all).flatMap((group) => {
    for (const [knob, usual] of [['cpu.weight', 100], ['cpu.shares', 1024]]) {
      try {
        return [[path.basename(group), Number(readFileSync(path.join(group, knob), 'utf8')) / usual]]
      } catch {}
    }
    return []
  }))
  const weightOf = async (sandbox, mark) => {
    await sandbox.commands.run(`sleep ${mark}`, { background: true })
    const { pid } = await eventually('it runs', () => findProcesses((one) => one.cmdline === `sleep ${mark}`)[0])
    return weights().get(readFileSync(`/proc/${pid}/cgroup`, 'utf8').match(new RegExp(`${all}/([^/\n]+)`))[1])
  }
  await make('yielding', { start: 'sleep 1000000', ready: '[ -z "$QUICKSAND_AHEAD" ] || { touch /tmp/ahead; sleep 3; }' })
  const first = await connect((await create('yielding')).body.sandboxID)
  await eventually('a box of the pool has little weight', () => [...weights().values()].some((weight) => weight < 0.2))
  assert.equal(await weightOf(first, 1234501), 1)
  await eventually('the pool is ready', () => weights().size > 2 && [...weights().values()].every((weight) => weight === 1), 60_000)
  const second = await connect((await create('yielding')).body.sandboxID)
  assert.equal(await output(second, 'ls /tmp/ahead'), '/tmp/ahead', 'it is not of the pool')
  assert.equal(await weightOf(second, 1234502), 1)
  for (const one of [first, second]) await one.kill()
})

test('it is started again where processes are not kept: resume, fork, snapshot, restart', async () => {
  const sandbox = await connect((await create('serving')).body.sandboxID)
  const id = sandbox.sandboxId
  const count = async (one) => Number(await output(one, 'wc -l < /tmp/started'))
  assert.equal(await count(sandbox), 1)
  await server.api('POST', `/sandboxes/${id}/pause`)
  await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 300 })
  assert.equal(await count(sandbox), 1, 'with its processes it goes on')
  assert.equal((await listed(sandbox)).length, 1)
  await server.api('POST', `/sandboxes/${id}/pause`, { memory: false })
  await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 300 })
  assert.equal((await listed(sandbox)).length, 1)
  // What says that it is ready is still there from before: it may be told before it has said that it was started.
  const here = 2
  await eventually('it says that it was started', async () => (await count(sandbox)) === here)

  for (const n of [1, 3]) {
    const forks = await server.api('POST', `/sandboxes/${id}/fork`, { count: n, timeout: 300 })
    assert.equal(forks.status, 201)
    assert.equal(forks.body.length, n)
    for (const one of forks.body) {
      const fork = await connect((one.sandbox ?? one).sandboxID)
      assert.equal((await listed(fork)).length, 1)
      assert.equal(await started(fork).then((text) => text.split('\n').at(-1)), 'user /usr template')
      await fork.kill()
    }
  }
  const snapshot = await server.api('POST', `/sandboxes/${id}/snapshots`, {})
  // The template changes; nothing that is there does.
  await make('serving', { env: { A: 'newer' }, user: 'root' })
  const from = await connect((await create(snapshot.body.snapshotID)).body.sandboxID)
  assert.equal((await listed(from)).length, 1)
  assert.equal(await started(from).then((text) => text.split('\n').at(-1)), 'user /usr template')
  await from.kill()
  await server.kill9?.()
  await server.stop()
  await server.start()
  assert.equal((await listed(sandbox)).length, 1)
  assert.equal(await count(sandbox), here)
  await server.api('POST', `/sandboxes/${id}/pause`, { memory: false })
  await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 300 })
  assert.equal(await started(sandbox).then((text) => text.split('\n').at(-1)), 'user /usr template')
  assert.equal((await listed(sandbox)).length, 1)
  await sandbox.kill()
})

// What `EXPOSE 8123` is in a build.
const EXPOSED = "n=0; until grep -qE ':(1FBB) [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done"

test('what fails is told, and nothing is left', async () => {
  server.args = ['--warm', '4', '--ready-timeout', '8']
  await server.restart()
  const before = (await server.api('GET', '/v2/sandboxes')).body.length
  const cases = [
    ['never', { start_cmd: 'sleep 1000000', ready_cmd: 'echo not yet >&2; exit 3' }, 400, /ready command 'echo not yet >&2; exit 3' did not succeed within 8 s: exit status 3.*not yet/],
    ['dies', { start_cmd: 'echo "no such port"; sleep 0.2; exit 7', ready_cmd: 'false' }, 400, /start command 'echo "no such port".*' failed: exit status 7.*no such port/],
    ['exposed-dies', { start_cmd: 'echo "no config"; sleep 0.2; exit 7', ready_cmd: EXPOSED }, 400, /start command 'echo "no config".*' failed: exit status 7.*no config/],
    ['lost', { start_cmd: 'serve-it', ready_cmd: 'false' }, 400, /start command 'serve-it' failed: exit status 127.*command not found/],
    ['hangs', { ready_cmd: 'sleep 1000' }, 400, /ready command 'sleep 1000' did not succeed within 8 s: it took too long/],
    ['nobody', { default_user: 'nobody-such', start_cmd: 'true' }, 400, /start command 'true': .*nobody-such/],
    ['nowhere', { workdir: '/no/where', start_cmd: 'true' }, 400, /start command 'true': cwd '\/no\/where' does not exist/],
    ['noisy', { start_cmd: 'yes', ready_cmd: 'sleep 0.2; exit 1' }, 400, /ready command/],
  ]
  for (const [name, later] of cases) await make(name, { later })
  const answers = await Promise.all(cases.map(([name]) => create(name)))
  cases.forEach(([name, , status, message], i) => {
    assert.equal(answers[i].status, status, `${name}: ${JSON.stringify(answers[i].body)}`)
    assert.match(answers[i].body.message, message)
  })
  assert.equal((await server.api('GET', '/v2/sandboxes')).body.length, before)
  await make('noisy-but-fine', { later: { start_cmd: 'yes', ready_cmd: 'sleep 0.1' } })
  const sandbox = await connect((await create('noisy-but-fine')).body.sandboxID)
  await sandbox.kill()
  // Without a ready command it only has to run.
  await make('quick', { later: { start_cmd: 'sleep 0.1; exit 1' } })
  const quick = await create('quick')
  assert.equal(quick.status, 201)
  await server.api('DELETE', `/sandboxes/${quick.body.sandboxID}`)
  server.args = ['--warm', '4']
  await server.restart()
})

const command = (...args) => spawnSync(binary, args, { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: server.home, ...server.clientEnv(), QUICKSAND_URL: server.url, QUICKSAND_API_KEY: server.key } })
const v1 = (template) => server.api('POST', '/api/v1/sandboxes', { template })

test('without a ready command a create waits until a port is listened to', { timeout: 200_000 * patience }, async () => {
  server.args = ['--warm', '0', '--blank', '0']
  await server.restart()
  await make('slow-server', { start: 'sleep 1; exec python3 -m http.server 8123' })
  for (let i = 0; i < 3; i++) {
    const made = await create('slow-server')
    assert.equal(made.status, 201, made.text)
    assert.equal((await server.sandbox(made.body.sandboxID, 8123, '/')).status, 200)
    await server.api('DELETE', `/sandboxes/${made.body.sandboxID}`)
  }
  // One that listens to nothing is waited for once, which its log says, and not again.
  await make('silent', { later: { start_cmd: 'sleep 1000000' } })
  const messages = async (id) => (await server.api('GET', `/v2/sandboxes/${id}/logs`)).body.logs.map((line) => line.message)
  const first = (await create('silent')).body.sandboxID
  assert.ok((await messages(first)).includes('Nothing listened on a port within 10 s of the start command'), (await messages(first)).join('\n'))
  const began = Date.now()
  const second = (await create('silent')).body.sandboxID
  assert.ok(Date.now() - began < 5000 * patience, `${Date.now() - began} ms`)
  for (const id of [first, second]) await server.api('DELETE', `/sandboxes/${id}`)
  // Who asked is warned: in the answer, and on standard error.
  const answer = await v1('silent')
  assert.equal(answer.body.warnings.length, 1, answer.text)
  assert.match(answer.body.warnings[0], /the create did not wait .*nothing listened on a port within 10 s/)
  for (const args of [['create', '-t', 'silent'], ['up', '--template', 'silent', '-q'], ['run', '-t', 'silent', '--', 'true']]) {
    const { status, stdout, stderr } = command(...args)
    assert.equal(status, 0, stderr)
    assert.match(stderr, /^quicksand: warning: .*nothing listened on a port within 10 s/m, args[0])
    if (args[0] !== 'run') await server.api('DELETE', `/sandboxes/${stdout.trim()}`)
  }
  await server.api('DELETE', `/sandboxes/${answer.body.id}`)
  const quiet = await v1('base')
  assert.ok(!('warnings' in quiet.body), quiet.text)
  await server.api('DELETE', `/sandboxes/${quiet.body.id}`)
  server.args = ['--warm', '4']
  await server.restart()
})

test('a create waits until the port of EXPOSE is listened to, without a program of the image', { timeout: 200_000 * patience }, async () => {
  server.args = ['--warm', '0', '--blank', '0']
  await server.restart()
  const folder = mkdtempSync(path.join(tmpdir(), 'exposed-'))
  writeFileSync(path.join(folder, 'Dockerfile'), 'FROM template://base\nUSER root\nRUN rm -f $(which -a grep)\nUSER user\nEXPOSE 8123\nCMD python3 -m http.server 8124 & sleep 1; exec python3 -m http.server 8123\n')
  const built = spawnSync(binary, ['template', 'build', 'exposed', folder], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: server.home, ...server.clientEnv(), QUICKSAND_URL: server.url, QUICKSAND_API_KEY: server.key } })
  rmSync(folder, { recursive: true })
  assert.equal(built.status, 0, built.stderr + built.stdout)
  for (let i = 0; i < 3; i++) {
    const began = Date.now()
    const made = await create('exposed')
    assert.equal(made.status, 201, made.text)
    assert.equal((await server.sandbox(made.body.sandboxID, 8123, '/')).status, 200)
    assert.ok(Date.now() - began < 9000 * patience, `${Date.now() - began} ms`)
    await server.api('DELETE', `/sandboxes/${made.body.sandboxID}`)
  }
  // The same template, with a server that listens on another port only.
  sql(`UPDATE builds SET start_cmd = 'exec python3 -m http.server 8124' WHERE ready_cmd = ${quoted(EXPOSED)}`)
  const began = Date.now()
  const made = await create('exposed')
  assert.equal(made.status, 201, made.text)
  assert.ok(Date.now() - began >= 9000, `${Date.now() - began} ms`)
  assert.equal(made.headers['quicksand-warning'], 'nothing listened on port 8123 within 10 s of the start command')
  const messages = (await server.api('GET', `/v2/sandboxes/${made.body.sandboxID}/logs`)).body.logs.map((line) => line.message)
  assert.ok(messages.includes('Nothing listened on port 8123 within 10 s of the start command'), messages.join('\n'))
  await server.api('DELETE', `/sandboxes/${made.body.sandboxID}`)
  server.args = ['--warm', '4']
  await server.restart()
})

test('a template that is deleted leaves its sandboxes what they have', async () => {
  const id = await make('gone', { env: { A: 'kept' }, start: SERVE, ready: UP })
  const sandbox = await connect((await create('gone')).body.sandboxID)
  assert.equal((await server.api('DELETE', `/templates/${id}`)).status, 204)
  assert.equal((await create('gone')).status, 404)
  assert.equal((await create(id)).status, 404)
  sql("DELETE FROM layer_uses WHERE user_kind = 'cache'; DELETE FROM build_cache")
  const uses = () => sql(`SELECT count(*) FROM layer_uses WHERE user_kind = 'sandbox' AND user_id = ${quoted(sandbox.sandboxId)}`)
  const layers = sql(`SELECT layers FROM sandboxes WHERE id = ${quoted(sandbox.sandboxId)}`)
  assert.match(layers, /tree/)
  assert.equal(uses(), '1')
  await server.restart()
  await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })
  assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 300 })).status, 201)
  assert.equal(await output(sandbox, 'echo $A; cat /etc/built'), 'kept\nbuilt')
  assert.equal((await listed(sandbox)).length, 1)
  await sandbox.kill()
  assert.equal(uses(), '0')
})

test('fifty at once', async () => {
  await make('many', { start: SERVE, ready: UP })
  const answers = await Promise.all(Array.from({ length: 50 }, () => create('many')))
  for (const answer of answers) assert.equal(answer.status, 201, JSON.stringify(answer.body))
  for (const answer of answers.slice(0, 5)) assert.equal((await listed(await connect(answer.body.sandboxID))).length, 1)
  await Promise.all(answers.map((answer) => server.api('DELETE', `/sandboxes/${answer.body.sandboxID}`)))
})

test('creates and resumes that wait hold up no others', async () => {
  await make('patient', { later: { start_cmd: 'exec sleep 1000001', ready_cmd: 'test $(cut -d. -f1 /proc/uptime) -ge $(cat /tmp/until 2>/dev/null || { echo $(($(cut -d. -f1 /proc/uptime) + 8)) > /tmp/until; cat /tmp/until; })' } })
  const one = (await create('patient')).body.sandboxID
  await server.api('POST', `/sandboxes/${one}/pause`, { memory: false })
  let waiting = true
  const slow = Promise.all([
    server.api('POST', `/sandboxes/${one}/connect`, { timeout: 300 }),
    ...Array.from({ length: 30 }, () => create('patient')),
  ]).finally(() => (waiting = false))
  await eventually('all of them wait for their ready command', () => pidsOf('sleep 1000001').length >= 31, 30_000)
  for (let i = 0; i < 5; i++) {
    const quick = await create('base')
    assert.equal(quick.status, 201)
    assert.equal((await server.api('DELETE', `/sandboxes/${quick.body.sandboxID}`)).status, 204)
    assert.ok(waiting, 'it waited for the slow ones')
  }
  for (const answer of await slow) assert.equal(answer.status, 201, answer.text)
  await server.killAll()
})

test('the runtime and the command line know it by its name and tag', async () => {
  const id = await make('rt', { env: { V: 'default' }, start: SERVE, ready: UP })
  await make('rt', { env: { V: 'second' }, start: SERVE, ready: UP, tag: 'v2' })
  const v1 = (method, target, body) => server.api(method, `/api/v1${target}`, body, { headers: { Authorization: `Bearer ${server.key}` } })
  const made = await v1('POST', '/sandboxes', { key: 'conversation:t:1', template: 'rt:v2' })
  assert.ok(made.status === 200 || made.status === 201, made.text)
  const ran = await v1('POST', `/sandboxes/${made.body.id}/execute`, { command: 'echo $V; cat /tmp/started' })
  assert.match(ran.text, /second/)
  assert.match(ran.text, /user \/home\/user/)
  assert.equal((await v1('GET', `/sandboxes/${made.body.id}`)).body.template, 'rt:v2')
  await v1('DELETE', `/sandboxes/${made.body.id}`)

  const run = (...args) => spawnSync(binary, args, { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: server.home, ...server.clientEnv(), QUICKSAND_URL: server.url, QUICKSAND_API_KEY: server.key } })
  const up = run('create', '--template', 'rt:v2')
  assert.equal(up.status, 0, up.stderr)
  const listed = await server.api('GET', `/v2/sandboxes?template=${id}`)
  assert.equal(listed.body.length, 1)
  assert.equal(listed.body[0].alias, 'rt')
  assert.ok(up.stdout.includes(listed.body[0].sandboxID))
  const ps = run('ls')
  assert.match(ps.stdout, /\brt\b/)
  const one = run('run', '--template', 'rt', '--', 'sh', '-c', 'echo $V')
  assert.equal(one.stdout, 'default\n', one.stderr)
  await server.killAll()
})

test('a server that ends or dies while it waits leaves nothing', { timeout: 120_000 * patience }, async () => {
  await make('slow', { later: { start_cmd: 'exec sleep 1000002', ready_cmd: 'test -e /tmp/never' } })
  const lost = () => Promise.all(Array.from({ length: 4 }, () => create('slow').catch((error) => error)))
  await server.killAll()
  for (const end of ['serving', 'all', 'stop']) {
    const before = pidsOf('sleep 1000002')
    const waiting = lost()
    await eventually('they wait for their ready command', () => pidsOf('sleep 1000002').filter((pid) => !before.includes(pid)).length >= 4)
    if (end === 'serving') process.kill(server.servingPid, 'SIGKILL')
    if (end === 'all') await server.kill9().then(() => server.start())
    if (end === 'stop') {
      const from = Date.now()
      const { code } = await server.restart()
      assert.equal(code, 0)
      assert.ok(Date.now() - from < 19_000 * patience, 'the server did not end in time')
    }
    for (const answer of await waiting) assert.notEqual(answer.status, 201)
    await eventually('it serves again', () => server.api('GET', '/v2/sandboxes').then((answer) => answer.status === 200, () => false), 20_000)
    assert.deepEqual((await server.api('GET', '/v2/sandboxes')).body, [])
  }
})
