// Templates from a release of Debian by its name: bootstrapped from a package mirror of the lab, by a Dockerfile and by a recipe,
// shared by all, and from mirrors that are not what they should be.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Key, listOf, makeMirror } from '../harness/mirror.mjs'
import { builder } from '../harness/registry.mjs'
import { loadSdk } from '../harness/sdk.mjs'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

let server, sdk, builds, key, otherKey
// One more package comes with the security updates only, so that those are seen to be used.
const system = listOf((name) => name !== 'hello')
const updates = listOf((name) => name === 'hello')
const suites = { bookworm: system, 'bookworm-updates': '', 'bookworm-security': updates }
const mirror = (options) => makeMirror('live', { key, suites, ...options })

before(async () => {
  key = new Key()
  otherKey = new Key()
  const { url } = mirror()
  server = await startServer({ args: ['--warm', '0', '--package-mirror', url, '--package-security', url, '--package-keyring', key.file, '--package-seconds', '1'] })
  sdk = await loadSdk(server)
  builds = builder(server)
})
after(async () => {
  await server?.destroy()
  key?.remove()
  otherKey?.remove()
})

const trees = () => fs.readdirSync(path.join(server.data, 'layers')).filter((name) => name.startsWith('tree'))

function quicksand(...args) {
  return new Promise((done) => {
    const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', TMPDIR: server.home, ...server.clientEnv() } })
    let text = ''
    child.stdout.on('data', (chunk) => (text += chunk))
    child.stderr.on('data', (chunk) => (text += chunk))
    child.on('close', (code) => done({ code, text }))
  })
}

test('a release by a Dockerfile: it builds, starts and runs, and apt works in it', { timeout: 600_000 * patience }, async () => {
  const context = path.join(server.home, 'context')
  fs.mkdirSync(context)
  fs.writeFileSync(path.join(context, 'Dockerfile'), 'FROM bootstrap://debian:bookworm\nRUN cat /etc/os-release >/mine\nUSER user\n')
  // Somebody else wants it at the same time: it is made once, and one waits for the other.
  const [built, meanwhile] = await Promise.all([
    quicksand('template', 'build', 'small', context),
    builds.ready('meanwhile', { fromBootstrap: 'debian:bookworm' }, 500_000),
  ])
  assert.equal(built.code, 0, built.text)
  const texts = [built.text, meanwhile.text]
  for (const words of [/\[base\] another build is making it: waiting/, /CACHED \[base\] FROM bootstrap:/, /unpacked \d+ packages/])
    assert.equal(texts.filter((text) => words.test(text)).length, 1, `${words}:\n${texts.join('\n----\n')}`)
  if (!/unpacked/.test(built.text)) built.text = built.text.replace('CACHED ', '') + meanwhile.text
  assert.match(built.text, /\[base\] FROM bootstrap:\/\/debian:bookworm \[http:\/\/203\.0\.113\.1\/mirror\/live\]/)
  assert.match(built.text, /unpacked \d+ packages/)
  assert.match(built.text, /Setting up apt /)
  const sandbox = await sdk.Sandbox.create('small', { timeoutMs: 120_000 * patience })
  try {
    const run = async (command, options) => (await sandbox.commands.run(command, options)).stdout.trim()
    assert.match(await run('cat /mine'), /^VERSION_CODENAME=bookworm$/m)
    assert.equal(await run('id -un; pwd; dpkg --audit; dpkg --verify; ls /var/cache/apt/archives'), 'user\n/\npartial')
    // A minimal one: no compiler, no Python; whatever is not a package's was put there by us.
    assert.equal(await run('command -v gcc python3 perl sudo || true'), '/usr/bin/perl')
    assert.equal(await run('stat -c "%U:%G %a" /etc/shadow /usr/bin/passwd /tmp /root'), 'root:shadow 640\nroot:root 4755\nroot:root 1777\nroot:root 700')
    await run('apt-get update && apt-get install -y hello', { user: 'root', timeoutMs: 60_000 * patience })
    assert.equal(await run('hello; dpkg-query -W -f "\\${Status}" hello'), 'Hello, world!\ninstall ok installed')
  } finally {
    await sandbox.kill()
  }
})

test('it is made once, whichever team names it, and what fails leaves it as it was', { timeout: 120_000 * patience }, async () => {
  const before = trees()
  const end = await builds.ready('again', { fromBootstrap: 'debian:bookworm' })
  assert.match(end.text, /^CACHED \[base\] FROM bootstrap:\/\/debian:bookworm/m)
  const team = (await server.api('POST', '/admin/teams', { name: 'others' })).body
  const theirs = (await server.api('POST', `/admin/teams/${team.id ?? team.teamID}/api-keys`, { name: 'k' })).body.key
  const others = builder({ api: (method, target, body) => server.api(method, target, body, { key: theirs }) })
  const shared = await others.ready('theirs', { fromBootstrap: 'debian:bookworm' })
  assert.match(shared.text, /^CACHED \[base\] FROM bootstrap:\/\/debian:bookworm/m)
  assert.deepEqual(trees(), before)
  mirror({ key: otherKey })
  await builds.failed({ fromBootstrap: 'debian:bookworm', force: true })
  await builds.ready('still', { fromBootstrap: 'debian:bookworm' })
  await eventually('nothing is left of what failed', () => trees().length === before.length)
})

test('with force it is made anew, and what comes later begins from that', { timeout: 600_000 * patience }, async () => {
  mirror()
  const old = trees()
  const forced = await builds.ready('anew', { fromBootstrap: 'debian:bookworm', force: true }, 500_000)
  assert.doesNotMatch(forced.text, /CACHED/)
  assert.match(forced.text, /unpacked \d+ packages/)
  const made = trees().filter((name) => !old.includes(name))
  assert.notEqual(made.length, 0)
  const after = await builds.ready('after', { fromBootstrap: 'debian:bookworm' })
  assert.match(after.text, /^CACHED \[base\] FROM bootstrap:/m)
  assert.deepEqual(trees().filter((name) => !old.includes(name)), made)
  for (const name of ['small', 'anew', 'after']) {
    const sandbox = await sdk.Sandbox.create(name, { timeoutMs: 120_000 * patience })
    assert.match((await sandbox.commands.run('cat /etc/os-release')).stdout, /^VERSION_CODENAME=bookworm$/m)
    await sandbox.kill()
  }
})

// Each with what the error says besides the step, the release and the mirror.
const hostile = {
  'signed by another key': [() => mirror({ key: otherKey }), /fetch the list of bookworm from \S+: it is not signed by a key of the keyring \(--package-keyring\)/],
  'not signed': [
    () => {
      const { root } = mirror()
      for (const suite of Object.keys(suites)) {
        const file = `${root}/dists/${suite}/InRelease`
        const text = fs.readFileSync(file, 'utf8').replace(/^-----BEGIN PGP SIGNED[^]*?\n\n/, '').replace(/\n-----BEGIN PGP SIGNATURE[^]*$/, '\n')
        fs.writeFileSync(`${root}/dists/${suite}/Release`, text)
        fs.rmSync(file)
      }
    },
    /fetch the list of bookworm from \S+: it is not signed/,
  ],
  'a list that was changed after it was signed': [
    () => {
      const { root } = mirror()
      const file = `${root}/dists/bookworm/InRelease`
      fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace('Origin: Debian', 'Origin: debian'))
    },
    /fetch the list of bookworm from \S+: it is not signed/,
  ],
  'a package that was changed': [
    () => {
      const { root } = mirror()
      const pool = fs.readlinkSync(`${root}/pool`)
      fs.rmSync(`${root}/pool`)
      fs.mkdirSync(`${root}/pool`)
      for (const name of fs.readdirSync(pool)) fs.symlinkSync(`${pool}/${name}`, `${root}/pool/${name}`)
      const name = fs.readdirSync(pool).find((one) => one.startsWith('bash_'))
      const bytes = fs.readFileSync(`${pool}/${name}`)
      bytes[bytes.length >> 1] ^= 1
      fs.rmSync(`${root}/pool/${name}`)
      fs.writeFileSync(`${root}/pool/${name}`, bytes)
    },
    /fetch the packages from \S+: it is not what the signed list says/,
  ],
  'another release than the one that was asked for': [() => mirror({ codename: 'bullseye' }), /fetch the list of bookworm from \S+: it is that of another release/],
  'a mirror that lacks packages': [
    () => mirror({ suites: { ...suites, bookworm: listOf((name) => name !== 'hello' && name !== 'libc6') } }),
    /fetch the packages from \S+: some of a minimal system are missing/,
  ],
  'a mirror that stalls': [
    () => {
      const { root } = mirror()
      fs.writeFileSync(`${root}/stalls`, '')
    },
    /fetch the list of bookworm from \S+: no answer; sandboxes must reach it/,
  ],
}

for (const [what, [make, message]] of Object.entries(hostile)) {
  test(`refused: ${what}`, { timeout: 60_000 * patience }, async () => {
    make()
    const end = await builds.failed({ fromBootstrap: 'debian:bookworm', force: true }, 50_000)
    assert.match(end.reason.message, message)
    assert.match(end.reason.message, /^bootstrap: exit status 1: fetch the \S+ .*from http:\/\/203\.0\.113\.1\/mirror\/live: /)
    assert.equal(end.reason.step, 'base')
  })
}

test('a release that nobody knows, and a name that is none', { timeout: 60_000 * patience }, async () => {
  mirror()
  const end = await builds.failed({ fromBootstrap: 'debian:nowhere' })
  assert.match(end.reason.message, /^bootstrap: exit status 1: fetch the list of nowhere from http:\S+: it is not there; is that a release's name/)
  const asked = await builds.ask('named-badly')
  const answer = await server.api('POST', `/v2/templates/${asked.templateID}/builds/${asked.buildID}`, { fromBootstrap: 'debian:x;reboot', steps: [] })
  assert.equal(answer.status, 400)
  assert.match(answer.body.message, /fromBootstrap is debian:RELEASE/)
})

test('settings that are wrong are told at the start', { timeout: 60_000 * patience }, async () => {
  await assert.rejects(startServer({ args: ['--package-mirror', 'http://a [trusted=yes] b'] }), /package-mirror must be the URL of an archive of Debian/)
  await assert.rejects(startServer({ args: ['--package-security', 'ftp://a'] }), /package-security must be the URL/)
  await assert.rejects(startServer({ args: ['--package-keyring', '/nowhere/keys.gpg'] }), /package-keyring: read '\/nowhere\/keys\.gpg'/)
})
