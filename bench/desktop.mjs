// The desktop: from create to its first screenshot, from a sandbox that waits and from one that has to start it all; and a screenshot alone.
import { createRequire } from 'node:module'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { quicksand } from '../tests/harness/interpreter.mjs'
import { eventually, repository } from '../tests/harness/server.mjs'

export const layer = process.env.QUICKSAND_DESKTOP_LAYER ?? path.join(repository, 'build/recipe-base/desktop/rootfs')
const ROUNDS = 8
const COLD_ROUNDS = 3
const MEMORY_MB = 2048
const SCREENSHOTS = 30

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

async function build(server, memory) {
  const built = await quicksand(server, ['template', 'build', 'desktop', '--memory', String(memory), '--build-arg', 'PACKAGES=', '--build-arg', 'TOOLS='])
  if (built.code !== 0) throw new Error(built.stdout + built.stderr)
}

export async function partDesktop(server, { measured, show, spread }) {
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
  // None waits of a size that nobody has used yet.
  const cold = []
  for (let i = COLD_ROUNDS - 1; i >= 0; i--) {
    await build(server, MEMORY_MB + i * 64)
    cold.push(await firstPicture())
    await sleep(10_000) // those that shall wait from now on have started
  }
  show('desktop: create to the first screenshot, none waits', spread(cold))
  measured.desktop_cold_ms = middle(cold)
  await eventually('one that waits', async () => (await firstPicture()) < measured.desktop_cold_ms / 2, 120_000, 3000)
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
