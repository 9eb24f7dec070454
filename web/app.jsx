// The dashboard: who is signed in, and which page.
import { render } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { onSignedOut, redeem, signout, whoami } from './api.js'
import { startLive, stopLive } from './live.js'
import { Empty, Loading, Problem } from './parts.jsx'
import { Shell, applyTheme, savedTheme, useRoute } from './shell.jsx'
import { Enter } from './pages/enter.jsx'
import { Overview } from './pages/overview.jsx'
import { Sandboxes } from './pages/sandboxes.jsx'
import { Sandbox } from './pages/sandbox.jsx'
import { Snapshots, Volumes } from './pages/kept.jsx'
import { Templates } from './pages/templates.jsx'
import { Work } from './pages/work.jsx'
import { Browsers } from './pages/browsers.jsx'
import { Admin } from './pages/admin.jsx'
import { ApiPages } from './pages/apidocs.jsx'

const PAGES = [
  { path: '', key: 'o', icon: 'overview', title: 'Overview', show: ({ who }) => <Overview who={who} /> },
  {
    path: 'sandboxes', key: 's', icon: 'sandboxes', title: 'Sandboxes',
    show: ({ route, who }) => (route[1] && route[1] !== 'new' ? <Sandbox key={route[1]} id={route[1]} tab={route[2]} who={who} /> : <Sandboxes who={who} create={route[1] === 'new'} />),
  },
  { path: 'templates', key: 't', icon: 'templates', title: 'Templates', show: ({ route, who }) => <Templates who={who} open={route[1]} /> },
  { path: 'snapshots', key: 'n', icon: 'snapshots', title: 'Snapshots', show: ({ who }) => <Snapshots who={who} /> },
  { path: 'volumes', key: 'v', icon: 'volumes', title: 'Volumes', show: ({ who }) => <Volumes who={who} /> },
  {
    path: 'work', key: 'j', icon: 'sessions', title: 'Sessions and jobs',
    show: ({ route, who }) => (route[1] === 'job' ? <Work who={who} kind="job" open={route[2]} /> : <Work who={who} open={route[1]} />),
  },
  { path: 'browsers', key: 'b', icon: 'browsers', title: 'Browsers', show: ({ route, who }) => <Browsers who={who} open={route[1]} /> },
  { path: 'admin', key: 'a', icon: 'admin', title: 'Administration', show: ({ route, who }) => <Admin who={who} tab={route[1]} /> },
  { path: 'api', key: 'p', icon: 'api', title: 'API', show: () => <ApiPages /> },
]

// Addresses of the pages that were here before.
function oldAddress() {
  const query = new URLSearchParams(location.search)
  const id = query.get('sandbox')
  if (!location.pathname.startsWith('/ui')) return
  history.replaceState(null, '', id ? `/#/sandboxes/${encodeURIComponent(id)}/terminal` : '/')
}

// Gives who is signed in; null = nobody.
async function enter() {
  const [, link, to] = /^#enter=(\w+)(?:&to=([\w/.%-]*))?$/.exec(location.hash) ?? []
  if (link) {
    location.replace(`#/${to ?? ''}`)
    await redeem(link)
  }
  return whoami()
}

function App() {
  const [who, setWho] = useState(undefined)
  const [error, setError] = useState(null)
  const route = useRoute()
  const look = () =>
    enter().then(
      (one) => (setError(null), startLive(), setWho(one)),
      (why) => (why.status === 401 ? setWho(null) : undefined, setError(why)),
    )
  useEffect(() => {
    onSignedOut(() => (stopLive(), setWho(null)))
    look()
  }, [])
  useEffect(() => {
    if (who !== undefined || !error || error.status) return
    const timer = setTimeout(look, 2000)
    return () => clearTimeout(timer)
  }, [error])
  if (who === undefined) return error ? <Problem error={error} again={look} /> : <Loading />
  if (who === null) return <Enter onEnter={look} said={error?.status === 401 && /link/.test(error.message) ? error.message : null} />
  const page = PAGES.find((one) => one.path === (route[0] ?? ''))
  const out = () => signout().finally(() => (stopLive(), setError(null), setWho(null)))
  return (
    <Shell who={who} pages={PAGES} current={page?.path} onSignOut={out}>
      {page ? page.show({ route, who }) : <Empty title="There is no such page">Choose one at the left.</Empty>}
    </Shell>
  )
}

oldAddress()
applyTheme(savedTheme())
render(<App />, document.getElementById('app'))
