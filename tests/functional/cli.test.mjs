// The command line against a live server: output for people, JSON for programs, exit codes.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, startServer } from '../harness/server.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

function quicksand(args, { input, env = {} } = {}) {
  return new Promise((done) => {
    const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', ...server.clientEnv(), QUICKSAND_DATA: server.data, ...env } })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end(input)
    child.on('exit', (code) => setImmediate(() => done({ code, stdout, stderr })))
  })
}

test('run: the exit code is the command’s, the sandbox is gone afterwards', async () => {
  const good = await quicksand(['run', '--', 'echo', 'hello', 'two words'])
  assert.deepEqual([good.code, good.stdout], [0, 'hello two words\n'], good.stderr)
  const bad = await quicksand(['run', '--', 'sh', '-c', 'echo oops >&2; exit 42'])
  assert.equal(bad.code, 42, bad.stderr)
  assert.match(bad.stderr, /oops/)
  assert.deepEqual(await server.ids(), [])
})

test('run with an unknown template fails with a reason', async () => {
  const result = await quicksand(['run', '--template', 'nothing-here', '--', 'true'])
  assert.equal(result.code, 1)
  assert.match(result.stderr, /nothing-here|not found/i)
})

test('create, ls, show, exec, cp, rm', async () => {
  const made = await quicksand(['create', '--json'])
  assert.equal(made.code, 0, made.stderr)
  const document = JSON.parse(made.stdout)
  const { id } = document
  assert.match(id, /^[a-z0-9]+$/)

  const list = await quicksand(['ls'])
  assert.equal(list.code, 0, list.stderr)
  assert.ok(list.stdout.includes(id))
  const listed = JSON.parse((await quicksand(['ls', '--json'])).stdout)
  assert.ok(JSON.stringify(listed).includes(id))
  const shown = await quicksand(['show', id])
  assert.equal(shown.code, 0, shown.stderr)
  assert.ok(shown.stdout.includes(id))
  assert.deepEqual(JSON.parse((await quicksand(['show', '--json', id])).stdout), document, 'one shape')
  assert.deepEqual(listed.find((one) => one.id === id), document)

  const ran = await quicksand(['exec', id, '--', 'sh', '-c', 'whoami; exit 3'])
  assert.deepEqual([ran.code, ran.stdout], [3, 'user\n'], ran.stderr)

  const local = path.join(server.home, 'note')
  fs.writeFileSync(local, 'carried over')
  const put = await quicksand(['cp', local, `${id}:/home/user/note`])
  assert.equal(put.code, 0, put.stderr)
  const got = await quicksand(['cp', `${id}:/home/user/note`, `${local}.back`])
  assert.equal(got.code, 0, got.stderr)
  assert.equal(fs.readFileSync(`${local}.back`, 'utf8'), 'carried over')

  const removed = await quicksand(['rm', id])
  assert.equal(removed.code, 0, removed.stderr)
  assert.deepEqual(await server.ids(), [])
  assert.equal((await quicksand(['rm', id])).code, 0, 'what is gone is gone')
  const never = await quicksand(['rm', 'i0000000000000000000'])
  assert.equal(never.code, 1)
  assert.notEqual(never.stderr, '')
})

test('template ls knows the base template', async () => {
  const result = await quicksand(['template', 'ls'])
  assert.equal(result.code, 0, result.stderr)
  assert.match(result.stdout, /^NAME .*\bSIZE +LAYERS\b/)
  assert.match(result.stdout, /base/)
  const [base] = JSON.parse((await quicksand(['template', 'ls', '--json'])).stdout)
  assert.deepEqual([base.layerCount, base.layerBytes], [1, 0], 'what the operator installed is not counted')
  const shown = await quicksand(['template', 'show', 'base'])
  assert.equal(shown.code, 0, shown.stderr)
  assert.match(shown.stdout, /^TAG +BUILD/m)
  const document = JSON.parse((await quicksand(['template', 'show', '--json', 'base'])).stdout)
  assert.deepEqual([document.templateID, document.public, document.builds], [base.templateID, true, []])
  const removed = await quicksand(['template', 'rm', 'base'])
  assert.deepEqual([removed.code, /not yours to change/.test(removed.stderr)], [1, true], removed.stderr)
})

test('key: a new key is shown once, looks like E2B’s, and works', async () => {
  const made = await quicksand(['key', 'new', 'tests'])
  assert.equal(made.code, 0, made.stderr)
  const key = /e2b_[0-9a-f]{40}/.exec(made.stdout)?.[0]
  assert.ok(key, made.stdout)
  assert.equal((await server.api('GET', '/sandboxes', undefined, { key })).status, 200)
  const reader = (await quicksand(['key', 'new', 'prometheus', '--role', 'metrics'])).stdout.trim()
  assert.equal((await server.api('GET', '/metrics', undefined, { key: reader })).status, 200)
  assert.equal((await server.api('GET', '/sandboxes', undefined, { key: reader })).status, 403)
  const list = await quicksand(['key', 'ls'])
  assert.equal(list.code, 0, list.stderr)
  assert.ok(!list.stdout.includes(key), 'a list must not show whole keys')
  const store = path.join(server.data, 'store')
  const files = fs.readdirSync(store, { recursive: true }).filter((name) => fs.statSync(path.join(store, name)).isFile())
  assert.ok(files.includes('quicksand.db'))
  for (const name of files) assert.ok(!fs.readFileSync(path.join(store, name), 'latin1').includes(key), `${name} has the key in clear`)
})

test('audit: every change, newest first, with pages', async () => {
  const { sandboxID } = await server.create()
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await server.api('DELETE', '/sandboxes/i0000000000000000000')
  const shown = await quicksand(['audit'])
  assert.equal(shown.code, 0, shown.stderr)
  const [head, first, second, third] = shown.stdout.split('\n')
  assert.match(head, /^TIME +KEY +AGENT +METHOD +PATH +STATUS$/)
  assert.match(first, /^\S+Z +- +- +DELETE +\/sandboxes\/i0000000000000000000 +404$/)
  assert.match(second, new RegExp(`DELETE +/sandboxes/${sandboxID} +204$`))
  assert.match(third, /POST +\/sandboxes +201$/)
  assert.ok(!shown.stdout.includes(server.key) && !/ GET /.test(shown.stdout))
  const one = JSON.parse((await quicksand(['audit', '--json', '-n', '1'])).stdout)
  assert.equal(one.length, 1)
  assert.deepEqual([one[0].method, one[0].status], ['DELETE', 404])
  for (let i = 0; i < 105; i++) await server.api('DELETE', '/sandboxes/i0000000000000000000')
  const many = JSON.parse((await quicksand(['audit', '--json', '--limit', '105', '--all'])).stdout)
  assert.equal(new Set(many.map((entry) => entry.id)).size, 105)
  assert.equal((await quicksand(['audit', '-n', '0'])).code, 2)
  assert.equal((await quicksand(['audit', 'x'])).code, 2)
})

test('doctor names each requirement and ends with 0 where they are met', async () => {
  const result = await quicksand(['doctor'])
  assert.equal(result.code, 0, result.stdout + result.stderr)
  assert.match(result.stdout, /ok/i)
  const rows = JSON.parse((await quicksand(['doctor', '--json'])).stdout)
  assert.ok(Object.keys(rows).length > 0)
})

test('wrong use: status 2 and a hint; help: status 0', async () => {
  for (const args of [['frobnicate'], ['ls', '--nope'], ['show'], ['exec'], ['run']]) {
    const result = await quicksand(args)
    assert.equal(result.code, 2, `${args}: ${result.code} ${result.stderr}`)
    assert.notEqual(result.stderr, '')
  }
  for (const args of [['--help'], ['help'], ['ls', '--help'], ['--version']]) assert.equal((await quicksand(args)).code, 0, String(args))
})

test('no server, wrong key: status 1 and a reason', async () => {
  const nobody = await quicksand(['ls'], { env: { E2B_API_URL: 'http://127.0.0.1:9', QUICKSAND_URL: '' } })
  assert.equal(nobody.code, 1)
  assert.notEqual(nobody.stderr, '')
  const stranger = await quicksand(['ls'], { env: { E2B_API_KEY: `e2b_${'0'.repeat(40)}` } })
  assert.equal(stranger.code, 1)
  assert.match(stranger.stderr, /401|unauthori[sz]ed|key/i)
})

test('a missing sandbox: status 1 and a reason', async () => {
  const missing = 'i0123456789abcdefghi'
  for (const args of [['show', missing], ['exec', missing, '--', 'true'], ['rm', missing], ['cp', '/etc/hostname', `${missing}:/tmp/x`]]) {
    const result = await quicksand(args)
    assert.equal(result.code, 1, `${args}: ${result.stdout} ${result.stderr}`)
    assert.notEqual(result.stderr, '')
  }
})

test('libcurl and libarchive are loaded by those who use them, and missed by name', async () => {
  const loaded = await quicksand([], { env: { LD_TRACE_LOADED_OBJECTS: '1' } })
  assert.match(loaded.stdout, /libcrypto/)
  assert.doesNotMatch(loaded.stdout, /libcurl|libarchive/, 'every command would wait for the dynamic loader')
  const folder = fs.mkdtempSync('/tmp/quicksand-late.')
  const env = { LD_LIBRARY_PATH: folder }
  try {
    for (const name of ['libcurl.so.4', 'libarchive.so.13']) fs.writeFileSync(path.join(folder, name), '')
    const list = await quicksand(['ls'], { env })
    assert.equal(list.code, 0, list.stderr)
    const remote = await quicksand(['ls'], { env: { ...env, E2B_API_URL: 'https://127.0.0.1:1' } })
    assert.equal(remote.code, 1)
    assert.match(remote.stderr, /^quicksand: cannot load a library: .*libcurl\.so\.4.*; install the package 'libcurl4'$/m)
    fs.chmodSync(folder, 0o755) // the server has another user
    const outcome = await startServer({ env }).then((other) => other.destroy(), (error) => error.message)
    assert.match(outcome ?? 'it serves', /server ended .*install the package 'libcurl4'/s)
  } finally {
    fs.rmSync(folder, { recursive: true })
  }
})
