// A build without extras (meson's option extras=none): what belongs to an extra is reported as not built in, by the words of
// src/extra/NAME/words.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, repository, startServer } from '../harness/server.mjs'

const extras = path.join(repository, 'src/extra')
const all = fs
  .readdirSync(extras)
  .filter((name) => fs.existsSync(path.join(extras, name, 'words')))
  .flatMap((name) =>
    fs
      .readFileSync(path.join(extras, name, 'words'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => [name, ...line.split(/ (.*)/)]),
  )
const ofKind = (kind) => all.filter((row) => row[1] === kind).map(([extra, , word]) => [extra, word])
const notBuiltIn = (extra) => `not built in: this build has no '${extra}' (meson -Dextras=${extra})`

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

test('a command of an extra is not built in, and help does not list it', () => {
  const help = spawnSync(binary, ['--help'], { encoding: 'utf8' })
  assert.equal(help.status, 0)
  assert.ok(ofKind('command').length >= 8)
  for (const [extra, word] of ofKind('command')) {
    const { status, stdout, stderr } = spawnSync(binary, word.split(' '), { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: '/nonexistent' } })
    assert.equal(status, 1, `${word}: ${stdout}`)
    assert.ok(stderr.includes(notBuiltIn(extra)), `${word}: ${stderr}`)
    assert.doesNotMatch(help.stdout, new RegExp(`^  ${word} `, 'm'))
  }
})

test('an endpoint of an extra answers 501', async () => {
  assert.ok(ofKind('path').length >= 5)
  for (const [extra, word] of ofKind('path')) {
    const answer = await server.api('GET', `${word.replace('*', 'sb-1')}/sessions`)
    assert.equal(answer.status, 501, word)
    assert.deepEqual(answer.body, { code: 501, message: notBuiltIn(extra), error: { code: 'not_built_in', message: notBuiltIn(extra), retryable: false } })
  }
  const { paths } = (await server.api('GET', '/api/v1/openapi.json')).body
  assert.ok(paths['/sandboxes'] && !Object.keys(paths).some((name) => /desktop|browser|code$/.test(name)), Object.keys(paths).join(' '))
})

test('a template of an extra is neither built nor found', async () => {
  assert.ok(ofKind('template').length >= 5)
  for (const [extra, word] of ofKind('template')) {
    const { status, stderr } = spawnSync(binary, ['template', 'build', word], { encoding: 'utf8', env: { PATH: process.env.PATH, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key } })
    assert.equal(status, 1, word)
    assert.ok(stderr.includes(notBuiltIn(extra)), `${word}: ${stderr}`)
    const answer = await server.api('POST', '/sandboxes', { templateID: word })
    assert.equal(answer.status, 501, JSON.stringify(answer.body))
    assert.ok(answer.body.message.includes(notBuiltIn(extra)), answer.body.message)
  }
})

test('a type of provider of an extra stops the start, with the reason', () => {
  assert.ok(ofKind('provider').length >= 2)
  for (const [extra, word] of ofKind('provider')) {
    const file = path.join(server.data, '..', `core-${word}.json`)
    fs.writeFileSync(file, JSON.stringify({ providers: { far: { type: word, api_key: 'k' } } }), { mode: 0o644 })
    const { status, stderr } = spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', `${file}.data`, '--runtime-config', file], {
      env: { PATH: process.env.PATH, QUICKSAND_API_KEY: 'x', QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER },
      timeout: 30_000,
      encoding: 'utf8',
    })
    spawnSync(binary, ['down', '--data', `${file}.data`])
    fs.rmSync(file)
    fs.rmSync(`${file}.data`, { recursive: true, force: true })
    assert.notEqual(status, 0, word)
    assert.ok(stderr.includes(notBuiltIn(extra)), `${word}: ${stderr}`)
  }
})

test('the programs of extras are not there, and are not missed', () => {
  assert.deepEqual(fs.readdirSync(path.dirname(binary)).sort(), ['envd', 'quicksand', 'unpack'])
  const { stdout } = spawnSync(binary, ['doctor', '--json', '--data', server.data], { encoding: 'utf8' })
  assert.doesNotMatch(stdout, /interpreter|mcp-gateway/)
})
