// Egress: the internet by default, none on request, and never the host, neighbours or private ranges.
import assert from 'node:assert/strict'
import http from 'node:http'
import net from 'node:net'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

let server, sdk, online, offline, hostListener
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  online = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  offline = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience, allowInternetAccess: false })
  hostListener = http.createServer((_, response) => response.end('the host')).listen(8099, '0.0.0.0')
})
after(async () => {
  hostListener.close()
  await server.destroy()
})

// `seconds`: how long nothing may come before it counts as out of reach.
const fetch = (sandbox, url, seconds = 4) => shell(sandbox, `curl -sS -m ${seconds} ${url}`, { timeoutMs: 20_000 })
const fetchPatiently = (sandbox, url) => fetch(sandbox, url, 4 * patience)

describe('online', () => {
  test('an address of the internet answers, and sees the host’s address', async () => {
    const result = await fetchPatiently(online, 'http://203.0.113.1/hello')
    assert.equal(result.exitCode, 0, result.stderr)
    assert.equal(JSON.parse(result.stdout).peer, '198.51.100.2')
  })

  test('names resolve', async () => {
    const result = await fetchPatiently(online, 'http://web.test/by-name')
    assert.equal(result.exitCode, 0, result.stderr)
    assert.equal(JSON.parse(result.stdout).host, 'web.test')
    const python = await shell(online, `python3 -c "import socket; print(socket.gethostbyname('web.test'))"`)
    assert.equal(python.stdout, '203.0.113.1\n', python.stderr)
    assert.notEqual((await shell(online, 'getent hosts nothing.test')).exitCode, 0)
  })

  test('a large answer is whole', async () => {
    const result = await shell(online, 'curl -sS "http://203.0.113.1/bytes?n=20000000" | wc -c')
    assert.equal(result.stdout.trim(), '20000000')
  })

  test('every fresh sandbox is online at once', async () => {
    const fresh = await Promise.all(Array.from({ length: 5 }, () => sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })))
    const results = await Promise.all(fresh.map((one) => fetchPatiently(one, 'http://web.test/')))
    await Promise.all(fresh.map((one) => one.kill()))
    for (const result of results) assert.equal(result.exitCode, 0, result.stderr)
  })
})

describe('out of reach for everyone', () => {
  const targets = [
    ['a private 10/8 address', '10.9.9.9'],
    ['a private 172.16/12 address', '172.16.5.5'],
    ['a private 192.168/16 address', '192.168.77.1'],
    ['the shared 100.64/10 range', '100.64.3.3'],
    ['link-local metadata', '169.254.169.254'],
    ['the benchmark range', '198.18.0.9'],
    ['a name that resolves to a private address', 'inside.test'],
    ['a name that resolves to the metadata address', 'metadata.test'],
  ]
  for (const [name, host] of targets) {
    test(name, async () => {
      const result = await fetch(online, `http://${host}/`)
      assert.notEqual(result.exitCode, 0, `${host} answered: ${result.stdout}`)
    })
  }

  test('the host, by its uplink address and by the sandbox’s own gateway', async () => {
    const gateway = (await shell(online, "ip route show default | awk '{print $3}'")).stdout.trim()
    for (const host of ['198.51.100.2', gateway].filter(Boolean)) {
      for (const port of [8099, server.port, 22]) {
        const result = await fetch(online, `http://${host}:${port}/`)
        assert.notEqual(result.exitCode, 0, `${host}:${port} answered: ${result.stdout}`)
      }
    }
  })

  test('the host’s loopback', async () => {
    const local = http.createServer((_, response) => response.end('loopback of the host')).listen(8098, '127.0.0.1')
    const result = await fetch(online, 'http://127.0.0.1:8098/')
    local.close()
    assert.notEqual(result.exitCode, 0, result.stdout)
  })

  test('a neighbour, by its address', async () => {
    const address = (await shell(offline, "ip -4 -o address show scope global | awk '{print $4}' | cut -d/ -f1")).stdout.trim()
    const own = (await shell(online, "ip -4 -o address show scope global | awk '{print $4}' | cut -d/ -f1")).stdout.trim()
    assert.match(own, /^\d+\.\d+\.\d+\.\d+$/)
    const web = await online.commands.run('python3 -m http.server 8000 --bind 0.0.0.0', { background: true })
    const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 * patience })
    const result = await fetch(other, `http://${own}:8000/`)
    assert.notEqual(result.exitCode, 0, `reached ${own}: ${result.stdout}`)
    if (address) assert.notEqual((await shell(other, `ping -c1 -W1 ${address}`)).exitCode, 0)
    assert.notEqual((await shell(other, `ping -c1 -W1 ${own}`)).exitCode, 0)
    await web.kill()
    await other.kill()
  })

  test('a forged source address gets no answer', async () => {
    await shell(online, 'ip address add 10.200.200.200/32 dev eth0', { user: 'root' })
    const result = await shell(online, 'curl -sS -m 3 --interface 10.200.200.200 http://203.0.113.1/', { user: 'root' })
    assert.notEqual(result.exitCode, 0, result.stdout)
  })

  test('nothing from outside reaches a sandbox by its address', async () => {
    const own = (await shell(online, "ip -4 -o address show scope global | awk '{print $4}' | cut -d/ -f1")).stdout.trim()
    const web = await online.commands.run('python3 -m http.server 8001 --bind 0.0.0.0', { background: true })
    await eventually('it serves', async () => (await shell(online, `curl -sS -m ${2 * patience} http://${own}:8001/`)).exitCode === 0)
    const reached = await new Promise((done) => {
      const socket = net.connect({ host: own, port: 8001 })
      socket.setTimeout(1500, () => socket.destroy())
      socket.on('connect', () => (socket.destroy(), done(true)))
      socket.on('error', () => done(false))
      socket.on('close', () => done(false))
    })
    assert.equal(reached, false)
    await web.kill()
  })
})

describe('offline', () => {
  test('no address, no name, no ping', async () => {
    for (const command of ['curl -sS -m 3 http://203.0.113.1/', 'curl -sS -m 3 http://web.test/', 'ping -c1 -W2 203.0.113.1', 'getent hosts web.test']) {
      const result = await shell(offline, command, { timeoutMs: 30_000 })
      assert.notEqual(result.exitCode, 0, `${command}: ${result.stdout}`)
    }
    const udp = await shell(offline, `python3 -c "
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(2)
s.sendto(bytes.fromhex('000101000001000000000000037765620474657374000001 0001'.replace(' ','')),('203.0.113.53',53))
print(len(s.recv(500)))"`)
    assert.notEqual(udp.exitCode, 0, udp.stdout)
  })

  test('root inside cannot change that', async () => {
    const result = await shell(offline, 'ip link set eth0 up; ip route replace default dev eth0; nft flush ruleset; iptables -F; curl -sS -m 3 http://203.0.113.1/', { user: 'root', timeoutMs: 30_000 })
    assert.notEqual(result.exitCode, 0, result.stdout)
  })

  test('ports inside are still reachable from outside through the proxy', async () => {
    const web = await offline.commands.run('python3 -m http.server 8000', { background: true })
    await eventually('the page', async () => (await server.sandbox(offline.sandboxId, 8000, '/')).status === 200)
    await web.kill()
  })

  test('getInfo says so', async () => {
    const info = await server.api('GET', `/sandboxes/${offline.sandboxId}`)
    assert.equal(info.body.allowInternetAccess, false)
  })
})

describe('changed at run time', () => {
  test('off and on again, through a pause and a cold boot', async () => {
    const sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
    const reach = async (ask = fetch) => (await ask(sandbox, 'http://203.0.113.1/')).exitCode === 0
    assert.ok(await reach(fetchPatiently))
    await sandbox.updateNetwork({ allowInternetAccess: false })
    assert.ok(!(await reach()))
    assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
    await sandbox.pause()
    assert.equal((await server.api('PUT', `/sandboxes/${sandbox.sandboxId}/network`, {})).status, 409)
    await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 * patience })
    assert.ok(!(await reach()))
    await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory: false })
    await sdk.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 * patience })
    assert.ok(!(await reach()))
    await sandbox.updateNetwork({})
    assert.ok(await reach(fetchPatiently))
    await sandbox.updateNetwork({ denyOut: ['0.0.0.0/0'] })
    assert.ok(!(await reach()))
    const { logs } = (await server.api('GET', `/v2/sandboxes/${sandbox.sandboxId}/logs`)).body
    assert.deepEqual(logs.filter((one) => /^Internet access/.test(one.message)).map((one) => one.message.split(' ').at(-1)), ['off', 'on', 'off'])
    await sandbox.kill()
  })

  test('everything can be denied at create as by an update, is told, and stays so', async () => {
    for (const body of [{ network: { denyOut: ['0.0.0.0/0'] } }, { allow_internet_access: true, network: { denyOut: ['10.0.0.0/8', '0.0.0.0/0'], allowOut: [] } }]) {
      const { sandboxID, envdAccessToken } = await server.create({ secure: true, ...body })
      const target = `/sandboxes/${sandboxID}`
      const network = async () => (await server.api('GET', target)).body
      const reach = async (ask = fetch) => (await ask(await sdk.Sandbox.connect(sandboxID), 'http://203.0.113.1/')).exitCode === 0
      const denied = async () => {
        const info = await network()
        assert.deepEqual([info.network.denyOut, info.allowInternetAccess], [body.network.denyOut, false])
        assert.equal(await reach(), false)
      }
      assert.ok(envdAccessToken)
      await denied()
      for (const memory of [true, false]) {
        await server.api('POST', `${target}/pause`, { memory })
        assert.deepEqual((await network()).network.denyOut, body.network.denyOut)
        assert.ok((await server.api('POST', `${target}/connect`, { timeout: 300 * patience })).status < 300)
        await denied()
      }
      await server.restart()
      await denied()
      assert.equal((await server.api('PUT', `${target}/network`, {})).status, 204)
      assert.equal((await network()).network.denyOut, undefined)
      assert.equal(await reach(fetchPatiently), true)
      await server.api('DELETE', target)
    }
    for (const [status, network] of [[400, { rules: { 'a.test': [{ transform: { headers: { A: '${e2b.secrets.none}' } } }] } }], [400, { denyOut: ['a.test'] }], [400, { allowOut: ['a.test'] }], [400, { denyOut: '0.0.0.0/0' }]]) {
      const answer = await server.api('POST', '/sandboxes', { templateID: 'base', network })
      assert.equal(answer.status, status, `${JSON.stringify(network)}: ${answer.text}`)
    }
  })

  test('what cannot be enforced is refused, not ignored', async () => {
    const { sandboxID } = await server.create()
    const put = (body) => server.api('PUT', `/sandboxes/${sandboxID}/network`, body)
    for (const body of [{ rules: { 'a.test': [{ transform: { headers: { A: '${e2b.secrets.none}' } } }] } }, { rules: 'x' }, { egressProxy: { address: 'x' } }, { denyOut: ['a.test'] }, { denyOut: ['1.1.1.1/33'] }, { denyOut: 'x' }, { allowOut: ['a.test'] }, { allowOut: [1] }, { allow_internet_access: 'no' }, []]) {
      assert.equal((await put(body)).status, 400, JSON.stringify(body))
    }
    assert.match((await put({ denyOut: ['a.test'] })).body.message, /^invalid denied CIDR a\.test/)
    assert.equal((await server.api('PUT', '/sandboxes/i0000000000000000000/network', {})).status, 404)
    await server.api('DELETE', `/sandboxes/${sandboxID}`)
  })
})
