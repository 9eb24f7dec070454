// Ports of sandboxes through the published SDK: getHost(), traffic tokens, masked hosts.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, only } from '../harness/sdk.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

const HEADER = 'e2b-traffic-access-token'
const ECHO = `
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(json.dumps({k.lower(): v for k, v in self.headers.items()}).encode())
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
`

// Versions before 2.19 do not send the option.
for (const version of only(['2.19.0', '2.27.1', '2.45.0', 'latest'])) {
  describe(`ports of e2b ${version}`, () => {
    let Sandbox
    before(async () => {
      Sandbox = (await loadSdk(server, version)).Sandbox
    })
    const ask = (sandbox, headers = {}) => server.request({ path: '/', headers: { Host: sandbox.getHost(8000), ...headers } })
    const create = async (network) => {
      const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 * patience, network })
      await sandbox.files.write('/home/user/echo.py', ECHO)
      await sandbox.commands.run('python3 /home/user/echo.py', { background: true, timeoutMs: 0 })
      await eventually('the server inside', async () => (await ask(sandbox, sandbox.trafficAccessToken ? { [HEADER]: sandbox.trafficAccessToken } : {})).status === 200)
      return sandbox
    }

    test('public traffic', async () => {
      const sandbox = await create({ allowPublicTraffic: true })
      assert.ok(!sandbox.trafficAccessToken)
      assert.equal((await ask(sandbox)).status, 200)
      await sandbox.kill()
      const gone = await ask(sandbox)
      assert.equal(gone.status, 502)
      assert.equal(gone.body.message, 'The sandbox was not found')
    })

    test('traffic that needs the token, also after connect', async () => {
      const sandbox = await create({ allowPublicTraffic: false })
      assert.equal((await ask(sandbox)).status, 403)
      assert.equal((await ask(sandbox, { [HEADER]: sandbox.trafficAccessToken })).status, 200)
      const again = await Sandbox.connect(sandbox.sandboxId)
      assert.equal(again.trafficAccessToken, sandbox.trafficAccessToken)
      assert.equal((await again.commands.run('echo fine')).stdout, 'fine\n')
      await sandbox.kill()
    })

    test('another Host for servers inside', async () => {
      const sandbox = await create({ maskRequestHost: 'localhost:${PORT}' })
      const { body } = await ask(sandbox)
      assert.equal(body.host, 'localhost:8000')
      await sandbox.kill()
    })
  })
}
