// What was used and what it cost: all of it by provider, agent, task, session and team, and over time, as the server spreads what
// sandboxes tell of their use (an event when one stops, and each hour while it runs).
import { useState } from 'preact/hooks'
import { request, v1 } from '../api.js'
import { useEvents } from '../live.js'
import { Button, Card, Chart, Empty, Loading, Problem, Text, attempt, useData } from '../parts.jsx'
import { count, duration } from '../words.js'

const GROUPS = { teams: 'team', providers: 'provider', agents: 'agent', tasks: 'task', sessions: 'session' }
const SERIES_MAX = 5
const TINTS = ['--accent', '--blue', '--green', '--violet', '--red']

// ---- all of it ----

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
    <Card title="In all" actions={<><Chips label="By" all={groups} chosen={group} choose={setGroup} /><Button onClick={() => save('quicksand-use.csv', new Blob([csvOf(allRows(stats))], { type: 'text/csv' }))}>CSV</Button></>}>
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

const FIGURES = { seconds: { title: 'time', format: (n) => duration(n) }, usd: { title: 'cost', format: (n) => `$ ${n.toFixed(n < 1 ? 4 : 2)}` } }
const OVER = { agent: 'agent', task: 'task', provider: 'provider', team: 'team' }
const STEPS = { hour: 'by hour', day: 'by day' }
const sum = (values) => values.reduce((a, b) => a + b, 0)

function Amounts({ by, groups }) {
  return (
    <div class="table-wrap"><table aria-label={`Use by ${by}`}>
      <thead><tr><th>{by}</th><th class="number">ran</th><th class="number">cost</th></tr></thead>
      <tbody>{groups.map((one) => <tr key={one.name}><td><Text>{one.name || '–'}</Text></td><td class="number">{duration(sum(one.seconds))}</td><td class="number">$ {sum(one.usd).toFixed(4)}</td></tr>)}</tbody>
    </table></div>
  )
}

function OverTime() {
  const [by, setBy] = useState('agent')
  const [step, setStep] = useState('hour')
  const [figure, setFigure] = useState('seconds')
  const path = `/usage?by=${by}&step=${step}`
  const { data, error, again } = useData(() => v1(path), [path])
  useEvents((event) => event.type === 'usage' && again(), [])
  const groups = data?.by === by ? data.groups : []
  const shown = groups.slice(0, SERIES_MAX)
  const series = shown.map((one, at) => ({ name: one.name || '–', tint: TINTS[at], values: one[figure] }))
  const csv = () => attempt(null, async () => save(`quicksand-use-by-${by}.csv`, await (await request(`/api/v1${path}&format=csv`)).blob()))
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
      {data && !groups.length && <Empty icon="overview" title="Nothing told yet">A sandbox tells what it used when it is paused or ends, and each hour while it runs.</Empty>}
      {groups.length > 0 && (
        <>
          <Chart key={`${by}${step}${figure}${series.length}`} label={`Use by ${by}`} times={data.at} series={series} max={Math.max(...series.flatMap((one) => one.values)) * 1.15 || 1} format={FIGURES[figure].format} height={190} />
          <Amounts by={by} groups={shown} />
        </>
      )}
      {groups.length > shown.length && <p class="soft">{count(groups.length - shown.length)} more are in the CSV.</p>}
      {data?.partial && <p class="soft">There was more than can be told: these are the newest.</p>}
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
