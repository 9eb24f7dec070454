// The published SDK packages, each version against the same server: what a user of E2B does in a day.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, versions } from '../harness/sdk.mjs'
import { ofSandbox } from '../harness/leftovers.mjs'

const PARALLEL = 50
let server

before(async () => {
  server = await startServer()
})
after(() => server.destroy())

async function allPages(paginator) {
  const items = []
  while (paginator.hasNext) items.push(...(await paginator.nextItems()))
  return items
}

for (const version of versions) {
  describe(`e2b ${version}`, () => {
    let sdk, sandbox
    const mark = `compat-${version}-${Date.now()}`

    before(async () => {
      sdk = await loadSdk(server, version)
      sandbox = await sdk.Sandbox.create('base', {
        timeoutMs: 120_000,
        metadata: { mark, 'with space': 'a&b=é' },
        envs: { GREETING: 'hello there' },
      })
    })

    after(async () => {
      await sandbox?.kill()
    })

    test('create gives an id that can be a host name', () => {
      assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    })

    // Only some versions end the sandbox themselves when its template has no gateway.
    if (version === 'latest')
      test('mcp without a gateway in the template fails, and leaves no sandbox', async () => {
        const before = await server.ids()
        await assert.rejects(sdk.Sandbox.create('base', { timeoutMs: 60_000, mcp: { duckduckgo: {} } }), /127|not found/)
        assert.deepEqual(await server.ids(), before)
        assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base', mcp: 'x' })).status, 400)
      })

    test('metadata comes back verbatim in list and getInfo', async () => {
      const found = await allPages(sdk.Sandbox.list({ query: { metadata: { mark, 'with space': 'a&b=é' } } }))
      assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
      assert.deepEqual(found[0].metadata, { mark, 'with space': 'a&b=é' })
      assert.equal(found[0].state, 'running')
      const info = await sandbox.getInfo()
      assert.equal(info.sandboxId, sandbox.sandboxId)
      assert.deepEqual(info.metadata, { mark, 'with space': 'a&b=é' })
      assert.ok(info.startedAt instanceof Date && info.endAt > info.startedAt)
    })

    test('a filter that matches nothing lists nothing', async () => {
      assert.deepEqual(await allPages(sdk.Sandbox.list({ query: { metadata: { mark: 'nobody' } } })), [])
    })

    test('commands.run: stdout, stderr, exit code, environment, cwd, user', async () => {
      const result = await sandbox.commands.run('echo out; echo err >&2; echo -n "$GREETING"')
      assert.equal(result.stdout, 'out\nhello there')
      assert.equal(result.stderr, 'err\n')
      assert.equal(result.exitCode, 0)
      const who = await sandbox.commands.run('whoami; pwd; id -u')
      assert.equal(who.stdout, 'user\n/home/user\n1000\n')
      const root = await sandbox.commands.run('whoami; pwd', { user: 'root', cwd: '/etc', envs: { X: 'y' } })
      assert.equal(root.stdout, 'root\n/etc\n')
      await assert.rejects(sandbox.commands.run('echo partial; exit 7'), (error) => {
        assert.equal(error.exitCode, 7)
        assert.equal(error.stdout, 'partial\n')
        return true
      })
    })

    test('commands.run streams while the command runs', async () => {
      const seen = []
      const began = Date.now()
      await sandbox.commands.run('echo first; sleep 1; echo second', {
        onStdout: (text) => seen.push([String(text), Date.now() - began]),
      })
      assert.equal(seen.map(([text]) => text).join(''), 'first\nsecond\n')
      assert.ok(seen.at(-1)[1] - seen[0][1] > 500, `lines came after ${seen.map(([, ms]) => ms)} ms`)
    })

    test('output is byte exact and large output is whole', async () => {
      const result = await sandbox.commands.run('seq 1 200000 | tee /tmp/seq | md5sum; cat /tmp/seq')
      const [sum, ...rest] = result.stdout.split('\n')
      assert.equal(rest.length, 200001)
      assert.equal(rest[199999], '200000')
      const unicode = await sandbox.commands.run("printf 'žluťoučký 🐎\\n'")
      assert.equal(unicode.stdout, 'žluťoučký 🐎\n')
      assert.match(sum, /^[0-9a-f]{32}/)
    })

    test('a time limit ends the command', async () => {
      await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 1000 }), /timed out|deadline|timeout/i)
    })

    test('background command: list, connect, stdin, kill', async () => {
      const handle = await sandbox.commands.run('sleep 300', { background: true })
      const listed = await sandbox.commands.list()
      assert.ok(listed.some((one) => one.pid === handle.pid))
      assert.equal(await handle.kill(), true)
      await assert.rejects(sandbox.commands.run(`kill -0 ${handle.pid}`, { user: 'root' }))
      assert.equal(await sandbox.commands.kill(handle.pid), false)

      const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
      const joined = await sandbox.commands.connect(cat.pid)
      assert.equal(joined.pid, cat.pid)
      await sandbox.commands.sendStdin(cat.pid, 'typed')
      await eventually('echo of stdin', () => cat.stdout === 'typed')
      await cat.kill()
    })

    test('files: write, read, list, exists, makeDir, rename, remove', async () => {
      const written = await sandbox.files.write('folder/note.txt', 'first')
      assert.equal(written.path, '/home/user/folder/note.txt')
      assert.equal(written.name, 'note.txt')
      assert.equal(await sandbox.files.read('/home/user/folder/note.txt'), 'first')
      await sandbox.files.write('folder/note.txt', 'second, longer')
      assert.equal(await sandbox.files.read('folder/note.txt'), 'second, longer')

      const bytes = new Uint8Array(300_000).map((_, at) => (at * 7919) & 255)
      await sandbox.files.write('/tmp/blob', bytes.buffer)
      const back = await sandbox.files.read('/tmp/blob', { format: 'bytes' })
      assert.deepEqual(Buffer.from(back), Buffer.from(bytes))

      const many = await sandbox.files.write([
        { path: 'folder/one', data: '1' },
        { path: '/home/user/folder/two', data: '22' },
      ])
      assert.deepEqual(many.map((one) => one.path), ['/home/user/folder/one', '/home/user/folder/two'])

      const entries = await sandbox.files.list('folder')
      assert.deepEqual(entries.map((one) => one.name).sort(), ['note.txt', 'one', 'two'])
      assert.equal(entries.find((one) => one.name === 'two').path, '/home/user/folder/two')

      assert.equal(await sandbox.files.exists('folder/one'), true)
      assert.equal(await sandbox.files.exists('folder/none'), false)
      assert.equal(await sandbox.files.makeDir('folder/deep/er'), true)
      assert.equal(await sandbox.files.makeDir('folder/deep/er'), false)
      const moved = await sandbox.files.rename('folder/one', 'folder/deep/uno')
      assert.equal(moved.path, '/home/user/folder/deep/uno')
      assert.equal(await sandbox.files.exists('folder/one'), false)
      await sandbox.files.remove('folder')
      assert.equal(await sandbox.files.exists('folder'), false)
      await assert.rejects(sandbox.files.read('folder/note.txt'), (error) => /NotFound/.test(error.constructor.name) || /not exist|not found/i.test(error.message))
      const owner = await sandbox.commands.run('stat -c %U:%G:%a /tmp/blob')
      assert.equal(owner.stdout, 'user:user:644\n')
    })

    test('setTimeout moves the end of life; connect never shortens it', async () => {
      await sandbox.setTimeout(200_000)
      const first = await sandbox.getInfo()
      const left = first.endAt - Date.now()
      assert.ok(left > 190_000 && left < 201_000, `${left} ms left`)
      const again = await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
      assert.equal(again.sandboxId, sandbox.sandboxId)
      assert.equal((await again.commands.run('echo connected')).stdout, 'connected\n')
      const second = await again.getInfo()
      assert.equal(second.endAt.getTime(), first.endAt.getTime())
    })

    test('getHost: an HTTP server inside is reachable by host name', async () => {
      await sandbox.files.write('/home/user/www/index.html', `hello from ${sandbox.sandboxId}`)
      const web = await sandbox.commands.run('python -m http.server 8000 --directory /home/user/www', { background: true })
      const host = sandbox.getHost(8000)
      assert.ok(host.startsWith(`8000-${sandbox.sandboxId}.`), host)
      const answer = await eventually('web server', async () => {
        const got = await server.request({ path: '/', headers: { Host: host } })
        return got.status === 200 && got
      })
      assert.equal(answer.text, `hello from ${sandbox.sandboxId}`)
      await web.kill()
      const gone = await server.request({ path: '/', headers: { Host: host } })
      assert.equal(gone.status, 502)
    })

    test('a wrong key is refused', async () => {
      await assert.rejects(sdk.Sandbox.create('base', { apiKey: `e2b_${'0'.repeat(40)}` }), (error) => error.constructor.name === 'AuthenticationError')
    })

    test('isRunning, kill, and what is left to say about a dead sandbox', async () => {
      const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 })
      assert.equal(await other.isRunning(), true)
      assert.equal(await sdk.Sandbox.kill(other.sandboxId), true)
      assert.equal(await other.isRunning(), false)
      assert.equal(await sdk.Sandbox.kill(other.sandboxId), false)
      await assert.rejects(sdk.Sandbox.connect(other.sandboxId))
      await assert.rejects(other.getInfo())
      assert.deepEqual(ofSandbox(other.sandboxId, server.data), [])
    })

    test(`${PARALLEL} sandboxes in parallel`, async () => {
      const all = await Promise.all(Array.from({ length: PARALLEL }, (_, at) => sdk.Sandbox.create('base', { timeoutMs: 120_000, metadata: { at: String(at) } })))
      try {
        assert.equal(new Set(all.map((one) => one.sandboxId)).size, PARALLEL)
        const results = await Promise.all(all.map((one, at) => one.commands.run(`echo ${at} > ~/mine; cat ~/mine; hostname`)))
        results.forEach((result, at) => assert.equal(result.stdout.split('\n')[0], String(at)))
      } finally {
        const killed = await Promise.all(all.map((one) => one.kill()))
        assert.equal(killed.length, PARALLEL)
      }
      await sleep(0)
      assert.equal((await server.ids()).length, 1)
    })
  })
}
