// Builds: each kind of step, the cache, failures, limits, cancelling, crashes, and that nothing is left.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { cgroups } from '../harness/leftovers.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk, scratch
before(async () => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'build-test-'))
  server = await startServer({ args: ['--warm', '2', '--build-disk', '512', '--disk', '512', '--build-memory', '256', '--memory', '256'] })
  sdk = await loadSdk(server)
})
after(async () => {
  await server?.destroy()
  fs.rmSync(scratch, { recursive: true, force: true })
})

const run = (...args) => ({ type: 'RUN', args })
const env = (...args) => ({ type: 'ENV', args })
const sha = (data) => crypto.createHash('sha256').update(data).digest('hex')
const unique = () => crypto.randomBytes(6).toString('hex')

async function ask(name, body = {}) {
  const answer = await server.api('POST', '/v3/templates', { name, ...body })
  assert.equal(answer.status, 202, answer.text)
  return answer.body
}
const status = async ({ templateID, buildID }, offset = 0) =>
  (await server.api('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=${offset}`)).body
async function start(build, recipe) {
  const answer = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, recipe)
  assert.equal(answer.status, 202, answer.text)
  return build
}
async function ended(build, limitMs = 60_000) {
  const end = await eventually('the build has ended', async () => {
    const now = await status(build)
    return ['ready', 'error'].includes(now.status) && now
  }, limitMs)
  const lines = []
  for (let page; (page = (await status(build, lines.length)).logEntries).length;) lines.push(...page)
  return { ...end, build, lines, text: lines.map((line) => line.message).join('\n') }
}
async function built(name, recipe, body) {
  return ended(await start(await ask(name, body), { fromTemplate: 'base', ...recipe }))
}
async function ready(name, recipe, body) {
  const end = await built(name, recipe, body)
  assert.equal(end.status, 'ready', `${JSON.stringify(end.reason)}\n${end.text}`)
  return end
}
async function failed(recipe) {
  const end = await built(`fails-${unique()}`, recipe)
  assert.equal(end.status, 'error', end.text)
  return end
}
async function inside(template, command, options) {
  const sandbox = await sdk.Sandbox.create(template, { timeoutMs: 120_000 * patience })
  try {
    return (await sandbox.commands.run(command, options)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}
// A tar of files, uploaded the way the SDKs do.
async function upload(build, files) {
  const dir = fs.mkdtempSync(path.join(scratch, 'files-'))
  for (const [name, content] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true })
    fs.writeFileSync(path.join(dir, name), content)
  }
  const tar = execFileSync('tar', ['-czf', '-', '-C', dir, '.'])
  const hash = sha(JSON.stringify(files))
  const link = (await server.api('GET', `/templates/${build.templateID}/files/${hash}`)).body
  if (!link.present) {
    const answer = await fetch(link.url, { method: 'PUT', body: tar })
    assert.ok(answer.ok, await answer.text())
  }
  return hash
}

test('steps: RUN, ENV, WORKDIR, USER', async () => {
  const end = await ready('steps', {
    steps: [
      run('echo "$(id -un):$PWD" > /tmp/first; mkdir -p ~/made'),
      env('A', 'one', 'B', '$HOME/x'),
      env('C', '${A}-two', 'QUOTED', `it's "quoted" \\ $(touch /tmp/pwned) \`id\``, 'LINES', 'a\nb\n'),
      { type: 'WORKDIR', args: ['/app/deep'] },
      run('printf "%s" "$C" > file; id -un >> file; pwd >> file; printf "%s" "$QUOTED" > quoted; printf "%s" "$LINES" > lines'),
      { type: 'WORKDIR', args: ['more'] },
      { type: 'USER', args: ['root'] },
      run('id -un > root-was-here; echo lost > /run/not-kept'),
      { type: 'USER', args: ['someone'] },
      run('id -un; echo out; echo err >&2'),
      env('PATH', '$PATH:/my/path'),
      run('[[ "$PATH" == *":/my/path" ]]'),
    ],
  })
  assert.match(end.text, /^\[builder 1\/12\] RUN echo/m)
  assert.match(end.text, /^\[builder 10\/12\] \[stdout\]: someone$/m)
  assert.match(end.text, /^\[builder 10\/12\] \[stderr\]: err$/m)
  assert.equal(await inside('steps', 'cat /tmp/first; ls -d /home/user/made; id -un; pwd; echo $C', { user: 'user' }),
    'user:/home/user\n/home/user/made\nuser\n/app/deep/more\none-two')
  assert.equal(await inside('steps', 'id -un; cat /app/deep/file; cat /app/deep/quoted; ls /tmp/pwned 2>&1; od -An -c /app/deep/lines | tr -d " "'),
    `someone\none-twouser\n/app/deep\nit's "quoted" \\ $(touch /tmp/pwned) \`id\`ls: cannot access '/tmp/pwned': No such file or directory\na\\nb\\n`)
  assert.equal(await inside('steps', 'cat /app/deep/more/root-was-here; stat -c %U /app/deep /app/deep/more', { user: 'root' }), 'root\nuser\nuser')
  assert.match(await inside('steps', 'echo $PATH'), /:\/my\/path$/)
})

test('COPY: places, owners, modes', async () => {
  const build = await ask('copies')
  const hash = await upload(build, { 'dir/a.txt': 'A', 'dir/sub/b.txt': 'B', 'one.txt': 'one' })
  const copy = (src, dest, owner = '', mode = '') => ({ type: 'COPY', args: [src, dest, owner, mode], filesHash: hash })
  const end = await ended(await start(build, {
    fromTemplate: 'base',
    steps: [
      copy('dir', '/app/'), copy('one.txt', 'renamed.txt'), copy('one.txt', 'into/'), copy('dir/*.txt', '/globbed'), env('WHERE', '/by/variable'),
      copy('one.txt', '$WHERE/x', 'root', '0600'), { type: 'WORKDIR', args: ['/work'] }, copy('.', '.'),
    ],
  }))
  assert.equal(end.status, 'ready', `${JSON.stringify(end.reason)}\n${end.text}`)
  assert.equal(await inside('copies', 'cat /app/a.txt /app/sub/b.txt ~/renamed.txt ~/into/one.txt /globbed/a.txt; stat -c "%U:%G %a" /app/a.txt; sudo stat -c "%U:%G %a" /by/variable/x; ls /work'),
    'ABoneoneAuser:user 644\nroot:root 600\ndir\none.txt')
  const missing = await failed({ steps: [{ type: 'COPY', args: ['x', '/x'], filesHash: '0'.repeat(64) }] })
  assert.match(missing.reason.message, /were not uploaded/)
  assert.equal(missing.reason.step, '1')
})

test('the cache: across builds, templates and restarts; force and what follows it', async () => {
  const mark = unique()
  const recipe = { steps: [env('MARK', mark), run('date +%s%N > /tmp/one'), run('date +%s%N > /tmp/two')] }
  await ready('cached', recipe)
  const first = await inside('cached', 'cat /tmp/one /tmp/two')
  const again = await ready('cached', recipe)
  assert.match(again.text, /^CACHED \[builder 1\/3\] ENV MARK /m)
  assert.match(again.text, /^CACHED \[builder 3\/3\] RUN /m)
  assert.equal(await inside('cached', 'cat /tmp/one /tmp/two'), first)
  await server.restart()
  const other = await ready('cached-other', { steps: [...recipe.steps, run('echo more')] })
  assert.equal(other.text.match(/^CACHED /gm).length, 3)
  assert.equal(await inside('cached-other', 'cat /tmp/one /tmp/two'), first)
  const forced = await ready('cached', { steps: [recipe.steps[0], { ...recipe.steps[1], force: true }, recipe.steps[2]] })
  assert.equal(forced.text.match(/^CACHED /gm).length, 1)
  assert.notEqual(await inside('cached', 'cat /tmp/two'), first.split('\n')[1])
  assert.doesNotMatch((await ready('cached', { ...recipe, force: true })).text, /^CACHED /m)
  // Other variables, another user, another directory: another result.
  assert.equal((await ready('cached-user', { steps: [recipe.steps[0], { type: 'USER', args: ['root'] }, recipe.steps[1]] })).text.match(/^CACHED /gm).length, 1)
})

test('COPY is cached by what it copies', async () => {
  const copied = async (content) => {
    const build = await ask('copy-cache')
    const hash = await upload(build, { 'f.txt': content })
    const end = await ended(await start(build, { fromTemplate: 'base', steps: [{ type: 'COPY', args: ['f.txt', '/f.txt'], filesHash: hash }, run('cat /f.txt')] }))
    assert.equal(end.status, 'ready', JSON.stringify(end.reason))
    return end
  }
  const mark = unique()
  await copied(mark)
  assert.doesNotMatch((await copied(`${mark}!`)).text, /^CACHED /m)
  assert.equal((await copied(mark)).text.match(/^CACHED /gm).length, 2)
})

test('a layer that is damaged or gone is made again', async () => {
  const steps = [run(`echo ${unique()} > /tmp/kept; date +%s%N >> /tmp/kept`)]
  await ready('damaged', { steps })
  const trees = sql("SELECT layers FROM builds WHERE template_id = (SELECT id FROM templates WHERE name = 'damaged')").split(',')
  const tree = trees.at(-1)
  assert.match(tree, /^tree/)
  fs.rmSync(path.join(server.data, 'layers', tree), { recursive: true })
  const again = await ready('damaged', { steps })
  assert.match(again.text, /^CACHED \[builder 1\/1\]/m)
  assert.match(await inside('damaged', 'cat /tmp/kept'), /^\w+\n\d+$/)
})

test('from a template: what it has is inherited', async () => {
  await ready('parent', { steps: [env('FROM_PARENT', 'yes'), { type: 'WORKDIR', args: ['/parent'] }, run('echo p > p.txt')], startCmd: 'echo started > /tmp/started; sleep 1000', readyCmd: 'test -e /tmp/started' })
  const child = await ready('child', { fromTemplate: 'parent', steps: [run('echo "$FROM_PARENT $(pwd) $(cat p.txt)" > child.txt')] })
  assert.match(child.text, /Running start command: echo started/)
  assert.match(child.text, /Waiting for template to be ready/)
  assert.match(child.text, /Template is ready/)
  assert.equal(await inside('child', 'cat child.txt; cat /tmp/started'), 'yes /parent p\nstarted')
  await ready('grandchild', { fromTemplate: 'child:default', steps: [env('X', '$FROM_PARENT$FROM_PARENT')] })
  assert.equal(await inside('grandchild', 'echo $X; cat child.txt'), 'yesyes\nyes /parent p')
  const none = await failed({ fromTemplate: 'no-such-template' })
  assert.equal(none.reason.step, 'base')
  assert.match(none.reason.message, /no-such-template/)
})

test('a start command that fails, and one that is never ready', async () => {
  const fails = await failed({ startCmd: 'echo why >&2; exit 7', readyCmd: 'sleep 1; false' })
  assert.equal(fails.reason.step, 'finalize')
  assert.match(fails.reason.message, /start command failed: exit status 7/)
  assert.match(fails.reason.logEntries.map((entry) => entry.message).join('\n'), /why/)
})

test('a step that fails: its status, its step, its last lines', async () => {
  const end = await failed({ steps: [run('true'), run('seq 1 100; echo the reason >&2; exit 3'), run('echo never')] })
  assert.equal(end.reason.step, '2')
  assert.match(end.reason.message, /^failed to run command 'seq 1 100; echo the reason >&2; exit 3': exit status 3$/)
  const tail = end.reason.logEntries.map((entry) => entry.message)
  assert.ok(tail.includes('[builder 2/3] [stderr]: the reason') && tail.includes('[builder 2/3] [stdout]: 100'))
  assert.doesNotMatch(end.text, /never/)
  const user = await failed({ steps: [run('whoami', 'root123')] })
  assert.match(user.reason.message, /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'/)
  assert.equal(user.reason.step, '1')
})

test('limits: memory and disk', async () => {
  const memory = await failed({ steps: [run('head -c 400M /dev/zero | tail | wc -c; exit ${PIPESTATUS[1]}')] })
  assert.match(memory.reason.message, /exit status|memory/)
  const disk = await failed({ steps: [run('head -c 700M /dev/urandom > /tmp/big')] })
  assert.match(disk.text, /No space left|Disk quota exceeded/)
  await tidy()
})

test('recipes that are wrong are refused, and say where', async () => {
  const build = await ask('wrong-recipe')
  const refused = async (recipe, words) => {
    const answer = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, recipe)
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.body.message, words)
  }
  await refused({ steps: [run('true'), { type: 'RUN', args: [] }] }, /step 2: RUN needs a command/)
  await refused({ steps: [{ type: 'FLY', args: ['x'] }] }, /step 1: command type 'FLY' is not implemented/)
  await refused({ steps: [{ type: 'RUN', args: ['x'], speed: 1 }] }, /step 1: unknown member 'speed'/)
  await refused({ stepz: [] }, /unknown member 'stepz'/)
  await refused({ steps: [env('A')] }, /step 1: ENV/)
  await refused({ steps: [{ type: 'COPY', args: ['a', 'b'] }] }, /step 1: COPY needs one of/)
  await refused({ fromImage: 'a', fromTemplate: 'b' }, /more than one/)
  await refused({ stages: [{ name: 'a', steps: [{ type: 'COPY', args: ['/x', '/x'], fromStage: 'b' }] }, { name: 'b' }] }, /step 1: there is no stage 'b' before it/)
  await start(build, { fromTemplate: 'base' })
  assert.equal((await ended(build)).status, 'ready')
})

test('stages: side by side, copied from, continued', async () => {
  const mark = unique()
  const slow = (name) => ({ name, fromTemplate: 'base', steps: [run(`sleep 1; mkdir -p /tmp/out; echo ${name}-${mark} > /tmp/out/${name}; date +%s%N > /tmp/out/${name}.time`)] })
  const began = Date.now()
  const end = await ready('staged', {
    fromTemplate: undefined,
    stages: [slow('a'), slow('b'), slow('unused'), {
      name: 'last', fromStage: 'a', steps: [
        { type: 'COPY', args: ['/tmp/out/b', '/home/user/b', '', ''], fromStage: 'b' }, { type: 'COPY', args: ['/tmp/out', '/all/'], fromStage: 'b' }, run('cat /tmp/out/a ~/b /all/b'),
      ],
    }],
  })
  assert.match(end.text, new RegExp(`\\[stdout\\]: b-${mark}`))
  assert.doesNotMatch(end.text, /unused/)
  assert.equal(await inside('staged', 'cat /tmp/out/a ~/b; ls /all; ls /tmp/out'), `a-${mark}\nb-${mark}\nb\nb.time\na\na.time`)
  void began
  const bad = await failed({ fromTemplate: undefined, stages: [{ name: 'x', steps: [run('exit 4')] }, { name: 'y', steps: [{ type: 'COPY', args: ['/x', '/x'], fromStage: 'x' }] }] })
  assert.equal(bad.reason.step, '1')
  assert.match(bad.reason.message, /exit status 4/)
})

test('what is made anew in one stage is new in those that take from it', async () => {
  const recipe = (force) => ({
    fromTemplate: undefined,
    stages: [
      { name: 'a', fromTemplate: 'base', steps: [{ ...run('date +%N > /tmp/when; echo it is $(cat /tmp/when)'), force }] },
      { name: 'b', fromStage: 'a', steps: [run('cp /tmp/when /tmp/then')] },
      { name: 'c', fromTemplate: 'base', steps: [{ type: 'COPY', args: ['/tmp/when', '/tmp/now', '', ''], fromStage: 'a' }, { type: 'COPY', args: ['/tmp/then', '/tmp/now-too', '', ''], fromStage: 'b' }] },
    ],
  })
  const when = (end) => / it is (\d+)/.exec(end.text)[1]
  const first = when(await ready('anew', recipe(false)))
  assert.equal((await ready('anew', recipe(false))).text.match(/^CACHED \[builder/gm).length, 4)
  const second = when(await ready('anew', recipe(true)))
  assert.notEqual(first, second)
  assert.equal(await inside('anew', 'cat /tmp/now /tmp/now-too'), `${second}\n${second}`)
})

test('files from a URL: public ones only, wherever it leads, and what the sum says', async () => {
  const add = (url, more = {}) => ({ type: 'COPY', args: ['file', '/tmp/got', 'root', '0644'], url, ...more })
  const sum = `sha256:${sha(Buffer.alloc(1000))}`
  const thousand = 'http://203.0.113.1/bytes?n=1000'
  await ready('from-url', { steps: [add(thousand, { checksum: sum }), add('http://203.0.113.1/to?place=/bytes%3Fn%3D7', { args: ['file', '/tmp/led', 'root', '0600'] }), run('stat -c "%s %a %U" /tmp/got', 'root'), run('stat -c "%s %a" /tmp/led', 'root')] })
  assert.equal(await inside('from-url', 'stat -c "%s %a %U" /tmp/got'), '1000 644 root')
  assert.match((await ready('from-url', { steps: [add(thousand, { checksum: sum })] })).text, /CACHED \[builder 1\/1\]/)
  assert.doesNotMatch((await ready('from-url', { steps: [add(thousand)] })).text, /CACHED \[builder/, 'it may be another thing each time')
  assert.match((await failed({ steps: [add(thousand, { checksum: `sha256:${sha('other')}` })] })).reason.message, /another checksum/)
  for (const url of ['http://10.9.9.9/bytes?n=1', 'http://169.254.169.254/', 'http://127.0.0.1/', `${server.url}/health`, 'http://203.0.113.1/to?place=http://10.9.9.9/bytes%3Fn%3D1', `http://203.0.113.1/to?place=${server.url}/health`])
    assert.match((await failed({ steps: [add(url)] })).reason.message, /not a public address/, url)
  assert.match((await failed({ steps: [add('http://203.0.113.1/to?place=file:///etc/passwd')] })).reason.message, /is no URL that can be fetched/)
  assert.match((await failed({ steps: [add('http://203.0.113.1/to')] })).reason.message, /leads on and on/)
  const build = await ask('sums')
  for (const checksum of ['sha256:', 'sha256:00', `sha512:${sha('x')}`, `sha256:${'g'.repeat(64)}`]) {
    const answer = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, { fromTemplate: 'base', steps: [add(thousand, { checksum })] })
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.text, /step 1: a checksum is 'sha256:' and 64 hex digits/)
  }
})

test('secrets, caches, exec form, another shell, variables of one step', async () => {
  const secret = unique()
  const end = await ready('mounts', {
    buildSecrets: { token: secret },
    steps: [
      { ...run('sha256sum < /run/secrets/token; stat -c %a /run/secrets/token'), mounts: [{ type: 'secret', id: 'token', required: true }] },
      run('test ! -e /run/secrets/token'),
      { type: 'USER', args: ['root'] },
      { ...run('echo one >> /var/cache/thing/x'), mounts: [{ type: 'cache', target: '/var/cache/thing' }] },
      { type: 'RUN', exec: ['/bin/echo', 'a  b', '$HOME'] },
      { ...run('echo $0 $ONLY'), shell: ['/bin/sh', '-c'], env: { ONLY: 'here' } },
      run('test -z "$ONLY"'),
    ],
  })
  assert.match(end.text, new RegExp(sha(secret)))
  assert.ok(!end.text.includes(secret))
  assert.match(end.text, /\[stdout\]: a {2}b \$HOME/)
  assert.match(end.text, /\[stdout\]: \/bin\/sh here/)
  assert.equal(sql(`SELECT count(*) FROM builds WHERE recipe LIKE '%${secret}%'`), '0')
  const more = await ready('mounts-again', { steps: [{ type: 'USER', args: ['root'] }, { ...run(`echo ${unique()} >/dev/null; wc -l < /var/cache/thing/x`), mounts: [{ type: 'cache', target: '/var/cache/thing' }] }] })
  assert.match(more.text, /\[stdout\]: 1/)
  assert.equal(await inside('mounts-again', 'ls /var/cache/thing'), '')
  const missing = await failed({ steps: [{ ...run('true'), mounts: [{ type: 'secret', id: 'none', required: true }] }] })
  assert.match(missing.reason.message, /the secret 'none' was not given/)
})

test('what a step leaves running is not there for the next', async () => {
  const end = await ready('calm', { steps: [run('sleep 4321 & echo started'), run('! pgrep -f "sleep 432[1]"')] })
  assert.match(end.text, /started/)
})

test('sandboxes go first', async () => {
  const weights = () => cgroups(fs.readFileSync(path.join(server.data, 'instance'), 'utf8').trim()).flatMap((group) => {
    for (const [knob, usual] of [['cpu.weight', 100], ['cpu.shares', 1024]]) {
      try {
        return [Number(fs.readFileSync(path.join(group, knob), 'utf8')) / usual]
      } catch {}
    }
    return []
  })
  const usual = weights()
  assert.ok(usual.length && usual.every((weight) => weight === 1), `${usual}`)
  const build = await start(await ask('low'), { fromTemplate: 'base', steps: [run(`echo ${unique()}; sleep 2`)] })
  await eventually('the box of the build has little weight', () => weights().some((weight) => weight < 0.2))
  assert.equal((await ended(build)).status, 'ready')
})

test('cancelled: soon, and nothing is left', async () => {
  const build = await start(await ask('cancelled'), { fromTemplate: 'base', steps: [run('echo begun; sleep 10000')] })
  await eventually('the step runs', async () => (await status(build)).logEntries.some((entry) => /begun/.test(entry.message)))
  const began = Date.now()
  const answer = await server.api('POST', `/templates/${build.templateID}/builds/${build.buildID}/cancel`)
  assert.ok([200, 202, 204].includes(answer.status), answer.text)
  assert.ok(Date.now() - began < 5000 * patience)
  const end = await ended(build)
  assert.equal(end.status, 'error')
  assert.match(end.reason.message, /cancelled/)
  await tidy()
})

test('two builds of one name at once: both run, the last to end has the tag', async () => {
  const slow = await start(await ask('twice'), { fromTemplate: 'base', steps: [run(`sleep 2; echo slow ${unique()} > /tmp/which`)] })
  const quick = await start(await ask('twice'), { fromTemplate: 'base', steps: [run(`echo quick ${unique()} > /tmp/which`)] })
  assert.equal((await ended(quick)).status, 'ready')
  assert.match(await inside('twice', 'cat /tmp/which'), /^quick/)
  assert.equal((await ended(slow)).status, 'ready')
  assert.match(await inside('twice', 'cat /tmp/which'), /^slow/)
  await tidy()
})

test('a template that goes while it is built, and its layers', async () => {
  const steps = [run(`echo ${unique()} > /tmp/gone`)]
  const { build } = await ready('going', { steps })
  const sandbox = await sdk.Sandbox.create('going', { timeoutMs: 60_000 })
  const under = await start(await ask('going'), { fromTemplate: 'base', steps: [run('sleep 3')] })
  assert.equal((await server.api('DELETE', `/templates/${build.templateID}`)).status, 204)
  assert.equal((await server.api('POST', '/sandboxes', { templateID: 'going', timeout: 10 })).status, 404)
  assert.match((await sandbox.commands.run('cat /tmp/gone')).stdout, /^\w+\n$/)
  await sandbox.kill()
  void under
  await tidy()
})

// Everything that is on disk is known, and everything that is known is used by something.
function sql(text) {
  const done = spawnSync('sqlite3', ['-cmd', '.timeout 5000', `${server.data}/store/quicksand.db`, text], { encoding: 'utf8' })
  assert.equal(done.status, 0, done.stderr)
  return done.stdout.trim()
}
const entries = (folder) => fs.readdirSync(path.join(server.data, folder)).filter((name) => /^(snap|tree)/.test(name))
async function tidy() {
  await eventually('nothing is left of builds', () => {
    const known = new Set(sql('SELECT name FROM layers').split('\n'))
    const unused = sql('SELECT name FROM layers WHERE NOT EXISTS (SELECT 1 FROM layer_uses WHERE layer = name)')
    const strays = [...entries('layers'), ...entries('pool/layers')].filter((name) => !known.has(name))
    const feeds = fs.readdirSync(path.join(server.data, 'feeds')).filter((name) => name !== 'unpack')
    tidy.why = { unused, strays, feeds }
    return !unused && !strays.length && !feeds.length
  }, 20_000).catch((error) => assert.fail(`${error.message} ${JSON.stringify(tidy.why)}`))
}

const random = (() => {
  let state = Number(process.env.BUILD_SEED ?? 20260)
  return () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648
})()

test('kill -9 of server and warden at random moments of builds', async (t) => {
  const rounds = Number(process.env.BUILD_KILLS ?? 6)
  t.diagnostic(`BUILD_SEED=${process.env.BUILD_SEED ?? 20260} BUILD_KILLS=${rounds}`)
  const mark = unique()
  const steps = Array.from({ length: 6 }, (_, i) => run(`echo ${mark} ${i} > /tmp/f${i}; head -c 2M /dev/urandom > /tmp/r${i}; sleep 0.05`))
  const open = []
  for (let round = 0; round < rounds; round++) {
    const build = await start(await ask(`killed-${round % 3}`), { fromTemplate: 'base', steps: [...steps, run(`echo ${round} > /tmp/round`)] })
    open.push(build)
    await new Promise((resolve) => setTimeout(resolve, random() * 1200 * patience))
    const both = random() < 0.5
    if (both) {
      await server.kill9()
      await server.start()
    } else {
      const pid = server.servingPid
      process.kill(pid, 'SIGKILL')
      await eventually('the server is back', async () => {
        try {
          return server.servingPid !== pid && (await server.api('GET', '/health')).status < 300
        } catch {}
      }, 20_000)
    }
  }
  for (const build of open) {
    const end = await status(build)
    assert.ok(['ready', 'error'].includes(end.status), `${end.status}`)
    // By the next server, or by this one when it saw that the warden was gone.
    if (end.status === 'error') assert.match(end.reason.message, /the server restarted|engine|envd|box|process/)
  }
  const last = await ready('killed-0', { steps })
  t.diagnostic(`${last.text.match(/^CACHED /gm)?.length ?? 0} of ${steps.length} steps were there already`)
  assert.equal(await inside('killed-0', 'cat /tmp/f0'), `${mark} 0`)
  await tidy()
})
