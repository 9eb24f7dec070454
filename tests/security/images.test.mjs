// Hostile images and registries that lie: a build fails or leaves out what is not allowed, and nothing outside of its tree changes.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { builder, busyboxLayer, digestOf, ociImage, serveImage, startBadRegistry, startRegistry, tar } from '../harness/registry.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { eventually, patience, startServer } from '../harness/server.mjs'

let registry, bad, server, sdk, builds
let answerBadly = () => false
before(async () => {
  registry = await startRegistry()
  bad = await startBadRegistry((request, response, seen) => answerBadly(request, response, seen))
  server = await startServer({ args: ['--warm', '0', '--build-disk', '64', '--disk', '64', '--registry-seconds', '2', '--registry-mirrors', `docker.io=${registry.url},bad.example=${bad.url}`] })
  sdk = await loadSdk(server)
  builds = builder(server)
})
after(async () => {
  await server?.destroy()
  await registry?.stop()
  await bad?.stop()
})

const layersDir = () => path.join(server.data, 'layers')
const trees = () => fs.readdirSync(layersDir()).filter((name) => name.startsWith('tree'))
let count = 0
const push = async (...entries) => {
  const name = `hostile/${++count}`
  await registry.push(name, 'x', { layers: [busyboxLayer(), ...entries.map((one) => (Buffer.isBuffer(one) ? one : tar(one)))] })
  return { fromImage: `${name}:x` }
}
// Builds it and gives the new tree's directory.
async function unpacked(recipe) {
  const before = trees()
  const name = `made-${count}`
  await builds.ready(name, recipe)
  const [made] = trees().filter((one) => !before.includes(one))
  return { name, tree: path.join(layersDir(), made) }
}
async function refused(recipe, reason, limitMs) {
  const before = trees()
  const end = await builds.failed(recipe, limitMs)
  assert.match(end.reason.message, reason)
  assert.equal(end.reason.step, 'base')
  assert.deepEqual(trees(), before, 'a tree was left')
  assert.deepEqual(fs.readdirSync(path.join(server.data, 'feeds')).filter((name) => name !== 'unpack'), [], 'a feed was left')
}
const inside = async (template, command, options) => {
  const sandbox = await sdk.Sandbox.create(template, { timeoutMs: 120_000 * patience })
  try {
    return (await sandbox.commands.run(command, options)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}

test('names with .. are refused, absolute ones stay beneath', { timeout: 120_000 }, async () => {
  await refused(await push([{ name: '../escaped', content: 'x' }]), /leads outside/)
  await refused(await push([{ name: 'a/../../escaped', content: 'x' }]), /leads outside/)
  await refused(await push([{ name: 'hard', type: 'link', target: '../../../etc/shadow' }]), /leads outside/)
  const { tree } = await unpacked(await push([{ name: '/tmp/absolute', content: 'x' }]))
  assert.ok(fs.existsSync(path.join(tree, 'tmp/absolute')))
  assert.equal(fs.existsSync('/tmp/absolute'), false)
  assert.equal(fs.readdirSync(layersDir()).includes('escaped'), false)
})

test('links do not lead out of the tree', async () => {
  const { name, tree } = await unpacked(await push(
    [
      { name: 'up', type: 'symlink', target: '../../../../../../../../tmp' },
      { name: 'feed', type: 'symlink', target: '/run/feed' },
      { name: 'magic', type: 'symlink', target: '/proc/self/root/tmp' },
      { name: 'tmp/', type: 'dir', mode: 0o1777 },
      { name: 'up/through', content: 'x' },
    ],
    [{ name: 'up/.wh.through' }, { name: 'up/second', content: 'y' }],
  ))
  assert.equal(fs.existsSync(path.join(tree, 'tmp/second')), true)
  assert.equal(fs.existsSync(path.join(tree, 'tmp/through')), false)
  assert.equal(fs.existsSync('/tmp/second'), false)
  assert.equal(await inside(name, 'ls /tmp/second'), '/tmp/second')
  await refused(await push([{ name: 'out', type: 'symlink', target: '/run/layer/../feed' }, { name: 'hard', type: 'link', target: 'out/unpack' }]), /not there/)
})

test('device nodes are not made, setuid and capabilities are kept and mean nothing outside', async () => {
  const capability = Buffer.from('0100000200200000000000000000000000000000', 'hex') // cap_net_raw, effective
  const { name, tree } = await unpacked(await push([
    { name: 'dev/sda', type: 'block' },
    { name: 'node', type: 'char' },
    { name: 'root-shell', content: fs.readFileSync('/bin/busybox'), mode: 0o4755 },
    { name: 'pinger', content: 'x', mode: 0o755, pax: { 'SCHILY.xattr.security.capability': capability } },
    { name: 'marked', content: 'x', pax: { 'SCHILY.xattr.user.mark': 'kept', 'SCHILY.xattr.trusted.overlay.opaque': 'y', 'SCHILY.xattr.user.overlay.opaque': 'y', 'SCHILY.xattr.security.selinux': 'x' } },
  ]))
  const listed = execFileSync('find', ['.', '-type', 'b', '-o', '-type', 'c'], { cwd: tree, encoding: 'utf8' })
  assert.equal(listed, '')
  assert.equal(fs.statSync(path.join(tree, 'root-shell')).mode & 0o7777, 0o4755)
  const attributes = execFileSync('python3', ['-c', 'import os,sys; print(sorted(os.listxattr(sys.argv[1])))', path.join(tree, 'marked')], { encoding: 'utf8' })
  assert.equal(attributes.trim(), "['user.mark']")
  const kept = execFileSync('python3', ['-c', 'import os,sys; print(os.getxattr(sys.argv[1], "security.capability").hex())', path.join(tree, 'pinger')], { encoding: 'utf8' })
  assert.match(kept, /^0100000[23]0020/)
  assert.equal(await inside(name, 'stat -c %u:%a /root-shell'), '0:4755')
})

test('holes stay holes, and bombs end', { timeout: 300_000 }, async () => {
  // 300 GB in a kilobyte, as GNU's and POSIX's sparse files.
  const sparse = { 'GNU.sparse.major': '1', 'GNU.sparse.minor': '0', 'GNU.sparse.name': 'huge', 'GNU.sparse.realsize': String(300 * 2 ** 30) }
  const map = Buffer.alloc(512)
  map.write(`1\n${300 * 2 ** 30 - 3}\n3\n`)
  const { tree } = await unpacked(await push([{ name: 'GNUSparseFile.0/huge', content: Buffer.concat([map, Buffer.from('end')]), pax: sparse }]))
  const huge = fs.statSync(path.join(tree, 'huge'))
  assert.equal(huge.size, 300 * 2 ** 30)
  assert.ok(huge.blocks < 1000)
  await refused(await push([{ name: 'GNUSparseFile.0/huger', content: Buffer.concat([map, Buffer.from('end')]), pax: { ...sparse, 'GNU.sparse.name': 'huger', 'GNU.sparse.realsize': String(2 ** 52) } }]), /too large|no whole tar/)
  // What says that it holds 8 GB and does not.
  await refused(await push(Buffer.concat([tar([{ name: 'short', size: 2 ** 33 - 1 }]).subarray(0, 512), Buffer.alloc(1024)])), /not whole|no whole tar/)
  // 70,000 directories below each other.
  await refused(await push([{ name: 'x', content: 'x', pax: { path: 'd/'.repeat(2000) } }]), /too long or too deep/)
  await refused(await push([{ name: 'x', content: 'x', pax: { path: 'n'.repeat(300) } }]), /too long or too deep/)
  // A gigabyte in a megabyte, where a build may have 64 MB.
  const zeros = Buffer.alloc(2 ** 28)
  await refused(await push([1, 2, 3, 4].map((n) => ({ name: `zeros${n}`, content: zeros }))), /more than 64 MiB of files/)
})

test('zstd: a gigabyte in a few kilobytes, and a window of two', { timeout: 300_000 }, async () => {
  const served = (layer) => {
    const image = ociImage({ layers: [layer], plain: true })
    const manifest = JSON.parse(image.manifest)
    manifest.layers[0].mediaType = 'application/vnd.oci.image.layer.v1.tar+zstd'
    image.manifest = Buffer.from(JSON.stringify(manifest))
    answerBadly = (request, response) => serveImage(image, request, response)
  }
  const zeros = Buffer.alloc(2 ** 28)
  served(execFileSync('zstd', ['-q', '-c'], { input: tar([{ name: 'a', content: zeros }, { name: 'b', content: zeros }]), maxBuffer: 1 << 26 }))
  await refused({ fromImage: 'bad.example/zstd:bomb' }, /becomes too large for its compressed size/)
  // A frame of one raw block whose header asks for a window of 2^31 bytes.
  const content = tar([{ name: 'f', content: 'x' }])
  const block = Buffer.alloc(3)
  block.writeUIntLE((content.length << 3) | 1, 0, 3)
  served(Buffer.concat([Buffer.from('28b52ffd00a8', 'hex'), block, content]))
  await refused({ fromImage: 'bad.example/zstd:window' }, /needs too much memory/)
})

test('whiteouts that hide more than they may', async () => {
  for (const name of ['a/.wh...', 'a/.wh..', 'a/.wh.']) await refused(await push([{ name: 'a/', type: 'dir' }, { name }]), /hides nothing that can be/)
  const { tree } = await unpacked(await push([{ name: 'd/old', content: 'x' }], [{ name: 'd/new', content: 'y' }, { name: 'd/.wh..wh..opq' }, { name: '.wh..wh.aufs', content: 'z' }]))
  assert.deepEqual(fs.readdirSync(path.join(tree, 'd')), ['new'])
})

test('broken archives', async () => {
  await refused(await push(Buffer.from('this is no archive '.repeat(100))), /no whole tar archive|no tar archive/)
  await refused(await push(tar([{ name: 'cut', content: 'x'.repeat(5000) }]).subarray(0, 2000)), /not whole/)
})

test('thousands of layers', async () => {
  const manifest = { schemaVersion: 2, mediaType: 'application/vnd.oci.image.manifest.v1+json', config: { digest: digestOf('{}'), size: 2 }, layers: [] }
  for (let i = 0; i < 5000; i++) manifest.layers.push({ mediaType: 'application/vnd.oci.image.layer.v1.tar', digest: digestOf(String(i)), size: 10 })
  answerBadly = (request, response) => request.url.includes('/manifests/') && response.end(JSON.stringify(manifest))
  await refused({ fromImage: 'bad.example/many' }, /it has 5000 layers, more than 512/)
})

test('registries that lie', { timeout: 300_000 }, async () => {
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'f', content: 'x' }])] })
  const blob = image.layers[1]
  const answers = (change) => (answerBadly = (request, response, seen) => change(request, response, seen) || serveImage(image, request, response))
  const isBlob = (request) => request.url.endsWith(digestOf(blob))

  answers((request, response) => isBlob(request) && response.end(Buffer.from(blob).fill(7, 20, 30)))
  await refused({ fromImage: 'bad.example/lies:blob' }, /not what the digest sha256:[0-9a-f]{64} says/)
  answers((request, response) => isBlob(request) && response.end(Buffer.concat([blob, blob])))
  await refused({ fromImage: 'bad.example/lies:longer' }, /sends more than/)
  answers((request, response) => isBlob(request) && response.end(blob.subarray(0, 10)))
  await refused({ fromImage: 'bad.example/lies:shorter' }, /sends too little/)
  answers((request, response) => request.url.includes('/manifests/') && response.end(Buffer.concat([image.manifest, Buffer.from(' ')])))
  await refused({ fromImage: `bad.example/lies@${image.digest}` }, /manifest is not what the digest says/)
  answers((request, response) => request.url.endsWith(digestOf(image.config)) && response.end('{}'))
  await refused({ fromImage: 'bad.example/lies:config' }, /configuration is not what the digest says/)
  // Into private networks, this host, the cloud's own address, without encryption, to files, in circles.
  for (const [place, reason] of [
    ['https://10.9.9.9/blob', /not a public address/],
    ['https://127.0.0.1:1/blob', /not a public address/],
    ['https://169.254.169.254/latest/meta-data', /not a public address/],
    ['https://[::1]:1/blob', /not a public address/],
    ['http://203.0.113.1/blob', /without encryption/],
    ['file:///etc/passwd', /leads nowhere/],
    ['https://2130706433/blob', /not a public address/],
    ['https://[::ffff:10.9.9.9]/blob', /not a public address/],
    // A mirror that the operator has named for another registry.
    [`${registry.url}/v2/_catalog`, /without encryption/],
    [`${bad.url}/v2/lies/blobs/${digestOf(blob)}`, /in circles/],
  ]) {
    answers((request, response) => isBlob(request) && response.writeHead(307, { location: place }).end() && true)
    await refused({ fromImage: 'bad.example/lies:redirect' }, reason)
  }
  // A token server that asks again and again, and one in a private network.
  answers((request, response) => {
    if (request.url.startsWith('/token')) return response.end('{"token":"x"}')
    return response.writeHead(401, { 'www-authenticate': `Bearer realm="${bad.url}/token",service="s"` }).end()
  })
  await refused({ fromImage: 'bad.example/lies:token' }, /the registry refuses \(401\)/)
  answers((request, response) => response.writeHead(401, { 'www-authenticate': 'Bearer realm="https://10.9.9.9/token",service="s"' }).end())
  await refused({ fromImage: 'bad.example/lies:realm' }, /not a public address/)
  answers((request, response) => response.writeHead(401, { 'www-authenticate': `Bearer realm="${registry.url}/token",service="s"` }).end())
  await refused({ fromImage: 'bad.example/lies:mirror' }, /a token from an address that is not allowed/)
  // An index in an index.
  const index = (digest) => Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests: [{ digest, size: 100 }] }))
  const inner = index(image.digest)
  answers((request, response) => request.url.includes('/manifests/') && response.end(request.url.endsWith(digestOf(inner)) ? inner : index(digestOf(inner))))
  await refused({ fromImage: 'bad.example/lies:nested' }, /its index leads to another index/)
  // Without an end.
  answers((request, response) => {
    if (!request.url.includes('/manifests/')) return false
    const more = () => { while (!response.destroyed && response.write(Buffer.alloc(65536, 32))); }
    response.on('drain', more)
    more()
    return true
  })
  await refused({ fromImage: 'bad.example/lies:endless' }, /longer than/)
})

// Who knows the digests of a layer has not got the layer.
test('what one team fetched with a password is there for no other, whatever a registry of theirs says', async () => {
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'thieves' })
  const { key } = (await server.api('POST', `/admin/teams/${team.teamID ?? team.id}/api-keys`, { name: 'k' })).body
  const theirs = builder({ api: (method, target, body) => server.api(method, target, body, { key }) })
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'private', content: 'of the first team' }])] })
  const shared = ociImage({ layers: [busyboxLayer(), tar([{ name: 'public', content: 'of everybody' }])] })
  answerBadly = (request, response) => {
    if (request.url.startsWith('/v2/thief/')) // it has nothing but names
      return !image.layers.concat(shared.layers).some((layer) => request.url.endsWith(digestOf(layer))) && serveImage(request.url.includes('shared') || request.url.endsWith(digestOf(shared.config)) ? shared : image, request, response)
    if (request.url.startsWith('/v2/shared/')) return serveImage(shared, request, response)
    if (request.headers.authorization === `Basic ${btoa('me:mine')}`) return serveImage(image, request, response)
    return response.writeHead(401, { 'www-authenticate': 'Basic realm="x"' }).end() && true
  }
  await builds.ready('private', { fromImage: 'bad.example/mine:1', fromImageRegistry: { type: 'registry', username: 'me', password: 'mine' } })
  const asked = () => bad.seen[`/v2/mine/blobs/${digestOf(image.layers[1])}`]
  const first = asked()
  assert.ok(first === 1 || first === 2, 'with the password, and before that without it unless another part of the image was refused sooner')
  const stolen = await theirs.failed({ fromImage: 'bad.example/thief:1' })
  assert.match(stolen.reason.message, /the registry does not have it/)
  // Its own team needs them once; what was fetched without a password is everybody's.
  await builds.ready('private-again', { force: true, fromImage: 'bad.example/mine:1', fromImageRegistry: { type: 'registry', username: 'me', password: 'mine' } })
  assert.equal(asked(), first, 'asked for again')
  await builds.ready('shared', { fromImage: 'bad.example/shared:1' })
  await theirs.ready('shared', { fromImage: 'bad.example/thief:shared' })
})

test('layers are charged to the team that fetches them', async () => {
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'small', maxDiskMB: 2 })
  const { key } = (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body
  const theirs = builder({ api: (method, target, body) => server.api(method, target, body, { key }) })
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'large', content: crypto.randomBytes(5_000_000) }])] })
  answerBadly = (request, response) => serveImage(image, request, response)
  const end = await theirs.failed({ fromImage: 'bad.example/large:1' })
  assert.match(end.reason.message, /your team's uploads and other temporary files hold \d MiB, and 1 MiB more are over its limit of 2 MiB/)
  await eventually('the charge ends with the build', async () => /^quicksand_spool_bytes 0$/m.test((await server.api('GET', '/metrics')).text))
  await builds.ready('large', { fromImage: 'bad.example/large:1' })
})

test('registries that stand still or cut the line are given up', { timeout: 300_000 }, async () => {
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'f', content: 'y'.repeat(100_000) }])], plain: true })
  const isBlob = (request) => request.url.endsWith(digestOf(image.layers[1]))
  answerBadly = (request, response) => {
    if (!isBlob(request)) return serveImage(image, request, response)
    response.writeHead(200, { 'content-length': image.layers[1].length }).write(image.layers[1].subarray(0, 100))
    return true
  }
  await refused({ fromImage: 'bad.example/stalls' }, /sends nothing more/, 90_000)
  answerBadly = (request, response) => {
    if (!isBlob(request)) return serveImage(image, request, response)
    request.socket.destroy()
    return true
  }
  await refused({ fromImage: 'bad.example/cuts' }, /bad\.example\/cuts/, 90_000)
})
