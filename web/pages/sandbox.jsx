// One sandbox: what it uses, its terminal, screen, notebook, files, processes, ports, logs, events and snapshots.
import { useMemo, useState } from 'preact/hooks'
import { ask, enc, post, remove, text, v1 } from '../api.js'
import { built } from '../built.js'
import { useChanges, useEvery, useLive } from '../live.js'
import { Button, Card, Chart, Confirm, Empty, Heading, Loading, Problem, State, Tabs, Text, attempt, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, bytes, duration, mebibytes, moment, nameOf, plain, plural, shorten } from '../words.js'
import { Files } from './files.jsx'
import { Logs } from './logs.jsx'
import { Notebook } from './notebook.jsx'
import { EventLine } from './overview.jsx'
import { extend } from './sandboxes.jsx'
import { Screen } from './screen.jsx'
import { TerminalCard } from './terminal.jsx'

const TABS = { '': 'Overview', terminal: 'Terminal', screen: 'Screen', notebook: 'Notebook', files: 'Files', processes: 'Processes', logs: 'Logs', network: 'Network', events: 'Events', snapshots: 'Snapshots' }

// Which of the tabs need a program of the template, its name, and the extra it belongs to. What was found is kept for when the sandbox is paused.
const PROGRAMS = { screen: { 'desktop-screenshot': 'desktop', 'browser-do': 'browser' }, notebook: { interpreter: 'interpreter' } }
const PROGRAMS_PATH = '/usr/local/bin'
const found = new Map()

function usePrograms(box) {
  const runs = box?.state === 'running'
  const { data } = useData(async () => {
    if (!runs || found.has(box.id)) return found.get(box?.id) ?? []
    const { entries } = await v1(`/sandboxes/${enc(box.id)}/files?path=${enc(PROGRAMS_PATH)}&list=true`)
    found.set(box.id, entries.map((one) => one.name))
    return found.get(box.id)
  }, [box?.id, runs])
  return data ?? []
}

function tabsOf(box, programs, reads, current) {
  const has = (name) => name === current || Object.entries(PROGRAMS[name]).some(([program, extra]) => built(extra) && programs.includes(program))
  return Object.entries(TABS).filter(([name]) => (!reads || !['terminal', 'notebook', 'processes'].includes(name)) && (!PROGRAMS[name] || has(name)))
}

export function Sandbox({ id, tab = '', who }) {
  const live = useLive()
  const known = live.sandboxes.get(id)
  const { data, error, again } = useData(() => v1(`/sandboxes/${enc(id)}`), [id, known?.state])
  const [killing, setKilling] = useState(false)
  const box = known ?? data
  const programs = usePrograms(box)
  if (error && !box) return <Gone id={id} error={error} again={again} />
  if (!box) return <Loading />
  const reads = who.role === 'viewer'
  const path = `/api/v1/sandboxes/${enc(id)}`
  const tabs = tabsOf(box, programs, reads, tab)
  return (
    <>
      <Heading
        name={nameOf(box)}
        actions={!reads && box.state !== 'killed' && (
          <div class="actions">
            {box.state === 'paused' ? (
              <Button icon="play" onClick={() => attempt('Resumed', () => post(`${path}/resume`)).then(again)}>Resume</Button>
            ) : (
              <Button icon="pause" onClick={() => attempt('Paused', () => post(`${path}/pause`)).then(again)}>Pause</Button>
            )}
            <Button icon="clock" onClick={() => attempt('The sandbox ends in an hour', () => extend(id, 3600)).then(again)}>Extend 1 h</Button>
            <Button icon="fork" onClick={() => fork(box)}>Fork</Button>
            <Button icon="bin" kind="danger" onClick={() => setKilling(true)}>Kill</Button>
          </div>
        )}
      >
        <Text>{nameOf(box)}</Text> <State state={box.state} />
      </Heading>
      <p class="under soft">
        <code>{box.id}</code>
        {box.external_id && box.external_id !== box.id && <code>{box.external_id}</code>}
        <span>{plain(box.template ?? 'no template')}</span>
        <span>{age(box.created_at)} old</span>
      </p>
      <Tabs tabs={tabs} chosen={tab} path={`sandboxes/${enc(id)}`} />
      {box.state === 'killed' ? <Empty title="This sandbox has ended">Its files are gone, except those in snapshots and volumes.</Empty> : <Tab tab={tab} box={box} reads={reads} />}
      {killing && (
        <Confirm title="Kill this sandbox?" action="Kill" onClose={() => setKilling(false)} onDo={() => remove(path).then(() => go('sandboxes'))}>
          {plain(nameOf(box))} ends at once. Its files are lost, except those in snapshots and volumes.
        </Confirm>
      )}
    </>
  )
}

const Gone = ({ id, error, again }) => (
  <>
    <Heading name={shorten(id, 80)} />
    <Problem error={error.status === 404 ? `Sandbox ${shorten(id, 80)} was not found. It has ended, or it belongs to another team.` : error} again={again} />
    <p><a href="#/sandboxes">All sandboxes</a></p>
  </>
)

// One of the runtime is forked by way of a snapshot, so that the runtime knows the new one as its own.
async function fork(box) {
  const made = await attempt('Forked', async () => {
    if (box.adopted) return (await post(`/sandboxes/${enc(box.external_id)}/fork`, { count: 1 }))[0].sandbox.sandboxID
    const snapshot = await post(`/api/v1/sandboxes/${enc(box.id)}/snapshots`, { ttl: 3600 })
    return (await post('/api/v1/sandboxes', { snapshot: snapshot.id })).id
  })
  if (made) go(`sandboxes/${enc(made)}`)
}

function Tab({ tab, box, reads }) {
  const sleeps = box.state !== 'running' && ['terminal', 'screen', 'notebook', 'files', 'processes'].includes(tab)
  if (sleeps) return <Empty icon="pause" title={`This sandbox is ${box.state}`}>Resume it to use this page.</Empty>
  if (tab === 'terminal') return <TerminalCard kind="sandboxes" id={box.id} />
  if (tab === 'screen') return <Screen box={box} reads={reads} />
  if (tab === 'notebook') return <Notebook box={box} />
  if (tab === 'files') return <Files box={box} reads={reads} />
  if (tab === 'processes') return <Processes box={box} />
  if (tab === 'logs') return <Logs box={box} />
  if (tab === 'network') return <Logs box={box} network />
  if (tab === 'events') return <Events box={box} />
  if (tab === 'snapshots') return <Snapshots box={box} reads={reads} />
  return <Uses box={box} reads={reads} />
}

// ---- what it uses ----

const rate = (all, name) => all.map((one, at) => (at ? Math.max(0, (one[name] - all[at - 1][name]) / Math.max(1, one.timestampUnix - all[at - 1].timestampUnix)) : 0))

const METRICS_MS = 5000 // the server takes a sample as often; there is no event for it

function Uses({ box, reads }) {
  const external = box.external_id ?? box.id
  const runs = box.state === 'running'
  const tick = useEvery(METRICS_MS)
  const { data: metrics, error } = useData(() => ask(`/sandboxes/${enc(external)}/metrics`), [external, runs && tick])
  const { data: detail } = useData(() => ask(`/sandboxes/${enc(external)}`).catch(() => null), [external, box.state])
  const times = useMemo(() => metrics?.map((one) => one.timestampUnix) ?? [], [metrics])
  const charts = useMemo(() => metrics?.length > 1 && [
    { title: 'Processor', unit: '% of its processors', max: 100, format: (n) => `${Math.round(n)} %`, series: [{ name: 'used', tint: '--accent', values: metrics.map((one) => one.cpuUsedPct) }] },
    { title: 'Memory', unit: `of ${bytes(metrics.at(-1).memTotal)}`, max: metrics.at(-1).memTotal, format: bytes, sizes: true, series: [{ name: 'used', tint: '--blue', values: metrics.map((one) => one.memUsed) }] },
    { title: 'Disk', unit: `of ${bytes(metrics.at(-1).diskTotal)}`, format: bytes, sizes: true, series: [{ name: 'used', tint: '--green', values: metrics.map((one) => one.diskUsed) }] },
    { title: 'Network', unit: 'per second', format: bytes, sizes: true, series: [{ name: 'received', tint: '--blue', values: rate(metrics, 'networkReceived') }, { name: 'sent', tint: '--accent', values: rate(metrics, 'networkSent') }] },
  ], [metrics])
  return (
    <>
      {error && !metrics && <Problem error={error} />}
      {charts ? (
        <div class="charts four">{charts.map((one) => <Card key={one.title}><Chart times={times} {...one} /></Card>)}</div>
      ) : (
        !error && <Card><Empty icon="overview" title={runs ? 'Charts begin soon' : 'No samples'}>The server takes a sample every five seconds while the sandbox runs.</Empty></Card>
      )}
      <div class="columns">
        <Card title="Details">
          <dl class="details">
            <dt>Template</dt><dd><Text>{box.template ?? '–'}</Text></dd>
            <dt>Size</dt><dd>{detail ? `${plural(detail.cpuCount, 'processor')}, ${mebibytes(detail.memoryMB)} memory, ${mebibytes(detail.diskSizeMB)} disk` : '–'}</dd>
            <dt>Ends</dt><dd>{!runs ? `not while it is ${box.state}` : detail ? `${moment(detail.endAt)} (in ${duration((Date.parse(detail.endAt) - Date.now()) / 1000)})` : '–'}</dd>
            <dt>Created</dt><dd>{moment(box.created_at)}</dd>
            <dt>Provider</dt><dd><Text>{box.provider}</Text></dd>
            {box.agent_id && <><dt>Agent</dt><dd><Text>{box.agent_id}</Text></dd></>}
            {box.profile && <><dt>Profile</dt><dd><Text>{box.profile}</Text></dd></>}
            {Object.entries(box.metadata ?? {}).map(([name, value]) => <><dt key={name}><Text>{name}</Text></dt><dd><Text>{value}</Text></dd></>)}
          </dl>
        </Card>
        {!reads && box.state === 'running' && <Ports box={box} detail={detail} />}
      </div>
    </>
  )
}

// Listening sockets in the text of /proc/net/tcp and tcp6.
export function portsOf(text) {
  const ports = new Map()
  for (const line of text.split('\n')) {
    const [, local, , state] = line.trim().split(/\s+/)
    if (state !== '0A') continue
    const [address, port] = local.split(':')
    const number = parseInt(port, 16)
    const inner = /^0100007F$|^0{24}01000000$/.test(address)
    ports.set(number, { number, inner: inner && (ports.get(number)?.inner ?? true) })
  }
  return [...ports.values()].sort((a, b) => a.number - b.number)
}

const NET = ['/proc/net/tcp', '/proc/net/tcp6']

// The server knows them of its own engine. Elsewhere they are read as files, so that no command is run, logged and
// counted; where a provider does not read these files, by a command.
async function lookPorts(id) {
  const { ports } = await v1(`/sandboxes/${enc(id)}?ports=true`)
  if (ports) return ports.map(({ port, loopback }) => ({ number: port, inner: loopback }))
  const read = (path) => text(`/api/v1/sandboxes/${enc(id)}/files?path=${enc(path)}`)
  try {
    return portsOf((await Promise.all(NET.map(read))).join('\n'))
  } catch {
    return portsOf((await execute(id, `cat ${NET.join(' ')} 2>/dev/null; true`)).stdout)
  }
}

const execute = (id, command) => post(`/api/v1/sandboxes/${enc(id)}/execute`, { command, user: 'root', timeout: 10 })

// Processes, by a few lines of shell that every template can run.
const LOOK = `for p in /proc/[0-9]*; do i=\${p#/proc/}; [ "$i" = $$ ] && continue; s=$(cat $p/stat 2>/dev/null) || continue
u=$(stat -c %U $p 2>/dev/null); c=$(tr '\\0\\n\\t' '   ' <$p/cmdline 2>/dev/null | head -c 300); echo "P\t$i\t$u\t$s\t$c"; done`

export async function lookProcesses(id) {
  const { stdout, stderr, exit_code } = await execute(id, LOOK)
  if (exit_code !== 0 && !stdout) throw new Error(stderr || 'The processes of the sandbox could not be listed.')
  const processes = []
  for (const line of stdout.split('\n')) {
    const parts = line.split('\t')
    if (parts[0] !== 'P') continue
    const stat = /^\d+ \((.*)\) (\S) (\d+) .*$/s.exec(parts[3])
    const rest = parts[3].slice(parts[3].lastIndexOf(')') + 2).split(' ')
    processes.push({ pid: Number(parts[1]), user: parts[2], name: stat?.[1] ?? '', ticks: Number(rest[11]) + Number(rest[12]), memory: Number(rest[21]) * 4096, command: parts.slice(4).join(' ').trim() })
  }
  return processes.sort((a, b) => a.pid - b.pid)
}

export const portAddress = (box, detail, port) => `${location.protocol}//${port}-${box.external_id ?? box.id}.${detail?.domain ?? `localhost${location.port && `:${location.port}`}`}`

function Ports({ box, detail }) {
  const { data, error, again } = useData(() => lookPorts(box.id), [box.id])
  const [shown, setShown] = useState(null)
  const ports = data?.filter((one) => one.number !== 49983) ?? []
  return (
    <Card title="Listening ports" actions={<Button icon="refresh" kind="quiet" label="Refresh" onClick={again} />}>
      {error && <Problem error={error} again={again} />}
      {data && !ports.length && <Empty icon="link" title="No port is open">Start a server in the sandbox, for example <code>python3 -m http.server 8000</code>, and refresh.</Empty>}
      <ul class="plain">
        {ports.map(({ number, inner }) => (
          <li key={number}>
            <a href={portAddress(box, detail, number)} target="_blank" rel="noopener noreferrer">{number}</a>
            <span class="soft">{inner ? 'on the loopback interface of the sandbox' : 'on all interfaces'}</span>
            <span class="right"><Button kind="quiet" onClick={() => setShown(shown === number ? null : number)}>{shown === number ? 'Hide' : 'Preview'}</Button></span>
          </li>
        ))}
      </ul>
      {shown && <iframe class="preview" title={`Port ${shown}`} sandbox="allow-scripts allow-forms" referrerpolicy="no-referrer" src={portAddress(box, detail, shown)} />}
    </Card>
  )
}

function Processes({ box }) {
  const { data, error, again } = useData(() => lookProcesses(box.id), [box.id])
  const [words, setWords] = useState('')
  const end = (pid, signal) => attempt(`Sent SIG${signal} to process ${pid}`, () => post(`/api/v1/sandboxes/${enc(box.id)}/execute`, { argv: ['kill', `-${signal}`, String(pid)], user: 'root', timeout: 5 })).then(again)
  const fits = (one) => !words || `${one.pid} ${one.user} ${one.command} ${one.name}`.includes(words)
  return (
    <Card title="Processes" actions={<><input type="search" data-search placeholder="Filter" aria-label="Filter processes" value={words} onInput={(event) => setWords(event.target.value)} /><Button icon="refresh" kind="quiet" label="Refresh" onClick={again} /></>}>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && (
        <div class="table-wrap" tabIndex={0}><table class="stack">
          <thead><tr><th>pid</th><th>user</th><th>command</th><th class="number">memory</th><th class="number">time</th><th /></tr></thead>
          <tbody>
            {data.filter(fits).map((one) => (
              <tr key={one.pid}>
                <td data-label="pid">{one.pid}</td><td data-label="user"><Text>{one.user}</Text></td><td class="mono"><Text>{shorten(one.command || `[${one.name}]`, 90)}</Text></td>
                <td class="number" data-label="memory">{bytes(one.memory)}</td><td class="number" data-label="time">{duration(one.ticks / 100)}</td>
                <td class="do">{one.pid !== 1 && <><Button kind="quiet" onClick={() => end(one.pid, 'TERM')}>End</Button><Button kind="quiet danger" onClick={() => end(one.pid, 'KILL')}>Kill</Button></>}</td>
              </tr>
            ))}
          </tbody>
        </table></div>
      )}
    </Card>
  )
}

// ---- events and snapshots ----

function Events({ box }) {
  const { data, error, again } = useData(() => v1(`/events?sandbox_id=${enc(box.id)}&limit=500&since=0`), [box.id])
  useChanges((event) => event.sandbox === box.id, again, [box.id])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return (
    <Card title="Events">
      <ul class="events own">{data.events.filter((one) => one.type !== 'process.output').reverse().map((one) => <EventLine key={one.id} event={one} own />)}</ul>
    </Card>
  )
}

function Snapshots({ box, reads }) {
  const { data, error, again } = useData(() => v1(`/sandboxes/${enc(box.id)}/snapshots`), [box.id])
  const path = `/api/v1/sandboxes/${enc(box.id)}/snapshots`
  const [busy, setBusy] = useState(false)
  const take = async () => {
    setBusy(true)
    await attempt('The snapshot is ready', () => post(path))
    setBusy(false)
    again()
  }
  const start = async (one) => {
    const made = await attempt('Created a sandbox from the snapshot', () => post('/api/v1/sandboxes', { snapshot: one.id }))
    if (made) go(`sandboxes/${enc(made.id)}`)
  }
  return (
    <Card title="Snapshots" actions={!reads && <Button icon="snapshots" kind="main" disabled={busy} onClick={take}>Take snapshot</Button>}>
      {error && <Problem error={error} again={again} />}
      {data && !data.snapshots.length && <Empty icon="snapshots" title="No snapshots yet">A snapshot keeps the files as they are now. New sandboxes can start from it.</Empty>}
      <ul class="plain">
        {data?.snapshots.map((one) => (
          <li key={one.id}>
            <b><Text>{one.alias ?? one.id}</Text></b>
            <span class="soft">{one.kind} · {one.state}</span>
            <span class="soft">{moment(one.created_at)}</span>
            {!reads && <span class="right"><Button icon="fork" kind="quiet" onClick={() => start(one)}>Create sandbox</Button><Button icon="bin" kind="quiet" label={`Delete ${one.id}`} onClick={() => attempt('Deleted', () => remove(`/api/v1/snapshots/${enc(one.id)}`)).then(again)} /></span>}
          </li>
        ))}
      </ul>
    </Card>
  )
}
