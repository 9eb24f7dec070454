// Processes of the platform are killed at random moments of all kinds of work; afterwards every sandbox is
// what the answers said, with every file that was acknowledged, and nothing else is on the host.
// FAULT_KILLS says how many (`make soak` does 200), FAULT_SEED which.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startServer } from '../harness/server.mjs'
import { Chaos } from '../harness/chaos.mjs'

const KILLS = Number(process.env.FAULT_KILLS ?? 30)
const SEED = Number(process.env.FAULT_SEED ?? 42)

let server
before(async () => {
  server = await startServer({ args: ['--warm', '2'] })
  server.warm = 2
})
after(() => server.destroy())

test(`${KILLS} kills of server, warden and agents`, { timeout: (KILLS + 30) * 5000 }, async () => {
  const chaos = new Chaos(server, SEED)
  try {
    await chaos.run(KILLS)
    await chaos.finish()
  } finally {
    console.log(`seed ${SEED}, killed:`, JSON.stringify(chaos.killed), 'done:', JSON.stringify(chaos.tally))
  }
  for (const what of ['create', 'write', 'pause', 'pause to disk', 'resume', 'snapshot', 'fork', 'delete']) assert.ok(chaos.tally[what] > 0, `no ${what} was done`)
})
