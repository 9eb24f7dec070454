// The one table of commands and what is made of it: every option whose value is a text, wrong in turn (those of other kinds are
// tried by src/cli/command/cli_flags_test.c); completions that shells load; manual pages without a warning.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, startServer } from '../harness/server.mjs'

let server, folder, pages
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-flags-')
  fs.writeFileSync(path.join(folder, 'Dockerfile'), 'FROM template://base\nRUN true\n')
  fs.writeFileSync(path.join(folder, 'text'), 'text')
  server = await startServer()
  good('up', '--key', 'web')
  pages = path.join(folder, 'man1')
  good('man', '--dir', pages)
})
after(async () => {
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
})

function quicksand(args, input = '') {
  const env = { PATH: process.env.PATH, HOME: folder, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key, HOOK: 'a-secret-of-a-webhook' }
  return spawnSync(binary, args, { encoding: 'utf8', cwd: folder, env, input, timeout: 60_000 })
}
function good(...args) {
  const done = quicksand(args)
  assert.equal(done.status, 0, `${args.join(' ')}: ${done.stdout} ${done.stderr}`)
  return done.stdout
}

// Wrong values, in command lines that are right otherwise. What is told names the option.
const wrong = {
  run: [['--template', 'nope'], ['--env', '=x'], ['--env-file', 'nofile'], ['--cwd', '/nope'], ['--user', 'nobody9'], ['--cpu', '4000'], ['--memory', '1'], ['--disk', '1'], ['--peers', 'a b/c'], ['--profile', 'nope'], ['--provider', 'nope'], ['--repo', 'nowhere'], ['--url', 'nowhere']].map((flags) => [...flags, '--', 'true']),
  up: [['--key', ''], ['--profile', 'nope'], ['--provider', 'nope'], ['--template', 'nope'], ['--snapshot', 'nope'], ['--env', '=x'], ['--env-file', 'nofile'], ['--metadata', 'x'], ['--network', 'sometimes'], ['--peers', '/'], ['--repo', 'nowhere'], ['--branch', 'a b', '--repo', 'http://127.0.0.1:1/x.git'], ['--workspace', 'relative'], ['--cpu', '4000'], ['--memory', '1'], ['--disk', '1'], ['--url', 'nowhere']],
  ls: [['--state', 'sleeping'], ['--filter', 'x'], ['--format', '{{'], ['--url', 'nowhere']],
  exec: [['-it', '--detach-keys', 'all'], ['--env', '=x'], ['--env-file', 'nofile'], ['--cwd', '/nope'], ['--user', 'nobody9']].map((flags) => [...flags, 'web', '--', 'true']),
  code: [['--file', 'nofile', '-s', 'web'], ['--sandbox', 'nope', '1'], ['--env', '=x', '-s', 'web', '1'], ['--template', 'nope', '1']],
  log: [['--limit', '1001', 'web']],
  logs: [['--limit', '1001', 'web']],
  cp: [['--user', 'nobody9', 'text', 'web:x']],
  pty: [['--cwd', '/nope', 'web', '--', 'true'], ['--user', 'nobody9', 'web', '--', 'true'], ['--terminal', 'nope', 'web'], ['--detach-keys', 'all', 'web']],
  browser: [['text', 'http://127.0.0.1:1/', '--sandbox', 'nope']],
  forward: [['--bind', 'nowhere', 'web', '0:80']],
  create: [['--template', 'nope'], ['--timeout', '1000d'], ['--env', '=x'], ['--env-file', 'nofile'], ['--metadata', 'x'], ['--volume', 'x'], ['--volume', 'nope:/x'], ['--cpu', '4000'], ['--memory', '1'], ['--disk', '1']],
  fork: [['--count', '101', 'web'], ['--timeout', '1000d', 'web'], ['--metadata', 'word', 'web']],
  'job start': [['--env', '=x'], ['--cwd', '/nope'], ['--user', 'nobody9'], ['--callback', 'nowhere'], ['--token', 'alone']].map((flags) => [...flags, 'web', '--', 'true']),
  'session new': [['--agent', ''], ['--repo', 'nowhere'], ['--branch', 'a b', '--repo', 'http://127.0.0.1:1/x.git'], ['--profile', 'nope'], ['--provider', 'nope'], ['--template', 'nope'], ['--sandbox', 'nope'], ['--permission', 'sometimes'], ['--env', '=x'], ['--git-token-env', 'NOT_SET']].map((flags) => ['--agent', 'mock', ...flags]),
  'session push': [['--git-token-env', 'NOT_SET', 'ses_x']],
  events: [['--since', 'yesterday'], ['--limit', '0']],
  stats: [['--by', 'colour']],
  'template build': [['--file', 'nofile'], ['--build-arg', '='], ['--secret', 'nothing'], ['--target', 'nostage'], ['--tag', 'a b'], ['--config', 'nofile']].map((flags) => ['x', '.', ...flags]).concat([['x', '--from-archive', 'nofile']]),
  'template push': [['base', '127.0.0.1:1/x', '--user', 'somebody']],
  'template pull': [['127.0.0.1:1/x', 'x', '--user', 'somebody']],
  'secret set': [['token', '--host', 'a b'], ['token', '--any-host', '--meta', 'x']],
  'webhook add': [['http://hooks.example/', '--secret-env', 'HOOK', '--event', 'nothing'], ['http://hooks.example/', '--event', 'created', '--secret-env', 'NOT_SET'], ['http://hooks.example/', '--event', 'created', '--secret-env', 'HOOK', '--name', '']],
  'team create': ['--max-sandboxes', '--max-cpu', '--max-memory', '--max-disk', '--max-creates'].map((flag) => ['other', flag, '2000000000']),
  'team set': ['--max-sandboxes', '--max-cpu', '--max-memory', '--max-disk', '--max-creates'].map((flag) => ['default', flag, '2000000000']).concat([['default', '--name', '']]),
  login: [['--name', 'a b']],
  'key ls': [['--data', '/dev/null/x']],
  'key new': [['x', '--data', '/dev/null/x'], ['x', '--agent', ''], ['x', '--sandbox', 'nope'], ['x', '--role', 'king']],
  'key rm': [['x', '--data', '/dev/null/x']],
  'tls init': [['--domain', 'a b'], ['--domain', 'x.example', '--data', '/dev/null/x']],
  'tls acme': [['--domain', ''], ['--domain', 'x.example', '--hook', 'relative'], ['--domain', 'x.example', '--hook', '/nope'], ['--domain', 'x.example', '--email', 'nobody'], ['--domain', 'x.example', '--directory', 'nowhere'], ['--domain', 'x.example', '--ca', 'nofile'], ['--domain', 'x.example', '--directory', 'https://127.0.0.1:1/', '--data', '/dev/null/x']],
  'tls reload': [['--data', '/dev/null/x']],
  man: [['--dir', '/nope/nope']],
  serve: [['--listen', 'nowhere'], ['--log', 'loud'], ['--log-format', 'xml'], ['--hsts', '-1'], ['--warm', 'many'], ['--data', ''], ['--config', 'nofile']],
}
// Names for what need not be there, or what only a program in a sandbox or on another host can judge.
const anything = {
  run: ['agent', 'agent-id', 'task-id'],
  up: ['agent', 'agent-id', 'task-id'],
  ls: ['agent-id'],
  code: ['language', 'context', 'output'],
  browser: ['output'],
  desktop: ['output'],
  ssh: ['user'],
  'ssh-config': ['user'],
  'snapshot create': ['alias'],
  'session new': ['message', 'mode', 'checkpoint', 'agent-id', 'task-id'],
  'session approve': ['option'],
  'session snapshot': ['alias'],
  'session push': ['branch', 'message', 'title', 'body', 'base'],
  'session tail': ['since'],
  'job logs': ['after'],
  mcp: ['key', 'template', 'profile'],
  events: ['sandbox', 'session', 'agent-id', 'type'],
  'provider add': ['token', 'max'],
  doctor: ['data', 'domain', 'tls-cert'], // it tells what is wrong with them
  runner: ['server', 'token', 'listen', 'advertise', 'root', 'name', 'max-sessions', 'envd', 'agent'], // refuses root first
}
const kinds = ['TIME', 'SIZE', 'COUNT', 'N', 'BYTES'] // as cli_flags_test.c has them
const roles = ['serve', 'down', 'backup', 'restore', 'upgrade'] // their options are settings, which config_test.c has

// {command: names of its options that have a text}, as the manual pages tell it.
function table() {
  const commands = {}
  for (const page of fs.readdirSync(pages)) {
    if (page === 'quicksand.1') continue
    const text = fs.readFileSync(path.join(pages, page), 'utf8').replaceAll('\\-', '-')
    const verbs = text.split(/^\.SH "QUICKSAND /m)
    for (const part of verbs.length > 1 ? verbs.slice(1) : verbs) {
      const name = verbs.length > 1 ? part.slice(0, part.indexOf('"')).toLowerCase() : page.slice('quicksand-'.length, -2)
      const options = [...part.matchAll(/--([a-z-]+)\\fR \\fI(.*)\\fR$/gm)]
      commands[name] = options.filter(([, option, value]) => option !== 'url' && !kinds.includes(value)).map(([, option]) => option)
    }
  }
  return commands
}
// Records of what failed are no change.
function state() {
  const ids = (...args) => JSON.parse(good(...args, '--json')).filter((one) => one.state !== 'failed').map((one) => one.id ?? one.name ?? one.templateID ?? one.teamID)
  const teams = JSON.parse(good('team', 'ls', '--json'))
  return JSON.stringify([['ls'], ['template', 'ls'], ['volume', 'ls'], ['secret', 'ls'], ['webhook', 'ls'], ['profile', 'ls'], ['provider', 'ls'], ['snapshot', 'ls'], ['job', 'ls'], ['session', 'ls'], ['key', 'ls', '--data', server.data]].map((args) => ids(...args).sort())) + JSON.stringify(teams)
}

test('every option is tried, or it is said why not', () => {
  const commands = Object.entries(table()).filter(([command]) => !roles.includes(command))
  assert.ok(commands.length > 80, String(commands.length))
  const missing = []
  for (const [command, options] of commands) {
    const tried = new Set((wrong[command] ?? []).flat().filter((word) => word.startsWith('--')))
    for (const name of options) if (!tried.has(`--${name}`) && !anything[command]?.includes(name)) missing.push(`${command} --${name}`)
  }
  assert.deepEqual(missing, [])
})

test('wrong in turn: it is named, and nothing changes', { timeout: 300_000 }, () => {
  const before = state()
  for (const [command, cases] of Object.entries(wrong))
    for (const args of cases) {
      const line = [...command.split(' '), ...args]
      if (line[0] === 'key' || line[0] === 'tls') line.push(...(args.includes('--data') ? [] : ['--data', server.data]))
      const done = quicksand(line, command === 'secret set' ? 'value' : command === 'login' ? server.key : '')
      const last = done.stderr.trim().split('\n').at(-1)
      assert.ok(done.status === 1 || done.status === 2, `${line.join(' ')}: ${done.status ?? done.signal} ${done.stdout} ${done.stderr}`)
      const flags = args.filter((word) => word.startsWith('--') && word !== '--').map((word) => word.slice(2))
      const named = command === 'serve' ? flags.some((flag) => done.stderr.includes(flag)) : flags.some((flag) => last.includes(`--${flag}`))
      assert.ok(named, `${line.join(' ')}: ${done.stderr}`)
    }
  assert.equal(state(), before)
})

test('zsh and fish take the completions and complete with them', () => {
  fs.mkdirSync(path.join(folder, 'functions'))
  fs.writeFileSync(path.join(folder, 'functions/_quicksand'), good('completion', 'zsh'))
  fs.writeFileSync(path.join(folder, 'quicksand.fish'), good('completion', 'fish'))
  const env = { PATH: `${path.dirname(binary)}:${process.env.PATH}`, HOME: folder, TERM: 'dumb' }
  const zsh = spawnSync('zsh', ['-f', '-c', 'fpath=(functions $fpath); autoload -U compinit && compinit -u -D && print -r -- $_comps[quicksand] && autoload +X _quicksand && _quicksand 2>&1; print -r -- $functions[_quicksand]'], { cwd: folder, env, encoding: 'utf8' })
  assert.equal(zsh.stderr, '')
  assert.match(zsh.stdout, /^_quicksand\n/)
  assert.match(zsh.stdout, /ssh-config/)
  const complete = (line) => {
    const fish = spawnSync('fish', ['--no-config', '-c', `source quicksand.fish; complete -C '${line}'`], { cwd: folder, env, encoding: 'utf8' })
    assert.equal(fish.stderr, '')
    return fish.stdout.split('\n').filter(Boolean).map((one) => one.split('\t')[0])
  }
  assert.deepEqual(complete('quicksand ssh-c'), ['ssh-config'])
  assert.deepEqual(complete('quicksand session pu'), ['push'])
  assert.deepEqual(complete('quicksand backup --da'), ['--data'])
  assert.ok(complete('quicksand create --').includes('--env-file'))
})

test('manual pages: one for each command, and groff has nothing to say about them', () => {
  const names = fs.readdirSync(pages)
  for (const command of ['serve', 'backup', 'ls', 'template']) assert.ok(names.includes(`quicksand-${command}.1`), command)
  assert.ok(names.includes('quicksand.1'))
  const overview = fs.readFileSync(path.join(pages, 'quicksand.1'), 'utf8')
  for (const command of new Set(Object.keys(table()).map((one) => one.split(' ')[0]))) assert.ok(overview.includes(`\\fB${command.replaceAll('-', '\\-')}\n`), command)
  const done = spawnSync('groff', ['-man', '-Tutf8', '-ww', '-z', ...names], { cwd: pages, encoding: 'utf8' }) // as man --warnings does
  assert.equal(done.stdout + done.stderr, '')
})
