// Keys of less than a whole team: one that acts as an agent, one that is for a single sandbox.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { after, afterEach, before, describe, test } from 'node:test'
import { binary } from '../harness/server.mjs'
import { refused, startRuntime } from '../harness/runtime.mjs'

let one
before(async () => {
  one = await startRuntime()
})
after(() => one.destroy())
afterEach(() => assert.ok(one.server.alive(), one.server.tail()))

async function newKey(body) {
  const answer = await one.server.api('POST', '/api-keys', body)
  assert.equal(answer.status, 201, answer.text)
  return answer.body
}
const e2b = (method, target, body, key) => one.server.api(method, target, body, { key })

describe('a key that acts as an agent', () => {
  let mine, ours, theirs
  before(async () => {
    mine = { key: (await newKey({ name: 'a1 alone', agentID: 'a1' })).key }
    ours = await one.create({}, mine)
    theirs = await one.create({ agent_id: 'a2', key: 'k-of-a2' })
  })

  test('owns what it makes, whatever the request says', async () => {
    assert.equal(ours.agent_id, 'a1')
    refused(await one.v1('POST', '/sandboxes', { agent_id: 'a2' }, mine), 403, 'forbidden', /acts as agent 'a1', not as 'a2'/)
    refused(await one.v1('GET', `/sandboxes/${theirs.id}?agent_id=a2`, undefined, mine), 403, 'forbidden')
    refused(await one.v1('GET', `/sandboxes/${theirs.id}`, undefined, { ...mine, headers: { 'X-Agent-ID': 'a2' } }), 403, 'forbidden')
    assert.equal((await one.ok(200, 'GET', `/sandboxes/${ours.id}?agent_id=a1`, undefined, mine)).id, ours.id)
  })

  test('reaches no sandbox, process, file, event or session of another', async () => {
    const job = await one.start(theirs.id, 'sleep 60')
    const kept = await one.execute(theirs.id, 'id', { keep_output: true })
    const session = await one.ok(201, 'POST', '/sessions', { agent: 'mock', agent_id: 'a2' })
    const nobodys = await one.ok(201, 'POST', '/sessions', { agent: 'mock' })
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${theirs.id}/snapshots`, {})
    await one.ok(201, 'POST', `/sandboxes/${theirs.id}/snapshots`, { alias: 'shared' })
    const tries = [
      ['DELETE', '/snapshots/shared'],
      ['POST', `/sandboxes/${ours.id}/snapshots`, { alias: 'shared' }],
      ['GET', `/sandboxes/${theirs.id}`],
      ['GET', '/sandboxes/key:k-of-a2'],
      ['POST', '/sandboxes', { key: 'k-of-a2' }],
      ['POST', '/sandboxes', { snapshot: snapshot.id }],
      ['DELETE', `/sandboxes/${theirs.id}`],
      ['POST', `/sandboxes/${theirs.id}/execute`, { command: 'id' }],
      ['POST', `/sandboxes/${theirs.id}/pause`, {}],
      ['POST', `/sandboxes/${theirs.id}/keys`, {}],
      ['GET', `/sandboxes/${theirs.id}/files?path=/etc`],
      ['GET', `/sandboxes/${theirs.id}/ports/80`],
      ['GET', `/sandboxes/-/processes/${job.id}`],
      ['GET', `/sandboxes/${theirs.id}/executions`],
      ['GET', `/sandboxes/${ours.id}/executions/${kept.process_id}`],
      ['GET', `/sandboxes/-/executions/${kept.process_id}`],
      ['POST', `/sandboxes/-/processes/${job.id}/stop`, {}],
      ['GET', `/sessions/${session.id}`],
      ['GET', `/sessions/${nobodys.id}`],
      ['POST', `/sessions/${session.id}/messages`, { message: 'x' }],
      ['GET', `/sessions/${session.id}/events`],
      ['POST', '/sessions', { agent: 'mock', sandbox_id: theirs.id }],
      ['GET', `/snapshots/${snapshot.id}`],
      ['PUT', '/profiles/p', { network: { mode: 'allow-all' } }],
      ['GET', '/stats'],
      ['POST', '/providers', { name: 'r', base_url: 'http://203.0.113.1' }],
    ]
    for (const [method, target, body] of tries) {
      const { status, text } = await one.v1(method, target, body, mine)
      assert.ok([403, 404].includes(status), `${method} ${target}: ${status} ${text}`)
    }
    const { sandboxes } = await one.ok(200, 'GET', '/sandboxes', undefined, mine)
    assert.deepEqual(sandboxes.map(({ id }) => id), [ours.id])
    const { events } = await one.ok(200, 'GET', '/events?since=0&limit=1000', undefined, mine)
    assert.ok(events.length && events.every(({ agent }) => agent === 'a1'), JSON.stringify(events))
    await one.ok(200, 'POST', `/sandboxes/-/processes/${job.id}/stop`, {})
  })

  test('is as narrow on the E2B API', async () => {
    const made = await e2b('POST', '/sandboxes', { templateID: 'base', metadata: { 'quicksand.agent': 'a2', mine: '1' } }, mine.key)
    assert.equal(made.status, 201, made.text)
    const listed = await e2b('GET', '/v2/sandboxes', undefined, mine.key)
    assert.deepEqual(new Set(listed.body.map(({ sandboxID }) => sandboxID)), new Set([made.body.sandboxID, ours.external_id]))
    assert.equal(listed.body.find(({ sandboxID }) => sandboxID === made.body.sandboxID).metadata['quicksand.agent'], 'a1')
    assert.equal((await e2b('GET', '/sandboxes', undefined, mine.key)).body.length, 2)
    for (const [method, rest, body] of [['GET', ''], ['DELETE', ''], ['POST', '/connect', { timeout: 60 }], ['POST', '/fork', {}], ['POST', '/snapshots', {}], ['PUT', '/network', {}], ['GET', '/logs']]) {
      const answer = await e2b(method, `/sandboxes/${theirs.external_id}${rest}`, body, mine.key)
      assert.equal(answer.status, 404, `${method} ${rest}: ${answer.text}`)
    }
    const asked = (await e2b('POST', '/v3/templates', { name: 'ours' }, one.server.key)).body
    assert.ok((await e2b('GET', '/templates', undefined, mine.key)).body.some(({ templateID }) => templateID === asked.templateID))
    for (const [method, target, body] of [['GET', `/templates/${asked.templateID}/builds/${asked.buildID}/status`], ['GET', '/api-keys'], ['POST', '/api-keys', { name: 'x' }], ['POST', '/access-tokens', { name: 'x' }], ['GET', '/audit'], ['GET', '/admin/teams'], ['GET', '/metrics'], ['GET', '/snapshots'], ['GET', '/volumes'], ['GET', '/events/sandboxes']])
      assert.equal((await e2b(method, target, body, mine.key)).status, 403, `${method} ${target}`)
    assert.equal((await e2b('POST', `/sandboxes/${made.body.sandboxID}/timeout`, { timeout: 60 }, mine.key)).status, 204)
    const fork = await e2b('POST', `/sandboxes/${made.body.sandboxID}/fork`, { count: 1 }, mine.key)
    assert.equal(fork.status, 201, fork.text)
    for (const { sandboxID } of (await e2b('GET', '/sandboxes', undefined, mine.key)).body.filter(({ sandboxID: id }) => id !== ours.external_id))
      assert.equal((await e2b('DELETE', `/sandboxes/${sandboxID}`, undefined, mine.key)).status, 204)
  })

  test('is in the audit log by name, and on whose behalf', async () => {
    await one.execute(ours.id, 'true', {}) // of the operator's key, which has no name
    await one.ok(200, 'POST', `/sandboxes/${ours.id}/execute`, { command: 'true' }, mine)
    await one.ok(200, 'POST', `/sandboxes/${theirs.id}/execute`, { command: 'true', agent_id: 'a2' })
    const { body } = await one.server.api('GET', '/audit?limit=3')
    assert.deepEqual(body.map(({ keyName, agentID }) => [keyName, agentID]), [['', 'a2'], ['a1 alone', 'a1'], ['', null]])
    const env = { ...process.env, ...one.server.clientEnv() }
    const shown = execFileSync(binary, ['audit', '-n', '3'], { env, encoding: 'utf8' }).split('\n')
    assert.match(shown[0], /^TIME +KEY +AGENT +METHOD/)
    assert.match(shown[2], / a1 alone +a1 +POST +/)
    assert.ok(!shown.join().includes(mine.key))
    assert.match(execFileSync(binary, ['audit', '--all', '-n', '1'], { env, encoding: 'utf8' }), / default /)
  })
})

describe('a key for one sandbox', () => {
  let box, other, key, only
  before(async () => {
    box = await one.create({ key: 'the-box' })
    other = await one.create()
    key = await one.ok(201, 'POST', `/sandboxes/${box.id}/keys`, { name: 'inside' })
    only = { key: key.key }
  })

  test('uses that sandbox on both APIs', async () => {
    assert.equal(key.sandbox_id, box.id)
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'echo in' }, only)).stdout, 'in\n')
    assert.equal((await one.ok(200, 'POST', '/sandboxes/key:the-box/execute', { command: 'echo in' }, only)).stdout, 'in\n')
    assert.ok((await one.v1('PUT', `/sandboxes/${box.id}/files?path=/tmp/f`, 'text', { ...only, headers: { 'content-type': 'application/octet-stream' } })).status < 300)
    assert.equal((await one.v1('GET', `/sandboxes/${box.id}/files?path=/tmp/f`, undefined, only)).text, 'text')
    const kept = await one.ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'echo kept', keep_output: true }, only)
    assert.equal((await one.ok(200, 'GET', `/sandboxes/${box.id}/executions/${kept.process_id}`, undefined, only)).stdout, 'kept\n')
    assert.equal((await one.ok(200, 'GET', '/sandboxes/key:the-box/executions', undefined, only)).executions.length, 1)
    const job = await one.ok(202, 'POST', `/sandboxes/${box.id}/execute`, { command: 'sleep 60', background: true }, only)
    assert.equal((await one.ok(200, 'GET', `/sandboxes/${box.id}/processes`, undefined, only)).processes.length, 1)
    await one.ok(200, 'POST', `/sandboxes/${box.id}/processes/${job.id}/stop`, {}, only)
    const { events } = await one.ok(200, 'GET', '/events?since=0&limit=1000', undefined, only)
    assert.ok(events.length && events.every(({ sandbox }) => sandbox === box.id))
    assert.equal((await e2b('GET', `/sandboxes/${box.external_id}`, undefined, only.key)).status, 200)
    assert.equal((await e2b('POST', `/sandboxes/${box.external_id}/connect`, { timeout: 300 }, only.key)).status, 200)
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`, {}, only)).state, 'paused')
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/resume`, {}, only)).state, 'running')
  })

  test('and nothing else', async () => {
    const kept = await one.execute(other.id, 'id', { keep_output: true })
    const tries = [
      ['GET', `/sandboxes/${other.id}/executions`],
      ['GET', `/sandboxes/${box.id}/executions/${kept.process_id}`],
      ['GET', `/sandboxes/-/executions/${kept.process_id}`],
      ['GET', '/sandboxes'],
      ['POST', '/sandboxes', {}],
      ['GET', `/sandboxes/${other.id}`],
      ['POST', `/sandboxes/${other.id}/execute`, { command: 'id' }],
      ['GET', '/sandboxes/-/processes'],
      ['POST', `/sandboxes/${box.id}/keys`, {}],
      ['POST', `/sandboxes/${box.id}/snapshots`, {}],
      ['GET', `/events?since=0&limit=5&sandbox_id=${other.id}`],
      ['GET', '/sessions'],
      ['POST', '/sessions', { agent: 'mock', sandbox_id: box.id }],
      ['GET', '/snapshots'],
      ['GET', '/providers'],
      ['GET', '/profiles'],
      ['GET', '/stats'],
      ['POST', '/prune', {}],
    ]
    for (const [method, target, body] of tries) {
      const { status, text } = await one.v1(method, target, body, only)
      assert.ok([403, 404].includes(status), `${method} ${target}: ${status} ${text}`)
    }
    const asked = (await e2b('POST', '/v3/templates', { name: 'ours-too' }, one.server.key)).body
    for (const [method, target, body] of [['GET', '/templates'], ['GET', '/v2/templates'], ['GET', '/templates/aliases/base'], ['GET', `/templates/${asked.templateID}/builds/${asked.buildID}/status`], ['GET', '/sandboxes'], ['GET', '/v2/sandboxes'], ['POST', '/sandboxes', { templateID: 'base' }], ['GET', '/api-keys'], ['POST', '/api-keys', { name: 'x' }], ['GET', '/audit'], ['POST', `/sandboxes/${box.external_id}/fork`, {}], ['POST', `/sandboxes/${box.external_id}/snapshots`, {}], ['PUT', `/sandboxes/${box.external_id}/network`, {}]])
      assert.equal((await e2b(method, target, body, only.key)).status, 403, `${method} ${target}`)
    for (const method of ['GET', 'DELETE']) assert.equal((await e2b(method, `/sandboxes/${other.external_id}`, undefined, only.key)).status, 404)
  })

  test('of a sandbox of the E2B API', async () => {
    const { sandboxID } = (await e2b('POST', '/sandboxes', { templateID: 'base' }, one.server.key)).body
    const made = await newKey({ name: 'sdk', sandboxID })
    assert.equal(made.sandboxID, sandboxID)
    assert.equal((await e2b('GET', `/sandboxes/${sandboxID}`, undefined, made.key)).status, 200)
    assert.equal((await e2b('GET', `/sandboxes/${other.external_id}`, undefined, made.key)).status, 404)
    assert.equal((await e2b('DELETE', `/sandboxes/${sandboxID}`, undefined, made.key)).status, 204)
    assert.equal((await e2b('GET', `/sandboxes/${sandboxID}`, undefined, made.key)).status, 401, 'it ended with its sandbox')
  })

  test('ends with its sandbox', async () => {
    await one.remove(box.id)
    assert.equal((await one.v1('GET', `/sandboxes/${box.id}`, undefined, only)).status, 401)
    assert.equal((await e2b('GET', `/sandboxes/${box.external_id}`, undefined, only.key)).status, 401)
    assert.ok(!(await one.server.api('GET', '/api-keys')).body.some(({ id }) => id === key.id))
    const none = await one.server.api('POST', '/api-keys', { name: 'x', sandboxID: box.id })
    assert.equal(none.status, 404, none.text)
  })

  test('is made and listed on the command line', async () => {
    const run = (...args) => execFileSync(binary, ['key', ...args, '--data', one.server.data], { encoding: 'utf8' })
    const agent = run('new', 'of-a9', '--agent', 'a9').trim()
    const scoped = run('new', 'of-other', '--sandbox', other.id).trim()
    assert.equal((await one.create({}, { key: agent })).agent_id, 'a9')
    assert.equal((await one.v1('GET', `/sandboxes/${other.id}`, undefined, { key: scoped })).status, 200)
    assert.match(run('ls'), new RegExp(`agent a9[^]*sandbox ${other.id}`))
    assert.throws(() => run('new', 'x', '--sandbox', 'sbx_none'), /was not found/)
  })
})
