// Registries of images: Debian's own docker-registry on loopback, images for it, and one that behaves as badly as a test likes.
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import { eventually } from './server.mjs'

const run = promisify(execFile)
export const sha256 = (data) => crypto.createHash('sha256').update(data).digest('hex')
export const digestOf = (data) => `sha256:${sha256(data)}`

const freePort = () => new Promise((done) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address()
    server.close(() => done(port))
  })
})

// ---- the real one ----

// login: { username, password } that it asks for.
export async function startRegistry({ login } = {}) {
  const registry = new Registry(login)
  await registry.start()
  return registry
}

class Registry {
  constructor(login) {
    this.login = login
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'registry-'))
  }

  async start() {
    this.port ??= await freePort()
    this.host = `127.0.0.1:${this.port}`
    this.url = `http://${this.host}`
    const auth = this.login ? `auth:\n  htpasswd:\n    realm: test\n    path: ${this.home}/htpasswd\n` : ''
    if (this.login) {
      const word = execFileSync('python3', ['-W', 'ignore', '-c', 'import crypt,sys; print(crypt.crypt(sys.argv[1], crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=1<<4)))', this.login.password])
      fs.writeFileSync(`${this.home}/htpasswd`, `${this.login.username}:${word}`)
    }
    fs.writeFileSync(`${this.home}/config.yml`, `version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: ${this.home}/data\n  delete:\n    enabled: true\nhttp:\n  addr: ${this.host}\n${auth}`)
    this.child = spawn('docker-registry', ['serve', `${this.home}/config.yml`], { stdio: ['ignore', 'pipe', 'pipe'] })
    this.log = ''
    this.child.stdout.on('data', (chunk) => (this.log += chunk))
    this.child.stderr.on('data', (chunk) => (this.log += chunk))
    this.exited = new Promise((done) => this.child.once('exit', done))
    await eventually('the registry answers', async () => (await fetch(`${this.url}/v2/`).catch(() => null))?.status)
  }

  get headers() {
    return this.login ? { authorization: `Basic ${btoa(`${this.login.username}:${this.login.password}`)}` } : {}
  }

  async put(path, type, body) {
    const answer = await fetch(`${this.url}${path}`, { method: 'PUT', headers: { ...this.headers, 'content-type': type }, body })
    assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.text()}`)
  }

  async pushBlob(name, blob) {
    const begun = await fetch(`${this.url}/v2/${name}/blobs/uploads/`, { method: 'POST', headers: this.headers })
    assert.equal(begun.status, 202, await begun.text())
    const place = new URL(begun.headers.get('location'), this.url)
    place.searchParams.set('digest', digestOf(blob))
    await this.put(place.pathname + place.search, 'application/octet-stream', blob)
  }

  // An image of these layers, whatever is in them: `ociImage()` says what it may have.
  async push(name, tag, parts) {
    const image = ociImage(parts)
    for (const blob of [...image.layers, image.config]) await this.pushBlob(name, blob)
    await this.put(`/v2/${name}/manifests/${tag}`, image.type, image.manifest)
    return image
  }

  // From where buildah keeps its images, or a directory: "oci:/x", "docker-archive:/x".
  async copy(from, to, ...options) {
    const login = this.login ? ['--dest-creds', `${this.login.username}:${this.login.password}`] : []
    await run('skopeo', ['copy', '--quiet', '--insecure-policy', '--dest-tls-verify=false', ...login, ...options, from, `docker://${this.host}/${to}`])
  }

  async stop() {
    this.child?.kill('SIGKILL')
    await this.exited
    fs.rmSync(this.home, { recursive: true, force: true })
  }
}

// ---- images ----

const ociTypes = { 'tar+gzip': 'application/vnd.oci.image.layer.v1.tar+gzip', tar: 'application/vnd.oci.image.layer.v1.tar' }

// layers: plain tars, lowest first. plain: not compressed.
export function ociImage({ layers, config = {}, architecture = { arm64: 'arm64' }[process.arch] ?? 'amd64', plain = false, diffIds }) {
  const blobs = layers.map((layer) => (plain ? layer : zlib.gzipSync(layer, { level: 1 })))
  const settings = Buffer.from(JSON.stringify({ os: 'linux', architecture, config, rootfs: { type: 'layers', diff_ids: diffIds ?? layers.map(digestOf) } }))
  const type = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = Buffer.from(JSON.stringify({
    schemaVersion: 2,
    mediaType: type,
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', digest: digestOf(settings), size: settings.length },
    layers: blobs.map((blob) => ({ mediaType: ociTypes[plain ? 'tar' : 'tar+gzip'], digest: digestOf(blob), size: blob.length })),
  }))
  return { layers: blobs, config: settings, manifest, type, digest: digestOf(manifest) }
}

const octal = (value, size) => Buffer.from(Math.floor(value).toString(8).padStart(size - 1, '0') + '\0')
const kinds = { file: '0', link: '1', symlink: '2', char: '3', block: '4', dir: '5', fifo: '6', pax: 'x' }

function tarHeader({ name, type = 'file', mode, uid = 0, gid = 0, size = 0, target = '', mtime = 1_700_000_000 }) {
  const header = Buffer.alloc(512)
  header.write(name, 0, 100)
  octal(mode ?? (type === 'dir' ? 0o755 : 0o644), 8).copy(header, 100)
  octal(uid, 8).copy(header, 108)
  octal(gid, 8).copy(header, 116)
  octal(size, 12).copy(header, 124)
  octal(mtime, 12).copy(header, 136)
  header.write('        ', 148)
  header.write(kinds[type], 156)
  header.write(target, 157, 100)
  header.write('ustar\x0000', 257)
  octal(1, 8).copy(header, 329)
  octal(3, 8).copy(header, 337)
  octal(header.reduce((sum, byte) => sum + byte, 0), 8).copy(header, 148)
  return header
}

const padded = (data) => Buffer.concat([data, Buffer.alloc((512 - (data.length % 512)) % 512)])

// Records of an extended header; names and values may be anything, lengths are true.
function paxRecords(records) {
  return Buffer.concat(Object.entries(records).map(([key, value]) => {
    const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from('\n')])
    let length = rest.length + 1
    while (String(length).length + rest.length !== length) length = String(length).length + rest.length
    return Buffer.concat([Buffer.from(String(length)), rest])
  }))
}

// entries: { name, type, content, mode, uid, gid, target, pax: { "SCHILY.xattr.user.x": "y" }, size: one that is not the content's }
export function tar(entries) {
  const parts = []
  for (const entry of entries) {
    const content = Buffer.from(entry.content ?? '')
    if (entry.pax) {
      const records = paxRecords(entry.pax)
      parts.push(tarHeader({ name: 'pax', type: 'pax', size: records.length }), padded(records))
    }
    parts.push(tarHeader({ size: content.length, ...entry }), padded(content))
  }
  return Buffer.concat([...parts, Buffer.alloc(1024)])
}

// A root that commands can run in: busybox, static.
export function busyboxLayer() {
  const links = ['sh', 'ls', 'cat', 'id', 'stat', 'find', 'touch', 'mkdir', 'rm', 'echo', 'pwd', 'env', 'test', 'true', 'sleep', 'chmod', 'ln', 'printf', 'sort']
  return tar([
    { name: 'bin/', type: 'dir' },
    { name: 'bin/busybox', content: fs.readFileSync('/bin/busybox'), mode: 0o755 },
    ...links.map((name) => ({ name: `bin/${name}`, type: 'symlink', target: 'busybox' })),
  ])
}

// ---- buildah, with storage of its own ----

export class Buildah {
  constructor() {
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'buildah-'))
    this.options = ['--root', `${this.home}/root`, '--runroot', `${this.home}/run`, '--storage-driver', 'vfs']
  }

  async run(...args) {
    const env = { ...process.env, BUILDAH_ISOLATION: 'chroot', XDG_RUNTIME_DIR: this.home }
    return (await run('buildah', [...this.options, ...args], { env, maxBuffer: 1 << 26 })).stdout.trim()
  }

  // Files of the image, as a directory.
  async mount(image) {
    this.container = await this.run('from', '--pull-never', image)
    return this.run('mount', this.container)
  }

  remove() {
    fs.rmSync(this.home, { recursive: true, force: true })
  }
}

// ---- a bad one ----

// handle(request, response, seen): seen counts requests by path. Anything not answered is 404.
export async function startBadRegistry(handle) {
  const seen = {}
  const server = http.createServer((request, response) => {
    seen[request.url] = (seen[request.url] ?? 0) + 1
    if (!handle(request, response, seen)) response.writeHead(404).end('{}')
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address()
  return {
    seen,
    host: `127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}`,
    stop: () => {
      server.closeAllConnections()
      return new Promise((done) => server.close(done))
    },
  }
}

// What an honest registry answers about one image; a bad one calls it for the rest.
export function serveImage(image, request, response) {
  const blobs = new Map([...image.layers, image.config].map((blob) => [digestOf(blob), blob]))
  const [, kind, name] = /\/v2\/.+\/(manifests|blobs)\/(.+)$/.exec(request.url) ?? []
  const body = kind === 'manifests' ? image.manifest : blobs.get(name)
  if (!body) return false
  const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
  const part = body.subarray(from)
  const head = { 'content-type': kind === 'manifests' ? image.type : 'application/octet-stream', 'content-length': part.length }
  if (from) head['content-range'] = `bytes ${from}-${body.length - 1}/${body.length}`
  response.writeHead(from ? 206 : 200, head).end(part)
  return true
}

// ---- builds from images ----

export function builder(server) {
  const ask = async (name) => {
    const answer = await server.api('POST', '/v3/templates', { name })
    assert.equal(answer.status, 202, answer.text)
    return answer.body
  }
  const status = async ({ templateID, buildID }, offset = 0) =>
    (await server.api('GET', `/templates/${templateID}/builds/${buildID}/status?logsOffset=${offset}`)).body
  // The end of a build: { status, reason, text }.
  const build = async (name, recipe, limitMs = 120_000, asked) => {
    const made = asked ?? (await ask(name))
    const answer = await server.api('POST', `/v2/templates/${made.templateID}/builds/${made.buildID}`, { steps: [], ...recipe })
    assert.equal(answer.status, 202, answer.text)
    const end = await eventually('the build has ended', async () => {
      const now = await status(made)
      return ['ready', 'error'].includes(now.status) && now
    }, limitMs, 100)
    const lines = []
    for (let page; (page = (await status(made, lines.length)).logEntries).length;) lines.push(...page)
    return { ...end, build: made, text: lines.map((line) => line.message).join('\n') }
  }
  const ready = async (name, recipe, limitMs, asked) => {
    const end = await build(name, recipe, limitMs, asked)
    assert.equal(end.status, 'ready', `${JSON.stringify(end.reason)}\n${end.text}`)
    return end
  }
  const failed = async (recipe, limitMs) => {
    const end = await build(`fails-${crypto.randomBytes(6).toString('hex')}`, recipe, limitMs)
    assert.equal(end.status, 'error', end.text)
    return end
  }
  return { ask, build, ready, failed }
}
