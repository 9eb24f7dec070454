// Plays the recording of a browser session: timed pictures of its pages.
import { useEffect, useLayoutEffect, useMemo, useState } from 'preact/hooks'
import { ask, enc } from '../api.js'
import { Button, Card, Empty, Loading, Problem, useData } from '../parts.jsx'
import { clock } from '../words.js'

const LULL_MS = 2000 // the longest pause between two pictures when playing
const SPEEDS = [1, 2, 4, 8]

// They were written inside the sandbox: what is not the base64 of a picture with a time is left out.
export function framesOf(events) {
  return events
    .map(({ timestamp, data }) => ({ at: timestamp, page: data?.payload?.pageId, jpeg: data?.payload?.jpeg }))
    .filter(({ at, page, jpeg }) => Number.isFinite(at) && Number.isInteger(page) && typeof jpeg === 'string' && /^[A-Za-z0-9+/]+=*$/.test(jpeg))
    .sort((a, b) => a.at - b.at)
}

const seconds = (ms) => `${Math.floor(ms / 60000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, '0')}`

export function Recording({ id, runs }) {
  const { data, error, again } = useData(() => ask(`/v1/sessions/${enc(id)}/recording`), [id])
  const frames = useMemo(() => framesOf(data ?? []), [data])
  const more = runs && <Button icon="refresh" onClick={again}>Refresh</Button>
  if (error?.status === 404) return <Card title="Recording"><Empty icon="play" title="No recording">A session is recorded when browserSettings.recordSession is set. The recording is kept for a week after the session ends.</Empty></Card>
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  if (!frames.length) return <Card title="Recording" actions={more}><Empty icon="play" title="No pictures yet">A picture is taken when a page changes.</Empty></Card>
  return <Card title="Recording" actions={more}><Player frames={frames} /></Card>
}

// Listens anew with what is shown, not a moment later: a key that follows at once is for that.
function useKeyboard(act) {
  useLayoutEffect(() => {
    const listen = (event) => {
      const itsOwn = event.key === ' ' ? 'button, a, ' : '' // what a space means there
      if (event.target.closest?.(`${itsOwn}input, textarea, select, dialog`) || event.ctrlKey || event.metaKey || event.altKey) return
      const todo = { ' ': act.toggle, ArrowLeft: act.back, ArrowRight: act.on, Home: act.first, End: act.last }[event.key]
      if (!todo) return
      event.preventDefault()
      todo()
    }
    addEventListener('keydown', listen)
    return () => removeEventListener('keydown', listen)
  })
}

function Player({ frames }) {
  const [at, setAt] = useState(0)
  const [plays, setPlays] = useState(false)
  const [speed, setSpeed] = useState(1)
  const last = frames.length - 1
  const shown = frames[Math.min(at, last)]
  const go = (where) => (setPlays(false), setAt((now) => Math.max(0, Math.min(last, where(now)))))
  const toggle = () => {
    if (!plays && at >= last) setAt(0)
    setPlays(!plays)
  }
  useKeyboard({ toggle, back: () => go((now) => now - 1), on: () => go((now) => now + 1), first: () => go(() => 0), last: () => go(() => last) })
  useEffect(() => {
    if (!plays) return
    if (at >= last) return setPlays(false)
    const timer = setTimeout(() => setAt(at + 1), Math.min(frames[at + 1].at - frames[at].at, LULL_MS) / speed)
    return () => clearTimeout(timer)
  }, [plays, at, speed, frames])
  const pages = new Set(frames.map((frame) => frame.page)).size
  return (
    <div class="player">
      <img src={`data:image/jpeg;base64,${shown.jpeg}`} alt={`The page as it was at ${clock(shown.at)}`} />
      <div class="inline">
        <Button icon={plays ? 'pause' : 'play'} label={plays ? 'Pause' : 'Play'} onClick={toggle} />
        <input type="range" min={0} max={last} value={at} aria-label="Picture" aria-valuetext={`${at + 1} of ${frames.length}`} onInput={({ target }) => go(() => Number(target.value))} />
        <span class="soft" role="status">{seconds(shown.at - frames[0].at)} of {seconds(frames[last].at - frames[0].at)} · picture {at + 1} of {frames.length}{pages > 1 ? ` · page ${shown.page + 1}` : ''}</span>
        <span class="chips" role="group" aria-label="Speed">
          {SPEEDS.map((one) => <button key={one} type="button" aria-pressed={speed === one} onClick={() => setSpeed(one)}>{one}×</button>)}
        </span>
      </div>
      <p class="soft"><kbd>Space</kbd> plays and pauses, <kbd>←</kbd> <kbd>→</kbd> step by one picture, <kbd>Home</kbd> <kbd>End</kbd> go to the first and the last. Pauses are shortened to {LULL_MS / 1000} s.</p>
    </div>
  )
}
