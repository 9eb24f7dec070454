// The kills of functional/faults.test.mjs, 200 of them: FAULT_KILLS and FAULT_SEED say how many and which.
process.env.FAULT_KILLS ??= '200'
process.env.FAULT_SEED ??= String(Date.now() % 1_000_000)
await import('../functional/faults.test.mjs')
