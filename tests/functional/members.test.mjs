// What a request may say: every member does something, other spellings are taken, and slips are told.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { createRequire } from 'node:module'
import path from 'node:path'
import { eventually, repository } from '../harness/server.mjs'
import { connect } from '../harness/mcp.mjs'
import { destroyAll, refused, startRuntime } from '../harness/runtime.mjs'
import { tinyServer } from '../harness/tiny-server.mjs'

const WebSocket = createRequire(path.join(repository, 'build/npm/web/'))('ws')
const REPO = 'http://203.0.113.1/git/acme/app.git'
const PRIVATE = 'http://203.0.113.1/private/acme/secret.git'
const token = 'ghp_worldtoken0123456789worldtoken0123456789'

let one
before(async () => {
  one = await startRuntime(
    { profiles: { rooted: { network: { mode: 'allow-all' }, options: { workspaceRoot: '/mnt/workspaces' } }, 'with-git': { network: { mode: 'allow-all' }, gitToken: 'env:GIT_SECRET' } } },
    { env: { GIT_SECRET: token } },
  )
})
after(() => one.destroy())
afterEach(() => assert.ok(one.server.alive(), one.server.tail()))

describe('unknown members', () => {
  test('are told with the nearest name', async () => {
    const box = await one.create()
    const tries = [
      ['/sandboxes', { tempalte: 'base' }, /unknown member 'tempalte'; did you mean 'template'\?/],
      ['/sandboxes', { outputLimt: 5 }, /unknown member 'outputLimt'; did you mean 'output_limit'\?/],
      ['/sandboxes', { qwertyuiop: 5 }, /unknown member 'qwertyuiop'; see/],
      ['/sandboxes', { lifecycle: { idleTimeout: 5 } }, /lifecycle\.idleTimeout: unknown member/],
      ['/sandboxes', { limits: { memroyMb: 512 } }, /limits\.memroyMb: unknown member; did you mean 'memoryMb'\?/],
      ['/sandboxes', { env: { A: '1' }, envVars: { A: '2' } }, /'envVars' is given twice: it is another name of 'env'/],
      [`/sandboxes/${box.id}/execute`, { command: 'true', timout: 5 }, /unknown member 'timout'; did you mean 'timeout'\?/],
      [`/sandboxes/${box.id}/pause`, { force: true }, /unknown member 'force'/],
      [`/sandboxes/${box.id}/snapshots`, { alais: 'x' }, /did you mean 'alias'\?/],
      ['/sessions', { agent: 'mock', prmpt: 'x' }, /did you mean 'prompt'\?/],
      ['/prune', { dryRn: true }, /did you mean 'dry_run'\?/],
    ]
    for (const [target, body, words] of tries) refused(await one.v1('POST', target, body), 400, 'invalid', words)
    const put = await one.v1('PUT', '/profiles/p', { network: { mode: 'allow-all' }, timeot: 5 })
    refused(put, 400, 'invalid', /timeot: unknown member; did you mean 'timeout'\?/)
  })

  test('are ignored by the E2B API, whose clients grow', async () => {
    const made = await one.server.api('POST', '/sandboxes', { templateID: 'base', fromTheFuture: { a: 1 } })
    assert.equal(made.status, 201, made.text)
    assert.equal((await one.server.api('DELETE', `/sandboxes/${made.body.sandboxID}`)).status, 204)
  })

  test('other spellings are taken, and do what ours do', async () => {
    const box = await one.create({ agentId: 'a1', taskId: 't1', templateId: 'base', envVars: { A: 'b' }, timeoutMs: 90_000, outputLimitBytes: 100, metadata: {} })
    assert.deepEqual([box.agent_id, box.task_id, box.template, box.idle_timeout], ['a1', 't1', 'base', 90])
    const result = await one.ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'echo $A $C; pwd; seq 1000', envs: { C: 'd' }, workingDir: '/tmp', timeoutSeconds: 20 })
    assert.match(result.stdout, /^b d\n\/tmp\n/)
    assert.ok(result.truncated)
    const snake = await one.create({ image: 'base', env_vars: { A: 'c' }, lifecycle: { idle_timeout_seconds: 77 } })
    assert.equal(snake.idle_timeout, 77)
    assert.equal(await one.output(snake.id, 'echo $A'), 'c\n')
    await one.ok(200, 'PUT', '/profiles/snake', { network: { mode: 'allow-all' }, env: { P: 'q' }, output_limit_bytes: 5, permission_mode: 'ask' })
    const of = await one.create({ profile: 'snake' })
    assert.match(await one.output(of.id, 'echo $P; seq 100'), /^q\n/)
    await one.ok(204, 'DELETE', '/profiles/snake')
  })

  test('what would have no effect is refused', async () => {
    refused(await one.v1('POST', '/sandboxes', { options: { resolution: '19x10' } }), 400, 'invalid', /resolution/)
    refused(await one.v1('POST', '/sandboxes', { options: { vncEnabled: true } }), 404, 'not_found', /quicksand template build desktop/)
    refused(await one.v1('POST', '/sandboxes', { image: 'base', options: { vncEnabled: true } }), 409, 'conflict', /there is no Xvfb/)
    refused(await one.v1('POST', '/sandboxes', { mcp: {} }), 400, 'invalid', /unknown member 'mcp'/)
    refused(await one.v1('POST', '/sandboxes', { branch: 'main' }), 400, 'invalid', /'branch' without 'repo'/)
  })
})

describe('the workspace', () => {
  const pwdOfTerminal = (id) =>
    new Promise((done, fail) => {
      let text = ''
      const socket = new WebSocket(`ws://${one.server.listen}/api/v1/sandboxes/${id}/terminal`, { headers: { 'X-API-KEY': one.server.key } })
      socket.on('error', fail)
      socket.on('message', (data, binary) => {
        if (!binary) return socket.send(JSON.stringify({ type: 'input', data: 'echo "<$(pwd)>"\n' }))
        text += data
        const found = /<(\/[^>$]*)>/.exec(text)
        if (found) (socket.close(), done(found[1]))
      })
    })

  test('its root is made, and is where commands, jobs and terminals start', async () => {
    const box = await one.create({ profile: 'rooted' })
    assert.equal(box.workspace_root, '/mnt/workspaces')
    assert.equal(await one.output(box.id, 'pwd; touch made-here && echo ok'), '/mnt/workspaces\nok\n')
    assert.equal((await one.execute(box.id, 'pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    const job = await one.start(box.id, 'pwd')
    await one.process(job.id, '?wait=60')
    assert.equal((await one.v1('GET', `/sandboxes/-/processes/${job.id}/logs`)).text, '/mnt/workspaces\n')
    assert.equal(await pwdOfTerminal(box.id), '/mnt/workspaces')
    const own = await one.create({ workspaceRoot: '/srv/deep/er' })
    assert.equal(await one.output(own.id, 'pwd; stat -c %U .'), '/srv/deep/er\nuser\n')
    refused(await one.v1('POST', '/sandboxes', { workspace_root: 'relative' }), 400, 'invalid', /absolute/)
  })

  test('one that cannot be made leaves no sandbox', async () => {
    const before = (await one.ok(200, 'GET', '/sandboxes')).sandboxes.length
    refused(await one.v1('POST', '/sandboxes', { workspace_root: '/proc/nowhere' }), 409, 'conflict', /cannot make the directory \/proc\/nowhere/)
    assert.equal((await one.ok(200, 'GET', '/sandboxes')).sandboxes.length, before)
  })

  test('a repository is cloned into it', async () => {
    const box = await one.create({ repo: REPO, branch: 'main' })
    assert.equal(box.workspace_root, '/workspace/app')
    assert.match(await one.output(box.id, 'pwd; git rev-parse --abbrev-ref HEAD'), /^\/workspace\/app\nmain\n$/)
    const rooted = await one.create({ repoUrl: REPO, profile: 'rooted', key: 'with-repo' })
    assert.equal(await one.output(rooted.id, 'pwd'), '/mnt/workspaces/app\n')
    await one.execute(rooted.id, 'touch mark')
    const again = await one.create({ repo: REPO, profile: 'rooted', key: 'with-repo' })
    assert.deepEqual([again.id, again.tier], [rooted.id, 'resumed'])
    assert.equal(await one.output(again.id, 'ls mark'), 'mark\n')
    assert.deepEqual((await one.events({ sandbox_id: box.id })).map(({ type }) => type).filter((type) => type.startsWith('git.')), ['git.clone.started', 'git.clone.succeeded'])
  })

  test('a private one with a token, given or by reference, which is told nowhere', async () => {
    for (const body of [{ repo: PRIVATE, git_token: token }, { repo: PRIVATE, profile: 'with-git' }]) {
      const box = await one.create(body)
      assert.match(await one.output(box.id, 'git log --oneline | wc -l; env; cat .git/config; ps aux'), /^[1-9]/)
      assert.ok(!(await one.output(box.id, 'env; cat .git/config; ps aux')).includes(token))
      assert.ok(!JSON.stringify([box, await one.events({ sandbox_id: box.id })]).includes(token))
    }
    assert.ok(!one.server.log.includes(token))
  })

  test('one that cannot be cloned is told, and leaves no sandbox', async () => {
    const before = (await one.ok(200, 'GET', '/sandboxes')).sandboxes.length
    refused(await one.v1('POST', '/sandboxes', { repo: PRIVATE, git_token: 'ghp_wrongwrongwrongwrongwrongwrongwrong12' }), 409, 'conflict', /the repository cannot be cloned/)
    refused(await one.v1('POST', '/sandboxes', { repo: 'ext::sh -c id' }), 400, 'invalid', /'repo' is not a URL/)
    assert.equal((await one.ok(200, 'GET', '/sandboxes')).sandboxes.length, before)
    assert.ok((await one.events({})).some(({ type }) => type === 'git.clone.failed'))
  })
})

describe('sizes', () => {
  test('of one sandbox hold, and are told', async () => {
    const box = await one.create({ limits: { cpu: 1, memory_mb: 128, diskMb: 200 } })
    assert.deepEqual(box.limits, { cpu: 1, memoryMb: 128, diskMb: 200 })
    assert.deepEqual((await one.get(box.id)).limits, box.limits)
    const info = (await one.server.api('GET', `/sandboxes/${box.external_id}`)).body
    assert.deepEqual([info.cpuCount, info.memoryMB, info.diskSizeMB], [1, 128, 200])
    assert.equal(await one.output(box.id, 'nproc'), '1\n')
    assert.doesNotMatch(one.server.log, /claim box/, 'a box that waits takes other sizes too')
    assert.notEqual((await one.execute(box.id, 'head -c 400M /dev/zero | tail -c 400M | wc -c')).stdout, '419430400\n', '400 MB in 128')
    const disk = await one.execute(box.id, 'dd if=/dev/zero of=~/big bs=1M count=400 conv=fsync')
    assert.notEqual(disk.exit_code, 0)
    assert.match(disk.stderr, /No space left|Disk quota exceeded/)
    const usual = (await one.server.api('GET', `/sandboxes/${(await one.create()).external_id}`)).body
    assert.notEqual(usual.memoryMB, 128, 'the next one has its template’s')
  })

  test('of a type of agent, by its profile', async () => {
    await one.ok(200, 'PUT', '/profiles/small', { network: { mode: 'allow-all' }, limits: { cpu: 1, memoryMb: 96 } })
    const box = await one.create({ profile: 'small' })
    assert.equal((await one.server.api('GET', `/sandboxes/${box.external_id}`)).body.memoryMB, 96)
    await one.ok(204, 'DELETE', '/profiles/small')
  })

  test('that the host or the provider does not have are refused', async () => {
    refused(await one.v1('POST', '/sandboxes', { limits: { cpu: 200 } }), 400, 'invalid', /cpuCount/)
    refused(await one.v1('POST', '/sandboxes', { limits: { diskMb: 1 } }), 400, 'invalid', /limits\.diskMb: must be/)
    assert.equal((await one.server.api('POST', '/sandboxes', { templateID: 'base', memoryMB: 1 })).status, 400)
  })
})

describe('the rest', () => {
  test('a record without a network mode has no network, the built-in default allows all', async () => {
    await one.ok(200, 'PUT', '/profiles/silent', { provider: 'e2b' })
    const reach = 'timeout 3 bash -c "exec 3<>/dev/tcp/203.0.113.1/80" && echo reached || echo not'
    assert.equal(await one.output((await one.create({ profile: 'silent' })).id, reach), 'not\n')
    assert.equal(await one.output((await one.create()).id, reach), 'reached\n')
    const told = await one.ok(200, 'POST', '/profiles/x/validate', { provider: 'e2b', network: { mode: 'restricted', allowDomains: ['a.example'] } })
    assert.equal(told.valid, true, JSON.stringify(told))
    await one.ok(200, 'PUT', '/profiles/silent', { provider: 'e2b', network: { mode: 'restricted', allowCidrs: ['203.0.113.0/24'] } })
    const restricted = (await one.create({ profile: 'silent' })).id
    assert.equal(await one.output(restricted, reach), 'reached\n')
    assert.equal(await one.output(restricted, reach.replace('203.0.113.1', '198.51.100.1')), 'not\n')
    await one.ok(204, 'DELETE', '/profiles/silent')
  })

  test('every operation is a line of the log with its id, status, time and agent', async () => {
    const box = await one.create({ agent_id: 'logged' })
    await one.execute(box.id, 'true', { agent_id: 'logged' })
    await one.v1('GET', '/sandboxes/nothing', undefined)
    const line = (what) => new RegExp(`info v1: request=[0-9a-f]{16} ${what} ms=[0-9.]+`)
    const wanted = [line('POST /api/v1/sandboxes status=201'), new RegExp(`${line(`POST /api/v1/sandboxes/${box.id}/execute status=200`).source} agent=logged`), line('GET /api/v1/sandboxes/nothing status=404')]
    // A line is written when its answer is on its way.
    for (const row of wanted) await eventually(`${row} in the log`, () => row.test(one.server.log))
  })

  test('what the dashboard only reads is not logged, its changes and failures are', async () => {
    const signed = await one.v1('POST', '/signin', {})
    const headers = { Cookie: signed.headers['set-cookie'][0].split(';')[0], 'X-Quicksand-Page': '1', 'Sec-Fetch-Site': 'same-origin' }
    const asked = (method, target, body) => one.server.api(method, `/api/v1${target}`, body, { key: null, headers })
    assert.equal((await asked('GET', '/profiles')).status, 200)
    assert.equal((await asked('GET', '/sandboxes/polled')).status, 404)
    assert.equal((await asked('POST', '/profiles/default/validate', {})).status, 200)
    await eventually('the last one in the log', () => /POST \/api\/v1\/profiles\/default\/validate status=200/.test(one.server.log))
    assert.match(one.server.log, /GET \/api\/v1\/sandboxes\/polled status=404/)
    assert.doesNotMatch(one.server.log, /GET \/api\/v1\/profiles status=200/)
  })
})

describe('providers', () => {
  test('say what they offer, and a remote Quicksand is one', async () => {
    const far = await startRuntime({
      default_provider: 'far',
      providers: { far: { type: 'e2b', api_url: one.server.url, api_key: one.server.key, max_sandboxes: 7, usd_per_second: 0.5 }, cloud: { type: 'e2b', api_url: 'https://api.e2b.app', api_key: 'k' }, other: { type: 'e2b', api_url: 'http://127.0.0.1:9', api_key: 'k' }, here: { type: 'e2b', api_url: 'embedded' }, docker: { type: 'docker', socket: '/nowhere' }, daytona: { type: 'daytona', api_url: 'http://127.0.0.1:9', api_key: 'k' }, web: { type: 'browserbase', api_url: 'http://127.0.0.1:9', api_key: 'k' }, plain: { type: 'process', socket: '/nowhere' } },
    })
    try {
      const { providers } = await far.ok(200, 'GET', '/providers?check=true')
      const named = Object.fromEntries(providers.map((provider) => [provider.name, provider]))
      const what = ({ software, isolation, isolated_by }) => [software, isolation, isolated_by]
      assert.deepEqual(what(named.far), ['quicksand', 'process', 'namespaces'])
      assert.deepEqual(what(named.cloud), ['e2b', 'strong', 'microvm'])
      assert.deepEqual(what(named.other), ['unknown', 'unknown', 'unknown'])
      const { scale, cost } = named.far.capabilities
      const matrix = Object.fromEntries(Object.entries(named).map(([name, { capabilities }]) => [name, Object.keys(capabilities).filter((word) => capabilities[word] === true).join(' ')]))
      const e2b = 'code terminal files gui visual pause snapshot ports'
      assert.deepEqual(matrix, { far: e2b, cloud: e2b, other: e2b, here: e2b, docker: 'code terminal files pause snapshot ports', daytona: 'code files pause snapshot ports', web: 'browser visual', plain: 'code terminal files ports' })
      assert.deepEqual(scale, { runs_on: 'another host', max_sandboxes: 7 })
      assert.deepEqual(cost, { usd_per_second: 0.5, usd_per_cpu_second: null })
      const here = (await one.ok(200, 'GET', '/providers/e2b')).capabilities
      assert.deepEqual(here.scale, { runs_on: 'this host', max_sandboxes: null })
    } finally {
      await one.clear()
      await one.server.killAll()
      await one.server.stop()
      await far.destroy()
      await one.server.start()
    }
  })

  test('an agent’s type gets what it needs, or the server does not start', async () => {
    await one.clear()
    await one.server.stop()
    const execution = (capabilities) => ({ execution: { e2b: { template: 'base' }, agentOverrides: { 'ci-fix': { backend: 'e2b', capabilities } } } })
    const fine = await startRuntime(execution(['code', 'files']))
    assert.equal((await fine.create({ agentType: 'ci-fix' })).template, 'base')
    await fine.destroy()
    await assert.rejects(startRuntime(execution(['code', 'browser'])), /agentOverrides\.ci-fix\.capabilities: provider 'e2b' does not have 'browser'/)
    await one.server.start()
  })
})

describe('the MCP gateway of a profile', () => {
  const url = () => `${one.server.url}/mcp`
  const token = async (id) => (await one.execute(id, 'cat /etc/mcp-gateway/.token', { user: 'root' })).stdout
  const open = async (id) => (await connect(url(), 'sdk', { headers: { Authorization: `Bearer ${await token(id)}`, 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '50005' } })).client
  const hello = async (id) => {
    const client = await open(id)
    const result = await client.callTool({ name: 'hello', arguments: {} })
    await client.close()
    return result.content[0].text
  }
  const put = (mcp, more = {}) => one.ok(200, 'PUT', '/profiles/tools', { network: { mode: 'allow-all' }, mcp, ...more })

  test('runs in any template, before the sandbox is there, and comes again with it', async () => {
    await put({ 'npm/tiny': { runCmd: tinyServer, envs: { WHO: 'you' } }, own: { command: 'not-for-the-gateway' } })
    const box = await one.create({ profile: 'tools', key: 'gateway', persistent: true })
    assert.equal(await hello(box.id), 'hello you')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`, {})
    assert.equal((await one.create({ profile: 'tools', key: 'gateway', persistent: true })).id, box.id)
    assert.equal(await hello(box.id), 'hello you', 'resumed')
    const before = await token(box.id)
    await one.execute(box.id, 'pkill -x mcp-gateway', { user: 'root' })
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`, {})
    await one.ok(200, 'POST', `/sandboxes/${box.id}/resume`, {})
    assert.equal(await hello(box.id), 'hello you', 'one that was gone is started')
    assert.equal(await token(box.id), before)
    await one.remove(box.id)
  })

  test('a server that does not work: no sandbox is left', async () => {
    await put({ 'npm/dead': { runCmd: 'exit 3' } })
    refused(await one.v1('POST', '/sandboxes', { profile: 'tools' }), 409, 'conflict', /the MCP gateway of the sandbox: .*'npm\/dead' does not work/)
    await put({ 'npm/$(id)': {} })
    refused(await one.v1('POST', '/sandboxes', { profile: 'tools' }), 409, 'conflict', /must be npm\/PACKAGE/)
    assert.deepEqual((await one.ok(200, 'GET', '/sandboxes?state=running')).sandboxes, [])
  })

  test('enableMcp alone starts it; switched off nothing runs', async () => {
    await put(null, { options: { enableMcp: true } })
    const box = await one.create({ profile: 'tools' })
    const client = await open(box.id)
    assert.deepEqual((await client.listTools()).tools, [])
    await client.close()
    await put({ 'npm/dead': { runCmd: 'exit 3' } }, { options: { enableMcp: false } })
    const off = await one.create({ profile: 'tools' })
    assert.equal((await one.execute(off.id, 'pgrep -c mcp-gateway')).stdout, '0\n')
    for (const { id } of [box, off]) await one.remove(id)
    await one.ok(204, 'DELETE', '/profiles/tools')
  })
})
