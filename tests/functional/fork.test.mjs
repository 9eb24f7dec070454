// Forks of sandboxes that wrote little, whose files are copied, and of those that wrote much, whose files are shared.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { loadSdk } from '../harness/sdk.mjs'
import { startServer } from '../harness/server.mjs'

let server
let Sandbox
before(async () => {
  server = await startServer()
  ;({ Sandbox } = await loadSdk(server))
})
after(() => server.destroy())

const sh = async (sandbox, script) => (await sandbox.commands.run(`set -e\n${script}`, { user: 'root' })).stdout.trim()

test('forks have the labels that were asked for', async () => {
  const sandbox = await server.create({ metadata: { name: 'source', kept: '1' } })
  const made = await server.api('POST', `/sandboxes/${sandbox.sandboxID}/fork`, { count: 2, timeout: 60, metadata: { name: 'try' } })
  assert.equal(made.status, 201, made.text)
  const labels = async (id) => (await server.api('GET', `/sandboxes/${id}`)).body.metadata
  assert.deepEqual(await Promise.all(made.body.map((one) => labels(one.sandbox.sandboxID))), [{ name: 'try-1', kept: '1' }, { name: 'try-2', kept: '1' }])
  for (const metadata of [['a'], { k: 1 }]) assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxID}/fork`, { metadata })).status, 400)
})

async function fork(sandbox) {
  const { status, body, text } = await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { timeout: 300 })
  assert.equal(status, 201, text)
  const one = [body].flat()[0]
  return Sandbox.connect(one.sandboxID ?? one.sandbox.sandboxID)
}

const WRITE = `
mkdir -p /opt/dir/empty
echo text > /opt/dir/file
chown 1000:1000 /opt/dir/file
chmod 4750 /opt/dir/file
touch -d @1000000000 /opt/dir/file
ln -s file /opt/dir/link
mkfifo /opt/dir/pipe
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/opt/dir/socket")'
truncate -s 1G /opt/dir/sparse
rm /etc/debian_version
mv /etc/skel /etc/moved
mkdir /etc/skel
echo >> /etc/profile
sync /opt/dir/file
echo unwritten > /opt/dir/late`

// All of it as one text.
const LOOK = `
cd /opt/dir
stat -c '%n %F %a %u %g %s %Y' file link pipe socket sparse
cat late
ls -A /etc/skel /etc/moved
test ! -e /etc/debian_version
du -k sparse | cut -f1`

// What a list says of numbers is what each file says; two files are never one.
const NUMBERS = `
cd /etc
for one in profile moved passwd skel hostname; do
  listed=$(ls -di $one | cut -d' ' -f1)
  test "$listed" = "$(stat -c %i $one)"
done
touch /opt/new
stat -c %d:%i /opt/new /opt/dir/* /etc/profile /etc/passwd /etc/moved/.profile | sort | uniq -d`

const USE = `
ln /opt/dir/file /opt/twin
test "$(stat -c %h /opt/twin)" = 2
mv /opt/dir /opt/other
test "$(stat -c %i /opt/other/file)" = "$(stat -c %i /opt/twin)"
mv /etc/moved /etc/again
test -e /etc/again/.profile
rm -r /etc/again
! ls -d /etc/moved /etc/again 2>/dev/null
rmdir /opt/other/empty
echo back > /etc/debian_version
cp -a /opt/other /opt/copy
cat /opt/other/file /etc/debian_version`

for (const [what, more] of [
  ['few files', ''],
  ['many files', 'mkdir /opt/many; for i in $(seq 300); do echo $i > /opt/many/$i; done'],
  ['a large file', 'head -c 3M /dev/urandom > /opt/large'],
  ['a file with several names', 'ln /opt/dir/late /opt/late'],
])
  test(`a fork of one with ${what}, and a fork of that`, async () => {
    const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
    await sh(sandbox, WRITE + '\n' + more)
    const seen = await sh(sandbox, LOOK)
    const child = await fork(sandbox)
    const grandchild = await fork(child)
    for (const one of [child, grandchild]) {
      assert.equal(await sh(one, LOOK), seen)
      assert.equal(await sh(one, NUMBERS), '')
      assert.equal(await sh(one, USE), 'text\nback')
      await one.kill()
    }
    assert.equal(await sh(sandbox, LOOK), seen)
    await sandbox.kill()
  })

test('a fork of one that was paused, and not of one that is', async () => {
  const sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
  await sh(sandbox, WRITE)
  const seen = await sh(sandbox, LOOK)
  await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })
  assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { timeout: 300 })).status, 409)
  await server.api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 300 })
  const child = await fork(sandbox)
  assert.equal(await sh(child, LOOK), seen)
  await child.kill()
  await sandbox.kill()
})
