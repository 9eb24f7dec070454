// A viewer's key reads, one for metrics reads those, and neither changes anything nor learns a secret. Tried on every endpoint that
// there is: the tables of the source are the list, so that one that is added is tried as well.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { repository } from '../harness/server.mjs'
import { startRuntime } from '../harness/runtime.mjs'

const tables = [
  ['src/edge/api_e2b/api_endpoints.c', '', /^ *(\w+)\("([A-Z]+)", "([^"]+)"/gm],
  ['src/edge/api_runtime/v1_endpoints.c', '/api/v1', /^ *(\{)\{"([A-Z]+)", "([^"]+)"/gm],
  ['src/extra/browser/bb_endpoints.c', '', /^ *(\{)\{"([A-Z]+)", "([^"]+)"/gm],
  ['src/extra/browser/extra.c', '/api/v1', /^ *(\{)\{"([A-Z]+)", "([^"]+)"/gm],
  ['src/extra/desktop/extra.c', '/api/v1', /^ *(\{)\{"([A-Z]+)", "([^"]+)"/gm],
  ['src/extra/interpreter/extra.c', '/api/v1', /^ *(\{)\{"([A-Z]+)", "([^"]+)"/gm],
]
const endpoints = tables.flatMap(([file, prefix, row]) =>
  [...fs.readFileSync(path.join(repository, file), 'utf8').matchAll(row)].map(([, kind, method, target]) => ({ kind, method, target: prefix + target })))

let one, box, job, ids, viewer, meter, secrets
before(async () => {
  one = await startRuntime()
  const api = async (...args) => {
    const answer = await one.server.api(...args)
    assert.ok(answer.status < 300, `${args}: ${answer.status} ${answer.text}`)
    return answer.body
  }
  viewer = { key: (await api('POST', '/api-keys', { name: 'looks', role: 'viewer' })).key }
  meter = { key: (await api('POST', '/api-keys', { name: 'measures', role: 'metrics' })).key }
  box = await one.create({ key: 'seen' })
  job = await one.start(box.id, 'sleep 1000')
  const { envdAccessToken } = await api('POST', `/sandboxes/${box.external_id}/connect`, { timeout: 300 })
  const guarded = await api('POST', '/sandboxes', { templateID: 'base', secure: true, network: { allowPublicTraffic: false } })
  const volume = await api('POST', '/volumes', { name: 'kept' })
  const secret = await api('POST', '/secrets', { name: 'hush', value: 'a-value-that-nobody-reads' })
  const template = await api('POST', '/v3/templates', { name: 'asked' })
  await api('PUT', '/registries/registry.example', { username: 'u', password: 'a-password-that-nobody-reads' })
  secrets = [envdAccessToken, guarded.envdAccessToken, guarded.trafficAccessToken, volume.token, 'nobody-reads', 'signature=', one.server.key].filter(Boolean)
  assert.ok(secrets.length >= 7, 'there is something to keep secret')
  ids = { sandbox: box.id, engine: box.external_id, guarded: guarded.sandboxID, template: template.templateID, build: template.buildID, volume: volume.volumeID, secret: secret.secretID ?? secret.id }
})
after(() => one.destroy())

function fill({ target }) {
  const parts = target.split('/')
  return parts.map((part, i) => {
    if (!part.startsWith('{')) return part
    if (part === '{build}') return ids.build
    if (part === '{hash}') return '0'.repeat(64)
    if (part === '{port}') return '8080'
    if (part === '{process}') return job.id
    if (part === '{act}') return 'text'
    const of = parts[i - 1]
    if (of === 'sandboxes') return target.startsWith('/api/v1') ? ids.sandbox : ids.engine
    if (of === 'templates') return ids.template
    if (of === 'volumes') return ids.volume
    if (of === 'secrets') return 'hush'
    if (of === 'teams') return 'default'
    if (of === 'registries') return 'registry.example'
    return 'some'
  }).join('/')
}
const call = (endpoint, who) => one.server.api(endpoint.method, fill(endpoint), endpoint.method === 'GET' ? undefined : {}, who)

test('the tables were read', () => {
  assert.ok(endpoints.length > 120, String(endpoints.length))
  for (const wanted of ['PUT /sandboxes/{id}/network', 'DELETE /secrets/{id}', 'POST /v3/templates', 'POST /api/v1/sandboxes/{id}/execute', 'POST /v1/sessions'])
    assert.ok(endpoints.some(({ method, target }) => `${method} ${target}` === wanted), wanted)
})

test('a viewer changes nothing, on any API', async () => {
  // Signing in and out is everybody's; a signed link needs no key.
  const open = ({ kind, target }) => kind === 'LINK' || target.startsWith('/api/v1/signin')
  for (const endpoint of endpoints.filter((each) => each.method !== 'GET' && !open(each))) {
    const { status, text } = await call(endpoint, viewer)
    assert.equal(status, 403, `${endpoint.method} ${endpoint.target}: ${status} ${text}`)
    assert.match(text, /a viewer's, which reads only|only the operator's keys/, `${endpoint.method} ${endpoint.target}: ${text}`)
  }
  const mcp = await one.server.api('POST', '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, viewer)
  assert.equal(mcp.status, 403, mcp.text)
  assert.equal((await one.get(box.id)).state, 'running')
  assert.equal((await one.server.api('GET', '/secrets/hush')).status, 200)
})

test('a viewer learns no token, password or signed link', async () => {
  const seen = endpoints.filter(({ method, target }) => method === 'GET' && !/events|sse|stream|terminal/.test(target))
  const answers = [...seen, { method: 'GET', target: `/sandboxes/${ids.guarded}` }, { method: 'GET', target: `/api/v1/sandboxes/${ids.guarded}` }]
  let read = 0
  for (const endpoint of answers) {
    const { status, text } = await call(endpoint, viewer)
    read += status === 200
    for (const secret of secrets) assert.ok(!text.includes(secret), `${endpoint.target} tells ${secret}: ${text}`)
  }
  assert.ok(read > 20, `only ${read} were answered`)
})

test('what a viewer looks at stays as it is: a paused sandbox sleeps on', async () => {
  await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`, {})
  for (const endpoint of endpoints.filter(({ method, target }) => method === 'GET' && /sandboxes\/\{id\}/.test(target) && !/stream|terminal/.test(target))) {
    const { status, text } = await one.server.api('GET', `${fill(endpoint)}?path=/etc/hostname`, undefined, viewer)
    if (/files/.test(endpoint.target)) assert.match(text, /a viewer's API key wakes nothing/)
    assert.equal((await one.get(box.id)).state, 'paused', `GET ${endpoint.target} woke it: ${status} ${text.slice(0, 200)}`)
  }
  await one.ok(200, 'POST', `/sandboxes/${box.id}/resume`, {})
})

test('a key for metrics reads those and nothing else', async () => {
  assert.equal((await one.server.api('GET', '/metrics', undefined, meter)).status, 200)
  for (const endpoint of endpoints.filter(({ kind, target }) => kind !== 'LINK' && target !== '/metrics' && !/signin|health|openapi|terminal|browser\/live|connect\/\{id\}/.test(target))) {
    const { status, text } = await call(endpoint, meter)
    assert.equal(status, 403, `${endpoint.method} ${endpoint.target}: ${status} ${text}`)
  }
})

test('neither gets a connection by which something is steered', async () => {
  const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' }
  const steer = endpoints.filter(({ target }) => /terminal$|browser\/live$/.test(target))
  assert.equal(steer.length, 3)
  for (const endpoint of steer)
    for (const who of [viewer, meter]) {
      const { status, text } = await one.server.api('GET', fill(endpoint), undefined, { ...who, headers })
      assert.equal(status, 403, `${endpoint.target}: ${status} ${text}`)
    }
})
