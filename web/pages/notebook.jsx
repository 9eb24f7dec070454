// A small notebook: cells of code in a sandbox with the interpreter, with what comes of them as it comes.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { enc, lines } from '../api.js'
import { Button, Card, Empty, Problem, Text } from '../parts.jsx'
import { plain } from '../words.js'

const LANGUAGES = { python: 'Python', javascript: 'JavaScript', typescript: 'TypeScript', bash: 'Bash', r: 'R', java: 'Java' }
const TEXT_MAX = 200_000 // characters of output that a cell keeps: the newest
const RESULTS_MAX = 50
const ROWS_MAX = 100
const COLOURS = /\u001b\[[0-9;?]*[A-Za-z]/g

// ---- what a cell shows ----

const PICTURES = { png: 'image/png', jpeg: 'image/jpeg' }

// A picture as an address that runs nothing: what is in an SVG is not run when it is an image.
export function pictureOf(result) {
  for (const [name, type] of Object.entries(PICTURES)) {
    const bytes = result[name]?.replace?.(/\s/g, '')
    if (bytes && /^[A-Za-z0-9+/]+=*$/.test(bytes)) return `data:${type};base64,${bytes}`
  }
  return typeof result.svg === 'string' ? `data:image/svg+xml,${encodeURIComponent(result.svg)}` : null
}

// HTML that is only read: its text and its tags, without attributes, styles and scripts (which would not run, but be complained about).
const bare = (html) => html.replace(/<(style|script)\b[\s\S]*?<\/\1\s*>/gi, '').replace(/<(\/?[a-z][a-z0-9]*)\b[^>]*>/gi, '<$1>')

// {columns, rows, more} of a DataFrame's data or of the first table of HTML, which is read and never shown itself.
export function tableOf(result) {
  if (typeof result.html === 'string' && /<table/i.test(result.html)) {
    const table = new DOMParser().parseFromString(bare(result.html), 'text/html').querySelector('table')
    const rows = [...(table?.rows ?? [])].map((row) => [...row.cells].map((cell) => cell.textContent.trim()))
    if (rows.length > 1) return { columns: rows[0], rows: rows.slice(1, ROWS_MAX + 1), more: Math.max(0, rows.length - 1 - ROWS_MAX) }
  }
  const columns = result.data && typeof result.data === 'object' ? Object.keys(result.data).filter((name) => Array.isArray(result.data[name])) : []
  if (!columns.length) return null
  const length = Math.max(...columns.map((name) => result.data[name].length))
  const rows = Array.from({ length: Math.min(length, ROWS_MAX) }, (_, at) => columns.map((name) => String(result.data[name][at] ?? '')))
  return { columns, rows, more: Math.max(0, length - ROWS_MAX) }
}

function textOf(result) {
  const text = result.markdown ?? result.latex ?? result.text ?? (result.json === undefined ? null : JSON.stringify(result.json, null, 2)) ?? Object.values(result.extra ?? {})[0]
  return text === undefined || text === null ? '' : String(text)
}

const shown = (text) => text.replace(COLOURS, '').split('\n').map(plain).join('\n')

function Result({ result }) {
  const { picture, table } = useMemo(() => {
    const found = pictureOf(result)
    return { picture: found, table: found ? null : tableOf(result) }
  }, [result])
  if (picture) return <img class="picture" alt={plain(result.text ?? 'a picture')} src={picture} />
  if (!table) return <pre class="out" tabIndex={0}>{shown(textOf(result))}</pre>
  return (
    <div class="table-wrap" tabIndex={0} role="region" aria-label="A table">
      <table>
        <thead><tr>{table.columns.map((name, at) => <th key={at}><Text>{name}</Text></th>)}</tr></thead>
        <tbody>{table.rows.map((row, at) => <tr key={at}>{row.map((cell, k) => <td key={k}><Text>{cell}</Text></td>)}</tr>)}</tbody>
      </table>
      {table.more > 0 && <p class="soft">and {table.more} more rows</p>}
    </div>
  )
}

function Shown({ out }) {
  return (
    <div class="shown" aria-live="polite">
      {out.stdout && <pre class="out" tabIndex={0}>{shown(out.stdout)}</pre>}
      {out.stderr && <pre class="out trouble" tabIndex={0}>{shown(out.stderr)}</pre>}
      {out.results.map((result, at) => <Result key={at} result={result} />)}
      {out.error && (
        <div class="failed" role="alert">
          <b><Text>{`${out.error.name}: ${out.error.value}`}</Text></b>
          {out.error.traceback && <pre class="out trouble" tabIndex={0}>{shown(out.error.traceback)}</pre>}
        </div>
      )}
      {out.problem && <Problem error={out.problem} />}
    </div>
  )
}

// ---- running one ----

const NOTHING = { stdout: '', stderr: '', results: [], error: null, problem: null, count: null }

// One line of the stream, added to what there is.
export function take(out, line) {
  if (line.type === 'stdout' || line.type === 'stderr') return { ...out, [line.type]: (out[line.type] + (line.text ?? '')).slice(-TEXT_MAX) }
  if (line.type === 'result') return { ...out, results: [...out.results, line].slice(-RESULTS_MAX) }
  if (line.type === 'number_of_executions') return { ...out, count: line.execution_count }
  if (line.type === 'error' && line.error) return { ...out, problem: new Error(line.error.message) }
  if (line.type === 'error') return { ...out, error: line }
  if (line.type === 'exit' && line.timed_out) return { ...out, problem: new Error('The cell took too long and was interrupted.') }
  return out
}

function Cell({ cell, change, run, stop, remove, first }) {
  const place = useRef(null)
  useEffect(() => first && place.current?.focus(), [])
  const keys = (event) => {
    if (event.key !== 'Enter' || !(event.shiftKey || event.ctrlKey)) return
    event.preventDefault()
    if (!cell.runs) run()
  }
  return (
    <Card class={`cell ${cell.runs ? 'runs' : ''}`}>
      <div class="bar">
        <span class="soft count">{cell.runs ? '[*]' : `[${cell.out.count ?? ' '}]`}</span>
        <select aria-label="Language" value={cell.language} onChange={(event) => change({ language: event.target.value })}>
          {Object.entries(LANGUAGES).map(([name, title]) => <option key={name} value={name}>{title}</option>)}
        </select>
        <span class="fill" />
        {cell.runs ? <Button onClick={stop}>Interrupt</Button> : <Button icon="play" kind="main" onClick={run}>Run</Button>}
        <Button icon="bin" kind="quiet" label="Delete this cell" onClick={remove} />
      </div>
      <textarea ref={place} class="code" rows={Math.min(24, Math.max(2, cell.code.split('\n').length))} spellcheck={false} autocapitalize="off" aria-label={`Code in ${LANGUAGES[cell.language]}`} placeholder="Code; Shift-Enter runs it" value={cell.code} onInput={(event) => change({ code: event.target.value })} onKeyDown={keys} />
      <Shown out={cell.out} />
    </Card>
  )
}

// ---- the page ----

const fresh = (language = 'python', code = '') => ({ id: Math.random(), language, code, out: NOTHING, runs: null })

// What was written stays for the tab; what it gave does not.
function remembered(slot) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(slot) ?? '[]').filter((one) => LANGUAGES[one.language] && typeof one.code === 'string')
    return kept.length ? kept.map((one) => fresh(one.language, one.code)) : [fresh()]
  } catch {
    return [fresh()]
  }
}

function remember(slot, cells) {
  try {
    sessionStorage.setItem(slot, JSON.stringify(cells.map(({ language, code }) => ({ language, code }))))
  } catch {
    // More than the browser keeps for a tab: a reload begins anew.
  }
}

export function Notebook({ box }) {
  const slot = `quicksand.notebook.${box.id}`
  const [cells, setCells] = useState(() => remembered(slot))
  const running = useRef(new Set())
  useEffect(() => remember(slot, cells), [cells])
  useEffect(() => () => running.current.forEach((one) => one.abort()), [])
  const change = (id, what) => setCells((all) => all.map((one) => (one.id === id ? { ...one, ...(typeof what === 'function' ? what(one) : what) } : one)))
  const run = async (cell) => {
    const stop = new AbortController()
    running.current.add(stop)
    change(cell.id, { runs: stop, out: NOTHING })
    const hear = (line) => change(cell.id, (one) => ({ out: take(one.out, line) }))
    try {
      await lines(`/api/v1/sandboxes/${enc(box.id)}/code`, { code: cell.code, language: cell.language }, hear, { signal: stop.signal })
    } catch (error) {
      change(cell.id, (one) => ({ out: { ...one.out, problem: error.name === 'AbortError' ? new Error('Interrupted.') : error } }))
    }
    running.current.delete(stop)
    change(cell.id, { runs: null })
  }
  const runAll = async () => {
    for (const cell of cells) await run(cell)
  }
  const add = () => setCells([...cells, fresh(cells.at(-1)?.language)])
  return (
    <>
      <div class="actions">
        <Button icon="plus" onClick={add}>New cell</Button>
        <Button icon="play" disabled={cells.some((one) => one.runs)} onClick={runAll}>Run all</Button>
        <span class="soft">Cells of one language share their variables.</span>
      </div>
      {!cells.length && <Empty icon="api" title="No cells">Add one with New cell, write code, and press Shift-Enter.</Empty>}
      {cells.map((cell, at) => (
        <Cell key={cell.id} cell={cell} first={at === 0} change={(what) => change(cell.id, what)} run={() => run(cell)} stop={() => cell.runs?.abort()} remove={() => (cell.runs?.abort(), setCells(cells.filter((one) => one !== cell)))} />
      ))}
    </>
  )
}
