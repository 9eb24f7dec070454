// The sandboxes and the newest events, kept up to date by the server's event stream. Nothing is polled: an event names what
// changed, and that is read once.
import { useEffect, useRef, useState } from 'preact/hooks'
import { enc, stream, v1 } from './api.js'

const PAGE = 1000
const EVENTS_MAX = 500
const MANY = 40 // changed at once: the lists are read anew
const STATES = ['running', 'paused', 'creating', 'error']

export const live = { sandboxes: new Map(), events: [], loaded: false, online: true, error: null, version: 0 }
const listeners = new Set()
let due = null

function tell() {
  clearTimeout(due)
  due = null
  for (const listener of listeners) listener(live.version)
}

// Much may change at a time; it is shown together.
function changed() {
  live.version++
  due ??= setTimeout(tell, 60)
}

// Renders again whenever something changes.
export function useLive() {
  const [, set] = useState(0)
  useEffect(() => {
    listeners.add(set)
    return () => listeners.delete(set)
  }, [])
  return live
}

// Listeners of single events, for pages that show more than lists.
const hearers = new Set()
export function useEvents(hear, deps) {
  useEffect(() => {
    hearers.add(hear)
    return () => hearers.delete(hear)
  }, deps)
}

// Calls again() soon after events that fit, once for all that come within ms.
export function useChanges(fits, again, deps, ms = 300) {
  const state = useRef({ timer: null })
  // Those of the newest render: an event may come before the effects of that render have run.
  state.current.again = again
  state.current.fits = fits
  useEvents((event) => {
    if (!state.current.fits(event)) return
    state.current.timer ??= setTimeout(() => {
      state.current.timer = null
      state.current.again()
    }, ms)
  }, deps)
  useEffect(() => () => clearTimeout(state.current.timer), [])
}

const micros = (text) => Date.parse(text) * 1000 + Number(text.slice(23, 26) || 0)

async function listState(state, team = '') {
  const all = []
  for (let before = ''; ; ) {
    const { sandboxes } = await v1(`/sandboxes?state=${state}&limit=${PAGE}${before}${team && `&team=${enc(team)}`}`)
    all.push(...sandboxes)
    if (sandboxes.length < PAGE) return all
    before = `&before=${micros(sandboxes.at(-1).created_at)}`
  }
}

// Those of another team, or of all ('*'): for operators. No event tells of what other teams do.
export const listTeam = async (team) => (await Promise.all(STATES.map((state) => listState(state, team)))).flat()

async function loadAll() {
  const lists = await Promise.all(STATES.map((state) => listState(state)))
  live.sandboxes = new Map(lists.flat().map((one) => [one.id, one]))
  live.loaded = true
  live.version++
  tell()
}

const wanted = new Set()
let flushing = null

async function flush() {
  const ids = [...wanted]
  wanted.clear()
  if (ids.length > MANY) return loadAll()
  await Promise.all(
    ids.map(async (id) => {
      try {
        const one = await v1(`/sandboxes/${enc(id)}`)
        if (one.state === 'killed') live.sandboxes.delete(one.id)
        else live.sandboxes.set(one.id, one)
      } catch (error) {
        if (error.status === 404) live.sandboxes.delete(id)
      }
    }),
  )
  changed()
}

function look(id) {
  wanted.add(id)
  flushing ??= setTimeout(() => {
    flushing = null
    flush().catch(() => {})
  }, 150)
}

function hear({ id, data }) {
  if (data.type === 'process.output') return
  live.events.unshift({ id, ...data })
  live.events.length = Math.min(live.events.length, EVENTS_MAX)
  if (data.sandbox && data.type === 'sandbox.killed') live.sandboxes.delete(data.sandbox)
  else if (data.sandbox && data.type.startsWith('sandbox.')) look(data.sandbox)
  for (const hearer of hearers) hearer({ id, ...data })
  changed()
}

export const refresh = (id) => look(id)

let running = null

// The newest ones, behind those that the stream has told already.
async function recent() {
  const { events } = await v1('/events?limit=200').catch(() => ({ events: [] }))
  const told = new Set(live.events.map((one) => String(one.id)))
  const older = events.filter((one) => one.type !== 'process.output' && !told.has(String(one.id))).reverse()
  live.events = [...live.events, ...older].slice(0, EVENTS_MAX)
  changed()
}

async function follow(signal) {
  let since = null
  for (let wait = 500; !signal.aborted; ) {
    try {
      // Before the lists: what happens while they are read is told by the stream.
      since ??= (await v1('/events?limit=1')).next
      await loadAll()
      live.online = true
      live.error = null
      changed()
      wait = 500
      await stream(`/api/v1/events?since=${since}`, (event) => {
        since = event.id ?? since
        hear(event)
      }, { signal })
    } catch (error) {
      if (signal.aborted || error.status === 401) return
      live.online = false
      live.error = error.message
      changed()
    }
    await new Promise((done) => setTimeout(done, wait))
    wait = Math.min(wait * 2, 5000)
  }
}

export function startLive() {
  if (running) return
  running = new AbortController()
  follow(running.signal)
  recent()
}

export function stopLive() {
  running?.abort()
  running = null
  live.sandboxes = new Map()
  live.events = []
  live.loaded = false
}

// Counts up every so often while the page can be seen: for figures without events.
export function useEvery(ms) {
  const [turn, set] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => document.hidden || set((n) => n + 1), ms)
    return () => clearInterval(timer)
  }, [ms])
  return turn
}
