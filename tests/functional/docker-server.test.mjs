// Docker behind the server, by the section `execution` of the settings: sessions, agents, jobs, keys and snapshots in
// containers of a real dockerd, and the choice between docker and the engine of the server.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { startEngine } from '../harness/engines.mjs'
import { quicksand } from '../harness/interpreter.mjs'
import { startRuntime } from '../harness/runtime.mjs'
import { eventually, repository } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const repo = 'http://203.0.113.1/git/acme/contained.git'
// Of the base template: what no test here uses, so that the import is short.
const notNeeded = ['usr/share', 'usr/include', 'usr/lib/gcc*', 'usr/lib/python3*', 'usr/lib/*-linux-gnu/*/*', 'usr/lib/*/*.a', 'usr/lib/*/libnode*', 'usr/lib/*/libicu*', 'usr/bin/*-linux-gnu-*', 'usr/local/bin/sandbox-agent', 'var/lib', 'var/cache']

let engine
before(async () => {
  engine = await startEngine('docker', { reachable: true })
  fs.chmodSync(engine.home, 0o755)
  fs.chownSync(engine.socket, 0, 64737)
  await engine.importImage('agents', process.env.QUICKSAND_BASE_LAYER, notNeeded)
})
after(() => engine?.stop())

const execution = (more) => ({ e2b: { template: 'base', defaultTimeout: 120_000 }, docker: { image: 'agents', socket: engine.socket }, ...more })
const start = (more) => startRuntime({ execution: execution(more), sandbox_agent: { program } })

describe('hybrid: docker for the types of agents that ask for it', () => {
  let one
  before(async () => (one = await start({ backend: 'hybrid', agentOverrides: { 'ci-fix': { backend: 'docker', capabilities: ['terminal', 'files'] } } })))
  after(() => one?.destroy())
  const containers = async () => (await engine.containers()).length

  test('others get the engine of the server, with the default timeout', async () => {
    const box = await one.create()
    assert.deepEqual([box.provider, box.template], ['e2b', 'base'])
    const { startedAt, endAt } = (await one.server.api('GET', `/sandboxes/${(await one.get(box.id)).external_id}`)).body
    assert.equal(Math.round((Date.parse(endAt) - Date.parse(startedAt)) / 1000), 120)
    assert.equal(await containers(), 0)
    await one.remove(box.id)
  })

  test('run --agent: the repository, the output, the exit code, and nothing left', async () => {
    const ran = await quicksand(one.server, ['run', '--agent', 'ci-fix', '--repo', repo, '-e', 'TOKEN', '--', 'sh', '-c', 'cat README.md; echo $TOKEN; test -f /.dockerenv && echo contained; exit 7'], { env: { TOKEN: 'of-the-caller' } })
    assert.deepEqual([ran.code, ran.stdout], [7, 'hello from the world\nof-the-caller\ncontained\n'], ran.stderr)
    assert.equal(await containers(), 0)
  })

  test('a session: message, events, snapshot, restore, push', async () => {
    const session = (body) => one.ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, provider: 'docker', template: 'agents', ...body })
    const first = await session({ repo, task_id: 'boxed' })
    assert.equal(first.state, 'running', JSON.stringify(first))
    assert.equal(first.runtime.provider, 'docker')
    await one.ok(202, 'POST', `/sessions/${first.id}/messages`, { message: 'hello container' })
    await eventually('the turn', async () => (await one.ok(200, 'GET', `/sessions/${first.id}`)).state === 'completed', 30_000, 100)
    const { events } = await one.ok(200, 'GET', `/sessions/${first.id}/events?since=0&limit=1000`)
    assert.match(JSON.stringify(events.filter((event) => event.type.startsWith('agent.'))), /hello container/)
    await one.execute(first.sandbox_id, 'echo saved > ~/workspace/contained/work.txt')
    const snapshot = await one.ok(201, 'POST', `/sessions/${first.id}/snapshot`, { alias: 'contained-work' })
    assert.equal(snapshot.provider, 'docker')
    await one.ok(204, 'DELETE', `/sessions/${first.id}`)
    const second = await session({ repo, task_id: 'boxed', checkpoint: 'contained-work' })
    assert.equal(second.state, 'running', JSON.stringify(second))
    const pushed = await one.ok(200, 'POST', `/sessions/${second.id}/push`, { message: 'feat: saved work' })
    assert.equal(pushed.branch, 'task-boxed')
    assert.match(await one.output(second.sandbox_id, `git ls-remote ${repo}`), new RegExp(`^${pushed.commit}\trefs/heads/task-boxed$`, 'm'))
    await one.ok(204, 'DELETE', `/sessions/${second.id}`)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
  })

  test('a job: its log, its end, its stop', async () => {
    const box = await one.create({ agent_type: 'ci-fix', limits: { cpu: 1, memoryMb: 256 } })
    assert.deepEqual([box.provider, box.template], ['docker', 'agents'])
    assert.match(await one.output(box.id, 'cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null'), /^268435456$/m, 'its limit of memory')
    const used = await one.ok(200, 'GET', `/sandboxes/${box.id}/metrics`)
    assert.deepEqual([used.cpu_count, used.memory_total_bytes], [1, 256 << 20])
    assert.ok(used.memory_used_bytes > 0 && used.memory_used_bytes < 256 << 20 && used.cpu_percent >= 0, JSON.stringify(used))
    const job = await one.start(box.id, 'echo out; echo err >&2; exit 5')
    const end = await one.process(job.id, '?wait=20')
    assert.deepEqual([end.state, end.exit_code], ['failed', 5])
    const log = (await one.v1('GET', `/sandboxes/-/processes/${job.id}/logs`)).text
    assert.deepEqual(log.trim().split('\n').sort(), ['err', 'out'])
    const long = await one.start(box.id, 'echo up; sleep 300')
    await eventually('it runs', async () => (await one.v1('GET', `/sandboxes/-/processes/${long.id}/logs`)).text.includes('up\n'))
    await one.ok(200, 'POST', `/sandboxes/-/processes/${long.id}/signal`, { signal: 'SIGTERM' })
    assert.equal((await one.process(long.id, '?wait=20')).exit_code, 143)
    await one.remove(box.id)
  })

  test('a key: resumed with its files and processes, then restored from its snapshot', async () => {
    const up = () => one.create({ key: 'contained', agent_type: 'ci-fix' })
    const box = await up()
    await one.execute(box.id, 'echo kept > /root/kept')
    await one.start(box.id, 'sleep 1000')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    assert.equal((await one.get(box.id)).state, 'paused')
    const again = await up()
    assert.deepEqual([again.id, again.state], [box.id, 'running'])
    assert.match(await one.output(box.id, 'cat /root/kept; ps ax'), /^kept\n[^]*sleep 1000/)
    await one.server.restart()
    assert.equal((await up()).id, box.id)
    assert.equal(await one.count(box.id, 'sandbox.created'), 1)
    const snapshot = await one.ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {})
    // Its container goes behind the server's back.
    await engine.call('DELETE', `/v1.40/containers/${(await one.get(box.id)).external_id}?force=1`)
    const restored = await up()
    assert.equal(restored.id, box.id, 'tier 2 keeps the id')
    assert.equal(await one.output(restored.id, 'cat /root/kept'), 'kept\n')
    await one.remove(restored.id)
    await one.ok(204, 'DELETE', `/snapshots/${snapshot.id}`)
    assert.equal(await containers(), 0)
  })
})

for (const word of ['backend', 'default'])
  test(`execution.${word}: docker is what everybody gets`, async () => {
    const one = await start({ [word]: 'docker' })
    try {
      const box = await one.create()
      assert.deepEqual([box.provider, box.template], ['docker', 'agents'])
      assert.equal(await one.output(box.id, 'test -f /.dockerenv && echo contained'), 'contained\n')
      await one.remove(box.id)
      const here = await one.create({ profile: 'e2b' })
      assert.equal(here.provider, 'e2b')
      await one.remove(here.id)
      assert.deepEqual(await one.server.ids(), [])
    } finally {
      await one.destroy()
    }
  })

test('nothing is left', async () => {
  assert.deepEqual(await engine.containers(), [])
  assert.deepEqual((await engine.images()).filter((name) => name.includes('quicksand-snap')), [])
})
