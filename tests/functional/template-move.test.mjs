// Templates that move: from one server to another as a file or through a registry, and to podman.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { builder, busyboxLayer, startRegistry, tar } from '../harness/registry.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, patience, startServer } from '../harness/server.mjs'

const run = promisify(execFile)
let registry, server, scratch
before(async () => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'move-test-'))
  registry = await startRegistry()
  server = await begin()
})
after(async () => {
  await server?.destroy()
  await registry?.stop()
  fs.rmSync(scratch, { recursive: true, force: true })
})

const begin = () => startServer({ args: ['--warm', '1', '--registry-mirror', `docker.io=${registry.url}`, '--registry-mirror', `moved.example=${registry.url}`] })
const quicksand = async (...args) => {
  const env = { PATH: process.env.PATH, HOME: scratch, E2B_API_URL: server.url, QUICKSAND_URL: server.url, E2B_API_KEY: server.key, QUICKSAND_API_KEY: server.key, QUICKSAND_REGISTRY_MIRRORS: `moved.example=${registry.url}` }
  return (await run(binary, args, { env, maxBuffer: 1 << 26 })).stdout
}
async function inside(template, command) {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create(template, { timeoutMs: 120_000 * patience })
  try {
    return (await sandbox.commands.run(command)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}
const shown = 'id -un; pwd; echo $COLOR; cat /srv/file; stat -c "%u:%g %a" /srv/file /srv/tool; ls /srv/hidden /etc/gone 2>&1; cat /tmp/started'
const expected = 'app\n/srv\nred\nkept\n1234:1234 640\n0:0 4755\nls: /srv/hidden: No such file or directory\nls: /etc/gone: No such file or directory\nyes'

test('a template is made, exported, pushed, and starts elsewhere as it did here', { timeout: 600_000 }, async () => {
  const base = tar([
    { name: 'etc/passwd', content: 'root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n' },
    { name: 'etc/group', content: 'root:x:0:\napp:x:1234:\n' },
    { name: 'etc/gone', content: 'x' },
    { name: 'srv/hidden', content: 'x' },
    { name: 'srv/tool', content: '#!/bin/sh\n', mode: 0o4755 },
    { name: 'tmp/', type: 'dir', mode: 0o1777 },
  ])
  await registry.push('library/start', '1', { layers: [busyboxLayer(), base] })
  await builder(server).ready('origin', {
    fromImage: 'start:1',
    steps: [
      { type: 'ENV', args: ['COLOR', 'red'] },
      { type: 'USER', args: ['root'] },
      { type: 'RUN', args: ['rm /etc/gone /srv/hidden && echo kept >/srv/file && chmod 640 /srv/file && chown 1234:1234 /srv/file'] },
      { type: 'USER', args: ['app'] },
      { type: 'WORKDIR', args: ['/srv'] },
    ],
    startCmd: 'echo yes >/tmp/started; sleep 100000',
    readyCmd: 'test -s /tmp/started',
  })
  assert.equal(await inside('origin', shown), expected)
  const file = path.join(scratch, 'origin.tar')
  assert.match(await quicksand('template', 'export', 'origin', file), /^wrote .*origin\.tar sha256:[0-9a-f]{64}$/m)
  assert.match(await quicksand('template', 'push', 'origin', 'moved.example/origin:1'), /^pushed /m)
  const told = JSON.parse((await run('skopeo', ['inspect', '--config', `oci-archive:${file}`])).stdout)
  assert.equal(told.config.Labels['dev.quicksand.start'], 'echo yes >/tmp/started; sleep 100000')
  assert.deepEqual(told.config.Env, ['COLOR=red'])
  const checked = JSON.parse((await run('skopeo', ['inspect', '--tls-verify=false', `docker://${registry.host}/origin:1`])).stdout)
  assert.equal(checked.Layers.length, 1)

  await server.destroy()
  server = await begin()
  await quicksand('template', 'import', file, 'imported')
  assert.equal(await inside('imported', shown), expected)
  await quicksand('template', 'pull', 'moved.example/origin:1', 'pulled')
  assert.equal(await inside('pulled', shown), expected)
  await assert.rejects(quicksand('template', 'export', 'nobody', path.join(scratch, 'none.tar')), /template 'nobody' not found/)
  assert.equal(fs.existsSync(path.join(scratch, 'none.tar')), false)

  const storage = ['--root', '/mnt/podman', '--runroot', '/mnt/podman-run', '--storage-driver', 'vfs', '--cgroup-manager', 'cgroupfs']
  const out = await run('podman', [...storage, 'run', '--rm', '--network', 'none', '--events-backend', 'none', `oci-archive:${file}`, 'sh', '-c', 'id -u; pwd; echo $COLOR; cat /srv/file'], { env: { ...process.env, TMPDIR: scratch } })
  assert.equal(out.stdout, '1234\n/srv\nred\nkept\n')
})

test('a snapshot moves like a template, with what its sandbox had', { timeout: 300_000 }, async () => {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create('imported', { timeoutMs: 300_000 * patience })
  let id
  try {
    await sandbox.commands.run('echo snapped >/srv/snapped; rm /srv/tool', { user: 'root' })
    id = (await server.api('POST', `/sandboxes/${sandbox.sandboxId}/snapshots`, { name: 'moving' })).body.snapshotID
  } finally {
    await sandbox.kill()
  }
  const file = path.join(scratch, 'snapshot.tar')
  await quicksand('template', 'export', id, file)
  await quicksand('template', 'import', file, 'from-snapshot')
  assert.equal(await inside('from-snapshot', 'id -un; pwd; cat /srv/snapped; ls /srv/tool 2>&1; cat /tmp/started'), 'app\n/srv\nsnapped\nls: /srv/tool: No such file or directory\nyes')
})
