// Charts over time, drawn by uPlot in the page's own colours.
import uPlot from 'uplot'
import { useEffect, useRef } from 'preact/hooks'

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

// The hour, with seconds or the day where they tell more.
function moments(_, all) {
  const span = all.at(-1) - all[0]
  return all.map((at) => {
    const text = new Date(at * 1000)
    if (span > 2 * 86400) return text.toLocaleDateString([], { month: 'short', day: 'numeric' })
    return text.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', ...(span < 120 ? { second: '2-digit' } : {}), hourCycle: 'h23' })
  })
}

function options(width, height, series, format, max) {
  const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' }
  return {
    width,
    height,
    padding: [8, 18, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, max ?? Math.max(high * 1.15, 1)] } },
    axes: [{ ...axis, space: 70, size: 28, values: moments }, { ...axis, size: 54, space: 32, values: (_, all) => all.map(format) }],
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

// times: Unix seconds; series: [{name, tint: '--accent', values}].
export function Chart({ times, series, height = 150, format = (n) => n, max, label }) {
  const place = useRef(null)
  const plot = useRef(null)
  const data = [times, ...series.map((one) => one.values)]
  useEffect(() => {
    const draw = () => {
      plot.current?.destroy()
      plot.current = new uPlot(options(place.current.clientWidth || 300, height, series, format, max), data, place.current)
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
  const newest = series.map((one) => `${one.name} ${format(one.values.findLast((n) => n != null) ?? 0)}`).join(', ')
  return (
    <figure class="chart">
      <div ref={place} role="img" aria-label={`${label}: ${newest}`} />
      <figcaption>
        {series.map((one) => (
          <span key={one.name}>
            <i class={`dot ${one.tint.slice(2)}`} />
            {one.name} <b>{format(one.values.findLast((n) => n != null) ?? 0)}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  )
}
