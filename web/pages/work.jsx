// Sessions, as people read a conversation, and jobs with their output.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { enc, post, remove, stream, v1 } from '../api.js'
import { useEvents } from '../live.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Loading, Problem, State, Text, attempt, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, clock, count, moment, plain, shorten } from '../words.js'
import { Diff, diff } from './files.jsx'

export function Work({ who, open, kind }) {
  if (kind === 'job') return <Job key={open} id={open} reads={who.role === 'viewer'} />
  if (open) return <Session key={open} id={open} reads={who.role === 'viewer'} />
  return <Lists reads={who.role === 'viewer'} />
}

function Lists({ reads }) {
  const sessions = useData(() => v1('/sessions?limit=200'), [])
  const jobs = useData(() => v1('/sandboxes/-/processes?limit=200'), [])
  const [making, setMaking] = useState(false)
  useEvents((event) => {
    if (event.session) sessions.again()
    if (event.type.startsWith('process.') || event.type.startsWith('job.')) jobs.again()
  }, [])
  return (
    <>
      <div class="title">
        <h1>Sessions and jobs</h1>
        {!reads && <Button kind="main" icon="plus" onClick={() => setMaking(true)}>New session</Button>}
      </div>
      <Card title="Sessions">
        {sessions.error && <Problem error={sessions.error} again={sessions.again} />}
        {sessions.data && !sessions.data.sessions.length && <Empty icon="sessions" title="No session yet">A session is an agent at work in a sandbox: it reads a repository, changes it, and asks before it does what it may not.</Empty>}
        <ul class="plain">
          {sessions.data?.sessions.map((one) => (
            <li key={one.id}>
              <a href={`#/work/${enc(one.id)}`}><Text>{one.id}</Text></a><State state={one.state} /><Text class="soft">{one.agent ?? ''}</Text>
              <Text class="soft">{shorten(`${one.repo ?? ''}${one.branch ? `#${one.branch}` : ''}`, 60)}</Text><span class="soft right">{age(one.created_at)}</span>
            </li>
          ))}
        </ul>
      </Card>
      <Card title="Jobs">
        {jobs.error && <Problem error={jobs.error} again={jobs.again} />}
        {jobs.data && !jobs.data.processes.length && <Empty icon="clock" title="No job yet">A job is a command in the background: quicksand job start SANDBOX -- CMD, or execute with "background": true.</Empty>}
        <ul class="plain">
          {jobs.data?.processes.map((one) => (
            <li key={one.id}>
              <a href={`#/work/job/${enc(one.id)}`}><Text class="mono">{shorten(one.command, 70)}</Text></a><State state={one.state} />
              {one.exit_code !== null && <span class="soft">exit {one.exit_code}</span>}{one.callback_state && <span class="label">callback {plain(one.callback_state)}{one.callback_attempts > 1 && `, ${one.callback_attempts} times`}</span>}
              <span class="soft right">{age(one.started_at)}</span>
            </li>
          ))}
        </ul>
      </Card>
      {making && <NewSession onClose={() => setMaking(false)} />}
    </>
  )
}

function NewSession({ onClose }) {
  const [form, setForm] = useState({ agent: 'claude', repo: '', branch: '', mode: 'ask', message: '' })
  const [error, setError] = useState(null)
  const field = (name) => ({ value: form[name], onInput: (event) => setForm({ ...form, [name]: event.target.value }) })
  const submit = async (event) => {
    event.preventDefault()
    try {
      const made = await post('/api/v1/sessions', { agent: form.agent, repo: form.repo || undefined, branch: form.branch || undefined, permission_mode: form.mode, message: form.message || undefined })
      go(`work/${enc(made.id)}`)
    } catch (why) {
      setError(why)
    }
  }
  return (
    <Dialog title="New session" onClose={onClose} wide>
      <form onSubmit={submit} novalidate>
        <div class="grid">
          <Field label="Agent"><input {...field('agent')} autofocus /></Field>
          <Field label="Repository" hint="A URL; may be left open"><input {...field('repo')} /></Field>
          <Field label="Branch"><input {...field('branch')} /></Field>
          <Field label="What it may do unasked">
            <select value={form.mode} onChange={(event) => setForm({ ...form, mode: event.target.value })}>
              <option value="ask">read</option><option value="edit">read and edit</option><option value="bypass">everything</option>
            </select>
          </Field>
        </div>
        <Field label="First message"><textarea rows={4} {...field('message')} /></Field>
        {error && <Problem error={error} />}
        <footer><Button kind="quiet" onClick={onClose}>Cancel</Button><Button kind="main" type="submit">Begin</Button></footer>
      </form>
    </Dialog>
  )
}

// ---- one conversation ----

const textOf = (content) => (Array.isArray(content) ? content.map(textOf).join('') : content?.text ?? content?.content?.text ?? (typeof content === 'string' ? content : ''))

// Events as turns: messages of people, what the agent said (its pieces joined), tools folded, questions.
export function turnsOf(events) {
  const turns = []
  const tools = new Map()
  const say = (kind, text, one) => {
    const last = turns.at(-1)
    if (kind === 'agent' && last?.kind === 'agent') last.text += text
    else turns.push({ kind, text, ts: one.ts, id: one.id })
  }
  for (const one of events) {
    const data = one.data ?? {}
    const update = data.update ?? data
    const what = update.sessionUpdate ?? ''
    if (one.type === 'agent.message') say('agent', data.text ?? '', one)
    else if (one.type === 'session.message') say('person', data.text ?? '', one)
    else if (/message_chunk/.test(what)) say(/user/.test(what) ? 'person' : 'agent', textOf(update.content), one)
    else if (/thought/.test(what)) turns.push({ kind: 'thought', text: textOf(update.content), ts: one.ts, id: one.id })
    else if (/tool_call/.test(what)) {
      const known = tools.get(update.toolCallId)
      if (known) Object.assign(known, { ...update, kind: 'tool' })
      else {
        const turn = { ...update, kind: 'tool', ts: one.ts, id: one.id }
        tools.set(update.toolCallId, turn)
        turns.push(turn)
      }
    } else if (one.type === 'permission.requested') turns.push({ kind: 'question', request: data.request_id, text: data.tool?.title ?? data.title ?? 'The agent asks for permission', ts: one.ts, id: one.id, data })
    else if (/^permission\./.test(one.type)) {
      const asked = turns.find((turn) => turn.kind === 'question' && turn.request === data.request_id)
      if (asked) asked.answer = data.allow === false || /den|refus/.test(one.type) ? 'refused' : 'allowed'
    } else if (/error|failed|exited/.test(one.type)) turns.push({ kind: 'trouble', text: `${one.type}: ${data.message ?? data.reason ?? ''}`, ts: one.ts, id: one.id })
    else if (/^(session|git)\.|turn\.completed/.test(one.type)) turns.push({ kind: 'fact', text: `${one.type.replace(/^(session|agent)\./, '').replaceAll('.', ' ')}${data.message ? `: ${data.message}` : ''}`, ts: one.ts, id: one.id })
  }
  return turns
}

const PIECES_MAX = 5000

function Tool({ turn }) {
  const parts = Array.isArray(turn.content) ? turn.content : []
  return (
    <details class="tool">
      <summary><State state={turn.status ?? 'done'} /> <Text>{shorten(turn.title ?? turn.toolCallId ?? 'tool', 100)}</Text></summary>
      {parts.map((part, at) => (part.type === 'diff' ? <div key={at}><Text class="mono">{part.path}</Text><Diff rows={diff(part.oldText ?? '', part.newText ?? '').rows} /></div> : <pre key={at} class="out">{plain(textOf(part))}</pre>))}
      {turn.rawInput && <pre class="out">{plain(JSON.stringify(turn.rawInput, null, 2))}</pre>}
    </details>
  )
}

function Session({ id, reads }) {
  const { data: session, error, again } = useData(() => v1(`/sessions/${enc(id)}`), [id])
  const events = useData(() => v1(`/sessions/${enc(id)}/events?limit=1000`), [id])
  const [text, setText] = useState('')
  const [gone, setGone] = useState(false)
  const end = useRef(null)
  const path = `/api/v1/sessions/${enc(id)}`
  const [pieces, setPieces] = useState([]) // of what it says just now: they are passed on and not kept
  useEvents((event) => {
    if (event.session !== id) return
    if (/_chunk$/.test(event.type)) return setPieces((all) => [...all, event].slice(-PIECES_MAX))
    events.again()
    again()
  }, [id])
  const turns = useMemo(() => {
    const kept = events.data?.events ?? []
    const whole = kept.findLast((one) => one.type === 'agent.message')?.ts ?? ''
    return turnsOf([...kept, ...pieces.filter((one) => one.ts > whole)])
  }, [events.data, pieces])
  const waits = turns.findLast((turn) => turn.kind === 'question' && !turn.answer)
  const answer = (allow) => attempt(allow ? 'Allowed' : 'Refused', () => post(`${path}/approve`, { request_id: waits.request, allow }))
  useEffect(() => end.current?.scrollIntoView({ block: 'nearest' }), [turns.length])
  useEffect(() => {
    if (!waits || reads) return
    const listen = (event) => {
      if (event.target.closest('input, textarea')) return
      if (event.key === 'y') answer(true)
      if (event.key === 'n') answer(false)
    }
    addEventListener('keydown', listen)
    return () => removeEventListener('keydown', listen)
  }, [waits?.request])
  if (error) return <Problem error={error} again={again} />
  if (!session) return <Loading />
  const send = async (event) => {
    event.preventDefault()
    if (text.trim() && (await attempt('Sent', () => post(`${path}/messages`, { message: text })))) setText('')
  }
  return (
    <>
      <div class="title">
        <h1><Text>{session.agent ?? 'session'}</Text> <State state={session.state} /></h1>
        {!reads && (
          <div class="actions">
            <Button onClick={() => attempt('Interrupted', () => post(`${path}/interrupt`))}>Interrupt</Button>
            <Button icon="up" onClick={() => attempt('Pushed', () => post(`${path}/push`, {}))}>Push</Button>
            <Button icon="bin" kind="danger" onClick={() => setGone(true)}>Delete</Button>
          </div>
        )}
      </div>
      <p class="under soft"><code>{plain(session.id)}</code>{session.sandbox_id && <a href={`#/sandboxes/${enc(session.sandbox_id)}`}><Text>{session.sandbox_id}</Text></a>}<Text>{session.repo ?? ''}</Text>{session.reason && <Text>{session.reason}</Text>}</p>
      <Card class="talk">
        {!turns.length && <Empty icon="sessions" title="Nothing said yet">Write what the agent is to do.</Empty>}
        {turns.map((turn) => (turn.kind === 'tool' ? <Tool key={turn.id} turn={turn} /> : <div key={turn.id} class={`turn ${turn.kind}`}><Text>{turn.text}</Text>{turn.answer && <em>{turn.answer}</em>}<time>{clock(turn.ts)}</time></div>))}
        <div ref={end} />
      </Card>
      {waits && !reads && (
        <div class="bulk" role="alert"><b>It asks: <Text>{shorten(waits.text, 120)}</Text></b><Button kind="main" onClick={() => answer(true)}>Allow (y)</Button><Button kind="danger" onClick={() => answer(false)}>Refuse (n)</Button></div>
      )}
      {!reads && <form class="inline wide" onSubmit={send}><textarea rows={2} data-search aria-label="Message" placeholder="Message; Ctrl-Enter sends" value={text} onInput={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === 'Enter' && event.ctrlKey && send(event)} /><Button kind="main" type="submit">Send</Button></form>}
      {gone && <Confirm title="Delete this session?" action="Delete" onClose={() => setGone(false)} onDo={() => remove(path).then(() => go('work'))}>Its sandbox is killed with it.</Confirm>}
    </>
  )
}

// ---- one job ----

const CLEAN = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g

// Whoever wanted to be told of its end, and how that goes.
function Callback({ job }) {
  if (!job.callback_state) return null
  const tries = job.callback_attempts ? `, tried ${job.callback_attempts === 1 ? 'once' : `${count(job.callback_attempts)} times`}` : ''
  return <span class={job.callback_state === 'failed' ? 'bad' : ''}>callback {plain(job.callback_state)}{tries}{job.callback_next_at && `, again at ${clock(job.callback_next_at)}`}</span>
}

function Job({ id, reads }) {
  const path = `/sandboxes/-/processes/${enc(id)}`
  const { data: job, error, again } = useData(() => v1(path), [id])
  const [out, setOut] = useState('')
  useEvents((event) => event.process === id && again(), [id])
  useEffect(() => {
    const stop = new AbortController()
    stream(`/api/v1${path}/logs?follow=true`, ({ data }) => setOut((old) => (old + (data.data ?? '')).slice(-500_000)), { signal: stop.signal }).catch(() => {})
    return () => stop.abort()
  }, [id])
  if (error) return <Problem error={error} again={again} />
  if (!job) return <Loading />
  return (
    <>
      <div class="title">
        <h1><Text class="mono">{shorten(job.command, 60)}</Text> <State state={job.state} /></h1>
        {!reads && job.state === 'running' && <Button kind="danger" onClick={() => attempt('It was told to stop', () => post(`/api/v1${path}/stop`)).then(again)}>Stop</Button>}
      </div>
      <p class="under soft"><code>{plain(job.id)}</code><a href={`#/sandboxes/${enc(job.sandbox_id)}`}><Text>{job.sandbox_id}</Text></a><span>{moment(job.started_at)}</span>{job.exit_code !== null && <span>exit {count(job.exit_code)}</span>}<Callback job={job} /></p>
      <Card title="Output">{out ? <pre class="out" tabIndex={0}>{out.replace(CLEAN, '').split('\n').map(plain).join('\n')}</pre> : <Empty icon="file" title="Nothing printed yet">Lines appear as they are written.</Empty>}</Card>
    </>
  )
}
