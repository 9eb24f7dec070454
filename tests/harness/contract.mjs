// The contract of all providers (src/provider/contract/contract.c), tried on a real one.
//
//   await contract(t, { type: 'process', socket })   one subtest per check
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { repository } from './server.mjs'

// Built once, where the other unit programs are.
export function build(target) {
  const folder = path.join(repository, 'build/host')
  const made = spawnSync('ninja', ['-C', folder, '--quiet', target], { encoding: 'utf8' })
  assert.equal(made.status, 0, `${made.stdout}${made.stderr}`)
  return path.join(folder, target)
}

// uid: as whom it runs. allowSkips: names of checks that the provider may skip.
export async function contract(t, record, { uid = 0, allowSkips = [], timeoutMs = 240_000 } = {}) {
  // Others than root may not reach the repository.
  const program = path.join(fs.mkdtempSync(path.join(process.env.TMPDIR ?? '/tmp', 'contract-')), 'provider_contract')
  fs.chmodSync(path.dirname(program), 0o755)
  fs.copyFileSync(build('src/provider/test/provider_contract'), program)
  const child = spawn(program, [JSON.stringify(record)], { uid, gid: uid, cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] })
  const limit = setTimeout(() => child.kill('SIGKILL'), timeoutMs)
  let text = ''
  child.stdout.on('data', (chunk) => (text += chunk))
  child.stderr.on('data', (chunk) => (text += chunk))
  const code = await new Promise((done) => child.once('close', (status, signal) => done(status ?? signal)))
  clearTimeout(limit)
  fs.rmSync(path.dirname(program), { recursive: true })
  await report(t, text, { allowSkips, all: !record.only })
  assert.equal(code, 0, text)
}

// One subtest for each line of the program's.
export async function report(t, text, { allowSkips = [], all = true } = {}) {
  let why = ''
  let count = 0
  for (const line of text.split('\n')) {
    const match = /^(ok  |FAIL|skip) (.*) \(\d+ ms\)$/.exec(line)
    if (!match) {
      why += `${line}\n`
      continue
    }
    const [, result, name] = match
    const reason = why
    why = ''
    count++
    await t.test(name, () => {
      assert.notEqual(result, 'FAIL', reason)
      if (result === 'skip') assert.ok(allowSkips.includes(name), `must not be skipped: ${reason}`)
    })
  }
  assert.ok(count >= (all ? 29 : 1), `only ${count} checks ran:\n${text}`)
}
