// API keys, teams with their quotas, the audit log, providers and settings.
import { useState } from 'preact/hooks'
import { ask, enc, post, remove, v1 } from '../api.js'
import { useChanges } from '../live.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Heading, Loading, Problem, State, Tabs, Text, attempt, note, useData } from '../parts.jsx'
import { age, clock, count, mebibytes, moment, plain } from '../words.js'
import { Use } from './use.jsx'
import { Webhooks } from './webhooks.jsx'

const TABS = { '': 'API keys', teams: 'Teams', webhooks: 'Webhooks', audit: 'Audit', providers: 'Providers', use: 'Usage and cost', settings: 'Settings' }
const OPERATORS = ['teams', 'settings']

export function Admin({ who, tab = '' }) {
  const operates = who.role === 'operator'
  const Page = { '': Keys, teams: Teams, webhooks: Webhooks, audit: Audit, providers: Providers, use: Use, settings: Settings }[tab] ?? Keys
  return (
    <>
      <Heading name={tab ? `${TABS[tab] ?? 'API keys'}, Administration` : 'Administration'}>Administration</Heading>
      <Tabs tabs={Object.entries(TABS).filter(([name]) => operates || !OPERATORS.includes(name))} chosen={tab} path="admin" />
      <Page who={who} operates={operates} reads={who.role === 'viewer'} />
    </>
  )
}

// ---- keys ----

// Least first: it is the default of a new key.
const ROLES = { viewer: 'read only', member: 'everything in its team', operator: 'everything, all teams', metrics: 'GET /metrics only' }

function Secret({ made, onClose }) {
  return (
    <Dialog title="New API key" onClose={onClose}>
      <p>Copy it now: it is not shown again.</p>
      <input readOnly value={made} aria-label="API key" onFocus={(event) => event.target.select()} autofocus />
      <footer><Button onClick={() => navigator.clipboard?.writeText(made).then(() => note('Copied'), () => note('The browser does not allow copying; select the key and copy it', 'bad'))}>Copy</Button><Button kind="main" onClick={onClose}>Done</Button></footer>
    </Dialog>
  )
}

function Keys({ who, reads }) {
  const { data, error, again } = useData(() => ask('/api-keys'), [])
  const [name, setName] = useState('')
  const [role, setRole] = useState('viewer')
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
          <Field label="New API key" error={wrong}><input placeholder="name" value={name} onInput={(event) => setName(event.target.value)} /></Field>
          <Field label="Role"><select value={role} onChange={(event) => setRole(event.target.value)}>{roles.map((one) => <option key={one} value={one}>{one}: {ROLES[one]}</option>)}</select></Field>
          <Button kind="main" type="submit">Create</Button>
        </form>
      )}
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="admin" title="Only the key of the configuration">Create one key for each person and each machine, so that you can revoke them one by one.</Empty>}
      {data?.length > 0 && (
        <Card>
          <div class="table-wrap" tabIndex={0}><table class="stack">
            <thead><tr><th>name</th><th>role</th><th>key</th><th>created</th><th>last used</th><th /></tr></thead>
            <tbody>
              {data.map((one) => (
                <tr key={one.id}>
                  <td><Text>{one.name}</Text>{one.agentID && <span class="label">agent {plain(one.agentID)}</span>}{one.sandboxID && <span class="label">only {plain(one.sandboxID)}</span>}</td>
                  <td data-label="role">{one.role}</td><td class="mono soft" data-label="key">{one.mask.prefix}{one.mask.maskedValuePrefix}…{one.mask.maskedValueSuffix}</td>
                  <td class="soft" data-label="created">{moment(one.createdAt)}</td><td class="soft" data-label="last used">{one.lastUsed ? `${age(one.lastUsed)} ago` : 'never'}</td>
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

const QUOTAS = { maxSandboxes: 'sandboxes', maxCpu: 'processors', maxMemoryMB: 'memory', maxDiskMB: 'disk', maxCreatesPerMinute: 'creates per minute' }
const isSize = (field) => field.endsWith('MB')

// The members of a team's use, by quota.
const USES = { maxSandboxes: 'sandboxes', maxCpu: 'cpu', maxMemoryMB: 'memoryMB', maxDiskMB: 'diskMB' }

function Quota({ used, limit, format }) {
  const share = limit ? (used ?? 0) / limit : 0
  if (used === undefined) return limit ? format(limit) : 'no limit'
  return (
    <>
      {format(used)}{limit ? ` of ${format(limit)}` : <span class="soft">, no limit</span>}
      {limit > 0 && <div class={`meter ${share >= 0.9 ? 'full' : ''}`} role="meter" aria-label="used" aria-valuemin={0} aria-valuemax={limit} aria-valuenow={used}><i style={{ width: `${Math.min(100, 100 * share)}%` }} /></div>}
    </>
  )
}

function Teams() {
  const { data, error, again } = useData(() => ask('/admin/teams'), [])
  useChanges((event) => /^sandbox\.(created|paused|resumed|killed)$/.test(event.type), again, [])
  const [name, setName] = useState('')
  const [wrong, setWrong] = useState(null)
  const [changed, setChanged] = useState(null)
  const [made, setMade] = useState(null)
  const [keyed, setKeyed] = useState(null)
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
  return (
    <>
      <form class="inline" onSubmit={make} novalidate><Field label="New team" error={wrong}><input placeholder="name" value={name} onInput={(event) => setName(event.target.value)} /></Field><Button kind="main" type="submit">Create</Button></form>
      {error && <Problem error={error} again={again} />}
      <div class="tiles">
        {data?.map((one) => (
          <Card key={one.teamID} title={<Text>{one.name}</Text>} actions={one.banned && <State state="banned" />}>
            <dl class="details">{Object.entries(QUOTAS).map(([field, text]) => <><dt key={field}>{text}</dt><dd><Quota used={one.use?.[USES[field]]} limit={one[field]} format={isSize(field) ? mebibytes : count} /></dd></>)}</dl>
            <div class="actions foot"><Button onClick={() => setChanged(one)}>Quotas</Button><Button onClick={() => setKeyed(one)}>New API key</Button></div>
          </Card>
        ))}
      </div>
      {keyed && <TeamKey team={keyed} onClose={(key) => (setKeyed(null), key && setMade(key))} />}
      {changed && <Quotas team={changed} onClose={() => (setChanged(null), again())} />}
      {made && <Secret made={made} onClose={() => setMade(null)} />}
    </>
  )
}

// A key for another team, least role first.
function TeamKey({ team, onClose }) {
  const [form, setForm] = useState({ name: '', role: 'viewer' })
  const [wrong, setWrong] = useState(null)
  const submit = async (event) => {
    event.preventDefault()
    try {
      onClose((await post(`/admin/teams/${enc(team.teamID)}/api-keys`, { name: form.name.trim(), role: form.role })).key)
    } catch (why) {
      setWrong(why.message)
    }
  }
  return (
    <Dialog title={`New API key of ${plain(team.name)}`} onClose={() => onClose()}>
      <form onSubmit={submit} novalidate>
        <div class="grid">
          <Field label="Name" error={wrong}><input autofocus value={form.name} onInput={(event) => setForm({ ...form, name: event.target.value })} /></Field>
          <Field label="Role"><select value={form.role} onChange={(event) => setForm({ ...form, role: event.target.value })}>{['viewer', 'member'].map((one) => <option key={one} value={one}>{one}: {ROLES[one]}</option>)}</select></Field>
        </div>
        <footer><Button kind="quiet" onClick={() => onClose()}>Cancel</Button><Button kind="main" type="submit">Create</Button></footer>
      </form>
    </Dialog>
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
        <div class="grid">{Object.entries(QUOTAS).map(([name, text]) => <Field key={name} label={isSize(name) ? `${text}, MiB` : text} hint="0: no limit" error={wrong.includes(name) && 'Must be a whole number; 0: no limit'}><input inputmode="numeric" value={form[name]} onInput={(event) => setForm({ ...form, [name]: event.target.value })} /></Field>)}</div>
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
  if (!data.length) return <Empty icon="file" title="No changes yet">The audit log lists every change with the API key that made it.</Empty>
  return (
    <Card>
      <div class="table-wrap" tabIndex={0}><table class="stack">
        <thead><tr><th>time</th><th>team</th><th>API key</th><th>request</th><th class="number">status</th></tr></thead>
        <tbody>{data.map((one) => <tr key={one.id}><td class="soft" data-label="time">{moment(one.timestamp)}</td><td data-label="team"><Text>{one.teamName}</Text></td><td data-label="API key"><Text>{one.keyName || (one.keyID ? one.keyID : 'configuration')}</Text>{one.agentID && <span class="label">{plain(one.agentID)}</span>}</td><td class="mono"><b>{one.method}</b> <Text>{one.path}</Text></td><td class={`number ${one.status >= 400 ? 'bad' : 'good'}`} data-label="status">{one.status}</td></tr>)}</tbody>
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
        <dt>Features</dt><dd>{Object.entries(one.capabilities).filter(([, value]) => value === true).map(([name]) => name).join(', ')}</dd>
        <dt>Network</dt><dd>{one.egress.join(', ')}</dd>
        {one.last_error && <><dt>Last error</dt><dd class="bad"><Text>{one.last_error}</Text></dd></>}
      </dl>
      <div class="actions foot"><Button icon="refresh" disabled={busy} label={`Check ${plain(one.name)}`} onClick={check}>{busy ? 'Checking…' : 'Check'}</Button>{checked && <span class="soft" role="status">checked at {clock(checked)}</span>}</div>
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
    <Card title="Settings in effect" actions={<input type="search" data-search placeholder="Filter" aria-label="Filter settings" value={text} onInput={(event) => setText(event.target.value)} />}>
      <p class="soft">Set by options of quicksand serve, QUICKSAND_… variables in its environment, or its configuration file. Settings marked “reload” change on SIGHUP, the others need a restart.</p>
      {!rows.length && <Empty icon="admin" title="No matching settings">Try other words.</Empty>}
      {rows.length > 0 && (
        <div class="table-wrap" tabIndex={0}><table class="settings">
          <thead><tr><th>setting</th><th>value</th><th>meaning</th></tr></thead>
          <tbody>
            {rows.map((one) => (
              <tr key={one.key}>
                <td class="mono">{one.key}{one.reload && <span class="label">reload</span>}</td>
                <td class="mono">{one.value === one.default ? <span class="soft"><Text>{one.value || '–'}</Text></span> : <><b><Text>{one.value || '–'}</Text></b><br /><small class="soft">default: <Text>{one.default || '–'}</Text></small></>}</td>
                <td>{plain(one.help)}</td>
              </tr>
            ))}
          </tbody>
        </table></div>
      )}
    </Card>
  )
}
