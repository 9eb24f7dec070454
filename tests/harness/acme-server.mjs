// An authority that speaks ACME (RFC 8555), small and strict: it checks every signature, nonce and URL, and looks at challenges
// as it is told to. Not for anything but tests.
import { execFileSync } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'

const b64 = (bytes) => Buffer.from(bytes).toString('base64url')
const json = (text) => JSON.parse(Buffer.from(text, 'base64url').toString())

// look(type, domain, token): what is found there, or undefined.
export async function startAuthority(folder, look) {
  const openssl = (...args) => execFileSync('openssl', args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '5', '-subj', '/CN=test authority', '-keyout', 'authority.key', '-out', 'authority.pem')
  const state = { nonces: new Set(), accounts: [], orders: [], authorizations: [], seen: [], badNonces: 1, badNonce: 0, days: 90 }
  let url
  const nonce = () => {
    const value = b64(crypto.randomBytes(12))
    state.nonces.add(value)
    return value
  }
  const problem = (status, type, detail) => ({ status, body: { type: `urn:ietf:params:acme:error:${type}`, detail } })
  const thumbprint = (jwk) => b64(crypto.createHash('sha256').update(JSON.stringify({ crv: jwk.crv, kty: jwk.kty, x: jwk.x, y: jwk.y })).digest())

  // The account and payload of a request, or a problem.
  function open(request, text) {
    const jws = JSON.parse(text)
    const head = json(jws.protected)
    if (request.headers['content-type'] !== 'application/jose+json') return problem(415, 'malformed', 'content type')
    if (head.url !== url + request.url) return problem(400, 'unauthorized', 'url')
    if (!state.nonces.delete(head.nonce) || state.badNonces-- > 0) return (state.badNonce++, problem(400, 'badNonce', 'another one, please'))
    const account = head.kid ? state.accounts.find((one) => one.url === head.kid) : undefined
    const jwk = head.jwk ?? account?.jwk
    if (!jwk || (head.jwk && head.kid)) return problem(400, 'malformed', 'jwk or kid')
    const key = crypto.createPublicKey({ key: jwk, format: 'jwk' })
    const good = crypto.verify('sha256', Buffer.from(`${jws.protected}.${jws.payload}`), { key, dsaEncoding: 'ieee-p1363' }, Buffer.from(jws.signature, 'base64url'))
    if (!good) return problem(400, 'unauthorized', 'signature')
    return { jwk, account, payload: jws.payload === '' ? null : json(jws.payload) }
  }

  const show = {
    order: (order) => ({ status: order.status, identifiers: order.identifiers, authorizations: order.authorizations.map((one) => one.url), finalize: `${order.url}/finalize`, ...(order.certificate && { certificate: `${order.url}/certificate` }) }),
    authorization: (one) => ({ status: one.status, identifier: { type: 'dns', value: one.domain }, wildcard: one.wildcard || undefined, challenges: one.challenges }),
  }

  function issue(order, csr) {
    const name = `order${order.number}`
    fs.writeFileSync(path.join(folder, `${name}.der`), Buffer.from(csr, 'base64url'))
    openssl('req', '-inform', 'DER', '-in', `${name}.der`, '-out', `${name}.csr`, '-verify')
    const asked = [...openssl('req', '-in', `${name}.csr`, '-noout', '-text').toString().matchAll(/DNS:([^,\s]+)/g)].map((one) => one[1]).sort()
    if (asked.join() !== order.identifiers.map((one) => one.value).sort().join()) return problem(400, 'badCSR', asked.join())
    fs.writeFileSync(path.join(folder, `${name}.ext`), `subjectAltName=${asked.map((one) => `DNS:${one}`).join()}\n`)
    openssl('x509', '-req', '-in', `${name}.csr`, '-CA', 'authority.pem', '-CAkey', 'authority.key', '-CAcreateserial', '-days', String(state.days), '-extfile', `${name}.ext`, '-out', `${name}.pem`)
    order.certificate = fs.readFileSync(path.join(folder, `${name}.pem`), 'utf8') + fs.readFileSync(path.join(folder, 'authority.pem'), 'utf8')
    order.status = 'processing'
    setTimeout(() => (order.status = 'valid'), 300)
  }

  async function validate(one, challenge, jwk) {
    one.status = 'pending'
    const wanted = `${challenge.token}.${thumbprint(jwk)}`
    const found = await look(challenge.type, one.domain, challenge.token)
    const good = challenge.type === 'dns-01' ? found === b64(crypto.createHash('sha256').update(wanted).digest()) : found === wanted
    state.seen.push([challenge.type, one.domain, good])
    one.status = good ? 'valid' : 'invalid'
    challenge.status = one.status
    if (!good) challenge.error = { type: 'urn:ietf:params:acme:error:unauthorized', detail: `found ${found} there` }
  }

  const posts = [
    [/^\/account$/, (_, { jwk, payload }) => {
      if (!payload.termsOfServiceAgreed) return problem(403, 'userActionRequired', 'terms')
      let account = state.accounts.find((one) => thumbprint(one.jwk) === thumbprint(jwk))
      if (!account) state.accounts.push((account = { url: `${url}/account/${state.accounts.length}`, jwk, contact: payload.contact }))
      return { status: 201, location: account.url, body: { status: 'valid' } }
    }],
    [/^\/order$/, (_, { payload }) => {
      const number = state.orders.length
      const order = { number, url: `${url}/order/${number}`, status: 'pending', identifiers: payload.identifiers }
      order.authorizations = payload.identifiers.map(({ value }) => {
        const domain = value.replace(/^\*\./, ''), wildcard = domain !== value
        const at = `${url}/authorization/${state.authorizations.length}`
        const types = wildcard ? ['dns-01'] : ['http-01', 'dns-01']
        const one = { url: at, domain, wildcard, status: 'pending', challenges: types.map((type) => ({ type, url: `${at}/${type}`, token: b64(crypto.randomBytes(16)), status: 'pending' })) }
        state.authorizations.push(one)
        return one
      })
      state.orders.push(order)
      return { status: 201, location: order.url, body: show.order(order) }
    }],
    [/^\/authorization\/(\d+)$/, ([, n]) => ({ status: 200, body: show.authorization(state.authorizations[n]) })],
    [/^\/authorization\/(\d+)\/([a-z0-9-]+)$/, ([, n, type], { account }) => {
      const one = state.authorizations[n], challenge = one.challenges.find((c) => c.type === type)
      void validate(one, challenge, account.jwk)
      return { status: 200, body: challenge }
    }],
    [/^\/order\/(\d+)$/, ([, n]) => ({ status: 200, body: show.order(state.orders[n]) })],
    [/^\/order\/(\d+)\/finalize$/, ([, n], { payload }) => {
      const order = state.orders[n]
      if (order.authorizations.some((one) => one.status !== 'valid')) return problem(403, 'orderNotReady', 'not yet')
      return issue(order, payload.csr) ?? { status: 200, location: order.url, body: show.order(order) }
    }],
    [/^\/order\/(\d+)\/certificate$/, ([, n]) => ({ status: 200, text: state.orders[n].certificate })],
  ]

  const server = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      response.setHeader('Replay-Nonce', nonce())
      const send = ({ status, body, location, text: plain }) => {
        if (location) response.setHeader('Location', location)
        response.setHeader('Content-Type', plain ? 'application/pem-certificate-chain' : status < 400 ? 'application/json' : 'application/problem+json')
        response.writeHead(status).end(plain ?? JSON.stringify(body))
      }
      if (request.url === '/directory') return send({ status: 200, body: { newNonce: `${url}/nonce`, newAccount: `${url}/account`, newOrder: `${url}/order` } })
      if (request.url === '/nonce') return response.writeHead(200).end()
      const found = posts.find(([pattern]) => pattern.test(request.url))
      if (request.method !== 'POST' || !found) return send(problem(404, 'malformed', 'no such place'))
      const opened = open(request, text)
      send(opened.status ? opened : found[1](found[0].exec(request.url), opened))
    })
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  url = `http://127.0.0.1:${server.address().port}`
  return { url: `${url}/directory`, state, close: () => (server.closeAllConnections(), server.close()) }
}
