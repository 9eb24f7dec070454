// README.md as its reader pastes it: `make run`, the block it ends with, then every block in order, in one shell. The parts are
// the real ones: npm installs from the cache that tests/compat/install.sh filled, sessions run the published sandbox-agent of the
// base template. Only the public repository in it is one of the lab's.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { repository, startServer } from '../harness/server.mjs'

const readme = fs.readFileSync(path.join(repository, 'README.md'), 'utf8')
const section = readme.slice(readme.indexOf('## Five minutes'), readme.indexOf('## What works'))
const [start, banner, ...blocks] = [...section.matchAll(/```sh\n(.*?)```/gs)].map((match) => match[1])
const REPO = /^REPO_URL=https:\/\/github\.com\/.*$/m
const DONE = 'block-is-done'

let server
let folder
let shell
let files // of the project's folder, before anything is pasted
const listFiles = () => [repository, path.join(repository, 'examples'), path.join(repository, 'build')].flatMap((dir) => fs.readdirSync(dir).map((name) => path.join(dir, name)))
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-readme-')
  // What `git clone … && cd quicksand` leaves the reader in: the folder of the project.
  const runner = path.join(folder, 'make-run')
  fs.writeFileSync(runner, `#!/bin/sh\nexec make --no-print-directory -C '${repository}' run QUICKSAND_LISTEN="$3" QUICKSAND_DATA="$5"\n`, { mode: 0o755 })
  server = await startServer({ program: runner, env: { HOME: folder, QUICKSAND_API_KEY: undefined } })
  // make ends as its child does; the child is who is told to.
  server.stop = async () => {
    const serving = server.processes().find((one) => / serve --listen /.test(one.cmdline))
    if (serving) process.kill(serving.pid, 'SIGTERM')
    return server.exited
  }
  files = listFiles()
  shell = spawn('bash', [], {
    cwd: repository,
    env: {
      PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
      HOME: folder,
      npm_config_cache: path.join(repository, 'build/npm/cache'),
      npm_config_offline: 'true',
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  shell.text = ''
  shell.stdout.on('data', (chunk) => (shell.text += chunk))
  shell.stderr.on('data', (chunk) => (shell.text += chunk))
})
after(async () => {
  shell.kill('SIGKILL')
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
  fs.rmSync('/tmp/hello', { recursive: true, force: true })
})

// One block, in the shell where those before it ran. A line that fails ends the block, as its reader would.
async function paste(block) {
  const begin = shell.text.length
  const file = path.join(folder, 'block.sh')
  fs.writeFileSync(file, `set -e -o pipefail\n${block.replace(REPO, 'REPO_URL=http://203.0.113.1/git/acme/app.git')}`)
  shell.stdin.write(`trap 'echo ${DONE} $?' EXIT; . ${file} </dev/null; trap - EXIT; echo ${DONE} 0\n`)
  const end = Date.now() + 120_000
  for (;;) {
    const out = shell.text.slice(begin)
    const done = out.match(new RegExp(`^${DONE} (\\d+)$`, 'm'))
    if (done) {
      assert.equal(done[1], '0', `${block}\n${out}\n${server.tail(10)}`)
      return out.slice(0, done.index)
    }
    assert.ok(Date.now() < end, `${block}\nhas not ended:\n${out}\n${server.tail(10)}`)
    await new Promise((wake) => setTimeout(wake, 50))
  }
}

test('two commands, and a block to paste', async () => {
  assert.match(start, /^git clone .*\nmake run\n$/)
  const printed = [...server.log.matchAll(/^ {2}(export \w+=\S+)/gm)].map((match) => match[1])
  const names = (lines) => [...lines.matchAll(/export (\w+)=/g)].map((match) => match[1])
  assert.deepEqual(names(banner), names(printed.join('\n')), 'the variables in README.md are those that the server prints')
  await paste(`${printed.join('\n')}\n`)
  server.key = /E2B_API_KEY=(\S+)/.exec(printed.join('\n'))[1]
})

test('the first sandbox, by the SDK', async () => {
  assert.match(await paste(blocks[0]), /^hello from Linux$/m)
})

test('the first sandbox, by the command line', async () => {
  assert.match(await paste(blocks[1]), /^42$/m)
})

test('tasks worked on by agents', async () => {
  assert.match(blocks[2], REPO)
  const out = await paste(blocks[2])
  assert.match(out, /git\.clone\.succeeded/)
  assert.match(out, /fix the test/)
  assert.match(out, /session\.completed/)
  assert.match(out, /snap_\w+ github\/acme\/app#main/)
  assert.doesNotMatch(out, /\{"|jsonrpc/, 'what the agent answers is text')
  assert.match(out, /user@|\$ /, 'the prompt of the terminal')
})

test('conversations that are still there', async () => {
  const lines = (await paste(blocks[3])).trim().split('\n')
  const id = lines[0].split(' ')[0]
  assert.deepEqual(lines, [`${id} created on e2b, key conversation:c1:s1`, `${id} paused`, `${id} resumed on e2b, key conversation:c1:s1`, 'hi'])
  const { body } = await server.api('GET', `/api/v1/events?sandbox_id=${id}&type=sandbox.created&limit=10`)
  assert.equal(body.events.length, 1)
})

test('a fleet: repairs and costs', async () => {
  const out = await paste(blocks[4])
  assert.match(out, /^hello from the world$/m, 'what is in the repository')
  assert.match(out, /^NAME +SANDBOXES[^]*\ntotal /m)
})

test('a harness: profiles, tools, jobs', async () => {
  const out = await paste(blocks[5])
  assert.match(out, /^e2b: good$/m)
  assert.match(out, /^1$/m)
  assert.match(out, /^trained$/m)
})

test('a squad, by HTTP', async () => {
  const out = await paste(blocks[6])
  assert.match(out, /git version 2/)
  for (const line of out.split('\n')) assert.ok((line.match(/^\{|\}\{/g) ?? []).length <= 1, `an answer without a newline behind it: ${line}`)
  assert.match(out, /^deleted: 204$/m)
  assert.match(out, /"agent_id":"a1"/)
  assert.match(out, /removed \d+ sandboxes and \d+ snapshots\n$/)
})

test('an assistant that speaks MCP', async () => {
  const out = await paste(blocks[7])
  assert.match(out, /claude mcp add/)
  assert.match(out, /"name":"run_command"/)
})

// Their packages are Debian's, which the lab does not reach: tests/compat has them, with the packages in the base already.
test('what needs templates of its own is that which is tried elsewhere', () => {
  for (const [i, name] of [[8, 'code-interpreter-v1'], [9, 'desktop'], [10, 'browser']]) assert.match(blocks[i], new RegExp(`^quicksand template build ${name} `))
})

test('there is no other block', () => assert.equal(blocks.length, 11))

test('all blocks together leave no warning, no unfinished session and no file in the clone', async () => {
  assert.doesNotMatch(shell.text, /\bwarn|deprecated|npm notice/i)
  assert.doesNotMatch(server.log, / (warn|error) /)
  const { sessions } = (await server.api('GET', '/api/v1/sessions')).body
  assert.deepEqual(sessions.filter(({ state }) => !['completed', 'canceled'].includes(state)).map(({ id, state }) => [id, state]), [])
  assert.deepEqual(listFiles().filter((file) => !files.includes(file)), [])
  for (const block of blocks) assert.doesNotMatch(block, / -o (?!\/tmp\/)/, 'a file is written to the folder of the reader')
})
