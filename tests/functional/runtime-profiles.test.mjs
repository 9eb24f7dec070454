// Profiles and settings of the runtime: the rules of the harness, what wins over what, and who never sees secrets.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { destroyAll, refused, startRuntime } from '../harness/runtime.mjs'
import { binary, patience } from '../harness/server.mjs'

const SECRETS = { env: 'secret-of-the-environment-1', file: 'secret-of-a-file-22', literal: 'secret-in-the-file-333', put: 'secret-that-was-put-4444', given: 'secret-of-a-request-55555' }
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-profiles-'))

let one
before(async () => {
  fs.chmodSync(folder, 0o755)
  fs.writeFileSync(path.join(folder, 'key'), ` ${SECRETS.file}\n`, { mode: 0o600 })
  fs.chownSync(path.join(folder, 'key'), 64737, 64737)
  one = await startRuntime(
    {
      providers: {
        e2b: { type: 'e2b', api_url: 'embedded' },
        remote: { type: 'e2b', api_url: 'http://127.0.0.1:9', api_key: 'env:REMOTE_KEY' },
        filed: { type: 'e2b', api_url: 'http://127.0.0.1:9', api_key: `file:${path.join(folder, 'key')}` },
        plain: { type: 'e2b', api_url: 'http://127.0.0.1:9', api_key: SECRETS.literal },
      },
      profiles: {
        filed: { provider: 'e2b', network: { mode: 'allow-all' }, timeout: 7, outputLimitBytes: 2000, envVars: { FROM: 'profile', HIDDEN: 'env:REMOTE_KEY' } },
        quiet: { provider: 'e2b' },
        'with-hooks': { provider: 'e2b', network: { mode: 'allow-all' }, persistent: true, onCreate: ['echo created >>/home/user/hooks'], onResume: ['echo resumed >>/home/user/hooks'] },
      },
      agents: { 'ci-fix': 'filed' },
      command_timeout_s: 9,
      retry: { attempts: 1 },
    },
    { env: { REMOTE_KEY: SECRETS.env, E2B_TIMEOUT: '11', E2B_SANDBOX_TIMEOUT_MS: '120000' } },
  )
})
after(async () => {
  await destroyAll(one)
  fs.rmSync(folder, { recursive: true })
})
afterEach(() => assert.ok(one.server.alive(), `the server died:\n${one.server.tail()}`))

const faults = async (record) => {
  const { valid, faults } = await one.ok(200, 'POST', '/profiles/x/validate', record)
  assert.equal(valid, faults.length === 0)
  return faults
}
const messages = async (config) => (await faults({ name: 'x', config })).map((fault) => fault.message)

describe('the harness’s rules', () => {
  const EGRESS = 'e2b cannot enforce egress restrictions; set config.network.mode to allow-all explicitly'
  const good = { provider: 'remote', network: { mode: 'allow-all' } }

  test('its example is accepted', async () => {
    const config = {
      ...good,
      permissionMode: 'ask',
      persistent: true,
      lifecycle: { idleTimeoutSeconds: 900 },
      envVars: { NAME: 'value' },
      options: { apiKey: SECRETS.put, template: 'base', workspaceRoot: '/mnt/workspaces' },
    }
    assert.deepEqual(await faults({ name: 'x', config }), [])
    assert.deepEqual(await messages({ ...good, options: { templateId: 'base' } }), [])
  })

  test('an endpoint elsewhere takes allow-all only, said explicitly', async () => {
    assert.deepEqual(await messages({ provider: 'remote' }), [EGRESS])
    assert.deepEqual(await messages({ provider: 'remote', network: {} }), [EGRESS])
    assert.deepEqual(await messages({ provider: 'remote', network: { mode: 'deny-all' } }), [EGRESS])
    assert.deepEqual(await messages({ provider: 'remote', network: { mode: 'restricted', allowDomains: ['a.test'] } }), [EGRESS])
    assert.deepEqual(await messages({ provider: 'e2b', network: { mode: 'deny-all' } }), [], 'the engine here enforces it')
  })

  test('what goes together', async () => {
    assert.deepEqual(await messages({ ...good, lifecycle: { idleTimeoutSeconds: 60 } }), ['config.lifecycle requires config.persistent to be true'])
    assert.deepEqual(await messages({ ...good, internet: true }), ['config.internet is no longer supported'])
    assert.deepEqual(await messages({ ...good, persistent: true, onCreate: ['true'] }), ['config.onCreate and config.onResume are not supported by the e2b provider; use an E2B template or run setup commands explicitly'])
    assert.ok((await messages({ ...good, onResume: ['true'] })).includes('config.onCreate and config.onResume require config.persistent to be true'))
    assert.match((await messages({ ...good, network: { mode: 'allow-all', allowCidrs: ['10.0.0.0/8'] } }))[0], /only allowed with mode restricted/)
    for (const provider of ['remote', 'e2b', 'docker']) assert.match((await messages({ ...good, provider, options: { s3: { bucket: 'b' } } }))[0], /shared S3 workspace cannot be attached/, provider)
  })

  test('an idle time beyond max-hours of the engine is a fault when it is validated, stored and used', async () => {
    const lifecycle = { idleTimeoutSeconds: 7 * 86400 }
    const words = /lifecycle\.idleTimeoutSeconds.*must be at most 86400 on provider '\S+' \(the server's setting max-hours\)/
    const profile = { provider: 'e2b', network: { mode: 'allow-all' }, persistent: true, lifecycle }
    const told = await one.ok(200, 'POST', '/profiles/week/validate', profile)
    assert.match(JSON.stringify(told), /must be at most 86400/)
    const stored = await one.v1('PUT', '/profiles/week', profile)
    assert.equal(stored.status, 400, stored.text)
    const created = await one.v1('POST', '/sandboxes', { provider: 'e2b', lifecycle })
    assert.equal(created.status, 400, created.text)
    assert.match(created.body.error.message, words)
    await one.ok(200, 'PUT', '/profiles/day', { ...profile, lifecycle: { idleTimeoutSeconds: 86400 } })
    const box = await one.create({ profile: 'day' })
    assert.equal(box.idle_timeout, 86400)
    await one.remove(box.id)
  })

  test('all faults at once, each with its path', async () => {
    const found = await faults({ name: 'x', config: { provider: 'remote', timeout: 601, outputLimitBytes: 300000, permissionMode: 'always', lifecycle: { idleTimeoutSeconds: 604801 }, envVars: { 'A=B': 'x', B: 2 }, surprise: 1 } })
    const paths = found.map((fault) => fault.path)
    for (const wanted of ['config.timeout', 'config.outputLimitBytes', 'config.permissionMode', 'config.lifecycle.idleTimeoutSeconds', 'config.lifecycle', 'config.envVars.A=B', 'config.envVars.B', 'config.surprise', 'config.network.mode']) {
      assert.ok(paths.includes(wanted), `${wanted} in ${paths}`)
    }
    const put = await one.v1('PUT', '/profiles/bad', { provider: 'remote', timeout: 0 })
    refused(put, 400, 'invalid')
    assert.equal(put.body.error.details.faults.length, 2, put.text)
    refused(await one.v1('GET', '/profiles/bad'), 404, 'not_found')
  })

  test('a record put in that form stays in it', async () => {
    await one.ok(200, 'PUT', '/profiles/harness', { name: 'harness', config: { provider: 'e2b', network: { mode: 'allow-all' }, persistent: true, options: { templateId: 'base' } } })
    const shown = await one.ok(200, 'GET', '/profiles/harness')
    assert.equal(shown.config?.provider, 'e2b', JSON.stringify(shown))
    const box = await one.create({ profile: 'harness' })
    assert.deepEqual([box.template, box.profile], ['base', 'harness'])
    await one.remove(box.id)
    await one.ok(204, 'DELETE', '/profiles/harness')
  })
})

describe('what wins', () => {
  const timeoutOf = async (body, more = {}) => {
    const box = await one.create(body)
    const began = performance.now()
    const { timed_out } = await one.execute(box.id, 'sleep 60', more)
    await one.remove(box.id)
    assert.ok(timed_out)
    return Math.round((performance.now() - began) / 1000)
  }

  test('request over profile over file over environment', async () => {
    const [request, profile, file] = await Promise.all([timeoutOf({ profile: 'filed', timeout: 3 }), timeoutOf({ profile: 'filed' }), timeoutOf({ profile: 'quiet' })])
    assert.deepEqual([request, profile, file], [3, 7, 9])
    assert.equal(await timeoutOf({ profile: 'filed' }, { timeout: 1 }), 1)
    const { profiles } = await one.ok(200, 'GET', '/profiles')
    assert.equal(profiles.find((profile) => profile.name === 'default').lifecycle.idleTimeoutSeconds, 120, 'of the environment')
  })

  test('environment, output and template: the request’s over the profile’s', async () => {
    const box = await one.create({ agent_type: 'ci-fix', env: { FROM: 'request', MORE: '1' } })
    assert.equal(box.profile, 'filed', 'by the type of the agent')
    assert.equal(await one.output(box.id, 'echo $FROM $MORE ${#HIDDEN}'), `request 1 ${SECRETS.env.length}\n`)
    assert.equal((await one.execute(box.id, 'head -c 5000 /dev/zero | tr "\\0" x')).stdout.length, 2000 + '\n[output truncated]'.length)
    await one.remove(box.id)
    refused(await one.v1('POST', '/sandboxes', { profile: 'none' }), 400, 'invalid', /none/)
    refused(await one.v1('POST', '/sandboxes', { profile: 'filed', template: 'no-such' }), 404, 'not_found')
    const quiet = await one.create({ profile: 'quiet' })
    assert.notEqual((await one.execute(quiet.id, 'curl -sm 3 http://203.0.113.1/')).exit_code, 0, 'omitted is deny-all')
    await one.remove(quiet.id)
  })

  test('hooks run where they can: once when it is made, each time it is resumed', async () => {
    const box = await one.create({ profile: 'with-hooks', key: 'hooks' })
    assert.equal(await one.output(box.id, 'cat /home/user/hooks'), 'created\n')
    await one.ok(200, 'POST', `/sandboxes/${box.id}/pause`)
    await one.create({ profile: 'with-hooks', key: 'hooks' })
    assert.equal(await one.output(box.id, 'cat /home/user/hooks'), 'created\nresumed\n')
    await one.remove(box.id)
  })

  test('profiles of the file cannot be changed', async () => {
    refused(await one.v1('PUT', '/profiles/filed', { provider: 'e2b' }), 409, 'conflict')
    refused(await one.v1('DELETE', '/profiles/filed'), 409, 'conflict')
  })
})

describe('secrets', () => {
  test('are shown as stars, and stars keep them', async () => {
    const put = { provider: 'e2b', network: { mode: 'allow-all' }, envVars: { TOKEN: SECRETS.put }, options: { apiKey: SECRETS.put } }
    const shown = await one.ok(200, 'PUT', '/profiles/mine', put)
    assert.deepEqual([shown.envVars.TOKEN, shown.options.apiKey], ['********', '********'])
    await one.ok(200, 'PUT', '/profiles/mine', { ...put, envVars: { TOKEN: '********', PLAIN: 'p' }, options: { apiKey: '********' } })
    const box = await one.create({ profile: 'mine' })
    assert.equal(await one.output(box.id, 'echo $TOKEN'), `${SECRETS.put}\n`)
    await one.remove(box.id)
    refused(await one.v1('PUT', '/profiles/new', { ...put, envVars: { TOKEN: '********' } }), 400, 'invalid')
    await one.ok(204, 'DELETE', '/profiles/mine')
  })

  test('references are the operator’s: a team cannot read the server’s environment', async () => {
    refused(await one.v1('PUT', '/profiles/spy', { provider: 'e2b', network: { mode: 'allow-all' }, options: { apiKey: 'env:REMOTE_KEY' } }), 400, 'invalid', /only for the server's configuration/)
    await one.ok(200, 'PUT', '/profiles/spy', { provider: 'e2b', network: { mode: 'allow-all' }, envVars: { A: 'env:REMOTE_KEY', B: 'file:/etc/shadow' } })
    const box = await one.create({ profile: 'spy', env: { C: 'env:REMOTE_KEY' } })
    assert.equal(await one.output(box.id, 'echo $A $B $C'), 'env:REMOTE_KEY file:/etc/shadow env:REMOTE_KEY\n')
    await one.remove(box.id)
    await one.ok(204, 'DELETE', '/profiles/spy')
  })

  test('are in no log, no event and no answer', async () => {
    for (const provider of ['remote', 'filed', 'plain']) refused(await one.v1('POST', '/sandboxes', { provider, network: { mode: 'allow-all' } }), 502, 'provider')
    const box = await one.create({ profile: 'filed', env: { S: SECRETS.given }, agent_id: 'a' })
    await one.execute(box.id, 'echo $S $HIDDEN', { env: { T: SECRETS.given } })
    const told = [one.server.log, JSON.stringify(await one.events({}))]
    for (const target of ['/providers?check=true', '/profiles', '/profiles/filed', '/sandboxes?limit=1000', '/sandboxes?state=killed&limit=1000', `/sandboxes/${box.id}`, '/stats', '/snapshots', `/sandboxes/${box.id}/processes`]) told.push((await one.v1('GET', target)).text)
    told.push((await one.server.api('GET', '/audit?limit=1000')).text)
    for (const [name, secret] of Object.entries({ ...SECRETS, key: one.server.key })) {
      for (const text of told) assert.ok(!text.includes(secret), `${name}: …${text.slice(Math.max(0, text.indexOf(secret) - 300), text.indexOf(secret))}`)
    }
    await one.remove(box.id)
  })
})

test('an idle time beyond max-hours stops the start, with the setting to change', () => {
  const data = path.join(folder, 'too-long')
  const start = spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', data], {
    env: { PATH: process.env.PATH, QUICKSAND_API_KEY: 'x', QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER, E2B_SANDBOX_TIMEOUT_MS: '90000000' },
    timeout: 30_000 * patience,
    encoding: 'utf8',
  })
  spawnSync(binary, ['down', '--data', data])
  assert.equal(start.status, 78, `${start.stdout}${start.stderr}`)
  assert.match(start.stderr, /sandbox_timeout_ms \(E2B_SANDBOX_TIMEOUT_MS\): must be at most 86400000 on provider 'e2b' \(the server's setting max-hours\)/)
  assert.doesNotMatch(start.stdout, /^ready/m)
})

describe('the whole example', () => {
  const example = {
    listen: '127.0.0.1:8000',
    data_dir: '/var/lib/quicksand',
    default_provider: 'e2b',
    providers: {
      e2b: { type: 'e2b', api_url: 'embedded', domain: 'sandboxes.test', api_key: 'env:E2B_API_KEY', secure: true, egress: ['allow-all'], max_sandboxes: 20 },
      daytona: { type: 'daytona', api_key: 'env:DAYTONA_API_KEY' },
      docker: { type: 'docker' },
      local: { type: 'local' },
      bb: { type: 'browserbase', api_key: 'env:BROWSERBASE_API_KEY' },
    },
    profiles: {
      default: { provider: 'e2b', template: 'base', network: { mode: 'allow-all' }, persistent: false, lifecycle: { idleTimeoutSeconds: 900, maxLifetimeSeconds: 604800 }, timeout: 300, outputLimitBytes: 65536, permissionMode: 'ask', envVars: {}, mcp: null },
      desktop: { provider: 'e2b', network: { mode: 'allow-all' } },
      web: { provider: 'bb', network: { mode: 'allow-all' } },
    },
    agents: { 'ci-fix': 'default', 'visual-tester': 'desktop', 'web-scraper': 'web' },
    retry: { attempts: 3, min_s: 1, max_s: 10, on_quota: false },
    breaker: { failures: 5, open_s: 30 },
    health_interval_s: 30,
    stale_after_s: 86400,
    commands: { allow: [] },
  }

  test('is taken, and works', async () => {
    await one.clear()
    await one.server.stop()
    // The idle time is the longest that max-hours allows.
    const all = await startRuntime(example, { args: ['--process-provider', '1'], env: { E2B_API_KEY: 'e2b_k', DAYTONA_API_KEY: 'd', BROWSERBASE_API_KEY: 'b', E2B_SANDBOX_TIMEOUT_MS: '86400000' } })
    try {
      const names = (await all.ok(200, 'GET', '/providers')).providers.map((provider) => provider.name)
      assert.deepEqual(names.sort(), ['bb', 'daytona', 'docker', 'e2b', 'local'])
      const box = await all.create({ agent_type: 'ci-fix' })
      assert.deepEqual([box.provider, box.template, box.profile], ['e2b', 'base', 'default'])
      assert.equal(await all.output(box.id, 'echo works'), 'works\n')
    } finally {
      await all.destroy()
      await one.server.start()
    }
  })

  test('AGENT_RUNTIME_PROVIDER chooses, blanks and case do not matter', async () => {
    await one.clear()
    await one.server.stop()
    const all = await startRuntime({}, { args: ['--process-provider', '1'], env: { AGENT_RUNTIME_PROVIDER: ' Local-Runner ' } })
    try {
      const box = await all.create({ network: { mode: 'allow-all' } })
      assert.equal(box.provider, 'local')
      assert.match(await all.output(box.id, 'pwd'), /process/)
    } finally {
      await all.destroy()
      await one.server.start()
    }
  })

  test('nothing is configured: the provider is e2b, on the engine of this server', async () => {
    await one.clear()
    await one.server.stop()
    const all = await startRuntime({}, { args: ['--process-provider', '1'] })
    try {
      const { providers } = await all.ok(200, 'GET', '/providers')
      assert.deepEqual(providers.filter((provider) => provider.default).map((provider) => provider.name), ['e2b'])
      assert.ok(providers.some((provider) => provider.name === 'local'), 'there is another one to choose')
      const box = await all.create()
      assert.deepEqual([box.provider, box.template, box.idle_timeout], ['e2b', 'base', 600])
      assert.deepEqual(await all.server.ids(), [box.id])
    } finally {
      await all.destroy()
      await one.server.start()
    }
  })
})
