// An editor that works over ssh, as VS Code's Remote - SSH does it: it copies an archive, feeds an install script to
// `ssh -T -D PORT HOST bash`, learns on which loopback port its server listens inside, and talks to that through the
// SOCKS proxy; comes back after a break and finds the server running. All by Debian's ssh and `quicksand ssh-config`.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

// What an editor's server is on the wire: HTTP with a token, and a WebSocket that carries everything else (here it
// says back what it gets). It lives as long as the sandbox.
const EDITOR = String.raw`
import base64, hashlib, http.server, json, os, socketserver, struct, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer " + sys.argv[1]:
            return self.answer(403, b"no")
        if self.headers.get("Upgrade") == "websocket":
            return self.socket()
        if self.path == "/payload":
            return self.answer(200, open(os.path.join(os.path.dirname(__file__), "payload"), "rb").read())
        self.answer(200, json.dumps({"pid": os.getpid(), "home": os.environ["HOME"]}).encode())
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(14)
            if len(head) < 14: return
            size, mask = struct.unpack(">Q", head[2:10])[0], head[10:]
            masked = self.rfile.read(size)
            data = int.from_bytes(masked, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
            self.wfile.write(bytes([0x82, 127]) + struct.pack(">Q", size) + data.to_bytes(size, "big"))
    def log_message(self, *args): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
server = Server(("127.0.0.1", 0), Handler)
with open("pid", "w") as file: file.write(str(os.getpid()))
with open("port.new", "w") as file: file.write(str(server.server_address[1]))
os.rename("port.new", "port")
server.serve_forever()
`

// Begins and ends with a word by which the other side finds it in what a login may print; stays until its input ends.
const INSTALL = String.raw`
set -e
dir=$HOME/.editor-server
mkdir -p "$dir/bin"
if ! kill -0 "$(cat "$dir/pid" 2>/dev/null)" 2>/dev/null; then
    tar -xzf "$dir/server.tar.gz" -C "$dir/bin"
    head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/token"
    rm -f "$dir/port"
    (cd "$dir" && nohup setsid python3 bin/editor.py "$(cat token)" >log 2>&1 </dev/null &)
    started=yes
fi
for i in $(seq 600); do [ -e "$dir/port" ] && break; sleep 0.1; done
echo "begin==$(uname -m)==$(cat "$dir/port")==$(cat "$dir/token")==$(cat "$dir/pid")==\${started:-no}==end"
exec cat
`.replaceAll('\\$', '$')

let server, sandbox, home, env, host
const config = () => path.join(home, 'config')
const payload = crypto.randomBytes(4_000_000)

before(async () => {
  server = await startServer()
  const sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-home-'))
  env = { PATH: process.env.PATH, HOME: home, ...server.clientEnv() }
  host = `${sandbox.sandboxId}.quicksand`
  fs.writeFileSync(config(), (await run(binary, ['ssh-config'])).stdout)
})
after(async () => {
  fs.rmSync(home, { recursive: true, force: true })
  await server.destroy()
})

const run = (program, args) => promisify(execFile)(program, args, { env, timeout: 60_000 * patience })
const ssh = async (...args) => (await run('ssh', ['-F', config(), ...args])).stdout

async function freePort() {
  const listener = net.createServer().listen(0, '127.0.0.1')
  await new Promise((done) => listener.on('listening', done))
  const { port } = listener.address()
  await new Promise((done) => listener.close(done))
  return port
}

// One window of the editor.
async function open() {
  const socks = await freePort()
  const child = spawn('ssh', ['-F', config(), '-T', '-D', String(socks), '-o', 'ConnectTimeout=60', '-o', 'ExitOnForwardFailure=yes', host, 'bash'], { env })
  const window = { child, socks, said: '', ended: new Promise((done) => child.on('close', done)) }
  child.stdout.on('data', (chunk) => (window.said += chunk))
  child.stderr.on('data', (chunk) => (window.said += chunk))
  child.stdin.write(INSTALL)
  await eventually(`the editor's server listens (${window.said})`, () => {
    assert.equal(child.exitCode, null, window.said)
    return /==end$/m.test(window.said)
  })
  const [, machine, port, token, pid, started] = window.said.match(/begin==(.*?)==(\d+)==(\w+)==(\d+)==(\w+)==end/)
  return Object.assign(window, { machine, port: Number(port), token, pid: Number(pid), started })
}

const close = async (window) => {
  window.child.stdin.end()
  await window.ended
}

// A connection to a port inside, by the SOCKS proxy of a window.
function through(window) {
  return new Promise((done, fail) => {
    const socket = net.connect(window.socks, '127.0.0.1', () => socket.write(Buffer.from([5, 1, 0])))
    let got = Buffer.alloc(0)
    const listen = (chunk) => {
      got = Buffer.concat([got, chunk])
      if (got.length === 2) socket.write(Buffer.concat([Buffer.from([5, 1, 0, 3, 9]), Buffer.from('localhost'), Buffer.from([window.port >> 8, window.port & 255])]))
      if (got.length < 12) return
      socket.off('data', listen)
      got[3] === 0 ? done(socket) : fail(new Error(`SOCKS: ${got[3]}`))
    }
    socket.on('data', listen)
    socket.on('error', fail)
  })
}

function get(target, options) {
  return new Promise((done, fail) => {
    http.get({ path: target, ...options }, (answer) => {
      const chunks = []
      answer.on('data', (chunk) => chunks.push(chunk))
      answer.on('end', () => done({ status: answer.statusCode, body: Buffer.concat(chunks) }))
    }).on('error', fail)
  })
}

const bearer = (window) => ({ Authorization: `Bearer ${window.token}`, Connection: 'close' })
const ask = async (window, target, headers = bearer(window)) => {
  const socket = await through(window)
  return get(target, { createConnection: () => socket, headers })
}

// Messages both ways on one WebSocket, as an editor's: each with eight bytes of length, and answered before the next.
async function converse(window, messages) {
  const socket = await through(window)
  let got = Buffer.alloc(0)
  let wake = () => {}
  socket.on('data', (chunk) => {
    got = Buffer.concat([got, chunk])
    wake()
  })
  const take = async (enough) => {
    let size
    while ((size = enough()) < 0) await new Promise((done) => (wake = done))
    const taken = got.subarray(0, size)
    got = got.subarray(size)
    return taken
  }
  socket.write(`GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${window.token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${crypto.randomBytes(16).toString('base64')}\r\n\r\n`)
  const end = () => got.indexOf('\r\n\r\n')
  assert.match(String(await take(() => (end() < 0 ? -1 : end() + 4))), /^HTTP\/1.1 101 /)
  for (const message of messages) {
    const head = Buffer.alloc(14)
    head[0] = 0x82
    head[1] = 0xff
    head.writeBigUInt64BE(BigInt(message.length), 2)
    const mask = crypto.randomBytes(4)
    mask.copy(head, 10)
    socket.write(Buffer.concat([head, message.map((byte, i) => byte ^ mask[i & 3])]))
    const frame = await take(() => (got.length < 10 + message.length ? -1 : 10 + message.length))
    assert.ok(frame.subarray(10).equals(message))
  }
  socket.destroy()
}

const processes = async (pattern) => (await sandbox.commands.run(`pgrep -fc '${pattern}' || true`, { user: 'root' })).stdout.trim()

describe('an editor over ssh', () => {
  let first

  test('copies its server there and starts it', async () => {
    const tree = path.join(home, 'server')
    fs.mkdirSync(tree)
    fs.writeFileSync(path.join(tree, 'editor.py'), EDITOR)
    fs.writeFileSync(path.join(tree, 'payload'), payload)
    await run('tar', ['-czf', path.join(home, 'server.tar.gz'), '-C', tree, '.'])
    await ssh(host, 'mkdir -p .editor-server')
    await run('scp', ['-q', '-F', config(), path.join(home, 'server.tar.gz'), `${host}:.editor-server/`])
    first = await open()
    assert.equal(first.started, 'yes')
    assert.equal(first.machine, 'x86_64')
  })

  test('talks to it through the SOCKS proxy: HTTP, large answers, WebSockets', async () => {
    assert.equal((await ask(first, '/version', {})).status, 403)
    assert.deepEqual(JSON.parse((await ask(first, '/version')).body), { pid: first.pid, home: '/home/user' })
    assert.ok((await ask(first, '/payload')).body.equals(payload))
    await converse(first, [Buffer.from('hello'), crypto.randomBytes(100_000), crypto.randomBytes(1_000_000)])
    await Promise.all(Array.from({ length: 8 }, () => converse(first, Array.from({ length: 20 }, () => crypto.randomBytes(2000)))))
  })

  test('and through a forwarded port, by a second connection', async () => {
    const port = await freePort()
    const child = spawn('ssh', ['-F', config(), '-N', '-L', `${port}:127.0.0.1:${first.port}`, '-o', 'ExitOnForwardFailure=yes', host], { env })
    const ended = new Promise((done) => child.on('close', done))
    let answer
    await eventually('the port', async () => (answer = await get('/payload', { port, headers: bearer(first) }).catch(() => undefined)))
    assert.ok(answer.body.equals(payload))
    child.kill()
    await ended
  })

  test('a second window finds the server of the first', async () => {
    const second = await open()
    assert.equal(second.started, 'no')
    assert.deepEqual([second.port, second.pid], [first.port, first.pid])
    await converse(second, [crypto.randomBytes(10_000)])
    await close(second)
    await converse(first, [crypto.randomBytes(10_000)])
  })

  test('many sessions share one connection (ControlMaster)', async () => {
    const control = ['-F', config(), '-o', `ControlPath=${path.join(home, 'mux')}`]
    const master = spawn('ssh', [...control, '-M', '-N', host], { env })
    const ended = new Promise((done) => master.on('close', done))
    await eventually('the master', () => run('ssh', [...control, '-O', 'check', host]).then(() => true, () => false))
    const before = await processes('[s]shd')
    const answers = await Promise.all(Array.from({ length: 6 }, (_, i) => run('ssh', [...control, host, `sleep 0.5; echo ${i}; exit ${i}`]).catch((error) => error)))
    assert.deepEqual(answers.map((answer) => [answer.stdout, answer.code ?? 0]), Array.from({ length: 6 }, (_, i) => [`${i}\n`, i]))
    assert.equal(await processes('[s]shd'), before, 'no further connection was made')
    const port = await freePort()
    await run('ssh', [...control, '-O', 'forward', '-L', `${port}:127.0.0.1:${first.port}`, host])
    assert.equal(JSON.parse((await get('/', { port, headers: bearer(first) })).body).pid, first.pid)
    await run('ssh', [...control, '-O', 'exit', host])
    await ended
  })

  test('files by sftp, both ways', async () => {
    const file = path.join(home, 'payload')
    fs.writeFileSync(file, payload)
    fs.writeFileSync(path.join(home, 'batch'), `mkdir work\nput ${file} work/payload\nrename work/payload work/moved\nchmod 600 work/moved\nget work/moved ${file}.back\nrm work/moved\nrmdir work\n`)
    await run('sftp', ['-F', config(), '-b', path.join(home, 'batch'), host])
    assert.ok(fs.readFileSync(`${file}.back`).equals(payload))
  })

  test('a terminal has its size', async () => {
    assert.match(await ssh('-tt', host, 'stty rows 33 cols 99; stty size; tty'), /33 99\r\n\/dev\/pts\/\d+/)
  })

  test('the connection is cut: nothing of it is left, and the server still runs', async () => {
    first.child.kill('SIGKILL')
    await first.ended
    await eventually('no login is left', async () => (await processes('[s]shd')) === '0')
    const again = await open()
    assert.equal(again.started, 'no')
    assert.deepEqual([again.port, again.pid], [first.port, first.pid])
    await converse(again, [crypto.randomBytes(100_000)])
    await close(again)
  })

  test('also when the sandbox was paused in between', async () => {
    const window = await open()
    await sandbox.pause()
    await Promise.race([window.ended, new Promise((done) => setTimeout(done, 1000))])
    window.child.kill('SIGKILL')
    await window.ended
    sandbox = await sandbox.connect({ timeoutMs: 600_000 * patience })
    const again = await open()
    assert.deepEqual([again.started, again.pid], ['no', first.pid])
    assert.ok((await ask(again, '/payload')).body.equals(payload))
    await close(again)
  })
})
