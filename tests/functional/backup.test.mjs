// `quicksand backup` of a running server, `restore` elsewhere, `upgrade --check`; files that are none, and data of newer programs.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { builder, tar } from '../harness/registry.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

let scratch, file, server
before(() => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'backup-test-'))
  file = path.join(scratch, 'all.qsb')
})
after(async () => {
  await server?.destroy()
  fs.rmSync(scratch, { recursive: true, force: true })
})

const run = (...args) => {
  const done = spawnSync(binary, args, { encoding: 'utf8', timeout: 120_000 * patience, env: { PATH: process.env.PATH, HOME: scratch } })
  return { code: done.status, out: done.stdout, err: done.stderr }
}
const refused = (args, why) => {
  const done = run(...args)
  assert.notEqual(done.code, 0, done.out)
  assert.match(done.err, why)
}
const sh = async (sandbox, command, options) => (await sandbox.commands.run(command, options)).stdout.trim()

// Everything a file can be: names that are no UTF-8, holes, several names, attributes, owners, modes, times, whiteouts.
const make = `cd /home/user && printf x > "$(printf 'odd \\377\\n name')" && mkdir -p deep/er && echo kept > deep/er/file &&
 ln deep/er/file deep/second && ln -s ../nowhere link && mkfifo pipe && truncate -s 5T sparse && printf end | dd of=sparse bs=1 seek=1000000 conv=notrunc status=none &&
 chmod 4711 deep/er/file && setfattr -n user.color -v red deep/er/file 2>/dev/null; python3 -c 'import os; os.setxattr("deep/er", "user.color", b"red")' &&
 touch -d @1000000000.123456789 deep/er && echo last`
const look = `cd /home/user && ls -1b && cat deep/second && stat -c '%a %U %h' deep/er/file && readlink link && stat -c '%F %s' pipe sparse && du -k sparse | cut -f1 &&
 dd if=sparse bs=1 skip=1000000 count=3 status=none && echo && stat -c %.9Y deep/er && python3 -c 'import os; print(os.getxattr("deep/er", "user.color").decode())' && test ! -e /etc/debian_version && echo gone && ls -A /etc/skel /etc/apt-renamed && test ! -e /etc/apt`

let kept
test('a backup is made while sandboxes run and write', { timeout: 300_000 * patience }, async () => {
  server = await startServer({ args: ['--warm', '1'] })
  const sdk = await loadSdk(server)
  const timeoutMs = 600_000
  const volume = await sdk.Volume.create('shared')
  await volume.writeFile('/note', 'in the volume')
  await builder(server).ready('made-here', { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['echo built > /home/user/built'] }] })
  const one = await sdk.Sandbox.create('base', { timeoutMs })
  // A whiteout, a directory that was renamed, and one that hides what was there before.
  await one.commands.run('rm /etc/debian_version && mv /etc/apt /etc/apt-renamed && rm -r /etc/skel && mkdir /etc/skel && touch /etc/skel/new', { user: 'root' })
  assert.match(await sh(one, make), /last/)
  const files = await sh(one, look)
  const snapshot = await one.createSnapshot()
  await one.pause()
  const busy = await sdk.Sandbox.create('base', { timeoutMs, volumeMounts: { '/mnt/shared': volume }, lifecycle: { onTimeout: 'pause' } })
  await busy.commands.run('echo before > /home/user/before; sync; i=0; while sleep 0.01; do echo $((i=i+1)) >> /mnt/shared/log; cp /mnt/shared/log /home/user/copy; done', { background: true })
  await eventually('it writes', () => busy.files.exists('/home/user/copy'))
  const done = run('backup', file, '--data', server.data)
  assert.equal(done.code, 0, done.err)
  assert.match(done.out, /wrote '.*': \d+ layers, 1 volumes, 2 sandboxes; \d+ files/)
  assert.equal(fs.statSync(file).mode & 0o777, 0o600)
  assert.equal(await sh(busy, 'cat /home/user/before'), 'before', 'goes on')
  // Nothing is left of it.
  assert.deepEqual(fs.readdirSync(path.join(server.data, 'pool/temporary')), [])
  assert.ok(!fs.existsSync(path.join(server.data, '.backup')))
  refused(['backup', file, '--data', server.data], /exists/)
  refused(['restore', file, '--data', server.data], /a server uses/)
  kept = { key: server.key, one: one.sandboxId, busy: busy.sandboxId, snapshot: snapshot.snapshotId, files }
  await server.destroy()
  server = undefined
})

test('it is restored on another data directory, and used', { timeout: 300_000 * patience }, async () => {
  server = await startServer({
    args: ['--warm', '1'],
    prepare: (fresh) => {
      fresh.key = kept.key
      const done = run('restore', file, '--data', fresh.data)
      assert.equal(done.code, 0, done.err)
      assert.match(run('upgrade', '--check', '--data', fresh.data).out, /nothing to change/)
      refused(['restore', file, '--data', fresh.data], /has data already/)
    },
  })
  const sdk = await loadSdk(server)
  const one = await sdk.Sandbox.connect(kept.one)
  assert.equal(await sh(one, look), kept.files, 'the paused sandbox has its files')
  await one.commands.run('echo more > /home/user/more')
  const copy = await sdk.Sandbox.create(kept.snapshot)
  assert.equal(await sh(copy, look), kept.files, 'so has one of the snapshot')
  const built = await sdk.Sandbox.create('made-here')
  assert.equal(await sh(built, 'cat /home/user/built'), 'built')
  const [volume] = await sdk.Volume.list()
  const mounted = await sdk.Sandbox.create('base', { volumeMounts: { '/mnt/v': volume.name } })
  assert.equal(await sh(mounted, 'cat /mnt/v/note'), 'in the volume')
  // It ran, and was to be paused at its end.
  const busy = await sdk.Sandbox.connect(kept.busy)
  assert.equal(await sh(busy, 'cat /home/user/before'), 'before')
})

test('a backup of a server that is stopped', { timeout: 120_000 * patience }, async () => {
  const second = path.join(scratch, 'second.qsb')
  await server.stop()
  assert.match(run('backup', second, '--data', server.data).out, /wrote/)
  await server.start()
  assert.ok((await server.ids()).length > 0)
})

test('data of a newer program is refused, and why', { timeout: 120_000 * patience }, async () => {
  await server.killAll()
  await server.stop()
  const sql = (text) => {
    const done = spawnSync('sqlite3', [`${server.data}/store/quicksand.db`, text], { encoding: 'utf8' })
    assert.equal(done.status, 0, done.stderr)
    return done.stdout.trim()
  }
  sql("INSERT INTO schema_migrations VALUES (9999, 'from_the_future', 1)")
  refused(['upgrade', '--check', '--data', server.data], /newer program.*schema version 9999.*Install the newer program/s)
  refused(['backup', path.join(scratch, 'third.qsb'), '--data', server.data], /schema version 9999/)
  await assert.rejects(server.start(), /schema version 9999, this program knows only up to/)
  sql('DELETE FROM schema_migrations WHERE version = 9999')
  sql('DELETE FROM schema_migrations WHERE version = (SELECT max(version) FROM schema_migrations)')
  assert.match(run('upgrade', '--check', '--data', server.data).out, /the next start makes it/)
  sql("INSERT INTO schema_migrations SELECT max(version) + 1, 'again', 1 FROM schema_migrations")
  await server.start()
})

test('what is wrong is refused, and nothing is made', { timeout: 120_000 * patience }, async () => {
  const data = path.join(scratch, 'fresh')
  const bytes = fs.readFileSync(file)
  const bad = path.join(scratch, 'bad.qsb')
  const none = (why) => {
    refused(['restore', bad, '--data', data], why)
    assert.deepEqual(fs.existsSync(data) ? fs.readdirSync(data).filter((name) => name !== 'lock') : [], [])
  }
  fs.writeFileSync(bad, bytes.subarray(0, bytes.length - 1000))
  none(/cut or damaged/)
  bytes[bytes.length >> 1] ^= 1
  fs.writeFileSync(bad, bytes)
  none(/cut or damaged/)
  fs.writeFileSync(bad, 'short')
  none(/is no backup/)
  refused(['restore', path.join(scratch, 'absent'), '--data', data], /absent/)
  refused(['restore'], /needs a FILE/)
  refused(['backup', '--data', data], /needs a FILE/)
  refused(['backup', bad + '2', '--data', path.join(scratch, 'never')], /never/)
  refused(['upgrade'], /needs --check/)
  // Hostile ones, with a good checksum.
  const sealed = (entries) => {
    const body = tar(entries)
    const text = Buffer.alloc(96, '\n')
    text.write(`quicksand backup sha256 ${crypto.createHash('sha256').update(body).digest('hex')}\n`)
    fs.writeFileSync(bad, Buffer.concat([body, Buffer.from([0x5a, 0x2a, 0x4d, 0x18, 96, 0, 0, 0]), text]))
  }
  const list = (parts, more = {}) => ({ name: 'quicksand.json', content: JSON.stringify({ format: 1, schema: 23, program: '0', parts, ...more }) })
  const store = { kind: 'store', name: 'main', bytes: 0 }
  const hostile = (parts, entries, why, more) => {
    sealed([list(parts, more), ...entries])
    none(why)
  }
  const dir = (name) => ({ name: `${name}/`, type: 'dir' })
  hostile([store], [dir('store/main'), { name: 'store/main/../../../escaped', content: 'x' }], /did not come before|no name/)
  hostile([store], [dir('store/main'), { name: 'store/main/quicksand.db', type: 'symlink', target: '/etc/passwd' }], /no plain file/)
  hostile([store, { kind: 'boxes', name: '../../etc', bytes: 0 }], [], /no known kind or name/)
  hostile([store, { kind: 'roots', name: 'a', bytes: 0 }], [], /no known kind or name/)
  hostile([{ kind: 'boxes', name: 'a', bytes: 0 }], [], /in no order/)
  hostile([store], [dir('store/main'), dir('tls/main')], /does not list it/)
  hostile([store, { kind: 'tls', name: 'main', bytes: 0 }], [dir('store/main')], /does not have it/)
  hostile([store], [], /newer program/, { schema: 9999 })
  hostile([store], [dir('store/main'), { name: 'store/main/quicksand.db', content: 'no database' }], /store/)
  const tree = [store, { kind: 'installed', name: 'x', bytes: 0 }]
  hostile(tree, [dir('store/main'), dir('installed/x'), { name: 'installed/x/l', type: 'symlink', target: '/' }, { name: 'installed/x/l/etc', content: '' }], /did not come before/)
  hostile(tree, [dir('store/main'), dir('installed/x'), { name: 'installed/x/sda', type: 'block' }], /a device/)
  hostile(tree, [dir('store/main'), dir('installed/x'), { name: 'installed/x/h', type: 'link', target: 'store/main/quicksand.db' }], /file elsewhere/)
  // Attributes: of overlays only two, of directories, as the kernel writes them; none outside of the list.
  const attribute = (name, value, entry) => ({ ...entry, pax: { [`SCHILY.xattr.${name}`]: value } })
  const plain = { name: 'installed/x/f', content: 'x' }
  for (const [name, value, entry] of [
    ['trusted.overlay.metacopy', '', plain],
    ['trusted.overlay.redirect', '/etc/shadow', plain],
    ['trusted.overlay.opaque', 'y', plain],
    ['trusted.overlay.opaque', 'x', dir('installed/x/d')],
    ['trusted.overlay.origin', 'x', dir('installed/x/d')],
    ['trusted.overlay.redirect', '', dir('installed/x/d')],
    ['trusted.overlay.redirect', '..', dir('installed/x/d')],
    ['trusted.overlay.redirect', '/a/../../../etc', dir('installed/x/d')],
    ['trusted.overlay.redirect', '/a//b', dir('installed/x/d')],
    ['trusted.overlay.redirect', 'a/b', dir('installed/x/d')],
    ['trusted.other', 'x', dir('installed/x/d')],
    ['security.selinux', 'x', plain],
    ['security.ima', 'x', plain],
  ]) hostile(tree, [dir('store/main'), dir('installed/x'), attribute(name, value, entry)], new RegExp(`entry '${entry.name.replace(/\/$/, '')}.*the attribute '${name}' is not allowed`))
  const volume = [store, { kind: 'volumes', name: 'x', bytes: 0 }]
  hostile(volume, [dir('store/main'), dir('volumes/x'), attribute('trusted.overlay.opaque', 'y', dir('volumes/x/d'))], /the attribute 'trusted.overlay.opaque' is not allowed/)
  hostile([store], [dir('store/main'), attribute('user.x', 'y', { name: 'store/main/quicksand.db', content: 'x' })], /the attribute 'user.x' is not allowed/)
  assert.ok(!fs.existsSync(path.join(scratch, 'escaped')))
})
