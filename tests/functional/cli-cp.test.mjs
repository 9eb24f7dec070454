// cp of trees and of several files, both ways: what arrives is what was there, and what a hostile sandbox sends stays where
// it belongs.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, startServer } from '../harness/server.mjs'

let server
let folder
let id
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-cp-')
  server = await startServer()
  id = await good('create', '--timeout', '600', '-m', 'name=web')
})
after(async () => {
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
})

const environment = () => ({ PATH: process.env.PATH, HOME: folder, TERM: 'xterm', QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key })

function quicksand(args, { program = binary, onStart } = {}) {
  return new Promise((done) => {
    const child = spawn(program, args, { cwd: folder, env: environment() })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end()
    child.on('close', (code, signal) => done({ code, signal, stdout, stderr }))
    onStart?.(child)
  })
}

async function good(...args) {
  const result = await quicksand(args)
  assert.equal(result.code, 0, `${args.join(' ')}: ${result.code} ${result.stdout} ${result.stderr}\n${server.tail(5)}`)
  return result.stdout.trim()
}

const inside = (line) => good('exec', id, line)
const local = (...parts) => path.join(folder, ...parts)
// Names, kinds, modes, times and contents of all beneath.
const tell = (root) =>
  execFileSync('bash', ['-c', 'cd "$0" && find . -mindepth 1 -printf "%P %y %m %Ts %l\\n" | sort && find . -type f -print0 | sort -z | xargs -0 cat | sha256sum', root], { encoding: 'utf8' })

function makeTree(root) {
  fs.mkdirSync(path.join(root, 'deep/er/empty'), { recursive: true })
  fs.writeFileSync(path.join(root, 'plain'), 'text')
  fs.writeFileSync(path.join(root, 'deep/run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 })
  fs.writeFileSync(path.join(root, 'deep/er/secret'), Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) % 251)), { mode: 0o600 })
  fs.writeFileSync(path.join(root, `${'long-'.repeat(45)}é`), 'a long name')
  fs.writeFileSync(path.join(root, '-rf with blank'), 'odd')
  fs.symlinkSync('deep/run.sh', path.join(root, 'link'))
  fs.utimesSync(path.join(root, 'plain'), 1_000_000_000, 1_000_000_000)
  fs.utimesSync(path.join(root, 'deep/er'), 1_100_000_000, 1_100_000_000)
}

test('a tree there and back is the same: names, modes, times, links', async () => {
  makeTree(local('tree'))
  assert.deepEqual(JSON.parse(await good('cp', '-r', '--json', local('tree'), 'web:up')), { files: 5, bytes: 300_037 })
  assert.equal(await inside('up/link; stat -c %Y up/plain'), 'ran\n1000000000')
  await good('cp', '-r', `${id}:up`, local('back'))
  assert.equal(tell(local('back')), tell(local('tree')))
  // Into what is there, like cp.
  await good('cp', '-r', local('tree'), 'web:up')
  assert.equal(await inside('ls up/tree | wc -l'), await inside('ls up | wc -l').then((n) => String(n - 1)))
  await good('cp', '-r', 'web:up/tree', local('back'))
  assert.equal(tell(local('back/tree')), tell(local('tree')))
  // All of a directory.
  fs.mkdirSync(local('here'))
  await good('cp', '-r', `${local('tree')}/.`, 'web:dots')
  await good('cp', '-r', 'web:dots/', local('here/'))
  assert.equal(tell(local('here/dots')), tell(local('tree')))
})

test('several files, and one with its mode and time', async () => {
  fs.writeFileSync(local('a'), 'A', { mode: 0o640 })
  fs.writeFileSync(local('b'), 'B')
  await good('cp', 'a', 'b', 'web:many/')
  assert.equal(await inside('cat many/a many/b; stat -c %a many/a'), 'AB640')
  fs.mkdirSync(local('got'))
  await good('cp', 'web:many/a', 'web:many/b', 'got')
  assert.equal(fs.readFileSync(local('got/b'), 'utf8'), 'B')
  fs.utimesSync(local('a'), 1_200_000_000, 1_200_000_000)
  await good('cp', '-p', 'a', 'web:many/new-name')
  assert.equal(await inside('stat -c "%a %Y" many/new-name; ls -A many | wc -l'), '640 1200000000\n3')
  await good('cp', '-p', 'web:many/new-name', 'kept')
  assert.equal(fs.statSync(local('kept')).mtimeMs, 1_200_000_000_000)
  assert.equal(fs.statSync(local('kept')).mode & 0o777, 0o640)
  await good('cp', '-r', '-u', 'root', 'a', 'web:/root/')
  assert.equal(await good('exec', '-u', 'root', 'web', '--', 'stat', '-c', '%U', '/root/a'), 'root')
})

test('what cannot be is told, and nothing is copied', async () => {
  fs.writeFileSync(local('has:colon'), 'here')
  await good('cp', local('has:colon'), 'web:colon')
  const told = async (args, code, words) => {
    const before = `${await inside('find . | sort')} ${fs.readdirSync(folder)}`
    const result = await quicksand(args)
    assert.equal(result.code, code, `${args.join(' ')}: ${result.stderr}`)
    assert.match(result.stderr, words)
    assert.equal(`${await inside('find . | sort')} ${fs.readdirSync(folder)}`, before, args.join(' '))
  }
  await told(['cp', 'tree', 'web:x'], 1, /'tree' is a directory: copy it with -r/)
  await told(['cp', 'tree', 'a', 'web:x'], 2, /'tree' is a directory: copy it with -r/)
  await told(['cp', '-r', 'nothing', 'web:x'], 1, /'nothing': No such file/)
  await told(['cp', '-r', 'web:nothing', 'x'], 1, /nothing.*there is no such file/)
  await told(['cp', '-r', 'a', 'b'], 2, /one of the two must be SANDBOX:PATH/)
  await told(['cp', 'web:up', 'a', 'b'], 2, /all sources must be here, or in the same sandbox/)
  await told(['cp', '-r', '-', 'web:x'], 2, /'-' is one file/)
  await told(['cp', '-r', 'tree', 'nobody:x'], 1, /no sandbox 'nobody'/)
  await told(['cp', '-r', 'tree', 'web:/etc/x'], 1, /[Pp]ermission denied/)
  await told(['cp', '--recursiv', 'tree', 'web:x'], 2, /did you mean '--recursive'/)
})

test('a hostile tar leaves nothing outside, gives no rights, makes no devices', async () => {
  const script = `#!/usr/bin/python3
import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')
def add(name, data=b'evil', **more):
    info = tarfile.TarInfo(name); info.size = len(data)
    for key, value in more.items(): setattr(info, key, value)
    if info.type != tarfile.REGTYPE: info.size = 0
    out.addfile(info, io.BytesIO(data))
exec(open('/tmp/evil').read())
out.close()
`
  fs.writeFileSync(local('tar'), script, { mode: 0o755 })
  await good('cp', '-u', 'root', local('tar'), 'web:/usr/local/bin/tar')
  await good('exec', '-u', 'root', 'web', '--', 'chmod', '755', '/usr/local/bin/tar')
  const pull = async (evil) => {
    await good('exec', id, `mkdir -p ~/bait; cat > /tmp/evil <<'END'\n${evil}\nEND`)
    fs.rmSync(local('safe'), { recursive: true, force: true })
    fs.mkdirSync(local('safe'))
    return quicksand(['cp', '-r', 'web:bait', 'safe'])
  }
  for (const evil of [`add('other')`, `add('../outside')`, `add('/tmp/outside')`, `add('bait/../../outside')`, `add('bait/x', type=tarfile.LNKTYPE, linkname='../../a')`, `add('bait/x', type=tarfile.LNKTYPE, linkname='bait/../../a')`]) {
    const result = await pull(evil)
    assert.equal(result.code, 1, `${evil}: ${result.stderr}`)
    assert.ok(!fs.existsSync(local('outside')) && !fs.existsSync('/tmp/outside') && !fs.existsSync(local('safe/other')), evil)
    assert.ok(!fs.existsSync(local('safe/bait/x')), evil)
  }
  // Nothing is written through a link: it gives way.
  await pull(`add('bait', type=tarfile.SYMTYPE, linkname='..'); add('bait/outside')`)
  assert.ok(!fs.existsSync(local('outside')))
  const odd = await pull(`add('bait/suid', mode=0o6755); add('bait/null', type=tarfile.CHRTYPE, devmajor=1, devminor=3); add('bait/pipe', type=tarfile.FIFOTYPE)`)
  assert.equal(odd.code, 0, odd.stderr)
  assert.equal(fs.statSync(local('safe/bait/suid')).mode & 0o7777, 0o755)
  assert.deepEqual(fs.readdirSync(local('safe/bait')), ['suid'])
  assert.match(odd.stderr, /'bait\/null' is neither a file/)
  await good('exec', '-u', 'root', 'web', '--', 'rm', '/usr/local/bin/tar')
})

test('on a terminal it tells how far it is; Ctrl-C is clean', async () => {
  fs.writeFileSync(local('text'), 'text')
  fs.mkdirSync(local('large'))
  for (let i = 0; i < 4; i++) {
    fs.writeFileSync(local(`large/${i}`), '')
    fs.truncateSync(local(`large/${i}`), 32 * 1024 * 1024)
  }
  const shown = await quicksand(['-qec', `${binary} cp -r large web:large`, '/dev/null'], { program: 'script' })
  assert.equal(shown.code, 0, shown.stdout)
  assert.match(shown.stdout, /\d files, [\d.]+ [KM]iB of 128 MiB, [\d.]+ [KM]iB\/s, \d+ s left/)
  assert.ok(shown.stdout.endsWith('\r\x1b[K'), JSON.stringify(shown.stdout.slice(-40)))
  await inside('rm -r large')
  // One file: as large as it must be here to take longer than the first look.
  const alone = async (from, to, sizes = [256, 1024, 4096]) => {
    fs.writeFileSync(local('one'), '')
    fs.truncateSync(local('one'), sizes[0] * 1024 * 1024)
    if (from !== 'one') await good('cp', 'one', from)
    const shown = await quicksand(['-qec', `${binary} cp ${from} ${to}`, '/dev/null'], { program: 'script' })
    assert.equal(shown.code, 0, shown.stdout)
    if (sizes.length > 1 && !shown.stdout.includes('left')) return alone(from, to, sizes.slice(1))
    assert.match(shown.stdout, /\r[\d.]+ [MG]iB of [\d.]+ [MG]iB, [\d.]+ [MG]iB\/s, \d+ s left/)
  }
  await alone('one', 'web:one')
  await alone('web:one', 'again')
  assert.deepEqual(JSON.parse(await good('cp', '--json', 'text', 'web:one')), { files: 1, bytes: 4 })
  for (const name of ['one', 'again']) fs.rmSync(local(name))
  await inside('rm one')
  const cut = await quicksand(['cp', '-r', 'large', 'web:cut'], {
    onStart: (child) => void eventually('it has begun', async () => (await quicksand(['exec', id, 'test -e cut/0'])).code === 0).then(() => child.kill('SIGINT')),
  })
  assert.ok(cut.code >= 128 || cut.code === 0, `${cut.code} ${cut.stderr}`)
  assert.ok(cut.stderr.split('\n').filter(Boolean).length <= 1, cut.stderr)
  await eventually('no tar is left', async () => (await quicksand(['exec', id, 'pgrep -x tar'])).code === 1)
})
