// Rates that the sandboxes of a team share.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const WEB = '203.0.113.1'
const python = (sandbox, code) => shell(sandbox, `python3 - <<'EOP'\n${code}\nEOP`, { timeoutMs: 60_000 * patience })

describe('of a team', () => {
  let shared, kit
  before(async () => {
    shared = await startServer({ args: ['--team-new-connections', '20'] })
    kit = await loadSdk(shared)
  })
  after(() => shared.destroy())

  test('its sandboxes share them, through a restart of the server and a change of the policy', async () => {
    const one = await kit.Sandbox.create('base', { timeoutMs: 300_000 * patience }), two = await kit.Sandbox.create('base', { timeoutMs: 300_000 * patience })
    const often = async (sandbox) => Number((await python(sandbox, `
import socket, time
got = 0
for i in range(200):
    s = socket.socket(); s.settimeout(5); got += s.connect_ex(('${WEB}', 80)) == 0; s.close()
print(got)`)).stdout)
    // What the one before took is there again after a while.
    const share = async (when) => {
      await sleep(2000)
      const began = Date.now()
      const got = await Promise.all([often(one), often(two)])
      const most = Math.min(399, 60 + (25 * (Date.now() - began)) / 1000)
      assert.ok(got[0] + got[1] >= 5 && got[0] + got[1] <= most, `${when}: ${got} of at most ${most}`)
    }
    await share('at first')
    await shared.restart()
    await share('after a restart')
    assert.equal((await shared.api('PUT', `/sandboxes/${one.sandboxId}/network`, { denyOut: ['203.0.113.9'] })).status, 204)
    await share('after a change')
    for (const sandbox of [one, two]) await sandbox.kill()
  })
})
