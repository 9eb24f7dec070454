// Lists of addresses: what they allow and refuse, both ways, through everything that can happen to a sandbox, and against tricks with packets.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const WEB = '203.0.113.1', DNS = '203.0.113.53', EVERYTHING = '0.0.0.0/0'
const life = { timeoutMs: 300_000 * patience }
let server, sdk
before(async () => {
  server = await startServer({ args: ['--allow-private', '172.16.5.0/24'] })
  sdk = await loadSdk(server)
})
after(() => server.destroy())

const fetch = (sandbox, host, seconds = 4) => shell(sandbox, `curl -sS -m ${seconds * patience} http://${host}/`, { timeoutMs: 30_000 * patience })
const reaches = async (sandbox, host = WEB) => (await fetch(sandbox, host)).exitCode === 0
// 7: the connection was refused; 28 would be a timeout.
const refused = async (sandbox, host = WEB) => {
  const { exitCode, stdout } = await fetch(sandbox, host)
  assert.equal(exitCode, 7, `${host}: curl ended with ${exitCode}, ${stdout}`)
}
const udp = (sandbox, host, port = 53) => shell(sandbox, `python3 -c "
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(3); s.connect(('${host}',${port}))
s.send(bytes.fromhex('0001010000010000000000000377656204746573740000010001'))
print(len(s.recv(500)))"`)

describe('lists at create', () => {
  test('what is denied is refused at once; the rest is reached', async () => {
    const sandbox = await sdk.Sandbox.create('base', { ...life, network: { denyOut: [WEB] } })
    await refused(sandbox)
    assert.equal((await udp(sandbox, DNS)).exitCode, 0)
    assert.deepEqual((await sandbox.getInfo()).network.denyOut, [WEB])
    await sandbox.kill()
  })

  test('what is allowed beats what is denied, by address and by range', async () => {
    for (const [allowOut, denyOut] of [[[WEB], ['203.0.113.0/24']], [[`${WEB}/32`], [WEB]], [['203.0.112.0/23'], [EVERYTHING]], [['::ffff:203.0.113.1'], [EVERYTHING]]]) {
      const sandbox = await sdk.Sandbox.create('base', { ...life, network: { allowOut, denyOut } })
      assert.ok(await reaches(sandbox), JSON.stringify([allowOut, denyOut]))
      const { network } = await sandbox.getInfo()
      assert.deepEqual([network.allowOut, network.denyOut], [allowOut, denyOut])
      await sandbox.kill()
    }
  })

  test('nothing but what is allowed: no other address, port or protocol, no DNS', async () => {
    const sandbox = await sdk.Sandbox.create('base', { ...life, allowInternetAccess: false, network: { allowOut: ['198.51.100.1'] } })
    await refused(sandbox)
    const tricks = [
      `curl -sS -m 3 http://${WEB}:53/`, 'curl -sS -m 3 http://[::ffff:203.0.113.1]/', 'curl -sS -m 3 http://0xcb007101/',
      'curl -6 -sS -m 3 http://[2001:db8::1]/', `ping -c1 -W2 ${WEB}`, 'getent hosts web.test', 'ping -c1 -W2 169.254.0.1',
      `curl -sS -m 3 --interface lo http://${WEB}/`, `nc -u -w1 ${WEB} 443 </dev/zero | head -c1 | grep -q .`,
      // A datagram in fragments is judged as one.
      `python3 -c "
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2); s.connect(('${DNS}',53)); s.send(b'x'*6000); s.recv(1)"`,
    ]
    for (const trick of tricks) assert.notEqual((await shell(sandbox, trick, { user: 'root', timeoutMs: 30_000 * patience })).exitCode, 0, trick)
    assert.notEqual((await udp(sandbox, DNS)).exitCode, 0)
    // Other protocols, by raw sockets that root inside has.
    const raw = await shell(sandbox, `python3 -c "
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_RAW,47); s.settimeout(1); s.sendto(b'x'*20,('${WEB}',0)); s.recv(1)"`, { user: 'root' })
    assert.notEqual(raw.exitCode, 0)
    await sandbox.kill()
  })

  test('no list opens what is always closed; the operator does', async () => {
    const allowOut = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '169.254.169.254', '198.51.100.2', '100.64.0.0/10']
    const sandbox = await sdk.Sandbox.create('base', { ...life, network: { allowOut, denyOut: [EVERYTHING] } })
    for (const host of ['10.9.9.9', '192.168.77.1', '169.254.169.254', '100.64.3.3', '198.51.100.2:22']) await refused(sandbox, host)
    assert.ok(await reaches(sandbox, '172.16.5.5'), 'the range of --allow-private')
    await sandbox.updateNetwork({ denyOut: ['172.16.5.5'] })
    await refused(sandbox, '172.16.5.5')
    await sandbox.kill()
  })
})

describe('kept', () => {
  test('through pauses of both kinds, restarts, forks and live changes', async () => {
    const network = { allowOut: [WEB], denyOut: [EVERYTHING] }
    const sandbox = await sdk.Sandbox.create('base', { ...life, network })
    const check = async (one = sandbox) => {
      assert.ok(await reaches(one))
      await refused(one, '198.51.100.1')
      const info = await server.api('GET', `/sandboxes/${one.sandboxId}`)
      assert.deepEqual([info.body.network.allowOut, info.body.network.denyOut], [network.allowOut, network.denyOut])
    }
    await check()
    for (const memory of [true, false]) {
      await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory })
      await sdk.Sandbox.connect(sandbox.sandboxId, life)
      await check()
    }
    await server.restart()
    await check()
    const forks = (await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 1, timeout: 300 })).body
    const fork = await sdk.Sandbox.connect((forks[0].sandbox ?? forks[0]).sandboxID, life)
    await check(fork)
    await fork.kill()
    network.allowOut = ['198.51.100.0/24', WEB]
    network.denyOut = ['203.0.113.0/24', EVERYTHING]
    await sandbox.updateNetwork({ allowOut: network.allowOut, denyOut: network.denyOut })
    assert.ok(await reaches(sandbox))
    await sandbox.updateNetwork({})
    assert.ok(await reaches(sandbox))
    const cleared = (await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)).body.network
    assert.deepEqual([cleared.allowOut, cleared.denyOut], [undefined, undefined])
    const { logs } = (await server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs`)).body
    assert.deepEqual(logs.filter((one) => /^(Internet|Network)/.test(one.message)).map((one) => one.message), ['Network rules changed', 'Internet access turned on'])
    await sandbox.kill()
  })

  test('warm, blank and new boxes have it before their first program runs', async () => {
    const made = await Promise.all(Array.from({ length: 8 }, () => sdk.Sandbox.create('base', { ...life, network: { denyOut: ['203.0.113.0/24'] } })))
    await Promise.all(made.map((one) => refused(one)))
    await Promise.all(made.map((one) => one.kill()))
    // Whoever comes next into their slots has nothing of it.
    const next = await Promise.all(Array.from({ length: 8 }, () => sdk.Sandbox.create('base', life)))
    for (const one of next) assert.ok(await reaches(one))
    await Promise.all(next.map((one) => one.kill()))
  })
})

describe('changed during a connection', () => {
  test('what is no longer allowed ends, what still is goes on', async () => {
    const sandbox = await sdk.Sandbox.create('base', life)
    await shell(sandbox, `cat >/tmp/hold.py <<'X'
import socket,sys,time
s=socket.create_connection((sys.argv[1],80)); s.settimeout(0.2); open('/tmp/up-'+sys.argv[1],'w').close()
for i in range(600):
    try:
        s.send(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
        while s.recv(65536): pass
    except TimeoutError: pass
    except OSError as e: open('/tmp/cut-'+sys.argv[1],'w').write(str(time.time())); break
    time.sleep(0.01)
X`)
    const kept = await sandbox.commands.run('python3 /tmp/hold.py 198.51.100.1', { background: true, timeoutMs: 0 })
    const cut = await sandbox.commands.run(`python3 /tmp/hold.py ${WEB}`, { background: true, timeoutMs: 0 })
    await eventually('both are connected', async () => (await shell(sandbox, `ls /tmp/up-${WEB} /tmp/up-198.51.100.1`)).exitCode === 0)
    const before = Date.now()
    await sandbox.updateNetwork({ denyOut: [WEB] })
    const took = Date.now() - before
    await eventually('it is cut', async () => (await shell(sandbox, `cat /tmp/cut-${WEB}`)).exitCode === 0)
    assert.ok(took < 1000 * patience, `the change took ${took} ms`)
    assert.notEqual((await shell(sandbox, 'ls /tmp/cut-198.51.100.1')).exitCode, 0)
    await Promise.allSettled([kept.kill(), cut.kill()])
    await sandbox.kill()
  })

  test('a thousand rules are taken, hold, and are changed at once', async () => {
    const many = (base) => Array.from({ length: 999 }, (_, i) => `${base}.${i >> 8}.${i & 255}`)
    const sandbox = await sdk.Sandbox.create('base', { ...life, network: { denyOut: [...many('198.19'), WEB] } })
    await refused(sandbox)
    const before = Date.now()
    await sandbox.updateNetwork({ allowOut: [...many('192.0'), WEB], denyOut: [EVERYTHING] })
    const took = Date.now() - before
    assert.ok(await reaches(sandbox))
    assert.ok(took < 500 * patience, `the change took ${took} ms`)
    const tooMany = await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, { denyOut: [...many('198.19'), WEB, DNS] })
    assert.equal(tooMany.status, 400)
    assert.match(tooMany.body.message, /at most 1000/)
    await sandbox.kill()
  })
})

test('what is wrong is refused by name, and what is right is taken', async () => {
  const { sandboxID } = await server.create()
  const put = async (body) => (await server.api('PUT', `/sandboxes/${sandboxID}/network`, body)).status
  const wrong = [
    { denyOut: ['example.com'] }, { denyOut: ['1.2.3.4/33'] }, { denyOut: ['*.example.com'] }, { denyOut: [''] }, { allowOut: ['example.com'] },
    { allowOut: ['example.com'], denyOut: ['8.8.8.8'] }, { allowOut: ['not a domain'], denyOut: [EVERYTHING] }, { allowOut: {} },
  ]
  for (const body of wrong) assert.equal(await put(body), 400, JSON.stringify(body))
  const right = [
    {}, { allowOut: [] }, { denyOut: [] }, { allowOut: ['8.8.8.8'] }, { denyOut: ['8.8.8.8'] }, { denyOut: ['8.8.8.0/24'] }, { allowOut: ['1.1.1.1'], denyOut: [EVERYTHING] },
    { denyOut: [EVERYTHING] }, { allow_internet_access: false }, { allow_internet_access: true, denyOut: ['2001:db8::/32'] }, { rules: {} },
  ]
  for (const body of right) assert.equal(await put(body), 204, JSON.stringify(body))
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
})
