// Secrets of teams: kept, changed, listed and removed by the published SDK and the command line; their values are nowhere.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, startServer } from '../harness/server.mjs'

const value = `hush-${crypto.randomBytes(12).toString('hex')}`
let server, sdk, Secret, other
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  Secret = sdk.Secret
  const team = (await server.api('POST', '/admin/teams', { name: 'others' })).body
  const key = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body
  other = { key: key.key }
})
after(() => server?.destroy())

const cli = (args, input) => execFileSync(binary, args, { input, encoding: 'utf8', env: { ...process.env, QUICKSAND_URL: server.url, QUICKSAND_API_KEY: server.key } })

test('by the SDK', async () => {
  const made = await Secret.create('OpenAI-Key', value, { metadata: { of: 'me' } })
  assert.match(made.secretId, /^sec_/)
  assert.equal(made.name, 'openai-key')
  assert.equal(made.version, 1)
  assert.deepEqual(made.metadata, { of: 'me' })
  assert.ok(Math.abs(Date.now() - made.createdAt) < 60_000)
  const changed = await Secret.update('openai-key', `${value}2`)
  assert.equal(changed.version, 2)
  assert.equal(changed.secretId, made.secretId)
  assert.deepEqual(changed.metadata, { of: 'me' })
  assert.equal((await Secret.getInfo(made.secretId)).version, 2)
  await assert.rejects(Secret.create('openai-key', 'x'), /409/)
  await assert.rejects(Secret.update('nothing', 'x'), sdk.SecretNotFoundError)
  assert.equal(await Secret.exists('openai-key'), true)
  assert.equal(await Secret.exists('nothing'), false)
  await Secret.create('second', value)
  const names = []
  for (const pages = Secret.list({ limit: 1 }); pages.hasNext;) names.push((await pages.nextItems()).map((one) => one.name))
  assert.deepEqual(names, [['openai-key'], ['second']])
  assert.equal(await Secret.destroy('second'), true)
  assert.equal(await Secret.destroy('second'), false)
  assert.equal(Secret.fill('openai-key'), '${e2b.secrets.openai-key}')
})

test('another team sees none of it, and neither do keys of agents', async () => {
  assert.equal((await server.api('GET', '/secrets/openai-key', undefined, other)).status, 404)
  assert.equal((await server.api('POST', '/secrets/openai-key', { value: 'x' }, other)).status, 404)
  assert.equal((await server.api('DELETE', '/secrets/openai-key', undefined, other)).status, 404)
  assert.deepEqual((await server.api('GET', '/secrets', undefined, other)).body, [])
  const { key } = (await server.api('POST', '/api-keys', { name: 'agent', agentID: 'claude' })).body
  assert.equal((await server.api('GET', '/secrets', undefined, { key })).status, 403)
  assert.equal((await server.api('POST', '/secrets', { name: 'a', value: 'b' }, { key })).status, 403)
})

test('by the command line', async () => {
  assert.equal(cli(['secret', 'set', 'cli', '--host', 'API.example.com', '--meta', 'a=b'], `${value}\n`), 'cli\n')
  const { body } = await server.api('GET', '/secrets/cli')
  assert.deepEqual(body.hosts, ['api.example.com'])
  assert.deepEqual(body.metadata, { a: 'b' })
  cli(['secret', 'set', 'cli'], value)
  assert.equal((await server.api('GET', '/secrets/cli')).body.currentVersion, 2)
  assert.deepEqual((await server.api('GET', '/secrets/cli')).body.hosts, ['api.example.com'])
  cli(['secret', 'set', 'cli', '--any-host'], value)
  assert.deepEqual((await server.api('GET', '/secrets/cli')).body.hosts, [])
  const listed = cli(['secret', 'ls'])
  assert.match(listed, /^cli +sec_\S+ +3 +any/m)
  assert.ok(!listed.includes(value))
  assert.equal(cli(['secret', 'rm', 'cli']), 'cli\n')
  assert.throws(() => cli(['secret', 'rm', 'cli']))
})

test('values are in no file, log, audit or error', async () => {
  const wrong = await server.api('POST', '/secrets', { name: 'bad', value: `${value}\n` })
  assert.equal(wrong.status, 400)
  assert.ok(!wrong.text.includes(value))
  const audit = await server.api('GET', '/audit?limit=100')
  assert.ok(audit.body.some((entry) => entry.path === '/secrets' && entry.method === 'POST'))
  assert.ok(!audit.text.includes(value))
  assert.ok(!server.log.includes(value))
  const store = path.join(server.data, 'store')
  for (const file of fs.readdirSync(store)) {
    if (fs.statSync(path.join(store, file)).isFile()) assert.ok(!fs.readFileSync(path.join(store, file)).includes(value), file)
  }
})

test('they are there after a restart', async () => {
  await server.restart()
  assert.equal((await Secret.getInfo('openai-key')).version, 2)
})
