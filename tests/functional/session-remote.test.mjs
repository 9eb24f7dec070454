// Sessions on a provider elsewhere: a second server as a remote E2B endpoint, behind a proxy that records the requests.
// The real sandbox-agent runs in the sandboxes of the second server.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { startFaults } from '../harness/faults.mjs'
import { destroyAll, refused, runtimeOf, startRuntime } from '../harness/runtime.mjs'
import { eventually, repository, startServer } from '../harness/server.mjs'

const WebSocket = createRequire(path.join(repository, 'build/npm/web/'))('ws')
const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')

let far, wire, near, named, folder, keyFile
// Only the server's user may read it.
const writeKey = (key) => {
  fs.writeFileSync(keyFile, key, { mode: 0o600 })
  fs.chownSync(keyFile, 64737, 64737)
}
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-key-'))
  fs.chmodSync(folder, 0o755)
  keyFile = path.join(folder, 'key')
  far = runtimeOf(await startServer())
  wire = await startFaults(far.server.url)
  writeKey(far.server.key)
  near = await startRuntime({
    default_provider: 'far',
    providers: { far: { type: 'e2b', api_url: wire.url, api_key: `file:${keyFile}` }, here: { type: 'e2b', api_url: 'embedded' } },
    profiles: { default: { provider: 'far', network: { mode: 'allow-all' } } },
    sandbox_agent: { program },
    health_interval_s: 86400,
  }, { env: { E2B_SANDBOX_AGENT_PORT: '2500' } })
})
after(async () => {
  await destroyAll(...[near, named, far].filter(Boolean))
  await wire.close()
  fs.rmSync(folder, { recursive: true })
})
afterEach(() => {
  for (const { server } of [far, near]) assert.ok(server.alive(), `a server died:\n${server.tail()}`)
})

const session = (body) => near.ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, ...body })
const events = async (id) => (await near.ok(200, 'GET', `/sessions/${id}/events?since=0&limit=1000`)).events
const newKey = async (name) => (await far.server.api('POST', '/api-keys', { name })).body
// The keys of the requests to the API since wire.forget(), without those to sandboxes and health checks, which try every key.
const keysSeen = () => new Set(wire.requests.filter(({ path, url }) => /^\/(v2\/)?sandboxes/.test(path) && !url.endsWith('?limit=1')).map(({ headers }) => headers['x-api-key']))

test('a session: created, sent to, followed, saved, restored, pushed', async () => {
  const repo = 'http://203.0.113.1/git/acme/remote.git'
  const one = await session({ repo, task_id: 'r1', agent_id: 'a1' })
  assert.equal(one.state, 'running', JSON.stringify(one))
  assert.deepEqual([one.runtime.provider, one.runtime.sandbox_name, one.runtime.sandbox_port, one.runtime.snapshot_id], ['far', one.sandbox_id, 2500, null])
  assert.ok(one.runtime.base_url && one.runtime.session_id, JSON.stringify(one.runtime))
  const box = await near.get(one.sandbox_id)
  assert.ok((await far.server.ids()).includes(box.external_id), 'it is not on the other server')
  assert.deepEqual(await near.server.ids(), [], 'something was made here')

  await near.ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'hello from afar' })
  await eventually('the turn', async () => (await near.ok(200, 'GET', `/sessions/${one.id}`)).state === 'completed', 30_000, 100)
  const seen = await events(one.id)
  for (const type of ['session.created', 'git.clone.succeeded', 'session.provisioned', 'session.running', 'session.message', 'agent.turn.completed', 'session.completed']) assert.ok(seen.some((event) => event.type === type), `${type}: ${seen.map((event) => event.type)}`)
  assert.match(JSON.stringify(seen.filter((event) => event.type.startsWith('agent.'))), /hello from afar/)

  await near.execute(one.sandbox_id, 'echo saved > ~/workspace/remote/work.txt')
  const snapshot = await near.ok(201, 'POST', `/sessions/${one.id}/snapshot`, { alias: 'remote-work' })
  assert.equal(snapshot.provider, 'far')
  assert.equal((await near.ok(200, 'GET', `/sessions/${one.id}`)).runtime.snapshot_id, snapshot.id)
  await near.ok(204, 'DELETE', `/sessions/${one.id}`)
  assert.ok(!(await far.server.ids()).includes(box.external_id), 'its sandbox is still there')

  const two = await session({ repo, task_id: 'r2', checkpoint: 'remote-work' })
  assert.equal(two.state, 'running', JSON.stringify(two))
  assert.equal(await near.output(two.sandbox_id, 'cat ~/workspace/remote/work.txt'), 'saved\n')
  const pushed = await near.ok(200, 'POST', `/sessions/${two.id}/push`, { message: 'feat: saved work' })
  assert.equal(pushed.branch, 'task-r2')
  assert.match(await near.output(two.sandbox_id, `git ls-remote ${repo}`), new RegExp(`^${pushed.commit}\\trefs/heads/task-r2$`, 'm'))
  await near.ok(204, 'DELETE', `/sessions/${two.id}`)
})

test('AGENT_RUNTIME_PROVIDER=e2b and E2B_*: a session on the remote server that the environment names', async () => {
  named = await startRuntime({ sandbox_agent: { program }, health_interval_s: 86400 }, { env: { AGENT_RUNTIME_PROVIDER: 'e2b', E2B_API_URL: wire.url, E2B_API_KEY: far.server.key } })
  assert.ok(named.server.log.includes(`e2b at ${wire.url} (named by E2B_API_URL), chosen by AGENT_RUNTIME_PROVIDER`), named.server.log)
  wire.forget()
  const one = await named.ok(201, 'POST', '/sessions', { agent: 'mock', wait: true })
  assert.deepEqual([one.state, one.runtime.provider], ['running', 'e2b'], JSON.stringify(one))
  assert.deepEqual([await far.server.ids(), await named.server.ids()], [[(await named.get(one.sandbox_id)).external_id], []])
  await named.ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'hello by environment' })
  await eventually('the turn', async () => (await named.ok(200, 'GET', `/sessions/${one.id}`)).state === 'completed', 30_000, 100)
  const seen = (await named.ok(200, 'GET', `/sessions/${one.id}/events?since=0&limit=1000`)).events
  assert.match(JSON.stringify(seen.filter((event) => event.type.startsWith('agent.'))), /hello by environment/)
  assert.deepEqual([...keysSeen()], [far.server.key])
  await named.ok(204, 'DELETE', `/sessions/${one.id}`)
  assert.deepEqual(await far.server.ids(), [])
})

test('the terminal of a session opens', async () => {
  const one = await session({})
  const socket = new WebSocket(`ws://${near.server.listen}/api/v1/sessions/${one.id}/terminal?cols=80&rows=24`, [], { headers: { 'X-API-KEY': near.server.key } })
  let output = ''
  socket.on('message', (data, binary) => void (output += binary ? data : ''))
  await new Promise((done, fail) => socket.on('open', done).on('error', fail))
  socket.send('echo far-$((6*7)); exit 3\n')
  const closed = await new Promise((done) => socket.on('close', (code, reason) => done([code, reason.toString()])))
  assert.match(output, /far-42/)
  assert.deepEqual(closed, [1000, 'exited with 3'])
  await near.ok(204, 'DELETE', `/sessions/${one.id}`)
})

describe('templates of a profile', () => {
  test('templateId names one that is not the default', async () => {
    const source = await far.create()
    await far.execute(source.id, 'echo theirs | sudo tee /etc/which-template')
    const made = await far.server.api('POST', `/sandboxes/${(await far.get(source.id)).external_id}/snapshots`, { name: 'equipped' })
    assert.equal(made.status, 201, made.text)
    const template = made.body.snapshotID
    for (const [name, options] of [['by-id', { templateId: template }], ['by-name', { template }]]) {
      await near.ok(200, 'PUT', `/profiles/${name}`, { name, config: { provider: 'far', network: { mode: 'allow-all' }, options } })
      const box = await near.create({ profile: name })
      assert.equal(box.template, template)
      assert.equal(await near.output(box.id, 'cat /etc/which-template'), 'theirs\n', name)
      await near.remove(box.id)
    }
    refused(await near.v1('PUT', '/profiles/both', { name: 'both', config: { provider: 'far', network: { mode: 'allow-all' }, options: { template: 'base', templateId: template } } }), 400, 'invalid', /different templates/)
    await far.remove(source.id)
  })
})

describe('keys', () => {
  test('options.apiKey of a profile is the key on the wire, and no other profile uses it', async () => {
    const { key } = await newKey('profile')
    await near.ok(200, 'PUT', '/profiles/own-key', { name: 'own-key', config: { provider: 'far', network: { mode: 'allow-all' }, options: { apiKey: key } } })
    wire.forget()
    const box = await near.create({ profile: 'own-key' })
    assert.equal(await near.output(box.id, 'echo with its key'), 'with its key\n')
    await near.remove(box.id)
    assert.deepEqual([...keysSeen()], [key])
    wire.forget()
    await near.remove((await near.create()).id)
    assert.deepEqual([...keysSeen()], [far.server.key])
    await near.ok(200, 'PUT', '/profiles/wrong-key', { name: 'wrong-key', config: { provider: 'far', network: { mode: 'allow-all' }, options: { apiKey: `e2b_${'0'.repeat(40)}` } } })
    const answer = await near.v1('POST', '/sandboxes', { profile: 'wrong-key' })
    assert.ok(answer.status >= 400, answer.text)
    assert.deepEqual(await far.server.ids(), [])
  })

  // Documented: the engine of this server needs no key.
  test('options.apiKey has no effect with the engine of this server', async () => {
    await near.ok(200, 'PUT', '/profiles/here-key', { name: 'here-key', config: { provider: 'here', network: { mode: 'allow-all' }, options: { apiKey: 'e2b_whatever' } } })
    wire.forget()
    const box = await near.create({ profile: 'here-key' })
    assert.equal(box.provider, 'here')
    assert.equal(wire.requests.length, 0)
    await near.remove(box.id)
  })

  test('SIGHUP takes a provider’s new key over; sandboxes and commands go on', async () => {
    const reload = async (expected) => {
      const from = near.server.log.length
      near.server.child.kill('SIGHUP')
      await eventually(`log: ${expected}`, () => expected.test(near.server.log.slice(from)))
      await eventually('the reload', () => /reload: done/.test(near.server.log.slice(from)))
      return near.server.log.slice(from)
    }
    const box = await near.create()
    const job = await near.start(box.id, 'sleep 2; echo through')
    const { id, key } = await newKey('rotated')
    writeKey(key)
    wire.forget()
    const told = await reload(/provider 'far' has a new key/)
    assert.doesNotMatch(told, /needs a restart/)
    assert.ok(!told.includes(key), 'the key is in the log')
    assert.equal(await near.output(box.id, 'echo still there'), 'still there\n')
    const second = await near.create()
    assert.deepEqual([...keysSeen()], [key], 'the old key was used')
    assert.equal((await near.process(job.id, '?wait=30')).state, 'completed')
    // A command that runs while its key is replaced and removed keeps its sandbox awake.
    const awake = await near.create({ lifecycle: { idleTimeoutSeconds: 2 } })
    const running = near.output(awake.id, 'touch /tmp/begun; sleep 6; echo still here')
    await eventually('it runs', async () => (await near.output(awake.id, 'ls /tmp')).includes('begun'))
    const next = await newKey('rotated again')
    writeKey(next.key)
    await reload(/provider 'far' has a new key/)
    assert.equal((await far.server.api('GET', '/sandboxes', undefined, { key })).status, 200, 'the old key, before it is removed')
    assert.equal((await far.server.api('DELETE', `/api-keys/${id}`)).status, 204)
    assert.equal((await far.server.api('GET', '/sandboxes', undefined, { key })).status, 401, 'the old key, afterwards')
    assert.equal(await running, 'still here\n')
    await near.remove(awake.id)
    // The same again changes nothing; a key that the provider rejects is reported at once.
    assert.doesNotMatch(await reload(/reload: done/), /new key/)
    writeKey(`e2b_${'1'.repeat(40)}`)
    await reload(/provider 'far' has a new key/)
    await eventually('the failed check', async () => /401|unauthorized/i.test((await near.ok(200, 'GET', '/providers')).providers.find((one) => one.name === 'far').last_error ?? ''))
    writeKey(far.server.key)
    await reload(/provider 'far' has a new key/)
    await eventually('the provider is well', async () => (await near.ok(200, 'GET', '/providers?check=true')).providers.find((one) => one.name === 'far').state === 'ok', 15_000, 200)
    for (const one of [box, second]) await near.remove(one.id)
    // Without its file nothing changes.
    fs.rmSync(keyFile)
    await reload(/profiles and keys of providers stay as they were/)
    writeKey(far.server.key)
    await near.remove((await near.create()).id)
  })
})
