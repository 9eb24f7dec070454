// Sandboxes that do not want to end: whatever root inside does, a kill takes seconds, and nobody else waits for it.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, python, stayInKernel } from '../harness/sdk.mjs'

let server, sdk
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const asRoot = { user: 'root', timeoutMs: 60_000 }

// What the attacks need of the kernel. [result, errno name] of each call.
const CALLS = String.raw`
import ctypes, errno, json, os, select, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    return [got, errno.errorcode.get(ctypes.get_errno(), "")]
PTRACE, PIDFD_OPEN, PIDFD_GETFD = 101, 434, 438
ATTACH, SEIZE, INTERRUPT = 16, 0x4206, 0x4207
envd = call(PIDFD_OPEN, 1, 0)[0]
taken = {number: call(PIDFD_GETFD, envd, number, 0) for number in range(32)}
`

// Takes envd's end of /proc/meminfo, stops envd, and lets processes wait for answers that nobody gives.
const HOSTAGE = String.raw`${CALLS}
def is_fuse(fd):
    try: return "fuse" in os.readlink(f"/proc/self/fd/{fd}")
    except OSError: return False
fuse = next((fd for fd, _ in taken.values() if fd >= 0 and is_fuse(fd)), -1)
traced = call(PTRACE, ATTACH, 1, 0, 0)
def wait_for_ever():
    for _ in range(4):
        if os.fork() == 0:
            os.open("/proc/meminfo", os.O_RDONLY)
            time.sleep(1000)
if fuse >= 0:
    wait_for_ever()
    for _ in range(4):
        select.select([fuse], [], [], 1)
        try: os.read(fuse, 1 << 17)
        except OSError: pass
open("/tmp/armed", "w").write(json.dumps([fuse >= 0, traced]))
try: os.read(os.open("/proc/meminfo", os.O_RDONLY), 100)
finally: time.sleep(1000)
`

async function arm(sandbox) {
  await sandbox.files.write('/tmp/hostage.py', HOSTAGE)
  await sandbox.commands.run('nohup python3 /tmp/hostage.py >/tmp/hostage.log 2>&1 &', { ...asRoot, background: true })
  // An envd that was stopped does not tell any more.
  await eventually('the attack', () => sandbox.files.exists('/tmp/armed', { requestTimeoutMs: 2000 * patience }).catch(() => true), 30_000, 100)
}

test('nine sandboxes that take their envds hostage are deleted together, and others do not wait', async () => {
  const hostile = await Promise.all(Array.from({ length: 9 }, () => sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })))
  await Promise.all(hostile.map(arm))
  const began = Date.now()
  const deleted = Promise.all(hostile.map((one) => server.api('DELETE', `/sandboxes/${one.sandboxId}`, undefined, { timeoutMs: 60_000 })))
  const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
  assert.equal((await other.commands.run('echo fine')).stdout, 'fine\n')
  const otherMs = Date.now() - began
  assert.deepEqual((await deleted).map((one) => one.status), Array(9).fill(204))
  assert.ok(Date.now() - began < 8000 * patience, `nine kills took ${Date.now() - began} ms`)
  assert.ok(otherMs < 5000 * patience, `somebody else waited ${otherMs} ms`)
  assert.deepEqual(await server.ids(), [other.sandboxId])
  await other.kill()
})

test('root inside gets neither envd’s descriptors nor its memory, and cannot trace it', async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
  const found = await python(sandbox, `${CALLS}
def opens(path, flags=os.O_RDONLY):
    try: os.close(os.open(path, flags)); return "opened"
    except OSError as e: return errno.errorcode[e.errno]
mine = os.fork()
if mine == 0: time.sleep(1000)
own = call(PIDFD_OPEN, mine, 0)[0]
result = {
    "envd": envd >= 0,
    "taken": [number for number, (fd, _) in taken.items() if fd >= 0],
    "refusals": sorted({error for _, error in taken.values()}),
    "trace": {name: call(PTRACE, request, 1, 0, 0) for name, request in (("attach", ATTACH), ("seize", SEIZE))},
    "files": {name: opens("/proc/1/" + name) for name in ("mem", "maps", "environ", "exe", "root", "cwd", "fd", "auxv", "ns/net", "map_files")},
    "own process": [call(PIDFD_GETFD, own, 0, 0)[0] >= 0, call(PTRACE, SEIZE, mine, 0, 0)[0], opens(f"/proc/{mine}/mem")],
    "status": open("/proc/1/status").readline(),
}
os.kill(mine, 9)
`, asRoot)
  assert.equal(found.envd, true)
  assert.deepEqual(found.taken, [], 'descriptors of envd')
  assert.deepEqual(found.refusals, ['EPERM'])
  assert.deepEqual(found.trace, { attach: [-1, 'EPERM'], seize: [-1, 'EPERM'] })
  for (const [name, outcome] of Object.entries(found.files)) assert.match(outcome, /^E(ACCES|PERM)$/, name)
  // What programs do to each other, debuggers above all, works as ever.
  assert.deepEqual(found['own process'], [true, 0, 'opened'])
  assert.match(found.status, /envd/)
  await sandbox.kill()
})

test('threads in long system calls end with their sandbox', { timeout: 300_000 * patience }, async () => {
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  await stayInKernel(sandbox, { threads: 300 })
  const answer = await server.api('DELETE', `/sandboxes/${sandbox.sandboxId}`, undefined, { timeoutMs: 60_000 })
  assert.equal(answer.status, 204, answer.text)
})
