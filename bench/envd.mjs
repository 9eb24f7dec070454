// What envd costs: commands in parallel, streamed output, many small files, itself.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { findProcesses, isEnvd } from '../tests/harness/leftovers.mjs'
import { loadSdk } from '../tests/harness/sdk.mjs'
import { repository } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const gibibyte = 1 << 30

// count runs of fn, `width` at a time; milliseconds of each and of all.
async function parallel(count, width, fn) {
  const times = []
  const began = performance.now()
  let next = 0
  await Promise.all(Array.from({ length: width }, async () => {
    while (next < count) {
      const index = next++
      const start = performance.now()
      await fn(index)
      times.push(performance.now() - start)
    }
  }))
  return { times, seconds: (performance.now() - began) / 1000 }
}

async function commands(sandbox, { show, note, spread }) {
  await parallel(20, 4, () => sandbox.commands.run('true'))
  for (const width of [1, 16, 64]) {
    const { times, seconds } = await parallel(width === 1 ? 100 : 320, width, () => sandbox.commands.run('true'))
    show(`SDK: commands.run('true'), ${width} in parallel`, spread(times))
    if (width === 16) note('SDK: commands per second on one sandbox', times.length / seconds, '/s')
  }
}

// A program that prints 1 GiB, as the SDKs ask for it, against the same program into a pipe of the host.
async function stream(server, sandbox, scratch, { measured, note }) {
  const program = `head -c ${gibibyte} /dev/zero`
  const message = Buffer.from(JSON.stringify({ process: { cmd: '/bin/bash', args: ['-l', '-c', program] } }))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  const request = path.join(scratch, 'start.request')
  fs.writeFileSync(request, Buffer.concat([head, message]))
  const headers = { 'Content-Type': 'application/connect+json', 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': sandbox.envdAccessToken ?? sandbox.connectionConfig?.sandboxHeaders?.['X-Access-Token'] ?? '' }
  const flags = Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`])
  const timed = async (fn) => {
    const began = performance.now()
    await fn()
    return (performance.now() - began) / 1000
  }
  const ours = []
  const theirs = []
  let most = 0
  for (let round = 0; round < 3; round++) {
    theirs.push(await timed(() => execute('bash', ['-c', `${program} | cat >/dev/null`])))
    const envds = findProcesses(isEnvd).map((one) => one.pid)
    const watch = setInterval(() => {
      for (const pid of envds) {
        try {
          most = Math.max(most, Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024)
        } catch { /* gone */ }
      }
    }, 50)
    ours.push(await timed(() => execute('curl', ['-sS', '--fail', '-o', '/dev/null', ...flags, '--data-binary', `@${request}`, `${server.url}/process.Process/Start`])))
    clearInterval(watch)
  }
  note('1 GiB of output through envd', Math.min(...ours), 's')
  note('1 GiB of output into a pipe of the host', Math.min(...theirs), 's')
  note('largest envd while it streams', most, 'MiB')
  measured.stream_vs_pipe = Math.min(...theirs) / Math.min(...ours)
}

async function files(sandbox, { note }) {
  const entries = Array.from({ length: 10_000 }, (_, index) => ({ path: `/home/user/many/${index % 100}/${index}.txt`, data: `file ${index}` }))
  let began = performance.now()
  await sandbox.files.write(entries)
  note('SDK: small files written in one batch', entries.length / ((performance.now() - began) / 1000), '/s')
  const { seconds } = await parallel(2000, 32, (index) => sandbox.files.read(entries[index * 5].path))
  note('SDK: small files read, 32 in parallel', 2000 / seconds, '/s')
  await sandbox.commands.run('mkdir /tmp/huge && cd /tmp/huge && seq 1 100000 | xargs touch', { timeoutMs: 120_000 })
  began = performance.now()
  const list = await sandbox.files.list('/tmp/huge', { requestTimeoutMs: 120_000 })
  if (list.length !== 100_000) throw new Error(`list has ${list.length} entries`)
  note('SDK: list of 100,000 entries', performance.now() - began, 'ms')
}

// From exec to the answer of /health, on a socket that listens before it starts, as the engine does it.
const startScript = `
import os, socket, sys, time
times = []
for _ in range(30):
    path = sys.argv[2]
    if os.path.exists(path): os.unlink(path)
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen(8)
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.dup2(server.fileno(), 3); os.set_inheritable(3, True)
        os.execv(sys.argv[1], ['envd', '--listen-fd', '3', '--tcp-port', '0'])
    client = socket.socket(socket.AF_UNIX); client.connect(path)
    client.sendall(b'GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); answer = client.recv(1000)
    times.append((time.perf_counter() - begin) * 1000)
    assert answer.startswith(b'HTTP/1.1 204'), answer
    os.kill(pid, 9); os.waitpid(pid, 0); server.close(); os.unlink(path)
print('\\n'.join(str(t) for t in times))
`

async function itself(scratch, { measured, show, spread, note }) {
  const binary = path.join(repository, 'build/envd')
  const idle = findProcesses(isEnvd).map((one) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${one.pid}/status`, 'utf8'))[1]))
  note('envd, stripped', fs.statSync(binary).size / 1024, 'KiB')
  measured.agent_idle_mib = Math.min(...idle) / 1024
  note('envd, resident when idle', Math.min(...idle), 'KiB')
  const { stdout } = await execute('python3', ['-c', startScript, binary, path.join(scratch, 'envd.sock')])
  show('envd: from exec to /health', spread(stdout.trim().split('\n').map(Number)))
}

export async function partEnvd(server, tools) {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
  await itself(tools.scratch, tools)
  await commands(sandbox, tools)
  await stream(server, sandbox, tools.scratch, tools)
  await files(sandbox, tools)
  await sandbox.kill()
}
