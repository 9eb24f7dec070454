// The fake internet of lab.sh: an HTTP server and a DNS responder on every address of their namespace.
//
// HTTP answers with what it saw as JSON ({peer, host, url}); /bytes?n=N sends N bytes; /git/OWNER/NAME.git is a
// repository that anybody may read and push to, made when it is first asked for, with one commit; under
// /private/ the password below is needed. DNS knows the names below and says NXDOMAIN to others.
import { execFileSync, spawn } from 'node:child_process'
import dgram from 'node:dgram'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'

const names = { 'web.test': '203.0.113.1', 'inside.test': '10.9.9.9', 'metadata.test': '169.254.169.254' }

const repositories = '/mnt/git'
const token = 'ghp_worldtoken0123456789worldtoken0123456789'

// A bare repository with a README on main. `protected` is a branch that no push may change.
function makeRepository(name) {
  const bare = `${repositories}/${name}`
  if (fs.existsSync(bare)) return
  const work = `${bare}.work`
  const git = (...args) => execFileSync('git', ['-c', 'user.name=w', '-c', 'user.email=w@w', ...args], { stdio: 'ignore' })
  git('init', '-q', '--bare', '-b', 'main', bare)
  git('-C', bare, 'config', 'http.receivepack', 'true')
  git('init', '-q', '-b', 'main', work)
  fs.writeFileSync(`${work}/README.md`, 'hello from the world\n')
  git('-C', work, 'add', '.')
  git('-C', work, 'commit', '-q', '-m', 'first')
  git('-C', work, 'push', '-q', bare, 'main')
  fs.writeFileSync(`${bare}/hooks/update`, '#!/bin/sh\n[ "$1" != refs/heads/protected ] || { echo "protected branch" >&2; exit 1; }\n', { mode: 0o755 })
}

// git's own server side, by its CGI program.
function serveGit(request, response, url) {
  const [, area, owner, name] = url.pathname.split('/')
  if (!/^[a-z0-9-]+$/.test(owner ?? '') || !/^[a-z0-9-]+\.git$/.test(name ?? '')) return response.writeHead(404).end()
  const password = Buffer.from((request.headers.authorization ?? '').replace(/^Basic /, ''), 'base64').toString().split(':')[1]
  if (area === 'private' && password !== token) return response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end()
  makeRepository(`${owner}/${name}`)
  const cgi = spawn('git', ['http-backend'], {
    env: {
      PATH: process.env.PATH,
      GIT_PROJECT_ROOT: repositories,
      GIT_HTTP_EXPORT_ALL: '1',
      PATH_INFO: url.pathname.slice(area.length + 1),
      REQUEST_METHOD: request.method,
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: request.headers['content-type'] ?? '',
      HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
      REMOTE_USER: 'world',
    },
  })
  request.pipe(cgi.stdin)
  cgi.stdin.on('error', () => {})
  const chunks = []
  cgi.stdout.on('data', (chunk) => chunks.push(chunk))
  cgi.on('close', () => {
    const out = Buffer.concat(chunks)
    const end = out.indexOf('\r\n\r\n')
    let status = 200
    for (const line of out.toString('latin1', 0, end).split('\r\n')) {
      const [key, value] = line.split(': ')
      if (key === 'Status') status = Number(value.split(' ')[0])
      else response.setHeader(key, value)
    }
    response.writeHead(status).end(out.subarray(end + 4))
  })
}

function serveHttp() {
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://world')
    if (url.pathname === '/bytes') {
      response.end(Buffer.alloc(Number(url.searchParams.get('n'))))
      return
    }
    if (url.pathname.startsWith('/git/') || url.pathname.startsWith('/private/')) return serveGit(request, response, url)
    const seen = { peer: request.socket.remoteAddress.replace('::ffff:', ''), host: request.headers.host, url: request.url }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(seen))
  })
  return new Promise((done) => server.listen(80, '0.0.0.0', done))
}

function answer(query) {
  let at = 12
  const labels = []
  while (at < query.length && query[at] !== 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + query[at]))
    at += query[at] + 1
  }
  const question = query.subarray(12, at + 5)
  const type = query.readUInt16BE(at + 1)
  const address = names[labels.join('.').toLowerCase()]
  const header = Buffer.from(query.subarray(0, 12))
  header.writeUInt16BE(0x8180 | (address ? 0 : 3), 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(address && type === 1 ? 1 : 0, 6)
  header.writeUInt32BE(0, 8)
  const parts = [header, question]
  if (address && type === 1) {
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split('.').map(Number)])
    parts.push(record)
  }
  return Buffer.concat(parts)
}

// One UDP socket per address: answers must leave from the address that was asked.
function serveDns(address) {
  const udp = dgram.createSocket('udp4')
  udp.on('message', (query, peer) => udp.send(answer(query), peer.port, peer.address))
  const tcp = net.createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      const reply = answer(data.subarray(2))
      const length = Buffer.alloc(2)
      length.writeUInt16BE(reply.length)
      socket.end(Buffer.concat([length, reply]))
    })
  })
  return Promise.all([
    new Promise((done) => udp.bind(53, address, done)),
    new Promise((done) => tcp.listen(53, address, done)),
  ])
}

await serveHttp()
await Promise.all(['203.0.113.53', '203.0.113.1', '10.9.9.9'].map(serveDns))
console.log('ready')
