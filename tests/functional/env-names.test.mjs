// Names of environment variables: the same ones are refused wherever they come in, with 400 and a message that shows them.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startRuntime } from '../harness/runtime.mjs'
import { eventually, patience } from '../harness/server.mjs'

let one, server, box
before(async () => {
  one = await startRuntime({}, { args: ['--warm', '0'] })
  server = one.server
  box = await one.create()
})
after(() => one?.destroy())

// What is sent, and how messages show it.
const bad = [
  ['A\nB', "'A\\nB'"],
  ['A=B', "'A=B'"],
  ['', "''"],
  ['\u0001', "'\\x01'"],
  ['x'.repeat(1025), 'xxx...'],
]
const message = (answer) => answer.body?.error?.message ?? answer.body?.message ?? answer.text

// Each way in: gives the status and the message.
const ways = {
  'E2B create': (env) => server.api('POST', '/sandboxes', { templateID: 'base', envVars: env }),
  'create': (env) => one.v1('POST', '/sandboxes', { env }),
  'execute': (env) => one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'env', env }),
  'job': (env) => one.v1('POST', `/sandboxes/${box.id}/execute`, { command: 'env', background: true, env }),
  'code': (env) => one.v1('POST', `/sandboxes/${box.id}/code`, { code: '1', env }),
  'session': (env) => one.v1('POST', '/sessions', { agent: 'mock', env }),
  'profile': (env) => one.v1('PUT', '/profiles/names', { envVars: env }),
  'MCP server of a session': (env) => one.v1('POST', '/sessions', { agent: 'mock', mcp: { own: { command: 'x', env } } }),
  'MCP server of a session’s gateway': (env) => one.v1('POST', '/sessions', { agent: 'mock', mcp: { 'npm/x': { envs: env } } }),
  'MCP server of a profile': (env) => one.v1('PUT', '/profiles/names', { mcp: { own: { command: 'x', env } } }),
  'terminal': async (env) => {
    const socket = await server.connect()
    socket.write(`GET /api/v1/sandboxes/${box.id}/terminal?env=${encodeURIComponent(JSON.stringify(env))} HTTP/1.1\r\nHost: x\r\nX-API-Key: ${server.key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n`)
    await eventually('the terminal is answered', () => / 101 |\}$/.test(socket.received))
    socket.destroy()
    return { status: Number(socket.received.split(' ')[1]), text: socket.received }
  },
  'MCP command': (env) => tool('run_command', { sandbox_id: box.id, command: 'env', env }),
  'MCP create': (env) => tool('sandbox_create', { env }),
  'template ENV': async (env) => recipe({ steps: [{ type: 'ENV', args: Object.entries(env).flat() }] }),
  'template RUN': async (env) => recipe({ steps: [{ type: 'RUN', args: ['true'], env }] }),
  'envd': (env) => server.sandbox(engineId, 49983, '/process.Process/Start', { method: 'POST', headers: { 'Content-Type': 'application/connect+json', 'X-Access-Token': token ?? '' }, body: frame({ process: { cmd: '/usr/bin/env', envs: env } }) }),
}
let engineId, token
const frame = (message) => {
  const body = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(body.length, 1)
  return Buffer.concat([head, body])
}
async function tool(name, args) {
  const answer = await server.api('POST', '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } }, { headers: { Accept: 'application/json, text/event-stream', 'MCP-Protocol-Version': '2025-06-18' } })
  const text = answer.text.replace(/^[^]*?data: /, '')
  const result = JSON.parse(text.startsWith('{') ? text : answer.text).result
  return { status: result.isError ? 400 : 200, text: result.content?.[0]?.text ?? '' }
}
async function recipe(body) {
  const asked = (await server.api('POST', '/v3/templates', { name: 'names' })).body
  return server.api('POST', `/v2/templates/${asked.templateID}/builds/${asked.buildID}`, { fromTemplate: 'base', ...body })
}

test('bad names are refused on every way in, and shown', { timeout: 60_000 * patience }, async () => {
  const made = await server.create({})
  engineId = made.sandboxID
  token = made.envdAccessToken
  const faults = []
  for (const [way, ask] of Object.entries(ways)) {
    for (const [name, shown] of bad) {
      const answer = await ask({ [name]: 'value' })
      const text = way === 'envd' ? answer.text : message(answer)
      const seen = text.includes(/profile|MCP server/.test(way) ? shown.replaceAll("'", '') : shown) || text.includes(JSON.stringify(shown).slice(1, -1))
      const status = way === 'envd' ? (/invalid_argument/.test(text) ? 400 : answer.status) : answer.status
      if (status !== 400 || !seen || !/is not a valid name of an environment variable/.test(text)) faults.push(`${way}, ${JSON.stringify(name).slice(0, 20)}: ${answer.status} ${text.slice(0, 300)}`)
    }
  }
  assert.deepEqual(faults, [])
  await server.api('DELETE', `/sandboxes/${engineId}`)
})

test('other names arrive as they are', { timeout: 120_000 * patience }, async () => {
  const env = { PLAIN: '1', 'npm_config_//host/:_token': '2', 'INPUT_WITH SPACE': '3', 'ä': '4', EMPTY: '' }
  const { stdout } = await one.execute(box.id, 'env -0 | tr "\\0" "\\n"', { env })
  for (const [name, value] of Object.entries(env)) assert.ok(stdout.split('\n').includes(`${name}=${value}`), `${name} in ${stdout}`)
})
