// Several teams on one server: an operator sees what all of them have and used, everybody else only the own.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { openBrowser, seriousFaults, shots, signedIn } from '../harness/dashboard.mjs'
import { binary, eventually, startServer } from '../harness/server.mjs'

let server, folder, browser, acme, theirs, ours
const as = (key) => ({ key })
const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, { timeoutMs: 120_000, ...options })

async function ok(status, method, target, body, options) {
  const given = await v1(method, target, body, options)
  assert.equal(given.status, status, `${method} ${target}: ${given.text}\n${server.tail(20)}`)
  return given.body
}

async function refused(status, pattern, target, options) {
  const given = await v1('GET', target, undefined, options)
  assert.equal(given.status, status, given.text)
  assert.match(given.body.error.message, pattern)
}

const ids = async (target, options) => (await ok(200, 'GET', target, undefined, options)).sandboxes.map((one) => one.id).sort()

before(async () => {
  folder = fs.mkdtempSync('/tmp/quicksand-teams-')
  fs.chmodSync(folder, 0o755)
  const config = path.join(folder, 'runtime.json')
  fs.writeFileSync(config, JSON.stringify({ default_provider: 'e2b', providers: { e2b: { type: 'e2b', api_url: 'embedded', usd_per_second: 0.5 } } }), { mode: 0o644 })
  server = await startServer({ args: ['--runtime-config', config] })
  const team = (await server.api('POST', '/admin/teams', { name: 'acme, "inc"' })).body
  const key = async (id, role) => (await server.api('POST', `/admin/teams/${id}/api-keys`, { name: 'k', role })).body.key
  acme = { id: team.teamID, key: await key(team.teamID), viewer: await key(team.teamID, 'viewer') }
  theirs = await ok(201, 'POST', '/sandboxes', { key: 'theirs', agent_id: 'a2' }, as(acme.key))
  ours = await ok(201, 'POST', '/sandboxes', { key: 'ours', agent_id: 'a1' })
})
after(async () => {
  await browser?.close()
  for (const key of [server.key, acme.key])
    for (const { id } of (await v1('GET', '/sandboxes?limit=1000', undefined, as(key))).body.sandboxes) await v1('DELETE', `/sandboxes/${id}`, undefined, as(key))
  await server.destroy()
  fs.rmSync(folder, { recursive: true, force: true })
})

const name = encodeURIComponent('acme, "inc"')

test('an operator lists those of a team, by name or id, or of all', async () => {
  assert.deepEqual(await ids('/sandboxes'), [ours.id])
  for (const team of [name, acme.id]) {
    const [box, ...more] = (await ok(200, 'GET', `/sandboxes?team=${team}`)).sandboxes
    assert.deepEqual([box.id, box.team, box.team_id, more.length], [theirs.id, 'acme, "inc"', acme.id, 0])
  }
  assert.deepEqual(await ids('/sandboxes?team=*'), [ours.id, theirs.id].sort())
  assert.deepEqual(await ids('/sandboxes?team=*&state=paused'), [])
  assert.deepEqual(await ids('/sandboxes?team=default'), [ours.id])
  await refused(404, /team 'nobody' not found/, '/sandboxes?team=nobody')
  // To look at, not to use.
  await refused(404, /not found/, `/sandboxes/${theirs.id}`)
})

test('nobody else sees what another team has', async () => {
  const member = (await server.api('POST', '/api-keys', { name: 'm', role: 'member' })).body.key
  const agent = (await server.api('POST', '/api-keys', { name: 'a', agentID: 'a1' })).body.key
  for (const key of [acme.key, acme.viewer])
    for (const query of ['?team=*', `?team=${name}`, `?team=${acme.id}`, '']) assert.deepEqual(await ids(`/sandboxes${query}`, as(key)), [theirs.id])
  for (const key of [acme.key, acme.viewer])
    for (const team of ['default', 'nobody']) for (const target of ['/sandboxes?', '/usage?by=team&']) await refused(403, /operator's team/, `${target}team=${team}`, as(key))
  for (const key of [member, agent]) {
    assert.deepEqual(await ids('/sandboxes?team=*', as(key)), [ours.id])
    await refused(403, /operator's team/, `/sandboxes?team=${name}`, as(key))
  }
  await refused(403, /operator's team/, `/usage?team=${name}`, as(member))
  await refused(403, /acts as agent/, '/usage?by=team', as(agent))
})

test('the command line filters by team', () => {
  const ls = (key, ...args) => spawnSync(binary, ['ls', ...args], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: folder, ...server.clientEnv(), E2B_API_KEY: key } })
  const all = ls(server.key, '--filter', 'team=*')
  assert.match(all.stdout, /^ID +TEAM +NAME +KEY/)
  assert.match(all.stdout, /acme, "inc" +- +theirs/)
  assert.match(all.stdout, /default +- +ours/)
  assert.equal(ls(server.key, '-q', '--filter', 'team=acme*').stdout, `${theirs.id}\n`)
  for (const team of ['acme, "inc"', acme.id]) assert.equal(ls(server.key, '-q', '--filter', `team=${team}`).stdout, `${theirs.id}\n`)
  assert.equal(ls(server.key, '-q').stdout, `${ours.id}\n`)
  const no = ls(acme.key, '--filter', 'team=default')
  assert.notEqual(no.status, 0)
  assert.match(no.stderr, /operator's team/)
  assert.equal(ls(acme.key, '-q', '--filter', 'team=*').stdout, `${theirs.id}\n`)
})

test('use and cost over time, by team', async () => {
  for (const [key, agent] of [[server.key, 'used-1'], [acme.key, 'used-2']]) {
    const box = await ok(201, 'POST', '/sandboxes', { agent_id: agent }, as(key))
    await ok(200, 'POST', `/sandboxes/${box.id}/execute`, { command: 'sleep 1.2' }, as(key))
    await ok(200, 'POST', `/sandboxes/${box.id}/pause`, {}, as(key))
    await v1('DELETE', `/sandboxes/${box.id}`, undefined, as(key))
  }
  const usage = (query, key = server.key) => ok(200, 'GET', `/usage?${query}`, undefined, as(key))
  const sum = (values) => values.reduce((a, b) => a + b, 0)
  const told = (answer) => Object.fromEntries(answer.groups.map((one) => [one.name, sum(one.seconds)]))
  await eventually('both teams told of their use', async () => (await usage('by=team')).groups.length === 2)
  for (const step of ['hour', 'day']) {
    const answer = await usage(`by=team&step=${step}`)
    assert.deepEqual([answer.by, answer.step, answer.at.length, answer.partial], ['team', step === 'hour' ? 3600 : 86400, step === 'hour' ? 24 : 30, false])
    assert.ok(answer.at.at(-1) <= Date.now() / 1000 && answer.at.at(-1) > Date.now() / 1000 - answer.step)
    assert.deepEqual(Object.keys(told(answer)).sort(), ['acme, "inc"', 'default'])
    for (const one of answer.groups) {
      assert.ok(sum(one.seconds) >= 1.2 && sum(one.seconds) < 60, JSON.stringify(one.seconds))
      assert.ok(Math.abs(sum(one.usd) - 0.5 * sum(one.seconds)) < 1e-3, 'by the rate')
    }
  }
  assert.equal((await usage('by=team&steps=2')).at.length, 2)
  assert.deepEqual(Object.keys(told(await usage('by=team', acme.key))), ['acme, "inc"'])
  assert.deepEqual(Object.keys(told(await usage('by=agent', acme.key))), ['used-2'])
  assert.deepEqual(Object.keys(told(await usage(`by=agent&team=${name}`))), ['used-2'])
  assert.deepEqual(Object.keys(told(await usage('by=agent&team=*'))).sort(), ['used-1', 'used-2'])
  assert.deepEqual(Object.keys(told(await usage('by=provider'))), ['e2b'])
  const csv = await v1('GET', '/usage?by=team&format=csv&steps=3')
  assert.match(csv.headers['content-type'], /^text\/csv/)
  const [head, ...rows] = csv.text.trimEnd().split('\r\n')
  assert.equal(head, 'begin,team,seconds,usd')
  assert.equal(rows.length, 6)
  for (const row of rows) assert.match(row, /^\d{4}-\d\d-\d\dT\d\d:00:00(\.\d+)?Z,"(default|acme, ""inc"")",\d+\.\d{3},\d+\.\d{6}$/)
  await refused(400, /'by' must be/, '/usage?by=king')
  await refused(400, /'step' must be/, '/usage?step=year')
  await refused(400, /'steps' must be/, '/usage?step=day&steps=32')
  await refused(400, /'format' must be/, '/usage?format=xml')
})

test('the pages: an operator chooses a team, a member has nothing to choose', async () => {
  browser = await openBrowser()
  const page = await signedIn(browser, server)
  const good = async (title) => {
    assert.ok((await shots(page, title)) <= 390, `${title} is too wide`)
    assert.deepEqual(await seriousFaults(page), [], title)
    assert.deepEqual(page.problems, [], title)
  }
  page.problems.length = 0
  await page.at('#/sandboxes')
  await page.locator('.rows').getByRole('link', { name: 'ours' }).waitFor()
  assert.equal(await page.getByText('theirs').count(), 0)
  await page.getByLabel('Team').selectOption('*')
  const row = page.getByRole('row').filter({ hasText: 'theirs' })
  await row.getByText('acme, "inc"').waitFor()
  assert.equal(await row.getByRole('button').count(), 0, 'it is only looked at')
  assert.equal(await row.getByRole('link').count(), 0)
  assert.equal(await page.getByRole('row').filter({ hasText: 'ours' }).getByRole('button', { name: 'Pause' }).count(), 1)
  await good('sandboxes-of-all-teams')
  await page.getByLabel('Team').selectOption('acme, "inc"')
  await page.locator('.rows').getByRole('link', { name: 'ours' }).waitFor({ state: 'detached' })
  await row.waitFor()
  await page.at('#/admin/use')
  await page.getByRole('group', { name: 'Over time by' }).getByRole('button', { name: 'team' }).click()
  await page.getByRole('img', { name: /Usage by team.*acme/ }).waitFor()
  const table = page.getByRole('table', { name: 'Usage by team' })
  await table.getByRole('row', { name: /acme, "inc"/ }).waitFor()
  await table.getByRole('row', { name: /default/ }).waitFor()
  await good('use-by-team')
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV over time' }).click()])
  assert.match(fs.readFileSync(await file.path(), 'utf8'), /"acme, ""inc"""/)
  await page.leave()

  const stranger = await signedIn(browser, { url: server.url, key: acme.key })
  await stranger.at('#/sandboxes')
  await stranger.locator('.rows').getByRole('link', { name: 'theirs' }).waitFor()
  assert.equal(await stranger.getByLabel('Team').count(), 0)
  await stranger.at('#/admin/use')
  await stranger.getByRole('group', { name: 'Over time by' }).getByRole('button', { name: 'team' }).click()
  await stranger.getByRole('table', { name: 'Usage by team' }).getByRole('row', { name: /acme, "inc"/ }).waitFor()
  assert.equal(await stranger.getByRole('table', { name: 'Usage by team' }).getByText('default').count(), 0)
  await stranger.leave()
})
