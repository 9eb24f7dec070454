// What is kept and what is deleted as time passes, on the engine of this host, with the server's clock moved.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { DAY, HOUR, passTime } from '../harness/clock.mjs'
import { findProcesses, isEnvd } from '../harness/leftovers.mjs'
import { startRuntime } from '../harness/runtime.mjs'
import { binary, eventually, repository } from '../harness/server.mjs'

let one
const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
before(async () => (one = await startRuntime({ sandbox_agent: { program } })))
after(() => one.destroy())

const cli = (...args) => {
  const env = { PATH: process.env.PATH, HOME: '/nonexistent', NO_COLOR: '1', QUICKSAND_URL: one.server.url, QUICKSAND_API_KEY: one.server.key }
  const { status, stdout, stderr } = spawnSync(binary, args, { env, encoding: 'utf8' })
  assert.equal(status, 0, stderr)
  return { stdout, stderr }
}

// One of each thing of a team that has no files in a sandbox, and how to see that it is still there.
async function makeThings() {
  const { server } = one
  const good = async (status, method, target, body, options) => {
    const answer = await server.api(method, target, body, options)
    assert.equal(answer.status, status, `${method} ${target}: ${answer.text}`)
    return answer.body
  }
  const browser = { key: null, headers: { 'X-BB-API-Key': server.key } }
  await good(201, 'POST', '/secrets', { name: 'kept', value: 'hush' })
  const { key } = await good(201, 'POST', '/api-keys', { name: 'kept' })
  const hook = await good(201, 'POST', '/events/webhooks', { name: 'kept', url: 'https://hooks.example/x', signatureSecret: 's'.repeat(40), enabled: true, events: ['sandbox.lifecycle.created'] })
  const team = await good(201, 'POST', '/admin/teams', { name: 'kept' })
  const context = await good(201, 'POST', '/v1/contexts', {}, browser)
  const form = new FormData()
  form.append('file', new Blob(['PK\x03\x04 is how a zip begins; only a session unpacks it']), 'kept.zip')
  const sent = await fetch(`${server.url}/v1/extensions`, { method: 'POST', headers: { 'X-BB-API-Key': server.key }, body: form })
  const extension = await sent.json()
  assert.equal(sent.status, 201, JSON.stringify(extension))
  return {
    async check() {
      assert.equal((await good(200, 'GET', '/secrets/kept')).name, 'kept')
      assert.ok(Array.isArray(await good(200, 'GET', '/sandboxes', undefined, { key })), 'the key still opens the API')
      assert.equal((await good(200, 'GET', `/events/webhooks/${hook.id}`)).enabled, true)
      const teams = await good(200, 'GET', '/admin/teams')
      assert.ok(teams.some((found) => found.name === 'kept' && (found.id ?? found.teamID) === (team.id ?? team.teamID)))
      assert.equal((await good(200, 'GET', `/v1/contexts/${context.id}`, undefined, browser)).id, context.id)
      assert.equal((await good(200, 'GET', `/v1/extensions/${extension.id}`, undefined, browser)).fileName, 'kept.zip')
    },
  }
}

describe('a key', () => {
  test('files survive a year: paused by the idle time, by request, and running', async () => {
    const up = cli('up', '--key', 'year', '--template', 'base', '-q')
    const id = up.stdout.trim()
    assert.match(up.stderr, new RegExp(`^${id} created on .*key year`))
    await one.execute(id, 'echo mine >/home/user/f')
    const paused = await one.create({ key: 'paused', template: 'base', lifecycle: { idleTimeoutSeconds: 1 } })
    await one.execute(paused.id, 'echo paused >/home/user/f')
    await one.ok(200, 'POST', `/sandboxes/${paused.id}/pause`)
    const keyless = await one.create({ template: 'base' })
    await one.execute(keyless.id, 'echo keyless >/home/user/f')
    await one.ok(200, 'POST', `/sandboxes/${keyless.id}/pause`)
    const ended = await one.create({ template: 'base' })
    // One that E2B's API has made and paused.
    const { sandboxID: theirs } = await one.server.create()
    await eventually('the runtime knows it', async () => (await one.v1('GET', `/sandboxes/${theirs}`)).status === 200)
    await one.execute(theirs, 'echo theirs >/home/user/f')
    assert.equal((await one.server.api('POST', `/sandboxes/${theirs}/pause`)).status, 204)
    await passTime(one.server, HOUR)
    await eventually('the idle time pauses the one with a key', async () => (await one.get(id)).state === 'paused')
    await eventually('and ends the one without', async () => (await one.get(ended.id)).state === 'killed')
    await passTime(one.server, 366 * DAY)
    // The clean-up that runs each hour, asked for at once.
    assert.equal((await one.ok(200, 'POST', '/prune', {})).sandboxes, 0)
    const again = cli('up', '--key', 'year', '--template', 'base', '-q')
    assert.equal(again.stdout.trim(), id)
    assert.match(again.stderr, new RegExp(`^${id} resumed on`))
    assert.doesNotMatch(again.stderr, /warning/)
    assert.equal(await one.output(id, 'cat /home/user/f'), 'mine\n')
    const found = await one.create({ key: 'paused', template: 'base', lifecycle: { idleTimeoutSeconds: 1 } })
    assert.deepEqual([found.id, found.tier, found.previous], [paused.id, 'resumed', undefined])
    assert.equal(await one.output(found.id, 'cat /home/user/f'), 'paused\n')
    assert.equal(await one.output(keyless.id, 'cat /home/user/f'), 'keyless\n')
    assert.equal((await one.server.api('GET', `/sandboxes/${theirs}`)).body.state, 'paused')
    assert.equal((await one.server.api('POST', `/sandboxes/${theirs}/connect`, { timeout: 300 })).status, 201)
    assert.equal(await one.output(theirs, 'cat /home/user/f'), 'theirs\n')
    for (const box of [id, paused.id, keyless.id, theirs]) await one.remove(box)
  })

  test('files survive the crash of the sandbox', async () => {
    const box = await one.create({ key: 'crash', template: 'base' })
    const without = await one.create({ template: 'base' })
    await one.execute(box.id, 'echo mine >/home/user/f; sync')
    for (const { external_id: id } of [box, without]) {
      const envd = findProcesses(isEnvd).find((found) => fs.readFileSync(`/proc/${found.pid}/cgroup`, 'utf8').includes(id))
      process.kill(envd.pid, 'SIGKILL')
    }
    await eventually('it is paused', async () => (await one.get(box.id)).state === 'paused')
    await eventually('one without a key ends', async () => (await one.get(without.id)).state === 'killed')
    const again = await one.create({ key: 'crash', template: 'base' })
    assert.deepEqual([again.id, again.tier], [box.id, 'resumed'])
    assert.equal(await one.output(box.id, 'cat /home/user/f'), 'mine\n')
    await one.remove(box.id)
  })

  test('up warns that the files of the previous sandbox are gone, and why', async () => {
    const first = cli('up', '--key', 'gone', '--template', 'base', '-q').stdout.trim()
    cli('rm', first)
    const { stdout, stderr } = cli('up', '--key', 'gone', '--template', 'base')
    assert.match(stdout, /^i\w+ created on \S+, key gone\n$/)
    assert.match(stderr, new RegExp(`warning: the files of the previous sandbox with key 'gone' \\(${first}\\) are gone, since 20.*: on request`))
    const second = stdout.split(' ')[0]
    const other = cli('up', '--key', 'gone', '--template', 'base', '--network', 'deny-all', '-q')
    assert.match(other.stderr, new RegExp(`created on .*\n.*note: sandbox ${second} with key 'gone' has other settings .* is kept`))
    assert.equal((await one.get(second)).state, 'running')
    // From a snapshot of the one before.
    await one.execute(second, 'echo kept >/home/user/f')
    await one.ok(201, 'POST', `/sandboxes/${second}/snapshots`, { alias: 'kept' })
    cli('rm', second)
    const restored = cli('up', '--key', 'gone', '--template', 'base', '--snapshot', 'kept', '-q')
    const third = restored.stdout.trim()
    assert.match(restored.stderr, new RegExp(`^${third} restored on \\S+, key gone\n`))
    assert.match(restored.stderr, new RegExp(`warning: the files of the previous sandbox with key 'gone' \\(${second}\\) are gone except those in its snapshot, since 20.*: on request`))
    assert.equal(await one.output(third, 'cat /home/user/f'), 'kept\n')
    await one.ok(204, 'DELETE', '/snapshots/kept')
    await one.remove(third)
    await one.remove(other.stdout.trim())
  })

  test('expireAfterSeconds deletes what nobody used for so long, and only that', async () => {
    const lifecycle = { expireAfterSeconds: 2 * DAY }
    const first = await one.create({ key: 'expires', template: 'base', lifecycle })
    assert.equal(first.expire_after, 2 * DAY)
    await one.execute(first.id, 'echo x >/home/user/f')
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    const lived = () => cli('up', '--key', 'lived', '--template', 'base', '--max-lifetime', '2d', '-q')
    const mortal = lived().stdout.trim()
    await one.ok(200, 'POST', `/sandboxes/${mortal}/pause`)
    await passTime(one.server, 1 * DAY)
    assert.match(lived().stderr, new RegExp(`^${mortal} resumed on .*\n$`))
    assert.deepEqual([(await one.create({ key: 'expires', template: 'base', lifecycle })).id, await one.output(first.id, 'cat /home/user/f')], [first.id, 'x\n'])
    await one.ok(200, 'POST', `/sandboxes/${first.id}/pause`)
    await passTime(one.server, 3 * DAY)
    const again = await one.create({ key: 'expires', template: 'base', lifecycle })
    assert.equal(again.tier, 'created')
    assert.equal(again.previous.id, first.id)
    assert.equal(again.previous.files, 'gone')
    assert.match(again.previous.reason, /expireAfterSeconds/)
    const next = lived()
    assert.match(next.stderr, new RegExp(`created on .*\n.*warning: the files of the previous sandbox with key 'lived' \\(${mortal}\\) are gone, since 20.*: older than its lifecycle\\.maxLifetimeSeconds\n`))
    await one.remove(again.id)
    await one.remove(next.stdout.trim())
  })
})

// What the builder keeps: results of steps and uploaded files, while they are used; builds, with their logs, while a tag names them.
test('thirty days: unused results of builds, uploads and unnamed builds go, and no earlier', async () => {
  const made = async () => {
    const build = (await one.server.api('POST', '/v3/templates', { name: 'aged' })).body
    const at = `/templates/${build.templateID}/builds/${build.buildID}`
    const started = await one.server.api('POST', `/v2${at}`, { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['echo aged'] }] })
    assert.equal(started.status, 202, started.text)
    const end = await eventually('the build has ended', async () => {
      const { body } = await one.server.api('GET', `${at}/status`)
      return ['ready', 'error'].includes(body.status) && body
    }, 120_000, 200)
    assert.equal(end.status, 'ready', JSON.stringify(end.reason))
    return { ...build, at: `${at}/status`, cached: end.logEntries.some((entry) => /CACHED .*echo aged/.test(entry.message)) }
  }
  const file = async (build) => (await one.server.api('GET', `/templates/${build.templateID}/files/${'a1'.repeat(32)}`)).body
  const status = async (build) => (await one.server.api('GET', build.at)).status
  const first = await made()
  assert.equal(first.cached, false)
  const { url } = await file(first)
  const body = Buffer.from('uploaded')
  assert.equal((await one.server.request({ method: 'PUT', path: url.slice(one.server.url.length), headers: { 'Content-Length': body.length }, body })).status, 200)
  const blob = path.join(one.server.data, 'store/blobs', 'b2'.repeat(32))
  const now = Date.now() / 1000 + (one.server.passedSeconds ?? 0) // as the server sees it; the kernel marks files with the real time
  fs.writeFileSync(blob, 'of an image')
  fs.utimesSync(blob, now, now)
  await passTime(one.server, 29 * DAY)
  assert.ok(fs.existsSync(blob))
  assert.equal((await file(first)).present, true)
  const second = await made() // takes the tag from the first
  assert.equal(second.cached, true)
  assert.equal(await status(first), 200)
  await passTime(one.server, 31 * DAY)
  assert.ok(!fs.existsSync(blob))
  await eventually('the build that no tag names is forgotten', async () => (await status(first)) === 404)
  assert.equal(await status(second), 200)
  await eventually('the upload is gone', async () => !(await file(second)).present)
  assert.equal((await made()).cached, false)
})

describe('a year of time', () => {
  test('deletes nothing that somebody made: volumes, snapshots, templates, tags, profiles, secrets, keys, webhooks, teams, contexts, extensions', async () => {
    const things = await makeThings()
    const context = fs.mkdtempSync('/tmp/quicksand-keep-')
    fs.writeFileSync(`${context}/Dockerfile`, 'FROM template://base\nRUN echo built >/built\n')
    cli('template', 'build', 'mine', context)
    assert.equal((await one.server.api('POST', '/templates/tags', { target: 'mine:default', tags: ['stable'] })).status, 201)
    const { volumeID } = (await one.server.api('POST', '/volumes', { name: 'data' })).body
    assert.ok(volumeID)
    const box = await one.server.create({ templateID: 'mine', volumeMounts: [{ name: 'data', path: '/data' }] })
    const inside = (id, command) => one.output(id, command)
    await eventually('the runtime knows it', async () => (await one.v1('GET', `/sandboxes/${box.sandboxID}`)).status === 200)
    await inside(box.sandboxID, 'echo volume | sudo tee /data/f; echo file >/home/user/f')
    const ours = await one.ok(201, 'POST', `/sandboxes/${box.sandboxID}/snapshots`, { alias: 'mine' })
    assert.equal(ours.expires_at, null)
    const theirs = (await one.server.api('POST', `/sandboxes/${box.sandboxID}/snapshots`, { name: 'theirs' })).body
    assert.ok(theirs.snapshotID, JSON.stringify(theirs))
    await one.ok(200, 'PUT', '/profiles/mine', { network: { mode: 'allow-all' } })
    const ended = await one.create({ template: 'base' })
    await one.remove(ended.id)
    await one.server.api('DELETE', `/sandboxes/${box.sandboxID}`)
    await passTime(one.server, 400 * DAY)
    assert.equal((await one.ok(200, 'POST', '/prune', {})).snapshots, 0)
    const again = await one.create({ template: 'mine', key: 'again' })
    assert.equal(await inside(again.id, 'cat /built'), 'built\n')
    const restored = await one.create({ snapshot: 'mine' })
    assert.equal(await inside(restored.id, 'cat /home/user/f'), 'file\n')
    const copy = await one.server.create({ templateID: theirs.snapshotID, volumeMounts: [{ name: 'data', path: '/data' }] })
    await eventually('the runtime knows it', async () => (await one.v1('GET', `/sandboxes/${copy.sandboxID}`)).status === 200)
    assert.equal(await inside(copy.sandboxID, 'cat /data/f /home/user/f'), 'volume\nfile\n')
    assert.equal((await one.ok(200, 'GET', '/profiles/mine')).name, 'mine')
    const tagged = await one.create({ template: 'mine:stable' })
    assert.equal(await inside(tagged.id, 'cat /built'), 'built\n')
    await things.check()
    // History of the engine: a week.
    assert.equal((await one.server.api('GET', `/sandboxes/${ended.id}`)).status, 404)
    for (const id of [again.id, restored.id, copy.sandboxID, tagged.id]) await one.v1('DELETE', `/sandboxes/${id}`)
    fs.rmSync(context, { recursive: true })
  })
})

describe('24 hours', () => {
  test('a session works for 24 hours, in one sandbox that is never paused', async () => {
    const lifecycle = { idleTimeoutSeconds: 4 * HOUR }
    const session = await one.ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, lifecycle })
    const box = (await one.ok(200, 'GET', `/sessions/${session.id}`)).sandbox_id
    await one.execute(box, 'nohup sleep 1000000 >/dev/null 2>&1 & echo $! >/home/user/pid')
    const answers = async () => (await one.ok(200, 'GET', `/sessions/${session.id}/events?since=0&limit=1000`)).events.filter((event) => event.type === 'agent.turn.completed').length
    for (let hours = 0; hours <= 24; hours += 3) {
      const before = await answers()
      await one.ok(202, 'POST', `/sessions/${session.id}/messages`, { message: `after ${hours} hours` })
      await eventually(`an answer after ${hours} hours`, async () => (await answers()) > before, 60_000, 100)
      if (hours < 24) await passTime(one.server, 3 * HOUR)
    }
    assert.equal((await one.ok(200, 'GET', `/sessions/${session.id}`)).sandbox_id, box)
    assert.equal(await one.output(box, 'kill -0 $(cat /home/user/pid) && echo alive'), 'alive\n')
    assert.equal(await one.count(box, 'sandbox.paused'), 0)
    await one.remove(box)
  })
})
