// The code interpreter: from create to an answer, cells against commands, contexts, what a sandbox that waits costs.
import { spawnSync } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../tests/harness/server.mjs'
import { layer, loadInterpreter, quicksand } from '../tests/harness/interpreter.mjs'

const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 30)
const SEVERAL = 20

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)]

async function timed(count, work, between) {
  const times = []
  for (let i = 0; i < count; i++) {
    const begun = performance.now()
    const made = await work()
    times.push(performance.now() - begun)
    await between?.(made)
  }
  return times
}

// IPython itself, in the same files, to the end of the same cell: what a kernel that nobody prepared has to do at least.
const startIpython = () => spawnSync('/usr/sbin/chroot', [layer, 'ipython3', '--no-banner', '--quick', '-c', '1+1'], { env: { PATH: '/usr/bin:/bin', HOME: '/root' } })

// Of all processes in a sandbox, in MiB.
const PSS = "sudo sh -c 'cat /proc/[0-9]*/smaps_rollup 2>/dev/null' | awk '/^Pss:/ { sum += $2 } END { print sum / 1024 }'"

// What a sandbox of the template has above a plain one of the same files, as it waited: nothing has run in it. What asks is in both. Pages
// of files count for each process by its share, so the figure is that of one of several.
async function memory(Sandbox) {
  const sandboxes = [await Sandbox.create('base', { timeoutMs: 600_000 })]
  while (sandboxes.length <= SEVERAL) sandboxes.push(await Sandbox.create('code-interpreter-v1', { timeoutMs: 600_000 }))
  await sleep(10_000) // what else was started meanwhile has settled
  const used = []
  for (const sandbox of sandboxes) used.push(Number((await sandbox.commands.run(PSS)).stdout))
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()))
  const [plain, ...warm] = used
  console.log(`  processes of a plain sandbox and of ${SEVERAL} that waited (PSS), MiB: ${plain.toFixed(1)}; ${warm.map((mib) => mib.toFixed(1)).join(' ')}`)
  return median(warm) - plain
}

export async function partInterpreter(server, { measured, show, spread }) {
  const built = await quicksand(server, ['template', 'build', 'code-interpreter-v1', '--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='])
  if (built.code !== 0) throw new Error(built.stdout + built.stderr)
  const { Sandbox } = loadInterpreter(server)
  const sandbox = await Sandbox.create({ timeoutMs: 600_000 })
  await sandbox.runCode('1')
  // The pool is full when two creates in a row are quick.
  await eventually('warm sandboxes', async () => (await timed(2, () => Sandbox.create(), (one) => one.kill())).every((ms) => ms < 500), 120_000, 3000)
  await sleep(5000)

  const first = await timed(Math.min(ROUNDS, 12), async () => {
    const one = await Sandbox.create()
    await one.runCode('1+1')
    return one
  }, async (one) => {
    await one.kill()
    await sleep(4000) // another one is made meanwhile
  })
  startIpython()
  const ipython = await timed(5, startIpython)
  measured.interpreter_first_ms = median(first)
  measured.interpreter_first_vs_ipython = median(first) / median(ipython)
  show('create to the answer of 1+1, ms', spread(first))
  show('ipython -c 1+1 in the same files, ms', spread(ipython))

  const cells = []
  const commands = []
  for (let i = 0; i < ROUNDS * 4; i++) {
    cells.push(...(await timed(1, () => sandbox.runCode('1+1'))))
    commands.push(...(await timed(1, () => sandbox.commands.run('true'))))
  }
  measured.interpreter_cell_vs_command = median(cells) / median(commands)
  show('runCode 1+1, ms', spread(cells))
  show('commands.run true, ms', spread(commands))

  const contexts = await timed(ROUNDS, async () => {
    const context = await sandbox.createCodeContext()
    await sandbox.runCode('1', { context })
    return context
  }, (context) => sandbox.removeCodeContext(context))
  measured.interpreter_context_ms = median(contexts)
  show('a new context and a cell in it, ms', spread(contexts))

  measured.interpreter_memory_mib = await memory(Sandbox)
}
