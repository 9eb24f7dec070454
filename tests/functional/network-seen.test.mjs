// What is seen of the way out: refusals of the gateway's rules in the log, what passed in the metrics; and what holds while one of the
// processes is gone. The internet is that of the lab (tests/harness/world.mjs).
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const WEB = '203.0.113.1', OTHER = '203.0.113.2', EVERYTHING = '0.0.0.0/0'
let server, sdk
before(async () => {
  server = await startServer({ args: ['--allow-private', '10.0.0.0/8'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

async function create(network, more = {}) {
  const answer = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 300 * patience, network, ...more })
  assert.equal(answer.status, 201, answer.text)
  return sdk.Sandbox.connect(answer.body.sandboxID)
}
const curl = (sandbox, args) => shell(sandbox, `curl -sSk -m ${8 * patience} ${args}`, { timeoutMs: 30_000 * patience })
const python = (sandbox, code) => shell(sandbox, `python3 - <<'EOP'\n${code}\nEOP`, { timeoutMs: 30_000 * patience })
const logs = async (sandbox) => (await server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs?limit=1000`)).body.logs.filter((one) => one.fields.event === 'network').map((one) => ({ level: one.level, message: one.message, at: Date.parse(one.timestamp), ...one.fields }))
const logged = (sandbox, what) => eventually(`a line in the log with ${JSON.stringify(what)}`, async () => (await logs(sandbox)).find((one) => Object.entries(what).every(([key, value]) => one[key] === value)))
// Those of this server, whose processes see the same network as the test.
const egressPids = () => fs.readdirSync('/proc').map(Number).filter((pid) => {
  try {
    return pid && fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('quicksand\0serve-egress') && fs.readlinkSync(`/proc/${Number(fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[1])}/ns/net`) === fs.readlinkSync('/proc/self/ns/net')
  } catch {
    return false
  }
})

describe('packets that the rules refuse are in the log', () => {
  test('with time, address, port, protocol and rule, each in its own sandbox', async () => {
    const begin = Date.now()
    const sandbox = await create({ allowOut: [WEB], denyOut: [OTHER, '203.0.113.0/28'] }), neighbour = await create()
    const cases = [
      [`curl -m 3 http://${OTHER}:8080/`, { address: OTHER, port: 8080, protocol: 'tcp', rule: OTHER }, /the address is denied/],
      ['curl -m 3 http://203.0.113.9/', { address: '203.0.113.9', port: 80, protocol: 'tcp', rule: '203.0.113.0/28' }, /the address is denied/],
      ['curl -m 3 http://169.254.169.254/', { address: '169.254.169.254', port: 80, protocol: 'tcp', rule: '' }, /not of the internet/],
      [`nc -u -w1 192.168.77.1 5353 <<<x`, { address: '192.168.77.1', port: 5353, protocol: 'udp', rule: '' }, /not of the internet/],
      [`ping -c1 -W1 ${OTHER}`, { address: OTHER, port: 0, protocol: 'icmp', rule: OTHER }, /the address is denied/],
    ]
    for (const [command, line, reason] of cases) {
      await shell(sandbox, `bash -c "${command}"`, { timeoutMs: 30_000 * patience })
      const found = await logged(sandbox, { ...line, verdict: 'denied' })
      assert.match(found.reason, reason)
      assert.equal(found.level, 'warn')
      assert.ok(found.at >= begin - 1000 && found.at <= Date.now() + 1000, `${found.at}`)
    }
    assert.equal((await curl(sandbox, `http://${WEB}/`)).exitCode, 0)
    assert.deepEqual((await logs(sandbox)).filter((one) => one.address === WEB), [])
    assert.deepEqual(await logs(neighbour), [])
    const shown = spawnSync(binary, ['logs', '--network', sandbox.sandboxId], { encoding: 'utf8', env: { ...process.env, QUICKSAND_URL: server.url, QUICKSAND_API_KEY: server.key } }).stdout
    assert.match(shown, /denied +tcp +- +203\.0\.113\.2 +8080 +203\.0\.113\.2 +the address is denied/)
    await sandbox.kill()
    await neighbour.kill()
  })

  test('of sandboxes that reach nothing, and of those with names', async () => {
    const closed = await create(undefined, { allow_internet_access: false }), named = await create({ allowOut: ['web.test'], denyOut: [EVERYTHING] })
    await curl(closed, `http://${WEB}/`)
    await logged(closed, { address: WEB, port: 80, protocol: 'tcp', verdict: 'denied', rule: EVERYTHING })
    await shell(named, `bash -c 'echo x > /dev/udp/${WEB}/443'`)
    const line = await logged(named, { address: WEB, port: 443, protocol: 'udp', verdict: 'denied', rule: EVERYTHING })
    assert.match(line.reason, /names are reached by TCP only/)
    await closed.kill()
    await named.kill()
  })

  test('some of them, when there are many', async () => {
    const sandbox = await create({ denyOut: [OTHER] })
    await python(sandbox, `
import socket
for i in range(1000):
    s = socket.socket(); s.connect_ex(('${OTHER}', 1000 + i)); s.close()`)
    const lines = await eventually('many lines', async () => { const all = await logs(sandbox); return all.length > 50 && all })
    assert.ok(lines.length < 500, `${lines.length} lines`)
    await sandbox.kill()
  })
})

describe('what passed is in the metrics', () => {
  const BYTES = 2_000_000
  const used = (sandbox, enough) => eventually('the sample after it', async () => {
    const { body } = await server.api('GET', `/sandboxes/${sandbox.sandboxId}/metrics`)
    return enough(body.at(-1)) && body.at(-1)
  }, 20_000 * patience)

  for (const [kind, network, host] of [['directly', undefined, WEB], ['through the egress process', { allowOut: ['web.test'], denyOut: [EVERYTHING] }, 'web.test']])
    test(kind, async () => {
      const sandbox = await create(network), neighbour = await create(network)
      for (let i = 0; i < 5; i++) assert.equal((await curl(sandbox, `'http://${host}/bytes?n=${BYTES}' -o /dev/null`)).exitCode, 0)
      assert.equal((await curl(sandbox, `-F x=@/usr/bin/curl http://${host}/ -o /dev/null`)).exitCode, 0)
      for (let i = 0; i < 3; i++) await curl(sandbox, 'http://192.168.77.1/')
      // The sample after all of it: one may come in between.
      const one = await used(sandbox, (sample) => sample.networkReceived > 5 * BYTES && sample.networkSent > 20_000 && sample.networkConnections >= 6 && (network || sample.networkRefused >= 3))
      assert.ok(one.networkReceived < 5 * BYTES * 1.2, JSON.stringify(one))
      assert.ok(one.networkSent > 20_000 && one.networkSent < 3_000_000, JSON.stringify(one))
      assert.ok(one.networkConnections >= 6 && one.networkConnections < 40, JSON.stringify(one))
      if (!network) assert.equal(one.networkRefused, 3)
      const other = await used(neighbour, (sample) => sample)
      assert.ok(other.networkReceived < 100_000 && other.networkRefused === 0, JSON.stringify(other))
      const text = (await server.api('GET', '/metrics')).text
      const of = (name) => Number(text.match(new RegExp(`^quicksand_sandbox_network_${name}_total{sandbox="${sandbox.sandboxId}"} (\\d+)$`, 'm'))?.[1])
      assert.ok(of('received_bytes') >= one.networkReceived && of('connections') >= one.networkConnections, text)
      assert.ok(Number(text.match(/^quicksand_network_received_bytes_total (\d+)$/m)[1]) >= of('received_bytes'))
      // Through a pause to disk, after which the box is another one, nothing is lost.
      assert.ok(await sandbox.pause())
      await sdk.Sandbox.connect(sandbox.sandboxId)
      await curl(sandbox, `http://${host}/`)
      const later = await used(sandbox, (sample) => sample.networkConnections > one.networkConnections)
      assert.ok(later.networkReceived >= one.networkReceived)
      for (const one of [sandbox, neighbour]) await one.kill()
      await eventually('its lines to go', async () => !(await server.api('GET', '/metrics')).text.includes(sandbox.sandboxId), 20_000 * patience)
      assert.ok(Number((await server.api('GET', '/metrics')).text.match(/^quicksand_network_received_bytes_total (\d+)$/m)[1]) >= later.networkReceived)
    })

  test('of the runtime', async () => {
    const made = await server.api('POST', '/api/v1/sandboxes', { key: 'counted' })
    assert.ok([200, 201].includes(made.status), made.text)
    const id = made.body.id ?? made.body.sandbox?.id
    const counts = await server.api('GET', `/api/v1/sandboxes/${id}/network`)
    assert.equal(counts.status, 200, counts.text)
    assert.deepEqual(Object.keys(counts.body).sort(), ['connections', 'received_bytes', 'received_packets', 'refused', 'sent_bytes', 'sent_packets'])
    await server.api('DELETE', `/api/v1/sandboxes/${id}`)
  })
})

describe('private ranges that the operator opened', () => {
  test('are reached by name too, but no other sandbox is', async () => {
    const sandbox = await create({ allowOut: ['inside.test'], denyOut: [EVERYTHING] })
    const result = await curl(sandbox, 'http://inside.test/')
    assert.equal(result.exitCode, 0, result.stderr)
    assert.equal(JSON.parse(result.stdout).host, 'inside.test')
    await logged(sandbox, { name: 'inside.test', address: '10.9.9.9', verdict: 'allowed' })
    assert.notEqual((await curl(sandbox, 'http://metadata.test/')).exitCode, 0)
    const open = await create({ allowOut: ['10.0.0.0/8', '*.test'], denyOut: [EVERYTHING] }), neighbour = await create()
    await shell(neighbour, 'nohup python3 -m http.server 8000 --bind 0.0.0.0 >/dev/null 2>&1 &')
    const address = (await python(neighbour, `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('${WEB}', 9)); print(s.getsockname()[0])`)).stdout.trim()
    assert.match(address, /^10\.213\./)
    assert.equal((await curl(open, `http://${address}:8000/`)).exitCode, 7)
    for (const one of [sandbox, open, neighbour]) await one.kill()
  })
})

describe('without the egress process', () => {
  test('its clients are refused at once', async () => {
    const sandbox = await create({ allowOut: ['web.test'], denyOut: [EVERYTHING] })
    assert.equal((await curl(sandbox, 'http://web.test/')).exitCode, 0)
    const gone = new Set()
    const end = async () => {
      const pid = await eventually('the process', () => egressPids().find((one) => !gone.has(one)), 20_000 * patience)
      gone.add(pid)
      process.kill(pid, 'SIGKILL')
      await eventually('its end', () => !egressPids().includes(pid)) // until then its sockets listen
    }
    const attempt = `
import socket, time
def tell(kind, port, what):
    begin = time.time()
    s = socket.socket(socket.AF_INET, kind); s.settimeout(20)
    try:
        s.connect(('${WEB}', port)); s.send(b'x' * 40); s.recv(1); how = 'answered'
    except ConnectionError as e: how = type(e).__name__
    except Exception as e: how = repr(e)
    print(what, how, time.time() - begin < 0.7)
tell(socket.SOCK_STREAM, 80, 'web')
tell(socket.SOCK_DGRAM, 53, 'dns')
tell(socket.SOCK_STREAM, 53, 'dns')`
    // Each start waits longer than the last, so that there is a time without one; on a slow machine later than on others.
    let result
    for (let i = 0; i < 14; i++) {
      await end()
      if (i < 7) continue
      result = await python(sandbox, attempt)
      if (!egressPids().some((pid) => !gone.has(pid))) break
    }
    assert.deepEqual(egressPids().filter((pid) => !gone.has(pid)), [], 'it was there again too early for this test')
    assert.equal(result.stdout, 'web ConnectionRefusedError True\ndns ConnectionRefusedError True\ndns ConnectionRefusedError True\n', result.stderr)
    await eventually('it works again', async () => (await curl(sandbox, 'http://web.test/')).exitCode === 0, 30_000 * patience)
    await shell(sandbox, `curl -sk -m 3 http://192.168.77.1/`)
    await logged(sandbox, { address: '192.168.77.1', verdict: 'denied' })
    await sandbox.kill()
  })
})
