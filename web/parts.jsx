// Small parts that all pages are made of.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { plain } from './words.js'

const ICONS = {
  overview: 'M3 12h4l3-8 4 16 3-8h4',
  sandboxes: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM12 12l8-4.5M12 12v9M12 12L4 7.5',
  templates: 'M4 5h16v5H4zM4 14h7v5H4zM15 14h5v5h-5z',
  snapshots: 'M4 8h3l2-3h6l2 3h3v11H4zM12 16.5a3.5 3.5 0 100-7 3.5 3.5 0 000 7z',
  volumes: 'M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3',
  sessions: 'M4 5h16v11H9l-5 4z',
  browsers: 'M3 5h18v14H3zM3 9h18M6 7h1M9 7h1',
  admin: 'M12 15a3 3 0 100-6 3 3 0 000 6zM19 12l2-1-1-3-2.2.2-1.4-1.4L16.6 4.6 13.6 3.6 12.6 5.6h-2L9.6 3.6l-3 1L6.8 6.8 5.4 8.2 3.2 8l-1 3 2 1v2l-2 1 1 3 2.2-.2 1.4 1.4-.2 2.2 3 1 1-2h2l1 2 3-1-.2-2.2 1.4-1.4 2.2.2 1-3-2-1z',
  api: 'M8 6l-5 6 5 6M16 6l5 6-5 6M14 4l-4 16',
  search: 'M11 18a7 7 0 100-14 7 7 0 000 14zM16 16l5 5',
  moon: 'M20 14.5A8.5 8.5 0 119.5 4 7 7 0 0020 14.5z',
  sun: 'M12 16a4 4 0 100-8 4 4 0 000 8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2',
  half: 'M12 21a9 9 0 100-18 9 9 0 000 18zM12 3v18M15 5v14M18 8v8',
  out: 'M10 4H5v16h5M14 8l4 4-4 4M18 12H9',
  plus: 'M12 5v14M5 12h14',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 4l13 8-13 8z',
  clock: 'M12 21a9 9 0 100-18 9 9 0 000 18zM12 7v5l3 3',
  bin: 'M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14',
  fork: 'M6 4v6a4 4 0 004 4h4a4 4 0 014 4v2M6 4v16M3 7l3-3 3 3',
  folder: 'M3 6h6l2 2h10v11H3z',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  link: 'M10 14l10-10M14 4h6v6M19 14v6H4V5h6',
  up: 'M12 20V5M6 11l6-6 6 6',
  down: 'M12 4v15M6 13l6 6 6-6',
  pen: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  close: 'M6 6l12 12M18 6L6 18',
  refresh: 'M20 11a8 8 0 10-2 6M20 5v6h-6',
  menu: 'M4 7h16M4 12h16M4 17h16',
}

export const Icon = ({ name, size = 18 }) => (
  <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true">
    <path d={ICONS[name]} />
  </svg>
)

export const Button = ({ icon, children, kind = '', label, ...rest }) => (
  <button type="button" class={`button ${kind}`} aria-label={label} title={label} {...rest}>
    {icon && <Icon name={icon} size={16} />}
    {children}
  </button>
)

export const State = ({ state }) => (
  <span class={`state ${state}`}>
    <i />
    {state}
  </span>
)

export const Text = ({ children, class: name = '' }) => (
  <bdi class={name} title={plain(children)}>
    {plain(children)}
  </bdi>
)

// The heading of a page, which is its title in the browser, too. name: plain text.
export function Heading({ name, children, actions }) {
  useLayoutEffect(() => {
    document.title = name ? `${plain(name)} · Quicksand` : 'Quicksand'
  }, [name])
  return (
    <div class="title">
      <h1>{children ?? name}</h1>
      {actions}
    </div>
  )
}

export const Chips = ({ label, all, chosen, choose }) => (
  <div class="chips" role="group" aria-label={label}>
    {Object.entries(all).map(([name, title]) => <button type="button" key={name} aria-pressed={chosen === name} onClick={() => choose(name)}>{title}</button>)}
  </div>
)

// Links to the parts of a page; on a narrow screen the chosen one is scrolled to. path: of the page, without the hash.
export function Tabs({ tabs, chosen, path }) {
  const place = useRef(null)
  useEffect(() => place.current.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' }), [chosen, tabs.length])
  return (
    <div class="tabs" role="tablist" ref={place}>
      {tabs.map(([name, title]) => <a key={name} role="tab" aria-selected={chosen === name} href={`#/${path}${name && `/${name}`}`}>{title}</a>)}
    </div>
  )
}

export const Card = ({ title, actions, children, class: name = '' }) => (
  <section class={`card ${name}`}>
    {title && (
      <header>
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </header>
    )}
    {children}
  </section>
)

export const Empty = ({ icon = 'sandboxes', title, children }) => (
  <div class="empty">
    <Icon name={icon} size={36} />
    <h3>{title}</h3>
    <p>{children}</p>
  </div>
)

export const Problem = ({ error, again }) => (
  <div class="problem" role="alert">
    <span>{plain(error?.message ?? error)}</span>
    {again && <Button onClick={again}>Try again</Button>}
  </div>
)

export const Loading = () => (
  <div class="loading" role="status" aria-label="loading">
    <i />
    <i />
    <i />
  </div>
)

// A part whose code comes when it is first shown, or before by fetch(). load: gives the component.
export function later(load) {
  let Part = null
  const Later = (props) => {
    const [error, setError] = useState(null)
    const [, arrived] = useState(false)
    useLayoutEffect(() => {
      if (!Part) Later.fetch().then(() => arrived(true), setError)
    }, [])
    if (Part) return <Part {...props} />
    return error ? <Problem error="This part of the dashboard could not be loaded. The server may be offline or may have a new version." again={() => location.reload()} /> : <Loading />
  }
  Later.fetch = async () => (Part ??= await load())
  return Later
}

export const Chart = later(() => import('./chart.jsx').then((all) => all.Chart))

// What load() gives, asked for when deps change. again() asks anew.
export function useData(load, deps) {
  const [state, set] = useState({ data: null, error: null, loading: true })
  const [turn, setTurn] = useState(0)
  useLayoutEffect(() => {
    let gone = false
    load().then(
      (data) => gone || set({ data, error: null, loading: false }),
      (error) => gone || set((old) => ({ data: old.data, error, loading: false })),
    )
    return () => (gone = true)
  }, [...deps, turn])
  return { ...state, again: () => setTurn((n) => n + 1) }
}

export function Dialog({ title, onClose, children, wide }) {
  const place = useRef(null)
  useLayoutEffect(() => {
    const dialog = place.current
    dialog.showModal()
    return () => dialog.close()
  }, [])
  return (
    <dialog ref={place} class={wide ? 'wide' : ''} aria-label={title} onCancel={(event) => (event.preventDefault(), onClose())} onClick={(event) => event.target === place.current && onClose()}>
      <div class="inside">
        <header>
          <h2>{title}</h2>
          <Button icon="close" kind="quiet" label="Close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  )
}

export const Field = ({ label, hint, error, children }) => (
  <label class={`field ${error ? 'wrong' : ''}`}>
    <span>{label}</span>
    {children}
    {error ? <em role="alert">{error}</em> : hint && <small>{hint}</small>}
  </label>
)

// Asks before something is thrown away.
export function Confirm({ title, children, action, onDo, onClose }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState(null)
  const run = async () => {
    setBusy(true)
    try {
      await onDo()
      onClose()
    } catch (why) {
      setError(why)
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{children}</p>
      {error && <Problem error={error} />}
      <footer>
        <Button kind="quiet" onClick={onClose}>Cancel</Button>
        <Button kind="danger" disabled={busy} onClick={run} autofocus>{action}</Button>
      </footer>
    </Dialog>
  )
}

// Short messages at the corner.
const notes = { list: [], tell: () => {} }
export function note(text, kind = 'good') {
  const one = { text: plain(text), kind, id: Math.random() }
  notes.list = [...notes.list, one].slice(-4)
  notes.tell(notes.list)
  setTimeout(() => {
    notes.list = notes.list.filter((other) => other !== one)
    notes.tell(notes.list)
  }, 6000)
}
export function Notes() {
  const [list, set] = useState([])
  useEffect(() => void (notes.tell = set), [])
  return (
    <div class="notes" aria-live="polite">
      {list.map((one) => <div key={one.id} class={`note ${one.kind}`}>{one.text}</div>)}
    </div>
  )
}

// Does it, and says how it went; what: null = only when it went wrong.
export async function attempt(what, work) {
  try {
    const result = await work()
    if (what) note(what)
    return result
  } catch (error) {
    note(error.message, 'bad')
    return null
  }
}

// Only the rows that can be seen exist: long lists stay smooth.
export function Rows({ items, height, row, head, label }) {
  const place = useRef(null)
  const [view, setView] = useState({ top: 0, size: 800 })
  useEffect(() => {
    const element = place.current
    const measure = () => setView({ top: element.scrollTop, size: element.clientHeight })
    measure()
    element.addEventListener('scroll', measure, { passive: true })
    const watcher = new ResizeObserver(measure)
    watcher.observe(element)
    return () => {
      element.removeEventListener('scroll', measure)
      watcher.disconnect()
    }
  }, [])
  const first = Math.max(0, Math.floor(view.top / height) - 8)
  const last = Math.min(items.length, Math.ceil((view.top + view.size) / height) + 8)
  return (
    <div class="rows" role="table" aria-label={label} aria-rowcount={items.length + 1}>
      <div class="row head" role="row">{head}</div>
      <div class="scroll" ref={place} tabIndex={0} role="rowgroup" aria-label={`${label}, rows`}>
        <div style={{ height: first * height }} />
        {items.slice(first, last).map((item, at) => row(item, first + at))}
        <div style={{ height: Math.max(0, items.length - last) * height }} />
      </div>
    </div>
  )
}

export function Menu({ label, icon = 'menu', children }) {
  const [open, setOpen] = useState(false)
  return (
    <div class="menu" onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget) && setOpen(false)}>
      <Button icon={icon} kind="quiet" label={label} aria-expanded={open} onClick={() => setOpen(!open)} />
      {open && <div class="list" onClick={() => setOpen(false)}>{children}</div>}
    </div>
  )
}
