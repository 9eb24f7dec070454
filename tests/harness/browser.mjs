// A server with the template browser, built by its name. The packages are in the base already (recipe-base.sh): the lab has no mirror.
import assert from 'node:assert/strict'
import path from 'node:path'
import { quicksand } from './interpreter.mjs'
import { repository, startServer } from './server.mjs'

export const layer = process.env.QUICKSAND_BROWSER_LAYER ?? path.join(repository, 'build/recipe-base/browser/rootfs')

export async function startBrowsers(options = {}) {
  const server = await startServer({ ...options, env: { QUICKSAND_BASE_LAYER: layer, ...options.env }, args: ['--build-memory', '2048', ...(options.args ?? [])] })
  const built = await quicksand(server, ['template', 'build', 'browser', '--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='])
  assert.equal(built.code, 0, built.stdout + built.stderr)
  return server
}

// A page that a press of its button changes.
const html = '<title>a page</title><body style="font-family:sans-serif;background:#eef;margin:3em"><h1>Hello</h1><input id=i aria-label=word><button onclick="document.title=i.value">go</button>'
export const page = `data:text/html,${encodeURIComponent(html)}`
