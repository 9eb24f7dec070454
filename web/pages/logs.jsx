// Logs of a sandbox, and what its network allowed and refused: filtered by level and by words, which the server searches for in
// all of the log, not only in the lines that are shown.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, enc } from '../api.js'
import { useChanges } from '../live.js'
import { Button, Card, Empty, Loading, Problem, Text, useData } from '../parts.jsx'
import { clock, count, plain } from '../words.js'

const LINES_MAX = 1000
const TYPED_MS = 250
export const LEVELS = { '': 'all levels', info: 'info and above', warn: 'warnings and errors', error: 'errors only' }

// What was typed, once nothing more is typed for a moment.
function useSettled(text) {
  const [settled, set] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => set(text), TYPED_MS)
    return () => clearTimeout(timer)
  }, [text])
  return settled
}

export const LogFilter = ({ level, setLevel, text, setText }) => (
  <>
    <select aria-label="Level" value={level} onChange={(event) => setLevel(event.target.value)}>
      {Object.entries(LEVELS).map(([name, title]) => <option key={name} value={name}>{title}</option>)}
    </select>
    <input type="search" data-search placeholder="Search" aria-label="Search the log" value={text} onInput={(event) => setText(event.target.value)} />
  </>
)

const NetworkLine = ({ fields }) => (
  <>
    <b class={fields.verdict === 'allowed' ? 'good' : 'bad'}>{plain(fields.verdict)}</b>
    <Text>{`${fields.name ?? ''} ${fields.address ?? ''}${fields.port ? `:${fields.port}` : ''} ${fields.protocol ?? ''} ${fields.rule ?? ''} ${fields.reason ?? ''}`}</Text>
  </>
)

function Nothing({ filtered, network }) {
  if (filtered) return <Empty icon="search" title="No matching lines">Try other words or another level.</Empty>
  if (network) return <Empty icon="link" title="No connections yet">The log lists the names and addresses that rules with names allowed, and everything that was refused.</Empty>
  return <Empty icon="file" title="No lines yet">The log lists what happens to the sandbox and the commands that start and end in it.</Empty>
}

export function Logs({ box, network }) {
  const external = box.external_id ?? box.id
  const [level, setLevel] = useState('')
  const [text, setText] = useState('')
  const words = useSettled(text).trim()
  const query = `limit=${LINES_MAX}&direction=backward${level && `&level=${level}`}${words && `&search=${enc(words)}`}`
  const { data, error, again } = useData(() => ask(`/v2/sandboxes/${enc(external)}/logs?${query}`), [external, query])
  const end = useRef(null)
  useChanges((event) => event.sandbox === box.id, again, [box.id])
  const lines = (data?.logs ?? []).filter((one) => (one.fields?.event === 'network') === Boolean(network)).reverse()
  useEffect(() => end.current?.scrollIntoView({ block: 'nearest' }), [lines.length])
  return (
    <Card title={network ? 'Network' : 'Logs'} actions={<><LogFilter level={level} setLevel={setLevel} text={text} setText={setText} /><Button icon="refresh" kind="quiet" label="Refresh" onClick={again} /></>}>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !lines.length && <Nothing filtered={level || words} network={network} />}
      {data?.logs.length === LINES_MAX && <p class="soft">The newest {count(LINES_MAX)} lines. Search to find older ones.</p>}
      {lines.length > 0 && (
        <ol class="log" tabIndex={0} aria-label="Lines">
          {lines.map((one, at) => (
            <li key={at} class={one.level}>
              <time>{clock(one.timestamp)}</time>
              <span class="level">{one.level}</span>
              {network ? <NetworkLine fields={one.fields} /> : <Text>{one.message}</Text>}
            </li>
          ))}
          <li ref={end} />
        </ol>
      )}
    </Card>
  )
}
