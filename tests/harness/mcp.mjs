// Published clients of the Model Context Protocol, bound to a server under test.
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'
import { repository } from './server.mjs'

export const packages = path.join(repository, 'build/npm/mcp')
const require = createRequire(path.join(packages, 'index.js'))

// kind: sdk, or client with a way to choose the revision. Gives the connected client and its transport.
export async function connect(url, kind = 'sdk', { headers = {}, ...options } = {}) {
  const { Client, StreamableHTTPClientTransport } =
    kind === 'sdk'
      ? { ...require('@modelcontextprotocol/sdk/client/index.js'), ...require('@modelcontextprotocol/sdk/client/streamableHttp.js') }
      : require('@modelcontextprotocol/client')
  const client = new Client({ name: 'quicksand-tests', version: '1' }, options)
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
  await client.connect(transport)
  return { client, transport }
}

export const load = (name) => require(name)

// Runs a program of a package to its end.
export function run(program, args, { env = {}, node = process.execPath, limitMs = 120_000, input } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(node, [program, ...args], { env: { ...process.env, NO_COLOR: '1', ...env } })
    const result = { stdout: '', stderr: '' }
    const timer = setTimeout(() => child.kill('SIGKILL'), limitMs)
    child.stdout.on('data', (chunk) => (result.stdout += chunk))
    child.stderr.on('data', (chunk) => (result.stderr += chunk))
    child.on('error', reject)
    child.on('close', (code) => {
      clearTimeout(timer)
      resolve({ ...result, code })
    })
    child.stdin.on('error', () => {}) // it may have ended without reading
    child.stdin.end(input)
  })
}
