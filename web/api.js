// Requests to the APIs in the name of whoever is signed in. The cookie counts only with the header below, which
// pages of other origins cannot send.
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message)
    this.status = status
    this.code = code
  }
}

let signedOut = () => {}
export const onSignedOut = (handler) => (signedOut = handler)

const AWAY = 'The server does not answer. Trying again.'

export async function request(path, { method = 'GET', body, headers = {}, signal, quiet = false } = {}) {
  const plain = body === undefined || typeof body === 'string' || body instanceof Blob || body instanceof ArrayBuffer || ArrayBuffer.isView(body)
  let answer
  try {
    answer = await fetch(path, {
      method,
      signal,
      credentials: 'same-origin',
      headers: { 'X-Quicksand-Page': '1', ...(plain ? {} : { 'Content-Type': 'application/json' }), ...headers },
      body: plain ? body : JSON.stringify(body),
    })
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new ApiError(0, AWAY)
  }
  if (answer.ok) return answer
  const said = await answer.json().catch(() => null)
  if (answer.status === 401 && !quiet) signedOut()
  throw new ApiError(answer.status, said?.error?.message ?? said?.message ?? `The server answered with status ${answer.status}.`, said?.error?.code)
}

export async function ask(path, options) {
  const answer = await request(path, options)
  const text = await answer.text()
  return text ? JSON.parse(text) : null
}

export const v1 = (path, options) => ask(`/api/v1${path}`, options)
export const post = (path, body = {}, options) => ask(path, { method: 'POST', body, ...options })
export const remove = (path, options) => ask(path, { method: 'DELETE', ...options })
export const enc = encodeURIComponent

export const signin = (key) => v1('/signin', { method: 'POST', headers: { 'X-API-Key': key }, quiet: true })
export const redeem = (link) => v1('/signin/redeem', { method: 'POST', headers: { 'X-Signin-Link': link }, quiet: true })
export const whoami = () => v1('/signin', { quiet: true })
export const signout = () => v1('/signin', { method: 'DELETE', quiet: true })

// Server-sent events by fetch, so that they carry the header; handler gets {id, data}. Resolves when the server ends it.
export async function stream(path, handler, { signal } = {}) {
  const answer = await request(path, { headers: { Accept: 'text/event-stream' }, signal })
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    const parts = (rest + value).split('\n\n')
    rest = parts.pop()
    for (const part of parts) {
      const lines = part.split('\n')
      const data = lines.filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n')
      if (data) handler({ id: /^id: (\d+)$/m.exec(part)?.[1], event: /^event: (.+)$/m.exec(part)?.[1], data: JSON.parse(data) })
    }
  }
}

// Posts, and hands each line of the answer (newline-delimited JSON) to the handler as it comes.
export async function lines(path, body, handler, { signal } = {}) {
  const answer = await request(path, { method: 'POST', body, signal, headers: { Accept: 'application/x-ndjson' } })
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  for (;;) {
    const { done, value } = await reader.read()
    const parts = (rest + (value ?? (done ? '\n' : ''))).split('\n')
    rest = parts.pop()
    for (const part of parts) if (part.trim()) handler(JSON.parse(part))
    if (done) return
  }
}

export const text = async (path) => (await request(path)).text()
