// Ids of other teams: every endpoint of the three APIs that takes one answers as it does for an id that does not exist. The
// endpoints come from the tables in the sources, so that a new one is tried without being added here.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { patience, repository, startServer } from '../harness/server.mjs'

const tables = [
  ['src/edge/api_e2b/api_endpoints.c', ''],
  ['src/edge/api_runtime/v1_endpoints.c', '/api/v1'],
  ['src/extra/browser/bb_endpoints.c', ''],
  ['src/extra/browser/extra.c', '/api/v1'],
  ['src/extra/desktop/extra.c', '/api/v1'],
  ['src/extra/interpreter/extra.c', '/api/v1'],
]
const endpoints = tables.flatMap(([file, prefix]) =>
  [...fs.readFileSync(path.join(repository, file), 'utf8').matchAll(/"(GET|POST|PUT|PATCH|DELETE)", "(\/[^"]*\{[^"]*)"(.*)/g)].map(([, method, pattern, rest]) => ({ method, pattern: prefix + pattern, rest })),
)

let server, mine, theirs

// What belongs to a team, by what a path calls it.
async function furnish(team) {
  const api = async (method, target, body) => {
    const answer = await server.api(method, target, body, { key: team.key })
    assert.ok(answer.status < 300, `${method} ${target}: ${answer.status} ${answer.text}`)
    return answer.body
  }
  const call = (method, target, body) => api(method, `/api/v1${target}`, body)
  const box = await api('POST', '/sandboxes', { templateID: 'base', timeout: 600 * patience })
  const asked = await api('POST', '/v3/templates', { name: `${team.name}-template` })
  const webhook = await api('POST', '/events/webhooks', { name: 'w', url: 'http://203.0.113.1/hook', events: ['sandbox.lifecycle.created'], signatureSecret: crypto.randomBytes(20).toString('hex') })
  const sandbox = await call('POST', '/sandboxes', {})
  const done = await call('POST', `/sandboxes/${sandbox.id}/execute`, { command: 'true', keep_output: true })
  const job = await call('POST', `/sandboxes/${sandbox.id}/execute`, { command: 'sleep 1000', background: true })
  const snapshot = await call('POST', `/sandboxes/${sandbox.id}/snapshots`, {})
  const session = await call('POST', '/sessions', { agent: 'mock', wait: true })
  await api('PUT', `/registries/${team.name}.example.com`, { username: 'u', password: 'p' })
  await call('PUT', `/profiles/${team.name}-profile`, {})
  Object.assign(team, {
    'sandboxes/{id}': box.sandboxID,
    'events/sandboxes/{id}': box.sandboxID,
    'events/webhooks/{id}': webhook.id,
    'templates/{id}': asked.templateID,
    'templates/aliases/{alias}': `${team.name}-template`,
    'builds/{build}': asked.buildID,
    'registries/{host}': `${team.name}.example.com`,
    'api-keys/{id}': (await api('POST', '/api-keys', { name: 'another' })).id,
    'access-tokens/{id}': (await api('POST', '/access-tokens', { name: 'token' })).id,
    'teams/{id}': team.teamID,
    'volumes/{id}': (await api('POST', '/volumes', { name: `${team.name}-volume` })).volumeID,
    'secrets/{id}': (await api('POST', '/secrets', { name: `${team.name}-secret`, value: 'v', hosts: ['example.com'] })).secretID,
    'api/v1/sandboxes/{id}': sandbox.id,
    'executions/{execution}': done.process_id,
    'processes/{process}': job.id,
    'api/v1/snapshots/{id}': snapshot.id,
    'api/v1/sessions/{id}': session.id,
    'profiles/{name}': `${team.name}-profile`,
    'providers/{name}': `${team.name}-runner`,
    'v1/projects/{id}': team.teamID,
    'v1/sessions/{id}': box.sandboxID,
    'v1/connect/{id}': box.sandboxID,
    'v1/contexts/{id}': (await api('POST', '/v1/contexts', {})).id,
    'v1/extensions/{id}': crypto.randomUUID(),
    'uploads/{hash}': crypto.randomBytes(32).toString('hex'),
    'files/{hash}': crypto.randomBytes(32).toString('hex'),
    'ports/{port}': '8080',
    'desktop/{act}': 'click',
    'browser/{act}': 'text',
  })
}

// Another id of the same shape.
const turned = (text) =>
  text.replace(/[0-9a-z]/g, (c, at) => (at < text.length - 8 ? c : c < 'a' ? String((Number(c) + 1) % 10) : c <= 'f' ? 'bcdefa'['abcdef'.indexOf(c)] : String.fromCharCode(c === 'z' ? 103 : c.charCodeAt(0) + 1)))

const parts = (pattern) => [...pattern.matchAll(/\{\w+\}/g)].map(({ index, 0: name }) => pattern.slice(1, index) + name)
const idOf = (team, part) => {
  const found = Object.keys(team).filter((key) => part === key || part.endsWith(`/${key}`)).sort((a, b) => b.length - a.length)[0]
  assert.ok(found, `'${part}' is not among the things of a team: add one to furnish()`)
  assert.equal(typeof team[found], 'string', `${found} of ${team.name}`)
  return team[found]
}
const fill = (pattern, ids) => ids.reduce((filled, id) => filled.replace(/\{\w+\}/, encodeURIComponent(id)), pattern)

// Requests that get as far as the id; the rest is tried with the body {} only.
const wanted = {
  'POST /sandboxes/{id}/timeout': { timeout: 60 },
  'POST /sandboxes/{id}/connect': { timeout: 60 },
  'PATCH /events/webhooks/{id}': { enabled: false },
  'PUT /sandboxes/{id}/network': { allowOut: ['203.0.113.1'] },
  'PATCH /templates/{id}': { public: true },
  'PATCH /v2/templates/{id}': { public: true },
  'POST /templates/{id}/builds/{build}': { fromTemplate: 'base' },
  'POST /v2/templates/{id}/builds/{build}': { fromTemplate: 'base' },
  'PATCH /api-keys/{id}': { name: 'renamed' },
  'POST /secrets/{id}': { value: 'changed' },
  'POST /api/v1/sandboxes/{id}/execute': { command: 'touch /tmp/foreign' },
  'POST /api/v1/sandboxes/{id}/code': { code: '1' },
  'POST /api/v1/sandboxes/{id}/processes/{process}/input': { data: 'x' },
  'POST /api/v1/sandboxes/{id}/processes/{process}/signal': { signal: 9 },
  'POST /api/v1/sandboxes/{id}/desktop/{act}': { x: 1, y: 1 },
  'POST /api/v1/sandboxes/{id}/keys': { name: 'k' },
  'POST /api/v1/sessions/{id}/messages': { message: 'hello' },
  'POST /api/v1/sessions/{id}/approve': { request_id: 'r' },
}
const queries = { '/api/v1/sandboxes/{id}/files': '?path=/etc/hostname' }

// Endpoints whose answer to either id is another one than 404, and why.
const statuses = {
  'PUT /templates/uploads/{hash}': [403, 'needs a signed link'],
  'GET /v1/connect/{id}': [403, 'needs a signed link'],
  'PATCH /admin/teams/{id}': [403, 'for the operator only'],
  'POST /admin/teams/{id}/api-keys': [403, 'for the operator only'],
  'GET /teams/{id}/metrics': [403, "E2B's answer for any team but the key's"],
  'GET /teams/{id}/metrics/max': [403, "E2B's answer for any team but the key's"],
  'POST /templates/{id}': [501, 'a way of building that is not there'],
}
// Endpoints that would make a thing of that name for the team that asks.
const makers = ['PUT /registries/{host}', 'PUT /api/v1/profiles/{name}']

function ask({ method, rest }, target, key, content) {
  const body = method === 'GET' || method === 'DELETE' ? undefined : JSON.stringify(content ?? {})
  const upgrade = /V1_UPGRADE|bb_connect/.test(rest) ? { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' } : {}
  return new Promise((done, fail) => {
    const request = http.request({ host: server.host, port: server.port, method, path: target, agent: false, headers: { 'X-API-Key': key, 'Content-Type': 'application/json', ...upgrade } })
    request.setTimeout(30_000 * patience, () => request.destroy(new Error(`${method} ${target}: no answer`)))
    request.on('error', fail)
    request.on('upgrade', (response, socket) => (socket.destroy(), done({ status: 101, text: '' })))
    request.on('response', (response) => {
      let text = ''
      if (response.statusCode < 300 && /event-stream/.test(response.headers['content-type'])) return request.destroy(), done({ status: 200, text: 'a stream' })
      response.on('data', (chunk) => (text += chunk))
      response.on('end', () => done({ status: response.statusCode, text }))
    })
    request.end(body)
  })
}

before(async () => {
  server = await startServer({ args: ['--warm', '0'] })
  const made = async (name) => {
    const { teamID } = (await server.api('POST', '/admin/teams', { name })).body
    const { key } = (await server.api('POST', `/admin/teams/${teamID}/api-keys`, { name })).body
    const team = { name, teamID, key }
    await furnish(team)
    return team
  }
  mine = await made('one')
  theirs = await made('two')
})
after(async () => {
  for (const { key } of [mine, theirs]) for (const { sandboxID } of (await server.api('GET', '/sandboxes', undefined, { key })).body) await server.api('DELETE', `/sandboxes/${sandboxID}`, undefined, { key })
  await server?.destroy()
})

// Asks with foreign ids and with missing ones; the answers must be the same, with the ids taken out.
async function compareWith(endpoint, foreign, missing, content) {
  const name = `${endpoint.method} ${endpoint.pattern}`
  const answers = []
  for (const ids of [foreign, missing]) {
    const answer = await ask(endpoint, fill(endpoint.pattern, ids) + (queries[endpoint.pattern] ?? ''), mine.key, content)
    const text = ids.reduce((rest, id) => rest.replaceAll(id, 'ID'), answer.text.replace(/"request_id":"\w+"/, ''))
    answers.push({ status: answer.status, text })
  }
  const [a, b] = answers
  if (a.status !== b.status || a.text !== b.text) return [`${name}: foreign ${a.status} ${a.text}, missing ${b.status} ${b.text}`]
  const unsupported = a.status === 501 && endpoint.pattern.startsWith('/v1/')
  const refused = !content && wanted[name] && a.status === 400
  return a.status === (statuses[name]?.[0] ?? 404) || unsupported || refused ? [] : [`${name}: ${a.status} ${a.text}`]
}
async function compare(endpoint, foreign, missing) {
  const name = `${endpoint.method} ${endpoint.pattern}`
  if (makers.includes(name)) return []
  const faults = await compareWith(endpoint, foreign, missing)
  return wanted[name] ? [...faults, ...(await compareWith(endpoint, foreign, missing, wanted[name]))] : faults
}
// Words that are not ids stay as they are.
const absent = (pattern, ids) => parts(pattern).map((part, i) => (/\{(act|port)\}/.test(part) ? ids[i] : turned(ids[i])))

test('every endpoint answers 404 alike for a foreign and for a missing id', { timeout: 600_000 * patience }, async () => {
  assert.ok(endpoints.length > 100, `${endpoints.length} endpoints were found`)
  const faults = []
  for (const endpoint of endpoints) {
    const ids = parts(endpoint.pattern).map((part) => idOf(theirs, part))
    faults.push(...(await compare(endpoint, ids, absent(endpoint.pattern, ids))))
  }
  assert.deepEqual(faults, [])
})

test('a foreign part of an own thing is missing as well', { timeout: 600_000 * patience }, async () => {
  const faults = []
  for (const endpoint of endpoints) {
    const [first, second] = parts(endpoint.pattern)
    if (!second || /\{(port|act|hash)\}/.test(second)) continue
    const own = idOf(mine, first), foreign = idOf(theirs, second)
    faults.push(...(await compare(endpoint, [own, foreign], [own, turned(foreign)])))
  }
  assert.deepEqual(faults, [])
})

// Ids in bodies and queries: what is sent with an id, and which kind it is of.
const elsewhere = [
  ['POST', '/sandboxes', 'templates/{id}', (id) => ({ templateID: id })],
  ['POST', '/sandboxes', 'api/v1/snapshots/{id}', (id) => ({ templateID: id })],
  ['POST', '/sandboxes', 'volumes/{id}', (id) => ({ templateID: 'base', volumeMounts: [{ name: id, path: '/mnt' }] })],
  ['POST', '/templates/tags', 'templates/{id}', (id) => ({ target: `${id}:new`, tags: ['new'] })],
  ['DELETE', '/templates/tags', 'templates/aliases/{alias}', (id) => ({ name: id, tags: ['default'] })],
  ['GET', '/sandboxes/metrics?sandbox_ids=', 'sandboxes/{id}'],
  ['POST', '/api/v1/sandboxes', 'templates/{id}', (id) => ({ template: id })],
  ['POST', '/api/v1/sandboxes', 'api/v1/snapshots/{id}', (id) => ({ snapshot: id })],
  ['POST', '/api/v1/sandboxes', 'profiles/{name}', (id) => ({ profile: id })],
  ['POST', '/api/v1/sessions', 'api/v1/sandboxes/{id}', (id) => ({ agent: 'mock', sandbox_id: id })],
  ['GET', '/api/v1/events?since=0&limit=10&sandbox_id=', 'api/v1/sandboxes/{id}'],
  ['GET', '/api/v1/events?since=0&limit=10&session_id=', 'api/v1/sessions/{id}'],
  ['GET', '/api/v1/snapshots?sandbox_id=', 'api/v1/sandboxes/{id}'],
  ['POST', '/v1/sessions', 'v1/contexts/{id}', (id) => ({ browserSettings: { context: { id } } })],
]

test('ids in bodies and queries are missing as well', { timeout: 300_000 * patience }, async () => {
  const faults = []
  for (const [method, target, part, body] of elsewhere) {
    const foreign = idOf(theirs, part)
    const answers = []
    for (const id of [foreign, turned(foreign)]) {
      const answer = await server.api(method, body ? target : target + id, body?.(id), { key: mine.key, headers: body ? { 'Content-Length': JSON.stringify(body(id)).length } : {} })
      answers.push(`${answer.status} ${answer.text.replaceAll(id, 'ID').replace(/"request_id":"\w+"/, '')}`)
    }
    answers.forEach((answer) => assert.doesNotMatch(answer, /invalid JSON|unknown member/))
    const refused = /^4/.test(answers[0]) || (!body && /^200/.test(answers[0]))
    if (answers[0] !== answers[1] || !refused) faults.push(`${method} ${target} ${part}: foreign ${answers[0].slice(0, 200)}, missing ${answers[1].slice(0, 200)}`)
  }
  assert.deepEqual(faults, [])
})

test('nothing of the other team was changed', async () => {
  for (const endpoint of endpoints) {
    const found = parts(endpoint.pattern)
    if (endpoint.method !== 'GET' || found.length > 1 || !endpoint.pattern.endsWith('}') || /uploads|connect|extensions|v1\/sessions|providers/.test(endpoint.pattern)) continue
    const target = fill(endpoint.pattern, found.map((part) => idOf(theirs, part)))
    const answer = await ask(endpoint, target, theirs.key)
    assert.equal(answer.status, 200, `${endpoint.method} ${target}: ${answer.status} ${answer.text}`)
  }
})
