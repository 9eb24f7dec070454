// Volumes through the published SDK: their content from outside and from sandboxes.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { loadSdk, shell } from '../harness/sdk.mjs'
import { eventually, startServer } from '../harness/server.mjs'

let server
before(async () => (server = await startServer({ args: ['--volume-disk', '300'] })))
after(() => server?.destroy())

const content = (volume, kind, query, options = {}) =>
  server.request({
    method: options.method ?? 'GET',
    path: `/volumecontent/${volume.volumeId}/${kind}?${new URLSearchParams(query)}`,
    headers: { Authorization: `Bearer ${options.token ?? volume.token}`, ...options.headers },
    body: options.body,
  })

for (const version of ['2.45.0', 'latest']) {
  describe(`SDK ${version}`, () => {
    let sdk, volume
    before(async () => {
      sdk = await loadSdk(server, version)
      volume = await sdk.Volume.create(`data-${version.replaceAll('.', '-')}`)
    })
    after(() => volume && sdk.Volume.destroy(volume.volumeId))

    test('create, connect, list, info', async () => {
      const again = await sdk.Volume.connect(volume.volumeId)
      assert.equal(again.token, volume.token)
      assert.equal(again.name, volume.name)
      assert.ok((await sdk.Volume.list()).some((one) => one.volumeId === volume.volumeId))
      await assert.rejects(sdk.Volume.connect('vol0000000000000000000'), sdk.VolumeNotFoundError ?? Error)
      await assert.rejects(sdk.Volume.create(volume.name))
    })

    test('files: write, read, info, exists, remove', async () => {
      const info = await volume.writeFile('/hello.txt', 'hello wörld')
      assert.equal(info.type, 'file')
      assert.equal(info.name, 'hello.txt')
      assert.equal(info.path, '/hello.txt')
      assert.equal(info.size, 12)
      assert.equal(info.uid, 1000)
      assert.equal(info.mode, 0o644)
      assert.ok(Math.abs(info.mtime - Date.now()) < 60_000)
      assert.equal(await volume.readFile('/hello.txt'), 'hello wörld')
      assert.equal(await volume.readFile('hello.txt'), 'hello wörld')
      assert.deepEqual(await volume.readFile('/hello.txt', { format: 'bytes' }), new TextEncoder().encode('hello wörld'))
      assert.equal(await (await volume.readFile('/hello.txt', { format: 'blob' })).text(), 'hello wörld')
      await volume.writeFile('/hello.txt', 'short')
      assert.equal(await volume.readFile('/hello.txt'), 'short')
      assert.equal(await volume.exists('/hello.txt'), true)
      assert.equal(await volume.exists('/absent'), false)
      await assert.rejects(volume.readFile('/absent'), /not found/)
      await assert.rejects(volume.writeFile('/no/dir/file', 'x'), /not found/)
      await volume.writeFile('/empty', '')
      assert.equal(await volume.readFile('/empty'), '')
      await volume.remove('/empty')
      assert.equal(await volume.exists('/empty'), false)
      await assert.rejects(volume.remove('/empty'), /not found/)
    })

    test('directories and metadata', async () => {
      const dir = await volume.makeDir('/dir')
      assert.equal(dir.type, 'directory')
      assert.equal(dir.mode, 0o755)
      await assert.rejects(volume.makeDir('/dir'), /409|exists/)
      await volume.makeDir('/dir', { force: true })
      await assert.rejects(volume.makeDir('/dir/a/b/c'), /not found/)
      await volume.makeDir('/dir/a/b/c', { force: true, uid: 7, gid: 8, mode: 0o700 })
      const made = await volume.getInfo('/dir/a/b/c')
      assert.deepEqual([made.uid, made.gid, made.mode], [7, 8, 0o700])
      await volume.writeFile('/dir/a/f', 'x', { uid: 0, gid: 0, mode: 0o600 })
      const changed = await volume.updateMetadata('/dir/a/f', { mode: 0o4755, uid: 1234 })
      assert.deepEqual([changed.uid, changed.gid, changed.mode], [1234, 0, 0o4755])
      const names = (list) => list.map((one) => one.path).sort()
      assert.deepEqual(names(await volume.list('/dir')), ['/dir/a'])
      assert.deepEqual(names(await volume.list('/dir', { depth: 3 })), ['/dir/a', '/dir/a/b', '/dir/a/b/c', '/dir/a/f'])
      await assert.rejects(volume.list('/absent'), /not found/)
      await volume.remove('/dir')
      assert.equal(await volume.exists('/dir'), false)
    })

    test('large files are streamed both ways', async () => {
      const size = 64 << 20
      const piece = new Uint8Array(1 << 20).map((_, i) => i % 251)
      let sent = 0
      const body = new ReadableStream({
        pull(controller) {
          if (sent >= size) return controller.close()
          sent += piece.length
          controller.enqueue(piece)
        },
      })
      const info = await volume.writeFile('/large', body)
      assert.equal(info.size, size)
      let got = 0
      for await (const chunk of await volume.readFile('/large', { format: 'stream' })) {
        if (got < piece.length) assert.equal(chunk[0], got % 251)
        got += chunk.length
      }
      assert.equal(got, size)
      await volume.remove('/large')
    })

    test('two sandboxes share it, and the data outlives them', async () => {
      const volumeMounts = { '/mnt/shared': volume }
      const one = await sdk.Sandbox.create({ volumeMounts })
      const two = await sdk.Sandbox.create({ volumeMounts })
      try {
        await volume.writeFile('/from-outside', 'out')
        assert.equal((await one.commands.run('cat /mnt/shared/from-outside')).stdout, 'out')
        assert.equal((await one.commands.run('stat -c %U:%G:%a /mnt/shared/from-outside')).stdout, 'user:user:644\n')
        await one.commands.run('echo one >> /mnt/shared/from-outside; mkdir -m 700 /mnt/shared/own; echo secret > /mnt/shared/own/f')
        assert.equal(await two.files.read('/mnt/shared/from-outside'), 'outone\n')
        assert.equal(await volume.readFile('/own/f'), 'secret\n')
        assert.equal((await volume.getInfo('/own')).uid, 1000)
        await two.commands.run('echo root > /mnt/shared/root', { user: 'root' })
        assert.equal((await volume.getInfo('/root')).uid, 0)
        await assert.rejects(sdk.Volume.destroy(volume.volumeId), /409|used/)
      } finally {
        await one.kill()
        await two.kill()
      }
      assert.equal(await volume.readFile('/own/f'), 'secret\n')
      const three = await sdk.Sandbox.create({ volumeMounts })
      assert.equal((await three.commands.run('cat /mnt/shared/own/f')).stdout, 'secret\n')
      await three.kill()
    })

    test('links do not lead out', async () => {
      const box = await sdk.Sandbox.create({ volumeMounts: { '/v': volume } })
      await box.commands.run('ln -s /etc/passwd /v/passwd; ln -s ../../../../usr /v/usr; ln -s loop /v/loop; ln -s /inside /v/link; mkfifo /v/fifo')
      await assert.rejects(volume.readFile('/passwd'), /not found/)
      await assert.rejects(volume.list('/usr'), /too many links/)
      await assert.rejects(volume.readFile('/usr/bin/env'), /too many links/)
      await assert.rejects(volume.readFile('/loop'), /too many links/)
      await assert.rejects(volume.readFile('/fifo'), /regular/)
      await assert.rejects(volume.writeFile('/fifo', 'x'), /regular/)
      assert.equal((await content(volume, 'file', { path: '/../../etc/passwd' })).status, 400)
      const info = await volume.getInfo('/link')
      assert.equal(info.type, 'symlink')
      assert.equal(info.target, '/inside')
      await volume.writeFile('/inside', 'first')
      await volume.writeFile('/link', 'second')
      assert.equal(await volume.readFile('/inside'), 'second')
      assert.equal((await volume.getInfo('/link')).type, 'symlink')
      await volume.remove('/link')
      assert.equal(await volume.exists('/inside'), true)
      await box.kill()
    })
  })
}

test('only its own token opens a volume, and only its content', async () => {
  const sdk = await loadSdk(server)
  const one = await sdk.Volume.create('one')
  const two = await sdk.Volume.create('two')
  await one.writeFile('/f', 'x')
  await two.writeFile('/f', 'y')
  for (const token of ['', 'wrong', server.key, 'a'.repeat(5000)]) {
    const answer = await content(one, 'file', { path: '/f' }, { token })
    assert.equal(answer.status, 401, answer.text)
    assert.equal(answer.body.code, 'unauthenticated')
  }
  assert.equal((await content(one, 'file', { path: '/f' }, { token: two.token })).status, 404)
  // The token is no access token of a sandbox.
  for (const target of ['/process.Process/List', '/files?path=/etc/passwd', '/idle?seconds=0', '/init']) {
    const answer = await server.request({ method: target.startsWith('/process') ? 'POST' : 'GET', path: target, headers: { 'X-Access-Token': one.token, 'Content-Type': 'application/json' }, body: '{}' })
    assert.ok([404, 502].includes(answer.status), `${target}: ${answer.status} ${answer.text}`)
  }
  for (const [kind, query, method] of [['file', {}, 'GET'], ['dir', { path: '/', depth: 1000 }, 'GET'], ['dir', { path: '/x', mode: 'rwx' }, 'POST'], ['path', { path: 'x'.repeat(300) }, 'GET'], ['dir', { path: '/x', uid: 2 ** 40 }, 'POST']]) {
    const answer = await content(one, kind, query, { method })
    assert.equal(answer.status, 400, `${kind} ${answer.text}`)
  }
  assert.equal((await content(one, 'nothing', { path: '/' })).status, 404)
  await sdk.Volume.destroy(one.volumeId)
  assert.equal((await content(one, 'file', { path: '/f' })).status, 401)
  await sdk.Volume.destroy(two.volumeId)
})

test('an upload that breaks off leaves the file as it was', async () => {
  const sdk = await loadSdk(server)
  const volume = await sdk.Volume.create('broken')
  await volume.writeFile('/f', 'whole')
  const socket = await server.connect()
  socket.write(`PUT /volumecontent/${volume.volumeId}/file?path=/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${volume.token}\r\nContent-Length: 1000000\r\n\r\nhalf`)
  await eventually('the upload has begun', async () => (await volume.list('/')).length === 2)
  socket.destroy()
  await eventually('nothing is left of it', async () => (await volume.list('/')).length === 1)
  assert.equal(await volume.readFile('/f'), 'whole')
  await sdk.Volume.destroy(volume.volumeId)
})

test('content is reached again after the server and its boxes were killed', async () => {
  const sdk = await loadSdk(server)
  const volume = await sdk.Volume.create('kept')
  await volume.writeFile('/f', 'kept')
  process.kill(server.servingPid, 'SIGKILL')
  await eventually('the server answers', async () => (await volume.readFile('/f').catch(() => '')) === 'kept')
  await server.restart()
  assert.equal(await volume.readFile('/f'), 'kept')
  await Promise.all(Array.from({ length: 20 }, (_, i) => volume.writeFile(`/n${i}`, String(i))))
  assert.equal((await volume.list('/')).length, 21)
  await sdk.Volume.destroy(volume.volumeId)
})

test('a full volume: 507 from outside, and an error inside', async () => {
  const sdk = await loadSdk(server)
  const volume = await sdk.Volume.create('full')
  const sandbox = await sdk.Sandbox.create({ volumeMounts: { '/v': volume } })
  assert.notEqual((await shell(sandbox, 'head -c 400M /dev/urandom > /v/fill && sync /v/fill', { timeoutMs: 60_000 })).exitCode, 0)
  await assert.rejects(volume.writeFile('/more', new Uint8Array(64 << 20).map((_, i) => i * 7)), /507|space/i)
  assert.equal(await volume.exists('/more'), false)
  await volume.remove('/fill')
  await eventually('room again', () => volume.writeFile('/more', 'x').then(() => true, () => false), 60_000, 1000)
  await sandbox.kill()
  await sdk.Volume.destroy(volume.volumeId)
})
