// HTTPS against nginx with the same certificate and the same ciphers: handshakes and requests.
import { execFile, execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import tls from 'node:tls'
import { promisify } from 'node:util'
import { binary, eventually } from '../tests/harness/server.mjs'
import { SUITES } from './nginx.mjs'

const OURS = 8443
const THEIRS = 8444
const execute = promisify(execFile)

// Arguments of the server under test, and the files that they name; nginx's words for those, and where the server listens.
export const tlsOfNginx = (scratch) => `ssl_certificate ${scratch}/tls/tls/cert.pem; ssl_certificate_key ${scratch}/tls/tls/key.pem;`
export const tlsUrl = `https://127.0.0.1:${OURS}/`
export function tlsArgs(scratch) {
  const folder = path.join(scratch, 'tls')
  fs.rmSync(folder, { recursive: true, force: true })
  execFileSync(binary, ['tls', 'init', '--domain', 'bench.test', '--data', folder])
  return ['--listen-tls', `127.0.0.1:${OURS}`, '--tls-cert', `${folder}/tls/cert.pem`, '--tls-key', `${folder}/tls/key.pem`]
}

async function nginxTls(scratch) {
  const folder = path.join(scratch, 'nginx-tls')
  fs.rmSync(folder, { recursive: true, force: true })
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(
    path.join(folder, 'nginx.conf'),
    `daemon off; worker_processes auto; worker_priority -10; user root; pid ${folder}/pid; error_log ${folder}/error.log;
events { worker_connections 8192; }
http {
  access_log off; keepalive_requests 1000000000; default_type application/json;
  ${SUITES}
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join(' ')}
  server { listen 127.0.0.1:${THEIRS} ssl reuseport; ${tlsOfNginx(scratch)} location = /health { return 200 "{}"; } }
}
`,
  )
  const child = spawn('/usr/sbin/nginx', ['-c', path.join(folder, 'nginx.conf'), '-p', folder], { stdio: 'ignore' })
  await eventually('nginx', () => new Promise((done) => tls.connect({ port: THEIRS, host: '127.0.0.1', rejectUnauthorized: false }, function () { this.destroy(), done(true) }).on('error', () => done(false))), 5000)
  return { stop: () => new Promise((done) => (child.once('exit', done), child.kill('SIGTERM'))) }
}

// Whole handshakes in a second, by four clients that do nothing else.
async function handshakes(port) {
  const runs = await Promise.all(Array.from({ length: 4 }, () => execute('openssl', ['s_time', '-new', '-tls1_3', '-time', '3', '-connect', `127.0.0.1:${port}`])))
  return runs.reduce((sum, { stdout }) => {
    const [, count, seconds] = /(\d+) connections in (\d+) real seconds/.exec(stdout)
    return sum + Number(count) / Number(seconds)
  }, 0)
}

async function requests(port) {
  const { stdout } = await execute('wrk', ['-t', '2', '-c', '64', '-d', '4s', `https://127.0.0.1:${port}/health`])
  if (/Non-2xx/.test(stdout)) throw new Error(stdout)
  return Number(/Requests\/sec:\s+([\d.]+)/.exec(stdout)[1])
}

export async function partTls(server, { measured, note, scratch }) {
  const nginx = await nginxTls(scratch)
  const ours = { handshakes: [], requests: [] }
  const theirs = { handshakes: [], requests: [] }
  try {
    for (let round = 0; round < 3; round++) {
      theirs.handshakes.push(await handshakes(THEIRS))
      ours.handshakes.push(await handshakes(OURS))
      theirs.requests.push(await requests(THEIRS))
      ours.requests.push(await requests(OURS))
    }
  } finally {
    await nginx.stop()
  }
  const middle = (list) => [...list].sort((a, b) => a - b)[1]
  note('TLS handshakes', middle(ours.handshakes) / 1000, 'k/s')
  note('nginx, TLS handshakes', middle(theirs.handshakes) / 1000, 'k/s')
  note('GET /health by HTTPS', middle(ours.requests) / 1000, 'k requests/s')
  note('nginx, static reply by HTTPS', middle(theirs.requests) / 1000, 'k requests/s')
  measured.tls_handshakes_vs_nginx = middle(ours.handshakes) / middle(theirs.handshakes)
  measured.tls_requests_vs_nginx = middle(ours.requests) / middle(theirs.requests)
}
