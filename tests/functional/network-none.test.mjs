// A host that can enforce nothing of a network: the server starts, says so, and refuses what asks for one. The same program as ever, but
// without CAP_NET_ADMIN, or without the program nft.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-none-'))
after(() => fs.rmSync(folder, { recursive: true, force: true }))

function wrapper(name, command) {
  const file = path.join(folder, name)
  fs.writeFileSync(file, `#!/bin/sh\n${command}\n`, { mode: 0o755 })
  return file
}

// Where the program is looked for there is an empty file that cannot be run instead.
const hideNft = `for f in /usr/local/sbin/nft /usr/local/bin/nft /usr/sbin/nft /usr/bin/nft /sbin/nft /bin/nft; do
  [ -e "$f" ] && mount --bind /dev/null "$f"
done
exec "$@"`

const hosts = [
  ['CAP_NET_ADMIN', 'no CAP_NET_ADMIN', `exec setpriv --bounding-set=-net_admin ${binary} "$@"`],
  ['the program nft', 'nftables does not work', `exec unshare --mount --propagation slave sh -c '${hideNft.replaceAll("'", "'\\''")}' x ${binary} "$@"`],
]

for (const [lacking, reason, command] of hosts)
  describe(`without ${lacking}`, () => {
    let server, sdk, program
    before(async () => {
      program = wrapper(lacking.split(' ').at(-1), command)
      server = await startServer({ program })
      sdk = await loadSdk(server)
    })
    after(() => server?.destroy())
    const create = (body) => server.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, ...body })

    test('it says at start what it cannot do', () => {
      assert.match(server.log, new RegExp(`${reason}.*nothing of a network can be enforced here`))
    })

    test('sandboxes that ask for a network are refused, with the reason', async () => {
      for (const body of [{}, { allow_internet_access: true }, { network: { denyOut: ['203.0.113.1'] } }, { network: { allowOut: ['203.0.113.1'], denyOut: ['0.0.0.0/0'] } }, { network: { allowOut: ['web.test'], denyOut: ['0.0.0.0/0'] } }]) {
        const answer = await create(body)
        assert.equal(answer.status, 501, `${JSON.stringify(body)}: ${answer.text}`)
        assert.match(answer.body.message, new RegExp(`${reason}.*allow_internet_access: false`))
      }
    })

    test('those that ask for none work: commands, ports, pauses', async () => {
      for (let i = 0; i < 3; i++) {
        const answer = await create({ allow_internet_access: false })
        assert.equal(answer.status, 201, answer.text)
        const sandbox = await sdk.Sandbox.connect(answer.body.sandboxID)
        assert.equal((await shell(sandbox, 'cat /sys/class/net/lo/operstate; ls /sys/class/net')).stdout.replace(/\s+/g, ' ').trim(), 'unknown lo')
        await shell(sandbox, 'nohup python3 -m http.server 8000 >/dev/null 2>&1 &')
        await eventually('the port', async () => (await fetch(`${server.url}/`, { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8000' } })).status === 200)
        assert.notEqual((await shell(sandbox, 'curl -sS -m 2 http://203.0.113.1/')).exitCode, 0)
        for (const network of [{}, { allowOut: ['203.0.113.1'], denyOut: ['0.0.0.0/0'] }]) assert.equal((await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, network)).status, 501)
        assert.equal((await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, { allow_internet_access: false })).status, 204)
        assert.equal((await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })).status, 204)
        const again = await sdk.Sandbox.connect(sandbox.sandboxId)
        assert.equal((await shell(again, 'echo here')).stdout, 'here\n')
        assert.equal((await server.api('GET', `/sandboxes/${sandbox.sandboxId}/metrics`)).body.at(-1).networkSent, 0)
        await again.kill()
      }
    })

    test('doctor says the same', () => {
      const { stdout } = spawnSync(program, ['doctor'], { encoding: 'utf8' })
      assert.match(stdout, /^(CAP_NET_ADMIN|nft) +warn +.*sandboxes that ask for one are refused/m)
    })
  })
