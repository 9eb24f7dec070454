// sandbox.commands of the published SDK: every method and option.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, shell, only } from '../harness/sdk.mjs'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

for (const version of only(['2.45.0', 'latest'])) {
  describe(`commands of e2b ${version}`, () => {
    let sdk, sandbox
    before(async () => {
      sdk = await loadSdk(server, version)
      sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000, envs: { FROM_SANDBOX: 'one', BOTH: 'sandbox' } })
    })
    after(async () => {
      await sandbox?.kill()
    })

    const named = (name) => (error) => {
      assert.equal(error.constructor.name, name, error.stack)
      return true
    }

    test('envs: of the sandbox, of the command, and nothing else of the host', async () => {
      const { stdout } = await sandbox.commands.run('env', { envs: { BOTH: 'command', 'WITH': 'a "b" $c `d`\nline', EMPTY: '' } })
      const seen = Object.fromEntries([...stdout.matchAll(/^(\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]))
      assert.equal(seen.FROM_SANDBOX, 'one')
      assert.equal(seen.BOTH, 'command')
      assert.equal(seen.WITH, 'a "b" $c `d`')
      assert.equal(seen.EMPTY, '')
      assert.equal(seen.HOME, '/home/user')
      assert.equal(seen.USER, 'user')
      assert.equal(seen.LOGNAME, 'user')
      assert.equal(seen.E2B_SANDBOX, 'true')
      assert.equal(seen.E2B_SANDBOX_ID, sandbox.sandboxId)
      assert.equal((await sandbox.commands.run('sudo -n id -u')).stdout, '0\n')
    })

    test('cwd: absolute, relative, home, missing, forbidden', async () => {
      assert.equal((await sandbox.commands.run('pwd', { cwd: '/usr/lib' })).stdout, '/usr/lib\n')
      await sandbox.files.makeDir('some/where')
      assert.equal((await sandbox.commands.run('pwd', { cwd: 'some/where' })).stdout, '/home/user/some/where\n')
      assert.equal((await sandbox.commands.run('pwd', { cwd: '~/some' })).stdout, '/home/user/some\n')
      await assert.rejects(sandbox.commands.run('pwd', { cwd: '/gone' }), (error) => {
        named('InvalidArgumentError')(error)
        assert.match(error.message, /cwd '\/gone' does not exist/)
        return true
      })
      await sandbox.commands.run('mkdir -m 700 /root/private', { user: 'root' })
      await assert.rejects(sandbox.commands.run('pwd', { cwd: '/root/private' }))
    })

    test('user: default, root, one made later, unknown', async () => {
      assert.equal((await sandbox.commands.run('whoami')).stdout, 'user\n')
      assert.equal((await sandbox.commands.run('whoami; echo $HOME; pwd', { user: 'root' })).stdout, 'root\n/root\n/root\n')
      assert.equal((await sandbox.commands.run('pwd')).stdout, '/home/user\n')
      await sandbox.commands.run('useradd -m -G sudo later', { user: 'root' })
      assert.equal((await sandbox.commands.run('whoami; pwd; id -Gn', { user: 'later' })).stdout, 'later\n/home/later\nlater sudo\n')
      await assert.rejects(sandbox.commands.run('whoami', { user: 'nobody-knows' }), named('AuthenticationError'))
    })

    test('results: exit codes, signals, not found', async () => {
      const good = await sandbox.commands.run('true')
      assert.equal(good.exitCode, 0)
      assert.equal(good.error, undefined)
      for (const [command, code] of [['exit 1', 1], ['exit 255', 255], ['no-such-command-here', 127], ['/etc/passwd', 126]]) {
        await assert.rejects(sandbox.commands.run(command), (error) => {
          named('CommandExitError')(error)
          assert.equal(error.exitCode, code)
          return true
        })
      }
      await assert.rejects(sandbox.commands.run('echo said; kill -9 $$'), (error) => {
        assert.equal(error.stdout, 'said\n')
        assert.match(error.error, /signal: killed/)
        return true
      })
    })

    test('output: callbacks, multi-byte characters over chunk borders, both channels, no newline', async () => {
      const out = []
      const err = []
      const text = 'é🐎'.repeat(50_000)
      const result = await sandbox.commands.run("python3 -c \"import sys; sys.stdout.write('é🐎' * 50000); sys.stderr.write('done')\"", {
        onStdout: (data) => void out.push(data),
        onStderr: (data) => void err.push(data),
      })
      assert.equal(result.stdout, text)
      assert.equal(out.join(''), text)
      assert.equal(result.stderr, 'done')
      assert.equal(err.join(''), 'done')
      const odd = await sandbox.commands.run("printf '\\377\\000x'")
      assert.equal(odd.stdout, '\ufffd\0x')
    })

    test('a program that prints 50 MB is whole', async () => {
      let bytes = 0
      await sandbox.commands.run('head -c 50000000 /dev/zero | tr "\\0" x', { onStdout: (data) => void (bytes += data.length), timeoutMs: 120_000 })
      assert.equal(bytes, 50_000_000)
    })

    test('timeoutMs ends the command and all its children', async () => {
      const began = Date.now()
      await assert.rejects(sandbox.commands.run('sleep 4001 & sleep 4001; echo never', { timeoutMs: 1000 }), named('TimeoutError'))
      assert.ok(Date.now() - began < 5000)
      await eventually('no child is left', async () => (await shell(sandbox, 'pgrep -fx "sleep 4001"')).exitCode === 1)
    })

    test('what left the tree of a command ends with it all the same, unless the command ended by itself', async () => {
      // New sessions, no parents, another user.
      const leave = (number) => `setsid -f sleep ${number}; (setsid sh -c "sleep ${number} &" &); sudo setsid -f sleep ${number};`
      const count = async (number) => Number((await shell(sandbox, `pgrep -cfx "sleep ${number}"`)).stdout)
      await sandbox.commands.run(`{ ${leave(4011)} } >/dev/null 2>&1`)
      await eventually('they stay', async () => (await count(4011)) === 3)
      await assert.rejects(sandbox.commands.run(`${leave(4012)} sleep 998`, { timeoutMs: 3000 }), named('TimeoutError'))
      await eventually('nothing is left after a timeout', async () => (await count(4012)) === 0)
      const handle = await sandbox.commands.run(`${leave(4013)} sleep 998`, { background: true })
      await eventually('all are there', async () => (await count(4013)) === 3)
      await handle.kill()
      await eventually('nothing is left after kill()', async () => (await count(4013)) === 0)
      assert.equal(await count(4011), 3, 'those of another command')
      await shell(sandbox, 'sudo pkill -fx "sleep 4011"')
    })

    test('timeoutMs 0 means no limit', async () => {
      const { stdout } = await sandbox.commands.run('sleep 1.5; echo done', { timeoutMs: 0 })
      assert.equal(stdout, 'done\n')
    })

    test('background: pid, wait, list with its configuration', async () => {
      const handle = await sandbox.commands.run('sleep 0.7; echo late; exit 4', { background: true, cwd: '/tmp', envs: { NAME: 'value' } })
      const listed = (await sandbox.commands.list()).find((one) => one.pid === handle.pid)
      assert.equal(listed.cwd, '/tmp')
      assert.deepEqual(listed.envs, { NAME: 'value' })
      assert.equal(listed.cmd, '/bin/bash')
      assert.deepEqual(listed.args, ['-l', '-c', 'sleep 0.7; echo late; exit 4'])
      assert.equal(handle.exitCode, undefined)
      await assert.rejects(handle.wait(), (error) => error.exitCode === 4 && error.stdout === 'late\n')
      assert.equal(handle.exitCode, 4)
      assert.ok(!(await sandbox.commands.list()).some((one) => one.pid === handle.pid))
    })

    test('background children outlive the command; its output ends with it', async () => {
      const began = Date.now()
      const { stdout } = await sandbox.commands.run('nohup sleep 4002 >/dev/null 2>&1 & echo started')
      assert.equal(stdout, 'started\n')
      assert.ok(Date.now() - began < 5000)
      assert.equal((await shell(sandbox, 'pgrep -fx "sleep 4002"')).exitCode, 0)
      await shell(sandbox, 'pkill -fx "sleep 4002"')
    })

    test('kill takes the whole tree and says whether there was something', async () => {
      const handle = await sandbox.commands.run('(sleep 4003 & sleep 4003) & setsid sleep 4003 & wait', { background: true })
      await eventually('children', async () => (await shell(sandbox, 'pgrep -cfx "sleep 4003"')).stdout.trim() === '3')
      assert.equal(await sandbox.commands.kill(handle.pid), true)
      await eventually('no child is left', async () => (await shell(sandbox, 'pgrep -fx "sleep 4003"')).exitCode === 1)
      assert.equal(await sandbox.commands.kill(handle.pid), false)
      assert.equal(await handle.kill(), false)
      await assert.rejects(handle.wait(), (error) => /killed/.test(error.error ?? error.message))
    })

    test('stdin: sendStdin as text and bytes, closeStdin; none without the option', async () => {
      const handle = await sandbox.commands.run('cat; echo end', { background: true, stdin: true })
      await sandbox.commands.sendStdin(handle.pid, 'part')
      await sandbox.commands.sendStdin(handle.pid, new Uint8Array([0xc3, 0xa9]))
      await handle.sendStdin('!')
      await eventually('echo', () => handle.stdout === 'parté!')
      await sandbox.commands.closeStdin(handle.pid)
      const result = await handle.wait()
      assert.equal(result.stdout, 'parté!end\n')
      assert.equal(sandbox.commands.supportsStdinClose, true)
      assert.equal((await shell(sandbox, 'read x; echo "got $? [$x]"')).stdout, 'got 1 []\n')
      const deaf = await sandbox.commands.run('sleep 60', { background: true })
      await assert.rejects(sandbox.commands.sendStdin(deaf.pid, 'x'))
      await deaf.kill()
      await assert.rejects(sandbox.commands.sendStdin(999_999, 'x'), named('NotFoundError'))
    })

    test('a large stdin', async () => {
      const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true })
      for (let at = 0; at < 8; at++) await handle.sendStdin('y'.repeat(1_000_000))
      await handle.closeStdin()
      assert.equal((await handle.wait()).stdout, '8000000\n')
    })

    test('disconnect leaves it running; connect sees what comes', async () => {
      const handle = await sandbox.commands.run('read x; echo "got $x"', { background: true, stdin: true, timeoutMs: 0 })
      await handle.disconnect()
      const seen = []
      const again = await sandbox.commands.connect(handle.pid, { onStdout: (data) => void seen.push(data) })
      assert.equal(again.pid, handle.pid)
      await sandbox.commands.sendStdin(handle.pid, 'word\n')
      assert.equal((await again.wait()).stdout, 'got word\n')
      assert.deepEqual(seen.join(''), 'got word\n')
      await assert.rejects(sandbox.commands.connect(999_999), named('NotFoundError'))
    })

    test('several clients watch one command', async () => {
      const handle = await sandbox.commands.run('read x; seq 1 5000', { background: true, stdin: true })
      const others = await Promise.all(Array.from({ length: 5 }, () => sandbox.commands.connect(handle.pid)))
      await handle.sendStdin('\n')
      const results = await Promise.all([handle, ...others].map((one) => one.wait()))
      assert.equal(new Set(results.map((one) => one.stdout)).size, 1)
      assert.equal(results[0].stdout.length, 23_893)
    })

    test('a client that goes away does not end a background command', async () => {
      const abort = new AbortController()
      const handle = await sandbox.commands.run('sleep 1; echo kept > /tmp/kept', { background: true, signal: abort.signal })
      abort.abort()
      await handle.disconnect()
      await eventually('the command went on', () => sandbox.files.exists('/tmp/kept'))
    })

    test('64 commands at once, 300 one after the other', async () => {
      const results = await Promise.all(Array.from({ length: 64 }, (_, at) => sandbox.commands.run(`echo ${at}`)))
      results.forEach((result, at) => assert.equal(result.stdout, `${at}\n`))
      for (let at = 0; at < 300; at++) await sandbox.commands.run('true')
      assert.deepEqual(await sandbox.commands.list(), [])
    })

    test('requestTimeoutMs bounds calls that do not answer', async () => {
      const handle = await sandbox.commands.run('sleep 300', { background: true, stdin: true })
      // Nobody reads: the pipe fills up, and the call waits until its time is over.
      const began = Date.now()
      await assert.rejects(sandbox.commands.sendStdin(handle.pid, 'z'.repeat(1_000_000), { requestTimeoutMs: 700 }))
      assert.ok(Date.now() - began < 5000)
      assert.equal((await sandbox.commands.run('echo alive')).stdout, 'alive\n')
      await handle.kill()
    })

    test('killing the sandbox during a command is told as such', async () => {
      const other = await sdk.Sandbox.create('base', { timeoutMs: 60_000 })
      let ready = false
      const running = other.commands.run('echo ready; sleep 60', { onStdout: () => void (ready = true) }).then(
        () => assert.fail('it cannot end well'),
        (error) => error,
      )
      await eventually('it runs', () => ready)
      await other.kill()
      assert.match((await running).message, /sandbox was killed|terminated|not running|timeout/i)
    })
  })
}
