// What a hundred sandboxes of one template cost that all run the same large program: its pages are there once.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../tests/harness/server.mjs'

const COUNT = 100
const MEGABYTES = 100
const PROGRAM_MIB = (MEGABYTES * 1e6) / 1048576

// Reads all of itself, as a program does that uses all of its code, and says that it did.
const PROGRAM = `
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
    int fd = open("/proc/self/exe", O_RDONLY);
    struct stat st;
    volatile unsigned sum = 0;
    fstat(fd, &st);
    const unsigned char *p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    for (long i = 0; i < st.st_size; i += 4096) sum += p[i];
    close(open("/tmp/read", O_WRONLY | O_CREAT, 0644));
    for (;;) pause();
}
`

// The program is small and its data is behind it, so that it can come as text.
function compiled(scratch) {
  const source = path.join(scratch, 'large.c')
  fs.writeFileSync(source, PROGRAM)
  execFileSync('musl-gcc', ['-static', '-Os', '-s', source, '-o', path.join(scratch, 'large')])
  return fs.readFileSync(path.join(scratch, 'large')).toString('base64')
}

async function build(server, scratch) {
  const made = (await server.api('POST', '/v3/templates', { name: 'large', cpuCount: 2, memoryMB: 512 })).body
  const command = `echo ${compiled(scratch)} | base64 -d > /opt/large && head -c ${MEGABYTES}000000 /dev/urandom >> /opt/large && chmod 755 /opt/large`
  await server.api('POST', `/v2/templates/${made.templateID}/builds/${made.buildID}`, {
    fromTemplate: 'base',
    steps: [{ type: 'RUN', args: [command, 'root'] }],
    startCmd: 'exec /opt/large',
    readyCmd: 'test -e /tmp/read',
  })
  const status = await eventually('the build', async () => {
    const { body } = await server.api('GET', `/templates/${made.templateID}/builds/${made.buildID}/status`)
    return ['ready', 'error'].includes(body.status) && body
  }, 120_000, 100)
  if (status.status !== 'ready') throw new Error(`build: ${status.reason?.message}`)
}

// What cannot be given back: unused page cache can, pages of running programs cannot.
async function heldMib() {
  execFileSync('sync')
  await sleep(1000)
  fs.writeFileSync('/proc/sys/vm/drop_caches', '3')
  const text = fs.readFileSync('/proc/meminfo', 'utf8')
  const field = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(text)[1])
  return ((field('MemTotal') - field('MemFree')) * 1024) / 1048576
}

// What the boxes' own groups are charged, where nothing else on the machine is counted.
function chargedMib(server) {
  const name = `quicksand-${fs.readFileSync(path.join(server.data, 'instance'), 'utf8').trim()}`
  const roots = ['/sys/fs/cgroup/memory', '/sys/fs/cgroup/unified', '/sys/fs/cgroup']
  const found = roots.map((root) => execFileSync('find', [root, '-maxdepth', '4', '-type', 'd', '-name', name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).split('\n')[0])
  for (const group of found.filter(Boolean))
    for (const file of ['memory.usage_in_bytes', 'memory.current'])
      if (fs.existsSync(path.join(group, file))) return Number(fs.readFileSync(path.join(group, file), 'utf8')) / 1048576
  return NaN
}

export async function partShared(server, { measured, note }) {
  const scratch = fs.mkdtempSync('/tmp/quicksand-bench-')
  const create = async () => {
    const answer = await server.api('POST', '/v2/sandboxes', { templateID: 'large', timeout: 3600 }, { timeoutMs: 120_000 })
    if (answer.status !== 201) throw new Error(`create: ${answer.text}`)
  }
  try {
    await build(server, scratch)
    const none = await heldMib()
    await create()
    const one = (await heldMib()) - none
    const charged = [chargedMib(server)]
    if (one < PROGRAM_MIB * 0.9) console.log('  something else on this machine gave memory back meanwhile: only what was charged counts')
    for (let i = 1; i < COUNT; i += 11) await Promise.all(Array.from({ length: Math.min(11, COUNT - i) }, create))
    const all = (await heldMib()) - none
    charged.push(chargedMib(server))
    note(`host memory of a sandbox that runs a program of ${MEGABYTES} MB`, one, 'MiB')
    note(`of ${COUNT} of them`, all, 'MiB')
    note('charged to one', charged[0], 'MiB')
    note(`charged to ${COUNT}`, charged[1], 'MiB')
    measured.shared_memory_100_vs_1 = one < PROGRAM_MIB * 0.9 ? charged[1] / charged[0] : Math.max(all / one, charged[1] / charged[0])
  } finally {
    fs.rmSync(scratch, { recursive: true, force: true })
  }
}
