// ssh into sandboxes, attacked: names that a shell or ssh would read as something else, a guest that answers with what it
// likes, another team, a user's own settings that would give the guest his keys.
import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { binary, patience, startServer } from '../harness/server.mjs'
import { loadSdk, shell } from '../harness/sdk.mjs'

let server, sdk, sandbox, home, mark
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  sandbox = await sdk.Sandbox.create('base', { timeoutMs: 600_000 * patience })
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-ssh-'))
  mark = path.join(home, 'owned')
})
after(async () => {
  await server.destroy()
  fs.rmSync(home, { recursive: true })
})

// As a user whose ~/.ssh/config is text.
async function run(args, { env = {}, config = '', program = binary } = {}) {
  fs.mkdirSync(path.join(home, '.ssh'), { recursive: true, mode: 0o700 })
  fs.writeFileSync(path.join(home, '.ssh/config'), config, { mode: 0o600 })
  const options = { env: { ...process.env, ...server.clientEnv(), HOME: home, ...env }, timeout: 60_000 * patience }
  return promisify(execFile)(program, args, options).then((done) => ({ code: 0, ...done }), (error) => error)
}

test('names are never read by a shell, nor as options', async () => {
  const names = ['$(touch MARK)', '`touch MARK`', 'x;touch MARK', "x';touch MARK;'", '-oProxyCommand=touch MARK', '../../x', 'x y', 'x\ny', '%h', '']
  for (const name of names.map((one) => one.replace('MARK', mark))) {
    for (const args of [['ssh', name], ['ssh', '--', name], ['ssh-proxy', name], ['ssh', `${name}.quicksand`]]) {
      const done = await run(args)
      assert.ok(done.code > 0, `${args}: ${done.stdout}${done.stderr}`)
    }
    for (const args of [['ssh', '-u', name, sandbox.sandboxId, 'true'], ['ssh-config', '-u', name]]) {
      const done = await run(args)
      assert.equal(done.code, 2, `${args}: ${done.stdout}${done.stderr}`)
      assert.match(done.stderr, /user/, `${args}`)
    }
  }
  assert.ok(!fs.existsSync(mark))
})

// The address of the server is part of the command that ssh gives to a shell.
test('the address of the server is not read by a shell', async () => {
  for (const tail of ['/$(touch MARK)', '/;touch MARK', "/';touch MARK;'", '/%n']) {
    const url = `${server.url}${tail.replace('MARK', mark)}`
    const done = await run(['ssh-config', '--url', url])
    assert.equal(done.code, 0, done.stderr)
    const line = done.stdout.split('\n').find((one) => one.includes('ProxyCommand')).trim().slice('ProxyCommand '.length)
    // As ssh does it: its own marks first, then the user's shell.
    const command = line.replaceAll('%n', 'i0').replaceAll('%%', '%')
    spawnSync('/bin/sh', ['-c', `exec ${command}`], { env: { ...process.env, HOME: home }, timeout: 20_000 * patience })
    assert.ok(!fs.existsSync(mark), url)
  }
})

test('the guest gets neither the agent nor the screen of who logs in, whatever his settings are', async () => {
  const config = 'Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  PermitLocalCommand yes\n'
  const agent = spawnSync('ssh-agent', ['-s'], { encoding: 'utf8' }).stdout
  const env = { SSH_AUTH_SOCK: /SSH_AUTH_SOCK=([^;]+)/.exec(agent)[1], DISPLAY: ':99' }
  try {
    const done = await run(['ssh', sandbox.sandboxId, 'echo "<$SSH_AUTH_SOCK$DISPLAY>"'], { env, config })
    assert.equal(done.stdout, '<>\n', done.stderr)
    const printed = await run(['ssh-config'])
    const plain = await run(['-F', path.join(home, '.ssh/config'), `${sandbox.sandboxId}.quicksand`, 'echo "<$SSH_AUTH_SOCK$DISPLAY>"'], { env, config: printed.stdout + config, program: 'ssh' })
    assert.equal(plain.stdout, '<>\n', plain.stderr)
  } finally {
    process.kill(Number(/SSH_AGENT_PID=(\d+)/.exec(agent)[1]))
  }
})

test('keys are the sandbox’s own: another one is refused on both sides', async () => {
  const keys = path.join(home, '.quicksand/ssh')
  assert.equal((await run(['ssh', sandbox.sandboxId, 'true'])).code, 0)
  const own = path.join(keys, `${sandbox.sandboxId}.quicksand`)
  for (const file of [keys, own, path.join(own, 'key')]) assert.equal(fs.statSync(file).mode & 0o077, 0, file)
  const other = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  assert.equal((await run(['ssh', other.sandboxId, 'true'])).code, 0)
  const theirs = path.join(keys, `${other.sandboxId}.quicksand`)
  assert.notEqual(fs.readFileSync(path.join(own, 'key'), 'utf8'), fs.readFileSync(path.join(theirs, 'key'), 'utf8'))
  assert.notEqual(fs.readFileSync(path.join(own, 'known_hosts'), 'utf8').split(' ').slice(1).join(), fs.readFileSync(path.join(theirs, 'known_hosts'), 'utf8').split(' ').slice(1).join())
  // Nothing listens, and from one sandbox there is no way into the other by ssh.
  assert.equal((await shell(sandbox, "ss -tln | grep -c ':22 '")).stdout.trim(), '0')
  const address = (await shell(other, 'hostname -I')).stdout.trim()
  const forwarded = await run(['ssh', sandbox.sandboxId, '-W', `${address}:49983`])
  assert.notEqual(forwarded.code, 0)
  // Nor does it need one: a sandbox of another team is unknown.
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'others' })
  const theirKey = (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body.key
  const foreign = await run(['ssh-proxy', sandbox.sandboxId], { env: { E2B_API_KEY: theirKey } })
  assert.notEqual(foreign.code, 0)
  assert.match(foreign.stderr, /not found|no sandbox/i)
  await other.kill()
})

test('a guest that answers with what it likes writes nothing to the terminal, and no other line into known_hosts', async () => {
  const evil = await sdk.Sandbox.create('base', { timeoutMs: 300_000 * patience })
  const answers = [
    "printf 'ssh-ed25519 AAAA\\n* ssh-ed25519 BBBB\\n'",
    "printf 'ssh-ed25519 AAAA\\033]0;owned\\007\\n'",
    "printf '\\033]0;owned\\007' >&2; exit 1",
    "printf '@cert-authority * ssh-ed25519 AAAA\\n'",
    'head -c 100000 /dev/zero | tr "\\0" x',
  ]
  for (const answer of answers) {
    await evil.commands.run(`mv -n /usr/bin/ssh-keygen /usr/bin/ssh-keygen.real; rm -rf /run/quicksand-ssh; printf '%s\\n' '#!/bin/sh' 'case "$*" in *-y*) ${answer.replaceAll("'", `'"'"'`)};; *) exec ssh-keygen.real "$@";; esac' >/usr/bin/ssh-keygen; chmod 755 /usr/bin/ssh-keygen`, { user: 'root' })
    const done = await run(['ssh', evil.sandboxId, 'true'])
    assert.notEqual(done.code, 0, answer)
    assert.ok(!/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/.test(done.stdout + done.stderr), JSON.stringify(done.stderr))
    const known = path.join(home, '.quicksand/ssh', `${evil.sandboxId}.quicksand`, 'known_hosts')
    if (fs.existsSync(known)) assert.match(fs.readFileSync(known, 'utf8'), new RegExp(`^${evil.sandboxId}\\.quicksand ssh-ed25519 [ -~]*\\n$`))
  }
  await evil.kill()
})
