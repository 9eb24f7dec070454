// .env.example names every variable of the runtime, and none that nobody reads or documents; a server starts with it as it is.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { repository } from '../harness/server.mjs'
import { startRuntime } from '../harness/runtime.mjs'

const example = Object.fromEntries(
  fs.readFileSync(path.join(repository, '.env.example'), 'utf8').split('\n').filter((line) => /^[A-Z]/.test(line)).map((line) => line.split(/=(.*)/s).slice(0, 2)),
)
const sources = (folder, pattern) => fs.readdirSync(path.join(repository, 'src', folder)).filter((name) => pattern.test(name) && !name.includes('_test')).map((name) => fs.readFileSync(path.join(repository, 'src', folder, name), 'utf8')).join('\n')

test('its names are those the program reads, and the documents have them', () => {
  const folders = ['extra', 'provider'].flatMap((parent) => fs.readdirSync(path.join(repository, 'src', parent), { withFileTypes: true }).filter((entry) => entry.isDirectory() && entry.name !== 'test').map(({ name }) => `${parent}/${name}`))
  const settings = sources('runtime/config', /^settings.*\.c$/) + folders.map((name) => sources(name, /\.c$/)).join('\n')
  const read = new Set([...settings.matchAll(/"((?:AGENT|BROWSERBASE|DAYTONA|DOCKER|E2B|EXO|LOCAL|SANDBOX)_[A-Z0-9_]+)"/g)].map(([, name]) => name))
  assert.ok(read.size > 20, [...read].join(' '))
  for (const name of read) assert.ok(name in example, `${name} is missing`)
  const all = settings + sources('runtime/session', /^session_new\.c$/) + sources('quicksand', /\.c$/)
  for (const name of Object.keys(example)) assert.ok(all.includes(`"${name}"`), `nobody reads ${name}`)
  const folder = path.join(repository, 'docs')
  const docs = fs.readdirSync(folder).filter((name) => name.endsWith('.md')).map((name) => fs.readFileSync(path.join(folder, name), 'utf8')).join('\n')
  for (const name of Object.keys(example)) assert.match(docs, new RegExp(`\\b${name}\\b`), `no document has ${name}`)
})

test('a server starts with it as it is', async () => {
  const { QUICKSAND_API_KEY, ...env } = example
  assert.equal(QUICKSAND_API_KEY, '')
  const one = await startRuntime({}, { env })
  try {
    const { providers } = await one.ok(200, 'GET', '/providers')
    assert.deepEqual(providers.filter((provider) => provider.default).map(({ name, software }) => [name, software]), [['e2b', 'quicksand']])
    const box = await one.create()
    assert.deepEqual([box.template, box.idle_timeout], ['base', 600])
  } finally {
    await one.destroy()
  }
})

test('the template of the environment is taken, the request’s over it', async () => {
  const one = await startRuntime({}, { env: { E2B_TEMPLATE: 'no-such-template' } })
  try {
    const wrong = await one.v1('POST', '/sandboxes', {})
    assert.ok(wrong.status >= 400 && wrong.text.includes('no-such-template'), wrong.text)
    assert.equal((await one.create({ template: 'base' })).template, 'base')
  } finally {
    await one.destroy()
  }
})
