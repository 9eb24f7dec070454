// Sessions end to end: the real sandbox-agent in a real sandbox, its built-in mock agent, and an agent of our own
// in the mock's place that asks for permissions and changes files.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { startGitHost } from '../harness/git-host.mjs'
import { eventually, repository, startServer } from '../harness/server.mjs'
import { tinyServer } from '../harness/tiny-server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const agent = fs.readFileSync(path.join(repository, 'tests/fixtures/acp-agent.py'), 'utf8')
const repo = 'http://203.0.113.1/git/acme/app.git'
const secretRepo = 'http://203.0.113.1/private/acme/secret.git'
const token = 'ghp_worldtoken0123456789worldtoken0123456789'

let server, gitHost
before(async () => {
  gitHost = await startGitHost()
  const config = path.join(fs.mkdtempSync('/tmp/quicksand-session-'), 'runtime.json')
  const socket = path.join(path.dirname(config), 'process.sock')
  fs.chmodSync(path.dirname(config), 0o755)
  const providers = { e2b: { type: 'e2b', api_url: 'embedded' }, local: { type: 'process', socket } }
  fs.writeFileSync(config, JSON.stringify({ default_provider: 'e2b', providers, sandbox_agent: { program }, git_hosts: { '203.0.113.1': { type: 'github', api_url: `${gitHost.url}/gh` }, 'web.test': { type: 'gitea', api_url: `${gitHost.url}/tea/api/v1/` } }, profiles: { 'with-git': { network: { mode: 'allow-all' }, gitToken: 'env:GIT_SECRET' } } }), { mode: 0o644 })
  server = await startServer({ args: ['--runtime-config', config, '--process-provider', '1'], env: { GIT_SECRET: token } })
  // envd's socket is in the data directory, whose name was not known before.
  fs.symlinkSync(path.join(server.data, 'run/process.sock'), socket)
  server.config = config
})
after(async () => {
  for (const one of (await ok(200, 'GET', '/sandboxes?limit=1000')).sandboxes) await v1('DELETE', `/sandboxes/${one.id}`)
  fs.rmSync(path.dirname(server.config), { recursive: true })
  await server.destroy()
  await gitHost.close()
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
const reaches = (id, wanted) => eventually(`session ${wanted}`, async () => (await state(id)) === wanted, 30_000, 100).catch(async (error) => {
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
  assert.deepEqual([one.runtime.provider, one.runtime.sandbox_id, one.runtime.sandbox_name, one.runtime.sandbox_port, one.runtime.snapshot_id], ['e2b', one.sandbox_id, one.sandbox_id, 2468, null])
  const stream = follow(one.id)
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'hello agent' })
  await reaches(one.id, 'completed')
  const seen = await types(one.id)
  for (const type of ['session.created', 'git.clone.started', 'git.clone.succeeded', 'session.provisioned', 'session.running', 'session.message', 'agent.turn.completed', 'session.completed']) {
    assert.ok(seen.includes(type), `${type} in ${seen}`)
  }
  assert.equal(seen.filter((type) => type === 'session.created').length, 1)
  await eventually('the answer on the stream', () => stream.seen.some((one) => one.type === 'agent.message' && JSON.stringify(one.data).includes('You said: hello agent')))
  stream.close()
  const cloned = await execute(one.sandbox_id, 'cat ~/workspace/app/README.md')
  assert.equal(cloned.stdout, 'hello from the world\n')
  await ok(200, 'POST', `/sessions/${one.id}/cancel`, {})
  assert.equal(await state(one.id), 'canceled')
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'paused')
  const used = (await ok(200, 'GET', '/stats')).sessions[one.id]
  assert.deepEqual([used?.sandboxes, used?.running, used?.seconds > 0], [1, 0, true], JSON.stringify(used))
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

test('permissions: the mode of the profile holds, unless the request names another', async () => {
  for (const permissionMode of ['ask', 'edit', 'bypass']) await ok(200, 'PUT', `/profiles/may-${permissionMode}`, { name: `may-${permissionMode}`, config: { provider: 'e2b', network: { mode: 'allow-all' }, permissionMode } })
  const sandbox = await ok(201, 'POST', '/sandboxes', { persistent: true })
  await replaceAgent(sandbox.id)
  // {how: [profile, mode of the request, asks before it writes, asks before it runs]}
  for (const [profile, permission_mode, writes, runs] of [['may-ask', undefined, true, true], ['may-edit', undefined, false, true], ['may-bypass', undefined, false, false], ['may-bypass', 'ask', true, true], ['may-ask', 'bypass', false, false]]) {
    const how = `${profile}, ${permission_mode}`
    const one = await session({ sandbox_id: sandbox.id, profile, permission_mode })
    const does = async (message, asks) => {
      const asked = async () => (await events(one.id)).filter((event) => event.type === 'permission.requested')
      const before = (await asked()).length
      const turns = (await types(one.id)).filter((type) => type === 'agent.turn.completed').length
      await ok(202, 'POST', `/sessions/${one.id}/messages`, { message })
      if (asks) {
        const request = await eventually(`${how}: asks for ${message}`, async () => (await asked())[before], 30_000, 100)
        await ok(200, 'POST', `/sessions/${one.id}/approve`, { request_id: request.data.request_id, allow: true })
      }
      await eventually(`${how}: ${message}`, async () => (await types(one.id)).filter((type) => type === 'agent.turn.completed').length > turns, 30_000, 100)
      assert.equal((await asked()).length, before + (asks ? 1 : 0), `${how}: ${message}`)
    }
    await does('write by-profile.txt yes', writes)
    await does('run echo by-profile', runs)
  }
})

test('the profile’s MCP servers reach the agent', async () => {
  await ok(200, 'PUT', '/profiles/with-tools', { network: { mode: 'allow-all' }, mcp: { files: { command: 'mcp-files', args: ['--root', '/'], env: { A: 'b' } }, 'npm/tiny': { runCmd: tinyServer } } })
  const sandbox = await ok(201, 'POST', '/sandboxes', { profile: 'with-tools', persistent: true })
  await replaceAgent(sandbox.id)
  const one = await session({ sandbox_id: sandbox.id, profile: 'with-tools', message: 'hello' })
  await event(one.id, 'agent.turn.completed')
  const { mcpServers } = JSON.parse((await execute(sandbox.id, 'cat /tmp/session-new.json')).stdout)
  assert.deepEqual(mcpServers.find((server) => server.name === 'files').args, ['--root', '/'])
  assert.ok(mcpServers.some((server) => server.url === 'http://127.0.0.1:50005/mcp'), 'and the gateway, which has the others')
  assert.ok(!JSON.stringify(mcpServers).includes('npm/tiny'))
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
  assert.equal((await ok(200, 'GET', `/sessions/${one.id}`)).runtime.snapshot_id, snapshot.id)
  await ok(204, 'DELETE', `/sessions/${one.id}`)
  const two = await session({ repo, branch: 'main', checkpoint: 'github/acme/app#saved' })
  assert.equal(two.state, 'running', JSON.stringify(two))
  assert.equal(two.runtime.snapshot_id, snapshot.id)
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
  const saved = await v1('POST', `/sessions/${one.id}/snapshot`, {})
  assert.deepEqual([saved.status, saved.body.error?.code], [409, 'unsupported'], saved.text)
  const log = (await execute(one.sandbox_id, 'ls "$TMPDIR"/sandbox-agent-*.log')).stdout.trim()
  assert.ok(fs.existsSync(log), log)
  await ok(204, 'DELETE', `/sessions/${one.id}`)
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'killed')
  assert.ok(!fs.existsSync(log), 'nothing of it stays on the host')
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

test('push: without a branch goes to task-ID, and to the branch of the session only by name', async () => {
  const own = 'http://203.0.113.1/git/acme/mainline.git'
  const remote = async (sandbox) => (await execute(sandbox, `git ls-remote ${own} | sort -k2`)).stdout
  const head = (list, branch) => new RegExp(`^([0-9a-f]{40})\\trefs/heads/${branch}$`, 'm').exec(list)?.[1]
  const one = await session({ repo: own, branch: 'main', task_id: 'fix-7' })
  const before = head(await remote(one.sandbox_id), 'main')
  assert.match(before, /^[0-9a-f]{40}$/)
  for (const body of [{}, { branch: 'empty' }]) assert.equal((await ok(200, 'POST', `/sessions/${one.id}/push`, body)).nothing, true, 'without a change')
  assert.equal(head(await remote(one.sandbox_id), '(?!main).*'), undefined, 'no branch was made')
  await execute(one.sandbox_id, 'echo one >> ~/workspace/mainline/README.md')
  const pushed = await ok(200, 'POST', `/sessions/${one.id}/push`, { message: 'feat: one' })
  assert.equal(pushed.branch, 'task-fix-7')
  let list = await remote(one.sandbox_id)
  assert.equal(head(list, 'main'), before, 'main was pushed to')
  assert.equal(head(list, 'task-fix-7'), pushed.commit)
  await execute(one.sandbox_id, 'echo two >> ~/workspace/mainline/README.md')
  const named = await ok(200, 'POST', `/sessions/${one.id}/push`, { branch: 'main', message: 'feat: two' })
  list = await remote(one.sandbox_id)
  assert.equal(head(list, 'main'), named.commit, 'named, so pushed to')
  assert.equal(head(list, 'task-fix-7'), pushed.commit)

  const { commits, branch } = await ok(200, 'GET', `/sessions/${one.id}/history?limit=2`)
  assert.equal(branch, 'main')
  assert.deepEqual(commits.map(({ commit, subject }) => [commit, subject]), [[named.commit, 'feat: two'], [pushed.commit, 'feat: one']])
  assert.match(commits[0].at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
  assert.deepEqual([commits[0].author, commits[0].email], ['Quicksand Agent', 'agent@quicksand.local'])
  assert.equal((await ok(200, 'GET', `/sessions/${one.id}/history`)).commits.length, 3)
  for (const limit of ['0', '201', 'x']) assert.equal((await v1('GET', `/sessions/${one.id}/history?limit=${limit}`)).status, 400, limit)

  // Without a task, or with one that cannot be part of a branch's name: the session's id.
  for (const task_id of [undefined, 'a b~c']) {
    const other = await session({ repo: own, task_id })
    await execute(other.sandbox_id, 'echo three >> ~/workspace/mainline/README.md')
    assert.equal((await ok(200, 'POST', `/sessions/${other.id}/push`, {})).branch, `task-${other.id}`)
  }
  const empty = await session({})
  const none = await v1('GET', `/sessions/${empty.id}/history`)
  assert.equal(none.status, 409, none.text)
  assert.match(none.body.error.message, /not a git repository/)
})

test('push: a failure that may pass is tried three times, a refusal once', async () => {
  const one = await session({ repo: 'http://203.0.113.1/git/acme/flaky.git', task_id: 'flaky' })
  // Fails as often as its first file says, with the words of its second.
  const hook = '#!/bin/sh\necho x >> /tmp/tries; [ $(wc -l < /tmp/tries) -gt $(cat /tmp/failures) ] && exit 0; cat /tmp/words >&2; exit 1\n'
  const put = await v1('PUT', `/sandboxes/${one.sandbox_id}/files?path=/home/user/workspace/flaky/.git/hooks/pre-push`, hook, { headers: { 'content-type': 'application/octet-stream' } })
  assert.ok(put.status < 300, put.text)
  await execute(one.sandbox_id, 'chmod +x ~/workspace/flaky/.git/hooks/pre-push')
  const push = async (failures, words) => {
    await execute(one.sandbox_id, `date +%N >> ~/workspace/flaky/README.md; rm -f /tmp/tries; echo ${failures} > /tmp/failures; echo '${words}' > /tmp/words`)
    const answer = await v1('POST', `/sessions/${one.id}/push`, {})
    return [answer.status, Number((await execute(one.sandbox_id, 'wc -l < /tmp/tries')).stdout), answer.body.error?.message ?? answer.body.branch]
  }
  assert.deepEqual(await push(2, 'the network is away'), [200, 3, 'task-flaky'])
  const [status, tries, message] = await push(9, 'the network is away')
  assert.deepEqual([status, tries], [409, 3])
  assert.match(message, /^unknown: .*the network is away/s)
  const refused = await push(9, 'remote: Authentication failed')
  assert.deepEqual(refused.slice(0, 2), [412, 1])
  assert.match(refused[2], /^auth/)
})

test('push: conventionalCommits of the profile rejects other commit messages before the push', async () => {
  await ok(200, 'PUT', '/profiles/conventional', { network: { mode: 'allow-all' }, conventionalCommits: true })
  const one = await session({ repo: 'http://203.0.113.1/git/acme/strict.git', task_id: 'strict', profile: 'conventional' })
  const push = (message) => v1('POST', `/sessions/${one.id}/push`, { message })
  await execute(one.sandbox_id, 'echo one >> ~/workspace/strict/README.md')
  for (const message of ['more', 'feat:more', 'feature: more', 'feat: ', 'feat(): more', `feat: ${'x'.repeat(101)}`, 'more\n\nfeat: more']) {
    const refused = await push(message)
    assert.equal(refused.status, 409, `${message}: ${refused.text}`)
    assert.match(refused.body.error.message, /^commit-message: .*not a conventional commit/)
  }
  assert.equal((await ok(200, 'GET', `/sessions/${one.id}/history`)).commits.length, 1, 'something was committed')
  for (const message of [undefined, 'feat: more', 'fix(ui)!: ✓ more\n\nAnd a body.', `ci: ${'x'.repeat(100)}`]) {
    await execute(one.sandbox_id, 'date +%N >> ~/workspace/strict/README.md')
    const taken = await push(message)
    assert.equal(taken.status, 200, taken.text)
    assert.equal(taken.body.nothing, false)
  }
  // A commit of the agent's own.
  await execute(one.sandbox_id, 'cd ~/workspace/strict && date +%N >> README.md && git -c user.name=a -c user.email=a@b commit -qam "whatever"')
  const refused = await push('feat: more')
  assert.equal(refused.status, 409, refused.text)
  assert.match(refused.body.error.message, /^commit-message: .*whatever/)
  assert.equal((await events(one.id)).findLast((event) => event.type === 'git.push.failed').data.class, 'commit-message')
})

test('push: opens a pull request at a host like GitHub', async () => {
  const one = await session({ repo: secretRepo, git_token: token })
  const push = (body) => v1('POST', `/sessions/${one.id}/push`, body)
  const change = (text) => execute(one.sandbox_id, `echo ${text} >> ~/workspace/secret/README.md`)
  let answers = ''
  gitHost.take()
  await change('pull')
  const opened = await push({ branch: 'pr-1', message: 'feat: more', pr: { title: 'More "of" it', body: 'line 1\nline 2 ✓', base: 'main', draft: true } })
  assert.equal(opened.status, 200, opened.text)
  answers += opened.text
  const [asked, ...others] = gitHost.take()
  assert.deepEqual(others, [])
  assert.equal(`${asked.method} ${asked.url}`, 'POST /gh/repos/acme/secret/pulls')
  assert.equal(asked.headers.authorization, `Bearer ${token}`)
  assert.equal(asked.headers.accept, 'application/vnd.github+json')
  assert.match(asked.headers['x-github-api-version'], /^\d{4}-\d\d-\d\d$/)
  assert.match(asked.headers['user-agent'], /^quicksand/)
  assert.deepEqual(asked.body, { title: 'More "of" it', head: 'pr-1', base: 'main', body: 'line 1\nline 2 ✓', draft: true })
  const { number } = opened.body.pr
  assert.deepEqual(opened.body.pr, { number, url: `https://hub.example/acme/secret/pulls/${number}`, base: 'main', existed: false })
  assert.deepEqual((await event(one.id, 'git.pr.succeeded')).data, { branch: 'pr-1', ...opened.body.pr })

  // Again: the one that is open. Without a base and a title: the repository's branch and the message's first line.
  const again = await push({ branch: 'pr-1', message: 'fix: first\n\nsecond', pr: {} })
  assert.deepEqual(again.body, { branch: 'pr-1', commit: opened.body.commit, nothing: true, pr: { ...opened.body.pr, existed: true } }, again.text)
  const [base, post, find] = gitHost.take()
  assert.equal(`${base.method} ${base.url}`, 'GET /gh/repos/acme/secret')
  assert.deepEqual(post.body, { title: 'fix: first', head: 'pr-1', base: 'main', body: '', draft: false })
  const query = new URL(find.url, 'http://host').searchParams
  assert.ok(find.method === 'GET' && find.url.startsWith('/gh/repos/acme/secret/pulls?'), find.url)
  assert.deepEqual([query.get('head'), query.get('base'), query.get('state')], ['acme:pr-1', 'main', 'open'])
  for (const { headers } of [base, post, find]) assert.equal(headers.authorization, `Bearer ${token}`)

  // What the host says is told, without the token in it; what was pushed stays.
  const refusals = [
    [403, { message: `Resource not accessible by ${token}\u001b[2J` }, 412, /^auth: git host '203\.0\.113\.1' answered 403: Resource not accessible by \*\*\*/],
    [422, { message: 'Validation Failed', errors: [{ message: 'No commits between main and pr-2' }] }, 409, /answered 422: Validation Failed: No commits between main and pr-2/],
    [301, { message: 'Moved Permanently' }, 409, /answered 301: Moved/, { location: `${gitHost.url}/elsewhere` }],
    [503, 'no JSON object', 502, /answered 503/],
    [201, { number: 'x' }, 502, /without a number/],
  ]
  for (const [status, body, expected, message, headers] of refusals) {
    gitHost.refuse(status, body, headers)
    const refused = await push({ branch: 'pr-2', pr: { base: 'main' } })
    answers += refused.text
    assert.equal(refused.status, expected, refused.text)
    assert.match(refused.body.error.message, message)
    assert.match(refused.body.error.message, /'pr-2' is pushed/)
    assert.equal(gitHost.take().length, 1, 'asked once, no redirect followed')
  }
  gitHost.next = (request) => request.socket.destroy()
  assert.equal((await push({ branch: 'pr-2', pr: { base: 'main' } })).status, 502)
  const told = await events(one.id)
  assert.equal(told.filter((event) => event.type === 'git.pr.failed').length, refusals.length + 1)
  assert.match(told.find((event) => event.type === 'git.pr.failed').data.message, /answered 403/)
  assert.ok(told.some((event) => event.type === 'git.push.succeeded' && event.data.branch === 'pr-2'))
  // An address with the token in it is not passed on.
  gitHost.refuse(201, { number: 77, html_url: `https://hub.example/${token}/77` })
  const marked = await push({ branch: 'pr-2', pr: { base: 'main' } })
  assert.equal(marked.body.pr.number, 77, marked.text)
  answers += marked.text
  assert.ok(!(answers + JSON.stringify(await events(one.id)) + JSON.stringify(await ok(200, 'GET', `/sessions/${one.id}`)) + server.log).includes(token), 'the token was told')
})

test('push: what cannot become a pull request is refused before anything is pushed', async () => {
  const one = await session({ repo: secretRepo, git_token: token })
  gitHost.take()
  const refused = async (status, message, body) => {
    const answer = await v1('POST', `/sessions/${one.id}/push`, { branch: 'pr-never', ...body })
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.body.error.message, message)
  }
  await refused(400, /git host '203\.0\.113\.53' is not known; nothing was pushed.*"git_hosts"/, { remote: 'http://203.0.113.53/private/acme/secret.git', pr: {} })
  await refused(400, /'127\.0\.0\.1:80' is not known/, { remote: 'https://203.0.113.1@127.0.0.1:80/private/acme/secret.git', pr: {} })
  await refused(400, /host, owner and name/, { remote: 'http://203.0.113.1/private/../secret.git', pr: {} })
  await refused(400, /host, owner and name/, { remote: 'elsewhere', pr: {} })
  await refused(400, /is OWNER\/NAME; nothing was pushed/, { remote: 'https://github.com/private/acme/secret.git', pr: {} })
  await refused(400, /into itself/, { branch: 'main', pr: { base: 'main' } })
  await refused(400, /'pr\.base'/, { pr: { base: '../x' } })
  await refused(400, /'pr\.title'/, { pr: { base: 'main', title: 'x'.repeat(257) } })
  await refused(400, /printable/, { git_token: 'to ken\r\nx: y', pr: { base: 'main' } })
  await refused(400, /'pr'.*unknown member 'titel'/, { pr: { titel: 'x' } })
  assert.equal(gitHost.take().length, 0)
  gitHost.refuse(403, { message: 'no' })
  await refused(412, /answered 403: no/, { pr: {} })
  assert.deepEqual((await types(one.id)).filter((type) => /^git\.(push|pr)\./.test(type)), [])
  const bare = await session({ repo })
  const answer = await v1('POST', `/sessions/${bare.id}/push`, { branch: 'pr-never', pr: {} })
  assert.equal(answer.status, 412, answer.text)
  assert.match(answer.body.error.message, /needs a token/)
  assert.ok(!(await types(bare.id)).includes('git.push.started'))
})

test('push: opens a pull request at a host like Gitea, with the token of the profile', async () => {
  const one = await session({ repo: secretRepo.replace('203.0.113.1', 'web.test'), profile: 'with-git' })
  const push = (body) => ok(200, 'POST', `/sessions/${one.id}/push`, { branch: 'tea/1', ...body })
  await execute(one.sandbox_id, 'echo tea >> ~/workspace/secret/README.md')
  gitHost.take()
  const opened = await push({ message: 'feat: tea', pr: { draft: true } })
  const [base, asked] = gitHost.take()
  assert.equal(`${base.method} ${base.url}`, 'GET /tea/api/v1/repos/acme/secret')
  assert.equal(`${asked.method} ${asked.url}`, 'POST /tea/api/v1/repos/acme/secret/pulls')
  assert.equal(asked.headers.authorization, `token ${token}`)
  assert.equal(asked.headers['content-type'], 'application/json')
  assert.equal(asked.headers['x-github-api-version'], undefined)
  assert.deepEqual(asked.body, { title: 'WIP: feat: tea', head: 'tea/1', base: 'main', body: '' })
  assert.equal(opened.pr.existed, false)
  // Found among others: closed ones, a fork's, other branches; on the second page.
  const mine = gitHost.pulls.pop()
  for (const other of [{ head: 'tea/1', base: 'main', state: 'closed' }, { head: 'tea/2', base: 'main' }]) gitHost.add(mine.repo, 'acme/secret', other)
  gitHost.add(mine.repo, 'fork/secret', { head: 'tea/1', base: 'main' })
  for (let i = 0; i < 30; i++) gitHost.add(mine.repo, 'acme/secret', { head: `other-${i}`, base: 'main' })
  const { number } = gitHost.add(mine.repo, 'acme/secret', { head: 'tea/1', base: 'main' })
  const again = await push({ pr: { base: 'main' } })
  assert.deepEqual(again.pr, { number, url: `https://tea.example/acme/secret/pulls/${number}`, base: 'main', existed: true })
  assert.deepEqual(gitHost.take().map(({ method, url }) => `${method} ${url.split('?')[0]}`), ['POST', 'GET', 'GET'].map((method) => `${method} /tea/api/v1/repos/acme/secret/pulls`))
  const seen = (await types(one.id)).filter((type) => type.startsWith('git.pr.'))
  assert.deepEqual(seen, ['git.pr.started', 'git.pr.succeeded', 'git.pr.started', 'git.pr.succeeded'])
  assert.ok(!(JSON.stringify(await events(one.id)) + server.log).includes(token), 'the token was told')
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

test('a clone that fails fails its session and pauses the sandbox; a message tries again', async () => {
  const one = await ok(201, 'POST', '/sessions', { agent: 'mock', repo: secretRepo, wait: true })
  assert.equal(one.state, 'failed', JSON.stringify(one))
  assert.match(one.reason, /the repository could not be cloned: /)
  assert.equal((await types(one.id)).filter((type) => type === 'git.clone.failed').length, 1)
  await eventually('its sandbox is paused', async () => (await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state === 'paused')
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'again' })
  await eventually('it failed again', async () => (await types(one.id)).filter((type) => type === 'git.clone.failed').length === 2)
  await reaches(one.id, 'failed')
})

test('an unknown agent fails its session and pauses the sandbox', async () => {
  const one = await ok(201, 'POST', '/sessions', { agent: 'nobody', wait: true })
  assert.equal(one.state, 'failed', JSON.stringify(one))
  assert.match(one.reason, /nobody/)
  await eventually('its sandbox is paused', async () => (await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state === 'paused')
})

test('on a provider without pause a failed session kills the sandbox that it made; a message makes another', async () => {
  const one = await ok(201, 'POST', '/sessions', { agent: 'nobody', provider: 'local', wait: true })
  assert.equal(one.state, 'failed', JSON.stringify(one))
  assert.match(one.reason, /nobody/)
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'killed')
  const killed = (await events(one.id)).filter((event) => event.type === 'session.sandbox.killed')
  assert.deepEqual(killed.map(({ data }) => data.sandbox_id), [one.sandbox_id])
  assert.match(killed[0].data.message, /pause/)
  await ok(202, 'POST', `/sessions/${one.id}/messages`, { message: 'again' })
  await reaches(one.id, 'failed')
  const again = (await events(one.id)).filter((event) => event.type === 'session.sandbox.killed')
  assert.equal(again.length, 2)
  assert.notEqual(again[1].data.sandbox_id, one.sandbox_id)
  assert.equal((await ok(200, 'GET', `/sandboxes/${again[1].data.sandbox_id}`)).state, 'killed')
})

test('on a provider without pause a sandbox that was used runs on, which an event says', async () => {
  const one = await session({ provider: 'local' })
  assert.equal(one.state, 'running', JSON.stringify(one))
  await ok(200, 'POST', `/sessions/${one.id}/cancel`, {})
  assert.equal((await ok(200, 'GET', `/sandboxes/${one.sandbox_id}`)).state, 'running')
  assert.equal((await event(one.id, 'session.sandbox.running')).data.sandbox_id, one.sandbox_id)
  await ok(204, 'DELETE', `/sessions/${one.id}`)
})

test('a sandbox that was given to a session runs on when the session fails', async () => {
  const box = await ok(201, 'POST', '/sandboxes', {})
  const one = await ok(201, 'POST', '/sessions', { agent: 'nobody', sandbox_id: box.id, wait: true })
  assert.equal(one.state, 'failed', JSON.stringify(one))
  assert.equal((await ok(200, 'GET', `/sandboxes/${box.id}`)).state, 'running')
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
