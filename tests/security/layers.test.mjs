// Builds run code that nobody vouches for, and what it leaves becomes layers of others' sandboxes: it reads what it was
// given and nothing else, and whatever it writes stays in its layer and within its limits.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

let server, sdk
before(async () => {
  server = await startServer({ args: ['--warm', '0', '--build-disk', '256', '--disk', '256', '--build-memory', '256', '--memory', '256'] })
  sdk = await loadSdk(server)
})
after(() => server?.destroy())

const FILES = crypto.createHash('sha256').update('files').digest('hex')
const layers = () => fs.readdirSync(path.join(server.data, 'layers'))
const trees = () => layers().filter((name) => name.startsWith('tree'))
const feeds = () => fs.readdirSync(path.join(server.data, 'feeds')).filter((name) => /^i[a-z0-9]{19}$/.test(name))

// A build that copies something, and so is given something to read; then the commands, as root.
async function begin(name, ...commands) {
  const asked = await server.api('POST', '/v3/templates', { name })
  assert.equal(asked.status, 202, asked.text)
  const { templateID, buildID } = asked.body
  const link = (await server.api('GET', `/templates/${templateID}/files/${FILES}`)).body
  if (!link.present) {
    const empty = execFileSync('tar', ['-czf', '-', '-C', '/etc', 'hostname'])
    assert.ok((await fetch(link.url, { method: 'PUT', body: empty })).ok)
  }
  const started = await server.api('POST', `/v2/templates/${templateID}/builds/${buildID}`, {
    fromTemplate: 'base',
    steps: [{ type: 'COPY', args: ['hostname', '/copied', '', ''], filesHash: FILES }, ...commands.map((command) => ({ type: 'RUN', args: [command, 'root'] }))],
  })
  assert.equal(started.status, 202, started.text)
  return { templateID, buildID }
}
async function ended({ templateID, buildID }) {
  const end = await eventually('the build has ended', async () => {
    const { body } = await server.api('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=0`)
    return ['ready', 'error'].includes(body.status) && body
  }, 60_000)
  return { ...end, text: end.logEntries.map((line) => line.message).join('\n') }
}
const build = async (name, ...commands) => ended(await begin(name, ...commands))
async function ready(name, ...commands) {
  const end = await build(name, ...commands)
  assert.equal(end.status, 'ready', `${JSON.stringify(end.reason)}\n${end.text}`)
  return end
}
// What is refused is refused for the reason that is meant.
const refused = (command, why) => `out=$( (${command}) 2>&1) && { echo "it worked: ${command}"; exit 1; }; case $out in *"${why}"*) ;; *) echo "$out"; exit 1;; esac`

test('what a build is given to read is read-only and its own', async () => {
  const other = await begin('other', 'sleep 8')
  await eventually('another build has its feed', () => feeds().length === 1)
  await ready('reader',
    'ls -A /run/feed > /dev/null',
    `grep ' /run/feed ' /proc/self/mountinfo | grep ' ro,nosuid,nodev'`,
    refused('touch /run/feed/new', 'Read-only file system'),
    refused('rm -rf /run/feed/unpack; test ! -e /run/feed/unpack || { echo Read-only file system; exit 1; }', 'Read-only file system'),
    refused('mount -o remount,bind,rw /run/feed', ''),
    refused('umount /run/feed', ''),
    // The directory above is the box's own /run: neither other feeds nor layers.
    `test ! -e /run/feed/../${feeds()[0]} -a ! -e /run/layer || { ls -A /run; exit 1; }`)
  await ended(other)
  const sandbox = await sdk.Sandbox.create('reader', { timeoutMs: 120_000 * patience })
  assert.equal((await sandbox.commands.run('test -e /run/feed && echo there || echo none')).stdout.trim(), 'none')
  await sandbox.kill()
  await eventually('feeds go with their builds', () => feeds().length === 0)
})

test('links of a template stay links, and lead nowhere on the host', async () => {
  const before = trees()
  const mark = crypto.randomBytes(8).toString('hex')
  fs.writeFileSync(path.join(server.home, 'secret'), mark)
  await ready('links', `ln -s ${server.home}/secret /secret && ln -s / /everything && ln -s ../../../../../.. /above && mkdir /d && ln -s /d /d/again`)
  const [tree] = trees().filter((name) => !before.includes(name))
  const at = (name) => path.join(server.data, 'layers', tree, name)
  assert.equal(fs.readlinkSync(at('secret')), `${server.home}/secret`)
  assert.equal(fs.readlinkSync(at('everything')), '/')
  const sandbox = await sdk.Sandbox.create('links', { timeoutMs: 120_000 * patience })
  assert.equal((await sandbox.commands.run('cat /secret 2>&1; true')).stdout.trim(), 'cat: /secret: No such file or directory')
  assert.equal((await sandbox.commands.run('ls /everything/d/again/again')).stdout.trim(), 'again')
  await sandbox.kill()
  // None of it was followed when it was copied.
  assert.equal(execFileSync('find', ['-P', at('.'), '-type', 'f', '-exec', 'grep', '-l', mark, '{}', ';'], { encoding: 'utf8' }), '')
})

test('files that share their blocks do not fill the disk when they are published', async () => {
  const before = trees().length
  const end = await build('bomb', 'head -c 50M /dev/urandom > /big && for i in $(seq 40); do cp --reflink=always /big /big$i || exit 1; done')
  assert.equal(end.status, 'error', end.text)
  assert.match(end.reason.message, /more than 512 MiB/)
  assert.equal(trees().length, before)
})

test('directories deeper than anybody needs are refused, and go again', async () => {
  const before = trees().length
  const deep = `import os
os.mkdir('/deep'); os.chdir('/deep')
for i in range(3000):
    os.mkdir('d'); os.chdir('d')`
  const end = await build('deep', `python3 -c "${deep}"`)
  assert.equal(end.status, 'error', end.text)
  assert.match(end.reason.message, /more than 512 deep/)
  assert.equal(trees().length, before)
})

test('nothing half-made stays among the layers', async () => {
  await eventually('what was removed is gone', () => layers().every((name) => !name.startsWith('.')))
})
