// Disks that are full, broken or read-only, a damaged store, two servers for one directory.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { binary, eventually, startServer } from '../harness/server.mjs'

function run(...command) {
  const result = spawnSync(command[0], command.slice(1), { encoding: 'utf8' })
  assert.equal(result.status, 0, `${command.join(' ')}: ${result.stderr}`)
}

const file = (server, box, method, body, name = 'kept') =>
  server.sandbox(box.sandboxID, 49983, `/files?path=/home/user/${name}&username=user`, {
    method,
    body,
    headers: { 'Content-Type': 'application/octet-stream', ...(box.envdAccessToken ? { 'X-Access-Token': box.envdAccessToken } : {}) },
  })

// Starts on a data directory that is there, expecting a refusal: its exit status and what it says.
function refusal(server, extra = []) {
  const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_API_KEY: server.key, QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER }
  return spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', server.data, ...extra], { env, encoding: 'utf8', timeout: 30_000 })
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
    const box = await server.create({ timeout: 600, metadata: { kept: 'yes' } })
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

// A server whose data directory is a small file system of its own.
async function onSmallDisk(megabytes) {
  const server = await startServer({
    args: ['--warm', '0'],
    prepare({ home, data }) {
      const image = path.join(home, 'disk.img')
      fs.writeFileSync(image, '')
      fs.truncateSync(image, megabytes * 1024 * 1024)
      run('mkfs.ext4', '-q', '-m', '0', image)
      fs.mkdirSync(data)
      run('mount', '-o', 'loop', image, data)
    },
  })
  return server
}

// The server must not have been part of the fault: everything of it goes, and the file system with it.
async function discard(server) {
  await server.kill9().catch(() => {})
  spawnSync(binary, ['down', '--data', server.data])
  await server.left('none')
  for (let i = 0; i < 3; i++) for (const mount of fs.readFileSync('/proc/self/mountinfo', 'utf8').split('\n').map((line) => line.split(' ')[4]).filter((one) => one?.startsWith(server.home)).reverse()) spawnSync('umount', ['--lazy', mount])
  fs.rmSync(server.home, { recursive: true, force: true })
}

// Takes all that is free on the server's disk; returns how to give it back.
function fill(server) {
  const filler = path.join(server.data, 'filler')
  const free = fs.statfsSync(server.data)
  run('fallocate', '-l', String(Math.floor(free.bavail * free.bsize * 0.97)), filler)
  spawnSync('dd', ['if=/dev/zero', `of=${filler}2`, 'bs=1M'])
  return () => {
    fs.rmSync(filler)
    fs.rmSync(`${filler}2`)
  }
}

async function pausedWithFile(server) {
  const box = await server.create({ timeout: 600 })
  assert.equal((await file(server, box, 'POST', 'file')).status, 200)
  assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/pause`, {})).status, 204)
  return box
}

async function assertKept(server, box) {
  assert.equal((await server.api('POST', `/sandboxes/${box.sandboxID}/connect`, { timeout: 600 })).status, 201)
  assert.equal((await file(server, box, 'GET')).text, 'file')
}

test('a data directory whose disk is full for a while: nothing is lost', { timeout: 120_000 }, async () => {
  const server = await onSmallDisk(8000)
  try {
    const box = await pausedWithFile(server)
    const empty = fill(server)
    for (let i = 0; i < 5; i++) {
      const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })
      if (answer.status !== 201) assert.match(answer.text, /space|full/i, 'the answer says why')
    }
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.state, 'paused')
    empty()
    await eventually('it works again', async () => (await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })).status === 201, 20_000, 500)
    await assertKept(server, box)
  } finally {
    await discard(server)
  }
})

// The pool's image is sparse: a disk that others filled cannot take what is written to it, and the pool
// stops. What was acknowledged as paused is on disk by then.
test('the disk is full and sandboxes go on writing: down and a start bring back what was paused', { timeout: 120_000 }, async () => {
  const server = await onSmallDisk(8000)
  try {
    const box = await pausedWithFile(server)
    const writer = await server.create({ timeout: 600 })
    const empty = fill(server)
    await file(server, writer, 'POST', Buffer.alloc(300e6, 'x'), 'large').catch(() => {})
    await server.api('POST', `/sandboxes/${writer.sandboxID}/snapshots`, {}) // all of it has to go to disk
    assert.ok(server.alive())
    assert.equal((await server.api('GET', `/sandboxes/${box.sandboxID}`)).body.state, 'paused')
    empty()
    await server.stop()
    assert.match(refusal(server).stderr, /quicksand down/, 'a start says what to do')
    run(binary, 'down', '--data', server.data)
    await server.start()
    await assertKept(server, box)
    assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60 })).status, 201)
  } finally {
    await discard(server)
  }
})

test('a disk that became read-only: refused with a reason, what runs can be reached', { timeout: 120_000 }, async () => {
  const server = await onSmallDisk(8000)
  try {
    const box = await server.create({ timeout: 600 })
    await file(server, box, 'POST', Buffer.alloc(5e6, 'x'), 'large')
    run('mount', '-o', 'remount,abort', server.data)
    await sleep(200)
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
