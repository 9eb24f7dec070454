// Sandbox.create({ mcp }) of the published SDK: the gateway inside, servers that behave and servers that do not.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { quicksand } from '../harness/interpreter.mjs'
import { connect } from '../harness/mcp.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { eventually, startServer } from '../harness/server.mjs'

// A server over stdio. MODE chooses how it misbehaves.
const program = `
import json, os, sys, time
mode = os.environ.get('MODE', '')
def send(message):
    sys.stdout.write(json.dumps(message) + '\\n'); sys.stdout.flush()
tools = [{'name': name, 'description': 'a test', 'inputSchema': {'type': 'object'}} for name in ['echo', 'slow', 'die', 'env', 'hang']]
if mode == 'huge tool': tools.append({'name': 'huge', 'description': 'x' * 200000, 'inputSchema': {'type': 'object'}})
if mode == 'huge list': tools.append({'name': 'huge', 'description': 'x' * 10000000, 'inputSchema': {'type': 'object'}})
if mode == 'dead': sys.exit(3)
if mode == 'endless':
    while True: sys.stdout.write('x' * 65536)
for line in sys.stdin:
    m = json.loads(line)
    if 'id' not in m or 'method' not in m: continue
    if mode == 'noisy':
        print('this is no message'); print('[]'); send({'jsonrpc': '2.0', 'id': m['id'] + 1000, 'result': {'wrong': True}}); send({'jsonrpc': '2.0', 'id': 'x', 'method': 'sampling/createMessage'})
    if m['method'] == 'initialize': send({'jsonrpc': '2.0', 'id': m['id'], 'result': {'protocolVersion': m['params']['protocolVersion'], 'capabilities': {'tools': {}}, 'serverInfo': {'name': 't', 'version': '1'}}})
    elif m['method'] == 'tools/list': send({'jsonrpc': '2.0', 'id': m['id'], 'result': {'tools': tools}})
    elif m['method'] == 'tools/call':
        name, args = m['params']['name'], m['params'].get('arguments', {})
        if name == 'die': sys.exit(9)
        if name == 'hang':
            while True:
                said = json.loads(sys.stdin.readline())
                if said.get('method') == 'notifications/cancelled' and said['params']['requestId'] == m['id']:
                    open('/tmp/cancelled', 'a').write('x'); break
            continue
        if name == 'slow':
            for i in (1, 2): send({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': {'progressToken': m['params']['_meta']['progressToken'], 'progress': i}}); time.sleep(0.3)
        text = args.get('text', '') if name != 'env' else os.environ.get('WHO', '') + os.environ.get('GATEWAY_ACCESS_TOKEN', '')
        send({'jsonrpc': '2.0', 'id': m['id'], 'result': {'content': [{'type': 'text', 'text': str(m['id'] > 0) + ':' + text}]}})
    else: send({'jsonrpc': '2.0', 'id': m['id'], 'error': {'code': -32601, 'message': 'no'}})
`
const entry = (mode = '', more = {}) => ({ runCmd: 'exec python3 /srv/test/server.py', envs: { MODE: mode }, ...more })

let server, Sandbox, template
before(async () => {
  server = await startServer()
  const built = await quicksand(server, ['template', 'build', 'mcp-gateway'])
  assert.equal(built.code, 0, built.stdout + built.stderr)
  ;({ Sandbox } = await loadSdk(server))
  const box = await Sandbox.create('mcp-gateway')
  await box.files.write('/srv/test/server.py', program, { user: 'root' })
  template = (await box.createSnapshot({ name: 'mcp-servers' })).snapshotId ?? 'mcp-servers'
  await box.kill()
})
after(() => server.destroy())

// By headers instead of the host name that the SDK tells: nobody resolves it here.
const open = (box, token, kind = 'sdk', options = {}) =>
  connect(`${server.url}/mcp`, kind, { headers: { Authorization: `Bearer ${token}`, 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '50005' }, ...options })
const create = (mcp, options = {}) => Sandbox.create(template, { mcp, ...options })
const text = (result) => result.content[0].text

describe('a gateway', () => {
  test('serves the tools of its servers, with its token only', async () => {
    const box = await create({ 'npm/one': entry('', { envs: { WHO: 'first' } }) })
    const token = await box.getMcpToken()
    assert.equal(await (await Sandbox.connect(box.sandboxId)).getMcpToken(), token)
    for (const [kind, options] of [['sdk', {}], ['client', {}], ['client', { versionNegotiation: { mode: { pin: '2026-07-28' } } }]]) {
      const { client } = await open(box, token, kind, options)
      assert.deepEqual((await client.listTools()).tools.map((tool) => tool.name), ['echo', 'slow', 'die', 'env', 'hang'])
      assert.equal(text(await client.callTool({ name: 'echo', arguments: { text: 'hi' } })), 'True:hi')
      assert.equal(text(await client.callTool({ name: 'env', arguments: {} })), 'True:first')
      const told = []
      await client.callTool({ name: 'slow', arguments: {} }, ...(kind === 'sdk' ? [undefined] : []), { onprogress: ({ progress }) => told.push(progress) })
      assert.deepEqual(told, [1, 2])
      await assert.rejects(client.callTool({ name: 'none', arguments: {} }), /no such tool/)
      await client.close()
    }
    await assert.rejects(open(box, 'wrong'))
    await box.kill()
  })

  test('two servers with the same tools, one of a repository; one that ends is started again', async () => {
    const prepared = await Sandbox.create(template)
    await prepared.commands.run('mkdir -p /srv/git/acme && cd /srv/git/acme && git init -q two && cd two && cp /srv/test/server.py . && git add . && git -c user.name=a -c user.email=a@b commit -qm one', { user: 'root' })
    await prepared.createSnapshot({ name: 'mcp-with-git' })
    await prepared.kill()
    const box = await Sandbox.create('mcp-with-git', {
      envs: { QUICKSAND_GIT_URL: 'file:///srv/git' },
      mcp: { 'npm/one': entry(), 'github/acme/two': { runCmd: 'exec python3 ready.py', installCmd: 'mv server.py ready.py' } },
    })
    const { client } = await open(box, await box.getMcpToken())
    const names = (await client.listTools()).tools.map((tool) => tool.name)
    assert.ok(names.includes('one_echo') && names.includes('two_echo') && !names.includes('echo'), names.join())
    const both = await Promise.all([...Array(20).keys()].map((i) => client.callTool({ name: i % 2 ? 'one_echo' : 'two_echo', arguments: { text: `${i}` } })))
    both.forEach((result, i) => assert.equal(text(result), `True:${i}`))
    await assert.rejects(client.callTool({ name: 'two_die', arguments: {} }), /does not work/)
    await eventually('it is there again', async () => (await client.callTool({ name: 'two_echo', arguments: { text: 'x' } }).catch(() => null)) !== null)
    assert.equal(text(await client.callTool({ name: 'one_echo', arguments: { text: 'y' } })), 'True:y')
    await client.close()
    await box.kill()
  })

  test('a cancellation reaches the server of its call, and no other call', async () => {
    const box = await create({ 'npm/one': entry(), 'npm/two': entry() })
    const token = await box.getMcpToken()
    const { client, transport } = await open(box, token)
    const { client: other, transport: otherTransport } = await open(box, token)
    assert.match(transport.sessionId, /^[0-9a-f]{32}$/)
    assert.notEqual(transport.sessionId, otherTransport.sessionId)
    const stop = new AbortController()
    const hanging = assert.rejects(client.callTool({ name: 'one_hang', arguments: {} }, undefined, { signal: stop.signal }))
    const post = (session, body) => fetch(`${server.url}/mcp`, { method: 'POST', body: JSON.stringify({ jsonrpc: '2.0', ...body }), headers: { Authorization: `Bearer ${token}`, 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '50005', 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': session } })
    const raw = post('of-the-tests', { id: 77, method: 'tools/call', params: { name: 'two_hang', arguments: {} } })
    for (const [session, requestId] of [['another', 77], ['of-the-tests', 78], ['of-the-tests', '77']]) assert.equal((await post(session, { method: 'notifications/cancelled', params: { requestId } })).status, 202)
    assert.equal(await Promise.race([raw.then(() => 'ended'), new Promise((done) => setTimeout(done, 300, 'runs'))]), 'runs')
    const noted = () => box.files.read('/tmp/cancelled').catch(() => '')
    assert.equal(await noted(), '')
    assert.equal((await post('of-the-tests', { method: 'notifications/cancelled', params: { requestId: 77 } })).status, 202)
    assert.equal((await (await raw).json()).error.code, -32800)
    await eventually('the server of it was told', async () => (await noted()) === 'x')
    stop.abort()
    await hanging
    await eventually('and the other one', async () => (await noted()) === 'xx')
    assert.equal(text(await other.callTool({ name: 'one_echo', arguments: { text: 'free' } })), 'True:free')
    await client.close()
    await other.close()
    await box.kill()
  })

  test('attacks at its port: no token, other paths, messages that are too large or too deep, a flood', async () => {
    const box = await create({ 'npm/test': entry() })
    const token = await box.getMcpToken()
    const post = (body, { path = '/mcp', bearer = token, headers = {} } = {}) =>
      server.request({ method: 'POST', path, body, headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '50005', 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...(bearer === null ? {} : { Authorization: `Bearer ${bearer}` }), ...headers } })
    const list = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} })
    assert.equal((await post(list)).status, 200)
    for (const bearer of [null, '', 'x', token.slice(0, -1), `${token}x`, token.toUpperCase() + 'A', `${token} ${token}`])
      assert.equal((await post(list, { bearer })).status, 401, `token ${bearer}`)
    for (const path of ['/', '/mcpx', '/mcp/x', '/MCP', '//mcp', '/mcp/..%2f', '/%6dcp', '/x/../mcp', '/.token', '/etc/mcp-gateway/.token'])
      assert.ok([400, 404].includes((await post(list, { path })).status), path)
    const large = await post(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { text: 'x'.repeat(9 << 20) } } })).catch(() => ({ status: 413 }))
    assert.equal(large.status, 413)
    for (const body of ['', '[]', '{', 'null', '['.repeat(100_000), JSON.stringify({ jsonrpc: '2.0', id: { a: 1 }, method: 'ping' }), list.replace('1,', '1e999,')])
      assert.ok((await post(body)).status >= 400, body.slice(0, 40))
    // Many at once without the token, while somebody who has it works.
    const flood = Array.from({ length: 600 }, () => post(list, { bearer: 'x' }).then((answer) => answer.status, () => 0))
    assert.equal((await post(list)).status, 200)
    const statuses = new Set(await Promise.all(flood))
    assert.ok(statuses.has(401) && !statuses.has(200), [...statuses].join())
    assert.equal((await post(list)).status, 200)
    await box.kill()
  })

  test('what cannot be had is refused by name', async () => {
    await assert.rejects(create({ exa: { apiKey: 'x' } }), /Failed to start MCP gateway.*'exa' of the catalogue.*npm\/PACKAGE/s)
    await assert.rejects(create({ 'github/a/../b': { runCmd: 'true' } }), /must be github\/OWNER\/REPO/)
    await assert.rejects(create({ 'github/a/b': {} }), /'runCmd' must be a command/)
    await assert.rejects(create({ 'npm/$(x)': {} }), /must be npm\/PACKAGE/)
    await assert.rejects(create({ 'npm/dead': entry('dead') }), /'npm\/dead' does not work: it has ended/)
    await assert.rejects(Sandbox.create('base', { mcp: { 'npm/one': entry() } }), /Failed to start MCP gateway/)
  })

  test('hostile servers: endless lines, tools that are too large, answers to nothing', async () => {
    await assert.rejects(create({ 'npm/endless': entry('endless') }), /longer than 8 MiB/)
    await assert.rejects(create({ 'npm/huge': entry('huge list') }), /longer than 8 MiB/)
    const box = await create({ 'npm/noisy': entry('noisy'), 'npm/huge': entry('huge tool') })
    const { client } = await open(box, await box.getMcpToken())
    const names = (await client.listTools()).tools.map((tool) => tool.name)
    assert.ok(!names.includes('huge'))
    assert.equal(text(await client.callTool({ name: 'noisy_echo', arguments: { text: 'hi' } })), 'True:hi')
    await client.close()
    await box.kill()
  })
})
