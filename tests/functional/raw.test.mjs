// TCP that is not HTTP, into sandboxes: CONNECT, `quicksand forward`, and plain ssh, scp and rsync without a port.
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import dgram from 'node:dgram'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk } from '../harness/sdk.mjs'

// Says who it is, then everything back in upper case, and "bye" after the other's end.
const SHOUT = String.raw`
import socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"shout\n")
        while True:
            data = self.request.recv(65536)
            if not data: break
            self.request.sendall(data.upper())
        self.request.sendall(b"bye")
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 512
Server(("127.0.0.1", 7001), Handler).serve_forever()
`

let server, sdk, sandbox, id, home, env
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  id = sandbox.sandboxId
  await sandbox.files.write('/home/user/shout.py', SHOUT)
  await sandbox.commands.run('python3 /home/user/shout.py', { background: true, timeoutMs: 0 })
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-home-'))
  env = { PATH: process.env.PATH, HOME: home, ...server.clientEnv() }
})
after(async () => {
  fs.rmSync(home, { recursive: true, force: true })
  await server.destroy()
})

const run = (program, args, options = {}) => promisify(execFile)(program, args, { env, timeout: 60_000 * patience, maxBuffer: 1 << 28, ...options })

// Until its end, after having sent everything and one's own.
function talk(port, data, host = '127.0.0.1') {
  return new Promise((done, fail) => {
    const socket = net.connect({ port, host, allowHalfOpen: true })
    const chunks = []
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', fail)
    socket.on('end', () => {
      socket.end()
      done(Buffer.concat(chunks))
    })
    socket.end(data)
  })
}

async function forward(...ports) {
  const child = spawn(binary, ['forward', id, ...ports], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  child.said = ''
  child.stdout.on('data', (chunk) => (out += chunk))
  child.stderr.on('data', (chunk) => (child.said += chunk))
  child.ended = new Promise((done) => child.on('exit', (code, signal) => done(code ?? signal)))
  await eventually('it listens', () => out.split('\n').length > ports.length)
  child.ports = [...out.matchAll(/^127\.0\.0\.1:(\d+) -> (\d+)(?:\/udp)?$/gm)].map(([, local]) => Number(local))
  return child
}

describe('CONNECT', () => {
  const connect = async (headers, host = `7001-${id}.localhost:7001`) => {
    const socket = await server.connect()
    socket.write(`CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n${headers}\r\n`)
    await eventually('an answer', () => socket.received.includes('\r\n\r\n'))
    return socket
  }

  test('gives the connection to who has the access token', async () => {
    await eventually('the server inside', async () => {
      const socket = await connect(`X-Access-Token: ${await token()}\r\n`)
      socket.destroy()
      return socket.received.startsWith('HTTP/1.1 200')
    })
    const socket = await connect(`X-Access-Token: ${await token()}\r\n`)
    await eventually('the first word', () => socket.received.endsWith('shout\n'))
    socket.write('hello')
    await eventually('echo', () => socket.received.endsWith('HELLO'))
    socket.end()
    await socket.ended
    assert.ok(socket.received.endsWith('bye'))
  })

  const token = async () => (await server.api('GET', `/sandboxes/${id}`)).body.envdAccessToken

  test('and to nobody else, and never to envd', async () => {
    for (const [headers, status] of [['', 401], ['X-Access-Token: x\r\n', 401], [`X-API-KEY: ${server.key}\r\n`, 401], ['e2b-traffic-access-token: x\r\n', 401]]) {
      const socket = await connect(headers)
      assert.equal(Number(socket.received.slice(9, 12)), status, headers)
      socket.destroy()
    }
    const envd = await connect(`X-Access-Token: ${await token()}\r\n`, `49983-${id}.localhost:1`)
    assert.match(envd.received, /^HTTP\/1\.1 404/)
    envd.destroy()
    const elsewhere = await connect('', '127.0.0.1:22')
    assert.match(elsewhere.received, /^HTTP\/1\.1 400/)
    elsewhere.destroy()
  })

  test('curl, with the server as its proxy', async () => {
    await sandbox.commands.run('mkdir -p /tmp/www && echo through > /tmp/www/file && cd /tmp/www && python3 -m http.server 7005', { background: true, timeoutMs: 0 })
    await eventually('the server inside', async () => (await server.sandbox(id, 7005, '/file')).status === 200)
    const { stdout } = await run('curl', ['-sS', '--proxytunnel', '--proxy', server.url, '--proxy-user', `:${await token()}`, `http://7005-${id}.localhost/file`])
    assert.equal(stdout, 'through\n')
  })
})

describe('forward', () => {
  test('many connections at once, each whole', async () => {
    const child = await forward('0:7001')
    const bodies = Array.from({ length: 100 }, (_, at) => Buffer.from(`${at} `.repeat(20_000)))
    const answers = await Promise.all(bodies.map((body) => talk(child.ports[0], body)))
    answers.forEach((answer, at) => assert.equal(answer.toString(), `shout\n${bodies[at]}bye`))
    child.kill('SIGINT')
    assert.equal(await child.ended, 0, child.said)
  })

  test('a port where nobody listens closes, and says why; others go on', async () => {
    const child = await forward('0:7999', '0:7001')
    assert.equal((await talk(child.ports[0], 'x').catch(() => '')).length, 0)
    await eventually('it is told', () => /port is not open/.test(child.said))
    assert.equal((await talk(child.ports[1], 'x')).toString(), 'shout\nXbye')
    child.kill('SIGTERM')
    await child.ended
  })

  test('UDP: datagrams stay whole and apart, for several senders', async () => {
    const script = 'import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(("127.0.0.1", 7006))\nwhile True:\n    data, who = s.recvfrom(65535)\n    s.sendto(data.upper(), who)\n'
    await sandbox.files.write('/home/user/udp.py', script)
    await sandbox.commands.run('python3 /home/user/udp.py', { background: true, timeoutMs: 0 })
    const child = await forward('0:7006/udp', '0:7001')
    const ask = async (socket, text) => {
      for (let i = 0; ; i++) {
        const came = new Promise((done) => socket.once('message', (data) => done(String(data))))
        socket.send(text, child.ports[0], '127.0.0.1')
        const answer = await Promise.race([came, new Promise((done) => setTimeout(done, 500 * patience))])
        if (answer !== undefined || i > 20) return answer
      }
    }
    const sockets = Array.from({ length: 5 }, () => dgram.createSocket('udp4'))
    for (const size of [1, 100, 9000, 60_000]) {
      const texts = sockets.map((_, at) => String.fromCharCode(97 + at).repeat(size))
      assert.deepEqual(await Promise.all(sockets.map((socket, at) => ask(socket, texts[at]))), texts.map((text) => text.toUpperCase()))
    }
    assert.equal((await talk(child.ports[1], 'x')).toString(), 'shout\nXbye')
    sockets.forEach((socket) => socket.close())
    child.kill('SIGTERM')
    await child.ended
  })

  test('a sandbox whose ports need a token, and one that is not there', async () => {
    const other = await sdk.Sandbox.create('base', { network: { allowPublicTraffic: false } })
    await other.commands.run('python3 -m http.server 7005', { background: true, timeoutMs: 0 })
    const child = spawn(binary, ['forward', other.sandboxId, '0:7005'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    const port = await new Promise((done) => child.stdout.once('data', (text) => done(/:(\d+) ->/.exec(text)[1])))
    await eventually('an answer', async () => (await run('curl', ['-sS', `http://127.0.0.1:${port}/`]).catch(() => ({}))).stdout?.includes('Directory listing'))
    child.kill('SIGTERM')
    const told = await run(binary, ['url', other.sandboxId, '7005'])
    assert.equal(told.stdout, `http://7005-${other.sandboxId}.localhost:${server.port}\n`)
    assert.equal(told.stderr, `with the header E2b-Traffic-Access-Token: ${other.trafficAccessToken}\n`)
    await other.kill()
    await assert.rejects(run(binary, ['forward', 'i0000000000000000000', '0:80']), /not found/)
    await assert.rejects(run(binary, ['forward', id, '80:x']), (error) => error.code === 2)
  })
})

describe('ssh', () => {
  const config = () => path.join(home, 'config')
  before(async () => {
    fs.writeFileSync(config(), (await run(binary, ['ssh-config'])).stdout)
  })

  test('ssh runs commands, with their exit status, input and output', async () => {
    const { stdout } = await run('ssh', ['-F', config(), `${id}.quicksand`, 'id -un; pwd; cat /etc/hostname'])
    assert.equal(stdout, 'user\n/home/user\ne2b.local\n')
    await assert.rejects(run('ssh', ['-F', config(), `${id}.quicksand`, 'exit 7']), (error) => error.code === 7)
    const data = crypto.randomBytes(3_000_000)
    const child = spawn('ssh', ['-F', config(), `${id}.quicksand`, 'sha256sum'], { env })
    child.stdin.end(data)
    let out = ''
    child.stdout.on('data', (chunk) => (out += chunk))
    await new Promise((done) => child.on('close', done))
    assert.equal(out.split(' ')[0], crypto.createHash('sha256').update(data).digest('hex'))
  })

  test('quicksand ssh, also as root', async () => {
    assert.equal((await run(binary, ['ssh', id, 'id', '-un'])).stdout, 'user\n')
    assert.equal((await run(binary, ['ssh', '-u', 'root', id, 'id -un'])).stdout, 'root\n')
  })

  test('scp and rsync, both ways', async () => {
    const file = path.join(home, 'file')
    fs.writeFileSync(file, crypto.randomBytes(5_000_000))
    await run('scp', ['-q', '-F', config(), file, `${id}.quicksand:copy`])
    await run('rsync', ['-a', '-e', `ssh -F ${config()}`, `${id}.quicksand:copy`, path.join(home, 'back')])
    assert.ok(fs.readFileSync(file).equals(fs.readFileSync(path.join(home, 'back'))))
    const tree = path.join(home, 'tree')
    fs.mkdirSync(path.join(tree, 'a/b'), { recursive: true })
    for (let i = 0; i < 200; i++) fs.writeFileSync(path.join(tree, 'a/b', String(i)), `${i}`)
    await run('rsync', ['-a', '-e', `ssh -F ${config()}`, `${tree}/`, `${id}.quicksand:tree/`])
    assert.equal((await sandbox.commands.run('ls tree/a/b | wc -l')).stdout.trim(), '200')
  })

  test('ports forwarded by ssh', async () => {
    const child = spawn('ssh', ['-F', config(), '-N', '-L', '18022:127.0.0.1:7001', '-o', 'ExitOnForwardFailure=yes', `${id}.quicksand`], { env })
    await eventually('the port', async () => (await talk(18022, 'x').catch(() => '')).toString() === 'shout\nXbye')
    child.kill()
  })

  test('nothing listens inside, and strangers’ keys do not open it', async () => {
    const { stdout } = await sandbox.commands.run('cat /proc/net/tcp /proc/net/tcp6', { user: 'root' })
    assert.ok(!/:0016 /.test(stdout))
    const stranger = path.join(home, 'stranger')
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', stranger])
    const strange = path.join(home, 'strange-config')
    fs.writeFileSync(strange, fs.readFileSync(config(), 'utf8').replace(/IdentityFile .*/, `IdentityFile ${stranger}`))
    await assert.rejects(run('ssh', ['-F', strange, `${id}.quicksand`, 'true']), /Permission denied/)
  })

  test('a host key that is another one is refused', async () => {
    await run('ssh', ['-F', config(), `${id}.quicksand`, 'true'])
    const proxy = `${binary} ssh-proxy ${id}.quicksand`
    const known = path.join(home, 'wrong')
    const other = path.join(home, 'other')
    await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', other])
    fs.writeFileSync(known, `${id}.quicksand ${fs.readFileSync(`${other}.pub`, 'utf8')}`)
    await assert.rejects(run('ssh', ['-F', config(), '-o', `ProxyCommand=${proxy}`, '-o', `UserKnownHostsFile=${known}`, `${id}.quicksand`, 'true']), /Host key verification failed|IDENTIFICATION HAS CHANGED/)
  })

  test('a sandbox without sshd says what it needs', async () => {
    const other = await sdk.Sandbox.create('base')
    await other.commands.run('rm /usr/sbin/sshd', { user: 'root' })
    await assert.rejects(run('ssh', ['-F', config(), `${other.sandboxId}.quicksand`, 'true']), /openssh-server/)
    await other.kill()
  })
})
