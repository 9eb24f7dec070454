// The build API as it is on the wire: what is refused and how, uploads, who may see what, paging.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'

let server, other
before(async () => {
  server = await startServer({ args: ['--upload-max', '1'] })
  const team = (await server.api('POST', '/admin/teams', { name: 'others' })).body
  const key = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body
  other = { key: key.key }
})
after(() => server?.destroy())

const sha = (data) => crypto.createHash('sha256').update(data).digest('hex')

async function request(name, body = {}, options) {
  const answer = await server.api('POST', '/v3/templates', { name, ...body }, options)
  assert.equal(answer.status, 202, answer.text)
  return answer.body
}

const status = ({ templateID, buildID }, query = '') => server.api('GET', `/templates/${templateID}/builds/${buildID}/status${query}`)

async function start(build, recipe) {
  const answer = await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, recipe)
  assert.equal(answer.status, 202, answer.text)
  assert.equal(answer.text, '')
}

async function finish(build) {
  return eventually('the build has ended', async () => {
    const { body } = await status(build)
    return ['ready', 'error'].includes(body.status) && body
  }, 60_000)
}

async function made(name, recipe = {}, body = {}) {
  const build = await request(name, body)
  await start(build, { fromTemplate: 'base', ...recipe })
  const end = await finish(build)
  assert.equal(end.status, 'ready', JSON.stringify(end.reason))
  return build
}

test('a build waits, runs, and is ready', async () => {
  const build = await request('first', { tags: ['v1'], cpuCount: 2, memoryMB: 512 })
  assert.equal(build.public, false)
  assert.deepEqual(build.aliases, ['first'])
  assert.match(build.names[0], /^[a-z0-9-]+\/first$/)
  assert.deepEqual(build.tags, ['v1'])
  assert.equal((await status(build)).body.status, 'waiting')
  await start(build, { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['echo hello'] }] })
  assert.ok(['building', 'ready'].includes((await status(build)).body.status))
  const end = await finish(build)
  assert.equal(end.status, 'ready')
  assert.deepEqual(end.logs, [])
  assert.ok(end.logEntries.some((entry) => /RUN echo hello/.test(entry.message)))
  for (const entry of end.logEntries) assert.ok(['debug', 'info', 'warn', 'error'].includes(entry.level) && !Number.isNaN(Date.parse(entry.timestamp)))
  // Once is enough.
  assert.equal((await server.api('POST', `/v2/templates/${build.templateID}/builds/${build.buildID}`, { fromTemplate: 'base' })).status, 409)
})

test('logs come in pages, in both directions and by level', async () => {
  const build = await made('noisy', { steps: [{ type: 'RUN', args: ['seq -f "line %g" 1 250'] }] })
  const all = []
  for (;;) {
    const { logEntries } = (await status(build, `?logsOffset=${all.length}`)).body
    assert.ok(logEntries.length <= 100)
    if (!logEntries.length) break
    all.push(...logEntries)
  }
  const lines = all.map((entry) => /\[stdout\]: line (\d+)$/.exec(entry.message)).filter(Boolean).map((match) => Number(match[1]))
  assert.deepEqual(lines, Array.from({ length: 250 }, (_, i) => i + 1))
  const logs = (query) => server.api('GET', `/templates/${build.templateID}/builds/${build.buildID}/logs?${query}`)
  const newest = (await logs('direction=backward&limit=5')).body.logs
  assert.equal(newest.length, 5)
  assert.deepEqual(newest.map((entry) => entry.message), all.slice(-5).reverse().map((entry) => entry.message))
  assert.deepEqual((await logs('level=error')).body.logs, [])
  assert.deepEqual((await logs(`cursor=${Date.now() + 60_000}`)).body.logs, [])
  assert.equal((await logs('direction=sideways')).status, 400)
})

test('what is wrong is refused, and says what', async () => {
  const bad = async (method, target, body, code, words) => {
    const answer = await server.api(method, target, body)
    assert.equal(answer.status, code, `${method} ${target}: ${answer.text}`)
    assert.equal(answer.body.code, code)
    assert.match(answer.body.message, words)
  }
  await bad('POST', '/v3/templates', {}, 400, /Name is required/)
  await bad('POST', '/v3/templates', { name: 'a b' }, 400, /name/)
  await bad('POST', '/v3/templates', { name: 'a:b:c' }, 400, /./)
  await bad('POST', '/v3/templates', { name: 'a', tags: ['bad tag'] }, 400, /tag/)
  await bad('POST', '/v3/templates', { name: 'a', cpuCount: 3 }, 400, /^CPU count must be 1 or an even number$/)
  await bad('POST', '/v3/templates', { name: 'a', cpuCount: 34 }, 400, /^CPU count must be at most 32$/)
  await bad('POST', '/v3/templates', { name: 'a', memoryMB: 129 }, 400, /^Memory must be divisible by 2$/)
  await bad('POST', '/v3/templates', { name: 'others/a' }, 403, /./)
  await bad('POST', '/templates', { dockerfile: 'FROM x' }, 501, /v3\/templates/)
  await bad('GET', '/templates/nope', undefined, 404, /nope/)
  await bad('DELETE', '/templates/base', undefined, 403, /base/)
  const build = await request('wrong')
  const at = `/v2/templates/${build.templateID}/builds/${build.buildID}`
  await bad('GET', `/templates/${build.templateID}/builds/nonsense/status`, undefined, 400, /build/)
  await bad('GET', `/templates/${build.templateID}/builds/${crypto.randomUUID()}/status`, undefined, 404, /not found/)
  await bad('POST', at, { fromTemplate: 'base', steps: [{ type: 'DANCE', args: [] }] }, 400, /step 1/)
  await bad('POST', at, { fromTemplate: 'base', steps: 'all' }, 400, /steps/)
  await bad('POST', at, { fromTemplate: 'base', fromImage: 'x' }, 400, /./)
  await bad('POST', at, '{"fromTemplate":', 400, /JSON/)
  // A fault of the recipe leaves the build waiting for a better one.
  await start(build, { fromTemplate: 'base' })
  assert.equal((await finish(build)).status, 'ready')
})

test('uploads: by a signed link, of the length that was said, once', async () => {
  const build = await request('uploads')
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'upload-'))
  fs.writeFileSync(path.join(folder, 'hello.txt'), 'uploaded')
  const tar = execFileSync('tar', ['-C', folder, '-czf', '-', 'hello.txt'])
  fs.rmSync(folder, { recursive: true })
  const hash = sha('the client calls it this')
  const link = async (query = '') => {
    const answer = await server.api('GET', `/templates/${build.templateID}/files/${hash}${query}`)
    assert.equal(answer.status, 201, answer.text)
    return answer.body
  }
  const put = (url, body, headers = {}) => server.request({ method: 'PUT', path: url.slice(server.url.length), headers, body })
  const first = await link()
  assert.equal(first.present, false)
  assert.ok(first.url.startsWith(`${server.url}/templates/uploads/${hash}?`), first.url)
  assert.equal((await put(first.url.replace(/signature=../, 'signature=zz'), tar, { 'Content-Length': tar.length })).status, 403)
  assert.equal((await put(first.url.replace(hash, sha('another')), tar, { 'Content-Length': tar.length })).status, 403)
  assert.equal((await put(first.url.replace(/team=[^&]*/, 'team=others'), tar, { 'Content-Length': tar.length })).status, 403)
  assert.equal((await put(first.url, Buffer.alloc((1 << 20) + 1), { 'Content-Length': (1 << 20) + 1 })).status, 413)
  const exact = (await link(`?length=${tar.length + 1}`)).url
  assert.equal((await put(exact, tar, { 'Content-Length': tar.length })).status, 400)
  assert.equal((await put(exact, tar, { 'Transfer-Encoding': 'chunked' })).status, 411)
  assert.equal((await put(first.url, Buffer.alloc((1 << 20) + 1), { 'Transfer-Encoding': 'chunked' })).status, 413)
  assert.equal((await server.api('GET', `/templates/${build.templateID}/files/nonsense`)).status, 400)
  // A client that leaves in the middle leaves nothing. A body that is not complete is a file without a name.
  const incomplete = () => {
    const folder = `/proc/${server.servingPid}/fd`
    const link = (fd) => {
      try {
        return fs.readlinkSync(`${folder}/${fd}`)
      } catch {
        return ''
      }
    }
    return fs.readdirSync(folder).filter((fd) => link(fd).startsWith(`${server.data}/store/#`)).length
  }
  const socket = await server.connect()
  socket.write(`PUT ${first.url.slice(server.url.length)} HTTP/1.1\r\nHost: x\r\nContent-Length: ${tar.length}\r\n\r\nhalf`)
  await eventually('its body is begun', () => incomplete() === 1)
  socket.destroy()
  await eventually('nothing of it is there', () => incomplete() === 0)
  const another = await server.connect()
  another.write(`PUT ${first.url.slice(server.url.length)} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n`)
  await eventually('its body is begun', () => incomplete() === 1)
  another.destroy()
  await eventually('nothing of it is there', () => incomplete() === 0)
  assert.equal((await link()).present, false)
  assert.equal((await put(first.url, tar, { 'Content-Length': tar.length })).status, 200)
  const second = await link()
  assert.equal(second.present, true)
  assert.ok(second.url)
  // What another team uploaded is not there for this one.
  const theirs = await request('theirs', {}, other)
  assert.equal((await server.api('GET', `/templates/${theirs.templateID}/files/${hash}`, undefined, other)).body.present, false)
  const uploads = path.join(server.data, 'store/uploads')
  assert.equal(fs.readdirSync(uploads).length, 1)
  await start(build, { fromTemplate: 'base', steps: [{ type: 'COPY', args: ['hello.txt', '/opt/', '', ''], filesHash: hash }] })
  assert.equal((await finish(build)).status, 'ready')
  const sandbox = await server.create({ templateID: 'uploads' })
  assert.equal((await server.sandbox(sandbox.sandboxID, 49983, '/files?path=/opt/hello.txt', { headers: { 'X-Access-Token': sandbox.envdAccessToken ?? '' } })).text, 'uploaded')
  await server.api('DELETE', `/sandboxes/${sandbox.sandboxID}`)
})

test('uploads count against the disk of the team', async () => {
  const team = (await server.api('POST', '/admin/teams', { name: 'small', maxDiskMB: 1 })).body
  const { key } = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body
  const { templateID } = await request('small', {}, { key })
  const upload = async (name) => {
    const body = crypto.randomBytes(600_000)
    const { url } = (await server.api('GET', `/templates/${templateID}/files/${sha(name)}`, undefined, { key })).body
    return server.request({ method: 'PUT', path: url.slice(server.url.length), headers: { 'Content-Length': body.length }, body })
  }
  const before = fs.readdirSync(path.join(server.data, 'store/uploads')).length
  assert.equal((await upload('one')).status, 200)
  const refused = await upload('two')
  assert.equal(refused.status, 429, refused.text)
  assert.match(refused.body.message, /limit of 1 MiB of disk/)
  assert.equal(fs.readdirSync(path.join(server.data, 'store/uploads')).length, before + 1)
})

test('a COPY of what was not uploaded fails with its step', async () => {
  const build = await request('lacking')
  await start(build, { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['true'] }, { type: 'COPY', args: ['a', '/a', '', ''], filesHash: sha('never uploaded') }] })
  const end = await finish(build)
  assert.equal(end.status, 'error')
  assert.equal(end.reason.step, '2')
  assert.ok(end.reason.message)
})

test('visibility: own ones, public ones of others', async () => {
  const build = await made('shared', { steps: [{ type: 'RUN', args: ['echo shared > ~/s'] }] })
  const full = build.names[0]
  const create = (templateID, options) => server.api('POST', '/sandboxes', { templateID, timeout: 60 }, options)
  assert.equal((await server.api('GET', `/templates/${build.templateID}`, undefined, other)).status, 404)
  assert.equal((await create(full, other)).status, 404)
  assert.equal((await server.api('GET', `/templates/aliases/${encodeURIComponent(full)}`, undefined, other)).status, 404)
  const base = `/templates/${build.templateID}`
  for (const [method, target, body] of [
    ['GET', `${base}/tags`], ['GET', `${base}/settings`], ['GET', `${base}/layer`], ['GET', `${base}/files/${'0'.repeat(64)}`],
    ['GET', `${base}/builds/${build.buildID}/status`], ['GET', `${base}/builds/${build.buildID}/logs`],
    ['POST', `${base}/builds/${build.buildID}`, { fromTemplate: 'base' }], ['POST', `/v2${base}/builds/${build.buildID}`, { fromTemplate: 'base' }],
    ['POST', `${base}/builds/${build.buildID}/cancel`], ['DELETE', `${base}/builds/${build.buildID}`],
    ['PATCH', base, { public: true }], ['PATCH', `/v2${base}`, { public: true }], ['DELETE', base],
    ['POST', '/templates/tags', { target: full, tags: ['x'] }], ['DELETE', '/templates/tags', { name: full, tags: ['x'] }],
  ]) {
    const headers = body ? { 'Content-Length': String(JSON.stringify(body).length) } : {}
    const { status, text } = await server.api(method, target, body, { ...other, headers })
    assert.equal(status, 404, `${method} ${target}: ${status} ${text}`)
  }
  const from = await request('from-theirs', {}, other)
  assert.equal((await server.api('POST', `/v2/templates/${from.templateID}/builds/${from.buildID}`, { fromTemplate: full }, other)).status, 202)
  const stopped = await eventually('it has ended', async () => {
    const { body } = await server.api('GET', `/templates/${from.templateID}/builds/${from.buildID}/status`, undefined, other)
    return ['ready', 'error'].includes(body.status) && body
  })
  assert.equal(stopped.status, 'error')
  assert.match(stopped.reason.message, /template 'default\/shared' not found/)
  const changed = await server.api('PATCH', `/v2/templates/${build.templateID}`, { public: true })
  assert.equal(changed.status, 200)
  assert.deepEqual(changed.body.names, [full])
  const sandbox = await create(full, other)
  assert.equal(sandbox.status, 201, sandbox.text)
  await server.api('DELETE', `/sandboxes/${sandbox.body.sandboxID}`, undefined, other)
  assert.equal((await server.api('GET', `/templates/aliases/${encodeURIComponent(full)}`, undefined, other)).body.public, true)
  const seen = await server.api('GET', `/templates/${encodeURIComponent(full)}`, undefined, other)
  assert.deepEqual([seen.status, seen.body.templateID, seen.body.builds], [200, build.templateID, []], 'how it was made is its team’s')
  assert.equal((await server.api('GET', `/templates/${encodeURIComponent(full)}/tags`, undefined, other)).status, 200)
  assert.equal((await server.api('PATCH', `/v2/templates/${encodeURIComponent(full)}`, { public: false }, other)).status, 403)
  assert.equal((await server.api('DELETE', `/templates/${encodeURIComponent(full)}`, undefined, other)).status, 403)
  assert.equal((await server.api('POST', '/templates/tags', { target: full, tags: ['x'] }, other)).status, 403)
  assert.ok(!(await server.api('GET', '/templates', undefined, other)).body.some((one) => one.templateID === build.templateID))
  assert.equal((await server.api('PATCH', `/templates/${build.templateID}`, { public: false })).status, 200)
  assert.equal((await create(full, other)).status, 404)
  assert.equal((await server.api('GET', `/templates/${encodeURIComponent(full)}`, undefined, other)).status, 404)
})

test('lists: pages, newest first, builds of one', async () => {
  const names = ['list-a', 'list-b', 'list-c']
  for (const name of names) await request(name)
  const seen = []
  for (let token = '', more = true; more; ) {
    const page = await server.api('GET', `/v2/templates?limit=1${token && `&nextToken=${encodeURIComponent(token)}`}`)
    assert.equal(page.status, 200, page.text)
    assert.ok(page.body.length <= 1)
    seen.push(...page.body.map((one) => one.aliases[0]))
    token = page.headers['x-next-token'] ?? ''
    more = token !== ''
  }
  assert.deepEqual(seen.filter((name) => names.includes(name)), [...names].reverse())
  assert.equal(new Set(seen).size, seen.length)
  assert.equal((await server.api('GET', '/v2/templates?nextToken=junk')).status, 400)
  assert.equal((await server.api('GET', '/templates?teamID=somebody-else')).status, 400)
  for (let i = 0; i < 3; i++) await request('list-a', { tags: [`t${i}`] })
  const one = await server.api('GET', '/templates/list-a?limit=2')
  assert.equal(one.body.builds.length, 2)
  const rest = await server.api('GET', `/templates/list-a?limit=2&nextToken=${encodeURIComponent(one.headers['x-next-token'])}`)
  assert.equal(rest.body.builds.length, 2)
  assert.equal(new Set([...one.body.builds, ...rest.body.builds].map((build) => build.buildID)).size, 4)
  for (const name of names) assert.equal((await server.api('DELETE', `/templates/${name}`)).status, 204)
  assert.equal((await server.api('DELETE', '/templates/list-a')).status, 404)
})

test('cancel: of one that runs, of one that waits, of one that has ended', async () => {
  const build = await request('cancelled')
  await start(build, { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['sleep 300'], force: true }] })
  const at = `/templates/${build.templateID}/builds/${build.buildID}`
  assert.equal((await server.api('POST', `${at}/cancel`)).status, 204)
  const { body } = await status(build)
  assert.equal(body.status, 'error')
  assert.match(body.reason.message, /cancel/)
  assert.equal((await server.api('DELETE', at)).status, 409)
  const waiting = await request('cancelled')
  assert.equal((await server.api('DELETE', `/templates/${waiting.templateID}/builds/${waiting.buildID}`)).status, 204)
  assert.equal((await status(waiting)).body.status, 'error')
})

test('builds that nobody starts do not fill the store', async () => {
  const team = (await server.api('POST', '/admin/teams', { name: 'idle' })).body
  const { key } = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body
  let last
  for (let i = 0; i < 256; i++) last = await request('idle', {}, { key })
  const refused = await server.api('POST', '/v3/templates', { name: 'idle' }, { key })
  assert.equal(refused.status, 429)
  assert.match(refused.body.message, /not started/)
  assert.equal((await server.api('DELETE', `/templates/${last.templateID}/builds/${last.buildID}`, undefined, { key })).status, 204)
  await request('idle', {}, { key })
})

test('keys that act as an agent may use templates, not build them', async () => {
  const key = (await server.api('POST', '/api-keys', { name: 'agent', agentID: 'claude' })).body.key
  assert.ok(key)
  assert.equal((await server.api('POST', '/v3/templates', { name: 'x' }, { key })).status, 403)
  assert.equal((await server.api('DELETE', '/templates/first', undefined, { key })).status, 403)
  assert.equal((await server.api('GET', '/registries', undefined, { key })).status, 403)
  assert.equal((await server.api('GET', '/templates', undefined, { key })).status, 200)
})

test('passwords for registries: never told, encrypted on disk', async () => {
  const password = `open-sesame-${crypto.randomBytes(8).toString('hex')}`
  assert.equal((await server.api('PUT', '/registries/registry.example.com%3A5000', { username: 'me', password })).status, 204)
  const listed = await server.api('GET', '/registries')
  assert.deepEqual(listed.body.map(({ host, username }) => ({ host, username })), [{ host: 'registry.example.com:5000', username: 'me' }])
  assert.ok(!listed.text.includes(password))
  assert.deepEqual((await server.api('GET', '/registries', undefined, other)).body, [])
  const store = path.join(server.data, 'store')
  for (const file of fs.readdirSync(store)) {
    if (fs.statSync(path.join(store, file)).isFile()) assert.ok(!fs.readFileSync(path.join(store, file)).includes(password), file)
  }
  assert.equal(fs.statSync(path.join(store, 'secret.key')).mode & 0o777, 0o600)
  assert.ok(!server.log.includes(password))
  assert.equal((await server.api('PUT', '/registries/a%2Fb', { username: 'me', password })).status, 400)
  assert.equal((await server.api('PUT', '/registries/x', { username: 'me' })).status, 400)
  assert.equal((await server.api('DELETE', '/registries/registry.example.com%3A5000')).status, 204)
  assert.equal((await server.api('DELETE', '/registries/registry.example.com%3A5000')).status, 404)
})

test('changes are in the audit log, without what is secret', async () => {
  const { body, text, status } = await server.api('GET', '/audit?limit=100')
  assert.equal(status, 200, text)
  const paths = body.map((entry) => `${entry.method} ${entry.path}`)
  for (const wanted of [/^POST \/v3\/templates$/, /^PUT \/templates\/uploads\//, /^PATCH \/v2\/templates\//, /^PUT \/registries\//]) assert.ok(paths.some((one) => wanted.test(one)), `${wanted}: ${paths.join(', ')}`)
  assert.ok(!text.includes('signature'))
})
