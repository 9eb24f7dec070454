// A server with the template code-interpreter-v1 (or the larger one), built by its name, and the published client of it.
//
// The packages are in the base already (recipe-base.sh): the lab has no mirror.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'
import { binary, repository, startServer } from './server.mjs'

export const layer = process.env.QUICKSAND_INTERPRETER_LAYER ?? path.join(repository, 'build/recipe-base/code-interpreter-v1/rootfs')

// The command line, as somebody types it.
export function quicksand(server, args, { input, env = {} } = {}) {
  return new Promise((done) => {
    const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', TMPDIR: server.home, ...server.clientEnv(), ...env }, cwd: server.home })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.on('close', (code) => done({ code, stdout, stderr }))
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end(input)
  })
}

export async function startInterpreter({ template = 'code-interpreter-v1', ...options } = {}) {
  const server = await startServer({ ...options, env: { QUICKSAND_BASE_LAYER: layer.replace('code-interpreter-v1', template), ...options.env }, args: ['--build-memory', '2048', ...(options.args ?? [])] })
  const built = await quicksand(server, ['template', 'build', template, '--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='])
  assert.equal(built.code, 0, built.stdout + built.stderr)
  return server
}

export function loadInterpreter(server) {
  Object.assign(process.env, server.clientEnv())
  delete process.env.E2B_DEBUG
  delete process.env.E2B_DOMAIN
  return createRequire(path.join(repository, 'build/npm/interpreter/index.js'))('@e2b/code-interpreter')
}
