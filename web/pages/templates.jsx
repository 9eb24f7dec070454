// Templates and their builds.
import { useEffect, useState } from 'preact/hooks'
import { ask, enc, post, remove } from '../api.js'
import { useLive } from '../live.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Heading, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, bytes, clock, count, mebibytes, moment, plain, plural } from '../words.js'
import { LogFilter } from './logs.jsx'

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
      <Heading name="Templates" actions={!reads && <Button kind="main" icon="plus" onClick={() => setBuilding(true)}>Build from a Dockerfile</Button>}>Templates <small>{data && count(data.length)}</small></Heading>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="templates" title="No templates yet">Build one from a Dockerfile, or with quicksand template build.</Empty>}
      <div class="tiles">
        {data?.map((one) => (
          <Card key={one.templateID} title={<a href={`#/templates/${enc(one.templateID)}`}><Text>{nameOf(one)}</Text></a>} actions={<State state={one.buildStatus} />}>
            <dl class="details">
              <dt>Size</dt><dd>{plural(one.cpuCount, 'processor')}, {mebibytes(one.memoryMB)} memory</dd>
              <dt>Layers</dt><dd>{one.layerCount}{one.layerBytes ? `, ${bytes(one.layerBytes)}` : ''}</dd>
              <dt>Sandboxes</dt><dd>{count(uses(one))} now, {count(one.spawnCount)} in total</dd>
              <dt>Changed</dt><dd>{moment(one.updatedAt)}</dd>
            </dl>
            {!reads && (
              <div class="actions foot">
                <Button icon="play" onClick={() => attempt('Created a sandbox', () => post('/api/v1/sandboxes', { template: nameOf(one) })).then((made) => made && go(`sandboxes/${enc(made.id)}`))}>Create sandbox</Button>
                {!one.public && <Button icon="bin" kind="quiet" label={`Delete ${nameOf(one)}`} onClick={() => setGone(one)} />}
              </div>
            )}
          </Card>
        ))}
      </div>
      {building && <Build onClose={() => setBuilding(false)} />}
      {gone && (
        <Confirm title="Delete this template?" action="Delete" onClose={() => setGone(null)} onDo={() => remove(`/templates/${enc(gone.templateID)}`).then(again)}>
          New sandboxes cannot start from {plain(nameOf(gone))} any more. Existing sandboxes keep running.
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
    else if (name === 'FROM') throw new Error('Several stages need the command line: quicksand template build')
    else if (name === 'RUN') recipe.steps.push({ type: 'RUN', args: [rest] })
    else if (name === 'WORKDIR') recipe.steps.push({ type: 'WORKDIR', args: [rest] })
    else if (name === 'USER') recipe.steps.push({ type: 'USER', args: [rest] })
    else if (name === 'ENV') recipe.steps.push({ type: 'ENV', args: rest.includes('=') ? [...rest.matchAll(/(\w+)=("[^"]*"|\S*)/g)].flatMap(([, key, value]) => [key, value.replace(/^"|"$/g, '')]) : rest.split(/\s+(.*)/s).slice(0, 2) })
    else if (name === 'CMD' || name === 'ENTRYPOINT') recipe.start = rest[0] === '[' ? JSON.parse(rest).join(' ') : rest
    else throw new Error(`${name} needs the command line: quicksand template build -f Dockerfile`)
  }
  if (!recipe.from) throw new Error('A FROM line is missing, for example: FROM base')
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
      note(`Building ${name}`)
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
      <Heading name={one ? nameOf(one) : id}><Text>{one ? nameOf(one) : id}</Text>{one && <State state={one.buildStatus} />}</Heading>
      <p class="under soft"><code>{plain(id)}</code><a href="#/templates">All templates</a></p>
      <div class="columns">
        <Card title="Details">
          <dl class="details">
            {one && <><dt>Size</dt><dd>{plural(one.cpuCount, 'processor')}, {mebibytes(one.memoryMB)} memory, {mebibytes(one.diskSizeMB)} disk</dd><dt>Layers</dt><dd>{one.layerCount}, {bytes(one.layerBytes)} without the base</dd><dt>Sandboxes</dt><dd>{count(one.spawnCount)} in total{one.lastSpawnedAt && `, the last ${age(one.lastSpawnedAt)} ago`}</dd></>}
            {settings?.startCmd && <><dt>Start command</dt><dd class="mono"><Text>{settings.startCmd}</Text></dd></>}
            {settings?.user && <><dt>User</dt><dd><Text>{settings.user}</Text></dd></>}
            {settings?.workdir && <><dt>Directory</dt><dd class="mono"><Text>{settings.workdir}</Text></dd></>}
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
            <Empty icon="templates" title="No builds on this server">The template came with the server, or belongs to another team.</Empty>
          )}
        </Card>
      </div>
      {build && build !== NEVER_BUILT && <BuildLog key={build} id={id} build={build} reads={reads} />}
    </>
  )
}

const ORDER = ['', 'debug', 'info', 'warn', 'error']

function BuildLog({ id, build, reads }) {
  const [lines, setLines] = useState([])
  const [status, setStatus] = useState(null)
  const [error, setError] = useState(null)
  const [level, setLevel] = useState('')
  const [text, setText] = useState('')
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
  const shown = lines.filter((one) => ORDER.indexOf(one.level) >= ORDER.indexOf(level) && one.message.toLowerCase().includes(text.trim().toLowerCase()))
  return (
    <Card title={<>Build <code>{plain(build.slice(0, 8))}</code></>} actions={<><LogFilter level={level} setLevel={setLevel} text={text} setText={setText} />{status && <State state={status.status} />}{runs && !reads && <Button kind="danger" onClick={() => attempt('Cancelled', () => post(`${path}/cancel`))}>Cancel</Button>}</>}>
      {error && <Problem error={error} />}
      {status?.reason && <Problem error={status.reason.message} />}
      <ol class="log" tabIndex={0} aria-label="Lines">{shown.map((one, at) => <li key={at} class={one.level}><time>{clock(one.timestamp)}</time><Text>{one.message}</Text></li>)}</ol>
      {!lines.length && !error && <Empty icon="file" title="No lines yet">Lines appear as the build runs.</Empty>}
      {lines.length > 0 && !shown.length && <Empty icon="search" title="No matching lines">Try other words or another level.</Empty>}
    </Card>
  )
}
