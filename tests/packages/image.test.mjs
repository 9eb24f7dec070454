// The container image, as podman runs it: started, a sandbox made and used, stopped, started again with what was paused, and
// nothing is left on the host. And the package in that bare Debian 12: upgraded while a sandbox runs, removed, purged.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { ociRuntime } from '../harness/engines.mjs'
import { eventually, patience, repository } from '../harness/server.mjs'

const archive = fs.readdirSync(path.join(repository, 'build')).find((name) => /^quicksand-.*-image\.tar$/.test(name))
const groups = () => spawnSync('find', ['/sys/fs/cgroup', '-maxdepth', '3', '-type', 'd', '(', '-name', 'libpod*', '-o', '-name', 'quicksand-*', ')'], { encoding: 'utf8' }).stdout.split('\n').filter(Boolean)
const base = process.env.QUICKSAND_BASE_LAYER ?? path.join(repository, 'build/base/rootfs')
let home, podman, groupsBefore, image

function run(...args) {
  const done = spawnSync('podman', [...podman, ...args], { encoding: 'utf8', timeout: 120_000 * patience })
  return { ...done, all: `${args.join(' ')}: ${done.status} ${done.stdout}${done.stderr}` }
}
function good(...args) {
  const done = run(...args)
  assert.equal(done.status, 0, done.all)
  return done.stdout.trim()
}
const quicksand = (...args) => good('exec', 'quicksand', 'quicksand', ...args)
const logs = () => {
  const done = run('logs', 'quicksand')
  return done.stdout + done.stderr
}
const starts = () => logs().split(/^ready /m).length - 1

before(() => {
  assert.ok(archive, 'make image makes it')
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'image-test-'))
  podman = ['--root', path.join(home, 'root'), '--runroot', path.join(home, 'run'), '--cgroup-manager', 'cgroupfs', '--runtime', ociRuntime(), '--storage-driver', 'overlay', '--events-backend', 'file']
  groupsBefore = new Set(groups())
  image = /Loaded image: (\S+)/.exec(good('load', '--input', path.join(repository, 'build', archive)))[1]
})
after(() => {
  run('rm', '--force', '--time', '20', 'quicksand')
  spawnSync('sh', ['-c', `umount -R '${home}/root/overlay' 2>/dev/null; rm -rf --one-file-system '${home}'`])
  for (const group of groups()) if (!groupsBefore.has(group) && group.endsWith('/libpod_parent')) spawnSync('find', [group, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', '+'])
})

// Limits of open files and processes that any host allows; no network but loopback; a base template that is there already.
const start = (options, ...command) =>
  good('run', '--detach', '--name', 'quicksand', '--privileged', '--ulimit', 'nofile=4096:4096', '--ulimit', 'nproc=4096:4096', '--network', 'none', '--volume', `${fs.realpathSync(base)}:/base:ro`, '--env', 'QUICKSAND_BASE_LAYER=/base', '--env', 'QUICKSAND_WARM=1', ...options, image, ...command)
const serves = (times) => eventually(`start ${times}`, () => starts() === times, 60_000, 200).catch((error) => assert.fail(`${error.message}: ${logs()}`))

test('started, used, stopped and started again', { timeout: 600_000 * patience }, async () => {
  fs.mkdirSync(path.join(home, 'data'))
  start(['--volume', `${path.join(home, 'data')}:/var/lib/quicksand`])
  await serves(1)
  assert.match(logs(), /ready http:\/\/127\.0\.0\.1:3000|ready http:\/\/0\.0\.0\.0:3000/)
  assert.equal(quicksand('run', '--', 'sh', '-c', 'echo $((6 * 7)) $(id -un)'), '42 user')
  const kept = quicksand('create', '-m', 'name=kept', '--timeout', '1h')
  const other = quicksand('create', '--timeout', '1h')
  quicksand('exec', 'kept', 'echo hello > note')
  quicksand('pause', 'kept')
  good('stop', '--time', '60', 'quicksand')
  assert.equal(good('inspect', '--format', '{{.State.ExitCode}}', 'quicksand'), '0', logs())
  const instance = fs.readFileSync(path.join(home, 'data/instance'), 'utf8').trim()
  assert.deepEqual(groups().filter((group) => group.includes(`/quicksand-${instance}`)), [], 'no cgroup is left')
  assert.ok(!spawnSync('losetup', ['--associated', path.join(home, 'data/pool.img')], { encoding: 'utf8' }).stdout.trim(), 'no loop device is left')
  good('start', 'quicksand')
  await serves(2)
  assert.deepEqual(quicksand('ls', '-q').split('\n'), [kept], `the paused one, not ${other}`)
  quicksand('resume', 'kept')
  assert.equal(quicksand('exec', 'kept', '--', 'cat', 'note'), 'hello')
  quicksand('rm', '--all')
  good('stop', '--time', '60', 'quicksand')
  // Another container with the same data has the API key too.
  good('rm', 'quicksand')
  assert.ok(fs.readFileSync(path.join(home, 'data/home/.quicksand/credentials'), 'utf8').includes('e2b_'))
})

test('an upgrade loses no sandbox; removed, what runs ends; purged, nothing is left', { timeout: 600_000 * patience }, async () => {
  // The same package with a higher version.
  const folder = path.join(home, 'deb')
  const made = path.join(repository, 'build/packages-deb', fs.readdirSync(path.join(repository, 'build/packages-deb')).find((name) => name.startsWith('quicksand_')))
  const script = `dpkg-deb --raw-extract '${made}' '${folder}' && sed -i 's/^Version: .*/&+1/' '${folder}/DEBIAN/control' && dpkg-deb -Znone --build '${folder}' '${home}/newer.deb'`
  assert.equal(spawnSync('sh', ['-c', script]).status, 0)
  // What systemd does: the server is started again whenever it ends.
  const forever = 'mkdir -p "$HOME" /sys/fs/cgroup/unified; [ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified; until [ -e /enough ]; do quicksand serve --config /etc/quicksand/quicksand.conf & echo $! > /server; wait $!; done; while sleep 1; do :; done'
  start(['--volume', `${home}/newer.deb:/newer.deb:ro`, '--entrypoint', '/bin/bash'], '-c', forever)
  const inside = (line) => good('exec', 'quicksand', 'sh', '-c', line)
  await serves(1)
  const id = quicksand('create', '--timeout', '1h')
  quicksand('exec', id, '(while :; do date +%s%N > tick; sleep 0.1; done) >/dev/null 2>&1 & echo $! > pid')
  quicksand('create', '-m', 'name=paused')
  quicksand('pause', 'paused')
  inside('echo "max-sandboxes = 77" >> /etc/quicksand/quicksand.conf; dpkg --force-confold --install /newer.deb')
  assert.match(inside('dpkg-query --show quicksand'), /\+1$/)
  inside('kill -TERM "$(cat /server)"') // its restart is the unit's part
  await serves(2)
  const tick = quicksand('exec', id, '--', 'cat', 'tick')
  await eventually('it goes on', () => quicksand('exec', id, '--', 'cat', 'tick') !== tick, 20_000, 200)
  assert.equal(quicksand('exec', id, 'kill -0 $(cat pid) && echo runs'), 'runs')
  assert.equal(quicksand('ls', '-q').split('\n').length, 2)
  assert.match(inside('cat /etc/quicksand/quicksand.conf'), /^max-sandboxes = 77$/m)
  // Removed: what ran has ended, the files of what is paused, and the settings, are there.
  inside('touch /enough; kill -TERM "$(cat /server)"')
  await eventually('stopped', () => run('exec', 'quicksand', 'sh', '-c', 'kill -0 "$(cat /server)"').status !== 0, 30_000, 200)
  const removed = inside('dpkg --remove quicksand 2>&1')
  assert.equal(run('exec', 'quicksand', 'sh', '-c', 'grep -l envd /proc/[0-9]*/comm').stdout, '', `no sandbox is left: ${removed}`)
  inside('test -e /var/lib/quicksand/store/quicksand.db && test -e /etc/quicksand/quicksand.conf && ! test -e /usr/bin/quicksand')
  inside('dpkg --purge quicksand')
  inside('! test -e /etc/quicksand && [ -z "$(ls -A /var/lib/quicksand)" ]') // the directory itself is a volume here
})
