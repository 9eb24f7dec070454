// The agent runtime under attack: another team, a stranger's page, a hostile agent in a sandbox, plain processes that
// look around on the host. What must be refused is refused, and what is refused tells nothing.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, patience, repository } from '../harness/server.mjs'
import { startRuntime } from '../harness/runtime.mjs'
import { openEvents } from '../harness/sse.mjs'

const WebSocket = createRequire(path.join(repository, 'build/npm/web/'))('ws')
const hostile = fs.readFileSync(path.join(repository, 'tests/fixtures/hostile-agent.py'), 'utf8')
const MODEL_KEY = 'sk-operators-own-0123456789abcdef'
const PROVIDER_KEY = 'dtn_operators_provider_key_0123456789'

let one, other // other: the options of requests by another team
before(async () => {
  // A provider that repeats the key it refuses.
  const provider = http.createServer((request, response) => {
    response.writeHead(403, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ message: `key ${request.headers.authorization} is disabled ${'.'.repeat(60)} ${request.headers.authorization}` })) // the second one is cut off
  })
  await new Promise((done) => provider.listen(0, '127.0.0.1', done))
  const api_url = `http://127.0.0.1:${provider.address().port}`
  one = await startRuntime(
    { providers: { e2b: { type: 'e2b', api_url: 'embedded' }, daytona: { type: 'daytona', api_url, toolbox_url: api_url, api_key: PROVIDER_KEY } } },
    { args: ['--process-provider', '1'], env: { OPENAI_API_KEY: MODEL_KEY } },
  )
  one.provider = provider
  other = { key: await newTeam('others') }
})
after(async () => {
  one.provider.close()
  for (const { id } of (await one.ok(200, 'GET', '/sandboxes?limit=1000', undefined, other)).sandboxes) await one.v1('DELETE', `/sandboxes/${id}`, undefined, other)
  await one.destroy()
})
afterEach(() => assert.ok(one.server.alive(), one.server.tail()))

async function newTeam(name) {
  const admin = async (target, body) => (await one.server.api('POST', target, body)).body
  const { teamID } = await admin('/admin/teams', { name })
  return (await admin(`/admin/teams/${teamID}/api-keys`, { name: 'k' })).key
}

// The status of an upgrade, or 101.
function upgrade(target, headers = {}, protocols = []) {
  return new Promise((done) => {
    const socket = new WebSocket(`ws://${one.server.listen}/api/v1${target}`, protocols, { headers })
    socket.on('open', () => (socket.close(), done(101)))
    socket.on('unexpected-response', (_, response) => done(response.statusCode))
    socket.on('error', () => {})
  })
}

async function putAgent(id) {
  const put = await one.v1('PUT', `/sandboxes/${id}/files?path=.local/bin/sandbox-agent`, hostile, { headers: { 'content-type': 'application/octet-stream' } })
  assert.ok(put.status < 300, put.text)
  await one.execute(id, 'chmod +x ~/.local/bin/sandbox-agent')
}

describe('another team', () => {
  let box, job, kept, snapshot, session, ids
  before(async () => {
    box = await one.create({ key: 'ours/key', agent_id: 'mine' })
    job = await one.start(box.id, 'echo our-output; sleep 600', { stdin: true })
    kept = await one.execute(box.id, 'echo our-output', { keep_output: true })
    snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, { alias: 'github/our/alias#main' })
    session = await one.ok(201, 'POST', '/sessions', { agent: 'mock', sandbox_id: box.id })
    await one.ok(200, 'PUT', '/profiles/ours', { provider: 'e2b', network: { mode: 'allow-all' } })
    await one.ok(201, 'POST', '/providers', { name: 'our-runner', base_url: 'http://127.0.0.1:1', token: 'our-runner-token' })
    ids = [box.id, box.external_id, job.id, snapshot.id, session.id, 'ours/key', 'github/our/alias', 'our-runner', 'our-output']
  })

  // Each route of the description, with every name that stands for something of ours.
  test('finds nothing behind any route', async () => {
    const api = (await one.v1('GET', '/openapi.json')).body
    const names = {
      sandboxes: [box.id, box.external_id, 'key:ours/key', 'key:ours%2fkey'],
      snapshots: [snapshot.id, 'github/our/alias#main'],
      sessions: [session.id],
      profiles: ['ours'],
      providers: ['our-runner'],
    }
    const bodies = {
      execute: { command: 'id' }, input: { data: 'x' }, signal: { signal: 9 }, messages: { message: 'x' }, approve: { request_id: '1' },
      push: { branch: 'x' }, heartbeat: { active_sessions: 0 }, snapshots: {}, snapshot: {},
      code: { code: '1' },
    }
    let asked = 0
    for (const [pattern, methods] of Object.entries(api.paths)) {
      const route = pattern.replace(/^\/api\/v1/, '')
      const [, noun] = route.split('/')
      if (!route.includes('{')) continue
      for (const method of Object.keys(methods).map((name) => name.toUpperCase())) {
        if (route === '/profiles/{name}' && method === 'PUT') continue // makes its own
        for (const name of names[noun]) {
          for (const process of route.includes('{process}') ? [job.id] : ['']) {
            for (const sandbox of /\{(process|execution)\}/.test(route) ? [name, '-'] : [name]) {
              const target = route.replace(/\{(id|name)\}/, encodeURIComponent(sandbox)).replace('{process}', process).replace('{execution}', kept.process_id).replace('{port}', '80')
              const query = route.endsWith('/files') ? '?path=/etc/hostname' : ''
              if (/\/(terminal|live)$/.test(target)) {
                assert.equal(await upgrade(`${target}?cols=80&rows=24`, { 'X-API-KEY': other.key }), 404, target)
                asked++
                continue
              }
              const answer = await one.v1(method, target + query, method === 'POST' ? (bodies[route.split('/').at(-1)] ?? {}) : undefined, { ...other, timeoutMs: 10_000 })
              assert.equal(answer.status, 404, `${method} ${target}: ${answer.status} ${answer.text}`)
              for (const hidden of [box.external_id, 'our-output', 'mine']) assert.ok(!answer.text.includes(hidden) || target.includes(hidden), answer.text)
              asked++
            }
          }
        }
      }
    }
    assert.ok(asked > 60, `only ${asked} asked`)
    assert.equal((await one.process(job.id)).state, 'running')
    assert.equal((await one.get(box.id)).state, 'running')
  })

  test('sees nothing in lists, events and streams, wherever they begin', async () => {
    const lists = ['/sandboxes', '/sandboxes?agent_id=mine', '/sandboxes/-/processes', '/snapshots', '/sessions', '/profiles', '/providers', '/stats']
    for (const filter of ['', `&sandbox_id=${box.id}`, `&session_id=${session.id}`, `&process_id=${job.id}`, '&agent_id=mine', '&type=sandbox.']) lists.push(`/events?since=0&limit=1000${filter}`)
    for (const target of lists) {
      const { text } = await one.v1('GET', target, undefined, other)
      for (const hidden of ids) assert.ok(!text.includes(hidden), `${target}: ${hidden}`)
    }
    const streams = await Promise.all([
      openEvents(one.server, '/api/v1/events?since=0', other),
      openEvents(one.server, `/api/v1/events?sandbox_id=${box.id}`, { ...other, headers: { 'Last-Event-ID': '1' } }),
      openEvents(one.server, '/api/v1/sse', other),
    ])
    await one.execute(box.id, 'echo our-output')
    await sleep(500) // none of it comes
    for (const stream of streams) {
      assert.ok(!stream.events.some((event) => ids.some((id) => event.data.includes(id))), JSON.stringify(stream.events))
      stream.close()
    }
    assert.equal((await one.v1('POST', '/prune', { older_than: 1 }, other)).body.sandboxes, 0)
    assert.equal((await one.v1('POST', '/sessions', { agent: 'mock', sandbox_id: box.id }, other)).status, 404)
    assert.equal((await one.v1('POST', '/sandboxes', { provider: 'our-runner' }, other)).status, 400)
  })

  test('cannot take our words out of our events', async () => {
    const theirs = await one.create({}, other)
    for (const token of ['"sandbox":', ',"type":', 'process.started', '":true,"'])
      await one.ok(202, 'POST', `/sandboxes/${theirs.id}/execute`, { command: 'true', background: true, callback: { url: 'http://203.0.113.1:9/', token } }, other)
    await one.execute(box.id, 'true')
    const events = await one.events({ sandbox_id: box.id }) // parsed: still JSON
    assert.equal(events.at(-2).type, 'process.started')
    assert.equal(events.at(-2).sandbox, box.id)
    assert.doesNotMatch(JSON.stringify(events), /\*\*\*/)
    await one.v1('DELETE', `/sandboxes/${theirs.id}`, undefined, other)
  })

  test('reaches nothing of ours by the URLs it gives', async (t) => {
    const hits = []
    const inside = http.createServer((request, response) => (hits.push(request.url), response.end('{}')))
    t.after(() => inside.close())
    await new Promise((done) => inside.listen(0, '::', done))
    const { port } = inside.address()
    // Public addresses that the host has: its first, another on that link, a range that is delivered here, IPv6.
    const own = ['address', '198.51.100.3/24 dev up0'], range = ['route', 'local 198.51.100.64/28 dev lo'], six = ['address', '2001:db8::5/128 dev lo']
    const ip = (verb, [what, words]) => execFileSync('ip', [what, verb, ...words.split(' ')])
    for (const one of [own, range, six]) {
      ip('add', one)
      t.after(() => ip('del', one))
    }
    const theirs = await one.create({}, other)
    const hosts = [`127.0.0.1:${port}`, `localhost:${port}`, `2130706433:${port}`, `[::ffff:127.0.0.1]:${port}`, `0:${port}`]
    for (const host of ['198.51.100.2', '198.51.100.3', '198.51.100.70', '[2001:db8::5]', '[::ffff:198.51.100.2]']) {
      assert.equal((await fetch(`http://${host}:${port}/`)).status, 200, `${host} is here`)
      hosts.push(`${host}:${port}`)
    }
    hits.length = 0
    for (const host of hosts) await one.ok(202, 'POST', `/sandboxes/${theirs.id}/execute`, { command: 'true', background: true, callback: { url: `http://${host}/callback` } }, other)
    for (const [i, host] of hosts.entries()) {
      assert.equal((await one.v1('POST', '/providers', { name: `r${i}`, base_url: `http://${host}/latest/meta-data` }, other)).status, 201)
      const made = await one.v1('POST', '/sandboxes', { provider: `r${i}` }, other)
      assert.ok(made.status >= 400, made.text)
    }
    for (const base_url of [`http://127.0.0.1:${port}/x?`, `http://127.0.0.1:${port}/#`, `http://a@127.0.0.1:${port}`, 'file:///etc/passwd', 'gopher://x/'])
      assert.equal((await one.v1('POST', '/providers', { name: 'bad', base_url }, other)).status, 400, base_url)
    await eventually('all were tried', async () => {
      const { events } = (await one.v1('GET', '/events?since=0&limit=1000&type=job.delivery_failed', undefined, other)).body
      return events.filter((event) => /not a public address|is not a host/.test(event.data.message)).length >= hosts.length
    })
    assert.deepEqual(hits, [])
    // The operator's own may.
    await one.ok(202, 'POST', `/sandboxes/${box.id}/execute`, { command: 'true', background: true, callback: { url: `http://127.0.0.1:${port}/mine` } })
    await eventually('ours came', () => hits.includes('/mine'))
    await one.v1('DELETE', `/sandboxes/${theirs.id}`, undefined, other)
  })

  test('gets neither the key of a provider nor that of a model', async () => {
    const refused = await one.v1('POST', '/sandboxes', { provider: 'daytona', network: { mode: 'allow-all' } }, other)
    assert.equal(refused.status, 502, refused.text)
    assert.match(refused.text, /\*\*\*/)
    const told = [refused.text, JSON.stringify((await one.v1('GET', '/providers?check=true', undefined, other)).body), JSON.stringify((await one.v1('GET', '/events?since=0&limit=1000', undefined, other)).body)]
    for (const line of [...told, ...one.server.log.split('\n')]) assert.ok(!line.includes(PROVIDER_KEY.slice(0, 12)), line)
    const env = async (options) => {
      const made = await one.ok(201, 'POST', '/sessions', { agent: 'mock' }, options)
      const { sandbox_id } = await eventually('its sandbox', async () => (await one.ok(200, 'GET', `/sessions/${made.id}`, undefined, options)).sandbox_id && one.ok(200, 'GET', `/sessions/${made.id}`, undefined, options))
      const { stdout } = await one.ok(200, 'POST', `/sandboxes/${sandbox_id}/execute`, { command: 'env' }, options)
      await one.v1('DELETE', `/sessions/${made.id}`, undefined, options)
      return stdout
    }
    assert.doesNotMatch(await env(other), /OPENAI|sk-operators/)
    assert.match(await env({}), /OPENAI_API_KEY=sk-operators/)
  })

  test('what it may add has an end', async () => {
    const status = async (method, target, body) => (await one.v1(method, target, body, other)).status
    assert.equal(await status('POST', '/sessions', { agent: 'mock', env: { A: 'x'.repeat(200_000) } }), 413)
    assert.equal(await status('POST', '/sessions', { agent: 'mock', task_id: 'x'.repeat(1000) }), 400)
    assert.equal(await status('PUT', '/profiles/big', { provider: 'e2b', network: { mode: 'allow-all' }, mcp: { a: { command: 'x'.repeat(100_000) } } }), 413)
    assert.equal(await status('POST', '/sandboxes', { metadata: Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`m${i}`, 'x'])) }), 400)
    assert.equal(await status('GET', `/sandboxes?agent_id=${'x'.repeat(1000)}`), 400)
    assert.equal(await status('GET', '/sandboxes?agent_id=%00'), 400)
    assert.equal(await status('GET', '/sandboxes?agent_id=%ff'), 400)
  })
})

describe('a stranger', () => {
  test('has no way in without a key, and a browser carries none for him', async () => {
    const box = await one.create()
    for (const headers of [{}, { Origin: 'https://evil.example' }, { Origin: one.server.url, Cookie: `key=${one.server.key}` }, { Authorization: `Basic ${btoa(`x:${one.server.key}`)}` }])
      assert.equal(await upgrade(`/sandboxes/${box.id}/terminal`, headers), 401, JSON.stringify(headers))
    assert.equal(await upgrade(`/sandboxes/${box.id}/terminal?access_token=wrong`), 401)
    assert.equal(await upgrade(`/sandboxes/${box.id}/terminal`, {}, ['quicksand', 'key.AAAA']), 401)
    for (const target of ['/sandboxes', '/events', '/health', '/openapi.json']) {
      const answer = await one.v1('GET', target, undefined, { key: null, headers: { Origin: 'https://evil.example' } })
      assert.equal(answer.headers['access-control-allow-credentials'], undefined)
      assert.equal(answer.headers['set-cookie'], undefined)
    }
    await one.remove(box.id)
  })

  test('keys are in no log, and nobody writes lines of it', async () => {
    const lines = () => one.server.log.split(' v1: request=').length
    const before = lines()
    await one.server.request({ path: `/api/v1/sandboxes?access_token=${one.server.key}` })
    await one.server.request({ path: `/api/v1/sandboxes?api_key=${other.key}&agent_id=a` })
    await one.v1('POST', '/sandboxes/none/execute', { command: 'x', agent_id: 'a\n2026-01-01T00:00:00.000Z error forged: line\u001b[2J' })
    await one.v1('GET', '/sandboxes/x%0aforged%1b%5b2J')
    await eventually('each has its line', () => lines() >= before + 4 && one.server.log.includes('x%0aforged'))
    assert.doesNotMatch(one.server.log, /^2026-01-01T00:00:00.000Z error forged/m)
    assert.ok(!one.server.log.includes('\u001b'))
    for (const secret of [one.server.key, other.key, 'our-runner-token', MODEL_KEY]) assert.ok(!one.server.log.includes(secret), 'a secret is in the log')
    assert.ok(!JSON.stringify((await one.server.api('GET', '/audit?limit=100')).body).includes(other.key))
  })

  test('JSON of any depth and size is refused in time', async () => {
    const bad = ['['.repeat(100_000), `{"a":${'['.repeat(5000)}${']'.repeat(5000)}}`, '{"a":1,"a":2}', '{"key":"\\u0000"}', '{"timeout":1e999}', '"text"', '[]', '\xff\xfe']
    for (const body of bad) {
      const began = Date.now()
      assert.equal((await one.v1('POST', '/sandboxes', body)).status, 400, body.slice(0, 30))
      assert.ok(Date.now() - began < 2000 * patience)
    }
    assert.equal((await one.v1('POST', '/sandboxes', `{"a":"${'x'.repeat(1_100_000)}"}`)).status, 413)
    for (const query of ['cols=0', 'cols=99999', 'rows=-1', 'cols=1e3', 'cols=9223372036854775808']) {
      const box = (await one.v1('GET', '/sandboxes')).body.sandboxes[0]
      assert.equal(await upgrade(`/sandboxes/${box.id}/terminal?${query}`, { 'X-API-KEY': one.server.key }), 400, query)
    }
  })
})

describe('a hostile agent', () => {
  let box
  const execute = (command) => one.execute(box.id, command)
  before(async () => {
    box = await one.create({ persistent: true })
    await putAgent(box.id)
  })

  async function begin(mode) {
    await execute(`pkill -f [s]andbox-agent; echo ${mode} >~/mode`)
    return (await one.ok(201, 'POST', '/sessions', { agent: 'mock', sandbox_id: box.id, wait: true })).id
  }
  const get = (id) => one.ok(200, 'GET', `/sessions/${id}`)
  const events = async (id) => (await one.ok(200, 'GET', `/sessions/${id}/events?since=0&limit=1000`)).events
  const files = () => fs.readdirSync(`/proc/${one.server.servingPid}/fd`).length
  const memory = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${one.server.servingPid}/status`, 'utf8'))[1])

  test('that breaks off each time is given up', async () => {
    const id = await begin('break')
    await eventually('it has failed', async () => (await get(id)).state === 'failed', 20_000, 200)
    const told = await events(id)
    assert.ok(told.filter((one) => one.type === 'agent.runtime').length <= 4, JSON.stringify(told.map((one) => one.type)))
    await one.v1('DELETE', `/sessions/${id}`)
  })

  test('that gives itself an endless name has none', async () => {
    const id = await begin('name')
    const session = await get(id)
    assert.equal(session.state, 'failed')
    assert.ok(JSON.stringify(session).length < 4000)
    await one.v1('DELETE', `/sessions/${id}`)
  })

  test('that asks and takes no answer holds few connections', async () => {
    const before = files()
    const id = await begin('ask')
    await sleep(3000) // of asking
    assert.ok(files() - before < 200, `${before} descriptors, then ${files()}`)
    await one.v1('DELETE', `/sessions/${id}`)
  })

  test('that floods is not listened to, and others do not notice', async () => {
    const before = memory()
    const id = await begin('flood')
    const began = Date.now()
    assert.equal((await one.execute(box.id, 'echo fine')).stdout, 'fine\n')
    assert.ok(Date.now() - began < 5000 * patience, `${Date.now() - began} ms`)
    await sleep(3000) // of flooding
    await one.ok(200, 'GET', '/stats')
    await eventually('a page of what it said', async () => (await one.v1('GET', `/sessions/${id}/events?since=0&limit=1000`)).body.events.length === 1000)
    let count = 0
    for (let since = 0, page; (page = (await one.v1('GET', `/sessions/${id}/events?since=${since}&limit=1000`)).body).events.length; since = page.next) count += page.events.length
    const seconds = (Date.now() - began) / 1000
    assert.ok(count < 5100 + 500 * (seconds + 5), `${count} events in ${seconds} s`)
    assert.ok(memory() - before < 150_000, `${before} kB, then ${memory()} kB`)
    await one.v1('DELETE', `/sessions/${id}`)
  })

  test('that speaks nonsense is not understood, and approves nothing by another name', async () => {
    const id = await begin('junk')
    const asked = await eventually('its question', async () => (await events(id)).find((one) => one.type === 'permission.requested'))
    assert.equal(asked.data.request_id, '7')
    await eventually('its second question is refused', async () => (await events(id)).find((one) => one.type === 'permission.denied' && one.data.tool.title === 'rm -rf'))
    const odd = (await events(id)).find((one) => one.type.startsWith('agent.session.update_'))
    assert.equal(odd?.type, 'agent.session.update_event__sandbox.killed')
    const stream = await openEvents(one.server, `/api/v1/sessions/${id}/stream`)
    await stream.find((event) => event.event === odd.type)
    assert.ok(!stream.events.some((event) => event.event === 'sandbox.killed'))
    stream.close()
    await one.ok(200, 'POST', `/sessions/${id}/approve`, { request_id: '7', allow: true })
    assert.equal((await one.v1('POST', `/sessions/${id}/approve`, { request_id: '7', allow: true })).status, 404, 'once is once')
    await one.v1('DELETE', `/sessions/${id}`)
  })
})

describe('a plain process', () => {
  test('reads and touches nothing of the server', async () => {
    const box = await one.create({ provider: 'local', network: { mode: 'allow-all' } })
    const { data, servingPid: pid } = one.server
    const run = async (command) => one.execute(box.id, command)
    assert.equal((await run('id -u')).stdout, '64738\n')
    for (const command of [
      `ls ${data}`, `ls ${data}/store`, `cat ${data}/store/quicksand.db`, `ls ${data}/pool`, `ls ${data}/layers`, `ls ${data}/run`, `touch ${data}/x`,
      `cat /proc/${pid}/environ`, `cat /proc/${pid}/maps`, `ls /proc/${pid}/fd`, `kill -0 ${pid}`, `kill -0 ${one.server.child.pid}`,
      `python3 -c 'import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect("${data}/run/process.sock")'`,
      'cat /etc/shadow', 'cat /root/.config/quicksand/credentials', 'sudo -n id', 'unshare -r id -u | grep -v 64738 && mount -t tmpfs x /mnt',
    ]) assert.notEqual((await run(command)).exit_code, 0, command)
    assert.doesNotMatch((await run('env')).stdout, /e2b_|sk-/)
    // Nor would it keep the pool alive after `down`.
    assert.match((await run('cat /proc/self/mountinfo')).stdout, / \/proc /)
    assert.ok(!(await run('cat /proc/self/mountinfo')).stdout.includes(` ${data}/pool `))
    // Its own envd has the same user, and yet neither its descriptors nor its memory are to be had; nor does it end.
    for (const command of [
      'ls -l /proc/1/fd', 'cat /proc/1/environ', 'cat /proc/1/maps', 'head -c1 /proc/1/mem', 'echo 1 >/proc/1/oom_score_adj',
      `python3 -c 'import ctypes, os, sys; sys.exit(ctypes.CDLL(None).syscall(438, os.pidfd_open(1), 0, 0) < 0)'`,
      `python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) < 0)'`,
    ]) assert.notEqual((await run(command)).exit_code, 0, command)
    await run('kill -KILL 1; kill -STOP 1; kill -KILL -1')
    assert.equal((await run('echo still here')).stdout, 'still here\n')
    // The envds of sandboxes, by sockets whose names it would have to guess.
    const engine = await one.create()
    const sockets = fs.readdirSync(`${data}/run`).filter((name) => name.endsWith('.sock'))
    assert.ok(sockets.length > 1, String(sockets))
    for (const name of sockets) {
      const { stdout } = await run(`python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); print(s.connect_ex("${data}/run/${name}"))'`)
      assert.equal(stdout, '13\n', name)
    }
    await one.remove(engine.id)
    // Devices, cgroups, settings of the kernel, other users' terminals.
    for (const command of ['cat /dev/loop* | head -c1 | grep -q ""', 'ls /sys/fs/cgroup/*/quicksand-* && mkdir $(ls -d /sys/fs/cgroup/*/quicksand-* | head -1)/x', 'echo 1 >/proc/sys/net/ipv4/ip_forward', 'chown 64737 .'])
      assert.notEqual((await run(command)).exit_code, 0, command)
    for (const target of [`${data}/store/quicksand.db`, '/etc/shadow', '../../../../../../etc/shadow', `/proc/${pid}/environ`])
      assert.ok((await one.v1('GET', `/sandboxes/${box.id}/files?path=${encodeURIComponent(target)}`)).status >= 400, target)
    await one.remove(box.id)
  })
  test('its agent listens for the server only', async () => {
    const box = await one.create({ provider: 'local', network: { mode: 'allow-all' } })
    await putAgent(box.id)
    await one.execute(box.id, 'echo break >~/mode')
    const { id } = await one.ok(201, 'POST', '/sessions', { agent: 'mock', sandbox_id: box.id, provider: 'local', network: { mode: 'allow-all' }, wait: true })
    assert.match((await one.execute(box.id, 'cat ~/words')).stdout, / --host 127\.0\.0\.1 --port \d{5} /)
    await one.v1('DELETE', `/sessions/${id}`)
    await one.remove(box.id)
  })
})
