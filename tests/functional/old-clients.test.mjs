// One address for the control plane and for sandboxes, and heads as published SDKs of all ages send them: which of the two
// is meant? The heads were recorded from the JS SDK 2.7.0, 2.10.4 and 2.26.0 and follow the Python SDK's source at 1.5.0,
// 1.11.0, 2.7.0, 2.10.0, 2.14.0, 2.20.0 and 2.26.0.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { startServer } from '../harness/server.mjs'

let server, secured, id, token
before(async () => {
  server = await startServer()
  secured = await server.create({ secure: true })
  id = secured.sandboxID
  token = secured.envdAccessToken
})
after(() => server.destroy())

const python = (version) => ({
  Accept: '*/*', 'Accept-Encoding': 'gzip, deflate', Connection: 'keep-alive', 'User-Agent': `e2b-python-sdk/${version}`, lang: 'python', lang_version: '3.11.2',
  machine: 'x86_64', os: 'Linux', package_version: version, processor: '', publisher: 'e2b', release: '6.1.0', sdk_runtime: 'python', system: 'Linux',
})
const js = (version) => ({
  Connection: 'keep-alive', browser: 'unknown', lang: 'js', lang_version: '20.19.0', package_version: version, publisher: 'e2b', sdk_runtime: 'node', system: 'linux',
  'User-Agent': `e2b-js-sdk/${version}`, Accept: '*/*', 'Accept-Language': '*', 'Sec-Fetch-Mode': 'cors', 'Accept-Encoding': 'gzip, deflate',
})
const routed = (port = 49983) => ({ 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': String(port) })
const ask = (method, path, headers, body) => {
  const sent = body === undefined ? undefined : JSON.stringify(body)
  return server.request({ method, path, headers: { ...headers, ...(sent && { 'Content-Type': 'application/json', 'Content-Length': sent.length }) }, body: sent })
}
const key = () => ({ 'X-API-KEY': server.key })

describe('the Python SDK from 2.7 to 2.26: connect() names the sandbox, but means the control plane', () => {
  for (const version of ['2.7.0', '2.14.0', '2.26.0']) {
    test(version, async () => {
      const connect = () => ask('POST', `/sandboxes/${id}/connect`, { ...python(version), ...routed(), ...key() }, { timeout: 300 })
      const running = await connect()
      assert.deepEqual([running.status, running.body?.envdAccessToken], [200, token], running.text)
      assert.equal((await server.api('POST', `/sandboxes/${id}/pause`, {})).status, 204)
      const paused = await connect()
      assert.deepEqual([paused.status, paused.body?.sandboxID], [201, id], paused.text)
      // The sandbox that connect() gives is asked with its token alone.
      const list = await ask('POST', '/process.Process/List', { ...python(version), 'X-Access-Token': token, 'Connect-Protocol-Version': '1' }, {})
      assert.equal(list.status, 200, list.text)
    })
  }

  test('of others’ and of none: as without the headers', async () => {
    const connect = (headers, target = id) => ask('POST', `/sandboxes/${target}/connect`, { ...python('2.14.0'), 'E2b-Sandbox-Id': target, 'E2b-Sandbox-Port': '49983', ...headers }, { timeout: 300 })
    assert.equal((await connect({ 'X-API-KEY': `e2b_${'0'.repeat(40)}` })).status, 401)
    const unknown = await connect(key(), 'i00000000000000000000')
    assert.deepEqual([unknown.status, unknown.body?.code], [404, 404], unknown.text)
  })
})

// From 1.5 to 1.13 the sandbox's token goes along with every call of the instance.
test('the Python SDK 1.x: a key beside a sandbox’s token means the control plane', async () => {
  const headers = { ...python('1.11.0'), 'X-Access-Token': token, ...key() }
  assert.equal((await ask('POST', `/sandboxes/${id}/timeout`, headers, { timeout: 300 })).status, 204)
  assert.equal((await ask('GET', `/sandboxes/${id}`, headers)).body?.sandboxID, id)
  const bearer = await ask('GET', `/sandboxes/${id}`, { ...python('1.11.0'), 'X-Access-Token': token, Authorization: `Bearer ${server.key}` })
  assert.equal(bearer.body?.sandboxID ?? bearer.body?.code, bearer.status === 200 ? id : 401, bearer.text) // the control plane’s answer, whatever it is
})

test('the JS SDK before 2.12: health and files with the token alone, commands with all three headers', async () => {
  for (const version of ['2.7.0', '2.10.4']) {
    const headers = { ...js(version), 'X-Access-Token': token }
    assert.equal((await ask('GET', '/health', headers)).status, 204)
    const missing = await ask('GET', '/files?path=%2Fnot-there', headers)
    assert.deepEqual([missing.status, missing.body?.code], [404, 404], missing.text)
    assert.match(missing.body.message, /not-there/)
    assert.equal((await ask('POST', '/process.Process/List', { ...headers, ...routed(), 'Connect-Protocol-Version': '1' }, {})).status, 200)
  }
})

describe('what names a sandbox stays the sandbox’s', () => {
  test('envd’s own paths, also with a key', async () => {
    assert.equal((await ask('GET', '/health', { ...routed(), ...key() })).status, 204)
    assert.equal((await ask('GET', '/metrics', { ...routed(), ...key(), 'X-Access-Token': token })).body?.cpu_count > 0, true)
    assert.equal((await ask('POST', '/process.Process/List', { ...routed(), ...key() }, {})).status, 401)
    assert.equal((await ask('GET', '/files?path=%2Fetc%2Fhostname', { ...routed(), ...key() })).status, 401)
    assert.equal((await ask('POST', '/init', { ...routed(), ...key() }, {})).status, 404)
  })

  test('every path of another port, also with a key', async () => {
    const answer = await ask('GET', `/sandboxes/${id}`, { ...routed(3000), ...key() })
    assert.deepEqual([answer.status, answer.body?.port], [502, 3000], answer.text)
  })

  test('every path of its own host, also with a key', async () => {
    const answer = await ask('GET', `/sandboxes/${id}`, { Host: `49983-${id}.localhost`, ...key() })
    assert.equal(answer.status, 401, answer.text)
    assert.equal(answer.body?.sandboxID, undefined)
  })
})
