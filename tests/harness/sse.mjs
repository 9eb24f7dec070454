// Server-sent events: const stream = await openEvents(server, '/api/v1/events'); await stream.find((one) => …)
import http from 'node:http'
import { eventually } from './server.mjs'

function parse(block) {
  const event = { data: '' }
  for (const line of block.split('\n')) {
    const [, name, value] = /^([a-z]*): ?(.*)$/.exec(line) ?? []
    if (name === 'data') event.data += event.data ? `\n${value}` : value
    else if (name) event[name] = value
    else if (line.startsWith(':')) event.comment = line.slice(1)
  }
  if (event.data) event.json = JSON.parse(event.data)
  return event
}

export function openEvents(server, path, { key = server.key, headers = {} } = {}) {
  return new Promise((done, fail) => {
    const request = http.get({ host: server.host, port: server.port, path, agent: false, headers: { 'X-API-KEY': key, Accept: 'text/event-stream', ...headers } }, (response) => {
      const stream = { status: response.statusCode, headers: response.headers, all: [], events: [], ended: false, close: () => request.destroy() }
      let rest = ''
      response.setEncoding('utf8')
      response.on('data', (chunk) => {
        const blocks = (rest + chunk).split('\n\n')
        rest = blocks.pop()
        for (const event of blocks.map(parse)) {
          stream.all.push({ ...event, at: performance.now() })
          if (event.json) stream.events.push({ ...event, at: performance.now() })
        }
      })
      response.on('end', () => (stream.ended = true))
      response.on('error', () => (stream.ended = true))
      stream.find = (check, what = 'an event', limitMs = 10_000) => eventually(what, () => stream.events.find(check), limitMs)
      done(stream)
    })
    request.on('error', fail)
  })
}
