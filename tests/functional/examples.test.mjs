// README.md as its reader pastes it: `make run`, the block it ends with, then every block in order, in one shell. The clone is in a
// home with mode 0700, as root's is, so the server's user cannot read it. The parts are the real ones: npm installs from the cache
// that tests/compat/install.sh filled, sessions run the published sandbox-agent of the base template. Two things differ: the public
// repository is one of the lab's, and /tmp/hello is a folder of the test.
import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { banner, blockOf, blocks, start } from '../harness/readme.mjs'
import { repository, startServer } from '../harness/server.mjs'

const REPO = /^REPO_URL=https:\/\/github\.com\/.*$/m
const DONE = 'block-is-done'

let server
let home
let clone
let shell
let files // of the clone, before anything is pasted
// What git does not know, ignored files too. Without build: other jobs of the test run write there.
const listFiles = () => execFileSync('git', ['-c', 'safe.directory=*', '-C', clone, 'status', '--porcelain', '--ignored', '--untracked-files=all', '--', '.', ':!build', ':!**/__pycache__'], { encoding: 'utf8' }).split('\n').filter(Boolean)
before(async () => {
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-readme-'))
  fs.chmodSync(home, 0o700)
  // What `git clone … && cd quicksand` leaves the reader in. The mount ends with the lab's namespace at the latest.
  const place = path.join(home, 'quicksand')
  fs.mkdirSync(place)
  execFileSync('mount', ['--bind', repository, place])
  clone = place
  const runner = path.join(home, 'make-run')
  fs.writeFileSync(runner, `#!/bin/sh\nexec make --no-print-directory -C '${clone}' run QUICKSAND_LISTEN="$3" QUICKSAND_DATA="$5"\n`, { mode: 0o755 })
  server = await startServer({ program: runner, env: { HOME: home, QUICKSAND_API_KEY: undefined } })
  // make ends as its child does; the child is who is told to.
  server.stop = async () => {
    const serving = server.processes().find((one) => / serve --listen /.test(one.cmdline))
    if (serving) process.kill(serving.pid, 'SIGTERM')
    return server.exited
  }
  files = listFiles()
  shell = spawn('bash', [], {
    cwd: clone,
    env: {
      PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
      HOME: home,
      npm_config_cache: path.join(clone, 'build/npm/cache'),
      npm_config_offline: 'true',
    },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  shell.text = ''
  shell.stdout.on('data', (chunk) => (shell.text += chunk))
  shell.stderr.on('data', (chunk) => (shell.text += chunk))
})
after(async () => {
  shell?.kill('SIGKILL')
  try {
    await server?.destroy()
  } finally {
    if (clone) {
      spawnSync('umount', ['--lazy', clone])
      fs.rmdirSync(clone) // fails while the repository is mounted there, so the next line cannot delete it
    }
    fs.rmSync(home, { recursive: true })
  }
})

// One block, in the shell where those before it ran. A line that fails ends the block, as its reader would.
async function paste(block) {
  const begin = shell.text.length
  const file = path.join(home, 'block.sh')
  const script = block.replace(REPO, 'REPO_URL=http://203.0.113.1/git/acme/app.git').replaceAll('/tmp/hello', path.join(home, 'hello'))
  fs.writeFileSync(file, `set -e -o pipefail\n${script}`)
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

test("the server's user cannot read the clone", () => {
  const { pid, cmdline } = server.processes().find((one) => one.cmdline.includes(' serve-unprivileged '))
  const uid = fs.statSync(`/proc/${pid}`).uid
  assert.notEqual(uid, 0, cmdline)
  const { status, stderr } = spawnSync('ls', [clone], { uid, encoding: 'utf8' })
  assert.notEqual(status, 0)
  assert.match(stderr, /Permission denied/)
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

// Their packages are Debian's, which the lab does not reach: tests/compat/{interpreter,desktop,browser}.test.mjs paste them, on a base
// that has the packages.
test('the other blocks are pasted by the tests of their templates', () => {
  assert.deepEqual(blocks.slice(8), ['code-interpreter-v1', 'desktop', 'browser'].map(blockOf))
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
