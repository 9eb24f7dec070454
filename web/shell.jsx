// The frame around all pages: navigation, who is signed in, and whether the server answers. frame.html has its first part, too.
import { useEffect, useRef, useState } from 'preact/hooks'
import { PAGES } from './built.js'
import { useLive } from './live.js'
import { Button, Dialog, Icon, Notes } from './parts.jsx'
import { plain } from './words.js'

export const go = (path) => (location.hash = `#/${path}`)

export function useRoute() {
  const read = () => decodeHash(location.hash)
  const [route, set] = useState(read)
  useEffect(() => {
    const listen = () => set(read())
    addEventListener('hashchange', listen)
    return () => removeEventListener('hashchange', listen)
  }, [])
  return route
}

function decodeHash(hash) {
  const [path] = hash.replace(/^#\/?/, '').split('?')
  return path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part)
    } catch {
      return part
    }
  })
}

const THEMES = ['auto', 'light', 'dark']
export function applyTheme(theme) {
  document.documentElement.dataset.theme = theme
  localStorage.setItem('quicksand.theme', theme)
  dispatchEvent(new Event('quicksand-theme'))
}
export const savedTheme = () => localStorage.getItem('quicksand.theme') ?? 'auto'

function ThemeButton() {
  const [theme, set] = useState(savedTheme())
  const next = THEMES[(THEMES.indexOf(theme) + 1) % 3]
  return <Button kind="quiet" icon={theme === 'light' ? 'sun' : theme === 'dark' ? 'moon' : 'half'} label={`Colours: ${theme}. Change to ${next}`} onClick={() => (applyTheme(next), set(next))} />
}

const KEYS = [
  ['/', 'search'], ['?', 'this help'], ['c', 'create a sandbox'],
  ...PAGES.map(({ key, title }) => [`g ${key}`, title.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase())]), ['Esc', 'close, or leave a field'],
]
const Help = ({ onClose }) => (
  <Dialog title="Keyboard" onClose={onClose}>
    <dl class="keys">
      {KEYS.map(([key, what]) => (
        <div key={key}>
          <dt>{key.split(' ').map((one) => <kbd key={one}>{one}</kbd>)}</dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
    <p class="soft">Tab and Enter reach everything else. Arrow keys scroll lists and show the values of charts.</p>
  </Dialog>
)

function useKeys(search, setHelp) {
  useEffect(() => {
    let led = 0
    const listen = (event) => {
      const typing = event.target.closest?.('input, textarea, select, .xterm, dialog')
      if (event.key === 'Escape' && event.target.matches?.('input')) event.target.blur()
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return
      const letter = event.key
      if (letter === '/') {
        event.preventDefault()
        ;(document.querySelector('[data-search]') ?? search.current)?.focus()
      } else if (letter === '?') setHelp(true)
      else if (letter === 'c') go('sandboxes/new')
      else if (letter === 'g') led = Date.now()
      else if (Date.now() - led < 1500) {
        const page = PAGES.find((one) => one.key === letter)
        if (page) go(page.path)
      }
    }
    addEventListener('keydown', listen)
    return () => removeEventListener('keydown', listen)
  }, [])
}

export function Shell({ who, current, onSignOut, children }) {
  const { online, error } = useLive()
  const [help, setHelp] = useState(false)
  const [open, setOpen] = useState(false)
  const search = useRef(null)
  useKeys(search, setHelp)
  const find = (event) => {
    event.preventDefault()
    const text = search.current.value.trim()
    if (text) go(`sandboxes?q=${encodeURIComponent(text)}`)
    search.current.value = ''
    search.current.blur()
  }
  return (
    <div class={`shell ${open ? 'open' : ''}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main').focus())}>To the content</a>
      <nav aria-label="Pages">
        <a class="brand" href="#/">
          <img src="/ui/icon.svg" alt="" width="28" height="28" /> Quicksand
        </a>
        {PAGES.map((page) => (
          <a key={page.path} href={`#/${page.path}`} class={current === page.path ? 'here' : ''} aria-current={current === page.path ? 'page' : undefined} onClick={() => setOpen(false)}>
            <Icon name={page.icon} /> {page.title}
          </a>
        ))}
        <div class="fill" />
        <div class="who">
          <b title={plain(who.key_name)}>{plain(who.key_name)}</b>
          <small>{plain(who.team)} · {who.role}</small>
        </div>
      </nav>
      <div class="page">
        <header class="top">
          <Button icon="menu" kind="quiet burger" label="Menu" onClick={() => setOpen(!open)} />
          <form role="search" onSubmit={find}>
            <Icon name="search" size={16} />
            <input ref={search} type="search" placeholder="Find a sandbox  /" aria-label="Find a sandbox" />
          </form>
          <span class={`online ${online ? 'yes' : 'no'}`} title={error ?? 'This page updates itself'}>
            <i />
            {online ? 'live' : 'offline'}
          </span>
          <ThemeButton />
          <Button kind="quiet" label="Keyboard" onClick={() => setHelp(true)}>?</Button>
          <Button icon="out" kind="quiet" label="Sign out" onClick={onSignOut} />
        </header>
        {!online && <div class="away" role="alert">{error} This page may be out of date.</div>}
        <main id="main" tabIndex={-1}>{children}</main>
      </div>
      {help && <Help onClose={() => setHelp(false)} />}
      <Notes />
    </div>
  )
}
