// A page of a browser as it changes, and what hands do to it, by the browser's own protocol over one WebSocket. The next picture
// is asked for when the last one was drawn, and none while nobody can see it.

const BUTTONS = ['left', 'middle', 'right']
const modifiers = (event) => (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0)
const CAST = { format: 'jpeg', quality: 70, maxWidth: 1920, maxHeight: 1200, everyNthFrame: 1 }

const bytesOf = (base64) => Uint8Array.from(atob(base64), (one) => one.charCodeAt(0))
const drawn = () => new Promise((done) => requestAnimationFrame(done))

// onSize({width, height}) comes with the first picture and when it changes, onEnd() once, when there will be no more of them.
export function openScreencast(canvas, path, { onSize, onEnd }) {
  const url = new URL(path, location.href)
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:'
  const socket = new WebSocket(url)
  const paint = canvas.getContext('2d')
  const waiting = new Map()
  let number = 0
  let target = null
  let session = null
  let size = { width: 0, height: 0 }

  const call = (method, params = {}, sessionId) =>
    new Promise((resolve, reject) => {
      if (socket.readyState !== WebSocket.OPEN) return reject(new Error('The browser has gone.'))
      waiting.set(++number, { resolve, reject })
      socket.send(JSON.stringify({ id: number, method, params, sessionId }))
    })
  const page = (method, params) => (session ? call(method, params, session).catch(() => {}) : Promise.resolve())

  async function watch(id) {
    target = id
    session = (await call('Target.attachToTarget', { targetId: id, flatten: true })).sessionId
    await page('Page.enable')
    if (!document.hidden) await page('Page.startScreencast', CAST)
  }

  // The page that is watched, or the first one when that is gone.
  async function choose() {
    const { targetInfos } = await call('Target.getTargets')
    const pages = targetInfos.filter((one) => one.type === 'page')
    if (pages.some((one) => one.targetId === target)) return
    session = null
    if (pages.length) await watch(pages[0].targetId)
  }

  async function show({ data, metadata, sessionId }) {
    const from = session
    const picture = await createImageBitmap(new Blob([bytesOf(data)], { type: 'image/jpeg' })).catch(() => null)
    if (picture) {
      if (canvas.width !== picture.width || canvas.height !== picture.height) [canvas.width, canvas.height] = [picture.width, picture.height]
      paint.drawImage(picture, 0, 0)
      picture.close()
      canvas.dataset.pictures = Number(canvas.dataset.pictures ?? 0) + 1
      if (size.width !== metadata.deviceWidth || size.height !== metadata.deviceHeight) {
        size = { width: metadata.deviceWidth, height: metadata.deviceHeight }
        onSize(size)
      }
    }
    if (!document.hidden) await drawn()
    call('Page.screencastFrameAck', { sessionId }, from).catch(() => {})
  }

  let choosing = Promise.resolve() // one after the other
  const again = () => (choosing = choosing.then(choose).catch(() => {}))

  function receive(message) {
    const asked = waiting.get(message.id)
    if (asked) {
      waiting.delete(message.id)
      return message.error ? asked.reject(new Error(message.error.message)) : asked.resolve(message.result)
    }
    if (message.method === 'Page.screencastFrame' && message.sessionId === session) show(message.params)
    else if (/^Target\.target(Created|Destroyed|Crashed)$/.test(message.method ?? '')) again()
  }

  const seen = () => page(document.hidden ? 'Page.stopScreencast' : 'Page.startScreencast', document.hidden ? {} : CAST)
  document.addEventListener('visibilitychange', seen)
  socket.onmessage = (event) => receive(JSON.parse(event.data))
  socket.onopen = () => call('Target.setDiscoverTargets', { discover: true }).then(again).catch(() => {})
  socket.onclose = () => {
    document.removeEventListener('visibilitychange', seen)
    for (const one of waiting.values()) one.reject(new Error('The browser has gone.'))
    waiting.clear()
    onEnd()
  }

  const place = (event) => {
    const area = canvas.getBoundingClientRect()
    return { x: ((event.clientX - area.left) * size.width) / area.width, y: ((event.clientY - area.top) * size.height) / area.height, modifiers: modifiers(event) }
  }
  return {
    navigate: (url) => page('Page.navigate', { url }),
    mouse: (type, event) =>
      page('Input.dispatchMouseEvent', { type, ...place(event), button: type === 'mouseMoved' ? (event.buttons & 1 ? 'left' : 'none') : BUTTONS[event.button] ?? 'none', clickCount: type === 'mouseMoved' ? 0 : event.detail || 1 }),
    wheel: (event) => page('Input.dispatchMouseEvent', { type: 'mouseWheel', ...place(event), deltaX: event.deltaX, deltaY: event.deltaY }),
    key: (type, event) => {
      const text = type === 'keyDown' ? (event.key.length === 1 ? event.key : event.key === 'Enter' ? '\r' : undefined) : undefined
      page('Input.dispatchKeyEvent', { type: text === undefined && type === 'keyDown' ? 'rawKeyDown' : type, key: event.key, code: event.code, windowsVirtualKeyCode: event.keyCode, text, modifiers: modifiers(event) })
    },
    close: () => socket.close(),
  }
}
