// Packages: made, looked at by lintian, installed into a bare Debian 12 root, upgraded, removed and purged there; the tarball.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, patience, repository } from '../harness/server.mjs'

let scratch, root, packages
before(() => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'packages-test-'))
  packages = path.join(scratch, 'deb')
  root = path.join(scratch, 'root')
})
after(() => fs.rmSync(scratch, { recursive: true, force: true }))

function run(command, ...args) {
  const done = spawnSync(command, args, { encoding: 'utf8', cwd: repository, timeout: 600_000 * patience, maxBuffer: 1 << 26 })
  assert.equal(done.status, 0, `${command} ${args.join(' ')}: ${done.stdout}${done.stderr}${done.error ?? ''}`)
  return done.stdout
}
const deb = (name) => path.join(packages, fs.readdirSync(packages).find((file) => file.startsWith(`${name}_`)))
const inRoot = (file) => path.join(root, file)
// Libraries that the bare root lacks are not what is tried here.
const dpkg = (...args) => run('dpkg', `--root=${root}`, '--force-depends', '--force-confdef', '--force-confold', ...args)

test('make deb: three packages, lintian has nothing to say', { timeout: 900_000 * patience }, () => {
  run('tools/package.sh', 'deb', packages)
  assert.deepEqual(fs.readdirSync(packages).map((name) => name.split('_')[0]).sort(), ['libquicksand-dev', 'libquicksand0', 'quicksand'])
  run('lintian', '--fail-on', 'error,warning', '--allow-root', deb('quicksand'), deb('libquicksand0'), deb('libquicksand-dev'))
  const listed = run('dpkg-deb', '--contents', deb('quicksand'))
  for (const file of ['usr/bin/quicksand', 'usr/lib/quicksand/envd', 'usr/share/man/man1/quicksand.1.gz', 'usr/share/bash-completion/completions/quicksand.bash', 'usr/lib/systemd/system/quicksand.service', 'etc/quicksand/quicksand.conf', 'usr/share/doc/quicksand/copyright'])
    assert.ok(listed.includes(`./${file}`), `${file} in\n${listed}`)
  const depends = run('dpkg-deb', '--field', deb('quicksand'), 'Depends')
  assert.match(depends, /libsqlite3-0.*btrfs-progs/)
  for (const late of ['libcurl4', 'libarchive13']) assert.ok(depends.includes(late), `the program loads ${late} itself: ${depends}`)
})

test('every setting is in the configuration, commented, and is read', () => {
  const text = run(binary, 'serve', '--print-config')
  assert.deepEqual(text.split('\n').filter((line) => line && !line.startsWith('#')), [])
  const help = run(binary, 'serve', '--help')
  const names = [...help.matchAll(/^ {6}--([a-z-]+) VALUE/gm)].map((match) => match[1])
  assert.ok(names.length > 50, help)
  for (const name of names) assert.match(text, new RegExp(`^#${name} =`, 'm'))
  // With all of them in force it is as without.
  const file = path.join(scratch, 'all.conf')
  fs.writeFileSync(file, text.replace(/^#([a-z-]+ =)/gm, '$1'))
  assert.match(run(binary, 'upgrade', '--check', '--config', file, '--data', scratch), /no data yet/)
})

test('install, upgrade, remove and purge in a bare Debian 12', { timeout: 900_000 * patience }, () => {
  run('cp', '-a', '--reflink=auto', process.env.QUICKSAND_BASE_LAYER ?? path.join(repository, 'build/base/rootfs'), root)
  const before = run('find', root, '-xdev', '-not', '-path', '*/var/lib/dpkg/*', '-not', '-path', '*/var/log/*')
  dpkg('--install', deb('quicksand'), deb('libquicksand0'), deb('libquicksand-dev'))
  assert.match(fs.readFileSync(inRoot('etc/quicksand/quicksand.conf'), 'utf8'), /^#listen = 127.0.0.1:3000$/m)
  assert.ok(fs.statSync(inRoot('usr/bin/quicksand')).mode & 0o111)
  assert.match(fs.readFileSync(inRoot('usr/include/quicksand.h'), 'utf8'), /qs_/)
  // An upgrade keeps what the operator wrote.
  fs.writeFileSync(inRoot('etc/quicksand/quicksand.conf'), 'listen = 127.0.0.1:4000\n')
  dpkg('--install', deb('quicksand'))
  assert.equal(fs.readFileSync(inRoot('etc/quicksand/quicksand.conf'), 'utf8'), 'listen = 127.0.0.1:4000\n')
  // Removed: the programs are gone, settings and data stay.
  fs.mkdirSync(inRoot('var/lib/quicksand'), { recursive: true })
  fs.writeFileSync(inRoot('var/lib/quicksand/kept'), 'x')
  dpkg('--remove', 'quicksand')
  assert.ok(!fs.existsSync(inRoot('usr/bin/quicksand')))
  assert.ok(fs.existsSync(inRoot('etc/quicksand/quicksand.conf')))
  assert.ok(fs.existsSync(inRoot('var/lib/quicksand/kept')))
  dpkg('--purge', 'quicksand', 'libquicksand-dev', 'libquicksand0')
  const left = run('find', root, '-xdev', '-not', '-path', '*/var/lib/dpkg/*', '-not', '-path', '*/var/log/*').split('\n')
  const had = new Set(before.split('\n'))
  assert.deepEqual(left.filter((file) => !had.has(file) && !/ld\.so\.cache|aux-cache|dev\/null$/.test(file)), [], 'nothing stays')
})

test('make tarball: what it needs, by the names of several distributions', { timeout: 900_000 * patience }, () => {
  const file = path.join(scratch, 'quicksand.tar.xz')
  run('tools/package.sh', 'tarball', file)
  run('tar', '-C', scratch, '-xf', file)
  const folder = path.join(scratch, fs.readdirSync(scratch).find((name) => name.startsWith('quicksand-')))
  assert.match(fs.readFileSync(path.join(folder, 'NEEDED'), 'utf8'), /btrfs-progs[\s\S]*Fedora[\s\S]*Arch[\s\S]*Alpine|Fedora/)
  assert.match(run(path.join(folder, 'usr/bin/quicksand'), 'version'), /^quicksand \d/)
})
