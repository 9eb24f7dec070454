// The benchmarks: each part measures us and a peer in turn, so that the ratio compares the same minute of
// the same machine. Absolute numbers are printed for the curious; the ratios are what targets.json speaks of.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { findProcesses, isEnvd, isOurs } from '../tests/harness/leftovers.mjs'
import { loadSdk } from '../tests/harness/sdk.mjs'
import { eventually, repository, startServer } from '../tests/harness/server.mjs'
import { partBuild } from './build.mjs'
import { partCommandLine } from './commandline.mjs'
import { partDashboard } from './dashboard.mjs'
import { layer as desktopLayer, partDesktop } from './desktop.mjs'
import { partEgress } from './egress.mjs'
import { partEnvd } from './envd.mjs'
import { partImages } from './images.mjs'
import { partIngress } from './ingress.mjs'
import { partInput } from './input.mjs'
import { partLife } from './life.mjs'
import { partLoad } from './load.mjs'
import { partList, partRecovery, partWebhooks } from './plane.mjs'
import { partNetwork } from './network.mjs'
import { partEnsure, partRuntime } from './runtime.mjs'
import { layer as interpreterLayer } from '../tests/harness/interpreter.mjs'
import { layer as browserLayer, partBrowser } from './browser.mjs'
import { partInterpreter } from './interpreter.mjs'
import { partShared } from './shared.mjs'
import { partBlank, partMany, partStart } from './start.mjs'
import { partTls, tlsArgs } from './tls.mjs'
import { podmanPeer } from './podman.mjs'
import { nginxPeer } from './nginx.mjs'

const rootfs = process.env.QUICKSAND_BASE_LAYER
const scratch = path.join(repository, 'build/bench')
const probe = path.join(scratch, 'probe')
const execute = promisify(execFile)
const targets = JSON.parse(fs.readFileSync(path.join(repository, 'bench/targets.json')))
const measured = {}
const details = {}

const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]
function spread(values) {
  const sorted = [...values].sort((a, b) => a - b)
  return { n: sorted.length, p50: at(sorted, 0.5), p90: at(sorted, 0.9), p99: at(sorted, 0.99) }
}
const ms = (value) => `${value.toFixed(2)} ms`
function show(name, { n, p50, p90, p99 }) {
  details[name] = { n, p50_ms: +p50.toFixed(3), p90_ms: +p90.toFixed(3), p99_ms: +p99.toFixed(3) }
  console.log(`  ${name.padEnd(46)} p50 ${ms(p50)}  p90 ${ms(p90)}  p99 ${ms(p99)}  (${n})`)
}
function note(name, value, unit) {
  details[name] = +value.toFixed(3)
  console.log(`  ${name.padEnd(46)} ${value.toFixed(2)} ${unit}`)
}

// Milliseconds of each run of the probe.
async function probed(...args) {
  const { stdout } = await execute(probe, args.map(String), { maxBuffer: 1 << 26 })
  return stdout.trim().split('\n').map((line) => Number(line) / 1000)
}

const bwrap = ['bwrap', '--unshare-all', '--bind', rootfs, '/', '--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '/bin/true']

async function partCreate(server) {
  const ours = []
  const theirs = []
  await probed('create', 1, server.port, server.key, 20)
  for (let round = 0; round < 5; round++) {
    theirs.push(...(await probed('spawn', 40, '/', 0, ...bwrap)))
    await sleep(200)
    ours.push(...(await probed('create', 40, server.port, server.key, 2)))
  }
  show('create (HTTP, until envd answers)', spread(ours))
  show('bwrap /bin/true, same root', spread(theirs))
  measured.create_vs_bwrap = spread(ours).p50 / spread(theirs).p50
  const podman = await podmanPeer(rootfs, scratch)
  if (podman.reason) return console.log(`  podman: not measured: ${podman.reason}`)
  try {
    const times = []
    for (let round = 0; round < 15; round++) times.push(await podman.createAndStart())
    show('podman create+start (API socket)', spread(times))
    measured.create_vs_podman = spread(ours).p50 / spread(times).p50
  } finally {
    await podman.stop()
  }
}

async function partSdk(server) {
  const sdk = await loadSdk(server)
  const first = async () => {
    const began = performance.now()
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 })
    const created = performance.now()
    await sandbox.commands.run('echo hi')
    const ended = performance.now()
    return { sandbox, create: created - began, total: ended - began }
  }
  const sequential = []
  for (let round = 0; round < 30; round++) {
    const one = await first()
    sequential.push(one)
    await one.sandbox.kill()
  }
  show('SDK: create, sequential', spread(sequential.slice(3).map((one) => one.create)))
  show('SDK: create to first command, sequential', spread(sequential.slice(3).map((one) => one.total)))
  const results = await Promise.allSettled(Array.from({ length: 100 }, first))
  const good = results.filter((one) => one.status === 'fulfilled').map((one) => one.value)
  show('SDK: create, 100 at once', spread(good.map((one) => one.create)))
  show('SDK: create to first command, 100 at once', spread(good.map((one) => one.total)))
  measured.concurrent_failed = results.length - good.length
  for (const one of results) if (one.status === 'rejected') console.log(`  failed: ${one.reason.message}`)
  await Promise.all(good.map((one) => one.sandbox.kill()))
}

async function partCommand(server) {
  const box = (await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 })).body
  const ours = []
  const theirs = []
  for (let round = 0; round < 5; round++) {
    theirs.push(...(await probed('spawn', 40, rootfs, 1000, '/bin/bash', '-l', '-c', 'true')))
    ours.push(...(await probed('run', 40, server.port, box.sandboxID, box.envdAccessToken, 'true')))
  }
  show("command round trip, bash -l -c 'true'", spread(ours))
  show('the same spawned directly in the same root', spread(theirs))
  measured.command_vs_spawn = spread(ours).p50 / spread(theirs).p50
  await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
}

// Largest growth of resident memory of any of our processes while fn runs, in MiB.
async function growth(fn) {
  const resident = () => new Map(findProcesses((one) => isOurs(one) || isEnvd(one)).map((one) => {
    try {
      return [one.pid, Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${one.pid}/status`, 'utf8'))[1]) / 1024]
    } catch {
      return [one.pid, 0]
    }
  }))
  const before = resident()
  let most = 0
  const timer = setInterval(() => {
    for (const [pid, now] of resident()) if (before.has(pid)) most = Math.max(most, now - before.get(pid))
  }, 30)
  await fn()
  clearInterval(timer)
  return most
}

async function partTransfer(server) {
  const box = (await server.api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 })).body
  const source = path.join(scratch, 'gigabyte')
  const copy = path.join(scratch, 'copy')
  // The disk in question is the one the sandbox writes to.
  const onDisk = path.join(server.data, 'pool', 'copy')
  await execute('dd', ['if=/dev/urandom', `of=${source}`, 'bs=1M', 'count=1024', 'status=none'])
  await execute('sync')
  const headers = ['-H', `X-Access-Token: ${box.envdAccessToken}`, '-H', `E2b-Sandbox-Id: ${box.sandboxID}`, '-H', 'E2b-Sandbox-Port: 49983']
  const curl = (...args) => execute('curl', ['-sS', '--fail', ...headers, ...args])
  const url = `${server.url}/files?path=/home/user/gigabyte`
  const timed = async (fn) => {
    await execute('sync')
    const began = performance.now()
    await fn()
    return (performance.now() - began) / 1000
  }
  const times = { cp: [], up: [], down: [] }
  let most = 0
  for (let round = 0; round < 3; round++) {
    fs.rmSync(copy, { force: true })
    times.cp.push(await timed(() => execute('cp', ['--reflink=never', '--sparse=never', source, onDisk])))
    fs.rmSync(onDisk, { force: true })
    most = Math.max(most, await growth(async () => {
      times.up.push(await timed(() => curl('-X', 'POST', '-H', 'Content-Type: application/octet-stream', '-H', 'Expect:', '-T', source, url)))
      times.down.push(await timed(() => curl('-o', copy, url)))
    }))
  }
  await execute('cmp', [source, copy])
  fs.rmSync(copy, { force: true })
  fs.rmSync(source, { force: true })
  const best = (list) => Math.min(...list)
  note('cp of 1 GiB', best(times.cp), 's')
  note('upload of 1 GiB', best(times.up), 's')
  note('download of 1 GiB', best(times.down), 's')
  measured.upload_vs_cp = best(times.cp) / best(times.up)
  measured.download_vs_cp = best(times.cp) / best(times.down)
  measured.transfer_growth_mib = most
  await server.api('DELETE', `/sandboxes/${box.sandboxID}`)
}

function availableMib() {
  fs.writeFileSync('/proc/sys/vm/drop_caches', '3')
  return Number(/MemAvailable:\s+(\d+)/.exec(fs.readFileSync('/proc/meminfo', 'utf8'))[1]) / 1024
}

async function partThousand(server) {
  const settle = () => sleep(3000)
  await execute('sync')
  await settle()
  const start = availableMib()
  await probed('hold', 10, server.port, server.key)
  const few = await probed('create', 60, server.port, server.key, 5)
  show('create with 10 live', spread(few))
  for (let held = 10; held < 1000; held += 110) await probed('hold', Math.min(110, 1000 - held), server.port, server.key)
  await settle()
  const left = availableMib()
  const live = Number((await server.api('GET', '/v2/sandboxes?limit=1')).headers['x-total-running'] ?? 1000)
  note('live sandboxes', live, '')
  measured.idle_memory_mib = (start - left) / live
  await sleep(1000)
  const many = await probed('create', 60, server.port, server.key, 5)
  show('create with 1000 live', spread(many))
  measured.create_1000_vs_10 = spread(many).p50 / spread(few).p50
  const began = performance.now()
  let ids
  do {
    ids = (await server.api('GET', '/v2/sandboxes?limit=100')).body.map((one) => one.sandboxID)
    await Promise.all(ids.map((id) => server.api('DELETE', `/sandboxes/${id}`)))
  } while (ids.length)
  note('killing all of them', (performance.now() - began) / 1000, 's')
}

async function wrk(url) {
  const { stdout } = await execute('wrk', ['-t', '2', '-c', '64', '-d', '4s', url])
  if (/Non-2xx/.test(stdout)) throw new Error(`${url}: ${stdout}`)
  return Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)[1])
}

// The same by HTTP/2: 16 connections with 32 streams each.
async function h2load(url) {
  const { stdout } = await execute('h2load', ['-t', '2', '-c', '16', '-m', '32', '-D', '4', url])
  if (!/ 0 failed, 0 errored/.test(stdout)) throw new Error(`${url}: ${stdout}`)
  return Number(/finished in .*?, ([\d.]+) req\/s/.exec(stdout)[1])
}

async function partHealth(server) {
  const nginx = await nginxPeer(scratch)
  const ours = []
  const theirs = []
  const ours2 = []
  const theirs2 = []
  try {
    for (let round = 0; round < 3; round++) {
      theirs.push(await wrk(nginx.url))
      ours.push(await wrk(`${server.url}/health`))
      theirs2.push(await h2load(nginx.url2))
      ours2.push(await h2load(`${server.url}/health`))
    }
  } finally {
    await nginx.stop()
  }
  const middle = (list) => [...list].sort((a, b) => a - b)[1]
  note('GET /health', middle(ours) / 1000, 'k requests/s')
  note('nginx, static reply', middle(theirs) / 1000, 'k requests/s')
  measured.health_vs_nginx = middle(ours) / middle(theirs)
  note('GET /health by HTTP/2', middle(ours2) / 1000, 'k requests/s')
  note('nginx by HTTP/2', middle(theirs2) / 1000, 'k requests/s')
  measured.health2_vs_nginx = middle(ours2) / middle(theirs2)
}

function verdict(name) {
  const { at_most: most, at_least: least } = targets[name]
  const value = measured[name]
  if (value === undefined) return 'not measured'
  return (most !== undefined ? value <= most : value >= least) ? 'reached' : 'not reached'
}

function table() {
  const rows = Object.entries(targets).map(([name, target]) => {
    const value = measured[name]
    const goal = target.at_most !== undefined ? `≤ ${target.at_most}` : `≥ ${target.at_least}`
    return `| ${target.text} | ${goal} | ${value === undefined ? '–' : +value.toFixed(3)} | ${verdict(name)} |`
  })
  const cpu = /model name\s*:\s*(.*)/.exec(fs.readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown processor'
  const lines = ['| what | goal | measured | |', '| --- | --- | --- | --- |', ...rows, '', `Linux ${os.release()}, ${os.cpus().length} × ${cpu}; \`make bench\` measures again. Milliseconds:`, '', '| what | p50 | p90 | p99 |', '| --- | --- | --- | --- |']
  for (const [name, value] of Object.entries(details)) if (value.p50_ms) lines.push(`| ${name} | ${value.p50_ms} | ${value.p90_ms} | ${value.p99_ms} |`)
  return lines.join('\n')
}

function updateReadme(text) {
  const file = path.join(repository, 'docs/performance.md')
  if (!fs.existsSync(file)) return
  const old = fs.readFileSync(file, 'utf8')
  const marked = /(<!-- bench -->\n)[\s\S]*(<!-- \/bench -->)/
  if (marked.test(old)) fs.writeFileSync(file, old.replace(marked, (_, begin, end) => `${begin}${text}\n${end}`))
}

const parts = { create: partCreate, sdk: partSdk, command: partCommand, transfer: partTransfer, thousand: partThousand, health: partHealth, tls: partTls, envd: partEnvd, input: partInput, commandline: partCommandLine, ingress: partIngress, life: partLife, list: partList, recovery: partRecovery, webhooks: partWebhooks, ensure: partEnsure, runtime: partRuntime, load: partLoad, shared: partShared, build: partBuild, start: partStart, blank: partBlank, many: partMany, images: partImages, network: partNetwork, egress: partEgress, interpreter: partInterpreter, desktop: partDesktop, browser: partBrowser, dashboard: partDashboard }
// cp's page cache is not limited: a sandbox of 512 MB would have to write half of the file to disk first.
const runtimeConfig = path.join(scratch, 'runtime.json')
fs.mkdirSync(scratch, { recursive: true })
fs.writeFileSync(runtimeConfig, JSON.stringify({ sandbox_agent: { program: path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent') } }))
const serverArgs = { get ingress() { return ['--connections', '65536', '--connections-per-address', '0', '--connections-per-sandbox', '0', ...tlsArgs(scratch)] }, get tls() { return tlsArgs(scratch) }, blank: ['--warm', '0'], shared: ['--warm', '0'], load: ['--create-queue', '64'], runtime: ['--runtime-config', runtimeConfig], transfer: ['--memory', '4096'], webhooks: ['--webhook-pause', '1'] }
const serverEnv = { interpreter: { QUICKSAND_BASE_LAYER: interpreterLayer }, desktop: { QUICKSAND_BASE_LAYER: desktopLayer }, browser: { QUICKSAND_BASE_LAYER: browserLayer } }
// The part of envd was called agent once.
const asked = process.argv.slice(2).map((name) => (name === 'agent' ? 'envd' : name))
const wanted = asked.length ? asked : Object.keys(parts)
let failed = 0
for (const name of wanted) {
  console.log(`${name}:`)
  let server
  try {
    server = await startServer({ asShipped: true, env: serverEnv[name] ?? {}, args: ['--log', 'warn', ...(serverArgs[name] ?? [])] })
    await eventually('the warm pool', async () => findProcesses(isEnvd).length > 0, 5000).catch(() => {})
    await sleep(1000)
    await parts[name](server, { measured, show, note, spread, scratch })
  } catch (error) {
    failed++
    console.log(`  failed: ${error.message.slice(0, 2000)}`)
  }
  try {
    await server?.destroy()
  } catch (error) {
    console.log(`  ${error.message.slice(0, 1500)}`)
  }
}
console.log('\nratios:')
for (const name of Object.keys(targets)) {
  if (measured[name] === undefined && wanted.length < Object.keys(parts).length) continue
  const { at_most: most, at_least: least, text } = targets[name]
  console.log(`  ${verdict(name).padEnd(12)} ${String(measured[name] === undefined ? '–' : +measured[name].toFixed(3)).padStart(8)} (goal ${most !== undefined ? `≤ ${most}` : `≥ ${least}`})  ${text}`)
}
if (wanted.length === Object.keys(parts).length) {
  fs.writeFileSync(path.join(repository, 'build/bench.json'), JSON.stringify({ machine: { kernel: os.release(), cpus: os.cpus().length }, measured, targets, details }, null, 2) + '\n')
  updateReadme(table())
}
process.exit(failed ? 1 : 0)
