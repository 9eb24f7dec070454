// The screen of a sandbox: its desktop, or its browser's page, with mouse and keyboard. A browser's page is live; a desktop, and a
// browser where that fails, is a picture that is taken again every second while the page is visible. A desktop can also be streamed
// by noVNC, which the sandbox serves.
import { useEffect, useRef, useState } from 'preact/hooks'
import { enc, post, request, v1 } from '../api.js'
import { Button, Card, Empty, Loading, Problem, attempt } from '../parts.jsx'
import { openScreencast } from '../screencast.js'

const AGAIN_MS = 1000
const USED_MS = 30_000
const LIVE_AGAIN_MS = 5000
const CDP_PORT = 9222
const VNC_PORT = 6080
// Names of X for keys that are not letters; those of the browser's page are the same as here.
const KEYS = { Enter: 'Return', Backspace: 'BackSpace', Tab: 'Tab', Escape: 'Escape', Delete: 'Delete', ArrowUp: 'Up', ArrowDown: 'Down', ArrowLeft: 'Left', ArrowRight: 'Right', Home: 'Home', End: 'End', PageUp: 'Page_Up', PageDown: 'Page_Down' }

// Which kind it has: of the two, the one that gives a picture.
async function findKind(path) {
  let why = null
  for (const kind of ['desktop', 'browser']) {
    try {
      const picture = await (await request(`${path}/${kind}/screenshot`)).blob()
      return { kind, picture }
    } catch (error) {
      if (error.status !== 409 && error.status !== 404) throw error
      why = error
    }
  }
  return { kind: null, why }
}

// The newest picture, taken again a moment after the last one came, and only while the page can be seen.
function usePicture(path, kind, first) {
  const [shown, setShown] = useState(null)
  const [error, setError] = useState(null)
  const [turn, setTurn] = useState(0)
  useEffect(() => {
    const url = first && URL.createObjectURL(first)
    setShown(url || null)
  }, [first])
  useEffect(() => {
    if (!kind) return
    const stop = new AbortController()
    let timer = null
    const take = async () => {
      if (!document.hidden) {
        try {
          const url = URL.createObjectURL(await (await request(`${path}/${kind}/screenshot`, { signal: stop.signal })).blob())
          setShown((old) => (old && URL.revokeObjectURL(old), url))
          setError(null)
        } catch (why) {
          if (stop.signal.aborted) return
          setError(why)
        }
      }
      timer = setTimeout(take, AGAIN_MS)
    }
    timer = setTimeout(take, turn ? 100 : AGAIN_MS)
    return () => {
      stop.abort()
      clearTimeout(timer)
    }
  }, [path, kind, turn])
  return { shown, error, again: () => setTurn((n) => n + 1) }
}

function Picture({ path, kind, picture, reads }) {
  const { shown, error, again } = usePicture(path, kind, picture)
  const [size, setSize] = useState(null)
  const queue = useRef(Promise.resolve()) // one after the other: letters arrive as they were typed
  const act = (name, body) => {
    queue.current = queue.current.then(() => attempt(null, () => post(`${path}/${kind}/${name}`, body))).then(again)
  }
  const place = (event) => {
    const { width, height } = event.target.getBoundingClientRect()
    return { x: Math.round((event.offsetX * size.width) / width), y: Math.round((event.offsetY * size.height) / height) }
  }
  const click = (event, button) => {
    if (reads || !size) return
    event.preventDefault()
    event.currentTarget.focus()
    act('click', { ...place(event), button })
  }
  const key = (event) => {
    if (reads || event.ctrlKey || event.metaKey || event.altKey) return
    const named = KEYS[event.key]
    if (!named && event.key.length !== 1) return
    if (event.key === 'Tab' && event.shiftKey) return // the way out
    event.preventDefault()
    if (!named) act('type', { text: event.key })
    else if (kind === 'desktop') act('key', { keys: named })
    else act('type', { text: '', key: event.key })
  }
  return (
    <>
      {kind === 'browser' && !reads && <Address open={(url) => act('goto', { url })} />}
      {error && <Problem error={error} again={again} />}
      {shown && (
        <img
          class="screenshot" src={shown} tabIndex={0} draggable={false} alt={reads ? 'The screen' : 'The screen: click and type here; Shift-Tab leaves it'}
          onLoad={(event) => setSize({ width: event.target.naturalWidth, height: event.target.naturalHeight })}
          onClick={(event) => click(event, 'left')} onContextMenu={(event) => click(event, 'right')} onKeyDown={key}
        />
      )}
      {size && <p class="soft" role="status">{size.width} × {size.height}{reads ? '' : '; click and type on it, Shift-Tab leaves it'}</p>}
    </>
  )
}

function Address({ open }) {
  const [text, setText] = useState('')
  const submit = (event) => {
    event.preventDefault()
    const url = text.trim()
    if (url) open(/^[a-z]+:/i.test(url) ? url : `https://${url}`)
  }
  return (
    <form class="inline" onSubmit={submit}>
      <input class="address" aria-label="Address" placeholder="https://" value={text} onInput={(event) => setText(event.target.value)} />
      <Button type="submit">Open</Button>
    </form>
  )
}

// A browser's page as it changes. onFail(was): it cannot be seen so, or (was) not any more.
function Live({ id, path, onFail }) {
  const canvas = useRef(null)
  const cast = useRef(null)
  const [size, setSize] = useState(null)
  useEffect(() => {
    let gone = false
    let was = false
    const onSize = (now) => {
      was = true
      setSize(now)
    }
    const one = (cast.current = openScreencast(canvas.current, `${path}/browser/live`, { onSize, onEnd: () => gone || onFail(was) }))
    const wheel = (event) => (event.preventDefault(), one.wheel(event))
    canvas.current.addEventListener('wheel', wheel, { passive: false })
    // Who looks at it uses it: asking where a port is counts as use, the bytes of a connection do not.
    const used = setInterval(() => document.hidden || v1(`/sandboxes/${enc(id)}/ports/${CDP_PORT}`).catch(() => {}), USED_MS)
    return () => {
      clearInterval(used)
      gone = true
      one.close()
    }
  }, [path])
  const mouse = (type) => (event) => {
    event.preventDefault()
    if (type === 'mousePressed') event.currentTarget.focus()
    cast.current.mouse(type, event)
  }
  const key = (type) => (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.key === 'Tab' && event.shiftKey)) return // ours, and the way out
    event.preventDefault()
    cast.current.key(type, event)
  }
  return (
    <>
      <Address open={(url) => cast.current.navigate(url)} />
      {!size && <Loading />}
      <canvas
        ref={canvas} class="screenshot" hidden={!size} tabIndex={0} role="img" aria-label="The page, live: click and type here; Shift-Tab leaves it"
        onMouseDown={mouse('mousePressed')} onMouseUp={mouse('mouseReleased')} onMouseMove={mouse('mouseMoved')} onContextMenu={(event) => event.preventDefault()}
        onKeyDown={key('keyDown')} onKeyUp={key('keyUp')}
      />
      {size && <p class="soft" role="status">live, {size.width} × {size.height}; click and type on it, Shift-Tab leaves it</p>}
    </>
  )
}

// noVNC's page, which the sandbox itself serves, of another origin than this page.
function Stream({ id, onFail }) {
  const [url, setUrl] = useState(null)
  useEffect(() => {
    let gone = false
    const begin = async () => {
      const { stdout, stderr, exit_code } = await post(`/api/v1/sandboxes/${enc(id)}/execute`, { argv: ['desktop-stream'], timeout: 60 })
      if (exit_code !== 0) throw new Error(stderr || 'This desktop has no stream.')
      const port = await v1(`/sandboxes/${enc(id)}/ports/${VNC_PORT}`)
      if (!gone) setUrl(`${port.url}/vnc_lite.html?scale=true&password=${enc(stdout.trim())}`)
    }
    begin().catch((error) => gone || onFail(error))
    return () => (gone = true)
  }, [id])
  return url ? <iframe class="stream" title="The desktop" sandbox="allow-scripts allow-same-origin" referrerpolicy="no-referrer" src={url} /> : <Loading />
}

export function Screen({ box, reads }) {
  const path = `/api/v1/sandboxes/${enc(box.id)}`
  const [found, setFound] = useState(null)
  const [error, setError] = useState(null)
  const [live, setLive] = useState(false)
  const [pictures, setPictures] = useState(false) // of a browser that cannot be seen live
  const frame = useRef(null)
  const look = () => {
    setError(null)
    findKind(path).then(setFound, setError)
  }
  useEffect(look, [path])
  if (error) return <Problem error={error} again={look} />
  if (!found) return <Loading />
  if (!found.kind)
    return (
      <Empty icon="overview" title="This sandbox has no screen">
        Sandboxes of the templates desktop and browser have one. Build them with quicksand template build desktop or browser.
      </Empty>
    )
  // A server that was started again, or a browser: the next try may do.
  const noLive = (was) => {
    setPictures(true)
    if (was) setTimeout(() => setPictures(false), LIVE_AGAIN_MS)
  }
  const full = () => frame.current?.requestFullscreen?.()
  return (
    <Card
      title={found.kind === 'desktop' ? 'Desktop' : 'Browser'}
      actions={
        <>
          {found.kind === 'desktop' && !reads && (
            <div class="chips" role="group" aria-label="Shown as">
              <button type="button" aria-pressed={!live} onClick={() => setLive(false)}>pictures</button>
              <button type="button" aria-pressed={live} onClick={() => setLive(true)}>stream</button>
            </div>
          )}
          <Button kind="quiet" onClick={full}>Full screen</Button>
        </>
      }
    >
      <div class="frame" ref={frame}>
        {live ? <Stream id={box.id} onFail={(why) => (setLive(false), setError(why))} />
          : found.kind === 'browser' && !reads && !pictures ? <Live id={box.id} path={path} onFail={noLive} />
          : <Picture path={path} kind={found.kind} picture={found.picture} reads={reads} />}
      </div>
    </Card>
  )
}
