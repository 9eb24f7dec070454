// A package mirror: a signed archive of Debian made of the packages that packages.sh has fetched, offered to sandboxes by
// world.mjs as http://203.0.113.1/mirror/NAME. What is wrong with it is the test's to say.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { repository } from './server.mjs'

const packages = path.join(repository, 'build/packages')
const mirrors = '/mnt/mirrors' // the lab's own; world.mjs serves it
const architecture = execFileSync('dpkg', ['--print-architecture'], { encoding: 'utf8' }).trim()

// A key that signs, in a home of its own.
export class Key {
  constructor() {
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'mirror-key-'))
    this.gpg('--quick-generate-key', '--passphrase', '', 'package mirror <mirror@web.test>', 'ed25519', 'sign', 'never')
    this.file = path.join(this.home, 'key.gpg')
    fs.writeFileSync(this.file, this.gpg('--export'))
    fs.chmodSync(this.home, 0o755)
  }

  gpg(...args) {
    return execFileSync('gpg', ['--homedir', this.home, '--batch', '--quiet', '--pinentry-mode', 'loopback', ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  }

  sign(file) {
    this.gpg('--yes', '--clearsign', '--output', file, `${file}.text`)
    fs.rmSync(`${file}.text`)
  }

  remove() {
    execFileSync('gpgconf', ['--homedir', this.home, '--kill', 'all'])
    fs.rmSync(this.home, { recursive: true, force: true })
  }
}

// suites: { bookworm: text of Packages }, each with its signed InRelease; codename: what that says instead of the suite's name.
export function makeMirror(name, { key, suites, codename }) {
  assert.ok(fs.existsSync(`${packages}/Packages`), 'there are no packages: tests/harness/packages.sh build/packages BASE_LAYER')
  const root = path.join(mirrors, name)
  fs.rmSync(root, { recursive: true, force: true })
  for (const [suite, text] of Object.entries(suites)) {
    const list = `main/binary-${architecture}/Packages`
    fs.mkdirSync(path.dirname(`${root}/dists/${suite}/${list}`), { recursive: true })
    fs.writeFileSync(`${root}/dists/${suite}/${list}`, text)
    const hash = crypto.createHash('sha256').update(text).digest('hex')
    fs.writeFileSync(`${root}/dists/${suite}/InRelease.text`, `Origin: Debian
Suite: ${codename ?? suite}
Codename: ${codename ?? suite}
Date: ${new Date(Date.now() - 3_600_000).toUTCString().replace('GMT', 'UTC')}
Architectures: ${architecture}
Components: main
SHA256:
 ${hash} ${Buffer.byteLength(text)} ${list}
`)
    key.sign(`${root}/dists/${suite}/InRelease`)
  }
  fs.symlinkSync(`${packages}/pool`, `${root}/pool`)
  return { root, url: `http://203.0.113.1/mirror/${name}` }
}

// Its description in Packages, of those that are wanted.
export function listOf(isWanted = () => true) {
  const all = fs.readFileSync(`${packages}/Packages`, 'utf8').split('\n\n').filter((text) => text.trim())
  return all.filter((text) => isWanted(/^Package: (.*)$/m.exec(text)[1])).map((text) => `${text.trim()}\n\n`).join('')
}
