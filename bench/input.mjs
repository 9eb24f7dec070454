// Standard input of a command: a file through `quicksand exec`, against the same file through `quicksand cp`.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { binary } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const megabytes = 200
const rounds = 5

export async function partInput(server, { measured, note, scratch }) {
  const { body } = await server.api('POST', '/api/v1/sandboxes', {})
  const env = { PATH: process.env.PATH, HOME: '/root', ...server.clientEnv() }
  const file = path.join(scratch, 'input')
  const ours = []
  const theirs = []
  const timed = async (list, line) => {
    const began = performance.now()
    const { stdout } = await execute('sh', ['-c', line], { env })
    list.push((performance.now() - began) / 1000)
    return stdout
  }
  fs.writeFileSync(file, Buffer.alloc(megabytes * 1_000_000, 'quicksand'))
  for (let round = 0; round < rounds; round++) {
    await timed(theirs, `${binary} cp ${file} ${body.id}:/tmp/copy`)
    const size = await timed(ours, `${binary} exec ${body.id} -- sh -c 'cat >/tmp/input; stat -c %s /tmp/input' <${file}`)
    if (Number(size) !== megabytes * 1_000_000) throw new Error(`of the input came ${size}`)
  }
  fs.rmSync(file)
  await server.api('DELETE', `/api/v1/sandboxes/${body.id}`)
  note(`${megabytes} MB through quicksand exec`, Math.min(...ours), 's')
  note(`${megabytes} MB through quicksand cp`, Math.min(...theirs), 's')
  measured.stdin_vs_cp = Math.min(...theirs) / Math.min(...ours)
}
