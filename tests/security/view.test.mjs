// What a program sees of the machine is its sandbox's.
import assert from 'node:assert/strict'
import os from 'node:os'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk
before(async () => {
  server = await startServer({ args: ['--cpu', '1', '--warm', '0'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

test('programs count the processors of their sandbox, not the host’s', { skip: os.cpus().length < 2 && 'one processor' }, async () => {
  // Two in a row are on different ones.
  for (let i = 0; i < 2; i++) {
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
    const run = async (command) => (await sandbox.commands.run(command)).stdout.trim()
    assert.equal(await run('nproc'), '1')
    assert.equal(await run('getconf _NPROCESSORS_ONLN'), '1')
    assert.equal(await run('python3 -c "import os; print(os.cpu_count())"'), '1')
    // It is the one that it runs on, with all that is told of it.
    const mine = (await run('taskset -pc $$')).split(' ').pop()
    assert.equal(await run("awk '/^processor/{print $3}' /proc/cpuinfo"), mine)
    assert.equal(await run('cat /sys/devices/system/cpu/online'), mine)
    assert.match(await run('cat /proc/cpuinfo'), /(model name|BogoMIPS|Features|flags)/)
    // They are the sandbox's own and cannot be written.
    assert.equal(await run('sudo sh -c "echo 0-9 > /sys/devices/system/cpu/online" 2>/dev/null; cat /sys/devices/system/cpu/online'), mine)
    assert.equal(await run('ls -A /run | grep -c own || true'), '0')
  }
})

const cpuLines = (text) => text.split('\n').filter((line) => /^cpu\d+ /.test(line))
// Ticks in use, of all processors together.
const busy = (text) => text.split('\n')[0].trim().split(/ +/).slice(1, 4).reduce((sum, one) => sum + Number(one), 0)

test('/proc/stat, the load average and the uptime are the sandbox’s', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  const run = async (command) => (await sandbox.commands.run(command)).stdout.trim()
  const stat = await run('cat /proc/stat')
  const mine = (await run('taskset -pc $$')).split(' ').pop()
  assert.deepEqual(cpuLines(stat).map((line) => line.split(' ')[0]), [`cpu${mine}`])
  for (const name of ['intr', 'ctxt', 'btime', 'processes', 'procs_running', 'procs_blocked', 'softirq']) {
    assert.match(stat, new RegExp(`^${name} \\d+`, 'm'))
  }
  // It began a moment ago, not with the host.
  const began = Number(/^btime (\d+)$/m.exec(stat)[1])
  assert.ok(Math.abs(Date.now() / 1000 - began - Number((await run('cat /proc/uptime')).split(' ')[0])) < 60, `btime ${began}`)
  const ticks = cpuLines(stat)[0].split(' ').slice(1).map(Number)
  assert.equal(ticks.length, 10)
  assert.ok(ticks.reduce((sum, one) => sum + one, 0) <= 100 * (Date.now() / 1000 - began + 2), `${ticks} ticks`)
  assert.equal(await run('node -p "os.cpus().length"'), '1')
  const load = JSON.parse(await run('python3 -c "import json, os; print(json.dumps(os.getloadavg()))"'))
  assert.equal(load.length, 3)
  assert.match(await run('cat /proc/loadavg'), /^\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+\/\d+ \d+$/)
  assert.match(await run('uptime'), /load average: \d/)
  assert.match(await run('free -b'), /^Mem:/m)
  // Read in small pieces it is the same file.
  assert.match(await run('dd if=/proc/stat bs=7 2>/dev/null'), /^cpu  \d[^]*\nsoftirq [ \d]+$/)
  // Through the API as well; and nobody inside writes them.
  assert.match(await sandbox.files.read('/proc/loadavg'), /^\d+\.\d\d /)
  assert.deepEqual(cpuLines(await sandbox.files.read('/proc/stat')).length, 1)
  for (const name of ['stat', 'loadavg', 'meminfo']) {
    assert.notEqual(await run(`sudo sh -c "echo 1 > /proc/${name}" 2>/dev/null; echo $?`), '0', name)
  }
  await sandbox.kill()
})

test('a neighbour’s work shows in nobody else’s /proc/stat and load', async () => {
  const [one, other] = await Promise.all([1, 2].map(() => sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })))
  const burning = await one.commands.run('while :; do :; done', { background: true, timeoutMs: 0 })
  const look = async (sandbox) => {
    const [load, ...stat] = (await sandbox.commands.run('cat /proc/loadavg /proc/stat')).stdout.split('\n')
    return { load: Number(load.split(' ')[0]), busy: busy(stat.join('\n')) }
  }
  const before = await look(other)
  const burnt = await eventually('the load of who works', async () => {
    const now = await look(one)
    return now.load >= 0.1 && now.busy >= 300 * patience && now
  }, 120_000, 500)
  const after = await look(other)
  assert.ok(after.load < 0.05, `a load of ${after.load} beside one of ${burnt.load}`)
  assert.ok(after.busy - before.busy < 100 * patience, `${after.busy - before.busy} ticks beside ${burnt.busy}`)
  await burning.kill()
  await Promise.all([one, other].map((sandbox) => sandbox.kill()))
})
