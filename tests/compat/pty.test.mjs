// sandbox.pty of the published SDK, and what people do in terminals.
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
  describe(`pty of e2b ${version}`, () => {
    let sdk, sandbox
    before(async () => {
      sdk = await loadSdk(server, version)
      sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 })
    })
    after(async () => {
      await sandbox?.kill()
    })

    const bytes = (text) => new TextEncoder().encode(text)

    // A terminal: type() sends keys, sees() waits until the screen's text matches, from the last match on.
    async function open(options = {}) {
      const terminal = { text: '', at: 0 }
      const decoder = new TextDecoder()
      const onData = (data) => void (terminal.text += decoder.decode(data, { stream: true }))
      terminal.onData = onData
      terminal.handle = await sandbox.pty.create({ cols: 80, rows: 24, onData, ...options })
      terminal.pid = terminal.handle.pid
      terminal.type = (text) => sandbox.pty.sendInput(terminal.pid, bytes(text))
      terminal.sees = (pattern) =>
        eventually(`${pattern} in ${JSON.stringify(terminal.text.slice(terminal.at))}`, () => {
          const match = new RegExp(pattern, 'm').exec(terminal.text.slice(terminal.at))
          if (match) terminal.at += match.index + match[0].length
          return match
        })
      terminal.close = async () => {
        await sandbox.pty.kill(terminal.pid)
        await terminal.handle.wait().catch(() => {})
      }
      // Programs that leave the screen throw away what was typed before: wait for the shell's prompt.
      terminal.prompt = () => terminal.sees('[$#] (?![^])')
      await terminal.prompt()
      return terminal
    }

    test('an interactive login shell of the user, at home', async () => {
      const terminal = await open()
      await terminal.type('echo "$0 $- $TERM $LANG $LC_ALL $(whoami) $PWD"; shopt login_shell; tty\n')
      const [line] = await terminal.sees('^\\S*bash \\S+ .*$')
      assert.match(line, /bash \S*i\S* xterm-256color C.UTF-8 C.UTF-8 user \/home\/user/)
      await terminal.sees('login_shell\\s+on')
      await terminal.sees('/dev/pts/\\d+')
      await terminal.close()
    })

    test('options: size, cwd, envs, user', async () => {
      const terminal = await open({ cols: 101, rows: 33, cwd: '/etc', envs: { COLOR: 'blue' }, user: 'root' })
      await terminal.type('tput cols; tput lines; pwd; echo "$COLOR-$(whoami)"\n')
      await terminal.sees('^101\\r$')
      await terminal.sees('^33\\r$')
      await terminal.sees('^/etc\\r$')
      await terminal.sees('^blue-root\\r$')
      await terminal.close()
    })

    test('resize: tput, COLUMNS, and SIGWINCH for what runs in front', async () => {
      const terminal = await open()
      await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 50 })
      await terminal.type('tput cols; tput lines\n')
      await terminal.sees('^132\\r$')
      await terminal.sees('^50\\r$')
      await terminal.type('bash -c \'trap "stty size" WINCH; echo wait""ing; while :; do sleep 0.1; done\'\n')
      await terminal.sees('waiting')
      await sandbox.pty.resize(terminal.pid, { cols: 70, rows: 20 })
      await terminal.sees('^20 70\\r$')
      await terminal.close()
    })

    test('exit codes and wait', async () => {
      const terminal = await open()
      await terminal.type('exit\n')
      assert.equal((await terminal.handle.wait()).exitCode, 0)
      const failing = await open()
      await failing.type('exit 9\n')
      await assert.rejects(failing.handle.wait(), (error) => error.exitCode === 9)
    })

    test('end of input (Ctrl-D) leaves the shell', async () => {
      const terminal = await open()
      await terminal.type('\x04')
      assert.equal((await terminal.handle.wait()).exitCode, 0)
    })

    test('Ctrl-C interrupts what runs in front and not the shell', async () => {
      const terminal = await open()
      await terminal.type('sleep 5001\n')
      await eventually('sleep runs', async () => (await shell(sandbox, 'pgrep -fx "sleep 5001"')).exitCode === 0)
      await terminal.type('\x03')
      await terminal.sees('\\^C')
      await terminal.type('echo "status $?"\n')
      await terminal.sees('^status 130\\r$')
      await eventually('sleep is gone', async () => (await shell(sandbox, 'pgrep -fx "sleep 5001"')).exitCode === 1)
      await terminal.close()
    })

    test('job control: Ctrl-Z, jobs, bg, fg', async () => {
      const terminal = await open()
      assert.doesNotMatch(terminal.text, /no job control|cannot set terminal process group/)
      await terminal.type('sleep 5002\n')
      await eventually('sleep runs', async () => (await shell(sandbox, 'pgrep -fx "sleep 5002"')).exitCode === 0)
      await terminal.type('\x1a')
      await terminal.sees('Stopped\\s+sleep 5002')
      await terminal.type('bg\n')
      await terminal.sees('sleep 5002 &')
      await terminal.type('jobs\n')
      await terminal.sees('Running\\s+sleep 5002')
      await terminal.type('fg\n')
      await terminal.sees('sleep 5002')
      await terminal.type('\x03')
      await terminal.type('jobs; echo no""ne\n')
      await terminal.sees('^none\\r$')
      await terminal.close()
    })

    test('line editing: history, completion, erase', async () => {
      const terminal = await open()
      await terminal.type('echo fir""st\n')
      await terminal.sees('^first\\r$')
      await terminal.type('\x1b[A\n')
      await terminal.sees('^first\\r$')
      await terminal.type('ls /etc/passw\t\n')
      await terminal.sees('^/etc/passwd')
      await terminal.type('echo wrongg\x7f\x7f\x7f\x7f\x7f\x7fright""ly\n')
      await terminal.sees('^rightly\\r$')
      await terminal.close()
    })

    test('passwords are not echoed; multi-byte text is', async () => {
      const terminal = await open()
      await terminal.type('read -s -p "secret: " s; echo "<${#s}>"\n')
      await terminal.sees('secret: $')
      await terminal.type('hidden\n')
      await terminal.sees('<6>')
      assert.ok(!terminal.text.includes('hidden'))
      await terminal.type("echo 'žluťoučký 🐎'\n")
      await terminal.sees('^žluťoučký 🐎\\r$')
      await terminal.close()
    })

    test('kill: gone at once, with what it started in front and behind', async () => {
      const terminal = await open()
      await terminal.type('sleep 5003 & sleep 5003\n')
      await eventually('both run', async () => (await shell(sandbox, 'pgrep -cfx "sleep 5003"')).stdout.trim() === '2')
      assert.equal(await sandbox.pty.kill(terminal.pid), true)
      assert.notEqual((await shell(sandbox, `kill -0 ${terminal.pid}`, { user: 'root' })).exitCode, 0)
      await eventually('children are gone', async () => (await shell(sandbox, 'pgrep -fx "sleep 5003"')).exitCode === 1)
      assert.equal(await sandbox.pty.kill(terminal.pid), false)
      await terminal.handle.wait().catch(() => {})
    })

    test('disconnect and reconnect: the shell has kept its state', async () => {
      const terminal = await open({ timeoutMs: 0 })
      await terminal.type('export KEPT=state; cd /usr; echo se""t\n')
      await terminal.sees('^set\\r$')
      await terminal.handle.disconnect()
      let text = ''
      const again = await sandbox.pty.connect(terminal.pid, { onData: (data) => void (text += Buffer.from(data).toString()) })
      assert.equal(again.pid, terminal.pid)
      await terminal.type('echo "$KEPT:$PWD"\n')
      await eventually('the answer', () => /^state:\/usr\r$/m.test(text))
      await terminal.type('exit\n')
      assert.equal((await again.wait()).exitCode, 0)
    })

    test('timeoutMs ends the terminal', async () => {
      const terminal = await open({ timeoutMs: 1500 })
      await assert.rejects(terminal.handle.wait(), (error) => /timed out|timeout|deadline/i.test(error.message))
      await eventually('the shell is gone', async () => (await shell(sandbox, `kill -0 ${terminal.pid}`, { user: 'root' })).exitCode !== 0)
    })

    test('much output through a terminal is whole', async () => {
      const terminal = await open()
      await terminal.type('echo; seq 1 30000; echo fini""shed\n')
      await terminal.sees('finished')
      const numbers = [...terminal.text.matchAll(/^(\d+)\r$/gm)].map((match) => Number(match[1]))
      assert.deepEqual(numbers, Array.from({ length: 30_000 }, (_, at) => at + 1))
      await terminal.close()
    })

    test('a long line pasted at once arrives whole', async () => {
      const terminal = await open()
      await terminal.type('cat > /tmp/pasted\n')
      // Terminals in canonical mode take lines of up to 4095 bytes.
      const lines = Array.from({ length: 200 }, (_, at) => `${at} ${'p'.repeat(900)}`)
      await terminal.type(`${lines.join('\n')}\n\x04`)
      await terminal.type('echo do""ne\n')
      await terminal.sees('^done\\r$')
      assert.equal(await sandbox.files.read('/tmp/pasted'), `${lines.join('\n')}\n`)
      await terminal.close()
    })

    test('size errors and unknown terminals', async () => {
      await assert.rejects(sandbox.pty.resize(999_999, { cols: 80, rows: 24 }))
      await assert.rejects(sandbox.pty.sendInput(999_999, bytes('x')))
      await assert.rejects(sandbox.pty.connect(999_999))
      assert.equal(await sandbox.pty.kill(999_999), false)
      const plain = await sandbox.commands.run('sleep 60', { background: true, stdin: true })
      await assert.rejects(sandbox.pty.resize(plain.pid, { cols: 80, rows: 24 }))
      await plain.kill()
    })

    describe('full-screen programs', () => {
      const programs = {
        vi: async (terminal) => {
          await terminal.type('vi /tmp/by-vi\n')
          await terminal.sees('by-vi')
          await terminal.type('ifirst line\rsecond\x1b')
          await terminal.type(':wq\r')
          await terminal.prompt()
          await terminal.type('echo le""ft\n')
          await terminal.sees('^left\\r$')
          assert.equal(await sandbox.files.read('/tmp/by-vi'), 'first line\nsecond\n')
        },
        nano: async (terminal) => {
          await terminal.type('nano /tmp/by-nano\n')
          await terminal.sees('GNU nano')
          await terminal.type('some words\x0f\r')
          await terminal.sees('Wrote')
          await terminal.type('\x18')
          await terminal.prompt()
          await terminal.type('echo le""ft\n')
          await terminal.sees('^left\\r$')
          assert.equal(await sandbox.files.read('/tmp/by-nano'), 'some words\n')
        },
        less: async (terminal) => {
          await terminal.type('seq 1 500 | less\n')
          await terminal.sees('23\\r?\\n')
          await terminal.type('G')
          await terminal.sees('500')
          await terminal.type('q')
          await terminal.prompt()
          await terminal.type('echo le""ft\n')
          await terminal.sees('^left\\r$')
        },
        top: async (terminal) => {
          await terminal.type('top -d 1\n')
          await terminal.sees('load average')
          await terminal.sees('PID')
          await terminal.type('q')
          await terminal.prompt()
          await terminal.type('echo le""ft\n')
          await terminal.sees('^left\\r$')
        },
        tmux: async (terminal) => {
          await terminal.type('tmux new -s work\n')
          await terminal.sees('\\[work\\]')
          await terminal.type('echo in""side $TMUX\n')
          await terminal.sees('inside /tmp/tmux')
          await terminal.type('\x02d')
          await terminal.sees('detached')
          await terminal.type('tmux ls\n')
          await terminal.sees('work: 1 windows')
          await terminal.type('tmux kill-server\n')
        },
      }
      for (const [program, drive] of Object.entries(programs)) {
        test(program, async () => {
          const terminal = await open()
          await drive(terminal)
          await terminal.close()
        })
      }
    })
  })
}
