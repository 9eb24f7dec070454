// Published clients of others that are built on E2B's packages: computesdk, Mastra's and OpenAI's sandboxes. Unmodified, as they were when
// this was written and as they are today. And the interpreter's own client of old, which knows HTTPS only.
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { after, before, describe, test } from 'node:test'
import { layer, startInterpreter } from '../harness/interpreter.mjs'
import { run } from '../harness/mcp.mjs'
import { binary, patience, repository } from '../harness/server.mjs'

const DOMAIN = 'boxes.test' // the lab's names below it lead to the server

const sets = ['clients', 'clients-latest'].map((name) => fs.realpathSync(path.join(repository, 'build/npm', name)))
const load = (set, name) => import(pathToFileURL(createRequire(path.join(set, 'index.js')).resolve(name)).href)

// Mastra's own template installs two packages. The lab has no mirror: the base has an archive of its own, with packages of these names.
function addArchive(root) {
  const archive = path.join(root, 'srv/archive')
  fs.mkdirSync(archive, { recursive: true })
  const entries = ['s3fs', 'fuse'].map((name) => {
    const folder = fs.mkdtempSync(path.join(archive, 'deb-'))
    fs.chmodSync(folder, 0o755)
    fs.mkdirSync(path.join(folder, 'DEBIAN'))
    const control = `Package: ${name}\nVersion: 1\nArchitecture: all\nMaintainer: tests <tests@web.test>\nDescription: of the tests\n`
    fs.writeFileSync(path.join(folder, 'DEBIAN/control'), control)
    fs.mkdirSync(path.join(folder, 'usr/local/bin'), { recursive: true })
    fs.writeFileSync(path.join(folder, 'usr/local/bin', `${name}-of-tests`), '#!/bin/sh\n', { mode: 0o755 })
    execFileSync('dpkg-deb', ['--root-owner-group', '--build', folder, path.join(archive, `${name}.deb`)], { stdio: 'ignore' })
    fs.rmSync(folder, { recursive: true })
    const bytes = fs.readFileSync(path.join(archive, `${name}.deb`))
    return `${control}Filename: ./${name}.deb\nSize: ${bytes.length}\nSHA256: ${crypto.createHash('sha256').update(bytes).digest('hex')}\n`
  })
  fs.writeFileSync(path.join(archive, 'Packages'), entries.join('\n'))
  const apt = path.join(root, 'etc/apt')
  fs.rmSync(path.join(apt, 'sources.list.d'), { recursive: true, force: true })
  fs.rmSync(path.join(apt, 'sources.list'), { force: true })
  fs.writeFileSync(path.join(apt, 'sources.list'), 'deb [trusted=yes] file:/srv/archive ./\n')
}

let server, root
before(async () => {
  // Linked, not copied: what is changed is made anew.
  root = fs.mkdtempSync(path.join(fs.realpathSync(layer), '../../', 'clients-'))
  fs.chmodSync(root, 0o755)
  execFileSync('cp', ['-al', `${fs.realpathSync(layer)}/.`, root])
  addArchive(root)
  server = await startInterpreter({
    listen: ':0',
    env: { QUICKSAND_BASE_LAYER: root },
    args: ['--domain', DOMAIN, '--listen-tls', ':443'],
    prepare: ({ data }) => assert.equal(spawnSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', data]).status, 0),
  })
  Object.assign(process.env, server.clientEnv())
  delete process.env.E2B_DEBUG
  delete process.env.E2B_DOMAIN
})
after(async () => {
  await server?.destroy()
  fs.rmSync(root, { recursive: true, force: true })
})

for (const set of new Set(sets))
  describe(path.basename(set), () => {
    test('computesdk with its part for E2B', async () => {
      const { e2b } = await load(set, '@computesdk/e2b')
      const sdk = e2b({ apiKey: server.key })
      const sandbox = await sdk.sandbox.create({ timeout: 300_000 * patience })
      const result = await sandbox.runCommand('echo out; echo err >&2; exit 3')
      assert.deepEqual([result.stdout.trim(), result.stderr.trim(), result.exitCode], ['out', 'err', 3])
      await sandbox.filesystem.mkdir('/tmp/made')
      await sandbox.filesystem.writeFile('/tmp/made/a.txt', 'grüße')
      assert.equal(await sandbox.filesystem.readFile('/tmp/made/a.txt'), 'grüße')
      assert.deepEqual((await sandbox.filesystem.readdir('/tmp/made')).map((entry) => entry.name), ['a.txt'])
      assert.equal(await sandbox.filesystem.exists('/tmp/made/none'), false)
      await sandbox.filesystem.remove('/tmp/made/a.txt')
      assert.ok((await sdk.sandbox.list()).some((one) => one.sandboxId === sandbox.sandboxId))
      const again = await sdk.sandbox.getById(sandbox.sandboxId)
      assert.equal((await again.runCommand('ls /tmp/made | wc -l')).stdout.trim(), '0')
      const snapshot = await sdk.snapshot.create(sandbox.sandboxId, { name: 'of-computesdk' })
      assert.ok(snapshot.id ?? snapshot.snapshotId)
      await sandbox.destroy()
      assert.equal(await sdk.sandbox.getById(sandbox.sandboxId), null)
    })

    test("Mastra's sandbox, with the template that it builds by default", async () => {
      const { E2BSandbox } = await load(set, '@mastra/e2b')
      const make = () => new E2BSandbox({ id: 'mastra-test', timeout: 300_000 * patience, apiKey: server.key, apiUrl: server.url, env: { OF: 'mastra' } })
      const sandbox = make()
      await sandbox.start()
      const result = await sandbox.executeCommand('sh', ['-c', 'echo $OF; cd /usr/local/bin && ls s3fs-of-tests fuse-of-tests'])
      assert.deepEqual([result.exitCode, result.stdout], [0, 'mastra\nfuse-of-tests\ns3fs-of-tests\n'])
      const failed = await sandbox.executeCommand('sh', ['-c', 'echo bad >&2; exit 4'])
      assert.deepEqual([failed.exitCode, failed.stderr.includes('bad')], [4, true])
      await sandbox.executeCommand('sh', ['-c', 'echo kept > /tmp/kept'])
      await sandbox.stop()
      const again = make()
      await again.start()
      assert.equal((await again.executeCommand('cat', ['/tmp/kept'])).stdout, 'kept\n', 'found by its id')
      await again.destroy()
    })

    for (const sandboxType of ['e2b', 'e2b_code_interpreter'])
      test(`OpenAI's agents, ${sandboxType}`, async () => {
        const { E2BSandboxClient } = await load(set, '@openai/agents-extensions/sandbox/e2b')
        const client = new E2BSandboxClient({ sandboxType, timeout: 300 * patience, env: { OF: 'openai' } })
        const session = await client.create()
        const run = async (cmd) => session.execCommand({ cmd })
        assert.match(await run('echo "$OF"; pwd; exit 5'), /code 5\n[^]*openai\n/)
        await run('mkdir -p sub && printf "one\\ntwo\\n" > sub/a.txt')
        assert.equal(Buffer.from(await session.readFile({ path: 'sub/a.txt' })).toString(), 'one\ntwo\n')
        assert.equal(await session.pathExists('sub/none'), false)
        if (sandboxType === 'e2b_code_interpreter') assert.match(await run('curl -s localhost:49999/health'), /OK/)
        const archive = await session.persistWorkspace()
        await run('rm -rf sub')
        await session.hydrateWorkspace(archive)
        assert.match(await run('cat sub/a.txt'), /one\ntwo/)
        const state = await client.deserializeSessionState(await client.serializeSessionState(session.state))
        const resumed = await client.resume(state)
        assert.match(await resumed.execCommand({ cmd: 'cat sub/a.txt' }), /one\ntwo/)
        await resumed.delete()
      })
  })

test('@e2b/code-interpreter 1.5, over TLS', async () => {
  const program = path.join(server.home, 'old.mjs')
  fs.writeFileSync(
    program,
    `import { createRequire } from 'node:module'
const { Sandbox } = createRequire(${JSON.stringify(path.join(repository, 'build/npm/interpreter-1/index.js'))})('@e2b/code-interpreter')
const sandbox = await Sandbox.create({ timeoutMs: 300_000, requestTimeoutMs: 120_000 })
const told = []
await sandbox.runCode('x = 40')
const sum = await sandbox.runCode('print("hi")\\nx + 2', { onStdout: ({ line }) => told.push(line) })
const plot = await sandbox.runCode('import matplotlib.pyplot as plt\\nplt.plot([1, 2])\\nplt.show()')
const wrong = await sandbox.runCode('1 / 0')
const context = await sandbox.createCodeContext({ language: 'javascript' })
const js = await sandbox.runCode('[1, 2].map((n) => n * 2).join()', { context })
await sandbox.kill()
console.log(JSON.stringify({ told, text: sum.text, png: plot.results[0].formats().includes('png'), error: wrong.error.name, js: js.text }))
process.exit() // connections that it keeps would hold it up`,
  )
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, E2B_DOMAIN: DOMAIN, E2B_API_KEY: server.key, E2B_API_URL: '', E2B_SANDBOX_URL: '', NODE_EXTRA_CA_CERTS: path.join(server.data, 'tls/ca.pem') }
  const done = await run(program, [], { env })
  assert.equal(done.code, 0, done.stderr)
  assert.deepEqual(JSON.parse(done.stdout), { told: ['hi\n'], text: '42', png: true, error: 'ZeroDivisionError', js: '2,4' })
})
