// The published SDK, bound to a server under test.
import { createRequire } from 'node:module'
import path from 'node:path'
import { patience, repository } from './server.mjs'

// Those of the given SDK versions that SDK_VERSION allows: that one, or all of them when it is not set.
export const only = (list) => list.filter((version) => !process.env.SDK_VERSION || version === process.env.SDK_VERSION)

// SDK versions that the compatibility tests drive; tests/compat/install.sh puts them into build/npm.
export const versions = only(['2.14.0', '2.19.0', '2.27.1', '2.45.0', 'latest'])

export async function loadSdk(server, version = 'latest') {
  Object.assign(process.env, server.clientEnv())
  delete process.env.E2B_DEBUG
  delete process.env.E2B_DOMAIN
  const require = createRequire(path.join(repository, 'build/npm', version, 'index.js'))
  return require('e2b')
}

// A command's time limit on a slow machine: the SDK's own is a minute, 0 is none.
const patiently = ({ timeoutMs = 60_000, ...options }) => ({ ...options, timeoutMs: timeoutMs * patience })

// Runs Python inside a sandbox and gives the value of its last `result = …`; for probing from within.
export async function python(sandbox, code, options = {}) {
  const source = `import json, os, sys\nresult = None\n${code}\nprint("\\n@@" + json.dumps(result))\n`
  const script = `/tmp/probe-${Math.random().toString(36).slice(2)}.py`
  await sandbox.files.write(script, source)
  const run = await sandbox.commands.run(`python3 ${script}`, patiently(options)).catch((error) => error)
  const line = /^@@(.*)$/m.exec(run.stdout ?? '')
  if (!line) throw new Error(`probe failed: ${run.message ?? ''} exit ${run.exitCode}\n${run.stdout}\n${run.stderr}`)
  return JSON.parse(line[1])
}

// Like commands.run, but a non-zero exit code is a result and not an exception.
export async function shell(sandbox, command, options = {}) {
  try {
    return await sandbox.commands.run(command, patiently(options))
  } catch (error) {
    if (error.exitCode === undefined) throw error
    return { exitCode: error.exitCode, stdout: error.stdout, stderr: error.stderr, error: error.error }
  }
}

// Threads in reads of 2 GB each (less where copying is slow), one after the other: neither a freeze nor a signal comes
// through before a read has ended, and they share the sandbox's processors. `shared`: into memory that the kernel does
// not take from the dying. Gives the command's handle once all of them read.
export async function stayInKernel(sandbox, { threads, shared = false }) {
  const pieces = Math.max(2, Math.ceil(32 / patience))
  await sandbox.files.write(
    '/home/user/stay.py',
    `
import mmap, os, threading
fd = os.open("/dev/shm/zeros", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 2 << 30)
buffers = [memoryview(${shared ? 'mmap.mmap(-1, 64 << 20)' : 'bytearray(64 << 20)'})] * ${pieces}
threading.stack_size(65536)
def stay():
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19) # those that are still to begin go first
    while True: os.preadv(fd, buffers, 0)
for _ in range(${threads}): threading.Thread(target=stay).start()
print("begun", flush=True)
`,
  )
  let handle
  await new Promise((begun, fail) => {
    sandbox.commands.run('python3 /home/user/stay.py', { background: true, timeoutMs: 0, onStdout: begun, onStderr: (text) => fail(new Error(text)) }).then((one) => {
      handle = one
      one.wait().catch(fail)
    }, fail)
  })
  return handle
}
