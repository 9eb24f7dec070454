// Rules: headers with secrets that requests get outside of the sandbox, by HTTPS and HTTP, for curl, Node and Python; who sees
// them and who does not, through all that can happen to a sandbox and to a secret; a proxy of the user's own.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import readline from 'node:readline'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

const EVERYTHING = '0.0.0.0/0'
const life = { timeoutMs: 300_000 * patience }
const HOST = 'api.allowed.test'
const value = `hush-${crypto.randomBytes(12).toString('hex')}`

// In the world: HTTPS on 9443, HTTP on 9080, a SOCKS5 proxy on 9050. What comes is told on stdout, and not to who asks.
const program = `
const fs = require('node:fs'), http = require('node:http'), https = require('node:https'), net = require('node:net')
const folder = process.argv[1], tell = (what) => console.log(JSON.stringify(what))
const answer = (request, response) => {
  tell({ url: request.url, headers: request.headers })
  response.end('seen')
}
const serve = (server, port) => new Promise((resolve) => server.listen(port, '0.0.0.0', resolve))
const pem = (name) => fs.readFileSync(folder + '/' + name)
// User name and password, then CONNECT to an address or a name.
const socks = net.createServer((client) => {
  let state = 0
  client.on('error', () => {})
  const take = (data) => {
    if (state === 0) { state = 1; client.write(Buffer.from([5, data.includes(2, 2) ? 2 : 0])); if (!data.includes(2, 2)) state = 2 }
    else if (state === 1) {
      const user = data.subarray(2, 2 + data[1]).toString(), at = 2 + data[1]
      tell({ socks: user, password: data.subarray(at + 1, at + 1 + data[at]).toString() })
      state = 2
      client.write(Buffer.from([1, 0]))
    } else {
      client.off('data', take)
      const name = data[3] === 3 ? data.subarray(5, 5 + data[4]).toString() : null
      const port = data.readUInt16BE(data.length - 2)
      tell({ socks: 'connect', name, port })
      const server = net.connect(port, name ? '203.0.113.1' : data.subarray(4, 8).join('.'), () => {
        client.write(Buffer.from([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))
        client.pipe(server).pipe(client)
      })
      server.on('error', () => client.destroy())
    }
  }
  client.on('data', take)
})
Promise.all([serve(https.createServer({ cert: pem('leaf.pem'), key: pem('leaf.key') }, answer), 9443), serve(http.createServer(answer), 9080), serve(socks, 9050)])
  .then(() => tell({ ready: true }))
`

let server, sdk, world, folder
const seen = []
const inWorld = (argv, options) => spawn('nsenter', [`--net=/proc/${process.env.QUICKSAND_LAB_WORLD}/ns/net`, ...argv], options)

function makeCertificates() {
  const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' })
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'ca.key', '-out', 'ca.pem', '-days', '2', '-subj', '/CN=the world', '-addext', 'basicConstraints=critical,CA:TRUE')
  openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'leaf.key', '-out', 'leaf.csr', '-subj', '/CN=leaf')
  fs.writeFileSync(path.join(folder, 'names'), 'subjectAltName=DNS:allowed.test,DNS:*.allowed.test\n')
  openssl('x509', '-req', '-in', 'leaf.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2', '-out', 'leaf.pem', '-extfile', 'names')
}

before(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'secrets-'))
  fs.chmodSync(folder, 0o755)
  makeCertificates()
  world = inWorld([process.execPath, '-e', program, folder], { stdio: ['ignore', 'pipe', 'inherit'] })
  readline.createInterface({ input: world.stdout }).on('line', (line) => seen.push(JSON.parse(line)))
  await eventually('the world serves', () => seen.some((one) => one.ready))
  server = await startServer({ args: ['--egress-ca', path.join(folder, 'ca.pem')] })
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  await sdk.Secret.create('key', value)
})
after(async () => {
  world?.kill()
  await server?.destroy()
  fs.rmSync(folder, { recursive: true, force: true })
})

const run = (sandbox, command) => shell(sandbox, command, { timeoutMs: 60_000 * patience })
const fill = (name = 'key') => ({ 'X-Key': `Bearer ${sdk.Secret.fill(name)}` })
const rules = (headers = fill()) => ({ [HOST]: [{ transform: { headers } }] })
const closed = (more = {}) => ({ allowOut: ['*.allowed.test'], denyOut: [EVERYTHING], rules: rules(), ...more })

// What the server in the world saw of one request.
async function ask(sandbox, command) {
  const mark = crypto.randomBytes(6).toString('hex')
  const result = await run(sandbox, command.replaceAll('MARK', mark))
  assert.equal(result.exitCode, 0, `${command}: ${result.stderr}${result.stdout}`)
  assert.ok(!`${result.stdout}${result.stderr}`.includes(value))
  return eventually('the request', () => seen.find((one) => one.url === `/${mark}`)?.headers)
}
const curl = (host = HOST, port = 9443) => `curl -fsS -m ${10 * patience} https://${host}:${port}/MARK`
const bearer = (text = value) => `Bearer ${text}`

test('curl, Node and Python get through, with the header that the sandbox never sees', async () => {
  const sandbox = await sdk.Sandbox.create('base', { ...life, network: closed() })
  const url = `https://${HOST}:9443/MARK`
  for (const command of [
    curl(),
    `curl -fsS -m ${10 * patience} -H 'X-Key: mine' ${url}`,
    `sudo curl -fsS -m ${10 * patience} ${url}`,
    `node -e "fetch('${url}').then((r) => r.text()).then(console.log, (e) => { console.error(e.cause ?? e); process.exit(1) })"`,
    `python3 -c "import urllib.request; print(urllib.request.urlopen('${url}').read())"`,
    `sudo python3 -c "import urllib.request; print(urllib.request.urlopen('${url}').read())"`,
    `curl -fsS -m ${10 * patience} http://${HOST}:9080/MARK`,
  ]) assert.equal((await ask(sandbox, command))['x-key'], bearer(), command)
  // Nothing inside has it: neither variables nor files.
  const left = await run(sandbox, `env; sudo grep -rl ${value} /etc /home /run /tmp /usr/local /var 2>/dev/null`)
  assert.ok(!left.stdout.includes(value), left.stdout)
  // Other hosts are not opened: the world's own certificate is what they show, which nobody in there trusts.
  const other = await run(sandbox, `curl -sS -m 10 https://two.allowed.test:9443/`)
  assert.notEqual(other.exitCode, 0)
  const subject = await run(sandbox, `echo | openssl s_client -connect two.allowed.test:9443 -servername two.allowed.test 2>/dev/null | grep issuer`)
  assert.match(subject.stdout, /the world/)
  await sandbox.kill()
})

test('shown as it was given; never the value', async () => {
  const egressProxy = { address: '203.0.113.1:9050', username: 'me', password: 'open sesame' }
  const sandbox = await sdk.Sandbox.create('base', { ...life, network: closed({ egressProxy }) })
  const { network } = await sandbox.getInfo()
  assert.deepEqual(network.rules, rules())
  assert.deepEqual(network.egressProxy, { address: egressProxy.address, username: 'me' })
  const { text } = await server.api('GET', `/sandboxes/${sandbox.sandboxId}`)
  assert.ok(!text.includes('sesame') && !text.includes('sealed') && !text.includes(value), text)
  // Through the proxy, by name, with the header.
  assert.equal((await ask(sandbox, curl()))['x-key'], bearer())
  assert.ok(seen.some((one) => one.socks === 'me' && one.password === 'open sesame'))
  assert.ok(seen.some((one) => one.socks === 'connect' && one.name === HOST && one.port === 9443))
  await sandbox.kill()
})

test('kept through pauses, restarts and forks; changed with the secret, and live', async () => {
  const sandbox = await sdk.Sandbox.create('base', { ...life, network: closed() })
  const check = async (one, text = value) => assert.equal((await ask(one, curl()))['x-key'], text ? bearer(text) : undefined)
  await check(sandbox)
  for (const memory of [true, false]) {
    await server.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { memory })
    await sdk.Sandbox.connect(sandbox.sandboxId, life)
    await check(sandbox)
  }
  await server.restart()
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  await check(sandbox)
  const forks = (await server.api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 1, timeout: 300 })).body
  const fork = await sdk.Sandbox.connect((forks[0].sandbox ?? forks[0]).sandboxID, life)
  await check(fork)
  await sdk.Secret.update('key', `${value}2`)
  await check(sandbox, `${value}2`)
  await check(fork, `${value}2`)
  await sdk.Secret.destroy('key')
  await check(sandbox, null)
  await sdk.Secret.create('key', value)
  await sandbox.updateNetwork(closed({ rules: rules({ 'X-Key': 'plain' }) }))
  assert.equal((await ask(sandbox, curl()))['x-key'], 'plain')
  await fork.kill()
  await sandbox.kill()
})

test('a rule that comes later: the authority is installed then', async () => {
  const sandbox = await sdk.Sandbox.create('base', life)
  assert.notEqual((await run(sandbox, 'ls /usr/local/share/ca-certificates/e2b-ca.crt')).exitCode, 0)
  await sandbox.updateNetwork({ rules: rules() })
  assert.equal((await ask(sandbox, curl()))['x-key'], bearer())
  // Everything else is reached as before.
  assert.equal((await run(sandbox, `curl -fsS -m ${10 * patience} http://web.test/`)).exitCode, 0)
  await sandbox.kill()
})

test('what is refused', async () => {
  const { status, text } = await server.api('POST', '/sandboxes', { templateID: 'base', network: closed({ rules: rules(fill('nothing')) }) })
  assert.equal(status, 400, text)
  assert.match(text, /does not exist: 'nothing'/)
  await server.api('POST', '/secrets', { name: 'bound', value, hosts: ['other.test'] })
  const bound = await server.api('POST', '/sandboxes', { templateID: 'base', network: closed({ rules: rules(fill('bound')) }) })
  assert.equal(bound.status, 400, bound.text)
  assert.match(bound.text, /is not for 'api.allowed.test'/)
  // Of another team.
  const team = (await server.api('POST', '/admin/teams', { name: 'others' })).body
  const { key } = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body
  assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base', network: closed() }, { key })).status, 400)
  assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base', network: closed({ rules: { [HOST]: [{ transform: { headers: { Host: 'x' } } }] } }) })).status, 400)
})

test('the value is in no file and no log of the server', async () => {
  assert.ok(!server.log.includes(value))
  const store = path.join(server.data, 'store')
  for (const file of fs.readdirSync(store)) {
    if (!fs.statSync(path.join(store, file)).isFile()) continue
    const content = fs.readFileSync(path.join(store, file))
    assert.ok(!content.includes(value) && !content.includes('open sesame'), file)
  }
  assert.equal(fs.statSync(path.join(store, 'egress-ca.pem')).mode & 0o777, 0o600)
  for (const where of ['/audit?limit=100', '/events/sandboxes']) assert.ok(!(await server.api('GET', where)).text.includes(value), where)
})
