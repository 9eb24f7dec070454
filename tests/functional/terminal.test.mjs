// A terminal as a WebSocket, and the page with one in a real browser (Debian's chromium, headless).
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { after, afterEach, before, describe, test } from 'node:test'
import { eventually, patience, repository, startServer } from '../harness/server.mjs'
import { openEvents } from '../harness/sse.mjs'

const require = createRequire(path.join(repository, 'build/npm/web/'))
const WebSocket = require('ws')
const { chromium } = require('playwright-core')

let server
before(async () => {
  server = await startServer()
})
after(async () => {
  const { body } = await v1('GET', '/sandboxes?limit=1000')
  for (const { id } of body.sandboxes) await v1('DELETE', `/sandboxes/${id}`)
  await server.destroy()
})
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

const v1 = (method, target, body, options) => server.api(method, `/api/v1${target}`, body, options)
const create = async (body = {}) => (await v1('POST', '/sandboxes', body)).body

// An open WebSocket that remembers its frames.
function open(id, query = '', { headers = { 'X-API-KEY': server.key }, protocols = [], of = 'sandboxes' } = {}) {
  return new Promise((done, fail) => {
    const socket = new WebSocket(`ws://${server.listen}/api/v1/${of}/${id}/terminal?${query}`, protocols, { headers })
    socket.frames = []
    socket.output = ''
    socket.on('message', (data, binary) => {
      socket.frames.push({ binary, text: data.toString() })
      if (binary) socket.output += data.toString()
    })
    socket.closed = new Promise((over) => socket.on('close', (code, reason) => over({ code, reason: reason.toString() })))
    socket.see = (text) => eventually(`'${text}' in ${JSON.stringify(socket.output.slice(-300))}`, () => socket.output.includes(text))
    socket.on('open', () => done(socket))
    socket.on('unexpected-response', (_, response) => fail(new Error(`status ${response.statusCode}`)))
    socket.on('error', fail)
  })
}

const ready = async (socket) => JSON.parse((await eventually('the first frame', () => socket.frames[0])).text)

describe('a WebSocket', () => {
  test('has the frames of the contract', async () => {
    const box = await create()
    const socket = await open(box.id, 'cols=80&rows=24')
    const first = await ready(socket)
    assert.equal(first.type, 'ready')
    assert.equal(socket.frames[0].binary, false)
    socket.send(JSON.stringify({ type: 'input', data: 'echo $((6*7))-$(tput cols)x$(tput lines)\n' }))
    await socket.see('42-80x24')
    socket.send(JSON.stringify({ type: 'resize', cols: 101, rows: 33 }))
    socket.send('echo wide-$(tput cols)\n') // any other text is input
    await socket.see('wide-101')
    socket.send(Buffer.from('echo by""tes\n')) // and so are bytes
    await socket.see('bytes')
    assert.ok(socket.frames.slice(1).every((frame) => frame.binary), 'output is binary')
    socket.send('exit 5\n')
    const { code, reason } = await socket.closed
    assert.equal(code, 1000)
    assert.match(reason, /5/)
    const { body } = await v1('GET', `/events?sandbox_id=${box.id}&type=terminal.&limit=10&since=0`)
    assert.deepEqual(body.events.map((one) => one.type), ['terminal.opened', 'terminal.closed'])
  })

  test('comes back to the same shell', async () => {
    const box = await create()
    const socket = await open(box.id)
    const { terminal_id } = await ready(socket)
    socket.send('here=still; echo set-$here\n')
    await socket.see('set-still')
    socket.terminate()
    const again = await open(box.id, `terminal_id=${terminal_id}`)
    assert.equal((await ready(again)).terminal_id, terminal_id)
    again.send('echo back-$here\n')
    await again.see('back-still')
    again.close()
    const lost = await open(box.id, 'terminal_id=pty_none')
    assert.equal((await lost.closed).code, 1011)
  })

  for (const [how, again] of [['stopped', () => server.restart()], ['killed', () => server.kill9().then(() => server.start())]])
    test(`comes back to the same shell when the server was ${how} meanwhile`, async () => {
      const [box, other] = [await create(), await create()]
      const socket = await open(box.id, 'cols=80&rows=24')
      const { terminal_id } = await ready(socket)
      socket.send('here=still; echo set-$here-$$\n')
      const pid = await eventually('the shell’s pid', () => /set-still-(\d+)/.exec(socket.output)?.[1])
      const { body: job } = await v1('POST', `/sandboxes/${box.id}/processes`, { command: 'sleep 100' })
      await again()
      const { code } = await socket.closed
      assert.ok(code === 1001 || code === 1006, String(code))

      // Several at once are one shell with one viewer, the last.
      const all = await Promise.all([1, 2, 3].map(() => open(box.id, `terminal_id=${terminal_id}&cols=90&rows=30`)))
      for (const one of all) assert.equal((await ready(one)).terminal_id, terminal_id)
      await eventually('the others are told', async () => all.filter((one) => one.readyState === WebSocket.OPEN).length === 1)
      const back = all.find((one) => one.readyState === WebSocket.OPEN)
      back.send('echo back-$here-$$-$(tput cols)x$(tput lines)\n')
      await back.see(`back-still-${pid}-90x30`)
      // It counts as the one that was opened: left and found again as ever, its end told once.
      back.terminate()
      const last = await open(box.id, `terminal_id=${terminal_id}`)
      await last.see(`back-still-${pid}`)
      last.send('exit 3\n')
      assert.deepEqual(await last.closed, { code: 1000, reason: 'exited with 3' })
      const { body } = await v1('GET', `/events?sandbox_id=${box.id}&type=terminal.&limit=10&since=0`)
      assert.deepEqual(body.events.map((one) => one.type), ['terminal.opened', 'terminal.closed'])

      // What has ended, belongs to another sandbox or is no terminal is not found.
      const shell = await open(other.id)
      const foreign = (await ready(shell)).terminal_id
      for (const id of [terminal_id, foreign, job.id]) {
        const lost = await open(box.id, `terminal_id=${id}`)
        const closed = await lost.closed
        assert.equal(closed.code, 1011)
        assert.match(closed.reason, /has ended: open a new one/)
      }
      shell.close()
    })

  test('of a session: its events are the session’s', async () => {
    const { status, body: one, text } = await v1('POST', '/sessions', { agent: 'mock', wait: true, agent_id: 'owner' }, { timeoutMs: 60_000 * patience })
    assert.deepEqual([status, one.state], [201, 'running'], text)
    const socket = await open(one.id, 'cols=81&rows=25', { of: 'sessions' })
    const { terminal_id } = await ready(socket)
    socket.send('here=still; echo $((6*7))-$(tput cols)x$(tput lines)\n')
    await socket.see('42-81x25')
    socket.terminate()
    const back = await open(one.id, `terminal_id=${terminal_id}`, { of: 'sessions' })
    back.send('echo back-$here; exit 7\n')
    assert.deepEqual(await back.closed, { code: 1000, reason: 'exited with 7' })
    assert.match(back.output, /back-still/)
    const { events } = (await v1('GET', `/sessions/${one.id}/events?since=0&limit=1000`)).body
    const told = events.filter((event) => event.type.startsWith('terminal.'))
    assert.deepEqual(told.map((event) => [event.type, event.session, event.sandbox]), [['terminal.opened', one.id, one.sandbox_id], ['terminal.closed', one.id, one.sandbox_id]])
    assert.equal(told[0].data.terminal_id, terminal_id)
    assert.equal(told[1].data.exit_code, 7)
    await assert.rejects(open('ses_00000000000000000000', '', { of: 'sessions' }), /404/)
    await assert.rejects(open(one.id, '', { of: 'sessions', headers: {} }), /401/)
    await v1('DELETE', `/sessions/${one.id}`)
  })

  test('failures are events', async () => {
    const box = await create()
    const failed = async () => (await v1('GET', `/events?sandbox_id=${box.id}&type=terminal.failed&limit=10&since=0`)).body.events.map((event) => event.data.message)
    // A shell that cannot be started.
    const socket = await open(box.id, 'user=nobody9')
    assert.equal((await socket.closed).code, 1011)
    const [first, ...others] = await eventually('the event', async () => ((await failed()).length ? failed() : undefined))
    assert.match(first, /nobody9/)
    assert.deepEqual(others, [])
    // A shell that is lost with its sandbox.
    const second = await open(box.id)
    await ready(second)
    assert.equal((await server.api('DELETE', `/sandboxes/${(await v1('GET', `/sandboxes/${box.id}`)).body.external_id}`)).status, 204)
    assert.equal((await second.closed).code, 1011)
    await eventually('the second event', async () => (await failed()).length === 2)
  })

  test('a lot of output comes whole and in order', async () => {
    const box = await create()
    const socket = await open(box.id)
    await ready(socket)
    socket.send('stty -onlcr; seq 1 200000; echo the-e""nd\n')
    await eventually('the end', () => socket.output.includes('the-end'), 60_000)
    const numbers = socket.output.match(/^\d+$/gm).map(Number)
    assert.equal(numbers.length, 200000)
    assert.ok(numbers.every((one, at) => one === at + 1))
    socket.close()
  })

  test('is refused as anything else is', async () => {
    const box = await create({ agent_id: 'owner' })
    const plain = await v1('GET', `/sandboxes/${box.id}/terminal`)
    assert.equal(plain.status, 409)
    assert.equal(plain.body.error.code, 'unsupported-terminal')
    await assert.rejects(open(box.id, '', { headers: {} }), /401/)
    await assert.rejects(open(box.id, 'agent_id=thief'), /403/)
    await assert.rejects(open('sbx_00000000000000000000'), /404/)
    const byQuery = await open(box.id, `access_token=${server.key}`, { headers: {} })
    await ready(byQuery)
    byQuery.close()
    const byProtocol = await open(box.id, '', { headers: {}, protocols: ['quicksand', `key.${Buffer.from(server.key).toString('base64url')}`] })
    assert.equal(byProtocol.protocol, 'quicksand')
    byProtocol.close()
    assert.ok(!server.log.includes(server.key))
  })
})

describe('the page', () => {
  let browser
  before(async () => {
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'] })
  })
  after(() => browser?.close())

  // What stands on the screen, from xterm's rows.
  const screen = (page) => page.evaluate(() => [...document.querySelectorAll('.xterm-rows > div')].map((row) => row.textContent.trimEnd()).join('\n'))
  const shows = (page, text) => eventually(`'${text}' on the screen`, async () => (await screen(page)).includes(text), 15_000)

  async function openPage(target) {
    const page = await browser.newPage({ viewport: { width: 900, height: 600 } })
    page.problems = []
    page.on('pageerror', (error) => page.problems.push(error.message))
    page.on('console', (message) => message.type() === 'error' && page.problems.push(message.text()))
    await page.goto(`${server.url}${target}`)
    await page.fill('#key', server.key)
    await page.keyboard.press('Enter')
    await page.getByRole('navigation', { name: 'Pages' }).waitFor()
    page.problems.length = 0 // the first question, who is signed in, is answered with 401
    return page
  }

  test('is a terminal: typing, resizing, reloading', async () => {
    const box = await create()
    const page = await openPage(`/ui/terminal?sandbox=${box.id}`)
    await page.getByText('connected').waitFor()
    await page.keyboard.type('echo $((6*7))\n')
    await shows(page, '\n42')
    const columns = async (mark) => {
      await page.keyboard.type(`echo ${mark}=$(tput cols)=\n`)
      await shows(page, `\n${mark}=`)
      return Number(new RegExp(`\\n${mark}=(\\d+)=`).exec(await screen(page))[1])
    }
    const narrow = await columns('a')
    await page.setViewportSize({ width: 1300, height: 700 })
    let tries = 0
    await eventually('it is wider', async () => (await columns(`b${++tries}`)) > narrow + 20, 15_000, 200)
    await page.keyboard.type('kept=yes\n')
    fs.mkdirSync(path.join(repository, 'build/test'), { recursive: true })
    await page.screenshot({ path: path.join(repository, 'build/test/terminal.png') })
    await page.reload()
    await page.getByText('connected').waitFor()
    await page.keyboard.type('echo shell-$kept\n')
    await shows(page, '\nshell-yes')
    await server.restart()
    await eventually('it is connected again', () => page.getByText('connected').isVisible(), 30_000)
    await page.locator('.xterm-helper-textarea').focus()
    await page.keyboard.type('echo restarted-$kept\n')
    await shows(page, '\nrestarted-yes')
    assert.ok(!(await screen(page)).includes('this is a new one'))
    page.problems.length = 0 // of the time without a server
    assert.ok(!page.url().includes(server.key))
    assert.deepEqual(page.problems, [])
    await page.close()
  })

  test('says what is wrong', async () => {
    const page = await openPage('/ui/terminal?sandbox=sbx_00000000000000000000')
    await page.getByText('was not found').waitFor()
    await page.close()
  })

  test('shows names and titles as what they are: text', async () => {
    const evil = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    const box = await create({ agent_id: evil.slice(0, 250), key: evil, metadata: { a: evil } })
    const page = await openPage(`/ui/terminal?sandbox=${encodeURIComponent(box.id)}`)
    await page.getByText('connected').waitFor()
    await page.getByRole('heading', { name: '<img src=x' }).waitFor()
    const title = await page.title()
    await page.keyboard.type(`printf '\\e]0;${'<b>'}owned\\a\\e]52;c;b3duZWQ=\\a'; echo do''ne\n`)
    await shows(page, '\ndone')
    assert.equal(await page.title(), title)
    const named = await openPage(`/ui/terminal?sandbox=${encodeURIComponent(evil)}`)
    await named.getByText('was not found').first().waitFor()
    for (const one of [page, named]) {
      assert.equal(await one.locator('main img, main script').count(), 0)
      assert.match(await one.title(), /^<img src=x.* · Quicksand$/)
      await one.close()
    }
  })
})

test('a stopping server says so to terminals', async () => {
  const box = await create()
  const socket = await open(box.id)
  await ready(socket)
  const events = await openEvents(server, '/api/v1/events')
  const begin = performance.now()
  await server.stop()
  assert.equal((await socket.closed).code, 1001)
  assert.ok(performance.now() - begin < 8000 * patience, `${performance.now() - begin} ms`)
  await server.start()
  events.close()
})
