// A real server under test: started, spoken to, killed and cleaned up after.
//
//   const server = await startServer()          in a before() hook
//   await server.api('POST', '/sandboxes', {…})  → {status, headers, body}
//   await server.destroy()                       in an after() hook: no sandbox, process or mount stays
//
// Must run inside lab.sh. The base layer comes from QUICKSAND_BASE_LAYER (tests/run.sh makes it once).
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { cgroups, findProcesses, isEnvd, isOurs, links, loopDevices, mounts } from './leftovers.mjs'

export const repository = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..')
export const binary = process.env.QUICKSAND_BINARY ?? path.join(repository, 'build/quicksand')

// How many times slower than usual this machine may be: everything that is waited for takes so much longer.
export const patience = Number(process.env.QUICKSAND_TEST_PATIENCE ?? 1)

const READY_MS = 60_000 * patience

// What a test leaves open would keep its process, and all tests after it, waiting for ever: it fails instead.
const LEFT_OPEN_MS = 60_000 * patience
const failStillOpen = () => {
  console.error('all tests have ended, but something is still open')
  process.exit(1)
}
if (process.env.QUICKSAND_LAB) after(() => void setTimeout(failStillOpen, LEFT_OPEN_MS).unref())

export async function startServer(options = {}) {
  assert.ok(process.env.QUICKSAND_LAB || options.anywhere, 'run this through tests/harness/lab.sh')
  const server = new Server(options)
  await options.prepare?.(server) // its data directory is not there yet
  await server.start()
  return server
}

// Polls until check() gives something true; the message says what was waited for.
export async function eventually(what, check, limitMs = 10_000, stepMs = 20) {
  const end = Date.now() + limitMs * patience
  for (;;) {
    const result = await check()
    if (result) return result
    if (Date.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`)
    await sleep(stepMs)
  }
}

// A limit that a busy machine may break now and then, but not five times in a row. measure() gives milliseconds. What
// needed more than one try is listed as unsteady (run.sh), and fails with UNSTEADY=fail.
export async function timely(what, limitMs, measure) {
  const tries = process.env.UNSTEADY === 'fail' ? 1 : 5
  const took = []
  const text = () => `${what}: ${took.map(Math.round).join(', ')} ms, and the limit is ${limitMs * patience} ms`
  while (took.length < tries) {
    took.push(await measure())
    if (took.at(-1) >= limitMs * patience) continue
    if (took.length > 1) noteUnsteady(`needed ${took.length} tries: ${text()}`)
    return
  }
  assert.fail(text())
}

function noteUnsteady(text) {
  const folder = path.join(repository, 'build/test')
  fs.mkdirSync(folder, { recursive: true })
  fs.appendFileSync(path.join(folder, 'unsteady'), `${path.relative(repository, process.argv[1] ?? '')} ${text}\n`)
}

class Server {
  // Fewer boxes are made ahead than a server makes that nobody told, which does not live for a few seconds only.
  constructor({ env = {}, args = [], program = binary, listen = '127.0.0.1:0', asShipped = false } = {}) {
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-test-'))
    fs.chmodSync(this.home, 0o755)
    this.data = path.join(this.home, 'data')
    this.key = `e2b_${crypto.randomBytes(20).toString('hex')}`
    this.env = env
    this.args = asShipped || args.includes('--warm') || args.includes('--blank') ? args : ['--warm', '6', '--blank', '6', ...args]
    this.program = program
    this.log = ''
    this.listen = listen
  }

  // Starts, or starts again on the same data and port.
  async start() {
    const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_API_KEY: this.key, ...this.env }
    for (const name of ['QUICKSAND_BASE_LAYER', 'ASAN_OPTIONS', 'UBSAN_OPTIONS', 'LSAN_OPTIONS', 'TSAN_OPTIONS']) {
      if (process.env[name]) env[name] ??= process.env[name]
    }
    const started = performance.now()
    this.child = spawn(this.program, ['serve', '--listen', this.listen, '--data', this.data, ...this.args], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.exited = new Promise((done) => this.child.once('exit', (code, signal) => done({ code, signal })))
    const ready = new Promise((done, fail) => {
      let out = ''
      this.child.stdout.on('data', (chunk) => {
        out += chunk
        this.log += chunk
        const match = /^ready http:\/\/(\S+):(\d+)$/m.exec(out)
        if (match) done(match)
      })
      this.child.stderr.on('data', (chunk) => (this.log += chunk))
      this.child.once('error', fail)
      this.exited.then(({ code, signal }) => fail(new Error(`server ended (${code ?? signal}) before it was ready:\n${this.tail()}`)))
    })
    const limit = new Promise((_, fail) => setTimeout(() => fail(new Error(`server not ready:\n${this.tail()}`)), READY_MS).unref())
    const match = await Promise.race([ready, limit])
    this.readyMs = performance.now() - started
    this.host = match[1].replace(/^\[(.*)\]$/, '$1')
    this.port = Number(match[2])
    this.listen = this.listen.replace(/:\d+$/, `:${this.port}`)
    this.url = `http://${match[1]}:${this.port}`
  }

  tail(lines = 40) {
    return this.log.split('\n').slice(-lines).join('\n')
  }

  // What the SDK and the command line read from their environment.
  clientEnv() {
    return { E2B_API_URL: this.url, E2B_SANDBOX_URL: this.url, E2B_VOLUME_API_URL: this.url, E2B_API_KEY: this.key }
  }

  // One control plane request. body: object (sent as JSON), string or Buffer (sent as is).
  api(method, target, body, { key = this.key, headers = {}, timeoutMs = 30_000 } = {}) {
    const raw = typeof body === 'string' || Buffer.isBuffer(body)
    const all = { ...(key === null ? {} : { 'X-API-KEY': key }), ...headers }
    if (body !== undefined && !Object.keys(all).some((name) => name.toLowerCase() === 'content-type')) all['Content-Type'] = 'application/json'
    return this.request({ method, path: target, headers: all, body: body === undefined || raw ? body : JSON.stringify(body), timeoutMs })
  }

  // A request to a port inside a sandbox, routed by headers.
  sandbox(id, port, target, { method = 'GET', headers = {}, body, timeoutMs } = {}) {
    return this.request({ method, path: target, headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': String(port), ...headers }, body, timeoutMs })
  }

  request({ method = 'GET', path: target = '/', headers = {}, body, timeoutMs = 30_000, agent = false }) {
    return new Promise((done, fail) => {
      const request = http.request({ host: this.host, port: this.port, method, path: target, headers, agent }, (response) => {
        const chunks = []
        response.on('data', (chunk) => chunks.push(chunk))
        response.on('error', fail)
        response.on('end', () => {
          const bytes = Buffer.concat(chunks)
          const text = bytes.toString()
          let json
          try {
            json = JSON.parse(text)
          } catch {}
          done({ status: response.statusCode, headers: response.headers, text, bytes, body: json })
        })
      })
      request.setTimeout(timeoutMs * patience, () => request.destroy(new Error(`${method} ${target}: no answer in ${timeoutMs} ms`)))
      request.on('error', fail)
      request.end(body)
    })
  }

  // A bare TCP connection: what it got so far is in .received, .ended resolves when the server closes.
  connect() {
    const socket = net.connect({ host: this.host, port: this.port, allowHalfOpen: true })
    socket.received = ''
    socket.setEncoding('latin1')
    socket.on('data', (chunk) => (socket.received += chunk))
    socket.on('error', () => {})
    socket.ended = new Promise((done) => {
      socket.once('end', done)
      socket.once('close', done)
    })
    return new Promise((done, fail) => {
      socket.once('connect', () => done(socket))
      socket.once('error', fail)
    })
  }

  // Sends bytes, waits for the server's end of the connection or for `limitMs`; gives all that came back.
  async raw(bytes, { limitMs = 5000, end = false } = {}) {
    const socket = await this.connect()
    socket.write(bytes, 'latin1')
    if (end) socket.end()
    await Promise.race([socket.ended, sleep(limitMs * patience, undefined, { ref: false })])
    socket.destroy()
    return socket.received
  }

  async create(body = {}, options) {
    const answer = await this.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, ...body }, options)
    assert.equal(answer.status, 201, `create: ${answer.status} ${answer.text}`)
    return answer.body
  }

  async ids() {
    const answer = await this.api('GET', '/sandboxes')
    assert.equal(answer.status, 200, answer.text)
    return answer.body.map((one) => one.sandboxID)
  }

  alive() {
    return this.child.exitCode === null && this.child.signalCode === null
  }

  // Processes of this server: the root one that we started and the unprivileged one that serves.
  processes() {
    return findProcesses((one) => isOurs(one) && one.cmdline.includes(this.data))
  }

  // The process that parses network bytes and holds clients' connections.
  get servingPid() {
    return this.processes().find((one) => one.cmdline.includes(' serve-unprivileged '))?.pid ?? this.child.pid
  }

  async stop() {
    if (this.alive()) this.child.kill('SIGTERM')
    const limit = setTimeout(() => this.alive() && this.child.kill('SIGKILL'), 20_000 * patience)
    const result = await this.exited
    clearTimeout(limit)
    return result
  }

  async kill9() {
    this.child.kill('SIGKILL')
    return this.exited
  }

  async restart() {
    const result = await this.stop()
    await this.start()
    return result
  }

  // Running and paused ones.
  async killAll() {
    const ids = []
    for (let token; ; ) {
      const answer = await this.api('GET', `/v2/sandboxes?limit=100${token ? `&nextToken=${token}` : ''}`)
      assert.equal(answer.status, 200, answer.text)
      ids.push(...answer.body.map((one) => one.sandboxID))
      token = answer.headers['x-next-token']
      if (!token) break
    }
    await Promise.all(ids.map((id) => this.api('DELETE', `/sandboxes/${id}`)))
    return ids
  }

  // Removes all sandboxes, stops the server and takes the data directory away. Whatever of it is still on
  // the host afterwards fails the test.
  async destroy() {
    const problems = []
    let instance = 'none'
    try {
      if (!this.alive()) await this.start()
      instance = fs.readFileSync(path.join(this.data, 'instance'), 'utf8').trim()
      await this.killAll()
      const { code, signal } = await this.stop()
      if (code !== 0) problems.push(`server ended with ${code ?? signal}:\n${this.tail()}`)
    } catch (error) {
      problems.push(`${error.message}\n${this.tail()}`)
      if (this.alive()) await this.kill9()
    }
    problems.push(...(await this.left(instance)))
    if (problems.length) spawnSync(binary, ['down', '--data', this.data])
    for (const mount of mounts().filter((one) => one.startsWith(this.home))) spawnSync('umount', ['--lazy', mount])
    fs.rmSync(this.home, { recursive: true, force: true })
    this.saveLog()
    problems.push(...this.findings())
    assert.deepEqual(problems, [], 'left behind by the server')
  }

  // The whole log of the server, for whoever wonders about a failed test: build/test/NAME.server.log.
  saveLog() {
    const folder = path.join(repository, 'build/test')
    fs.mkdirSync(folder, { recursive: true })
    fs.writeFileSync(path.join(folder, `${path.basename(process.argv[1] ?? 'server', '.test.mjs')}.server.log`), this.log)
  }

  // Reports of sanitizers about the server, the warden or an envd inside (only in their builds), each with
  // the lines that say where.
  findings() {
    const lines = this.log.split('\n')
    const starts = lines.flatMap((line, at) => (/ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error: /.test(line) ? [at] : []))
    return starts.map((at) => lines.slice(at, at + 60).join('\n'))
  }

  // What outlived the server although no sandbox was left. Processes are ended.
  async left(instance) {
    const mine = () => findProcesses((one) => isOurs(one) || isEnvd(one) || one.cmdline.includes(this.data))
    for (let i = 0; i < 50 * patience && mine().length; i++) await sleep(50)
    const found = mine()
    for (const one of found) {
      try {
        process.kill(one.pid, 'SIGKILL')
      } catch {}
    }
    return [
      ...found.map((one) => `process ${one.pid} ${one.cmdline}`),
      ...mounts().filter((mount) => mount.startsWith(this.home)).map((mount) => `mount ${mount}`),
      ...cgroups(instance).map((group) => `cgroup ${group}`),
      ...loopDevices(this.home).map((device) => `loop device ${device}`),
      ...links().filter((link) => link.includes(instance)).map((link) => `link ${link}`),
    ]
  }
}
