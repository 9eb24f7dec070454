// Who may what, who did what, and what it cost: keys, teams, webhooks, audit, providers, use.
import { useState } from 'preact/hooks'
import { ask, enc, post, remove, v1 } from '../api.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { age, count, duration, moment, plain } from '../words.js'

const TABS = { '': 'API keys', teams: 'Teams', webhooks: 'Webhooks', audit: 'Audit', providers: 'Providers', use: 'Use and cost' }

export function Admin({ who, tab = '' }) {
  const operates = who.role === 'operator'
  const Page = { '': Keys, teams: Teams, webhooks: Webhooks, audit: Audit, providers: Providers, use: Use }[tab] ?? Keys
  return (
    <>
      <div class="title"><h1>Administration</h1></div>
      <div class="tabs" role="tablist">
        {Object.entries(TABS).filter(([name]) => operates || name !== 'teams').map(([name, title]) => <a key={name} role="tab" aria-selected={tab === name} href={`#/admin${name && `/${name}`}`}>{title}</a>)}
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

function Teams() {
  const { data, error, again } = useData(() => ask('/admin/teams'), [])
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
            <dl class="details">{Object.entries(QUOTAS).map(([field, text]) => <><dt key={field}>{text}</dt><dd>{one[field] ? count(one[field]) : 'no limit'}</dd></>)}</dl>
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
  const submit = async (event) => {
    event.preventDefault()
    const bad = Object.keys(form).find((name) => !/^\d+$/.test(form[name]))
    if (bad) return setError(`${QUOTAS[bad]} is a whole number; 0 is no limit`)
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
        <div class="grid">{Object.entries(QUOTAS).map(([name, text]) => <Field key={name} label={text}><input inputmode="numeric" value={form[name]} onInput={(event) => setForm({ ...form, [name]: event.target.value })} /></Field>)}</div>
        {error && <Problem error={error} />}
        <footer><Button kind="quiet" onClick={onClose}>Cancel</Button><Button kind="main" type="submit">Save</Button></footer>
      </form>
    </Dialog>
  )
}

// ---- webhooks ----

const TYPES = ['created', 'paused', 'resumed', 'killed', 'updated'].map((one) => `sandbox.lifecycle.${one}`)

function Webhooks({ reads }) {
  const { data, error, again } = useData(() => ask('/events/webhooks'), [])
  const [form, setForm] = useState({ name: '', url: '', secret: '' })
  const [wrong, setWrong] = useState(null)
  const field = (name) => ({ value: form[name], onInput: (event) => setForm({ ...form, [name]: event.target.value }) })
  const make = async (event) => {
    event.preventDefault()
    setWrong(null)
    try {
      await post('/events/webhooks', { name: form.name, url: form.url, signatureSecret: form.secret, enabled: true, events: TYPES })
      setForm({ name: '', url: '', secret: '' })
      again()
    } catch (why) {
      setWrong(why.message)
    }
  }
  const turn = (one) => attempt(one.enabled ? 'Switched off' : 'Switched on', () => ask(`/events/webhooks/${enc(one.id)}`, { method: 'PATCH', body: { enabled: !one.enabled } })).then(again)
  return (
    <>
      {!reads && (
        <form class="inline" onSubmit={make} novalidate>
          <Field label="Name" error={wrong}><input {...field('name')} /></Field><Field label="Address"><input placeholder="https://" {...field('url')} /></Field><Field label="Secret of signatures" hint="32 characters or more"><input type="password" autocomplete="off" {...field('secret')} /></Field><Button kind="main" type="submit">Make</Button>
        </form>
      )}
      {error && <Problem error={error} again={again} />}
      {data && !data.length && <Empty icon="link" title="No webhook yet">An address here is told of every create, pause, resume and kill of the team's sandboxes, and again until it answers.</Empty>}
      {data?.length > 0 && <Card><ul class="plain">{data.map((one) => <li key={one.id}><b><Text>{one.name}</Text></b><Text class="mono">{one.url}</Text><span class="soft">{one.enabled ? 'on' : 'off'} · {one.events.length} kinds of events</span>{!reads && <span class="right"><Button kind="quiet" onClick={() => turn(one)}>{one.enabled ? 'Switch off' : 'Switch on'}</Button><Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => attempt('Deleted', () => remove(`/events/webhooks/${enc(one.id)}`)).then(again)} /></span>}</li>)}</ul></Card>}
    </>
  )
}

// ---- audit, providers, use ----

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

function Providers() {
  const [checked, setChecked] = useState(false)
  const { data, error, again } = useData(() => v1(`/providers${checked ? '?check=true' : ''}`), [checked])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return (
    <>
      <div class="actions"><Button icon="refresh" onClick={() => (checked ? again() : setChecked(true))}>Check all</Button></div>
      <div class="tiles">
        {data.providers.map((one) => (
          <Card key={one.name} title={<><Text>{one.name}</Text>{one.default && <span class="label">default</span>}</>} actions={<State state={one.state} />}>
            <dl class="details"><dt>Kind</dt><dd>{plain(one.type)}</dd><dt>Isolation</dt><dd>{plain(one.isolation)}, by {plain(one.isolated_by)}</dd><dt>Can</dt><dd>{Object.entries(one.capabilities).filter(([, value]) => value === true).map(([name]) => name).join(', ')}</dd><dt>Network</dt><dd>{one.egress.join(', ')}</dd>{one.last_error && <><dt>Last error</dt><dd class="bad"><Text>{one.last_error}</Text></dd></>}</dl>
          </Card>
        ))}
      </div>
    </>
  )
}

const GROUPS = { providers: 'provider', agents: 'agent', tasks: 'task', sessions: 'session' }

function csv(stats) {
  const cell = (text) => `"${String(text).replace(/^[=+@-]/, "'$&").replaceAll('"', '""')}"`
  const rows = [['group', 'name', 'sandboxes', 'running', 'seconds', 'cpu_seconds', 'commands', 'jobs', 'usd']]
  for (const [group, word] of Object.entries(GROUPS)) for (const [name, one] of Object.entries(stats[group])) rows.push([word, name, one.sandboxes, one.running, one.seconds, one.cpu_seconds, one.commands, one.jobs, one.usd])
  return rows.map((row) => row.map(cell).join(',')).join('\r\n')
}

function Use() {
  const { data, error, again } = useData(() => v1('/stats'), [])
  const [group, setGroup] = useState('providers')
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  const rows = Object.entries(data[group]).sort(([, a], [, b]) => b.seconds - a.seconds)
  const most = Math.max(1, ...rows.map(([, one]) => one.seconds))
  const save = () => {
    const link = document.createElement('a')
    link.href = URL.createObjectURL(new Blob([csv(data)], { type: 'text/csv' }))
    link.download = 'quicksand-use.csv'
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  }
  return (
    <Card title="Use and cost" actions={<><div class="chips" role="group" aria-label="By">{Object.entries(GROUPS).map(([name, word]) => <button type="button" key={name} aria-pressed={group === name} onClick={() => setGroup(name)}>by {word}</button>)}</div><Button onClick={save}>CSV</Button></>}>
      {!rows.length ? <Empty icon="overview" title="Nothing to count">No sandbox was of any {GROUPS[group]} yet.</Empty> : (
        <div class="table-wrap"><table>
          <thead><tr><th>{GROUPS[group]}</th><th class="number">sandboxes</th><th class="number">ran</th><th class="wide">share</th><th class="number">processor time</th><th class="number">commands</th><th class="number">cost</th></tr></thead>
          <tbody>{rows.map(([name, one]) => <tr key={name}><td><Text>{name || '–'}</Text></td><td class="number">{count(one.sandboxes)}</td><td class="number">{duration(one.seconds)}</td><td><div class="meter"><i style={{ width: `${(100 * one.seconds) / most}%` }} /></div></td><td class="number">{duration(one.cpu_seconds)}</td><td class="number">{count(one.commands + one.jobs)}</td><td class="number">$ {one.usd.toFixed(4)}</td></tr>)}</tbody>
        </table></div>
      )}
    </Card>
  )
}
