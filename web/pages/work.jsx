// Sessions and jobs: their lists, a new session, and one job with its output.
import { useEffect, useState } from 'preact/hooks'
import { enc, post, stream, v1 } from '../api.js'
import { useChanges } from '../live.js'
import { Button, Card, Dialog, Empty, Field, Heading, Loading, Problem, State, Text, attempt, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { age, clock, count, moment, plain, plural, shorten } from '../words.js'
import { Session } from './session.jsx'

export function Work({ who, open, kind }) {
  if (kind === 'job') return <Job key={open} id={open} reads={who.role === 'viewer'} />
  if (open) return <Session key={open} id={open} reads={who.role === 'viewer'} />
  return <Lists reads={who.role === 'viewer'} />
}

// A running job stands still while its sandbox is paused.
const stateOf = (job) => (job.state === 'running' && job.sandbox_state === 'paused' ? 'paused' : job.state)

function Lists({ reads }) {
  const sessions = useData(() => v1('/sessions?limit=200'), [])
  const jobs = useData(() => v1('/sandboxes/-/processes?limit=200'), [])
  const [making, setMaking] = useState(false)
  useChanges((event) => event.type.startsWith('session.'), sessions.again, [])
  useChanges((event) => /^(process|job)\.|^sandbox\.(paused|resumed)$/.test(event.type), jobs.again, [])
  return (
    <>
      <Heading name="Sessions and jobs" actions={!reads && <Button kind="main" icon="plus" onClick={() => setMaking(true)}>New session</Button>} />
      <Card title="Sessions">
        {sessions.error && <Problem error={sessions.error} again={sessions.again} />}
        {sessions.data && !sessions.data.sessions.length && <Empty icon="sessions" title="No sessions yet">In a session, an agent works in a sandbox: it reads and changes a repository, and asks before it does more than it is allowed to.</Empty>}
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
        {jobs.data && !jobs.data.processes.length && <Empty icon="clock" title="No jobs yet">A job is a command that runs in the background. Start one with quicksand job start SANDBOX -- COMMAND.</Empty>}
        <ul class="plain">
          {jobs.data?.processes.map((one) => (
            <li key={one.id}>
              <a href={`#/work/job/${enc(one.id)}`}><Text class="mono">{shorten(one.command, 70)}</Text></a><State state={stateOf(one)} />
              {one.exit_code !== null && <span class="soft">exit code {one.exit_code}</span>}{one.callback_state && <span class="label">callback {plain(one.callback_state)}{one.callback_attempts > 1 && `, ${one.callback_attempts} attempts`}</span>}
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
          <Field label="Repository" hint="URL; optional"><input {...field('repo')} /></Field>
          <Field label="Branch"><input {...field('branch')} /></Field>
          <Field label="Allowed without asking">
            <select value={form.mode} onChange={(event) => setForm({ ...form, mode: event.target.value })}>
              <option value="ask">read</option><option value="edit">read and edit</option><option value="bypass">everything</option>
            </select>
          </Field>
        </div>
        <Field label="First message"><textarea class="message" rows={4} {...field('message')} /></Field>
        {error && <Problem error={error} />}
        <footer><Button kind="quiet" onClick={onClose}>Cancel</Button><Button kind="main" type="submit">Create</Button></footer>
      </form>
    </Dialog>
  )
}

// ---- one job ----

const CLEAN = /\u001b\[[0-9;?]*[A-Za-z]|\u001b\][^\u0007]*\u0007/g

// The request that reports the job's end, and how often it was tried.
function Callback({ job }) {
  if (!job.callback_state) return null
  const tries = job.callback_attempts ? `, ${plural(job.callback_attempts, 'attempt')}` : ''
  return <span class={job.callback_state === 'failed' ? 'bad' : ''}>callback {plain(job.callback_state)}{tries}{job.callback_next_at && `, next at ${clock(job.callback_next_at)}`}</span>
}

function Job({ id, reads }) {
  const path = `/sandboxes/-/processes/${enc(id)}`
  const { data: job, error, again } = useData(() => v1(path), [id])
  const [out, setOut] = useState('')
  // To read what it printed would resume a paused sandbox.
  const readable = job && stateOf(job) !== 'paused'
  useChanges((event) => event.process === id || ((!job || event.sandbox === job.sandbox_id) && /^sandbox\.(paused|resumed)$/.test(event.type)), again, [id, job?.sandbox_id])
  useEffect(() => {
    if (!readable) return undefined
    const stop = new AbortController()
    setOut('')
    stream(`/api/v1${path}/logs?follow=true`, ({ data }) => setOut((old) => (old + (data.data ?? '')).slice(-500_000)), { signal: stop.signal }).catch(() => {})
    return () => stop.abort()
  }, [id, readable])
  if (error) return <Problem error={error} again={again} />
  if (!job) return <Loading />
  return (
    <>
      <Heading name={shorten(job.command, 60)} actions={!reads && job.state === 'running' && <Button kind="danger" onClick={() => attempt('Stopping', () => post(`/api/v1${path}/stop`)).then(again)}>Stop</Button>}>
        <Text class="mono">{shorten(job.command, 60)}</Text> <State state={stateOf(job)} />
      </Heading>
      <p class="under soft"><code>{plain(job.id)}</code><a href={`#/sandboxes/${enc(job.sandbox_id)}`}><Text>{job.sandbox_id}</Text></a><span>{moment(job.started_at)}</span>{job.exit_code !== null && <span>exit code {count(job.exit_code)}</span>}<Callback job={job} /></p>
      <Card title="Output">{out ? <pre class="out" tabIndex={0}>{out.replace(CLEAN, '').split('\n').map(plain).join('\n')}</pre> : <Empty icon="file" title={readable ? 'No output yet' : 'Paused'}>{readable ? 'Lines appear as the job prints them.' : 'Its output can be read when its sandbox is resumed.'}</Empty>}</Card>
    </>
  )
}
