// podman's API service with an image made of our own root filesystem, and its create+start.
import { execFile, spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { promisify } from 'node:util'
import { ociRuntime } from '../tests/harness/engines.mjs'
import { eventually } from '../tests/harness/server.mjs'

const execute = promisify(execFile)

export async function podmanPeer(rootfs, scratch) {
  const folder = path.join(scratch, 'podman')
  const socket = path.join('/run', `quicksand-bench-podman-${process.pid}.sock`)
  const common = ['--root', path.join(folder, 'root'), '--runroot', path.join(folder, 'run'), '--cgroup-manager', 'cgroupfs', '--runtime', ociRuntime(), '--storage-driver', 'overlay']
  const podman = (...args) => execute('podman', [...common, ...args], { maxBuffer: 1 << 26 })
  const groups = () => execute('find', ['/sys/fs/cgroup', '-type', 'd', '-name', 'libpod_parent']).then(({ stdout }) => stdout.split('\n').filter(Boolean), () => [])
  const groupsBefore = new Set(await groups())
  let service
  const stop = async () => {
    if (service && service.exitCode === null) await new Promise((done) => (service.once('exit', done), service.kill('SIGTERM')))
    fs.rmSync(socket, { force: true })
    await execute('sh', ['-c', `umount -R '${folder}/root/overlay' 2>/dev/null; rm -rf '${folder}'`]).catch(() => {})
    for (const group of await groups()) if (!groupsBefore.has(group)) await execute('find', [group, '-depth', '-type', 'd', '-exec', 'rmdir', '{}', '+']).catch(() => {})
  }
  try {
    fs.mkdirSync(folder, { recursive: true })
    await execute('sh', ['-c', `tar -C '${rootfs}' -cf - . | podman ${common.map((word) => `'${word}'`).join(' ')} import - quicksand-bench`], { maxBuffer: 1 << 26 })
    service = spawn('podman', [...common, 'system', 'service', '--time', '0', `unix://${socket}`], { stdio: ['ignore', 'ignore', 'pipe'] })
    let errors = ''
    service.stderr.on('data', (chunk) => (errors += chunk))
    const agent = new http.Agent({ keepAlive: true })
    const call = (method, target, body) =>
      new Promise((done, fail) => {
        const text = body === undefined ? undefined : JSON.stringify(body)
        const headers = text ? { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) } : {}
        const request = http.request({ socketPath: socket, method, path: target, headers, agent }, (response) => {
          let data = ''
          response.on('data', (chunk) => (data += chunk))
          response.on('end', () => (response.statusCode < 300 ? done(data ? JSON.parse(data) : {}) : fail(new Error(`${method} ${target}: ${response.statusCode} ${data}`))))
        })
        request.on('error', fail)
        request.end(text)
      })
    await eventually('podman service', () => call('GET', '/v4.0.0/libpod/info').then(() => true, () => false), 15_000, 100)
    const spec = { image: 'localhost/quicksand-bench:latest', command: ['sleep', '1000'], netns: { nsmode: 'none' }, terminal: false, r_limits: [{ type: 'NOFILE', soft: 1024, hard: 1024 }, { type: 'NPROC', soft: 1024, hard: 1024 }] }
    const createAndStart = async () => {
      const began = performance.now()
      const { Id: id } = await call('POST', '/v4.0.0/libpod/containers/create', spec)
      await call('POST', `/v4.0.0/libpod/containers/${id}/start`)
      const took = performance.now() - began
      await call('DELETE', `/v4.0.0/libpod/containers/${id}?force=true&timeout=0`)
      return took
    }
    await createAndStart()
    return { createAndStart, stop, errors: () => errors }
  } catch (error) {
    await stop()
    return { reason: error.message.trim().split('\n').slice(-3).join(' ') }
  }
}
