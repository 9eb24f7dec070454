// A browser (Debian's chromium, headless) at the dashboard of a server. Pictures go to build/screens.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { patience, repository } from './server.mjs'

const require = createRequire(path.join(repository, 'build/npm/web/'))
const { chromium } = require('playwright-core')
const screens = path.join(repository, 'build/screens')
export const EVIL = '<img src=x onerror="document.title=1">\u202egnp.exe'

export function openBrowser() {
  fs.mkdirSync(screens, { recursive: true })
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
}

// A page in a browser of its own: cookies and all. problems: what its console and scripts complained about.
export async function visitor(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, colorScheme: 'light', ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(15_000 * patience)
  page.problems = []
  page.on('pageerror', (error) => page.problems.push(error.message))
  page.on('console', (message) => message.type() === 'error' && !/^Failed to load/.test(message.text()) && page.problems.push(message.text()))
  page.on('response', (answer) => answer.status() >= 400 && page.problems.push(`${answer.status()} ${answer.request().method()} ${answer.url()}`))
  page.at = (hash) => page.evaluate((where) => void (location.hash = where), hash)
  page.shot = (name) => page.screenshot({ path: path.join(screens, `${name}.png`) })
  page.leave = () => context.close()
  return page
}

export async function signedIn(browser, server, options = {}, key = server.key) {
  const page = await visitor(browser, options)
  await page.goto(server.url)
  await page.getByLabel('API key').fill(key)
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  page.problems.length = 0 // the first question of all, who is signed in, was answered with 401
  return page
}

// How wide the page is, with what is cut off at the right: the content scrolls by itself, so the document alone says nothing.
export const widthOf = (page) => page.evaluate(() => Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll('.page, main, dialog')].map((one) => one.scrollWidth)))

// Takes four pictures of the page: NAME and dark-NAME at 1280 pixels, phone-NAME and phone-dark-NAME at 390. Returns how wide it
// gets on a phone.
export async function shots(page, name) {
  await page.shot(name)
  assert.ok((await widthOf(page)) <= 1280, `${name} is too wide for 1280 pixels`)
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.shot(`dark-${name}`)
  await page.setViewportSize({ width: 390, height: 800 })
  const wide = await widthOf(page)
  await page.shot(`phone-dark-${name}`)
  await page.emulateMedia({ colorScheme: 'light' })
  await page.shot(`phone-${name}`)
  await page.setViewportSize({ width: 1280, height: 820 })
  return wide
}

// What axe-core finds serious.
export async function seriousFaults(page) {
  await page.evaluate(fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8'))
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  return violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(' | ')}`)
}
