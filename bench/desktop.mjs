// The desktop: from create to its first screenshot, from a sandbox that waits and from one that has to start it all; and a screenshot alone.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { quicksand } from '../tests/harness/interpreter.mjs'
import { eventually, repository } from '../tests/harness/server.mjs'

export const layer = process.env.QUICKSAND_DESKTOP_LAYER ?? path.join(repository, 'build/recipe-base/desktop/rootfs')
const ROUNDS = 8
const COLD_ROUNDS = 3
const SCREENSHOTS = 30

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

// Under a name and with a variable of its own, so that none of those that wait for another name is taken for it.
async function build(server, name) {
  const context = path.join(server.home, name)
  fs.cpSync(path.join(repository, 'templates/desktop'), context, { recursive: true })
  fs.appendFileSync(path.join(context, 'Dockerfile'), `ENV BENCH_NAME=${name}\n`)
  const built = await quicksand(server, ['template', 'build', name, context, '--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='])
  if (built.code !== 0) throw new Error(built.stdout + built.stderr)
}

export async function partDesktop(server, { measured, show, spread }) {
  Object.assign(process.env, server.clientEnv())
  const { Sandbox } = createRequire(path.join(repository, 'build/npm/desktop/index.js'))('@e2b/desktop')
  const firstPicture = async (name) => {
    const begun = performance.now()
    const desktop = await Sandbox.create(name)
    await desktop.screenshot()
    const ms = performance.now() - begun
    await desktop.kill()
    return ms
  }
  // None waits of what nobody has used yet.
  const cold = []
  let name
  while (cold.length < COLD_ROUNDS) {
    name = `desktop-${cold.length}`
    await build(server, name)
    cold.push(await firstPicture(name))
    await sleep(10_000) // those that shall wait from now on have started
  }
  show('desktop: create to the first screenshot, none waits', spread(cold))
  measured.desktop_cold_ms = middle(cold)
  await eventually('one that waits', async () => (await firstPicture(name)) < measured.desktop_cold_ms / 2, 120_000, 3000)
  const warm = []
  for (let i = 0; i < ROUNDS; i++) {
    await sleep(6000) // another one is made meanwhile
    warm.push(await firstPicture(name))
  }
  show('the same, one waits', spread(warm))
  measured.desktop_warm_ms = middle(warm)

  const desktop = await Sandbox.create(name)
  const pictures = []
  for (let i = 0; i < SCREENSHOTS; i++) {
    const begun = performance.now()
    const answer = await fetch(`${server.url}/api/v1/sandboxes/${desktop.sandboxId}/desktop/screenshot`, { headers: { 'X-API-KEY': server.key } })
    if (answer.status !== 200) throw new Error(await answer.text())
    await answer.arrayBuffer()
    pictures.push(performance.now() - begun)
  }
  show('a screenshot by /api/v1', spread(pictures))
  measured.desktop_screenshot_ms = middle(pictures)
}
