// The template `desktop` with its published client, with /api/v1 and with the command line. Its packages are in the base
// already (recipe-base.sh): the lab has no mirror.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience, repository, startServer } from '../harness/server.mjs'
import { openBrowser, seriousFaults, shots, signedIn } from '../harness/dashboard.mjs'
import { quicksand } from '../harness/interpreter.mjs'
import { connect } from '../harness/mcp.mjs'
import { pasteTemplateBlock } from '../harness/readme.mjs'

const layer = process.env.QUICKSAND_DESKTOP_LAYER ?? path.join(repository, 'build/recipe-base/desktop/rootfs')
const screens = path.join(repository, 'build/screens')
let server, Sandbox, desktop

before(async () => {
  server = await startServer({ env: { QUICKSAND_BASE_LAYER: layer }, args: ['--build-memory', '2048', '--warm', '1'] })
  const built = await quicksand(server, ['template', 'build', 'desktop', '--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='])
  assert.equal(built.code, 0, built.stdout + built.stderr)
  Object.assign(process.env, server.clientEnv())
  Sandbox = createRequire(path.join(repository, 'build/npm/desktop/index.js'))('@e2b/desktop').Sandbox
  desktop = await Sandbox.create({ timeoutMs: 600_000 * patience })
  fs.mkdirSync(screens, { recursive: true })
})
after(() => server?.destroy())

// Width and height of a PNG; nothing else is taken for one.
function size(picture) {
  const bytes = Buffer.from(picture)
  assert.equal(bytes.subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n')
  return [bytes.readUInt32BE(16), bytes.readUInt32BE(20)]
}

const v1 = (act, body, method = 'POST') => server.api(method, `/api/v1/sandboxes/${desktop.sandboxId}/desktop/${act}`, body)

async function screenshot() {
  const answer = await fetch(`${server.url}/api/v1/sandboxes/${desktop.sandboxId}/desktop/screenshot`, { headers: { 'X-API-KEY': server.key } })
  assert.equal(answer.status, 200)
  assert.equal(answer.headers.get('content-type'), 'image/png')
  return Buffer.from(await answer.arrayBuffer())
}

test('the block of README.md', async () => {
  const file = path.join(server.home, 'screen.png')
  await pasteTemplateBlock(server, 'desktop', ['--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='], [['/tmp/screen.png', file]])
  assert.deepEqual(size(fs.readFileSync(file)), [1024, 768])
})

test('the screen, its pointer and its size', async () => {
  assert.deepEqual(size(await desktop.screenshot()), [1024, 768])
  assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 })
  await desktop.moveMouse(100, 200)
  assert.deepEqual(await desktop.getCursorPosition(), { x: 100, y: 200 })
  assert.equal((await desktop.commands.run('pgrep -cx Xvfb; pgrep -cx xfce4-session')).stdout, '1\n1\n', 'what was prepared is used')
})

test('another resolution than the prepared one', async () => {
  const other = await Sandbox.create({ resolution: [1280, 720], dpi: 120, timeoutMs: 300_000 * patience })
  assert.deepEqual(size(await other.screenshot()), [1280, 720])
  assert.match((await other.commands.run('xdpyinfo | grep -i resolution')).stdout, /120x120/)
  await other.kill()
})

test('a terminal: typed by /api/v1, read from its file', async () => {
  const before = await screenshot()
  assert.deepEqual(size(before), [1024, 768])
  await desktop.launch('xfce4-terminal')
  await eventually('the terminal has the focus', async () => /erminal/.test((await desktop.commands.run('xdotool getactivewindow getwindowname').catch(() => ({ stdout: '' }))).stdout), 60_000, 300)
  const typed = await v1('type', { text: "echo 'typed $HOME \"äß\"' > /tmp/typed" })
  assert.equal(typed.status, 200, typed.text)
  assert.equal((await v1('key', { keys: 'enter' })).status, 200)
  fs.writeFileSync(path.join(screens, 'desktop.png'), await screenshot())
  await eventually('it was typed', async () => (await desktop.files.read('/tmp/typed').catch(() => '')) === 'typed $HOME "äß"\n', 30_000, 200)
  assert.ok(!(await screenshot()).equals(before), 'the screen shows it')
})

// A program that is busy looks for what a key means long after it was pressed.
test('letters of every script reach a program that is slow to read', async () => {
  const text = 'äöüß çñ €ž дом λ 語'
  await desktop.commands.run('pkill -STOP -f xfce4-terminal')
  for (let i = 0; i < 2; i++) assert.equal((await v1('type', { text: `echo '${text}' >> /tmp/letters\n` })).status, 200)
  await desktop.commands.run('pkill -CONT -f xfce4-terminal')
  await eventually('all are there', async () => (await desktop.files.read('/tmp/letters').catch(() => '')) === `${text}\n${text}\n`, 30_000, 200)
})

test('move, click, scroll, drag', async () => {
  const place = async () => (await desktop.commands.run('xdotool getmouselocation')).stdout
  assert.equal((await v1('move', { x: 40, y: 50 })).status, 200)
  assert.match(await place(), /x:40 y:50/)
  assert.equal((await v1('click', { x: 500, y: 700, button: 'right' })).status, 200)
  assert.match(await place(), /x:500 y:700/)
  assert.equal((await v1('key', { keys: ['Escape'] })).status, 200)
  assert.equal((await v1('scroll', { direction: 'up', count: 2 })).status, 200)
  assert.equal((await v1('drag', { x: 300, y: 300, to_x: 400, to_y: 420 })).status, 200)
  assert.match(await place(), /x:400 y:420/)
})

test('wrong acts are told', async () => {
  for (const [act, body, status, text] of [
    ['move', { x: 5 }, 400, /'x' and 'y'/],
    ['move', { x: 99999, y: 1 }, 400, /x/],
    ['click', { button: 'third' }, 400, /third/],
    ['click', { wrong: 1 }, 400, /wrong/],
    ['key', { keys: '--window 1' }, 400, /not a key/],
    ['key', { keys: [] }, 400, /keys/],
    ['type', {}, 400, /text/],
    ['fly', {}, 404, /screenshot, move/],
    ['click', { display: ':77' }, 409, /screen did not take it/],
    ['click', { display: '$(id)' }, 400, /display/],
  ]) {
    const answer = await v1(act, body)
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.text, text)
  }
  const plain = (await server.create({})).sandboxID
  const answer = await server.api('GET', `/api/v1/sandboxes/${plain}/desktop/screenshot`)
  assert.equal(answer.status, 409, answer.text)
  assert.match(answer.text, /template 'desktop'/)
})

test('from a shell: a picture, a video, a page', async () => {
  const id = desktop.sandboxId
  const file = path.join(server.home, 'x.png')
  const run = async (...args) => {
    const result = await quicksand(server, ['desktop', id, ...args])
    assert.equal(result.code, 0, result.stdout + result.stderr)
    return result.stdout
  }
  await run('screenshot', '-o', file)
  assert.deepEqual(size(fs.readFileSync(file)), [1024, 768])
  const video = (await run('record', 'start')).trim()
  await run('move', '10', '10')
  await run('click', 'left', '600', '600')
  assert.equal((await run('record', 'stop')).trim(), video)
  assert.match((await desktop.commands.run(`ffprobe -v error -show_entries stream=codec_name,width,height -of csv=p=0 ${video}`)).stdout, /^h264,1024,768/)
  const url = (await run('open')).trim()
  assert.match(url, /\/vnc\.html\?autoconnect=true&resize=scale&password=[A-Za-z0-9]{8}$/)
  const page = await fetch(`${server.url}/vnc.html`, { headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '6080' } })
  assert.equal(page.status, 200)
  assert.match(await page.text(), /noVNC/)
  assert.equal((await run('open')).trim(), url, 'the second time, too')
  const wrong = await quicksand(server, ['desktop', id, 'jump'])
  assert.equal(wrong.code, 1)
  assert.match(wrong.stderr, /screenshot, open, move/)
})

test('a profile says how large the screen is', async () => {
  const asked = { profile: 'desktop', options: { resolution: { width: 1280, height: 720 }, dpi: 120, vncEnabled: true } }
  const made = await server.api('POST', '/api/v1/sandboxes', asked, { timeoutMs: 120_000 * patience })
  assert.equal(made.status, 201, made.text)
  const { id, template } = made.body
  assert.equal(template, 'desktop')
  const picture = await fetch(`${server.url}/api/v1/sandboxes/${id}/desktop/screenshot`, { headers: { 'X-API-KEY': server.key } })
  assert.deepEqual(size(await picture.arrayBuffer()), [1280, 720])
  const page = await fetch(`${server.url}/vnc.html`, { headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '6080' } })
  assert.equal(page.status, 200, 'the screen can be looked at')
  assert.equal((await server.api('DELETE', `/api/v1/sandboxes/${id}`)).status, 204)
})

// As docs/desktop.md has it: a script that drives the browser on the screen, from outside one command with files in and out.
const browserTest = `
const puppeteer = require('puppeteer-core')
const fs = require('node:fs')
const [url, expected] = process.argv.slice(2)
;(async () => {
  const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', headless: false, args: ['--window-size=1000,700', '--window-position=0,0'] })
  const page = await browser.newPage()
  await page.goto(url)
  await page.type('#name', 'World')
  await page.click('button')
  const said = await page.$eval('#said', (element) => element.textContent)
  await page.screenshot({ path: '/tmp/page.png' })
  fs.writeFileSync('/tmp/shown', '')
  while (fs.existsSync('/tmp/shown')) await new Promise((done) => setTimeout(done, 50))
  await browser.close()
  console.log(JSON.stringify({ title: 'greeting', said, ok: said === expected }))
  process.exit(said === expected ? 0 : 1)
})()
`
const greeting = '<title>greeting</title><body style="background:#00a040"><input id=name><button onclick="said.textContent=`Hello, ${document.getElementById(`name`).value}!`">greet</button><p id=said></p>'

test('a browser test: a script drives Chromium on the screen, its result and its pictures come back', async () => {
  const made = await server.api('POST', '/api/v1/sandboxes', { profile: 'desktop' }, { timeoutMs: 120_000 * patience })
  assert.equal(made.status, 201, made.text)
  const { id } = made.body
  const ok = async (...args) => {
    const done = await quicksand(server, args)
    assert.equal(done.code, 0, done.stdout + done.stderr)
    return done.stdout
  }
  fs.writeFileSync(path.join(server.home, 'test.cjs'), browserTest)
  fs.writeFileSync(path.join(server.home, 'index.html'), greeting)
  // puppeteer-core with what it depends on, as npm would install it alone. It runs with the template's Node.
  const from = path.join(repository, 'build/npm/browser/node_modules')
  const packages = new Set(['puppeteer-core'])
  for (const name of packages) for (const other of Object.keys(JSON.parse(fs.readFileSync(path.join(from, name, 'package.json'))).dependencies ?? {})) packages.add(other)
  for (const name of packages) fs.cpSync(path.join(from, name), path.join(server.home, 'node_modules', name), { recursive: true })
  await ok('cp', '-r', path.join(server.home, 'node_modules'), `${id}:/home/user/node_modules`)
  for (const file of ['test.cjs', 'index.html']) await ok('cp', path.join(server.home, file), `${id}:/home/user/${file}`)
  await ok('job', 'start', id, '--', 'python3', '-m', 'http.server', '8000', '--directory', '/home/user')
  const seen = async () => Buffer.from(await (await fetch(`${server.url}/api/v1/sandboxes/${id}/desktop/screenshot`, { headers: { 'X-API-KEY': server.key } })).arrayBuffer())
  const before = await seen()

  // Until its page is shown; a script that ends before that has failed.
  const runs = async (expected) => {
    const run = { over: undefined }
    run.end = quicksand(server, ['exec', id, '--', 'node', 'test.cjs', 'http://127.0.0.1:8000/', expected]).then((over) => (run.over = over))
    await eventually('the page is shown', async () => run.over || (await quicksand(server, ['exec', id, '--', 'test', '-e', '/tmp/shown'])).code === 0, 60_000, 200)
    assert.equal(run.over, undefined, JSON.stringify(run.over))
    return run
  }
  const first = await runs('Hello, World!')
  const screen = await seen()
  fs.writeFileSync(path.join(screens, 'desktop-browser.png'), screen)
  assert.ok(!screen.equals(before), 'the browser is not on the screen')
  await ok('exec', id, '--', 'rm', '/tmp/shown')
  const result = await first.end
  assert.deepEqual([result.code, JSON.parse(result.stdout)], [0, { title: 'greeting', said: 'Hello, World!', ok: true }], result.stderr)
  await ok('cp', `${id}:/tmp/page.png`, path.join(server.home, 'page.png'))
  const [width, height] = size(fs.readFileSync(path.join(server.home, 'page.png')))
  assert.ok(width > 400 && height > 300, `${width} x ${height}`)

  const second = await runs('Hello, nobody!')
  await ok('exec', id, '--', 'rm', '/tmp/shown')
  const failed = await second.end
  assert.deepEqual([failed.code, JSON.parse(failed.stdout).ok], [1, false], failed.stderr)
  assert.equal((await server.api('DELETE', `/api/v1/sandboxes/${id}`)).status, 204)
})

test('what docs/desktop.md says is there is there, and nothing else', async () => {
  const has = async (program) => (await desktop.commands.run(`command -v ${program} || true`)).stdout.trim() !== ''
  for (const program of ['chromium', 'xfce4-session', 'xfce4-terminal', 'mousepad', 'thunar', 'xdotool', 'scrot', 'x11vnc', 'ffmpeg', 'node', 'python3']) assert.ok(await has(program), program)
  for (const program of ['firefox', 'firefox-esr', 'code']) assert.ok(!(await has(program)), program)
})

test('by MCP: an agent that sees and acts', async () => {
  const { client } = await connect(`${server.url}/mcp`, 'sdk', { headers: { Authorization: `Bearer ${server.key}` } })
  const call = (name, args = {}) => client.callTool({ name: `desktop_${name}`, arguments: args })
  const seen = await call('screenshot')
  const box = seen.structuredContent.sandbox_id
  assert.deepEqual([seen.content[0].type, seen.content[0].mimeType], ['image', 'image/png'])
  assert.deepEqual(size(Buffer.from(seen.content[0].data, 'base64')), [1024, 768])
  assert.deepEqual([seen.structuredContent.width, seen.structuredContent.height], [1024, 768])
  const place = async () => (await client.callTool({ name: 'run_command', arguments: { command: 'DISPLAY=:0 xdotool getmouselocation', sandbox_id: box } })).structuredContent.stdout
  assert.equal((await call('move', { x: 40, y: 50 })).structuredContent.sandbox_id, box, 'the same one, kept')
  assert.match(await place(), /x:40 y:50/)
  for (const [name, args] of [
    ['click', { x: 500, y: 600, button: 'right' }],
    ['key', { keys: ['Escape'] }],
    ['type', { text: 'grüße' }],
    ['scroll', { direction: 'up', count: 2 }],
    ['drag', { x: 300, y: 300, to_x: 400, to_y: 420 }],
  ])
    assert.equal((await call(name, args)).structuredContent?.done, true, name)
  assert.match(await place(), /x:400 y:420/)
  assert.match((await call('key', { keys: ['--window'] })).content[0].text, /not a key/)
  await client.callTool({ name: 'sandbox_kill', arguments: { sandbox_id: box } })
  await client.close()
})

test('the screen in the dashboard: seen, clicked, typed on, streamed', async () => {
  const browser = await openBrowser()
  try {
    const page = await signedIn(browser, server)
    await page.at(`#/sandboxes/${desktop.sandboxId}/screen`)
    const screen = page.locator('img.screenshot')
    await screen.waitFor()
    await page.getByText('1024 × 768').waitFor()
    await desktop.moveMouse(900, 700)
    const { width, height } = await screen.boundingBox()
    await screen.click({ position: { x: width / 4, y: height / 2 } })
    await eventually('the click arrived', async () => {
      const { x, y } = await desktop.getCursorPosition()
      return Math.abs(x - 256) < 4 && Math.abs(y - 384) < 4
    }, 20_000)
    const first = await screen.getAttribute('src')
    await eventually('another picture', async () => (await screen.getAttribute('src')) !== first, 20_000)
    assert.ok((await shots(page, 'screen-desktop')) <= 390)
    assert.deepEqual(await seriousFaults(page), [])
    await page.getByRole('button', { name: 'stream' }).click()
    const stream = page.frameLocator('iframe.stream')
    await stream.locator('canvas').waitFor({ timeout: 60_000 * patience })
    await eventually('the stream shows the screen', () => stream.locator('canvas').evaluate((canvas) => canvas.width === 1024 && canvas.getContext('2d').getImageData(0, 0, 1024, 200).data.some((byte, at) => at % 4 < 3 && byte > 40)), 60_000)
    await page.shot('screen-stream')
    assert.deepEqual(page.problems.filter((one) => !one.includes(':6080') && !one.includes('6080-')), [])
    await page.getByRole('button', { name: 'pictures' }).click()
    await screen.waitFor()
    const { key } = (await server.api('POST', '/api-keys', { name: 'looks', role: 'viewer' })).body
    const viewer = await signedIn(browser, server, {}, key)
    await viewer.at(`#/sandboxes/${desktop.sandboxId}/screen`)
    await viewer.locator('img.screenshot').waitFor()
    assert.equal(await viewer.getByRole('button', { name: 'stream' }).count(), 0)
  } finally {
    await browser.close()
  }
})
