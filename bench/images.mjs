// Unpacking an image of 1 GB in eight layers, against `tar x` of the same: the program alone, on the same kind of disk, in turn, and
// until it is on the disk for both.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { repository } from '../tests/harness/server.mjs'

const LAYERS = 8
const MEGABYTES = 1000
const ROUNDS = 3

// The base's files, dealt out to the layers, with names of their own, until they are a gigabyte.
function makeLayers(rootfs, scratch) {
  const files = execFileSync('find', ['.', '-xdev', '-not', '-type', 'd', '-printf', '%P\\0'], { cwd: rootfs, maxBuffer: 1 << 28 }).toString().split('\0').filter(Boolean)
  const total = Number(execFileSync('du', ['-sm', rootfs]).toString().split('\t')[0])
  const again = files.slice(0, Math.max(0, Math.round((files.length * (MEGABYTES - total)) / total)))
  return Array.from({ length: LAYERS }, (_, i) => {
    const layer = path.join(scratch, `layer-${i}.tar.gz`)
    const part = (list) => list.filter((_, n) => n % LAYERS === i).join('\0')
    const pack = (names, prefix, out) => execFileSync('tar', ['-cf', out, '--null', '--no-recursion', '-T', '-', `--transform=s,^,${prefix},S`], { cwd: rootfs, input: names })
    const plain = path.join(scratch, 'layer.tar')
    pack(part(files), '', plain)
    if (part(again)) {
      pack(part(again), 'again/', `${plain}.more`)
      execFileSync('tar', ['-Af', plain, `${plain}.more`])
    }
    execFileSync('sh', ['-c', 'gzip -1 <"$1" >"$2"', 'sh', plain, layer])
    return layer
  })
}

// Until all is on the disk, as a build has it before it says that it is ready; on a file system of its own, made anew each time. On the
// one that is there, who comes later pays for what was removed before: ext4 without a journal looks at every inode that was freed
// within minutes, and passes it over, before it takes one (four fifths of the time, for tar as for us).
function timed(folder, work) {
  const image = path.join(folder, 'disk')
  const out = path.join(folder, 'unpacked')
  fs.mkdirSync(out, { recursive: true })
  execFileSync('truncate', ['-s', '6G', image])
  execFileSync('mkfs.ext4', ['-q', '-E', 'lazy_itable_init=0,lazy_journal_init=0', image])
  execFileSync('mount', ['-o', 'loop', image, out])
  try {
    execFileSync('sync')
    const started = performance.now()
    work(out)
    execFileSync('sync', ['-f', out])
    return performance.now() - started
  } finally {
    execFileSync('umount', [out])
    fs.rmSync(image)
  }
}

export async function partImages(_server, { measured, note, scratch }) {
  const folder = fs.mkdtempSync(path.join(scratch, 'images-'))
  try {
    const layers = makeLayers(process.env.QUICKSAND_BASE_LAYER, folder)
    const ours = []
    const theirs = []
    const tar = (out) => layers.forEach((layer) => execFileSync('tar', ['-xzpf', layer, '--numeric-owner', '-C', out]))
    const unpack = (out) => execFileSync(path.join(repository, 'build/unpack'), ['apply', '--into', out, ...layers])
    for (let round = 0; round < ROUNDS; round++) {
      const turns = [() => theirs.push(timed(folder, tar)), () => ours.push(timed(folder, unpack))]
      for (const turn of round % 2 ? turns.reverse() : turns) turn()
    }
    const best = (list) => Math.min(...list) / 1000
    note('tar x of eight layers, 1 GB, and sync', best(theirs), 's')
    note('unpack of the same, and sync', best(ours), 's')
    measured.unpack_vs_tar = best(theirs) / best(ours)
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}
