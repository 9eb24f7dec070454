// The blocks of README.md, as their reader pastes them.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { binary, repository } from './server.mjs'

const readme = fs.readFileSync(path.join(repository, 'README.md'), 'utf8')
const section = readme.slice(readme.indexOf('## Five minutes'), readme.indexOf('## What works'))
// The first starts the server; the second is what the server prints.
export const [start, banner, ...blocks] = [...section.matchAll(/```sh\n(.*?)```/gs)].map((match) => match[1])

// The block that begins with the build of this template: those of functional/examples.test.mjs leave it out.
export const blockOf = (template) => blocks.find((block) => block.startsWith(`quicksand template build ${template} `))

// Runs that block in one shell, and returns what it printed. The packages of the template are in the base already, so its build
// gets `args`; `replace` has the addresses and paths that the lab does not have: [README's, ours].
export async function pasteTemplateBlock(server, template, args, replace = []) {
  let script = blockOf(template)
  assert.ok(script, `README.md has no block that builds ${template}`)
  script = script.replace(`template build ${template} `, `template build ${template} ${args.join(' ')} `)
  for (const [theirs, ours] of replace) {
    assert.ok(script.includes(theirs), `${theirs} is not in the block:\n${script}`)
    script = script.replaceAll(theirs, ours)
  }
  const child = spawn('bash', ['-e', '-o', 'pipefail', '-c', script], {
    cwd: server.home,
    env: { PATH: `${path.dirname(binary)}:${process.env.PATH}`, HOME: server.home, TMPDIR: server.home, ...server.clientEnv() },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  child.stdout.on('data', (chunk) => (text += chunk))
  child.stderr.on('data', (chunk) => (text += chunk))
  const status = await new Promise((done) => child.on('close', done))
  assert.equal(status, 0, `${script}\n${text}\n${server.tail(10)}`)
  assert.doesNotMatch(text, /\bwarn|deprecated/i)
  return text
}
