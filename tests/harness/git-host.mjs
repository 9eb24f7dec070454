// The API of a git host, as GitHub's under /gh and as Gitea's under /tea: keeps pull requests and every request it got.
// `host.next = (request, response) => …` answers the next request instead.
import http from 'node:http'

const send = (response, status, body, headers = {}) => response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

export async function startGitHost() {
  const host = { seen: [], pulls: [], next: null, take: () => host.seen.splice(0) }

  const shown = (pull) => ({ number: pull.number, state: pull.state, html_url: `https://${pull.repo.includes('tea') ? 'tea' : 'hub'}.example/${pull.full}/pulls/${pull.number}`, head: { ref: pull.head, repo: { full_name: pull.full } }, base: { ref: pull.base, repo: { full_name: pull.full } } })
  const add = (repo, full, { head, base, state = 'open' }) => {
    const pull = { repo, full, number: host.pulls.length + 1, head, base, state }
    host.pulls.push(pull)
    return pull
  }
  host.add = add

  const answer = (request, response, text) => {
    const url = new URL(request.url, 'http://host')
    const [, shape, full, rest] = url.pathname.match(/^\/(gh|tea\/api\/v1)\/repos\/([^/]+\/[^/]+)(\/pulls)?$/) ?? []
    if (!shape) return send(response, 404, { message: 'Not Found' })
    const repo = `${shape}/${full}`
    const mine = host.pulls.filter((pull) => pull.repo === repo)
    if (!rest) return send(response, 200, { full_name: full, default_branch: 'main' })
    if (request.method === 'GET') {
      const [head, base] = [url.searchParams.get('head'), url.searchParams.get('base') ?? url.searchParams.get('base_branch')]
      // Gitea knows no filter by head: more than one page of others comes first.
      const list = mine.filter((pull) => pull.base === base && (!head || head === `${full.split('/')[0]}:${pull.head}`))
      const size = Number(url.searchParams.get('per_page') ?? url.searchParams.get('limit'))
      const page = Number(url.searchParams.get('page'))
      return send(response, 200, list.slice((page - 1) * size, page * size).map(shown))
    }
    const wanted = JSON.parse(text)
    if (mine.some((pull) => pull.full === full && pull.state === 'open' && pull.head === wanted.head && pull.base === wanted.base)) {
      return shape === 'gh'
        ? send(response, 422, { message: 'Validation Failed', errors: [{ resource: 'PullRequest', code: 'custom', message: `A pull request already exists for acme:${wanted.head}.` }] })
        : send(response, 409, { message: `pull request already exists for these targets [id: 9, issue_id: 2, head_branch: ${wanted.head}, base_branch: ${wanted.base}]` })
    }
    return send(response, 201, shown(add(repo, full, wanted)))
  }

  const server = http.createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      const handler = host.next ?? answer
      host.next = null
      host.seen.push({ method: request.method, url: request.url, headers: request.headers, body: text ? JSON.parse(text) : null })
      handler(request, response, text)
    })
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  host.url = `http://127.0.0.1:${server.address().port}`
  host.refuse = (status, body, headers) => (host.next = (request, response) => send(response, status, body, headers))
  host.close = () => new Promise((done) => {
    server.close(done)
    server.closeAllConnections()
  })
  return host
}
