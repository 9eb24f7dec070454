// What a sandbox or a server leaves on the host: processes, mounts, cgroups, loop devices, links, files.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

// All processes that this namespace sees, as {pid, exe, cmdline}; kernel threads and vanished ones left out.
export function findProcesses(wanted) {
  const found = []
  for (const name of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const exe = fs.readlinkSync(`/proc/${name}/exe`).replace(/ \(deleted\)$/, '')
      const cmdline = fs.readFileSync(`/proc/${name}/cmdline`, 'latin1').replaceAll('\0', ' ').trim()
      const one = { pid: Number(name), exe, cmdline }
      if (wanted(one)) found.push(one)
    } catch {}
  }
  return found
}

// Our program in any role, and envd: the latter runs from a memfd.
export const isOurs = (one) => one.exe.endsWith('/quicksand')
export const isEnvd = (one) => /(^|[:/])envd$/.test(one.exe)

export function mounts() {
  return fs
    .readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' ')[4])
}

// Every cgroup directory below the given roots whose path has `text` in it.
export function cgroups(text) {
  const found = []
  const walk = (folder, depth) => {
    let entries = []
    try {
      entries = fs.readdirSync(folder, { withFileTypes: true })
    } catch {}
    for (const entry of entries) {
      if (!entry.isDirectory()) continue
      const child = path.join(folder, entry.name)
      if (child.includes(text)) found.push(child)
      if (depth < 5) walk(child, depth + 1)
    }
  }
  walk('/sys/fs/cgroup', 0)
  return found
}

export function loopDevices(text) {
  const found = []
  for (const name of fs.readdirSync('/sys/block')) {
    if (!name.startsWith('loop')) continue
    try {
      const file = fs.readFileSync(`/sys/block/${name}/loop/backing_file`, 'utf8').trim()
      if (file.includes(text)) found.push(`${name} ${file}`)
    } catch {}
  }
  return found
}

export function links() {
  const result = spawnSync('ip', ['-j', 'link'], { encoding: 'utf8' })
  return JSON.parse(result.stdout || '[]').map((link) => link.ifname)
}

// Paths below a folder that have `text` in their name; mount points are not followed into.
export function files(folder, text, depth = 4) {
  const found = []
  let entries = []
  try {
    entries = fs.readdirSync(folder, { withFileTypes: true })
  } catch {
    return found
  }
  for (const entry of entries) {
    const child = path.join(folder, entry.name)
    if (entry.name.includes(text)) found.push(child)
    else if (entry.isDirectory() && depth > 0 && entry.name !== 'rootfs') found.push(...files(child, text, depth - 1))
  }
  return found
}

// Everything on this host that carries a sandbox's id.
export function ofSandbox(id, dataDir) {
  return [
    ...findProcesses((one) => one.cmdline.includes(id)).map((one) => `process ${one.pid} ${one.cmdline}`),
    ...mounts().filter((mount) => mount.includes(id)).map((mount) => `mount ${mount}`),
    ...cgroups(id).map((group) => `cgroup ${group}`),
    ...files(dataDir, id).map((file) => `file ${file}`),
    ...files('/run/quicksand', id).map((file) => `file ${file}`),
  ]
}

// Counts that must be the same before and after: for leaks that carry no name.
export function counts(pid) {
  const namespaces = new Set()
  for (const one of findProcesses(() => true)) {
    try {
      namespaces.add(fs.readlinkSync(`/proc/${one.pid}/ns/net`))
    } catch {}
  }
  const bound = fs.readFileSync('/proc/self/mountinfo', 'utf8').split('\n').filter((line) => / - nsfs /.test(line)).length
  return {
    processes: findProcesses(() => true).length,
    mounts: mounts().length,
    networkNamespaces: namespaces.size + bound,
    links: links().length,
    descriptors: pid ? fs.readdirSync(`/proc/${pid}/fd`).length : 0,
  }
}
