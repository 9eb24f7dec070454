// What was used and what it cost: all of it by provider, agent, task, session and team, and over time by what sandboxes told of
// their use (an event when one stops, and each hour while it runs).
import { useMemo, useState } from 'preact/hooks'
import { v1 } from '../api.js'
import { Chart } from '../chart.jsx'
import { live, useEvents, useLive } from '../live.js'
import { Button, Card, Empty, Loading, Problem, Text, useData } from '../parts.jsx'
import { count, duration } from '../words.js'

const GROUPS = { teams: 'team', providers: 'provider', agents: 'agent', tasks: 'task', sessions: 'session' }
const SPANS = { day: { title: 'by hour', step: 3600, steps: 24 }, month: { title: 'by day', step: 86400, steps: 30 } }
const SERIES_MAX = 5
const TINTS = ['--accent', '--blue', '--green', '--violet', '--red']
const EVENTS_MAX = 10_000
const PAGE = 1000

// ---- all of it ----

const cell = (text) => `"${String(text).replace(/^[=+@\-\t\r]/, "'$&").replaceAll('"', '""')}"`
export const csvOf = (rows) => rows.map((row) => row.map(cell).join(',')).join('\r\n')

function save(name, rows) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([csvOf(rows)], { type: 'text/csv' }))
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

function allRows(stats) {
  const rows = [['group', 'name', 'sandboxes', 'running', 'seconds', 'cpu_seconds', 'commands', 'jobs', 'usd']]
  for (const [group, word] of Object.entries(GROUPS)) for (const [name, one] of Object.entries(stats[group] ?? {})) rows.push([word, name, one.sandboxes, one.running, one.seconds, one.cpu_seconds, one.commands, one.jobs, one.usd])
  return rows
}

const Chips = ({ label, all, chosen, choose }) => (
  <div class="chips" role="group" aria-label={label}>
    {Object.entries(all).map(([name, title]) => <button type="button" key={name} aria-pressed={chosen === name} onClick={() => choose(name)}>{title}</button>)}
  </div>
)

function Totals({ stats }) {
  const groups = Object.fromEntries(Object.entries(GROUPS).filter(([name]) => stats[name]).map(([name, word]) => [name, `by ${word}`]))
  const [group, setGroup] = useState('providers')
  const rows = Object.entries(stats[group]).sort(([, a], [, b]) => b.seconds - a.seconds)
  const most = Math.max(1, ...rows.map(([, one]) => one.seconds))
  return (
    <Card title="In all" actions={<><Chips label="By" all={groups} chosen={group} choose={setGroup} /><Button onClick={() => save('quicksand-use.csv', allRows(stats))}>CSV</Button></>}>
      {!rows.length ? <Empty icon="overview" title="Nothing to count">No sandbox was of any {GROUPS[group]} yet.</Empty> : (
        <div class="table-wrap"><table>
          <thead><tr><th>{GROUPS[group]}</th><th class="number">sandboxes</th><th class="number">ran</th><th class="wide">share</th><th class="number">processor time</th><th class="number">commands</th><th class="number">cost</th></tr></thead>
          <tbody>{rows.map(([name, one]) => <tr key={name}><td><Text>{name || '–'}</Text></td><td class="number">{count(one.sandboxes)}</td><td class="number">{duration(one.seconds)}</td><td><div class="meter"><i style={{ width: `${(100 * one.seconds) / most}%` }} /></div></td><td class="number">{duration(one.cpu_seconds)}</td><td class="number">{count(one.commands + one.jobs)}</td><td class="number">$ {one.usd.toFixed(4)}</td></tr>)}</tbody>
        </table></div>
      )}
    </Card>
  )
}

// ---- over time ----

// All that was told of use, the oldest first.
async function told() {
  const all = []
  for (let since = 0; all.length < EVENTS_MAX; ) {
    const { events, next } = await v1(`/events?type=usage&limit=${PAGE}&since=${since}`)
    all.push(...events)
    if (events.length < PAGE) break
    since = next
  }
  return all
}

// What each event tells is since the sandbox was made, so what came in between is the difference; it is spread evenly over the time in
// between that can have been running time.
export function spread(events, { step, steps }, now, nameOf) {
  const first = (Math.floor(now / step) - steps + 1) * step
  const times = Array.from({ length: steps }, (_, at) => first + at * step)
  const groups = new Map()
  const before = new Map()
  for (const event of events) {
    const end = Date.parse(event.ts) / 1000
    const last = before.get(event.sandbox) ?? { seconds: 0, usd: 0 }
    const seconds = Math.max(0, event.data.seconds - last.seconds)
    const usd = Math.max(0, event.data.usd - last.usd)
    before.set(event.sandbox, event.data)
    const name = nameOf(event) || '–'
    if (!groups.has(name)) groups.set(name, { seconds: new Array(steps).fill(0), usd: new Array(steps).fill(0) })
    const sums = groups.get(name)
    const begin = end - Math.max(seconds, 1e-3)
    for (let at = Math.max(0, Math.floor((begin - first) / step)); at < steps && times[at] < end; at++) {
      const share = (Math.min(end, times[at] + step) - Math.max(begin, times[at])) / (end - begin)
      if (share <= 0) continue
      sums.seconds[at] += seconds * share
      sums.usd[at] += usd * share
    }
  }
  const sum = (values) => values.reduce((a, b) => a + b, 0)
  return { times, groups: [...groups].map(([name, one]) => ({ name, ...one, total: sum(one.seconds) })).filter((one) => one.total > 0).sort((a, b) => b.total - a.total) }
}

const FIGURES = { seconds: { title: 'time', format: (n) => duration(n) }, usd: { title: 'cost', format: (n) => `$ ${n.toFixed(n < 1 ? 4 : 2)}` } }

function OverTime() {
  useLive()
  const { data, error, again } = useData(told, [])
  const [by, setBy] = useState('agent')
  const [span, setSpan] = useState('day')
  const [figure, setFigure] = useState('seconds')
  useEvents((event) => event.type === 'usage' && again(), [])
  const names = { agent: (event) => event.agent, task: (event) => event.task ?? live.sandboxes.get(event.sandbox)?.task_id, provider: (event) => event.data.provider }
  const now = Date.now() / 1000
  const { times, groups } = useMemo(() => spread(data ?? [], SPANS[span], now, names[by]), [data, by, span])
  const shown = groups.slice(0, SERIES_MAX)
  const rest = groups.slice(SERIES_MAX)
  const series = shown.map((one, at) => ({ name: one.name, tint: TINTS[at], values: one[figure] }))
  const rows = () => [['begin', by, 'seconds', 'usd'], ...groups.flatMap((one) => times.map((at, k) => [new Date(at * 1000).toISOString(), one.name, one.seconds[k].toFixed(3), one.usd[k].toFixed(6)]))]
  return (
    <Card
      title="Over time"
      actions={
        <>
          <Chips label="Figure" all={{ seconds: 'time', usd: 'cost' }} chosen={figure} choose={setFigure} />
          <Chips label="Over time by" all={{ agent: 'agent', task: 'task', provider: 'provider' }} chosen={by} choose={setBy} />
          <Chips label="Step" all={{ day: SPANS.day.title, month: SPANS.month.title }} chosen={span} choose={setSpan} />
          <Button disabled={!groups.length} onClick={() => save(`quicksand-use-by-${by}.csv`, rows())}>CSV over time</Button>
        </>
      }
    >
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !groups.length && <Empty icon="overview" title="Nothing told yet">A sandbox tells what it used when it is paused or ends, and each hour while it runs.</Empty>}
      {groups.length > 0 && <Chart key={`${by}${span}${figure}${series.length}`} label={`Use by ${by}`} times={times} series={series} max={Math.max(...series.flatMap((one) => one.values)) * 1.15 || 1} format={FIGURES[figure].format} height={190} />}
      {rest.length > 0 && <p class="soft">{count(rest.length)} more are in the CSV.</p>}
    </Card>
  )
}

export function Use() {
  const { data, error, again } = useData(() => v1('/stats'), [])
  useEvents((event) => event.type === 'usage' && again(), [])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return (
    <>
      <OverTime />
      <Totals stats={data} />
    </>
  )
}
