// The dashboard: who is signed in, and which page.
import { render } from 'preact'
import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { onSignedOut, redeem, signout, whoami } from './api.js'
import { startLive, stopLive } from './live.js'
import { Chart, Empty, Loading, Problem, later } from './parts.jsx'
import { Shell, applyTheme, savedTheme, useRoute } from './shell.jsx'
import { PAGES } from './built.js'
import { Enter } from './pages/enter.jsx'
import { Overview } from './pages/overview.jsx'

// The other pages are one file, which comes when the first one is shown: they open at once, also when the server is away by then.
const REST_MS = 1000
const others = ['Sandboxes', 'Sandbox', 'Snapshots', 'Volumes', 'Templates', 'Work', 'Browsers', 'Admin', 'ApiPages'].map((name) => later(() => import('./pages/others.js').then((all) => all[name])))
const [Sandboxes, Sandbox, Snapshots, Volumes, Templates, Work, Browsers, Admin, ApiPages] = others

const SHOW = {
  '': ({ who }) => <Overview who={who} />,
  sandboxes: ({ route, who }) => (route[1] && route[1] !== 'new' ? <Sandbox key={route[1]} id={route[1]} tab={route[2]} who={who} /> : <Sandboxes who={who} create={route[1] === 'new'} />),
  templates: ({ route, who }) => <Templates who={who} open={route[1]} />,
  snapshots: ({ who }) => <Snapshots who={who} />,
  volumes: ({ who }) => <Volumes who={who} />,
  work: ({ route, who }) => (route[1] === 'job' ? <Work who={who} kind="job" open={route[2]} /> : <Work who={who} open={route[1]} />),
  browsers: ({ route, who }) => <Browsers who={who} open={route[1]} />,
  admin: ({ route, who }) => <Admin who={who} tab={route[1]} />,
  api: () => <ApiPages />,
}

// Addresses of the pages that were here before.
function oldAddress() {
  const query = new URLSearchParams(location.search)
  const id = query.get('sandbox')
  if (!location.pathname.startsWith('/ui')) return
  history.replaceState(null, '', id ? `/#/sandboxes/${encodeURIComponent(id)}/terminal` : '/')
}

const LINK = /^#enter=(\w+)(?:&to=([\w/.%-]*))?$/

// Gives who is signed in.
async function enter() {
  const [, link, to] = LINK.exec(location.hash) ?? []
  if (link) {
    location.replace(`#/${to ?? ''}`)
    await redeem(link)
  }
  return whoami()
}

// Who was signed in when the page was last open: shown, and its questions asked, before the server has said it again.
const KNOWN = 'quicksand.who'
const remember = (who) => (who ? localStorage.setItem(KNOWN, JSON.stringify(who)) : localStorage.removeItem(KNOWN))
function remembered() {
  try {
    return LINK.test(location.hash) ? undefined : (JSON.parse(localStorage.getItem(KNOWN)) ?? undefined)
  } catch {
    return undefined
  }
}

function App({ guess, answer }) {
  const [who, setWho] = useState(guess) // undefined = not known yet, null = nobody
  const [sure, setSure] = useState(false)
  const [error, setError] = useState(null)
  const route = useRoute()
  const nobody = () => (stopLive(), remember(null), setSure(true), setWho(null))
  const become = (one) => {
    const same = JSON.stringify(one) === JSON.stringify(who)
    if (!same) stopLive()
    startLive()
    remember(one)
    setError(null)
    setSure(true)
    if (!same) setWho(one)
  }
  const learn = (asked) => asked.then(become, (why) => (why.status === 401 && nobody(), setError(why)))
  const look = () => learn(enter())
  useLayoutEffect(() => {
    onSignedOut(nobody)
    learn(answer)
    const idle = setTimeout(() => [Chart, ...others].forEach((one) => one.fetch().catch(() => {})), REST_MS)
    return () => clearTimeout(idle)
  }, [])
  useEffect(() => {
    if (sure || !error || error.status) return
    const timer = setTimeout(look, 2000)
    return () => clearTimeout(timer)
  }, [error])
  if (who === undefined || (!sure && error?.status)) return error ? <Problem error={error} again={look} /> : <Loading />
  if (who === null) return <Enter onEnter={look} said={error?.status === 401 && /link/.test(error.message) ? error.message : null} />
  const page = PAGES.find((one) => one.path === (route[0] ?? ''))
  const out = () => signout().finally(() => (setError(null), nobody()))
  return (
    <Shell who={who} current={page?.path} onSignOut={out}>
      {page ? SHOW[page.path]({ route, who }) : <Empty title="Page not found">Choose one from the menu.</Empty>}
    </Shell>
  )
}

oldAddress()
applyTheme(savedTheme())
const guess = remembered()
const answer = enter()
if (guess) startLive()
render(<App guess={guess} answer={answer} />, document.getElementById('app'))
