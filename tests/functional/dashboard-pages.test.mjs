// What the pages of the dashboard show, in a real browser: figures that agree with charts and with df, titles, values under the
// cursor, tabs that exist, files, logs, errors in their colour, sizes, and that every page fits a phone.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { after, before, beforeEach, test } from 'node:test'
import { bytes, clock } from '../../web/words.js'
import { EVIL, openBrowser, seriousFaults, shots, signedIn, visitor, widthOf } from '../harness/dashboard.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

let server, browser, page
before(async () => {
  server = await startServer()
  browser = await openBrowser()
  page = await signedIn(browser, server)
})
beforeEach(() => void (page.problems.length = 0))
after(async () => {
  await browser?.close()
  const { body } = await v1('GET', '/sandboxes?limit=1000')
  for (const { id } of body.sandboxes) await v1('DELETE', `/sandboxes/${id}`)
  await server?.destroy()
})

const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, { timeoutMs: 120_000, ...options })
const RAW = { headers: { 'content-type': 'application/octet-stream' } }

async function ok(status, method, target, body, options) {
  const given = await v1(method, target, body, options)
  assert.equal(given.status, status, `${method} ${target}: ${given.text}\n${server.tail(20)}`)
  return given.body
}

const create = (body = {}) => ok(201, 'POST', '/sandboxes', body)
const run = (id, command) => ok(200, 'POST', `/sandboxes/${id}/execute`, { command })
const figure = (name) => page.locator(`[data-figure="${name}"]`)
const figureText = (name) => figure(name).locator('b').innerText()
const legend = (chart, series) => page.locator('.chart', { hasText: chart }).locator(`[data-series="${series}"] b`)
const hue = (place) => place.evaluate((one) => getComputedStyle(one).color)

// The rows are those of src/base/program_test.c: the command line and the server write sizes by the same rule.
test('sizes have at most one digit after the point', () => {
  for (const [count, text] of [[0, '0 B'], [1023, '1023 B'], [1024, '1 KiB'], [1536, '1.5 KiB'], [1048575, '1 MiB'], [512 * 2 ** 20, '512 MiB'], [536900000, '512 MiB'], [537500000, '512.6 MiB'], [10 * 2 ** 30, '10 GiB'], [2 ** 64, '16384 PiB']]) assert.equal(bytes(count), text)
})

const UNITS = { B: 0, KiB: 1, MiB: 2, GiB: 3, TiB: 4 }
function bytesOf(text) {
  const [, number, unit] = /^([\d.]+) ([KMGT]?i?B)$/.exec(text)
  return Number(number) * 1024 ** UNITS[unit]
}

test('figures and chart legends show the same numbers', async () => {
  const boxes = []
  for (const key of ['one', 'two', 'three']) boxes.push(await create({ key }))
  await ok(200, 'POST', `/sandboxes/${boxes[0].id}/pause`, {})
  await page.locator('.chart').first().waitFor({ timeout: 40_000 * patience }) // a sample is taken every ten seconds
  await eventually('two run and one is paused', async () => (await figureText('Running')) === '2' && (await figureText('Paused')) === '1', 30_000)
  const shown = await page.evaluate(() => {
    const text = (where) => document.querySelector(where).innerText
    const chart = (title) => [...document.querySelectorAll('.chart')].find((one) => one.querySelector('figcaption').innerText.startsWith(title))
    const series = (title, name) => chart(title).querySelector(`[data-series="${name}"] b`).innerText
    const figure = (name) => text(`[data-figure="${name}"] b`)
    return [
      [figure('Running'), series('Sandboxes', 'running')], [figure('Paused'), series('Sandboxes', 'paused')], [figure('Created'), series('Creates', 'created')],
      [figure('Processors'), series('Processors and memory', 'processors')], [text('[data-figure="Memory"] span').split(' of ')[0], series('Processors and memory', 'memory')],
    ]
  })
  for (const [card, chart] of shown) assert.equal(card, chart, JSON.stringify(shown))
  assert.ok(Number(shown[2][0]) >= 3, 'the creates of the last minute')
  await shots(page, 'figures')
  for (const { id } of boxes) await v1('DELETE', `/sandboxes/${id}`)
  await eventually('none is left', async () => (await figureText('Running')) === '0' && (await legend('Sandboxes', 'running').innerText()) === '0', 30_000)
  assert.deepEqual(page.problems, [])
})

test('the disk is that of df for the data directory', async () => {
  const near = (a, b) => Math.abs(a - b) < Math.max(0.005 * b, 0.1 * 1024 ** 3)
  await page.at('#/')
  // The page is reloaded until both were read at about the same time: other programs write to the disk meanwhile.
  await eventually("the page's figures are those of df", async () => {
    await page.reload()
    await eventually('a figure', async () => (await figureText('Disk')) !== '–')
    const [used, free, size] = execFileSync('df', ['-B1', '--output=used,avail,size', server.data], { encoding: 'utf8' }).split('\n')[1].trim().split(/\s+/).map(Number)
    const hint = await figure('Disk').locator('span').innerText()
    const [, shownSize, shownFree] = /^of (.+?), (.+?) free; the data directory's file system$/.exec(hint)
    return near(bytesOf(await figureText('Disk')), used) && near(bytesOf(shownSize), size) && near(bytesOf(shownFree), free)
  }, 60_000, 1000)
})

test('no error is no colour, an error is red', async () => {
  const ink = await hue(figure('Created').locator('b'))
  assert.equal(await figureText('Errors'), '0')
  assert.equal(await hue(figure('Errors').locator('b')), ink)
  await v1('POST', '/sessions', { agent: 'mock', wait: true, template: 'none-of-that-name' })
  const line = page.locator('.events .type', { hasText: 'session.failed' }).first()
  await line.waitFor()
  assert.notEqual(await figureText('Errors'), '0')
  const red = await page.evaluate(() => {
    const probe = document.body.appendChild(document.createElement('i'))
    probe.className = 'bad'
    return getComputedStyle(probe).color
  })
  assert.notEqual(red, ink)
  assert.equal(await hue(figure('Errors').locator('b')), red)
  assert.equal(await hue(line), red)
})

test('charts have titles, units, and values under mouse and keyboard', async () => {
  const chart = page.locator('.chart', { hasText: 'Creates' })
  await chart.locator('figcaption', { hasText: 'per minute' }).waitFor()
  await page.locator('.chart figcaption', { hasText: '% of this host' }).waitFor()
  const time = chart.locator('time')
  assert.equal(await time.innerText(), 'newest')
  const plot = chart.locator('.plot')
  await plot.scrollIntoViewIfNeeded()
  const { width, height } = await plot.boundingBox()
  await plot.hover({ position: { x: width * 0.6, y: height * 0.4 } })
  await eventually('the time under the mouse', async () => /^\d\d:\d\d:\d\d$/.test(await time.innerText()))
  const under = await chartTexts(chart)
  assert.deepEqual(Object.keys(under.values), ['created', 'failed'])
  for (const value of Object.values(under.values)) assert.match(value, /^[\d.,]+$/)
  assert.equal(under.spoken, `${under.time}: created ${under.values.created}, failed ${under.values.failed}`)
  await page.mouse.move(0, 0)
  await eventually('the newest again', async () => (await time.innerText()) === 'newest')
  await plot.focus()
  await page.keyboard.press('Home')
  await eventually('the first time', async () => /^\d\d:\d\d:\d\d$/.test(await time.innerText()))
  const first = await time.innerText()
  await page.keyboard.press('ArrowRight')
  await eventually('the next time', async () => (await time.innerText()) > first)
  assert.match(await chart.locator('output').innerText(), /^\d\d:\d\d:\d\d: created [\d.,]+, failed [\d.,]+$/)
  await page.keyboard.press('Escape')
  await eventually('the newest again', async () => (await time.innerText()) === 'newest')
})

// What a chart shows: its title and unit, then names and values for one moment.
const chartTexts = (chart) => chart.evaluate((one) => ({
  title: one.querySelector('figcaption b').innerText,
  unit: one.querySelector('figcaption span')?.innerText,
  time: one.querySelector('time').innerText,
  values: Object.fromEntries([...one.querySelectorAll('[data-series]')].map((series) => [series.dataset.series, series.querySelector('b').innerText])),
  spoken: one.querySelector('output').innerText,
}))

test("a sandbox's charts have titles, units, and the names and values of the samples under the mouse", async () => {
  const box = await create({ key: 'charted', limits: { cpu: 1, memoryMb: 256 } })
  await ok(202, 'POST', `/sandboxes/${box.id}/execute`, { command: 'while :; do head -c 300000 /dev/urandom >> /tmp/grows; sleep 0.3; done', background: true })
  const samples = async () => (await server.api('GET', `/sandboxes/${box.external_id ?? box.id}/metrics`)).body
  await eventually('some samples', async () => (await samples()).length >= 4, 60_000, 500)
  await page.at(`#/sandboxes/${box.id}`)
  const charts = page.locator('.charts.four .chart')
  await charts.nth(3).waitFor()
  const shown = {
    Processor: [/^% of its processors$/, (one) => ({ used: `${Math.round(one.cpuUsedPct)} %` })],
    Memory: [/^of 256 MiB$/, (one) => ({ used: bytes(one.memUsed) })],
    Disk: [/^of \d+ GiB$/, (one) => ({ used: bytes(one.diskUsed) })],
    Network: [/^per second$/, (one, before) => {
      const rate = (name) => bytes(before ? Math.max(0, one[name] - before[name]) / Math.max(1, one.timestampUnix - before.timestampUnix) : 0)
      return { received: rate('networkReceived'), sent: rate('networkSent') }
    }],
  }
  assert.equal(await charts.count(), Object.keys(shown).length)
  for (const [at, [title, [unit, want]]] of Object.entries(shown).entries()) {
    const chart = charts.nth(at)
    const plot = chart.locator('.plot')
    await plot.scrollIntoViewIfNeeded()
    const { width, height } = await plot.boundingBox()
    await plot.hover({ position: { x: width * 0.6, y: height * 0.4 } })
    await eventually('a time under the mouse', async () => /^\d\d:\d\d:\d\d$/.test((await chartTexts(chart)).time))
    const texts = await chartTexts(chart)
    assert.equal(texts.title, title)
    assert.match(texts.unit, unit)
    const all = await samples()
    const sample = all.findIndex((one) => clock(one.timestampUnix * 1000) === texts.time)
    assert.ok(sample >= 0, `${texts.time} is the time of a sample`)
    assert.deepEqual(texts.values, want(all[sample], all[sample - 1]), title)
    assert.equal(texts.spoken, `${texts.time}: ${Object.entries(texts.values).map((one) => one.join(' ')).join(', ')}`)
  }
  await page.mouse.move(0, 0)
  await shots(page, 'sandbox-charts')
  assert.deepEqual(page.problems, [])
  await v1('DELETE', `/sandboxes/${box.id}`)
})

test('pages that events keep up to date do not poll', async () => {
  const one = await visitor(browser)
  await one.clock.install()
  await one.goto(server.url)
  await one.getByLabel('API key').fill(server.key)
  await one.keyboard.press('Enter')
  await one.getByRole('heading', { name: 'Overview' }).waitFor()
  await one.locator('[data-figure="Disk"] span', { hasText: 'free' }).waitFor()
  const asked = []
  one.on('request', (request) => asked.push(new URL(request.url()).pathname))
  await one.clock.runFor(65_000)
  assert.ok(asked.filter((path) => path === '/api/v1/history').length >= 5, 'samples have no events')
  assert.deepEqual(asked.filter((path) => !/\/history$|\/events$/.test(path) && !path.startsWith('/ui/')), [], 'nothing else is asked for')
  asked.length = 0
  await one.at('#/sandboxes')
  await one.getByRole('heading', { name: 'Sandboxes', level: 1 }).waitFor()
  await eventually('it has read the teams, once', () => asked.includes('/admin/teams'))
  asked.length = 0
  await one.clock.runFor(65_000)
  assert.deepEqual(asked.filter((path) => !path.endsWith('/events')), [])
  await one.leave()
})

test('the title is the name, and tabs without a program are hidden', async () => {
  const keyed = await create({ key: 'by-key' })
  const named = await create({ key: 'not-this', metadata: { name: 'by-metadata' } })
  const bare = await create()
  for (const [box, name] of [[keyed, 'by-key'], [named, 'by-metadata'], [bare, bare.id]]) {
    await page.at(`#/sandboxes/${box.id}`)
    await page.getByRole('heading', { name, level: 1 }).waitFor()
    await eventually('the title', async () => (await page.title()) === `${name} · Quicksand`)
  }
  await page.getByRole('tab', { name: 'Files' }).waitFor()
  assert.deepEqual((await ok(200, 'GET', `/events?since=0&limit=100&sandbox_id=${bare.id}&type=process.started`)).events, [], 'looking at it runs nothing in it')
  for (const name of ['Screen', 'Notebook']) assert.equal(await page.getByRole('tab', { name }).count(), 0, name)
  // A template with these programs has the tabs.
  const programs = ['desktop-screenshot', 'interpreter'].map((name) => `sudo touch /usr/local/bin/${name}`).join(' && ')
  assert.equal((await run(named.id, programs)).exit_code, 0)
  await page.at(`#/sandboxes/${named.id}`)
  await page.reload()
  for (const name of ['Screen', 'Notebook']) await page.getByRole('tab', { name }).waitFor()
  for (const [hash, title] of [['#/sandboxes', 'Sandboxes'], ['#/admin/audit', 'Audit, Administration'], ['#/templates/base', 'base'], ['#/', 'Overview']]) {
    await page.at(hash)
    await eventually(title, async () => (await page.title()) === `${title} · Quicksand`)
  }
  for (const { id } of [keyed, named, bare]) await v1('DELETE', `/sandboxes/${id}`)
})

test('files: the working directory, new files and folders, other names', async () => {
  const box = await create({ key: 'files', workspace_root: '/home/user/work' })
  await page.at(`#/sandboxes/${box.id}/files`)
  await page.getByRole('navigation', { name: 'Folders' }).getByRole('button', { name: 'work' }).waitFor()
  await page.getByRole('button', { name: 'New folder' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name').fill('a/b')
  await page.keyboard.press('Enter')
  await dialog.getByText('A name has no slash').waitFor()
  await dialog.getByLabel('Name').fill('-src')
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: '-src', exact: true }).click()
  await page.getByText('This folder is empty').waitFor()
  await page.getByRole('button', { name: 'New file' }).click()
  await dialog.getByLabel('Name').fill('main.py')
  await page.keyboard.press('Enter')
  await page.getByRole('textbox', { name: /main\.py/ }).fill('print(1)\n')
  assert.ok((await shots(page, 'file')) <= 390, 'the file viewer is too wide for a phone')
  await page.getByRole('button', { name: 'Review changes' }).click()
  await page.getByRole('button', { name: 'Save' }).click()
  await dialog.waitFor({ state: 'detached' })
  await page.getByRole('button', { name: 'Rename main.py' }).click()
  await dialog.getByLabel('Name').fill(EVIL)
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: /^<img src=x/ }).waitFor()
  assert.equal((await v1('GET', `/sandboxes/${box.id}/files?path=${encodeURIComponent(`/home/user/work/-src/${EVIL}`)}`)).text, 'print(1)\n')
  await ok(200, 'PUT', `/sandboxes/${box.id}/files?path=/home/user/work/-src/taken`, 'x', RAW)
  await page.getByRole('button', { name: /^Rename <img/ }).click()
  await dialog.getByLabel('Name').fill('taken') // which the page has not seen yet
  await page.keyboard.press('Enter')
  await dialog.getByText('taken exists already').waitFor()
  await dialog.getByRole('button', { name: 'Cancel' }).click()
  assert.equal((await v1('GET', `/sandboxes/${box.id}/files?path=/home/user/work/-src/taken`)).text, 'x')
  assert.equal(await page.locator('main img').count(), 0)
  assert.ok((await widthOf(page)) <= 1280)
  assert.deepEqual(page.problems, [])
  await v1('DELETE', `/sandboxes/${box.id}`)
  // Without a workspace it is where commands start.
  const other = await create()
  await page.at(`#/sandboxes/${other.id}/files`)
  await page.getByRole('navigation', { name: 'Folders' }).getByRole('button', { name: 'user' }).waitFor()
  await page.getByRole('button', { name: '.bashrc', exact: true }).waitFor()
  await v1('DELETE', `/sandboxes/${other.id}`)
})

test('the page of a sandbox lists its ports without a command', async () => {
  const box = await create()
  await run(box.id, 'setsid python3 -m http.server 8123 >/dev/null 2>&1 & until grep -q ":1FBB .* 0A" /proc/net/tcp; do sleep 0.1; done')
  const commands = async () => (await ok(200, 'GET', `/events?since=0&limit=100&sandbox_id=${box.id}&type=process.started`)).events.length
  const before = await commands()
  await page.at(`#/sandboxes/${box.id}`)
  await page.locator('.card', { hasText: 'Listening ports' }).getByRole('link', { name: '8123' }).waitFor()
  await page.getByText('on all interfaces').waitFor()
  assert.equal(await commands(), before)
  assert.deepEqual(page.problems, [])
  await v1('DELETE', `/sandboxes/${box.id}`)
})

test('logs are filtered by level and searched', async () => {
  const box = await create({ key: 'logged', network: { mode: 'restricted', allowDomains: ['allowed.test'] } })
  await run(box.id, `echo needle-${EVIL.length}; true '${EVIL}'`)
  await run(box.id, 'python3 -c "import socket; socket.getaddrinfo(\'denied.test\', 80)"')
  await page.at(`#/sandboxes/${box.id}/logs`)
  const lines = page.locator('ol.log li:has(time)')
  await page.getByText('Sandbox created').waitFor()
  await page.getByLabel('Search the log').fill('needle')
  await eventually('only lines with the word', async () => (await lines.count()) > 0 && (await lines.allInnerTexts()).every((line) => line.includes('needle')))
  assert.equal(await page.locator('main img').count(), 0)
  await page.getByLabel('Search the log').fill('no-line-has-this')
  await page.getByText('No matching lines').waitFor()
  await page.getByLabel('Search the log').fill('')
  await page.getByText('Sandbox created').waitFor()
  await page.getByLabel('Level').selectOption('error')
  await page.getByText('No matching lines').waitFor()
  await page.at(`#/sandboxes/${box.id}/network`)
  await page.getByLabel('Level').selectOption('warn')
  await page.locator('ol.log li', { hasText: 'denied.test' }).first().waitFor()
  assert.ok((await page.locator('ol.log .level').allInnerTexts()).every((level) => level === 'warn'))
  await page.shot('network')
  assert.deepEqual(page.problems, [])
  await v1('DELETE', `/sandboxes/${box.id}`)
})

// Numbers as people read them: MiB and GiB, at most one digit after the point but for money.
function checkSizes(text, name) {
  assert.doesNotMatch(text, /\d (kB|MB|GB|TB)\b/, name)
  assert.doesNotMatch(text.replace(/\$ ?\d+\.\d+/g, ''), /\d\.\d{2,}(?![.\d]) ?(%|ms|s|[KMGT]?i?B)\b/, name)
}

const whole = (place) => place.evaluate((one) => {
  const range = document.createRange()
  range.selectNodeContents(one)
  return range.getBoundingClientRect().width <= one.getBoundingClientRect().width + 0.5
})

// A picture at another size. Returns how wide the page is there.
async function shotAt(page, size, name, check) {
  const before = page.viewportSize()
  await page.setViewportSize(size)
  await page.shot(name)
  await check()
  const wide = await widthOf(page)
  await page.setViewportSize(before)
  return wide
}

test('every page fits a phone and a screen of 1280 pixels and is accessible, light and dark', async () => {
  const box = await create({ key: `a-sandbox-with-quite-a-long-name-${'x'.repeat(40)}`, metadata: { owner: 'a-person-with-a-long-name' }, agent_id: 'planner' })
  const paused = await create({ key: 'paused-one' })
  await ok(200, 'POST', `/sandboxes/${paused.id}/pause`, {})
  const job = await ok(202, 'POST', `/sandboxes/${box.id}/execute`, { command: `echo ${'long '.repeat(60)}; sleep 600`, background: true })
  await run(box.id, `head -c 3000000 /dev/urandom > a-file-with-quite-a-long-name-${'y'.repeat(60)}.bin`)
  await ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {})
  await server.api('POST', '/volumes', { name: 'data' })
  await server.api('POST', '/api-keys', { name: `key-${'z'.repeat(50)}`, role: 'viewer' })
  await server.api('POST', '/events/webhooks', { name: 'watcher', url: `http://127.0.0.1:9/${'hook'.repeat(20)}`, signatureSecret: 's'.repeat(40), enabled: true, events: ['sandbox.lifecycle.created'] })
  const tabs = ['', '/terminal', '/files', '/processes', '/logs', '/network', '/events', '/snapshots', '/screen', '/notebook'].map((tab) => [`#/sandboxes/${box.id}${tab}`, 'a-sandbox'])
  const admin = ['', '/teams', '/webhooks', '/audit', '/providers', '/use', '/settings'].map((tab) => [`#/admin${tab}`, 'Administration'])
  const all = [['#/', 'Overview'], ['#/sandboxes', 'Sandboxes'], ...tabs, [`#/sandboxes/${paused.id}`, 'paused-one'], [`#/sandboxes/${paused.id}/files`, 'paused-one'], ['#/templates', 'Templates'], ['#/templates/base', 'base'],
    ['#/snapshots', 'Snapshots'], ['#/volumes', 'Volumes'], ['#/work', 'Sessions and jobs'], [`#/work/job/${job.id}`, 'echo long'], ['#/browsers', 'Browsers'], ...admin, ['#/api', 'API']]
  for (const colorScheme of ['light', 'dark']) {
    const phone = await signedIn(browser, server, { viewport: { width: 390, height: 844 }, colorScheme })
    for (const [hash, sign] of all) {
      await phone.at(hash)
      await phone.getByRole('heading', { name: sign, level: 1 }).waitFor()
      await eventually(`${hash} is loaded`, async () => (await phone.locator('.loading').count()) === 0, 15_000)
      const name = `${colorScheme}-${hash.replace(/\W+/g, '-').replace(box.id, 'box')}`
      await phone.shot(`phone-${name}`)
      assert.ok((await widthOf(phone)) <= 390, `${name} is ${await widthOf(phone)} wide`)
      const wide = await shotAt(phone, { width: 1280, height: 820 }, name, async () => {
        if (hash === '#/') assert.ok(await whole(phone.getByRole('listitem').filter({ hasText: 'a-sandbox' }).getByText('base', { exact: true })), 'the template is cut off')
      })
      assert.ok(wide <= 1280, `${name} is ${wide} wide`)
      if (!/settings|api/.test(hash)) checkSizes(await phone.locator('main').innerText(), name)
      assert.deepEqual(await seriousFaults(phone), [], name)
    }
    // No screen was asked for: two are not there.
    assert.deepEqual(phone.problems.filter((one) => !/^409 GET \S+\/(desktop|browser)\/screenshot$/.test(one)), [])
    await phone.leave()
  }
})
