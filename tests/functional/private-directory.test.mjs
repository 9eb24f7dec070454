// The programs below a directory that only root may pass, such as a clone in root's home. The server is another user and
// must still build templates, images and recipes; what it really cannot reach is an error at once, with its fix.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Buildah, makeSmallRoot } from '../harness/buildah.mjs'
import { binary, patience, startServer } from '../harness/server.mjs'

const PARTS = ['envd', 'unpack', 'interpreter', 'mcp-gateway']
const QUICK_MS = 10_000 * patience

let home, build, program, server
before(async () => {
  home = fs.mkdtempSync('/tmp/quicksand-private-')
  build = path.join(home, 'quicksand/build')
  program = path.join(build, 'quicksand')
  fs.mkdirSync(build, { recursive: true })
  for (const name of PARTS) fs.copyFileSync(path.join(path.dirname(binary), name), path.join(build, name))
  fs.copyFileSync(binary, program)
  for (const name of PARTS) fs.chmodSync(path.join(build, name), 0o700)
  fs.chmodSync(home, 0o700)
  // Folders on the way to the data directory are made by the start, and the umask of the shell must not matter.
  const runner = path.join(build, 'with-umask')
  fs.writeFileSync(runner, `#!/bin/sh\numask 077\nexec '${program}' "$@"\n`, { mode: 0o755 })
  server = await startServer({ program: runner, args: ['--build-on-demand', '300'], prepare: (one) => void (one.data = path.join(one.home, 'new/folder/data')) })
})
after(async () => {
  await server?.destroy()
  fs.rmSync(home, { recursive: true, force: true })
})

function quicksand(args, options = {}) {
  return spawnSync(program, args, { encoding: 'utf8', timeout: 120_000 * patience, env: { PATH: process.env.PATH, HOME: home, ...server.clientEnv() }, ...options })
}

function good(args, options) {
  const result = quicksand(args, options)
  assert.equal(result.status, 0, `${args.join(' ')}: ${result.stdout}${result.stderr}\n${server.tail(10)}`)
  return result.stdout
}

// Without a base template of the tests: a start that gets further than its checks would begin to make one.
function serve(args, { program: which = program, cwd } = {}) {
  const env = { PATH: process.env.PATH, HOME: home, QUICKSAND_API_KEY: `e2b_${'0'.repeat(40)}` }
  const began = performance.now()
  const { status, stdout, stderr } = spawnSync(which, ['serve', '--listen', '127.0.0.1:0', ...args], { env, cwd, encoding: 'utf8', timeout: 60_000 * patience })
  return { status, log: stdout + stderr, ms: performance.now() - began }
}

function assertRefused({ status, log, ms }, pattern) {
  assert.equal(status, 1, log)
  assert.match(log, pattern)
  assert.doesNotMatch(log, /making the base template/)
  assert.ok(ms < QUICK_MS, `${ms} ms`)
}

test('the start has no warning', () => {
  assert.doesNotMatch(server.log, /WARN|ERROR|unpack/i)
})

test('COPY works in builds', () => {
  const context = path.join(home, 'context')
  fs.mkdirSync(context)
  fs.writeFileSync(path.join(context, 'Dockerfile'), 'FROM template://base\nCOPY hello.txt /hello.txt\n')
  fs.writeFileSync(path.join(context, 'hello.txt'), 'copied\n')
  good(['template', 'build', 'copies', context])
  assert.equal(good(['run', '-t', 'copies', '--', 'cat', '/hello.txt']), 'copied\n')
})

test('an image becomes a template', async () => {
  const buildah = new Buildah(path.join(home, 'buildah'))
  const root = path.join(home, 'root')
  const archive = path.join(home, 'image.tar')
  try {
    fs.mkdirSync(root)
    makeSmallRoot(root)
    await buildah.importRoot('localhost/small', root)
    await buildah.save('localhost/small', archive)
  } finally {
    await buildah.destroy()
  }
  good(['template', 'build', 'imaged', '--from-archive', archive])
})

// The client reads the program of the recipe; on demand the server does.
test('recipes are built, by the command line and on demand', async () => {
  good(['template', 'build', 'mcp-gateway'])
  assert.equal((await server.api('DELETE', '/templates/mcp-gateway')).status, 204)
  const { status, text } = await server.api('POST', '/sandboxes', { templateID: 'mcp-gateway' }, { timeoutMs: 120_000 * patience })
  assert.equal(status, 201, text)
})

test('a changed program is used after the next start', async () => {
  fs.appendFileSync(path.join(build, 'unpack'), 'a newer build')
  await server.stop()
  await server.start()
  assert.deepEqual(fs.readFileSync(path.join(server.data, 'programs/unpack')), fs.readFileSync(path.join(build, 'unpack')))
  good(['template', 'build', 'copies', path.join(home, 'context'), '--no-cache'])
})

test('a data directory that the server cannot reach is refused at once', () => {
  assertRefused(serve(['--data', path.join(home, 'data')]), new RegExp(`data directory '${home}/data': the server \\(uid 64737\\) may not pass '${home}': 'chmod o\\+x' that folder, or choose another`))
  assertRefused(serve(['--data', 'data'], { cwd: home }), new RegExp(`may not pass '${home}'`))
  assert.ok(!fs.existsSync(path.join(home, 'data')), 'nothing was made')
})

test('files of settings that the server cannot read are refused at once', () => {
  const data = path.join(server.home, 'unused')
  for (const [setting, text] of [['runtime-config', '{}'], ['config', 'warm = 1\n'], ['webhook-ca', ''], ['package-keyring', ''], ['egress-ca', '']]) {
    const file = path.join(home, setting)
    fs.writeFileSync(file, text)
    assertRefused(serve(['--data', data, `--${setting}`, file]), new RegExp(`--${setting} '${file}': the server \\(uid 6473[79]\\) may not read '${home}'; .*chmod o\\+x`))
  }
  const open = path.join(server.home, 'runtime.json')
  fs.writeFileSync(open, '{}', { mode: 0o600 })
  assertRefused(serve(['--data', data, '--runtime-config', open]), new RegExp(`'${open}': the server \\(uid 64737\\) may not read it; .*chgrp 64737 ${open}`))
})

test('a program that the server cannot execute is refused at once', () => {
  const closed = path.join(build, 'closed')
  fs.copyFileSync(program, closed)
  fs.chmodSync(closed, 0o700)
  assertRefused(serve(['--data', path.join(server.home, 'unused')], { program: closed }), new RegExp(`'${closed}': the server \\(uid 64737\\) may not execute it: run 'chmod o\\+rx`))
  const { programs } = checksBy(closed)
  assert.equal(programs.status, 'fail')
  assert.match(programs.detail, new RegExp(`'${closed}': the server \\(uid 64737\\) may not execute it`))
  assert.equal(programs.fix, `chmod o+rx '${closed}'`)
})

test('a missing program is an error with its fix, and doctor reports it', () => {
  const healthy = checks()
  assert.equal(healthy.programs.status, 'ok', JSON.stringify(healthy.programs))
  for (const name of PARTS) {
    fs.renameSync(path.join(build, name), path.join(home, name))
    try {
      assertRefused(serve(['--data', path.join(server.home, 'unused')]), new RegExp(`the program '${name}' is missing: .*build it with 'make', or install the package again`))
      const { programs } = checks()
      assert.equal(programs.status, 'fail')
      assert.match(programs.detail, new RegExp(name))
      assert.match(programs.fix, /make/)
    } finally {
      fs.renameSync(path.join(home, name), path.join(build, name))
    }
  }
})

test('doctor names the directory that the server may not pass', () => {
  const bad = checks('--data', path.join(home, 'data'))['data directory']
  assert.equal(bad.status, 'fail')
  assert.match(bad.detail, new RegExp(`may not pass '${home}'`))
  assert.match(bad.fix, /chmod o\+x/)
  assert.equal(checks('--data', server.data)['data directory'].status, 'ok')
})

test('doctor checks for the user that the server runs as', () => {
  const own = path.join(server.home, 'of-another-user')
  const data = path.join(own, 'data')
  const state = (env, ...args) => {
    const one = checksBy(program, ['--data', data, ...args], env)['data directory']
    return [one.status, /\(uid (\d+)\)/.exec(one.detail)[1]]
  }
  fs.mkdirSync(own, { mode: 0o700 })
  fs.chownSync(own, 4242, 4242)
  assert.deepEqual(state({}), ['fail', '64737'])
  assert.deepEqual(state({}, '--uid', '4242'), ['ok', '4242'])
  assert.deepEqual(state({ QUICKSAND_UID: '4242' }), ['ok', '4242'])
  assert.deepEqual(state({ QUICKSAND_UID: '4242' }, '--uid', '4243'), ['fail', '4243'])
  // A server that was started here says it by what it owns.
  fs.mkdirSync(path.join(data, 'store'), { recursive: true })
  fs.chownSync(path.join(data, 'store'), 4242, 4242)
  assert.deepEqual(state({}), ['ok', '4242'])
})

function checksBy(which, args = [], env = {}) {
  const { stdout } = spawnSync(which, ['doctor', '--json', ...args], { encoding: 'utf8', timeout: 120_000 * patience, env: { PATH: process.env.PATH, HOME: home, ...env } })
  return Object.fromEntries(JSON.parse(stdout).map((one) => [one.name, one]))
}

const checks = (...args) => checksBy(program, args)
