// Commands in terminals: exec -it, run -it, pty of a command and as another user, keys that leave. Ours is a pseudo-terminal
// that a script types into.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import http from 'node:http'
import { after, before, test } from 'node:test'
import { binary, patience, startServer } from '../harness/server.mjs'

let server
let id
before(async () => {
  server = await startServer()
  id = (await plain('create', '--timeout', '600', '-m', 'name=web')).stdout.trim()
})
after(() => server.destroy())

const environment = () => ({ PATH: process.env.PATH, HOME: '/root', TERM: 'xterm', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key })

function collect(child) {
  return new Promise((done) => {
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.end()
    child.on('close', (code) => done({ code, stdout, stderr }))
  })
}
const plain = (...args) => collect(spawn(binary, args, { env: environment() }))

// Steps: ['text it must show', 'what is typed then']...; its output, and its status as the last word.
const driver = `
import json, os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:-1])
seen = b''
def more(wait):
    global seen
    if not select.select([fd], [], [], wait)[0]: return True
    try: got = os.read(fd, 65536)
    except OSError: return False
    seen += got
    return bool(got)
for want, keys in json.loads(sys.argv[-1]):
    end = time.time() + ${20 * patience}
    while want.encode() not in seen:
        if time.time() > end or not more(0.2): sys.exit('no %r in %r' % (want, seen))
    seen = seen.replace(want.encode(), b'<seen>', 1)
    os.write(fd, keys.encode())
while more(0.5): pass
print(seen.decode(errors='replace'), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`
const typed = (args, steps) => collect(spawn('python3', ['-c', driver, binary, ...args, JSON.stringify(steps)], { env: environment() }))

test('exec -it: a terminal, a status, variables, a directory, another user', async () => {
  const ran = await typed(['exec', '-it', '-e', 'WHO=me', '-w', '/tmp', '-u', 'root', 'web', '--', 'sh', '-c', 'tty; echo $WHO $PWD $(id -un); read line; echo "got $line"; exit 5'], [['root', 'words\r']])
  assert.match(ran.stdout, /\/dev\/pts\/\d+\s+me \/tmp <seen>/, ran.stderr)
  assert.match(ran.stdout, /got words\s+5\n$/)
  const line = await typed(['exec', '-it', id, 'test -t 0 && echo a line | tr a-z A-Z'], [])
  assert.match(line.stdout, /A LINE\s+0\n$/)
  // Without a terminal of ours it is one all the same.
  const piped = await plain('exec', '-t', 'web', '--', 'sh', '-c', 'test -t 1 && echo yes')
  assert.deepEqual([piped.code, piped.stdout.trim()], [0, 'yes'])
  // -i without -t passes on what is typed.
  const input = await typed(['exec', '-i', 'web', '--', 'sh', '-c', 'echo ready; read line; echo "got-$line"'], [['ready', 'words\n']])
  assert.match(input.stdout, /got-words\s+0\n$/)
})

test('pty: a command, another user', async () => {
  const ran = await typed(['pty', '-u', 'root', 'web', '--', 'sh', '-c', 'id -un; exit 3'], [])
  assert.match(ran.stdout, /root\s+3\n$/)
  const shell = await typed(['shell', '-u', 'root', 'web'], [['#', 'echo $((6*7))-$(id -un); exit 4\r']])
  assert.match(shell.stdout, /42-root/)
  assert.match(shell.stdout, /4\n$/)
})

test('keys that leave it running, and coming back', async () => {
  const left = await typed(['pty', 'web'], [['$', 'X=kept; echo mark-$((1+1))\r'], ['mark-2', '\x10\x11']])
  assert.match(left.stdout, /left; 'quicksand pty --terminal pty_\w+ SANDBOX' comes back/)
  assert.match(left.stdout, / 0\n$/)
  const [, terminal] = left.stdout.match(/--terminal (pty_\w+)/)
  const back = await typed(['pty', '--terminal', terminal, 'web'], [['mark-2', 'echo again-$X; exit 7\r']])
  assert.match(back.stdout, /again-kept/)
  assert.match(back.stdout, / 7\n$/)
  // Half of the keys is input; others can be chosen, or none.
  const half = await typed(['exec', '-it', 'web', '--', 'sh', '-c', 'stty raw -echo; echo ready; dd bs=1 count=3 2>/dev/null | od -An -tx1'], [['ready', '\x10a\x11']])
  assert.match(half.stdout, /10 61 11/)
  const other = await typed(['exec', '-it', '--detach-keys', 'ctrl-x,q', 'web', '--', 'sh', '-c', 'echo ready; sleep 100'], [['ready', '\x18q']])
  assert.match(other.stdout, /left; .* 0\n$/s)
  const none = await typed(['exec', '-it', '--detach-keys', '', 'web', '--', 'sh', '-c', 'stty raw -echo; echo ready; dd bs=1 count=2 2>/dev/null | od -An -tx1'], [['ready', '\x10\x11']])
  assert.match(none.stdout, /10 11/)
})

test('run -it: a shell or a command, and nothing is left', async () => {
  const before = (await plain('ls', '-q')).stdout
  const shell = await typed(['run', '-it', 'base'], [['$', 'echo $((6*7)); exit 9\r']])
  assert.match(shell.stdout, /42[^]* 9\n$/)
  const command = await typed(['run', '-it', '--', 'sh', '-c', 'tty; exit 2'], [])
  assert.match(command.stdout, /\/dev\/pts\/\d+\s+2\n$/)
  assert.equal((await plain('ls', '-q')).stdout, before)
})

// The answer to a request for a WebSocket that is refused.
const refusal = (target) =>
  new Promise((done, failed) => {
    const headers = { 'X-API-KEY': server.key, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' }
    const request = http.get(server.url + target, { headers }, (answer) => {
      let text = ''
      answer.on('data', (chunk) => (text += chunk))
      answer.on('end', () => done({ status: answer.statusCode, text }))
    })
    request.on('upgrade', (answer, socket) => socket.destroy() && done({ status: 101, text: '' }))
    request.on('error', failed)
  })

test('wrong flags are named, and nothing is started', async () => {
  const told = async (args, code, words) => {
    const result = await plain(...args)
    assert.equal(result.code, code, `${args.join(' ')}: ${result.stderr}`)
    assert.match(result.stderr, words)
  }
  await told(['pty', '--detach-keys', 'alt-x', 'web'], 2, /--detach-keys needs keys like ctrl-p,ctrl-q, not 'alt-x'/)
  await told(['exec', '--detach-keys', 'ctrl-', 'web', '--', 'true'], 2, /--detach-keys/)
  await told(['exec', '-it', '--keep', 'web', '--', 'true'], 2, /--tty excludes --keep/)
  await told(['exec', '-it', '-u', 'nobody-here', 'web', '--', 'true'], 1, /nobody-here/)
  await told(['pty', '-w', '/nowhere', 'web'], 1, /nowhere/)
  await told(['run', '-i'], 2, /needs a command/)
  await told(['exec', '-itz', 'web'], 2, /unknown option '-itz'/)
  for (const [query, words] of [['argv=x', /argv/], ['argv=[]', /argv/], ['argv=[1]', /argv/], ['env=[]', /env/], ['env={"a":1}', /env/]]) {
    const { status, text } = await refusal(`/api/v1/sandboxes/${id}/terminal?${encodeURI(query)}`)
    assert.equal(status, 400, `${query}: ${text}`)
    assert.match(text, words)
  }
})
