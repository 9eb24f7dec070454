// The published command line, @e2b/cli, against our server.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { eventually, repository, startServer } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/cli/node_modules/.bin/e2b')
let server, home, id

before(async () => {
  server = await startServer()
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'e2b-home-'))
})
after(async () => {
  fs.rmSync(home, { recursive: true, force: true })
  await server.destroy()
})

// Runs `e2b ...args` to its end; input goes to its standard input.
function e2b(args, input = '') {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], { env: { ...process.env, ...server.clientEnv(), HOME: home, NO_COLOR: '1' } })
    const result = { stdout: '', stderr: '' }
    const timer = setTimeout(() => child.kill('SIGKILL'), 30_000)
    child.stdout.on('data', (chunk) => (result.stdout += chunk))
    child.stderr.on('data', (chunk) => (result.stderr += chunk))
    child.on('error', reject)
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ ...result, code: signal ?? code })
    })
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end(input)
  })
}

test('create and list', async () => {
  assert.equal((await e2b(['sandbox', 'create', 'base', '-d'])).code, 0)
  const listed = JSON.parse((await e2b(['sandbox', 'list', '--format', 'json'])).stdout)
  assert.equal(listed.length, 1)
  id = listed[0].sandboxId
})

test('info', async () => {
  const { stdout, code } = await e2b(['sandbox', 'info', id])
  assert.equal(code, 0)
  assert.match(stdout, new RegExp(id))
})

test('exec: output, exit code, piped input', async () => {
  const failed = await e2b(['sandbox', 'exec', id, 'echo out; exit 3'])
  assert.equal(failed.code, 3)
  assert.match(failed.stdout, /^out$/m)
  const piped = await e2b(['sandbox', 'exec', id, 'cat'], 'piped in\n')
  assert.equal(piped.code, 0)
  assert.match(piped.stdout, /piped in/)
})

// The way a person uses it: on a terminal.
function terminal(args, input) {
  return new Promise((resolve) => {
    const line = [process.execPath, program, ...args].map((word) => `'${word}'`).join(' ')
    const child = spawn('script', ['-qefc', line, '/dev/null'], { env: { ...process.env, ...server.clientEnv(), HOME: home, NO_COLOR: '1', TERM: 'xterm' } })
    const timer = setTimeout(() => child.kill('SIGKILL'), 30_000)
    let stdout = ''
    let sent = false
    child.stdout.on('data', (chunk) => {
      stdout += chunk
      if (!sent && /[$#] $/.test(stdout.replace(/\x1b\[[0-9;?]*[a-zA-Z]/g, ''))) {
        sent = true
        child.stdin.write(input)
      }
    })
    child.on('close', (code) => {
      clearTimeout(timer)
      resolve({ stdout, code })
    })
  })
}

test('connect: a terminal in the sandbox', async () => {
  const { stdout, code } = await terminal(['sandbox', 'connect', id], 'echo $((6 * 7)) > /tmp/answer; tty; exit\r')
  assert.match(stdout, /\/dev\/pts\//, stdout)
  assert.equal(code, 0, stdout)
  assert.match((await e2b(['sandbox', 'exec', id, 'cat /tmp/answer'])).stdout, /^42$/m)
})

test('create without -d: a terminal, and the sandbox goes with it', async () => {
  const { stdout } = await terminal(['sandbox', 'create', 'base'], 'hostname; exit\r')
  assert.match(stdout, /Terminal connected|connecting/i)
  await eventually('only the first one is left', async () => (await server.ids()).length === 1, 15_000)
})

test('pause, resume', async () => {
  assert.match((await e2b(['sandbox', 'pause', id])).stdout, /paused/)
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.state, 'paused')
  assert.match((await e2b(['sandbox', 'resume', id])).stdout, /resumed/)
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).body.state, 'running')
})

test('logs and metrics', async () => {
  const logs = (await e2b(['sandbox', 'logs', id])).stdout
  assert.match(logs, /Sandbox created/)
  assert.match(logs, /Command started by user: .*cat/)
  assert.match(logs, /Command exited with code 0: .*cat/)
  await eventually('metrics', async () => /Memory:/.test((await e2b(['sandbox', 'metrics', id])).stdout), 30_000)
})

test('template list', async () => {
  assert.match((await e2b(['template', 'list'])).stdout, /base/)
})

test('template create from a Dockerfile, publish, delete', async () => {
  const folder = path.join(home, 'context')
  fs.mkdirSync(path.join(folder, 'files'), { recursive: true })
  fs.writeFileSync(path.join(folder, 'files/hello.txt'), 'hello')
  fs.writeFileSync(path.join(folder, 'e2b.Dockerfile'), 'FROM e2bdev/base\nENV WHO=cli\nWORKDIR /app\nCOPY files/ ./files/\nRUN cp files/hello.txt copy.txt && whoami > who\n')
  const args = ['template', 'create', 'cli-made', '-p', folder, '--cpu-count', '1', '--memory-mb', '512', '-c', 'sleep 1000', '--ready-cmd', 'sleep 0.1']
  const made = await e2b(args)
  assert.equal(made.code, 0, made.stdout + made.stderr)
  assert.match(made.stdout, /RUN cp files\/hello.txt/)
  const [row] = JSON.parse((await e2b(['template', 'list', '--format', 'json'])).stdout).filter((one) => one.aliases.includes('cli-made'))
  assert.equal(row.cpuCount, 1)
  assert.equal(row.memoryMB, 512)
  assert.equal(row.buildStatus, 'ready')
  const sandbox = await server.create({ templateID: 'cli-made' })
  const run = await e2b(['sandbox', 'exec', sandbox.sandboxID, 'pwd; cat copy.txt files/hello.txt who; echo $WHO; pgrep -fx "sleep 1000" >/dev/null && echo runs'])
  assert.match(run.stdout, /\/app\nhellohelloroot\ncli\nruns/, run.stdout + run.stderr)
  await server.api('DELETE', `/sandboxes/${sandbox.sandboxID}`)
  assert.equal((await e2b(['template', 'publish', '-y', row.templateID])).code, 0)
  assert.equal((await server.api('GET', '/templates/cli-made')).body.public, true)
  assert.equal((await e2b(['template', 'unpublish', '-y', row.templateID])).code, 0)
  assert.equal((await server.api('GET', '/templates/cli-made')).body.public, false)
  assert.equal((await e2b(['template', 'delete', '-y', 'cli-made'])).code, 0)
  assert.equal((await server.api('GET', '/templates/cli-made')).status, 404)
})

test('template create: a step that fails fails the command', async () => {
  const folder = path.join(home, 'context')
  fs.writeFileSync(path.join(folder, 'Failing'), 'FROM e2bdev/base\nRUN echo the-last-words && exit 3\n')
  const failed = await e2b(['template', 'create', 'cli-failing', '-p', folder, '-d', 'Failing'])
  assert.notEqual(failed.code, 0)
  assert.match(failed.stdout + failed.stderr, /the-last-words/)
})

test('kill', async () => {
  assert.equal((await e2b(['sandbox', 'kill', id])).code, 0)
  assert.equal((await server.api('GET', `/sandboxes/${id}`)).status, 404)
})
