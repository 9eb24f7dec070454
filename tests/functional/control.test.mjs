// The control plane: shapes, lists, time limits by hand, and an error with the right status for bad input.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'
import { ofSandbox } from '../harness/leftovers.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

function assertError(answer, status) {
  assert.equal(answer.status, status, `${answer.status} ${answer.text}`)
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/)
  assert.equal(answer.body?.code, status, answer.text)
  assert.equal(typeof answer.body.message, 'string')
  assert.ok(answer.body.message.length > 0)
}

test('health needs no key', async () => {
  const answer = await server.api('GET', '/health', undefined, { key: null })
  assert.ok([200, 204].includes(answer.status), answer.text)
})

describe('keys', () => {
  for (const [name, key] of [['none', null], ['unknown', `e2b_${'a'.repeat(40)}`], ['empty', ''], ['huge', 'e2b_' + 'a'.repeat(3000)], ['odd bytes', 'e2b_\xff\xfe']]) {
    test(`${name}: 401`, async () => {
      assertError(await server.api('GET', '/sandboxes', undefined, { key }), 401)
      assertError(await server.api('POST', '/sandboxes', { templateID: 'base' }, { key }), 401)
      assertError(await server.api('DELETE', '/sandboxes/abc', undefined, { key }), 401)
    })
  }
})

describe('create', () => {
  test('both generations answer 201 with the documented shape', async () => {
    for (const route of ['/sandboxes', '/v2/sandboxes']) {
      const answer = await server.api('POST', route, { templateID: 'base' })
      assert.equal(answer.status, 201, answer.text)
      assert.match(answer.body.sandboxID, /^[a-z0-9]+$/)
      for (const name of ['templateID', 'clientID', 'envdVersion']) assert.equal(typeof answer.body[name], 'string', name)
      if (route === '/v2/sandboxes') assert.equal(typeof answer.body.envdAccessToken, 'string')
      const info = await server.api('GET', `/sandboxes/${answer.body.sandboxID}`)
      assert.equal(info.status, 200)
      const life = (new Date(info.body.endAt) - new Date(info.body.startedAt)) / 1000
      const want = route === '/sandboxes' ? 15 : 300
      assert.ok(Math.abs(life - want) < 5, `default timeout of ${route} is ${life}`)
      assert.equal((await server.api('DELETE', `/sandboxes/${answer.body.sandboxID}`)).status, 204)
      assert.deepEqual(ofSandbox(answer.body.sandboxID, server.data), [])
    }
  })

  test('the sandbox answers the moment create does', async () => {
    const box = await server.create({ secure: true })
    const health = await server.sandbox(box.sandboxID, 49983, '/health')
    await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
    assert.equal(health.status, 204, health.text)
  })

  const bad = [
    ['not JSON', '{"templateID":'],
    ['JSON of another kind', '["base"]'],
    ['a number', '5'],
    ['nothing', ''],
    ['two documents', '{"templateID":"base"}{"templateID":"base"}'],
    ['invalid UTF-8', Buffer.from('{"templateID":"ba\xffse"}', 'latin1')],
    ['NUL in a name', '{"templateID":"ba\\u0000se"}'],
    ['deep nesting', '{"templateID":"base","metadata":' + '['.repeat(20000) + ']'.repeat(20000) + '}'],
    ['no template', {}],
    ['template of a wrong type', { templateID: 5 }],
    ['timeout of a wrong type', { templateID: 'base', timeout: 'soon' }],
    ['timeout zero', { templateID: 'base', timeout: 0 }],
    ['timeout negative', { templateID: 'base', timeout: -5 }],
    ['timeout beyond the limit', { templateID: 'base', timeout: 10 ** 9 }],
    ['timeout beyond 64 bit', '{"templateID":"base","timeout":99999999999999999999999}'],
    ['fraction as timeout', { templateID: 'base', timeout: 1.5 }],
    ['metadata of a wrong type', { templateID: 'base', metadata: 'x' }],
    ['metadata with a number', { templateID: 'base', metadata: { a: 5 } }],
    ['environment with an array', { templateID: 'base', envVars: { a: ['b'] } }],
    ['secure of a wrong type', { templateID: 'base', secure: 'yes' }],
  ]
  for (const [name, body] of bad) {
    test(`${name}: 400`, async () => {
      assertError(await server.api('POST', '/sandboxes', body), 400)
    })
  }

  test('unknown templates: 404', async () => {
    for (const templateID of ['nothing-here', '../../etc', 'base:no-such-tag', 'x'.repeat(300)]) {
      const answer = await server.api('POST', '/sandboxes', { templateID })
      assert.ok([400, 404].includes(answer.status), `${templateID}: ${answer.status} ${answer.text}`)
      assertError(answer, answer.status)
    }
    assertError(await server.api('POST', '/sandboxes', { templateID: 'nothing-here' }), 404)
  })

  test('base:default is the base template', async () => {
    const box = await server.create({ templateID: 'base:default' })
    await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
  })

  test('a body without content type or with charset is still JSON', async () => {
    for (const type of ['application/json; charset=utf-8', 'application/json']) {
      const answer = await server.api('POST', '/sandboxes', '{"templateID":"base"}', { headers: { 'Content-Type': type } })
      assert.equal(answer.status, 201, answer.text)
      await server.api('DELETE', `/sandboxes/${answer.body.sandboxID}`)
    }
  })

  test('nothing of the refused requests is left', async () => {
    assert.deepEqual(await server.ids(), [])
  })
})

describe('ids', () => {
  const tricks = ['nope', 'ABC', '..%2f..%2fetc', '%2e%2e', 'a%00b', 'a%0d%0aX-Evil:1', 'x'.repeat(2000), '%ff%fe', "a'b", '*', '-', 'a-6532622b']
  for (const id of tricks) {
    test(`unknown id ${id.slice(0, 20)}: a JSON error`, async () => {
      for (const [method, suffix, body] of [
        ['GET', '', undefined],
        ['DELETE', '', undefined],
        ['POST', '/timeout', { timeout: 5 }],
        ['POST', '/refreshes', { duration: 5 }],
        ['POST', '/connect', { timeout: 5 }],
      ]) {
        const answer = await server.api(method, `/sandboxes/${id}${suffix}`, body)
        assert.ok([400, 404, 414].includes(answer.status), `${method} ${suffix}: ${answer.status} ${answer.text}`)
        assert.equal(answer.body?.code, answer.status, answer.text)
      }
    })
  }

  test('an id with the client id after it is the same sandbox', async () => {
    const box = await server.create()
    const answer = await server.api('GET', `/sandboxes/${box.sandboxID}-${box.clientID}`)
    assert.equal(answer.status, 200, answer.text)
    assert.equal(answer.body.sandboxID, box.sandboxID)
    await server.api('DELETE', `/sandboxes/${box.sandboxID}-${box.clientID}`)
    assertError(await server.api('GET', `/sandboxes/${box.sandboxID}`), 404)
  })
})

describe('routes', () => {
  test('the build of a template that there is: ready', async () => {
    const [base] = (await server.api('GET', '/templates')).body
    const { sandboxID } = await server.create()
    const { snapshotID } = (await server.api('POST', `/sandboxes/${sandboxID}/snapshots`, {})).body
    const status = (template, build = base.buildID) => server.api('GET', `/templates/${encodeURIComponent(template)}/builds/${build}/status?logsOffset=0`)
    for (const template of [base.templateID, 'base', snapshotID]) {
      const answer = await status(template)
      assert.equal(answer.status, 200, `${template}: ${answer.text}`)
      assert.deepEqual({ ...answer.body, templateID: undefined }, { templateID: undefined, buildID: base.buildID, status: 'ready', logs: [], logEntries: [] })
      assert.equal(typeof answer.body.templateID, 'string')
    }
    const missing = '11111111-2222-3333-4444-555555555555'
    assert.equal((await status('nothing-here')).status, 404)
    assert.equal((await status('base', missing)).status, 404)
    for (const bad of ['latest', missing.slice(1), `${missing}0`, missing.replaceAll('-', '0')]) assert.equal((await status('base', bad)).status, 400, bad)
    assert.equal((await server.api('GET', `/templates/base/builds/${missing}/status`, undefined, { key: null })).status, 401)
    await server.api('DELETE', `/templates/${snapshotID}`)
    await server.api('DELETE', `/sandboxes/${sandboxID}`)
  })

  test('times of creates are told in steps around a millisecond', async () => {
    const { text } = await server.api('GET', '/metrics')
    const steps = [...text.matchAll(/^quicksand_create_seconds_bucket\{le="([^"]+)"\}/gm)].map((match) => match[1])
    assert.deepEqual(steps.slice(0, 4), ['0.00025', '0.0005', '0.001', '0.002'])
    assert.equal(steps.at(-1), '+Inf')
  })

  test('unknown path: 404, wrong method: 404 or 405, both as JSON', async () => {
    assertError(await server.api('GET', '/nothing'), 404)
    const answer = await server.api('PATCH', '/sandboxes')
    assert.ok([404, 405].includes(answer.status))
    assertError(answer, answer.status)
  })
})

describe('list', () => {
  let boxes
  before(async () => {
    await server.killAll()
    boxes = []
    for (const at of [0, 1, 2, 3, 4]) boxes.push(await server.create({ metadata: { group: 'list', at: String(at), 'odd key': 'v&=%' } }))
  })
  after(() => Promise.all(boxes.map((box) => server.api('DELETE', `/sandboxes/${box.sandboxID}`))))
  const ids = (answer) => answer.body.map((one) => one.sandboxID)

  test('v2: newest first, oldest first on request', async () => {
    const down = await server.api('GET', '/v2/sandboxes')
    assert.deepEqual(ids(down), boxes.map((box) => box.sandboxID).reverse())
    const up = await server.api('GET', '/v2/sandboxes?order=asc')
    assert.deepEqual(ids(up), boxes.map((box) => box.sandboxID))
  })

  test('v2: pages with limit and nextToken', async () => {
    const seen = []
    let token = ''
    let pages = 0
    do {
      const answer = await server.api('GET', `/v2/sandboxes?limit=2${token ? `&nextToken=${encodeURIComponent(token)}` : ''}`)
      assert.equal(answer.status, 200, answer.text)
      assert.ok(answer.body.length <= 2)
      seen.push(...ids(answer))
      token = answer.headers['x-next-token']
      pages++
    } while (token && pages < 10)
    assert.equal(pages, 3)
    assert.deepEqual(seen, boxes.map((box) => box.sandboxID).reverse())
  })

  test('v2: metadata (triple encoded), state, template and startedAfter', async () => {
    const triple = (text) => encodeURIComponent(encodeURIComponent(encodeURIComponent(text)))
    const query = `${triple('odd key')}%3D${triple('v&=%')}%26${triple('at')}%3D3`
    const one = await server.api('GET', `/v2/sandboxes?metadata=${query}`)
    assert.deepEqual(ids(one), [boxes[3].sandboxID])
    assert.equal((await server.api('GET', '/v2/sandboxes?state=running')).body.length, 5)
    assert.equal((await server.api('GET', '/v2/sandboxes?state=paused')).body.length, 0)
    assert.equal((await server.api('GET', '/v2/sandboxes?template=base')).body.length, 5)
    assert.deepEqual((await server.api('GET', '/v2/sandboxes?template=nothing')).body, [])
    const info = await server.api('GET', `/sandboxes/${boxes[2].sandboxID}`)
    const after = await server.api('GET', `/v2/sandboxes?order=asc&startedAfter=${encodeURIComponent(info.body.startedAt)}`)
    assert.deepEqual(ids(after), boxes.slice(2).map((box) => box.sandboxID))
  })

  test('v1 lists the running ones', async () => {
    assert.equal((await server.api('GET', '/sandboxes')).body.length, 5)
  })

  for (const query of ['limit=0', 'limit=101', 'limit=x', 'order=sideways', 'state=asleep', 'nextToken=%00%ff', 'nextToken=AAAA', 'startedAfter=yesterday']) {
    test(`bad query ${query}: 400`, async () => {
      assertError(await server.api('GET', `/v2/sandboxes?${query}`), 400)
    })
  }
})

describe('time limits by hand', () => {
  let box
  before(async () => {
    box = await server.create({ timeout: 100 })
  })
  after(() => server.api('DELETE', `/sandboxes/${box.sandboxID}`))
  const left = async () => (new Date((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.endAt) - Date.now()) / 1000

  test('timeout replaces, refreshes and connect only extend', async () => {
    assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/timeout`, { timeout: 50 })).status, 204)
    assert.ok(Math.abs((await left()) - 50) < 2)
    const before = (await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.endAt
    assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/refreshes`, { duration: 10 })).status, 204)
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.endAt, before)
    assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/refreshes`, { duration: 200 })).status, 204)
    assert.ok(Math.abs((await left()) - 200) < 2)
    for (const prefix of ['', '/v2']) {
      const answer = await server.api('POST', `${prefix}/sandboxes/${box.sandboxID}/connect`, { timeout: 10 })
      assert.equal(answer.status, 200, answer.text)
      assert.equal(answer.body.sandboxID, box.sandboxID)
      assert.ok(Math.abs((await left()) - (prefix ? 200 : 200)) < 3)
    }
    assert.equal((await server.api('POST', `/v2/sandboxes/${box.sandboxID}/connect`)).status, 200)
    assert.ok((await left()) > 295, 'the default of v2 connect is 300 s')
  })

  for (const body of ['{', '[]', { timeout: 'x' }, { timeout: -1 }, {}]) {
    test(`bad timeout ${JSON.stringify(body)}: 400`, async () => {
      assertError(await server.api('POST', `/sandboxes/${box.sandboxID}/timeout`, body), 400)
    })
  }

  test('timeout 0 ends it now', async () => {
    const other = await server.create()
    assert.equal((await server.api('POST', `/sandboxes/${other.sandboxID}/timeout`, { timeout: 0 })).status, 204)
    assertError(await eventually('it has ended', async () => {
      const answer = await server.api('GET', `/sandboxes/${other.sandboxID}`)
      return answer.status !== 200 && answer
    }), 404)
  })
})

test('concurrent deletes: one wins, nobody sees a server error', async () => {
  const box = await server.create()
  const answers = await Promise.all(Array.from({ length: 8 }, () => server.api('DELETE', `/sandboxes/${box.sandboxID}`)))
  const statuses = answers.map((answer) => answer.status)
  assert.ok(statuses.every((status) => [204, 404].includes(status)), String(statuses))
  assert.ok(statuses.includes(204))
})
