// Uploads, exports and downloads of images on a small disk: a team takes space only for bytes that have arrived, within its
// limits, leaves half of the rest to others, and gives all of it back.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs'
import { after, before, test } from 'node:test'
import { builder } from '../harness/registry.mjs'
import { eventually, patience } from '../harness/server.mjs'
import { discard, onSmallDisk } from '../harness/small-disk.mjs'

const MB = 1 << 20
let server, mine, theirs
before(async () => {
  server = await onSmallDisk(6000)
  const team = async (name, limits) => {
    const { teamID } = (await server.api('POST', '/admin/teams', { name, ...limits })).body
    const { key } = (await server.api('POST', `/admin/teams/${teamID}/api-keys`, { name })).body
    const asked = await server.api('POST', '/v3/templates', { name: `${name}-files` }, { key })
    assert.equal(asked.status, 202, asked.text)
    return { teamID, key, templateID: asked.body.templateID }
  }
  mine = await team('attacker', { maxDiskMB: 50 })
  theirs = await team('neighbour', {})
})
after(() => server && discard(server))

const sha = (text) => crypto.createHash('sha256').update(text).digest('hex')
const free = () => {
  const now = fs.statfsSync(server.data)
  return now.bavail * now.bsize
}
const held = async () => Number(/^quicksand_spool_bytes (\d+)$/m.exec((await server.api('GET', '/metrics')).text)[1])
const nothingHeld = () => eventually('all space was given back', async () => (await held()) === 0)

async function link(team, name) {
  const answer = await server.api('GET', `/templates/${team.templateID}/files/${sha(name)}`, undefined, { key: team.key })
  assert.equal(answer.status, 201, answer.text)
  return answer.body.url.slice(server.url.length)
}
async function upload(team, name, body) {
  return server.request({ method: 'PUT', path: await link(team, name), headers: { 'Content-Length': body.length }, body })
}
async function begin(target, head, body) {
  const socket = await server.connect()
  socket.answer = ''
  socket.on('data', (chunk) => (socket.answer += chunk))
  socket.on('error', () => {})
  socket.write(`PUT ${target} HTTP/1.1\r\nHost: x\r\n${head}\r\n\r\n${body}`)
  return socket
}
// Sends chunks until the server answers.
async function sendUntilAnswered(socket, limit) {
  const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(MB, 'x'), Buffer.from('\r\n')])
  let sent = 0
  while (!socket.answer && sent < limit && !socket.destroyed) {
    sent += MB
    if (!socket.write(chunk)) await Promise.race([once(socket, 'drain'), once(socket, 'data'), once(socket, 'close')])
    await new Promise(setImmediate) // to see the answer
  }
  await eventually('the server answers', () => socket.answer.includes('\r\n\r\n'))
  socket.destroy()
  return { sent, status: Number(socket.answer.split(' ')[1]), text: socket.answer }
}

test('60 uploads that announce 100 MB and send one byte take no space, and another team goes on', { timeout: 120_000 * patience }, async () => {
  const before = free()
  const sockets = []
  await server.api('PATCH', `/admin/teams/${mine.teamID}`, { maxDiskMB: 2000 })
  for (let i = 0; i < 60; i++) sockets.push(await begin(await link(mine, `attack ${i}`), `Content-Length: ${100 * MB}`, 'x'))
  // The key's next request is answered after all of these were read.
  assert.equal((await upload(theirs, 'at the same time', Buffer.alloc(20 * MB, 'y'))).status, 200)
  assert.ok(before - free() < 30 * MB, `${before - free()} bytes are taken`)
  assert.ok((await held()) < 10 * MB)
  assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base' }, { key: theirs.key })).status, 201)
  assert.deepEqual(sockets.map((one) => one.answer).filter(Boolean), [], 'they wait for the rest of their bodies')
  for (const socket of sockets) socket.destroy()
  await nothingHeld()
})

test('the memory of uploads under way is bounded for each team', { timeout: 120_000 * patience }, async () => {
  const target = await link(mine, 'many at once')
  const sockets = []
  for (let i = 0; i < 140; i++) sockets.push(await begin(target, 'Transfer-Encoding: chunked', '1\r\nx\r\n'))
  // A team may hold half of the 128 MB of body-memory, and each upload takes half a MB of that.
  await eventually('12 of 140 are refused', () => sockets.filter((one) => / 429 .*too many bytes of requests/s.test(one.answer)).length === 12)
  assert.equal((await upload(theirs, 'beside many', Buffer.alloc(MB))).status, 200)
  for (const socket of sockets) socket.destroy()
  await nothingHeld()
})

test('an upload that announces more than the team may keep is refused before its body', async () => {
  await server.api('PATCH', `/admin/teams/${mine.teamID}`, { maxDiskMB: 50 })
  const socket = await begin(await link(mine, 'too long'), `Expect: 100-continue\r\nContent-Length: ${100 * MB}`, '')
  await eventually('the server answers', () => socket.answer.includes('\r\n\r\n'))
  assert.match(socket.answer, /^HTTP\/1\.1 429 /)
  assert.match(socket.answer, /limit of 50 MiB/)
  assert.match(socket.answer, /100 MiB more/)
  socket.destroy()
})

test('a chunked upload for a build is cut at the disk limit of its team', { timeout: 120_000 * patience }, async () => {
  const before = free()
  const end = await sendUntilAnswered(await begin(await link(mine, 'endless'), 'Transfer-Encoding: chunked', ''), 500 * MB)
  assert.equal(end.status, 429, end.text)
  assert.match(end.text, /limit of 50 MiB/)
  // What was on its way when the server answered is discarded, so more than the limit may have been sent.
  assert.ok(end.sent < 500 * MB, `${end.sent} bytes were sent`)
  await nothingHeld()
  await eventually('the disk has them back', () => before - free() < 5 * MB)
})

test('a chunked upload into a sandbox is cut at the disk limit of its team', { timeout: 120_000 * patience }, async () => {
  const path = '/api/v1/sandboxes/none/files?path=/tmp/x'
  const end = await sendUntilAnswered(await begin(path, `X-API-Key: ${mine.key}\r\nTransfer-Encoding: chunked`, ''), 500 * MB)
  assert.equal(end.status, 429, end.text)
  assert.match(end.text, /your team's uploads and other temporary files hold \d+ MiB/)
  await nothingHeld()
})

test('a client that leaves gives the space back', { timeout: 120_000 * patience }, async () => {
  const before = free()
  const socket = await begin(await link(theirs, 'left behind'), `Content-Length: ${60 * MB}`, '')
  socket.write(Buffer.alloc(40 * MB, 'z'))
  await eventually('space is taken', async () => (await held()) > 30 * MB, 30_000)
  socket.destroy()
  await nothingHeld()
  await eventually('the disk has them back', () => before - free() < 5 * MB)
})

test('one team leaves half of the disk to others', { timeout: 300_000 * patience }, async () => {
  const room = free() - 512 * MB
  const socket = await begin(await link(theirs, 'half'), 'Transfer-Encoding: chunked', '')
  const end = await sendUntilAnswered(socket, room)
  assert.equal(end.status, 507, end.text)
  assert.match(end.text, /the server's disk is nearly full/)
  assert.ok(end.sent < room * 0.8, `${end.sent} of ${room} bytes were sent`)
  await nothingHeld()
})

test('the export of a template is charged to its team and given back', { timeout: 120_000 * patience }, async () => {
  await server.api('PATCH', `/admin/teams/${mine.teamID}`, { maxDiskMB: 2 })
  const answer = await server.api('GET', '/templates/base/layer', undefined, { key: mine.key, timeoutMs: 100_000 * patience })
  assert.equal(answer.status, 429, `${answer.status}`)
  assert.match(answer.text, /limit of 2 MiB/)
  await nothingHeld()
})

test('what a build reads from a URL is charged to its team and given back', { timeout: 120_000 * patience }, async () => {
  const builds = builder({ api: (method, target, body) => server.api(method, target, body, { key: mine.key }) })
  const add = (bytes) => ({ fromTemplate: 'base', steps: [{ type: 'COPY', args: ['file', '/tmp/got', 'root', '0644'], url: `http://203.0.113.1/bytes?n=${bytes}` }] })
  await server.api('PATCH', `/admin/teams/${mine.teamID}`, { maxDiskMB: 20 })
  const end = await builds.failed(add(30 * MB))
  assert.match(end.reason.message, /your team's uploads and other temporary files hold \d+ MiB, and 1 MiB more are over its limit of 20 MiB/)
  await nothingHeld()
  await builds.ready('small-enough', add(MB))
  await nothingHeld()
})

// The template stands for the real one: its program makes both files, also when only one is asked for.
test('notes and extensions of browsers count for the disk of their team', { timeout: 240_000 * patience }, async () => {
  const patch = (maxDiskMB) => server.api('PATCH', `/admin/teams/${theirs.teamID}`, { maxDiskMB })
  const used = async () => (await server.api('GET', '/admin/teams')).body.find((one) => one.teamID === theirs.teamID).use.diskMB
  const ask = (method, target, body, headers = {}) => server.api(method, target, body, { key: null, headers: { 'X-BB-API-Key': theirs.key, ...headers } })
  const build = (await server.api('POST', '/v3/templates', { name: 'browser' }, { key: theirs.key })).body
  const witness = `for name in log record; do yes '{"method":"${'x'.repeat(5000)}"}' | head -c ${20 * MB} >/home/user/.browser/$name.jsonl; done`
  const steps = [{ type: 'RUN', args: [`mkdir -p /home/user/.browser && chmod 0777 /home/user/.browser && printf '#!/bin/sh\\n%s\\n' "$(echo ${Buffer.from(witness).toString('base64')} | base64 -d)" >/usr/local/bin/browser-witness && chmod 0755 /usr/local/bin/browser-witness`, 'root'] }]
  const started = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, { fromTemplate: 'base', steps }, { key: theirs.key })
  assert.equal(started.status, 202, started.text)
  await eventually('the template is built', async () => {
    const { status, reason } = (await server.api('GET', `/templates/${build.templateID}/builds/${build.buildID}/status`, undefined, { key: theirs.key })).body
    assert.notEqual(status, 'error', JSON.stringify(reason))
    return status === 'ready'
  }, 100_000)
  for (const id of (await server.api('GET', '/sandboxes', undefined, { key: theirs.key })).body.map((one) => one.sandboxID)) await server.api('DELETE', `/sandboxes/${id}`, undefined, { key: theirs.key })
  const session = async (settings, limit = 0) => {
    await patch(0)
    const made = await ask('POST', '/v1/sessions', { keepAlive: true, browserSettings: settings })
    assert.equal(made.status, 201, made.text)
    await patch(limit)
    assert.equal((await ask('POST', `/v1/sessions/${made.body.id}`, { status: 'REQUEST_RELEASE' })).status, 200)
    return made.body.id
  }
  const kept = () => fs.readdirSync(`${server.data}/store/browser`).sort()
  const before = await used()
  const asked = await session({ logSession: true })
  assert.deepEqual(kept(), [`${asked}.log`], 'only what was asked for is kept')
  assert.equal(await used() - before, 20)
  // Its sandbox counts until it is gone, so the limit leaves room for that but not for the notes.
  const { body: { length } } = await ask('GET', `/v1/sessions/${asked}/logs`)
  assert.ok(length > 1000, `${length} entries`)
  const full = await session({ logSession: true, recordSession: true }, 1)
  assert.deepEqual(kept(), [`${asked}.log`], 'beyond the limit nothing is kept')
  assert.equal((await ask('GET', `/v1/sessions/${full}/logs`)).status, 404)
  const zip = Buffer.concat([Buffer.from('--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nPK\x03\x04', 'latin1'), Buffer.alloc(20 * MB), Buffer.from('\r\n--b--\r\n')])
  const extension = () => ask('POST', '/v1/extensions', zip, { 'Content-Type': 'multipart/form-data; boundary=b' })
  const refused = await extension()
  assert.equal(refused.status, 429, refused.text)
  assert.match(refused.text, /limit of 1 MiB of disk/)
  await patch(0)
  const there = await extension()
  assert.equal(there.status, 201, there.text)
  assert.ok(await used() - before >= 40)
  assert.equal((await ask('DELETE', `/v1/extensions/${there.body.id}`)).status, 204)
  assert.equal(await used() - before, 20)
})

test('what was announced and what was spooled is gone after a restart', { timeout: 120_000 * patience }, async () => {
  const before = free()
  const socket = await begin(await link(theirs, 'before the restart'), `Content-Length: ${60 * MB}`, '')
  socket.write(Buffer.alloc(40 * MB, 'z'))
  await eventually('space is taken', async () => (await held()) > 30 * MB, 30_000)
  await server.kill9()
  await server.start()
  assert.equal(await held(), 0)
  await eventually('the disk has them back', () => before - free() < 20 * MB, 30_000)
  socket.destroy()
})
