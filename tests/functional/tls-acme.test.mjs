// Certificates by ACME, from the small authority of the harness: challenges by HTTP, which the server shows, and in DNS by a hook.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, test } from 'node:test'
import { startAuthority } from '../harness/acme-server.mjs'
import { binary, startServer } from '../harness/server.mjs'

let server, authority, folder, records, hook, tlsPort
const DOMAIN = 'boxes.test'

// As an authority does it: by name, over plain HTTP, from another host (port 80 is the server's plain port here).
const look = (type, domain, token) => {
  if (type === 'dns-01') return fs.existsSync(`${records}/_acme-challenge.${domain}`) ? fs.readFileSync(`${records}/_acme-challenge.${domain}`, 'utf8').trim() : undefined
  return new Promise((done) => {
    const request = http.request({ host: domain, port: server.port, path: `/.well-known/acme-challenge/${token}`, agent: false }, (response) => {
      let text = ''
      response.on('data', (chunk) => (text += chunk))
      response.on('end', () => done(response.statusCode === 200 ? text : `${response.statusCode}`))
    })
    request.on('error', (error) => done(error.message))
    request.end()
  })
}
// Not spawnSync: the authority is in this process.
const acme = (...args) =>
  new Promise((done) => {
    const child = spawn(binary, ['tls', 'acme', '--domain', DOMAIN, '--directory', authority.url, '--data', server.data, ...args])
    let stdout = '', stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.on('exit', (status) => done({ status, stdout, stderr }))
  })
const served = (servername) =>
  new Promise((done, fail) => {
    const socket = tls.connect({ host: '127.0.0.1', port: tlsPort, servername, ca: fs.readFileSync(`${folder}/authority.pem`) }, () => {
      done(socket.getPeerCertificate())
      socket.end()
    })
    socket.on('error', fail)
  })

before(async () => {
  // It begins with a certificate that says nothing, as a new server would.
  server = await startServer({
    listen: ':0',
    args: ['--listen-tls', '127.0.0.1:0', '--domain', DOMAIN, '--redirect-http', '1'],
    prepare: (one) => {
      folder = path.join(one.home, 'authority')
      records = path.join(one.home, 'records')
      hook = path.join(one.home, 'hook')
      fs.mkdirSync(folder)
      fs.mkdirSync(records)
      fs.writeFileSync(hook, `#!/bin/sh\nset -e\necho "$1 $2" >>${records}/calls\n[ "$1" = clear ] && rm ${records}/$2 || printf %s "$3" >${records}/$2\n`, { mode: 0o755 })
      fs.mkdirSync(path.join(one.data, 'tls'), { recursive: true })
      spawnSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=nobody', '-keyout', `${one.data}/tls/key.pem`, '-out', `${one.data}/tls/cert.pem`])
    },
  })
  tlsPort = Number(/E2B_DOMAIN=boxes\.test:(\d+)/.exec(server.log)[1])
  authority = await startAuthority(folder, look)
})
after(async () => {
  authority?.close()
  await server.destroy()
})

test('by HTTP: the server shows the challenge, and uses what comes', async () => {
  const run = await acme('--email', 'me@boxes.test')
  assert.equal(run.status, 0, run.stderr)
  assert.deepEqual(authority.state.seen, [['http-01', DOMAIN, true]])
  assert.equal(authority.state.badNonce, 1, 'the first nonce was refused, and another one tried')
  assert.deepEqual(authority.state.accounts[0].contact, ['mailto:me@boxes.test'])
  assert.match(run.stdout, /The server that runs here uses it/)
  assert.equal((await served(DOMAIN)).subjectaltname, 'DNS:boxes.test')
  assert.deepEqual(fs.readdirSync(`${server.data}/tls/challenges`), [], 'nothing is left of the challenge')
  assert.equal(fs.statSync(`${server.data}/tls/key.pem`).mode & 0o777, 0o600)
})

test('once more: nothing is asked before the last month', async () => {
  const orders = authority.state.orders.length
  const again = await acme()
  assert.deepEqual([again.status, authority.state.orders.length], [0, orders])
  assert.match(again.stdout, /good for 89 more days|good for 90 more days/)
})

test('in DNS by a hook: a wildcard, by the same account', async () => {
  const run = await acme('--wildcard', '--hook', hook)
  assert.equal(run.status, 0, run.stderr)
  assert.equal(authority.state.accounts.length, 1)
  assert.deepEqual(authority.state.seen.slice(1), [['dns-01', DOMAIN, true], ['dns-01', DOMAIN, true]])
  assert.equal((await served(`3000-ix.${DOMAIN}`)).subjectaltname.split(', ').sort().join(), 'DNS:*.boxes.test,DNS:boxes.test')
  const name = `_acme-challenge.${DOMAIN}`
  assert.equal(fs.readFileSync(`${records}/calls`, 'utf8'), `set ${name}\nclear ${name}\nset ${name}\nclear ${name}\n`)
})

test('a certificate in its last month is renewed', async () => {
  authority.state.days = 20
  assert.equal((await acme('--wildcard', '--hook', hook, '--force')).status, 0)
  authority.state.days = 90
  const orders = authority.state.orders.length
  assert.equal((await acme('--wildcard', '--hook', hook)).status, 0)
  assert.equal(authority.state.orders.length, orders + 1)
})

test('what goes wrong is told, and the certificate stays', async () => {
  const before = (await served(DOMAIN)).fingerprint256
  fs.writeFileSync(hook, `#!/bin/sh\n[ "$1" = clear ] && exit 0\nprintf wrong >${records}/$2\n`, { mode: 0o755 })
  const wrong = await acme('--wildcard', '--hook', hook, '--force')
  assert.deepEqual([wrong.status, /boxes\.test: the authority says 'invalid': found wrong there/.test(wrong.stderr)], [1, true], wrong.stderr)
  fs.writeFileSync(hook, '#!/bin/sh\nexit 3\n', { mode: 0o755 })
  assert.match((await acme('--wildcard', '--hook', hook, '--force')).stderr, /hook' failed \(status 3\)/)
  assert.match((await acme('--wildcard')).stderr, /needs --hook/)
  assert.equal((await served(DOMAIN)).fingerprint256, before)
})
