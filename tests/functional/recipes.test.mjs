// The recipes that come with quicksand: each is built by its name, started and used. npm's packages come from the world of the
// lab, which has them from npm's cache; of Debian's it has gh (packages.sh).
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Key, listOf, makeMirror } from '../harness/mirror.mjs'
import { binary, startServer } from '../harness/server.mjs'

let server
before(async () => {
  server = await startServer({ args: ['--build-memory', '2048'] })
})
after(() => server.destroy())

function quicksand(args) {
  return new Promise((done) => {
    const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', TMPDIR: server.home, ...server.clientEnv() } })
    let text = ''
    let stdout = ''
    child.stdout.on('data', (chunk) => ((stdout += chunk), (text += chunk)))
    child.stderr.on('data', (chunk) => (text += chunk))
    child.on('close', (code) => done({ code, stdout, text }))
  })
}

async function good(...args) {
  const result = await quicksand(args)
  assert.equal(result.code, 0, result.text)
  return result.stdout
}

const build = (name, ...options) => good('template', 'build', name, '--build-arg', 'NPM_CONFIG_REGISTRY=http://203.0.113.1/npm/', ...options)
const inside = (name, command) => good('run', '--template', name, '--', 'bash', '-lc', command)

test('the base lets packages be installed: directories of manual pages, and each source of apt once', async () => {
  // It warns of those that are listed twice.
  assert.match(await inside('base', 'ls -d /usr/share/man/man[1-8] | wc -l; grep -c "^deb " /etc/apt/sources.list; apt-get indextargets 2>&1'), /^8\n[1-9]\n$/)
})

test('node', async () => {
  await build('node')
  const said = await inside('node', 'node --version; tsc --version; pnpm --version; yarn --version; id -un; pwd; echo "const a: number = 6 * 7; console.log(a)" > /tmp/a.ts && tsx /tmp/a.ts')
  assert.match(said, /^v22\.\S+\nVersion 5\.\S+\n9\.\S+\n1\.\S+\nuser\n\/home\/user\n42\n$/)
})

test('codex', async () => {
  await build('codex')
  assert.match(await inside('codex', 'codex --version; command -v codex-acp sandbox-agent; pwd; touch mine && id -un'), /^codex-cli \S+\n\/\S+codex-acp\n\/\S+sandbox-agent\n\/workspace\nuser\n$/)
})

test('claude', async () => {
  await build('claude')
  assert.match(await inside('claude', 'claude --version; command -v claude-code-acp sandbox-agent; pwd; touch mine && id -un'), /Claude Code\)\n\/\S+claude-code-acp\n\/\S+sandbox-agent\n\/workspace\nuser\n$/)
})

test('relay-workspace: its size, its tools, gh from a Debian archive; without the archive the build fails', async () => {
  const key = new Key()
  try {
    const { url } = makeMirror('recipes', { key, suites: { bookworm: listOf() } })
    const context = path.join(server.home, 'with-mirror')
    fs.mkdirSync(context)
    fs.copyFileSync(key.file, path.join(context, 'key.gpg'))
    fs.writeFileSync(path.join(context, 'Dockerfile'), `FROM template://base
USER root
COPY --chmod=0644 key.gpg /etc/apt/mirror.gpg
RUN echo 'deb [signed-by=/etc/apt/mirror.gpg] ${url} bookworm main' >/etc/apt/sources.list
`)
    await good('template', 'build', 'with-mirror', context)
  } finally {
    key.remove()
  }
  await build('relay-workspace', '--build-arg', 'BASE=template://with-mirror')
  const shown = JSON.parse(await good('template', 'show', '--json', 'relay-workspace'))
  assert.deepEqual([shown.builds[0].cpuCount, shown.builds[0].memoryMB], [2, 4096])
  assert.match(await inside('relay-workspace', 'node --version; python3 --version; git --version; jq --version; gh --version | head -1; claude --version; codex --version; pwd'), /^v22\.\S+\nPython 3\S+\ngit version \S+\njq-\S+\ngh version \S+.*\n.*Claude Code\)\ncodex-cli \S+\n\/workspace\n$/)
  const without = await quicksand(['template', 'build', 'relay-workspace'])
  assert.notEqual(without.code, 0, without.text)
  assert.match(without.text, /gh/)
})

// What it adds is Debian's, which is out of reach here; what is left is the recipe itself.
test('python', async () => {
  await build('python', '--build-arg', 'PACKAGES=')
  assert.match(await inside('python', 'python3 -c "print(6 * 7)"; pip --version; id -un'), /^42\npip \S+.*\nuser\n$/)
})
