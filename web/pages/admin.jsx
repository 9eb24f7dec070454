// Who may what, and who did what: API keys, teams with their quotas, audit, providers, settings.
import { useState } from 'preact/hooks'
import { ask, enc, post, remove, v1 } from '../api.js'
import { useEvents } from '../live.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { age, clock, count, moment, plain } from '../words.js'
import { Use } from './use.jsx'
import { Webhooks } from './webhooks.jsx'

const TABS = { '': 'API keys', teams: 'Teams', webhooks: 'Webhooks', audit: 'Audit', providers: 'Providers', use: 'Use and cost', settings: 'Settings' }
const OPERATORS = ['teams', 'settings']

export function Admin({ who, tab = '' }) {
  const operates = who.role === 'operator'
  const Page = { '': Keys, teams: Teams, webhooks: Webhooks, audit: Audit, providers: Providers, use: Use, settings: Settings }[tab] ?? Keys
  return (
    <>
      <div class="title"><h1>Administration</h1></div>
      <div class="tabs" role="tablist">
        {Object.entries(TABS).filter(([name]) => operates || !OPERATORS.includes(name)).map(([name, title]) => <a key={name} role="tab" aria-selected={tab === name} href={`#/admin${name && `/${name}`}`}>{title}</a>)}
      </div>
      <Page who={who} operates={operates} reads={who.role === 'viewer'} />
    </>
  )
}

// ---- keys ----

const ROLES = { operator: 'everything', member: 'all that the team has', viewer: 'looks only', metrics: 'reads /metrics' }

function Secret({ made, onClose }) {
  return (
    <Dialog title="The new API key" onClose={onClose}>
      <p>It is shown this once. Keep it where keys are kept.</p>
      <input readOnly value={made} aria-label="API key" onFocus={(event) => event.target.select()} autofocus />
      <footer><Button onClick={() => navigator.clipboard?.writeText(made).then(() => note('Copied'), () => note('The browser does not allow it; copy it by hand', 'bad'))}>Copy</Button><Button kind="main" onClick={onClose}>Done</Button></footer>
    </Dialog>
  )
}

function Keys({ who, reads }) {
  const { data, error, again } = useData(() => ask('/api-keys'), [])
  const [name, setName] = useState('')
  const [role, setRole] = useState(who.role === 'operator' ? 'operator' : 'member')
  const [wrong, setWrong] = useState(null)
  const [made, setMade] = useState(null)
  const [gone, setGone] = useState(null)
  const roles = Object.keys(ROLES).filter((one) => who.role === 'operator' || ['member', 'viewer'].includes(one))
  const make = async (event) => {
    event.preventDefault()
    setWrong(null)
    try {
      setMade((await post('/api-keys', { name: name.trim(), role })).key)
      setName('')
      again()
    } catch (why) {
      setWrong(why.message)
    }
  }
  return (
    <>
      {!reads && (
        <form class="inline" onSubmit={make} novalidate>
          <Field label="New API key" error={wrong}><input placeholder="whose, or what for" value={name} onInput={(event) => setName(event.target.value)} /></Field>
          <Field label="Role"><select value={role} onChange={(event) => setRole(event.target.value)}>{roles.map((one) => <option key={one} value={one}>{one}: {ROLES[one]}</option>)}</select></Field>
          <Button kind="main" type="submit">Make</Button>
        </form>
      )}
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="admin" title="No keys but the one of the configuration">Give each person and each machine a key of its own: then one can be taken back alone.</Empty>}
      {data?.length > 0 && (
        <Card>
          <div class="table-wrap"><table>
            <thead><tr><th>name</th><th>role</th><th>key</th><th>made</th><th>last used</th><th /></tr></thead>
            <tbody>
              {data.map((one) => (
                <tr key={one.id}>
                  <td><Text>{one.name}</Text>{one.agentID && <span class="label">agent {plain(one.agentID)}</span>}{one.sandboxID && <span class="label">only {plain(one.sandboxID)}</span>}</td>
                  <td>{one.role}</td><td class="mono soft">{one.mask.prefix}{one.mask.maskedValuePrefix}…{one.mask.maskedValueSuffix}</td>
                  <td class="soft">{moment(one.createdAt)}</td><td class="soft">{one.lastUsed ? `${age(one.lastUsed)} ago` : 'never'}</td>
                  <td class="do">{!reads && <Button kind="quiet danger" label={`Revoke ${plain(one.name)}`} onClick={() => setGone(one)}>Revoke</Button>}</td>
                </tr>
              ))}
            </tbody>
          </table></div>
        </Card>
      )}
      {made && <Secret made={made} onClose={() => setMade(null)} />}
      {gone && <Confirm title="Revoke this API key?" action="Revoke" onClose={() => setGone(null)} onDo={() => remove(`/api-keys/${enc(gone.id)}`).then(again)}>{plain(gone.name)} stops working at once, and browsers that signed in with it are signed out.</Confirm>}
    </>
  )
}

// ---- teams ----

const QUOTAS = { maxSandboxes: 'sandboxes', maxCpu: 'processors', maxMemoryMB: 'memory, MiB', maxDiskMB: 'disk, MiB', maxCreatesPerMinute: 'creates per minute' }

// The same things as they are used now.
const USES = { maxSandboxes: 'sandboxes', maxCpu: 'cpu', maxMemoryMB: 'memoryMB', maxDiskMB: 'diskMB' }

function Quota({ used, limit }) {
  const share = limit ? (used ?? 0) / limit : 0
  if (used === undefined) return limit ? count(limit) : 'no limit'
  return (
    <>
      {count(used)}{limit ? ` of ${count(limit)}` : <span class="soft">, no limit</span>}
      {limit > 0 && <div class={`meter ${share >= 0.9 ? 'full' : ''}`} role="meter" aria-label="used" aria-valuemin={0} aria-valuemax={limit} aria-valuenow={used}><i style={{ width: `${Math.min(100, 100 * share)}%` }} /></div>}
    </>
  )
}

function Teams() {
  const { data, error, again } = useData(() => ask('/admin/teams'), [])
  useEvents((event) => /^sandbox\.(created|paused|resumed|killed)$/.test(event.type) && again(), [])
  const [name, setName] = useState('')
  const [wrong, setWrong] = useState(null)
  const [changed, setChanged] = useState(null)
  const [made, setMade] = useState(null)
  const make = async (event) => {
    event.preventDefault()
    setWrong(null)
    try {
      await post('/admin/teams', { name: name.trim() })
      setName('')
      again()
    } catch (why) {
      setWrong(why.message)
    }
  }
  const key = (one) => attempt('A key was made', () => post(`/admin/teams/${enc(one.teamID)}/api-keys`, { name: 'first' })).then((answer) => answer && setMade(answer.key))
  return (
    <>
      <form class="inline" onSubmit={make} novalidate><Field label="New team" error={wrong}><input placeholder="name" value={name} onInput={(event) => setName(event.target.value)} /></Field><Button kind="main" type="submit">Make</Button></form>
      {error && <Problem error={error} again={again} />}
      <div class="tiles">
        {data?.map((one) => (
          <Card key={one.teamID} title={<Text>{one.name}</Text>} actions={one.banned && <State state="error" />}>
            <dl class="details">{Object.entries(QUOTAS).map(([field, text]) => <><dt key={field}>{text}</dt><dd><Quota used={one.use?.[USES[field]]} limit={one[field]} /></dd></>)}</dl>
            <div class="actions foot"><Button onClick={() => setChanged(one)}>Quotas</Button><Button onClick={() => key(one)}>New key</Button></div>
          </Card>
        ))}
      </div>
      {changed && <Quotas team={changed} onClose={() => (setChanged(null), again())} />}
      {made && <Secret made={made} onClose={() => setMade(null)} />}
    </>
  )
}

function Quotas({ team, onClose }) {
  const [form, setForm] = useState(() => Object.fromEntries(Object.keys(QUOTAS).map((name) => [name, String(team[name])])))
  const [error, setError] = useState(null)
  const [wrong, setWrong] = useState([])
  const submit = async (event) => {
    event.preventDefault()
    const bad = Object.keys(form).filter((name) => !/^\d{1,12}$/.test(form[name]))
    setWrong(bad)
    if (bad.length) return
    try {
      await ask(`/admin/teams/${enc(team.teamID)}`, { method: 'PATCH', body: Object.fromEntries(Object.entries(form).map(([name, value]) => [name, Number(value)])) })
      onClose()
    } catch (why) {
      setError(why.message)
    }
  }
  return (
    <Dialog title={`Quotas of ${plain(team.name)}`} onClose={onClose}>
      <form onSubmit={submit} novalidate>
        <div class="grid">{Object.entries(QUOTAS).map(([name, text]) => <Field key={name} label={text} hint="0: no limit" error={wrong.includes(name) && 'A whole number; 0 is no limit'}><input inputmode="numeric" value={form[name]} onInput={(event) => setForm({ ...form, [name]: event.target.value })} /></Field>)}</div>
        {error && <Problem error={error} />}
        <footer><Button kind="quiet" onClick={onClose}>Cancel</Button><Button kind="main" type="submit">Save</Button></footer>
      </form>
    </Dialog>
  )
}

// ---- audit, providers, settings ----

function Audit({ operates }) {
  const { data, error, again } = useData(() => ask(`/audit?limit=100${operates ? '&all=true' : ''}`).catch(() => ask('/audit?limit=100')), [])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  if (!data.length) return <Empty icon="file" title="Nothing was changed yet">Every change by any key stands here, with its name.</Empty>
  return (
    <Card>
      <div class="table-wrap"><table>
        <thead><tr><th>when</th><th>team</th><th>by</th><th>what</th><th class="number">status</th></tr></thead>
        <tbody>{data.map((one) => <tr key={one.id}><td class="soft">{moment(one.timestamp)}</td><td><Text>{one.teamName}</Text></td><td><Text>{one.keyName || (one.keyID ? one.keyID : 'configuration')}</Text>{one.agentID && <span class="label">{plain(one.agentID)}</span>}</td><td class="mono"><b>{one.method}</b> <Text>{one.path}</Text></td><td class={`number ${one.status >= 400 ? 'bad' : 'good'}`}>{one.status}</td></tr>)}</tbody>
      </table></div>
    </Card>
  )
}

function Provider({ given }) {
  const [one, setOne] = useState(given)
  const [busy, setBusy] = useState(false)
  const [checked, setChecked] = useState(null)
  const check = async () => {
    setBusy(true)
    const answer = await attempt(null, () => v1(`/providers/${enc(one.name)}?check=true`))
    if (answer) {
      setOne(answer)
      setChecked(new Date().toISOString())
    }
    setBusy(false)
  }
  return (
    <Card title={<><Text>{one.name}</Text>{one.default && <span class="label">default</span>}</>} actions={<State state={one.state} />}>
      <dl class="details">
        <dt>Kind</dt><dd>{plain(one.type)}</dd><dt>Isolation</dt><dd>{plain(one.isolation)}, by {plain(one.isolated_by)}</dd>
        <dt>Can</dt><dd>{Object.entries(one.capabilities).filter(([, value]) => value === true).map(([name]) => name).join(', ')}</dd>
        <dt>Network</dt><dd>{one.egress.join(', ')}</dd>
        {one.last_error && <><dt>Last error</dt><dd class="bad"><Text>{one.last_error}</Text></dd></>}
      </dl>
      <div class="actions foot"><Button icon="refresh" disabled={busy} label={`Check ${plain(one.name)}`} onClick={check}>{busy ? 'Asking…' : 'Check'}</Button>{checked && <span class="soft" role="status">asked at {clock(checked)}</span>}</div>
    </Card>
  )
}

function Providers() {
  const { data, error, again } = useData(() => v1('/providers'), [])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return <div class="tiles">{data.providers.map((one) => <Provider key={one.name} given={one} />)}</div>
}

function Settings() {
  const { data, error, again } = useData(() => v1('/settings'), [])
  const [text, setText] = useState('')
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  const rows = data.settings.filter((one) => !text || `${one.key} ${one.value} ${one.help}`.toLowerCase().includes(text.toLowerCase()))
  return (
    <Card title="Settings in force" actions={<input type="search" data-search placeholder="Filter" aria-label="Filter settings" value={text} onInput={(event) => setText(event.target.value)} />}>
      <p class="soft">Set by options of quicksand serve, QUICKSAND_… in its environment, or its configuration file. Those marked “reload” are taken over on SIGHUP, the others with a restart.</p>
      {!rows.length && <Empty icon="admin" title="Nothing fits">Other words may show more.</Empty>}
      {rows.length > 0 && (
        <div class="table-wrap"><table class="settings">
          <thead><tr><th>setting</th><th>value</th><th>meaning</th></tr></thead>
          <tbody>
            {rows.map((one) => (
              <tr key={one.key}>
                <td class="mono">{one.key}{one.reload && <span class="label">reload</span>}</td>
                <td class="mono">{one.value === one.default ? <span class="soft"><Text>{one.value || '–'}</Text></span> : <><b><Text>{one.value || '–'}</Text></b><br /><small class="soft">instead of <Text>{one.default || 'nothing'}</Text></small></>}</td>
                <td>{plain(one.help)}</td>
              </tr>
            ))}
          </tbody>
        </table></div>
      )}
    </Card>
  )
}
