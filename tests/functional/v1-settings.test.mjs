// The runtime's settings: limits, providers that fail, files that are wrong. Each test has its own server.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { binary, eventually, startServer } from '../harness/server.mjs'

let home
before(() => {
  home = fs.mkdtempSync(path.join(os.tmpdir(), 'quicksand-settings-'))
  fs.chmodSync(home, 0o755)
})
after(() => fs.rmSync(home, { recursive: true, force: true }))

function failed(answer, status, code) {
  assert.equal(answer.status, status, answer.text)
  assert.equal(answer.body.error.code, code, answer.text)
}

test('quotas and failing providers are told apart', async () => {
  const file = path.join(home, 'limits.json')
  fs.writeFileSync(file, JSON.stringify({
    providers: { e2b: { type: 'e2b', api_url: 'embedded', max_sandboxes: 1 }, gone: { type: 'docker', socket: '/nonexistent/docker.sock', image: 'none' } },
    retry: { attempts: 1 },
    breaker: { failures: 4, open_s: 60 },
    commands: { allow: ['echo'] },
  }))
  const other = await startServer({ args: ['--runtime-config', file, '--warm', '2'] })
  const ask = (method, target, body) => other.api(method, `/api/v1${target}`, body)
  try {
    const first = await ask('POST', '/sandboxes', {})
    assert.equal(first.status, 201, first.text)
    const second = await ask('POST', '/sandboxes', { agent_id: 'second', task_id: 't2' })
    failed(second, 429, 'quota')
    await eventually('its agent and task in the log', () => /warn runtime: create failed sandbox=\S* provider=e2b agent=second task=t2 code=quota: ./.test(other.log))
    assert.ok(Number(second.headers['retry-after']) >= 1)
    assert.equal(second.body.error.retryable, true)
    failed(await ask('POST', `/sandboxes/${first.body.id}/execute`, { command: 'rm -rf /' }), 403, 'forbidden')
    assert.equal((await ask('POST', `/sandboxes/${first.body.id}/execute`, { command: 'echo ok' })).body.stdout, 'ok\n')
    failed(await ask('POST', '/sandboxes', { provider: 'gone' }), 502, 'provider')
    let open // health checks count as well
    for (let i = 0; i < 4 && open?.status !== 503; i++) open = await ask('POST', '/sandboxes', { provider: 'gone' })
    failed(open, 503, 'unavailable')
    assert.ok(Number(open.headers['retry-after']) >= 1)
    assert.equal((await ask('DELETE', `/sandboxes/${first.body.id}`)).status, 204)
    const freed = await ask('POST', '/sandboxes', {})
    assert.equal(freed.status, 201, freed.text)
    await ask('DELETE', `/sandboxes/${freed.body.id}`)
  } finally {
    await other.destroy()
  }
})

test('wrong ones are told together, and a file that cannot be read', async () => {
  const file = path.join(home, 'runtime.json')
  const start = (text, mode = 0o644) => {
    fs.rmSync(file, { force: true })
    fs.writeFileSync(file, text, { mode })
    return spawnSync(binary, ['serve', '--listen', '127.0.0.1:0', '--data', path.join(home, 'other'), '--runtime-config', file], {
      env: { PATH: process.env.PATH, QUICKSAND_API_KEY: 'x', QUICKSAND_BASE_LAYER: process.env.QUICKSAND_BASE_LAYER },
      timeout: 30_000,
      encoding: 'utf8',
    })
  }
  const wrong = start('{"retry":{"attempts":99},"breaker":{"failures":0}}')
  assert.notEqual(wrong.status, 0)
  assert.match(wrong.stderr, /attempts/)
  assert.match(wrong.stderr, /failures/)
  const closed = start('{}', 0o600)
  assert.notEqual(closed.status, 0)
  assert.match(closed.stderr, /--runtime-config .* may not read it; allow it with 'chgrp /)
  spawnSync(binary, ['down', '--data', path.join(home, 'other')])
})
