// Sandboxes that want too much: they are held to their size, and neither server nor neighbours notice.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { cgroups } from '../harness/leftovers.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, python, shell, stayInKernel } from '../harness/sdk.mjs'

let server, sdk, neighbour
before(async () => {
  server = await startServer({ args: ['--disk', '600', '--memory', '384'] })
  sdk = await loadSdk(server)
  neighbour = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
})
after(() => server.destroy())

// As the host counts them; a cgroup may go while it is looked at.
function processesOf(sandbox) {
  const pids = new Set()
  for (const group of cgroups(sandbox.sandboxId)) {
    try {
      for (const pid of fs.readFileSync(`${group}/cgroup.procs`, 'utf8').split('\n')) if (pid) pids.add(pid)
    } catch {}
  }
  return pids.size
}

async function assertNeighbourWell() {
  const began = Date.now()
  assert.equal((await neighbour.commands.run('echo fine')).stdout, 'fine\n')
  assert.ok(Date.now() - began < 5000 * patience, `the neighbour took ${Date.now() - began} ms`)
  assert.ok(server.alive(), server.tail())
  assert.ok((await server.api('GET', '/health')).status < 300)
}

// The sandbox itself works again, or it is gone as a whole; half dead it must not be.
async function assertUsable(sandbox) {
  await eventually('the sandbox works again', async () => (await shell(sandbox, 'echo back', { timeoutMs: 5000 }).catch(() => ({}))).stdout === 'back\n', 20_000, 300)
}

// Why it ended is told, also afterwards.
async function assertEnded(sandbox, reason) {
  const events = (await server.api('GET', `/events/sandboxes/${sandbox.sandboxId}`)).body
  assert.equal(events.find((event) => event.type.endsWith('killed'))?.event_data.detail, reason)
}

test('nproc and free show the sandbox’s size', async () => {
  const info = (await server.api('GET', `/sandboxes/${neighbour.sandboxId}`)).body
  const cores = Number((await shell(neighbour, 'nproc')).stdout)
  assert.equal(cores, info.cpuCount)
  const total = Number((await shell(neighbour, "free -m | awk '/^Mem:/{print $2}'")).stdout)
  assert.ok(Math.abs(total - info.memoryMB) < info.memoryMB * 0.02 + 1, `${total} MB, asked for ${info.memoryMB}`)
  const python3 = await python(neighbour, 'result = os.cpu_count()')
  assert.equal(python3, info.cpuCount)
  const disk = Number((await shell(neighbour, "df -m / | awk 'NR==2{print $2}'")).stdout)
  assert.ok(disk > 0)
})

test('fork bomb', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience })
  const bomb = await sandbox.commands.run('bomb() { bomb | bomb & }; bomb; sleep 300', { background: true, timeoutMs: 0 })
  await eventually('hundreds of processes', () => processesOf(sandbox) > 300, 30_000)
  await sleep(3000) // of that
  await assertNeighbourWell()
  await bomb.kill().catch(() => {})
  const began = Date.now()
  await sandbox.kill()
  assert.ok(Date.now() - began < 10_000 * patience, `kill took ${Date.now() - began} ms`)
  await assertEnded(sandbox, 'killed')
  await assertNeighbourWell()
})

for (const [name, bomb] of [
  ['that waits', 'bomb() { bomb | bomb & }; bomb; sleep 300'],
  ['that never waits', 'exec python3 -c "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"'],
]) {
  test(`beside a fork bomb ${name} commands and snapshots work, and a pause keeps its processes`, { timeout: 300_000 * patience }, async () => {
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
    const id = sandbox.sandboxId
    const handle = await sandbox.commands.run(bomb, { background: true, timeoutMs: 0 })
    const ended = handle.wait().catch(() => {})
    await eventually('the bomb has all it can get', () => processesOf(sandbox) > 500, 60_000)
    const beside = await shell(sandbox, 'for i in 1 2 3; do echo $(echo hi); done')
    assert.equal(beside.stdout, 'hi\nhi\nhi\n', JSON.stringify(beside))
    const snapshot = await server.api('POST', `/sandboxes/${id}/snapshots`, {})
    assert.equal(snapshot.status, 201, snapshot.text)
    assert.equal((await server.api('POST', `/sandboxes/${id}/pause`, {})).status, 204)
    const answer = await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 600 * patience })
    assert.equal(answer.status, 201, answer.text)
    assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.resumedFrom, 'memory')
    assert.ok(processesOf(sandbox) > 500, 'they are not lost')
    assert.equal(await handle.kill(), true)
    await ended
    await eventually('nothing is left of it', () => processesOf(sandbox) < 50, 60_000)
    await assertUsable(sandbox)
    await sandbox.kill()
  })
}

test('what cannot be made to stand still at the end of its time is stopped, and its files are kept', { timeout: 300_000 * patience }, async () => {
  const box = await server.create({ timeout: 600 * patience, autoPause: true })
  const id = box.sandboxID
  const sandbox = await sdk.Sandbox.connect(id, { timeoutMs: 600_000 * patience })
  await sandbox.files.write('/home/user/kept', 'file')
  const handle = await stayInKernel(sandbox, { threads: 300 })
  assert.equal((await server.api('POST', `/sandboxes/${id}/timeout`, { timeout: 1 })).status, 204)
  const told = await eventually('it is paused', async () => (await server.api('GET', `/events/sandboxes/${id}`)).body.find((one) => one.type.endsWith('paused')), 60_000)
  assert.equal(told.event_data.detail, 'disk')
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.pausedTo, 'disk')
  // Where its reads take longer than the server waits for them, it says so, and that one may try again.
  await eventually('it is resumed', async () => {
    const resumed = await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 600 * patience })
    if (resumed.status === 503) assert.match(resumed.text, /try again/)
    else assert.equal(resumed.status, 201, resumed.text)
    return resumed.status === 201
  }, 30_000, 1000)
  assert.equal(await sandbox.files.read('/home/user/kept'), 'file')
  await handle.disconnect()
  await sandbox.kill()
})

test('processes are limited, and the limit is given back', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience })
  const made = await python(sandbox, `
import threading
threading.stack_size(65536)
stop = threading.Event()
count, error = 0, ""
try:
    for _ in range(50000):
        threading.Thread(target=stop.wait, daemon=True).start()
        count += 1
except RuntimeError as e:
    error = str(e)
stop.set()
result = [count, error]
`, { timeoutMs: 60_000 })
  const most = (384 << 20) / (512 << 10) // by the sandbox's memory
  assert.ok(made[0] > most * 0.9 && made[0] <= most && made[1] !== '', String(made))
  await assertUsable(sandbox)
  await sandbox.kill()
})

test('memory bomb: the greedy process dies, the sandbox lives', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience })
  const result = await shell(sandbox, 'python3 -c "\nx = []\nwhile True: x.append(bytearray(16 << 20))"', { timeoutMs: 60_000 })
  assert.notEqual(result.exitCode, 0)
  await assertNeighbourWell()
  await assertUsable(sandbox)
  // What it was is told: to the client, also for what a shell ran, and in the log.
  assert.equal(result.error, 'signal: killed: out of memory')
  const inner = await shell(sandbox, 'python3 -c "\nx = []\nwhile True: x.append(bytearray(16 << 20))"; exit $?', { timeoutMs: 60_000 })
  assert.equal(inner.error, 'exit status 137: out of memory')
  assert.equal((await shell(sandbox, 'kill -9 $$')).error, 'signal: killed', 'not when it was something else')
  const logs = (await server.api('GET', `/sandboxes/${sandbox.sandboxId}/logs`)).body.logs.map((one) => one.line).join('\n')
  assert.match(logs, /Command ended by signal 9 \(out of memory\)/)
  assert.match(logs, /x = \[\]/)
  await sandbox.kill()
  await assertEnded(sandbox, 'killed')
})

test('memory bomb by files in /dev/shm and /run: each takes half of the memory and no more', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience })
  const half = ((await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body.memoryMB << 20) / 2
  for (const folder of ['/dev/shm', '/run']) {
    const filled = await shell(sandbox, `dd if=/dev/zero of=${folder}/fill bs=1M count=6000 2>&1; stat -c 'size %s' ${folder}/fill`, { user: 'root' })
    assert.match(filled.stdout, /No space left on device/, filled.stdout)
    const size = Number(/^size (\d+)$/m.exec(filled.stdout)[1])
    assert.ok(size > half * 0.9 && size <= half, `${size} bytes in ${folder}, ${half} allowed`)
    await assertNeighbourWell()
    await shell(sandbox, `rm ${folder}/fill`, { user: 'root' })
  }
  // Both at once are more than there is: somebody inside dies, or is told; the sandbox goes on.
  await shell(sandbox, 'for f in /dev/shm /run; do dd if=/dev/zero of=$f/fill bs=1M count=6000; done; rm -f /dev/shm/fill /run/fill', { user: 'root' }).catch(() => {})
  await assertNeighbourWell()
  await shell(sandbox, 'rm -f /dev/shm/fill /run/fill', { user: 'root' })
  await assertUsable(sandbox)
  await sandbox.kill()
})

// What nobody reads lies in buffers of the kernel. On cgroup v1 they have a limit of their own, a quarter of the memory;
// the kernel lets each connection have one segment beyond it.
test('memory bomb by buffers of sockets', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  const held = await python(
    sandbox,
    `import socket
listener = socket.create_server(('127.0.0.1', 0), backlog=4096)
pairs, block, result = [], b'x' * 65536, 0
for n in range(1500):
    one = socket.create_connection(listener.getsockname())
    pairs.append((one, listener.accept()[0]))
    one.setblocking(False)
    try:
        while True:
            result += one.send(block)
    except BlockingIOError:
        pass`,
    { timeoutMs: 120_000 },
  ).catch((error) => (/exit (137|undefined)|signal|killed/.test(error.message) ? 0 : Promise.reject(error)))
  const allowed = (384 << 20) / 4 + 1500 * 65536
  assert.ok(held < allowed * 1.1, `${held} bytes in buffers of a sandbox of 384 MB`)
  await assertNeighbourWell()
  await sandbox.kill()
})

test('disk filling ends with an error, and what was written can be removed again', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  const info = (await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body
  const result = await shell(sandbox, `dd if=/dev/zero of=/home/user/fill bs=1M count=${info.diskSizeMB + 512} 2>&1; ls -l /home/user/fill | awk '{print $5}'`, { timeoutMs: 240_000 })
  assert.match(result.stdout, /No space left|quota exceeded/i, result.stdout)
  await assertNeighbourWell()
  const small = await shell(sandbox, 'head -c 50000000 /dev/zero > /home/user/more && sync -f /home/user/more')
  assert.notEqual(small.exitCode, 0)
  const upload = await sandbox.files.write('/home/user/upload', 'x'.repeat(5_000_000)).then(() => 'stored', (error) => error.constructor.name)
  assert.notEqual(upload, 'stored')
  await shell(sandbox, 'rm -f /home/user/fill /home/user/more; sync', { user: 'root' })
  await eventually('room again', async () => (await shell(sandbox, 'echo x > /home/user/again && sync -f /home/user/again')).exitCode === 0, 20_000, 500)
  await sandbox.kill()
  await assertNeighbourWell()
})

test('volumes share no blocks: what is in one is charged to it', async () => {
  const volumes = await Promise.all(['first', 'second'].map((name) => sdk.Volume.create(name)))
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience, volumeMounts: { '/one': volumes[0], '/two': volumes[1] } })
  const answers = await python(
    sandbox,
    `import errno, fcntl, struct
with open('/one/file', 'wb') as file: file.write(b'x' * 65536)
def attempt(fn):
    source, target = os.open('/one/file', os.O_RDWR), os.open('/two/file', os.O_RDWR | os.O_CREAT)
    os.ftruncate(target, 65536)
    try: return fn(source, target) and 'done'
    except OSError as error: return errno.errorcode[error.errno]
    finally: os.close(source); os.close(target)
result = [
    attempt(lambda source, target: fcntl.ioctl(target, 0x40049409, source) or 1),
    attempt(lambda source, target: fcntl.ioctl(target, 0x4020940d, struct.pack('qQQQ', source, 0, 65536, 0)) or 1),
    attempt(lambda source, target: fcntl.ioctl(source, 0xc0189436, struct.pack('QQHHIqQQiI', 0, 65536, 1, 0, 0, target, 0, 0, 0, 0)) or 1),
    attempt(lambda source, target: os.copy_file_range(source, target, 65536)),
]`,
  )
  assert.deepEqual(answers, ['ENOTSUP', 'ENOTSUP', 'ENOTSUP', 'EXDEV'])
  // Programs copy the bytes instead.
  assert.equal((await shell(sandbox, 'rm -f /two/file; cp /one/file /two/file && cmp /one/file /two/file && node -e "fs.copyFileSync(\'/one/file\', \'/two/again\')" && cmp /one/file /two/again && echo same')).stdout, 'same\n')
  await sandbox.kill()
  for (const volume of volumes) await sdk.Volume.destroy(volume.volumeId)
})

test('many small files and deep directories', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  const made = await shell(sandbox, 'mkdir many && cd many && for i in $(seq 1 200); do mkdir -p d$i && (cd d$i && seq 1 100 | xargs touch); done; p=.; for i in $(seq 1 200); do p=$p/x; done; mkdir -p $p; find . -type f | wc -l; find . -type d | wc -l', { timeoutMs: 100_000 })
  assert.equal(made.stdout, `${200 * 100}\n${1 + 200 + 200}\n`, made.stderr)
  const folder = `${server.data}/pool/boxes/${sandbox.sandboxId}`
  assert.ok(fs.existsSync(folder), folder)
  const began = Date.now()
  await sandbox.kill()
  assert.ok(Date.now() - began < 5000 * patience, `kill took ${Date.now() - began} ms`)
  assert.equal(fs.existsSync(folder), false, 'its files')
})

test('CPU: a busy sandbox does not take more than its share from the server', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
  await sandbox.commands.run('for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait', { background: true, timeoutMs: 0 })
  await eventually('all eight', () => processesOf(sandbox) >= 9)
  const began = Date.now()
  await assertNeighbourWell()
  assert.ok(Date.now() - began < 3000 * patience)
  await sandbox.kill()
})

test('a process that ignores every signal is ended with its sandbox', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
  await sandbox.commands.run(`python3 -c "
import signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
open('/tmp/deaf', 'w')
time.sleep(1000)"`, { background: true, timeoutMs: 0 })
  await eventually('it listens to none', () => sandbox.files.exists('/tmp/deaf'))
  const began = Date.now()
  await sandbox.kill()
  assert.ok(Date.now() - began < 3000 * patience)
  assert.equal((await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).status, 404)
})

describe('output', () => {
  test('a command that prints without end and nobody reads costs nothing', async () => {
    const handle = await neighbour.commands.run('yes', { background: true, timeoutMs: 0 })
    await handle.disconnect?.()
    await sleep(1500) // of printing
    await assertNeighbourWell()
    await neighbour.commands.kill(handle.pid)
  })
})
