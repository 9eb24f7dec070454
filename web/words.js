// How things are written: sizes, times, numbers, names, and text of others, which may hold characters that hide or reverse what
// it says.
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

// At most one digit after the point, and no ".0".
const short = (n) => String(Number(n.toFixed(1)))

// As size_text() in src/base/size.c. Rounded first, so that it is never "1024 KiB".
export function bytes(count) {
  if (!Number.isFinite(count)) return '–'
  let unit = 0
  for (; Math.round(count * 10) / 10 >= 1024 && unit < UNITS.length - 1; unit++) count /= 1024
  return `${unit ? short(count) : Math.round(count)} ${UNITS[unit]}`
}
export const mebibytes = (count) => bytes(count * 1048576)
export const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * share)} %` : '–')

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '–'
  const s = Math.max(0, Math.round(seconds))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
  return `${Math.floor(s / 86400)} d`
}

export const age = (text) => (text ? duration((Date.now() - Date.parse(text)) / 1000) : '–')
export const clock = (text) => (text ? new Date(text).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' }) : '–')
export const moment = (text) => (text ? new Date(text).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short', hourCycle: 'h23' }) : '–')
export const count = (n) => (Number.isFinite(n) ? n.toLocaleString('en', { maximumFractionDigits: 1 }) : '–')
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`

// What people call a sandbox: the name in its metadata, its key, or its id.
export const nameOf = (box) => box.metadata?.name || box.key || box.id

// Characters that change the direction of text or cannot be seen are shown as their numbers.
const SLY = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g
export const plain = (text) => String(text ?? '').replace(SLY, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)

export function shorten(text, max = 60) {
  const shown = plain(text)
  return shown.length > max ? `${shown.slice(0, max - 1)}…` : shown
}
