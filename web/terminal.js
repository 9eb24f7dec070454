// A terminal of a sandbox or session. The PTY's id is kept for the tab: a reload, or a connection that broke, comes
// back to the same shell. Loaded when the first terminal is opened.
import { FitAddon } from '@xterm/addon-fit'
import { Terminal } from '@xterm/xterm'

// xterm writes its colours into style elements, which the page's policy forbids; sheets made by code are allowed.
function allowStyles(root) {
  const make = root.createElement
  root.createElement = function (name, ...rest) {
    if (String(name).toLowerCase() !== 'style') return make.call(root, name, ...rest)
    const element = make.call(root, 'template') // stands where the style element would
    const sheet = new CSSStyleSheet()
    root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet]
    Object.defineProperty(element, 'textContent', { set: (text) => sheet.replaceSync(text), get: () => '' })
    element.remove = () => (root.adoptedStyleSheets = root.adoptedStyleSheets.filter((one) => one !== sheet))
    return element
  }
  return () => delete root.createElement
}

// kind: 'sandboxes' or 'sessions'. say(text) tells how it goes. Gives a function that ends it.
export function openTerminal(place, kind, id, { user = '', say }) {
  const slot = `quicksand.terminal.${kind}.${id}.${user}`
  const back = allowStyles(document)
  const terminal = new Terminal({
    cursorBlink: true, fontSize: 13, scrollback: 5000, fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace',
    theme: { background: '#101214', foreground: '#e6e3dc', cursor: '#e0a44a', selectionBackground: '#e0a44a55' },
  })
  const fit = new FitAddon()
  terminal.loadAddon(fit)
  terminal.open(place)
  fit.fit()
  let socket = null
  let tries = 0
  let returning = false // to a shell that may be gone by now
  let joined = false // to a shell, since the last connect()
  let over = false
  let timer = null

  const send = (data) => socket?.readyState === WebSocket.OPEN && socket.send(data)
  const resize = () => send(JSON.stringify({ type: 'resize', cols: terminal.cols, rows: terminal.rows }))

  function onMessage(event) {
    if (typeof event.data !== 'string') return terminal.write(new Uint8Array(event.data))
    const message = JSON.parse(event.data)
    if (message.type !== 'ready') return
    sessionStorage.setItem(slot, message.terminal_id)
    returning = false
    joined = true
    tries = 0
    say('connected')
    resize()
    terminal.focus()
  }

  function onClose(event) {
    socket = null
    if (over) return
    if (event.code === 1000) {
      sessionStorage.removeItem(slot)
      say(`ended: ${event.reason || 'closed'}`)
    } else if (event.code === 1011 && !joined) {
      sessionStorage.removeItem(slot)
      if (!returning) return say(`failed: ${event.reason}`)
      terminal.writeln('\r\n[the shell has ended or cannot be found again; this is a new one]')
      connect()
    } else {
      say('lost; trying again')
      timer = setTimeout(connect, Math.min(500 * 2 ** ++tries, 8000))
    }
  }

  function connect() {
    const url = new URL(`/api/v1/${kind}/${encodeURIComponent(id)}/terminal`, location.href)
    const known = sessionStorage.getItem(slot)
    url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:'
    url.searchParams.set('cols', terminal.cols)
    url.searchParams.set('rows', terminal.rows)
    if (user) url.searchParams.set('user', user)
    if (known) url.searchParams.set('terminal_id', known)
    returning = known !== null
    joined = false
    if (!tries) say('connecting')
    socket = new WebSocket(url)
    socket.binaryType = 'arraybuffer'
    socket.onmessage = onMessage
    socket.onclose = onClose
  }

  terminal.onData((data) => send(JSON.stringify({ type: 'input', data })))
  terminal.onBinary((data) => send(Uint8Array.from(data, (one) => one.charCodeAt(0))))
  terminal.onResize(resize)
  const watcher = new ResizeObserver(() => fit.fit())
  watcher.observe(place)
  connect()
  return () => {
    over = true
    clearTimeout(timer)
    watcher.disconnect()
    socket?.close()
    terminal.dispose()
    back()
  }
}
