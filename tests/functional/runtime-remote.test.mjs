// A provider elsewhere: a second server of ours as any E2B endpoint, with something between that counts what is
// asked and fails on request.
import assert from 'node:assert/strict'
import http from 'node:http'
import { after, afterEach, before, describe, test } from 'node:test'
import { answer, cutAfter, drop, hang, startFaults } from '../harness/faults.mjs'
import { destroyAll, refused, runtimeOf, startRuntime } from '../harness/runtime.mjs'
import { eventually, startServer, timely } from '../harness/server.mjs'

const CREATE = /^\/sandboxes$/
const LIST = /^\/v2\/sandboxes$/
const START = /process\.Process\/Start$/

let far, faults, one, other
const settings = (url, key) => ({
  default_provider: 'far',
  providers: {
    far: { type: 'e2b', api_url: url, api_key: key },
    near: { type: 'e2b', api_url: 'embedded' },
    cloud: { type: 'daytona', api_url: `${url}/daytona`, api_key: 'dtn_secret' },
    bb: { type: 'browserbase', api_url: `${url}/browserbase`, api_key: 'bb_secret' },
  },
  profiles: { default: { provider: 'far', network: { mode: 'allow-all' } } },
  retry: { attempts: 3, min_s: 0.1, max_s: 0.5 },
  breaker: { failures: 5, open_s: 1 },
  health_interval_s: 86400,
})

before(async () => {
  far = runtimeOf(await startServer())
  faults = await startFaults(far.server.url)
  one = await startRuntime(settings(faults.url, far.server.key))
  other = await startRuntime(settings(faults.url, far.server.key))
})
after(async () => {
  faults.forget()
  await destroyAll(one, other, far)
  await faults.close()
})
afterEach(() => {
  faults.forget()
  for (const { server } of [far, one, other]) assert.ok(server.alive(), `a server died:\n${server.tail()}`)
})

const machines = () => far.server.ids()
// So that failures of one test do not open the breaker for the next.
const well = async () => {
  faults.forget()
  await eventually('the provider is asked again', async () => (await one.ok(200, 'GET', '/providers?check=true')).providers.find((provider) => provider.name === 'far').state === 'ok', 15_000, 200)
  faults.forget()
}

describe('three tiers', () => {
  test('resumed after restarts of our server and of the provider, with its files', async () => {
    const first = await one.create({ key: 'far-1' })
    assert.equal(first.provider, 'far')
    await one.execute(first.id, 'echo one >/home/user/f')
    await one.server.restart()
    assert.equal((await one.create({ key: 'far-1' })).id, first.id)
    await far.server.restart()
    const later = await one.create({ key: 'far-1' })
    assert.deepEqual([later.id, later.tier, later.external_id], [first.id, 'resumed', first.external_id])
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    await far.server.restart()
    await one.server.restart()
    assert.equal((await one.create({ key: 'far-1' })).id, first.id)
    assert.equal(await one.output(first.id, 'cat /home/user/f'), 'one\n')
    assert.equal(await one.count(first.id, 'sandbox.created'), 1)
    await one.remove(first.id)
    assert.deepEqual(await machines(), [])
  })

  test('what goes over the wire: create, metadata, state, connect only when paused, pause and no delete', async () => {
    const bodies = []
    const spy = (request, _response, pass) => {
      let text = ''
      request.on('data', (chunk) => (text += chunk))
      request.on('end', () => bodies.push(JSON.parse(text)))
      pass()
    }
    faults.next('POST', CREATE, spy)
    const key = 'conversation:c1:s1'
    const first = await one.create({ key, persistent: true, lifecycle: { idleTimeoutSeconds: 700 }, template: 'base' })
    const [body] = bodies
    assert.deepEqual([body.templateID, body.timeout, body.autoPause, body.secure, body.allow_internet_access], ['base', 700, true, true, true])
    assert.equal(body.metadata['exo.sandbox.key'], key)
    assert.equal(body.metadata['exo.sandbox.spec-hash'], first.spec_hash)
    const searched = faults.requests.find((request) => LIST.test(request.path))
    assert.match(decodeURIComponent(searched.url), /metadata=.*conversation/)
    assert.equal(searched.headers['x-api-key'], far.server.key)
    faults.forget()
    await one.create({ key, persistent: true, lifecycle: { idleTimeoutSeconds: 700 }, template: 'base' })
    assert.equal(faults.count('POST', /connect$/), 0, 'a running one is not connected to')
    assert.equal(faults.count('POST', CREATE), 0)
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    assert.equal(faults.count('POST', /\/pause$/), 1)
    assert.equal(faults.count('DELETE'), 0)
    await one.create({ key, persistent: true, lifecycle: { idleTimeoutSeconds: 700 }, template: 'base' })
    assert.equal(faults.count('POST', /\/connect$/), 1)
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${first.id}/snapshots`, {})
    assert.equal(faults.count('POST', /\/snapshots$/), 1)
    assert.equal(snapshot.kind, 'e2b-ref')
    await one.remove(first.id)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
  })

  test('killed there: restored from the snapshot; and when there is none, made anew', async () => {
    const first = await one.create({ key: 'far-2', agent_id: 'far-2' })
    await one.execute(first.id, 'echo kept >/home/user/f')
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${first.id}/snapshots`, {})
    await far.server.killAll()
    const restored = await one.create({ key: 'far-2', agent_id: 'far-2' })
    assert.deepEqual([restored.id, restored.tier], [first.id, 'restored'])
    assert.notEqual(restored.external_id, first.external_id)
    assert.equal(await one.output(restored.id, 'cat /home/user/f'), 'kept\n')
    assert.equal((await one.events({ agent_id: 'far-2', type: 'sandbox.created' })).length, 1)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
    await far.server.killAll()
    const anew = await one.create({ key: 'far-2', agent_id: 'far-2' })
    assert.equal(anew.tier, 'created')
    assert.notEqual(anew.id, first.id)
    assert.equal((await one.events({ agent_id: 'far-2', type: 'sandbox.created' })).length, 2)
    assert.equal((await one.execute(anew.id, 'cat /home/user/f')).exit_code, 1)
    await one.remove(anew.id)
  })

  test('a snapshot that is gone there does not stop ensure', async () => {
    const first = await one.create({ key: 'far-3' })
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${first.id}/snapshots`, {})
    const deleted = await far.server.api('DELETE', `/templates/${encodeURIComponent(snapshot.external_id)}`)
    assert.ok(deleted.status < 300, deleted.text)
    await far.server.killAll()
    const anew = await one.create({ key: 'far-3' })
    assert.equal(anew.tier, 'created')
    assert.equal((await one.ok(200, 'GET', `/snapshots/${snapshot.id}`)).state, 'error')
    await one.remove(anew.id)
  })
})

test('metrics: as the provider measures them', async () => {
  const box = await one.create()
  const used = await eventually('it is measured', async () => {
    const now = await one.ok(200, 'GET', `/sandboxes/${box.id}/metrics`)
    return now.memory_used_bytes > 0 && now
  }, 30_000, 500)
  assert.ok(faults.count('GET', /^\/sandboxes\/[^/]+\/metrics$/) > 0)
  const [there] = (await far.server.api('GET', `/sandboxes/${box.external_id}/metrics`)).body.slice(-1)
  assert.deepEqual([used.cpu_count, used.memory_total_bytes, used.disk_total_bytes], [there.cpuCount, there.memTotal, there.diskTotal])
  assert.ok(used.cpu_count >= 1 && used.memory_used_bytes < used.memory_total_bytes && used.disk_used_bytes < used.disk_total_bytes, JSON.stringify(used))
  await one.remove(box.id)
})

test('an idle time deletes a sandbox without a key there, and pauses one that is persistent', async () => {
  const lifecycle = { idleTimeoutSeconds: 2 }
  const [kept, neither] = [await one.create({ persistent: true, lifecycle }), await one.create({ lifecycle })]
  const there = async (box) => (await far.server.api('GET', '/v2/sandboxes?state=running,paused')).body.find((machine) => machine.sandboxID === box.external_id)?.state
  await eventually('one is deleted there', async () => !(await there(neither)))
  await eventually('the other is paused there', async () => (await there(kept)) === 'paused')
  assert.equal((await one.ok(200, 'GET', `/sandboxes/${neither.id}?refresh=true`)).state, 'killed')
  assert.equal((await one.ok(200, 'GET', `/sandboxes/${kept.id}?refresh=true`)).state, 'paused')
  await one.remove(kept.id)
})

describe('two servers, one key', () => {
  test('at the same time: one machine stays', async () => {
    for (let round = 0; round < 5; round++) {
      const key = `race-${round}`
      const [a, b] = await Promise.all([one.create({ key }), other.create({ key })])
      assert.equal(a.external_id, b.external_id, `round ${round}`)
      assert.deepEqual(await machines(), [a.external_id])
      await one.execute(a.id, 'echo seen >/home/user/f')
      assert.equal(await other.output(b.id, 'cat /home/user/f'), 'seen\n')
      const created = (await one.count(a.id, 'sandbox.created')) + (await other.count(b.id, 'sandbox.created'))
      assert.equal(created, 1, 'one of them has made it')
      await one.remove(a.id)
      await other.remove(b.id)
      assert.deepEqual(await machines(), [])
    }
  })

  test('20 on each', async () => {
    const all = await Promise.all(Array.from({ length: 40 }, (_, i) => (i % 2 ? one : other).create({ key: 'far-crowd' })))
    assert.equal(new Set(all.map((box) => box.external_id)).size, 1)
    assert.equal((await machines()).length, 1)
    await one.remove(all[1].id)
    await other.remove(all[0].id)
  })

  test('one after the other: found by its labels', async () => {
    const a = await one.create({ key: 'far-found' })
    await one.execute(a.id, 'echo there >/home/user/f')
    const b = await other.create({ key: 'far-found' })
    assert.deepEqual([b.external_id, b.tier], [a.external_id, 'resumed'])
    assert.equal(await other.output(b.id, 'cat /home/user/f'), 'there\n')
    assert.equal(await other.count(b.id, 'sandbox.created'), 0)
    await one.remove(a.id)
    await other.remove(b.id)
  })
})

// An error is an event and a line of the log, both with the agent and the task.
async function blamed(type, operation, agent, task, code) {
  const failed = (await one.events({ agent_id: agent, type })).at(-1)
  assert.deepEqual([failed?.agent, failed?.task], [agent, task])
  const line = new RegExp(`warn runtime: ${operation} failed sandbox=\\S* provider=far agent=${agent} task=${task} code=${code}: .`)
  await eventually(`${line} in the log`, () => line.test(one.server.log))
}

describe('a provider that fails', () => {
  test('twice 503: the third try succeeds, and one machine is there', async () => {
    faults.next('POST', CREATE, answer(503), 2)
    const box = await one.create()
    assert.equal(faults.count('POST', CREATE), 3)
    assert.equal((await machines()).length, 1)
    await one.remove(box.id)
    await well()
  })

  test('three times: 502, and no more tries', async () => {
    faults.next('POST', CREATE, answer(503, { message: 'no capacity' }), 100)
    const message = refused(await one.v1('POST', '/sandboxes', {}), 502, 'provider', /no capacity/)
    assert.match(message, /far/)
    assert.equal(faults.count('POST', CREATE), 3)
    await well()
  })

  test('an answer that got lost does not leave a second machine', async () => {
    faults.next('POST', CREATE, (request, response, pass) => pass(() => response.destroy()))
    const box = await one.create()
    assert.equal((await machines()).length, 1)
    assert.equal(await one.output(box.id, 'echo fine'), 'fine\n')
    await one.remove(box.id)
    assert.deepEqual(await machines(), [])
    await well()
  })

  test('garbage, and connections that break', async () => {
    for (const act of [answer(200, '<html>'), answer(201, '{"sandboxID":"../../x"}'), answer(201, 'null'), drop]) {
      faults.next('POST', CREATE, act)
      const box = await one.create()
      assert.equal(await one.output(box.id, 'echo fine'), 'fine\n')
      await one.remove(box.id)
    }
    await well()
  })

  test('a quota is told at once, with its reason', async () => {
    faults.next('POST', CREATE, answer(429, { code: 429, message: 'you have reached the maximum number of concurrent sandboxes' }, { 'retry-after': '30' }), 100)
    const full = await one.v1('POST', '/sandboxes', { agent_id: 'quota', task_id: 't9' })
    refused(full, 429, 'quota', /maximum number of concurrent/)
    assert.ok(Number(full.headers['retry-after']) >= 1)
    assert.equal(full.body.error.retryable, true)
    assert.equal(faults.count('POST', CREATE), 1, 'not tried again')
    await blamed('sandbox.error', 'create', 'quota', 't9', 'quota')
    await well()
  })

  test('a refused key is our affair, not the client’s', async () => {
    faults.next('POST', CREATE, answer(401, { message: 'bad key' }), 100)
    refused(await one.v1('POST', '/sandboxes', {}), 502, 'provider_unauthorized')
    assert.equal(faults.count('POST', CREATE), 1)
    await well()
  })

  test('a timeout there is 504, and a create is not repeated', async () => {
    faults.next('POST', CREATE, answer(504), 100)
    refused(await one.v1('POST', '/sandboxes', { agent_id: 'late', task_id: 't10' }), 504, 'timeout')
    assert.equal(faults.count('POST', CREATE), 1)
    await blamed('sandbox.error', 'create', 'late', 't10', 'timeout')
    await well()
  })

  test('a stream that is cut in the middle of a command is an error, not a result', async () => {
    const box = await one.create()
    await one.execute(box.id, 'true') // what is asked once about the image
    faults.forget()
    faults.next('POST', START, cutAfter('half\n'))
    const cut = await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'echo half; sleep 2; echo whole' })
    refused(cut, 502, 'provider', /was started and may still run/)
    assert.equal(faults.count('POST', START), 1, 'a command is never sent twice')
    const [, failed] = (await one.events({ sandbox_id: box.id, type: 'process.exited' }))
    assert.ok(failed.data.error && failed.data.exit_code === undefined, JSON.stringify(failed))
    assert.equal(await one.output(box.id, 'echo next'), 'next\n')
    await one.remove(box.id)
    await well()
  })

  test('an envd that sends nonsense', async () => {
    const box = await one.create()
    await one.execute(box.id, 'true')
    for (const bytes of ['nonsense', '\x00\xff\xff\xff\xff', '\x02\x00\x00\x00\x02{}']) {
      faults.next('POST', START, (request, response) => {
        request.resume()
        response.writeHead(200, { 'content-type': 'application/connect+proto' }).end(Buffer.from(bytes, 'latin1'))
      })
      refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true' }), 502, 'provider')
    }
    await one.remove(box.id)
    await well()
  })

  test('five failures in a row: not asked any more (503), then asked again', async () => {
    faults.next(undefined, /./, drop, 1000)
    let open
    for (let i = 0; i < 3 && open?.status !== 503; i++) {
      open = await one.v1('POST', '/sandboxes', {})
      if (open.status !== 503) refused(open, 502, 'provider')
    }
    refused(open, 503, 'unavailable', /failed \d+ times in a row/)
    assert.ok(Number(open.headers['retry-after']) >= 1)
    faults.requests = []
    await timely('the refusal', 200, async () => {
      const begin = performance.now()
      refused(await one.v1('POST', '/sandboxes', {}), 503, 'unavailable')
      return performance.now() - begin
    })
    assert.deepEqual(faults.requests, [])
    assert.equal((await one.ok(200, 'GET', '/providers/far')).state, 'open')
    const near = await one.create({ provider: 'near' })
    await one.remove(near.id)
    faults.forget()
    const box = await eventually('it is asked again', async () => {
      const answer = await one.v1('POST', '/sandboxes', {})
      return answer.status === 201 && answer.body
    })
    assert.equal((await one.ok(200, 'GET', '/providers/far')).state, 'ok')
    await one.remove(box.id)
  })

  test('a provider that hangs is told by its health, and others go on', async () => {
    faults.next('GET', LIST, hang, 100)
    const checked = one.v1('GET', '/providers?check=true')
    const box = await one.create({ provider: 'near' })
    assert.equal(await one.output(box.id, 'echo on'), 'on\n')
    await one.remove(box.id)
    const states = (await checked).body.providers
    assert.notEqual(states.find((provider) => provider.name === 'far').state, 'ok')
    assert.equal(states.find((provider) => provider.name === 'near').state, 'ok')
    await well()
  })

  test('a command to an envd that hangs ends with 504', async () => {
    const box = await one.create({ agent_id: 'hung', task_id: 't11' })
    await one.execute(box.id, 'true')
    faults.next('POST', START, hang, 10)
    const begin = performance.now()
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true', timeout: 2 }), 504, 'timeout')
    assert.ok(performance.now() - begin < 30_000, `${performance.now() - begin} ms`)
    await blamed('process.exited', 'command', 'hung', 't11', 'timeout')
    await one.remove(box.id)
    await well()
  })
})

describe('what it cannot do is refused before it is asked', () => {
  const silent = async (body, status, code, words) => {
    faults.forget()
    refused(await one.v1('POST', '/sandboxes', body), status, code, words)
    assert.deepEqual(faults.requests.map((request) => `${request.method} ${request.url}`), [])
  }

  test('mounts of the host', async () => {
    await silent({ mounts: [{ host_path: '/', guest_path: '/host' }] }, 400, 'invalid', /'far' does not support mounts/)
    await silent({ provider: 'near', mounts: [{ host_path: '/', guest_path: '/host' }] }, 400, 'invalid', /does not support mounts/)
  })

  test('restricted networks', async () => {
    const words = /e2b cannot enforce egress restrictions; set config\.network\.mode to allow-all explicitly/
    await silent({ network: { mode: 'deny-all' } }, 400, 'invalid', words)
    await silent({ network: { mode: 'restricted', allowDomains: ['a.test'] } }, 400, 'invalid', words)
    const box = await one.create({ provider: 'near', network: { mode: 'deny-all' } })
    assert.equal(await one.output(box.id, 'curl -sm 3 http://203.0.113.1/ || echo no way'), 'no way\n')
    await one.remove(box.id)
  })

  test('snapshots of another kind, both ways', async () => {
    const box = await one.create({ provider: 'near' })
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {})
    await silent({ provider: 'cloud', network: { mode: 'allow-all' }, snapshot: snapshot.id }, 409, 'unsupported', /kind 'e2b-ref'/)
    await silent({ provider: 'far', snapshot: snapshot.id }, 409, 'unsupported', /kept by provider 'near'/)
    await silent({ provider: 'bb', snapshot: snapshot.id }, 409, 'unsupported', /does not support snapshot/)
    await one.remove(box.id)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
  })

  // Not before it is asked: only the provider knows its limit (the other server's max-hours here).
  test('an idle time beyond its own limit is a fault of the request, in its words', async () => {
    faults.forget()
    const lifecycle = { idleTimeoutSeconds: 7 * 86400 }
    assert.equal((await one.ok(200, 'POST', '/profiles/week/validate', { provider: 'far', network: { mode: 'allow-all' }, persistent: true, lifecycle })).valid, true)
    refused(await one.v1('POST', '/sandboxes', { lifecycle }), 400, 'invalid', /provider 'far': Timeout cannot be greater than 24 hours/)
    assert.equal(faults.count('POST', CREATE), 1, 'not tried again')
    assert.deepEqual(await machines(), [])
  })

  test('sizes, hooks, an unknown provider', async () => {
    await silent({ limits: { cpu: 4 } }, 409, 'unsupported', /cpu, memory and disk/)
    await silent({ provider: 'nowhere' }, 400, 'invalid', /nowhere/)
    refused(await one.v1('PUT', '/profiles/h', { provider: 'far', persistent: true, network: { mode: 'allow-all' }, onCreate: ['true'] }), 400, 'invalid', /config\.onCreate and config\.onResume are not supported by the e2b provider; use an E2B template or run setup commands explicitly/)
  })

  test('live logs and stop of a job', async () => {
    const box = await one.create()
    const job = await one.start(box.id, 'sleep 2; echo over')
    faults.forget()
    refused(await one.v1('GET', `/sandboxes/${box.id}/processes/${job.id}/logs`), 409, 'unsupported', /job_logs.*no live log/)
    refused(await one.v1('POST', `/sandboxes/${box.id}/processes/${job.id}/stop`), 409, 'unsupported', /job_stop.*cannot be stopped/)
    assert.equal(faults.count('POST', START), 0)
    assert.equal((await one.process(job.id, '?wait=20')).exit_code, 0)
    await one.remove(box.id)
  })

  test('a browser runs no commands', async () => {
    faults.next('POST', /browserbase\/v1\/sessions$/, answer(200, { id: 'b-1', status: 'RUNNING', connectUrl: 'wss://connect.test/?signingKey=k' }))
    faults.next(undefined, /browserbase/, answer(200, { id: 'b-1', status: 'RUNNING', connectUrl: 'wss://connect.test/?signingKey=k' }), 100)
    const box = await one.create({ provider: 'bb' })
    assert.equal(box.cdp_url, 'wss://connect.test/?signingKey=k')
    assert.equal(faults.requests[0].headers['x-bb-api-key'], 'bb_secret')
    faults.requests = []
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'id' }), 409, 'unsupported', /'bb' does not support exec/)
    refused(await one.v1('POST', `/sandboxes/${box.id}/snapshots`, {}), 409, 'unsupported', /snapshot/)
    refused(await one.v1('GET', `/sandboxes/${box.id}/files?path=/etc/passwd`), 409, 'unsupported', /files/)
    assert.deepEqual(faults.requests, [])
    await one.remove(box.id)
    assert.equal(faults.requests.at(-1).method, 'POST')
  })
})

test('a job goes on while the provider and our server restart', async (t) => {
  const seen = []
  const receiver = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      seen.push({ headers: request.headers, body: JSON.parse(text) })
      response.end()
    })
  })
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done))
  t.after(() => receiver.close())
  const box = await one.create({ key: 'far-job' })
  const job = await one.start(box.id, 'sleep 6; echo made it; exit 3', { callback: { url: `http://127.0.0.1:${receiver.address().port}/done`, token: 'tok-1' } })
  await far.server.restart()
  await one.server.restart()
  const ended = await one.process(job.id, '?wait=30')
  assert.deepEqual([ended.state, ended.exit_code], ['failed', 3])
  await eventually('the callback', () => seen.length)
  assert.deepEqual(seen[0].body, { status: 'failed', response: { exitCode: 3, logs: 'made it\n' } })
  assert.equal(seen[0].headers['x-job-token'], 'tok-1')
  await one.remove(box.id)
})

test('a job has a row before it is launched, and is found out when it never was', async () => {
  const box = await one.create({ key: 'far-row' })
  await one.execute(box.id, 'true')
  faults.next('POST', START, hang, 100)
  const answered = one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'echo never', background: true }).catch((error) => error)
  await eventually('it is to be launched', () => faults.rules[0].left < 100)
  const { processes } = await one.ok(200, 'GET', `/sandboxes/${box.id}/processes`)
  assert.deepEqual(processes.map((job) => job.state), ['running'])
  await one.server.kill9()
  await answered
  faults.forget()
  await one.server.start()
  const ended = await one.process(processes[0].id, '?wait=30')
  assert.deepEqual([ended.state, ended.exit_code], ['failed', 137], JSON.stringify(ended))
  assert.match(ended.error, /not launched/)
  await one.remove(box.id)
})

test('no secret is in a log, an event or an answer', async () => {
  const told = [one.server.log, other.server.log, JSON.stringify(await one.events({}))]
  for (const target of ['/providers', '/profiles', '/sandboxes?state=killed&limit=1000', '/stats']) told.push((await one.v1('GET', target)).text)
  for (const secret of [far.server.key, one.server.key, 'dtn_secret', 'bb_secret', 'tok-1']) for (const text of told) assert.ok(!text.includes(secret), `${secret.slice(0, 7)}… in ${text.slice(Math.max(0, text.indexOf(secret) - 200), text.indexOf(secret))}`)
})
