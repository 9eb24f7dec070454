// Everybody does everything at once to the same few keys, also behind the runtime's back. Whatever the answers are,
// each machine has a row and each live row its machine afterwards, and nobody's sandbox makes its provider look ill.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { randomFrom, seedOf } from '../harness/random.mjs'
import { destroyAll, runtimeOf, startRuntime } from '../harness/runtime.mjs'
import { startServer } from '../harness/server.mjs'

const SECONDS = 6
const CLIENTS = 24
const KEYS = ['k1', 'k2', 'k3']

let far, one
before(async () => {
  far = runtimeOf(await startServer())
  one = await startRuntime({
    providers: { near: { type: 'e2b', api_url: 'embedded' }, far: { type: 'e2b', api_url: far.server.url, api_key: far.server.key } },
    retry: { min_s: 0.1, max_s: 1 },
  })
})
after(() => destroyAll(one, far))

const seed = seedOf('RACES_SEED')
const random = randomFrom(seed)
const any = (list) => list[random(list.length)]

function act(provider, engine) {
  const key = any(KEYS)
  const at = `/sandboxes/${encodeURIComponent(`key:${key}`)}`
  const dice = random(100) / 100
  if (dice < 0.4) return one.v1('POST', '/sandboxes', { key, provider })
  if (dice < 0.65) return one.v1('POST', `${at}/execute`, { command: 'echo x' })
  if (dice < 0.75) return one.v1('POST', `${at}/pause`)
  if (dice < 0.82) return one.v1('POST', `${at}/resume`)
  if (dice < 0.86) return one.v1('DELETE', at)
  if (dice < 0.89) return one.v1('POST', `${at}/snapshots`, { ttl: 60 })
  if (dice < 0.93) return one.v1('POST', `${at}/execute`, { command: 'sleep 0.2', background: true })
  if (dice < 0.95) return one.v1('GET', at).then((seen) => (seen.body?.external_id ? engine.api('DELETE', `/sandboxes/${seen.body.external_id}`) : seen))
  return one.v1('GET', `${at}?refresh=true`)
}

// The follower of the engine sees a new sandbox before the runtime has written its row, and leaves it alone.
test('creates are never taken for those of E2B\'s API', async () => {
  const answers = []
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (let round = 0; round < 50; round++) {
      const made = await one.v1('POST', '/sandboxes', { provider: 'near' })
      answers.push(made.status === 201 ? 201 : made.text)
      if (made.status === 201) await one.v1('DELETE', `/sandboxes/${made.body.id}`)
    }
  }))
  assert.deepEqual(answers.filter((one) => one !== 201), [])
})

for (const provider of ['near', 'far']) {
  test(`on ${provider}`, async (t) => {
    t.diagnostic(`RACES_SEED=${seed}`)
    const engine = (provider === 'near' ? one : far).server
    const end = Date.now() + SECONDS * 1000
    const counts = { 200: 0, 201: 0 }
    const enough = () => counts[201] > 100 && counts[200] > 100
    const odd = []
    await Promise.all(
      Array.from({ length: CLIENTS }, async () => {
        while (Date.now() < end || (!enough() && Date.now() < end + 120_000)) {
          const answer = await act(provider, engine)
          counts[answer.status] = (counts[answer.status] ?? 0) + 1
          // A connection to a sandbox that ends just then, or is paused and resumed, is the one thing that
          // cannot be told better.
          if (answer.status >= 500 && !/connection ended before the answer|the command (was started and may still run|may have been started)/.test(answer.text)) odd.push(answer.text)
        }
      }),
    )
    assert.deepEqual(odd, [])
    assert.ok(enough(), JSON.stringify(counts))
    const rows = async () => (await one.ok(200, 'GET', `/sandboxes?provider=${provider}&limit=1000`)).sandboxes
    for (const row of await rows()) await one.v1('GET', `/sandboxes/${row.id}?refresh=true`)
    const live = (await rows()).filter((row) => ['running', 'paused'].includes(row.state)).map((row) => row.external_id)
    const machines = (await engine.api('GET', '/v2/sandboxes?state=running,paused&limit=100')).body.map((machine) => machine.sandboxID)
    assert.deepEqual(machines.sort(), live.sort())
    assert.equal((await one.ok(200, 'GET', `/providers/${provider}`)).state, 'ok')
    await one.clear()
  })
}

// Nobody resumes it, so a command that waits for a frozen agent would wait for all its time. And what may have
// been started is not started again.
for (const provider of ['near', 'far']) {
  test(`paused on ${provider} behind the back of a command that is being started`, { timeout: 120_000 }, async () => {
    const engine = (provider === 'near' ? one : far).server
    const { id, external_id: machine } = await one.create({ provider })
    const done = []
    const said = {}
    for (let round = 0; round < 150; round++) {
      const before = performance.now()
      await one.output(id, 'true')
      const usual = performance.now() - before // so that the pause comes before, during and after, however fast this machine is
      const from = Date.now()
      const [answer] = await Promise.all([
        one.v1('POST', `/sandboxes/${id}/execute`, { argv: ['sh', '-c', `echo ${round} >> /tmp/rounds`], timeout: 30 }),
        new Promise((go) => setTimeout(go, (random(1000) / 1000) * usual)).then(() => engine.api('POST', `/sandboxes/${machine}/pause`)),
      ])
      assert.ok([200, 409, 503].includes(answer.status), answer.text)
      assert.ok(Date.now() - from < 25_000, `round ${round}: ${answer.status} after ${Date.now() - from} ms: ${answer.text}`)
      said[answer.status] = (said[answer.status] ?? 0) + 1
      if (answer.status === 200) done.push(`${round}`)
    }
    const ran = (await one.output(id, 'sleep 0.2; cat /tmp/rounds')).trim().split('\n')
    assert.equal(new Set(ran).size, ran.length, 'one was run twice')
    assert.deepEqual(done.filter((round) => !ran.includes(round)), [])
    assert.ok(said[200] > 10, JSON.stringify(said))
    await one.clear()
  })
}
