// What an operator does with a server that runs: reload by SIGHUP, logs as JSON, traces of callers, figures for Prometheus.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { eventually, repository, startServer } from '../harness/server.mjs'

const promtool = (...args) => spawnSync('promtool', args.filter((one) => typeof one === 'string'), { encoding: 'utf8', input: args.at(-1).input })

describe('reload', () => {
  let server, settings, runtime
  const write = (lines, profiles) => {
    fs.writeFileSync(settings, lines.join('\n') + '\n')
    fs.writeFileSync(runtime, JSON.stringify({ profiles }))
  }
  const reload = async (expected) => {
    const from = server.log.length
    server.child.kill('SIGHUP')
    await eventually(`log: ${expected}`, () => expected.test(server.log.slice(from)))
    return server.log.slice(from)
  }
  before(async () => {
    server = await startServer({
      args: ['--warm', '1'],
      prepare: (one) => {
        settings = path.join(one.home, 'settings.conf')
        runtime = path.join(one.home, 'runtime.json')
        write(['max-sandboxes = 2', `runtime-config = ${runtime}`], { small: { timeout: 100 }, gone: {} })
        one.args.push('--config', settings)
      },
    })
  })
  after(() => server?.destroy())
  const profiles = async () => (await server.api('GET', '/api/v1/profiles')).body.profiles.map((one) => one.name).sort()

  test('limits, level and profiles are taken over, and the log says so', async () => {
    const first = await server.create()
    const second = await server.create()
    assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base' })).status, 429)
    assert.ok((await profiles()).includes('gone'))
    write(['max-sandboxes = 3', 'warm = 2', 'log = debug', `runtime-config = ${runtime}`], { small: { timeout: 200 }, fresh: {} })
    const told = await reload(/reload: done; settings changed: 2, waiting for a restart: 0|reload: done/)
    assert.match(told, /max-sandboxes is '3' from now on, it was '2'/)
    assert.match(told, /log is 'debug' from now on, it was 'info'/)
    assert.match(told, /profile 'small' was changed/)
    assert.match(told, /profile 'fresh' is new/)
    assert.match(told, /profile 'gone' is gone/)
    await server.create()
    assert.equal((await server.api('POST', '/sandboxes', { templateID: 'base' })).status, 429)
    assert.ok((await profiles()).includes('fresh'))
    assert.ok(!(await profiles()).includes('gone'))
    assert.deepEqual((await server.ids()).sort().filter((id) => [first.sandboxID, second.sandboxID].includes(id)).length, 2, 'sandboxes go on')
  })

  test('what needs a restart is told', async () => {
    write(['max-sandboxes = 3', 'log = debug', 'workers = 7', `runtime-config = ${runtime}`], { fresh: {} })
    assert.match(await reload(/reload: done/), /workers was changed and needs a restart; it stays '16'/)
  })

  test('what is wrong changes nothing', async () => {
    write(['max-sandboxes = many', `runtime-config = ${runtime}`], {})
    assert.match(await reload(/'max-sandboxes' must be a number/), /settings stay as they were/)
    fs.writeFileSync(settings, `max-sandboxes = 3\nlog = debug\nruntime-config = ${runtime}\n`)
    fs.writeFileSync(runtime, '{"profiles": {"fresh": {"timeout": "soon"}}}')
    await reload(/profiles and keys of providers stay as they were/)
    assert.ok((await profiles()).includes('fresh'))
    assert.ok(server.alive())
  })
})

describe('figures and logs', () => {
  let server
  before(async () => (server = await startServer({ args: ['--warm', '1', '--log-format', 'json'] })))
  after(() => server?.destroy())

  test('each line of the log is JSON, with fields', async () => {
    await server.api('GET', '/sandboxes?x="\u00e4\\')
    const lines = () => server.log.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line))
    const one = await eventually('the request', () => lines().find((line) => line.module === 'api' && line.message.includes('/sandboxes')))
    assert.match(one.time, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/)
    assert.equal(one.level, 'info')
    assert.equal(one.fields.status, '200')
    const plain = server.log.split('\n').filter((line) => /^\d{4}-\d\d-\d\dT/.test(line) && !/ egress: /.test(line))
    assert.deepEqual(plain, [], 'no line in the other format, but for the egress process, which does not read settings')
  })

  test('traceparent is accepted and logged, and only that', async () => {
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
    for (const target of ['/sandboxes', '/api/v1/health']) {
      await server.api('GET', target, undefined, { headers: { traceparent: `00-${trace}-00f067aa0ba902b7-01` } })
      await eventually(`trace of ${target}`, () => server.log.split('\n').some((line) => line.includes(target) && line.includes(`trace=${trace}`)))
    }
    const wrong = [`00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, `ff-${trace}-00f067aa0ba902b7-01`, `00-${trace.toUpperCase()}-00f067aa0ba902b7-01`, `00-${trace}-00f067aa0ba902b7-01-more`, 'x', `00-${trace} level=error-00f067aa0ba902b7-01`]
    const before = server.log.split(trace).length
    for (const header of wrong) assert.equal((await server.api('GET', '/volumes', undefined, { headers: { traceparent: header } })).status, 200)
    await eventually('all six', () => server.log.split('/volumes').length > wrong.length)
    assert.equal(server.log.split(trace).length, before)
  })

  test('figures by team, template, provider and route, as Prometheus wants them', async () => {
    await server.create()
    const { text } = await server.api('GET', '/metrics')
    const checked = promtool('check', 'metrics', { input: text })
    assert.equal(checked.status, 0, checked.stderr)
    assert.match(text, /^quicksand_route_requests_total\{api="api",method="POST",route="\/sandboxes",status="2xx"\} 1$/m)
    assert.match(text, /^quicksand_route_seconds_bucket\{api="api",method="POST",route="\/sandboxes",le="0.002"\} \d+$/m)
    assert.match(text, /^quicksand_team_requests_total\{team="[^"]+"\} \d+$/m)
    assert.match(text, /^quicksand_team_sandboxes\{team="[^"]+",state="running"\} 1$/m)
    assert.match(text, /^quicksand_team_creates_total\{team="[^"]+"\} 1$/m)
    assert.match(text, /^quicksand_template_creates_total\{template="base"\} 1$/m)
    assert.match(text, /^quicksand_provider_up\{provider="[^"]+"\} 1$/m)
    assert.match(text, /^quicksand_build_info\{version="[\d.]+"\} 1$/m)
    assert.match(text, /^process_resident_memory_bytes [1-9]\d{6,}$/m)
    // Every figure that rules and dashboard ask for is there.
    const asked = fs.readFileSync(path.join(repository, 'deploy/alerts.yml'), 'utf8') + fs.readFileSync(path.join(repository, 'deploy/grafana.json'), 'utf8')
    const names = new Set(asked.match(/\b(quicksand|process)_[a-z_]+/g))
    for (const name of names) assert.ok(text.includes(name), `${name} is in /metrics`)
    assert.ok(names.size > 15)
  })

  test('alert rules and the dashboard are sound', () => {
    const rules = promtool('check', 'rules', path.join(repository, 'deploy/alerts.yml'), {})
    assert.equal(rules.status, 0, rules.stderr)
    const dashboard = JSON.parse(fs.readFileSync(path.join(repository, 'deploy/grafana.json'), 'utf8'))
    const groups = dashboard.panels.flatMap((panel) => panel.targets.map((target) => target.expr.replaceAll('$instance', '.*')))
    const file = path.join(server.home, 'dashboard.yml')
    fs.writeFileSync(file, JSON.stringify({ groups: [{ name: 'panels', rules: groups.map((expr, at) => ({ record: `panel_${at}`, expr })) }] }))
    const panels = promtool('check', 'rules', file, {})
    assert.equal(panels.status, 0, panels.stderr)
    // The rules are found beside it; the key's file is on the operator's host.
    const config = promtool('check', 'config', '--syntax-only', path.join(repository, 'deploy/prometheus.yml'), {})
    assert.equal(config.status, 0, config.stderr)
  })
})
