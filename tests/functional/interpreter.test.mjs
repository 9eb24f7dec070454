// The code interpreter without an SDK: the runtime's API and the command line.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { quicksand, startInterpreter } from '../harness/interpreter.mjs'

let server, id
before(async () => {
  server = await startInterpreter()
  id = (await server.api('POST', '/api/v1/sandboxes', { template: 'code-interpreter-v1', env: { OF_SANDBOX: 'yes' } })).body.id
})
after(() => server.destroy())

const code = (body, options) => server.api('POST', `/api/v1/sandboxes/${id}/code`, body, options)

test('a cell, whole', async () => {
  const { status, body } = await code({ code: 'import os, sys\nprint("out"); print("err", file=sys.stderr)\nos.environ["OF_SANDBOX"] + os.environ["X"]', env: { X: '!' } })
  assert.equal(status, 200)
  assert.deepEqual([body.results, body.stdout, body.stderr, body.error, body.timed_out, body.truncated], [[{ is_main_result: true, text: 'yes!', extra: {} }], 'out\n', 'err\n', null, false, false])
  assert.ok(body.execution_count >= 1 && body.duration_ms >= 0)
})

test('an error of the code is a result', async () => {
  const { status, body } = await code({ code: '1/0' })
  assert.deepEqual([status, body.error.name, body.results], [200, 'ZeroDivisionError', []])
})

test('as a stream, of lines or of events', async () => {
  const lines = (await code({ code: 'print(1)\n2', stream: true })).text.trim().split('\n').map((line) => JSON.parse(line))
  assert.deepEqual(lines.map((one) => one.type), ['number_of_executions', 'stdout', 'result', 'end_of_execution', 'exit'])
  const events = await code({ code: '3', language: 'js' }, { headers: { Accept: 'text/event-stream' } })
  assert.match(events.text, /^data: \{"type":"number_of_executions".*\n\ndata: \{"type":"result".*"text":"3"/s)
})

test('a time limit ends it, the next one runs', async () => {
  const { body } = await code({ code: 'import time\nwhile True: time.sleep(0.1)', timeout: 1 })
  assert.deepEqual([body.timed_out, body.error], [true, null])
  assert.equal((await code({ code: '5' })).body.results[0].text, '5')
})

test('what is wrong is told', async () => {
  assert.equal((await code({})).status, 400)
  assert.equal((await code({ code: '1', language: 'cobol' })).status, 400)
  assert.equal((await code({ code: '1', context_id: 'nobody' })).status, 404)
  for (const language of ['r', 'java']) {
    const refused = await code({ code: '1', language })
    assert.equal(refused.status, 400)
    assert.match(refused.text, new RegExp(`the kernel of '${language}' is not in this template, but in code-interpreter-full \\(quicksand template build code-interpreter-full\\); here are python, javascript, typescript, bash"`))
  }
  const plain = (await server.api('POST', '/api/v1/sandboxes', { template: 'base' })).body.id
  const none = await server.api('POST', `/api/v1/sandboxes/${plain}/code`, { code: '1' })
  assert.equal(none.status, 409)
  assert.match(none.text, /code-interpreter-v1/)
})

test('quicksand code: text, errors, pictures, files, a sandbox that is there', async () => {
  const sum = await quicksand(server, ['code', '6 * 7'])
  assert.deepEqual([sum.code, sum.stdout, sum.stderr], [0, '42\n', ''])
  const wrong = await quicksand(server, ['code', '--sandbox', id, 'print("a")\nnothing'])
  assert.deepEqual([wrong.code, wrong.stdout], [1, 'a\n'])
  assert.match(wrong.stderr, /NameError/)
  const table = await quicksand(server, ['code', '-s', id, 'import pandas\npandas.DataFrame({"a": [1, 22]})'])
  assert.equal(table.stdout, '    a\n0   1\n1  22\n')
  fs.writeFileSync(path.join(server.home, 'plot.py'), 'import matplotlib.pyplot as plt\nfor _ in range(2):\n    plt.plot([1, 2]); plt.show()\n')
  const plot = await quicksand(server, ['code', '-s', id, '-f', 'plot.py'])
  assert.deepEqual([plot.code, plot.stdout], [0, 'wrote figure-1.png\nwrote figure-2.png\n'])
  assert.equal(fs.readFileSync(path.join(server.home, 'figure-2.png')).subarray(1, 4).toString(), 'PNG')
  const js = await quicksand(server, ['code', '-s', id, '--language', 'ts', '-e', 'V=x'], { input: 'const v: string = process.env.V!; v' })
  assert.deepEqual([js.code, js.stdout], [0, 'x\n'])
  const small = await quicksand(server, ['code', '-s', id, '-l', 'r', '1'])
  assert.notEqual(small.code, 0)
  assert.match(small.stderr, /kernel of 'r' is not in this template, but in code-interpreter-full/)
  const absent = await quicksand(server, ['code', '-l', 'java', '1'])
  assert.match(absent.stderr, /quicksand template build code-interpreter-full/)
  const late = await quicksand(server, ['code', '-s', id, '--timeout', '1s', 'while True: pass'])
  assert.equal(late.code, 124)
  const json = await quicksand(server, ['code', '--json', '-s', id, '1'])
  assert.equal(JSON.parse(json.stdout.trim().split('\n').at(-1)).type, 'exit')
  assert.deepEqual((await server.api('GET', '/api/v1/sandboxes')).body.sandboxes.length, 2)
})
