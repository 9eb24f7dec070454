// One team with several sandboxes takes all that it can of the egress process; another team's sandbox still resolves
// names and connects. The server gets few descriptors, so that few connections are all there are.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const DESCRIPTORS = 9000 // (9000 - 6400) / 6 = 433 connections
const network = { allowOut: ['web.test'], denyOut: ['0.0.0.0/0'] }

let server, sdk, theirKey, other, directory
before(async () => {
  directory = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-few-'))
  const program = path.join(directory, 'quicksand')
  // Without the capability the warden cannot raise the limit for the egress process.
  fs.writeFileSync(program, `#!/bin/bash\nulimit -n ${DESCRIPTORS}\nexec setpriv --bounding-set -sys_resource --inh-caps -sys_resource -- ${binary} "$@"\n`, { mode: 0o755 })
  server = await startServer({ program })
  sdk = await loadSdk(server)
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'others' })
  theirKey = (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body.key
})
after(async () => {
  await other?.kill()
  await server.destroy()
  fs.rmSync(directory, { recursive: true })
})

async function create(key) {
  const { sandboxID } = await server.create({ network }, { key })
  return sdk.Sandbox.connect(sandboxID, { apiKey: key })
}

// Opens connections until 50 in a row were refused, keeps them and prints how many there are.
const HOG = `
import socket, time
address = socket.gethostbyname('web.test')
kept, refused = [], 0
while refused < 50:
    s = socket.socket(); s.settimeout(20)
    try:
        s.connect((address, 80)); s.send(b'GET / HTTP/1.1\\r\\nHost: web.test\\r\\n\\r\\n'); assert s.recv(1)
        kept.append(s); refused = 0
    except (OSError, AssertionError):
        refused += 1
print(len(kept), flush=True)
time.sleep(600)`

test('a team with several sandboxes leaves connections to other teams', { timeout: 240_000 * patience }, async () => {
  const hogs = await Promise.all([1, 2, 3, 4].map(() => create(server.key)))
  other = await create(theirKey)
  const counts = []
  for (const hog of hogs) {
    let out = ''
    await hog.files.write('/tmp/hog.py', HOG)
    await hog.commands.run('python3 /tmp/hog.py', { background: true, timeoutMs: 0, onStdout: (text) => { out += text } })
    counts.push(await eventually('all that it can get', () => out && Number(out), 60_000, 50))
  }
  const all = counts.reduce((a, b) => a + b, 0)
  assert.ok(all > 100 && all <= 217, `${counts}: half of 433`)

  const result = await shell(other, `for i in 1 2 3; do curl -s -m ${20 * patience} -o /dev/null -w '%{http_code} ' http://web.test/; done`, { timeoutMs: 90_000 * patience })
  assert.equal(result.stdout, '200 200 200 ')

  const { body } = await server.api('GET', `/v2/sandboxes/${hogs[0].sandboxId}/logs?limit=1000`)
  assert.ok(body.logs.some((line) => line.fields.event === 'network' && line.fields.verdict === 'denied' && /^too many connections of this /.test(line.fields.reason)), 'refusals are in the log')
})
