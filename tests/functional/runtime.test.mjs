// The runtime on the engine beside it: the three tiers of ensure, who may do what, commands, cleanup, usage.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { passTime } from '../harness/clock.mjs'
import { destroyAll, refused, startRuntime } from '../harness/runtime.mjs'
import { eventually, patience, timely } from '../harness/server.mjs'

let one
before(async () => {
  one = await startRuntime({ providers: { e2b: { type: 'e2b', api_url: 'embedded', usd_per_second: 0.01, usd_per_cpu_second: 0.001 } } }, { args: ['--process-provider', '1'] })
})
after(() => destroyAll(one))
afterEach(() => assert.ok(one.server.alive(), `the server died:\n${one.server.tail()}`))

// Kills a machine without telling the runtime.
const killBehind = async (box) => assert.equal((await one.server.api('DELETE', `/sandboxes/${(await one.get(box.id)).external_id}`)).status, 204)

describe('ensure', () => {
  test('tier 1: the same sandbox, paused or not, with its files, also after a restart', async () => {
    const first = await one.create({ key: 'tier-1' })
    assert.equal(first.tier, 'created')
    await one.execute(first.id, 'echo one >/home/user/f')
    const running = await one.create({ key: 'tier-1' })
    assert.deepEqual([running.id, running.tier, running.external_id], [first.id, 'resumed', first.external_id])
    assert.equal(await one.count(first.id, 'sandbox.resumed'), 0, 'one that runs is only used')
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    assert.equal((await one.create({ key: 'tier-1' })).id, first.id)
    await one.server.restart()
    const later = await one.create({ key: 'tier-1' })
    assert.deepEqual([later.id, later.tier], [first.id, 'resumed'])
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    await one.server.restart()
    assert.equal((await one.create({ key: 'tier-1' })).id, first.id)
    assert.equal(await one.output(first.id, 'cat /home/user/f'), 'one\n')
    assert.equal(await one.count(first.id, 'sandbox.created'), 1)
    assert.equal(await one.count(first.id, 'sandbox.resumed'), 2)
    await one.remove(first.id)
  })

  test('a killed server finds it again as well', async () => {
    const first = await one.create({ key: 'kill-9' })
    await one.execute(first.id, 'echo two >/home/user/f')
    await one.server.kill9()
    await one.server.start()
    const later = await one.create({ key: 'kill-9' })
    assert.equal(later.id, first.id)
    assert.equal(await one.output(later.id, 'cat /home/user/f'), 'two\n')
    assert.equal(await one.count(first.id, 'sandbox.created'), 1)
    await one.remove(first.id)
  })

  test('tier 2: killed behind our back, restored from the newest snapshot under the same id', async () => {
    const first = await one.create({ key: 'tier-2' })
    await one.execute(first.id, 'echo old >/home/user/f')
    await one.ok(201, 'POST', `/sandboxes/${first.id}/snapshots`, {})
    await one.execute(first.id, 'echo new >/home/user/f')
    const newest = await one.ok(201, 'POST', `/sandboxes/${first.id}/snapshots`, {})
    await one.execute(first.id, 'echo lost >/home/user/f')
    await killBehind(first)
    await one.server.restart()
    const again = await one.create({ key: 'tier-2' })
    assert.deepEqual([again.id, again.tier, again.snapshot_id], [first.id, 'restored', newest.id])
    assert.notEqual(again.external_id, first.external_id)
    assert.equal(await one.output(again.id, 'cat /home/user/f'), 'new\n')
    const events = (await one.events({ sandbox_id: first.id })).map((event) => event.type).filter((type) => type.startsWith('sandbox.'))
    assert.deepEqual(events, ['sandbox.created', 'sandbox.started', 'sandbox.killed', 'sandbox.started'])
    assert.equal((await one.create({ key: 'tier-2' })).tier, 'resumed')
    await one.remove(first.id)
  })

  test('tier 3: nothing is left, a new one under a new id', async () => {
    const first = await one.create({ key: 'tier-3', agent_id: 'tier-3' })
    await one.execute(first.id, 'echo gone >/home/user/f')
    await killBehind(first)
    const again = await one.create({ key: 'tier-3', agent_id: 'tier-3' })
    assert.equal(again.tier, 'created')
    assert.notEqual(again.id, first.id)
    assert.equal((await one.execute(again.id, 'cat /home/user/f')).exit_code, 1)
    const created = await one.events({ agent_id: 'tier-3', type: 'sandbox.created' })
    assert.deepEqual(created.map((event) => event.sandbox), [first.id, again.id])
    const old = await one.get(first.id)
    assert.equal(old.state, 'killed')
    assert.ok(old.destroyed_at)
    await one.remove(again.id)
  })

  test('a command finds a paused one, and says of a vanished one that it is gone', async () => {
    const box = await one.create({ key: 'used' })
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    assert.equal(await one.output(box.id, 'echo awake'), 'awake\n')
    await killBehind(box)
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true' }), 404, 'not_found', /gone|does not exist any more/)
    assert.equal((await one.ok(200, 'GET', `/sandboxes/${box.id}?refresh=true`)).status, 'error')
    await one.remove(box.id)
  })

  test('20 at once get one sandbox', async () => {
    const before = (await one.server.ids()).length
    const all = await Promise.all(Array.from({ length: 20 }, () => one.create({ key: 'crowd' })))
    assert.equal(new Set(all.map((box) => box.id)).size, 1)
    assert.equal(all.filter((box) => box.tier === 'created').length, 1)
    assert.equal((await one.server.ids()).length, before + 1)
    assert.equal(await one.count(all[0].id, 'sandbox.created'), 1)
    await one.remove(all[0].id)
    assert.equal((await one.server.ids()).length, before)
  })

  test('a sandbox starts within 150 ms, its first command included', async () => {
    await timely('the median of five', 150, async () => {
      const times = []
      for (let i = 0; i < 5; i++) {
        const begin = performance.now()
        const box = await one.create()
        assert.equal(await one.output(box.id, 'echo up'), 'up\n')
        times.push(performance.now() - begin)
        await one.remove(box.id)
      }
      return times.sort((a, b) => a - b)[2]
    })
  })

  test('20 different ones at once: 20 sandboxes that all work', async () => {
    const before = (await one.server.ids()).length
    const all = await Promise.all(Array.from({ length: 20 }, (_, i) => one.create({ key: `burst-${i}` })))
    assert.equal(new Set(all.map((box) => box.id)).size, 20)
    assert.ok(all.every((box) => box.tier === 'created' && box.state === 'running'))
    assert.equal((await one.server.ids()).length, before + 20)
    const said = await Promise.all(all.map((box, i) => one.output(box.id, `echo ${i} > /tmp/mine; sleep 0.2; cat /tmp/mine`)))
    assert.deepEqual(said, all.map((_, i) => `${i}\n`))
    await Promise.all(all.map((box) => one.remove(box.id)))
    assert.equal((await one.server.ids()).length, before)
  })

  test('another template under the same key is another sandbox; env is not part of it', async () => {
    const first = await one.create({ key: 'spec' })
    assert.equal((await one.create({ key: 'spec', env: { A: 'b' } })).id, first.id)
    const other = await one.create({ key: 'spec', network: { mode: 'deny-all' } })
    assert.notEqual(other.id, first.id)
    assert.notEqual(other.spec_hash, first.spec_hash)
    assert.match(first.spec_hash, /^[0-9a-f]{16}$/)
    assert.equal((await one.create({ key: 'spec' })).id, first.id, 'the first is found again')
    await one.remove(first.id)
    await one.remove(other.id)
  })

  test('an idle time pauses a sandbox with a key or persistent, and deletes any other', async () => {
    const lifecycle = { idleTimeoutSeconds: 1 }
    const keyed = await one.create({ key: 'idle', lifecycle })
    const persistent = await one.create({ persistent: true, lifecycle })
    const neither = await one.create({ lifecycle })
    // A file, a program that is installed, and a process.
    const begin = (id) => `echo ${id} >/home/user/f; printf '#!/bin/sh\\necho installed\\n' | sudo tee /usr/local/bin/tool >/dev/null; sudo chmod +x /usr/local/bin/tool; nohup sleep 1000 >/dev/null 2>&1 & echo $! >/home/user/pid`
    const all = 'cat /home/user/f; tool; kill -0 $(cat /home/user/pid) && echo runs'
    for (const { id } of [keyed, persistent, neither]) await one.execute(id, begin(id))
    const reaches = (box, state) => eventually(`${state}`, async () => (await one.get(box.id)).state === state)
    await reaches(keyed, 'paused')
    await reaches(persistent, 'paused')
    await reaches(neither, 'killed')
    const machines = (await one.server.api('GET', '/v2/sandboxes?state=running,paused')).body.map((machine) => machine.sandboxID)
    assert.ok(machines.includes(keyed.external_id) && machines.includes(persistent.external_id))
    assert.ok(!machines.includes(neither.external_id), 'the engine has deleted it')
    const found = await one.create({ key: 'idle', lifecycle })
    assert.deepEqual([found.id, found.tier], [keyed.id, 'resumed'])
    for (const { id } of [keyed, persistent]) assert.equal(await one.output(id, all), `${id}\ninstalled\nruns\n`)
    refused(await one.v1('POST', `/sandboxes/${neither.id}/execute`, { command: 'true' }), 404, 'not_found', /was killed at/)
    await one.remove(keyed.id)
    await one.remove(persistent.id)
  })

  test('work keeps it awake: a command longer than its idle time', async () => {
    const box = await one.create({ lifecycle: { idleTimeoutSeconds: 2 } })
    assert.equal(await one.output(box.id, 'sleep 5; echo still here'), 'still here\n')
    await one.remove(box.id)
  })

  test('terminate is pause: nothing is lost', async () => {
    const box = await one.create({ key: 'terminate' })
    await one.execute(box.id, 'nohup sleep 1000 >/dev/null 2>&1 & echo $! >/home/user/pid')
    const paused = await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    assert.deepEqual([paused.state, paused.status], ['paused', 'stopped'])
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)).state, 'paused', 'twice')
    const external = (await one.server.api('GET', `/v2/sandboxes?state=paused`)).body.map((machine) => machine.sandboxID)
    assert.ok(external.includes(box.external_id), 'it was not deleted')
    assert.equal((await one.ok(200, 'POST', `/sandboxes/${box.id}/resume`)).state, 'running')
    assert.equal(await one.output(box.id, 'kill -0 $(cat /home/user/pid) && echo runs'), 'runs\n', 'its process is gone')
    await one.remove(box.id)
  })
})

describe('who may', () => {
  test('another agent: 403, for everything a sandbox has', async () => {
    const box = await one.create({ agent_id: 'owner', key: 'owned' })
    const job = await one.start(box.id, 'sleep 100')
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {})
    const as = { headers: { 'X-Agent-ID': 'thief' } }
    for (const [method, target, body] of [
      ['GET', `/sandboxes/${box.id}`],
      ['DELETE', `/sandboxes/${box.id}`],
      ['POST', `/sandboxes/${box.id}/pause`],
      ['POST', `/sandboxes/${box.id}/resume`],
      ['POST', `/sandboxes/${box.id}/execute`, { command: 'id' }],
      ['POST', `/sandboxes/${box.id}/execute`, { command: 'id', background: true }],
      ['POST', `/sandboxes/${box.id}/snapshots`, {}],
      ['GET', `/sandboxes/${box.id}/snapshots`],
      ['GET', `/snapshots/${snapshot.id}`],
      ['DELETE', `/snapshots/${snapshot.id}`],
      ['POST', '/sandboxes', { snapshot: snapshot.id }],
      ['GET', `/sandboxes/${box.id}/processes`],
      ['GET', `/sandboxes/${box.id}/processes/${job.id}`],
      ['GET', `/sandboxes/${box.id}/processes/${job.id}/logs`],
      ['POST', `/sandboxes/${box.id}/processes/${job.id}/stop`],
      ['POST', `/sandboxes/${box.id}/processes/${job.id}/signal`, { signal: 'KILL' }],
      ['POST', `/sandboxes/${box.id}/processes/${job.id}/input`, { data: 'x' }],
      ['GET', `/sandboxes/${box.id}/files?path=/etc/passwd`],
      ['PUT', `/sandboxes/${box.id}/files?path=/tmp/x`, 'x'],
      ['DELETE', `/sandboxes/${box.id}/files?path=/tmp`],
      ['GET', `/sandboxes/${box.id}/ports/80`],
      ['POST', '/sandboxes', { key: 'owned' }],
    ]) {
      const answer = await one.v1(method, target, body, as)
      assert.equal(answer.status, 403, `${method} ${target}: ${answer.status} ${answer.text}`)
    }
    assert.equal((await one.process(job.id)).state, 'running')
    await one.remove(box.id)
  })

  test('another team: 404, and nothing in its lists', async () => {
    const admin = async (target, body) => {
      const answer = await one.server.api('POST', target, body)
      assert.equal(answer.status, 201, answer.text)
      return answer.body
    }
    const team = await admin('/admin/teams', { name: 'others' })
    const { key } = await admin(`/admin/teams/${team.teamID}/api-keys`, { name: 'k' })
    const box = await one.create({ agent_id: 'mine', key: 'shared-name' })
    const job = await one.start(box.id, 'sleep 100')
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, { alias: 'team/alias' })
    await one.ok(200, 'PUT', '/profiles/ours', { provider: 'e2b', network: { mode: 'allow-all' } })
    const as = { key }
    for (const [method, target, body] of [
      ['GET', `/sandboxes/${box.id}`],
      ['DELETE', `/sandboxes/${box.id}`],
      ['POST', `/sandboxes/${box.id}/execute`, { command: 'id' }],
      ['GET', `/sandboxes/${box.id}/files?path=/etc/passwd`],
      ['GET', `/sandboxes/${encodeURIComponent('key:shared-name')}`],
      ['GET', `/sandboxes/-/processes/${job.id}`],
      ['GET', `/sandboxes/-/processes/${job.id}/logs`],
      ['GET', `/snapshots/${snapshot.id}`],
      ['GET', '/snapshots/team%2Falias'],
      ['DELETE', `/snapshots/${snapshot.id}`],
      ['POST', '/sandboxes', { snapshot: 'team/alias' }],
      ['GET', '/profiles/ours'],
    ]) {
      const answer = await one.v1(method, target, body, as)
      assert.equal(answer.status, 404, `${method} ${target}: ${answer.status} ${answer.text}`)
    }
    const listed = await Promise.all(['/sandboxes', '/snapshots', '/profiles', '/sessions', '/events?since=0&limit=1000', '/stats'].map((target) => one.ok(200, 'GET', target, undefined, as)))
    const text = JSON.stringify(listed)
    for (const hidden of [box.id, snapshot.id, job.id, 'ours', 'team/alias']) assert.ok(!text.includes(hidden), `${hidden} is told: ${text}`)
    const theirs = await one.create({ key: 'shared-name' }, as)
    assert.notEqual(theirs.id, box.id, 'the same key of another team is another sandbox')
    assert.equal((await one.v1('DELETE', `/sandboxes/${theirs.id}`, undefined, as)).status, 204)
    await one.ok(204, 'DELETE', '/profiles/ours')
    await one.remove(box.id)
  })
})

describe('commands', () => {
  let box
  before(async () => (box = await one.create({ env: { FROM: 'sandbox', BOTH: 'sandbox' } })))
  after(() => one.remove(box.id))

  test('a command runs as it is: quotes, variables, lines, pipes, letters', async () => {
    const lines = [`a='one  two'; echo "$a" '$a' \\$a`, 'cat <<"END" | tr a-z A-Z', "it's $HOME & \"more\"; `no`", 'END', 'for i in 1 2; do', '\tprintf "%s!%%\\n" "$i"', 'done # not this', 'echo grüße 語 && [[ x == x ]] && echo bash']
    const result = await one.execute(box.id, lines.join('\n'))
    assert.deepEqual([result.exit_code, result.stderr], [0, ''])
    assert.equal(result.stdout, `one  two $a $a\nIT'S $HOME & "MORE"; \`NO\`\n1!%\n2!%\ngrüße 語\nbash\n`)
  })

  test('a failing command is a result, a missing one too', async () => {
    const result = await one.execute(box.id, 'test -d /nonexistent && echo exists')
    assert.deepEqual([result.exit_code, result.stdout, result.stderr, result.timed_out], [1, '', '', false])
    assert.equal((await one.execute(box.id, 'no-such-program')).exit_code, 127)
    const killed = await one.execute(box.id, 'kill -9 $$')
    assert.equal(killed.exit_code, 137)
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { argv: [] }), 400, 'invalid')
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, {}), 400, 'invalid')
  })

  test('environment: of the sandbox, of the request above it; directory and user', async () => {
    assert.equal((await one.execute(box.id, 'echo $FROM $BOTH $ONLY; pwd; id -un', { env: { BOTH: 'request', ONLY: 'here' }, cwd: '/usr', user: 'root' })).stdout, 'sandbox request here\n/usr\nroot\n')
    assert.equal(await one.output(box.id, 'echo $FROM $BOTH'), 'sandbox sandbox\n')
    const nowhere = await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'pwd', cwd: '/nonexistent' })
    assert.ok(nowhere.status >= 400 && nowhere.status < 500, nowhere.text)
  })

  test('output is cut where it was told to, and bounded when nothing was told', async () => {
    const cut = await one.execute(box.id, 'yes | head -c 5000; yes >&2 | head -c 1', { output_limit: 100, timeout: 3 })
    assert.equal(cut.truncated, true)
    assert.ok(cut.stdout.endsWith('\n[output truncated]'), cut.stdout)
    assert.ok(cut.stdout.length <= 100 + 20 && cut.stderr.length <= 100 + 20)
    const much = await one.execute(box.id, 'head -c 20000000 /dev/zero | tr "\\0" y')
    assert.equal(much.exit_code, 0)
    assert.equal(much.truncated, true)
    assert.equal(much.stdout.length, 65536 + '\n[output truncated]'.length)
    const exact = await one.execute(box.id, 'printf 12345', { output_limit: 5 })
    assert.deepEqual([exact.stdout, exact.truncated], ['12345', false])
    refused(await one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true', output_limit: 1 << 30 }), 400, 'invalid')
  })

  test('a timeout ends the whole tree and says so', async () => {
    const begin = performance.now()
    const result = await one.execute(box.id, 'echo begun; (trap "" TERM; sleep 1000) & sleep 1001', { timeout: 3 })
    assert.deepEqual([result.timed_out, result.exit_code, result.stdout], [true, 124, 'begun\n'])
    assert.ok(performance.now() - begin < 15_000 * patience)
    assert.equal(await one.output(box.id, 'pgrep -fc "sleep 100[01]" || true'), '0\n')
  })

  test('the lifetime of a command is its own, not that of the request that began it', async () => {
    const job = await one.start(box.id, 'sleep 2; echo finished', { timeout: 60 })
    assert.equal(job.state, 'running')
    assert.equal((await one.process(job.id, '?wait=10')).exit_code, 0)
  })

  test('100 at the same time', async () => {
    const all = await Promise.all(Array.from({ length: 100 }, (_, i) => one.execute(box.id, `echo ${i}`)))
    assert.deepEqual(all.map((result) => result.stdout), Array.from({ length: 100 }, (_, i) => `${i}\n`))
  })
})

describe('what is not there', () => {
  test('plain processes have no snapshot, no pause, no network mode: said at once', async () => {
    const box = await one.create({ provider: 'local', network: { mode: 'allow-all' } })
    assert.equal(await one.output(box.id, 'echo $((6*7))'), '42\n')
    refused(await one.v1('POST', `/sandboxes/${box.id}/snapshots`, {}), 409, 'unsupported', /snapshot/)
    refused(await one.v1('POST', `/sandboxes/${box.id}/pause`), 409, 'unsupported', /pause/)
    refused(await one.v1('POST', '/sandboxes', { provider: 'local', network: { mode: 'deny-all' } }), 400, 'invalid', /cannot enforce deny-all/)
    await one.remove(box.id)
  })

  test('a snapshot of one provider is refused by another', async () => {
    const box = await one.create()
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {})
    refused(await one.v1('POST', '/sandboxes', { provider: 'local', network: { mode: 'allow-all' }, snapshot: snapshot.id }), 409, 'unsupported', /local/)
    refused(await one.v1('POST', '/sandboxes', { snapshot: 'github/none/none#none' }), 404, 'not_found')
    await one.remove(box.id)
    const later = await one.create({ snapshot: snapshot.id })
    assert.equal(later.tier, 'restored')
    await one.remove(later.id)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
  })
})

describe('cleanup and usage', () => {
  test('prune ends what nobody used for so long, and only that', async () => {
    const old = await one.create({ agent_id: 'prune' })
    await passTime(one.server, 120)
    const young = await one.create({ agent_id: 'prune' })
    const as = { headers: { 'X-Agent-ID': 'prune' } }
    assert.equal((await one.ok(200, 'POST', '/prune', { older_than: '24h' }, as)).sandboxes, 0)
    assert.equal((await one.ok(200, 'POST', '/prune', { older_than: 60, dry_run: true }, as)).sandboxes, 1)
    assert.equal((await one.get(old.id)).state, 'running')
    assert.equal((await one.ok(200, 'POST', '/prune', { older_than: '60s' }, as)).sandboxes, 1)
    assert.equal((await one.get(old.id)).state, 'killed')
    assert.equal((await one.get(young.id)).state, 'running')
    assert.equal((await one.events({ sandbox_id: old.id, type: 'sandbox.killed' }))[0].data.reason, 'stale')
    await one.remove(young.id)
  })

  test('destroyed twice is destroyed; it keeps its row', async () => {
    const box = await one.create({ agent_id: 'a', task_id: 't' })
    await one.remove(box.id)
    await one.remove(box.id)
    const seen = await one.get(box.id)
    assert.deepEqual([seen.state, seen.status, seen.agent_id, seen.task_id], ['killed', 'stopped', 'a', 't'])
    assert.ok(seen.destroyed_at >= seen.created_at)
    assert.equal(await one.count(box.id, 'sandbox.killed'), 1)
    refused(await one.v1('DELETE', '/sandboxes/sbx_00000000000000000000'), 404, 'not_found')
    await one.server.restart()
    assert.deepEqual(await one.get(box.id), seen, 'it is in the database')
  })

  test('a command that fails leaves no sandbox behind when its user removes it', async () => {
    const before = (await one.server.ids()).length
    const box = await one.create()
    await one.execute(box.id, 'exit 1')
    await one.remove(box.id)
    assert.equal((await one.server.ids()).length, before)
  })

  test('metrics: what a sandbox uses of processors, memory and disk', async () => {
    const box = await one.create({ limits: { cpu: 2, memoryMb: 512 } })
    const before = await one.ok(200, 'GET', `/sandboxes/${box.id}/metrics`)
    assert.deepEqual([before.cpu_count, before.memory_total_bytes], [2, 512 << 20])
    await one.start(box.id, 'head -c 64M /dev/urandom >/home/user/big; head -c 100M /dev/zero | tail -c 100M >/dev/null; while :; do :; done')
    const used = await eventually('it is measured at work', async () => {
      const now = await one.ok(200, 'GET', `/sandboxes/${box.id}/metrics`)
      return now.cpu_percent > 10 && now.disk_used_bytes > before.disk_used_bytes + (48 << 20) && now
    }, 40_000, 500)
    assert.ok(used.cpu_percent <= 110 && used.at > before.at, JSON.stringify(used))
    assert.ok(used.memory_used_bytes > 0 && used.memory_used_bytes < used.memory_total_bytes, JSON.stringify(used))
    assert.ok(used.disk_used_bytes < used.disk_total_bytes, JSON.stringify(used))
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    await one.ok(200, 'GET', `/sandboxes/${box.id}/metrics`)
    assert.equal((await one.get(box.id)).state, 'paused', 'it is not woken')
    await one.remove(box.id)
    const plain = await one.create({ provider: 'local', network: { mode: 'allow-all' } })
    refused(await one.v1('GET', `/sandboxes/${plain.id}/metrics`), 409, 'unsupported', /measures of what a sandbox uses/)
    await one.remove(plain.id)
  })

  test('stats: seconds, commands, jobs and cost by the configured rates', async () => {
    const before = await one.ok(200, 'GET', '/stats')
    const box = await one.create()
    await one.execute(box.id, 'sleep 1')
    await one.process((await one.start(box.id, 'true')).id, '?wait=10')
    await one.remove(box.id)
    const after = await one.ok(200, 'GET', '/stats')
    assert.equal(after.total.sandboxes, before.total.sandboxes + 1)
    assert.equal(after.total.commands, before.total.commands + 1)
    assert.equal(after.total.jobs, before.total.jobs + 1)
    const e2b = after.providers.e2b
    const ran = after.total.seconds - before.total.seconds
    assert.ok(ran >= 1 && ran < 60, `${ran}`)
    assert.ok(Math.abs(e2b.usd - (e2b.seconds * 0.01 + e2b.cpu_seconds * 0.001)) < 1e-6, JSON.stringify(e2b))
    assert.ok(after.create_ms.p50 > 0 && after.create_ms.p50 < 5000, JSON.stringify(after.create_ms))
  })

  test('usage is told and summed up by agent, task and session, and a pause costs nothing', async () => {
    const box = await one.create({ key: 'billed', agent_id: 'payer', task_id: 'billed-task' })
    await one.execute(box.id, 'true')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    const usage = async () => (await one.events({ sandbox_id: box.id, type: 'usage' })).map((event) => event.data)
    const [first] = await usage()
    assert.deepEqual([first.provider, first.running, first.commands, first.jobs], ['e2b', false, 1, 0])
    assert.ok(first.seconds > 0 && first.cpu_seconds >= first.seconds, JSON.stringify(first))
    assert.ok(Math.abs(first.usd - (first.seconds * 0.01 + first.cpu_seconds * 0.001)) < 1e-6, JSON.stringify(first))
    const paused = await one.ok(200, 'GET', '/stats')
    for (const usages of [paused.agents.payer, paused.tasks['billed-task']]) {
      assert.deepEqual([usages.sandboxes, usages.running, usages.commands], [1, 0, 1])
      assert.ok(Math.abs(usages.seconds - first.seconds) < 1e-3 && Math.abs(usages.usd - first.usd) < 1e-6, JSON.stringify(usages))
    }
    await one.execute(box.id, 'true')
    await one.remove(box.id)
    const last = (await usage()).at(-1)
    assert.ok(last.seconds > first.seconds && last.commands === 2, JSON.stringify(last))
    const ended = await one.ok(200, 'GET', '/stats')
    assert.ok(Math.abs(ended.agents.payer.seconds - last.seconds) < 1e-3)
    assert.deepEqual((await one.ok(200, 'GET', '/stats')).agents.payer, ended.agents.payer, 'nothing after its end')
    assert.equal(typeof ended.sessions, 'object')
  })

  test('providers tell what they are and how they are', async () => {
    const { providers } = await one.ok(200, 'GET', '/providers?check=true')
    const e2b = providers.find((provider) => provider.name === 'e2b')
    assert.deepEqual([e2b.type, e2b.state, e2b.default, e2b.isolation, e2b.snapshot_kind], ['e2b', 'ok', true, 'process', 'e2b-ref'])
    for (const feature of ['snapshot', 'pause', 'pty', 'job_logs', 'job_stop', 'hooks']) assert.ok(e2b.features.includes(feature), `${feature}: ${e2b.features}`)
    const local = providers.find((provider) => provider.type === 'process')
    assert.equal(local.isolation, 'none')
    assert.ok(!local.features.includes('snapshot'))
    assert.equal((await one.v1('GET', '/health', undefined, { key: null })).body.status, 'ok')
  })
})
