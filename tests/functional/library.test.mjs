// libquicksand, as another program gets it: installed, found by pkg-config, linked shared and static, and its example
// run with plain processes and with a server of ours as an E2B endpoint.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, repository, startServer } from '../harness/server.mjs'

const example = path.join(repository, 'src/lib/example.c')
const PLAIN_UID = 64801

let folder
let installed
before(() => {
  folder = fs.mkdtempSync('/tmp/quicksand-lib-')
  fs.chmodSync(folder, 0o755)
  installed = path.join(folder, 'root')
  run('make', ['-C', repository, 'install', `DESTDIR=${installed}`, 'PREFIX=/opt/quicksand'])
})
after(() => fs.rmSync(folder, { recursive: true, force: true }))

function run(command, args, env = {}) {
  const result = spawnSync(command, args, { encoding: 'utf8', env: { ...process.env, ...env } })
  assert.equal(result.status, 0, `${command} ${args.join(' ')}: ${result.stdout}\n${result.stderr}`)
  return result.stdout.trim()
}

const find = (name) => run('find', [installed, '-name', name]).split('\n')[0]
const pkgConfig = (...args) =>
  run('pkg-config', [...args, 'quicksand'], { PKG_CONFIG_PATH: path.dirname(find('quicksand.pc')), PKG_CONFIG_SYSROOT_DIR: installed }).split(/\s+/)

function compile(name, ...more) {
  const out = path.join(folder, name)
  run('cc', ['-std=c11', '-Wall', '-Wextra', '-Werror', '-pedantic', '-g', example, '-o', out, ...more])
  return out
}

const environment = () => ({ PATH: process.env.PATH, HOME: folder, LD_LIBRARY_PATH: path.dirname(find('libquicksand.so')) })

// Not synchronously: the server under test is our own child.
function start(program, args, { env, uid } = {}) {
  return new Promise((done) => {
    const child = spawn(program, args, { env: { ...environment(), ...env }, ...(uid ? { uid, gid: uid } : {}) })
    let text = ''
    child.stdout.on('data', (chunk) => (text += chunk))
    child.stderr.on('data', (chunk) => (text += chunk))
    child.on('close', (code, signal) => done({ code: code ?? signal, text }))
  })
}

function plainConfig(root) {
  const home = path.join(folder, root)
  fs.mkdirSync(home)
  fs.chownSync(home, PLAIN_UID, PLAIN_UID)
  fs.copyFileSync(path.join(path.dirname(binary), 'envd'), path.join(home, 'envd'))
  fs.chmodSync(path.join(home, 'envd'), 0o755)
  return JSON.stringify({ default_provider: 'local', providers: { local: { type: 'process', agent: path.join(home, 'envd'), root: path.join(home, 'root') } } })
}

const plainOutput = 'read back: hello\nhello\nfrom the sandbox\nexit code 3\nno snapshots here: unsupported\nthe same sandbox: yes, resumed: yes\n'

test('everything is beneath the prefix, and knows it', () => {
  assert.deepEqual(fs.readdirSync(installed), ['opt'])
  assert.equal(run('pkg-config', ['--variable=prefix', 'quicksand'], { PKG_CONFIG_PATH: path.dirname(find('quicksand.pc')) }), '/opt/quicksand')
  const prefix = path.join(installed, 'opt/quicksand')
  assert.ok(fs.existsSync(path.join(prefix, 'include/quicksand.h')))
  fs.accessSync(path.join(prefix, 'lib/quicksand/envd'), fs.constants.X_OK)
  assert.match(run(path.join(prefix, 'bin/quicksand'), ['--version']), /\d/)
})

test('only qs_* is visible, and the header is C and C++', () => {
  const names = run('nm', ['-D', '--defined-only', find('libquicksand.so')]).split('\n').map((line) => line.split(' ').at(-1))
  assert.ok(names.length >= 20)
  assert.deepEqual(names.filter((name) => !name.startsWith('qs_')), [])
  const statics = run('nm', ['-g', '--defined-only', find('libquicksand.a')]).split('\n').filter((line) => / [A-Z] /.test(line))
  assert.deepEqual(statics.filter((line) => !/ T qs_/.test(line)), [])
  for (const language of ['c', 'c++']) run('clang', ['-fsyntax-only', '-Wall', '-Werror', '-x', language, find('quicksand.h')])
})

test('plain processes: shared and static', async () => {
  const shared = compile('shared', ...pkgConfig('--cflags', '--libs'))
  assert.match(run('ldd', [shared], environment()), /libquicksand\.so\.0/)
  const one = await start(shared, [plainConfig('plain')], { uid: PLAIN_UID })
  assert.deepEqual([one.code, one.text], [0, plainOutput])
  const libraries = pkgConfig('--static', '--libs').filter((word) => word !== '-lquicksand' && !word.startsWith('-L'))
  const fixed = compile('fixed', ...pkgConfig('--cflags'), find('libquicksand.a'), ...libraries)
  assert.ok(!run('ldd', [fixed]).includes('libquicksand'))
  const two = await start(fixed, [plainConfig('fixed-root')], { uid: PLAIN_UID })
  assert.deepEqual([two.code, two.text], [0, plainOutput])
})

test('a server of ours as an E2B endpoint', async () => {
  const server = await startServer()
  try {
    const shared = compile('remote', ...pkgConfig('--cflags', '--libs'))
    const result = await start(shared, [], { env: server.clientEnv() })
    assert.deepEqual([result.code, result.text], [0, 'read back: hello\nhello\nfrom the sandbox\nexit code 3\nthe copy has: hello\nthe same sandbox: yes, resumed: yes\n'], result.text)
    assert.deepEqual(await server.ids(), [])
    const stranger = await start(shared, [], { env: { ...server.clientEnv(), E2B_API_KEY: `e2b_${'0'.repeat(40)}` } })
    assert.equal(stranger.code, 1)
    assert.match(stranger.text, /ensure: .*\(unauthorized\)/)
  } finally {
    await server.destroy()
  }
})

test('what cannot work is told', async () => {
  const shared = compile('wrong', ...pkgConfig('--cflags', '--libs'))
  const none = await start(shared, [])
  assert.equal(none.code, 1)
  assert.match(none.text, /open: .*no engine in this process/)
  const wrong = await start(shared, ['{"provders":{}}'])
  assert.equal(wrong.code, 1)
  assert.match(wrong.text, /provders: unknown member.*\(invalid\)/s)
})

test('no leaks, no misuse of memory', async () => {
  const shared = compile('checked', ...pkgConfig('--cflags', '--libs'))
  const result = await start('/usr/bin/valgrind', ['-q', '--leak-check=full', '--errors-for-leak-kinds=definite', '--error-exitcode=99', shared, plainConfig('checked-root')], { uid: PLAIN_UID })
  assert.equal(result.code, 0, result.text)
})
