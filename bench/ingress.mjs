// The way in, by HTTP and by HTTPS: requests, a large download and idle WebSockets through the proxy, against nginx as a proxy
// before the same server on the host (it cannot reach into a sandbox).
import { execFile, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import tls from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { loadSdk } from '../tests/harness/sdk.mjs'
import { eventually, repository } from '../tests/harness/server.mjs'
import { nginxProxy } from './nginx.mjs'
import { tlsOfNginx, tlsUrl } from './tls.mjs'

const execute = promisify(execFile)
const INSIDE = 8000
const WEBSOCKETS = 10_000

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]
const residentKb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1])

async function requests(url, headers) {
  const { stdout } = await execute('wrk', ['-t', '2', '-c', '32', '-d', '4s', ...headers.flatMap((one) => ['-H', one]), url])
  if (/Non-2xx/.test(stdout)) throw new Error(stdout)
  return Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)[1])
}

// MiB per second of 1 GiB.
async function download(url, headers) {
  const { stdout } = await execute('curl', ['-sSk', '-o', '/dev/null', '-w', '%{speed_download} %{size_download}', ...headers.flatMap((one) => ['-H', one]), `${url}big`])
  const [speed, size] = stdout.split(' ').map(Number)
  if (size !== 2 ** 30) throw new Error(`${size} bytes came`)
  return speed / 2 ** 20
}

// As many as are wanted, open and silent; gives a function that closes them.
async function websockets(connect, headers, count) {
  const open = []
  let waiting = 0
  const one = () =>
    new Promise((done, fail) => {
      const socket = connect()
      socket.on('error', fail)
      socket.write(`GET /ws HTTP/1.1\r\nHost: localhost\r\n${headers.map((text) => `${text}\r\n`).join('')}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`)
      socket.once('data', (chunk) => (String(chunk).startsWith('HTTP/1.1 101') ? done(socket) : fail(new Error(String(chunk)))))
      open.push(socket)
    })
  await Promise.all(Array.from({ length: 50 }, async () => {
    while (waiting++ < count) await one()
  }))
  return () => open.forEach((socket) => socket.destroy())
}

async function serveInside(server, program) {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 3_600_000 })
  await sandbox.files.write('/home/user/serve', new Uint8Array(fs.readFileSync(program)).buffer)
  await sandbox.commands.run(`chmod +x serve && exec ./serve ${INSIDE}`, { background: true, timeoutMs: 0 })
  await eventually('the server inside', async () => (await server.sandbox(sandbox.sandboxId, INSIDE, '/')).text === 'ok')
  return sandbox.sandboxId
}

// Ours and theirs in turn; the middle of the ratios of each turn counts.
async function compare(measure, ours, theirs) {
  const pairs = []
  for (let round = 0; round < 3; round++) pairs.push([await measure(...theirs), await measure(...ours)].reverse())
  return { ours: middle(pairs.map((one) => one[0])), theirs: middle(pairs.map((one) => one[1])), ratio: middle(pairs.map(([our, their]) => our / their)) }
}

async function against(server, nginx, headers, { measured, note }) {
  for (const [suffix, by, ours, theirs] of [['', '', `${server.url}/`, nginx.url], ['_tls', ' by HTTPS', tlsUrl, nginx.urlTls]]) {
    const rate = await compare(requests, [ours, headers], [theirs, []])
    const down = await compare(download, [ours, headers], [theirs, []])
    note(`requests into a sandbox${by}`, rate.ours / 1000, 'k requests/s')
    note(`nginx as a proxy${by}`, rate.theirs / 1000, 'k requests/s')
    note(`download of 1 GiB out of a sandbox${by}`, down.ours, 'MiB/s')
    note(`through nginx${by}`, down.theirs, 'MiB/s')
    measured[`ingress${suffix}_requests_vs_nginx`] = rate.ratio
    measured[`ingress${suffix}_download_vs_nginx`] = down.ratio
  }
}

export async function partIngress(server, tools) {
  const { scratch } = tools
  const program = path.join(scratch, 'serve')
  execFileSync('musl-gcc', ['-static', '-O2', '-D_GNU_SOURCE', path.join(repository, 'bench/serve.c'), '-o', program])
  const id = await serveInside(server, program)
  const headers = [`E2b-Sandbox-Id: ${id}`, `E2b-Sandbox-Port: ${INSIDE}`]
  const beside = spawn(program, ['8096'], { stdio: 'ignore' })
  const nginx = await nginxProxy(scratch, 8096, tlsOfNginx(scratch))
  try {
    await against(server, nginx, headers, tools)
  } finally {
    await nginx.stop()
    beside.kill()
  }
  const { hostname, port } = new URL(tlsUrl)
  await idle(server, headers, () => net.connect(server.port, server.host), { ...tools, key: 'websocket_kb', by: '' })
  await idle(server, headers, () => tls.connect({ port, host: hostname, rejectUnauthorized: false }), { ...tools, key: 'tls_idle_kb', by: ' by HTTPS' })
}

// Two descriptors of the server for each, as far as this machine lets it have so many.
function countFor(server) {
  const limit = Number(/Max open files\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.servingPid}/limits`, 'utf8'))[1])
  return Math.min(WEBSOCKETS, Math.floor((limit - 1000) / 2))
}

async function idle(server, headers, connect, { measured, note, key, by }) {
  const count = countFor(server)
  ;(await websockets(connect, headers, 500))() // what the first ones cost is not theirs
  await sleep(1000)
  const before = residentKb(server.servingPid)
  const close = await websockets(connect, headers, count)
  const each = (residentKb(server.servingPid) - before) / count
  close()
  await sleep(1000)
  note(`memory of one of ${count} idle WebSockets${by}`, each, 'kB')
  measured[key] = each
}
