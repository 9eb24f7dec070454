// Usage and cost: totals by provider, agent, task, session and team, and over time. Sandboxes report their usage by events, when
// they stop and every hour while they run.
import { useMemo, useState } from 'preact/hooks'
import { request, v1 } from '../api.js'
import { useChanges } from '../live.js'
import { Button, Card, Chart, Chips, Empty, Loading, Problem, Text, attempt, useData } from '../parts.jsx'
import { count, duration } from '../words.js'

const GROUPS = { teams: 'team', providers: 'provider', agents: 'agent', tasks: 'task', sessions: 'session' }
const SERIES_MAX = 5
const TINTS = ['--accent', '--blue', '--green', '--violet', '--red']

// ---- totals ----

const cell = (text) => `"${String(text).replace(/^[=+@\-\t\r]/, "'$&").replaceAll('"', '""')}"`
export const csvOf = (rows) => rows.map((row) => row.map(cell).join(',')).join('\r\n')

function save(name, blob) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

function allRows(stats) {
  const rows = [['group', 'name', 'sandboxes', 'running', 'seconds', 'cpu_seconds', 'commands', 'jobs', 'usd']]
  for (const [group, word] of Object.entries(GROUPS)) for (const [name, one] of Object.entries(stats[group] ?? {})) rows.push([word, name, one.sandboxes, one.running, one.seconds, one.cpu_seconds, one.commands, one.jobs, one.usd])
  return rows
}

function Totals({ stats }) {
  const groups = Object.fromEntries(Object.entries(GROUPS).filter(([name]) => stats[name]).map(([name, word]) => [name, `by ${word}`]))
  const [group, setGroup] = useState('providers')
  const rows = Object.entries(stats[group]).sort(([, a], [, b]) => b.seconds - a.seconds)
  const most = Math.max(1, ...rows.map(([, one]) => one.seconds))
  return (
    <Card title="Total" actions={<><Chips label="By" all={groups} chosen={group} choose={setGroup} /><Button onClick={() => save('quicksand-usage.csv', new Blob([csvOf(allRows(stats))], { type: 'text/csv' }))}>CSV</Button></>}>
      {!rows.length ? <Empty icon="overview" title="No usage yet">No sandbox has belonged to a {GROUPS[group]} yet.</Empty> : (
        <div class="table-wrap" tabIndex={0}><table class="stack">
          <thead><tr><th>{GROUPS[group]}</th><th class="number">sandboxes</th><th class="number">ran</th><th class="wide">share</th><th class="number">processor time</th><th class="number">commands</th><th class="number">cost</th></tr></thead>
          <tbody>{rows.map(([name, one]) => <tr key={name}><td><Text>{name || 'none'}</Text></td><td class="number" data-label="sandboxes">{count(one.sandboxes)}</td><td class="number" data-label="ran">{duration(one.seconds)}</td><td><div class="meter"><i style={{ width: `${(100 * one.seconds) / most}%` }} /></div></td><td class="number" data-label="processor time">{duration(one.cpu_seconds)}</td><td class="number" data-label="commands">{count(one.commands + one.jobs)}</td><td class="number" data-label="cost">$ {one.usd.toFixed(4)}</td></tr>)}</tbody>
        </table></div>
      )}
    </Card>
  )
}

// ---- over time ----

const FIGURES = { seconds: { unit: 'running time', format: (n) => duration(n) }, usd: { unit: 'US dollars', format: (n) => `$ ${n.toFixed(n < 1 ? 4 : 2)}` } }
const OVER = { agent: 'agent', task: 'task', provider: 'provider', team: 'team' }
const STEPS = { hour: 'by hour', day: 'by day' }
const sum = (values) => values.reduce((a, b) => a + b, 0)

function Amounts({ by, groups }) {
  return (
    <div class="table-wrap" tabIndex={0}><table aria-label={`Usage by ${by}`}>
      <thead><tr><th>{by}</th><th class="number">ran</th><th class="number">cost</th></tr></thead>
      <tbody>{groups.map((one) => <tr key={one.name}><td><Text>{one.name || 'none'}</Text></td><td class="number">{duration(sum(one.seconds))}</td><td class="number">$ {sum(one.usd).toFixed(4)}</td></tr>)}</tbody>
    </table></div>
  )
}

function OverTime() {
  const [by, setBy] = useState('agent')
  const [step, setStep] = useState('hour')
  const [figure, setFigure] = useState('seconds')
  const path = `/usage?by=${by}&step=${step}`
  const { data, error, again } = useData(() => v1(path), [path])
  useChanges((event) => event.type === 'usage', again, [])
  const groups = data?.by === by ? data.groups : []
  const shown = groups.slice(0, SERIES_MAX)
  const series = useMemo(() => shown.map((one, at) => ({ name: one.name || 'none', tint: TINTS[at], values: one[figure] })), [data, by, figure])
  const csv = () => attempt(null, async () => save(`quicksand-usage-by-${by}.csv`, await (await request(`/api/v1${path}&format=csv`)).blob()))
  return (
    <Card
      title="Over time"
      actions={
        <>
          <Chips label="Figure" all={{ seconds: 'time', usd: 'cost' }} chosen={figure} choose={setFigure} />
          <Chips label="Over time by" all={OVER} chosen={by} choose={setBy} />
          <Chips label="Step" all={STEPS} chosen={step} choose={setStep} />
          <Button disabled={!groups.length} onClick={csv}>CSV over time</Button>
        </>
      }
    >
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !groups.length && <Empty icon="overview" title="No usage yet">A sandbox reports its usage when it is paused or ends, and every hour while it runs.</Empty>}
      {groups.length > 0 && (
        <>
          <Chart key={`${by}${step}${figure}${series.length}`} title={`Usage by ${by}`} unit={FIGURES[figure].unit} times={data.at} series={series} max={Math.max(...series.flatMap((one) => one.values)) * 1.15 || 1} format={FIGURES[figure].format} height={190} />
          <Amounts by={by} groups={shown} />
        </>
      )}
      {groups.length > shown.length && <p class="soft">{count(groups.length - shown.length)} more are in the CSV.</p>}
      {data?.partial && <p class="soft">There are more than can be shown: these are the newest.</p>}
    </Card>
  )
}

export function Use() {
  const { data, error, again } = useData(() => v1('/stats'), [])
  useChanges((event) => event.type === 'usage', again, [])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return (
    <>
      <OverTime />
      <Totals stats={data} />
    </>
  )
}
