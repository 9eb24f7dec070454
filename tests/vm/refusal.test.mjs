// On a kernel that is too old the server refuses at once, and both it and the doctor say what is missing.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'
import { binary } from '../harness/server.mjs'
import { cgroups, links, loopDevices, mounts } from '../harness/leftovers.mjs'

test('the server refuses to start, says why, and leaves nothing', () => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-test-'))
  const data = path.join(home, 'data')
  const env = { PATH: process.env.PATH, HOME: '/root', QUICKSAND_API_KEY: `e2b_${'0'.repeat(40)}`, QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER }
  const { status, stdout, stderr } = spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', data], { env, encoding: 'utf8', timeout: 120_000 })
  console.log(stderr)
  assert.ok(status > 0, `status ${status}`)
  assert.doesNotMatch(stdout, /^ready/m)
  assert.match(stderr, /Linux 5\.19/)
  const instance = fs.existsSync(`${data}/instance`) ? fs.readFileSync(`${data}/instance`, 'utf8').trim() : 'none'
  assert.deepEqual([...mounts().filter((one) => one.startsWith(home)), ...cgroups(instance), ...loopDevices(home), ...links().filter((one) => one.includes(instance))], [])
  fs.rmSync(home, { recursive: true })
})

test('the doctor says so too', () => {
  const { status, stdout } = spawnSync(binary, ['doctor'], { encoding: 'utf8', timeout: 120_000 })
  console.log(stdout)
  assert.notEqual(status, 0)
  assert.match(stdout, /kernel +FAIL +.*5\.19 is the least/)
})
