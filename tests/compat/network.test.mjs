// What a sandbox may reach, in the published SDK's words: lists at create and later, all traffic, what getInfo() tells.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { patience, startServer } from '../harness/server.mjs'
import { loadSdk, only, shell } from '../harness/sdk.mjs'

const WEB = '203.0.113.1', OTHER = '198.51.100.1'
let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

for (const version of only(['2.45.0', 'latest'])) {
  describe(`network of e2b ${version}`, () => {
    let sdk
    before(async () => {
      sdk = await loadSdk(server, version)
    })
    const reaches = async (sandbox, host) => (await shell(sandbox, `curl -sS -m ${4 * patience} http://${host}/`, { timeoutMs: 30_000 * patience })).exitCode === 0
    const check = async (sandbox, web, other) => assert.deepEqual([await reaches(sandbox, WEB), await reaches(sandbox, OTHER)], [web, other])

    test('all traffic is denied but for what is allowed', async () => {
      const network = { allowOut: [WEB], denyOut: [sdk.ALL_TRAFFIC] }
      const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience, network })
      await check(sandbox, true, false)
      const info = await sandbox.getInfo()
      assert.deepEqual([info.network.allowOut, info.network.denyOut], [network.allowOut, network.denyOut])
      await sandbox.kill()
    })

    test('one address is denied; a range that is allowed beats it', async () => {
      const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience, network: { denyOut: [WEB] } })
      await check(sandbox, false, true)
      await sandbox.kill()
      const both = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience, network: { allowOut: ['203.0.113.0/24'], denyOut: [WEB, OTHER] } })
      await check(both, true, false)
      await both.kill()
    })

    test('an update replaces everything, an empty one clears it', async () => {
      const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 120_000 * patience })
      if (!sandbox.updateNetwork) return sandbox.kill()
      await check(sandbox, true, true)
      await sandbox.updateNetwork({ denyOut: [WEB] })
      await check(sandbox, false, true)
      await sandbox.updateNetwork({ allowOut: [WEB], denyOut: [sdk.ALL_TRAFFIC] })
      await check(sandbox, true, false)
      await sandbox.updateNetwork({})
      await check(sandbox, true, true)
      await sandbox.updateNetwork({ allowInternetAccess: false })
      await check(sandbox, false, false)
      await assert.rejects(sandbox.updateNetwork({ denyOut: ['example.com'] }), /invalid denied CIDR/)
      await sandbox.kill()
    })
  })
}
