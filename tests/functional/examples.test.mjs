// The examples of README.md, as they stand there, against a real server. `quicksand` in them is the program under test;
// only `serve` does nothing, because the server is there already.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, repository, startServer } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const repo = 'http://203.0.113.1/git/acme/app.git'

const readme = fs.readFileSync(path.join(repository, 'README.md'), 'utf8')
const section = readme.slice(readme.indexOf('## Who it is for'), readme.indexOf('## What works'))
const examples = [...section.matchAll(/```sh\n(.*?)```/gs)].map((match) => match[1])

// A command in the sandbox that says how it was called.
const stub = (name) => `printf '#!/bin/sh\\necho ${name} "$@" in $PWD, token "$GITHUB_TOKEN"\\n' | sudo tee /usr/local/bin/${name} >/dev/null && sudo chmod 755 /usr/local/bin/${name}`

let server
let folder
let listener
const calls = []
const browsers = new Map()
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-examples-')
  fs.chmodSync(folder, 0o755)
  listener = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      const body = text ? JSON.parse(text) : undefined
      calls.push({ method: request.method, url: request.url, headers: request.headers, body })
      response.setHeader('Content-Type', 'application/json')
      if (!request.url.startsWith('/v1/sessions')) return response.end('{}')
      // Browserbase, as much of it as is asked for here.
      if (request.headers['x-bb-api-key'] !== 'bb_live_test') return response.writeHead(401).end('{}')
      const id = request.url.split('/')[3]?.split('?')[0]
      if (request.method === 'GET' && !id) return response.end(JSON.stringify([...browsers.values()]))
      if (request.method === 'POST' && !id) {
        const session = { id: `s-${browsers.size + 1}`, status: 'RUNNING', startedAt: new Date().toISOString(), connectUrl: 'wss://connect.browserbase.test/?signingKey=k', userMetadata: body.userMetadata }
        browsers.set(session.id, session)
        return response.writeHead(201).end(JSON.stringify(session))
      }
      if (body?.status === 'REQUEST_RELEASE') browsers.get(id).status = 'COMPLETED'
      response.end(JSON.stringify(browsers.get(id)))
    })
  })
  await new Promise((done) => listener.listen(0, '127.0.0.1', done))
  const open = { mode: 'allow-all' }
  const made = (commands) => ({ provider: 'e2b', template: 'base', network: open, persistent: true, onCreate: commands })
  const settings = {
    sandbox_agent: { program },
    providers: { e2b: { type: 'e2b', api_url: 'embedded' }, bb: { type: 'browserbase', api_url: `http://127.0.0.1:${listener.address().port}`, api_key: 'env:BROWSERBASE_API_KEY' } },
    profiles: {
      ci: made([stub('claude')]),
      desktop: made([stub('npx')]),
      e2b: { provider: 'e2b', template: 'base', network: open },
      'e2b-persistent': made(["printf '#!/bin/sh\\necho trained\\n' > ~/train.sh && chmod 755 ~/train.sh"]),
    },
    agents: { 'ci-fix': 'ci' },
  }
  const config = path.join(folder, 'runtime.json')
  fs.writeFileSync(config, JSON.stringify(settings), { mode: 0o644 })
  fs.writeFileSync(path.join(folder, 'e2b.json'), JSON.stringify({ name: 'mine', config: { provider: 'e2b', network: open, timeout: 60 } }))
  fs.writeFileSync(path.join(folder, 'quicksand'), `#!/bin/sh\n[ "$1" = serve ] && exit 0\nexec '${binary}' "$@"\n`, { mode: 0o755 })
  server = await startServer({ args: ['--runtime-config', config], env: { BROWSERBASE_API_KEY: 'bb_live_test' } })
})
after(async () => {
  listener.close()
  await server.destroy()
  fs.rmSync(folder, { recursive: true })
})

async function run(example) {
  const child = spawn('bash', ['-eo', 'pipefail', '-c', example], {
    cwd: folder,
    env: { PATH: `${folder}:${process.env.PATH}`, HOME: folder, QUICKSAND_URL: server.url, QUICKSAND_TOKEN: server.key, REPO_URL: repo, GITHUB_TOKEN: 'ghp_example', URL: `http://127.0.0.1:${listener.address().port}/done`, T: 'job-token' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk) => (out += chunk))
  child.stderr.on('data', (chunk) => (err += chunk))
  const code = await new Promise((done) => child.on('close', done))
  assert.equal(code, 0, `${example}\n${out}\n${err}\n${server.tail(10)}`)
  return out
}

test('there are five', () => assert.equal(examples.length, 5))

test('tasks worked on by agents', async () => {
  const out = await run(examples[0])
  assert.match(out, /git\.clone\.succeeded/)
  assert.match(out, /fix the test/)
  assert.match(out, /session\.completed/)
  assert.match(out, /snap_\w+ github\/acme\/app#main/)
  assert.match(out, /user@|\$ /, 'the prompt of the terminal')
})

test('conversations that are still there', async () => {
  const lines = (await run(examples[1])).trim().split('\n')
  const id = lines[0].split(' ')[0]
  assert.deepEqual(lines, [`${id} paused`, `${id} resumed on e2b, key conversation:c1:s1`, 'hi'])
  const { body } = await server.api('GET', `/api/v1/events?sandbox_id=${id}&type=sandbox.created&limit=10`)
  assert.equal(body.events.length, 1)
})

test('a fleet: repairs, browsers, costs', async () => {
  const out = await run(examples[2])
  assert.match(out, /^claude -p Fix CI in \/home\/user\/workspace\/app, token ghp_example\nnpx playwright test t\.spec\.ts in /)
  assert.match(out, /\nwss:\/\/connect\.browserbase\.test\/\?signingKey=k\n/)
  assert.match(out, /\nPROVIDER +SANDBOXES[^]*\nbb +1[^]*\ntotal /)
})

test('a harness: profiles, tools, jobs', async () => {
  const lines = (await run(examples[3])).trim().split('\n')
  assert.deepEqual(lines.slice(0, 2), ['mine: good', '1'])
  assert.match(lines[2], /^job_\w+ (running|completed 0)$/)
  const told = await eventually('the callback', () => calls.find((call) => call.url === '/done'))
  assert.equal(told.headers['x-job-token'], 'job-token')
  assert.equal(told.body.status, 'completed')
  assert.match(JSON.stringify(told.body), /trained/)
})

test('a squad, by HTTP', async () => {
  const out = await run(examples[4])
  assert.match(out, /git version 2/)
  assert.match(out, /"agent_id":"a1"/)
  assert.match(out, /removed \d+ sandboxes and \d+ snapshots\n$/)
})
