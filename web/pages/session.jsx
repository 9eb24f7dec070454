// One session: the conversation with the agent, the files that changed in its workspace, and a terminal there.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { enc, post, remove, v1 } from '../api.js'
import { useChanges, useEvents, useLive } from '../live.js'
import { Markdown } from '../markdown.jsx'
import { Button, Card, Confirm, Empty, Heading, Loading, Problem, State, Text, attempt, note, useData } from '../parts.jsx'
import { go } from '../shell.jsx'
import { clock, count, nameOf, plain, plural, shorten } from '../words.js'
import { Diff, diff } from './files.jsx'
import { TerminalCard } from './terminal.jsx'

const PIECES_MAX = 5000
const EVENTS_MAX = 5000
const ROWS_MAX = 2000 // lines of one diff that are shown

// ---- turns ----

const textOf = (content) => (Array.isArray(content) ? content.map(textOf).join('') : content?.text ?? content?.content?.text ?? (typeof content === 'string' ? content : ''))

// Events as turns: messages of people, answers of the agent (their pieces joined), tools, questions, and what else happened.
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
      if (asked) asked.answer = data.allow === false || /den|refus/.test(one.type) ? 'denied' : 'allowed'
    } else if (/error|failed|exited/.test(one.type)) turns.push({ kind: 'trouble', text: `${one.type}: ${data.message ?? data.reason ?? ''}`, ts: one.ts, id: one.id })
    else if (/^(session|git)\.|turn\.completed/.test(one.type)) turns.push({ kind: 'fact', text: `${one.type.replaceAll('.', ' ')}${data.message ? `: ${data.message}` : ''}`, ts: one.ts, id: one.id })
  }
  return turns
}

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

// ---- the files that changed ----

// Rows of a unified diff, from its first hunk on.
export function rowsOf(text) {
  const lines = text.split('\n')
  const first = lines.findIndex((line) => line.startsWith('@@'))
  if (first < 0) return []
  if (lines.at(-1) === '') lines.pop()
  return lines.slice(first).map((line) => (/^[ +-]/.test(line) ? [line[0], line.slice(1)] : ['@', line]))
}

function Change({ one }) {
  const rows = useMemo(() => (one.diff ? rowsOf(one.diff) : []), [one.diff])
  const cut = one.truncated || rows.length > ROWS_MAX
  return (
    <details class="tool change">
      <summary>
        <span class={`status ${one.status}`}>{one.status}</span> <Text class="mono">{one.path}</Text>
        {one.binary ? <span class="soft">binary</span> : <span class="counts"><span class="good">+{count(one.added)}</span> <span class="bad">−{count(one.removed)}</span></span>}
      </summary>
      {rows.length > 0 && <Diff rows={rows.slice(0, ROWS_MAX)} />}
      {!rows.length && <p class="soft">{one.binary ? 'Binary files have no diff.' : one.added + one.removed ? 'The diff is too large to show.' : 'No line has changed.'}</p>}
      {cut && <p class="soft">This diff is not complete. The whole file is in the sandbox.</p>}
    </details>
  )
}

const KINDS = {
  repository: 'Compared with the commit that was checked out when the session began.',
  directory: 'The workspace is not a Git repository: new files since the session began.',
  none: 'The template of this sandbox has no Git, so changes cannot be listed.',
}

function Changes({ session, runs }) {
  const path = `/sessions/${enc(session.id)}/changes`
  const { data, error, again } = useData(() => (runs ? v1(path) : Promise.resolve(null)), [session.id, runs])
  useChanges((event) => runs && event.session === session.id && /tool_call|turn|^git\.|permission/.test(event.type), again, [session.id, runs], 1000)
  const total = (name) => data.files.reduce((sum, one) => sum + (one[name] ?? 0), 0)
  const folder = session.runtime?.workdir
  const still = !runs || error?.status === 409 // it was paused just now
  return (
    <Card
      title={<>Changed files {data && <small class="soft">{count(data.files.length)}</small>}</>}
      actions={
        <>
          {data?.files.length > 0 && <span><span class="good">+{count(total('added'))}</span> <span class="bad">−{count(total('removed'))}</span> lines</span>}
          {runs && folder && <a class="button quiet" href={`#/sandboxes/${enc(session.sandbox_id)}/files?path=${enc(folder)}`}>Open files</a>}
          {runs && <Button icon="refresh" kind="quiet" label="Refresh" onClick={again} />}
        </>
      }
    >
      {error && !still && <Problem error={error} again={again} />}
      {still && <p class="soft">The sandbox of this session does not run. Resume the session to see its changes.</p>}
      {runs && !data && !error && <Loading />}
      {data && !data.files.length && data.kind !== 'none' && <Empty icon="file" title="No changes yet">Files that the agent creates, edits or deletes appear here.</Empty>}
      {data?.files.map((one) => <Change key={one.path} one={one} />)}
      {data?.truncated && <p class="soft">There are more changes than can be shown here.</p>}
      {data && <p class="soft">{KINDS[data.kind]}</p>}
    </Card>
  )
}

// ---- the page ----

// The events that are kept, read once and continued by the stream; and the pieces of what the agent says just now, which are not kept.
function useConversation(id) {
  const first = useData(() => v1(`/sessions/${enc(id)}/events?limit=1000`), [id])
  const [later, setLater] = useState([])
  const [pieces, setPieces] = useState([])
  useEvents((event) => {
    if (event.session !== id) return
    if (/_chunk$/.test(event.type)) setPieces((all) => [...all, event].slice(-PIECES_MAX))
    else setLater((all) => [...all, event].slice(-EVENTS_MAX))
  }, [id])
  return useMemo(() => {
    const read = first.data?.events ?? []
    const known = new Set(read.map((one) => String(one.id)))
    const kept = [...read, ...later.filter((one) => !known.has(String(one.id)))]
    const whole = kept.findLast((one) => one.type === 'agent.message')?.ts ?? ''
    return turnsOf([...kept, ...pieces.filter((one) => one.ts > whole)])
  }, [first.data, later, pieces])
}

function Turn({ turn }) {
  if (turn.kind === 'tool') return <Tool turn={turn} />
  return (
    <div class={`turn ${turn.kind}`}>
      {turn.kind === 'agent' ? <Markdown text={turn.text} /> : <Text>{turn.text}</Text>}
      {turn.answer && <em>{turn.answer}</em>}
      <time>{clock(turn.ts)}</time>
    </div>
  )
}

export function Session({ id, reads }) {
  const { data: session, error, again } = useData(() => v1(`/sessions/${enc(id)}`), [id])
  const live = useLive()
  const turns = useConversation(id)
  const [text, setText] = useState('')
  const [gone, setGone] = useState(false)
  const [shell, setShell] = useState(false)
  const end = useRef(null)
  const path = `/api/v1/sessions/${enc(id)}`
  useChanges((event) => event.session === id && /^session\./.test(event.type), again, [id])
  const waits = turns.findLast((turn) => turn.kind === 'question' && !turn.answer)
  const answer = (allow) => attempt(allow ? 'Allowed' : 'Denied', () => post(`${path}/approve`, { request_id: waits.request, allow }))
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
  const box = live.sandboxes.get(session.sandbox_id)
  const runs = box?.state === 'running'
  const name = `${session.agent ?? 'agent'}${box ? ` in ${nameOf(box)}` : ''}`
  const send = async (event) => {
    event.preventDefault()
    if (text.trim() && (await attempt('Sent', () => post(`${path}/messages`, { message: text })))) setText('')
  }
  const push = async () => {
    const pushed = await attempt(null, () => post(`${path}/push`, {}))
    if (pushed) note(pushed.nothing ? 'Nothing to push: no file has changed' : `Pushed to ${pushed.branch}`)
  }
  return (
    <>
      <Heading
        name={name}
        actions={!reads && (
          <div class="actions">
            {runs && <Button aria-expanded={shell} onClick={() => setShell(!shell)}>{shell ? 'Close terminal' : 'Terminal'}</Button>}
            <Button onClick={() => attempt('Interrupted', () => post(`${path}/interrupt`))}>Interrupt</Button>
            <Button icon="up" onClick={push}>Push</Button>
            <Button icon="bin" kind="danger" onClick={() => setGone(true)}>Delete</Button>
          </div>
        )}
      >
        <Text>{name}</Text> <State state={session.state} />
      </Heading>
      <p class="under soft"><code>{plain(session.id)}</code>{session.sandbox_id && <a href={`#/sandboxes/${enc(session.sandbox_id)}`}><Text>{session.sandbox_id}</Text></a>}{session.repo && <Text>{session.repo}</Text>}{session.reason && <Text>{session.reason}</Text>}</p>
      <Card class="talk" title="Conversation">
        {!turns.length && <Empty icon="sessions" title="No messages yet">Write what the agent should do.</Empty>}
        {turns.map((turn) => <Turn key={turn.id} turn={turn} />)}
        <div ref={end} />
      </Card>
      {waits && !reads && (
        <div class="bulk" role="alert"><b>The agent asks: <Text>{shorten(waits.text, 120)}</Text></b><Button kind="main" onClick={() => answer(true)}>Allow (y)</Button><Button kind="danger" onClick={() => answer(false)}>Deny (n)</Button></div>
      )}
      {!reads && <form class="inline wide" onSubmit={send}><textarea class="message" rows={2} data-search aria-label="Message" placeholder="Message; Ctrl-Enter sends" value={text} onInput={(event) => setText(event.target.value)} onKeyDown={(event) => event.key === 'Enter' && event.ctrlKey && send(event)} /><Button kind="main" type="submit">Send</Button></form>}
      {shell && runs && !reads && <TerminalCard kind="sessions" id={session.id} />}
      {session.runtime?.workdir && <Changes session={session} runs={runs} />}
      {gone && <Confirm title="Delete this session?" action="Delete" onClose={() => setGone(false)} onDo={() => remove(path).then(() => go('work'))}>Its sandbox is killed, too.</Confirm>}
    </>
  )
}
