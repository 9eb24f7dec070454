// One list of all sandboxes, whoever made them.
import { useMemo, useState } from 'preact/hooks'
import { enc, post, v1 } from '../api.js'
import { live as store, refresh, useLive } from '../live.js'
import { Button, Confirm, Empty, Icon, Loading, Rows, State, Text, note } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, count, shorten } from '../words.js'
import { Create } from './create.jsx'

const COLUMNS = [
  ['name', 'Sandbox', (one) => one.key ?? one.id],
  ['state', 'State', (one) => one.state],
  ['template', 'Template', (one) => one.template ?? ''],
  ['maker', 'Made by', (one) => one.agent_id ?? (one.adopted ? 'SDK' : 'runtime')],
  ['provider', 'Provider', (one) => one.provider],
  ['created', 'Age', (one) => one.created_at],
]
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
  const value = COLUMNS.find(([name]) => name === sort.by)[2]
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
  extend: { text: 'Extend 1 h', icon: 'clock', done: 'extended by an hour', work: (id) => extend(id, 3600) },
  kill: { text: 'Kill', icon: 'bin', done: 'killed', danger: true, work: (id) => v1(`/sandboxes/${enc(id)}`, { method: 'DELETE' }) },
}

export function extend(id, seconds) {
  const external = store.sandboxes.get(id)?.external_id ?? id
  return post(`/sandboxes/${enc(external)}/timeout`, { timeout: seconds })
}

async function run(name, ids) {
  const { failed, first } = await each(ids, ACTIONS[name].work)
  const good = ids.length - failed
  if (good) note(`${count(good)} ${good === 1 ? 'sandbox' : 'sandboxes'} ${ACTIONS[name].done}`)
  if (failed) note(`${count(failed)} could not be: ${first.message}`, 'bad')
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
  const items = useMemo(() => select(live.sandboxes.values(), { ...filter, words }, sort), [live.version, text, filter, sort])
  const templates = useMemo(() => [...new Set([...live.sandboxes.values()].map((one) => one.template).filter(Boolean))].sort(), [live.version])
  const ids = items.filter((one) => chosen.has(one.id)).map((one) => one.id)
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
      <div class="title">
        <h1>Sandboxes <small>{count(live.sandboxes.size)}</small></h1>
        {!reads && <Button kind="main" icon="plus" onClick={() => go('sandboxes/new')}>New sandbox</Button>}
      </div>
      <div class="filters">
        <label class="search">
          <Icon name="search" size={16} />
          <input type="search" data-search placeholder="id, key, agent, template, metadata" aria-label="Filter sandboxes" value={text} onInput={(event) => setText(event.target.value)} />
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
        <span class="soft right" role="status">{count(items.length)} shown</span>
      </div>
      {ids.length > 0 && (
        <div class="bulk" role="toolbar" aria-label="With the chosen ones">
          <b>{count(ids.length)} chosen</b>
          {Object.entries(ACTIONS).map(([name, one]) => (
            <Button key={name} icon={one.icon} kind={one.danger ? 'danger' : ''} onClick={() => act(name, ids)}>{one.text}</Button>
          ))}
          <Button kind="quiet" onClick={() => setChosen(new Set())}>None</Button>
        </div>
      )}
      {items.length === 0 ? (
        <Empty title={live.sandboxes.size ? 'Nothing fits' : 'No sandbox yet'}>
          {live.sandboxes.size ? 'Other words or another state may show more.' : 'Make one with New sandbox, with an SDK, or with quicksand create. It appears here at once.'}
        </Empty>
      ) : (
        <Rows
          label="Sandboxes"
          items={items}
          height={46}
          head={
            <>
              <span role="columnheader">
                <input type="checkbox" aria-label="Choose all that are shown" disabled={reads} checked={ids.length === items.length} onChange={(event) => setChosen(event.target.checked ? new Set(items.map((one) => one.id)) : new Set())} />
              </span>
              {COLUMNS.map(([name, title]) => (
                <span key={name} role="columnheader" class={`c-${name}`} aria-sort={sort.by === name ? (sort.down ? 'descending' : 'ascending') : 'none'}>
                  <button type="button" onClick={() => setSort({ by: name, down: sort.by === name && !sort.down })}>
                    {title} {sort.by === name && (sort.down ? '↓' : '↑')}
                  </button>
                </span>
              ))}
              <span role="columnheader" class="c-do"><span class="hidden">Actions</span></span>
            </>
          }
          row={(one) => <Row key={one.id} one={one} chosen={chosen.has(one.id)} toggle={toggle} act={act} reads={reads} />}
        />
      )}
      {create && <Create onClose={() => go('sandboxes')} />}
      {killing && (
        <Confirm title="Kill?" action={`Kill ${count(killing.length)}`} onClose={() => setKilling(null)} onDo={() => run('kill', killing).then(() => setChosen(new Set()))}>
          {killing.length === 1 ? 'This sandbox ends' : `These ${count(killing.length)} sandboxes end`} at once; files that are in no snapshot or volume are gone.
        </Confirm>
      )}
    </>
  )
}

function Row({ one, chosen, toggle, act, reads }) {
  const labels = Object.entries(one.metadata ?? {}).slice(0, 2)
  return (
    <div class={`row ${chosen ? 'chosen' : ''}`} role="row">
      <span role="cell"><input type="checkbox" aria-label={`Choose ${one.id}`} disabled={reads} checked={chosen} onChange={() => toggle(one.id)} /></span>
      <span role="cell" class="c-name">
        <a href={`#/sandboxes/${enc(one.id)}`}><Text>{one.key ?? one.id}</Text></a>
        {labels.map(([name, value]) => <span class="label" key={name}><Text>{`${name}=${value}`}</Text></span>)}
      </span>
      <span role="cell" class="c-state"><State state={one.state} /></span>
      <span role="cell" class="c-template"><Text>{one.template ?? '–'}</Text></span>
      <span role="cell" class="c-maker"><Text>{one.agent_id ?? (one.adopted ? 'SDK' : 'runtime')}</Text></span>
      <span role="cell" class="c-provider"><Text>{one.provider}</Text></span>
      <span role="cell" class="c-created">{age(one.created_at)}</span>
      <span role="cell" class="c-do">
        {!reads && (
          <>
            {one.state === 'paused' ? <Button icon="play" kind="quiet" label={`Resume ${one.id}`} onClick={() => act('resume', [one.id])} /> : <Button icon="pause" kind="quiet" label={`Pause ${one.id}`} onClick={() => act('pause', [one.id])} />}
            <Button icon="bin" kind="quiet" label={`Kill ${one.id}`} onClick={() => act('kill', [one.id])} />
          </>
        )}
      </span>
    </div>
  )
}
