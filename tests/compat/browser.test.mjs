// Browserbase's API with its published client, Playwright and Puppeteer, and the browser by /api/v1, the command line and MCP. The lab has
// no internet, so pages come from the sandbox itself.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { page as address, startBrowsers } from '../harness/browser.mjs'
import { contract } from '../harness/contract.mjs'
import { openBrowser, seriousFaults, shots, signedIn, widthOf } from '../harness/dashboard.mjs'
import { quicksand } from '../harness/interpreter.mjs'
import { connect } from '../harness/mcp.mjs'
import { pasteTemplateBlock } from '../harness/readme.mjs'
import { destroyAll, refused, runtimeOf, startRuntime } from '../harness/runtime.mjs'
import { eventually, patience, repository } from '../harness/server.mjs'

const screens = path.join(repository, 'build/screens')
const load = createRequire(path.join(repository, 'build/npm/browser/index.js'))
const { default: Browserbase } = load('@browserbasehq/sdk')
const { chromium } = load('playwright-core')
const puppeteer = load('puppeteer-core')
const WebSocket = load('ws')
let server, bb, other

before(async () => {
  server = await startBrowsers({ args: ['--warm', '1'] })
  // Another server, for which this one is the service with the browsers.
  other = await startRuntime({ execution: { browserbase: { apiKey: server.key, captchaSolver: false }, agentOverrides: { 'web-scraper': { backend: 'browserbase', capabilities: ['browser'] } } } }, { env: { BROWSERBASE_BASE_URL: server.url } })
  fs.mkdirSync(screens, { recursive: true })
  bb = new Browserbase({ apiKey: server.key, baseURL: server.url, maxRetries: 0 })
})
after(() => destroyAll(...[other, server && runtimeOf(server)].filter(Boolean)))

test('the block of README.md', async () => {
  const file = path.join(server.home, 'page.png')
  const out = await pasteTemplateBlock(server, 'browser', ['--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='], [['https://example.com', `'${address}'`], ['/tmp/page.png', file]])
  assert.equal(fs.readFileSync(file).subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n')
  const sessions = await bb.sessions.list({ status: 'RUNNING' })
  assert.equal(sessions.length, 1)
  assert.match(out, new RegExp(sessions[0].id))
  assert.match(out, /ws:/, 'where Playwright connects')
  await bb.sessions.update(sessions[0].id, { status: 'REQUEST_RELEASE', projectId: sessions[0].projectId })
})

test('projects', async () => {
  const [project] = await bb.projects.list()
  assert.deepEqual(await bb.projects.retrieve(project.id), project)
  assert.equal(typeof (await bb.projects.usage(project.id)).browserMinutes, 'number')
  await assert.rejects(bb.projects.retrieve('other'), { status: 404 })
})

test('a session with Playwright, which ends with its client', async () => {
  const begun = performance.now()
  const session = await bb.sessions.create({ userMetadata: { who: 'me', "it's": 'x' } })
  assert.equal(session.status, 'RUNNING')
  assert.match(session.id, /^[0-9a-f-]{36}$/)
  const browser = await chromium.connectOverCDP(session.connectUrl)
  const [first] = browser.contexts()[0].pages()
  console.log(`page after ${Math.round(performance.now() - begun)} ms`)
  await first.goto(address)
  await first.fill('#i', 'typed')
  await first.click('button')
  assert.equal(await first.title(), 'typed')
  assert.ok((await first.screenshot()).length > 1000)
  assert.equal((await bb.sessions.retrieve(session.id)).status, 'RUNNING')
  assert.deepEqual((await bb.sessions.list({ q: "user_metadata['who']:'me'" })).map((s) => s.id), [session.id])
  assert.deepEqual(await bb.sessions.list({ q: "user_metadata['who']:'you'" }), [])
  await browser.close()
  await eventually('it ended', async () => (await bb.sessions.retrieve(session.id)).status === 'COMPLETED', 30_000)
  const over = await bb.sessions.retrieve(session.id)
  assert.equal(over.connectUrl, undefined)
  assert.ok(over.endedAt)
  await assert.rejects(chromium.connectOverCDP(session.connectUrl), /404/)
})

test('a session with Puppeteer, kept alive and released', async () => {
  const session = await bb.sessions.create({ keepAlive: true, api_timeout: 120, browserSettings: { viewport: { width: 800, height: 600 } } })
  for (const round of [1, 2]) {
    const browser = await puppeteer.connect({ browserWSEndpoint: session.connectUrl, defaultViewport: null })
    const [first] = await browser.pages()
    await first.goto(address)
    assert.equal(await first.title(), 'a page')
    assert.deepEqual(await first.evaluate(() => [innerWidth, innerHeight]), [800, 600], `viewport, round ${round}`)
    await browser.disconnect()
  }
  assert.equal((await bb.sessions.retrieve(session.id)).status, 'RUNNING')
  assert.equal((await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })).status, 'COMPLETED')
})

test('a context: written by one session, copied by another', async () => {
  const { id } = await bb.contexts.create({})
  assert.equal((await bb.contexts.retrieve(id)).id, id)
  const use = async (persist, work) => {
    const session = await bb.sessions.create({ keepAlive: true, browserSettings: { context: { id, persist } } })
    assert.equal(session.contextId, id)
    const browser = await chromium.connectOverCDP(session.connectUrl)
    const value = await work(browser.contexts()[0], session)
    await browser.close()
    await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
    return value
  }
  const cookies = async (context) => (await context.cookies()).map((cookie) => cookie.value)
  const put = (value) => (context) => context.addCookies([{ name: 'c', value, domain: 'example.com', path: '/', expires: Date.now() / 1000 + 86400 }])
  await use(true, async (context) => {
    await put('kept')(context)
    await assert.rejects(bb.sessions.create({ browserSettings: { context: { id, persist: true } } }), { status: 409, message: /writes to context/ })
    await assert.rejects(bb.contexts.delete(id), { status: 409 })
  })
  await use(false, async (context) => {
    assert.deepEqual(await cookies(context), ['kept'])
    await context.clearCookies()
    await put('lost')(context)
  })
  assert.deepEqual(await use(false, cookies), ['kept'])
  await bb.contexts.delete(id)
  await assert.rejects(bb.contexts.retrieve(id), { status: 404 })
})

test('uploads and downloads', async () => {
  const session = await bb.sessions.create({ keepAlive: true })
  assert.ok((await bb.sessions.uploads.create(session.id, { file: new File(['up'], 'up.txt') })).message)
  const browser = await chromium.connectOverCDP(session.connectUrl)
  const context = browser.contexts()[0]
  const [first] = context.pages()
  const cdp = await browser.newBrowserCDPSession()
  await cdp.send('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: 'downloads', eventsEnabled: true })
  await first.setContent('<input type=file><a download="down.txt" href="data:text/plain,down">x</a>')
  const files = await context.newCDPSession(first)
  const { root } = await files.send('DOM.getDocument')
  const { nodeId } = await files.send('DOM.querySelector', { nodeId: root.nodeId, selector: 'input' })
  await files.send('DOM.setFileInputFiles', { files: ['/tmp/.uploads/up.txt'], nodeId })
  assert.equal(await first.evaluate(() => document.querySelector('input').files[0].text()), 'up')
  const done = new Promise((resolve) => cdp.on('Browser.downloadProgress', (event) => event.state === 'completed' && resolve()))
  await first.click('a')
  await done
  const zip = Buffer.from(await (await bb.sessions.downloads.list(session.id)).arrayBuffer())
  assert.equal(zip.subarray(0, 2).toString(), 'PK')
  assert.ok(zip.includes('down.txt'))
  await browser.close()
  await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
  await assert.rejects(bb.sessions.uploads.create(session.id, { file: new File(['x'], 'x') }), { status: 409 })
})

test('what cannot be had is refused by its name', async () => {
  const refused = (body, message) => assert.rejects(bb.sessions.create(body), { status: 400, message })
  await refused({ browserSettings: { advancedStealth: true } }, /stealth/)
  await refused({ browserSettings: { solveCaptchas: true } }, /captcha/)
  await refused({ proxies: true }, /proxies of the service/)
  await refused({ proxies: [{ type: 'external', server: 'http://p:1', username: 'u', password: 'p' }] }, /password/)
  await refused({ api_timeout: 5 }, /timeout/)
  await refused({ region: 'moon' }, /region/)
  await refused({ userMetadata: { x: 'y'.repeat(600) } }, /512/)
  await refused({ browserSettings: { viewport: { width: 1, height: 1 } } }, /viewport/)
  await assert.rejects(bb.sessions.create({ projectId: 'other' }), { status: 404 })
  await assert.rejects(bb.sessions.list({ q: 'nonsense' }), { status: 400 })
  await assert.rejects(bb.sessions.retrieve('00000000-0000-0000-0000-000000000000'), { status: 404 })
  await assert.rejects(new Browserbase({ apiKey: 'wrong', baseURL: server.url, maxRetries: 0 }).projects.list(), { status: 401 })
})

test('another team, and who has a wrong signature', async () => {
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'others' })
  const { body: made } = await server.api('POST', `/admin/teams/${team.teamID ?? team.id}/api-keys`, { name: 'k' })
  const theirs = new Browserbase({ apiKey: made.key, baseURL: server.url, maxRetries: 0 })
  const session = await bb.sessions.create({ keepAlive: true })
  const context = await bb.contexts.create({})
  await assert.rejects(theirs.sessions.retrieve(session.id), { status: 404 })
  await assert.rejects(theirs.sessions.update(session.id, { status: 'REQUEST_RELEASE' }), { status: 404 })
  await assert.rejects(theirs.sessions.downloads.list(session.id), { status: 404 })
  await assert.rejects(theirs.sessions.uploads.create(session.id, { file: new File(['x'], 'x') }), { status: 404 })
  await assert.rejects(theirs.contexts.retrieve(context.id), { status: 404 })
  await assert.rejects(theirs.contexts.delete(context.id), { status: 404 })
  await assert.rejects(theirs.sessions.create({ browserSettings: { context: { id: context.id } } }), { status: 404 })
  assert.ok((await theirs.sessions.list()).every((one) => one.id !== session.id))
  const other = await bb.sessions.create({ keepAlive: true })
  const swapped = session.connectUrl.replace(session.id, other.id)
  for (const url of [swapped, session.connectUrl.replace(/.$/, (c) => (c === '0' ? '1' : '0')), session.connectUrl.split('?')[0]]) await assert.rejects(chromium.connectOverCDP(url), /403/)
  // Its ports need a token that nobody has.
  const straight = await fetch(`${server.url}/json/version`, { headers: { 'E2b-Sandbox-Id': session.sandboxId, 'E2b-Sandbox-Port': '9222' } })
  assert.equal(straight.status, 403)
  await Promise.all([session, other].map((one) => bb.sessions.update(one.id, { status: 'REQUEST_RELEASE' })))
  await bb.contexts.delete(context.id)
})

test('/api/v1 and the command line, for who does not speak the protocol', async () => {
  const sandbox = (await server.api('POST', '/sandboxes', { templateID: 'browser', timeout: 300 * patience })).body.sandboxID
  const act = (name, body) => server.api('POST', `/api/v1/sandboxes/${sandbox}/browser/${name}`, body)
  assert.deepEqual((await act('goto', { url: address })).body, { url: address, title: 'a page' })
  assert.equal((await act('type', { selector: '#i', text: 'typed "äß"' })).status, 200)
  assert.equal((await act('click', { selector: 'button' })).body.title, 'typed "äß"')
  assert.equal((await act('text', {})).body.text, 'Hello\ngo')
  assert.equal((await act('text', { selector: 'h1' })).body.text, 'Hello')
  const picture = Buffer.from(await (await fetch(`${server.url}/api/v1/sandboxes/${sandbox}/browser/screenshot`, { headers: { 'X-API-KEY': server.key } })).arrayBuffer())
  assert.equal(picture.subarray(1, 4).toString(), 'PNG')
  assert.deepEqual([picture.readUInt32BE(16), picture.readUInt32BE(20)], [1288, 711])
  const refused = async (name, body, status, message) => {
    const answer = await act(name, body)
    assert.equal(answer.status, status, answer.text)
    assert.match(answer.text, message)
  }
  await refused('goto', {}, 400, /'url' is needed/)
  await refused('goto', { url: 'http://127.0.0.1:8999/' }, 409, /ERR_CONNECTION_REFUSED/)
  await refused('click', { selector: '#none' }, 409, /nothing on the page/)
  await refused('click', {}, 400, /selector/)
  await refused('type', {}, 400, /text/)
  await refused('dance', {}, 404, /goto, text/)
  await refused('click', { x: -1, y: 5 }, 400, /'x'/)
  // Pages that ask, crash, or never end: what is next goes on.
  assert.equal((await act('goto', { url: 'data:text/html,<script>document.title=confirm(1)</script>' })).body.title, 'false')
  await refused('goto', { url: 'chrome://crash' }, 409, /ERR_ABORTED|crashed/)
  await refused('text', {}, 409, /the page has crashed/)
  assert.equal((await act('goto', { url: address })).body.title, 'a page')
  await refused('goto', { url: 'data:text/html,<script>for(;;);</script>', timeout_ms: 1000 }, 409, /in time/)
  assert.equal((await act('goto', { url: address })).body.title, 'a page')
  assert.equal((await act('text', { selector: 'h1' })).body.text, 'Hello')
  const plain = (await server.api('POST', '/sandboxes', { templateID: 'base' })).body.sandboxID
  assert.match((await server.api('POST', `/api/v1/sandboxes/${plain}/browser/text`, {})).text, /needs the template 'browser'/)

  const file = path.join(screens, 'page.png')
  const shot = await quicksand(server, ['browser', 'screenshot', address, '-o', file])
  assert.equal(shot.code, 0, shot.stderr)
  assert.equal(fs.readFileSync(file).subarray(1, 4).toString(), 'PNG')
  const pdf = await quicksand(server, ['browser', 'pdf', address, '-o', path.join(screens, 'page.pdf')])
  assert.equal(pdf.code, 0, pdf.stderr)
  assert.equal(fs.readFileSync(path.join(screens, 'page.pdf')).subarray(0, 5).toString(), '%PDF-')
  assert.equal((await quicksand(server, ['browser', 'text', address, '-s', sandbox])).stdout, 'Hello\ngo\n')
  assert.match((await quicksand(server, ['browser', 'dance'])).stderr, /open, screenshot, pdf, text/)
  await Promise.all([sandbox, plain].map((id) => server.api('DELETE', `/sandboxes/${id}`)))
})

test('MCP: browser_*, with a published client', async () => {
  const { client } = await connect(`${server.url}/mcp`, 'sdk', { headers: { Authorization: `Bearer ${server.key}` } })
  const { tools } = await client.listTools() // the client checks results by their schemas from now on
  assert.deepEqual(tools.filter((tool) => tool.name.startsWith('browser_') && tool.annotations.readOnlyHint).map((tool) => tool.name), ['browser_text', 'browser_screenshot', 'browser_pdf'])
  const call = (name, args = {}) => client.callTool({ name: `browser_${name}`, arguments: args })
  const opened = (await call('open', { url: address })).structuredContent
  const box = opened.sandbox_id
  assert.deepEqual(opened, { sandbox_id: box, url: address, title: 'a page' })
  assert.equal((await call('type', { selector: '#i', text: 'grüße', key: 'Tab' })).structuredContent.sandbox_id, box, 'the same one, kept')
  assert.equal((await call('click', { selector: 'button' })).structuredContent.title, 'grüße')
  const read = await call('text')
  assert.deepEqual([read.content[0].text, read.structuredContent.text, read.structuredContent.truncated], ['Hello\ngo', 'Hello\ngo', false])
  const seen = await call('screenshot')
  assert.deepEqual([seen.content[0].type, seen.content[0].mimeType], ['image', 'image/png'])
  const picture = Buffer.from(seen.content[0].data, 'base64')
  fs.writeFileSync(path.join(screens, 'mcp-browser.png'), picture)
  assert.deepEqual([picture.subarray(1, 4).toString(), picture.readUInt32BE(16), picture.readUInt32BE(20)], ['PNG', seen.structuredContent.width, seen.structuredContent.height])
  const pdf = await call('pdf')
  assert.equal(Buffer.from(pdf.content[0].resource.blob, 'base64').subarray(0, 5).toString(), '%PDF-')
  await call('open', { url: `data:text/html,${'x'.repeat(100)}<p>${'long '.repeat(1000)}` })
  const long = (await call('text', { output_limit: 300 })).structuredContent
  assert.ok(long.truncated && long.text.length < 400 && /bytes left out/.test(long.text))

  const refused = async (name, args, words) => {
    const answer = await call(name, args)
    assert.ok(answer.isError, name)
    assert.match(answer.content[0].text, words)
  }
  await refused('open', { url: 'http://127.0.0.1:8999/' }, /ERR_CONNECTION_REFUSED/)
  await refused('click', { selector: '#none' }, /nothing on the page is "#none"/)
  await refused('click', {}, /'selector', or 'x' and 'y'/)
  await refused('type', { key: 'F13' }, /'key' must be one of/)
  const plain = (await client.callTool({ name: 'sandbox_create', arguments: {} })).structuredContent.sandbox_id
  await refused('text', { sandbox_id: plain }, /no browser: it needs the template 'browser', which 'quicksand template build browser' makes/)

  // A page that never comes: cancelled, nothing waits for it any more.
  const shell = async (command) => (await client.callTool({ name: 'run_command', arguments: { command, sandbox_id: box } })).structuredContent.stdout.trim()
  await shell('setsid python3 -c "import socket, time; s = socket.create_server((\'127.0.0.1\', 8124)); time.sleep(600)" >/dev/null 2>&1 & until ss -ltn | grep -q :8124; do sleep 0.1; done')
  const stop = new AbortController()
  const waiting = assert.rejects(client.callTool({ name: 'browser_open', arguments: { url: 'http://127.0.0.1:8124/', timeout_s: 300 } }, undefined, { signal: stop.signal, timeout: 300_000 }))
  const doing = () => shell('pgrep -c -f "^/usr/bin/python3 -I /usr/local/bin/browser-do goto" || true')
  await eventually('it waits', async () => (await doing()) === '1')
  stop.abort()
  await waiting
  await eventually('it has ended', async () => (await doing()) === '0')
  for (const id of [box, plain]) await client.callTool({ name: 'sandbox_kill', arguments: { sandbox_id: id } })
  await client.close()
})

test('the live view: somebody looks, clicks and types, and ends nothing by leaving', async () => {
  const opened = await quicksand(server, ['browser', 'open', address, '--json'])
  assert.equal(opened.code, 0, opened.stderr)
  const session = JSON.parse(opened.stdout)
  const debug = await bb.sessions.debug(session.id)
  assert.equal(debug.pages[0].title, 'a page')
  assert.ok(debug.wsUrl.startsWith('ws://'))
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
  const eyes = await browser.newPage({ viewport: { width: 1300, height: 800 } })
  await eyes.goto(debug.debuggerUrl)
  await eyes.waitForFunction(() => document.getElementById('screen').width > 500 && document.getElementById('status').textContent === 'live')
  assert.equal(await eyes.title(), 'a page')
  // Where the input and the button are, as the picture shows them.
  const own = await chromium.connectOverCDP(session.connectUrl)
  const inside = own.contexts()[0].pages()[0]
  const { width, height } = await inside.evaluate(() => ({ width: innerWidth, height: innerHeight }))
  const screen = await eyes.locator('#screen').boundingBox()
  const point = async (selector) => {
    const box = await inside.locator(selector).boundingBox()
    return [screen.x + ((box.x + box.width / 2) * screen.width) / width, screen.y + ((box.y + box.height / 2) * screen.height) / height]
  }
  await eyes.mouse.click(...(await point('#i')))
  await eyes.keyboard.type('by hand')
  await eyes.mouse.click(...(await point('button')))
  await eventually('it was typed', async () => (await inside.title()) === 'by hand', 30_000, 100)
  await own.close()
  fs.writeFileSync(path.join(screens, 'live.png'), await eyes.screenshot())
  await browser.close()
  assert.equal((await bb.sessions.retrieve(session.id)).status, 'RUNNING')
  await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
})

test('logs and a recording, also of a session that is over', async () => {
  const session = await bb.sessions.create({ keepAlive: true, browserSettings: { logSession: true, recordSession: true } })
  const browser = await chromium.connectOverCDP(session.connectUrl)
  const first = browser.contexts()[0].pages()[0]
  await first.goto(address)
  await first.evaluate(() => console.log('seen'))
  await first.fill('#i', 'x')
  const complete = async () => {
    const logs = await bb.sessions.logs.list(session.id)
    const frames = await bb.sessions.recording.retrieve(session.id)
    return logs.some((entry) => entry.method === 'Runtime.consoleAPICalled') && logs.some((entry) => entry.method === 'Page.loadEventFired') && frames.some((frame) => frame.data.payload?.jpeg)
  }
  await eventually('all was written down', complete, 30_000, 300)
  await browser.close()
  await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
  assert.ok(await complete())
  const silent = await bb.sessions.create({ keepAlive: true })
  await assert.rejects(bb.sessions.logs.list(silent.id), { status: 404, message: /logSession/ })
  await bb.sessions.update(silent.id, { status: 'REQUEST_RELEASE' })
})

// In a page: which colour the middle of a picture has. JPEG is not exact.
async function middle(address) {
  const picture = Object.assign(new Image(), { src: address })
  await picture.decode()
  const paint = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d')
  paint.drawImage(picture, picture.naturalWidth / 2, picture.naturalHeight / 2, 1, 1, 0, 0, 1, 1)
  const [red, green, blue] = [...paint.getImageData(0, 0, 1, 1).data].map((part) => part > 128)
  return red && green ? 'another' : red ? 'red' : green ? 'lime' : blue ? 'blue' : 'another'
}

test('the dashboard plays a recording, by mouse and keyboard', async (t) => {
  const session = await bb.sessions.create({ keepAlive: true, userMetadata: { who: 'recorded' }, browserSettings: { recordSession: true } })
  const own = await chromium.connectOverCDP(session.connectUrl)
  const [inside] = own.contexts()[0].pages()
  const colours = ['red', 'lime', 'blue']
  const pictures = () => bb.sessions.recording.retrieve(session.id)
  for (const colour of colours) {
    await inside.goto(`data:text/html,<body style="background:${colour}">`)
    await eventually(`${colour} was seen`, async () => {
      await inside.evaluate(() => document.body.append('.')) // something changes, so that there is a picture
      const frame = (await pictures()).at(-1)
      return frame && (await inside.evaluate(middle, `data:image/jpeg;base64,${frame.data.payload.jpeg}`)) === colour
    }, 30_000, 300)
  }
  await own.close()
  // What the guest may do to it.
  const forged = JSON.stringify({ timestamp: 1, data: { payload: { pageId: 0, jpeg: '"><script>' } } })
  const forging = await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', 'while pkill -f browser-witnes[s]; do sleep 0.1; done; printf "%s\\nnonsense\\n" "$0" >>~/.browser/record.jsonl', forged])
  assert.equal(forging.code, 0, forging.stderr)
  await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
  const silent = await bb.sessions.create({ keepAlive: true })

  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
  t.after(() => browser.close())
  const eyes = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: 'light' })
  eyes.setDefaultTimeout(15_000 * patience)
  const problems = []
  eyes.on('pageerror', (error) => problems.push(error.message))
  eyes.on('console', (message) => message.type() === 'error' && !/^Failed to load/.test(message.text()) && problems.push(message.text()))
  await eyes.goto(server.url)
  await eyes.getByLabel('API key').fill(server.key)
  await eyes.keyboard.press('Enter')
  await eyes.getByRole('heading', { name: 'Overview' }).waitFor()
  await eyes.keyboard.press('g')
  await eyes.keyboard.press('b')
  await eyes.getByText('who=recorded').waitFor()
  await eyes.screenshot({ path: path.join(screens, 'browsers.png') })
  await eyes.getByRole('link', { name: session.id }).click()
  const slider = eyes.getByRole('slider', { name: 'Picture' })
  await slider.waitFor()
  const colour = async () => eyes.evaluate(middle, await eyes.locator('.player img').getAttribute('src'))
  const place = async () => Number(await slider.inputValue())
  const last = Number(await slider.getAttribute('max'))
  assert.equal(last + 2, (await pictures()).length, 'the forged one is left out')
  await eyes.keyboard.press('End')
  await eventually('the last one', async () => (await place()) === last)
  const seen = new Set()
  seen.add(await colour())
  for (let at = last - 1; at >= 0; at--) {
    await eyes.keyboard.press('ArrowLeft')
    await eventually('one back', async () => (await place()) === at)
    seen.add(await colour())
  }
  assert.deepEqual(colours.filter((one) => !seen.has(one)), [])
  await eyes.keyboard.press('ArrowRight')
  await eventually('one on', async () => (await place()) === 1)
  await eyes.getByRole('button', { name: '8×' }).click()
  await eyes.keyboard.press('Home')
  await eventually('the first one', async () => (await place()) === 0)
  await eyes.locator('.player img').click()
  await eyes.keyboard.press('Space')
  await eyes.getByRole('button', { name: 'Pause' }).waitFor()
  await eventually('it played to its end', async () => (await place()) === last && (await eyes.getByRole('button', { name: 'Play' }).isVisible()), 60_000)
  await slider.fill(String(last - 1))
  await eventually('drawn to', async () => (await eyes.getByText(`picture ${last} of ${last + 1}`).count()) === 1)
  for (const colorScheme of ['light', 'dark'])
    for (const [width, height] of [[1280, 820], [390, 800]]) {
      await eyes.emulateMedia({ colorScheme })
      await eyes.setViewportSize({ width, height })
      await eyes.screenshot({ path: path.join(screens, `recording-${colorScheme}-${width}.png`) })
      const wide = await widthOf(eyes)
      assert.ok(wide <= width, `${wide} wide at ${width}, ${colorScheme}`)
    }
  assert.deepEqual(problems, [])
  await eyes.evaluate(fs.readFileSync(path.join(repository, 'build/npm/web/node_modules/axe-core/axe.min.js'), 'utf8'))
  const { violations } = await eyes.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  assert.deepEqual(violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => `${one.id}: ${one.nodes[0].html}`), [])
  await eyes.evaluate((id) => (location.hash = `#/browsers/${id}`), silent.id)
  await eyes.getByText('No recording').waitFor()
  await eyes.getByRole('button', { name: 'Release' }).click()
  await eyes.locator('h1 .state.completed').waitFor()
})

test('extensions: one works in its session, and nowhere else', async () => {
  const zip = path.join(server.home, 'extension.zip')
  const folder = fs.mkdtempSync(path.join(server.home, 'extension-'))
  fs.writeFileSync(path.join(folder, 'manifest.json'), JSON.stringify({ manifest_version: 3, name: 'marks', version: '1', content_scripts: [{ matches: ['http://127.0.0.1/*'], js: ['mark.js'] }], background: { service_worker: 'work.js' } }))
  fs.writeFileSync(path.join(folder, 'mark.js'), 'document.body.append(" and marked")')
  fs.writeFileSync(path.join(folder, 'work.js'), 'self.works = 42')
  execFileSync('python3', ['-c', 'import shutil, sys; shutil.make_archive(sys.argv[1][:-4], "zip", sys.argv[2])', zip, folder])
  const extension = await bb.extensions.create({ file: new File([fs.readFileSync(zip)], 'marks.zip') })
  assert.equal(extension.fileName, 'marks.zip')
  assert.deepEqual(await bb.extensions.retrieve(extension.id), extension)
  const read = async (options) => {
    const session = await bb.sessions.create({ keepAlive: true, ...options })
    const served = await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', 'mkdir /tmp/w && cd /tmp/w && echo seen >index.html && (setsid python3 -m http.server 8123 >/dev/null 2>&1 &); until curl -sf 127.0.0.1:8123; do sleep 0.1; done'])
    assert.equal(served.code, 0, served.stderr)
    const browser = await chromium.connectOverCDP(session.connectUrl)
    const context = browser.contexts()[0]
    const [first] = context.pages()
    await first.goto('http://127.0.0.1:8123/')
    const text = await first.evaluate(() => document.body.innerText.trim().replace(/\s+/g, ' '))
    const worker = options.extensionId ? await eventually('its worker', () => context.serviceWorkers().find((one) => one.url().endsWith('/work.js')), 30_000) : undefined
    const works = await worker?.evaluate(() => self.works)
    await browser.close()
    await bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })
    return [text, works]
  }
  assert.deepEqual(await read({ extensionId: extension.id }), ['seen and marked', 42])
  assert.deepEqual(await read({}), ['seen', undefined])
  await assert.rejects(bb.extensions.create({ file: new File(['no zip'], 'x.zip') }), { status: 400, message: /zip/ })
  await bb.extensions.delete(extension.id)
  await assert.rejects(bb.extensions.retrieve(extension.id), { status: 404 })
  await assert.rejects(bb.sessions.create({ extensionId: extension.id }), { status: 404 })
})

test('our own provider of this kind, against ourselves', (t) =>
  contract(t, { type: 'browserbase', api_url: server.url, api_key: server.key }, { allowSkips: ['pause and connect keep files', 'snapshot and restore'] }))

test('garbage, frames of 100 MB, a browser that crashes, and a server that starts again', async () => {
  const session = await bb.sessions.create({ keepAlive: true })
  const raw = (send) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(session.connectUrl)
      socket.on('open', () => send(socket))
      socket.on('close', resolve)
      socket.on('error', reject)
    })
  await raw((socket) => { socket.send('no JSON'); socket.send(Buffer.alloc(1000, 255)); socket._socket.write(Buffer.alloc(65536, 255)) })
  const title = async () => {
    const browser = await chromium.connectOverCDP(session.connectUrl)
    const [first] = browser.contexts()[0].pages()
    await first.goto(address)
    const found = await first.title()
    await browser.close()
    return found
  }
  await eventually('it goes on', async () => (await title().catch(() => '')) === 'a page', 60_000)
  // Who is connected when it crashes is told.
  const witness = await chromium.connectOverCDP(session.connectUrl)
  const gone = new Promise((resolve) => witness.on('disconnected', resolve))
  const run = await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', 'kill -KILL -- -$(cat ~/.browser/pid)'])
  assert.equal(run.code, 0, run.stderr)
  await gone
  await eventually('it was started again', async () => (await title().catch(() => '')) === 'a page', 60_000)
  // Also when only the script that started Chromium has ended: the next one needs the port that the first one still has.
  const inside = async (command) => (await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', command])).stdout.trim()
  const script = await inside('cat ~/.browser/pid; kill -KILL $(cat ~/.browser/pid)')
  await eventually('another one is started', async () => (await inside('cat ~/.browser/pid')) !== script, 30_000)
  await eventually('it answers', async () => (await title().catch(() => '')) === 'a page', 60_000)
  // Chromium takes its time for such a frame. It is its sender's own: nobody else waits for it, and it can be released.
  const other = await bb.sessions.create({ keepAlive: true })
  const huge = new WebSocket(other.connectUrl)
  await new Promise((resolve) => huge.on('open', resolve))
  huge.send('x'.repeat(100 << 20))
  assert.equal(await title(), 'a page')
  assert.equal((await bb.sessions.update(other.id, { status: 'REQUEST_RELEASE' })).status, 'COMPLETED')
  huge.terminate()
  // Clients are told that the server went; their browsers and pages go on, also those of sessions that end with their client.
  const brief = await bb.sessions.create()
  const live = await Promise.all([session, brief].map((one) => chromium.connectOverCDP(one.connectUrl)))
  await Promise.all(live.map((browser, i) => browser.contexts()[0].pages()[0].evaluate((name) => (document.title = name), `kept ${i}`)))
  const left = Promise.all(live.map((browser) => new Promise((resolve) => browser.on('disconnected', resolve))))
  await server.restart()
  await left
  bb = new Browserbase({ apiKey: server.key, baseURL: server.url, maxRetries: 0 })
  for (const [i, one] of [session, brief].entries()) {
    assert.deepEqual((({ status, connectUrl }) => [status, connectUrl])(await bb.sessions.retrieve(one.id)), ['RUNNING', one.connectUrl])
    const browser = await chromium.connectOverCDP(one.connectUrl)
    assert.equal(await browser.contexts()[0].pages()[0].title(), `kept ${i}`)
    await browser.close()
  }
  await eventually('its last client left', async () => (await bb.sessions.retrieve(brief.id)).status === 'COMPLETED', 30_000)
  assert.equal(await title(), 'a page')
  await server.api('DELETE', `/sandboxes/${session.sandboxId}`)
  assert.equal((await bb.sessions.retrieve(session.id)).status, 'ERROR')
})

test('its page in the dashboard: opened, clicked, typed on', async () => {
  const browser = await openBrowser()
  try {
    const { id } = (await server.api('POST', '/api/v1/sandboxes', { template: 'browser' })).body
    const dashboard = await signedIn(browser, server)
    await dashboard.at(`#/sandboxes/${id}/screen`)
    const screen = dashboard.locator('canvas.screenshot')
    await screen.waitFor()
    await dashboard.getByLabel('Address').fill(address)
    await dashboard.keyboard.press('Enter')
    const asked = (act, body) => server.api('POST', `/api/v1/sandboxes/${id}/browser/${act}`, body)
    await eventually('the page is open', async () => (await asked('text', {})).body.title === 'a page', 30_000)
    // Live: many pictures a second of a page that changes, none while nobody can see them.
    const pictures = async () => Number(await screen.getAttribute('data-pictures'))
    await asked('goto', { url: 'data:text/html,<title>moves</title><body><script>setInterval(()=>document.body.style.background=`hsl(${Date.now()/5%25360|0},80%25,50%25)`,20)</script>' })
    const before = await pictures()
    await eventually('ten pictures came', async () => (await pictures()) >= before + 10, 5_000)
    const hide = (hidden) => dashboard.evaluate((value) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => value })
      document.dispatchEvent(new Event('visibilitychange'))
    }, hidden)
    await hide(true)
    let last = -1
    await eventually('no more pictures come', async () => last === (last = await pictures()), 10_000, 1000)
    await hide(false)
    await eventually('they come again', async () => (await pictures()) > last + 3, 10_000)
    await asked('goto', { url: address })
    await asked('click', { selector: '#i' })
    await screen.focus()
    await dashboard.keyboard.type('in this order')
    await eventually('typed there', async () => {
      await asked('click', { selector: 'button' })
      return (await asked('text', {})).body.title === 'in this order'
    }, 30_000)
    const place = (await asked('text', { selector: 'h1' })).body.text
    assert.equal(place, 'Hello')
    const area = await screen.boundingBox()
    const width = Number(/live, (\d+)/.exec(await dashboard.getByRole('status').filter({ hasText: 'live,' }).innerText())[1])
    await asked('goto', { url: 'data:text/html,<title>before</title><button style="position:absolute;left:40px;top:40px;width:200px;height:100px" onclick="document.title=`pressed`">x</button>' })
    await dashboard.mouse.click(area.x + (140 * area.width) / width, area.y + (90 * area.width) / width)
    await eventually('pressed there', async () => (await asked('text', {})).body.title === 'pressed', 10_000)
    assert.ok((await shots(dashboard, 'screen-browser')) <= 390)
    assert.deepEqual(await seriousFaults(dashboard), [])
    // Who may only look gets pictures, and so does who cannot be joined any more.
    const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' }
    const live = async (who, box) => (await server.api('GET', `/api/v1/sandboxes/${box}/browser/live`, undefined, { headers: upgrade, key: who })).status
    const viewer = (await server.api('POST', '/api-keys', { name: 'eyes', role: 'viewer' })).body.key
    assert.equal(await live(viewer, id), 403)
    const team = (await server.api('POST', '/admin/teams', { name: 'others' })).body
    const theirs = (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body.key
    assert.equal(await live(theirs, id), 404)
    assert.equal((await server.api('GET', `/api/v1/sandboxes/${id}/browser/live`)).status, 409)
    const eyes = await signedIn(browser, { url: server.url, key: viewer })
    await eyes.at(`#/sandboxes/${id}/screen`)
    await eyes.locator('img.screenshot').waitFor()
    await eyes.leave()
    // A server that stops does not wait for who looks; when it is back, so is the page.
    const begun = performance.now()
    await server.restart()
    console.log(`restarted within ${Math.round(performance.now() - begun)} ms`)
    assert.ok(performance.now() - begun < 8000 * patience, 'nobody is waited for')
    await dashboard.locator('canvas.screenshot').waitFor({ state: 'detached', timeout: 30_000 * patience })
    await dashboard.locator('canvas.screenshot:visible').waitFor({ timeout: 60_000 * patience })
    await server.api('POST', `/api/v1/sandboxes/${id}/execute`, { command: ': >~/.browser/stopped; kill -KILL -- -$(cat ~/.browser/pid)' })
    await dashboard.locator('canvas.screenshot').waitFor({ state: 'detached', timeout: 30_000 * patience })
    await server.api('DELETE', `/api/v1/sandboxes/${id}`)
  } finally {
    await browser.close()
  }
})

test('the provider browserbase: a type of agent gets a browser elsewhere, which Playwright drives over CDP', async () => {
  const box = await other.create({ agent_type: 'web-scraper', key: 'scraper' })
  assert.deepEqual([box.provider, box.state], ['browserbase', 'running'])
  assert.equal((await bb.sessions.retrieve(box.external_id)).status, 'RUNNING')
  const shown = await quicksand(other.server, ['url', '--cdp', box.id])
  assert.equal(shown.code, 0, shown.stderr)
  assert.equal(shown.stdout.trim(), box.cdp_url)
  assert.equal((await other.create({ agent_type: 'web-scraper', key: 'scraper' })).id, box.id, 'found again by its key')
  refused(await other.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'true' }), 409, 'unsupported')
  const browser = await chromium.connectOverCDP(box.cdp_url)
  const [first] = browser.contexts()[0].pages()
  await first.goto(address)
  await first.fill('#i', 'scraped')
  await first.click('button')
  assert.equal(await first.title(), 'scraped')
  await other.remove(box.id)
  assert.equal((await bb.sessions.retrieve(box.external_id)).status, 'COMPLETED')
  await eventually('the connection ends', () => !browser.isConnected(), 30_000)
})
