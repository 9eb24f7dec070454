// What runs, and what happens: lists that follow the event stream.
'use strict'

const status = document.getElementById('status')
const events = document.getElementById('events')

function row(cells, link) {
  const tr = document.createElement('tr')
  for (const cell of cells) tr.insertCell().textContent = cell ?? ''
  const a = document.createElement('a')
  a.href = link
  a.textContent = 'terminal'
  tr.insertCell().append(a)
  return tr
}

async function refresh() {
  const { sandboxes } = await (await quicksand.api('/sandboxes')).json()
  const { sessions } = await (await quicksand.api('/sessions')).json()
  document.getElementById('sandboxes').replaceChildren(
    ...sandboxes.map((one) => row([one.id, one.state, one.provider, one.template, one.agent_id, one.key], `/ui/terminal?sandbox=${encodeURIComponent(one.id)}`)),
  )
  document.getElementById('sessions').replaceChildren(
    ...sessions.map((one) => row([one.id, one.state, one.agent, one.repo, one.sandbox_id], `/ui/terminal?session=${encodeURIComponent(one.id)}`)),
  )
}

function show(text) {
  const data = JSON.parse(text)
  const line = document.createElement('div')
  line.textContent = `${data.ts ?? ''}  ${data.type}  ${data.sandbox ?? data.session ?? ''}`
  events.prepend(line)
  while (events.childElementCount > 500) events.lastElementChild.remove()
}

// EventSource cannot send a header, so the stream is read by fetch.
async function follow() {
  let since = ''
  for (;;) {
    try {
      const answer = await quicksand.api(`/events${since ? `?since=${since}` : ''}`, { headers: { Accept: 'text/event-stream' } })
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
      let rest = ''
      for (;;) {
        const { done, value } = await reader.read()
        if (done) break
        const parts = (rest + value).split('\n\n')
        rest = parts.pop()
        for (const part of parts) {
          since = /^id: (\d+)$/m.exec(part)?.[1] ?? since
          const data = part.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n')
          if (data) show(data)
        }
        if (parts.some((part) => part.includes('\ndata: '))) await refresh()
      }
    } catch (error) {
      status.textContent = error.message
    }
    await new Promise((done) => setTimeout(done, 2000))
  }
}

refresh().then(follow, (error) => (status.textContent = error.message))
