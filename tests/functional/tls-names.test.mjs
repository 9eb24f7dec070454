// Several certificates on one listener, chosen by the name that a client asks for; a port that is not 443.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, test } from 'node:test'
import { binary, startServer } from '../harness/server.mjs'

let other, folder, port
const names = ['one.test', '*.two.test']
before(async () => {
  other = await startServer({
    args: ['--listen-tls', '127.0.0.1:0', '--domain', 'two.test'],
    env: {},
    prepare: (one) => {
      folder = path.join(one.home, 'certs')
      fs.mkdirSync(folder)
      for (const [i, name] of names.entries())
        spawnSync('openssl', ['req', '-x509', '-newkey', i ? 'rsa:2048' : 'ec', ...(i ? [] : ['-pkeyopt', 'ec_paramgen_curve:P-256']), '-nodes', '-days', '2', '-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name}`, '-keyout', `${folder}/${i}.key`, '-out', `${folder}/${i}.pem`])
      for (const i of [0, 1]) one.args.push('--tls-cert', `${folder}/${i}.pem`, '--tls-key', `${folder}/${i}.key`)
    },
  })
  port = Number(/E2B_DOMAIN=two\.test:(\d+)/.exec(other.log)[1])
})
after(() => other.destroy())

const subject = (servername) =>
  new Promise((done, fail) => {
    const socket = tls.connect({ host: '127.0.0.1', port, servername, rejectUnauthorized: false }, () => {
      done(socket.getPeerCertificate().subject.CN)
      socket.end()
    })
    socket.on('error', fail)
  })

test('the one for the name, else the first', async () => {
  assert.equal(await subject('one.test'), 'one.test')
  assert.equal(await subject('49983-ix.two.test'), '*.two.test')
  assert.equal(await subject('three.test'), 'one.test')
  assert.equal(await subject(''), 'one.test')
})

test('clients are told the port', async () => {
  const made = await other.create()
  assert.equal(made.domain, `two.test:${port}`)
  const url = spawnSync(binary, ['url', made.sandboxID, '8080', '--url', other.url], { encoding: 'utf8', env: { PATH: process.env.PATH, QUICKSAND_TOKEN: other.key } })
  assert.match(url.stdout, new RegExp(`^https://8080-${made.sandboxID}\\.two\\.test:${port}`), url.stderr)
})
