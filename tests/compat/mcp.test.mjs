// The server as an MCP server, used by published clients: all revisions, tools, progress, cancelling, sandboxes of callers.
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { connect, load, packages, run } from '../harness/mcp.mjs'
import { binary, eventually } from '../harness/server.mjs'
import { destroyAll, startRuntime } from '../harness/runtime.mjs'

let one, url, headers
before(async () => {
  one = await startRuntime({})
  url = `${one.server.url}/mcp`
  headers = { Authorization: `Bearer ${one.server.key}` }
})
after(() => destroyAll(one))

const inspector = path.join(packages, 'node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js')
const call = (client, name, args = {}, options) => client.callTool({ name, arguments: args }, ...(options ? [undefined, options] : []))
const text = (result) => result.content.map((one) => one.text ?? '').join('')

const kinds = [
  ['sdk', 'sdk', {}],
  ['client', 'client', {}],
  ['client, auto', 'client', { versionNegotiation: { mode: 'auto' } }],
  ['client, pinned', 'client', { versionNegotiation: { mode: { pin: '2026-07-28' } } }],
]

describe('clients', () => {
  for (const [name, kind, options] of kinds)
    test(name, async () => {
      const { client } = await connect(url, kind, { headers, ...options })
      const { tools } = await client.listTools()
      assert.ok(tools.length >= 18)
      for (const tool of tools) assert.ok(tool.description && tool.inputSchema.type === 'object' && tool.annotations, tool.name)
      const result = await client.callTool({ name: 'run_command', arguments: { command: 'echo out; echo err >&2; exit 3' } })
      assert.deepEqual({ ...result.structuredContent, duration_ms: 0, sandbox_id: '' }, { stdout: 'out\n', stderr: 'err\n', exit_code: 3, duration_ms: 0, timed_out: false, truncated: false, sandbox_id: '' })
      assert.equal(text(result), 'out\n[stderr]\nerr\n[exit code 3]')
      const bad = await client.callTool({ name: 'run_command', arguments: { cmd: 'x' } })
      assert.ok(bad.isError)
      await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), /no tool 'no_such_tool'/)
      await client.close()
    })

  test('without an API key nothing is told', async () => {
    await assert.rejects(connect(url, 'sdk', {}))
    await assert.rejects(connect(url, 'sdk', { headers: { Authorization: 'Bearer e2b_no' } }))
  })

  test("the Inspector's command line", async () => {
    const common = ['--cli', url, '--transport', 'http', '--header', `Authorization: ${headers.Authorization}`]
    const list = await run(inspector, [...common, '--method', 'tools/list'])
    assert.equal(list.code, 0, list.stderr)
    assert.ok(JSON.parse(list.stdout).tools.some((tool) => tool.name === 'sandbox_fork'))
    const called = await run(inspector, [...common, '--method', 'tools/call', '--tool-name', 'run_command', '--tool-arg', 'command=echo inspected'])
    assert.equal(called.code, 0, called.stderr)
    assert.equal(JSON.parse(called.stdout).structuredContent.stdout, 'inspected\n')
  })
})

describe('tools', () => {
  let client
  before(async () => ({ client } = await connect(url, 'sdk', { headers })))
  after(() => client.close())

  test('one sandbox per caller, kept between calls, connections and restarts; another with another name', async () => {
    const first = (await call(client, 'run_command', { command: 'echo kept >/home/user/mark' })).structuredContent.sandbox_id
    const other = await connect(`${url}?key=other`, 'client', { headers })
    const second = (await call(other.client, 'run_command', { command: 'cat /home/user/mark' })).structuredContent
    assert.notEqual(second.sandbox_id, first)
    assert.equal(second.exit_code, 1)
    await call(other.client, 'sandbox_kill', { sandbox_id: second.sandbox_id })
    await other.client.close()
    assert.equal((await call(client, 'sandbox_pause')).structuredContent.state, 'paused')
    await one.server.restart()
    const later = (await call(client, 'run_command', { command: 'cat /home/user/mark' })).structuredContent
    assert.deepEqual([later.sandbox_id, later.stdout], [first, 'kept\n'])
    await call(client, 'sandbox_kill', { sandbox_id: first })
    assert.notEqual((await call(client, 'run_command', { command: 'true' })).structuredContent.sandbox_id, first)
  })

  test('files: text, parts of long ones, pictures, bytes', async () => {
    assert.equal((await call(client, 'write_file', { path: '/tmp/d/a.txt', content: 'grüße\n' })).structuredContent.size, 8)
    assert.equal(text(await call(client, 'read_file', { path: '/tmp/d/a.txt' })), 'grüße\n')
    const part = await call(client, 'read_file', { path: '/tmp/d/a.txt', limit: 3 })
    assert.equal(part.content[0].text, 'gr')
    assert.equal(part.structuredContent.next, 2)
    assert.equal(text(await call(client, 'read_file', { path: '/tmp/d/a.txt', offset: 2 })), 'üße\n')
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=='
    await call(client, 'write_file', { path: '/tmp/d/p.png', content: png, encoding: 'base64' })
    assert.deepEqual((await call(client, 'read_file', { path: '/tmp/d/p.png' })).content[0], { type: 'image', data: png, mimeType: 'image/png' })
    await call(client, 'write_file', { path: '/tmp/d/b', content: 'AAH/', encoding: 'base64' })
    assert.equal((await call(client, 'read_file', { path: '/tmp/d/b' })).content[0].resource.blob, 'AAH/')
    const { entries } = (await call(client, 'list_files', { path: '/tmp/d' })).structuredContent
    assert.deepEqual(entries.map((entry) => entry.name).sort(), ['a.txt', 'b', 'p.png'])
    assert.match(text(await call(client, 'read_file', { path: '/tmp/none' })), /none/)
  })

  test('output is progress; much of it is cut in the middle', async () => {
    const told = []
    const result = await call(client, 'run_command', { command: 'for i in 1 2 3; do echo line $i; sleep 0.3; done' }, { onprogress: (progress) => told.push(progress) })
    assert.equal(result.structuredContent.stdout, 'line 1\nline 2\nline 3\n')
    assert.equal(told.map((one) => one.message).join(''), 'line 1\nline 2\nline 3\n')
    assert.ok(told.length >= 3)
    told.reduce((before, { progress }) => (assert.ok(progress > before), progress), 0)
    const long = (await call(client, 'run_command', { command: 'echo begin; head -c 3000000 /dev/zero | tr "\\0" x; echo end', output_limit: 1000 })).structuredContent
    assert.ok(long.truncated)
    assert.match(long.stdout, /^begin\nx+\n\[\d+ bytes left out\]\nx+end\n$/)
    assert.ok(long.stdout.length < 1100)
  })

  test('cancelling, leaving and timeouts end the command', async () => {
    const running = async () => (await call(client, 'run_command', { command: 'pgrep -c -f "^sleep 77$" || true' })).structuredContent.stdout.trim()
    for (const kind of kinds) {
      const { client: own } = await connect(url, kind[1], { headers, ...kind[2] })
      const stop = new AbortController()
      const waiting = assert.rejects(own.callTool({ name: 'run_command', arguments: { command: 'exec sleep 77' } }, ...(kind[1] === 'sdk' ? [undefined] : []), { signal: stop.signal }))
      await eventually('it runs', async () => (await running()) === '1')
      stop.abort()
      await waiting
      await eventually(`${kind[0]}: it has ended`, async () => (await running()) === '0')
      await own.close()
    }
    const late = (await call(client, 'run_command', { command: 'sleep 77', timeout_s: 1 })).structuredContent
    assert.deepEqual([late.timed_out, late.exit_code], [true, 124])
  })

  test('what needs a template that is not built says what to run', async () => {
    for (const [name, args, template] of [['browser_open', { url: 'http://a/' }, 'browser'], ['desktop_screenshot', {}, 'desktop'], ['run_code', { code: '1' }, 'code-interpreter-v1']]) {
      const result = await call(client, name, args)
      assert.ok(result.isError)
      assert.match(text(result), new RegExp(`quicksand template build ${template}$`))
    }
  })

  test('jobs', async () => {
    const job = (await call(client, 'job_start', { command: 'echo working; sleep 0.2; exit 4' })).structuredContent
    assert.equal(job.state, 'running')
    const ended = (await call(client, 'job_status', { job_id: job.job_id, wait_s: 20 })).structuredContent
    assert.deepEqual([ended.state, ended.exit_code], ['failed', 4])
    const logs = (await call(client, 'job_logs', { job_id: job.job_id })).structuredContent
    assert.deepEqual([logs.output, logs.next], ['working\n', 8])
    const long = (await call(client, 'job_start', { command: 'sleep 300' })).structuredContent
    await one.ok(200, 'POST', `/sandboxes/${long.sandbox_id}/pause`)
    const still = (await call(client, 'job_status', { job_id: long.job_id })).structuredContent
    assert.deepEqual([still.state, still.sandbox_state], ['running', 'paused'])
    await one.ok(200, 'POST', `/sandboxes/${long.sandbox_id}/resume`)
    assert.equal((await call(client, 'job_stop', { job_id: long.job_id })).structuredContent.exit_code, 143)
    assert.ok((await call(client, 'job_list')).structuredContent.jobs.length >= 2)
  })

  test('sandboxes: create, list, fork, snapshot, url, kill', async () => {
    const box = (await call(client, 'sandbox_create', { metadata: { a: 'b' }, env: { WHO: 'me' } })).structuredContent
    const id = box.sandbox_id
    assert.equal((await call(client, 'run_command', { sandbox_id: id, command: 'echo $WHO >/home/user/f; cat /home/user/f' })).structuredContent.stdout, 'me\n')
    assert.ok((await call(client, 'sandbox_list')).structuredContent.sandboxes.some((one) => one.sandbox_id === id))
    const fork = (await call(client, 'sandbox_fork', { sandbox_id: id })).structuredContent
    assert.equal((await call(client, 'run_command', { sandbox_id: fork.sandbox_id, command: 'cat /home/user/f' })).structuredContent.stdout, 'me\n')
    const shot = (await call(client, 'sandbox_snapshot', { sandbox_id: id, alias: 'mcp-test' })).structuredContent
    assert.equal(box.tier, 'created')
    const again = (await call(client, 'sandbox_create', { snapshot: 'mcp-test' })).structuredContent
    assert.equal(again.tier, 'restored')
    assert.equal((await call(client, 'run_command', { sandbox_id: again.sandbox_id, command: 'cat /home/user/f' })).structuredContent.stdout, 'me\n')
    assert.match(shot.snapshot_id, /^snap_/)
    assert.match((await call(client, 'sandbox_url', { sandbox_id: id, port: 8000 })).structuredContent.url, /8000/)
    for (const one of [box, fork, again]) await call(client, 'sandbox_kill', { sandbox_id: one.sandbox_id })
    assert.match(text(await call(client, 'run_command', { sandbox_id: id, command: 'true' })), /not found|ended|killed/)
  })

  test('an API key for one sandbox sees nothing else', async () => {
    const box = await one.create({})
    const other = await one.create({})
    const { key } = await one.ok(201, 'POST', `/sandboxes/${box.id}/keys`, {})
    const bound = await connect(url, 'sdk', { headers: { Authorization: `Bearer ${key}` } })
    const names = (await bound.client.listTools()).tools.map((tool) => tool.name)
    assert.ok(names.includes('run_command') && !names.includes('sandbox_create') && !names.includes('sandbox_list'))
    assert.equal((await call(bound.client, 'run_command', { command: 'true' })).structuredContent.sandbox_id, box.id)
    assert.match(text(await call(bound.client, 'run_command', { command: 'true', sandbox_id: other.id })), /not found/)
    await assert.rejects(call(bound.client, 'sandbox_create'), /no tool/)
    await bound.client.close()
    for (const id of [box.id, other.id]) await one.remove(id)
  })
})

describe('quicksand mcp', () => {
  const settings = () => ({ QUICKSAND_URL: one.server.url, QUICKSAND_TOKEN: one.server.key, PATH: process.env.PATH })
  const start = async (kind, options) => {
    const { Client, StdioClientTransport } =
      kind === 'sdk'
        ? { ...load('@modelcontextprotocol/sdk/client/index.js'), ...load('@modelcontextprotocol/sdk/client/stdio.js') }
        : { ...load('@modelcontextprotocol/client'), ...load('@modelcontextprotocol/client/stdio') }
    const client = new Client({ name: 'quicksand-tests', version: '1' }, options)
    await client.connect(new StdioClientTransport({ command: binary, args: ['mcp', '--key', 'stdio'], env: settings() }))
    return client
  }

  for (const [name, kind, options] of kinds)
    test(`stdio: ${name}`, async () => {
      const client = await start(kind, options)
      assert.ok((await client.listTools()).tools.length >= 18)
      const told = []
      const result = await client.callTool({ name: 'run_command', arguments: { command: 'echo one; sleep 0.3; echo two; sleep 0.3' } }, ...(kind === 'sdk' ? [undefined] : []), { onprogress: ({ message }) => told.push(message) })
      assert.equal(result.structuredContent.stdout, 'one\ntwo\n')
      assert.equal(told.join(''), 'one\ntwo\n')
      const many = await Promise.all([...Array(20).keys()].map((i) => client.callTool({ name: 'run_command', arguments: { command: `echo ${i}` } })))
      many.forEach((one, i) => assert.equal(one.structuredContent.stdout, `${i}\n`))
      await client.close()
    })

  test('lines that are no messages, and a server that is not there', async () => {
    const lines = `nonsense\n[]\n\n${'x'.repeat(9 * 1024 * 1024)}\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"no"}\n`
    const out = await run('mcp', [], { node: binary, env: settings(), input: lines })
    const answers = out.stdout.trim().split('\n').map((line) => JSON.parse(line))
    assert.equal(out.code, 0)
    assert.equal(answers.filter((one) => one.error?.code === -32700).length, 3)
    assert.deepEqual(answers.find((one) => one.id === 1)?.result, {})
    assert.equal(answers.find((one) => one.id === 2)?.error.code, -32601)
    const gone = await run('mcp', [], { node: binary, env: { ...settings(), QUICKSAND_URL: 'http://127.0.0.1:1' }, input: '{"jsonrpc":"2.0","id":7,"method":"ping"}\n' })
    assert.deepEqual([JSON.parse(gone.stdout).id, JSON.parse(gone.stdout).error.code], [7, -32603])
    const wrong = await run('mcp', [], { node: binary, env: { ...settings(), QUICKSAND_TOKEN: 'e2b_no' }, input: '{"jsonrpc":"2.0","id":7,"method":"ping"}\n' })
    assert.deepEqual([JSON.parse(wrong.stdout).id, JSON.parse(wrong.stdout).error.code], [7, -32001])
  })

  test('config: what is printed works', async () => {
    const config = async (client, ...more) => (await run('mcp', ['config', client, ...more], { node: binary, env: settings() })).stdout
    const cursor = JSON.parse(await config('cursor', '--key', 'a b')).mcpServers.quicksand
    assert.equal(cursor.url, `${url}?key=a%20b`)
    const { client } = await connect(cursor.url, 'sdk', { headers: cursor.headers })
    await client.close()
    assert.equal(JSON.parse(await config('vscode')).servers.quicksand.type, 'http')
    assert.match(await config('claude-code'), /^claude mcp add --transport http quicksand '/)
    const program = JSON.parse(await config('claude-desktop')).mcpServers.quicksand
    const out = await run(program.args[0], program.args.slice(1), { node: program.command, env: program.env, input: '{"jsonrpc":"2.0","id":1,"method":"ping"}\n' })
    assert.deepEqual(JSON.parse(out.stdout).result, {})
    const unknown = await run('mcp', ['config', 'emacs'], { node: binary, env: settings() })
    assert.equal(unknown.code, 2)
    assert.match(unknown.stderr, /claude-code, claude-desktop, cursor/)
  })
})
