// Recipes that come with quicksand and are not built: a create says what to run, or builds one (build-on-demand).
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'

// mcp-gateway needs nothing but its program; python wants packages, which are out of reach here.
let server
before(async () => {
  server = await startServer({ args: ['--warm', '1', '--builds', '1', '--team-builds', '1'] })
})
after(() => server.destroy())

const create = (template) => server.api('POST', '/sandboxes', { templateID: template, timeout: 120 })
const buildsOf = async (name) => (await server.api('GET', `/templates/${name}`)).body.builds

async function serveWith(seconds) {
  await server.stop()
  server.args = ['--warm', '1', '--builds', '1', '--team-builds', '1', '--build-on-demand', String(seconds)]
  await server.start()
}

// A build of somebody else that ends when it is told to, and has the only place until then.
async function takeThePlace() {
  const made = (await server.api('POST', '/v3/templates', { name: 'long', tags: [] })).body
  const path = `${made.templateID}/builds/${made.buildID}`
  assert.equal((await server.api('POST', `/v2/templates/${path}`, { fromTemplate: 'base', steps: [{ type: 'RUN', args: ['echo begun; sleep 3600'], force: true }] })).status, 202)
  await eventually('it runs', async () => JSON.stringify((await server.api('GET', `/templates/${path}/status?logsOffset=0`)).body).includes('begun'), 60_000 * patience)
  return () => server.api('DELETE', `/templates/${path}`)
}

test('without the setting a create says what to run, and nothing is built', async () => {
  const { status, body } = await create('mcp-gateway')
  assert.deepEqual([status, body.message], [404, "template 'mcp-gateway' is not built yet; its recipe comes with quicksand: quicksand template build mcp-gateway"])
  assert.equal((await server.api('GET', '/templates/mcp-gateway')).status, 404)
  assert.match((await server.api('POST', '/api/v1/sandboxes', { template: 'code-interpreter-full' })).text, /quicksand template build code-interpreter-full/)
})

test('a build that takes longer than a create waits is told, and goes on', async () => {
  await serveWith(1)
  const leave = await takeThePlace()
  const { status, body } = await create('mcp-gateway')
  assert.equal(status, 503)
  assert.match(body.message, /template 'mcp-gateway' is being built, which takes longer than 1 s: create the sandbox again in a while \(quicksand template logs mcp-gateway /)
  const again = await create('mcp-gateway')
  assert.equal(again.status, 503)
  assert.equal((await buildsOf('mcp-gateway')).length, 1, 'the second create waited for the same build')
  await leave()
  await eventually('it is made', async () => (await create('mcp-gateway')).status === 201, 120_000 * patience, 200)
  assert.equal((await buildsOf('mcp-gateway')).length, 1)
  assert.equal((await create('no-such-recipe')).status, 404)
})

test('those who come together wait for one build, by either API', async () => {
  assert.equal((await server.api('DELETE', '/templates/mcp-gateway')).status, 204)
  await serveWith(300)
  const leave = await takeThePlace()
  const waiting = [create('mcp-gateway'), create('mcp-gateway'), create('mcp-gateway'), server.api('POST', '/api/v1/sandboxes', { template: 'mcp-gateway' })]
  await eventually('a build', async () => (await server.api('GET', '/templates/mcp-gateway')).status === 200, 60_000 * patience)
  assert.equal((await create('base')).status, 201, 'other creates go on')
  await leave()
  const made = await Promise.all(waiting)
  assert.deepEqual(made.map((one) => one.status), [201, 201, 201, 201], JSON.stringify(made.map((one) => one.text)))
  assert.equal((await buildsOf('mcp-gateway')).length, 1)
  const view = (await server.api('GET', `/sandboxes/${made[0].body.sandboxID}`)).body
  assert.deepEqual([view.cpuCount, view.memoryMB], [2, 1024], 'of its settings')
})

test('a build that fails is told to each', async () => {
  const both = await Promise.all([create('python'), create('python')])
  assert.deepEqual(both.map((one) => one.status), [503, 503])
  assert.equal(both[0].body.message, both[1].body.message)
  assert.match(both[0].body.message, /^template 'python' could not be built: .*exit status 100.*, at step \d+ \(quicksand template logs python says more, the next create tries again\)$/)
  assert.equal((await buildsOf('python')).length, 1)
})

test('a server that ends says so, and the next one builds again', async () => {
  assert.equal((await server.api('DELETE', '/templates/mcp-gateway')).status, 204)
  await takeThePlace()
  const waiting = create('mcp-gateway')
  await eventually('a build', async () => (await server.api('GET', '/templates/mcp-gateway')).status === 200, 60_000 * patience)
  await server.stop()
  const { status, body } = await waiting
  assert.deepEqual([status, body.message], [503, "the server ends while template 'mcp-gateway' is being built: create the sandbox again when it is back"])
  await server.start()
  assert.equal((await create('mcp-gateway')).status, 201)
  assert.deepEqual((await buildsOf('mcp-gateway')).map((one) => one.status), ['ready', 'error'])
})
