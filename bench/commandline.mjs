// The command line: `quicksand ls` from start to end against `true`, and `cp -r` of many files into a sandbox and out of
// it against the host's cp -r onto the same disk.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { binary } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const files = 10_000
const rounds = 3
const starts = 60

async function timed(list, program, args, options) {
  const began = performance.now()
  await execute(program, args, options)
  list.push(performance.now() - began)
}

function makeTree(root) {
  for (let i = 0; i < files / 100; i++) {
    fs.mkdirSync(path.join(root, `d${i}`), { recursive: true })
    for (let k = 0; k < 100; k++) fs.writeFileSync(path.join(root, `d${i}`, `f${k}`), Buffer.alloc(4096, `${i} ${k} `))
  }
}

export async function partCommandLine(server, { measured, note, show, spread, scratch }) {
  const { body } = await server.api('POST', '/api/v1/sandboxes', {})
  const env = { PATH: process.env.PATH, HOME: '/root', ...server.clientEnv() }
  const [list, nothing, up, down, theirs] = [[], [], [], [], []]
  const tree = path.join(scratch, 'tree')
  for (let i = 0; i < starts; i++) {
    await timed(nothing, '/bin/true', [], { env })
    await timed(list, binary, ['ls'], { env })
  }
  show('true, start to end', spread(nothing))
  show('quicksand ls, start to end', spread(list))
  measured.ls_vs_true = spread(list).p50 / spread(nothing).p50
  fs.rmSync(tree, { recursive: true, force: true })
  makeTree(tree)
  for (let round = 0; round < rounds; round++) {
    await timed(theirs, 'cp', ['-r', tree, `${tree}.copy`], { env })
    await timed(up, binary, ['cp', '-r', tree, `${body.id}:tree${round}`], { env })
    await timed(down, binary, ['cp', '-r', `${body.id}:tree${round}`, `${tree}.back`], { env })
    for (const end of ['copy', 'back']) fs.rmSync(`${tree}.${end}`, { recursive: true })
  }
  fs.rmSync(tree, { recursive: true })
  await server.api('DELETE', `/api/v1/sandboxes/${body.id}`)
  note(`cp -r of ${files} files`, Math.min(...theirs), 'ms')
  note('the same into a sandbox', Math.min(...up), 'ms')
  note('and out of it', Math.min(...down), 'ms')
  measured.tree_up_vs_cp = Math.min(...theirs) / Math.min(...up)
  measured.tree_down_vs_cp = Math.min(...theirs) / Math.min(...down)
}
