// The list of all sandboxes.
import { useEffect, useMemo, useState } from 'preact/hooks'
import { ask, enc, post, v1 } from '../api.js'
import { listTeam, live as store, refresh, useEvery, useLive } from '../live.js'
import { Button, Confirm, Empty, Heading, Icon, Loading, Problem, Rows, State, Text, note } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, count, nameOf, shorten } from '../words.js'
import { Create } from './create.jsx'

const COLUMNS = [
  ['name', 'Sandbox', nameOf],
  ['state', 'State', (one) => one.state],
  ['template', 'Template', (one) => one.template ?? ''],
  ['maker', 'Created by', (one) => one.agent_id ?? (one.adopted ? 'SDK' : 'runtime')],
  ['provider', 'Provider', (one) => one.provider],
  ['created', 'Age', (one) => one.created_at],
]
const TEAM_COLUMN = ['team', 'Team', (one) => one.team ?? '']
const TEAM_AGAIN_MS = 5000 // the event stream has the own team only
const AGES = { '': 'any age', 3600: 'last hour', 86400: 'last day', older: 'older than a day' }

const haystack = (one) => [one.id, one.external_id, one.key, one.template, one.agent_id, one.task_id, one.profile, ...Object.entries(one.metadata ?? {}).flat()].join(' ').toLowerCase()

function fits(one, filter, now) {
  if (filter.state && one.state !== filter.state) return false
  if (filter.template && one.template !== filter.template) return false
  if (filter.age) {
    const old = (now - Date.parse(one.created_at)) / 1000
    if (filter.age === 'older' ? old < 86400 : old > Number(filter.age)) return false
  }
  return filter.words.every((word) => haystack(one).includes(word))
}

function select(all, filter, sort) {
  const value = [...COLUMNS, TEAM_COLUMN].find(([name]) => name === sort.by)[2]
  const now = Date.now()
  const turn = sort.down ? -1 : 1
  return [...all].filter((one) => fits(one, filter, now)).sort((a, b) => {
    const [x, y] = [value(a), value(b)]
    return x < y ? -turn : x > y ? turn : 0
  })
}

// Some at a time, so that a browser and the server stay responsive.
async function each(ids, work) {
  let failed = 0
  let first = null
  const rest = [...ids]
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let id; (id = rest.pop()); ) {
        await work(id).catch((error) => {
          failed++
          first ??= error
        })
        refresh(id)
      }
    }),
  )
  return { failed, first }
}

const ACTIONS = {
  pause: { text: 'Pause', icon: 'pause', done: 'paused', work: (id) => v1(`/sandboxes/${enc(id)}/pause`, { method: 'POST', body: {} }) },
  resume: { text: 'Resume', icon: 'play', done: 'resumed', work: (id) => v1(`/sandboxes/${enc(id)}/resume`, { method: 'POST', body: {} }) },
  extend: { text: 'Extend 1 h', icon: 'clock', done: 'will end in an hour', work: (id) => extend(id, 3600) },
  kill: { text: 'Kill', icon: 'bin', done: 'killed', danger: true, work: (id) => v1(`/sandboxes/${enc(id)}`, { method: 'DELETE' }) },
}

export function extend(id, seconds) {
  const external = store.sandboxes.get(id)?.external_id ?? id
  return post(`/sandboxes/${enc(external)}/timeout`, { timeout: seconds })
}

async function run(name, ids) {
  const { failed, first } = await each(ids, ACTIONS[name].work)
  const good = ids.length - failed
  if (good) note(`${good === 1 ? '1 sandbox' : `${count(good)} sandboxes`} ${ACTIONS[name].done}`)
  if (failed) note(`${count(failed)} failed: ${first.message}`, 'bad')
}

// Names of the teams besides the own one, when there are any and who looks may see them; and the sandboxes of the chosen one.
function useTeams(who) {
  const [team, setTeam] = useState('')
  const [names, setNames] = useState([])
  const [rows, setRows] = useState(null)
  const [error, setError] = useState(null)
  const turn = useEvery(TEAM_AGAIN_MS)
  useEffect(() => {
    if (who.role === 'operator') ask('/admin/teams').then((all) => setNames(all.map((one) => one.name).filter((name) => name !== who.team)), () => {})
  }, [])
  useEffect(() => setRows(null), [team])
  useEffect(() => {
    let gone = false
    if (team) listTeam(team).then((all) => gone || (setRows(all), setError(null)), (why) => gone || setError(why))
    return () => (gone = true)
  }, [team, turn])
  return { team, setTeam, names, rows, error }
}

export function Sandboxes({ who, create }) {
  const live = useLive()
  const given = new URLSearchParams(location.hash.split('?')[1] ?? '').get('q') ?? ''
  const [text, setText] = useState(given)
  const [filter, setFilter] = useState({ state: '', template: '', age: '' })
  const [sort, setSort] = useState({ by: 'created', down: true })
  const [chosen, setChosen] = useState(() => new Set())
  const [killing, setKilling] = useState(null)
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const { team, setTeam, names, rows, error } = useTeams(who)
  const all = team ? rows ?? [] : [...live.sandboxes.values()]
  const version = team ? rows : live.version
  const items = useMemo(() => select(all, { ...filter, words }, sort), [version, team, text, filter, sort])
  const templates = useMemo(() => [...new Set(all.map((one) => one.template).filter(Boolean))].sort(), [version, team])
  const columns = team ? [...COLUMNS.slice(0, 1), TEAM_COLUMN, ...COLUMNS.slice(1)] : COLUMNS
  const own = (one) => !team || one.team === who.team
  const ids = items.filter((one) => own(one) && chosen.has(one.id)).map((one) => one.id)
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value })
  const reads = who.role === 'viewer'
  const toggle = (id) => {
    const next = new Set(chosen)
    next.has(id) ? next.delete(id) : next.add(id)
    setChosen(next)
  }
  const act = (name, which) => (ACTIONS[name].danger ? setKilling(which) : run(name, which).then(() => setChosen(new Set())))
  if (!live.loaded) return <Loading />
  return (
    <>
      <Heading name="Sandboxes" actions={!reads && <Button kind="main" icon="plus" onClick={() => go('sandboxes/new')}>New sandbox</Button>}>Sandboxes <small>{count(all.length)}</small></Heading>
      <div class="filters">
        <label class="search">
          <Icon name="search" size={16} />
          <input type="search" data-search placeholder="id, name, agent, template, metadata" aria-label="Filter sandboxes" value={text} onInput={(event) => setText(event.target.value)} />
        </label>
        <select aria-label="State" value={filter.state} onChange={set('state')}>
          <option value="">all states</option>
          {['running', 'paused', 'creating', 'error'].map((one) => <option key={one}>{one}</option>)}
        </select>
        <select aria-label="Template" value={filter.template} onChange={set('template')}>
          <option value="">all templates</option>
          {templates.map((one) => <option key={one} value={one}>{shorten(one, 40)}</option>)}
        </select>
        <select aria-label="Age" value={filter.age} onChange={set('age')}>
          {Object.entries(AGES).map(([value, name]) => <option key={value} value={value}>{name}</option>)}
        </select>
        {names.length > 0 && (
          <select aria-label="Team" value={team} onChange={(event) => setTeam(event.target.value)}>
            <option value="">own team</option>
            <option value="*">all teams</option>
            {names.map((one) => <option key={one} value={one}>{shorten(one, 40)}</option>)}
          </select>
        )}
        <span class="soft right" role="status">{count(items.length)} shown</span>
      </div>
      {ids.length > 0 && (
        <div class="bulk" role="toolbar" aria-label="Selected sandboxes">
          <b>{count(ids.length)} selected</b>
          {Object.entries(ACTIONS).map(([name, one]) => (
            <Button key={name} icon={one.icon} kind={one.danger ? 'danger' : ''} onClick={() => act(name, ids)}>{one.text}</Button>
          ))}
          <Button kind="quiet" onClick={() => setChosen(new Set())}>Clear selection</Button>
        </div>
      )}
      {error && <Problem error={error} />}
      {team && !rows ? (
        <Loading />
      ) : items.length === 0 ? (
        <Empty title={all.length ? 'No matching sandboxes' : 'No sandboxes yet'}>
          {all.length ? 'Try other words or another state.' : 'Create one with New sandbox, an SDK, or quicksand create. It appears here at once.'}
        </Empty>
      ) : (
        <div class={team ? 'with-team' : 'as-one'}><Rows
          label="Sandboxes"
          items={items}
          height={46}
          head={
            <>
              <span role="columnheader">
                <input type="checkbox" aria-label="Select all shown" disabled={reads} checked={ids.length === items.length} onChange={(event) => setChosen(event.target.checked ? new Set(items.filter(own).map((one) => one.id)) : new Set())} />
              </span>
              {columns.map(([name, title]) => (
                <span key={name} role="columnheader" class={`c-${name}`} aria-sort={sort.by === name ? (sort.down ? 'descending' : 'ascending') : 'none'}>
                  <button type="button" onClick={() => setSort({ by: name, down: sort.by === name && !sort.down })}>
                    {title} {sort.by === name && (sort.down ? '↓' : '↑')}
                  </button>
                </span>
              ))}
              <span role="columnheader" class="c-do"><span class="hidden">Actions</span></span>
            </>
          }
          row={(one) => <Row key={one.id} one={one} chosen={chosen.has(one.id)} toggle={toggle} act={act} reads={reads || !own(one)} link={own(one)} team={team} />}
        /></div>
      )}
      {create && <Create onClose={() => go('sandboxes')} />}
      {killing && (
        <Confirm title={killing.length === 1 ? 'Kill this sandbox?' : `Kill ${count(killing.length)} sandboxes?`} action={`Kill ${count(killing.length)}`} onClose={() => setKilling(null)} onDo={() => run('kill', killing).then(() => setChosen(new Set()))}>
          {killing.length === 1 ? 'It ends' : 'They end'} at once. Files are lost, except those in snapshots and volumes.
        </Confirm>
      )}
    </>
  )
}

function Row({ one, chosen, toggle, act, reads, link, team }) {
  const labels = Object.entries(one.metadata ?? {}).filter(([, value]) => value !== nameOf(one)).slice(0, 2)
  return (
    <div class={`row ${chosen ? 'chosen' : ''}`} role="row">
      <span role="cell"><input type="checkbox" aria-label={`Select ${nameOf(one)}`} disabled={reads} checked={chosen} onChange={() => toggle(one.id)} /></span>
      <span role="cell" class="c-name">
        {link ? <a href={`#/sandboxes/${enc(one.id)}`}><Text>{nameOf(one)}</Text></a> : <Text>{nameOf(one)}</Text>}
        {labels.map(([name, value]) => <span class="label" key={name}><Text>{`${name}=${value}`}</Text></span>)}
      </span>
      {team && <span role="cell" class="c-team"><Text>{one.team}</Text></span>}
      <span role="cell" class="c-state"><State state={one.state} /></span>
      <span role="cell" class="c-template"><Text>{one.template ?? '–'}</Text></span>
      <span role="cell" class="c-maker"><Text>{one.agent_id ?? (one.adopted ? 'SDK' : 'runtime')}</Text></span>
      <span role="cell" class="c-provider"><Text>{one.provider}</Text></span>
      <span role="cell" class="c-created">{age(one.created_at)}</span>
      <span role="cell" class="c-do">
        {!reads && (
          <>
            {one.state === 'paused' ? <Button icon="play" kind="quiet" label={`Resume ${nameOf(one)}`} onClick={() => act('resume', [one.id])} /> : <Button icon="pause" kind="quiet" label={`Pause ${nameOf(one)}`} onClick={() => act('pause', [one.id])} />}
            <Button icon="bin" kind="quiet" label={`Kill ${nameOf(one)}`} onClick={() => act('kill', [one.id])} />
          </>
        )}
      </span>
    </div>
  )
}
