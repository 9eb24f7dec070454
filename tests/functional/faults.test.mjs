// Processes of the platform are killed at random moments of all kinds of work; afterwards every sandbox is
// what the answers said, with every file that was acknowledged, and nothing else is on the host.
// FAULT_KILLS says how many (`make soak` does 200), FAULT_SEED which.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startServer } from '../harness/server.mjs'
import { Chaos } from '../harness/chaos.mjs'

const KILLS = Number(process.env.FAULT_KILLS ?? 30)
const MOST = KILLS * 4 // a slow machine does less between two of them
const WORK = ['create', 'write', 'pause', 'pause to disk', 'resume', 'snapshot', 'fork', 'delete']
const SEED = Number(process.env.FAULT_SEED ?? 42)

let server
before(async () => {
  server = await startServer({ args: ['--warm', '2'] })
  server.warm = 2
})
after(() => server.destroy())

test(`${KILLS} kills of server, warden and envds`, { timeout: (MOST + 30) * 5000 }, async () => {
  const chaos = new Chaos(server, SEED)
  const undone = () => WORK.filter((what) => !chaos.tally[what])
  try {
    for (let kills = KILLS; kills === KILLS || (kills <= MOST && undone().length > 0); kills += 10) await chaos.run(kills)
    await chaos.finish()
  } finally {
    console.log(`seed ${SEED}, killed:`, JSON.stringify(chaos.killed), 'done:', JSON.stringify(chaos.tally))
  }
  assert.deepEqual(undone(), [])
})
