// The Debian package on a host with systemd: installed, upgraded while a sandbox is at work, removed and purged, each by
// dpkg alone. What the base template is made of comes from a disk, as there is no network here.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience, repository } from '../harness/server.mjs'
import { cgroups, links, loopDevices, mounts } from '../harness/leftovers.mjs'

const data = '/var/lib/quicksand'
const dropIn = '/run/systemd/system/quicksand.service.d'
const packages = path.join(repository, 'build/packages-deb')
let scratch, deb, sandbox, sleeper, instance

const attempt = (...command) => spawnSync(command[0], command.slice(1), { encoding: 'utf8', timeout: 120_000 * patience, maxBuffer: 1 << 26 })
function run(...command) {
  const result = attempt(...command)
  assert.equal(result.status, 0, `${command.join(' ')}: ${result.stderr}${result.stdout}${result.error ?? ''}`)
  return result.stdout.trim()
}
const installed = () => run('dpkg-query', '--show', '--showformat=${Version}', 'quicksand')
const property = (name) => run('systemctl', 'show', '--value', '--property', name, 'quicksand')
const inSandbox = (line) => run('quicksand', 'exec', '--no-stdin', '--user', 'root', sandbox, '--', 'sh', '-c', line)
const startOf = (pid) => inSandbox(`cut -d' ' -f1,22 /proc/${pid}/stat`)

async function serving() {
  try {
    await eventually('the server', () => fetch('http://127.0.0.1:3000/health').then(({ ok }) => ok, () => false), 60_000, 500)
  } catch (error) {
    throw new Error(`${error.message}\n${attempt('journalctl', '-n', '60', '-u', 'quicksand').stdout}`)
  }
}

before(() => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'package-test-'))
  deb = path.join(packages, fs.readdirSync(packages).find((name) => name.startsWith('quicksand_')))
  fs.mkdirSync(dropIn, { recursive: true })
  fs.writeFileSync(path.join(dropIn, 'base.conf'), `[Service]\nEnvironment=QUICKSAND_BASE_LAYER=${process.env.QUICKSAND_BASE_LAYER}\n`)
})
after(() => {
  fs.rmSync(dropIn, { recursive: true, force: true })
  fs.rmSync(scratch, { recursive: true, force: true })
})

test('installed: systemd runs it, and root’s command line reaches it', async () => {
  run('dpkg', '--install', deb)
  assert.equal(run('systemctl', 'is-enabled', 'quicksand'), 'enabled')
  await serving()
  sandbox = run('quicksand', 'create', '--timeout', '6h')
  // Nobody waits for it: it lives as long as the sandbox does.
  sleeper = inSandbox('setsid sleep 100000 >/dev/null 2>&1 & echo $!')
  assert.match(startOf(sleeper), /^\d+ \d+$/)
})

test('systemd’s figure of its exposure is the documented one', () => {
  const [, figure] = /Overall exposure level for quicksand\.service: ([\d.]+)/.exec(run('systemd-analyze', '--no-pager', 'security', 'quicksand'))
  console.log(`systemd-analyze security quicksand: ${figure}`)
  assert.ok(fs.readFileSync(path.join(repository, 'docs/install.md'), 'utf8').includes(`security quicksand\` says ${figure} `), `docs/install.md does not say ${figure}`)
})

test('upgraded with a sandbox at work: a new server, the same processes', async () => {
  const tree = path.join(scratch, 'tree')
  const newer = path.join(scratch, 'newer.deb')
  const old = { version: installed(), pid: property('MainPID'), sleeper: startOf(sleeper), boot: inSandbox('cut -d" " -f22 /proc/1/stat') }
  run('dpkg-deb', '--raw-extract', deb, tree)
  run('sed', '-i', 's/^Version: .*/&+1/', path.join(tree, 'DEBIAN/control'))
  run('dpkg-deb', '--root-owner-group', '-Znone', '--build', tree, newer)
  run('dpkg', '--install', newer)
  assert.equal(installed(), `${old.version}+1`)
  await serving()
  const pid = property('MainPID')
  assert.notEqual(pid, old.pid)
  assert.equal(fs.statSync(`/proc/${pid}/exe`).ino, fs.statSync('/usr/bin/quicksand').ino, 'the new program serves')
  assert.deepEqual({ sleeper: startOf(sleeper), boot: inSandbox('cut -d" " -f22 /proc/1/stat') }, { sleeper: old.sleeper, boot: old.boot })
})

test('removed: what runs has ended, settings and data stay', () => {
  instance = fs.readFileSync(`${data}/instance`, 'utf8').trim()
  assert.notDeepEqual(cgroups(instance), [])
  run('dpkg', '--remove', 'quicksand')
  assert.notEqual(attempt('systemctl', 'is-active', '--quiet', 'quicksand').status, 0)
  assert.deepEqual([...mounts().filter((one) => one.startsWith(data)), ...cgroups(instance), ...loopDevices(data), ...links().filter((one) => one.includes(instance))], [])
  assert.ok(!fs.existsSync('/usr/bin/quicksand'))
  assert.ok(fs.existsSync('/etc/quicksand/quicksand.conf') && fs.existsSync(`${data}/instance`))
})

test('purged: nothing of it is left', () => {
  run('dpkg', '--purge', 'quicksand')
  for (const file of [data, '/etc/quicksand', '/usr/lib/quicksand', '/usr/lib/systemd/system/quicksand.service', '/etc/systemd/system/multi-user.target.wants/quicksand.service'])
    assert.ok(!fs.lstatSync(file, { throwIfNoEntry: false }), file)
  assert.notEqual(attempt('dpkg-query', '--status', 'quicksand').status, 0)
  assert.equal(property('LoadState'), 'not-found')
  assert.doesNotMatch(fs.readFileSync('/etc/passwd', 'utf8'), /quicksand/)
})
