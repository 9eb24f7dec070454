// The dashboard where agents work and the operator looks after things, in a real browser: sessions with questions, tools and diffs,
// callbacks, webhooks, quotas, use over time, settings, what is kept on disk.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { after, before, beforeEach, test } from 'node:test'
import { EVIL, openBrowser, seriousFaults, shots, signedIn } from '../harness/dashboard.mjs'
import { eventually, patience, repository, startServer } from '../harness/server.mjs'

const program = path.join(repository, 'build/npm/sandbox-agent/node_modules/@sandbox-agent/cli-linux-x64/bin/sandbox-agent')
const agent = fs.readFileSync(path.join(repository, 'tests/fixtures/acp-agent.py'), 'utf8')

let server, browser, page, folder, receiver
let answer = 200
const received = []
before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-dashboard-')
  fs.chmodSync(folder, 0o755)
  const config = path.join(folder, 'runtime.json')
  fs.writeFileSync(config, JSON.stringify({ default_provider: 'e2b', providers: { e2b: { type: 'e2b', api_url: 'embedded', usd_per_second: 0.01 } }, sandbox_agent: { program } }), { mode: 0o644 })
  receiver = http.createServer((request, response) => {
    const chunks = []
    request.on('data', (chunk) => chunks.push(chunk)).on('end', () => {
      received.push({ url: request.url, headers: request.headers, body: JSON.parse(Buffer.concat(chunks)) })
      response.writeHead(answer).end()
    })
  })
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done))
  server = await startServer({ args: ['--runtime-config', config, '--webhook-pause', '1'] })
  browser = await openBrowser()
  page = await signedIn(browser, server)
})
beforeEach(() => void (page.problems.length = 0))
after(async () => {
  await browser?.close()
  const { body } = await v1('GET', '/sandboxes?limit=1000')
  for (const { id } of body.sandboxes) await v1('DELETE', `/sandboxes/${id}`)
  await server?.destroy()
  receiver?.closeAllConnections()
  receiver?.close()
  fs.rmSync(folder, { recursive: true, force: true })
})

const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, { timeoutMs: 120_000, ...options })
const address = (name) => `http://127.0.0.1:${receiver.address().port}/${name}`

async function ok(status, method, target, body) {
  const given = await v1(method, target, body)
  assert.equal(given.status, status, `${method} ${target}: ${given.text}\n${server.tail(20)}`)
  return given.body
}

// Nothing on the console, nothing that is too wide for a phone, nothing that axe finds serious.
async function good(name) {
  assert.ok((await shots(page, name)) <= 390, `${name} is too wide`)
  assert.deepEqual(await seriousFaults(page), [], name)
  assert.deepEqual(page.problems, [], name)
}

test('a session: questions, answers, tools, changed files and diffs', async () => {
  const box = await ok(201, 'POST', '/sandboxes', { key: 'agent-box', persistent: true })
  const git = 'git -c user.name=a -c user.email=a@example.com'
  // The reflog has seconds: the commit is older than the session.
  await ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: `mkdir -p workspace && cd workspace && git init -q && echo one > kept.txt && echo two > old.txt && git add . && GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' ${git} commit -qm first` })
  const file = '/home/user/.local/share/sandbox-agent/bin/agent_processes/mock-acp'
  assert.ok((await v1('PUT', `/sandboxes/${box.id}/files?path=${encodeURIComponent(file)}`, agent, { headers: { 'content-type': 'application/octet-stream' } })).status < 300)
  await ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: `chmod +x ${file}` })
  const session = await ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, sandbox_id: box.id, permission_mode: 'ask' })
  await page.at(`#/work/${session.id}`)
  await page.getByRole('heading', { name: 'mock in agent-box' }).waitFor()
  await page.getByText('No changes yet').waitFor()
  const message = page.getByLabel('Message')
  await message.fill(`run echo "${EVIL}"`)
  await message.press('Control+Enter')
  const question = page.getByRole('alert').filter({ hasText: 'The agent asks' })
  await question.getByText('echo "<img src=x').waitFor()
  await page.shot('session-asks')
  await page.locator('h1').click() // out of the field
  await page.keyboard.press('y')
  await page.locator('.turn.agent', { hasText: '<img src=x' }).waitFor()
  await page.locator('.turn.question em', { hasText: 'allowed' }).waitFor()
  await message.fill('write note.txt first line')
  await message.press('Control+Enter')
  await question.getByText('write note.txt').waitFor()
  await page.locator('h1').click()
  await page.keyboard.press('n')
  await page.locator('.turn.question em', { hasText: 'denied' }).waitFor()
  await page.locator('.turn.agent', { hasText: 'refused' }).waitFor()
  await message.fill('write note.txt second line')
  await message.press('Control+Enter')
  await question.waitFor()
  await page.getByRole('button', { name: 'Allow (y)' }).click()
  const tool = page.locator('.talk details.tool')
  await tool.waitFor()
  assert.equal(await tool.locator('.diff').isVisible(), false, 'it is folded')
  await tool.locator('summary').click()
  await tool.locator('.diff .added', { hasText: 'second line' }).waitFor()
  await message.fill('an **answer** with `code`\n\n- one\n- two')
  await message.press('Control+Enter')
  const last = page.locator('.turn.agent').last()
  await last.locator('b', { hasText: 'answer' }).waitFor()
  await last.locator('li', { hasText: 'two' }).waitFor()
  await changedFiles(box, session)
  await terminalOf(session)
  assert.equal(await page.title(), 'mock in agent-box · Quicksand')
  assert.equal(await page.locator('main img').count(), 0)
  await good('session')
})

// What the agent and others did to the workspace: the page lists it with diffs, and nothing of it is more than text.
async function changedFiles(box, session) {
  const run = (script, ...words) => ok(200, 'POST', `/sandboxes/${box.id}/execute`, { argv: ['sh', '-c', `cd workspace && ${script}`, 'sh', ...words] })
  await run('echo changed >> kept.txt; rm old.txt; printf "%s\\n" "$1" > "$1"; head -c 100 /dev/zero > zeros', EVIL)
  await page.locator('.card', { hasText: 'Changed files' }).getByRole('button', { name: 'Refresh' }).click()
  const change = (name) => page.locator('.change', { hasText: name })
  for (const [name, status, counts] of [['kept.txt', 'modified', '+1 −0'], ['old.txt', 'deleted', '+0 −1'], ['note.txt', 'added', '+1 −0'], ['<img src=x', 'added', '+1 −0'], ['zeros', 'added', 'binary']]) {
    await change(name).locator('.status', { hasText: status }).waitFor()
    await change(name).locator('summary', { hasText: counts }).waitFor()
  }
  await change('kept.txt').locator('summary').click()
  await change('kept.txt').locator('.diff .added', { hasText: 'changed' }).waitFor()
  await change('<img src=x').locator('summary').click()
  await change('<img src=x').locator('.diff .added', { hasText: '<img src=x' }).waitFor()
  assert.ok(!(await page.locator('main').innerText()).includes('\u202e'), 'no character reverses text')
  const answer = await ok(200, 'GET', `/sessions/${session.id}/changes`)
  assert.equal(answer.kind, 'repository')
  assert.match(answer.base, /^[0-9a-f]{40}$/)
  assert.equal(answer.files.find((one) => one.path === EVIL).added, 1)
  assert.equal((await run('git status --porcelain')).stdout.split('\n').filter((line) => line.startsWith('??')).length, 3, 'the index is as it was')
  await run('rm -rf .git')
  const plain = await ok(200, 'GET', `/sessions/${session.id}/changes`)
  assert.equal(plain.kind, 'directory')
  assert.ok(plain.files.every((one) => one.status === 'added'))
  assert.ok(plain.files.some((one) => one.path === 'note.txt'))
  const viewer = (await server.api('POST', '/api-keys', { name: 'reads', role: 'viewer' })).body.key
  assert.equal((await v1('GET', `/sessions/${session.id}/changes`, undefined, { key: viewer })).status, 200)
  assert.equal((await v1('GET', '/sessions/ses_none/changes')).status, 404)
}

// The terminal of the session: in its workspace, with events of the session, only when asked for.
async function terminalOf(session) {
  const opened = async () => (await ok(200, 'GET', `/sessions/${session.id}/events?since=0&limit=1000`)).events.filter((one) => one.type === 'terminal.opened')
  assert.deepEqual(await opened(), [])
  await page.getByRole('button', { name: 'Terminal', exact: true }).click()
  await page.getByRole('status').getByText('connected').waitFor()
  await page.locator('.xterm-helper-textarea').focus()
  await page.keyboard.type('echo in-$((6*7)) $(pwd)\n')
  await eventually('the output of the command', async () => (await page.locator('.xterm-rows').innerText()).includes(`in-42 ${session.runtime.workdir}`), 30_000)
  assert.equal((await opened()).length, 1)
  const { y, height } = await page.locator('.terminal .screen').boundingBox()
  assert.ok(y >= 0 && y + height < page.viewportSize().height + 1, `not all of it is visible: ${y} + ${height}`)
  await page.shot('session-terminal')
  await page.getByRole('button', { name: 'Close terminal' }).click()
  await page.locator('.xterm').waitFor({ state: 'detached' })
}

test('the changes of a paused session wake nothing', async () => {
  const { sessions } = await ok(200, 'GET', '/sessions')
  const session = sessions[0]
  await page.at('#/')
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  await ok(200, 'POST', `/sandboxes/${session.sandbox_id}/pause`, {})
  const answer = await v1('GET', `/sessions/${session.id}/changes`)
  assert.equal(answer.status, 409, answer.text)
  assert.match(answer.body.error.message, /does not run: resume the session/)
  assert.equal((await ok(200, 'GET', `/sandboxes/${session.sandbox_id}`)).state, 'paused')
  await page.locator('ul.plain li', { hasText: 'agent-box' }).locator('.state.paused').waitFor()
  await page.at(`#/work/${session.id}`)
  await page.getByText('Resume the session to see its changes').waitFor()
  assert.equal(await page.getByRole('button', { name: 'Terminal' }).count(), 0, 'a terminal would wake it')
  assert.deepEqual(page.problems, [])
})

test('push reports that no file has changed, and the branch it pushed to', async () => {
  const box = await ok(201, 'POST', '/sandboxes', { persistent: true })
  const run = async (script) => {
    const done = await ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: `set -e; cd ~; ${script}` })
    assert.equal(done.exit_code, 0, done.stderr)
    return done.stdout.trim()
  }
  await run(`git init -q --bare remote.git; git init -q -b main workspace; cd workspace; git remote add origin ~/remote.git; echo one > file.txt; git add .
git -c user.name=a -c user.email=a@example.com commit -qm first; git push -q origin main; git remote set-head origin main`)
  const session = await ok(201, 'POST', '/sessions', { agent: 'mock', wait: true, sandbox_id: box.id, task_id: 'fix-7' })
  await page.at(`#/work/${session.id}`)
  const push = page.getByRole('button', { name: 'Push', exact: true })
  await push.click()
  await page.getByText('Nothing to push: no file has changed').waitFor()
  assert.equal(await run('git -C remote.git for-each-ref --format="%(refname:short)"'), 'main')
  await run('echo two >> workspace/file.txt')
  await push.click()
  await page.getByText('Pushed to task-fix-7').waitFor()
  assert.equal(await run('git -C remote.git show task-fix-7:file.txt'), 'one\ntwo')
  assert.deepEqual(page.problems, [])
  await v1('DELETE', `/sandboxes/${box.id}`)
})

test('a callback: not taken, tried again, taken', async () => {
  const box = await ok(201, 'POST', '/sandboxes', {})
  answer = 500
  const job = await ok(202, 'POST', `/sandboxes/${box.id}/execute`, { command: 'echo done-at-last', background: true, callback: { url: address('job') } })
  await page.at(`#/work/job/${job.id}`)
  await page.getByText(/callback pending, \d+ attempts?, next at \d/).waitFor()
  await good('callback')
  answer = 200
  await page.getByText(/callback delivered, \d+ attempts/).waitFor({ timeout: 60_000 * patience })
  assert.ok(received.some((one) => one.url === '/job'))
  await v1('DELETE', `/sandboxes/${box.id}`)
})

test('a webhook: what is wrong stands beside the field; tried by hand; its deliveries', async () => {
  await page.at('#/admin/webhooks')
  await page.getByRole('button', { name: 'Create' }).click()
  await page.getByText('Type a name.').waitFor()
  await page.getByText('A URL begins with http').waitFor()
  await page.getByLabel('Name').fill('watcher')
  await page.getByLabel('URL').fill(address('hook'))
  await page.getByLabel('Signature secret').fill('a secret of the test')
  await page.getByRole('button', { name: 'Create' }).click()
  await page.getByRole('heading', { name: 'watcher' }).waitFor()
  await page.getByRole('button', { name: 'Send test' }).click()
  await page.getByText('Delivered to watcher').waitFor()
  assert.equal(received.at(-1).body.type, 'webhook.test')
  assert.ok(received.at(-1).headers['e2b-signature'])
  await page.getByRole('row', { name: /webhook\.test.*delivered/ }).waitFor()
  answer = 503
  await page.getByRole('button', { name: 'Send test' }).click()
  await page.getByText('Not delivered to watcher: the receiver answered 503').waitFor()
  const { sandboxID } = await server.create({})
  await page.getByRole('row', { name: new RegExp(`created.*${sandboxID}.*answered 503`) }).first().waitFor()
  await page.getByText(/1 not delivered yet/).waitFor()
  await good('webhooks')
  answer = 200
  await eventually('delivered in the end', async () => {
    await page.getByRole('button', { name: 'Refresh' }).click()
    return page.getByText('Everything was delivered').isVisible()
  }, 60_000, 500)
  await server.api('DELETE', `/sandboxes/${sandboxID}`)
  await page.getByRole('button', { name: 'Delete watcher' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await page.getByText('No webhooks yet').waitFor()
})

test('quotas against use, providers with a check, settings as in force', async () => {
  const box = await ok(201, 'POST', '/sandboxes', { limits: { cpu: 1, memoryMb: 512 } })
  await page.at('#/admin/teams')
  const team = page.locator('.card', { has: page.getByRole('heading', { name: 'default' }) })
  await team.getByRole('button', { name: 'Quotas' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('sandboxes').fill('many')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await dialog.getByText('Must be a whole number; 0: no limit').waitFor()
  await dialog.getByLabel('sandboxes').fill('20')
  await dialog.getByRole('button', { name: 'Save' }).click()
  const { use } = (await server.api('GET', '/admin/teams')).body[0]
  assert.ok(use.sandboxes >= 1 && use.memoryMB >= 512 && use.cpu >= 1 && use.diskMB > 0, JSON.stringify(use))
  await team.getByText(`${use.sandboxes} of 20`).waitFor()
  await good('teams')
  await page.at('#/admin/providers')
  await page.getByRole('button', { name: 'Check e2b' }).click()
  await page.getByText(/checked at \d/).waitFor()
  await page.at('#/admin/settings')
  await page.getByRole('row', { name: /webhook-pause 1 default: 5/ }).waitFor()
  await page.getByLabel('Filter settings').fill('create-queue')
  await page.getByRole('row', { name: /create-queue reload/ }).waitFor()
  await page.getByLabel('Filter settings').fill('')
  await good('settings')
  const { key } = (await server.api('POST', '/api-keys', { name: 'plain', role: 'member' })).body
  assert.equal((await v1('GET', '/settings', undefined, { key })).status, 403)
  assert.equal((await v1('GET', '/stats', undefined, { key })).body.teams, undefined)
  await v1('DELETE', `/sandboxes/${box.id}`)
})

test('use and cost over time, by agent and task and team, as chart, table and CSV', async () => {
  const box = await ok(201, 'POST', '/sandboxes', { agent_id: '=cmd()', task_id: 'task-9' })
  await page.at('#/admin/use')
  await page.getByRole('heading', { name: 'Over time' }).waitFor()
  await v1('DELETE', `/sandboxes/${box.id}`) // an event comes and the page hears of it
  await page.getByRole('img', { name: /Usage by agent.*=cmd\(\)/ }).waitFor()
  await page.getByRole('button', { name: 'task', exact: true }).click()
  await page.getByRole('img', { name: /Usage by task.*task-9/ }).waitFor()
  await page.getByRole('button', { name: 'cost' }).click()
  await page.getByRole('group', { name: 'By', exact: true }).getByRole('button', { name: 'by team' }).click()
  await page.getByRole('row', { name: /default/ }).waitFor()
  await good('use')
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV', exact: true }).click()])
  const text = fs.readFileSync(await file.path(), 'utf8')
  assert.match(text, /"agent","'=cmd\(\)","1"/, 'no cell is a formula')
  assert.match(text, /"team","default"/)
  const [over] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV over time' }).click()])
  assert.match(fs.readFileSync(await over.path(), 'utf8'), /Z,"task-9",\d+\.\d{3},\d+\.\d{6}/)
})

test('snapshots and volumes: how much they take, what they share, who came from whom', async () => {
  const box = await ok(201, 'POST', '/sandboxes', { key: 'the-source' })
  await ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'head -c 3000000 /dev/urandom > kept; sync' })
  await page.at('#/snapshots')
  await page.getByText('No snapshots yet').waitFor()
  const snapshot = await ok(201, 'POST', `/sandboxes/${box.id}/snapshots`, {}) // the page hears of it
  await page.getByRole('row', { name: new RegExp(`${snapshot.id}.*[23]\\.\\d MiB`) }).waitFor()
  await page.getByRole('button', { name: `Fork from ${snapshot.id}` }).click()
  await page.waitForFunction((id) => location.hash.startsWith('#/sandboxes/') && !location.hash.includes(id), box.id)
  await page.at('#/snapshots')
  await page.getByText(/shared with \d+ other/).waitFor()
  const tree = page.locator('.tree')
  await tree.locator('li', { hasText: 'the-source' }).locator('ul ul a').waitFor()
  await good('snapshots-kept')
  await page.at('#/volumes')
  await page.getByLabel('New volume').fill('data')
  await page.keyboard.press('Enter')
  await page.getByRole('row', { name: /data/ }).waitFor()
  await page.at('#/sandboxes/new')
  const dialog = page.getByRole('dialog')
  await dialog.getByText('Volumes: data').waitFor()
  await dialog.getByLabel('Volumes').fill('data')
  await dialog.getByRole('button', { name: 'Create' }).click()
  await dialog.getByText('is not NAME:/PATH').waitFor()
  await dialog.getByLabel('Volumes').fill('data:/mnt/data')
  await dialog.getByRole('button', { name: 'Create' }).click()
  await page.waitForFunction(() => /^#\/sandboxes\/i\w+$/.test(location.hash))
  const made = await page.evaluate(() => location.hash.split('/')[2])
  await eventually('the runtime knows it', async () => (await v1('GET', `/sandboxes/${made}`)).status === 200)
  await ok(200, 'POST', `/sandboxes/${made}/execute`, { command: 'head -c 5000000 /dev/urandom > /mnt/data/file; sync' })
  page.problems.length = 0 // the runtime may hear of such a sandbox a moment after the page
  await page.at('#/volumes')
  await eventually('its size', async () => {
    await page.getByRole('button', { name: 'Refresh the size of data' }).click()
    return page.getByRole('row', { name: /data.*4\.8 MiB/ }).isVisible()
  }, 40_000, 500)
  await good('volumes')
})

// The way to the server, which can be cut.
async function wire() {
  const sockets = new Set()
  const proxy = net.createServer((client) => {
    const upstream = net.connect(server.port, server.host)
    for (const one of [client, upstream]) sockets.add(one.on('error', () => {}))
    client.pipe(upstream).pipe(client)
  })
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done))
  const cut = () => sockets.forEach((one) => one.destroy())
  return { url: `http://127.0.0.1:${proxy.address().port}`, key: server.key, cut, close: () => (cut(), proxy.close()) }
}

test('a terminal as root, and one that comes back to its shell when the connection breaks', async () => {
  const { id } = await ok(201, 'POST', '/sandboxes', {})
  const way = await wire()
  const page = await signedIn(browser, way)
  await page.at(`#/sandboxes/${id}/terminal`)
  const status = page.getByRole('status').filter({ hasText: /connect|lost/ })
  const shows = (text) => eventually(`the terminal shows ${text}`, async () => (await page.locator('.xterm-rows').innerText()).includes(text), 30_000)
  await status.getByText('connected').waitFor()
  await page.keyboard.type('KEPT=yes; echo i-am-$(whoami)\n')
  await shows('i-am-user')
  const seen = page.waitForFunction(() => [...document.querySelectorAll('[role=status]')].some((one) => one.textContent.includes('lost')))
  way.cut()
  await seen
  await status.getByText('connected').waitFor({ timeout: 60_000 * patience })
  await page.locator('.xterm-helper-textarea').focus()
  await page.keyboard.type('echo still-$KEPT\n')
  await shows('still-yes')
  await page.getByRole('button', { name: 'as root' }).click()
  await status.getByText('connected').waitFor()
  await page.keyboard.type('echo now-$(whoami)\n')
  await shows('now-root')
  await page.shot('terminal-root')
  await page.getByRole('button', { name: 'as user' }).click()
  await status.getByText('connected').waitFor()
  await page.keyboard.type('echo again-$KEPT\n')
  await shows('again-yes') // the same shell as before
  way.close()
  await page.leave()
})
