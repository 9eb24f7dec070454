// Snapshots and volumes: what outlives sandboxes, the disk space it takes, and what it shares.
import { useState } from 'preact/hooks'
import { ask, enc, post, remove, request, v1 } from '../api.js'
import { useChanges, useLive } from '../live.js'
import { Button, Card, Confirm, Empty, Field, Heading, Loading, Problem, State, Text, attempt, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, bytes, count, moment, nameOf, plain, plural, shorten } from '../words.js'

const SIZES_MAX = 2000

// ---- snapshots ----

// What the engine here knows of its own: {snapshotID: {bytes, sharedBytes, sharedWith}}.
async function sizes() {
  const all = {}
  for (let token = ''; Object.keys(all).length < SIZES_MAX; ) {
    const answer = await request(`/snapshots?limit=100${token && `&nextToken=${enc(token)}`}`)
    for (const one of await answer.json()) all[one.snapshotID] = one
    token = answer.headers.get('x-next-token')
    if (!token) break
  }
  return all
}

const start = (one) => attempt('Created a sandbox', () => post('/api/v1/sandboxes', { snapshot: one.id })).then((made) => made && go(`sandboxes/${enc(made.id)}`))

function Size({ size }) {
  if (!size) return <span class="soft">–</span>
  return (
    <>
      <span>{bytes(size.bytes)}
      {size.sharedWith > 0 && <><br /><span class="soft">{size.sharedBytes >= size.bytes ? 'all of it' : bytes(size.sharedBytes)} shared with {plural(size.sharedWith, 'other')}</span></>}</span>
    </>
  )
}

// Who came from whom: a sandbox, the snapshots of it, the sandboxes that started from those, and so on.
function Tree({ snapshots, sandboxes, reads }) {
  const known = new Map(sandboxes.map((box) => [box.id, box]))
  const of = Map.groupBy ? Map.groupBy(snapshots, (one) => one.sandbox_id) : snapshots.reduce((map, one) => map.set(one.sandbox_id, [...(map.get(one.sandbox_id) ?? []), one]), new Map())
  const from = new Map()
  for (const box of sandboxes) if (box.snapshot_id) from.set(box.snapshot_id, [...(from.get(box.snapshot_id) ?? []), box])
  const there = new Set(snapshots.map((one) => one.id))
  const roots = [...of.keys()].filter((id) => !there.has(known.get(id)?.snapshot_id))
  const Box = ({ id, seen }) => {
    const box = known.get(id)
    const list = seen.has(id) ? [] : of.get(id) ?? []
    const next = new Set(seen).add(id)
    return (
      <li>
        {box ? <a href={`#/sandboxes/${enc(id)}`}><Text>{nameOf(box)}</Text></a> : <Text class="soft">{id ?? 'unknown'}</Text>} {box ? <State state={box.state} /> : <span class="soft">ended</span>}
        {list.length > 0 && (
          <ul>
            {list.map((one) => (
              <li key={one.id}>
                <b><Text>{one.alias ?? one.id}</Text></b> <span class="soft">{age(one.created_at)}</span> {!reads && <Button icon="fork" kind="quiet" label={`Fork from ${plain(one.alias ?? one.id)}`} onClick={() => start(one)} />}
                {from.has(one.id) && <ul>{from.get(one.id).map((child) => <Box key={child.id} id={child.id} seen={next} />)}</ul>}
              </li>
            ))}
          </ul>
        )}
      </li>
    )
  }
  return <ul class="tree">{roots.map((id) => <Box key={id} id={id} seen={new Set()} />)}</ul>
}

export function Snapshots({ who }) {
  const { data, error, again } = useData(() => v1('/snapshots?limit=1000'), [])
  const known = useData(sizes, [])
  const live = useLive()
  const [gone, setGone] = useState(null)
  const reads = who.role === 'viewer'
  const all = data?.snapshots ?? []
  const look = () => (again(), known.again())
  useChanges((event) => /snapshot/.test(event.type), look, [])
  return (
    <>
      <Heading name="Snapshots">Snapshots <small>{data && count(all.length)}</small></Heading>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !all.length && <Empty icon="snapshots" title="No snapshots yet">Take a snapshot on the page of a sandbox. New sandboxes start from it in milliseconds and share its files on disk.</Empty>}
      {all.length > 0 && (
        <>
          <Card title="All snapshots">
            <div class="table-wrap" tabIndex={0}><table class="stack">
              <thead><tr><th>name</th><th>sandbox</th><th>disk</th><th>expires</th><th /></tr></thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.id}>
                    <td><Text>{one.alias ?? one.id}</Text><br /><span class="soft">{one.kind} · {one.state}</span></td>
                    <td data-label="sandbox"><Text>{shorten(one.sandbox_id, 24)}</Text></td>
                    <td data-label="disk"><Size size={known.data?.[one.external_id]} /></td>
                    <td class="soft" data-label="expires">{moment(one.expires_at)}</td>
                    <td class="do">{!reads && <><Button icon="fork" kind="quiet" label={`Create sandbox from ${plain(one.alias ?? one.id)}`} onClick={() => start(one)}>Create sandbox</Button><Button icon="bin" kind="quiet" label={`Delete ${plain(one.alias ?? one.id)}`} onClick={() => setGone(one)} /></>}</td>
                  </tr>
                ))}
              </tbody>
            </table></div>
          </Card>
          <Card title="Origins"><Tree snapshots={all} sandboxes={[...live.sandboxes.values()]} reads={reads} /></Card>
        </>
      )}
      {gone && <Confirm title="Delete this snapshot?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/api/v1/snapshots/${enc(gone.id)}`).then(look)}>New sandboxes cannot start from it any more. Existing sandboxes keep running.</Confirm>}
    </>
  )
}

// ---- volumes ----

function Volume({ one, reads, onDelete }) {
  const { data, error, again } = useData(() => ask(`/volumes/${enc(one.volumeID)}/usage`), [one.volumeID])
  return (
    <tr>
      <td><b><Text>{one.name}</Text></b><br /><code class="soft">{one.volumeID}</code></td>
      <td>
        {error && <span class="bad">{plain(error.message)}</span>}
        {data && <>{bytes(data.bytes)}{data.limitBytes > 0 && <> of {bytes(data.limitBytes)}<div class="meter"><i style={{ width: `${Math.min(100, (100 * data.bytes) / data.limitBytes)}%` }} /></div></>}</>}
      </td>
      <td class="do"><Button icon="refresh" kind="quiet" label={`Refresh the size of ${plain(one.name)}`} onClick={again} />{!reads && <Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={onDelete} />}</td>
    </tr>
  )
}

export function Volumes({ who }) {
  const { data, error, again } = useData(() => ask('/volumes'), [])
  const [name, setName] = useState('')
  const [wrong, setWrong] = useState(null)
  const [gone, setGone] = useState(null)
  const reads = who.role === 'viewer'
  const make = async (event) => {
    event.preventDefault()
    setWrong(null)
    try {
      await post('/volumes', { name: name.trim() })
      setName('')
      again()
    } catch (why) {
      setWrong(why.message)
    }
  }
  return (
    <>
      <Heading name="Volumes">Volumes <small>{data && count(data.length)}</small></Heading>
      {!reads && (
        <form class="inline" onSubmit={make} novalidate>
          <Field label="New volume" error={wrong}><input placeholder="name" value={name} onInput={(event) => setName(event.target.value)} /></Field>
          <Button kind="main" type="submit">Create</Button>
        </form>
      )}
      {error && <Problem error={error} again={again} />}
      {data && !data.length && <Empty icon="volumes" title="No volumes yet">A volume keeps files that several sandboxes can mount and that outlive them. Create a volume, then name it when you create a sandbox.</Empty>}
      {data?.length > 0 && (
        <Card>
          <div class="table-wrap" tabIndex={0}><table>
            <thead><tr><th>name</th><th class="wide">disk</th><th /></tr></thead>
            <tbody>{data.map((one) => <Volume key={one.volumeID} one={one} reads={reads} onDelete={() => setGone(one)} />)}</tbody>
          </table></div>
          <p class="soft">A volume shares no disk space with sandboxes or snapshots.</p>
        </Card>
      )}
      {gone && <Confirm title="Delete this volume?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/volumes/${enc(gone.volumeID)}`).then(again)}>All files in {plain(gone.name)} will be deleted.</Confirm>}
    </>
  )
}
