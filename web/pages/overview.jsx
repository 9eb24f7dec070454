// What runs, how fast, and what went wrong, at one glance.
import { useMemo, useState } from 'preact/hooks'
import { text, v1 } from '../api.js'
import { useEvery, useLive } from '../live.js'
import { Card, Chart, Empty, Icon, Loading, Problem, State, Text, useData } from '../parts.jsx'
import { age, bytes, clock, count, shorten } from '../words.js'

const Figure = ({ name, value, hint, tint = '', part }) => (
  <div class={`figure ${tint}`}>
    <small>{name}</small>
    <b>{value}</b>
    <span>{hint}</span>
    {part !== undefined && <div class="meter"><i style={{ width: `${Math.min(100, Math.max(1, part * 100))}%` }} /></div>}
  </div>
)

export const EventLine = ({ event }) => (
  <li>
    <time>{clock(event.ts)}</time>
    <span class={`type ${event.type.split('.')[0]}`}>{shorten(event.type, 40)}</span>
    {event.sandbox ? <a href={`#/sandboxes/${encodeURIComponent(event.sandbox)}`}><Text>{event.sandbox}</Text></a> : <Text>{event.session ?? ''}</Text>}
    <Text class="soft">{shorten(event.data?.command ?? event.data?.reason ?? event.data?.error ?? event.agent ?? '', 80)}</Text>
  </li>
)

const within = (events, seconds, fits) => events.filter((one) => fits(one) && Date.now() - Date.parse(one.ts) < seconds * 1000)
const failed = (one) => /fail|error|lost/.test(one.type)

// "name{labels} value" lines as {name: value}; those with labels under name{labels}.
function readMetrics(text) {
  const out = {}
  for (const line of text.split('\n')) {
    const at = line.lastIndexOf(' ')
    if (at > 0 && line[0] !== '#') out[line.slice(0, at)] = Number(line.slice(at + 1))
  }
  return out
}

export function Overview({ who }) {
  const live = useLive()
  const tick = useEvery(10_000)
  const operates = who.role === 'operator'
  const { data: stats } = useData(() => v1('/stats'), [Math.floor(live.version / 20), tick])
  const counts = useMemo(() => {
    const out = { running: 0, paused: 0, creating: 0, error: 0 }
    for (const one of live.sandboxes.values()) out[one.state]++
    return out
  }, [live.version])
  const newest = useMemo(() => [...live.sandboxes.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1)).slice(0, 6), [live.version])
  const of = (state) => (live.loaded ? count(counts[state]) : '–')
  const bad = within(live.events, 3600, failed)
  return (
    <>
      <div class="title">
        <h1>Overview</h1>
        {who.role !== 'viewer' && <a class="button main" href="#/sandboxes/new"><Icon name="plus" size={16} /> New sandbox</a>}
      </div>
      <div class="figures">
        <Figure name="Running" value={of('running')} hint="sandboxes" tint="good" />
        <Figure name="Paused" value={of('paused')} hint="sandboxes" tint="warm" />
        <Figure name="Created" value={count(within(live.events, 60, (one) => one.type === 'sandbox.created').length)} hint="in the last minute" />
        <Figure name="Create p50" value={stats ? `${count(stats.create_ms.p50)} ms` : '–'} hint={stats ? `p99 ${count(stats.create_ms.p99)} ms` : ''} />
        <Figure name="Commands" value={stats ? count(stats.total.commands + stats.total.jobs) : '–'} hint={`${count(within(live.events, 60, (one) => one.type === 'process.started').length)} last minute`} />
        <Figure name="Failures" value={count(bad.length)} hint="in the last hour" tint={bad.length ? 'bad' : ''} />
      </div>
      {operates && <Host tick={tick} />}
      <div class="columns">
        <Card title="Newest sandboxes">
          {!live.loaded ? (
            <Loading />
          ) : newest.length ? (
            <ul class="plain">
              {newest.map((one) => (
                <li key={one.id}>
                  <a href={`#/sandboxes/${one.id}`}><Text>{one.key ?? one.id}</Text></a>
                  <State state={one.state} />
                  <Text class="soft">{shorten(one.template, 24)}</Text>
                  <span class="soft right">{age(one.created_at)}</span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty title="No sandbox yet">Press <kbd>c</kbd> or choose New sandbox. The SDKs, the command line and agents make them, too; all show up here.</Empty>
          )}
        </Card>
        <Card title={bad.length ? 'What failed, and what happens' : 'What happens'}>
          {!live.loaded ? (
            <Loading />
          ) : live.events.length ? (
            <ul class="events">{[...bad.slice(0, 4), ...live.events.filter((one) => !bad.includes(one)).slice(0, 12 - Math.min(4, bad.length))].map((one) => <EventLine key={one.id ?? one.ts} event={one} />)}</ul>
          ) : (
            <Empty icon="overview" title="Quiet so far">Events appear here the moment they happen.</Empty>
          )}
        </Card>
      </div>
    </>
  )
}

// ---- the host, for the operator ----

const RANGES = { '15m': '15 min', '6h': '6 h', '7d': '7 days' }
const findings = (now) =>
  [
    now.quicksand_pool_held && 'The disk below the pool is full: free some space, or sandboxes cannot write.',
    now.quicksand_egress_up === 0 && 'The egress process does not answer: sandboxes with names in their rules reach nothing.',
    now.quicksand_host_disk_free_bytes / now.quicksand_host_disk_bytes < 0.05 && 'Less than 5 % of the disk is free.',
    now.quicksand_creates_refused_total > 0 && `${count(now.quicksand_creates_refused_total)} creates were refused because too many were under way (create-queue).`,
  ].filter(Boolean)

function Host({ tick }) {
  const [range, setRange] = useState('15m')
  const { data, error, again } = useData(() => v1(`/history?range=${range}`), [range, tick])
  const { data: now } = useData(async () => readMetrics(await text('/metrics')), [tick])
  const last = (name) => data?.[name]?.at(-1)
  const of = (name, change = (n) => n) => data.at.map((_, at) => change(data[name][at]))
  return (
    <>
      {now && findings(now).map((one) => <div key={one} class="problem" role="alert">{one} <span class="soft">quicksand doctor tells more</span></div>)}
      <Card
        title="This host"
        actions={
          <div class="chips" role="group" aria-label="Range">
            {Object.entries(RANGES).map(([name, text]) => <button type="button" key={name} aria-pressed={range === name} onClick={() => setRange(name)}>{text}</button>)}
          </div>
        }
      >
        {error && <Problem error={error} again={again} />}
        <div class="figures flat">
          <Figure name="Processors" value={last('cpu_permille') === undefined ? '–' : `${Math.round(last('cpu_permille') / 10)} %`} hint="busy" part={(last('cpu_permille') ?? 0) / 1000} />
          <Figure name="Memory" value={bytes(last('mem_used'))} hint={`of ${bytes(last('mem_total'))}`} part={last('mem_used') / last('mem_total') || 0} />
          <Figure name="Disk" value={bytes(now && now.quicksand_host_disk_bytes - now.quicksand_host_disk_free_bytes)} hint={`of ${bytes(now?.quicksand_host_disk_bytes)}`} part={now ? 1 - now.quicksand_host_disk_free_bytes / now.quicksand_host_disk_bytes : 0} />
          <Figure name="Pool" value={bytes(now && now.quicksand_pool_bytes - now.quicksand_pool_free_bytes)} hint={`of ${bytes(now?.quicksand_pool_bytes)}`} part={now ? 1 - now.quicksand_pool_free_bytes / now.quicksand_pool_bytes : 0} />
          <Figure name="Warm boxes" value={count(now?.quicksand_warm_boxes)} hint="wait for a create" />
        </div>
        {data && data.at.length > 1 ? (
          <div class="charts">
            <Chart label="Sandboxes" times={data.at} series={[{ name: 'running', tint: '--green', values: of('running') }, { name: 'paused', tint: '--accent', values: of('paused') }]} />
            <Chart label="Creates" times={data.at} format={(n) => count(Math.round(n * 10) / 10)} series={[{ name: 'creates per minute', tint: '--blue', values: of('creates', (n) => (n * 60) / data.step) }, { name: 'failures', tint: '--red', values: of('failures', (n) => (n * 60) / data.step) }]} />
            <Chart label="Processors and memory" times={data.at} max={100} format={(n) => `${Math.round(n)} %`} series={[{ name: 'processors', tint: '--accent', values: of('cpu_permille', (n) => n / 10) }, { name: 'memory', tint: '--violet', values: data.at.map((_, at) => (100 * data.mem_used[at]) / (data.mem_total[at] || 1)) }]} />
          </div>
        ) : (
          !error && <Empty icon="overview" title="Charts begin soon">A sample is taken every ten seconds; {RANGES[range]} fill up from here on, and outlive a restart.</Empty>
        )}
      </Card>
    </>
  )
}
