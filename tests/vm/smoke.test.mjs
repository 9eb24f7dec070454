// The shortest way through everything that depends on the host's kernel, by the published SDK: what a new host
// must pass before anything else is tried on it.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, python, shell } from '../harness/sdk.mjs'

let server, sdk, sandbox
before(async () => {
  server = await startServer({ args: ['--disk', '300', '--memory', '256', '--cpu', '1', '--warm', '2'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const make = (options = {}) => sdk.Sandbox.create('base', { timeoutMs: 3_600_000, requestTimeoutMs: 300_000, ...options })
const instance = () => fs.readFileSync(`${server.data}/instance`, 'utf8').trim()
const folder = (id) => `/sys/fs/cgroup/quicksand-${instance()}/${id}`
const knob = (id, name) => fs.readFileSync(`${folder(id)}/${name}`, 'utf8').trim()

test('the server may have as many files open as the host allows', () => {
  for (const pid of [server.child.pid, server.servingPid]) {
    const [, soft, hard] = /^Max open files +(\d+) +(\d+)/m.exec(fs.readFileSync(`/proc/${pid}/limits`, 'utf8'))
    assert.equal(soft, String(Math.min(Number(hard), 1 << 20)))
  }
})

describe('life', () => {
  test('create and a command', async () => {
    sandbox = await make({ envs: { GIVEN: 'yes' } })
    const { stdout } = await sandbox.commands.run('id -un; echo $GIVEN; cat /sys/fs/cgroup/cgroup.controllers | wc -l')
    assert.equal(stdout, 'user\nyes\n1\n')
  })

  test('its limits are those of its cgroup', () => {
    assert.equal(knob(sandbox.sandboxId, 'memory.max'), String(256 << 20))
    assert.equal(knob(sandbox.sandboxId, 'cpu.max'), '100000 100000')
    assert.ok(Number(knob(sandbox.sandboxId, 'pids.max')) > 0)
  })

  test('files: written, changed, renamed, removed; also those of the template', async () => {
    await sandbox.files.write('/home/user/one', 'first')
    assert.equal(await sandbox.files.read('/home/user/one'), 'first')
    const { stdout } = await shell(
      sandbox,
      'set -e; echo x >> /etc/hosts; tail -n1 /etc/hosts; mv /usr/share/perl5 /usr/share/perl6; ls -d /usr/share/perl*; rm -r /usr/share/perl6; stat -c %u:%g /etc/passwd /home/user; sudo chown 7:8 /home/user/one; stat -c %u:%g /home/user/one; rm -rf /var/lib/dpkg/info; mkdir /var/lib/dpkg/info; ls -A /var/lib/dpkg/info | wc -l',
      { user: 'root' },
    )
    const lines = stdout.trim().split('\n')
    assert.equal(lines[0], 'x')
    assert.ok(lines.includes('/usr/share/perl6') && !lines.includes('/usr/share/perl5'), stdout)
    assert.deepEqual(lines.slice(-4), ['0:0', '1000:1000', '7:8', '0'])
  })

  test('setuid programs: sudo', async () => {
    assert.equal((await sandbox.commands.run('sudo id -u')).stdout, '0\n')
  })

  test('a terminal', async () => {
    let text = ''
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData: (bytes) => (text += Buffer.from(bytes)) })
    await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('tty; echo sum $((40 + 2))\n'))
    await eventually('its answer', () => /\/dev\/pts\/\d+/.test(text) && text.includes('sum 42'), 20_000)
    await pty.kill()
  })

  test('pause and resume: processes go on where they were', async () => {
    const handle = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n > /tmp/n; sleep 0.05; done', { background: true, timeoutMs: 0 })
    await sandbox.pause()
    assert.equal(knob(sandbox.sandboxId, 'cgroup.freeze'), '1')
    await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 3_600_000 })
    const first = Number((await sandbox.commands.run('cat /tmp/n')).stdout)
    await eventually('it counts on', async () => Number((await sandbox.commands.run('cat /tmp/n')).stdout) > first, 20_000, 200)
    await sandbox.commands.kill(handle.pid)
  })

  test('pause without memory: files stay', async () => {
    assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })).status, 204)
    assert.ok(!fs.existsSync(folder(sandbox.sandboxId)))
    assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/resume`, { timeout: 3600 })).status, 201)
    assert.equal(await sandbox.files.read('/home/user/one', { user: 'root' }), 'first')
  })

  test('snapshot: a sandbox made from it has the files, and its own room', async () => {
    const before = await sandbox.createSnapshot()
    await shell(sandbox, 'echo later > /home/user/later')
    const child = await make().then((one) => one.kill()).then(() => sdk.Sandbox.create(before.snapshotId, { timeoutMs: 3_600_000 }))
    assert.equal(await child.files.read('/home/user/one', { user: 'root' }), 'first')
    assert.equal(await child.files.exists('/home/user/later'), false)
    assert.equal((await shell(child, 'head -c 200000000 /dev/zero > /home/user/half && sync -f /home/user/half')).exitCode, 0)
    assert.notEqual((await shell(child, 'head -c 200000000 /dev/zero > /home/user/more && sync -f /home/user/more')).exitCode, 0)
    await child.kill()
    await sdk.Sandbox.deleteSnapshot(before.snapshotId)
  })

  test('fork: two children with the files, which then go their own ways', async () => {
    const answer = await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 2, timeout: 600 }, { timeoutMs: 60_000 })
    assert.equal(answer.status, 201, answer.text)
    const children = await Promise.all(answer.body.map((one) => sdk.Sandbox.connect(one.sandbox.sandboxID, { timeoutMs: 600_000 })))
    assert.equal(children.length, 2)
    await children[0].files.write('/home/user/mine', 'zero')
    assert.equal(await children[1].files.exists('/home/user/mine'), false)
    assert.equal(await children[1].files.read('/home/user/one', { user: 'root' }), 'first')
    for (const child of children) await child.kill()
  })

  test('a port inside is reached', async () => {
    await sandbox.commands.run('echo page > /tmp/index.html; cd /tmp; python3 -m http.server 8000', { background: true, timeoutMs: 0 })
    const page = await eventually('the page', async () => {
      const answer = await server.sandbox(sandbox.sandboxId, 8000, '/index.html').catch(() => ({}))
      return answer.status === 200 && answer.text
    }, 20_000, 200)
    assert.equal(page, 'page\n')
  })

  test('the internet is reached, private networks are not', async () => {
    const { stdout } = await shell(sandbox, 'curl -sm 60 -o /dev/null -w "%{http_code} " http://203.0.113.1/; curl -sm 60 -o /dev/null -w "%{http_code}" http://10.9.9.9/')
    assert.equal(stdout, '200 000')
  })

  test('a server killed with -9 finds its sandboxes again', async () => {
    await server.kill9()
    await server.start()
    assert.equal(await sandbox.files.read('/home/user/one', { user: 'root' }), 'first')
  })

  test('kill: nothing of it is left', async () => {
    const group = folder(sandbox.sandboxId)
    assert.ok(fs.existsSync(group))
    await sandbox.kill()
    assert.ok(!fs.existsSync(group))
    assert.ok(!fs.existsSync(`${server.data}/pool/boxes/${sandbox.sandboxId}`))
  })
})

describe('limits', () => {
  before(async () => {
    sandbox = await make()
  })
  after(() => sandbox.kill())

  test('memory: the greedy process dies, the sandbox lives', async () => {
    const greedy = await shell(sandbox, 'python3 -c "x = bytearray(400 << 20)"', { timeoutMs: 0 })
    assert.notEqual(greedy.exitCode, 0)
    assert.match(knob(sandbox.sandboxId, 'memory.events'), /oom_kill [1-9]/)
    assert.equal((await sandbox.commands.run('echo back')).stdout, 'back\n')
  })

  test('memory of files in /dev/shm counts', async () => {
    const { stdout } = await shell(sandbox, 'head -c 400000000 /dev/zero > /dev/shm/fill; stat -c %s /dev/shm/fill; rm /dev/shm/fill', { user: 'root', timeoutMs: 0 })
    assert.ok(Number(stdout) < 256 << 20, stdout)
  })

  test('processes', async () => {
    const most = 100 // as many as there may be would run out of memory first
    fs.writeFileSync(`${folder(sandbox.sandboxId)}/pids.max`, String(most))
    const made = await python(sandbox, `
import subprocess
many = []
try:
    for _ in range(300): many.append(subprocess.Popen(["sleep", "1000"]))
except OSError: pass
for one in many: one.kill()
for one in many: one.wait()
result = len(many)
`, { timeoutMs: 0 })
    assert.ok(made > 50 && made < most, `${made} processes`)
    assert.equal((await sandbox.commands.run('echo back')).stdout, 'back\n')
  })

  test('processor: one of them, however many want', async () => {
    const used = await python(sandbox, `
import subprocess, time, resource
many = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(4)]
begin = time.time(); time.sleep(4); took = time.time() - begin
for one in many: one.kill()
for one in many: one.wait()
use = resource.getrusage(resource.RUSAGE_CHILDREN)
result = (use.ru_utime + use.ru_stime) / took
`, { timeoutMs: 0 })
    assert.ok(used < 1.3, `${used} processors`)
  })

  test('disk', async () => {
    assert.notEqual((await shell(sandbox, 'head -c 400000000 /dev/zero > /home/user/fill && sync -f /home/user/fill', { timeoutMs: 0 })).exitCode, 0)
    await shell(sandbox, 'rm /home/user/fill; sync -f /home/user', { timeoutMs: 0 })
    await eventually('room again', async () => (await shell(sandbox, 'head -c 100000000 /dev/zero > /home/user/again && sync -f /home/user/again')).exitCode === 0, 20_000, 500)
  })

  test('what is used is told', async () => {
    const told = async () => (await sandbox.getMetrics()).at(-1)
    await eventually('metrics of what was just written', async () => (await told())?.diskUsed > 90_000_000, 30_000, 500)
    const metrics = await told()
    assert.equal(metrics.cpuCount, 1)
    assert.ok(metrics.memTotal === 256 << 20 && metrics.memUsed > 0, JSON.stringify(metrics))
  })
})
