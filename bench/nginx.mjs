// nginx on as many workers as there are processors: with one static reply (by HTTP/2 without TLS too), or as a proxy before
// another server (by HTTPS too).
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { eventually } from '../tests/harness/server.mjs'

const PORT = 8097
const PORT2 = 8098
const PORT_TLS = 8099

// What tls.mjs and ingress.mjs measure with: the same suites and curves as ours.
export const SUITES = 'ssl_protocols TLSv1.2 TLSv1.3; ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20; ssl_ecdh_curve X25519:P-256:P-384; ssl_session_tickets on; ssl_prefer_server_ciphers on;'

async function start(scratch, server, url, tls = '') {
  const folder = path.join(scratch, 'nginx')
  fs.rmSync(folder, { recursive: true, force: true })
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(
    path.join(folder, 'nginx.conf'),
    `daemon off; master_process on; worker_processes auto; user root; pid ${folder}/pid; error_log ${folder}/error.log;
events { worker_connections 4096; }
http {
  access_log off; keepalive_requests 1000000000; default_type application/json;
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${folder}/${name};`).join(' ')}
  server { listen 127.0.0.1:${PORT} reuseport; ${server} }
  server { listen 127.0.0.1:${PORT2} http2 reuseport; ${server} }
  ${tls && `server { listen 127.0.0.1:${PORT_TLS} ssl reuseport; ${SUITES} ${tls} ${server} }`}
}
`,
  )
  const child = spawn('/usr/sbin/nginx', ['-c', path.join(folder, 'nginx.conf'), '-p', folder], { stdio: 'ignore' })
  const answers = () => new Promise((done) => http.get(url, (response) => (response.resume(), done(response.statusCode === 200))).on('error', () => done(false)))
  await eventually('nginx', answers, 5000)
  return {
    url,
    urlTls: `https://127.0.0.1:${PORT_TLS}/`,
    url2: `http://127.0.0.1:${PORT2}/health`,
    stop: () => new Promise((done) => (child.once('exit', done), child.kill('SIGTERM'))),
  }
}

export const nginxPeer = (scratch) => start(scratch, 'location = /health { return 200 "{}"; }', `http://127.0.0.1:${PORT}/health`)

// As it comes: a connection to the server for each request.
export const nginxProxy = (scratch, port, tls) => start(scratch, `location / { proxy_pass http://127.0.0.1:${port}; }`, `http://127.0.0.1:${PORT}/`, tls)
