// Text of agents, which is mostly Markdown, as paragraphs, headings, lists and code. Everything else stays text: no links, no
// pictures, no HTML.
import { plain } from './words.js'

const FENCE = /^\s*(```|~~~)/
const ITEM = /^\s*(?:[-*+]|\d{1,3}[.)])\s+(.*)$/
const HEAD = /^#{1,6}\s+(.*)$/

// `code` and **bold** within a line.
const inline = (text) =>
  text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, at) => {
    if (part.length > 2 && part[0] === '`') return <code key={at}>{plain(part.slice(1, -1))}</code>
    if (part.length > 4 && part.startsWith('**')) return <b key={at}>{plain(part.slice(2, -2))}</b>
    return plain(part)
  })

// [{kind: 'code' | 'head' | 'list' | 'text', lines}]
export function blocksOf(text) {
  const blocks = []
  let fenced = false
  const add = (kind, line) => {
    const last = blocks.at(-1)
    if (last?.kind === kind && kind !== 'head') last.lines.push(line)
    else blocks.push({ kind, lines: [line] })
  }
  for (const line of text.split('\n')) {
    if (FENCE.test(line)) {
      fenced = !fenced
      if (fenced) blocks.push({ kind: 'code', lines: [] })
    } else if (fenced) blocks.at(-1).lines.push(line)
    else if (!line.trim()) blocks.push({ kind: 'gap', lines: [] })
    else if (HEAD.test(line)) add('head', HEAD.exec(line)[1])
    else if (ITEM.test(line)) add('list', ITEM.exec(line)[1])
    else add('text', line)
  }
  return blocks.filter((one) => one.kind !== 'gap')
}

export const Markdown = ({ text }) => (
  <div class="markdown" dir="auto">
    {blocksOf(text).map(({ kind, lines }, at) => {
      if (kind === 'code') return <pre key={at} class="out" tabIndex={0}>{lines.map(plain).join('\n')}</pre>
      if (kind === 'head') return <p key={at}><b>{inline(lines[0])}</b></p>
      if (kind === 'list') return <ul key={at}>{lines.map((line, k) => <li key={k}>{inline(line)}</li>)}</ul>
      return <p key={at}>{inline(lines.join('\n'))}</p>
    })}
  </div>
)
