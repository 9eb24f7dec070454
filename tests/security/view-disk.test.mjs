// The sizes that a program sees of its disk are its sandbox's: the limit, and what was written. envd answers statfs(2),
// so whatever programs do with that call must neither stop envd nor show them anything else.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

const MIB = 1024 * 1024
const DISK_MB = 512

let server, sdk
before(async () => {
  server = await startServer({ args: ['--disk', String(DISK_MB), '--warm', '0'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const create = (options = {}) => sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience, ...options })
const run = async (sandbox, command, options = {}) => (await sandbox.commands.run(command, { timeoutMs: 120_000 * patience, ...options })).stdout.trim()
// {size, used, available} in bytes.
const df = async (sandbox, where, options) => {
  const [size, used, available] = (await run(sandbox, `df -B1 --output=size,used,avail ${where} | tail -n 1`, options)).split(/ +/).map(Number)
  return { size, used, available }
}
const python = (sandbox, script, options = {}) => run(sandbox, `${options.sudo ? 'sudo ' : ''}python3 - <<'END'\n${script}\nEND`, options)
const fill = (sandbox, mib) => run(sandbox, `head -c ${mib * MIB} /dev/urandom > /home/user/filler`)

const STATIC_C = `#include <stdio.h>
#include <sys/statvfs.h>
int main(void) { struct statvfs s; if (statvfs("/", &s)) return 1; printf("%llu\\n", (unsigned long long)s.f_blocks * s.f_frsize); }`

test('df shows the limit, and what was written', async () => {
  const [sandbox, neighbour] = await Promise.all([create(), create()])
  for (const user of ['user', 'root']) {
    for (const where of ['/', '/home/user', '/etc/passwd', '.', '../..', '/bin/sh']) {
      const { size, used, available } = await df(sandbox, where, { user, cwd: '/home/user' })
      assert.equal(size, DISK_MB * MIB, `${where} for ${user}`)
      assert.ok(used < 50 * MIB, `${where}: ${used} used`)
      assert.ok(available <= size - used && available > 0, `${where}: ${available} of ${size} with ${used} used`)
    }
  }
  await sandbox.files.write('/tmp/static.c', STATIC_C)
  const programs = {
    'a static one': 'cc -static -o /tmp/static /tmp/static.c && /tmp/static',
    python: `python3 -c "import os; s = os.statvfs('/'); print(s.f_blocks * s.f_frsize)"`,
    'python by descriptor': `python3 -c "import os; s = os.fstatvfs(os.open('/home/user', os.O_RDONLY)); print(s.f_blocks * s.f_frsize)"`,
    'python by O_PATH': `python3 -c "import os; s = os.fstatvfs(os.open('/', os.O_PATH)); print(s.f_blocks * s.f_frsize)"`,
    node: `node -p "const s = require('fs').statfsSync('/'); s.blocks * s.bsize"`,
    perl: `perl -e '$p = "/"; $b = "\\0" x 120; syscall(${process.arch === 'arm64' ? 43 : 137}, $p, $b) == 0 or die; @f = unpack("q*", $b); print $f[1] * $f[2]'`,
    stat: `echo $(($(stat -f -c '%b * %S' /)))`,
  }
  for (const [name, command] of Object.entries(programs)) assert.equal(await run(sandbox, command), String(DISK_MB * MIB), name)

  const before = await df(sandbox, '/')
  const beside = await df(neighbour, '/')
  await fill(sandbox, 100)
  const full = await df(sandbox, '/')
  assert.ok(full.used >= before.used + 100 * MIB && full.used < before.used + 130 * MIB, `${before.used} used before, ${full.used} after`)
  assert.equal(full.size, before.size)
  assert.ok(full.available <= before.available - 100 * MIB)
  assert.ok((await df(neighbour, '/')).used < beside.used + 20 * MIB, 'the neighbour has less')
  // Nor does anybody see what others have written.
  assert.equal(await run(sandbox, 'ls -A /sys/fs/btrfs', { user: 'root' }), '')
  // The API tells the same.
  const metrics = async () => (await server.api('GET', `/sandboxes/${sandbox.sandboxId}/metrics`)).body.at(-1)
  await eventually('metrics with the same', async () => {
    const { diskTotal, diskUsed } = await metrics()
    return diskTotal === full.size && Math.abs(diskUsed - full.used) < 20 * MIB
  }, 60_000, 500)
  // Up to the limit, and not beyond.
  assert.notEqual(await run(sandbox, `head -c ${DISK_MB * MIB} /dev/zero | tr '\\0' x > /home/user/more 2>/dev/null; echo $?`), '0')
  assert.ok((await df(sandbox, '/')).available < 40 * MIB)
  await run(sandbox, 'rm /home/user/more /home/user/filler; sync')
  await eventually('the space is back', async () => (await df(sandbox, '/')).used < before.used + 20 * MIB, 60_000, 200)
  await Promise.all([sandbox.kill(), neighbour.kill()])
})

test('after a pause, with memory or without, in a fork, and with a size of its own', async () => {
  const sandbox = await create()
  const id = sandbox.sandboxId
  await fill(sandbox, 100)
  for (const memory of [true, false]) {
    assert.equal((await server.api('POST', `/sandboxes/${id}/pause`, { memory })).status, 204)
    assert.equal((await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 600 * patience })).status, 201)
    const { size, used } = await df(sandbox, '/')
    assert.equal(size, DISK_MB * MIB, `with memory: ${memory}`)
    assert.ok(used >= 100 * MIB && used < 150 * MIB, `${used} used, with memory: ${memory}`)
  }
  const { status, body } = await server.api('POST', `/sandboxes/${id}/fork`, { timeout: 600 * patience })
  assert.equal(status, 201)
  const fork = await sdk.Sandbox.connect([body].flat()[0].sandboxID ?? [body].flat()[0].sandbox.sandboxID, { timeoutMs: 600_000 * patience })
  // What the two share counts against neither.
  for (const one of [sandbox, fork]) {
    const before = await df(one, '/')
    assert.equal(before.size, DISK_MB * MIB)
    await run(one, `head -c ${50 * MIB} /dev/urandom > /home/user/own`)
    const { size, used } = await df(one, '/')
    assert.equal(size, DISK_MB * MIB)
    assert.ok(used >= before.used + 50 * MIB && used < before.used + 80 * MIB, `${before.used} used before, ${used} after`)
  }
  const larger = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 600 * patience, diskSizeMB: 2 * DISK_MB })
  assert.equal(larger.status, 201)
  assert.equal((await df(await sdk.Sandbox.connect(larger.body.sandboxID, { timeoutMs: 600_000 * patience }), '/')).size, 2 * DISK_MB * MIB)
  for (const one of [id, fork.sandboxId, larger.body.sandboxID]) await sdk.Sandbox.kill(one)
})

test('volumes, tmpfs and the kernel’s file systems show their own sizes', async () => {
  const volume = await sdk.Volume.create('sizes')
  const sandbox = await create({ volumeMounts: { '/data': volume } })
  assert.equal((await df(sandbox, '/')).size, DISK_MB * MIB)
  const pool = path.join(server.data, 'pool')
  await eventually('the size of the pool', async () => {
    const { blocks, bsize } = fs.statfsSync(pool)
    return (await df(sandbox, '/data')).size === blocks * bsize
  })
  assert.equal(await run(sandbox, 'stat -f -c %T /dev/shm /proc /sys /sys/fs/cgroup | sort | uniq -c | wc -l') > 2, true)
  assert.notEqual((await df(sandbox, '/dev/shm')).size, DISK_MB * MIB)
  // A link on the root that leads to a tmpfs, and the reverse.
  await run(sandbox, 'ln -s /dev/shm /home/user/shm; ln -s /home/user /dev/shm/home')
  assert.equal((await df(sandbox, '/home/user/shm')).size, (await df(sandbox, '/dev/shm')).size)
  assert.equal((await df(sandbox, '/home/user/shm/home/')).size, DISK_MB * MIB)
  await sandbox.kill()
  await sdk.Volume.destroy(volume.volumeId)
})

const CALLS = `
import ctypes, errno, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *args):
    ctypes.set_errno(0)
    return 0 if getattr(libc, function)(*args) == 0 else errno.errorcode[ctypes.get_errno()]
room = ctypes.create_string_buffer(120)
`

test('errors are the kernel’s, and rights to directories hold', async () => {
  const sandbox = await create()
  await run(sandbox, 'mkdir -p /srv/secret/below /srv/shared && chmod 700 /srv/secret && chown root:games /srv/shared && chmod 710 /srv/shared && touch /srv/shared/file', { user: 'root' })
  await run(sandbox, 'ln -s loop /home/user/loop')
  const script = `${CALLS}
print(call('statfs', b'/nowhere', room), call('statfs', b'', room), call('statfs', b'/home/user/loop', room), call('statfs', b'/etc/passwd/x', room),
      call('statfs', b'/' + b'x' * 300, room), call('statfs', b'/' * 5000, room), call('statfs', ctypes.c_void_p(8), room), call('statfs', b'/', ctypes.c_void_p(8)),
      call('statfs', b'/', ctypes.c_void_p(-8)), call('fstatfs', 99, room), call('fstatfs', -1, room), call('fstatfs', 0, ctypes.c_void_p(0)))
print(call('statfs', b'/srv/secret', room), call('statfs', b'/srv/secret/below', room), call('statfs', b'/srv/secret/none', room), call('statfs', b'/srv/shared/file', room))`
  const wrong = 'ENOENT ENOENT ELOOP ENOTDIR ENAMETOOLONG ENAMETOOLONG EFAULT EFAULT EFAULT EBADF EBADF EFAULT'
  assert.equal(await python(sandbox, script), `${wrong}\n0 EACCES EACCES EACCES`)
  assert.equal(await python(sandbox, script, { user: 'root' }), `${wrong}\n0 0 ENOENT 0`)
  // Supplementary groups count; root without its capabilities is like any other.
  const member = `${CALLS}
os.setgroups([${await run(sandbox, 'getent group games | cut -d: -f3')}]); os.setgid(1000); os.setuid(1000)
print(call('statfs', b'/srv/shared/file', room), call('statfs', b'/srv/secret/below', room), int.from_bytes(room.raw[8:16], 'little') * int.from_bytes(room.raw[16:24], 'little'))`
  assert.equal(await python(sandbox, member, { user: 'root' }), `0 EACCES ${DISK_MB * MIB}`)
  assert.equal(await run(sandbox, 'setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -all chroot / python3 -c "import os; os.statvfs(\'/home/user\')" 2>&1 | tail -n 1; echo done', { user: 'root' }), 'done')
  // From a root of its own, by absolute paths.
  await run(sandbox, 'mkdir -p /srv/root/inside', { user: 'root' })
  const chrooted = `${CALLS}
os.chroot('/srv/root'); os.chdir('/')
for path in (b'/inside', b'/../../inside', b'.', b'/home/user'):
    print(call('statfs', path, room), int.from_bytes(room.raw[16:24], 'little') * 4096 == ${DISK_MB * MIB})`
  assert.match(await python(sandbox, chrooted, { user: 'root' }), /^0 True\n0 True\n0 (True|False)\nENOENT /)
  await sandbox.kill()
})

test('calls that are interrupted, killed, many, or odd do not stop envd', { timeout: 300_000 * patience }, async () => {
  const sandbox = await create()
  const fine = async (what) => assert.equal((await df(sandbox, '/')).size, DISK_MB * MIB, what)
  // Signals without end, with a handler that does not restart calls.
  const signalled = await python(sandbox, `${CALLS}
import signal, collections
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
seen = collections.Counter(call('statfs', b'/', room) for _ in range(3000))
signal.setitimer(signal.ITIMER_REAL, 0)
print(sorted(map(str, set(seen) - {0, 'EINTR'})), seen[0] > 0)`)
  assert.equal(signalled, '[] True')
  await fine('after signals')
  // Ended in the middle of it.
  await python(sandbox, `
import os, signal, time
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        while True: os.statvfs('/')
    time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)`)
  await fine('after kills')
  // Many at once.
  const many = await python(sandbox, `
import os, threading
bad = []
def work():
    for _ in range(50):
        s = os.statvfs('/')
        if s.f_blocks * s.f_frsize != ${DISK_MB * MIB}: bad.append(s)
threads = [threading.Thread(target=work) for _ in range(100)]
for t in threads: t.start()
for t in threads: t.join()
print(len(bad))`)
  assert.equal(many, '0')
  // Memory that comes from a file which envd itself serves; memory that cannot be written; one byte of it missing.
  const odd = await python(sandbox, `${CALLS}
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
files = [os.open('/proc/' + name, os.O_RDONLY) for name in ('meminfo', 'stat', 'loadavg')]
for fd in files:
    at = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, fd, 0)
    if at in (None, 2 ** 64 - 1): continue
    call('statfs', b'/', ctypes.c_void_p(at))
    call('statfs', ctypes.c_void_p(at), room)
at = libc.mmap(None, 8192, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.munmap(ctypes.c_void_p(at + 4096), 4096)
print(call('statfs', b'/', ctypes.c_void_p(at + 4096 - 119)), call('statfs', b'/', ctypes.c_void_p(at + 4096 - 120)))
ctypes.memmove(at + 4094, b'/x', 2)
print(call('statfs', ctypes.c_void_p(at + 4094), room))`)
  assert.equal(odd, 'EFAULT 0\nEFAULT')
  await fine('after odd memory')
  // A program that nobody may read or trace, and one that is traced.
  assert.equal(await run(sandbox, `cp /usr/bin/stat /srv/unreadable && chmod 711 /srv/unreadable && su user -c "/srv/unreadable -f -c '%b' /"`, { user: 'root' }), String(DISK_MB * MIB / 4096))
  await sandbox.kill()
})

test('beside programs that ask without end, commands, pauses and the end work as always', { timeout: 300_000 * patience }, async () => {
  const sandbox = await create()
  const id = sandbox.sandboxId
  const asking = await sandbox.commands.run(`python3 -c "
import os
for _ in range(4): os.fork()
while True: os.statvfs('/')"`, { background: true, timeoutMs: 0 })
  asking.wait().catch(() => {})
  for (let round = 0; round < 10; round++) {
    assert.equal(await run(sandbox, 'echo here'), 'here')
    assert.equal((await server.api('POST', `/sandboxes/${id}/pause`, { memory: true })).status, 204, `pause ${round}`)
    assert.equal((await server.api('POST', `/sandboxes/${id}/connect`, { timeout: 600 * patience })).status, 201)
    assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.resumedFrom, 'memory')
  }
  assert.equal((await df(sandbox, '/')).size, DISK_MB * MIB)
  await sandbox.kill()
})

test('nobody inside can take over the answers', async () => {
  const sandbox = await create()
  // envd's descriptors, and a listener of one's own for the same calls.
  const tried = await python(sandbox, `${CALLS}
import struct
SECCOMP, PIDFD_OPEN, PIDFD_GETFD = (${process.arch === 'arm64' ? 277 : 317}, 434, 438)
def raw(*args):
    ctypes.set_errno(0)
    got = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return errno.errorcode[ctypes.get_errno()] if got < 0 else 'got %d' % got
envd = os.pidfd_open(1)
print(raw(PIDFD_GETFD, envd, 7, 0), raw(PIDFD_GETFD, envd, 6, 0))
try: os.listdir('/proc/1/fd'); print('listed')
except PermissionError: print('refused')
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fc00000))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))
libc.prctl(38, 1, 0, 0, 0)
print(raw(SECCOMP, 1, 8, program))`, { user: 'root' })
  assert.equal(tried, 'EPERM EPERM\nrefused\nEBUSY')
  assert.equal((await df(sandbox, '/')).size, DISK_MB * MIB)
  await sandbox.kill()
})
