// Starts that fail: the reason is told, no process crashes, nothing is left on the host.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { cgroups, findProcesses, isEnvd, isOurs, links, loopDevices, mounts } from '../harness/leftovers.mjs'

const ROUNDS = Number(process.env.FAILED_STARTS ?? 60) // more of them, by hand, when something about starts has changed
const LIMIT_MS = 90_000

let home, data
before(() => {
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-failed-'))
  fs.chmodSync(home, 0o755)
  data = path.join(home, 'data')
  fs.writeFileSync(path.join(home, 'bad.json'), '{"providers": 7}')
})
after(() => fs.rmSync(home, { recursive: true, force: true }))

// Until it ends: {code, signal, log}. `meanwhile` gets the process.
function serve(args, meanwhile = () => {}) {
  const env = { PATH: process.env.PATH, HOME: home, QUICKSAND_API_KEY: `e2b_${'0'.repeat(40)}` }
  for (const name of ['QUICKSAND_BASE_LAYER', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'LSAN_OPTIONS']) if (process.env[name]) env[name] = process.env[name]
  const child = spawn(binary, ['serve', '--listen', '127.0.0.1:0', '--data', data, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  child.stdout.on('data', (chunk) => (log += chunk))
  child.stderr.on('data', (chunk) => (log += chunk))
  meanwhile(child)
  const limit = setTimeout(() => child.kill('SIGKILL'), 60_000 * patience)
  return new Promise((done) => child.once('close', (code, signal) => done({ code, signal, log }))).finally(() => clearTimeout(limit))
}

function left() {
  // The first thing that it makes.
  const file = path.join(data, 'instance')
  const instance = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').trim() : 'none yet'
  return [
    ...findProcesses((one) => isOurs(one) || isEnvd(one)).map((one) => `process ${one.pid} ${one.cmdline}`),
    ...mounts().filter((mount) => mount.startsWith(home)).map((mount) => `mount ${mount}`),
    ...cgroups(instance).map((group) => `cgroup ${group}`),
    ...loopDevices(home).map((device) => `loop device ${device}`),
    ...links().filter((link) => link.includes(instance)).map((link) => `link ${link}`),
    ...(fs.existsSync(path.join(data, 'run')) ? fs.readdirSync(path.join(data, 'run')) : []).filter((name) => /\.(box|sock|still|new)$/.test(name)),
  ]
}

// A box has 20 letters and digits. Anything else, or a removal that failed, is memory that was freed too early.
function assertSound({ code, signal, log }, round) {
  assert.equal(signal, null, `start ${round} ended by ${signal}:\n${log}`)
  assert.doesNotMatch(log, /Sanitizer|runtime error|removal:|signal 11|Bad file descriptor/, `start ${round}, status ${code}`)
  for (const [, name] of log.matchAll(/box=(\S*)/g)) assert.match(name, /^[a-z0-9]{20}$/, `start ${round}:\n${log}`)
}

test('a refused configuration, again and again, while boxes are made ahead', async () => {
  const end = Date.now() + LIMIT_MS * patience
  let round = 0
  for (; round < ROUNDS && Date.now() < end; round++) {
    const result = await serve(['--warm', '8', '--runtime-config', path.join(home, 'bad.json')])
    assertSound(result, round)
    assert.equal(result.code, 78, result.log)
    assert.match(result.log, /bad\.json/)
    assert.deepEqual(left(), [], `start ${round}:\n${result.log}`)
  }
  assert.ok(round >= Math.min(ROUNDS, 20), `only ${round} starts in ${LIMIT_MS} ms`)
})

test('stopped at any moment of its start', async () => {
  for (let round = 0; round < 20; round++) {
    const result = await serve(['--warm', '8'], (child) => setTimeout(() => child.kill('SIGTERM'), round * 15))
    // Before it listens to signals there is nothing that it would have to take away.
    if (result.signal !== 'SIGTERM') assertSound(result, round)
    assert.deepEqual(left(), [], `start ${round}:\n${result.log}`)
  }
})

test('a data directory without room', async () => {
  const mine = data
  data = path.join(home, 'small')
  fs.mkdirSync(data)
  assert.equal(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'none', data]).status, 0)
  try {
    const result = await serve(['--warm', '8'])
    assertSound(result, 'small')
    assert.equal(result.code, 1, result.log)
    assert.match(result.log, /space|MiB|full/, result.log)
    assert.deepEqual(left().filter((one) => one !== `mount ${data}`), [], result.log)
  } finally {
    spawnSync('umount', [data])
    data = mine
  }
})

test('a second server on the same data is refused, and the first does not notice', async () => {
  const first = await startServer({ args: ['--warm', '2'] })
  const mine = data
  try {
    const { sandboxID } = await first.create()
    data = first.data
    const second = await serve(['--warm', '8'])
    assertSound(second, 'second')
    assert.equal(second.code, 1, second.log)
    assert.match(second.log, /another server uses/)
    assert.deepEqual(await first.ids(), [sandboxID])
    assert.ok(fs.existsSync(path.join(data, 'run', `${sandboxID}.sock`)))
  } finally {
    data = mine
    await first.destroy()
  }
})

test('a server that is killed at once, over and over, leaves a warden that goes on', async () => {
  const server = await startServer({ args: ['--warm', '8'] })
  try {
    for (let round = 0; round < 5; round++) {
      const pid = server.servingPid
      assert.notEqual(pid, server.child.pid)
      process.kill(pid, 'SIGKILL')
      await eventually('the next server', async () => server.servingPid !== pid && server.servingPid !== server.child.pid && (await server.api('GET', '/health').catch(() => ({ status: 599 }))).status < 300, 30_000)
    }
    const { sandboxID } = await server.create()
    assert.deepEqual(await server.ids(), [sandboxID])
    assertSound({ code: null, signal: server.child.signalCode, log: server.log.replaceAll(/the server ended \(signal 9\)/g, '') }, 'killed')
  } finally {
    await server.destroy()
  }
})

test('a folder on the way that the server may not pass is named, with what to do', async () => {
  fs.chmodSync(home, 0o700)
  try {
    const { code, log } = await serve([])
    assert.notEqual(code, 0)
    assert.match(log, new RegExp(`may not pass '${home}': 'chmod o\\+x' that folder, or choose another data directory`))
  } finally {
    fs.chmodSync(home, 0o755)
  }
  assert.equal(spawnSync(binary, ['down', '--data', data]).status, 0)
  await eventually('nothing is left', () => left().length === 0)
})
