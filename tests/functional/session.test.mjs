// Sessions end to end: the real sandbox-agent in a real sandbox, its built-in mock agent, and an agent of our own
// in the mock's place that asks for permissions and changes files.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, repository, startServer } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const agent = fs.readFileSync(path.join(repository, 'tests/fixtures/acp-agent.py'), 'utf8')
const repo = 'http://203.0.113.1/git/acme/app.git'
const secretRepo = 'http://203.0.113.1/private/acme/secret.git'
const token = 'ghp_worldtoken0123456789worldtoken0123456789'

let server
before(async () => {
  const config = path.join(fs.mkdtempSync('/tmp/quicksand-session-'), 'runtime.json')
  const socket = path.join(path.dirname(config), 'process.sock')
  fs.chmodSync(path.dirname(config), 0o755)
  const providers = { e2b: { type: 'e2b', api_url: 'embedded' }, local: { type: 'process', socket } }
  fs.writeFileSync(config, JSON.stringify({ default_provider: 'e2b', providers, sandbox_agent: { program }, profiles: { 'with-git': { network: { mode: 'allow-all' }, gitToken: 'env:GIT_SECRET' } } }), { mode: 0o644 })
  server = await startServer({ args: ['--runtime-config', config, '--process-provider', '1'], env: { GIT_SECRET: token } })
  // The agent's socket is in the data directory, whose name was not known before.
  fs.symlinkSync(path.join(server.data, 'run/process.sock'), socket)
  server.config = config
})
after(async () => {
  for (const one of (await ok(200, 'GET', '/sandboxes?limit=1000')).sandboxes) await v1('DELETE', `/sandboxes/${one.id}`)
  fs.rmSync(path.dirname(server.config), { recursive: true })
  await server.destroy()
})

const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, { timeoutMs: 120_000, ...options })

async function ok(status, method, target, body) {
  const answer = await v1(method, target, body)
  assert.equal(answer.status, status, `${method} ${target}: ${answer.status} ${answer.text}\n${server.tail(20)}`)
  return answer.body
}

const session = (body) => ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, ...body })
const state = async (id) => (await ok(200, 'GET', `/sessions/${id}`)).state
const events = async (id, since = 0) => (await ok(200, 'GET', `/sessions/${id}/events?since=${since}&limit=1000`)).events
const types = async (id) => (await events(id)).map((one) => one.type)
const execute = (sandbox, command) => ok(200, 'POST', `/sandboxes/${sandbox}/execute`, { command })
const reaches = (id, wanted) => eventually(`session ${wanted}`, async () => (await state(id)) === wanted, 8_000, 100).catch(async (error) => {
  throw new Error(`${error.message}\n${(await events(id)).slice(-8).map((one) => JSON.stringify(one)).join('\n')}`)
})
const event = (id, type) => eventually(type, async () => (await events(id)).findLast((one) => one.type === type), 30_000, 100)

// Our own agent takes the place of the built-in one.
async function replaceAgent(sandbox) {
  const file = '/home/user/.local/share/sandbox-agent/bin/agent_processes/mock-acp'
  const put = await v1('PUT', `/sandboxes/${sandbox}/files?path=${encodeURIComponent(file)}`, agent, { headers: { 'content-type': 'application/octet-stream' } })
  assert.ok(put.status < 300, put.text)
  await execute(sandbox, `chmod +x ${file}`)
}

async function sessionWithTestAgent(body = {}) {
  const sandbox = await ok(201, 'POST', '/sandboxes', { persistent: true })
  await replaceAgent(sandbox.id)
  return session({ sandbox_id: sandbox.id, ...body })
}

// Server-sent events of a session as they come.
function follow(id, headers = {}) {
  const seen = []
  const request = http.get({ host: server.host, port: server.port, path: `/api/v1/sessions/${id}/stream`, headers: { 'X-API-KEY': server.key, accept: 'text/event-stream', ...headers }, agent: false })
  request.on('response', (response) => {
    let text = ''
    response.on('data', (chunk) => {
      text += chunk
      for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
        const fields = Object.fromEntries(text.slice(0, end).split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]))
        if (fields.data) seen.push({ id: fields.id, type: fields.event, data: JSON.parse(fields.data) })
      }
    })
    response.on('error', () => {})
  })
  request.on('error', () => {})
  return { seen, close: () => request.destroy() }
}

test('a session with the built-in mock agent: provisioned, sent to, followed, cancelled', async () => {
  const one = await session({ repo, agent_id: 'a1', task_id: 't1' })
  assert.equal(one.state, 'running', JSON.stringify(one))
  for (const name of ['provider', 'sandbox_id', 'sandbox_port', 'base_url', 'session_id']) assert.ok(one.runtime[name], name)
  assert.equal(one.runtime.sandbox_port, 2468)
  const stream = follow(one.id)
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'hello agent' })
  await reaches(one.id, 'completed')
  const seen = await types(one.id)
  for (const type of ['session.created', 'git.clone.started', 'git.clone.succeeded', 'session.provisioned', 'session.running', 'session.message', 'agent.turn.completed', 'session.completed']) {
    assert.ok(seen.includes(type), `${type} in ${seen}`)
  }
  assert.equal(seen.filter((type) => type === 'session.created').length, 1)
  await eventually('the echo on the stream', () => stream.seen.some((one) => one.type === 'agent.mock.echo' && JSON.stringify(one.data).includes('hello agent')))
  stream.close()
  const cloned = await execute(one.sandbox_id, 'cat ~/workspace/app/README.md')
  assert.equal(cloned.stdout, 'hello from the world\n')
  await ok(200, 'POST', `/sessions/${one.id}/cancel`, {})
  assert.equal(await state(one.id), 'canceled')
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'paused')
  const gone = await v1('POST', `/sessions/${one.id}/interrupt`, {})
  assert.equal(gone.status, 409, gone.text)
})

test('permissions: asked for, granted, refused, and not asked for when the mode says so', async () => {
  const one = await sessionWithTestAgent({ permission_mode: 'ask' })
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'run echo allowed-$((6*7))' })
  const asked = await event(one.id, 'permission.requested')
  assert.equal(asked.data.tool.kind, 'execute')
  assert.equal((await v1('POST', `/sessions/${one.id}/approve`, { request_id: 'nothing' })).status, 404)
  const stream = follow(one.id)
  await ok(200, 'POST', `/sessions/${one.id}/approve`, { request_id: asked.data.request_id, allow: true })
  await reaches(one.id, 'completed')
  await eventually('output of the command', () => stream.seen.some((one) => JSON.stringify(one.data).includes('allowed-42')))
  stream.close()
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'write forbidden.txt no' })
  const second = await eventually('second request', async () => (await events(one.id)).filter((one) => one.type === 'permission.requested')[1])
  await ok(200, 'POST', `/sessions/${one.id}/approve`, { request_id: second.data.request_id, allow: false })
  await reaches(one.id, 'completed')
  assert.notEqual((await execute(one.sandbox_id, 'ls ~/workspace/forbidden.txt')).exit_code, 0)

  const free = await session({ sandbox_id: one.sandbox_id, permission_mode: 'edit' })
  await ok(202, 'POST', `/sessions/${free.id}/messages`, { message: 'write allowed.txt yes' })
  await reaches(free.id, 'completed')
  assert.equal((await execute(one.sandbox_id, 'cat ~/workspace/allowed.txt')).stdout, 'yes\n')
  assert.ok(!(await types(free.id)).includes('permission.requested'))
})

test('the profile’s MCP servers reach the agent', async () => {
  await ok(200, 'PUT', '/profiles/with-tools', { network: { mode: 'allow-all' }, mcp: { files: { command: 'mcp-files', args: ['--root', '/'], env: { A: 'b' } } } })
  const sandbox = await ok(201, 'POST', '/sandboxes', { profile: 'with-tools', persistent: true })
  const one = await session({ sandbox_id: sandbox.id, profile: 'with-tools' })
  const asked = await eventually('the echo of session/new', async () => (await events(one.id)).find((event) => JSON.stringify(event).includes('mcp-files')))
  assert.match(JSON.stringify(asked), /"name":"files".*|"args":\["--root","\/"\]/)
})

test('interrupt ends the turn, the session goes on', async () => {
  const one = await sessionWithTestAgent({ permission_mode: 'bypass', message: 'wait' })
  await eventually('the agent is at work', async () => (await types(one.id)).includes('session.message') || (await state(one.id)) === 'running')
  await eventually('interrupt is taken', async () => (await v1('POST', `/sessions/${one.id}/interrupt`, {})).status === 200)
  const over = await event(one.id, 'agent.turn.completed')
  assert.equal(over.data.stop_reason, 'cancelled')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'still there?' })
  await eventually('second turn', async () => (await types(one.id)).filter((type) => type === 'agent.turn.completed').length === 2, 30_000)
})

test('an agent that dies fails its session; the next message gets a new one', async () => {
  const one = await sessionWithTestAgent({ permission_mode: 'bypass', message: 'die' })
  await reaches(one.id, 'failed')
  assert.equal((await ok(200, 'GET', `/sessions/${one.id}`)).reason, 'agent-exited')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'still there?' })
  await reaches(one.id, 'completed')
})

test('messages while paused wait for the resume', async () => {
  const one = await session({})
  await ok(200, 'POST', `/sessions/${one.id}/pause`, {})
  assert.equal(await state(one.id), 'paused')
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'paused')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'one' })
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'two' })
  assert.equal(await state(one.id), 'paused')
  await ok(200, 'POST', `/sessions/${one.id}/resume`, {})
  await eventually('both turns', async () => (await types(one.id)).filter((type) => type === 'agent.turn.completed').length === 2, 30_000)
  await reaches(one.id, 'completed')
})

test('checkpoint: a new session of the same repository begins where the old one was saved', async () => {
  const one = await session({ repo, branch: 'main' })
  await execute(one.sandbox_id, 'echo saved > ~/workspace/app/work.txt')
  const snapshot = await ok(201, 'POST', `/sessions/${one.id}/snapshot`, { alias: 'github/acme/app#saved' })
  assert.equal(snapshot.alias, 'github/acme/app#saved')
  await ok(204, 'DELETE', `/sessions/${one.id}`)
  const two = await session({ repo, branch: 'main', checkpoint: 'github/acme/app#saved' })
  assert.equal(two.state, 'running', JSON.stringify(two))
  assert.equal((await execute(two.sandbox_id, 'cat ~/workspace/app/work.txt')).stdout, 'saved\n')
  assert.ok(!(await types(two.id)).includes('git.clone.started'), 'no clone after a restore')
  const missing = await session({ checkpoint: 'github/acme/none#none' })
  assert.equal(missing.state, 'failed', JSON.stringify(missing))
})

test('a session on this host, without a sandbox around it, is like any other', async () => {
  const one = await session({ repo, provider: 'local' })
  assert.equal(one.state, 'running', JSON.stringify(one))
  assert.equal(one.runtime.provider, 'local')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'hello there' })
  await reaches(one.id, 'completed')
  const seen = await types(one.id)
  for (const type of ['session.created', 'git.clone.succeeded', 'session.provisioned', 'session.running', 'agent.turn.completed', 'session.completed']) assert.ok(seen.includes(type), `${type}: ${seen}`)
  assert.match((await execute(one.sandbox_id, 'ls ~/workspace/app')).stdout, /README/)
  await ok(204, 'DELETE', `/sessions/${one.id}`)
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'killed')
})

test('a checkpoint of the repository is a help, and in nobody’s way', async () => {
  const branch = 'main'
  const one = await session({ repo, branch })
  await execute(one.sandbox_id, 'echo saved > ~/workspace/app/work.txt')
  const snapshot = await ok(201, 'POST', `/sessions/${one.id}/snapshot`, {})
  const named = await server.api('POST', `/sandboxes/${(await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).external_id}/snapshots`, { name: 'other-template' })
  assert.equal(named.status, 201, named.text)
  await ok(204, 'DELETE', `/sessions/${one.id}`)
  const fresh = async (body, told) => {
    const made = await session({ repo, branch, ...body })
    assert.equal(made.state, 'running', JSON.stringify(made))
    const seen = await events(made.id)
    const skipped = seen.find((event) => event.type === 'checkpoint.skipped')?.data
    if (told) assert.deepEqual([skipped?.snapshot_id, told.test(skipped?.message)], [snapshot.id, true], JSON.stringify(skipped))
    else assert.equal(skipped, undefined)
    assert.ok(seen.some((event) => event.type === 'git.clone.succeeded'))
    assert.equal((await execute(made.sandbox_id, 'cd ~/workspace/app && git status --short')).exit_code, 0)
    await ok(204, 'DELETE', `/sessions/${made.id}`)
  }
  const two = await session({ repo, branch })
  assert.equal((await execute(two.sandbox_id, 'cat ~/workspace/app/work.txt')).stdout, 'saved\n', 'taken where it fits')
  await ok(204, 'DELETE', `/sessions/${two.id}`)
  await fresh({ provider: 'local' }, /does not support|kind/)
  await fresh({ checkpoint: 'none' })
  const other = await session({ repo, branch, template: named.body.snapshotID ?? named.body.snapshotId })
  assert.equal(other.state, 'running', JSON.stringify(other))
  assert.match((await events(other.id)).find((event) => event.type === 'checkpoint.skipped').data.message, /another template/)
  await ok(204, 'DELETE', `/sessions/${other.id}`)
  // Deleted where it is kept, behind the runtime's back.
  assert.equal((await server.api('DELETE', `/templates/${encodeURIComponent(snapshot.external_id)}`)).status, 204)
  await fresh({}, /not found/)
  await fresh({}, /not ready/)
  await ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
  await fresh({})
})

test('push: branch, commit, push; failures have a class; the token is nowhere', async () => {
  const one = await session({ repo: secretRepo, git_token: token })
  await execute(one.sandbox_id, 'echo more >> ~/workspace/secret/README.md')
  const pushed = await ok(200, 'POST', `/sessions/${one.id}/push`, { branch: 'task-1', message: 'feat: more' })
  assert.match(pushed.commit, /^[0-9a-f]{40}$/)
  assert.equal(pushed.nothing, false)
  assert.equal((await ok(200, 'POST', `/sessions/${one.id}/push`, { branch: 'task-1' })).nothing, true)
  const refused = await v1('POST', `/sessions/${one.id}/push`, { branch: 'protected' })
  assert.equal(refused.status, 409, refused.text)
  assert.match(refused.body.error.message, /^remote-rejected/)
  const wrong = await v1('POST', `/sessions/${one.id}/push`, { branch: 'task-2', git_token: 'ghp_wrongwrongwrongwrongwrongwrongwrong12' })
  assert.equal(wrong.status, 412, wrong.text)
  for (const branch of ['-x', 'a..b', 'a b', '$(id)']) assert.equal((await v1('POST', `/sessions/${one.id}/push`, { branch })).status, 400, branch)
  const told = JSON.stringify(await events(one.id)) + JSON.stringify(await ok(200, 'GET', `/sessions/${one.id}`)) + server.log
  assert.ok(!told.includes(token), 'the token was told')
  assert.ok(!(await execute(one.sandbox_id, 'grep -r ghp_ ~/workspace ~/.gitconfig ~/.git-credentials 2>/dev/null; ps aux')).stdout.includes(token), 'the token is in the sandbox')
  const seen = await types(one.id)
  assert.ok(seen.includes('git.push.succeeded') && seen.includes('git.push.failed'), `${seen}`)
})

test('a token of the profile is there again after a restart, one of the request is not', async () => {
  const given = await session({ repo: secretRepo, git_token: token })
  const one = await session({ repo: secretRepo, profile: 'with-git' })
  assert.ok((await types(one.id)).includes('git.clone.succeeded'))
  await server.restart()
  for (const { sandbox_id } of [given, one]) await execute(sandbox_id, 'echo later >> ~/workspace/secret/README.md')
  assert.match((await ok(200, 'POST', `/sessions/${one.id}/push`, { branch: 'task-3' })).commit, /^[0-9a-f]{40}$/)
  const lost = await v1('POST', `/sessions/${given.id}/push`, { branch: 'task-4' })
  assert.equal(lost.status, 412, lost.text)
  assert.match((await ok(200, 'POST', `/sessions/${given.id}/push`, { branch: 'task-4', git_token: token })).commit, /^[0-9a-f]{40}$/)
  const told = JSON.stringify(await events(one.id)) + (await v1('GET', '/profiles/with-git')).text + server.log
  assert.ok(!told.includes(token), 'the token was told')
})

test('a clone that fails is told and does not end the session', async () => {
  const one = await session({ repo: secretRepo })
  assert.equal(one.state, 'running', JSON.stringify(one))
  assert.ok((await types(one.id)).includes('git.clone.failed'))
})

test('a sandbox that vanishes cancels its session; a message begins it anew', async () => {
  const one = await session({})
  const engine = (await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).external_id
  assert.equal((await server.api('DELETE', `/sandboxes/${engine}`)).status, 204)
  await reaches(one.id, 'canceled')
  assert.equal((await ok(200, 'GET', `/sessions/${one.id}`)).reason, 'sandbox-missing')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'again' })
  await reaches(one.id, 'completed')
})

test('a restart of the server: sessions go on', async () => {
  const one = await sessionWithTestAgent({ permission_mode: 'ask', message: 'run echo after-restart' })
  const asked = await event(one.id, 'permission.requested')
  await server.restart()
  await eventually('attached again', async () => (await ok(200, 'GET', `/sessions/${one.id}`)).runtime.base_url, 30_000, 100)
  await eventually('approved', async () => (await v1('POST', `/sessions/${one.id}/approve`, { request_id: asked.data.request_id, allow: true })).status === 200)
  await reaches(one.id, 'completed')
})

test('bad requests are refused before anything is made', async () => {
  const before = (await server.ids()).length
  for (const body of [{}, { agent: '../x' }, { agent: 'mock', repo: '--upload-pack=x' }, { agent: 'mock', repo: 'ext::sh -c id' }, { agent: 'mock', branch: '-x', repo }, { agent: 'mock', permission_mode: 'always' }, { agent: 'mock', provider: 'nowhere' }]) {
    assert.equal((await v1('POST', '/sessions', body)).status, 400, JSON.stringify(body))
  }
  assert.equal((await v1('GET', '/sessions/ses_nothing')).status, 404)
  assert.equal((await server.ids()).length, before)
})

test('a template without sandbox-agent gets the one of this host', async () => {
  const sandbox = await ok(201, 'POST', '/sandboxes', { persistent: true })
  await execute(sandbox.id, 'sudo rm /usr/local/bin/sandbox-agent')
  const { id } = await session({ sandbox_id: sandbox.id })
  assert.equal(await state(id), 'running')
  assert.match((await execute(sandbox.id, 'ls .local/bin')).stdout, /^sandbox-agent$/m)
})
