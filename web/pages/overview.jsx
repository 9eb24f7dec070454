// What runs, how fast, and what went wrong, at one glance.
import { useMemo, useState } from 'preact/hooks'
import { text, v1 } from '../api.js'
import { useChanges, useEvery, useLive } from '../live.js'
import { Card, Chart, Chips, Empty, Heading, Icon, Loading, Problem, State, Text, useData } from '../parts.jsx'
import { age, bytes, clock, count, nameOf, percent, plural, shorten } from '../words.js'

const Figure = ({ name, value, hint, tint = '', part }) => (
  <div class={`figure ${tint}`} data-figure={name}>
    <small>{name}</small>
    <b>{value}</b>
    <span>{hint}</span>
    {part !== undefined && <div class={`meter ${part >= 0.9 ? 'full' : ''}`}><i style={{ width: `${Math.min(100, Math.max(1, part * 100))}%` }} /></div>}
  </div>
)

export const failed = (event) => /fail|error|lost/.test(event.type)

// own: in the list of one sandbox, whose name needs no column.
export const EventLine = ({ event, name, own }) => (
  <li>
    <time>{clock(event.ts)}</time>
    <span class={`type ${failed(event) ? 'bad' : event.type.split('.')[0]}`}>{shorten(event.type, 40)}</span>
    {own ? null : event.sandbox ? <a href={`#/sandboxes/${encodeURIComponent(event.sandbox)}`}><Text>{name ?? event.sandbox}</Text></a> : <Text>{event.session ?? ''}</Text>}
    <Text class="soft">{shorten(event.data?.command ?? event.data?.reason ?? event.data?.error ?? event.agent ?? '', 80)}</Text>
  </li>
)

const within = (events, seconds, fits) => events.filter((one) => fits(one) && Date.now() - Date.parse(one.ts) < seconds * 1000)
const isSandbox = (event) => event.type.startsWith('sandbox.')
const isCount = (event) => event.type === 'sandbox.created' || /^(process|job)\.(started|exited)/.test(event.type)

// How many sandboxes are in a state: of this team, and of these the ones that are not on this host (there, both ids are the same).
function tally(sandboxes, state) {
  const all = [...sandboxes.values()].filter((one) => one.state === state)
  return { all: all.length, elsewhere: all.filter((one) => one.external_id && one.external_id !== one.id).length }
}

// For the operator, figures and charts are of the whole host and from one answer, so that both show the same numbers.
function useHost(operates, range, tick) {
  const host = useData(() => (operates ? v1(`/history?range=${range}`) : Promise.resolve(null)), [range, tick])
  useChanges((event) => operates && isSandbox(event), host.again, [operates])
  return host
}

export function Overview({ who }) {
  const live = useLive()
  const tick = useEvery(10_000)
  const [range, setRange] = useState('15m')
  const operates = who.role === 'operator'
  const host = useHost(operates, range, tick)
  const stats = useData(() => v1('/stats'), [])
  useChanges(isCount, stats.again, [], 2000)
  const newest = useMemo(() => [...live.sandboxes.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, 6), [live.version])
  const bad = within(live.events, 3600, failed)
  return (
    <>
      <Heading name="Overview" actions={who.role !== 'viewer' && <a class="button main" href="#/sandboxes/new"><Icon name="plus" size={16} /> New sandbox</a>} />
      <Figures live={live} operates={operates} now={host.data?.now} stats={stats.data} bad={bad} />
      {operates && <Host host={host} range={range} setRange={setRange} />}
      <div class="columns">
        <Card title="Newest sandboxes">
          {!live.loaded ? (
            <Loading />
          ) : newest.length ? (
            <ul class="plain">
              {newest.map((one) => (
                <li key={one.id}>
                  <a href={`#/sandboxes/${one.id}`}><Text>{nameOf(one)}</Text></a>
                  <State state={one.state} />
                  <Text class="soft whole">{shorten(one.template, 24)}</Text>
                  <span class="soft right">{age(one.created_at)}</span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty title="No sandbox yet">Press <kbd>c</kbd> or choose New sandbox. Sandboxes of the SDKs, the command line and agents appear here, too.</Empty>
          )}
        </Card>
        <Card title={bad.length ? 'Errors and newest events' : 'Newest events'}>
          {!live.loaded ? (
            <Loading />
          ) : live.events.length ? (
            <ul class="events">{[...bad.slice(0, 4), ...live.events.filter((one) => !bad.includes(one)).slice(0, 12 - Math.min(4, bad.length))].map((one) => <EventLine key={one.id ?? one.ts} event={one} name={live.sandboxes.has(one.sandbox) ? nameOf(live.sandboxes.get(one.sandbox)) : undefined} />)}</ul>
          ) : (
            <Empty icon="overview" title="No events yet">Events appear here the moment they happen.</Empty>
          )}
        </Card>
      </div>
    </>
  )
}

function Figures({ live, operates, now, stats, bad }) {
  const states = Object.fromEntries(['running', 'paused'].map((state) => {
    const { all, elsewhere } = tally(live.sandboxes, state)
    if (!operates) return [state, { value: live.loaded ? all : NaN, hint: 'sandboxes' }]
    return [state, { value: now?.[state], hint: elsewhere ? `on this host, ${count(elsewhere)} elsewhere` : 'sandboxes' }]
  }))
  const minute = (type) => within(live.events, 60, (one) => one.type === type).length
  const commands = stats ? stats.total.commands + stats.total.jobs : NaN
  return (
    <div class="figures">
      <Figure name="Running" value={count(states.running.value)} hint={states.running.hint} tint={states.running.value ? 'good' : ''} />
      <Figure name="Paused" value={count(states.paused.value)} hint={states.paused.hint} tint={states.paused.value ? 'warm' : ''} />
      <Figure name="Created" value={count(operates ? now?.creates : minute('sandbox.created'))} hint="in the last minute" />
      <Figure name="Create time" value={stats ? `${count(stats.create_ms.p50)} ms` : '–'} hint={stats ? `median; p99 ${count(stats.create_ms.p99)} ms` : ''} />
      <Figure name="Commands" value={count(commands)} hint={`in total, ${count(minute('process.started'))} in the last minute`} />
      <Figure name="Errors" value={count(bad.length)} hint="in the last hour" tint={bad.length ? 'bad' : ''} />
    </div>
  )
}

// ---- the host, for the operator ----

const RANGES = { '15m': '15 min', '6h': '6 h', '7d': '7 days' }

const findings = (now, refused) =>
  [
    now?.disk_held && "The data directory's file system is full: free some space, or sandboxes cannot write.",
    now && !now.egress_up && 'The egress process does not answer: sandboxes with names in their network rules reach nothing.',
    now && !now.disk_held && now.disk_free / (now.disk_used + now.disk_free) < 0.05 && "Less than 5 % of the data directory's file system is free.",
    refused > 0 && `${plural(refused, 'create')} ${refused === 1 ? 'was' : 'were'} refused since the server started, because too many were under way (setting create-queue).`,
  ].filter(Boolean)

// The history with the figures of now as its newest point. Creates are per minute: the sum of a minute where a row is shorter,
// the average where it is longer.
function seriesOf(data) {
  const { now, step } = data
  const perMinute = (name) => data.at.map((end, at) => {
    if (step >= 60) return (data[name][at] * 60) / step
    let sum = 0
    for (let k = at; k >= 0 && data.at[k] > end - 60; k--) sum += data[name][k]
    return sum
  })
  const plus = (values, value) => (now ? [...values, value] : values)
  return {
    at: plus(data.at, now?.at),
    running: plus(data.running, now?.running),
    paused: plus(data.paused, now?.paused),
    creates: plus(perMinute('creates'), now?.creates),
    failures: plus(perMinute('failures'), now?.failures),
    cpu: plus(data.cpu_permille, now?.cpu_permille).map((n) => n / 10),
    memory: plus(data.mem_used.map((n, at) => n / (data.mem_total[at] || 1)), now && now.mem_used / now.mem_total).map((n) => 100 * n),
  }
}

// "quicksand_creates_refused_total 3" of the metrics, read once: the server does not count it by time.
const refusedOf = (metrics) => Number(/^quicksand_creates_refused_total (\d+)$/m.exec(metrics)?.[1] ?? 0)

function Host({ host, range, setRange }) {
  const { data, error, again } = host
  const { data: refused } = useData(async () => refusedOf(await text('/metrics')), [])
  const now = data?.now
  const all = useMemo(() => data && seriesOf(data), [data])
  const charts = useMemo(() => all && [
    { title: 'Sandboxes', series: [{ name: 'running', tint: '--green', values: all.running }, { name: 'paused', tint: '--accent', values: all.paused }] },
    { title: 'Creates', unit: 'per minute', series: [{ name: 'created', tint: '--blue', values: all.creates }, { name: 'failed', tint: '--red', values: all.failures }] },
    { title: 'Processors and memory', unit: '% of this host', max: 100, format: (n) => `${Math.round(n)} %`, series: [{ name: 'processors', tint: '--accent', values: all.cpu }, { name: 'memory', tint: '--violet', values: all.memory }] },
  ], [all])
  const own = now && now.pool_total === now.disk_total // the pool is that file system itself
  return (
    <>
      {findings(now, refused).map((one) => <div key={one} class="problem" role="alert"><span>{one} <span class="soft">Run quicksand doctor for more.</span></span></div>)}
      <Card title="This host, all teams" actions={<Chips label="Range" all={RANGES} chosen={range} choose={setRange} />}>
        {error && <Problem error={error} again={again} />}
        <div class="figures flat">
          <Figure name="Processors" value={percent(now?.cpu_permille / 1000)} hint="busy" part={(now?.cpu_permille ?? 0) / 1000} />
          <Figure name="Memory" value={bytes(now?.mem_used)} hint={now ? `${percent(now.mem_used / now.mem_total)} of ${bytes(now.mem_total)}` : ''} part={now?.mem_used / now?.mem_total || 0} />
          <Figure name="Disk" value={bytes(now?.disk_used)} hint={now ? `of ${bytes(now.disk_total)}, ${bytes(now.disk_free)} free; the data directory's file system` : ''} part={now?.disk_used / (now?.disk_used + now?.disk_free) || 0} />
          {!own && <Figure name="Pool" value={bytes(now?.pool_used)} hint={now ? `of ${bytes(now.pool_total)}; sandboxes' files, on that disk` : ''} part={now?.pool_used / now?.pool_total || 0} />}
          <Figure name="Warm boxes" value={count(now?.warm)} hint="ready for a create" />
        </div>
        {all?.at.length > 1 ? (
          <div class="charts">{charts.map((one) => <Chart key={one.title} times={all.at} {...one} />)}</div>
        ) : (
          !error && <Empty icon="overview" title="Charts begin soon">The server takes a sample every ten seconds. Charts of {RANGES[range]} fill up from now on and survive a restart.</Empty>
        )}
      </Card>
    </>
  )
}
