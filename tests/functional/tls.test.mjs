// HTTPS: a domain with certificates of our own, by which published clients work with nothing but E2B_DOMAIN; certificates by
// name, reloaded under load; what is refused. *.boxes.test leads to the lab (harness/world.mjs).
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import net from 'node:net'
import path from 'node:path'
import tls from 'node:tls'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, patience, repository, startServer } from '../harness/server.mjs'

const DOMAIN = 'boxes.test'
const LAB = '198.51.100.2'

let server, ca, caFile
const quicksand = (...args) => spawnSync(binary, args, { encoding: 'utf8' })
const init = (data, domain = DOMAIN) => {
  const made = quicksand('tls', 'init', '--domain', domain, '--data', data)
  assert.equal(made.status, 0, made.stderr)
  return made.stdout
}
before(async () => {
  server = await startServer({
    listen: ':0',
    args: ['--domain', DOMAIN, '--listen-tls', ':443', '--redirect-http', '1', '--hsts', '3600'],
    prepare: (one) => init(one.data),
  })
  caFile = path.join(server.data, 'tls/ca.pem')
  ca = fs.readFileSync(caFile)
})
after(() => server.destroy())

// One request over TLS; by name as the system resolves it.
const ask = (url, { method = 'GET', headers = {}, body, agent, ...options } = {}) =>
  new Promise((done, fail) => {
    const request = https.request(url, { method, headers, ca, agent: agent ?? false, ...options }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('error', fail)
      response.on('end', () => done({ status: response.statusCode, headers: response.headers, text: Buffer.concat(chunks).toString() }))
    })
    request.setTimeout(30_000 * patience, () => request.destroy(new Error(`${url}: no answer`)))
    request.on('error', fail)
    request.end(body)
  })

// A program of its own, because authorities are read when Node.js starts; its environment is what the server's banner says.
function client(version, source, extra = []) {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, E2B_DOMAIN: DOMAIN, E2B_API_KEY: server.key, NODE_EXTRA_CA_CERTS: caFile }
  const program = `const { createRequire } = require('node:module')
const e2b = createRequire(${JSON.stringify(path.join(repository, 'build/npm', version, 'index.js'))})('e2b')
const { Sandbox } = e2b
;(async () => { ${source} })().catch((error) => { console.error(error); process.exit(1) })`
  return new Promise((done) => {
    const child = spawn(process.execPath, ['-e', program, ...extra], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let stdout = '', stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.on('exit', (code) => done({ code, stdout, stderr }))
  })
}

test('the banner has what clients need', () => {
  assert.match(server.log, /export E2B_DOMAIN=boxes\.test\n/)
  assert.ok(server.log.includes(`export NODE_EXTRA_CA_CERTS=${caFile} `), server.log)
  assert.match(server.log, /certificate for boxes\.test, \*\.boxes\.test, localhost until 20/)
})

test('the server reads no key file', () => {
  const key = fs.statSync(path.join(server.data, 'tls/key.pem'))
  assert.deepEqual([key.mode & 0o777, key.uid], [0o600, 0])
  const status = fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8')
  assert.match(status, /^Uid:\t64737\t/m)
})

describe('published SDKs, with E2B_DOMAIN and nothing else', () => {
  // All of 1.x knows no other way than https://PORT-ID.DOMAIN.
  for (const version of ['1.13.0', '2.14.0', 'latest'])
    test(version, async () => {
      const run = await client(
        version,
        `const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
  const out = { host: sandbox.getHost(8080) }
  out.uname = (await sandbox.commands.run('uname -s')).stdout.trim()
  await sandbox.files.write('/home/user/index.html', 'over TLS')
  await sandbox.commands.run('python3 -m http.server 8080 -d /home/user', { background: true, timeoutMs: 0 })
  for (let i = 0; i < 100; i++) {
    const answer = await fetch('https://' + out.host + '/index.html').catch((error) => ({ ok: false, text: () => String(error.cause ?? error) }))
    out.page = await answer.text()
    if (answer.ok) break
    await new Promise((done) => setTimeout(done, 50))
  }
  const big = Buffer.alloc(32 << 20, 'quicksand over TLS ')
  await sandbox.files.write('/home/user/big', new Blob([big]))
  const back = Buffer.from(await sandbox.files.read('/home/user/big', { format: 'bytes' }))
  out.same = back.equals(big)
  await sandbox.kill()
  const secured = await Sandbox.create({ secure: true, timeoutMs: 120_000 })
  await secured.files.write('/home/user/file', 'signed')
  const url = await secured.downloadUrl('/home/user/file', { useSignatureExpiration: 60_000 })
  out.url = url.split('/')[0]
  out.signed = await (await fetch(url)).text()
  const form = new FormData()
  form.append('file', new Blob(['uploaded']), 'up')
  const up = await secured.uploadUrl('/home/user/up', { useSignatureExpiration: 60_000 })
  out.upload = (await fetch(up, { method: 'POST', body: form })).status
  out.uploaded = await secured.files.read('/home/user/up')
  await secured.kill()
  console.log(JSON.stringify(out))`,
      )
      assert.equal(run.code, 0, run.stderr)
      const out = JSON.parse(run.stdout)
      assert.match(out.host, /^8080-i[a-z0-9]+\.boxes\.test$/)
      assert.deepEqual({ ...out, host: '' }, { host: '', uname: 'Linux', page: 'over TLS', same: true, url: 'https:', signed: 'signed', upload: 200, uploaded: 'uploaded' })
    })
})

describe('other clients', () => {
  const run = (program, args, env = {}) => spawnSync(program, args, { encoding: 'utf8', env: { PATH: process.env.PATH, ...env }, input: '', timeout: 30_000 * patience })

  test('curl, and what it verifies', () => {
    const good = run('curl', ['-sS', '--cacert', caFile, '-o', '/dev/null', '-w', '%{http_code} %{ssl_verify_result}', `https://api.${DOMAIN}/health`])
    assert.equal(good.stdout, '200 0', good.stderr)
    const unknown = run('curl', ['-sS', '-o', '/dev/null', `https://api.${DOMAIN}/health`])
    assert.equal(unknown.status, 60, 'an authority that nobody trusts')
    const elsewhere = run('curl', ['-sS', '--cacert', caFile, '--resolve', `evil.test:443:${LAB}`, '-o', '/dev/null', 'https://evil.test/health'])
    assert.equal(elsewhere.status, 60, 'another name')
  })

  // In a mount namespace with copies of the host's stores, and without the hooks by which other packages keep theirs (Java's changes
  // dpkg's own state): the host itself trusts nobody new.
  test('programs that ask the host whom to trust, after tls init --trust', () => {
    const script = `set -e
cp -a /etc/ssl "$1/ssl" && mount --bind "$1/ssl" /etc/ssl
mkdir -p "$1/local" "$1/hooks" && mount --bind "$1/local" /usr/local/share/ca-certificates
[ ! -d /etc/ca-certificates/update.d ] || mount --bind "$1/hooks" /etc/ca-certificates/update.d
"$2" tls init --domain ${DOMAIN} --data "$3" --trust
curl -sS -o /dev/null -w '%{http_code} %{ssl_verify_result}\n' https://api.${DOMAIN}/health
/usr/bin/python3 -c 'import urllib.request; print(urllib.request.urlopen("https://api.${DOMAIN}/health").status)'
openssl s_client -connect ${LAB}:443 -servername api.${DOMAIN} -verify_return_error </dev/null 2>&1 | grep 'Verify return code'`
    const folder = fs.mkdtempSync(path.join(server.home, 'trust-'))
    const trusted = run('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', script, 'sh', folder, binary, server.data])
    assert.equal(trusted.status, 0, trusted.stderr)
    assert.match(trusted.stdout, /This host trusts it now/)
    assert.match(trusted.stdout, /\n200 0\n200\n *Verify return code: 0 \(ok\)/)
    assert.ok(!fs.existsSync(`/usr/local/share/ca-certificates/quicksand-${DOMAIN}.crt`))
    assert.equal(run('curl', ['-sS', '-o', '/dev/null', `https://api.${DOMAIN}/health`]).status, 60)
  })

  test('Python', () => {
    const program = `import ssl, urllib.request
context = ssl.create_default_context()
context.verify_flags |= getattr(ssl, 'VERIFY_X509_STRICT', 0)
print(urllib.request.urlopen('https://api.${DOMAIN}/health', context=context).status)`
    const python = run('/usr/bin/python3', ['-c', program], { SSL_CERT_FILE: caFile })
    assert.equal(python.stdout.trim(), '200', python.stderr)
  })

  const s_client = (...args) => run('openssl', ['s_client', '-connect', `${LAB}:443`, '-servername', `api.${DOMAIN}`, '-CAfile', caFile, ...args])

  test('openssl: TLS 1.2 and 1.3, verified; nothing older; sessions resume', () => {
    for (const [flag, name] of [['-tls1_2', 'TLSv1.2'], ['-tls1_3', 'TLSv1.3']]) {
      const out = s_client(flag, '-verify_return_error')
      assert.match(out.stdout, new RegExp(`New, ${name}, Cipher is (TLS_AES|TLS_CHACHA|ECDHE-ECDSA)`), out.stderr)
      assert.match(out.stdout, /Verify return code: 0 \(ok\)/)
      const session = path.join(server.home, `session${flag}`)
      run('sh', ['-c', `(printf 'GET /health HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n'; sleep 1) | openssl s_client ${flag} -connect ${LAB}:443 -sess_out ${session} -ign_eof`])
      assert.match(s_client(flag, '-sess_in', session).stdout, /^Reused, /m, flag)
    }
    for (const flag of ['-tls1', '-tls1_1']) {
      const out = s_client(flag, '-cipher', 'ALL:@SECLEVEL=0')
      assert.match(out.stdout, /Cipher is \(NONE\)/, flag)
    }
    assert.match(s_client('-tls1_2', '-cipher', 'AES128-SHA:ECDHE-ECDSA-AES128-SHA').stdout, /Cipher is \(NONE\)/)
  })
})

describe('into a sandbox', () => {
  let id
  before(async () => {
    id = (await server.create()).sandboxID
    const source = `import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", "echo"); self.end_headers(); self.wfile.flush()
            while True:
                data = self.connection.recv(65536)
                if not data: break
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = json.dumps(dict(self.headers)).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.send_header("Strict-Transport-Security", "max-age=1"); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("0.0.0.0", 7001), Handler).serve_forever()
`
    const form = `--b\r\nContent-Disposition: form-data; name="file"; filename="s.py"\r\n\r\n${source}\r\n--b--\r\n`
    const put = await server.sandbox(id, 49983, '/files?path=/home/user/s.py', { method: 'POST', headers: { 'Content-Type': 'multipart/form-data; boundary=b' }, body: form })
    assert.equal(put.status, 200, put.text)
    const start = JSON.stringify({ process: { cmd: '/usr/bin/python3', args: ['/home/user/s.py'] } })
    const frame = Buffer.alloc(5)
    frame.writeUInt32BE(start.length, 1)
    const request = http.request({ host: '127.0.0.1', port: server.port, method: 'POST', path: '/process.Process/Start', headers: { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1' } })
    request.on('error', () => {})
    request.on('response', (response) => response.resume())
    request.end(Buffer.concat([frame, Buffer.from(start)]))
    await eventually('the server inside', async () => (await ask(`https://7001-${id}.${DOMAIN}/`)).status === 200)
  })

  test('programs are told that it came by HTTPS; HSTS once, and ours', async () => {
    const answer = await ask(`https://7001-${id}.${DOMAIN}/`)
    assert.equal(JSON.parse(answer.text)['X-Forwarded-Proto'], 'https')
    assert.equal(answer.headers['strict-transport-security'], 'max-age=3600')
    const plain = await server.request({ headers: { Host: `7001-${id}.${DOMAIN}` } })
    assert.equal(JSON.parse(plain.text)['X-Forwarded-Proto'], 'http')
    assert.equal(plain.headers['strict-transport-security'], 'max-age=1')
  })

  test('an upgraded connection: megabytes both ways, then its end', async () => {
    const socket = tls.connect({ host: `7001-${id}.${DOMAIN}`, port: 443, servername: `7001-${id}.${DOMAIN}`, ca })
    const received = []
    let size = 0
    socket.on('data', (chunk) => (received.push(chunk), (size += chunk.length)))
    socket.write(`GET / HTTP/1.1\r\nHost: 7001-${id}.${DOMAIN}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n`)
    await eventually('101', () => Buffer.concat(received).includes('\r\n\r\n'))
    assert.match(Buffer.concat(received).toString(), /^HTTP\/1.1 101 /)
    received.length = size = 0
    const block = Buffer.alloc(8 << 20, 'both ways ')
    const ended = new Promise((done) => socket.once('end', done))
    socket.write(block)
    await eventually('the echo', () => size >= block.length, 20_000)
    assert.ok(Buffer.concat(received).equals(block))
    socket.end()
    await ended
  })
})

describe('plain HTTP', () => {
  const plain = (host, headers = {}, target = '/health?a=b') =>
    new Promise((done, fail) => {
      const request = http.request({ host, port: server.port, path: target, headers, agent: false }, (response) => {
        response.resume()
        response.on('end', () => done({ status: response.statusCode, location: response.headers.location, hsts: response.headers['strict-transport-security'] }))
      })
      request.on('error', fail)
      request.end()
    })

  test('from elsewhere it is sent to HTTPS; from this host it is served', async () => {
    assert.deepEqual(await plain(LAB, { Host: `api.${DOMAIN}:${server.port}` }), { status: 308, location: `https://api.${DOMAIN}/health?a=b`, hsts: undefined })
    assert.equal((await plain('127.0.0.1')).status, 200)
    assert.equal((await plain(LAB, { Host: 'a"b' })).status, 400)
    const challenge = await plain(LAB, {}, '/.well-known/acme-challenge/none')
    assert.notEqual(challenge.status, 308)
  })
})

describe('certificates', () => {
  const data = () => path.join(server.data, 'tls')
  const served = (name = `api.${DOMAIN}`) =>
    new Promise((done, fail) => {
      const socket = tls.connect({ host: LAB, port: 443, servername: name, rejectUnauthorized: false }, () => {
        done(socket.getPeerCertificate().fingerprint256)
        socket.end()
      })
      socket.on('error', fail)
    })
  const reload = () => quicksand('tls', 'reload', '--data', server.data)

  test('are reloaded under load, and no request fails', async () => {
    const first = await served()
    const agent = new https.Agent({ ca, keepAlive: true })
    let stop = false, asked = 0
    const load = (one) => (async () => {
      while (!stop) {
        assert.equal((await ask(`https://api.${DOMAIN}/health`, one)).status, 200)
        asked++
      }
    })()
    const loads = [load({}), load({}), load({ agent }), load({ agent })]
    for (let i = 0; i < 5; i++) {
      init(server.data) // renews, and has the server take it
      assert.notEqual(await served(), first)
    }
    const said = reload()
    assert.equal(said.status, 0, said.stderr)
    assert.match(said.stdout, /^boxes\.test, \*\.boxes\.test, localhost until 20\d\d-/)
    stop = true
    await Promise.all(loads)
    agent.destroy()
    assert.ok(asked > 20, `${asked} requests`)
  })

  test('that are broken are refused with the reason, and the old ones stay, also when the server dies', async () => {
    const before = await served()
    const key = fs.readFileSync(path.join(data(), 'key.pem'))
    const other = spawnSync('openssl', ['genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256'], { encoding: 'utf8' }).stdout
    try {
      fs.writeFileSync(path.join(data(), 'key.pem'), other)
      const refused = reload()
      assert.deepEqual([refused.status, /stay as they were: the key of certificate 1 is another one's/.test(refused.stderr)], [1, true], refused.stderr)
      fs.rmSync(path.join(data(), 'key.pem'))
      assert.match(reload().stderr, /read '.*key\.pem': No such file/)
      process.kill(server.servingPid, 'SIGKILL')
      await eventually('the server again', async () => (await ask(`https://api.${DOMAIN}/health`).catch(() => ({}))).status === 200, 20_000)
      assert.equal(await served(), before)
    } finally {
      fs.writeFileSync(path.join(data(), 'key.pem'), key, { mode: 0o600 })
    }
    assert.equal(reload().status, 0)
  })

  test('a domain is not changed by accident', () => {
    const other = quicksand('tls', 'init', '--domain', 'other.test', '--data', server.data)
    assert.equal(other.status, 1)
    assert.match(other.stderr, /is for 'boxes\.test'/)
    assert.match(quicksand('tls', 'init', '--domain', 'localhost', '--data', server.data).stderr, /needs a dot/)
  })
})

test('silent and talkative strangers hold up nobody, and are let go', async () => {
  const silent = [], garbage = []
  let left = 0
  const open = (list, bytes) => {
    const socket = net.connect(443, LAB)
    socket.on('error', () => {})
    socket.on('close', () => left++)
    socket.resume()
    if (bytes) socket.write(bytes)
    list.push(socket)
  }
  for (let i = 0; i < 40; i++) {
    open(silent)
    open(garbage, i % 2 ? 'GET / HTTP/1.1\r\nHost: x\r\n\r\n' : Buffer.from([0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, ...Array(300).fill(i)]))
  }
  await eventually('half of the garbage closed', () => left >= 20)
  assert.equal((await ask(`https://api.${DOMAIN}/health`)).status, 200)
  await eventually('all of them closed', () => left === 80, 25_000)
  for (const socket of [...silent, ...garbage]) socket.destroy()
})

test('doctor looks up a name below the domain, and at the certificate', () => {
  const rows = (...args) => Object.fromEntries(JSON.parse(quicksand('doctor', '--json', '--data', server.data, ...args).stdout).map((row) => [row.name, row]))
  const good = rows()
  assert.deepEqual([good.domain.status, good.domain.detail], ['ok', `names below ${DOMAIN} lead to ${LAB}`])
  assert.match(good.certificate.detail, /^for \*\.boxes\.test, 39\d days left$/)
  const bad = rows('--domain', 'nowhere.test')
  assert.deepEqual([bad.domain.status, bad.certificate.status], ['warn', 'warn'])
  assert.match(bad.domain.fix, /address=\/nowhere\.test\/127\.0\.0\.1/)
  assert.match(bad.certificate.detail, /is for no name such as 3000-ID\.nowhere\.test/)
})

test('what is missing is said at the start', () => {
  const serve = (...args) => spawnSync(binary, ['serve', '--data', path.join(server.home, 'none'), '--listen', '127.0.0.1:0', ...args], { encoding: 'utf8' }).stderr
  assert.match(serve('--listen-tls', '127.0.0.1:0'), /--listen-tls needs certificates: .*quicksand tls init/)
  assert.match(serve('--tls-cert', 'x'), /1 of tls-cert and 0 of tls-key[^]*need listen-tls/)
  assert.match(serve('--listen-tls', '127.0.0.1:0', '--tls-cert', '/none.pem', '--tls-key', '/none.key'), /read '\/none\.pem': No such file/)
})
