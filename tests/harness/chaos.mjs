// Work on many sandboxes at once while processes of the platform are killed, and the truth afterwards.
//
//   const chaos = new Chaos(server, seed)
//   await chaos.run(kills)       creates, writes, pauses, resumes, snapshots, forks and deletes, with kills
//   await chaos.finish()         deletes everything; nothing may be left
//
// One worker at a time has a sandbox, so that what it may be is known: an answer says what happened, a
// broken connection leaves two possibilities. Files are remembered once their write was acknowledged.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { cgroups, findProcesses, isEnvd, ofSandbox } from './leftovers.mjs'
import { randomFrom } from './random.mjs'
import { eventually } from './server.mjs'

const WORKERS = 6
const MOST = 24 // sandboxes
const ENVD = 49983
const WARM_TEMPLATES = 8 // that boxes are made ahead of
const ROUND = 10 // kills between two looks at everything

export class Chaos {
  constructor(server, seed = 1) {
    this.server = server
    this.random = randomFrom(seed)
    this.boxes = new Map() // id to what is known of it
    this.snapshots = new Map() // id to the files it holds
    this.deleted = [] // ids that must not leave anything
    this.tally = {}
    this.killed = { server: 0, warden: 0, envd: 0 }
    this.serial = 0
  }

  pick(list) {
    return list[this.random(list.length)]
  }

  // An answer, or undefined when there was none: then it may have happened or not.
  async ask(method, target, body) {
    try {
      return await this.server.api(method, target, body, { timeoutMs: 20_000 })
    } catch {
      return undefined
    }
  }

  // With `answer` 5xx as little is known as without one.
  static known(answer, ...statuses) {
    return answer && statuses.includes(answer.status)
  }

  count(what) {
    this.tally[what] = (this.tally[what] ?? 0) + 1
  }

  add(sandbox, files) {
    this.boxes.set(sandbox.sandboxID, { id: sandbox.sandboxID, token: sandbox.envdAccessToken, files: new Map(files), state: 'running', busy: false })
  }

  file(box, method, name, body) {
    const headers = { 'Content-Type': 'application/octet-stream' }
    if (box.token) headers['X-Access-Token'] = box.token
    return this.server.sandbox(box.id, ENVD, `/files?path=/home/user/${name}&username=user`, { method, headers, body, timeoutMs: 30_000 })
  }

  // ---- what workers do; box.state becomes 'unknown' where the answer does not say

  async create() {
    if (this.boxes.size >= MOST) return
    const from = this.snapshots.size && this.random(3) === 0 ? this.pick([...this.snapshots.keys()]) : undefined
    const files = from ? this.snapshots.get(from) : []
    const answer = await this.ask('POST', '/sandboxes', { templateID: from ?? 'base', timeout: 3000 })
    if (Chaos.known(answer, 201)) {
      this.add(answer.body, files)
      this.count(from ? 'create from snapshot' : 'create')
    }
  }

  async write(box) {
    const name = `f${++this.serial}`
    const content = `${name} `.repeat(1 + this.random(3000))
    const answer = await this.file(box, 'POST', name, content).catch(() => undefined)
    if (Chaos.known(answer, 200)) {
      box.files.set(name, content)
      this.count('write')
    }
  }

  async pause(box) {
    const memory = this.random(2) === 0
    const answer = await this.ask('POST', `/sandboxes/${box.id}/pause`, { memory })
    if (Chaos.known(answer, 204, 409)) box.state = 'paused'
    else box.state = 'unknown'
    if (Chaos.known(answer, 204)) this.count(memory ? 'pause' : 'pause to disk')
  }

  async resume(box) {
    const answer = await this.ask('POST', `/sandboxes/${box.id}/connect`, { timeout: 3000 })
    if (Chaos.known(answer, 200, 201)) box.state = 'running'
    else box.state = 'unknown'
    if (Chaos.known(answer, 201)) this.count('resume')
  }

  async snapshot(box) {
    const files = [...box.files]
    const answer = await this.ask('POST', `/sandboxes/${box.id}/snapshots`, {})
    if (!Chaos.known(answer, 201)) return
    this.count('snapshot')
    this.snapshots.set(answer.body.snapshotID, files)
    if (this.snapshots.size <= 4) return
    const [oldest] = this.snapshots.keys()
    this.snapshots.delete(oldest)
    if (Chaos.known(await this.ask('DELETE', `/templates/${encodeURIComponent(oldest)}`), 204)) this.count('delete snapshot')
  }

  async fork(box) {
    if (this.boxes.size >= MOST) return
    const files = [...box.files]
    const answer = await this.ask('POST', `/sandboxes/${box.id}/fork`, { count: 1 + this.random(2), timeout: 3000 })
    if (!Chaos.known(answer, 201)) return
    for (const one of answer.body) {
      if (!one.sandbox) continue
      this.add(one.sandbox, files)
      this.count('fork')
    }
  }

  async remove(box) {
    const answer = await this.ask('DELETE', `/sandboxes/${box.id}`)
    if (Chaos.known(answer, 204, 404)) {
      this.boxes.delete(box.id)
      this.deleted.push(box.id)
      this.count('delete')
    } else {
      box.state = 'unknown'
      box.mayBeGone = true
    }
  }

  async step() {
    const free = [...this.boxes.values()].filter((box) => !box.busy && !box.shot && !box.mayBeGone)
    const name = this.pick(['create', 'create', 'write', 'write', 'write', 'pause', 'pause', 'snapshot', 'fork', 'remove'])
    if (name === 'create' || free.length === 0) return this.create()
    const box = this.pick(free)
    box.busy = true
    try {
      if (box.state !== 'running' && name !== 'remove') await this.resume(box)
      else await this[name](box)
    } finally {
      box.busy = false
    }
  }

  async work() {
    while (!this.halt) {
      await sleep(1) // a step that found nothing to do must not keep timers from running
      if (this.server.alive()) await this.step()
      else await sleep(5)
    }
  }

  // ---- kills

  kill(pid) {
    try {
      process.kill(pid, 'SIGKILL')
      return true
    } catch {
      return false
    }
  }

  async killServer() {
    const pid = this.server.servingPid
    if (pid === this.server.child.pid || !this.kill(pid)) return
    this.killed.server++
  }

  async killWarden() {
    this.killed.warden++
    await this.server.kill9()
    await this.server.start()
  }

  // The envd of a sandbox that nobody works on; a paused one loses its processes, not its files.
  async killEnvd() {
    const free = [...this.boxes.values()].filter((box) => !box.busy && !box.shot && !box.mayBeGone && box.state !== 'unknown')
    if (!free.length) return
    const box = this.pick(free)
    const pid = envdOf(box.id)
    if (!pid || !this.kill(pid)) return
    this.killed.envd++
    if (box.state === 'running') box.shot = true
  }

  kills() {
    return this.killed.server + this.killed.warden + this.killed.envd
  }

  // Kills until so many were done, and looks at everything now and then.
  async run(kills) {
    while (this.kills() < kills) {
      const until = Math.min(kills, this.kills() + ROUND)
      this.halt = false
      const workers = Array.from({ length: WORKERS }, () => this.work())
      while (this.kills() < until) {
        await sleep(this.random(250))
        await this.pick([() => this.killServer(), () => this.killWarden(), () => this.killEnvd()])()
      }
      this.halt = true
      await Promise.all(workers)
      await this.verify()
    }
  }

  // ---- the truth

  async list() {
    const found = new Map()
    let token
    do {
      const answer = await this.server.api('GET', `/v2/sandboxes?limit=100${token ? `&nextToken=${token}` : ''}`)
      assert.equal(answer.status, 200, answer.text)
      for (const one of answer.body) found.set(one.sandboxID, one.state)
      token = answer.headers['x-next-token']
    } while (token)
    return found
  }

  async checkFiles(box) {
    for (const [name, content] of box.files) {
      const answer = await this.file(box, 'GET', name)
      assert.equal(answer.status, 200, `${box.id}: acknowledged file ${name}: ${answer.status} ${answer.text.slice(0, 200)}`)
      assert.equal(answer.text, content, `${box.id}: content of ${name}`)
    }
  }

  async checkBox(box, state) {
    if (box.state !== 'unknown') assert.equal(state, box.state, `${box.id} was last told to be ${box.state}`)
    if (state === 'paused') {
      const answer = await this.server.api('POST', `/sandboxes/${box.id}/connect`, { timeout: 3000 })
      assert.equal(answer.status, 201, `${box.id} is paused and cannot be resumed: ${answer.status} ${answer.text}`)
    }
    box.state = 'running'
    const health = await this.server.sandbox(box.id, ENVD, '/health')
    assert.equal(health.status, 204, `${box.id} is listed but does not answer: ${health.text}`)
    await this.checkFiles(box)
  }

  // It ended, and says why.
  async checkShot(box) {
    await eventually(`${box.id} is ended`, async () => (await this.server.api('GET', `/sandboxes/${box.id}`)).status === 404)
    // Told when nothing of it is left.
    const last = await eventually(`why ${box.id} ended`, async () => (await this.server.api('GET', `/events/sandboxes/${box.id}`)).body.find((event) => event.type.endsWith('killed')))
    assert.equal(last.event_data.detail, 'crashed', JSON.stringify(last))
    this.boxes.delete(box.id)
    this.deleted.push(box.id)
  }

  async verify() {
    await eventually('the server answers', async () => (await this.ask('GET', '/sandboxes'))?.status === 200, 30_000)
    for (const box of [...this.boxes.values()].filter((one) => one.shot)) await this.checkShot(box)
    const listed = await this.list()
    for (const box of [...this.boxes.values()]) {
      if (listed.has(box.id)) {
        await this.checkBox(box, listed.get(box.id))
        box.mayBeGone = false
      } else {
        assert.ok(box.mayBeGone, `${box.id} was lost: ${JSON.stringify((await this.ask('GET', `/events/sandboxes/${box.id}`))?.body)}`)
        this.boxes.delete(box.id)
        this.deleted.push(box.id)
      }
    }
    // Creates and forks whose answer was lost are sandboxes like any other.
    for (const [id, state] of listed) {
      if (this.boxes.has(id)) continue
      const info = await this.server.api('GET', `/sandboxes/${id}`)
      const box = { id, token: info.body.envdAccessToken, files: new Map(), state, busy: false }
      await this.checkBox(box, state)
      this.boxes.set(id, box)
    }
    await this.checkHost()
  }

  // What is on the host is what the list says, and boxes made ahead.
  async checkHost(templates = WARM_TEMPLATES) {
    const most = (templates + 3) * this.server.warm + 2 // three blank ones for each; two threads make them
    for (const id of this.deleted.splice(0)) await eventually(`nothing of ${id} is left: ${ofSandbox(id, this.server.data)}`, () => ofSandbox(id, this.server.data).length === 0, 5000)
    await eventually('as many boxes as sandboxes', () => Object.values(this.onHost()).every((extra) => extra.length <= most), 10_000).catch((error) => assert.fail(`${error.message}, and at most ${most} besides: ${JSON.stringify(this.onHost())}`))
  }

  // What has no sandbox, by kind. `disks` includes what paused ones keep.
  onHost() {
    const instance = fs.readFileSync(path.join(this.server.data, 'instance'), 'utf8').trim()
    const known = (name) => this.boxes.has(name.slice(0, 20))
    const ids = (list) => list.filter((name) => /^i[a-z0-9]{19}/.test(name) && !known(name))
    const read = (folder) => {
      try {
        return fs.readdirSync(path.join(this.server.data, folder))
      } catch {
        return []
      }
    }
    const groups = new Set(cgroups(`quicksand-${instance}/`).map((one) => one.split(`quicksand-${instance}/`)[1].split('/')[0]))
    return { disks: ids(read('pool/boxes')), records: ids(read('run').filter((name) => name.endsWith('.box'))), cgroups: ids([...groups]) }
  }

  async finish() {
    for (const id of this.snapshots.keys()) await this.ask('DELETE', `/templates/${encodeURIComponent(id)}`)
    const left = await this.server.api('GET', '/snapshots?limit=100')
    for (const one of left.body) await this.ask('DELETE', `/templates/${encodeURIComponent(one.snapshotID)}`)
    for (const id of (await this.list()).keys()) {
      assert.equal((await this.server.api('DELETE', `/sandboxes/${id}`)).status, 204)
      this.deleted.push(id)
    }
    this.boxes.clear()
    const layers = () => fs.readdirSync(path.join(this.server.data, 'pool/layers'))
    await eventually('no layer is left', () => layers().length === 0, 30_000, 200).catch((error) => assert.deepEqual(layers(), [], error.message))
    assert.deepEqual(fs.readdirSync(path.join(this.server.data, 'pool/temporary')), [])
    await this.checkHost(1)
  }
}

export function envdOf(id) {
  return findProcesses(isEnvd).find((one) => {
    try {
      return fs.readFileSync(`/proc/${one.pid}/cgroup`, 'utf8').includes(id)
    } catch {
      return false
    }
  })?.pid
}
