// The fake internet of lab.sh: an HTTP server and a DNS responder on every address of their namespace.
//
// HTTP answers with what it saw as JSON ({peer, host, url}); /bytes?n=N sends N bytes. DNS knows the names
// below and says NXDOMAIN to others.
import dgram from 'node:dgram'
import http from 'node:http'
import net from 'node:net'

const names = { 'web.test': '203.0.113.1', 'inside.test': '10.9.9.9', 'metadata.test': '169.254.169.254' }

function serveHttp() {
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://world')
    if (url.pathname === '/bytes') {
      response.end(Buffer.alloc(Number(url.searchParams.get('n'))))
      return
    }
    const seen = { peer: request.socket.remoteAddress.replace('::ffff:', ''), host: request.headers.host, url: request.url }
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify(seen))
  })
  return new Promise((done) => server.listen(80, '0.0.0.0', done))
}

function answer(query) {
  let at = 12
  const labels = []
  while (at < query.length && query[at] !== 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + query[at]))
    at += query[at] + 1
  }
  const question = query.subarray(12, at + 5)
  const type = query.readUInt16BE(at + 1)
  const address = names[labels.join('.').toLowerCase()]
  const header = Buffer.from(query.subarray(0, 12))
  header.writeUInt16BE(0x8180 | (address ? 0 : 3), 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(address && type === 1 ? 1 : 0, 6)
  header.writeUInt32BE(0, 8)
  const parts = [header, question]
  if (address && type === 1) {
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split('.').map(Number)])
    parts.push(record)
  }
  return Buffer.concat(parts)
}

// One UDP socket per address: answers must leave from the address that was asked.
function serveDns(address) {
  const udp = dgram.createSocket('udp4')
  udp.on('message', (query, peer) => udp.send(answer(query), peer.port, peer.address))
  const tcp = net.createServer((socket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      const reply = answer(data.subarray(2))
      const length = Buffer.alloc(2)
      length.writeUInt16BE(reply.length)
      socket.end(Buffer.concat([length, reply]))
    })
  })
  return Promise.all([
    new Promise((done) => udp.bind(53, address, done)),
    new Promise((done) => tcp.listen(53, address, done)),
  ])
}

await serveHttp()
await Promise.all(['203.0.113.53', '203.0.113.1', '10.9.9.9'].map(serveDns))
console.log('ready')
