// A model for clients that need one: it finds what it is asked for in the tree of the page by the words of the question, and answers in the
// shape that is wanted. Over HTTP it speaks OpenAI's chat completions.
import http from 'node:http'

// tree: lines like "[0-12] button: go". question: what is asked.
function find(tree, question) {
  const wanted = question.toLowerCase().match(/\w+/g) ?? []
  const lines = [...tree.matchAll(/\[(\d+-\d+)\] (\w+): ?(.*)/g)].map(([, id, role, name]) => ({ id, role, name }))
  const weight = ({ role, name }) => wanted.filter((word) => role.toLowerCase() === word || name.toLowerCase().split(/\W+/).includes(word)).length
  return lines.reduce((best, line) => (weight(line) > (best ? weight(best) : 0) ? line : best), undefined)
}

function element(text) {
  const question = /instruction:\s*(.*)/i.exec(text)?.[1] ?? text.slice(0, 200)
  const line = find(text, question)
  if (!line) return undefined
  const typed = /type '([^']*)'/.exec(question)?.[1]
  return { elementId: line.id, description: `${line.role} ${line.name}`, method: typed ? 'fill' : 'click', arguments: typed ? [typed] : [] }
}

// What is answered: text is all that the model is told, schema the JSON schema of the answer.
export function think(text, schema) {
  const wants = (name) => Object.hasOwn(schema?.properties ?? {}, name)
  if (wants('elements')) return { elements: [element(text)].filter(Boolean) }
  if (wants('action')) return { action: element(text) ?? null, twoStep: false }
  if (wants('completed')) return { progress: 'all of it', completed: true }
  const heading = /heading: (.*)/.exec(text)?.[1]?.trim() ?? ''
  return Object.fromEntries(Object.keys(schema?.properties ?? {}).map((name) => [name, heading]))
}

const said = (content) => (typeof content === 'string' ? content : content.map((part) => part.text ?? '').join('\n'))

export function startModel() {
  const asked = []
  const server = http.createServer(async (request, answer) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const wish = JSON.parse(body)
    asked.push(request.url)
    const question = wish.messages.filter((message) => message.role === 'user').map((message) => said(message.content)).join('\n')
    const content = JSON.stringify(think(question, wish.response_format?.json_schema?.schema))
    answer.setHeader('Content-Type', 'application/json')
    answer.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 1, model: wish.model, choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } }))
  })
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}/v1`, asked, close: () => server.close() })))
}
