// A server on a small disk of its own, which a test may fill or break.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { cgroups } from './leftovers.mjs'
import { binary, eventually, startServer } from './server.mjs'

export function run(...command) {
  const result = spawnSync(command[0], command.slice(1), { encoding: 'utf8' })
  assert.equal(result.status, 0, `${command.join(' ')}: ${result.stderr}`)
}

// A server whose data directory is a small file system of its own.
export async function onSmallDisk(megabytes) {
  const server = await startServer({
    args: ['--warm', '0'],
    prepare({ home, data }) {
      const image = path.join(home, 'disk.img')
      fs.writeFileSync(image, '')
      fs.truncateSync(image, megabytes * 1024 * 1024)
      run('mkfs.ext4', '-q', '-m', '0', image)
      fs.mkdirSync(data)
      run('mount', '-o', 'loop', image, data)
    },
  })
  return server
}

// The server must not have been part of the fault: everything of it goes, and the file system with it.
export async function discard(server) {
  const instance = fs.readFileSync(path.join(server.data, 'instance'), 'utf8').trim()
  await server.kill9().catch(() => {})
  spawnSync(binary, ['down', '--data', server.data]) // which may fail, on a disk that takes no writes
  await server.left('none')
  await eventually('no cgroup is left', () => {
    for (const group of cgroups(instance).reverse()) spawnSync('rmdir', [group]) // busy while processes go
    return cgroups(instance).length === 0
  })
  for (let i = 0; i < 3; i++) for (const mount of fs.readFileSync('/proc/self/mountinfo', 'utf8').split('\n').map((line) => line.split(' ')[4]).filter((one) => one?.startsWith(server.home)).reverse()) spawnSync('umount', ['--lazy', mount])
  fs.rmSync(server.home, { recursive: true, force: true })
}

// Takes all that is free on the server's disk; returns how to give it back.
export function fill(server) {
  const filler = path.join(server.data, 'filler')
  const free = fs.statfsSync(server.data)
  run('fallocate', '-l', String(Math.floor(free.bavail * free.bsize * 0.97)), filler)
  spawnSync('dd', ['if=/dev/zero', `of=${filler}2`, 'bs=1M'])
  return () => {
    fs.rmSync(filler)
    fs.rmSync(`${filler}2`)
  }
}
