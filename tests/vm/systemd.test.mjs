// As a service of systemd, with the unit of docs/operate.md: sandboxes are none of systemd's business, whatever it
// does with the service or with its own cgroups.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, repository } from '../harness/server.mjs'
import { cgroups, links, loopDevices, mounts } from '../harness/leftovers.mjs'

const data = '/data/service'
const key = `e2b_${'a1'.repeat(20)}`
const url = 'http://127.0.0.1:3000'
const unit = '/run/systemd/system/quicksand.service'

function run(...command) {
  const result = spawnSync(command[0], command.slice(1), { encoding: 'utf8', timeout: 60_000 * patience })
  assert.equal(result.status, 0, `${command.join(' ')}: ${result.stderr}${result.stdout}`)
  return result.stdout.trim()
}

async function api(method, target, body) {
  const answer = await fetch(url + target, { method, headers: { 'X-API-KEY': key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body), signal: AbortSignal.timeout(60_000 * patience) })
  const text = await answer.text()
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : undefined }
}

async function serving() {
  try {
    await eventually('the server', () => api('GET', '/health').then(({ status }) => status < 300, () => false), 10_000, 200)
  } catch (error) {
    throw new Error(`${error.message}\n${spawnSync('journalctl', ['-n', '40', '-u', 'quicksand'], { encoding: 'utf8' }).stdout}`)
  }
}
const instance = () => fs.readFileSync(`${data}/instance`, 'utf8').trim()
const folder = (id) => `/sys/fs/cgroup/quicksand-${instance()}/${id}`
const knob = (id, name) => fs.readFileSync(`${folder(id)}/${name}`, 'utf8').trim()
const processes = (id) => knob(id, 'cgroup.procs').split('\n').filter(Boolean)

async function alive(id) {
  assert.equal((await api('GET', `/sandboxes/${id}`)).body?.state, 'running')
  assert.equal((await fetch(url + '/health', { headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983' } })).status, 204)
}

function limited(id) {
  assert.equal(knob(id, 'memory.max'), String(512 << 20))
  assert.equal(knob(id, 'cpu.max'), '200000 100000')
  assert.ok(Number(knob(id, 'pids.max')) > 0 && Number(knob(id, 'memory.current')) > 0)
}

let id
before(async () => {
  const text = fs.readFileSync(path.join(repository, 'docs/operate.md'), 'utf8')
  const [, example] = /^( +\[Unit\]\n(?:(?: {4}.*)?\n)+)/m.exec(text)
  fs.mkdirSync(path.dirname(unit), { recursive: true })
  fs.writeFileSync(unit, example.replace(/^ {4}/gm, '').replace(/^ExecStart=.*$/m, `ExecStart=${binary} serve --data ${data} --warm 1\nEnvironment=QUICKSAND_API_KEY=${key} QUICKSAND_BASE_LAYER=${process.env.QUICKSAND_BASE_LAYER}`))
  run('systemctl', 'daemon-reload')
  run('systemctl', 'start', 'quicksand')
  await serving()
  const answer = await api('POST', '/sandboxes', { templateID: 'base', timeout: 3600 })
  assert.equal(answer.status, 201)
  id = answer.body.sandboxID
})
after(() => {
  spawnSync('systemctl', ['stop', 'quicksand'])
  spawnSync(binary, ['down', '--data', data])
  fs.rmSync(unit, { force: true })
})

test('sandboxes are beside systemd’s cgroups, with their limits', async () => {
  assert.ok(processes(id).length > 0)
  limited(id)
  await alive(id)
})

test('systemd may rearrange its own cgroups', async () => {
  run('systemctl', 'daemon-reload')
  run('systemd-run', '--wait', '--quiet', '-p', 'CPUWeight=50', '-p', 'MemoryMax=64M', '-p', 'IOWeight=10', '/bin/true')
  run('systemctl', 'daemon-reexec')
  run('systemd-run', '--wait', '--quiet', '/bin/true')
  limited(id)
  await alive(id)
  const answer = await api('POST', '/sandboxes', { templateID: 'base', timeout: 3600 })
  assert.equal(answer.status, 201)
  limited(answer.body.sandboxID)
  assert.equal((await api('DELETE', `/sandboxes/${answer.body.sandboxID}`)).status, 204)
})

test('a stopped service leaves its sandboxes running, and finds them again', async () => {
  const first = processes(id)
  run('systemctl', 'stop', 'quicksand')
  assert.deepEqual(processes(id), first)
  run('systemctl', 'start', 'quicksand')
  await serving()
  await alive(id)
})

test('a killed service is started again, and finds them again', async () => {
  run('systemctl', 'kill', '--kill-whom=all', '--signal=KILL', 'quicksand')
  await eventually('systemd’s restart', () => spawnSync('systemctl', ['is-active', '--quiet', 'quicksand']).status === 0, 30_000, 200)
  await serving()
  await alive(id)
})

test('after stop and down nothing is left', async () => {
  const name = instance()
  run('systemctl', 'stop', 'quicksand')
  run(binary, 'down', '--data', data)
  assert.deepEqual([...mounts().filter((one) => one.startsWith(data)), ...cgroups(name), ...loopDevices(data), ...links().filter((one) => one.includes(name))], [])
})
