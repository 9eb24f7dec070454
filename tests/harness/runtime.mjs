// What tests of the runtime have in common: settings in a file, and short names for its API.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { startServer } from './server.mjs'

// A server with these runtime settings.
export async function startRuntime(settings = {}, { args = [], env } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-runtime-'))
  fs.chmodSync(folder, 0o755)
  const file = path.join(folder, 'runtime.json')
  fs.writeFileSync(file, JSON.stringify(settings), { mode: 0o644 })
  const server = await startServer({ args: ['--runtime-config', file, ...args], env })
  return runtimeOf(server, folder)
}

export function runtimeOf(server, folder) {
  const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, { timeoutMs: 120_000, ...options })
  const ok = async (status, method, target, body, options) => {
    const answer = await v1(method, target, body, options)
    assert.equal(answer.status, status, `${method} ${target}: ${answer.status} ${answer.text}\n${server.tail(15)}`)
    return answer.body
  }
  const execute = (id, command, more = {}) => ok(200, 'POST', `/sandboxes/${id}/execute`, { command, ...more })
  return {
    server,
    v1,
    ok,
    execute,
    create: (body = {}, options) => ok(201, 'POST', '/sandboxes', body, options),
    output: async (id, command) => (await execute(id, command)).stdout,
    remove: (id) => ok(204, 'DELETE', `/sandboxes/${id}`),
    get: (id) => ok(200, 'GET', `/sandboxes/${id}`),
    start: (id, command, more = {}) => ok(202, 'POST', `/sandboxes/${id}/execute`, { command, background: true, ...more }),
    process: (id, rest = '') => ok(200, 'GET', `/sandboxes/-/processes/${id}${rest}`),
    events: async (filter) => (await ok(200, 'GET', `/events?since=0&limit=1000&${new URLSearchParams(filter)}`)).events,
    count: async (sandbox, type) => (await ok(200, 'GET', `/events?since=0&limit=1000&sandbox_id=${sandbox}&type=${type}`)).events.length,
    // What it has made is ended first, wherever that is.
    async clear() {
      if (!server.alive()) await server.start()
      for (const { id } of (await ok(200, 'GET', '/sandboxes?limit=1000')).sandboxes) await v1('DELETE', `/sandboxes/${id}`)
    },
    async destroy() {
      await this.clear()
      await server.destroy()
      if (folder) fs.rmSync(folder, { recursive: true, force: true })
    },
  }
}

// Several servers in one lab: the harness takes what runs after an end for left over, so all stop first.
export async function destroyAll(...runtimes) {
  for (const one of runtimes) await one.clear()
  for (const one of runtimes) {
    await one.server.killAll()
    await one.server.stop()
  }
  for (const one of runtimes) await one.destroy()
}

// An error answer of the right kind; gives its message.
export function refused(answer, status, code, words) {
  assert.equal(answer.status, status, answer.text)
  assert.equal(answer.body?.error?.code, code, answer.text)
  assert.equal(typeof answer.body.error.retryable, 'boolean')
  assert.equal(typeof answer.body.error.details, 'object')
  if (words) assert.match(answer.body.error.message, words)
  return answer.body.error.message
}
