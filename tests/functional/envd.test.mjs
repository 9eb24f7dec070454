// envd, spoken to without the SDK: tokens, files, process streams, and odd requests.
import assert from 'node:assert/strict'
import crypto from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

let server, box, token, sandbox
before(async () => {
  server = await startServer()
  const sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000, envs: { SHARED: 'one' } })
  const answer = await server.api('POST', `/v2/sandboxes/${sandbox.sandboxId}/connect`, {})
  box = answer.body
  token = box.envdAccessToken
})
after(() => server.destroy())

const envd = (path, options = {}) => server.sandbox(box.sandboxID, 49983, path, { ...options, headers: { ...(options.token === null ? {} : { 'X-Access-Token': options.token ?? token }), ...options.headers } })
const rpc = (path, message, options = {}) => envd(path, { method: 'POST', body: JSON.stringify(message), ...options, headers: { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...options.headers } })

function envelope(message, flag = 0) {
  const data = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head[0] = flag
  head.writeUInt32BE(data.length, 1)
  return Buffer.concat([head, data])
}

function frames(bytes) {
  const found = []
  let at = 0
  while (at + 5 <= bytes.length) {
    const length = bytes.readUInt32BE(at + 1)
    found.push({ flag: bytes[at], message: JSON.parse(bytes.subarray(at + 5, at + 5 + length)) })
    at += 5 + length
  }
  return found
}

async function stream(path, message, options = {}) {
  const answer = await envd(path, { method: 'POST', body: Buffer.isBuffer(message) ? message : envelope(message), ...options, headers: { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', ...options.headers } })
  return { ...answer, frames: answer.status === 200 ? frames(answer.bytes) : [] }
}

describe('token', () => {
  test('health needs none; everything else does', async () => {
    assert.equal((await envd('/health', { token: null })).status, 204)
    for (const path of ['/metrics', '/envs', '/files?path=/etc/hostname']) {
      assert.equal((await envd(path, { token: null })).status, 401, path)
      assert.equal((await envd(path, { token: 'wrong' })).status, 401, path)
    }
    assert.equal((await rpc('/process.Process/List', {}, { token: null })).status, 401)
    assert.equal((await rpc('/process.Process/List', {})).status, 200)
  })

  test('another sandbox’s token does not open this one', async () => {
    const other = await server.api('POST', '/v2/sandboxes', { templateID: 'base' })
    assert.notEqual(other.body.envdAccessToken, token)
    assert.equal((await envd('/envs', { token: other.body.envdAccessToken })).status, 401)
    await server.api('DELETE', `/sandboxes/${other.body.sandboxID}`)
  })

  test('signed file addresses: right, wrong, expired', async () => {
    await sandbox.files.write('/home/user/signed', 'by signature')
    const sign = (path, operation, user, expiry) => 'v1_' + crypto.createHash('sha256').update(`${path}:${operation}:${user}:${token}${expiry ? `:${expiry}` : ''}`).digest('base64').replace(/=+$/, '')
    const get = (query) => envd(`/files?${new URLSearchParams(query)}`, { token: null })
    const path = '/home/user/signed'
    const good = await get({ path, signature: sign(path, 'read', '') })
    assert.equal(good.text, 'by signature', good.text)
    const future = Math.floor(Date.now() / 1000) + 60
    assert.equal((await get({ path, signature: sign(path, 'read', '', future), signature_expiration: future })).status, 200)
    const past = Math.floor(Date.now() / 1000) - 60
    const expired = await get({ path, signature: sign(path, 'read', '', past), signature_expiration: past })
    assert.deepEqual([expired.status, expired.body], [401, { code: 401, message: 'signature is already expired' }])
    assert.equal((await get({ path, signature: sign(path, 'write', '') })).status, 401)
    assert.equal((await get({ path: '/etc/passwd', signature: sign(path, 'read', '') })).status, 401)
    assert.equal((await get({ path, signature: 'v1_nonsense' })).status, 401)
  })

  test('the SDK’s own download and upload addresses work', async () => {
    await sandbox.files.write('/home/user/down', 'loaded')
    const url = new URL(await sandbox.downloadUrl('/home/user/down'))
    const answer = await server.request({ path: url.pathname + url.search, headers: { 'E2b-Sandbox-Id': box.sandboxID, 'E2b-Sandbox-Port': '49983' } })
    assert.equal(answer.text, 'loaded')
  })
})

test('envs and metrics', async () => {
  const envs = await envd('/envs')
  assert.equal(envs.status, 200)
  assert.equal(envs.body.SHARED, 'one')
  const metrics = await envd('/metrics')
  assert.equal(metrics.status, 200)
  assert.ok(Object.keys(metrics.body).length > 3, metrics.text)
})

test('the sandbox knows itself: variables, and files for who has not got them', async () => {
  const { body: info } = await server.api('GET', `/sandboxes/${box.sandboxID}`)
  const expected = { SANDBOX: 'true', SANDBOX_ID: box.sandboxID, TEMPLATE_ID: info.templateID }
  for (const [name, value] of Object.entries(expected)) {
    assert.equal((await sandbox.commands.run(`echo -n $E2B_${name}`)).stdout, value)
    assert.equal((await sandbox.commands.run(`cat /run/e2b/.E2B_${name}`)).stdout, value)
  }
  const { stdout } = await sandbox.commands.run('stat -c "%n %a %U" /run/e2b /run/e2b/.E2B_*')
  assert.equal(stdout, '/run/e2b 755 root\n/run/e2b/.E2B_SANDBOX 444 root\n/run/e2b/.E2B_SANDBOX_ID 644 root\n/run/e2b/.E2B_TEMPLATE_ID 644 root\n')
})

describe('files', () => {
  test('missing, directory, no path, odd type, unknown user', async () => {
    assert.equal((await envd('/files?path=/nothing/here')).status, 404)
    assert.equal((await envd('/files?path=/etc')).status, 400)
    assert.equal((await envd('/files', { method: 'POST', body: 'x', headers: { 'Content-Type': 'application/octet-stream' } })).status, 400)
    assert.equal((await envd('/files?path=/tmp/x', { method: 'POST', body: 'x', headers: { 'Content-Type': 'text/strange' } })).status, 400)
    assert.equal((await envd('/files?path=/tmp', { method: 'POST', body: 'x', headers: { 'Content-Type': 'application/octet-stream' } })).status, 400)
    assert.equal((await envd('/files?path=/tmp/x&username=nobody-here')).status, 401)
  })

  test('raw upload, chunked and with length; ranges on download', async () => {
    const body = crypto.randomBytes(2_000_000)
    for (const headers of [{ 'Content-Length': body.length }, { 'Transfer-Encoding': 'chunked' }]) {
      const put = await envd('/files?path=/tmp/raw', { method: 'POST', body, headers: { 'Content-Type': 'application/octet-stream', ...headers } })
      assert.equal(put.status, 200, put.text)
      assert.equal(JSON.parse(put.text)[0].path, '/tmp/raw')
      assert.deepEqual((await envd('/files?path=/tmp/raw')).bytes, body)
    }
  })

  test('multipart: several files, directories in names, damaged bodies', async () => {
    const part = (name, data) => `--edge\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: application/octet-stream\r\n\r\n${data}\r\n`
    const send = (body, type = 'multipart/form-data; boundary=edge') => envd('/files', { method: 'POST', body, headers: { 'Content-Type': type } })
    const good = await send(`${part('many/a', 'one')}${part('/tmp/b', 'two\r\n--edg')}--edge--\r\n`)
    assert.equal(good.status, 200, good.text)
    assert.deepEqual(JSON.parse(good.text).map((one) => one.path), ['/home/user/many/a', '/tmp/b'])
    assert.equal(await sandbox.files.read('/tmp/b'), 'two\r\n--edg')
    for (const body of ['', '--edge', part('x', 'y'), '--edge\r\n\r\nno headers\r\n--edge--', `--edge\r\nContent-Disposition: form-data; name="file"; filename="${'n'.repeat(100000)}"\r\n\r\nx\r\n--edge--`]) {
      const answer = await send(body)
      assert.ok(answer.status >= 400 && answer.status < 500, `${JSON.stringify(body.slice(0, 40))}: ${answer.status}`)
    }
    assert.equal((await send('x', 'multipart/form-data')).status, 400)
    assert.equal((await envd('/health')).status, 204)
  })

  test('an upload that stops in the middle leaves no half file in place', async () => {
    await sandbox.files.write('/home/user/whole', 'the old content')
    const text = await server.raw(`POST /files?path=/home/user/whole HTTP/1.1\r\nHost: 49983-${box.sandboxID}.x.test\r\nX-Access-Token: ${token}\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\npartial`, { end: true, limitMs: 1500 })
    assert.ok(!/^HTTP\/1\.1 200/.test(text))
    assert.notEqual(await sandbox.files.read('/home/user/whole'), 'partial')
  })
})

describe('process streams', () => {
  const start = (cmd, extra = {}) => stream('/process.Process/Start', { process: { cmd: '/bin/bash', args: ['-c', cmd], envs: {} }, ...extra })

  test('start, data, end, end frame', async () => {
    const answer = await start('echo hi; echo no >&2; exit 3')
    assert.equal(answer.status, 200)
    const events = answer.frames.filter((one) => one.flag === 0).map((one) => one.message.event)
    assert.ok(events[0].start.pid > 0)
    const text = (name) => Buffer.concat(events.filter((one) => one.data?.[name]).map((one) => Buffer.from(one.data[name], 'base64'))).toString()
    assert.equal(text('stdout'), 'hi\n')
    assert.equal(text('stderr'), 'no\n')
    const end = events.at(-1).end
    assert.deepEqual([end.exitCode, end.exited, end.status], [3, true, 'exit status 3'])
    assert.deepEqual(answer.frames.at(-1), { flag: 2, message: {} })
  })

  test('killed by a signal: exit code -1 and the signal’s name', async () => {
    const answer = await start('kill -9 $$')
    const end = answer.frames.filter((one) => one.flag === 0).at(-1).message.event.end
    assert.deepEqual([end.exitCode, end.exited ?? false, end.status], [-1, false, 'signal: killed'])
  })

  test('errors come as end frames with status 200', async () => {
    const wrong = async (message, code) => {
      const answer = await stream('/process.Process/Start', message)
      assert.equal(answer.status, 200)
      assert.equal(answer.frames.at(-1).flag, 2)
      assert.equal(answer.frames.at(-1).message.error?.code, code, answer.text)
    }
    await wrong({ process: { cmd: '/bin/true', cwd: '/nothing/here' } }, 'invalid_argument')
    const missing = await stream('/process.Process/Start', { process: { cmd: '/no/such/program' } })
    assert.ok(missing.frames.at(-1).message.error, missing.text)
    const who = await stream('/process.Process/Start', { process: { cmd: '/bin/true' } }, { headers: { Authorization: `Basic ${Buffer.from('nobody-here:').toString('base64')}` } })
    assert.equal(who.frames.at(-1).message.error?.code, 'unauthenticated')
  })

  test('damaged envelopes are refused', async () => {
    const huge = Buffer.from([0, 0xff, 0xff, 0xff, 0xff])
    for (const body of [Buffer.alloc(0), Buffer.from([0, 0, 0]), huge, Buffer.from([0, 0, 0, 0, 5, 0x7b]), envelope({}, 1), envelope({ process: 5 }), Buffer.concat([envelope({ process: { cmd: '/bin/true' } }), envelope({ process: { cmd: '/bin/true' } })])]) {
      const answer = await stream('/process.Process/Start', body)
      const failed = answer.status >= 400 || answer.frames.at(-1)?.message.error
      assert.ok(failed, `${body.toString('hex').slice(0, 40)}: ${answer.status} ${answer.text.slice(0, 100)}`)
    }
    assert.equal((await envd('/health')).status, 204)
  })

  test('unknown procedures and pids', async () => {
    assert.ok([404, 501].includes((await rpc('/process.Process/Nothing', {})).status))
    const answer = await rpc('/process.Process/SendSignal', { process: { pid: 999999 }, signal: 'SIGNAL_SIGTERM' })
    assert.equal(answer.status, 404)
    assert.equal(answer.body.code, 'not_found')
    assert.equal((await rpc('/process.Process/List', '{')).status, 400)
  })

  test('orphans are reaped', async () => {
    await shell(sandbox, 'for i in $(seq 50); do (sleep 0.05 &) ; done; sleep 0.4')
    const zombies = await shell(sandbox, "ps -eo stat | grep -c '^Z'", { user: 'root' })
    assert.equal(zombies.stdout.trim(), '0')
  })

  test('a deadline kills the process', async () => {
    const answer = await stream('/process.Process/Start', { process: { cmd: '/bin/sleep', args: ['31.7'] } }, { headers: { 'Connect-Timeout-Ms': '500' } })
    assert.equal(answer.frames.at(-1).message.error?.code, 'deadline_exceeded', answer.text)
    const left = await shell(sandbox, "pgrep -f 'sleep 31.[7]'")
    assert.equal(left.stdout, '')
  })
})

test('tools of the base template work', async () => {
  for (const [command, wanted] of [
    ['python --version', /^Python 3/],
    ['python3 -c "print(6*7)"', /^42\n/],
    ['pip --version', /^pip/],
    ['node -e "console.log(6*7)"', /^42\n/],
    ['npm --version', /^\d/],
    ['git init -q /tmp/r && cd /tmp/r && git -c user.name=a -c user.email=b@c commit -q --allow-empty -m x && git log --oneline', / x\n/],
    ['sudo -n id -u', /^0\n/],
    ['sudo -n apt-get --version', /^apt/],
    ['echo "int main(){return 0;}" > /tmp/a.c && cc /tmp/a.c -o /tmp/a.out && /tmp/a.out && echo built', /^built\n/],
    ['tput -T xterm-256color cols', /^\d+\n/],
    ['ip -br address show lo', /127\.0\.0\.1/],
    ['ss -Htuln 2>&1', /^(?!Cannot)/],
    ['python3 -m venv /tmp/venv && /tmp/venv/bin/python -c "print(1)"', /^1\n/],
    ['hostname', /./],
    ['locale charmap 2>/dev/null || echo UTF-8', /UTF-8/],
  ]) {
    const result = await shell(sandbox, command, { timeoutMs: 60_000 })
    assert.match(result.stdout, wanted, `${command}: ${result.exitCode} ${result.stderr}`)
  }
})
