// The dashboard: its first view, ten thousand rows, and what a hundred of them that watch cost who asks for the list. The size of
// the bundle is checked by the build (tools/web_assets.py).
import { execFile } from 'node:child_process'
import http from 'node:http'
import { promisify } from 'node:util'
import { openBrowser, signedIn } from '../tests/harness/dashboard.mjs'

const execute = promisify(execFile)
const VIEWS = 15
const ROWS = 10_000
const WATCHERS = 100
const ROUNDS = 3

// When the overview's figures have their numbers, instead of the dash before: painted one frame later. Runs in the page.
function watchFigures() {
  const complete = () => {
    const figures = [...document.querySelectorAll('.figures:not(.flat) b')]
    return figures.length > 0 && figures.every((one) => one.textContent !== '–')
  }
  const watcher = new MutationObserver(() => {
    if (!complete()) return
    watcher.disconnect()
    requestAnimationFrame(() => setTimeout(() => (window.figuresShown = performance.now())))
  })
  watcher.observe(document, { childList: true, subtree: true, characterData: true })
}

// From the request until something is to be read, as the browser tells it, and until the overview's numbers are.
async function firstViews(page) {
  const [view, numbers] = [[], []]
  await page.addInitScript(watchFigures)
  for (let i = 0; i < VIEWS; i++) {
    await page.reload()
    await page.waitForFunction(() => window.figuresShown)
    view.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime))
    numbers.push(await page.evaluate(() => window.figuresShown))
  }
  return { view, numbers }
}

// No host here has as many sandboxes: the answers are made up, all that the page does with them is not.
async function manyRows(page, url) {
  const rows = Array.from({ length: ROWS }, (_, at) => ({ id: `i${String(at).padStart(19, '0')}`, key: null, state: 'running', template: 'base', provider: 'e2b', agent_id: `agent-${at % 50}`, metadata: {}, created_at: new Date(Date.UTC(2026, 0, 1) + at * 1000).toISOString().replace('Z', '000Z') })).reverse()
  await page.route('**/api/v1/sandboxes?state=*', (route) => {
    const query = new URL(route.request().url()).searchParams
    const before = Number(query.get('before') ?? Infinity)
    return route.fulfill({ json: { sandboxes: query.get('state') === 'running' ? rows.filter((one) => Date.parse(one.created_at) * 1000 < before).slice(0, 1000) : [] } })
  })
  const took = []
  await page.goto(`${url}/#/sandboxes`)
  for (let i = 0; i < 5; i++) {
    const begun = performance.now()
    await page.reload()
    await page.getByText('10,000 shown').waitFor()
    took.push(performance.now() - begun)
  }
  return took
}

async function listsPerSecond(server) {
  const { stdout } = await execute('wrk', ['-t', '2', '-c', '8', '-d', '3s', '-H', `X-API-KEY: ${server.key}`, `${server.url}/api/v1/sandboxes?state=running`])
  if (/Non-2xx/.test(stdout)) throw new Error(stdout)
  return Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)[1])
}

// As the page watches: one stream of events each.
const watch = (server) =>
  new Promise((done, fail) => {
    const request = http.get(`${server.url}/api/v1/events`, { headers: { 'X-API-KEY': server.key, Accept: 'text/event-stream' } }, (answer) => {
      if (answer.statusCode !== 200) return fail(new Error(`${answer.statusCode}`))
      answer.resume()
      answer.on('error', () => {})
      done(request)
    })
    request.on('error', fail)
  })

export async function partDashboard(server, { measured, show, note, spread }) {
  const browser = await openBrowser()
  try {
    const page = await signedIn(browser, server)
    const { view, numbers } = await firstViews(page)
    show('first view of the dashboard', spread(view))
    show('until the numbers of its overview are there', spread(numbers))
    measured.dashboard_view_ms = spread(view).p50
    const rows = await manyRows(page, server.url)
    show('its list of 10,000, from reload to shown', spread(rows))
    measured.dashboard_rows_ms = spread(rows).p50
  } finally {
    await browser.close()
  }
  for (let i = 0; i < 20; i++) await server.api('POST', '/api/v1/sandboxes', {})
  const [alone, watched] = [[], []]
  for (let round = 0; round < ROUNDS; round++) {
    alone.push(await listsPerSecond(server))
    const watchers = await Promise.all(Array.from({ length: WATCHERS }, () => watch(server)))
    watched.push(await listsPerSecond(server))
    for (const one of watchers) one.destroy()
  }
  note('lists of 20 sandboxes per second', Math.max(...alone), '')
  note('the same while 100 dashboards watch', Math.max(...watched), '')
  measured.lists_watched_vs_alone = Math.max(...watched) / Math.max(...alone)
}
