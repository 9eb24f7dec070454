// What the kernel counts for a user or for the whole host: a guest that takes all it can get of it takes it from
// itself. Neighbours and the host have theirs.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import { after, afterEach, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, python } from '../harness/sdk.mjs'

let server, sdk, neighbour, greedy
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  neighbour = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
})
after(() => server.destroy())
afterEach(() => greedy?.kill())

const HELP = String.raw`
import ctypes, errno, json, os, signal, time
libc = ctypes.CDLL(None, use_errno=True)
def until_refused(take, most):
    for count in range(most):
        ctypes.set_errno(0)
        if take(count) < 0: return [count, errno.errorcode.get(ctypes.get_errno(), "?")]
    return [most, ""]
`

// Runs it in a new sandbox, whose processes hold on to what they got; gives [how many, why no more].
async function takeAll(code, { user = 'root' } = {}) {
  greedy = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  await greedy.files.write('/tmp/take.py', `${HELP}\n${code}\nopen("/tmp/taking", "w").write(json.dumps(result))\nos.rename("/tmp/taking", "/tmp/taken")\ntime.sleep(1000)\n`)
  const run = await greedy.commands.run('python3 /tmp/take.py', { user, background: true, timeoutMs: 0 })
  run.wait().catch(() => {})
  await eventually('the taking', () => greedy.files.exists('/tmp/taken'), 60_000, 100)
  return JSON.parse(await greedy.files.read('/tmp/taken'))
}

// The same on the host, by its root.
function onHost(code) {
  const run = spawnSync('python3', ['-c', `${HELP}\n${code}\nprint(json.dumps(result))`], { encoding: 'utf8' })
  assert.equal(run.status, 0, run.stderr)
  return JSON.parse(run.stdout)
}

async function assertOthersGet(code, count) {
  assert.deepEqual(await python(neighbour, `${HELP}\n${code}`, { user: 'user' }), [count, ''], 'the neighbour')
  assert.deepEqual(onHost(code), [count, ''], 'the host')
}

test('inotify instances', async () => {
  const code = (most) => `result = until_refused(lambda _: libc.inotify_init1(0), ${most})`
  for (const user of ['user', 'root']) {
    const [count, why] = await takeAll(code(100_000), { user })
    assert.ok(count > 50 && why === 'EMFILE', `${count} ${why}`)
    await assertOthersGet(code(20), 20)
    await greedy.kill()
  }
})

test('inotify watches', async () => {
  const limit = Number(fs.readFileSync('/proc/sys/fs/inotify/max_user_watches', 'utf8'))
  const code = (most) => `
fd = libc.inotify_init1(0)
os.makedirs("/tmp/w", exist_ok=True)
def watch(count):
    path = f"/tmp/w/{count}"
    open(path, "w").close()
    return libc.inotify_add_watch(fd, path.encode(), 2)
result = until_refused(watch, ${most})`
  // Where the host allows too many to try them all, that nobody else has fewer is shown by the instances above.
  if (limit <= 100_000) assert.equal((await takeAll(code(limit + 10)))[1], 'ENOSPC')
  await assertOthersGet(code(100), 100)
  spawnSync('rm', ['-rf', '/tmp/w'])
})

test('pending signals', async () => {
  const code = (most) => `
libc.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
result = until_refused(lambda _: libc.sigqueue(os.getpid(), signal.SIGRTMIN, None), ${most})`
  const [count, why] = await takeAll(code(4_000_000))
  assert.ok(count > 100 && why === 'EAGAIN', `${count} ${why}`)
  await assertOthersGet(code(100), 100)
})

test('bytes in message queues', async () => {
  const code = (most) => `
class attr(ctypes.Structure): _fields_ = [(name, ctypes.c_long) for name in ("flags", "max", "size", "now", "a", "b", "c", "d")]
def make(count):
    name = f"/q{os.getpid()}-{count}".encode()
    got = libc.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, ctypes.byref(attr(0, 10, 8192)))
    if not keep: libc.mq_unlink(name)
    return got
keep = ${most} > 100
result = until_refused(make, ${most})`
  const [count, why] = await takeAll(code(1000), { user: 'user' })
  assert.ok(count > 1 && why === 'EMFILE', `${count} ${why}`)
  await assertOthersGet(code(2), 2)
})

test('terminals', async () => {
  const code = (most) => `result = until_refused(lambda _: libc.posix_openpt(os.O_RDWR | os.O_NOCTTY), ${most})`
  const [count, why] = await takeAll(code(10_000))
  assert.deepEqual([count, why], [128, 'ENOSPC'])
  await assertOthersGet(code(20), 20)
  // envd's own terminals are among them: it says so, and goes on.
  await assert.rejects(greedy.pty.create({ cols: 80, rows: 24, onData: () => {} }))
  assert.equal((await greedy.commands.run('echo fine')).stdout, 'fine\n')
})

// All of them are the host's 65,536, and what the kernel keeps for them is charged to nobody.
test('contexts of asynchronous input and output are not given out', async () => {
  const found = await python(neighbour, `${HELP}
context = ctypes.c_ulong(0)
ctypes.set_errno(0)
result = [libc.syscall(206, 1, ctypes.byref(context)), errno.errorcode.get(ctypes.get_errno(), "")]`, { user: 'root' })
  assert.deepEqual(found, [-1, 'ENOSYS'])
})

// Compiled filters take memory that all of the host's unprivileged filters share, those of new sandboxes too.
test('filters of guests: enough for programs that fence themselves in, bounded for the others', async () => {
  const found = await python(neighbour, `${HELP}
import struct
LOAD, EQUAL, RETURN, ALLOW = 0x20, 0x15, 0x06, 0x7fff0000
def filter_of(count): # as programs make them: is it this call?
    code = struct.pack("HBBI", LOAD, 0, 0, 0) + b"".join(struct.pack("HBBI", EQUAL, 0, 0, 1000 + i) for i in range(count - 2)) + struct.pack("HBBI", RETURN, 0, 0, ALLOW)
    kept.append(ctypes.create_string_buffer(code))
    kept.append(ctypes.create_string_buffer(struct.pack("HxxxxxxQ", count, ctypes.addressof(kept[-1]))))
    return ctypes.addressof(kept[-1])
kept = []
libc.prctl(38, 1, 0, 0, 0)
load = lambda count: libc.syscall(ctypes.c_long(317), ctypes.c_long(1), ctypes.c_long(0), ctypes.c_long(filter_of(count)))
result = [load(1500), os.getpid() > 0, until_refused(lambda _: load(64), 1000)]`, { user: 'user' })
  assert.deepEqual(found.slice(0, 2), [0, true], 'a large one')
  const [count, why] = found[2]
  assert.equal(why, 'ENOMEM')
  assert.ok(1500 + count * 64 < 8000, `${count} filters of 64 instructions more`)
})

test('processes of all sandboxes together leave some to the host', () => {
  const instance = fs.readFileSync(`${server.data}/instance`, 'utf8').trim()
  const number = (path) => Number(fs.readFileSync(path, 'utf8'))
  const file = ['/sys/fs/cgroup/pids', '/sys/fs/cgroup'].map((root) => `${root}/quicksand-${instance}/pids.max`).find((path) => fs.existsSync(path))
  const host = Math.min(number('/proc/sys/kernel/pid_max'), number('/proc/sys/kernel/threads-max'))
  assert.ok(number(file) > 0 && number(file) <= (host / 4) * 3, `${fs.readFileSync(file, 'utf8')} of ${host}`)
})
