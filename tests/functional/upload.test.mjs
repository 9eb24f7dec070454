// Bodies without a length go to a file first: memory stays flat, and a client that leaves leaves nothing. (A full disk: disk.test.mjs.)
import assert from 'node:assert/strict'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import { after, afterEach, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'

let server, box
before(async () => {
  server = await startServer()
  box = (await server.api('POST', '/api/v1/sandboxes', {})).body
})
after(async () => {
  await server.api('DELETE', `/api/v1/sandboxes/${box.id}`)
  await server.destroy()
})
afterEach(() => assert.ok(server.alive(), `the server died:\n${server.tail()}`))

const target = (path) => `/api/v1/sandboxes/${box.id}/files?path=${path}`
const chunk = Buffer.alloc(1_000_000, 'quicksand\n')

// PUT in chunks; resolves with status and text.
function put(path, pieces) {
  return new Promise((done, fail) => {
    const request = http.request({ host: server.host, port: server.port, method: 'PUT', path: target(path), headers: { 'X-API-KEY': server.key, 'Transfer-Encoding': 'chunked' } }, (response) => {
      let text = ''
      response.on('data', (piece) => (text += piece))
      response.on('end', () => done({ status: response.statusCode, text }))
    })
    request.setTimeout(120_000 * patience, () => request.destroy(new Error('no answer')))
    request.on('error', fail)
    let left = pieces
    const more = () => {
      while (left-- > 0) if (!request.write(chunk)) return void request.once('drain', more)
      request.end()
    }
    more()
  })
}

const status = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(fs.readFileSync(`/proc/${server.servingPid}/status`, 'utf8'))[1])

// Files without a name that the server has open in its store, and where one of them is.
function unnamed() {
  const dir = `/proc/${server.servingPid}/fd`
  return fs.readdirSync(dir).map((fd) => {
    try {
      return fs.readlinkSync(`${dir}/${fd}`)
    } catch {
      return ''
    }
  }).filter((link) => /\/store\/#\d+ \(deleted\)$/.test(link))
}

test('200 MB in chunks: the file is whole and the server keeps its size', { timeout: 300_000 * patience }, async () => {
  assert.equal((await put('/tmp/warm', 1)).status, 200)
  const before = status('VmHWM')
  const answer = await put('/tmp/large', 200)
  assert.equal(answer.status, 200, answer.text)
  assert.equal(JSON.parse(answer.text).size, 200 * chunk.length)
  assert.ok(status('VmHWM') - before < 16 * 1024, `${before} kB before, ${status('VmHWM')} kB at most`)
  const sum = await server.api('POST', `/api/v1/sandboxes/${box.id}/execute`, { command: 'md5sum < /tmp/large; yes quicksand | head -c 200000000 | md5sum' })
  const [got, want] = sum.body.stdout.trim().split('\n')
  assert.equal(got, want)
  await eventually('its file has gone', () => unnamed().length === 0)
})

test('a client that leaves in the middle leaves nothing', async () => {
  const socket = net.connect(server.port, server.host)
  socket.on('error', () => {})
  socket.write(`PUT ${target('/tmp/half')} HTTP/1.1\r\nHost: x\r\nX-API-KEY: ${server.key}\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n`)
  socket.write(chunk.subarray(0, 500_000))
  await eventually('a file', () => unnamed().length === 1)
  socket.destroy()
  await eventually('none', () => unnamed().length === 0)
  assert.equal((await server.api('GET', target('/tmp/half'))).status, 404)
})
