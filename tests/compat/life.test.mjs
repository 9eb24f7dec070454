// The life of a sandbox through the published SDK: pause, resume, expire, snapshot, fork, list, metrics.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, shell, only } from '../harness/sdk.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

async function all(paginator) {
  const items = []
  while (paginator.hasNext) items.push(...(await paginator.nextItems()))
  return items
}

for (const version of only(['2.45.0', 'latest'])) {
  describe(`life of e2b ${version}`, () => {
    let sdk, Sandbox
    before(async () => {
      sdk = await loadSdk(server, version)
      Sandbox = sdk.Sandbox
    })

    test('pause keeps files, processes, metadata and variables; connect brings them back', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { who: version }, envs: { KEPT: 'yes' } })
      const handle = await sandbox.commands.run('sleep 1000', { background: true })
      await sandbox.files.write('/home/user/kept', 'one')
      assert.equal(await sandbox.pause(), true)
      assert.equal(await sandbox.isRunning(), false)
      const info = await sandbox.getInfo()
      assert.equal(info.state, 'paused')
      assert.deepEqual(info.metadata, { who: version })
      assert.equal(await sandbox.pause(), false)
      const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
      assert.equal(await again.isRunning(), true)
      assert.equal(await again.files.read('/home/user/kept'), 'one')
      assert.ok((await again.commands.list()).some((one) => one.pid === handle.pid))
      assert.equal((await again.commands.run('echo $KEPT')).stdout, 'yes\n')
      assert.equal(await again.kill(), true)
      await assert.rejects(Sandbox.connect(sandbox.sandboxId))
    })

    test('twenty pauses and resumes lose nothing', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      for (let round = 0; round < 20; round++) {
        await sandbox.files.write(`/home/user/round-${round}`, String(round))
        await sandbox.pause()
        await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
      }
      const names = (await sandbox.files.list('/home/user')).map((one) => one.name).filter((name) => name.startsWith('round-'))
      assert.equal(names.length, 20)
      await sandbox.kill()
    })

    test('a pause without memory keeps the files and boots anew', async () => {
      const { body: box } = await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 120 })
      const sandbox = await Sandbox.connect(box.sandboxID, { timeoutMs: 120_000 })
      await sandbox.files.write('/home/user/kept', 'cold')
      await sandbox.commands.run('sleep 1000', { background: true })
      assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/pause`, { memory: false })).status, 204)
      assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/resume`, { timeout: 120 })).status, 201)
      assert.equal(await sandbox.files.read('/home/user/kept'), 'cold')
      assert.equal((await sandbox.commands.list()).length, 0)
      await sandbox.kill()
    })

    test('paused ones are listed by state', async () => {
      const metadata = { group: `${version}-${Math.random()}` }
      const paused = await Sandbox.create('base', { timeoutMs: 120_000, metadata })
      const running = await Sandbox.create('base', { timeoutMs: 120_000, metadata })
      await paused.pause()
      const ids = async (query) => (await all(Sandbox.list({ query }))).map((one) => one.sandboxId)
      assert.deepEqual(await ids({ metadata, state: ['paused'] }), [paused.sandboxId])
      assert.deepEqual(await ids({ metadata, state: ['running'] }), [running.sandboxId])
      assert.equal((await ids({ metadata })).length, 2)
      await Promise.all([paused.kill(), running.kill()])
      assert.deepEqual(await ids({ metadata }), [])
    })

    test('list: pages, order, filters with every kind of character, limit', async () => {
      const metadata = { group: `${version} ${Math.random()}`, 'a b&c=d': 'é%25+/?#"' }
      const made = []
      for (let i = 0; i < 5; i++) made.push((await Sandbox.create('base', { timeoutMs: 120_000, metadata })).sandboxId)
      const pages = async (options) => {
        const paginator = Sandbox.list({ query: { metadata }, ...options })
        const found = []
        while (paginator.hasNext) found.push((await paginator.nextItems()).map((one) => one.sandboxId))
        await assert.rejects(paginator.nextItems())
        return found
      }
      assert.deepEqual(await pages({ limit: 2 }), [made.slice(3).toReversed(), made.slice(1, 3).toReversed(), made.slice(0, 1)])
      assert.deepEqual(await pages({ order: 'asc', limit: 3 }), [made.slice(0, 3), made.slice(3)])
      const first = Sandbox.list({ query: { metadata }, limit: 2 })
      await first.nextItems()
      const rest = Sandbox.list({ query: { metadata }, limit: 100, nextToken: first.nextToken })
      assert.equal((await rest.nextItems()).length, 3)
      assert.deepEqual(await all(Sandbox.list({ query: { metadata: { ...metadata, group: 'none' } } })), [])
      const [info] = await all(Sandbox.list({ query: { metadata }, limit: 1 }))
      assert.deepEqual(info.metadata, metadata)
      assert.equal(info.state, 'running')
      await Promise.all(made.map((id) => Sandbox.kill(id)))
    })

    test('info and timeouts', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 60_000, metadata: { a: '1' } })
      const info = await sandbox.getInfo()
      assert.deepEqual(await Sandbox.getInfo(sandbox.sandboxId), info)
      assert.equal(info.sandboxId, sandbox.sandboxId)
      assert.equal(info.name, 'base')
      assert.ok(info.templateId && info.cpuCount > 0 && info.memoryMB > 0 && info.envdVersion)
      assert.ok(Math.abs(info.endAt - info.startedAt - 60_000) < 10_000)
      const left = async () => (await sandbox.getInfo()).endAt - Date.now()
      await sandbox.setTimeout(300_000)
      assert.ok(Math.abs((await left()) - 300_000) < 10_000)
      await Sandbox.setTimeout(sandbox.sandboxId, 20_000)
      assert.ok(Math.abs((await left()) - 20_000) < 10_000)
      await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 5000 })
      assert.ok((await left()) > 15_000, 'connect never shortens')
      await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 100_000 })
      assert.ok(Math.abs((await left()) - 100_000) < 10_000)
      await sandbox.setTimeout(1000)
      await eventually('it ends', async () => !(await sandbox.isRunning()), 30_000)
      await assert.rejects(sandbox.setTimeout(1000), sdk.SandboxNotFoundError)
      await assert.rejects(sandbox.getInfo(), sdk.SandboxNotFoundError)
      assert.equal(await sandbox.kill(), false)
    })

    test('betaPause, static and not, with and without memory', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      const boot = async () => (await sandbox.commands.run('pgrep -c sleep || true')).stdout.trim()
      await sandbox.commands.run('sleep 1000', { background: true })
      assert.equal(await sandbox.betaPause(), true)
      assert.equal(await Sandbox.betaPause(sandbox.sandboxId), false)
      await sandbox.connect()
      assert.equal(await boot(), '1')
      assert.equal(await Sandbox.betaPause(sandbox.sandboxId, { keepMemory: false }), true)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      await sandbox.connect()
      assert.equal(await boot(), '0')
      assert.equal(await sandbox.pause({ keepMemory: false }), true)
      await sandbox.kill()
      await assert.rejects(Sandbox.betaPause(sandbox.sandboxId), sdk.SandboxNotFoundError)
      await assert.rejects(sandbox.connect(), sdk.SandboxNotFoundError)
    })

    test('lifecycle options are kept and told; a pause at the end of time may drop the memory', async () => {
      const plain = await Sandbox.create('base', { timeoutMs: 60_000 })
      assert.deepEqual((await plain.getInfo()).lifecycle, { autoResume: false, onTimeout: 'kill' })
      const both = await Sandbox.create('base', { timeoutMs: 60_000, lifecycle: { onTimeout: { action: 'pause' }, autoResume: true } })
      assert.deepEqual((await both.getInfo()).lifecycle, { autoResume: true, onTimeout: 'pause' })
      const cold = await Sandbox.create('base', { timeoutMs: 60_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
      await cold.files.write('kept', 'yes')
      await cold.commands.run('sleep 1000', { background: true })
      await cold.setTimeout(1000)
      await eventually('paused', async () => (await cold.getInfo()).state === 'paused', 30_000)
      await cold.connect({ timeoutMs: 60_000 })
      assert.equal(await cold.files.read('kept'), 'yes')
      assert.equal((await cold.commands.list()).length, 0)
      await Promise.all([plain.kill(), both.kill(), cold.kill()])
    })

    test('named snapshots: one name, several tags, the newest counts', async () => {
      const name = `snap-${version.replaceAll('.', '-')}`
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      await sandbox.files.write('which', 'one')
      const one = await sandbox.createSnapshot({ name })
      assert.ok(one.names[0].includes(name), JSON.stringify(one))
      await sandbox.files.write('which', 'two')
      const two = await Sandbox.createSnapshot(sandbox.sandboxId, { name })
      const tagged = await sandbox.createSnapshot({ name: `${name}:v1` })
      const read = async (from) => {
        const child = await Sandbox.create(from, { timeoutMs: 60_000 })
        const text = await child.files.read('which')
        await child.kill()
        return text
      }
      assert.equal(await read(name), 'two')
      assert.equal(await read(two.snapshotId), 'two')
      assert.equal(await read(tagged.snapshotId), 'two')
      assert.ok((await all(sandbox.listSnapshots())).length >= 2)
      assert.ok((await all(Sandbox.listSnapshots({ name, limit: 1 }))).length >= 2)
      assert.deepEqual(await all(Sandbox.listSnapshots({ name: 'nothing-of-that-name' })), [])
      await sandbox.kill()
      assert.equal(await Sandbox.deleteSnapshot(tagged.snapshotId), true)
      assert.equal(await read(name), 'two')
      assert.equal(await Sandbox.deleteSnapshot(two.snapshotId), true)
      await assert.rejects(Sandbox.create(name))
    })

    test('onTimeout pause: the end of time pauses', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause' } })
      await sandbox.files.write('/home/user/kept', 'late')
      await sandbox.setTimeout(1000)
      await eventually('paused', async () => (await sandbox.getInfo()).state === 'paused', 30_000)
      const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
      assert.equal(await again.files.read('/home/user/kept'), 'late')
      await again.kill()
    })

    test('traffic resumes a sandbox that asked for it, and no other', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
      const plain = await Sandbox.create('base', { timeoutMs: 120_000 })
      await sandbox.commands.run('python -m http.server 8000', { background: true })
      const get = (id) => server.request({ headers: { Host: `8000-${id}.box.test` } })
      await eventually('the server inside', async () => (await get(sandbox.sandboxId)).status === 200)
      await sandbox.pause()
      await plain.pause()
      assert.equal(await sandbox.isRunning(), false)
      assert.equal((await get(sandbox.sandboxId)).status, 200)
      assert.equal((await sandbox.getInfo()).state, 'running')
      assert.equal((await get(plain.sandboxId)).status, 502)
      assert.equal((await plain.getInfo()).state, 'paused')
      await Promise.all([sandbox.kill(), plain.kill()])
    })

    test('snapshots: create, list, start from, delete; a child’s writes stay its own', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      await sandbox.files.write('/home/user/state', 'before')
      await sandbox.commands.run('rm ~/.bash_logout && mkdir ~/dir && touch ~/dir/a && sudo rm -rf /media')
      const snapshot = await sandbox.createSnapshot()
      await sandbox.files.write('/home/user/state', 'after')
      const child = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 120_000 })
      assert.equal(await child.files.read('/home/user/state'), 'before')
      assert.equal(await child.files.exists('/home/user/.bash_logout'), false)
      assert.equal(await child.files.exists('/media'), false)
      await child.files.write('/home/user/dir/child', 'x')
      assert.equal(await sandbox.files.exists('/home/user/dir/child'), false)
      assert.equal(await sandbox.files.read('/home/user/state'), 'after')
      const listed = await all(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }))
      assert.deepEqual(listed.map((one) => one.snapshotId), [snapshot.snapshotId])
      await sandbox.kill()
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
      assert.equal(await child.files.read('/home/user/state'), 'before')
      await child.kill()
      await assert.rejects(Sandbox.create(snapshot.snapshotId))
    })

    test('a snapshot under a writing database is consistent', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      const writer = `import sqlite3, time
db = sqlite3.connect('/home/user/test.db', isolation_level=None)
db.execute('pragma journal_mode=wal'); db.execute('create table t(a, b)')
for i in range(100000):
    db.execute('begin'); db.execute('insert into t values(?, 1)', (i,)); db.execute('insert into t values(?, 2)', (i,)); db.execute('commit')
`
      await sandbox.files.write('/home/user/writer.py', writer)
      await sandbox.commands.run('python3 /home/user/writer.py', { background: true })
      await eventually('rows', async () => (await shell(sandbox, 'test $(stat -c %s /home/user/test.db-wal) -gt 100000')).exitCode === 0)
      for (let round = 0; round < 3; round++) {
        const snapshot = await sandbox.createSnapshot()
        const child = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 })
        const check = `python3 -c "import sqlite3; d = sqlite3.connect('/home/user/test.db'); print(d.execute('pragma integrity_check').fetchone()[0], d.execute('select count(*) % 2 from t').fetchone()[0])"`
        assert.equal((await child.commands.run(check)).stdout, 'ok 0\n')
        await child.kill()
        await Sandbox.deleteSnapshot(snapshot.snapshotId)
      }
      await sandbox.kill()
    })

    test('logs: lifecycle, envd and commands in order, without secrets', async () => {
      const sandbox = await Sandbox.create('base', { envs: { HIDDEN: 'env-secret' } })
      await sandbox.commands.run('API_TOKEN=inline-secret echo "$HIDDEN" "$REQ"', { envs: { REQ: 'request-secret' } })
      await shell(sandbox, 'curl --user-token flag-secret https://me:url-secret@127.0.0.1:1/; exit 7')
      await shell(sandbox, 'kill -9 $$')
      await sandbox.commands.run('/no/such/program').catch(() => {})
      const { body } = await server.api('GET', `/sandboxes/${sandbox.sandboxId}/logs`)
      const messages = body.logEntries.map((entry) => entry.message)
      const at = (pattern) => messages.findIndex((message) => pattern.test(message))
      const order = [/^Sandbox created/, /^Command started by user: .*API_TOKEN=\*\*\* echo/, /exited with code 0/, /started.*curl --user-token \*\*\* https:\/\/\*\*\*@127/, /exited with code 7/, /ended by signal 9/, /exited with code 127/].map(at)
      assert.ok(order.every((index, i) => index >= 0 && (i === 0 || index > order[i - 1])), `${order} ${messages.join('\n')}`)
      assert.ok(at(/^envd .* has its settings/) >= 0)
      assert.ok(!/secret/.test(JSON.stringify(body)), JSON.stringify(body))
      for (const { line } of body.logs) assert.equal(typeof JSON.parse(line).level, 'string')
      assert.equal(JSON.parse(body.logs.at(-1).line).logger, 'envd')
      const v2 = (query) => server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?${query}`).then((answer) => answer.body.logs.map((entry) => entry.message))
      assert.deepEqual(await v2('direction=forward'), messages)
      assert.deepEqual(await v2('direction=backward'), messages.toReversed())
      assert.deepEqual(await v2('level=warn'), messages.filter((message) => /signal 9/.test(message)))
      assert.deepEqual(await v2('direction=backward&limit=2'), messages.toReversed().slice(0, 2))
      assert.deepEqual(await v2('search=code%207'), messages.filter((message) => /code 7/.test(message)))
      for (let i = 0; i < 40; i++) await Promise.all(Array.from({ length: 20 }, () => sandbox.commands.run('true')))
      const many = (await server.api('GET', `/sandboxes/${sandbox.sandboxId}/logs?limit=1000`)).body.logEntries
      assert.ok(many.length === 1000 && /Sandbox created/.test(many[0].message))
      await sandbox.kill()
      const ended = await v2('direction=forward')
      assert.deepEqual(ended, ['Sandbox created', 'Sandbox killed'])
    })

    test('metrics appear', async () => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
      const metrics = await eventually('metrics', async () => {
        const list = await sandbox.getMetrics()
        return list.length && list
      }, 30_000)
      const last = metrics.at(-1)
      assert.ok(last.cpuCount === 2 && last.memTotal > 0 && last.diskTotal > 0)
      await sandbox.kill()
    })

    if (version === 'latest')
      test('fork: children with the state of now, the source goes on', async () => {
        const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
        await sandbox.files.write('/home/user/state', 'shared')
        const { status, body } = await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 3, timeout: 60 })
        assert.equal(status, 201)
        assert.equal(body.length, 3)
        for (const { sandbox: one } of body) {
          const child = await Sandbox.connect(one.sandboxID, { timeoutMs: 60_000 })
          assert.equal(await child.files.read('/home/user/state'), 'shared')
          await child.kill()
        }
        assert.equal(await sandbox.isRunning(), true)
        await sandbox.kill()
      })
  })
}

for (const version of ['2.14.0', '2.19.0', '2.27.1']) {
  test(`betaCreate and betaPause of e2b ${version}`, async () => {
    const { Sandbox } = await loadSdk(server, version)
    const sandbox = await (Sandbox.betaCreate ?? Sandbox.create).call(Sandbox, 'base', { timeoutMs: 60_000, autoPause: true })
    await sandbox.files.write('kept', 'yes')
    if (Sandbox.betaCreate) await sandbox.setTimeout(1000)
    if (Sandbox.betaCreate) await eventually('paused at its end', async () => (await sandbox.getInfo()).state === 'paused', 30_000)
    else await sandbox.betaPause()
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
    assert.equal(await again.files.read('kept'), 'yes')
    await again.betaPause() // says nothing in these versions
    assert.equal((await again.getInfo()).state, 'paused')
    assert.equal(await Sandbox.betaPause(sandbox.sandboxId), false)
    await again.kill()
    await assert.rejects(Sandbox.connect(sandbox.sandboxId))
  })
}
