// The kills of functional/faults.test.mjs, 200 of them: FAULT_KILLS and FAULT_SEED say how many and which.
import { seedOf } from '../harness/random.mjs'

process.env.FAULT_KILLS ??= '200'
process.env.FAULT_SEED ??= String(seedOf('FAULT_SEED'))
await import('../functional/faults.test.mjs')
