// Who may steer a browser (CDP) or a desktop (VNC): nobody without the session's signature or the screen's password, not
// another sandbox, not another team, and nobody after the end.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { startBrowsers } from '../harness/browser.mjs'
import { quicksand } from '../harness/interpreter.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'
import { eventually, patience, repository, startServer } from '../harness/server.mjs'

const load = createRequire(path.join(repository, 'build/npm/browser/index.js'))
const WebSocket = load('ws')

// The status that an upgrade gets, or 101.
const upgrade = (url, headers = {}) => new Promise((done, failed) => {
  const socket = new WebSocket(url, { headers })
  socket.on('open', () => (socket.terminate(), done(101)))
  socket.on('unexpected-response', (_, answer) => (answer.resume(), socket.terminate(), done(answer.statusCode)))
  socket.on('error', (error) => /closed before/.test(error.message) || failed(error))
})

async function anotherTeam(server) {
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'others' })
  return (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body.key
}

describe('a browser session', () => {
  let server, sdk, theirKey
  before(async () => {
    server = await startBrowsers({ args: ['--warm', '1'] })
    sdk = await loadSdk(server)
    theirKey = await anotherTeam(server)
  })
  after(() => server?.destroy())

  const open = async () => {
    const answer = await server.api('POST', '/v1/sessions', { keepAlive: true }, { headers: { 'X-BB-API-Key': server.key } })
    assert.ok(answer.status < 300, answer.text)
    return answer.body
  }
  const release = async (session) => {
    const answer = await server.api('POST', `/v1/sessions/${session.id}`, { status: 'REQUEST_RELEASE' }, { headers: { 'X-BB-API-Key': server.key } })
    assert.ok(answer.status < 300, answer.text)
  }
  const debug = async (session) => (await server.api('GET', `/v1/sessions/${session.id}/debug`, undefined, { headers: { 'X-BB-API-Key': server.key } })).body

  test('a signature is good for one session, one kind of link and one time', async () => {
    const session = await open(), other = await open()
    const own = new URL(session.connectUrl), live = new URL((await debug(session)).wsUrl)
    assert.equal(await upgrade(own), 101)
    assert.equal(await upgrade(own), 101, 'as often as its owner likes')
    assert.equal(await upgrade(live), 101)
    const changed = (url, change) => { const copy = new URL(url); change(copy); return copy }
    const until = Number(live.searchParams.get('until'))
    assert.ok(until > Date.now() / 1000 && until < Date.now() / 1000 + 86_401)
    for (const [what, url] of Object.entries({
      'no signature': changed(own, (url) => url.searchParams.delete('signingKey')),
      'an empty one': changed(own, (url) => url.searchParams.set('signingKey', '')),
      'half of it': changed(own, (url) => url.searchParams.set('signingKey', own.searchParams.get('signingKey').slice(0, 32))),
      'upper case': changed(own, (url) => url.searchParams.set('signingKey', own.searchParams.get('signingKey').toUpperCase() + 'A')),
      'another session': changed(own, (url) => { url.pathname = url.pathname.replace(session.id, other.id) }),
      'the key of a live link without its time': changed(live, (url) => url.searchParams.delete('until')),
      'a live link with a later time': changed(live, (url) => url.searchParams.set('until', String(until + 1))),
      'the key of the session with a time': changed(own, (url) => url.searchParams.set('until', String(until))),
      'a time in the id': changed(own, (url) => { url.pathname += `%20${until}` }),
    })) assert.equal(await upgrade(url), 403, what)
    for (const key of [theirKey, server.key])
      assert.equal(await upgrade(changed(own, (url) => { url.search = '' }), { 'X-BB-API-Key': key }), 403, 'a key is not a signature')
    await Promise.all([session, other].map(release))
  })

  test('a link is dead when its session has ended, and its connections end with it', async () => {
    const session = await open()
    const live = (await debug(session)).wsUrl
    const socket = new WebSocket(session.connectUrl)
    await new Promise((done, failed) => socket.on('open', done).on('error', failed))
    const closed = new Promise((done) => socket.on('close', done))
    await release(session)
    await closed
    for (const url of [session.connectUrl, live]) assert.equal(await upgrade(url), 404)
  })

  test('its port is closed: to clients without its token, to other teams and to other sandboxes', async () => {
    const session = await open()
    const { sandboxId } = session, port = { 'E2b-Sandbox-Id': sandboxId, 'E2b-Sandbox-Port': '9222' }
    for (const headers of [port, { ...port, 'X-API-KEY': theirKey }, { ...port, 'X-API-KEY': server.key }, { ...port, 'e2b-traffic-access-token': 'x' }, { Host: `9222-${sandboxId}.localhost` }])
      assert.equal((await server.request({ path: '/json/version', headers })).status, 403, JSON.stringify(headers))
    assert.equal(await upgrade(`${server.url.replace('http', 'ws')}/devtools/browser/x`, port), 403)
    // By CONNECT, as a bare connection.
    const status = await new Promise((done, failed) => {
      const socket = net.connect(new URL(server.url).port, '127.0.0.1', () => socket.write(`CONNECT 9222-${sandboxId}.localhost:9222 HTTP/1.1\r\nHost: 9222-${sandboxId}.localhost\r\n\r\n`))
      socket.once('data', (data) => (socket.destroy(), done(data.toString().split(' ')[1]))).on('error', failed)
    })
    assert.ok(['401', '403'].includes(status), status)
    // Nor does another sandbox, of the same team, reach it.
    const neighbour = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
    const own = (await shell(neighbour, 'hostname -I')).stdout.trim().split('.').map(Number)
    const around = [-3, -2, -1, 1, 2, 3].map((n) => [...own.slice(0, 3), own[3] + n].join('.'))
    const tried = await shell(neighbour, around.map((address) => `curl -s -m ${2 * patience} -o /dev/null http://${address}:9222/json/version && echo reached ${address}`).join('; '), { timeoutMs: 60_000 * patience })
    assert.equal(tried.stdout, '')
    await neighbour.kill()
    await release(session)
  })
})

// ---- VNC: RFC 6143, over the WebSocket of noVNC ----

class Rfb {
  constructor(url, headers) {
    this.bytes = Buffer.alloc(0)
    this.socket = new WebSocket(url, ['binary'], { headers })
    this.socket.on('message', (data) => { this.bytes = Buffer.concat([this.bytes, data]); this.wake?.() })
    this.socket.on('close', () => { this.closed = true; this.wake?.() })
    this.socket.on('error', () => { this.closed = true; this.wake?.() })
  }
  async take(count) {
    while (this.bytes.length < count) {
      if (this.closed) return null
      await new Promise((done) => { this.wake = done })
    }
    const taken = this.bytes.subarray(0, count)
    this.bytes = this.bytes.subarray(count)
    return taken
  }
  // The security types that are offered.
  async greet() {
    assert.match((await this.take(12)).toString(), /^RFB 003\.00[78]\n$/)
    this.socket.send(Buffer.from('RFB 003.008\n'))
    const [count] = await this.take(1)
    return [...(await this.take(count))]
  }
  async choose(type, respond) {
    this.socket.send(Buffer.from([type]))
    if (respond) this.socket.send(respond(await this.take(16)))
    const result = await this.take(4)
    return result ? result.readUInt32BE(0) : 'closed'
  }
}

// DES with every byte of the key reversed; three times the same key makes it of triple DES.
function proof(password, challenge) {
  const key = Buffer.alloc(8)
  Buffer.from(password).copy(key)
  for (let i = 0; i < 8; i++) key[i] = Number(`0b${key[i].toString(2).padStart(8, '0').split('').reverse().join('')}`)
  const cipher = crypto.createCipheriv('des-ede3-ecb', Buffer.concat([key, key, key]), null).setAutoPadding(false)
  return Buffer.concat([cipher.update(challenge), cipher.final()])
}

describe('a desktop', () => {
  const layer = process.env.QUICKSAND_DESKTOP_LAYER ?? path.join(repository, 'build/recipe-base/desktop/rootfs')
  let server, sdk
  before(async () => {
    server = await startServer({ env: { QUICKSAND_BASE_LAYER: layer }, args: ['--build-memory', '2048', '--warm', '1'] })
    const built = await quicksand(server, ['template', 'build', 'desktop', '--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='])
    assert.equal(built.code, 0, built.stdout + built.stderr)
    sdk = await loadSdk(server)
  })
  after(() => server?.destroy())

  const create = () => sdk.Sandbox.create('desktop', { timeoutMs: 600_000 * patience })
  const stream = async (box) => (await box.commands.run('desktop-stream', { timeoutMs: 60_000 * patience })).stdout.trim()
  const view = (box) => new Rfb(`${server.url.replace('http', 'ws')}/websockify`, { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '6080' })

  test('its screen needs a password, which no other sandbox has', async () => {
    const one = await create(), two = await create()
    const word = await stream(one), other = await stream(two)
    assert.match(word, /^[A-Za-z0-9]{8}$/)
    assert.notEqual(word, other)
    assert.equal(await stream(one), word, 'as long as the screen is shared')
    const attempts = {
      none: [1, undefined, ['closed', 1]],
      'a wrong password': [2, (challenge) => proof('guess', challenge), [1]],
      'no password': [2, (challenge) => proof('', challenge), [1]],
      'that of another sandbox': [2, (challenge) => proof(other, challenge), [1]],
      'a replayed proof': [2, () => replayed, [1]],
      'its password': [2, (challenge) => (replayed = proof(word, challenge)), [0]],
    }
    let replayed
    for (const what of ['none', 'a wrong password', 'no password', 'that of another sandbox', 'its password', 'a replayed proof']) {
      const rfb = view(one), [type, respond, wanted] = attempts[what]
      const offered = await rfb.greet()
      assert.ok(offered.includes(2) && !offered.includes(1), `offered without a password: ${offered}`)
      assert.ok(wanted.includes(await rfb.choose(type, respond)), what)
      rfb.socket.terminate()
    }
    // The password is the user's own file.
    assert.equal((await shell(one, 'stat -c %a ~/.vnc ~/.vnc/word ~/.vnc/passwd')).stdout, '700\n600\n600\n')
    // From another sandbox not even the question.
    const address = (await shell(one, 'hostname -I')).stdout.trim()
    for (const port of [5900, 6080]) assert.notEqual((await shell(two, `timeout ${3 * patience} bash -c 'exec 3<>/dev/tcp/${address}/${port}'`)).exitCode, 0)
    await two.kill()
    // A copy of it has a password of its own: who may look at one need not look at the other.
    const snapshot = await one.createSnapshot()
    const copy = await sdk.Sandbox.create(snapshot.snapshotId, { timeoutMs: 600_000 * patience })
    await eventually('its screen', async () => (await shell(copy, 'desktop-ready')).exitCode === 0, 60_000)
    assert.notEqual(await stream(copy), word)
    await Promise.all([copy.kill(), one.kill()])
  })
})
