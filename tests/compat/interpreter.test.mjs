// The published @e2b/code-interpreter against the template of that name: cells, contexts, callbacks, variables, languages, ends.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually } from '../harness/server.mjs'
import { loadInterpreter, startInterpreter } from '../harness/interpreter.mjs'
import { connect } from '../harness/mcp.mjs'
import { pasteTemplateBlock } from '../harness/readme.mjs'

let server, sdk, sandbox
before(async () => {
  server = await startInterpreter()
  sdk = loadInterpreter(server)
  sandbox = await sdk.Sandbox.create({ timeoutMs: 600_000 })
})
after(() => server.destroy())

const run = (code, options) => sandbox.runCode(code, options)
const text = async (code, options) => {
  const execution = await run(code, options)
  assert.equal(execution.error, undefined, execution.error?.traceback)
  return execution.text
}

// Starts a cell and waits until it runs; .end is the promise of its execution.
async function begin(one, code, options) {
  let end
  await new Promise((begun, fail) => {
    end = one.runCode(`print("begun")\n${code}`, { ...options, onStdout: begun })
    end.then(() => fail(new Error('it ended before it printed')), fail)
  })
  return { end }
}

test('the block of README.md', async () => {
  const out = await pasteTemplateBlock(server, 'code-interpreter-v1', ['--build-arg', 'PACKAGES=', '--build-arg', 'EXTRAS='])
  assert.match(out, /^42$/m)
  assert.match(out, /1, 4, 9/)
})

describe('cells', () => {
  test('the value of the last expression', async () => {
    const execution = await run('x = 1; x')
    assert.equal(execution.text, '1')
    assert.equal(execution.results.length, 1)
    assert.equal(execution.results[0].isMainResult, true)
  })

  test('variables stay', async () => {
    await run('y = 40')
    assert.equal(await text('y += 2; y'), '42')
  })

  test('a print is one piece, with its newline', async () => {
    const execution = await run('print("hello")')
    assert.deepEqual(execution.logs, { stdout: ['hello\n'], stderr: [] })
    assert.equal(execution.text, undefined)
  })

  test('each cell has its number', async () => {
    const context = await sandbox.createCodeContext()
    assert.equal((await run('!pwd', { context })).executionCount, 1)
    assert.equal((await run('!pwd', { context })).executionCount, 2)
  })

  test('quotes around a text go', async () => {
    assert.equal(await text("'supertest'"), 'supertest')
    assert.equal(await text('"it\'s"'), "it's")
  })

  test('a cell that is indented as a whole, magics, commands, await', async () => {
    assert.equal(await text('    a = 5\n    a + 1'), '6')
    assert.deepEqual((await run('!echo one; echo two >&2')).logs, { stdout: ['one\n'], stderr: ['two\n'] })
    assert.equal(await text('import asyncio\nawait asyncio.sleep(0.01, "done")'), 'done')
    assert.equal(await text('%time 1 + 1'), '2')
    assert.deepEqual((await run('%%bash\necho from bash')).logs.stdout, ['from bash\n'])
    assert.equal(await text('files = !echo x\nlist(files)'), "['x']")
  })

  test('text of any kind comes as it was written, in its order', async () => {
    const execution = await run('import sys\nprint("zé\\u20ac\\U0001f600\\t\\x00\\x1b[1m|", end="")\nsys.stdout.flush()\nsys.stdout.buffer.write("€".encode()[:1]); sys.stdout.buffer.flush()\nimport time; time.sleep(0.2)\nsys.stdout.buffer.write("€".encode()[1:])\nsys.stdout.buffer.flush()')
    assert.equal(execution.logs.stdout.join(''), 'zé€😀\t\0\x1b[1m|€')
    const mixed = await run('import os\nprint("a", end="")\nos.system("printf b")\nprint("c", end="")\n!printf d\nprint("e")')
    assert.equal(mixed.logs.stdout.join(''), 'abcde\n')
  })

  test('nobody answers input()', async () => {
    assert.equal((await run('input("name?")')).error.name, 'StdinNotImplementedError')
  })

  test('a code that is no string is refused', async () => {
    await assert.rejects(run(undefined), /422/)
    await assert.rejects(run({}), /422/)
  })
})

describe('errors', () => {
  test('name, value, traceback', async () => {
    const { error, results } = await run('def f():\n    return nothing\nf()')
    assert.equal(error.name, 'NameError')
    assert.equal(error.value, "name 'nothing' is not defined")
    assert.match(error.traceback, /line 2.*in f\(\)/s)
    assert.doesNotMatch(error.traceback, /\x1b/)
    assert.equal(results.length, 0)
  })

  test('frames of the cell and of libraries, also of an error behind an error, and none of the shell', async () => {
    const { error } = await run("import numpy\ndef f():\n    try:\n        {}['k']\n    except KeyError as e:\n        numpy.linalg.inv(numpy.zeros((2, 3)))\nf()")
    assert.equal(error.name, 'LinAlgError')
    assert.match(error.traceback, /KeyError.*During handling of the above exception.*line 7.*in f\(\).*linalg\.py:\d+, in inv/s)
    assert.doesNotMatch(error.traceback, /interactiveshell/)
  })

  test('of the syntax, and what came before', async () => {
    assert.equal((await run('print(')).error.name, 'SyntaxError')
    const half = await run('print("before")\n1/0\nprint("behind")')
    assert.deepEqual(half.logs.stdout, ['before\n'])
    assert.equal(half.error.name, 'ZeroDivisionError')
    assert.equal((await run('import sys; sys.exit(3)')).error.name, 'SystemExit')
    assert.equal(await text('1 + 1'), '2')
  })
})

describe('callbacks', () => {
  test('of results', async () => {
    const seen = []
    const execution = await run('x = 1\nx', { onResult: (result) => seen.push(result) })
    assert.equal(seen.length, 1)
    assert.equal(execution.results[0].text, '1')
  })
  test('of errors', async () => {
    const seen = []
    const execution = await run('xyz', { onError: (error) => seen.push(error) })
    assert.equal(seen.length, 1)
    assert.equal(execution.error.name, 'NameError')
  })
  test('of stdout', async () => {
    const seen = []
    const execution = await run('print("Hello from e2b")', { onStdout: (message) => seen.push(message.line) })
    assert.deepEqual([seen, execution.logs.stdout], [['Hello from e2b\n'], ['Hello from e2b\n']])
  })
  test('of stderr', async () => {
    const seen = []
    const execution = await run('import sys; print("bad", file=sys.stderr)', { onStderr: (message) => seen.push([message.line, message.error, typeof message.timestamp]) })
    assert.deepEqual(seen, [['bad\n', true, seen[0][2]]])
    assert.deepEqual(execution.logs.stderr, ['bad\n'])
  })
  // That two writes within 200 ms arrive as one message is checked by interpreter_test.c, with times that it chooses.
  test('the begin of a line comes while its writer waits', async () => {
    const code = 'import os, sys, time\nsys.stderr.write("be")\nwhile not os.path.exists("/tmp/seen"): time.sleep(0.05)\nsys.stderr.write("gun\\n")'
    let writes
    const execution = await run(code, { onStderr: (message) => (writes ??= sandbox.files.write('/tmp/seen', message.line)) })
    await writes
    assert.deepEqual(execution.logs.stderr, ['be', 'gun\n'])
    await sandbox.files.remove('/tmp/seen')
  })
  test('while the cell runs', async () => {
    const seen = []
    const begun = Date.now()
    await run('import time, sys\nprint(1)\ntime.sleep(1.5)\nprint(2, file=sys.stderr)\ntime.sleep(1.5)\n3', {
      onStdout: () => seen.push(['out', Date.now() - begun]),
      onStderr: () => seen.push(['err', Date.now() - begun]),
      onResult: () => seen.push(['result', Date.now() - begun]),
    })
    assert.deepEqual(seen.map(([what]) => what), ['out', 'err', 'result'])
    assert.ok(seen[0][1] < 1500 && seen[1][1] >= 1500 && seen[1][1] < 3000 && seen[2][1] >= 3000, JSON.stringify(seen))
  })
})

describe('contexts', () => {
  test('one with no options', async () => {
    const context = await sandbox.createCodeContext()
    assert.deepEqual([context.language, context.cwd], ['python', '/home/user'])
    const all = await sandbox.listCodeContexts()
    assert.equal(all.at(-1).id, context.id)
  })
  test('one with options', async () => {
    const context = await sandbox.createCodeContext({ language: 'python', cwd: '/root' })
    assert.deepEqual([context.language, context.cwd], ['python', '/root'])
    assert.equal(await text('import os; os.getcwd()', { context }), '/root')
  })
  test('they know nothing of each other', async () => {
    const context = await sandbox.createCodeContext()
    await run('only = 1')
    const { error } = await run('only', { context })
    assert.equal(error.value, "name 'only' is not defined")
  })
  test('the random numbers of two differ', async () => {
    const numbers = await Promise.all([1, 2, 3].map(async () => text('import numpy, random; (numpy.random.rand(), random.random())', { context: await sandbox.createCodeContext() })))
    assert.equal(new Set(numbers).size, 3)
    const parts = numbers.flatMap((one) => one.slice(1, -1).split(', '))
    assert.equal(new Set(parts).size, 6)
  })
  test('removing one', async () => {
    const context = await sandbox.createCodeContext()
    await sandbox.removeCodeContext(context.id)
    await assert.rejects(run('1', { context }), /not found/)
    await assert.rejects(sandbox.removeCodeContext(context), /Context .* not found/)
  })
  test('restarting one: what it is stays, what was in it goes', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' })
    await run('x = 1', { context })
    await sandbox.restartCodeContext(context.id)
    const { error, executionCount } = await run('x', { context })
    assert.deepEqual([error.value, executionCount], ["name 'x' is not defined", 1])
    assert.equal(await text('import os; os.getcwd()', { context }), '/tmp')
    await assert.rejects(sandbox.restartCodeContext('nobody'), /not found/)
  })
  test('restarting one while a cell runs in it: the cell is told', async () => {
    const context = await sandbox.createCodeContext()
    const running = await begin(sandbox, 'import time; time.sleep(30)', { context })
    await sandbox.restartCodeContext(context)
    assert.equal((await running.end).error.name, 'ContextRestarting')
    assert.equal(await text('1', { context }), '1')
  })
  test('whose kernel begins with its first cell, and what is loaded late is the real thing', async () => {
    const sandbox = await sdk.Sandbox.create()
    const processes = async () => Number((await sandbox.commands.run('pgrep -fc "[k]ernels/python.py" || true')).stdout)
    try {
      assert.equal(await processes(), 1)
      const { text, error } = await sandbox.runCode(`
import cProfile, ipaddress, logging.config, numpy as np, pydoc, sys, tarfile, types, urllib.request, uuid, zipfile
assert all(type(one) is types.ModuleType for one in (cProfile, ipaddress, logging.config, pydoc, tarfile, urllib.request, uuid, zipfile))
assert isinstance(urllib.request.Request, type) and callable(logging.config.dictConfig)
[round(abs(np.fft.fft([1, 2, 3]).sum())), int(np.polynomial.Polynomial([1, 2])(3)), uuid.uuid4().version]`)
      assert.equal(error, undefined)
      assert.equal(text, '[3, 7, 4]')
      assert.equal(await processes(), 2)
    } finally {
      await sandbox.kill()
    }
  })

  test('of which there are two from the start', async () => {
    const fresh = await sdk.Sandbox.create()
    const all = await fresh.listCodeContexts()
    assert.deepEqual(all.map((one) => one.language), ['python', 'javascript'])
    await fresh.kill()
  })
  test('not with a context and a language at once, nor a language that is not there, nor a directory that is not', async () => {
    const context = await sandbox.createCodeContext()
    await assert.rejects(run('1', { context, language: 'python' }))
    const both = await server.sandbox(sandbox.sandboxId, 49999, '/execute', { method: 'POST', body: JSON.stringify({ code: '1', context_id: context.id, language: 'python' }) })
    assert.deepEqual([both.status, both.text], [400, 'Only one of context_id or language can be provided'])
    // Of all statuses the client shows the text of 404 only.
    await assert.rejects(run('1', { language: 'cobol' }), /there is no kernel for 'cobol'; here are python/)
    for (const language of ['r', 'java']) await assert.rejects(run('1', { language }), new RegExp(`the kernel of '${language}' is not in this template, but in code-interpreter-full \\(quicksand template build code-interpreter-full\\)`))
    await assert.rejects(sandbox.createCodeContext({ cwd: '/nowhere' }), /400/)
  })
  test('cells of one come one after the other, of two side by side', async () => {
    const [a, b] = [await sandbox.createCodeContext(), await sandbox.createCodeContext()]
    const nap = 'import time; begun = time.time(); time.sleep(1); [begun, time.time()]'
    const naps = await Promise.all([a, b].map(async (context) => JSON.parse((await run(nap, { context })).text)))
    assert.ok(naps[0][0] < naps[1][1] && naps[1][0] < naps[0][1], JSON.stringify(naps))
    // Each came by a connection of its own: which is first is not said.
    const numbers = await Promise.all([1, 2, 3].map(() => run('1', { context: a })))
    assert.deepEqual(numbers.map((one) => one.executionCount).sort(), [2, 3, 4])
  })
})

describe('variables', () => {
  let own
  before(async () => (own = await sdk.Sandbox.create({ envs: { OF_SANDBOX: 'from the sandbox', OTHER: 'one' } })))
  after(() => own.kill())
  const languages = {
    python: (name) => `import os; print(os.getenv("${name}", "none"), end="")`,
    javascript: (name) => `process.env.${name} ?? "none"`,
    bash: (name) => `echo -n "\${${name}-none}"`,
  }
  for (const [language, code] of Object.entries(languages)) {
    const value = async (name, envs) => {
      const execution = await own.runCode(code(name), { language, envs })
      return language === 'javascript' ? execution.text : execution.logs.stdout.join('')
    }
    test(`${language}: of the sandbox`, async () => assert.equal(await value('OF_SANDBOX'), 'from the sandbox'))
    test(`${language}: of one cell`, async () => {
      assert.equal(await value('FOO', { FOO: "it's $HOME \\ \n x" }), "it's $HOME \\ \n x")
      assert.equal(await value('FOO'), 'none')
    })
    test(`${language}: of one cell, over the sandbox's`, async () => {
      assert.equal(await value('OTHER', { OTHER: 'two' }), 'two')
      assert.equal(await value('OTHER'), 'one')
    })
  }
})

describe('JavaScript and TypeScript', () => {
  const js = (code, language = 'js') => text(code, { language })
  test('values, modules, await, promises', async () => {
    assert.equal(await js('const x = 1; x'), '1')
    assert.equal(await js('x + 1'), '2')
    assert.equal(await js('const x = "again"; x'), 'again')
    assert.equal(await js("import { writeFileSync, readFileSync as read } from 'fs'\nimport path, * as all from 'path'\nwriteFileSync('/tmp/a', 'in a file'); read('/tmp/a', 'utf8') + path.sep + (all.join === path.join)"), 'in a file/true')
    assert.equal(await js("path.basename('/a/b')"), 'b')
    assert.equal(await js('const later = await new Promise((done) => setTimeout(done, 50, 6)); later * 7'), '42')
    assert.equal(await js('later'), '6')
    assert.equal(await js('Promise.resolve("kept")'), 'kept')
    assert.equal(await js('function twice(n) { return 2 * n }\nclass A { b = twice(4) }\nnew A().b'), '8')
    assert.equal(await js('const { p, q: [r, ...s] } = { p: 1, q: [2, 3, 4] }; [p, r, s].join()'), '1,2,3,4')
    assert.equal(await js('for (let i = 0; i < 3; i++) i'), undefined)
    assert.equal(await js('typeof require("os").cpus'), 'function')
  })
  test('output, errors, JSON, display', async () => {
    const logged = await run('console.log("hi", {a: 1}); console.error("bad")', { language: 'javascript' })
    assert.deepEqual(logged.logs, { stdout: ["hi { a: 1 }\n"], stderr: ['bad\n'] })
    const { error } = await run('nothing.here', { language: 'js' })
    assert.deepEqual([error.name, error.value], ['ReferenceError', 'nothing is not defined'])
    assert.equal((await run('let = =', { language: 'js' })).error.name, 'SyntaxError')
    assert.deepEqual((await run('({a: [1, "x"]})', { language: 'js' })).results[0].json, { a: [1, 'x'] })
    const shown = await run('display({"text/html": "<b>x</b>"}); 1', { language: 'js' })
    assert.deepEqual(shown.results.map((one) => [one.html, one.text, one.isMainResult]), [['<b>x</b>', undefined, false], [undefined, '1', true]])
  })
  test('types go, and are checked for their grammar only', async () => {
    assert.equal(await js('interface P { x: number }\nenum E { A = 3 }\nconst p: P = { x: E.A }\nimport type { Stats } from "fs"\nimport { sep } from "path"\n`${p.x}${sep}`', 'ts'), '3/')
    assert.equal((await run('const x: = 1', { language: 'typescript' })).error.name, 'SyntaxError')
    const context = await sandbox.createCodeContext({ language: 'ts', cwd: '/tmp' })
    assert.equal(await text('const where: string = process.cwd(); where', { context }), '/tmp')
    assert.equal(await text('await Promise.resolve(where as any)', { context }), '/tmp')
  })
})

describe('Bash', () => {
  test('both streams, and state that stays', async () => {
    const { logs, error } = await run('A=5; cd /tmp; echo out; echo err >&2', { language: 'bash' })
    assert.deepEqual([logs, error], [{ stdout: ['out\n'], stderr: ['err\n'] }, undefined])
    assert.deepEqual((await run('echo $A; pwd', { language: 'bash' })).logs.stdout, ['5\n/tmp\n'])
  })
  test('a cell that is wrong ends, the next one works', async () => {
    assert.match((await run('if then', { language: 'bash' })).logs.stderr.join(''), /syntax error/)
    assert.deepEqual((await run("cat <<'END'\nit's \\n $A\nEND\nread x || echo no input", { language: 'bash' })).logs.stdout, ["it's \\n $A\nno input\n"])
  })
})

describe('ends', () => {
  test('a cell whose client leaves is interrupted', async () => {
    const context = await sandbox.createCodeContext()
    for (const language of ['python', 'bash', 'javascript']) {
      const own = language === 'python' ? context : await sandbox.createCodeContext({ language })
      const endless = { python: 'while True: pass', bash: 'while true; do sleep 1; done', javascript: 'while (true) {}' }[language]
      const keep = { python: 'kept = 7', bash: 'kept=7', javascript: 'kept = 7' }[language]
      await run(keep, { context: own })
      await assert.rejects(run(endless, { context: own, timeoutMs: 1000 }), /timed out|timeout/i)
      const after = await run(language === 'bash' ? 'echo $kept' : 'kept', { context: own, timeoutMs: 5000 })
      assert.equal(language === 'bash' ? after.logs.stdout.join('').trim() : after.text, '7', `${language}: ${JSON.stringify(after)}`)
    }
  })

  test('a kernel that dies is told and replaced', async () => {
    const context = await sandbox.createCodeContext()
    const { error, logs } = await run('x = 1\nprint("last words")\nimport os; os.kill(os.getpid(), 9)', { context })
    assert.equal(error.name, 'UnexpectedEndOfExecution')
    assert.match(error.value, /signal 9/)
    assert.deepEqual(logs.stdout, ['last words\n'])
    const next = await run('x', { context })
    assert.deepEqual([next.error.name, next.executionCount], ['NameError', 1])
    const pid = await text(`
import os, threading, time
def end():
    while not os.path.exists("/tmp/end-of-kernel"): time.sleep(0.01)
    os._exit(5)
threading.Thread(target=end).start()
os.getpid()`, { context })
    await sandbox.commands.run('touch /tmp/end-of-kernel')
    await eventually('the kernel has ended', async () => (await sandbox.commands.run(`test -e /proc/${pid} || echo gone`)).stdout === 'gone\n')
    assert.match((await run('1', { context })).logs.stderr.join(''), /new/)
    const bash = await sandbox.createCodeContext({ language: 'bash' })
    assert.match((await run('exit 3', { context: bash })).error.value, /status 3/)
    assert.deepEqual((await run('echo again', { context: bash })).logs.stdout, ['again\n'])
  })

  test('memory that is used up is told as such', async () => {
    const context = await sandbox.createCodeContext()
    const { error } = await run('x = bytearray(8 << 30)\nx[:] = b"1" * len(x)', { context, timeoutMs: 120_000 })
    assert.ok(['UnexpectedEndOfExecution', 'MemoryError'].includes(error.name), error.name)
    const filled = await run('l = []\nwhile True: l.append(bytearray(b"1" * (16 << 20)))', { context, timeoutMs: 120_000 })
    assert.equal(filled.error.name, 'UnexpectedEndOfExecution')
    assert.match(filled.error.value, /no more memory \(\d+(\.\d)? [MG]iB\)/)
    assert.equal(await text('1 + 1', { context }), '2')
  })

  test('a gigabyte of output is passed on, and not collected', async () => {
    let bytes = 0
    const answer = await new Promise((done, fail) => {
      import('node:http').then(({ default: http }) => {
        const request = http.request({ host: server.host, port: server.port, method: 'POST', path: '/execute', headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49999' } }, (response) => {
          let tail = ''
          response.on('data', (chunk) => {
            bytes += chunk.length
            tail = (tail + chunk.toString('latin1')).slice(-200)
          })
          response.on('end', () => done(tail))
          response.on('error', fail)
        })
        request.end(JSON.stringify({ code: 'import os\nline = b"x" * 99999 + b"\\n"\nfor _ in range(10000): os.write(1, line)' }))
      })
    })
    assert.ok(bytes > 1e9, `${bytes} bytes`)
    assert.match(answer, /end_of_execution/)
    const { stdout } = await sandbox.commands.run('ps -eo rss,args | grep "[i]nterpreter serve" | sort -n | tail -1')
    assert.ok(Number(stdout.trim().split(' ')[0]) < 8192, stdout)
  })

  test('a fork bomb ends with its context', async () => {
    const victim = await sdk.Sandbox.create()
    const context = await victim.createCodeContext()
    await victim.runCode('import os\nwhile True:\n    try: os.fork()\n    except OSError: pass', { context, timeoutMs: 2000 }).catch(() => {})
    await victim.restartCodeContext(context, { requestTimeoutMs: 60_000 }).catch(() => {})
    await eventually('cells run again', async () => (await victim.runCode('1 + 1', { context, timeoutMs: 5000 }).catch(() => ({}))).text === '2', 60_000, 500)
    await victim.kill()
  })

  test('a sandbox that is killed cuts its cells', async () => {
    const victim = await sdk.Sandbox.create()
    const running = await begin(victim, 'import time; time.sleep(60)')
    const rejected = assert.rejects(running.end, /killed/)
    await victim.kill()
    await rejected
  })

  test('the interpreter itself is started again when it dies', async () => {
    const victim = await sdk.Sandbox.create()
    await victim.commands.run('pkill -9 -o -f "interpreter serve" -x; sudo kill -9 $(pgrep -P $(pgrep -o -x interpreter)) || true')
    await eventually('it answers', async () => (await server.sandbox(victim.sandboxId, 49999, '/health')).text === '"OK"', 30_000, 200)
    assert.equal((await victim.runCode('x = 1; x')).text, '1')
    await victim.kill()
  })

  test('a second client of the same sandbox finds what is there', async () => {
    await run('shared = "yes"')
    const again = await sdk.Sandbox.connect(sandbox.sandboxId)
    assert.equal((await again.runCode('shared')).text, 'yes')
  })
})

describe('run_code of MCP', () => {
  let client
  const call = (args, options) => client.callTool({ name: 'run_code', arguments: args }, undefined, options)
  before(async () => ({ client } = await connect(`${server.url}/mcp`, 'sdk', { headers: { Authorization: `Bearer ${server.key}` } })))
  after(() => client?.close())

  test('the own sandbox has an interpreter, and keeps what cells leave', async () => {
    const first = await call({ code: 'x = 40\nprint("set")' })
    assert.deepEqual(first.content, [{ type: 'text', text: 'set\n' }])
    const { structuredContent: second, content } = await call({ code: 'x + 2' })
    assert.deepEqual(content, [{ type: 'text', text: '42' }])
    assert.deepEqual({ ...second, duration_ms: 0 }, { sandbox_id: first.structuredContent.sandbox_id, stdout: '', stderr: '', results: [{ text: '42', is_main_result: true, extra: {}, formats: ['text'] }], error: null, execution_count: 2, duration_ms: 0, timed_out: false, truncated: false })
    assert.equal((await call({ code: 'echo $((6 * 7))', language: 'bash' })).structuredContent.stdout, '42\n')
    assert.equal((await client.callTool({ name: 'sandbox_info', arguments: { sandbox_id: second.sandbox_id } })).structuredContent.template, 'code-interpreter-v1')
  })

  test('figures are pictures, tables are data, errors are told', async () => {
    const plot = await call({ code: 'import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()' })
    const picture = plot.content.find((one) => one.type === 'image')
    assert.equal(picture.mimeType, 'image/png')
    assert.equal(Buffer.from(picture.data, 'base64').subarray(1, 4).toString(), 'PNG')
    assert.ok(plot.structuredContent.results[0].formats.includes('png') && !plot.structuredContent.results[0].png)
    assert.equal(plot.structuredContent.results[0].chart.type, 'line')
    const table = await call({ code: 'import pandas\npandas.DataFrame({"a": [1, 2]})' })
    assert.deepEqual(table.structuredContent.results[0].data, { a: [1, 2] })
    assert.match(table.content[0].text, /^ +a\n0 +1/)
    const wrong = await call({ code: 'print("before")\n1 / 0' })
    assert.deepEqual([wrong.isError, wrong.structuredContent.error.name, wrong.structuredContent.stdout], [false, 'ZeroDivisionError', 'before\n'])
    assert.match(wrong.content.at(-1).text, /ZeroDivisionError/)
    assert.match((await call({ code: '1', language: 'cobol' })).content[0].text, /cobol/)
    assert.deepEqual((await call({ code: 'pass' })).content, [{ type: 'text', text: '[nothing printed, no result]' }])
  })

  test('output is progress; much of it is cut; cancelling interrupts', async () => {
    const told = []
    const slow = await call({ code: 'import time\nfor i in range(3):\n    print(i)\n    time.sleep(0.4)' }, { onprogress: ({ message }) => told.push(message) })
    assert.equal(slow.structuredContent.stdout, '0\n1\n2\n')
    assert.equal(told.join(''), '0\n1\n2\n')
    assert.ok(told.length >= 2)
    const long = await call({ code: 'print("x" * 3_000_000)', output_limit: 1000 })
    assert.ok(long.structuredContent.truncated && long.structuredContent.stdout.length < 1100)
    assert.ok((await call({ code: 'time.sleep(60)', timeout_s: 1 })).structuredContent.timed_out)
    const stop = new AbortController()
    const waiting = assert.rejects(call({ code: 'open("/tmp/begun", "w").close()\ntime.sleep(600)' }, { signal: stop.signal }))
    const box = slow.structuredContent.sandbox_id
    await eventually('it runs', async () => !(await client.callTool({ name: 'read_file', arguments: { path: '/tmp/begun', sandbox_id: box } })).isError)
    stop.abort()
    await waiting
    assert.equal((await call({ code: 'x' })).content[0].text, '40', 'the kernel is free, with its variables')
  })

  test('a sandbox without an interpreter says what it needs', async () => {
    const plain = await server.create({})
    const answer = await call({ code: '1', sandbox_id: plain.sandboxID })
    assert.ok(answer.isError)
    assert.match(answer.content[0].text, /code-interpreter-v1/)
  })
})
