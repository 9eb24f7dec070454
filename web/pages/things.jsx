// Templates, snapshots and volumes: what sandboxes start from, and what outlives them.
import { useEffect, useState } from 'preact/hooks'
import { ask, enc, post, remove, v1 } from '../api.js'
import { useLive } from '../live.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, bytes, clock, count, moment, plain, shorten } from '../words.js'

const NEVER_BUILT = '00000000-0000-0000-0000-000000000000'
export const nameOf = (template) => template.names?.[0] ?? template.aliases?.[0] ?? template.templateID

// ---- templates ----

export function Templates({ who, open }) {
  const { data, error, again } = useData(() => ask('/templates'), [open])
  const live = useLive()
  const [building, setBuilding] = useState(false)
  const [gone, setGone] = useState(null)
  const reads = who.role === 'viewer'
  if (open) return <Template key={open} id={open} list={data} reads={reads} />
  const uses = (one) => [...live.sandboxes.values()].filter((box) => box.template === one.templateID || one.names?.includes(box.template) || one.aliases?.includes(box.template)).length
  return (
    <>
      <div class="title">
        <h1>Templates <small>{data && count(data.length)}</small></h1>
        {!reads && <Button kind="main" icon="plus" onClick={() => setBuilding(true)}>Build from a Dockerfile</Button>}
      </div>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="templates" title="No template yet">Build one from a Dockerfile, or with quicksand template build.</Empty>}
      <div class="tiles">
        {data?.map((one) => (
          <Card key={one.templateID} title={<a href={`#/templates/${enc(one.templateID)}`}><Text>{nameOf(one)}</Text></a>} actions={<State state={one.buildStatus} />}>
            <dl class="details">
              <dt>Size</dt><dd>{one.cpuCount} processors, {bytes(one.memoryMB * 1048576)}</dd>
              <dt>Layers</dt><dd>{one.layerCount}{one.layerBytes ? `, ${bytes(one.layerBytes)}` : ''}</dd>
              <dt>Used by</dt><dd>{count(uses(one))} now, {count(one.spawnCount)} ever</dd>
              <dt>Changed</dt><dd>{moment(one.updatedAt)}</dd>
            </dl>
            {!reads && (
              <div class="actions foot">
                <Button icon="play" onClick={() => attempt('It runs', () => post('/api/v1/sandboxes', { template: nameOf(one) })).then((made) => made && go(`sandboxes/${enc(made.id)}`))}>Start one</Button>
                {!one.public && <Button icon="bin" kind="quiet" label={`Delete ${nameOf(one)}`} onClick={() => setGone(one)} />}
              </div>
            )}
          </Card>
        ))}
      </div>
      {building && <Build onClose={() => setBuilding(false)} />}
      {gone && (
        <Confirm title="Delete this template?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/templates/${enc(gone.templateID)}`).then(again)}>
          {plain(nameOf(gone))} can start no new sandboxes then; those that run go on.
        </Confirm>
      )}
    </>
  )
}

// A Dockerfile's plain lines as steps of a build; what needs files or stages is left to the command line.
export function readDockerfile(text) {
  const lines = text.replace(/\\\r?\n/g, ' ').split('\n').map((line) => line.trim()).filter((line) => line && line[0] !== '#')
  const recipe = { steps: [] }
  for (const line of lines) {
    const [, word, rest] = /^(\w+)\s+(.*)$/s.exec(line) ?? [, line, '']
    const name = word.toUpperCase()
    if (name === 'FROM' && !recipe.from) recipe.from = rest.split(/\s+/)[0]
    else if (name === 'FROM') throw new Error('Several stages are for the command line: quicksand template build')
    else if (name === 'RUN') recipe.steps.push({ type: 'RUN', args: [rest] })
    else if (name === 'WORKDIR') recipe.steps.push({ type: 'WORKDIR', args: [rest] })
    else if (name === 'USER') recipe.steps.push({ type: 'USER', args: [rest] })
    else if (name === 'ENV') recipe.steps.push({ type: 'ENV', args: rest.includes('=') ? [...rest.matchAll(/(\w+)=("[^"]*"|\S*)/g)].flatMap(([, key, value]) => [key, value.replace(/^"|"$/g, '')]) : rest.split(/\s+(.*)/s).slice(0, 2) })
    else if (name === 'CMD' || name === 'ENTRYPOINT') recipe.start = rest[0] === '[' ? JSON.parse(rest).join(' ') : rest
    else throw new Error(`${name} needs the command line: quicksand template build -f Dockerfile`)
  }
  if (!recipe.from) throw new Error('The first line says where it begins, for example: FROM base')
  return recipe
}

function Build({ onClose }) {
  const [name, setName] = useState('')
  const [text, setText] = useState('FROM base\nRUN apt-get update && apt-get install -y jq\n')
  const [wrong, setWrong] = useState({})
  const [busy, setBusy] = useState(false)
  const submit = async (event) => {
    event.preventDefault()
    if (!/^[\w.-]+(\/[\w.-]+)?(:[\w.-]+)?$/.test(name)) return setWrong({ name: 'A name has letters, digits, dots and dashes.' })
    let recipe
    try {
      recipe = readDockerfile(text)
    } catch (error) {
      return setWrong({ text: error.message })
    }
    setBusy(true)
    try {
      const made = await post('/v3/templates', { name })
      const from = /^base$/.test(recipe.from) ? { fromTemplate: 'base' } : { fromImage: recipe.from }
      await post(`/v2/templates/${enc(made.templateID)}/builds/${enc(made.buildID)}`, { ...from, steps: recipe.steps, ...(recipe.start ? { startCmd: recipe.start } : {}) })
      note(`${name} is being built`)
      go(`templates/${enc(made.templateID)}/${enc(made.buildID)}`)
      onClose()
    } catch (error) {
      setWrong({ text: error.message })
      setBusy(false)
    }
  }
  return (
    <Dialog title="Build a template" onClose={onClose} wide>
      <form onSubmit={submit} novalidate>
        <Field label="Name" error={wrong.name}><input autofocus value={name} onInput={(event) => setName(event.target.value)} /></Field>
        <Field label="Dockerfile" error={wrong.text} hint="FROM base, or an image; RUN, ENV, WORKDIR, USER, CMD">
          <textarea rows={10} spellcheck={false} value={text} onInput={(event) => setText(event.target.value)} />
        </Field>
        <footer>
          <Button kind="quiet" onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" disabled={busy}>Build</Button>
        </footer>
      </form>
    </Dialog>
  )
}

function Template({ id, list, reads }) {
  const one = list?.find((other) => other.templateID === id)
  const given = decodeURIComponent(location.hash.split('/')[3] ?? '')
  const build = given || one?.buildID
  const { data: detail } = useData(() => ask(`/templates/${enc(id)}`).catch(() => null), [id])
  const { data: settings } = useData(() => ask(`/templates/${enc(id)}/settings`).catch(() => null), [id])
  return (
    <>
      <div class="title"><h1><Text>{one ? nameOf(one) : id}</Text>{one && <State state={one.buildStatus} />}</h1></div>
      <p class="under soft"><code>{plain(id)}</code><a href="#/templates">All templates</a></p>
      <div class="columns">
        <Card title="Details">
          <dl class="details">
            {one && <><dt>Size</dt><dd>{one.cpuCount} processors, {bytes(one.memoryMB * 1048576)} memory, {bytes(one.diskSizeMB * 1048576)} disk</dd><dt>Layers</dt><dd>{one.layerCount}, {bytes(one.layerBytes)} beside the base</dd><dt>Used</dt><dd>{count(one.spawnCount)} times, last {age(one.lastSpawnedAt)} ago</dd></>}
            {settings?.startCmd && <><dt>Starts</dt><dd class="mono"><Text>{settings.startCmd}</Text></dd></>}
            {settings?.user && <><dt>User</dt><dd><Text>{settings.user}</Text></dd></>}
            {settings?.workdir && <><dt>Folder</dt><dd class="mono"><Text>{settings.workdir}</Text></dd></>}
          </dl>
        </Card>
        <Card title="Builds">
          {detail?.builds?.length ? (
            <ul class="plain">
              {detail.builds.map((other) => (
                <li key={other.buildID}><a href={`#/templates/${enc(id)}/${enc(other.buildID)}`}><code>{other.buildID.slice(0, 8)}</code></a><State state={other.status} /><span class="soft right">{moment(other.createdAt)}</span></li>
              ))}
            </ul>
          ) : (
            <Empty icon="templates" title="Never built here">It came with the server, or is another team's.</Empty>
          )}
        </Card>
      </div>
      {build && build !== NEVER_BUILT && <BuildLog key={build} id={id} build={build} reads={reads} />}
    </>
  )
}

function BuildLog({ id, build, reads }) {
  const [lines, setLines] = useState([])
  const [status, setStatus] = useState(null)
  const [error, setError] = useState(null)
  const path = `/templates/${enc(id)}/builds/${enc(build)}`
  useEffect(() => {
    let gone = false
    let timer = null
    let seen = 0
    const read = async () => {
      try {
        const answer = await ask(`${path}/status?logsOffset=${seen}&limit=100`)
        if (gone) return
        seen += answer.logEntries.length
        if (answer.logEntries.length) setLines((old) => [...old, ...answer.logEntries].slice(-5000))
        setStatus(answer)
        const more = answer.logEntries.length === 100
        if (more || ['waiting', 'building'].includes(answer.status)) timer = setTimeout(read, more ? 0 : 700)
      } catch (why) {
        if (!gone) setError(why)
      }
    }
    read()
    return () => {
      gone = true
      clearTimeout(timer)
    }
  }, [build])
  const runs = ['waiting', 'building'].includes(status?.status)
  return (
    <Card title={<>Build <code>{plain(build.slice(0, 8))}</code></>} actions={<>{status && <State state={status.status} />}{runs && !reads && <Button kind="danger" onClick={() => attempt('Cancelled', () => post(`${path}/cancel`))}>Cancel</Button>}</>}>
      {error && <Problem error={error} />}
      {status?.reason && <Problem error={status.reason.message} />}
      <ol class="log" tabIndex={0} aria-label="What the build wrote">{lines.map((one, at) => <li key={at} class={one.level}><time>{clock(one.timestamp)}</time><Text>{one.message}</Text></li>)}</ol>
      {!lines.length && !error && <Empty icon="file" title="Nothing written yet">Lines appear as the build goes on.</Empty>}
    </Card>
  )
}

// ---- snapshots ----

// Who came from whom: sandboxes under the snapshots that they started from, snapshots under their sandboxes.
function Tree({ snapshots, sandboxes }) {
  const started = (one) => sandboxes.filter((box) => box.snapshot_id === one.id)
  const of = new Map()
  for (const one of snapshots) of.set(one.sandbox_id, [...(of.get(one.sandbox_id) ?? []), one])
  return (
    <ul class="tree">
      {[...of].map(([id, list]) => (
        <li key={id}>
          <a href={`#/sandboxes/${enc(id ?? '')}`}><Text>{id ?? 'elsewhere'}</Text></a>
          <ul>
            {list.map((one) => (
              <li key={one.id}>
                <b><Text>{one.alias ?? one.id}</Text></b> <span class="soft">{age(one.created_at)}</span>
                {started(one).length > 0 && <ul>{started(one).map((box) => <li key={box.id}><a href={`#/sandboxes/${enc(box.id)}`}><Text>{box.key ?? box.id}</Text></a> <State state={box.state} /></li>)}</ul>}
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ul>
  )
}

export function Snapshots({ who }) {
  const { data, error, again } = useData(() => v1('/snapshots?limit=1000'), [])
  const live = useLive()
  const [gone, setGone] = useState(null)
  const reads = who.role === 'viewer'
  const all = data?.snapshots ?? []
  return (
    <>
      <div class="title"><h1>Snapshots <small>{data && count(all.length)}</small></h1></div>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !all.length && <Empty icon="snapshots" title="No snapshot yet">Take one on the page of a sandbox. New sandboxes start from it in milliseconds, and share its files on disk.</Empty>}
      {all.length > 0 && (
        <div class="columns">
          <Card title="All">
            <div class="table-wrap"><table>
              <thead><tr><th>name</th><th>of</th><th>kept until</th><th /></tr></thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.id}>
                    <td><Text>{one.alias ?? one.id}</Text><br /><span class="soft">{one.kind} · {one.state}</span></td>
                    <td><Text>{shorten(one.sandbox_id, 24)}</Text></td>
                    <td class="soft">{moment(one.expires_at)}</td>
                    <td class="do">{!reads && <><Button icon="fork" kind="quiet" onClick={() => attempt('It runs', () => post('/api/v1/sandboxes', { snapshot: one.id })).then((made) => made && go(`sandboxes/${enc(made.id)}`))}>Start</Button><Button icon="bin" kind="quiet" label={`Delete ${plain(one.alias ?? one.id)}`} onClick={() => setGone(one)} /></>}</td>
                  </tr>
                ))}
              </tbody>
            </table></div>
          </Card>
          <Card title="Who came from whom"><Tree snapshots={all} sandboxes={[...live.sandboxes.values()]} /></Card>
        </div>
      )}
      {gone && <Confirm title="Delete this snapshot?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/api/v1/snapshots/${enc(gone.id)}`).then(again)}>Nothing can start from it any more; sandboxes that did go on.</Confirm>}
    </>
  )
}

// ---- volumes ----

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
      <div class="title"><h1>Volumes <small>{data && count(data.length)}</small></h1></div>
      {!reads && (
        <form class="inline" onSubmit={make} novalidate>
          <Field label="New volume" error={wrong}><input placeholder="name" value={name} onInput={(event) => setName(event.target.value)} /></Field>
          <Button kind="main" type="submit">Make</Button>
        </form>
      )}
      {error && <Problem error={error} again={again} />}
      {data && !data.length && <Empty icon="volumes" title="No volume yet">A volume keeps files that several sandboxes mount and that outlive them.</Empty>}
      {data?.length > 0 && (
        <Card>
          <ul class="plain">
            {data.map((one) => (
              <li key={one.volumeID}><b><Text>{one.name}</Text></b><code class="soft">{one.volumeID}</code>{!reads && <span class="right"><Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => setGone(one)} /></span>}</li>
            ))}
          </ul>
        </Card>
      )}
      {gone && <Confirm title="Delete this volume?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/volumes/${enc(gone.volumeID)}`).then(again)}>All files in {plain(gone.name)} will be gone.</Confirm>}
    </>
  )
}
