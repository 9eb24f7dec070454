// Private networks: sandboxes of one team that reach each other by name, through all that can happen to them.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { runtimeOf } from '../harness/runtime.mjs'
import { loadSdk, python, shell } from '../harness/sdk.mjs'

const EVERYTHING = '0.0.0.0/0'
const life = { timeoutMs: 300_000 * patience }
let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
})
after(() => server.destroy())

// The SDKs hand on only what they know.
const create = async (peers, more = {}) => {
  const { sandboxID } = await server.create({ network: { peers, ...more } })
  return sdk.Sandbox.connect(sandboxID, life)
}
const put = async (sandbox, body, status = 204) => {
  const answer = await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, body)
  assert.equal(answer.status, status, answer.text)
  return answer
}
const run = (sandbox, command) => shell(sandbox, command, { timeoutMs: 30_000 * patience })
const fetch = (sandbox, host, port = 8000) => run(sandbox, `curl -fsS -m ${5 * patience} http://${host}:${port}/`)
const reaches = async (sandbox, host, port) => (await fetch(sandbox, host, port)).exitCode === 0
const serve = async (sandbox) => {
  await sandbox.commands.run('mkdir -p /tmp/www && hostname > /tmp/www/index.html && cd /tmp/www && python3 -m http.server 8000 --bind 0.0.0.0', {
    background: true,
    timeoutMs: 0,
  })
  await eventually('it serves', () => reaches(sandbox, '127.0.0.1'))
}
const addressOf = async (sandbox) => (await run(sandbox, 'hostname -I')).stdout.trim()
const kill = (...all) => Promise.all(all.map((one) => one.kill()))

test('members reach each other by name on any port, whatever else they reach', async () => {
  const open = await create({ network: 'build', name: 'open' })
  const filtered = await create({ network: 'build', name: 'filtered' }, { allowOut: ['web.test'], denyOut: [EVERYTHING] })
  const closed = await create({ network: 'build', name: 'closed' }, { denyOut: [EVERYTHING] })
  const all = { open, filtered, closed }
  for (const one of Object.values(all)) await serve(one)
  for (const [from, one] of Object.entries(all)) {
    for (const [to, other] of Object.entries(all)) {
      for (const host of [to, `${to}.build.internal`, other.sandboxId, `${other.sandboxId}.build.internal`])
        assert.equal((await fetch(one, host)).exitCode, 0, `${from} to ${host}`)
      assert.equal((await run(one, `ping -c1 -W${2 * patience} ${to}`)).exitCode, 0, `${from} pings ${to}`)
    }
    assert.equal((await run(one, 'getent hosts closed')).stdout.split(/\s+/)[0], await addressOf(closed), from)
    assert.notEqual((await run(one, 'getent hosts nobody.build.internal')).exitCode, 0)
  }
  // Datagrams, both ways.
  const echo = await closed.commands.run(
    `python3 -c "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 5353)); print('up', flush=True)
while True: d, a = s.recvfrom(99); s.sendto(d.upper(), a)"`,
    { background: true, timeoutMs: 0 },
  )
  await eventually('the echo', () => echo.stdout.includes('up'))
  const heard = await python(
    filtered,
    `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.sendto(b'hello', ('closed', 5353))
result = s.recv(99).decode()`,
  )
  assert.equal(heard, 'HELLO')
  // What else they reach is as ever.
  assert.equal(await reaches(open, 'web.test', 80), true)
  assert.equal(await reaches(open, '203.0.113.1', 80), true)
  assert.equal(await reaches(filtered, 'web.test', 80), true)
  assert.equal(await reaches(filtered, '203.0.113.1', 80), false)
  assert.equal(await reaches(closed, 'web.test', 80), false)
  assert.equal(await reaches(closed, '203.0.113.1', 80), false)
  assert.notEqual((await run(closed, 'getent hosts web.test')).exitCode, 0)
  const told = (await server.api('GET', `/sandboxes/${closed.sandboxId}`)).body.network
  assert.deepEqual(told.peers, { network: 'build', name: 'closed' })
  await kill(open, filtered, closed)
})

test('nobody else reaches them: not outside, not in another network', async () => {
  const db = await create({ network: 'build', name: 'db' })
  const plain = await sdk.Sandbox.create('base', life)
  const other = await create({ network: 'test', name: 'web' })
  const address = await addressOf(db)
  await serve(db)
  await serve(other)
  for (const one of [plain, other]) {
    for (const host of ['db', 'db.build.internal', address, db.sandboxId]) assert.equal(await reaches(one, host), false, host)
    assert.notEqual((await run(one, `ping -c1 -W1 ${address}`)).exitCode, 0)
  }
  for (const host of ['web', 'web.test.internal', await addressOf(other)]) assert.equal(await reaches(db, host), false, host)
  await kill(db, plain, other)
})

test('joined and left while they run; open connections end', async () => {
  const db = await create({ network: 'build', name: 'db' }, { denyOut: [EVERYTHING] })
  const web = await sdk.Sandbox.create('base', life)
  await serve(db)
  assert.equal(await reaches(web, 'db'), false)
  await put(web, { peers: { network: 'build', name: 'web' } })
  assert.equal(await reaches(web, 'db'), true)
  const holding = await web.commands.run(
    `python3 -c "import socket, time
s = socket.create_connection(('db', 8000)); print('open', flush=True)
try:
    while True: s.send(b'x'); time.sleep(0.05)
except OSError as e: print(type(e).__name__, flush=True)"`,
    { background: true, timeoutMs: 0 },
  )
  await eventually('it is open', () => holding.stdout.includes('open'))
  // Who changes something else stays in it.
  await web.updateNetwork({ denyOut: ['203.0.113.1'] })
  assert.equal(await reaches(web, 'db'), true)
  assert.equal(await reaches(web, '203.0.113.1', 80), false)
  await put(web, { peers: null })
  await eventually('it ended', () => /ConnectionResetError|BrokenPipeError/.test(holding.stdout))
  assert.equal(await reaches(web, 'db'), false)
  // Names are those of one; another network, another name.
  const answer = await put(web, { peers: { network: 'build', name: 'db' } }, 409)
  assert.match(answer.text, /the name 'db' in the network 'build' is that of sandbox/)
  assert.equal(await reaches(web, 'db'), false)
  await put(web, { peers: { network: 'test', name: 'db' } })
  assert.equal(await reaches(web, 'db.build.internal'), false)
  await put(db, { peers: { network: 'test', name: 'cache' }, denyOut: [EVERYTHING] })
  assert.equal(await reaches(web, 'cache'), true)
  await kill(db, web)
})

test('a name is taken once, and free when its sandbox is gone; what is wrong is said', async () => {
  const first = await create({ network: 'build', name: 'db' })
  const refused = async (peers, status, words) => {
    const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60, network: { peers } })
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.body.message, words)
  }
  await refused({ network: 'build', name: 'db' }, 409, new RegExp(`is that of sandbox '${first.sandboxId}'`))
  await server.api('POST', `/sandboxes/${first.sandboxId}/pause`, {})
  await refused({ network: 'build', name: 'db' }, 409, /is that of sandbox/)
  await refused({ network: 'Build' }, 400, /'network.peers.network' must be a label/)
  await refused({ network: 'build', name: 'a.b' }, 400, /'network.peers.name' must be a label/)
  await refused('build', 400, /must be an object/)
  await kill(first)
  const second = await create({ network: 'build', name: 'db' })
  await kill(second)
})

test('kept through pauses, restarts and forks; who is paused is gone meanwhile', async () => {
  const db = await create({ network: 'build', name: 'db' }, { denyOut: [EVERYTHING] })
  const web = await create({ network: 'build', name: 'web' })
  await serve(db)
  for (const memory of [true, false]) {
    assert.equal(await reaches(web, 'db'), true)
    const address = await addressOf(db)
    await server.api('POST', `/sandboxes/${db.sandboxId}/pause`, { memory })
    assert.equal(await reaches(web, 'db'), false)
    assert.notEqual((await run(web, 'getent hosts db.build.internal')).exitCode, 0)
    assert.equal(await reaches(web, address), false)
    await sdk.Sandbox.connect(db.sandboxId, life)
    if (!memory) await serve(db)
    assert.equal(await reaches(web, 'db'), true, `memory: ${memory}`)
  }
  await server.restart()
  await eventually('the egress process', () => reaches(web, 'db'))
  await server.kill9()
  await server.start()
  await eventually('the egress process', () => reaches(web, 'db'))
  // A fork is known by its id: the name is taken.
  const forks = (await server.api('POST', `/sandboxes/${db.sandboxId}/fork`, { count: 2, timeout: 300 })).body
  const ids = forks.map((one) => (one.sandbox ?? one).sandboxID)
  for (const id of ids) {
    const fork = await sdk.Sandbox.connect(id, life)
    await serve(fork)
    assert.equal(await reaches(web, id), true)
    assert.equal(await reaches(fork, 'db'), true)
    assert.deepEqual((await server.api('GET', `/sandboxes/${id}`)).body.network.peers, { network: 'build' })
    await fork.kill()
    assert.equal(await reaches(web, id), false)
  }
  await kill(db, web)
})

test('a server that is started again keeps the paused out and networks apart', async () => {
  const db = await create({ network: 'build', name: 'db' })
  const web = await create({ network: 'build', name: 'web' })
  const other = await create({ network: 'test', name: 'other' })
  await serve(db)
  await server.api('POST', `/sandboxes/${db.sandboxId}/pause`, {})
  await server.restart()
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  assert.equal(await reaches(web, 'db'), false)
  const newcomer = await create({ network: 'fresh', name: 'newcomer' })
  await sdk.Sandbox.connect(db.sandboxId, life)
  assert.equal(await reaches(web, 'db'), true)
  const address = await addressOf(db)
  for (const one of [other, newcomer]) for (const host of ['db', address]) assert.equal(await reaches(one, host), false)
  await kill(db, web, other, newcomer)
})

const quicksand = (...args) =>
  new Promise((done) => {
    const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key }
    execFile(binary, args, { env, timeout: 60_000 * patience }, (error, stdout, stderr) => done({ code: error?.code ?? 0, stdout, stderr }))
  })

test('the agent runtime and the command line join them', async () => {
  const runtime = runtimeOf(server)
  const up = await quicksand('up', '--key', 'db', '--peers', 'shop/db', '-q')
  assert.equal(up.code, 0, up.stderr)
  const id = up.stdout.trim()
  await runtime.start(id, 'mkdir -p /tmp/www && cd /tmp/www && exec python3 -m http.server 8000 --bind 0.0.0.0')
  const web = await runtime.create({ network: { mode: 'deny-all', peers: { network: 'shop', name: 'web' } } })
  await eventually('it serves', async () => (await runtime.execute(web.id, `curl -fsS -m ${5 * patience} http://db.shop.internal:8000/`)).exit_code === 0)
  assert.notEqual((await runtime.execute(web.id, `curl -fsS -m ${5 * patience} http://203.0.113.1/`)).exit_code, 0)
  // Without a mode the profile's own holds: the default one reaches the internet.
  const run = await quicksand('run', '--peers', 'shop', '--', 'sh', '-c', `curl -fsS -m ${5 * patience} http://db:8000/ && getent hosts web`)
  assert.equal(run.code, 0, run.stderr)
  assert.match(run.stdout, /web/)
  const taken = await runtime.v1('POST', '/sandboxes', { network: { peers: { network: 'shop', name: 'db' } } })
  assert.equal(taken.status, 409, taken.text)
  assert.match(taken.text, /the name 'db' in the network 'shop' is that of sandbox/)
  const wrong = await runtime.v1('POST', '/sandboxes', { network: { peers: { network: 'Shop' } } })
  assert.equal(wrong.status, 400, wrong.text)
  for (const one of [id, web.id]) await runtime.remove(one)
})
