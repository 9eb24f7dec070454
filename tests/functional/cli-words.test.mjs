// The command line as users of docker, gh and kubectl type it, against a live server: names and beginnings of ids, lists
// by filter and pattern, aliases, logs that follow.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, repository, startServer } from '../harness/server.mjs'

let server
let folder
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-words-')
  server = await startServer()
})
after(async () => {
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
})

function quicksand(args, { input = '', env = {}, onStart } = {}) {
  return new Promise((done) => {
    const child = spawn(binary, args, {
      cwd: folder,
      env: { PATH: process.env.PATH, HOME: folder, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key, ...env },
    })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.on('error', () => {}) // it may have ended without reading
    if (input !== null) child.stdin.end(input)
    child.on('close', (code, signal) => done({ code, signal, stdout, stderr }))
    onStart?.(child, () => stdout)
  })
}

async function good(...args) {
  const options = typeof args.at(-1) === 'object' ? args.pop() : {}
  const result = await quicksand(args, options)
  assert.equal(result.code, 0, `${args.join(' ')}: ${result.code} ${result.stdout} ${result.stderr}\n${server.tail(5)}`)
  return result.stdout.trim()
}

const json = async (...args) => JSON.parse(await good(...args, '--json'))
const lines = (text) => text.split('\n').filter(Boolean)

// Refused with these words; the sandboxes are the same as before.
async function refused(args, code, words) {
  const before = await good('ls', '-a', '-q')
  const result = await quicksand(args)
  assert.equal(result.code, code, `${args.join(' ')}: ${result.stdout} ${result.stderr}`)
  assert.match(result.stderr, words)
  assert.equal(await good('ls', '-a', '-q'), before, args.join(' '))
}

describe('names', () => {
  let first, second
  before(async () => {
    first = await good('create', '-m', 'name=web', '-m', 'owner=me')
    second = await good('up', '--key', 'my-task', '-q')
  })
  after(() => good('rm', first, second))

  test('a sandbox by its id, the beginning of it, its key and its name', async () => {
    const least = [...first].findIndex((letter, i) => letter !== second[i]) + 1
    for (const word of [first, first.slice(0, least), 'web']) {
      assert.equal(await good('exec', word, '--', 'hostname').then(() => word), word)
      assert.equal((await json('inspect', word)).id, first)
    }
    assert.equal((await json('show', 'my-task')).id, second)
    assert.equal((await json('show', 'key:my-task')).id, second)
    assert.equal(await good('stop', 'web'), `${first} paused`)
    assert.equal(await good('start', 'web'), `${first} running`)
    assert.match(await good('logs', 'my-task'), /TIME/)
    assert.match(await good('logs', 'key:my-task'), /TIME/)
    assert.match(await good('url', 'web', '8080'), /8080/)
    await good('snapshot', 'ls', 'web')
    await good('job', 'ls', 'web')
  })

  test('a name that several have, or none, changes nothing', async () => {
    await refused(['rm', 'i'], 1, /'i' is the name of 2 sandboxes: i\w+, i\w+/)
    await refused(['rm', 'nobody'], 1, /no sandbox 'nobody'/)
    await refused(['kill', 'nobody', 'i'], 1, /nobody/)
    for (const args of [['exec', 'nobody', '--', 'true'], ['pause', 'nobody'], ['show', 'nobody'], ['pty', 'nobody'], ['logs', 'nobody'], ['url', 'nobody', '80'], ['forward', 'nobody', '80'], ['job', 'start', 'nobody', '--', 'true'], ['snapshot', 'create', 'nobody'], ['ssh', 'nobody']])
      await refused(args, 1, /no sandbox 'nobody'/)
  })

  test('ls: ids only, all, by filter, by pattern', async () => {
    assert.deepEqual(lines(await good('ls', '-q')).sort(), [first, second].sort())
    assert.deepEqual(lines(await good('ps', '-q')).sort(), [first, second].sort())
    assert.equal(await good('ls', '-q', '--filter', 'label=owner=me'), first)
    assert.equal(await good('ls', '-q', '-f', 'key=my-*'), second)
    assert.equal(await good('ls', '-q', '-f', 'key=my-*', '-f', 'state=paused'), '')
    assert.equal(await good('ls', '-q', '-f', 'label=owner'), first)
    assert.equal(await good('ls', '-f', 'metadata.owner=me', '--format', '{{.id}}\\t{{ .state }} {{.metadata.owner}} {{.key}}'), `${first}\trunning me -`)
    assert.deepEqual(JSON.parse(await good('ls', '-f', 'key=my-task', '--format', '{{json .}}')).id, second)
    assert.deepEqual((await json('ls', '-f', 'key=my-task')).map((one) => one.id), [second])
    const gone = await good('create')
    await good('kill', gone)
    assert.ok(!(await good('ls', '-q')).includes(gone))
    assert.ok(lines(await good('ls', '-aq')).includes(gone))
    assert.equal(await good('ls', '-a', '-f', `id=${gone}`, '--format', '{{.state}}'), 'killed')
  })

  // `script` gives it a terminal.
  test('ls has colours on a terminal, unless NO_COLOR is set', () => {
    const list = (env) => execFileSync('script', ['-qec', `${binary} ls`, '/dev/null'], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: '/root', TERM: 'xterm', ...server.clientEnv(), ...env } })
    assert.match(list({}), new RegExp(`\\x1b\\[1mID\\x1b\\[0m[^]*${first} +web +- +base +\\x1b\\[32mrunning\\x1b\\[0m +in \\d`))
    assert.doesNotMatch(list({ NO_COLOR: '1' }), /\x1b/)
  })

  test('ls shows the ports of servers inside, without a command and without use', async () => {
    await good('exec', 'web', '--', 'sh', '-c', 'for port in 8080 443; do sudo setsid python3 -m http.server $port >/dev/null 2>&1 & done')
    const api = async (path) => (await fetch(`${server.url}/${path}`, { headers: { 'X-API-Key': server.key } })).json()
    const state = async () => ({
      ends: (await api(`sandboxes/${first}`)).endAt,
      used: (await api(`api/v1/sandboxes/${first}`)).last_used_at,
      commands: (await api('api/v1/stats')).total.commands,
      events: (await api(`api/v1/events?sandbox_id=${first}&limit=1000`)).events.map((one) => one.type),
      started: (await good('logs', first)).split('process.started').length,
    })
    const before = await state()
    await eventually('both servers', async () => JSON.stringify((await json('ls')).find((one) => one.id === first).ports?.map((one) => one.port)) === '[443,8080]')
    const table = await good('ls')
    assert.match(table, /^ID +NAME +KEY +TEMPLATE +STATE +ENDS +PORTS +PROVIDER/)
    assert.match(table, new RegExp(`^${first} +web .* running +in \\d+\\w +443,8080 +e2b`, 'm'))
    assert.match(table, new RegExp(`^${second} .* running +in \\d+\\w +- +e2b`, 'm'))
    assert.deepEqual((await json('show', first)).ports, [{ port: 443, loopback: false }, { port: 8080, loopback: false }])
    const watched = await quicksand(['ls', '--watch'], {
      onStart: (child, output) => void eventually('two lists', () => output().split(' 443,8080 ').length > 2).then(() => child.kill('SIGINT')),
    })
    assert.deepEqual([watched.code, watched.stderr], [0, ''])
    assert.deepEqual(await state(), before)
    await good('pause', 'web')
    assert.match(await good('ls'), new RegExp(`^${first} .* paused +- +- +e2b`, 'm'))
    await good('resume', 'web')
  })

  test('help groups the commands by task', async () => {
    const help = await good('--help')
    const titles = help.split('\n').filter((line) => /^[A-Z]\w.*[^.:]$/.test(line) && !line.startsWith('Usage'))
    assert.ok(titles.length >= 8, titles.join(', '))
    for (const part of help.split(/\n(?=[A-Z])/)) assert.ok(part.split('\n').filter((line) => line.startsWith('  ')).length <= 10, part)
    assert.match(help, /Get a sandbox\n {2}run +.*deleted when the command ends.*\n {2}up +.*key, the same one each time.*\n {2}create +.*new sandbox each time.*timeout/)
  })

  test('wrong flags are named', async () => {
    await refused(['ls', '--filter', 'template'], 2, /--filter needs NAME=VALUE, not 'template'/)
    await refused(['ls', '--format', '{{.id'], 2, /--format: a '\{\{' is not closed/)
    await refused(['ls', '--format', '{{id}}'], 2, /--format: '\{\{id\}\}' is no member/)
    await refused(['ls', '-q', '--format', '{{.id}}'], 2, /--quiet and --format/)
    await refused(['ls', '--state', 'sleeping'], 1, /state/)
    await refused(['ls', '--wach'], 2, /did you mean '--watch'/)
    await refused(['rm'], 2, /needs a sandbox, or --all/)
    await refused(['rm', '--all', 'web'], 2, /--all takes no sandbox/)
    await refused(['logs', '-n', '0', 'web'], 2, /--limit/)
    await refused(['exce', 'web'], 2, /did you mean 'exec'/)
    await refused(['template', 'lst'], 2, /did you mean 'ls'/)
  })

  test('ls --watch goes on until Ctrl-C, which is no failure', async () => {
    const watched = await quicksand(['ls', '-wq'], {
      onStart: (child, output) => void eventually('two lists', () => lines(output()).length >= 4).then(() => child.kill('SIGINT')),
    })
    assert.deepEqual([watched.code, watched.stderr], [0, ''])
    assert.ok(!watched.stdout.includes('\x1b'), 'no terminal, no control characters')
  })

  test('logs -f shows what is new, once', async () => {
    const followed = await quicksand(['logs', '-f', 'my-task'], {
      onStart: (child, output) =>
        void eventually('the first lines', () => output().includes('created')).then(async () => {
          await good('pause', 'my-task')
          await good('resume', 'my-task')
          await eventually('resumed', () => output().includes('resumed'))
          child.kill('SIGINT')
        }),
    })
    assert.deepEqual([followed.code, followed.stderr], [0, ''])
    const all = lines(followed.stdout)
    assert.equal(new Set(all).size, all.length, followed.stdout)
    assert.ok(all.findIndex((line) => line.includes('paused')) < all.findIndex((line) => line.includes('resumed')), followed.stdout)
  })

  test('logs -f ends with the sandbox', async () => {
    const id = await good('create')
    const followed = await quicksand(['logs', '-f', '--json', id], {
      onStart: (child, output) => void eventually('the first lines', () => output().includes('created')).then(() => good('rm', id)),
    })
    assert.equal(followed.code, 0, followed.stderr)
    assert.equal(JSON.parse(lines(followed.stdout).at(-1)).fields.event, 'killed')
  })

  test('completion knows the sandboxes and the aliases', async () => {
    const script = await good('completion', 'bash')
    const complete = (words) =>
      new Promise((done) => {
        const shell = spawn('bash', ['-c', `${script}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _quicksand; echo "\${COMPREPLY[*]}"`], { env: { PATH: process.env.PATH, HOME: folder, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key } })
        let text = ''
        shell.stdout.on('data', (chunk) => (text += chunk))
        shell.on('close', () => done(text.trim()))
      })
    assert.equal(await complete([binary, 'pause', first.slice(0, 8)]), first)
    assert.equal(await complete([binary, 'inspec']), 'inspect')
    assert.equal(await complete([binary, 'ps', '--for']), '--format')
    assert.equal(await complete([binary, 'images', '--js']), '--json')
  })
})

describe('one sandbox', () => {
  let id
  before(async () => {
    fs.writeFileSync(`${folder}/env`, '# comment\n\nFROM_FILE=a=b c\nOURS\nNOT_SET\nBOTH=file\n')
    id = await good('create', '--cpu', '1', '--memory', '640m', '--disk', '2g', '--env-file', 'env', '-e', 'BOTH=flag', '-m', 'name=web', { env: { OURS: 'passed on' } })
  })
  after(() => good('rm', id))

  test('its size and variables are those that were asked for', async () => {
    const answer = await fetch(`${server.url}/sandboxes/${id}`, { headers: { 'X-API-KEY': server.key } }).then((one) => one.json())
    assert.deepEqual([answer.cpuCount, answer.memoryMB, answer.diskSizeMB], [1, 640, 2048])
    assert.equal(await good('exec', 'web', 'echo "$FROM_FILE|$OURS|$BOTH|${NOT_SET-unset}"'), 'a=b c|passed on|flag|unset')
    assert.equal(await good('exec', '--env-file', 'env', '-e', 'BOTH=2', id, 'echo $FROM_FILE $BOTH'), 'a=b c 2')
    assert.equal(await good('run', '--memory', '600', '--env-file', 'env', 'echo $FROM_FILE'), 'a=b c')
  })

  test('extend: it lives for so long from now', async () => {
    const [, end] = (await good('extend', 'web', '2h')).match(new RegExp(`^${id} ends at (\\S+)$`))
    assert.ok(Math.abs(Date.parse(end) - Date.now() - 7200_000) < 60_000, end)
    const { endAt } = await fetch(`${server.url}/sandboxes/${id}`, { headers: { 'X-API-KEY': server.key } }).then((one) => one.json())
    assert.ok(Math.abs(Date.parse(endAt) - Date.now() - 7_200_000) < 60_000, endAt)
    const [extended] = await json('extend', id, '30m')
    assert.deepEqual(extended, { ...(await json('show', id)), timeout: 1800, ends_at: (await server.api('GET', `/sandboxes/${id}`)).body.endAt })
  })

  test('fork: several with its files', async () => {
    await good('exec', 'web', 'echo mine > ~/file')
    const forks = lines(await good('fork', 'web', '-n', '3', '--timeout', '5m'))
    assert.equal(new Set(forks).size, 3)
    for (const fork of forks) assert.equal(await good('exec', fork, 'cat file'), 'mine')
    const [made] = await json('fork', id, '-m', 'name=alone', '-m', 'k=v')
    assert.deepEqual([made.metadata.name, made.metadata.k], ['alone', 'v'])
    for (const fork of forks) assert.ok(!('name' in (await json('show', fork)).metadata), 'a name is that of one sandbox')
    assert.deepEqual([(await json('show', 'web')).id, (await json('show', id)).metadata.name], [id, 'web'])
    assert.deepEqual(Object.keys(made), Object.keys(await json('show', id)), 'a sandbox looks the same everywhere')
    await good('rm', ...forks, made.id)
  })

  test('stats and top: what it uses', async () => {
    const [one] = await eventually('measures', async () => (await json('stats', 'web')).length && json('stats', 'web'))
    assert.deepEqual([one.id, one.cpuCount], [id, 1])
    assert.match(await good('stats', id), new RegExp(`^ID +CPU +CPUS +MEMORY +DISK.*\n${id} +[\\d.]+ % +1 +.* / 640 MiB +.* / 2 GiB`))
    assert.ok((await json('top')).some((row) => row.id === id))
    const watched = await quicksand(['stats', '-w', 'web'], {
      onStart: (child, output) => void eventually('two tables', () => output().split(id).length > 2).then(() => child.kill('SIGINT')),
    })
    assert.deepEqual([watched.code, watched.stderr], [0, ''])
    assert.match(await good('stats'), /^NAME/)
  })

  test('open: a port of it', async () => {
    assert.equal(await good('open', 'web', '3000'), await good('url', 'web', '3000'))
  })

  test('wrong flags are named, and change nothing', async () => {
    await refused(['extend', 'web'], 2, /needs a sandbox and a time/)
    await refused(['extend', 'web', 'soon'], 2, /needs a time like .* not 'soon'/)
    await refused(['extend', 'nobody', '1h'], 1, /no sandbox 'nobody'/)
    await refused(['fork', 'web', '-n', '0'], 2, /--count needs a number, at least 1/)
    await refused(['fork', 'web', '-n', 'x'], 2, /--count needs a number/)
    await refused(['fork'], 2, /needs one sandbox/)
    await refused(['fork', 'nobody'], 1, /no sandbox 'nobody'/)
    await refused(['stats', '--by', 'agent', 'web'], 2, /--by is for/)
    await refused(['stats', '-w'], 2, /--watch needs a sandbox/)
    await refused(['stats', 'nobody'], 1, /no sandbox 'nobody'/)
    await refused(['top', 'nobody'], 1, /no sandbox 'nobody'/)
    await refused(['open', 'web', '99999'], 2, /'99999' is no port/)
    await refused(['open', 'web', '80', 'x'], 2, /at most one sandbox/)
    await refused(['create', '--memory', 'much'], 2, /--memory needs a size like .* not 'much'/)
    await refused(['create', '--memory', '0'], 2, /--memory/)
    await refused(['create', '--disk', '-1'], 2, /--disk/)
    await refused(['create', '--cpu', 'x'], 2, /--cpu needs a number/)
    await refused(['create', '--cpu', '4000'], 1, /cpu/i)
    await refused(['create', '--env-file', '/nowhere'], 2, /--env-file \/nowhere: No such file/)
    fs.writeFileSync(`${folder}/bad`, 'A=1\nb c=2\n')
    await refused(['create', '--env-file', 'bad'], 2, /--env-file bad: line 2/)
    await refused(['up', '--env-file', 'bad'], 2, /line 2/)
    await refused(['run', '--env-file', 'bad', '--', 'true'], 2, /line 2/)
  })
})

test('rm --all', async () => {
  const ids = [await good('create'), await good('up', '-q')]
  assert.deepEqual((await json('rm', '--all')).sort(), ids.sort())
  assert.equal(await good('ls', '-q'), '')
  assert.deepEqual(await json('rm', '-a'), [])
})

// Read from the source, since some tables need a desktop, a runner or another server to have rows.
test('a column has the same title in all tables', () => {
  const folder = path.join(repository, 'src/cli')
  const sources = fs.readdirSync(folder, { recursive: true }).filter((file) => /(?<!_test)\.c$/.test(file))
  const titles = {} // by field
  for (const file of sources)
    for (const [, title, field] of fs.readFileSync(path.join(folder, file), 'utf8').matchAll(/\{"([A-Z][A-Z -]*)", "([a-z]\w*)"/g)) (titles[field] ??= {})[title] = path.basename(file)
  assert.ok(Object.keys(titles).length >= 40, `${Object.keys(titles).length} columns were found`)
  // The status of an HTTP request is not a state; a tag's build is not its id; `top` has processors beside their load.
  const apart = { status: { STATUS: 'cli_audit.c' }, buildID: { BUILD: 'cli_template.c' }, cpuCount: { CPUS: 'cli_top.c' } }
  for (const [field, of] of Object.entries(apart)) for (const [title, file] of Object.entries(of)) {
    assert.equal(titles[field][title], file)
    delete titles[field][title]
  }
  for (const [field, of] of Object.entries(titles)) assert.equal(Object.keys(of).length, 1, `${field}: ${JSON.stringify(of)}`)
  const wanted = [[/^id$|^(build|secret|team|template|volume)ID$/, 'ID'], [/^(state|status|buildStatus)$/, 'STATE'], [/^(created_?at|started_at|createdAt)$/, 'AGE'], [/^sandbox_id$/, 'SANDBOX']]
  for (const [field, of] of Object.entries(titles)) for (const [pattern, title] of wanted) if (pattern.test(field)) assert.deepEqual(Object.keys(of), [title], field)
})
