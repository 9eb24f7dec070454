// Providers that are gone, silent or busy: what users are told, how fast, and what they can do about it.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import { after, afterEach, before, test } from 'node:test'
import { refused, startRuntime } from '../harness/runtime.mjs'
import { binary, eventually, patience } from '../harness/server.mjs'

// As little of an E2B endpoint as creates and kills need. rules: "METHOD /path" → (response, answer).
async function startEndpoint() {
  const one = { rules: {}, seen: [], machines: new Map() }
  let made = 0
  const server = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      const { pathname } = new URL(request.url, 'http://x')
      const what = `${request.method} ${pathname.replace(/(?<=\/sandboxes\/)[^/]+/, 'ID')}`
      one.seen.push(what)
      const rule = one.rules[what] ?? one.rules['*']
      const answer = () => respond(pathname, what, text, response)
      if (rule) return rule(response, answer)
      answer()
    })
  })
  function respond(pathname, what, text, response) {
    const send = (status, body) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(body === undefined ? '' : JSON.stringify(body))
    const id = pathname.split('/')[2]
    if (what === 'POST /sandboxes') {
      const machine = { sandboxID: `m${++made}`, templateID: 'base', state: 'running', startedAt: new Date().toISOString(), metadata: JSON.parse(text).metadata }
      one.machines.set(machine.sandboxID, machine)
      return send(201, machine)
    }
    if (what === 'GET /v2/sandboxes') return send(200, [...one.machines.values()])
    if (what === 'DELETE /sandboxes/ID') return one.machines.delete(id) ? send(204) : send(404, { message: 'none' })
    if (what === 'GET /sandboxes/ID') return one.machines.has(id) ? send(200, one.machines.get(id)) : send(404, { message: 'none' })
    send(200, [])
  }
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  one.url = `http://127.0.0.1:${server.address().port}`
  one.count = (what) => one.seen.filter((entry) => entry === what).length
  one.forget = () => Object.assign(one, { rules: {}, seen: [] })
  one.close = () => {
    server.closeAllConnections()
    server.close()
  }
  return one
}

const hang = () => {}

let far, one, settings
const file = () => one.server.args[one.server.args.indexOf('--runtime-config') + 1]
async function restartWith(next) {
  fs.writeFileSync(file(), JSON.stringify(next))
  await one.server.restart()
}

before(async () => {
  far = await startEndpoint()
  settings = {
    default_provider: 'e2b',
    providers: { e2b: { type: 'e2b', api_url: 'embedded' }, far: { type: 'e2b', api_url: far.url, api_key: 'k' } },
    retry: { attempts: 2, min_s: 0.1, max_s: 0.3 },
    breaker: { failures: 100, open_s: 2 },
    health_interval_s: 86400,
    create_timeout_s: 3,
  }
  one = await startRuntime(settings)
})
after(async () => {
  far.forget()
  await one.destroy()
  far.close()
})
afterEach(() => {
  far.forget()
  assert.ok(one.server.alive(), `the server died:\n${one.server.tail()}`)
})

const quicksand = (...args) =>
  new Promise((done) => {
    const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', QUICKSAND_URL: one.server.url, QUICKSAND_TOKEN: one.server.key }, stdio: ['ignore', 'pipe', 'pipe'] })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.on('close', (code) => done({ code, stdout, stderr }))
  })

test('a sandbox whose provider was removed is forgotten by force only', async (t) => {
  t.after(() => restartWith(settings))
  const boxes = [await one.create({ provider: 'far', key: 'lost' }), await one.create({ provider: 'far' }), await one.create({ provider: 'far' })]
  await restartWith({ ...settings, providers: { e2b: settings.providers.e2b, other: { type: 'e2b', api_url: far.url, api_key: 'k' } } })
  const [first, second, third] = boxes.map((box) => box.id)
  far.forget()
  for (const answer of [await one.v1('DELETE', `/sandboxes/${first}`), await one.v1('POST', `/sandboxes/${first}/execute`, { command: 'true' }), await one.v1('POST', `/sandboxes/${first}/pause`)])
    refused(answer, 409, 'conflict', /is on provider 'far', which is not configured: it cannot be reached there.*force/)
  assert.equal((await one.get(first)).state, 'running')

  const forgotten = await one.ok(200, 'DELETE', `/sandboxes/${first}?force=true`)
  assert.deepEqual([forgotten.id, forgotten.forgotten], [first, true])
  assert.match(forgotten.message, /could not be reached.*not configured/)
  assert.equal((await one.v1('DELETE', `/sandboxes/${first}?force=true`)).status, 204, 'a second time')
  const [event] = await one.events({ sandbox_id: first, type: 'sandbox.killed' })
  assert.equal(event.data.reason, 'forgotten')
  assert.match(event.data.message, /machine could not be reached/)
  const { state, error } = await one.get(first)
  assert.deepEqual([state, /could not be reached/.test(error)], ['killed', true])

  const plain = await quicksand('rm', second)
  assert.equal(plain.code, 1)
  assert.match(plain.stderr, /not configured/)
  const forced = await quicksand('rm', '--force', second)
  assert.deepEqual([forced.code, forced.stdout], [0, `${second}\n`])
  assert.match(forced.stderr, /forgotten; .*could not be reached/)
  assert.deepEqual(far.seen.filter((what) => !['GET /v2/sandboxes', 'GET /api/v1/health'].includes(what)), [], 'another provider of the same type was asked')

  // When it is back, the machines that nobody knows any more are swept; what was not forgotten is still there.
  await restartWith(settings)
  assert.equal((await one.get(third)).state, 'running')
  await one.remove(third)
  assert.equal(far.machines.size, 2)
})

test('one whose provider does not answer is forgotten by force as well', async () => {
  const { id } = await one.create({ provider: 'far' })
  far.rules['DELETE /sandboxes/ID'] = (response) => response.writeHead(500).end('{"message":"broken"}')
  refused(await one.v1('DELETE', `/sandboxes/${id}`), 502, 'provider', /broken/)
  const forgotten = await one.ok(200, 'DELETE', `/sandboxes/${id}?force=1`)
  assert.match(forgotten.message, /broken/)
  const { id: mine } = await one.create()
  assert.equal((await one.v1('DELETE', `/sandboxes/${mine}?force=true`)).status, 204, 'one that can be reached is killed')
})

test('a create on a provider that hangs on everything ends in time, and what it made later is swept', async () => {
  far.rules['*'] = hang
  for (const body of [{ provider: 'far' }, { provider: 'far', key: 'hanging' }]) {
    const begin = performance.now()
    refused(await one.v1('POST', '/sandboxes', body), 504, 'timeout', /not ready within 3 s \(create_timeout_s\)/)
    const took = performance.now() - begin
    assert.ok(took > 2500 && took < 20_000 * patience, `${took} ms`)
  }
  // Several for one key wait for each other, but not one after the other.
  const begin = performance.now()
  const answers = await Promise.all([1, 2, 3].map(() => one.v1('POST', '/sandboxes', { provider: 'far', key: 'hanging' })))
  assert.ok(performance.now() - begin < 8500 * patience)
  for (const answer of answers) assert.ok([503, 504].includes(answer.status), answer.text)
})

test('the machine of a create whose answer was lost is killed in the background', async () => {
  far.machines.clear()
  // Made, but told too late.
  far.rules['POST /sandboxes'] = (response, answer) => setTimeout(answer, 4500)
  refused(await one.v1('POST', '/sandboxes', { provider: 'far' }), 504, 'timeout', /create_timeout_s/)
  assert.equal(far.machines.size, 0)
  await eventually('it was made', () => far.machines.size === 1)
  await eventually('it was swept', () => far.machines.size === 0, 15_000)
  // The connection broke: tried again, the first one's machine is found instead.
  far.forget()
  let broke = 0
  far.rules['POST /sandboxes'] = (response, answer) => {
    if (broke++) return answer()
    answer()
    response.socket?.destroy()
  }
  const made = await one.create({ provider: 'far' })
  assert.equal(far.machines.size, 1)
  await one.remove(made.id)
})

test('creates that always fail are given up, while what is there stays usable', async (t) => {
  t.after(() => restartWith(settings))
  await restartWith({ ...settings, breaker: { failures: 4, open_s: 2 } })
  const { id } = await one.create({ provider: 'far' })
  far.rules['POST /sandboxes'] = (response) => response.writeHead(500).end('{"message":"no room"}')
  const fail = () => one.v1('POST', '/sandboxes', { provider: 'far' })
  for (let i = 0; i < 2; i++) {
    refused(await fail(), 502, 'provider', /no room/)
    assert.equal((await one.ok(200, 'GET', `/sandboxes/${id}?refresh=true`)).state, 'running')
  }
  const asked = far.count('POST /sandboxes')
  const open = await fail()
  refused(open, 503, 'unavailable', /provider 'far' failed to create 4 times in a row and is not asked to create for another 2 s/)
  assert.equal(open.headers['retry-after'], '2')
  assert.equal(far.count('POST /sandboxes'), asked)
  assert.equal((await one.ok(200, 'GET', '/providers')).providers.find((provider) => provider.name === 'far').state, 'open')
  assert.equal((await one.ok(200, 'GET', `/sandboxes/${id}?refresh=true`)).state, 'running')
  await one.remove(id)
  far.forget()
  const again = await eventually('it is asked again', async () => {
    const answer = await fail()
    return answer.status === 201 && answer.body
  })
  await one.remove(again.id)
})

test('when to try again is what the provider says', async () => {
  far.rules['POST /sandboxes'] = (response) => response.writeHead(429, { 'Retry-After': '42' }).end('{"message":"20 are running"}')
  const full = await one.v1('POST', '/sandboxes', { provider: 'far' })
  refused(full, 429, 'quota', /20 are running/)
  assert.equal(full.headers['retry-after'], '42')
  far.rules['POST /sandboxes'] = (response) => response.writeHead(429, { 'Retry-After': '999999999' }).end('{}')
  assert.equal((await one.v1('POST', '/sandboxes', { provider: 'far' })).headers['retry-after'], '3600')
  far.rules['POST /sandboxes'] = (response) => response.writeHead(429).end('{}')
  assert.equal((await one.v1('POST', '/sandboxes', { provider: 'far' })).headers['retry-after'], '5')
  far.rules['POST /sandboxes'] = (response) => response.writeHead(503, { 'Retry-After': '7' }).end('{}')
  const away = await one.v1('POST', '/sandboxes', { provider: 'far' })
  assert.deepEqual([away.status, away.headers['retry-after']], [502, '7'])
})

test('what ended or was paused at a provider elsewhere is known soon, by one list and not by a question for each', async (t) => {
  t.after(() => restartWith(settings))
  await restartWith({ ...settings, health_interval_s: 1, providers: { ...settings.providers, far: { ...settings.providers.far, max_sandboxes: 5 } } })
  const boxes = await Promise.all(Array.from({ length: 5 }, () => one.create({ provider: 'far' })))
  refused(await one.v1('POST', '/sandboxes', { provider: 'far' }), 429, 'quota')
  const [dead, asleep, ...others] = boxes
  far.machines.delete(dead.external_id)
  far.machines.get(asleep.external_id).state = 'paused'
  far.forget()
  await eventually('its end is known', async () => (await one.get(dead.id)).state === 'killed', 30_000)
  await eventually('its pause is known', async () => (await one.get(asleep.id)).state === 'paused', 30_000)
  assert.ok(far.count('GET /v2/sandboxes') >= 1)
  assert.equal(far.count('GET /sandboxes/ID'), 2, far.seen.join())
  assert.equal((await one.events({ sandbox_id: dead.id, type: 'sandbox.killed' }))[0].data.reason, 'gone')
  const more = await one.create({ provider: 'far' })
  for (const { id } of [asleep, ...others, more]) await one.remove(id)
})
