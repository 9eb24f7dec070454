// Browser sessions: the list, and one of them with its recording.
import { ask, enc, post } from '../api.js'
import { Button, Card, Empty, Heading, Loading, Problem, State, Text, attempt, useData } from '../parts.jsx'
import { age, count, moment, shorten } from '../words.js'
import { Recording } from './recording.jsx'

export function Browsers({ who, open }) {
  const reads = who.role === 'viewer'
  return open ? <Browser key={open} id={open} reads={reads} /> : <List />
}

const words = (metadata) => Object.entries(metadata ?? {}).map(([name, value]) => `${name}=${value}`).join(' ')

function List() {
  const { data, error, again } = useData(() => ask('/v1/sessions'), [])
  return (
    <>
      <Heading name="Browsers" actions={<Button icon="refresh" label="Refresh" onClick={again} />}>Browsers <small>{data && count(data.length)}</small></Heading>
      {error && <Problem error={error} again={again} />}
      {!data && !error && <Loading />}
      {data && !data.length && <Empty icon="browsers" title="No browser sessions yet">Start one with quicksand browser open URL, or with any client of Browserbase's API.</Empty>}
      {data?.length > 0 && (
        <Card title="Sessions">
          <ul class="plain">
            {data.map((one) => (
              <li key={one.id}>
                <a href={`#/browsers/${enc(one.id)}`}><Text class="mono">{one.id}</Text></a><State state={one.status.toLowerCase()} />
                <Text class="soft">{shorten(words(one.userMetadata), 60)}</Text><span class="soft right">{age(one.createdAt)}</span>
              </li>
            ))}
          </ul>
        </Card>
      )}
    </>
  )
}

// The link to the live view is signed and expires, so it is requested when the button is pressed.
async function look(id) {
  const { debuggerFullscreenUrl } = await ask(`/v1/sessions/${enc(id)}/debug`)
  window.open(debuggerFullscreenUrl, '_blank', 'noopener')
}

function Browser({ id, reads }) {
  const { data: session, error, again } = useData(() => ask(`/v1/sessions/${enc(id)}`), [id])
  if (error) return <Problem error={error} again={again} />
  if (!session) return <Loading />
  const runs = session.status === 'RUNNING'
  const release = () => attempt('Released', () => post(`/v1/sessions/${enc(id)}`, { status: 'REQUEST_RELEASE' })).then(again)
  return (
    <>
      <Heading
        name={`Browser ${id}`}
        actions={runs && !reads && (
          <div class="actions">
            <Button icon="link" onClick={() => attempt('Opened the live view in another window', () => look(id))}>Live view</Button>
            <Button icon="bin" kind="danger" onClick={release}>Release</Button>
          </div>
        )}
      >
        Browser <State state={session.status.toLowerCase()} />
      </Heading>
      <Recording id={id} runs={runs} />
      <Card title="Session">
        <dl class="details">
          <dt>Id</dt><dd><Text class="mono">{session.id}</Text></dd>
          {session.sandboxId && <><dt>Sandbox</dt><dd><a href={`#/sandboxes/${enc(session.sandboxId)}`}><Text>{session.sandboxId}</Text></a></dd></>}
          <dt>Created</dt><dd>{moment(session.createdAt)}</dd>
          <dt>{session.endedAt ? 'Ended' : 'Ends'}</dt><dd>{moment(session.endedAt ?? session.expiresAt)}</dd>
          {session.userMetadata && <><dt>Metadata</dt><dd><Text>{words(session.userMetadata)}</Text></dd></>}
        </dl>
      </Card>
    </>
  )
}
