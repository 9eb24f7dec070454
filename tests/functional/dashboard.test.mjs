// The dashboard in a real browser (Debian's chromium, headless) against a real server: the way in, each page with real
// data, what can be done there, other roles, hostile names, a restart of the server. Pictures go to build/screens.
import assert from 'node:assert/strict'
import { after, afterEach, before, describe, test } from 'node:test'
import { EVIL, openBrowser, seriousFaults, signedIn as signIn, visitor as visit, widthOf } from '../harness/dashboard.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

let server, browser
before(async () => {
  server = await startServer()
  browser = await openBrowser()
})
after(async () => {
  await browser?.close()
  const { body } = await v1('GET', '/sandboxes?limit=1000')
  for (const { id } of body.sandboxes) await v1('DELETE', `/sandboxes/${id}`)
  await server.destroy()
})
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, options)
const create = async (body = {}) => (await v1('POST', '/sandboxes', body)).body
const newKey = async (name, role) => (await server.api('POST', '/api-keys', { name, role })).body

const visitor = (options) => visit(browser, options)
const signedIn = (options, key) => signIn(browser, server, options, key)
const done = (page) => page.leave()
// Among the newest sandboxes, and in the list of all; events name it, too.
const newest = (page, name) => page.locator('ul.plain').getByRole('link', { name })
const listed = (page, name) => page.locator('.rows').getByRole('link', { name })

describe('the way in', () => {
  test('is an API key, typed once', async () => {
    const page = await visitor()
    await page.goto(server.url)
    await page.getByLabel('API key').fill('e2b_wrong')
    await page.keyboard.press('Enter')
    await page.getByText('does not know this API key').waitFor()
    await page.shot('enter')
    await page.getByLabel('API key').fill(server.key)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    const [cookie] = await page.context().cookies()
    assert.equal(cookie.httpOnly, true)
    assert.equal(cookie.sameSite, 'Strict')
    assert.ok(!cookie.value.includes(server.key))
    assert.ok(!(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]))).includes('e2b_'))
    await page.reload()
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('API key').waitFor()
    const again = await server.api('GET', '/api/v1/signin', undefined, { key: null, headers: { Cookie: `${cookie.name}=${cookie.value}`, 'X-Quicksand-Page': '1' } })
    assert.equal(again.status, 401)
    assert.ok(!server.log.includes(cookie.value))
    await done(page)
  })

  test('who was signed in sees the frame before any script, and what was known of them only until they sign out', async () => {
    const page = await signedIn()
    await page.route('**/ui/*.js', () => {}) // scripts that never come
    await page.reload({ waitUntil: 'commit' })
    await page.getByRole('link', { name: 'Sandboxes', exact: true }).waitFor()
    assert.equal(await page.getByRole('heading', { name: 'Overview' }).count(), 0)
    await page.unroute('**/ui/*.js')
    // The server does not say who it is: everything but that is asked for and shown already.
    await page.route('**/api/v1/signin', () => {})
    await page.reload({ waitUntil: 'commit' })
    await page.getByText('Newest sandboxes').waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    await page.unroute('**/api/v1/signin')
    await page.reload()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('API key').waitFor()
    assert.equal(await page.evaluate(() => localStorage.getItem('quicksand.who')), null)
    await page.reload()
    await page.getByLabel('API key').waitFor()
    assert.equal(await page.getByRole('link', { name: 'Sandboxes', exact: true }).count(), 0)
    await done(page)
  })

  test('is a link that works once', async () => {
    const { path: target } = (await v1('POST', '/signin/links')).body
    const page = await visitor()
    await page.goto(server.url + target)
    await page.getByRole('heading', { name: 'Overview' }).waitFor()
    assert.ok(!page.url().includes('enter'))
    const other = await visitor()
    await other.goto(server.url + target)
    await other.getByText('was used already').waitFor()
    await done(page)
    await done(other)
  })

  test('ends with the key', async () => {
    const { id, key } = await newKey('short-lived')
    const page = await signedIn({}, key)
    await server.api('DELETE', `/api-keys/${id}`)
    await page.at('#/sandboxes/none')
    await page.getByLabel('API key').waitFor()
    await done(page)
  })

  test('is of no use to other pages', async () => {
    const made = await v1('POST', '/signin', {})
    const cookie = made.headers['set-cookie'][0].split(';')[0]
    const as = (headers, method = 'GET', target = '/sandboxes') => v1(method, target, method === 'POST' ? {} : undefined, { key: null, headers: { Cookie: cookie, ...headers } }).then(({ status }) => status)
    assert.equal(await as({}), 401)
    assert.equal(await as({ 'Sec-Fetch-Site': 'same-origin' }), 200)
    assert.equal(await as({ 'Sec-Fetch-Site': 'same-site', 'X-Quicksand-Page': '1' }), 401)
    assert.equal(await as({ 'Sec-Fetch-Site': 'cross-site' }), 401)
    assert.equal(await as({ 'Sec-Fetch-Site': 'same-origin' }, 'POST'), 401)
    assert.equal(await as({ Origin: 'http://evil.example' }, 'POST'), 401)
    const ours = await v1('POST', '/sandboxes', {}, { key: null, headers: { Cookie: cookie, 'X-Quicksand-Page': '1', 'Sec-Fetch-Site': 'same-origin' } })
    assert.equal(ours.status, 201)
    const upgrade = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' }
    assert.equal(await as({ ...upgrade, Origin: 'http://8000-x.localhost' }, 'GET', `/sandboxes/${ours.body.id}/terminal`), 401)
    const asked = await server.api('OPTIONS', '/api/v1/sandboxes', undefined, { key: null, headers: { Origin: 'http://evil.example', 'Access-Control-Request-Headers': 'X-Quicksand-Page' } })
    assert.ok(!/quicksand-page/i.test(asked.headers['access-control-allow-headers']))
    assert.equal(asked.headers['access-control-allow-credentials'], undefined)
    const teams = await server.api('GET', '/teams', undefined, { key: null, headers: { Cookie: cookie, 'X-Quicksand-Page': '1' } })
    assert.ok(!teams.text.includes(cookie.split('=')[1]), 'a page does not learn the token')
  })

  test('leaves programs their answer', async () => {
    assert.equal((await server.api('GET', '/')).status, 404)
    const page = await server.request({ path: '/', headers: { Accept: 'text/html,*/*' } })
    assert.equal(page.status, 200)
    const policy = page.headers['content-security-policy']
    assert.ok(policy.includes("default-src 'none'") && !policy.includes('unsafe'))
  })
})

describe('pages', () => {
  test('overview: figures and events as they happen', async () => {
    const page = await signedIn()
    const box = await create({ key: 'seen-at-once' })
    await newest(page, 'seen-at-once').waitFor()
    await page.getByText('sandbox.created').first().waitFor()
    await page.shot('overview')
    await v1('DELETE', `/sandboxes/${box.id}`)
    await newest(page, 'seen-at-once').waitFor({ state: 'detached' })
    assert.deepEqual(page.problems, [])
    await done(page)
  })

  test('what happens between the list and the first event is seen', async () => {
    const page = await signedIn()
    let box
    await page.route('**/api/v1/events*', async (route) => {
      if (/event-stream/.test(route.request().headers().accept)) box ??= await create({ key: 'in-between' })
      await route.continue()
    })
    await page.reload()
    await newest(page, 'in-between').waitFor()
    await v1('DELETE', `/sandboxes/${box.id}`)
    await newest(page, 'in-between').waitFor({ state: 'detached' })
    await done(page)
  })

  test('of more events than are asked for the newest are shown', async () => {
    let last
    for (let i = 0; i < 120; i++) {
      last = await create()
      await v1('DELETE', `/sandboxes/${last.id}`)
    }
    const page = await signedIn()
    await page.locator(`.events a[href="#/sandboxes/${last.id}"]`).first().waitFor()
    await done(page)
  })

  test('sandboxes: filter, sort, choose, pause, resume, kill', async () => {
    for (const key of ['alpha', 'beta', 'gamma']) await create({ key, metadata: { stage: key === 'beta' ? 'test' : 'live' } })
    const page = await signedIn()
    await page.keyboard.press('g')
    await page.keyboard.press('s')
    await listed(page, 'alpha').waitFor()
    await page.shot('sandboxes')
    await page.keyboard.press('/')
    await page.keyboard.type('stage test')
    await listed(page, 'alpha').waitFor({ state: 'detached' })
    await page.getByRole('checkbox', { name: 'Select all shown' }).check()
    await page.getByRole('toolbar').getByRole('button', { name: 'Pause' }).click()
    await page.locator('.row .state.paused').waitFor()
    await page.getByRole('button', { name: /^Resume/ }).click()
    await page.locator('.row .state.running').waitFor()
    await page.getByRole('button', { name: /^Kill/ }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Kill 1' }).click()
    await page.getByText('No matching sandboxes').waitFor()
    assert.deepEqual(page.problems, [])
    await done(page)
  })

  test('a new one: what is wrong stands beside the field', async () => {
    const page = await signedIn()
    await page.keyboard.press('c')
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Key').fill('made-here')
    await dialog.getByLabel('Processors').fill('many')
    await dialog.getByLabel('Environment').fill('nonsense')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await dialog.getByText('Processors must be a whole number').waitFor()
    await dialog.getByText('is not NAME=VALUE').waitFor()
    await page.shot('create')
    await dialog.getByLabel('Processors').fill('1')
    await dialog.getByLabel('Environment').fill('WHO=me')
    await dialog.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'made-here' }).waitFor()
    const { body } = await v1('GET', '/sandboxes/key:made-here')
    assert.equal(body.limits.cpu, 1)
    await done(page)
  })

  test('one sandbox: terminal, files, processes, ports, logs, snapshots, fork', async () => {
    const box = await create({ key: 'looked-at', metadata: { owner: 'me' } })
    await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'python3 -m http.server 8000 --directory /tmp', background: true })
    await v1('PUT', `/sandboxes/${box.id}/files?path=/home/user/note.txt`, 'one\ntwo\n', { headers: { 'content-type': 'application/octet-stream' } })
    const page = await signedIn()
    await page.at(`#/sandboxes/${box.id}`)
    await page.getByRole('heading', { name: 'looked-at' }).waitFor()
    await eventually('port 8000 is found', async () => {
      await page.getByRole('button', { name: 'Refresh' }).click()
      return page.getByRole('link', { name: '8000' }).isVisible()
    }, 20_000, 500)
    await page.locator('.chart').first().waitFor({ timeout: 30_000 * patience })
    await page.shot('sandbox')
    await page.getByRole('tab', { name: 'Terminal' }).click()
    await page.getByText('connected').waitFor()
    await page.keyboard.type('echo $((6*7))-$(whoami)\n')
    await eventually('the shell answers', async () => (await page.locator('.xterm-rows').innerText()).includes('42-user'), 15_000)
    await page.shot('terminal')
    await page.getByRole('tab', { name: 'Files' }).click()
    await page.locator('input[type=file]').setInputFiles({ name: 'sent.txt', mimeType: 'text/plain', buffer: Buffer.from('by hand') })
    await page.getByRole('button', { name: 'sent.txt', exact: true }).waitFor()
    await page.getByRole('button', { name: 'note.txt', exact: true }).click()
    await page.getByRole('textbox', { name: /note.txt/ }).fill('one\nthree\n')
    await page.getByRole('button', { name: 'Review changes' }).click()
    await page.locator('.diff .gone', { hasText: 'two' }).waitFor()
    await page.locator('.diff .added', { hasText: 'three' }).waitFor()
    await page.shot('files')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    assert.equal((await v1('GET', `/sandboxes/${box.id}/files?path=/home/user/note.txt`)).text, 'one\nthree\n')
    await page.getByRole('tab', { name: 'Processes' }).click()
    const line = page.getByRole('row', { name: /http\.server/ }).first()
    await line.waitFor()
    await page.shot('processes')
    await page.getByRole('tab', { name: 'Logs' }).click()
    await page.getByText('Sandbox created').waitFor()
    await page.getByRole('tab', { name: 'Snapshots' }).click()
    await page.getByRole('button', { name: 'Take snapshot' }).click()
    await page.getByRole('button', { name: 'Create sandbox' }).waitFor()
    await page.getByRole('button', { name: 'Fork' }).click()
    await page.waitForFunction((id) => location.hash.startsWith('#/sandboxes/') && !location.hash.includes(id), box.id)
    await page.locator('h1 .state.running').waitFor()
    await page.at('#/snapshots')
    await page.getByRole('heading', { name: 'Origins' }).waitFor()
    await page.shot('snapshots')
    // The runtime may hear of the fork a moment after the page.
    assert.deepEqual(page.problems.filter((one) => !/^404 GET \S+\/api\/v1\/sandboxes\/\w+$/.test(one)), [])
    await done(page)
  })

  test('templates, volumes, jobs, administration and the API have pages', async () => {
    const box = await create({ key: 'works' })
    await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'echo printed-by-the-job; sleep 600', background: true })
    await newKey('somebody', 'viewer')
    const page = await signedIn()
    await page.at('#/templates')
    await page.getByRole('link', { name: 'base' }).first().waitFor()
    await page.shot('templates')
    await page.at('#/volumes')
    await page.getByLabel('New volume').fill('data')
    await page.keyboard.press('Enter')
    await page.getByText('data', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Delete data' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
    await page.getByText('No volumes yet').waitFor()
    await page.at('#/work')
    const job = page.locator('li', { hasText: 'printed-by-the-job' })
    await job.locator('.state', { hasText: 'running' }).waitFor()
    assert.equal((await v1('POST', `/sandboxes/${box.id}/pause`, {})).status, 200)
    await job.locator('.state', { hasText: 'paused' }).waitFor()
    await page.getByRole('link', { name: /printed-by-the-job/ }).click()
    await page.locator('h1 .state', { hasText: 'paused' }).waitFor()
    await page.getByText('Its output can be read when its sandbox is resumed.').waitFor()
    assert.equal((await v1('GET', `/sandboxes/${box.id}`)).body.state, 'paused', 'who looks at its page resumes nothing')
    assert.equal((await v1('POST', `/sandboxes/${box.id}/resume`, {})).status, 200)
    await page.locator('h1 .state', { hasText: 'running' }).waitFor()
    await page.locator('pre', { hasText: 'printed-by-the-job' }).waitFor()
    await page.shot('job')
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' })
    await page.at('#/admin')
    await page.getByRole('cell', { name: 'somebody', exact: true }).waitFor()
    await page.getByLabel('New API key').fill('from-the-page')
    assert.equal(await page.getByLabel('Role').inputValue(), 'viewer', 'the least role is the default')
    await page.getByRole('button', { name: 'Create' }).click()
    assert.match(await page.getByRole('dialog').getByLabel('API key').inputValue(), /^e2b_[0-9a-f]{40}$/)
    await page.getByRole('button', { name: 'Done' }).click()
    await page.getByRole('button', { name: 'Revoke from-the-page' }).waitFor()
    assert.equal((await server.api('GET', '/api-keys')).body.find((one) => one.name === 'from-the-page').role, 'viewer')
    await page.shot('keys')
    await page.getByRole('tab', { name: 'Teams' }).click()
    await page.getByLabel('New team').fill('acme')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'acme' }).waitFor()
    await page.locator('.card', { hasText: 'acme' }).getByRole('button', { name: 'New API key' }).click()
    assert.equal(await page.getByRole('dialog').getByLabel('Role').inputValue(), 'viewer')
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
    await page.getByRole('tab', { name: 'Audit' }).click()
    await page.getByText('/admin/teams').first().waitFor()
    await page.shot('audit')
    await page.getByRole('tab', { name: 'Providers' }).click()
    await page.getByRole('heading', { name: 'e2b' }).waitFor()
    await page.getByRole('tab', { name: 'Usage and cost' }).click()
    await page.getByRole('button', { name: 'CSV', exact: true }).waitFor()
    await page.at('#/api')
    await page.getByLabel('Find an endpoint').fill('GET /api/v1/health')
    await page.getByRole('button', { name: /\/api\/v1\/health/ }).click()
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByLabel('Response').waitFor()
    await page.shot('api')
    assert.deepEqual(page.problems, [])
    await done(page)
  })

  test('one description has all APIs', async () => {
    const { body } = await server.api('GET', '/openapi.json', undefined, { key: null })
    for (const path of ['/sandboxes', '/v3/templates', '/api/v1/sessions', '/v1/sessions', '/mcp', '/metrics']) assert.ok(body.paths[path], path)
    for (const [path, methods] of Object.entries(body.paths)) for (const method of Object.keys(methods)) {
      if (path === '/health' || path === '/openapi.json' || path.endsWith('/health')) continue
      const { status } = await server.api(method.toUpperCase(), path.replace(/\{\w+\}/g, 'x'), undefined, { key: null })
      assert.ok([400, 401, 403].includes(status) || path === '/api/v1/openapi.json', `${method} ${path}: ${status}`)
    }
  })
})

describe('others', () => {
  test('a viewer sees and changes nothing', async () => {
    const box = await create({ key: 'only-looked-at' })
    const { key } = await newKey('looks', 'viewer')
    const as = { key }
    assert.equal((await v1('GET', '/sandboxes', undefined, as)).status, 200)
    assert.equal((await server.api('GET', `/sandboxes/${box.external_id}`, undefined, as)).body.envdAccessToken, undefined)
    assert.equal((await v1('POST', '/sandboxes', {}, as)).status, 403)
    assert.equal((await v1('POST', `/sandboxes/${box.id}/execute`, { command: 'id' }, as)).status, 403)
    assert.equal((await v1('GET', `/sandboxes/${box.id}/ports/80`, undefined, as)).status, 403)
    assert.equal((await server.api('POST', '/api-keys', { name: 'more' }, as)).status, 403)
    assert.equal((await server.api('GET', '/metrics', undefined, as)).status, 403)
    const page = await signedIn({}, key)
    await page.at('#/sandboxes')
    await listed(page, 'only-looked-at').click()
    await page.getByRole('heading', { name: 'only-looked-at' }).waitFor()
    assert.equal(await page.getByRole('button', { name: 'Kill' }).count(), 0)
    assert.equal(await page.getByRole('tab', { name: 'Terminal' }).count(), 0)
    assert.deepEqual(page.problems, [])
    await done(page)
  })

  test('roles are kept apart', async () => {
    const { key: member } = await newKey('plain', 'member')
    const { key: metrics } = await newKey('graphs', 'metrics')
    assert.equal((await server.api('GET', '/admin/teams', undefined, { key: member })).status, 403)
    assert.equal((await server.api('GET', '/metrics', undefined, { key: member })).status, 403)
    assert.equal((await v1('GET', '/history', undefined, { key: member })).status, 403)
    assert.equal((await server.api('POST', '/api-keys', { name: 'up', role: 'operator' }, { key: member })).status, 403)
    assert.equal((await server.api('POST', '/api-keys', { name: 'x', role: 'king' })).status, 400)
    assert.equal((await server.api('GET', '/metrics', undefined, { key: metrics })).status, 200)
    assert.equal((await v1('GET', '/sandboxes', undefined, { key: metrics })).status, 403)
    assert.equal((await server.api('GET', '/templates', undefined, { key: metrics })).status, 403)
    assert.equal((await v1('GET', '/history?range=15m')).status, 200)
    assert.equal((await v1('GET', '/history')).body.step, 10, '15 minutes are the default')
  })

  test('names are text, whatever they are', async () => {
    await create({ key: EVIL, agent_id: EVIL, metadata: { [`a${EVIL.slice(0, 20)}`]: EVIL } })
    const page = await signedIn()
    await page.at('#/sandboxes')
    await listed(page, /<img src=x/).click()
    await page.getByRole('heading', { name: /<img src=x/ }).waitFor()
    assert.match(await page.title(), /^<img src=x.* · Quicksand$/)
    assert.equal(await page.locator('main img').count(), 0)
    assert.ok(!(await page.locator('main').innerText()).includes('\u202e'), 'no character turns text around')
    await page.at('#/')
    await page.getByText('<img src=x').first().waitFor()
    assert.deepEqual(page.problems, [])
    await done(page)
  })
})

describe('the whole', () => {
  test('comes back by itself when the server does', async () => {
    const page = await signedIn()
    await page.locator('.chart').first().waitFor({ timeout: 40_000 * patience }) // samples are taken every ten seconds
    await page.shot('overview-later')
    await server.stop()
    await page.getByText('offline', { exact: true }).waitFor()
    await page.shot('away')
    await server.start()
    await page.getByText('live', { exact: true }).waitFor({ timeout: 30_000 * patience })
    await create({ key: 'after-the-restart' })
    await newest(page, 'after-the-restart').waitFor()
    await done(page)
  })

  test('is there at once', async (t) => {
    const page = await signedIn()
    const took = []
    for (let at = 0; at < 5; at++) {
      await page.reload()
      await page.getByRole('heading', { name: 'Overview' }).waitFor()
      took.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime))
    }
    t.diagnostic(`first view: ${took.map(Math.round).join(', ')} ms`)
    assert.ok(Math.min(...took) < 1000 * patience, took.join(' '))
    await done(page)
  })

  test('ten thousand sandboxes are no trouble', async (t) => {
    const page = await signedIn()
    const rows = Array.from({ length: 10_000 }, (_, at) => ({ id: `i${String(at).padStart(19, '0')}`, external_id: `i${String(at).padStart(19, '0')}`, key: null, state: 'running', template: at % 3 ? 'base' : 'browser', provider: 'e2b', agent_id: `agent-${at % 50}`, metadata: {}, created_at: new Date(Date.UTC(2026, 0, 1) + at * 1000).toISOString().replace('Z', '000Z') })).reverse()
    await page.route('**/api/v1/sandboxes?state=*', (route) => {
      const query = new URL(route.request().url()).searchParams
      const before = Number(query.get('before') ?? Infinity)
      const list = query.get('state') === 'running' ? rows.filter((one) => Date.parse(one.created_at) * 1000 < before).slice(0, 1000) : []
      return route.fulfill({ json: { sandboxes: list } })
    })
    await page.goto(`${server.url}/#/sandboxes`)
    const began = performance.now()
    await page.reload()
    await page.getByText('10,000 shown').waitFor()
    t.diagnostic(`10,000 rows: ${Math.round(performance.now() - began)} ms from reload to shown`)
    const took = await page.evaluate(async () => {
      const scroll = document.querySelector('.rows .scroll')
      const frame = () => new Promise(requestAnimationFrame)
      const began = performance.now()
      for (let at = 1; at <= 20; at++) {
        scroll.scrollTop = (scroll.scrollHeight * at) / 20
        await frame()
      }
      return (performance.now() - began) / 20
    })
    assert.ok(took < 200 * patience, `${took} ms a frame`)
    assert.ok((await page.locator('.rows .row').count()) < 120)
    await page.getByLabel('Filter sandboxes').fill('agent-7 browser')
    await page.getByText('67 shown').waitFor()
    await page.getByRole('button', { name: 'Age' }).click()
    await page.shot('many')
    await done(page)
  })

  test('lists fit a phone, in the dark, and are accessible', async () => {
    const page = await signedIn({ viewport: { width: 390, height: 800 }, colorScheme: 'dark' })
    for (const [name, hash, sign] of [['overview', '#/', 'Overview'], ['sandboxes', '#/sandboxes', 'Sandboxes'], ['templates', '#/templates', 'Templates'], ['admin', '#/admin', 'Administration'], ['api', '#/api', 'API'], ['work', '#/work', 'Sessions and jobs']]) {
      await page.at(hash)
      await page.getByRole('heading', { name: sign, level: 1 }).waitFor()
      await page.shot(`phone-${name}`)
      const wide = await widthOf(page)
      assert.ok(wide <= 390, `${name} is ${wide} wide`)
      assert.deepEqual(await seriousFaults(page), [], name)
    }
    await done(page)
  })
})
