// The live view of a browser session: pictures of a page as it changes, and what mouse and keyboard do to it. The link has all that it
// needs behind its '#': session, until when, signature, perhaps a page.
'use strict'
const given = new URLSearchParams(location.hash.slice(1))
const by = (id) => document.getElementById(id)
const canvas = by('screen')
const paint = canvas.getContext('2d')
let socket, session, target, size = { width: 1, height: 1 }
let number = 0
const waiting = new Map()

function say(text) {
  by('status').textContent = text
}

function call(method, params = {}, sessionId) {
  return new Promise((resolve, reject) => {
    waiting.set(++number, { resolve, reject })
    socket.send(JSON.stringify({ id: number, method, params, sessionId }))
  })
}

const page = (method, params) => (session ? call(method, params, session).catch((err) => say(err.message)) : Promise.resolve())

async function list() {
  const { targetInfos } = await call('Target.getTargets')
  const pages = targetInfos.filter((info) => info.type === 'page')
  by('pages').replaceChildren(...pages.map((info) => new Option(info.title || info.url, info.targetId, false, info.targetId === target)))
  const shown = pages.find((info) => info.targetId === target)
  if (shown && document.activeElement !== by('address')) by('address').value = shown.url
  if (shown) document.title = shown.title || shown.url
  return pages
}

async function watch(id) {
  const before = session
  target = id
  session = (await call('Target.attachToTarget', { targetId: id, flatten: true })).sessionId
  if (before) call('Target.detachFromTarget', { sessionId: before }).catch(() => {})
  await page('Page.enable')
  await page('Page.startScreencast', { format: 'jpeg', quality: 70, maxWidth: 1920, maxHeight: 1200, everyNthFrame: 1 })
  say('live')
  await list()
}

async function show(params) {
  const picture = new Image()
  picture.src = `data:image/jpeg;base64,${params.data}`
  await picture.decode().catch(() => {})
  if (canvas.width !== picture.width || canvas.height !== picture.height) [canvas.width, canvas.height] = [picture.width, picture.height]
  paint.drawImage(picture, 0, 0)
  size = { width: params.metadata.deviceWidth, height: params.metadata.deviceHeight }
  page('Page.screencastFrameAck', { sessionId: params.sessionId })
}

async function choose() {
  const pages = await list()
  if (pages.some((info) => info.targetId === target)) return
  session = undefined
  if (pages.length) await watch(pages.some((info) => info.targetId === given.get('page')) ? given.get('page') : pages[0].targetId)
  else say('no page is open')
}

function receive(message) {
  const wanted = waiting.get(message.id)
  if (wanted) {
    waiting.delete(message.id)
    return message.error ? wanted.reject(new Error(message.error.message)) : wanted.resolve(message.result)
  }
  if (message.method === 'Page.screencastFrame' && message.sessionId === session) show(message.params)
  else if (/^Target\.target(Created|Destroyed|InfoChanged)$/.test(message.method ?? '')) choose().catch((err) => say(err.message))
}

// ---- what hands do ----

const buttons = ['left', 'middle', 'right']
const modifiers = (event) => (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0)

function place(event) {
  const area = canvas.getBoundingClientRect()
  return { x: ((event.clientX - area.left) * size.width) / area.width, y: ((event.clientY - area.top) * size.height) / area.height, modifiers: modifiers(event) }
}

function mouse(type, event) {
  const button = type === 'mouseMoved' ? (event.buttons & 1 ? 'left' : 'none') : (buttons[event.button] ?? 'none')
  page('Input.dispatchMouseEvent', { type, ...place(event), button, clickCount: type === 'mouseMoved' ? 0 : event.detail || 1 })
  event.preventDefault()
}

function key(type, event) {
  const text = type === 'keyDown' && !event.ctrlKey && !event.metaKey ? (event.key.length === 1 ? event.key : event.key === 'Enter' ? '\r' : undefined) : undefined
  page('Input.dispatchKeyEvent', { type: text === undefined && type === 'keyDown' ? 'rawKeyDown' : type, key: event.key, code: event.code, windowsVirtualKeyCode: event.keyCode, text, modifiers: modifiers(event) })
  event.preventDefault()
}

canvas.addEventListener('mousedown', (event) => { canvas.focus(); mouse('mousePressed', event) })
canvas.addEventListener('mouseup', (event) => mouse('mouseReleased', event))
canvas.addEventListener('mousemove', (event) => mouse('mouseMoved', event))
canvas.addEventListener('contextmenu', (event) => event.preventDefault())
canvas.addEventListener('wheel', (event) => { page('Input.dispatchMouseEvent', { type: 'mouseWheel', ...place(event), deltaX: event.deltaX, deltaY: event.deltaY }); event.preventDefault() }, { passive: false })
canvas.addEventListener('keydown', (event) => key('keyDown', event))
canvas.addEventListener('keyup', (event) => key('keyUp', event))
by('pages').addEventListener('change', () => watch(by('pages').value).catch((err) => say(err.message)))
by('address').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter') return
  const url = by('address').value
  page('Page.navigate', { url: /^[a-z]+:/i.test(url) ? url : `https://${url}` })
  canvas.focus()
})

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws'
  const query = new URLSearchParams({ until: given.get('until') ?? '', signingKey: given.get('key') ?? '' })
  socket = new WebSocket(`${scheme}://${location.host}/v1/connect/${encodeURIComponent(given.get('session') ?? '')}?${query}`)
  socket.onmessage = (event) => receive(JSON.parse(event.data))
  socket.onclose = () => say('the session is over, or the link is')
  socket.onopen = () => call('Target.setDiscoverTargets', { discover: true }).then(choose).catch((err) => say(err.message))
}
connect()
