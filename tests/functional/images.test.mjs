// Templates from images: a real registry, images made by buildah, every way in which an image may come.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Buildah, builder, busyboxLayer, digestOf, ociImage, sha256, startBadRegistry, startRegistry, serveImage, tar } from '../harness/registry.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { patience, startServer } from '../harness/server.mjs'

let registry, guarded, bad, server, sdk, buildah, scratch, builds
let answerBadly = () => false
before(async () => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'images-test-'))
  buildah = new Buildah()
  registry = await startRegistry()
  guarded = await startRegistry({ login: { username: 'me', password: 'pass word' } })
  bad = await startBadRegistry((request, response) => answerBadly(request, response))
  server = await startServer({
    args: ['--registry-mirrors', `bad.example=${bad.url}`, '--warm', '2', '--registry-mirror', `docker.io=${registry.url}`, '--registry-mirror', `private.example=${guarded.url}`],
    env: { QUICKSAND_REGISTRY_MIRRORS: `ghcr.io=${registry.url}` },
  })
  sdk = await loadSdk(server)
  builds = builder(server)
})
after(async () => {
  await server?.destroy()
  await registry?.stop()
  await guarded?.stop()
  await bad?.stop()
  buildah?.remove()
  fs.rmSync(scratch, { recursive: true, force: true })
})

async function inside(template, command, options) {
  const sandbox = await sdk.Sandbox.create(template, { timeoutMs: 120_000 * patience })
  try {
    return (await sandbox.commands.run(command, options)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}

const trees = () => fs.readdirSync(path.join(server.data, 'layers')).filter((name) => name.startsWith('tree'))

// Everything that can be said of each file, by name.
function listing(directory) {
  const text = execFileSync('find', ['.', '-printf', '%P\\t%y %U:%G %m %n %s %T@ %l\\n'], { cwd: directory, encoding: 'utf8', maxBuffer: 1 << 28 })
  return new Map(text.trimEnd().split('\n').map((line) => line.split('\t')))
}

// A layout directory of OCI's.
function layout(name, image) {
  const directory = path.join(scratch, name)
  fs.mkdirSync(path.join(directory, 'blobs/sha256'), { recursive: true })
  for (const blob of [...image.layers, image.config, image.manifest]) fs.writeFileSync(path.join(directory, 'blobs/sha256', sha256(blob)), blob)
  fs.writeFileSync(path.join(directory, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  const descriptor = { mediaType: image.type, digest: image.digest, size: image.manifest.length }
  fs.writeFileSync(path.join(directory, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [descriptor] }))
  return directory
}

test('an image of many layers is, file by file, what buildah sees', { timeout: 300_000 }, async () => {
  const context = path.join(scratch, 'context')
  fs.mkdirSync(path.join(context, 'files/deep/er'), { recursive: true })
  fs.copyFileSync('/bin/busybox', path.join(context, 'busybox'))
  fs.writeFileSync(path.join(context, 'files/deep/er/ü file'), 'x'.repeat(100_000))
  fs.symlinkSync('../nowhere', path.join(context, 'files/deep/dangling'))
  fs.writeFileSync(path.join(context, 'Dockerfile'), `FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
COPY files /files
RUN mkdir -p /d/e /d/kept/a/b /var/long && echo one >/d/one && echo two >/d/e/two && ln /d/one /d/hard && ln -s ../d/one /d/e/soft && \
  chmod 4755 /d/one && chown 12:34 /d/e/two && chmod 0500 /d/kept && echo x >/d/kept/a/b/c && touch -d '2001-02-03 04:05:06' /d/kept/a && mkfifo /d/pipe
RUN rm -rf /d/e && mkdir /d/e && echo three >/d/e/three && rm /d/hard && ln /d/one /d/other
RUN rm -rf /files/deep && mkdir -p /files/deep/new && echo again >/files/deep/new/file && rm /bin/yes && chmod 2711 /d/kept
RUN rm -rf /d/one && mkdir /d/one && echo file >/d/one/now && n=/var/long; for i in 1 2 3 4 5 6 7 8; do n=$n/${'p'.repeat(60)}; mkdir $n; done; echo deep >$n/file
ENV GREETING=hello PATH=/bin:/own
USER 1000:1000
WORKDIR /files
CMD ["sh", "-c", "sleep 1"]
`)
  await buildah.run('bud', '--layers', '--quiet', '--tag', 'many', context)
  await buildah.run('push', '--quiet', '--tls-verify=false', 'many', `docker://${registry.host}/library/many:1`)
  const before = trees()
  const end = await builds.ready('many', { fromImage: 'many:1' })
  assert.match(end.text, /FROM docker\.io\/library\/many:1 \[sha256:[0-9a-f]{64}\]/)
  // Another new one has the file that tells shells of its PATH.
  const tree = trees().find((name) => !before.includes(name) && fs.existsSync(path.join(server.data, 'layers', name, 'bin/busybox')))
  const got = listing(path.join(server.data, 'layers', tree))
  const want = listing(await buildah.mount('many'))
  // What an image needs besides, to be a sandbox: nothing that was in it is touched but the top, /etc, and directories that had to be made there.
  const added = [...got.keys()].filter((name) => !want.has(name)).sort()
  assert.deepEqual(added.filter((name) => !/^(home|root|tmp|usr|var\/tmp|etc)(\/|$)|^bin\/bash$/.test(name)), [])
  // etc/hosts and etc/resolv.conf: buildah may have put its own there for RUN.
  for (const name of ['', 'etc', 'bin', 'var', 'proc', 'sys', 'dev', 'run', 'etc/hosts', 'etc/resolv.conf']) {
    want.delete(name)
    got.delete(name)
  }
  for (const [name, facts] of want) assert.equal(got.get(name), facts, name)
  const shown = await inside('many', 'cat /d/one/now /d/e/three; id -un; echo $GREETING; stat -c "%u:%g %a" /d/kept /d/other; ls /files/deep')
  assert.equal(shown, 'file\nthree\nuser\nhello\n0:0 2711\n0:0 4755\nnew')
})

test('an image that was unpacked once is not fetched again, whoever names it', async () => {
  await registry.push('team/once', 'a', { layers: [busyboxLayer()] })
  await registry.copy(`docker://${registry.host}/team/once:a`, 'team/once:b', '--src-tls-verify=false')
  const before = trees().length
  await builds.ready('once', { fromImage: 'team/once:a' })
  assert.equal(trees().length, before + 1)
  const end = await builds.ready('once-more', { fromImage: 'ghcr.io/team/once:b' })
  assert.match(end.text, /^CACHED \[base\] FROM ghcr\.io\/team\/once:b/m)
  assert.equal(trees().length, before + 1)
})

test('zstd, Docker\'s own kind of manifest, an index, a digest', { timeout: 120_000 }, async () => {
  const layers = [busyboxLayer(), tar([{ name: 'which', content: 'this' }])]
  const image = ociImage({ layers })
  const directory = layout('layout', image)
  const descriptor = { mediaType: image.type, digest: image.digest, size: image.manifest.length }
  await registry.copy(`oci:${layout('plain', ociImage({ layers, plain: true }))}`, 'kinds:zstd', '--dest-compress', '--dest-compress-format', 'zstd')
  await registry.copy(`oci:${directory}`, 'kinds:docker', '--format', 'v2s2')
  await registry.copy(`oci:${directory}`, 'kinds:oci')
  const other = ociImage({ layers: [tar([{ name: 'wrong', content: 'machine' }])], architecture: 'riscv64' })
  await registry.push('kinds', 'other', { layers: [tar([{ name: 'wrong', content: 'machine' }])], architecture: 'riscv64' })
  const mine = { arm64: 'arm64' }[process.arch] ?? 'amd64'
  await registry.put('/v2/kinds/manifests/index', 'application/vnd.oci.image.index.v1+json', JSON.stringify({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [
      { mediaType: other.type, digest: other.digest, size: other.manifest.length, platform: { os: 'linux', architecture: 'riscv64' } },
      { ...descriptor, platform: { os: 'linux', architecture: mine } },
    ],
  }))
  const compressed = await (await fetch(`${registry.url}/v2/kinds/manifests/zstd`, { headers: { accept: image.type } })).json()
  assert.match(compressed.layers[0].mediaType, /zstd/)
  for (const name of ['zstd', 'docker', 'index']) {
    await builds.ready(`kind-${name}`, { fromImage: `ghcr.io/kinds:${name}` })
    assert.equal(await inside(`kind-${name}`, 'cat /which'), 'this')
  }
  await builds.ready('kind-digest', { fromImage: `ghcr.io/kinds@${image.digest}` })
  const end = await builds.failed({ fromImage: 'ghcr.io/kinds:other' })
  assert.match(end.reason.message, /image 'ghcr\.io\/kinds:other': it is for linux\/riscv64/)
})

test('registries that ask who it is', async () => {
  await guarded.push('secret', '1', { layers: [busyboxLayer()] })
  const nobody = await builds.failed({ fromImage: 'private.example/secret:1' })
  assert.match(nobody.reason.message, /image 'private\.example\/secret:1': the registry wants to know who asks/)
  const wrong = await builds.failed({ fromImage: 'private.example/secret:1', fromImageRegistry: { type: 'registry', username: 'me', password: 'wrong' } })
  assert.match(wrong.reason.message, /the registry refuses \(401\)/)
  assert.doesNotMatch(JSON.stringify(wrong), /wrong/)
  const end = await builds.ready('mine', { fromImage: 'private.example/secret:1', fromImageRegistry: { type: 'registry', username: 'me', password: 'pass word' } })
  assert.doesNotMatch(end.text, /pass word/)
  assert.equal(fs.readFileSync(path.join(server.data, 'store/quicksand.db')).includes('pass word'), false)
})

test('an image of blobs that the client uploads', async () => {
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'own', content: 'blobs' }])], config: { Env: ['FROM=upload'] } })
  const asked = await builds.ask('uploaded')
  for (const blob of [...image.layers, image.config, image.manifest]) {
    const link = (await server.api('GET', `/templates/${asked.templateID}/files/${sha256(blob)}`)).body
    if (!link.present) assert.ok((await fetch(link.url, { method: 'PUT', body: blob })).ok)
  }
  await builds.ready('uploaded', { fromBlobs: image.digest }, 60_000, asked)
  assert.equal(await inside('uploaded', 'cat /own; echo $FROM'), 'blobsupload')
  const missing = await builds.failed({ fromBlobs: digestOf('nobody sent this') })
  assert.match(missing.reason.message, /was not uploaded/)
})

test('an image that is not there, and a registry that is not', async () => {
  const unknown = await builds.failed({ fromImage: 'nobody/has:this' })
  assert.match(unknown.reason.message, /image 'docker\.io\/nobody\/has:this': the registry does not have it/)
  assert.equal(unknown.reason.step, 'base')
  const nowhere = await builds.failed({ fromImage: '127.0.0.1:1/x' })
  assert.match(nowhere.reason.message, /not a public address/)
})

test('a build whose line is cut goes on where it was', { timeout: 120_000 }, async () => {
  const noise = Buffer.from(Array.from({ length: 400_000 }, (_, i) => (i * i * 31 + i) % 251))
  const image = ociImage({ layers: [busyboxLayer(), tar([{ name: 'noise', content: noise }])], plain: true })
  const target = digestOf(image.layers[1])
  let cuts = 0
  answerBadly = (request, response) => {
    if (!request.url.endsWith(target) || cuts >= 2) return serveImage(image, request, response)
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0)
    cuts += 1
    response.writeHead(from ? 206 : 200, {
      'content-length': image.layers[1].length - from,
      ...(from ? { 'content-range': `bytes ${from}-${image.layers[1].length - 1}/${image.layers[1].length}` } : {}),
    })
    response.write(image.layers[1].subarray(from, from + 100_000), () => response.destroy())
    return true
  }
  await builds.ready('cut', { fromImage: 'bad.example/image' })
  assert.equal(cuts, 2)
})
