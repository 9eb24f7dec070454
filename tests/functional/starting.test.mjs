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

  test('SIGHUP ends it otherwise', async () => {
    const server = await startServer({ args: ['--warm', '2'] })
    server.child.kill('SIGHUP')
    assert.deepEqual(await server.exited, { code: 0, signal: null })
    await server.destroy()
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
      assert.match(help.stdout, /^usage: quicksand down/)
      assert.ok(!help.stdout.includes('--warm'))
    }
    assert.match(run(['help', 'serve']).stdout, /^usage: quicksand serve/)
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
