// The docker provider against dockerd and podman: the contract of all providers, and what only a real
// daemon shows (src/provider/docker/docker_real_test.c). The image is busybox; once also the base template.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { contract } from '../harness/contract.mjs'
import { busyboxRoot, startEngine } from '../harness/engines.mjs'
import { startRuntime } from '../harness/runtime.mjs'
import { binary, repository } from '../harness/server.mjs'

// The daemons cannot attach to a process that runs.
const noAttach = { allowSkips: ['exec: cancel and attach', 'exec: attach to a terminal'] }

// Of the base template; it would take a minute to import and to remove.
const notNeeded = ['usr/share', 'usr/include', 'usr/lib/gcc*', 'usr/lib/python3*', 'usr/lib/git-core', 'usr/lib/*/*/*', 'usr/lib/*/*.a',
  'usr/lib/*/libnode*', 'usr/lib/*/libicu*', 'usr/bin/*-linux-gnu-*', 'var/lib', 'var/cache']

// QUICKSAND_PROVIDER_TEST names one that is built already.
function unitProgram() {
  if (process.env.QUICKSAND_PROVIDER_TEST) return process.env.QUICKSAND_PROVIDER_TEST
  const build = path.join(repository, 'build/host')
  const made = spawnSync('ninja', ['-C', build, '--quiet', 'src/provider/test/provider_test'], { encoding: 'utf8' })
  assert.equal(made.status, 0, `${made.stdout}${made.stderr}`)
  return path.join(build, 'src/provider/test/provider_test')
}

async function realDaemon(t, engine, image) {
  const result = spawnSync(unitProgram(), ['docker_real'], {
    encoding: 'utf8',
    timeout: 300_000,
    env: { ...process.env, QUICKSAND_DOCKER_SOCKET: engine.socket, QUICKSAND_DOCKER_IMAGE: image },
  })
  const lines = result.stdout.split('\n').filter((line) => /^(ok|FAIL|skip) /.test(line))
  for (const line of result.stdout.split('\n')) if (line.startsWith('# ')) t.diagnostic(`${engine.kind}, ${image}: ${line.slice(2)}`)
  for (const line of lines) await t.test(line.slice(5), () => assert.ok(line.startsWith('ok'), result.stderr))
  assert.ok(lines.length >= 10, result.stdout + result.stderr)
}

for (const kind of ['podman', 'docker']) {
  describe(kind, () => {
    let engine, root
    before(async () => {
      engine = await startEngine(kind)
      root = busyboxRoot()
      await engine.importImage('small', root)
    })
    after(async () => {
      await engine?.stop()
      if (root) fs.rmSync(root, { recursive: true })
    })

    test('contract', (t) =>
      contract(t, { type: 'docker', socket: engine.socket, image: 'small', pull: 'never' }, { allowSkips: ['exec: cancel and attach', 'exec: attach to a terminal'] }))

    test('a real daemon', (t) => realDaemon(t, engine, 'small'))

    if (kind === 'docker') test('the base template', async (t) => {
      await engine.importImage('base', process.env.QUICKSAND_BASE_LAYER, notNeeded)
      await contract(t, { type: 'docker', api_url: `unix://${engine.socket}`, image: 'base', pull: 'never' }, { allowSkips: ['exec: cancel and attach', 'exec: attach to a terminal'] })
    })

    if (kind === 'podman') test('through the server, once its group may open the socket', async () => {
      fs.chmodSync(path.dirname(engine.socket), 0o755)
      fs.chmodSync(engine.socket, 0o660)
      const runtime = await startRuntime({ providers: { e2b: { type: 'e2b', api_url: 'embedded' }, docker: { type: 'docker', socket: engine.socket, image: 'small', pull: 'never' } }, retry: { attempts: 1 } })
      const doctor = () => spawnSync(binary, ['doctor'], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: '/root', DOCKER_HOST: `unix://${engine.socket}` } }).stdout
      try {
        assert.match(doctor(), /docker +warn .*64737 may not open/)
        const refused = await runtime.v1('POST', '/sandboxes', { provider: 'docker' })
        assert.ok(refused.status >= 500, refused.text)
        fs.chownSync(engine.socket, 0, 64737)
        assert.match(doctor(), /docker +ok /)
        const { id } = await runtime.create({ provider: 'docker' })
        assert.equal(await runtime.output(id, 'echo from $((40 + 2))'), 'from 42\n')
        await runtime.remove(id)
      } finally {
        await runtime.destroy()
      }
    })

    test('nothing is left', async () => {
      assert.deepEqual(await engine.containers(), [])
      assert.deepEqual((await engine.images()).filter((name) => name.includes('quicksand-snap')), [])
    })
  })
}
