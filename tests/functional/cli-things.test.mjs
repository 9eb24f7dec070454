// login and contexts, volumes, webhooks and teams from the command line, against a live server.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { binary, startServer } from '../harness/server.mjs'

let server
let folder
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-things-')
  server = await startServer()
})
after(async () => {
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
})

function quicksand(args, { input = '', env = {} } = {}) {
  return new Promise((done) => {
    const child = spawn(binary, args, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, ...env } })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end(input)
    child.on('close', (code) => done({ code, stdout, stderr }))
  })
}
async function good(...args) {
  const options = typeof args.at(-1) === 'object' ? args.pop() : {}
  const result = await quicksand(args, options)
  assert.equal(result.code, 0, `${args.join(' ')}: ${result.code} ${result.stdout} ${result.stderr}\n${server.tail(5)}`)
  return result.stdout.trim()
}
const json = async (...args) => JSON.parse(await good(...args, '--json'))
async function refused(args, code, words, options) {
  const result = await quicksand(args, options)
  assert.equal(result.code, code, `${args.join(' ')}: ${result.stdout} ${result.stderr}`)
  assert.match(result.stderr, words)
}
const credentials = () => fs.readFileSync(`${folder}/.quicksand/credentials`, 'utf8')

test('login keeps a key that the server takes, contexts choose among several', async () => {
  await refused(['ls'], 1, /no API key/)
  await refused(['login', server.url], 1, /key/i, { input: 'e2b_0000000000000000000000000000000000000000\n' })
  await refused(['login', server.url], 2, /needs an API key on stdin/, { input: '\n' })
  await refused(['login', 'nowhere'], 2, /'nowhere' is no address/)
  await refused(['login', server.url, '--name', 'a b'], 2, /--name 'a b'/, { input: server.key })
  await refused(['login', 'http://127.0.0.1:1'], 1, /no server answers/, { input: server.key })
  assert.ok(!fs.existsSync(`${folder}/.quicksand/credentials`), 'nothing was kept')
  assert.equal(await good('login', server.url, '--name', 'here', { input: `${server.key}\n` }), `signed in to ${server.url} as context 'here'`)
  assert.equal(fs.statSync(`${folder}/.quicksand/credentials`).mode & 0o777, 0o600)
  assert.deepEqual(await json('ls'), [])
  fs.appendFileSync(`${folder}/.quicksand/credentials`, 'name = far\nurl = http://127.0.0.1:1\nkey = e2b_far\n')
  assert.deepEqual(await json('context', 'ls'), [{ name: 'here', url: server.url, current: true }, { name: 'far', url: 'http://127.0.0.1:1', current: false }])
  assert.ok(!(await good('context', 'ls')).includes('e2b_'), 'keys are not shown')
  assert.deepEqual(await json('ls'), [])
  await refused(['ls', '--url', 'far'], 1, /127\.0\.0\.1:1/)
  await good('context', 'use', 'far')
  await refused(['ls'], 1, /127\.0\.0\.1:1/)
  assert.deepEqual(await json('ls', '--url', 'here'), [])
  const before = credentials()
  await refused(['context', 'use', 'nobody'], 1, /no context 'nobody'/)
  await refused(['context', 'rm', 'nobody'], 1, /no context 'nobody'/)
  await refused(['context', 'use'], 2, /needs one context/)
  await refused(['ls', '--url', 'nobody'], 1, /no context 'nobody'/)
  assert.equal(credentials(), before)
  await good('context', 'use', server.url)
  assert.equal(await good('context', 'rm', 'far'), 'far')
  assert.deepEqual((await json('context', 'ls')).map((one) => one.name), ['here'])
  assert.deepEqual(await json('ls'), [])
})

test('volumes: made, mounted, removed', async () => {
  const id = await good('volume', 'create', 'data')
  assert.match(await good('volume', 'ls'), new RegExp(`^NAME +ID\\ndata +${id}$`))
  const first = await good('create', '--volume', 'data:/mnt/data')
  await good('exec', '-u', 'root', first, 'echo kept > /mnt/data/file')
  await good('rm', first)
  const second = await good('create', '-v', 'data:/mnt/data')
  assert.equal(await good('exec', second, 'cat /mnt/data/file'), 'kept')
  await good('rm', second)
  await refused(['create', '--volume', 'data'], 2, /--volume needs NAME:\/PATH, not 'data'/)
  await refused(['create', '--volume', 'nothing:/x'], 1, /nothing/)
  await refused(['volume', 'rm', 'nothing'], 1, /there is no 'nothing'/)
  await refused(['volume', 'create'], 2, /needs one name/)
  await refused(['volume', 'creat', 'x'], 2, /did you mean 'create'/)
  assert.deepEqual((await json('volume', 'ls')).map((one) => one.name), ['data'])
  assert.deepEqual(await json('volume', 'rm', 'data'), ['data'])
  assert.deepEqual(await json('volume', 'ls'), [])
})

test('webhooks', async () => {
  const id = await good('webhook', 'add', 'https://hooks.example/x', '--name', 'ci', '-e', 'created', '-e', 'sandbox.lifecycle.killed', '--secret-env', 'HOOK', { env: { HOOK: 'a-long-enough-secret-of-32-characters' } })
  const [one] = await json('webhook', 'ls')
  assert.deepEqual([one.id, one.name, one.url, one.enabled], [id, 'ci', 'https://hooks.example/x', true])
  assert.deepEqual(one.events, ['sandbox.lifecycle.created', 'sandbox.lifecycle.killed'])
  await refused(['webhook', 'add', 'https://hooks.example/x'], 2, /needs an --event/)
  await refused(['webhook', 'add', '-e', 'created'], 2, /needs one URL/)
  await refused(['webhook', 'add', 'https://hooks.example/x', '-e', 'created'], 2, /needs --secret-env/)
  await refused(['webhook', 'add', 'https://hooks.example/x', '-e', 'nothing', '--secret-env', 'PATH'], 1, /--event: 'events' has a type that does not exist/)
  await refused(['webhook', 'add', 'https://hooks.example/x', '-e', 'created', '--secret-env', 'NOT_SET'], 2, /--secret-env NOT_SET/)
  await refused(['webhook', 'rm', 'other'], 1, /there is no 'other'/)
  assert.equal((await json('webhook', 'ls')).length, 1)
  await good('webhook', 'rm', 'ci')
  assert.deepEqual(await json('webhook', 'ls'), [])
})

test('teams: limits, keys, bans', async () => {
  const id = await good('team', 'create', 'research', '--max-sandboxes', '1', '--max-memory', '4g')
  const team = async () => (await json('team', 'ls')).find((one) => one.teamID === id)
  assert.deepEqual([(await team()).maxSandboxes, (await team()).maxMemoryMB], [1, 4096])
  const key = await good('team', 'key', 'research', 'laptop')
  const env = { QUICKSAND_URL: server.url, QUICKSAND_TOKEN: key }
  const box = await good('create', { env })
  await refused(['create'], 1, /sandboxes/, { env })
  await good('team', 'set', 'research', '--max-sandboxes', '2', '--name', 'lab')
  assert.deepEqual([(await team()).name, (await team()).maxSandboxes, (await team()).maxMemoryMB], ['lab', 2, 4096])
  await good('rm', await good('create', { env }), box, { env })
  await refused(['team', 'ls'], 1, /./, { env })
  await good('team', 'set', 'lab', '--ban')
  assert.equal((await quicksand(['ls'], { env })).code, 1)
  await good('team', 'set', id, '--unban')
  assert.equal(await good('ls', '-q', { env }), '')
  const before = await json('team', 'ls')
  await refused(['team', 'set', 'lab', '--ban', '--unban'], 2, /--ban and --unban/)
  await refused(['team', 'set', 'nobody', '--ban'], 1, /there is no 'nobody'/)
  await refused(['team', 'set', 'lab', '--max-cpu', 'many'], 2, /--max-cpu needs a number/)
  await refused(['team', 'set', 'lab', '--max-memory', 'x'], 2, /--max-memory needs a size/)
  await refused(['team', 'create'], 2, /needs one name/)
  await refused(['team', 'key', 'lab'], 2, /needs a team and a name/)
  assert.deepEqual(await json('team', 'ls'), before)
})
