// How a server is started: where it listens, which signals end it, whose engine it uses, what becomes of its first key.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { binary, eventually, patience, startServer } from '../harness/server.mjs'

let home
before(() => {
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-start-'))
  fs.chmodSync(home, 0o755)
})
after(() => fs.rmSync(home, { recursive: true, force: true }))

function run(args, env = {}) {
  const result = spawnSync(binary, args, { encoding: 'utf8', timeout: 60_000 * patience, env: { PATH: process.env.PATH, HOME: home, ...env } })
  return { code: result.status, stdout: result.stdout, stderr: result.stderr }
}

function get(host, port, headers = {}, target = '/health') {
  return new Promise((done, fail) => {
    http.get({ host, port, path: target, headers, agent: false }, (response) => {
      response.resume().on('end', () => done(response.statusCode))
    }).on('error', fail)
  })
}

describe('--listen', () => {
  test('localhost, all addresses, IPv6: server, proxy, command line', async () => {
    for (const [listen, url, hosts] of [
      ['localhost:0', /^http:\/\/127\.0\.0\.1:\d+$/, ['127.0.0.1']],
      [':0', /^http:\/\/127\.0\.0\.1:\d+$/, ['127.0.0.1', '::1', '198.51.100.2']],
      ['[::1]:0', /^http:\/\/\[::1\]:\d+$/, ['::1']],
      ['0.0.0.0:0', /^http:\/\/127\.0\.0\.1:\d+$/, ['127.0.0.1', '198.51.100.2']],
    ]) {
      const server = await startServer({ listen, args: ['--warm', '2'] })
      try {
        assert.match(server.url, url, listen)
        const { sandboxID, envdAccessToken } = await server.create({ secure: true })
        for (const host of hosts) {
          assert.ok((await get(host, server.port)) < 300, `${listen} at ${host}`)
          for (const name of [`49983-${sandboxID}.localhost:${server.port}`, `49983-${sandboxID}.localhost`]) {
            assert.equal(await get(host, server.port, { Host: name, 'X-Access-Token': envdAccessToken }), 204, `${listen} at ${host} as ${name}`)
          }
          const there = host.includes(':') ? `http://[${host}]:${server.port}` : `http://${host}:${server.port}`
          const said = run(['exec', '--url', there, sandboxID, '--', 'echo', 'hi'], { QUICKSAND_TOKEN: server.key })
          assert.deepEqual([said.code, said.stdout], [0, 'hi\n'], said.stderr)
        }
        await server.restart()
        assert.deepEqual(await server.ids(), [sandboxID])
      } finally {
        await server.destroy()
      }
    }
  })

  test('what is wrong or taken is told before anything is made', async () => {
    const taken = net.createServer().listen(0, '127.0.0.1')
    await new Promise((done) => taken.once('listening', done))
    const data = path.join(home, 'early')
    try {
      for (const [listen, code, said] of [
        [`127.0.0.1:${taken.address().port}`, 1, /--listen '127\.0\.0\.1:\d+': .*[Aa]ddress.* in use/],
        [`:${taken.address().port}`, 1, /in use/],
        ['203.0.113.99:3000', 1, /--listen '203\.0\.113\.99:3000': .*[Cc]annot assign/],
        ['box:3000', 2, /listen must be ADDRESS:PORT/],
        ['::1:3000', 2, /in brackets/],
        ['3000', 2, /listen must be/],
      ]) {
        const result = run(['serve', '--listen', listen, '--data', data])
        assert.equal(result.code, code, `${listen}: ${result.stdout}${result.stderr}`)
        assert.match(result.stderr, said)
        assert.ok(!fs.existsSync(data), `${listen} made a data directory`)
      }
    } finally {
      taken.close()
    }
  })
})

describe('signals', () => {
  test('an ignored SIGHUP stays ignored: nohup works', async () => {
    const server = await startServer({ args: ['--warm', '2'], program: wrapped('trap "" HUP') })
    try {
      process.kill(server.child.pid, 'SIGHUP')
      process.kill(server.servingPid, 'SIGHUP')
      const { sandboxID } = await server.create()
      assert.deepEqual(await server.ids(), [sandboxID])
      assert.ok(server.alive())
      // Programs inside do not inherit it.
      const shown = run(['exec', '--url', server.url, sandboxID, '--', 'grep', 'SigIgn', '/proc/self/status'], { QUICKSAND_TOKEN: server.key })
      assert.match(shown.stdout, /SigIgn:\s+0+$/m, shown.stderr)
    } finally {
      await server.destroy()
    }
  })

  // One that somebody sends is a reload: operate.test.mjs.
  test('a terminal that goes ends it otherwise', () => {
    const data = path.join(home, 'hung-up')
    const script = `import os, pty, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
out = b''
while b'ready http' not in out: out += os.read(fd, 4096)
os.close(fd)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`
    const done = spawnSync('python3', ['-c', script, binary, 'serve', '--listen', '127.0.0.1:0', '--warm', '1', '--data', data], { encoding: 'utf8', timeout: 60_000 * patience })
    assert.equal(done.stdout, '0\n', done.stderr)
  })
})

// A program that does something in a shell before it becomes the server.
function wrapped(first) {
  const file = path.join(home, 'wrapped')
  fs.writeFileSync(file, `#!/bin/sh\n${first}\nexec ${binary} "$@"\n`, { mode: 0o755 })
  return file
}

describe('down', () => {
  test('is in the help and has its own', () => {
    assert.match(run(['help']).stdout, /^ {2}down +\S/m)
    for (const args of [['down', '--help'], ['help', 'down'], ['down', '-h']]) {
      const help = run(args)
      assert.equal(help.code, 0, help.stderr)
      assert.match(help.stdout, /^Usage: quicksand down/)
      assert.ok(!help.stdout.includes('--warm'))
    }
    assert.match(run(['help', 'serve']).stdout, /^Usage: quicksand serve/)
  })

  test('refuses a directory that was never a server’s, and makes none', () => {
    const typo = path.join(home, 'mistyped')
    const result = run(['down', '--data', typo])
    assert.equal(result.code, 1)
    assert.match(result.stderr, /no server was ever started with .*mistyped.*--data/)
    assert.ok(!fs.existsSync(typo))
    fs.mkdirSync(typo)
    assert.equal(run(['down', '--data', typo]).code, 1)
    assert.deepEqual(fs.readdirSync(typo), [])
  })
})

describe('the default provider', () => {
  // What the start says, and where a sandbox of the runtime is then made.
  async function started(env, more, check) {
    const server = await startServer({ args: ['--warm', '2', ...(more.args ?? [])], env, ...more })
    try {
      await check(server, /default provider of .*: (.*)/.exec(server.log)?.[1])
    } finally {
      await server.destroy()
    }
  }

  async function usesItsEngine(server) {
    const made = await server.api('POST', '/api/v1/sandboxes', {}, { timeoutMs: 20_000 })
    assert.equal(made.status, 201, made.text)
    assert.equal((await server.ids()).length, 1)
    assert.equal((await server.api('DELETE', `/api/v1/sandboxes/${made.body.id}`)).status, 204)
    assert.doesNotMatch(server.log, /made elsewhere/)
  }

  const freePort = () =>
    new Promise((done) => {
      const probe = net.createServer().listen(0, '127.0.0.1', () => {
        const { port } = probe.address()
        probe.close(() => done(port))
      })
    })

  test('is the engine, and the start says so', () =>
    started({}, {}, async (server, said) => {
      assert.equal(said, 'e2b, the engine of this server')
      await usesItsEngine(server)
      // Its first check has ended when the server has.
      await server.stop()
      assert.doesNotMatch(server.log, /docker/, 'a complaint about a docker that nobody asked for')
    }))

  for (const host of ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0']) {
    test(`is the engine with the exports of its own start in the environment (${host})`, async () => {
      const port = await freePort()
      const url = `http://${host}:${port}`
      await started({ E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: 'e2b_whatever' }, { listen: `127.0.0.1:${port}` }, async (server, said) => {
        assert.equal(said, 'e2b, the engine of this server (which is what E2B_API_URL names)')
        await usesItsEngine(server)
      })
    })
  }

  test('is the engine with its own domain or its own key', async () => {
    await started({ E2B_DOMAIN: 'sandboxes.test', E2B_API_KEY: 'e2b_whatever' }, { args: ['--domain', 'sandboxes.test'] }, async (server, said) => {
      assert.match(said, /engine of this server \(which is what E2B_DOMAIN names\)/)
      await usesItsEngine(server)
    })
    const key = `e2b_${'7'.repeat(40)}`
    await started({ QUICKSAND_API_KEY: key, E2B_API_KEY: key }, { prepare: (server) => void (server.key = key) }, async (server, said) => {
      assert.match(said, /engine of this server \(which is what E2B_API_KEY names\)/)
      await usesItsEngine(server)
    })
  })

  test('elsewhere: named, with a warning', async () => {
    await started({ E2B_API_URL: 'http://127.0.0.1:9', E2B_API_KEY: 'e2b_theirs' }, {}, async (server, said) => {
      assert.equal(said, 'e2b at http://127.0.0.1:9 (named by E2B_API_URL)')
      await eventually('a warning', () => /WARN.*made elsewhere.*127\.0\.0\.1:9.*E2B_API_URL/i.test(server.log))
    })
    await started({ E2B_API_KEY: `e2b_${'9'.repeat(40)}` }, {}, async (server, said) => {
      assert.equal(said, 'e2b at E2B\'s public cloud (named by E2B_API_KEY)')
      await eventually('a warning', () => /made elsewhere.*public cloud/.test(server.log))
    })
  })

  test('E2B_DOMAIN without E2B_API_URL is asked at https://api.DOMAIN', async () => {
    let hello
    const listener = net.createServer((socket) => {
      socket.on('error', () => {})
      socket.once('data', (bytes) => {
        hello ??= bytes
        socket.destroy()
      })
    })
    await new Promise((done) => listener.listen(0, '127.0.0.1', done))
    const domain = `localhost:${listener.address().port}`
    try {
      await started({ E2B_DOMAIN: domain, E2B_API_KEY: 'e2b_theirs' }, {}, async (server, said) => {
        assert.equal(said, `e2b at ${domain} (named by E2B_DOMAIN)`)
        await eventually('the health check of the provider', () => hello)
        assert.equal(hello[0], 0x16, 'not a TLS handshake')
        assert.match(hello.toString('latin1'), /api\.localhost/)
      })
    } finally {
      listener.close()
    }
  })
})

// Without it, clients on the host get localhost (proxy.test.mjs).
test('--domain is what clients are told', async () => {
  const server = await startServer({ args: ['--domain', 'sandboxes.test', '--warm', '0'] })
  try {
    const made = await server.create()
    assert.equal(made.domain, 'sandboxes.test')
    assert.equal((await server.api('GET', `/sandboxes/${made.sandboxID}`)).body.domain, 'sandboxes.test')
    assert.equal((await server.api('POST', `/sandboxes/${made.sandboxID}/connect`, { timeout: 60 })).body.domain, 'sandboxes.test')
  } finally {
    await server.destroy()
  }
})

describe('the first key', () => {
  const shown = (log) => [...log.matchAll(/export E2B_API_KEY=(e2b_[0-9a-f]{40})/g)].map((match) => match[1])
  const credentials = (folder) => fs.readFileSync(path.join(folder, '.quicksand/credentials'), 'utf8')
  const userHome = () => fs.mkdtempSync(path.join(home, 'user-'))
  const start = (folder, options = {}) => startServer({ args: ['--warm', '2', ...(options.args ?? [])], env: { HOME: folder, QUICKSAND_API_KEY: '' }, listen: options.listen })
  // The harness asks as whoever has the key.
  const adopt = (server) => (server.key = shown(server.log)[0] ?? server.key)

  test('is shown once, kept, and a restart prints how to get it', async () => {
    const folder = userHome()
    const server = await start(folder)
    try {
      const key = adopt(server)
      assert.match(key, /^e2b_[0-9a-f]{40}$/)
      assert.match(server.log, /shown once; kept in ~\/\.quicksand\/credentials/)
      assert.match(server.log, /export E2B_VOLUME_API_URL=http/)
      assert.equal((await server.api('GET', '/sandboxes')).status, 200)
      assert.equal(fs.statSync(path.join(folder, '.quicksand/credentials')).mode & 0o777, 0o600)
      await server.restart()
      assert.deepEqual(shown(server.log), [key], 'shown more than once')
      const line = /export E2B_API_KEY=\$\((.*)\)/.exec(server.log)[1]
      assert.equal(spawnSync('sh', ['-c', line], { env: { PATH: process.env.PATH, HOME: folder }, encoding: 'utf8' }).stdout.trim(), key)
    } finally {
      await server.destroy()
    }
  })

  test('is not lost when the first start fails', async () => {
    const folder = userHome()
    const bad = path.join(home, 'bad.json')
    fs.writeFileSync(bad, '{"providers": 7}', { mode: 0o644 })
    const data = path.join(home, 'failing')
    const failing = run(['serve', '--listen', '127.0.0.1:0', '--data', data, '--warm', '2', '--runtime-config', bad], { HOME: folder, QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER })
    assert.equal(failing.code, 78, failing.stderr)
    assert.deepEqual(shown(failing.stdout), [])
    const again = spawn(binary, ['serve', '--listen', '127.0.0.1:0', '--data', data, '--warm', '2'], {
      env: { PATH: process.env.PATH, HOME: folder, QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let out = ''
    again.stdout.on('data', (chunk) => (out += chunk))
    try {
      await eventually('the start', () => out.includes('default provider'), 60_000)
      const [key] = shown(out)
      assert.ok(key, out)
      const url = /^ready (\S+)$/m.exec(out)[1]
      const listed = run(['ls', '--json'], { HOME: folder, QUICKSAND_URL: url })
      assert.equal(listed.code, 0, listed.stderr)
    } finally {
      const exited = new Promise((done) => again.once('exit', done))
      again.kill('SIGTERM')
      await exited
      run(['down', '--data', data])
      fs.rmSync(data, { recursive: true, force: true })
    }
  })

  test('of a second server does not replace that of the first', async () => {
    const folder = userHome()
    const servers = [await start(folder), await start(folder)]
    try {
      const keys = servers.map(adopt)
      assert.notEqual(keys[0], keys[1])
      for (const [i, server] of servers.entries()) {
        const said = run(['key', 'saved', '--url', server.url], { HOME: folder })
        assert.deepEqual([said.code, said.stdout.trim()], [0, keys[i]], said.stderr)
        const spelled = run(['key', 'saved'], { HOME: folder, QUICKSAND_URL: `http://localhost:${server.port}` })
        assert.equal(spelled.stdout.trim(), keys[i], spelled.stderr)
        assert.equal(run(['ls'], { HOME: folder, E2B_API_URL: server.url }).code, 0)
      }
      const other = run(['ls'], { HOME: folder, QUICKSAND_URL: 'http://127.0.0.1:9' })
      assert.equal(other.code, 1)
      assert.match(other.stderr, /no API key for http:\/\/127\.0\.0\.1:9/)
      // One that moves to another address brings its key along.
      servers[0].listen = '127.0.0.1:0'
      await servers[0].restart()
      assert.equal(run(['key', 'saved', '--url', servers[0].url], { HOME: folder }).stdout.trim(), keys[0])
      assert.ok(credentials(folder).includes(keys[1]))
    } finally {
      for (const server of servers) await server.stop()
      for (const server of servers) await server.destroy()
    }
  })
})
