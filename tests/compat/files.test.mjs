// sandbox.files of the published SDK: every method and option.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, python, shell, only } from '../harness/sdk.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

for (const version of only(['2.45.0', 'latest'])) {
  describe(`files of e2b ${version}`, () => {
    let sdk, sandbox, files
    before(async () => {
      sdk = await loadSdk(server, version)
      sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 })
      files = sandbox.files
    })
    after(async () => {
      await sandbox?.kill()
    })

    const named = (...names) => (error) => {
      assert.ok(names.includes(error.constructor.name), error.stack)
      return true
    }
    const noise = (size) => crypto.randomBytes(size)
    const sha = (data) => crypto.createHash('sha256').update(data).digest('hex')
    const streamOf = (data, piece = 60_000) =>
      new ReadableStream({
        start(controller) {
          for (let at = 0; at < data.length; at += piece) controller.enqueue(data.subarray(at, at + piece))
          controller.close()
        },
      })

    test('write and read in every form', async () => {
      const data = noise(300_000)
      const forms = { text: 'žluťoučký 🐎\n', buffer: data.buffer.slice(data.byteOffset, data.byteOffset + data.length), blob: new Blob([data]), stream: streamOf(data) }
      for (const [form, value] of Object.entries(forms)) {
        const info = await files.write(`/tmp/forms/${form}`, value)
        assert.deepEqual([info.name, info.path, info.type, info.metadata], [form, `/tmp/forms/${form}`, 'file', undefined])
        const want = form === 'text' ? Buffer.from(value) : data
        assert.deepEqual(Buffer.from(await files.read(`/tmp/forms/${form}`, { format: 'bytes' })), want, form)
      }
      assert.equal(await files.read('/tmp/forms/text'), forms.text)
      assert.equal(await files.read('/tmp/forms/text', { format: 'text' }), forms.text)
      const blob = await files.read('/tmp/forms/blob', { format: 'blob' })
      assert.deepEqual(Buffer.from(await blob.arrayBuffer()), data)
      const parts = []
      for await (const part of await files.read('/tmp/forms/stream', { format: 'stream' })) parts.push(part)
      assert.deepEqual(Buffer.concat(parts), data)
    })

    test('empty, large, and overwritten files', async () => {
      await files.write('/tmp/empty', '')
      assert.equal(await files.read('/tmp/empty'), '')
      assert.equal((await files.read('/tmp/empty', { format: 'bytes' })).length, 0)
      const big = noise(48_000_000)
      await files.write('/tmp/big', streamOf(big, 1_000_000))
      assert.equal((await sandbox.commands.run('sha256sum < /tmp/big')).stdout.split(' ')[0], sha(big))
      assert.equal(sha(await files.read('/tmp/big', { format: 'bytes' })), sha(big))
      await files.write('/tmp/big', 'short')
      assert.equal(await files.read('/tmp/big'), 'short')
    })

    test('gzip both ways; octet-stream', async () => {
      const text = 'compress me '.repeat(100_000)
      await files.write('/tmp/zipped', text, { gzip: true })
      assert.equal((await sandbox.commands.run('wc -c < /tmp/zipped')).stdout.trim(), String(text.length))
      assert.equal(await files.read('/tmp/zipped', { gzip: true }), text)
      assert.equal(await files.read('/tmp/zipped'), text)
      await files.write('/tmp/octets', text, { useOctetStream: true })
      assert.equal(await files.read('/tmp/octets'), text)
      const many = await files.write([{ path: '/tmp/z/one', data: 'one' }, { path: '/tmp/z/two', data: 'two' }], { gzip: true })
      assert.deepEqual(many.map((one) => one.path), ['/tmp/z/one', '/tmp/z/two'])
      assert.equal(await files.read('/tmp/z/two'), 'two')
    })

    test('many files in one call, mixed forms, in order', async () => {
      const entries = Array.from({ length: 300 }, (_, at) => ({ path: `batch/${at % 10}/${at}`, data: at % 2 ? `text ${at}` : new Blob([`text ${at}`]) }))
      const infos = await files.write(entries)
      assert.deepEqual(infos.map((one) => one.path), entries.map((one) => `/home/user/${one.path}`))
      assert.equal((await sandbox.commands.run("find ~/batch -type f | wc -l; cat ~/batch/7/297; stat -c '%U:%a' ~/batch ~/batch/7 ~/batch/7/297")).stdout, '300\ntext 297user:755\nuser:755\nuser:644\n')
      const streams = await files.writeFiles([{ path: '/tmp/s/one', data: streamOf(Buffer.from('1')) }, { path: '/tmp/s/two', data: '2' }])
      assert.deepEqual(streams.map((one) => one.path), ['/tmp/s/one', '/tmp/s/two'])
      assert.deepEqual(await files.write([]), [])
      await assert.rejects(files.write([{ path: '/tmp/same', data: '1' }, { path: '/tmp/same', data: '2' }]), named('InvalidArgumentError'))
    })

    test('paths: relative, home, odd names, too long', async () => {
      for (const [given, real] of [['rel/file', '/home/user/rel/file'], ['~/tilde', '/home/user/tilde'], ['rel/../over', '/home/user/over']]) {
        assert.equal((await files.write(given, given)).path, real)
        assert.equal(await files.read(real), given)
      }
      for (const name of ['with space', "quo'te\"s", 'percent%20', 'plus+and&amp', 'žlutý kůň 🐎', 'new\nline', '-dash', '.hidden', 'semi;colon', 'back\\slash', 'x'.repeat(255)]) {
        await files.write(`/tmp/odd/${name}`, name)
        assert.equal(await files.read(`/tmp/odd/${name}`), name)
        assert.equal((await files.getInfo(`/tmp/odd/${name}`)).name, name)
      }
      assert.equal((await files.list('/tmp/odd')).length, 11)
      await assert.rejects(files.write(`/tmp/odd/${'x'.repeat(256)}`, 'long'))
    })

    test('users: whose home, whose file, what is forbidden to whom', async () => {
      await files.write('of-root', 'r', { user: 'root' })
      assert.equal(await files.read('/root/of-root', { user: 'root' }), 'r')
      assert.equal((await files.getInfo('of-root', { user: 'root' })).owner, 'root')
      await assert.rejects(files.write('x', 'x', { user: 'nobody-knows' }), named('AuthenticationError'))
      await assert.rejects(files.list('/tmp', { user: 'nobody-knows' }), named('AuthenticationError'))
    })

    test('what cannot be read or written', async () => {
      await assert.rejects(files.read('/tmp/none'), named('FileNotFoundError', 'NotFoundError'))
      await assert.rejects(files.read('/tmp'), named('InvalidArgumentError'))
      await assert.rejects(files.write('/tmp', 'x'), named('InvalidArgumentError'))
      await assert.rejects(files.write('/etc/passwd/below', 'x'))
      await sandbox.commands.run('mkfifo /tmp/pipe; ln -s loop /tmp/loop')
      await assert.rejects(files.read('/tmp/pipe'))
      await assert.rejects(files.read('/tmp/loop'))
      await assert.rejects(files.list('/tmp/none'), named('FileNotFoundError', 'NotFoundError'))
      await assert.rejects(files.list('/etc/passwd'), named('InvalidArgumentError'))
      await assert.rejects(files.rename('/tmp/none', '/tmp/some'), named('FileNotFoundError', 'NotFoundError'))
      await files.remove('/tmp/none')
      await assert.rejects(files.makeDir('/etc/passwd'), named('InvalidArgumentError'))
    })

    test('getInfo: files, directories, links', async () => {
      await sandbox.commands.run('mkdir -p /tmp/info/dir && cd /tmp/info && echo hello > file && chmod 4750 file && ln -s file link && ln -s nowhere broken && ln -s dir dirlink && mkdir -m 1777 sticky')
      const file = await files.getInfo('/tmp/info/file')
      assert.equal(file.name, 'file')
      assert.equal(file.type, 'file')
      assert.equal(file.path, '/tmp/info/file')
      assert.equal(file.size, 6)
      // btrfs gives an empty directory no size; clients expect one.
      await files.makeDir('/home/user/nothing-in-it')
      assert.ok((await files.getInfo('/home/user/nothing-in-it')).size > 0)
      assert.ok((await files.list('/home/user')).find((one) => one.name === 'nothing-in-it').size > 0)
      assert.equal(file.mode, 0o750)
      assert.equal(file.permissions, 'urwxr-x---')
      assert.equal(file.owner, 'user')
      assert.equal(file.group, 'user')
      assert.ok(file.modifiedTime instanceof Date && Math.abs(Date.now() - file.modifiedTime) < 60_000)
      assert.equal(file.symlinkTarget, undefined)
      assert.equal(file.metadata, undefined)
      const link = await files.getInfo('/tmp/info/link')
      assert.equal(link.type, 'file')
      assert.equal(link.symlinkTarget, '/tmp/info/file')
      assert.equal(link.permissions, 'Lrwxrwxrwx')
      assert.equal((await files.getInfo('/tmp/info/dirlink')).type, 'dir')
      assert.equal((await files.getInfo('/tmp/info/sticky')).permissions, 'dtrwxrwxrwx')
      const dir = await files.getInfo('/tmp/info/dir')
      assert.equal(dir.type, 'dir')
      assert.equal(dir.permissions, 'drwxr-xr-x')
      await assert.rejects(files.getInfo('/tmp/info/none'), named('FileNotFoundError', 'NotFoundError'))
      assert.equal(await files.exists('/tmp/info/broken'), true)
      assert.deepEqual((await files.list('/tmp/info')).map((one) => one.name), ['dir', 'dirlink', 'file', 'link', 'sticky'])
    })

    test('list: depth, order, paths through a link, an empty directory', async () => {
      await sandbox.commands.run('mkdir -p /tmp/deep/a/b/c /tmp/deep/z && touch /tmp/deep/a/1 /tmp/deep/a/b/2 /tmp/deep/a/b/c/3 && ln -s deep /tmp/deeplink')
      const names = async (path, options) => (await files.list(path, options)).map((one) => one.path)
      assert.deepEqual(await names('/tmp/deep'), ['/tmp/deep/a', '/tmp/deep/z'])
      assert.deepEqual(await names('/tmp/deep', { depth: 2 }), ['/tmp/deep/a', '/tmp/deep/a/1', '/tmp/deep/a/b', '/tmp/deep/z'])
      assert.equal((await names('/tmp/deep', { depth: 10 })).length, 7)
      assert.deepEqual(await names('/tmp/deeplink'), ['/tmp/deeplink/a', '/tmp/deeplink/z'])
      assert.deepEqual(await names('/tmp/deep/z'), [])
      await assert.rejects(files.list('/tmp/deep', { depth: 0 }), named('InvalidArgumentError'))
    })

    test('makeDir, exists, rename, remove', async () => {
      assert.equal(await files.makeDir('/tmp/made/by/us'), true)
      assert.equal(await files.makeDir('/tmp/made/by/us'), false)
      assert.equal(await files.exists('/tmp/made/by'), true)
      await files.write('/tmp/made/file', 'x')
      const moved = await files.rename('/tmp/made/file', '/tmp/made/new/place/file')
      assert.equal(moved.path, '/tmp/made/new/place/file')
      assert.equal(moved.type, 'file')
      assert.equal(await files.exists('/tmp/made/file'), false)
      await files.rename('/tmp/made/new', '/tmp/made/newer')
      assert.equal(await files.read('/tmp/made/newer/place/file'), 'x')
      await files.remove('/tmp/made')
      assert.equal(await files.exists('/tmp/made'), false)
      assert.equal((await sandbox.commands.run('umask 077; echo')).exitCode, 0)
    })

    test('metadata: written, read, replaced, set from inside, refused', async () => {
      const info = await files.write('/tmp/meta', 'x', { metadata: { Author: 'ada', purpose: 'a test' } })
      assert.deepEqual(info.metadata, { author: 'ada', purpose: 'a test' })
      assert.deepEqual((await files.getInfo('/tmp/meta')).metadata, { author: 'ada', purpose: 'a test' })
      assert.deepEqual((await files.list('/tmp')).find((one) => one.name === 'meta').metadata, { author: 'ada', purpose: 'a test' })
      assert.equal(await python(sandbox, 'result = os.getxattr("/tmp/meta", "user.e2b.author").decode()'), 'ada')
      await python(sandbox, 'os.setxattr("/tmp/meta", "user.e2b.outside", b"yes"); os.setxattr("/tmp/meta", "user.other", b"no")')
      assert.deepEqual((await files.getInfo('/tmp/meta')).metadata, { author: 'ada', purpose: 'a test', outside: 'yes' })
      assert.deepEqual((await files.rename('/tmp/meta', '/tmp/meta2')).metadata, { author: 'ada', purpose: 'a test', outside: 'yes' })
      await files.write('/tmp/meta2', 'y', { metadata: { only: 'this' } })
      assert.deepEqual((await files.getInfo('/tmp/meta2')).metadata, { only: 'this' })
      await files.write('/tmp/meta2', 'z')
      assert.equal((await files.getInfo('/tmp/meta2')).metadata, undefined)
      const many = await files.write([{ path: '/tmp/m/1', data: '1' }, { path: '/tmp/m/2', data: '2' }], { metadata: { k: 'v' } })
      assert.deepEqual(many.map((one) => one.metadata), [{ k: 'v' }, { k: 'v' }])
      for (const options of [{ gzip: true }, { useOctetStream: true }]) {
        await files.write('/tmp/meta3', 'x', { metadata: { k: 'w' }, ...options })
        assert.deepEqual((await files.getInfo('/tmp/meta3')).metadata, { k: 'w' })
      }
      await assert.rejects(files.write('/tmp/meta4', 'x', { metadata: { 'bad key': 'v' } }), named('InvalidArgumentError'))
      await assert.rejects(files.write('/tmp/meta4', 'x', { metadata: { k: 'line\nbreak' } }), named('InvalidArgumentError'))
    })

    test('watchDir: create, write, chmod, rename, remove', async () => {
      await files.makeDir('/tmp/seen')
      const events = []
      const handle = await files.watchDir('/tmp/seen', (event) => void events.push(event))
      const sees = (type, name) => eventually(`${type} ${name} in ${JSON.stringify(events)}`, () => events.some((one) => one.type === type && one.name === name))
      await files.write('/tmp/seen/file', 'x')
      await sees('create', 'file')
      await sees('write', 'file')
      await sandbox.commands.run('chmod 600 /tmp/seen/file')
      await sees('chmod', 'file')
      await files.rename('/tmp/seen/file', '/tmp/seen/other')
      await sees('rename', 'file')
      await sees('create', 'other')
      await files.remove('/tmp/seen/other')
      await sees('remove', 'other')
      await files.makeDir('/tmp/seen/sub')
      await sees('create', 'sub')
      await files.write('/tmp/seen/sub/below', 'x')
      await sleep(200) // no event comes
      assert.ok(!events.some((one) => one.name.includes('below')), 'not recursive')
      assert.ok(events.every((one) => one.entry === undefined))
      await handle.stop()
      const count = events.length
      await files.write('/tmp/seen/after', 'x')
      await sleep(200) // no event comes
      assert.equal(events.length, count)
    })

    test('watchDir recursive: new directories and a burst, nothing lost', async () => {
      await files.makeDir('/tmp/tree')
      const created = new Set()
      const handle = await files.watchDir('/tmp/tree', (event) => void (event.type === 'create' && created.add(event.name)), { recursive: true, timeoutMs: 0 })
      await sandbox.commands.run('cd /tmp/tree && for d in $(seq 100); do mkdir -p n/$d/m && touch $(seq -f "n/$d/m/%g" 20); done')
      await eventually(`all of it, have ${created.size}`, () => created.size >= 2201, 20_000)
      assert.ok(created.has('n') && created.has('n/100/m/20'))
      await handle.stop()
    })

    test('watchDir includeEntry', async () => {
      await files.makeDir('/tmp/entries')
      const events = []
      const handle = await files.watchDir('/tmp/entries', (event) => void events.push(event), { includeEntry: true })
      await files.write('/tmp/entries/file', 'some', { metadata: { k: 'v' } })
      const created = await eventually('create', () => events.find((one) => one.type === 'create' && one.name === 'file'))
      assert.equal(created.entry.path, '/tmp/entries/file')
      assert.equal(created.entry.type, 'file')
      assert.equal(created.entry.owner, 'user')
      await files.remove('/tmp/entries/file')
      const removed = await eventually('remove', () => events.find((one) => one.type === 'remove'))
      assert.equal(removed.entry, undefined)
      await handle.stop()
    })

    test('watchDir: errors, time limit, end', async () => {
      await assert.rejects(files.watchDir('/tmp/none', () => {}), named('FileNotFoundError', 'NotFoundError'))
      await assert.rejects(files.watchDir('/etc/passwd', () => {}), named('InvalidArgumentError', 'SandboxError'))
      await files.makeDir('/tmp/limited')
      let ended
      await files.watchDir('/tmp/limited', () => {}, { timeoutMs: 1000, onExit: (error) => void (ended = [error]) })
      await eventually('the time limit', () => ended, 30_000)
      await files.makeDir('/tmp/stopped')
      let stopped
      const handle = await files.watchDir('/tmp/stopped', () => {}, { onExit: (error) => void (stopped = [error]) })
      await handle.stop()
      await eventually('onExit', () => stopped)
    })

    test('signed addresses: download and upload, with user and expiry', async () => {
      await files.write('/tmp/signed', 'content')
      // Says which sandbox is meant, as host names do; a signature that fits none cannot.
      const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
      const get = async (url, options = {}) => {
        const answer = await fetch(url, options)
        return { status: answer.status, text: await answer.text() }
      }
      assert.deepEqual(await get(await sandbox.downloadUrl('/tmp/signed')), { status: 200, text: 'content' })
      assert.deepEqual(await get(await sandbox.downloadUrl('/tmp/signed', { useSignatureExpiration: 60, user: 'user' })), { status: 200, text: 'content' })
      await files.write('rooted', 'of root', { user: 'root' })
      assert.deepEqual(await get(await sandbox.downloadUrl('rooted', { user: 'root' })), { status: 200, text: 'of root' })
      const expired = await get(await sandbox.downloadUrl('/tmp/signed', { useSignatureExpiration: -10 }))
      assert.deepEqual([expired.status, JSON.parse(expired.text)], [401, { code: 401, message: 'signature is already expired' }])
      const wrong = new URL(await sandbox.downloadUrl('/tmp/signed'))
      wrong.searchParams.set('path', '/etc/shadow')
      const refused = await get(wrong, { headers })
      assert.deepEqual([refused.status, JSON.parse(refused.text)], [401, { code: 401, message: 'invalid signature' }])

      const put = async (url, name = 'up.txt', options = {}) => {
        const form = new FormData()
        form.append('file', new Blob(['uploaded']), name)
        const answer = await fetch(url, { method: 'POST', body: form, ...options })
        return { status: answer.status, body: await answer.json() }
      }
      assert.deepEqual(await put(await sandbox.uploadUrl('/tmp/uploaded')), { status: 200, body: [{ name: 'uploaded', path: '/tmp/uploaded', type: 'file' }] })
      assert.equal(await files.read('/tmp/uploaded'), 'uploaded')
      const unnamed = await put(await sandbox.uploadUrl(), 'named.txt')
      assert.deepEqual(unnamed, { status: 200, body: [{ name: 'named.txt', path: '/home/user/named.txt', type: 'file' }] })
      assert.equal((await put(await sandbox.downloadUrl('/tmp/uploaded'), 'up.txt', { headers })).status, 401)
      const late = await put(await sandbox.uploadUrl('/tmp/late', { useSignatureExpiration: -1 }))
      assert.deepEqual(late, { status: 401, body: { code: 401, message: 'signature is already expired' } })
    })

    test('a full disk says so', async () => {
      await shell(sandbox, 'head -c 1G /dev/zero > /dev/shm/fill')
      await assert.rejects(files.write('/dev/shm/more', 'x'.repeat(100_000)), named('NotEnoughSpaceError'))
      assert.equal(await files.exists('/dev/shm/more'), false)
      await files.remove('/dev/shm/fill')
      await files.write('/dev/shm/more', 'fits')
      assert.equal(await files.read('/dev/shm/more'), 'fits')
    })

    test('an aborted read and write leave everything usable', async () => {
      const abort = new AbortController()
      const stream = await files.read('/usr/bin/python3', { format: 'stream', signal: abort.signal })
      await stream.getReader().read()
      abort.abort()
      let wanted = true
      const slow = new ReadableStream({ pull: (controller) => sleep(50).then(() => (wanted ? controller.enqueue(noise(1000)) : controller.close())) })
      // The SDK's own time limit does not count for streams.
      await assert.rejects(files.write('/tmp/half', slow, { signal: AbortSignal.timeout(700) }))
      wanted = false
      assert.equal(await files.exists('/tmp/half'), false)
      await files.write('/tmp/whole', 'x')
      assert.equal(await files.read('/tmp/whole'), 'x')
    })
  })
}
