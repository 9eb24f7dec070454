// A provider that fails as it is told: an HTTP proxy in front of a server, which counts what it is asked.
//
//   const faults = await startFaults(server.url)
//   faults.next('POST', /^\/sandboxes$/, answer(503))          the next such request; a fourth argument: how many
//   faults.count('POST', /^\/sandboxes$/)                      how many came since faults.forget()
import http from 'node:http'

// What a rule may do instead of passing the request on.
export const answer = (status, body = '', headers = {}) => (request, response) => {
  request.resume()
  response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body))
}
export const hang = (request) => request.resume()
export const drop = (request) => request.socket.destroy()
// Passed on, but the answer ends in the middle: without its last chunk once `text` has come.
export const cutAfter = (text) => (request, response, pass) =>
  pass((chunk) => response.write(chunk, () => chunk.includes(text) && response.destroy()))

export async function startFaults(target) {
  const faults = { requests: [], rules: [], target: new URL(target) }
  const server = http.createServer((request, response) => {
    const path = request.url.split('?')[0]
    faults.requests.push({ method: request.method, path, url: request.url, headers: request.headers, at: performance.now() })
    request.on('error', () => {})
    response.on('error', () => {})
    const pass = (onChunk) => {
      const { hostname, port } = faults.target
      const onward = http.request({ hostname, port, method: request.method, path: request.url, headers: request.headers, agent: false }, (from) => {
        response.writeHead(from.statusCode, from.headers)
        if (typeof onChunk !== 'function') return from.pipe(response)
        from.on('data', onChunk)
        from.on('end', () => response.end())
      })
      onward.on('error', () => response.destroy())
      response.on('close', () => onward.destroy())
      request.pipe(onward)
    }
    const rule = faults.rules.find((one) => one.left > 0 && (!one.method || one.method === request.method) && one.path.test(path))
    if (!rule) return pass()
    rule.left--
    rule.act(request, response, pass)
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  faults.url = `http://127.0.0.1:${server.address().port}`
  faults.next = (method, path, act, times = 1) => faults.rules.push({ method, path, act, left: times })
  faults.forget = () => {
    faults.requests = []
    faults.rules = []
  }
  faults.count = (method, path) => faults.requests.filter((one) => (!method || one.method === method) && (!path || path.test(one.path))).length
  faults.close = () => {
    server.closeAllConnections()
    return new Promise((done) => server.close(done))
  }
  return faults
}
