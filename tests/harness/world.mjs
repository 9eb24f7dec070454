// The fake internet of lab.sh: an HTTP server and a DNS responder on every address of their namespace.
//
// HTTP (ports 80 and 8080) and HTTPS (443, 853, 8443; a certificate of its own) answer with what they saw as JSON
// ({peer, host, url, sni}); /bytes?n=N sends N bytes; /drip sends a byte every 20 ms; /to?place=URL leads there, and /to to itself; port 22 greets, port 7 echoes, by TCP and UDP; /git/OWNER/NAME.git is a
// repository that anybody may read and push to, made when it is first asked for, with one commit; under
// /private/ the password below is needed. /npm/ is a registry of what tests/compat/install.sh has fetched, /mirror/NAME/ a package
// mirror that a test has made (mirror.mjs). DNS knows the names below and says NXDOMAIN to others.
import { execFileSync, spawn } from 'node:child_process'
import dgram from 'node:dgram'
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

// boxes.test and all below it are the lab itself, where the server under test is.
const lab = '198.51.100.2'
// Addresses, or another name; "broken" is answered by a name that points to itself.
const names = {
  'web.test': ['203.0.113.1'],
  'inside.test': ['10.9.9.9'],
  'metadata.test': ['169.254.169.254'],
  'other.test': ['203.0.113.2'],
  'allowed.test': ['203.0.113.1'],
  'api.allowed.test': ['203.0.113.1'],
  'two.allowed.test': ['203.0.113.2'],
  'chain.allowed.test': 'middle.cdn.test',
  'middle.cdn.test': 'edge.cdn.test',
  'edge.cdn.test': ['203.0.113.2'],
  'circle.allowed.test': 'circle.allowed.test',
  'inside.allowed.test': ['10.9.9.9'],
  'metadata.allowed.test': ['169.254.169.254'],
  'mixed.allowed.test': ['10.9.9.9', '203.0.113.1'],
  'many.allowed.test': Array.from({ length: 60 }, (_, i) => `203.0.113.${i + 1}`),
  'broken.allowed.test': 'broken',
}

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

// From npm's own cache, by npm's own module for it. Addresses in what it kept lead to the registry it was fetched from.
const npmFolder = () => execFileSync('sh', ['-c', 'dirname "$(dirname "$(readlink -f "$(command -v npm)")")"'], { encoding: 'utf8' }).trim()
const kept = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../build/npm/cache/_cacache')
let keptNames
async function serveNpm(request, response, target) {
  try {
    const cacache = createRequire(path.join(npmFolder(), 'package.json'))('cacache')
    keptNames ??= new Map(Object.keys(await cacache.ls(kept)).map((name) => [name.replace(/^.*?request-cache:https?:\/\/[^/]+\//, '').toLowerCase(), name]))
    const key = keptNames.get(target.toLowerCase())
    if (!key) return response.writeHead(404).end('{"error":"not found"}')
    const { data } = await cacache.get(kept, key)
    if (target.endsWith('.tgz')) return response.end(data)
    response.setHeader('content-type', 'application/json')
    response.end(data.toString().replace(/"tarball":"https?:\/\/[^/]+\//g, '"tarball":"http://203.0.113.1/npm/'))
  } catch (error) {
    response.writeHead(500).end(JSON.stringify({ error: error.message }))
  }
}

// Files of a mirror; one that has a file `stalls` takes requests and answers none.
function serveMirror(response, target) {
  const file = path.join('/mnt/mirrors', decodeURIComponent(target))
  if (fs.existsSync(path.join('/mnt/mirrors', target.split('/')[0], 'stalls'))) return
  if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) return response.writeHead(404).end()
  response.end(fs.readFileSync(file))
}

function onRequest(request, response) {
  const url = new URL(request.url, 'http://world')
  if (url.pathname === '/bytes') {
    response.end(Buffer.alloc(Number(url.searchParams.get('n'))))
    return
  }
  if (url.pathname === '/to') return response.writeHead(302, { location: url.searchParams.get('place') ?? request.url }).end()
  if (url.pathname === '/drip') {
    const timer = setInterval(() => response.write('.'), 20)
    response.on('close', () => clearInterval(timer))
    return
  }
  if (url.pathname.startsWith('/npm/')) return serveNpm(request, response, request.url.slice(5))
  if (url.pathname.startsWith('/mirror/')) return serveMirror(response, url.pathname.slice('/mirror/'.length))
  if (url.pathname.startsWith('/git/') || url.pathname.startsWith('/private/')) return serveGit(request, response, url)
  const seen = { peer: request.socket.remoteAddress.replace('::ffff:', ''), host: request.headers.host, url: request.url }
  if (request.socket.servername !== undefined) seen.sni = request.socket.servername
  response.setHeader('content-type', 'application/json')
  response.end(JSON.stringify(seen))
}

const listen = (server, port) => new Promise((done) => server.listen(port, '0.0.0.0', done))

function serveHttp() {
  return Promise.all([80, 8080].map((port) => listen(http.createServer(onRequest), port)))
}

function serveHttps() {
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', '/CN=world.test', '-days', '30', '-keyout', '/mnt/world.key', '-out', '/mnt/world.crt'], { stdio: 'ignore' })
  const options = { key: fs.readFileSync('/mnt/world.key'), cert: fs.readFileSync('/mnt/world.crt') }
  return Promise.all([443, 853, 8443].map((port) => listen(https.createServer(options, onRequest), port)))
}

function serveOthers() {
  const quiet = (socket) => socket.on('error', () => {})
  const udp = dgram.createSocket('udp4')
  udp.on('message', (data, peer) => udp.send(data, peer.port, peer.address))
  return Promise.all([
    listen(net.createServer((socket) => quiet(socket).write('SSH-2.0-world\r\n')), 22),
    listen(net.createServer((socket) => quiet(socket).pipe(socket)), 7),
    new Promise((done) => udp.bind(7, '0.0.0.0', done)),
  ])
}

const encoded = (name) => Buffer.concat([...name.split('.').map((label) => Buffer.from([label.length, ...Buffer.from(label)])), Buffer.from([0])])
const record = (owner, type, data) => Buffer.concat([encoded(owner), Buffer.from([0, type, 0, 1, 0, 0, 0, 60, data.length >> 8, data.length & 255]), data])

const known = (name) => (/(^|\.)boxes\.test$/.test(name) ? [lab] : names[name])

// Of a name and type: what is known, with the names on the way.
function records(name, type) {
  const found = []
  for (let at = name, next; found.length < 8 && (next = known(at)); at = next) {
    if (typeof next !== 'string') return type === 1 ? [...found, ...next.map((address) => record(at, 1, Buffer.from(address.split('.').map(Number))))] : found
    if (next === 'broken') return [Buffer.from([0xc0, 12 + encoded(name).length + 4, 0, 1, 0, 1])]
    found.push(record(at, 5, encoded(next)))
  }
  return found
}

function answer(query, most) {
  let at = 12
  const labels = []
  while (at < query.length && query[at] !== 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + query[at]))
    at += query[at] + 1
  }
  const question = query.subarray(12, at + 5)
  const name = labels.join('.').toLowerCase()
  const found = records(name, query.readUInt16BE(at + 1))
  const header = Buffer.from(query.subarray(0, 12))
  const cut = most && found.reduce((sum, one) => sum + one.length, 12 + question.length) > most
  header.writeUInt16BE(0x8180 | (known(name) ? 0 : 3) | (cut ? 0x0200 : 0), 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(cut ? 0 : found.length, 6)
  header.writeUInt32BE(0, 8)
  return Buffer.concat([header, question, ...(cut ? [] : found)])
}

// One UDP socket per address: answers must leave from the address that was asked.
function serveDns(address) {
  const udp = dgram.createSocket('udp4')
  udp.on('message', (query, peer) => udp.send(answer(query, 512), peer.port, peer.address))
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

await Promise.all([serveHttp(), serveHttps(), serveOthers()])
await Promise.all(['203.0.113.53', '203.0.113.1', '10.9.9.9'].map(serveDns))
console.log('ready')
