// Browsers: from a session to a page that Playwright has, against starting Chromium here; what many of them cost.
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { layer } from '../tests/harness/browser.mjs'
import { quicksand } from '../tests/harness/interpreter.mjs'
import { eventually, repository } from '../tests/harness/server.mjs'

export { layer }
const ROUNDS = Math.min(Number(process.env.BENCH_ROUNDS ?? 30), 10)
const MANY = Number(process.env.BENCH_BROWSERS ?? 20)

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

// Of all processes of the browser, as the sandbox sees them.
const PSS = 'sudo bash -c \'for p in $(pgrep -f chromium); do cat /proc/$p/smaps_rollup 2>/dev/null; done\' | awk \'/^Pss:/ { sum += $2 } END { print sum / 1024 }\''

export async function partBrowser(server, { measured, show, spread }) {
  const load = createRequire(path.join(repository, 'build/npm/browser/index.js'))
  const { default: Browserbase } = load('@browserbasehq/sdk')
  const { chromium } = load('playwright-core')
  const built = await quicksand(server, ['template', 'build', 'browser', '--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='])
  if (built.code !== 0) throw new Error(built.stdout + built.stderr)
  const bb = new Browserbase({ apiKey: server.key, baseURL: server.url, maxRetries: 0 })
  const release = (session) => bb.sessions.update(session.id, { status: 'REQUEST_RELEASE' })

  // The pool is full when a create is quick.
  await eventually('warm browsers', async () => {
    const begun = performance.now()
    const session = await bb.sessions.create()
    const ms = performance.now() - begun
    await release(session)
    return ms < 100
  }, 120_000, 3000)
  // In turn, so that both have the same minutes of this machine. Meanwhile another one is made.
  const first = []
  const here = []
  for (let i = 0; i <= ROUNDS; i++) {
    await sleep(4000)
    const begun = performance.now()
    const session = await bb.sessions.create()
    const browser = await chromium.connectOverCDP(session.connectUrl)
    await browser.contexts()[0].pages()[0].title()
    if (i) first.push(performance.now() - begun)
    await browser.close()
    const launched = performance.now()
    const own = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] })
    await (await own.newPage()).title()
    if (i) here.push(performance.now() - launched)
    await own.close()
  }
  measured.browser_page_vs_launch = median(first) / median(here)
  show('a session until Playwright has its page, ms', spread(first))
  show('chromium.launch() and a page on this host, ms', spread(here))

  const sessions = []
  for (let i = 0; i < MANY; i++) sessions.push(await bb.sessions.create({ keepAlive: true }))
  let sum = 0
  for (const session of sessions) {
    const { stdout, stderr } = await quicksand(server, ['exec', session.sandboxId, '--', 'bash', '-c', PSS])
    if (!(Number(stdout) > 1)) throw new Error(`no browser is seen in ${session.sandboxId}: ${stdout}${stderr}`)
    sum += Number(stdout)
  }
  measured.browser_memory_mib = sum / MANY
  for (const session of sessions) await release(session)
}
