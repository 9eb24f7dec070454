// nginx with one static reply, on as many workers as there are processors.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { eventually } from '../tests/harness/server.mjs'

const PORT = 8097

export async function nginxPeer(scratch) {
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
  server { listen 127.0.0.1:${PORT} reuseport; location = /health { return 200 "{}"; } }
}
`,
  )
  const child = spawn('/usr/sbin/nginx', ['-c', path.join(folder, 'nginx.conf'), '-p', folder], { stdio: 'ignore' })
  const url = `http://127.0.0.1:${PORT}/health`
  const answers = () => new Promise((done) => http.get(url, (response) => (response.resume(), done(response.statusCode === 200))).on('error', () => done(false)))
  await eventually('nginx', answers, 5000)
  return {
    url,
    stop: () => new Promise((done) => (child.once('exit', done), child.kill('SIGTERM'))),
  }
}
