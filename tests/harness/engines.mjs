// dockerd and podman's service, each in directories, a network and mounts of its own that go with it.
//
//   const engine = await startEngine('podman')   → {kind, socket, importImage(name, tarStream), call(), stop()}
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const CGROUP = '/sys/fs/cgroup'

function cgroupFolders(name) {
  const found = []
  for (const root of [CGROUP, ...fs.readdirSync(CGROUP).map((one) => path.join(CGROUP, one))]) {
    const folder = path.join(root, name)
    if (fs.existsSync(folder)) found.push(folder)
  }
  return found
}

// podman's usual crun refuses hosts with v1 controllers beside a v2 hierarchy that carries some of its own; runc takes them all.
export function ociRuntime() {
  const pure = fs.existsSync(path.join(CGROUP, 'cgroup.controllers'))
  return pure && spawnSync('which', ['crun']).status === 0 ? 'crun' : 'runc'
}

function podmanFiles(home) {
  fs.mkdirSync(path.join(home, 'cni'))
  fs.writeFileSync(
    path.join(home, 'containers.conf'),
    `[network]\nnetwork_config_dir = "${home}/cni"\n[engine]\ncgroup_manager = "cgroupfs"\nruntime = "${ociRuntime()}"\nevents_logger = "file"\ntmp_dir = "${home}/tmp"\n`,
  )
  fs.writeFileSync(
    path.join(home, 'storage.conf'),
    `[storage]\ndriver = "overlay"\ngraphroot = "${home}/root"\nrunroot = "${home}/runroot"\n`,
  )
}

// What runs in the namespaces; its own /run, because both keep state there whatever they are told.
function script(kind, home, group) {
  const begin = 'ip link set lo up; mount -t tmpfs tmpfs /run; mkdir -p /var/lib/cni; mount -t tmpfs tmpfs /var/lib/cni; '
  if (kind === 'podman') return `${begin} exec podman system service --time 0 unix://${home}/sock`
  return (
    `${begin} exec dockerd --iptables=false --ip6tables=false --data-root ${home}/data --exec-root ${home}/exec ` +
    `--pidfile ${home}/pid --host unix://${home}/sock --cgroup-parent ${group}`
  )
}

// reachable: containers are in the network of the lab, where the server reaches their ports, and have a way to the world.
export async function startEngine(kind, { reachable = false } = {}) {
  const program = kind === 'podman' ? 'podman' : 'dockerd'
  assert.equal(spawnSync('which', [program]).status, 0, `${program} is not installed: run tools/setup.sh test`)
  const engine = new Engine(kind, reachable)
  await engine.start()
  return engine
}

class Engine {
  constructor(kind, reachable) {
    this.kind = kind
    this.reachable = reachable
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), `${kind}-`))
    this.socket = path.join(this.home, 'sock')
    this.group = kind === 'podman' ? 'libpod_parent' : path.basename(this.home)
    this.hadGroup = cgroupFolders(this.group).length > 0
    this.log = ''
  }

  async start() {
    if (this.kind === 'podman') podmanFiles(this.home)
    // In a session of its own, so that all of it can be ended at once.
    if (this.reachable) {
      const nat = 'add table ip containers; add chain ip containers out { type nat hook postrouting priority 100 ; }; add rule ip containers out oifname "up0" masquerade'
      assert.equal(spawnSync('nft', [nat]).status, 0)
    }
    this.child = spawn('unshare', ['--mount', ...(this.reachable ? [] : ['--net']), '--propagation', 'private', '--', 'sh', '-c', script(this.kind, this.home, this.group)], {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        PATH: process.env.PATH,
        HOME: this.home,
        TMPDIR: this.home, // podman leaves what it was given to load there
        CONTAINERS_CONF: path.join(this.home, 'containers.conf'),
        CONTAINERS_STORAGE_CONF: path.join(this.home, 'storage.conf'),
      },
    })
    this.ended = new Promise((done) => this.child.once('exit', done))
    this.child.stdout.on('data', (chunk) => (this.log += chunk))
    this.child.stderr.on('data', (chunk) => (this.log += chunk))
    for (let i = 0; i < 600; i++) {
      if (this.child.exitCode !== null) break
      if ((await this.call('GET', '/version').catch(() => null))?.status === 200) return
      await sleep(50)
    }
    throw new Error(`${this.kind} did not come up:\n${this.log.slice(-3000)}`)
  }

  call(method, target, body) {
    return new Promise((done, fail) => {
      const request = http.request({ socketPath: this.socket, method, path: target, timeout: 300_000 }, (response) => {
        let text = ''
        response.on('data', (chunk) => (text += chunk))
        response.on('end', () => done({ status: response.statusCode, text }))
        response.on('error', fail)
      })
      request.on('error', fail)
      request.on('timeout', () => request.destroy(new Error('timeout')))
      if (body?.pipe) {
        request.setHeader('Content-Type', 'application/x-tar')
        body.pipe(request)
      } else request.end(body)
    })
  }

  // An image of what is below a folder.
  async importImage(name, folder, exclude = []) {
    const options = ['-C', folder, '--one-file-system', ...exclude.map((one) => `--exclude=./${one}`), '-cf', '-', '.']
    const tar = spawn('tar', options, { stdio: ['ignore', 'pipe', 'inherit'] })
    const { status, text } = await this.call('POST', `/v1.40/images/create?fromSrc=-&repo=${name}&tag=latest`, tar.stdout)
    assert.equal(status, 200, text)
    assert.doesNotMatch(text, /"error"/)
  }

  async containers() {
    const { text } = await this.call('GET', '/v1.40/containers/json?all=1')
    return JSON.parse(text).map((one) => one.Id)
  }

  async images() {
    const { text } = await this.call('GET', '/v1.40/images/json')
    return JSON.parse(text).flatMap((one) => one.RepoTags ?? [])
  }

  async stop() {
    for (const id of await this.containers().catch(() => [])) await this.call('DELETE', `/v1.40/containers/${id}?force=1`).catch(() => {})
    this.child.kill('SIGTERM')
    await Promise.race([this.ended, sleep(20_000)])
    try {
      process.kill(-this.child.pid, 'SIGKILL')
    } catch {}
    await this.ended
    if (this.reachable) {
      spawnSync('nft', ['delete', 'table', 'ip', 'containers'])
      spawnSync('ip', ['link', 'delete', 'docker0'])
    }
    if (!this.hadGroup) {
      for (const folder of cgroupFolders(this.group)) spawnSync('find', [folder, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', '+'])
    }
    fs.rmSync(this.home, { recursive: true, force: true })
  }
}

// The smallest root file system that has what the provider asks of an image.
export function busyboxRoot() {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'busybox-'))
  for (const folder of ['bin', 'etc', 'dev', 'proc', 'sys', 'root', 'tmp', 'var/tmp', 'home/user']) fs.mkdirSync(path.join(root, folder), { recursive: true })
  fs.copyFileSync('/bin/busybox', path.join(root, 'bin/busybox'))
  fs.chmodSync(path.join(root, 'bin/busybox'), 0o755)
  const applets = spawnSync('/bin/busybox', ['--list'], { encoding: 'utf8' }).stdout.split('\n').filter((name) => name && name !== 'busybox')
  for (const name of applets) fs.symlinkSync('busybox', path.join(root, 'bin', name))
  fs.writeFileSync(path.join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n')
  fs.writeFileSync(path.join(root, 'etc/group'), 'root:x:0:\nuser:x:1000:\n')
  fs.chmodSync(path.join(root, 'tmp'), 0o1777)
  fs.chmodSync(path.join(root, 'var/tmp'), 0o1777)
  fs.chownSync(path.join(root, 'home/user'), 1000, 1000)
  return root
}
