// Attempts to get out, made inside a sandbox as its root: each must be refused.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { findProcesses, isEnvd, isOurs } from '../harness/leftovers.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, python, shell } from '../harness/sdk.mjs'

const SECRET = `host-secret-${process.pid}`
let server, sdk, sandbox, secretFile
before(async () => {
  server = await startServer({ env: { SECRET_OF_THE_HOST: SECRET } })
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience, envs: { ASKED_FOR: 'yes' } })
  secretFile = `${server.home}/secret`
  fs.writeFileSync(secretFile, SECRET, { mode: 0o644 })
})
after(() => server.destroy())

const asRoot = { user: 'root', timeoutMs: 60_000 }

// Calls system calls by number: [result, errno name] of each.
const SYSCALLS = String.raw`
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *[ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in args])
    return [got, errno.errorcode.get(ctypes.get_errno(), "")]
`
// What the filter says. Without it most would be refused for want of capabilities: warden_filter_test.c has both.
const refused = (results, allowed = ['EPERM']) => {
  for (const [name, [value, error]] of Object.entries(results)) {
    assert.equal(value, -1, `${name} succeeded with ${value}`)
    assert.ok(allowed.includes(error), `${name}: ${error}`)
  }
}

describe('what a fresh command inherits', () => {
  test('no descriptors but 0, 1 and 2', async () => {
    for (const user of ['user', 'root']) {
      const result = await shell(sandbox, 'ls /proc/self/fd', { user })
      // ls holds the directory itself open as 3.
      assert.deepEqual(result.stdout.trim().split(/\s+/), ['0', '1', '2', '3'])
    }
  })

  // Nobody inside can look; from outside it is seen.
  test('the first process has no descriptor that leads outside', async () => {
    const [slotBase] = (await shell(sandbox, 'cat /proc/self/uid_map')).stdout.trim().split(/\s+/).slice(1)
    const [envd] = findProcesses((one) => isEnvd(one) && fs.readFileSync(`/proc/${one.pid}/uid_map`, 'utf8').includes(` ${slotBase} `))
    const found = fs.readdirSync(`/proc/${envd.pid}/fd`).map((name) => fs.readlinkSync(`/proc/${envd.pid}/fd/${name}`))
    assert.ok(found.includes('/fuse'), String(found))
    for (const target of found) assert.match(target, /^(socket:|pipe:|anon_inode:|\/dev\/(null|zero|urandom|pts)|\/dev\/ptmx|\/proc|\/fuse$|\/$|\/sys\/fs\/btrfs\/[0-9a-f-]{36}\/qgroups\/0_\d+$)/, target)
  })

  test('only its own environment', async () => {
    const names = await python(sandbox, 'result = dict(os.environ)')
    for (const [name, value] of Object.entries(names)) assert.ok(!value.includes(SECRET), name)
    assert.equal(names.ASKED_FOR, 'yes')
    const allowed = /^(PATH|HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|SHLVL|_|LANG|LC_ALL|LC_CTYPE|TERM|E2B_\w+|ASKED_FOR|MAIL|PROC_ROOT)$/
    for (const name of Object.keys(names)) assert.match(name, allowed)
    const first = await shell(sandbox, "tr '\\0' '\\n' < /proc/1/environ", asRoot)
    assert.ok(!first.stdout.includes(SECRET))
    assert.ok(!first.stdout.includes(server.key))
  })

  test('default signal mask and dispositions', async () => {
    const status = (await shell(sandbox, 'grep -E "^Sig(Blk|Ign)" /proc/self/status')).stdout
    assert.match(status, /SigBlk:\s+0+$/m)
    assert.match(status, /SigIgn:\s+0+$/m)
  })
})

describe('status of processes', () => {
  test('seccomp filter on, no new surprises in the capability sets', async () => {
    for (const user of ['user', 'root']) {
      const status = (await shell(sandbox, 'cat /proc/self/status', { user })).stdout
      assert.match(status, /^Seccomp:\s+2$/m)
      const bounding = BigInt('0x' + /^CapBnd:\s+(\w+)/m.exec(status)[1])
      // sys_module 16, sys_rawio 17, sys_pacct 20, sys_boot 22, sys_time 25, mac_override 32, mac_admin 33, syslog 34,
      // wake_alarm 35, block_suspend 36, audit_read 37, perfmon 38, bpf 39
      for (const bit of [16n, 17n, 20n, 22n, 25n, 32n, 33n, 34n, 36n, 37n, 38n, 39n]) assert.equal((bounding >> bit) & 1n, 0n, `capability ${bit} is in the bounding set of ${user}`)
      if (user === 'user') assert.match(status, /^CapEff:\s+0+$/m)
    }
    const first = (await shell(sandbox, 'cat /proc/1/status', asRoot)).stdout
    assert.match(first, /^Seccomp:\s+2$/m)
  })

  test('its ids are not the host’s, and differ from its neighbour’s', async () => {
    const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
    const base = async (one) => Number((await shell(one, 'cat /proc/self/uid_map')).stdout.trim().split(/\s+/)[1])
    const [mine, theirs] = [await base(sandbox), await base(other)]
    assert.ok(mine >= 65536 && theirs >= 65536, `${mine} ${theirs}`)
    assert.ok(Math.abs(mine - theirs) >= 65536, `${mine} ${theirs}`)
    await other.kill()
  })

  test('only its own processes are visible', async () => {
    const pids = (await shell(sandbox, 'ps -eo pid,args', asRoot)).stdout
    assert.ok(!pids.includes('quicksand serve'))
    assert.ok(!pids.includes('lab.sh'))
    assert.ok(pids.split('\n').length < 30, pids)
  })
})

describe('files of the host', () => {
  test('not by absolute path, not by symlink, through envd or a shell', async () => {
    for (const path of [secretFile, server.data, `${server.data}/../secret`]) {
      assert.notEqual((await shell(sandbox, `cat ${path}`, asRoot)).exitCode, 0)
      await assert.rejects(sandbox.files.read(path, { user: 'root' }))
    }
    await shell(sandbox, `ln -sf ${secretFile} /tmp/link; ln -sfn / /tmp/rootlink; ln -sf /proc/1/root${secretFile} /tmp/prochost`, asRoot)
    for (const path of ['/tmp/link', `/tmp/rootlink${secretFile}`, '/tmp/prochost', `/../../../..${secretFile}`]) {
      await assert.rejects(sandbox.files.read(path, { user: 'root' }), `${path} was read`)
    }
  })

  test('writes through symlinks stay inside', async () => {
    await shell(sandbox, `mkdir -p ${server.home}; ln -sfn ${server.home} /tmp/out`, asRoot)
    await sandbox.files.write('/tmp/out/planted', 'x', { user: 'root' })
    assert.equal(await sandbox.files.read(`${server.home}/planted`, { user: 'root' }), 'x', 'inside, where the same path is another')
    assert.equal(fs.existsSync(`${server.home}/planted`), false)
  })

  test('/proc/1/root, cwd and exe lead nowhere else', async () => {
    for (const pid of ['1', 'self']) {
      for (const name of ['root', 'cwd']) {
        const result = await shell(sandbox, `cat /proc/${pid}/${name}${secretFile} /proc/${pid}/${name}/../../../..${secretFile}`, asRoot)
        assert.ok(!result.stdout.includes(SECRET))
      }
    }
    const write = await shell(sandbox, 'echo x > /proc/1/exe', asRoot)
    assert.notEqual(write.exitCode, 0)
  })

  test('the mount table names no host path with secrets and the old root is gone', async () => {
    const table = (await shell(sandbox, 'cat /proc/self/mountinfo', asRoot)).stdout
    assert.ok(!table.includes(server.home), table)
    assert.match(table, / \/ \/ .*overlay/m)
    for (const path of ['/proc', '/sys', '/']) assert.match((await shell(sandbox, `umount -l ${path}`, asRoot)).stderr, /must be superuser|not permitted|denied/, path)
  })

  test('chroot and fchdir tricks do not leave the root', async () => {
    const found = await python(sandbox, `
result = "inside"
try:
    os.makedirs("/tmp/jail", exist_ok=True)
    fd = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail")
    os.fchdir(fd)
    for _ in range(64): os.chdir("..")
    os.chroot(".")
    # Beneath its root is the empty one that it began in.
    result = "outside" if os.path.exists("${secretFile}") else "inside" if os.path.isdir("/home/user") else "beneath"
except OSError as e:
    result = str(e)
`, asRoot)
    assert.equal(found, 'inside')
  })

  test('open_by_handle_at is refused', async () => {
    refused(await python(sandbox, `${SYSCALLS}
fd = os.open("/", os.O_RDONLY)
handle = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(8, "little")
result = {"open_by_handle_at": call(304, fd, handle, 0)}`, asRoot))
  })
})

describe('/proc and /sys', () => {
  test('kernel switches cannot be written', async () => {
    for (const path of ['/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/vm/overcommit_memory', '/proc/sys/kernel/modprobe', '/proc/sys/fs/binfmt_misc/register', '/proc/sysrq-trigger', '/proc/sys/kernel/sysrq', '/sys/kernel/uevent_helper', '/proc/sys/vm/drop_caches', '/proc/irq/default_smp_affinity']) {
      const result = await shell(sandbox, `test -e ${path} || exit 9; echo 1 > ${path}`, asRoot)
      assert.notEqual(result.exitCode, 0, `${path} was written`)
      if (fs.existsSync(path) && path.startsWith('/proc/sys/kernel')) assert.match(result.stderr, /Read-only|denied|not permitted/, `${path}: ${result.exitCode} ${result.stderr}`)
    }
  })

  test('kernel memory and logs cannot be read', async () => {
    for (const path of ['/proc/kcore', '/proc/kmsg', '/dev/mem', '/dev/kmem', '/dev/port', '/proc/sched_debug', '/sys/kernel/debug', '/sys/kernel/tracing', '/sys/firmware/acpi/tables', '/proc/keys', '/proc/timer_list']) {
      const found = await shell(sandbox, `if test -d ${path}; then ls -A ${path} | head -c 100; else timeout 2 head -c 100 ${path}; fi`, asRoot)
      assert.ok(found.stdout === '' || found.exitCode !== 0, `${path}: ${found.stdout.slice(0, 80)}`)
    }
    assert.match((await shell(sandbox, 'dmesg', asRoot)).stderr, /not permitted/)
  })

  test('/sys and the cgroup tree are read-only', async () => {
    for (const path of ['/sys/planted', '/sys/fs/cgroup/planted', '/sys/class/net/planted']) assert.notEqual((await shell(sandbox, `mkdir ${path}`, asRoot)).exitCode, 0, path)
    const escape = await shell(sandbox, 'for f in $(find /sys/fs/cgroup -name "cgroup.procs" -o -name release_agent -o -name memory.max -o -name memory.limit_in_bytes 2>/dev/null | head -20); do echo 0 > $f && echo wrote $f; done', asRoot)
    assert.ok(!escape.stdout.includes('wrote'), escape.stdout)
  })

  test('device nodes: the harmless ones only, and none can be made', async () => {
    const names = (await shell(sandbox, 'ls /dev', asRoot)).stdout.trim().split(/\s+/)
    for (const name of names) assert.match(name, /^(console|core|fd|full|mqueue|null|ptmx|pts|random|shm|stderr|stdin|stdout|tty|urandom|zero|net)$/, name)
    const made = await python(sandbox, `
import stat
result = {}
for name, mode, dev in (("block", stat.S_IFBLK, os.makedev(254, 0)), ("loop", stat.S_IFBLK, os.makedev(7, 0)), ("mem", stat.S_IFCHR, os.makedev(1, 1)), ("kvm", stat.S_IFCHR, os.makedev(10, 232))):
    path = "/tmp/node-" + name
    try:
        os.mknod(path, mode | 0o666, dev)
        try:
            os.close(os.open(path, os.O_RDWR)); result[name] = "opened"
        except OSError as e: result[name] = "made, not opened"
    except OSError as e: result[name] = "refused"
`, asRoot)
    for (const [name, outcome] of Object.entries(made)) assert.notEqual(outcome, 'opened', name)
    assert.equal(made.block, 'refused')
  })
})

describe('system calls', () => {
  test('mounts and namespaces', async () => {
    refused(await python(sandbox, `${SYSCALLS}
os.makedirs("/tmp/m", exist_ok=True)
result = {
    "mount tmpfs": call(165, b"none", b"/tmp/m", b"tmpfs", 0, b""),
    "mount proc": call(165, b"none", b"/tmp/m", b"proc", 0, b""),
    "mount bind": call(165, b"/etc", b"/tmp/m", b"", 4096, b""),
    "remount /sys": call(165, b"none", b"/sys", b"", 32, b""),
    "mount overlay": call(165, b"none", b"/tmp/m", b"overlay", 0, b"lowerdir=/etc:/usr"),
    "pivot_root": call(155, b"/tmp/m", b"/tmp/m"),
    "fsopen": call(430, b"tmpfs", 0),
    "open_tree": call(428, -100, b"/etc", 1),
    "move_mount": call(429, -100, b"/etc", -100, b"/tmp/m", 0),
    # Without the filter this is EINVAL: the size is looked at before anything else.
    "mount_setattr": call(442, -100, b"/", 0, 0, 0),
    "unshare user": call(272, 0x10000000),
    "unshare mount": call(272, 0x20000),
    "unshare net": call(272, 0x40000000),
    "unshare pid": call(272, 0x20000000),
    "unshare cgroup": call(272, 0x02000000),
    "clone newuser": call(56, 0x10000000 | 17, 0, 0, 0, 0),
}
`, asRoot))
  })

  // A file system that a guest serves could stop whoever looks at it, envd too.
  test('no FUSE and no network file system can be mounted', async () => {
    const found = await python(sandbox, `${SYSCALLS}
import stat
os.makedirs("/tmp/m", exist_ok=True)
device = "/dev/fuse"
if not os.path.exists(device):
    device = "/tmp/fuse"
    try: os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 229))
    except OSError: pass
try: fd = os.open(device, os.O_RDWR)
except OSError: fd = -1
result = {"opened": fd >= 0}
options = f"fd={max(fd, 3)},rootmode=40000,user_id=0,group_id=0".encode()
result["calls"] = {f"{how} {kind}": made for kind in ("fuse", "fuse.sshfs", "fuseblk", "nfs", "nfs4", "cifs", "9p", "ceph", "virtiofs") for how, made in (
    ("mount", call(165, b"x", b"/tmp/m", kind.encode(), 0, options)),
    ("fsopen", call(430, kind.encode(), 0)))}
`, asRoot)
    assert.equal(found.opened, false, '/dev/fuse')
    refused(found.calls)
    for (const command of ['fusermount3 -u /proc/meminfo', 'fusermount -u /proc/meminfo', 'umount /proc/meminfo', 'umount /proc/stat']) {
      assert.notEqual((await shell(sandbox, command, asRoot)).exitCode, 0, command)
    }
    // The FUSE mounts there are: files, which envd serves itself.
    const table = (await shell(sandbox, 'cat /proc/self/mountinfo', asRoot)).stdout
    const network = table.split('\n').filter((line) => / - (fuse|nfs|cifs|smb|9p|ceph|virtiofs)/.test(line)).map((line) => line.split(' ')[4])
    assert.deepEqual(network, ['/proc/meminfo', '/proc/stat', '/proc/loadavg'])
  })

  test('clone3 is answered with ENOSYS, so that libc falls back to what the filter can see', async () => {
    // What fork() does: without the filter it makes a process.
    const found = await python(sandbox, `${SYSCALLS}
result = call(435, b"\\0" * 32 + (17).to_bytes(8, "little") + b"\\0" * 48, 88)
if result[0] == 0: os._exit(0)`, asRoot)
    assert.deepEqual(found, [-1, 'ENOSYS'])
    const threads = await python(sandbox, `
import threading
done = []
ts = [threading.Thread(target=lambda: done.append(1)) for _ in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
result = len(done)`)
    assert.equal(threads, 20)
  })

  test('modules, kexec, bpf, keys, perf, io ports, clocks, swap, accounting, quotas', async () => {
    refused(await python(sandbox, `${SYSCALLS}
result = {
    "init_module": call(175, b"x", 1, b""),
    "finit_module": call(313, 0, b"", 0),
    "delete_module": call(176, b"loop", 0),
    "kexec_load": call(246, 0, 0, 0, 0),
    "kexec_file_load": call(320, -1, -1, 0, b"", 0),
    "bpf": call(321, 0, b"\\0" * 128, 128),
    "perf_event_open": call(298, b"\\0" * 128, 0, -1, -1, 0),
    "keyctl": call(250, 0, -3, 1),
    "add_key": call(248, b"user", b"a", b"b", 1, -3),
    "request_key": call(249, b"user", b"a", b"", -3),
    "iopl": call(172, 3),
    "ioperm": call(173, 0, 1, 1),
    "settimeofday": call(164, b"\\0" * 16, 0),
    "clock_settime": call(227, 0, b"\\0" * 16),
    "adjtimex": call(159, b"\\1" + b"\\0" * 300),
    "swapon": call(167, b"/tmp/x", 0),
    "acct": call(163, b"/tmp/x"),
    "quotactl": call(179, 0x80000700 - (1 << 32), b"/dev/x", 0, 0),
    "reboot": call(169, 0xfee1dead - (1 << 32), 672274793, 0x1234567),
    "userfaultfd": call(323, 0),
    "lookup_dcookie": call(212, 0, b"x" * 10, 10),
    "fanotify_init": call(300, 0, 0),
    "io_uring_setup": call(425, 1, b"\\0" * 200),
    "syslog": call(103, 3, b"x" * 100, 100),
    "vhangup": call(153),
    "open_by_handle_at": call(304, 0, b"\\0" * 16, 0),
}
`, asRoot))
  })

  test('setns into its own namespaces again or into anything else is refused', async () => {
    const results = await python(sandbox, `${SYSCALLS}
result = {}
for name in ("mnt", "net", "pid", "user", "ipc", "uts", "cgroup"):
    fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
    result["setns " + name] = call(308, fd, 0)
`, asRoot)
    refused(results)
  })

  test('the first process cannot be traced, signalled to death or written to by the user', async () => {
    const found = await python(sandbox, `${SYSCALLS}
kept = []
def iovec(data):
    kept.append(ctypes.create_string_buffer(data))
    kept.append(ctypes.create_string_buffer(ctypes.addressof(kept[-1]).to_bytes(8, "little") + (1).to_bytes(8, "little")))
    return ctypes.addressof(kept[-1])
result = {
    "ptrace attach": call(101, 16, 1, 0, 0),
    "ptrace seize": call(101, 0x4206, 1, 0, 0),
    "kill": call(62, 1, 9),
    "process_vm_writev": call(311, 1, iovec(b"x"), 1, iovec(b"x"), 1, 0),
    "process_vm_readv": call(310, 1, iovec(b"x"), 1, iovec(b"x"), 1, 0),
    "pidfd_getfd": call(438, call(434, 1, 0)[0], 3, 0),
}
try:
    open("/proc/1/mem", "r+b"); result["mem"] = [0, ""]
except OSError as e: result["mem"] = [-1, "EACCES"]
`)
    refused(found, ['EPERM', 'EACCES'])
  })

  test('as root inside, the first process survives being traced or killed, or only its own sandbox ends', async () => {
    const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
    await shell(other, 'kill -9 1; kill -STOP 1', asRoot).catch(() => {})
    assert.equal(await sandbox.isRunning(), true)
    assert.ok(server.alive())
    await other.kill().catch(() => {})
  })

  test('input of a terminal that is not one’s own cannot be forged (TIOCSTI)', async () => {
    const found = await python(sandbox, `
import errno, fcntl, pty
a, b = pty.openpty()
try:
    fcntl.ioctl(b, 0x5412, b"x"); result = "forged"
except OSError as e: result = errno.errorcode[e.errno]
`, asRoot)
    assert.ok(['EPERM', 'EIO'].includes(found), found) // EIO: nobody may on this kernel
  })
})

describe('sockets', () => {
  test('raw packets, packet sockets and other families', async () => {
    const found = await python(sandbox, `
import errno, socket
result = {}
for name, args in {
    "vsock": (40, socket.SOCK_STREAM, 0), "alg": (38, socket.SOCK_SEQPACKET, 0), "bluetooth": (31, socket.SOCK_RAW, 1),
    "can": (29, socket.SOCK_RAW, 1), "tipc": (30, socket.SOCK_STREAM, 0),
    "xdp": (44, socket.SOCK_RAW, 0), "rds": (21, socket.SOCK_SEQPACKET, 0), "packet": (17, socket.SOCK_RAW, 3),
    "keys": (15, socket.SOCK_RAW, 2), "nftables": (16, socket.SOCK_RAW, 12),
}.items():
    try: socket.socket(*args).close(); result[name] = "made"
    except OSError as e: result[name] = errno.errorcode[e.errno]
`, asRoot)
    for (const [name, outcome] of Object.entries(found)) assert.equal(outcome, name === 'nftables' ? 'EPROTONOSUPPORT' : 'EAFNOSUPPORT', name)
  })

  test('abstract Unix sockets of the host are not there', async () => {
    const net = await import('node:net')
    const listener = net.createServer((socket) => socket.end('host')).listen('\0quicksand-host-socket')
    await new Promise((done, fail) => net.connect('\0quicksand-host-socket').on('end', done).on('error', fail).resume())
    const found = await python(sandbox, `
import socket
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(b"\\0quicksand-host-socket"); result = "reached"
except ConnectionRefusedError: result = "refused"
`, asRoot)
    listener.close()
    assert.equal(found, 'refused')
  })

  test('another sandbox’s loopback is another loopback', async () => {
    const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
    const web = await other.commands.run('python3 -m http.server 8123 --bind 127.0.0.1', { background: true })
    await eventually('it serves', async () => (await shell(other, 'curl -sS -m 2 http://127.0.0.1:8123/')).exitCode === 0)
    assert.notEqual((await shell(sandbox, 'curl -sS -m 2 http://127.0.0.1:8123/')).exitCode, 0)
    await web.kill()
    await other.kill()
  })

  test('envd’s own socket on the host is not reachable by name from inside', async () => {
    const found = await shell(sandbox, `find / -xdev -name '*.sock' -type s 2>/dev/null`, asRoot)
    assert.ok(!found.stdout.includes(sandbox.sandboxId), found.stdout)
  })
})

test('setuid works inside and stays inside', async () => {
  const result = await shell(sandbox, 'sudo -n cp /usr/bin/id /tmp/sid && sudo -n chmod 4755 /tmp/sid && /tmp/sid -u')
  assert.equal(result.stdout, '0\n', result.stderr)
  const host = await shell(sandbox, 'sudo -n sh -c "cat /proc/self/uid_map"')
  assert.ok(Number(host.stdout.trim().split(/\s+/)[1]) > 0)
})

test('the server’s data directory is closed to other users of the host', () => {
  const mode = (name) => fs.statSync(`${server.data}/${name}`).mode & 0o777
  assert.equal(mode('.') & 0o066, 0, 'nobody else lists or writes it')
  for (const name of ['layers', 'pool', 'store']) assert.equal(mode(name) & 0o077, 0, name)
})

test('what parses network bytes does not run as root', async () => {
  const socket = await server.connect()
  await server.api('GET', '/health')
  const hex = (port) => port.toString(16).toUpperCase().padStart(4, '0')
  const accepted = fs
    .readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .find(([, local, remote]) => local?.endsWith(`:${hex(server.port)}`) && remote.endsWith(`:${hex(socket.localPort)}`))
  const owners = findProcesses(isOurs).filter((one) => fs.readdirSync(`/proc/${one.pid}/fd`).some((fd) => {
    try {
      return fs.readlinkSync(`/proc/${one.pid}/fd/${fd}`) === `socket:[${accepted[9]}]`
    } catch {
      return false
    }
  }))
  socket.destroy()
  assert.equal(owners.length, 1)
  const status = fs.readFileSync(`/proc/${owners[0].pid}/status`, 'utf8')
  assert.doesNotMatch(status, /^[UG]id:.*\b0\b/m)
  assert.match(status, /^CapEff:\s+0+$/m)
  assert.match(status, /^NoNewPrivs:\s+1$/m)
})
