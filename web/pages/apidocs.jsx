// Reference of all APIs of the server, with a form to try each endpoint.
import { useMemo, useState } from 'preact/hooks'
import { ask } from '../api.js'
import { Button, Card, Field, Heading, Icon, Loading, Problem, useData } from '../parts.jsx'
import { plain } from '../words.js'

function resolve(document, node) {
  if (!node?.$ref) return node
  return node.$ref.slice(2).split('/').reduce((at, part) => at?.[part], document)
}

// An example of a schema, as deep as people read.
function example(document, schema, depth = 0) {
  const one = resolve(document, schema) ?? {}
  if (one.enum) return one.enum[0]
  if (one.type === 'object' || one.properties) return depth > 3 ? {} : Object.fromEntries(Object.entries(one.properties ?? {}).map(([name, part]) => [name, example(document, part, depth + 1)]))
  if (one.type === 'array') return depth > 3 ? [] : [example(document, one.items, depth + 1)]
  return { integer: 0, number: 0, boolean: true }[one.type] ?? ''
}

function operationsOf(document) {
  const all = []
  for (const [path, methods] of Object.entries(document.paths))
    for (const [method, one] of Object.entries(methods)) {
      const content = resolve(document, one.requestBody)?.content
      const media = content?.['application/json']
      all.push({
        method: method.toUpperCase(), path, summary: one.summary ?? '', tag: one.tags?.[0] ?? 'other', name: `${method.toUpperCase()} ${path}`,
        parameters: (one.parameters ?? []).map((part) => resolve(document, part)).filter((part) => part.in !== 'header'),
        body: media ? JSON.stringify(media.example ?? {}, null, 2) : content ? '' : null,
        shape: media && !media.example ? example(document, media.schema) : null,
        responses: Object.entries(one.responses ?? {}).map(([status, part]) => [status, resolve(document, part)?.description ?? '']),
      })
    }
  return all
}

const fill = (path, values) => path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] || `{${name}}`))
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`

function target(one, values) {
  const query = one.parameters.filter((part) => part.in === 'query' && values[part.name]).map((part) => `${part.name}=${encodeURIComponent(values[part.name])}`)
  return fill(one.path, values) + (query.length ? `?${query.join('&')}` : '')
}

const SAMPLES = {
  curl: (one, url, body) => `curl -X ${one.method} ${quoted(url)} \\\n  -H "X-API-Key: $E2B_API_KEY"${body ? ` \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}` : ''}`,
  Python: (one, url, body) => `import json, os, urllib.request\n\nrequest = urllib.request.Request(\n    ${JSON.stringify(url)}, method=${JSON.stringify(one.method)},\n    headers={"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"},${body ? `\n    data=json.dumps(json.loads(${JSON.stringify(body)})).encode(),` : ''}\n)\nprint(urllib.request.urlopen(request).read().decode())`,
  JavaScript: (one, url, body) => `const answer = await fetch(${JSON.stringify(url)}, {\n  method: ${JSON.stringify(one.method)},\n  headers: { 'X-API-Key': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },${body ? `\n  body: JSON.stringify(${body}),` : ''}\n})\nconsole.log(answer.status, await answer.text())`,
}

function Try({ one }) {
  const [values, setValues] = useState({})
  const [body, setBody] = useState(one.body)
  const [language, setLanguage] = useState('curl')
  const [answer, setAnswer] = useState(null)
  const [wrong, setWrong] = useState(null)
  const upgrade = /terminal$|\/connect\/|uploads/.test(one.path)
  const url = location.origin + target(one, values)
  const send = async (event) => {
    event.preventDefault()
    const open = one.parameters.find((part) => part.in === 'path' && !values[part.name])
    if (open) return setWrong(`${open.name} is missing`)
    try {
      if (body) JSON.parse(body)
    } catch (error) {
      return setWrong(`The body is not valid JSON: ${error.message}`)
    }
    setWrong(null)
    const stop = AbortSignal.timeout(15_000)
    try {
      const got = await fetch(target(one, values), { method: one.method, signal: stop, headers: { 'X-Quicksand-Page': '1', ...(body ? { 'Content-Type': 'application/json' } : {}) }, body: body || undefined })
      const text = /event-stream/.test(got.headers.get('content-type') ?? '') ? '(an event stream: read it with curl -N)' : (await got.text()).slice(0, 100_000)
      let shown = text
      try {
        shown = JSON.stringify(JSON.parse(text), null, 2)
      } catch {}
      setAnswer({ status: got.status, text: shown })
    } catch (error) {
      setWrong(error.name === 'TimeoutError' ? 'No complete response within 15 s.' : 'The server does not answer.')
    }
  }
  return (
    <form class="try" onSubmit={send} novalidate>
      {one.parameters.length > 0 && (
        <div class="grid">
          {one.parameters.map((part) => <Field key={part.name} label={`${part.name}${part.required ? '' : ' (optional)'}`} hint={part.description}><input value={values[part.name] ?? ''} onInput={(event) => setValues({ ...values, [part.name]: event.target.value })} /></Field>)}
        </div>
      )}
      {one.shape && Object.keys(one.shape).length > 0 && <details><summary>Fields of the body</summary><pre class="out" tabIndex={0}>{JSON.stringify(one.shape, null, 2)}</pre></details>}
      {body !== null && <Field label="Body"><textarea rows={4} spellcheck={false} value={body} onInput={(event) => setBody(event.target.value)} /></Field>}
      {wrong && <Problem error={wrong} />}
      <div class="actions">
        {!upgrade && <Button kind="main" type="submit">Try it</Button>}
        <div class="chips" role="group" aria-label="Language">{Object.keys(SAMPLES).map((name) => <button type="button" key={name} aria-pressed={language === name} onClick={() => setLanguage(name)}>{name}</button>)}</div>
      </div>
      <pre class="out" tabIndex={0} aria-label={`Request with ${language}`}>{SAMPLES[language](one, url, body)}</pre>
      {answer && <><b class={answer.status < 400 ? 'good' : 'bad'}>{answer.status}</b><pre class="out" tabIndex={0} aria-label="Response">{plain(answer.text).replaceAll('\\u000a', '\n')}</pre></>}
      <dl class="details">{one.responses.map(([status, text]) => <><dt key={status}>{status}</dt><dd>{text}</dd></>)}</dl>
    </form>
  )
}

export function ApiPages() {
  const { data, error, again } = useData(() => ask('/openapi.json'), [])
  const [text, setText] = useState('')
  const [open, setOpen] = useState(null)
  const all = useMemo(() => (data ? operationsOf(data) : []), [data])
  if (error) return <Problem error={error} again={again} />
  if (!data) return <Loading />
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const shown = all.filter((one) => words.every((word) => `${one.name} ${one.summary} ${one.tag}`.toLowerCase().includes(word)))
  const tags = [...new Set(shown.map((one) => one.tag))]
  return (
    <>
      <Heading name="API" actions={<a class="button" href="/openapi.json" download="openapi.json">openapi.json</a>}>API <small>{all.length} endpoints</small></Heading>
      <div class="filters"><label class="search"><Icon name="search" size={16} /><input type="search" data-search placeholder="pause, POST templates, files" aria-label="Find an endpoint" value={text} onInput={(event) => setText(event.target.value)} /></label></div>
      {tags.map((tag) => (
        <Card key={tag} title={tag}>
          <ul class="api">
            {shown.filter((one) => one.tag === tag).map((one) => (
              <li key={one.name}>
                <button type="button" aria-expanded={open === one.name} onClick={() => setOpen(open === one.name ? null : one.name)}><b class={`verb ${one.method}`}>{one.method}</b><code>{one.path}</code><span class="soft">{one.summary}</span></button>
                {open === one.name && <Try one={one} />}
              </li>
            ))}
          </ul>
        </Card>
      ))}
    </>
  )
}
