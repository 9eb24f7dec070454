// Charts over time, drawn by uPlot in the page's own colours. The legend shows the newest values, or those under the mouse or
// the keyboard's cursor (arrow keys, Home, End; Escape goes back to the newest).
import uPlot from 'uplot'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { clock, count } from './words.js'

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

// The hour, or the day where ticks are days apart, with seconds where they are less than a minute apart.
function moments(plot, all, axis, space, step) {
  return all.map((at) => {
    const text = new Date(at * 1000)
    if (step >= 86400) return text.toLocaleDateString([], { month: 'short', day: 'numeric' })
    return text.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', ...(step < 60 ? { second: '2-digit' } : {}), hourCycle: 'h23' })
  })
}

// Steps of the axis: whole numbers, and powers of two for sizes.
const STEPS = Array.from({ length: 15 }, (_, at) => [1, 2, 5].map((n) => n * 10 ** at)).flat()
const SIZES = Array.from({ length: 50 }, (_, at) => 2 ** at)
const widthOf = (values) => 14 + 7 * Math.max(3, ...(values ?? []).map((one) => String(one).length))

function options(width, height, series, format, max, sizes, onCursor) {
  const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' }
  return {
    width,
    height,
    padding: [8, 26, 0, 0],
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    legend: { show: false },
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
    scales: { y: { range: (_, low, high) => [0, max ?? Math.max(high * 1.15, 1)] } },
    axes: [
      { ...axis, space: 64, size: 28, values: moments },
      { ...axis, size: (_, values) => widthOf(values), space: 32, incrs: sizes ? SIZES : STEPS, values: (_, all) => all.map(format) },
    ],
    series: [
      {},
      ...series.map(({ name, tint }) => ({
        label: name,
        stroke: colour(tint),
        width: 2,
        points: { show: false },
        fill: `color-mix(in srgb, ${colour(tint)} 14%, transparent)`,
        spanGaps: false,
      })),
    ],
  }
}

const MOVES = { ArrowLeft: (at) => at - 1, ArrowRight: (at) => at + 1, Home: () => 0, End: (_, last) => last }

// times: Unix seconds; series: [{name, tint: '--accent', values}]; unit: of the values, beside the title; sizes: they are bytes.
export function Chart({ title, unit, times, series, height = 150, format = count, max, sizes }) {
  const place = useRef(null)
  const plot = useRef(null)
  const [at, setAt] = useState(null) // the point under the cursor
  const data = useMemo(() => [times, ...series.map((one) => one.values)], [times, series])
  const latest = useRef(data)
  latest.current = data
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy()
      plot.current = new uPlot(options(place.current.clientWidth || 300, height, series, format, max, sizes, setAt), latest.current, place.current)
    }
    draw()
    const watcher = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height }))
    watcher.observe(place.current)
    const dark = matchMedia('(prefers-color-scheme: dark)')
    dark.addEventListener('change', draw)
    window.addEventListener('quicksand-theme', draw)
    return () => {
      watcher.disconnect()
      dark.removeEventListener('change', draw)
      window.removeEventListener('quicksand-theme', draw)
      plot.current?.destroy()
      plot.current = null
    }
  }, [series.length, max])
  useEffect(() => plot.current?.setData(data), [data])
  const last = times.length - 1
  const chosen = at === null ? null : Math.min(at, last)
  const move = (to) => plot.current?.setCursor(to === null ? { left: -10, top: -10 } : { left: plot.current.valToPos(times[to], 'x'), top: 10 })
  const key = (event) => {
    if (event.key === 'Escape') return move(null)
    const next = MOVES[event.key]?.(chosen ?? last, last)
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    move(Math.max(0, Math.min(last, next)))
  }
  const valueOf = ({ values }) => {
    const value = chosen === null ? values.findLast((n) => n != null) : values[chosen]
    return value == null ? '–' : format(value)
  }
  const when = chosen === null ? 'newest' : clock(times[chosen] * 1000)
  const told = series.map((one) => `${one.name} ${valueOf(one)}`).join(', ')
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
        {unit && <span>{unit}</span>}
      </figcaption>
      <div ref={place} class="plot" role="img" tabIndex={0} aria-label={`${title}${unit ? `, ${unit}` : ''}: ${told}. Arrow keys show earlier values.`} onKeyDown={key} onBlur={() => move(null)} />
      <div class="legend">
        {series.map((one) => (
          <span key={one.name} data-series={one.name}>
            <i class={`dot ${one.tint.slice(2)}`} />
            {one.name} <b>{valueOf(one)}</b>
          </span>
        ))}
        <time>{when}</time>
      </div>
      <output class="hidden" aria-live="polite">{chosen === null ? '' : `${when}: ${told}`}</output>
    </figure>
  )
}
