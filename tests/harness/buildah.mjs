// buildah with a store of its own: images made of a directory, built from Dockerfiles, and looked at.
import { execFile, execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)

export class Buildah {
  constructor(folder) {
    this.folder = folder
    fs.mkdirSync(folder, { recursive: true })
    // Neither the host's registries nor its policy matter: nothing is pulled.
    fs.writeFileSync(path.join(folder, 'policy.json'), '{"default":[{"type":"insecureAcceptAnything"}]}')
    fs.writeFileSync(path.join(folder, 'registries.conf'), 'unqualified-search-registries = []\n')
    this.common = ['--root', path.join(folder, 'root'), '--runroot', path.join(folder, 'run'), '--storage-driver', 'overlay', '--registries-conf', path.join(folder, 'registries.conf')]
    this.containers = []
  }

  async run(...args) {
    const [command, ...rest] = args
    const { stdout } = await execute('buildah', [...this.common, command, ...rest], {
      maxBuffer: 1 << 26,
      env: { PATH: process.env.PATH, HOME: this.folder, TMPDIR: this.folder, BUILDAH_ISOLATION: 'chroot' },
    })
    return stdout.trim()
  }

  // An image with one layer: all of the directory.
  async importRoot(name, directory) {
    const container = await this.run('from', 'scratch')
    const root = await this.run('mount', container)
    await execute('cp', ['-a', '--reflink=auto', `${directory}/.`, root])
    await this.run('umount', container)
    await this.run('config', '--env', 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', container)
    await this.run('commit', '--quiet', '--rm', container, name)
  }

  // As an archive of an OCI image.
  save(name, file) {
    return this.run('push', '--quiet', '--disable-compression', '--signature-policy', path.join(this.folder, 'policy.json'), name, `oci-archive:${file}`)
  }

  bud(name, context, ...options) {
    return this.run('bud', '--pull-never', '--signature-policy', path.join(this.folder, 'policy.json'), '--tag', name, ...options, context)
  }

  // Where the files of an image are.
  async mount(name) {
    const container = await this.run('from', '--pull-never', '--signature-policy', path.join(this.folder, 'policy.json'), name)
    this.containers.push(container)
    return this.run('mount', container)
  }

  async destroy() {
    for (const container of this.containers) await this.run('rm', container).catch(() => {})
    await execute('sh', ['-c', `umount -R '${this.folder}/root/overlay' 2>/dev/null; rm -rf --one-file-system '${this.folder}'`]).catch(() => {})
  }
}

// A root with busybox as all of its programs, two megabytes.
export function makeSmallRoot(directory) {
  for (const folder of ['bin', 'etc', 'root', 'tmp', 'proc', 'sys', 'dev', 'run', 'usr/bin', 'usr/local/bin', 'var', 'home']) fs.mkdirSync(path.join(directory, folder), { recursive: true })
  fs.chmodSync(path.join(directory, 'tmp'), 0o1777)
  fs.chmodSync(path.join(directory, 'root'), 0o700)
  fs.copyFileSync('/usr/bin/busybox', path.join(directory, 'bin/busybox'))
  fs.chmodSync(path.join(directory, 'bin/busybox'), 0o755)
  const tools = 'sh ls cat echo mkdir rm rmdir cp mv ln chmod chown touch id pwd env printf test [ grep sed awk head tail wc sort find tar gzip gunzip true false sleep mktemp dirname basename sha256sum stat tr cut expr httpd wget adduser addgroup seq date readlink'.split(' ')
  for (const tool of tools) fs.symlinkSync('busybox', path.join(directory, 'bin', tool))
  fs.writeFileSync(path.join(directory, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235:app:/home/app:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n')
  fs.writeFileSync(path.join(directory, 'etc/group'), 'root:x:0:\napp:x:1235:\nstaff:x:50:\nuser:x:1000:\n')
  for (const [name, id] of [['app', 1234], ['user', 1000]]) {
    fs.mkdirSync(path.join(directory, 'home', name))
    fs.chownSync(path.join(directory, 'home', name), id, id === 1000 ? 1000 : 1235)
  }
}

// A Debian with gcc and Python, without what weighs most: of the base template.
export function makeToolsRoot(directory) {
  const library = './usr/lib/x86_64-linux-gnu'
  const without = [
    ...['./usr/share/*', './usr/sbin/*', './usr/local/bin/*', './var/lib/*', './var/cache/*', './usr/include/node', './usr/include/c++'],
    ...['git-core', 'file', 'openssh', 'apt', 'python3.11/test', 'python3.11/config-*', 'python3/dist-packages/docutils'].map((name) => `./usr/lib/${name}`),
    ...['perl*', 'gconv', 'libperl*', 'libnode*', 'libicu*', 'libcrypto.a', 'libpython3*.a', 'libssl.a'].map((name) => `${library}/${name}`),
    ...['git*', 'scalar', 'perl*', 'node*', 'vim*', 'tmux', 'ssh*', 'gpg*', 'gdb*', 'rsync', 'zstd', 'nano', '*-lto-dump*', '*-ld.gold', '*-dwp', '*g++*', '*c++*', '*gcov*', '*gprof*'].map((name) => `./usr/bin/${name}`),
    ...['cc1plus', 'lto1', 'lto-*', 'lib*san*', 'libstdc++.*', 'libgomp*', '__pycache__', 'idlelib', 'ensurepip'],
  ]
  const flags = without.map((name) => `--exclude='${name}'`).join(' ')
  execFileSync('sh', ['-c', `tar -C '${process.env.QUICKSAND_BASE_LAYER}' ${flags} -cf - . | tar -C '${directory}' -xf -`])
}
