// What a program sees of the machine is its sandbox's.
import assert from 'node:assert/strict'
import os from 'node:os'
import { after, before, test } from 'node:test'
import { startServer } from '../harness/server.mjs'
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
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 })
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
