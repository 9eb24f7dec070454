// The way out: through the rules of the gateway against a plain veth, through the filtering proxy against nginx, names
// against dnsmasq, and how long a change of the policy takes until it holds.
//
// Programs run in the network of a sandbox but outside of it otherwise, as those that they are compared with do: neither its
// system-call filter nor its share of the processors is measured.
import fs from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { findProcesses, isEnvd } from '../tests/harness/leftovers.mjs'
import { loadSdk } from '../tests/harness/sdk.mjs'
import { eventually } from '../tests/harness/server.mjs'
import { compile, FAR, NAME, PORT, reachFrom, startOutside, startPeers } from './outside.mjs'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 7)
const CONNECTIONS = 1500 // of the 4,096 that a sandbox may have tracked at a time, those that just ended included
const WINDOW = 32
const SECONDS = 1
const NAMED = { allowOut: [NAME], denyOut: ['0.0.0.0/0'] }
const RANGES = { allowOut: [FAR], denyOut: ['0.0.0.0/0'] }

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

const envdOf = (id) => findProcesses(isEnvd).find(({ pid }) => fs.readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(id))

// peers: who is led to nginx and dnsmasq instead of to us.
async function sandboxOf(server, program, network, peers) {
  const sdk = await loadSdk(server)
  const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000, ...(network && { network }) })
  const { pid } = envdOf(sandbox.sandboxId)
  if (network?.allowOut?.includes(NAME)) await sandbox.commands.run(`getent ahostsv4 ${NAME}`)
  peers?.take(pid)
  sandbox.reach = (...args) => reachFrom(pid, program, args)
  return sandbox
}

// One of ours and one of theirs in turn, as often as there are rounds; each pair gives a ratio, and the middle one counts.
async function compare(name, unit, { ours, theirs, measured, note, key, scale = 1 }) {
  const pairs = []
  for (let round = 0; round < ROUNDS; round++) {
    const first = round % 2 ? await ours() : await theirs()
    const second = round % 2 ? await theirs() : await ours()
    pairs.push(round % 2 ? [first, second] : [second, first])
  }
  note(`${name[0]}`, middle(pairs.map((one) => one[0])) / scale, unit)
  note(`${name[1]}`, middle(pairs.map((one) => one[1])) / scale, unit)
  measured[key] = middle(pairs.map(([our, their]) => our / their))
}

// A sandbox of its own for each round of connections: the kernel remembers them for a while.
const freshly = (server, program, network, args, peers) => async () => {
  const sandbox = await sandboxOf(server, program, network, peers)
  try {
    return Number(await sandbox.reach(...args))
  } finally {
    await sandbox.kill()
  }
}

async function measureNat(server, program, outside, tools) {
  const rate = ['rate', FAR, PORT, NAME, CONNECTIONS, WINDOW]
  const stream = ['stream', FAR, PORT, NAME, SECONDS]
  await compare(['connections out of a sandbox', 'by a plain veth'], 'k/s', { ...tools, key: 'nat_connections_vs_veth', scale: 1000, ours: freshly(server, program, null, rate), theirs: () => outside.run(...rate) })
  await compare(['stream into a sandbox from outside', 'by a plain veth'], 'MiB/s', { ...tools, key: 'nat_stream_vs_veth', ours: freshly(server, program, null, stream), theirs: () => outside.run(...stream) })
}

// Theirs stand where ours do: the way there and back is the same.
async function measureProxies(server, program, tools) {
  const peers = startPeers(server, tools.scratch)
  const measures = {
    filter_connections_vs_nginx: [['connections through the filtering proxy', 'through nginx (ssl_preread)'], 'k/s', 1000, ['rate', FAR, PORT, NAME, CONNECTIONS, WINDOW]],
    filter_stream_vs_nginx: [['stream through the filtering proxy', 'through nginx (ssl_preread)'], 'MiB/s', 1, ['stream', FAR, PORT, NAME, SECONDS]],
    dns_vs_dnsmasq: [['DNS questions through our resolver', 'through dnsmasq'], 'k/s', 1000, ['dns', '203.0.113.53', NAME, SECONDS, WINDOW]],
  }
  try {
    await sleep(500) // they start
    for (const [key, [names, unit, scale, args]] of Object.entries(measures))
      await compare(names, unit, { ...tools, key, scale, ours: freshly(server, program, NAMED, args), theirs: freshly(server, program, NAMED, args, peers) })
  } finally {
    await peers.stop()
  }
}

// Milliseconds from the request until the last byte of an open connection, and until the last new one that was answered.
async function changeOnce(server, program, network) {
  const sandbox = await sandboxOf(server, program, network)
  try {
    const running = sandbox.reach('until', FAR, PORT, NAME, 2)
    await sleep(1000)
    const began = Date.now()
    const { status } = await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, { allowOut: network.allowOut.includes(NAME) ? ['other.test'] : ['203.0.113.9'], denyOut: ['0.0.0.0/0'] })
    if (status !== 204) throw new Error(`PUT: ${status}`)
    const out = await running
    const ends = [/open ([\d.]+)/, /new ([\d.]+)/].map((text) => Number(text.exec(out)[1]) * 1000)
    if (ends.some((end) => end < began - 500)) throw new Error(`nothing was open when the policy changed: ${out}`)
    return Math.max(0, ...ends.map((end) => end - began))
  } finally {
    await sandbox.kill()
  }
}

async function measureChange(server, program, { measured, show, spread }) {
  const times = { names: [], ranges: [] }
  for (let round = 0; round < ROUNDS; round++) {
    times.names.push(await changeOnce(server, program, NAMED))
    times.ranges.push(await changeOnce(server, program, RANGES))
  }
  show('change of names until it holds, open connections too', spread(times.names))
  show('change of ranges, likewise', spread(times.ranges))
  measured.policy_holds_ms = Math.max(spread(times.names).p50, spread(times.ranges).p50)
}

export async function partEgress(server, tools) {
  const program = compile(tools.scratch)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  const outside = await startOutside(program)
  try {
    await measureNat(server, program, outside, tools)
    await measureProxies(server, program, tools)
    await measureChange(server, program, tools)
  } finally {
    await outside.stop()
  }
}
