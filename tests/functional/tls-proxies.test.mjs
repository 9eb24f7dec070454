// Behind Debian's nginx and Caddy, with the samples of docs/domain.md as they stand there but for names and files.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import https from 'node:https'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, repository, startServer } from '../harness/server.mjs'

const DOMAIN = 'boxes.test'
let server, files, ca, id
const ask = (name, { method = 'GET', headers = {}, body } = {}) =>
  new Promise((done, fail) => {
    const request = https.request(`https://${name}`, { method, headers, ca, agent: false }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('end', () => done({ status: response.statusCode, text: Buffer.concat(chunks).toString() }))
    })
    request.on('error', fail)
    request.end(body?.bytes)
  })

before(async () => {
  server = await startServer({ args: ['--domain', DOMAIN], prepare: (one) => void spawnSync(binary, ['tls', 'init', '--domain', DOMAIN, '--data', one.data]) })
  files = path.join(server.data, 'tls')
  ca = fs.readFileSync(path.join(files, 'ca.pem'))
  id = (await server.create()).sandboxID
})
after(() => server.destroy())

// The sample in that language, with the names and files of this test.
function sampleOf(language) {
  const sample = new RegExp('```' + language + '\n([^]*?)```').exec(fs.readFileSync(path.join(repository, 'docs/domain.md'), 'utf8'))[1]
  return sample
    .replaceAll('/etc/ssl/example.com/fullchain.pem', `${files}/cert.pem`).replaceAll('/etc/ssl/example.com/privkey.pem', `${files}/key.pem`)
    .replaceAll('example.com', DOMAIN).replaceAll('127.0.0.1:3000', `127.0.0.1:${server.port}`)
}

function startNginx(folder) {
  const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join('\n')
  fs.writeFileSync(`${folder}/nginx.conf`, `daemon off; pid ${folder}/pid; error_log ${folder}/error.log; user root; events {} http { access_log off;\n${temp}\n${sampleOf('nginx')} }`)
  return spawn('nginx', ['-c', `${folder}/nginx.conf`, '-e', `${folder}/error.log`], { stdio: 'inherit' })
}

function startCaddy(folder) {
  fs.writeFileSync(`${folder}/Caddyfile`, `{\n    admin off\n    skip_install_trust\n}\n${sampleOf('caddy')}`)
  return spawn('caddy', ['run', '--config', `${folder}/Caddyfile`, '--adapter', 'caddyfile'], { stdio: 'ignore', env: { PATH: process.env.PATH, HOME: folder } })
}

for (const [name, start] of [['nginx', startNginx], ['caddy', startCaddy]])
  describe(name, () => {
    let proxy
    before(async () => {
      const folder = path.join(server.home, name)
      fs.mkdirSync(folder)
      proxy = start(folder)
      await eventually(name, async () => (await ask(`api.${DOMAIN}/health`).catch(() => ({}))).status === 200)
    })
    after(async () => {
      proxy.kill('SIGTERM')
      await new Promise((done) => proxy.once('exit', done))
    })

    test('the API, and a signed link that leads back through it', async () => {
      const headers = { 'X-API-KEY': server.key }
      assert.equal((await ask(`api.${DOMAIN}/sandboxes/${id}`, { headers })).status, 200)
      assert.equal(JSON.parse((await ask(`api.${DOMAIN}/sandboxes/${id}`, { headers })).text).domain ?? DOMAIN, DOMAIN)
    })

    test('a sandbox by its name, with a long upload and an upgrade', async () => {
      const bytes = Buffer.alloc(8 << 20, 'through a proxy ')
      const form = Buffer.concat([Buffer.from('--b\r\nContent-Disposition: form-data; name="file"; filename="big"\r\n\r\n'), bytes, Buffer.from('\r\n--b--\r\n')])
      const put = await ask(`49983-${id}.${DOMAIN}/files?path=/home/user/big`, { method: 'POST', headers: { 'Content-Type': 'multipart/form-data; boundary=b' }, body: { bytes: form } })
      assert.equal(put.status, 200, put.text)
      const back = await ask(`49983-${id}.${DOMAIN}/files?path=/home/user/big`)
      assert.equal(back.text, bytes.toString())
      const socket = tls.connect({ host: `7001-${id}.${DOMAIN}`, port: 443, servername: `7001-${id}.${DOMAIN}`, ca })
      let received = ''
      socket.on('data', (chunk) => (received += chunk))
      socket.write(`GET / HTTP/1.1\r\nHost: 7001-${id}.${DOMAIN}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`)
      await eventually('an answer about the port', () => received.includes('\r\n\r\n'))
      assert.match(received, /^HTTP\/1\.1 502 [^]*"port":7001/, 'nobody listens there, and it is the server that says so')
      socket.destroy()
    })
  })
