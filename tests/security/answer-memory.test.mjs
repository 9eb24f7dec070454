// Programs that print much and then hang, for as many requests as a team may have: what the server gathers of them has a
// budget (body-memory, of which a team may hold half), beyond which commands are killed, and other teams are served.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'

const MB = 1024 * 1024
const SIZE = 8_000_000
const ATTACKS = 100
const shown = (bytes) => `${(bytes / MB).toFixed(1)} MB`
const residentBytes = (server) => Number(/^VmRSS:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'latin1'))[1]) * 1024

describe('with 32 MB for requests and for responses that are being made', () => {
  let server, mine, other
  const held = async () => Number(/^quicksand_body_bytes (\d+)$/m.exec((await server.api('GET', '/metrics')).text)[1])
  async function addTeam(name) {
    const { teamID } = (await server.api('POST', '/admin/teams', { name })).body
    const { key } = (await server.api('POST', `/admin/teams/${teamID}/api-keys`, { name: 'k' })).body
    const made = await server.api('POST', '/api/v1/sandboxes', {}, { key })
    assert.equal(made.status, 201, made.text)
    return { key, box: made.body.id }
  }
  const run = (team, body, options) => server.api('POST', `/api/v1/sandboxes/${team.box}/execute`, body, { key: team.key, timeoutMs: 120_000 * patience, ...options })

  before(async () => {
    server = await startServer({ args: ['--warm', '0', '--body-memory', '32'] })
    mine = await addTeam('mine')
    other = await addTeam('other')
    const program = `#!/bin/sh\nprintf '\\211PNG\\r\\n\\032\\n'\nhead -c ${SIZE} /dev/zero\nexec sleep 20\n`
    const command = `echo ${Buffer.from(program).toString('base64')} | base64 -d >/tmp/shot && sudo install /tmp/shot /usr/local/bin/desktop-screenshot`
    const put = await run(mine, { command })
    assert.equal(put.body.exit_code, 0, put.text)
    // The threads and connections of so many requests, which stay: what is measured is what programs print.
    await Promise.all(Array.from({ length: ATTACKS }, () => run(mine, { command: 'head -c 60000 /dev/zero | tr "\\0" x; sleep 2' })))
  })
  after(async () => {
    for (const { key, box } of [mine, other]) await server.api('DELETE', `/api/v1/sandboxes/${box}`, undefined, { key })
    await server.destroy()
  })

  for (const [what, attack] of [
    ['screenshots', () => server.api('GET', `/api/v1/sandboxes/${mine.box}/desktop/screenshot`, undefined, { key: mine.key, timeoutMs: 120_000 * patience })],
    ['commands', () => run(mine, { command: 'desktop-screenshot; desktop-screenshot >&2', output_limit: 16 * MB, timeout_ms: 50_000 })],
  ]) {
    test(`${ATTACKS} ${what} whose program hangs after ${SIZE} bytes`, { timeout: 240_000 * patience }, async (t) => {
      const start = residentBytes(server)
      let peak = start, most = 0, over = 0
      const watch = setInterval(() => (peak = Math.max(peak, residentBytes(server))), 10)
      const answers = []
      try {
        const all = Array.from({ length: ATTACKS }, () => attack().then((answer) => (answers.push(answer), over++)))
        await eventually('most are refused', () => answers.filter((one) => one.status === 429).length > ATTACKS / 2, 120_000)
        for (let i = 0; i < 5; i++) {
          most = Math.max(most, await held())
          const served = await run(other, { command: 'head -c 1000000 /dev/zero | tr "\\0" x' })
          assert.equal(served.body.exit_code, 0, served.text.slice(0, 500))
        }
        // What hangs would last for 20 seconds.
        await server.api('POST', `/api/v1/sandboxes/${mine.box}/execute`, { command: 'pkill sleep; true' }, { key: mine.key })
        await Promise.all(all)
      } finally {
        clearInterval(watch)
      }
      t.diagnostic(`${shown(peak - start)} more at most, ${shown(most)} counted, ${answers.filter((one) => one.status === 429).length} refused`)
      assert.ok(peak - start < 64 * MB, `${shown(peak - start)} more`)
      assert.ok(most <= 17 * MB, shown(most))
      // One whose program is ended before it has printed too much is a screen that does not answer.
      for (const { status, text, headers } of answers.filter((one) => one.status !== 200 && !/no answer in time/.test(one.text))) {
        assert.equal(status, 429, text.slice(0, 500))
        assert.match(text, /would hold more than 16 MiB of memory \(half of the setting body-memory\)/)
        // Who tries again by himself would run the command twice.
        const has_run = /the command (was killed|has ended)/.test(text)
        assert.deepEqual([Number(headers['retry-after'] ?? 0) > 0, JSON.parse(text).error.retryable], [!has_run, !has_run], text)
      }
      await eventually('all memory is returned', async () => (await held()) === 0)
    })
  }

  test(`${ATTACKS} lists of sandboxes with long labels`, { timeout: 240_000 * patience }, async (t) => {
    const LONG = 40
    const metadata = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`k${i}`, 'x'.repeat(1000)]))
    for (let i = 0; i < LONG; i++) {
      const { status, text, body } = await server.api('POST', '/api/v1/sandboxes', { metadata }, { key: mine.key })
      assert.equal(status, 201, text)
      await server.api('DELETE', `/api/v1/sandboxes/${body.id}`, undefined, { key: mine.key })
    }
    const list = () => server.api('GET', '/api/v1/sandboxes?state=killed&limit=1000', undefined, { key: mine.key, timeoutMs: 120_000 * patience })
    const one = await list()
    assert.equal(one.status, 200, one.text.slice(0, 500))
    assert.equal(one.body.sandboxes.length, LONG)
    const start = residentBytes(server)
    let peak = start
    const watch = setInterval(() => (peak = Math.max(peak, residentBytes(server))), 10)
    const all = await Promise.all([...Array.from({ length: ATTACKS }, list), server.api('GET', '/api/v1/sandboxes', undefined, { key: other.key, timeoutMs: 120_000 * patience })])
    clearInterval(watch)
    assert.equal(all.pop().status, 200, 'another team is served')
    t.diagnostic(`${shown(peak - start)} more at most, ${all.filter(({ status }) => status === 429).length} refused`)
    for (const { status, text } of all) assert.ok(status === 200 || status === 429, `${status} ${text.slice(0, 300)}`)
    assert.ok(all.some(({ status }) => status === 429))
    assert.ok(peak - start < 64 * MB, `${shown(peak - start)} more`)
    await eventually('all memory is returned', async () => (await held()) === 0)
  })

  test('output that is six times as long in JSON is counted as such', { timeout: 120_000 * patience }, async () => {
    const long = { command: `head -c 3000000 /dev/zero`, output_limit: 16 * MB }
    const refused = await run(mine, long)
    assert.equal(refused.status, 429, refused.text.slice(0, 500))
    assert.match(refused.text, /the command has ended: .*would hold more than 16 MiB/)
    const served = await run(mine, { ...long, encoding: 'base64' })
    assert.equal(served.status, 200, served.text.slice(0, 500))
    assert.equal(Buffer.from(served.body.stdout, 'base64').length, 3_000_000)
    await eventually('all memory is returned', async () => (await held()) === 0)
  })
})
