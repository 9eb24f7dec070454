// The desktop: from create to its first screenshot, from a sandbox that waits and from one that has to start it all; and a screenshot alone.
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { quicksand } from '../tests/harness/interpreter.mjs'
import { eventually, repository } from '../tests/harness/server.mjs'

export const layer = process.env.QUICKSAND_DESKTOP_LAYER ?? path.join(repository, 'build/recipe-base/desktop/rootfs')
const ROUNDS = 8
const SCREENSHOTS = 30

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

export async function partDesktop(server, { measured, show, spread }) {
  const built = await quicksand(server, ['template', 'build', 'desktop', '--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='])
  if (built.code !== 0) throw new Error(built.stdout + built.stderr)
  Object.assign(process.env, server.clientEnv())
  const { Sandbox } = createRequire(path.join(repository, 'build/npm/desktop/index.js'))('@e2b/desktop')
  const firstPicture = async () => {
    const begun = performance.now()
    const desktop = await Sandbox.create()
    await desktop.screenshot()
    const ms = performance.now() - begun
    await desktop.kill()
    return ms
  }
  // Nobody has used it yet, so none waits.
  const cold = [await firstPicture()]
  show('desktop: create to the first screenshot, none waits', spread(cold))
  measured.desktop_cold_ms = cold[0]
  await eventually('one that waits', async () => (await firstPicture()) < cold[0] / 2, 120_000, 3000)
  const warm = []
  for (let i = 0; i < ROUNDS; i++) {
    await sleep(6000) // another one is made meanwhile
    warm.push(await firstPicture())
  }
  show('the same, one waits', spread(warm))
  measured.desktop_warm_ms = middle(warm)

  const desktop = await Sandbox.create()
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
