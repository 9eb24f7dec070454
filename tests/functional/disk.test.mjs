// Disks that are full, broken or read-only, a damaged store, two servers for one directory.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { discard, fill, onSmallDisk, run } from '../harness/small-disk.mjs'

const file = (server, box, method, body, name = 'kept') =>
  server.sandbox(box.sandboxID, 49983, `/files?path=/home/user/${name}&username=user`, {
    method,
    body,
    headers: { 'Content-Type': 'application/octet-stream', ...(box.envdAccessToken ? { 'X-Access-Token': box.envdAccessToken } : {}) },
  })

// Starts on a data directory that is there, expecting a refusal: its exit status and what it says.
function refusal(server, extra = []) {
  const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_API_KEY: server.key, QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER }
  return spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', server.data, ...extra], { env, encoding: 'utf8', timeout: 30_000 * patience })
}

describe('the store', () => {
  let server
  before(async () => {
    server = await startServer({ args: ['--warm', '0'] })
  })
  after(() => server.destroy())
  const store = () => path.join(server.data, 'store/quicksand.db')

  test('a second server on one data directory refuses', async () => {
    const second = refusal(server)
    assert.notEqual(second.status, 0)
    assert.match(second.stderr, /another server uses/)
    assert.equal((await server.api('GET', '/sandboxes')).status, 200)
  })

  test('a damaged one is refused with what to do, sandboxes go on, and a copy brings everything back', async () => {
    const box = await server.create({ timeout: 600 * patience, metadata: { kept: 'yes' } })
    assert.equal((await file(server, box, 'POST', 'file')).status, 200)
    await server.stop()
    fs.rmSync(`${store()}.backup`)
    await server.start() // makes a copy that knows the sandbox
    await eventually('a copy', () => fs.existsSync(`${store()}.backup`))
    await server.stop()
    const good = fs.readFileSync(store())
    for (const damage of [() => fs.truncateSync(store(), good.length >> 1), () => fs.writeFileSync(store(), Buffer.concat([good.subarray(0, 4096), Buffer.alloc(good.length - 4096, 'x')])), () => fs.writeFileSync(store(), 'junk'.repeat(4096))]) {
      damage()
      const refused = refusal(server)
      assert.notEqual(refused.status, 0)
      assert.match(refused.stderr, /damaged.*backup/s)
    }
    // As docs/operate.md says.
    for (const name of fs.readdirSync(path.dirname(store()))) if (/^quicksand\.db(-.*)?$/.test(name)) fs.rmSync(path.join(path.dirname(store()), name))
    run('cp', '-p', `${store()}.backup`, store())
    await server.start()
    assert.equal((await file(server, box, 'GET')).text, 'file')
    assert.deepEqual((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.metadata, { kept: 'yes' })
  })
})

async function pausedWithFile(server) {
  const box = await server.create({ timeout: 600 * patience })
  assert.equal((await file(server, box, 'POST', 'file')).status, 200)
  assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/pause`, {})).status, 204)
  return box
}

async function assertKept(server, box) {
  assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/connect`, { timeout: 600 * patience })).status, 201)
  assert.equal((await file(server, box, 'GET')).text, 'file')
}

test('a data directory whose disk is full for a while: sandboxes can be extended, paused, resumed, ended, and found again', { timeout: 120_000 * patience }, async () => {
  const server = await onSmallDisk(6000)
  const change = async (box, method, what, body) => {
    const answer = await server.api(method, `/sandboxes/${box.sandboxID}${what}`, body)
    assert.ok(answer.status < 300, `${method} ${what}: ${answer.status} ${answer.text}`)
  }
  try {
    const box = await pausedWithFile(server)
    const [runs, ends, cold] = await Promise.all([1, 2, 3].map(() => server.create({ timeout: 600 * patience })))
    assert.equal((await file(server, cold, 'POST', 'file')).status, 200)
    await change(cold, 'POST', '/pause', { memory: false })
    const empty = fill(server)
    // A body without a length lies in a file of this disk meanwhile.
    const upload = await server.api('PUT', `/api/v1/sandboxes/${runs.sandboxID}/files?path=/tmp/x`, Buffer.alloc(8 << 20), { headers: { 'Transfer-Encoding': 'chunked' } })
    assert.equal(upload.status, 507, upload.text)
    assert.equal(upload.body.error.code, 'no_space')
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < 20; i++) await change(runs, 'POST', '/timeout', { timeout: 600 + i })
      for (const memory of [true, false]) {
        await change(runs, 'POST', '/pause', { memory })
        await change(runs, 'POST', '/connect', { timeout: 600 * patience })
      }
      await change(cold, 'POST', '/connect', { timeout: 600 * patience })
      assert.equal((await file(server, cold, 'GET')).text, 'file')
      await change(cold, 'POST', '/pause', { memory: false })
      assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.state, 'paused')
      await server.restart()
    }
    await change(ends, 'DELETE', '')
    empty()
    await eventually('it works again', async () => (await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })).status === 201, 20_000, 500)
    await assertKept(server, box)
    assert.equal((await server.api('GET', `/sandboxes/${runs.sandboxID}`)).body.state, 'running')
  } finally {
    await discard(server)
  }
})

// Inside a sandbox: writes file after file as fast as it can, each with its number and the same noise; one
// that was refused is tried again. What was acknowledged, and what the kernel said, is in memory.
const writing = `
mkdir -p w && head -c 4000000 /dev/urandom > noise && cd w
i=0; refused=0
while true; do
  if { echo $i && cat ../noise; } > f$i 2> /dev/shm/why; then i=$((i+1)); sleep 0.03
  else refused=$((refused+1)); cat /dev/shm/why >> /dev/shm/reasons; rm -f f$i; sleep 0.2; fi
  echo "$i $refused" > /dev/shm/count.new && mv /dev/shm/count.new /dev/shm/count
done`
const checking = 'cd w && i=0; while [ -e f$i ]; do { echo $i; cat ../noise; } | cmp - f$i || exit 1; i=$((i+1)); done; echo $i'

class Writer {
  constructor(box) {
    this.box = box
  }

  async begin() {
    await this.box.files.write('writing.sh', writing)
    await this.box.commands.run('echo 0 0 > /dev/shm/count; : > /dev/shm/reasons')
    this.handle = await this.box.commands.run('bash writing.sh', { background: true, timeoutMs: 0 })
  }

  async count() {
    const [written, refused] = (await this.box.commands.run('cat /dev/shm/count')).stdout.split(' ').map(Number)
    return { written, refused }
  }

  async end() {
    await this.handle.kill()
    const { written } = await this.count()
    assert.equal((await this.box.commands.run('sort -u /dev/shm/reasons | grep -v -e "No space left on device" -e "Disk quota exceeded" || true')).stdout, '', 'the only reason is the full disk')
    await this.box.commands.run(`rm -f w/f${written}`) // perhaps begun, never acknowledged
    return written
  }
}

// The pool's image is sparse: on a disk that others filled, writes to it could fail long after they were
// acknowledged. They are refused at once instead.
test('others fill the disk while sandboxes write: nothing acknowledged is lost, and they go on', { timeout: 240_000 * patience }, async () => {
  const server = await onSmallDisk(6000)
  try {
    const { Sandbox } = await loadSdk(server)
    const box = await pausedWithFile(server)
    const writers = []
    for (let i = 0; i < 3; i++) writers.push(new Writer(await Sandbox.create({ timeoutMs: 600_000 * patience })))
    await Promise.all(writers.map((one) => one.begin()))
    const counts = () => Promise.all(writers.map((one) => one.count()))
    await eventually('all write', async () => (await counts()).every((one) => one.written > 5), 30_000, 200)

    const empty = fill(server)
    await eventually('all are told that there is no space', async () => (await counts()).every((one) => one.refused > 1), 90_000, 500)
    assert.match(server.log, /WARN.*is full.*Nothing is lost/i)
    await eventually('it is in the metrics', async () => /^quicksand_pool_held 1$/m.test((await server.api('GET', '/metrics')).text), 20_000)
    // Each has had its share. New ones get theirs, until something else than sandboxes takes the rest.
    const late = await server.create({ timeout: 600 * patience })
    assert.equal((await file(server, late, 'POST', Buffer.alloc(4e6, 'x'), 'large')).status, 200)
    assert.equal((await server.api('DELETE', `/sandboxes/${late.sandboxID}`)).status, 204)
    const rest = path.join(server.data, 'pool', 'rest')
    spawnSync('dd', ['if=/dev/zero', `of=${rest}`, 'bs=1M', 'conv=fsync'])
    // Told within moments: the engine is asked four times a second, and a writer that was refused gives back what it began.
    let refused
    await eventually('a sandbox is refused', async () => {
      refused = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })
      if (refused.status === 201) await server.api('DELETE', `/sandboxes/${refused.body.sandboxID}`)
      return refused.status !== 201
    })
    assert.equal(refused.status, 507, refused.text)
    assert.match(refused.body.message, /the disk is full.*delete sandboxes/)
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.state, 'paused')
    const doctor = spawnSync(binary, ['doctor', '--data', server.data], { encoding: 'utf8' })
    assert.match(doctor.stdout, /no sandbox is created/)
    const victim = await writers[0].count()
    await sleep(3000) // whatever is written back late
    assert.deepEqual(await Promise.all(writers.map((one) => one.box.isRunning())), [true, true, true])

    empty()
    fs.rmSync(rest)
    await eventually('they go on', async () => (await writers[0].count()).written > victim.written + 5, 30_000, 200)
    assert.match(server.log, /has space again/)
    await eventually('it is in the metrics', async () => /^quicksand_pool_held 0$/m.test((await server.api('GET', '/metrics')).text), 20_000)
    const written = await Promise.all(writers.map((one) => one.end()))
    for (const one of writers) await one.box.pause({ keepMemory: false })
    await assertKept(server, box)
    assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })).status, 201)

    // From the disk, not from memory: the pool is mounted anew.
    await server.stop()
    run(binary, 'down', '--data', server.data)
    await server.start()
    for (const [i, one] of writers.entries()) {
      const again = await Sandbox.connect(one.box.sandboxId, { timeoutMs: 600_000 * patience })
      assert.equal((await again.commands.run(checking, { timeoutMs: 60_000 * patience })).stdout.trim(), String(written[i]))
    }
    assert.doesNotMatch(server.log, /read-only/)
  } finally {
    await discard(server)
  }
})

// Without that its files could never be reached again: nothing could be deleted in it.
test('a sandbox that filled its own disk resumes from its files, and its limit holds', { timeout: 120_000 * patience }, async () => {
  const server = await startServer({ args: ['--disk', '256'] })
  try {
    const { Sandbox } = await loadSdk(server)
    const box = await Sandbox.create({ timeoutMs: 600_000 * patience })
    const sh = (command) => box.commands.run(command, { user: 'root', timeoutMs: 60_000 * patience })
    const fillIt = 'cat /dev/zero >> /home/user/large; i=0; while mkdir /home/user/d$((i+=1)); do :; done; sync; du -sm /home/user | cut -f1'
    await sh('echo kept > /home/user/kept; echo nameserver 192.0.2.1 > /etc/resolv.conf')
    let first
    for (let round = 0; round < 3; round++) {
      const filled = await sh(fillIt)
      assert.match(filled.stderr, /Disk quota exceeded/)
      first ??= Number(filled.stdout)
      assert.ok(Number(filled.stdout) <= first + 1, `${filled.stdout} MiB after ${first} at first`)
      await box.pause({ keepMemory: false })
      const again = await server.api('POST', `/sandboxes/${box.sandboxId}/connect`, { timeout: 600 * patience })
      assert.equal(again.status, 201, again.text)
      const { stdout } = await sh('cat /home/user/kept /etc/resolv.conf')
      assert.match(stdout, /^kept\nnameserver (?!192\.0\.2\.1)/)
    }
    await sh('rm /home/user/large')
    // btrfs gives back the space of a deleted file when it next commits.
    await eventually('there is room again', () => sh('head -c 100M /dev/zero > /home/user/large').then(() => true, () => false), 60_000, 500)
  } finally {
    await server.destroy()
  }
})

test('a disk that became read-only: refused with a reason, what runs can be reached', { timeout: 120_000 * patience }, async () => {
  const server = await onSmallDisk(8000)
  try {
    const box = await server.create({ timeout: 600 * patience })
    await file(server, box, 'POST', Buffer.alloc(5e6, 'x'), 'large')
    run('mount', '-o', 'remount,abort', server.data)
    const paused = await server.api('POST', `/sandboxes/${box.sandboxID}/pause`, {})
    assert.ok(paused.status >= 500, `a pause promises that files are kept: ${paused.status} ${paused.text}`)
    const refused = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })
    assert.ok(refused.status >= 500, `${refused.status} ${refused.text}`)
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).status, 200)
    assert.equal((await server.sandbox(box.sandboxID, 49983, '/health')).status, 204)
    assert.ok(server.alive())
    const listed = await server.api('GET', '/v2/sandboxes')
    assert.deepEqual(listed.body.map((one) => [one.sandboxID, one.state]), [[box.sandboxID, 'running']])
  } finally {
    await discard(server)
  }
})
