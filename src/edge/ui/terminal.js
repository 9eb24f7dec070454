// A terminal of ?sandbox=ID or ?session=ID. The PTY's id is kept for the tab: a reload, or a connection
// that broke, comes back to the same shell.
'use strict'

const query = new URLSearchParams(location.search)
const kind = query.get('session') ? 'sessions' : 'sandboxes'
const id = query.get('session') ?? query.get('sandbox') ?? ''
const slot = `quicksand.terminal.${kind}.${id}`
const status = document.getElementById('status')

document.getElementById('name').textContent = id
document.title = id ? `${id} – terminal` : 'terminal'

const terminal = new Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, theme: { background: '#111111' } })
const fit = new FitAddon.FitAddon()
terminal.loadAddon(fit)
terminal.open(document.getElementById('terminal'))
fit.fit()

let socket = null
let tries = 0
let returning = false // to a shell that may be gone by now

function say(text) {
  status.textContent = text
}

function send(data) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(data)
}

function resize() {
  send(JSON.stringify({ type: 'resize', cols: terminal.cols, rows: terminal.rows }))
}

function onMessage(event) {
  if (typeof event.data !== 'string') {
    terminal.write(new Uint8Array(event.data))
    return
  }
  const message = JSON.parse(event.data)
  if (message.type !== 'ready') return
  sessionStorage.setItem(slot, message.terminal_id)
  returning = false
  tries = 0
  say('connected')
  resize()
  terminal.focus()
}

function onClose(event) {
  socket = null
  if (event.code === 1000) {
    sessionStorage.removeItem(slot)
    say(`ended: ${event.reason || 'closed'}`)
  } else if (event.code === 1011 && returning) {
    sessionStorage.removeItem(slot)
    terminal.writeln('\r\n[the shell has ended; this is a new one]')
    connect()
  } else if (event.code === 1011) {
    sessionStorage.removeItem(slot)
    say(`failed: ${event.reason}`)
  } else if (++tries > 5) {
    say('lost; reload to try again')
  } else {
    say(`lost; trying again (${tries})`)
    setTimeout(connect, Math.min(500 * 2 ** tries, 8000))
  }
}

async function connect() {
  const key = await quicksand.key()
  const url = new URL(`/api/v1/${kind}/${encodeURIComponent(id)}/terminal`, location.href)
  const known = sessionStorage.getItem(slot)
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:'
  url.searchParams.set('cols', terminal.cols)
  url.searchParams.set('rows', terminal.rows)
  if (known) url.searchParams.set('terminal_id', known)
  returning = known !== null
  say('connecting')
  socket = new WebSocket(url, quicksand.protocols(key))
  socket.binaryType = 'arraybuffer'
  socket.onmessage = onMessage
  socket.onclose = onClose
}

terminal.onData((data) => send(JSON.stringify({ type: 'input', data })))
terminal.onBinary((data) => send(Uint8Array.from(data, (one) => one.charCodeAt(0))))
terminal.onResize(resize)
new ResizeObserver(() => fit.fit()).observe(document.getElementById('terminal'))

async function start() {
  if (!id) return say('name one: /ui/terminal?sandbox=ID')
  try {
    await quicksand.api(`/${kind}/${encodeURIComponent(id)}`) // says clearly what a WebSocket cannot
    await connect()
  } catch (error) {
    say(error.message)
  }
}

start()
