// Webhooks of the team: made, switched, tried, and how their deliveries went.
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, enc, post, remove } from '../api.js'
import { useEvents } from '../live.js'
import { Button, Card, Confirm, Empty, Field, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { clock, count, moment, plain } from '../words.js'

const KINDS = { created: 'created', paused: 'paused', resumed: 'resumed', updated: 'changed', checkpointed: 'snapshot taken', killed: 'ended', memory_lost: 'memory lost' }
const PREFIX = 'sandbox.lifecycle.'
const START = { name: '', url: '', secret: '', kinds: ['created', 'paused', 'resumed', 'killed'] }

// {field: what is wrong}.
function faults(form) {
  const wrong = {}
  if (!form.name.trim()) wrong.name = 'It needs a name.'
  if (!/^https?:\/\/[^\s/]+/.test(form.url)) wrong.url = 'An address begins with http:// or https://'
  if (form.secret.length < 1) wrong.secret = 'Without a secret nobody can tell our requests from those of others.'
  if (!form.kinds.length) wrong.kinds = 'Choose at least one.'
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
          <Field label="Address" error={wrong.url}><input placeholder="https://" {...field('url')} /></Field>
          <Field label="Secret of signatures" error={wrong.secret} hint="It signs each request"><input type="password" autocomplete="off" {...field('secret')} /></Field>
        </div>
        <fieldset class={`kinds ${wrong.kinds ? 'wrong' : ''}`}>
          <legend>Told of</legend>
          {Object.entries(KINDS).map(([kind, title]) => <label key={kind}><input type="checkbox" checked={form.kinds.includes(kind)} onChange={() => toggle(kind)} /> {title}</label>)}
          {wrong.kinds && <em role="alert">{wrong.kinds}</em>}
        </fieldset>
        <div class="actions foot"><Button kind="main" type="submit">Make</Button></div>
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
        {data.waiting ? `${count(data.waiting)} not taken yet; the next is sent at ${clock(data.nextAt)}.` : 'Everything was taken.'} <Button icon="refresh" kind="quiet" label="Look again" onClick={again} />
      </p>
      {!data.attempts.length && <Empty icon="link" title="Nothing sent since the server's start">Send a test, or do something to a sandbox.</Empty>}
      {data.attempts.length > 0 && (
        <div class="table-wrap"><table>
          <thead><tr><th>when</th><th>what</th><th>sandbox</th><th class="number">attempt</th><th>outcome</th></tr></thead>
          <tbody>
            {data.attempts.map((one, at) => (
              <tr key={at}>
                <td class="soft">{clock(one.timestamp)}</td><td>{plain(one.type)}</td><td><Text>{one.sandboxID || '–'}</Text></td><td class="number">{one.attempt}</td>
                <td>{one.delivered ? <span class="good">taken</span> : <span class="bad"><Text>{one.message}</Text></span>}</td>
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
  const turnOver = () => attempt(one.enabled ? 'Switched off' : 'Switched on', () => ask(path, { method: 'PATCH', body: { enabled: !one.enabled } })).then(again)
  const test = async () => {
    setBusy(true)
    const answer = await attempt(null, () => post(`${path}/test`))
    if (answer) note(answer.delivered ? `${one.name} took it` : `${one.name} did not take it: ${answer.message}`, answer.delivered ? 'good' : 'bad')
    setBusy(false)
    setShown(true)
    setTurn((n) => n + 1)
  }
  return (
    <Card title={<Text>{one.name}</Text>} actions={<State state={one.enabled ? 'on' : 'off'} />}>
      <dl class="details">
        <dt>Address</dt><dd class="mono"><Text>{one.url}</Text></dd>
        <dt>Told of</dt><dd>{one.events.map((kind) => KINDS[kind.slice(PREFIX.length)] ?? plain(kind)).join(', ')}</dd>
        <dt>Made</dt><dd>{moment(one.createdAt)}</dd>
      </dl>
      <div class="actions foot">
        {!reads && <Button disabled={busy} onClick={test}>{busy ? 'Sending…' : 'Send test'}</Button>}
        <Button aria-expanded={shown} onClick={() => setShown(!shown)}>Deliveries</Button>
        {!reads && <Button kind="quiet" onClick={turnOver}>{one.enabled ? 'Switch off' : 'Switch on'}</Button>}
        {!reads && <Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => setGone(true)} />}
      </div>
      {shown && <Deliveries id={one.id} turn={turn} />}
      {gone && <Confirm title="Delete this webhook?" action="Delete" onClose={() => setGone(false)} onDo={() => (setShown(false), remove(path).then(again))}>{plain(one.name)} is told of nothing any more, nor of what it has not taken yet.</Confirm>}
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
      {data && !data.length && <Empty icon="link" title="No webhook yet">An address here is told of what happens to the team's sandboxes, and again until it answers.</Empty>}
      {data?.map((one) => <Webhook key={one.id} one={one} reads={reads} again={again} />)}
    </>
  )
}
