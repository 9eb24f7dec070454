// Webhooks of the team: create, enable, test, and their deliveries.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, enc, post, remove } from '../api.js'
import { useEvents } from '../live.js'
import { Button, Card, Confirm, Empty, Field, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { clock, count, moment, plain } from '../words.js'

const KINDS = { created: 'created', paused: 'paused', resumed: 'resumed', updated: 'changed', checkpointed: 'snapshot taken', killed: 'killed', memory_lost: 'memory lost' }
const PREFIX = 'sandbox.lifecycle.'
const START = { name: '', url: '', secret: '', kinds: ['created', 'paused', 'resumed', 'killed'] }

// {field: what is wrong}.
function faults(form) {
  const wrong = {}
  if (!form.name.trim()) wrong.name = 'Type a name.'
  if (!/^https?:\/\/[^\s/]+/.test(form.url)) wrong.url = 'A URL begins with http:// or https://'
  if (form.secret.length < 1) wrong.secret = 'Type a secret: receivers check signatures with it.'
  if (!form.kinds.length) wrong.kinds = 'Choose at least one event.'
  return wrong
}

function Make({ onMade }) {
  const [form, setForm] = useState(START)
  const [wrong, setWrong] = useState({})
  const field = (name) => ({ value: form[name], onInput: (event) => setForm({ ...form, [name]: event.target.value }) })
  const toggle = (kind) => setForm({ ...form, kinds: form.kinds.includes(kind) ? form.kinds.filter((one) => one !== kind) : [...form.kinds, kind] })
  const make = async (event) => {
    event.preventDefault()
    const found = faults(form)
    setWrong(found)
    if (Object.keys(found).length) return
    try {
      await post('/events/webhooks', { name: form.name.trim(), url: form.url.trim(), signatureSecret: form.secret, enabled: true, events: form.kinds.map((one) => PREFIX + one) })
      setForm(START)
      onMade()
    } catch (why) {
      setWrong({ [/'url'/.test(why.message) ? 'url' : /'signatureSecret'/.test(why.message) ? 'secret' : 'name']: why.message })
    }
  }
  return (
    <Card title="New webhook">
      <form onSubmit={make} novalidate>
        <div class="grid">
          <Field label="Name" error={wrong.name}><input {...field('name')} /></Field>
          <Field label="URL" error={wrong.url}><input placeholder="https://" {...field('url')} /></Field>
          <Field label="Signature secret" error={wrong.secret} hint="Signs each request"><input type="password" autocomplete="off" {...field('secret')} /></Field>
        </div>
        <fieldset class={`kinds ${wrong.kinds ? 'wrong' : ''}`}>
          <legend>Events</legend>
          {Object.entries(KINDS).map(([kind, title]) => <label key={kind}><input type="checkbox" checked={form.kinds.includes(kind)} onChange={() => toggle(kind)} /> {title}</label>)}
          {wrong.kinds && <em role="alert">{wrong.kinds}</em>}
        </fieldset>
        <div class="actions foot"><Button kind="main" type="submit">Create</Button></div>
      </form>
    </Card>
  )
}

function Deliveries({ id, turn }) {
  const { data, error, again } = useData(() => ask(`/events/webhooks/${enc(id)}/deliveries`), [id, turn])
  const timer = useRef(null)
  useEvents((event) => {
    if (!event.type.startsWith('sandbox.')) return
    clearTimeout(timer.current)
    timer.current = setTimeout(again, 500) // it is sent after the event, and then answered
  }, [id])
  useEffect(() => () => clearTimeout(timer.current), [])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  return (
    <div class="deliveries">
      <p class="soft">
        {data.waiting ? `${count(data.waiting)} not delivered yet; next attempt at ${clock(data.nextAt)}.` : 'Everything was delivered.'} <Button icon="refresh" kind="quiet" label="Refresh" onClick={again} />
      </p>
      {!data.attempts.length && <Empty icon="link" title="No deliveries since the server started">Send a test, or create a sandbox.</Empty>}
      {data.attempts.length > 0 && (
        <div class="table-wrap" tabIndex={0}><table class="stack">
          <thead><tr><th>time</th><th>event</th><th>sandbox</th><th class="number">attempt</th><th>state</th></tr></thead>
          <tbody>
            {data.attempts.map((one, at) => (
              <tr key={at}>
                <td class="soft" data-label="time">{clock(one.timestamp)}</td><td data-label="event">{plain(one.type)}</td><td data-label="sandbox"><Text>{one.sandboxID || '–'}</Text></td><td class="number" data-label="attempt">{one.attempt}</td>
                <td>{one.delivered ? <span class="good">delivered</span> : <span class="bad"><Text>{one.message}</Text></span>}</td>
              </tr>
            ))}
          </tbody>
        </table></div>
      )}
    </div>
  )
}

function Webhook({ one, reads, again }) {
  const [shown, setShown] = useState(false)
  const [busy, setBusy] = useState(false)
  const [turn, setTurn] = useState(0)
  const [gone, setGone] = useState(false)
  const path = `/events/webhooks/${enc(one.id)}`
  const turnOver = () => attempt(one.enabled ? 'Disabled' : 'Enabled', () => ask(path, { method: 'PATCH', body: { enabled: !one.enabled } })).then(again)
  const test = async () => {
    setBusy(true)
    const answer = await attempt(null, () => post(`${path}/test`))
    if (answer) note(answer.delivered ? `Delivered to ${one.name}` : `Not delivered to ${one.name}: ${answer.message}`, answer.delivered ? 'good' : 'bad')
    setBusy(false)
    setShown(true)
    setTurn((n) => n + 1)
  }
  return (
    <Card title={<Text>{one.name}</Text>} actions={<State state={one.enabled ? 'enabled' : 'disabled'} />}>
      <dl class="details">
        <dt>URL</dt><dd class="mono"><Text>{one.url}</Text></dd>
        <dt>Events</dt><dd>{one.events.map((kind) => KINDS[kind.slice(PREFIX.length)] ?? plain(kind)).join(', ')}</dd>
        <dt>Created</dt><dd>{moment(one.createdAt)}</dd>
      </dl>
      <div class="actions foot">
        {!reads && <Button disabled={busy} onClick={test}>{busy ? 'Sending…' : 'Send test'}</Button>}
        <Button aria-expanded={shown} onClick={() => setShown(!shown)}>Deliveries</Button>
        {!reads && <Button kind="quiet" onClick={turnOver}>{one.enabled ? 'Disable' : 'Enable'}</Button>}
        {!reads && <Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => setGone(true)} />}
      </div>
      {shown && <Deliveries id={one.id} turn={turn} />}
      {gone && <Confirm title="Delete this webhook?" action="Delete" onClose={() => setGone(false)} onDo={() => (setShown(false), remove(path).then(again))}>{plain(one.name)} gets no more events, including those that wait for delivery.</Confirm>}
    </Card>
  )
}

export function Webhooks({ reads }) {
  const { data, error, again } = useData(() => ask('/events/webhooks'), [])
  return (
    <>
      {!reads && <Make onMade={again} />}
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="link" title="No webhooks yet">A webhook posts the events of the team's sandboxes to a URL, and tries again until the receiver answers.</Empty>}
      {data?.map((one) => <Webhook key={one.id} one={one} reads={reads} again={again} />)}
    </>
  )
}
