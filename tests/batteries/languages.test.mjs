// R and Java in the code interpreter: the larger recipe, with the published client and the command line. R and the JDK are real.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { loadInterpreter, quicksand, startInterpreter } from '../harness/interpreter.mjs'
import { eventually, patience } from '../harness/server.mjs'

const LONG = 120_000 * patience // a JVM takes seconds to begin where much else runs

let server, sdk, sandbox
before(async () => {
  server = await startInterpreter({ template: 'code-interpreter-full' })
  sdk = loadInterpreter(server)
  sandbox = await sdk.Sandbox.create('code-interpreter-full', { envs: { OF_SANDBOX: 'from the sandbox', OTHER: 'one' } })
})
after(() => server.destroy())

const run = (code, options = {}) => sandbox.runCode(code, { timeoutMs: LONG, requestTimeoutMs: LONG, ...options })
const r = (code, options) => run(code, { ...(options?.context ? {} : { language: 'r' }), ...options })
const java = (code, options) => run(code, { ...(options?.context ? {} : { language: 'java' }), ...options })
const context = (language, cwd) => sandbox.createCodeContext({ language, cwd, requestTimeoutMs: LONG })

describe('R', () => {
  test('values are results, what is printed is output', async () => {
    assert.deepEqual((await r('print("Hello, World!")')).logs, { stdout: ['[1] "Hello, World!"\n'], stderr: [] })
    const { results, text, logs } = await r('x <- 41; x; "ü \\" \\\\"\ncat("to stderr\\n", file = stderr())\nx + 1')
    assert.deepEqual([results.map((one) => [one.text, one.isMainResult]), text, logs.stderr.join('')], [[['[1] 41', false], ['[1] "ü \\" \\\\"', false], ['[1] 42', true]], '[1] 42', 'to stderr\n'])
    assert.equal((await r('x')).text, '[1] 41')
    assert.deepEqual((await r('invisible(3)')).results, [])
    assert.equal((await r('function(n)   n+1')).text, 'function(n)   n+1')
    assert.equal((await r('summary(lm(dist ~ speed, cars))$r.squared')).text, '[1] 0.6510794')
  })
  test('output comes while the cell runs, with what its commands write, in order', async () => {
    const { logs } = await r('cat("a "); system("echo b"); cat("c"); message("m")')
    assert.deepEqual([logs.stdout.join(''), logs.stderr.join('')], ['a b\nc', 'm\n'])
    let first
    const slow = r('cat("first"); while (!file.exists("/tmp/go-on")) Sys.sleep(0.02); file.remove("/tmp/go-on")', { onStdout: (one) => (first ??= one.line) })
    await eventually('the first text', () => first === 'first')
    await sandbox.files.write('/tmp/go-on', '')
    assert.equal((await slow).text, '[1] TRUE')
  })
  test('tables are data, too', async () => {
    const { results } = await r('data.frame(n = c(1.5, NA), s = c("a\\tb", "ü"), f = factor(c("p", "q")), l = c(TRUE, NA), d = as.Date(c("2026-11-17", NA)))')
    assert.deepEqual(results[0].data, { n: [1.5, null], s: ['a\tb', 'ü'], f: ['p', 'q'], l: [true, null], d: ['2026-11-17', null] })
    assert.match(results[0].text, /^ +n +s f +l +d\n1 1\.5/)
  })
  test('plots are pictures, one for each page', async () => {
    const { results } = await r('plot(1:10, main = "ü"); lines(10:1)\nhist(c(1, 2, 2, 3))\n"done"')
    const pictures = results.filter((one) => one.png)
    assert.deepEqual([results.length, pictures.length, results[0].text], [3, 2, '[1] "done"'])
    for (const { png } of pictures) {
      const bytes = Buffer.from(png, 'base64')
      assert.deepEqual([bytes.subarray(1, 4).toString(), bytes.readUInt32BE(16), bytes.readUInt32BE(20)], ['PNG', 840, 600])
      assert.ok(bytes.length > 2000)
    }
    assert.notEqual(pictures[0].png, pictures[1].png)
    assert.deepEqual((await r('pdf("/tmp/own.pdf"); plot(1); invisible(dev.off())')).results, [], 'a device of the cell is its own')
    assert.equal((await sandbox.commands.run('head -c 4 /tmp/own.pdf')).stdout, '%PDF')
  })
  test('errors have a name, a value and a traceback', async () => {
    const { error, logs } = await r('f <- function(x) g(x)\ng <- function(y) stop("bad \\"thing\\"")\nwarning("careful")\nf(1)')
    assert.deepEqual([error.name, error.value, error.traceback], ['simpleError', 'bad "thing"', 'Error in g(x): bad "thing"\n1: f(1)\n2: g(x)'])
    assert.match(logs.stderr.join(''), /^Warning.*careful\n$/s)
    assert.deepEqual(Object.values((await r('nothing')).error), ['simpleError', "object 'nothing' not found", "Error: object 'nothing' not found"])
    assert.deepEqual([(await r('if (')).error.name, (await r('1 +')).error.value.split('\n')[0]], ['ParseError', '<text>:2:0: unexpected end of input'])
    assert.equal((await r('stop(structure(class = c("mine", "error", "condition"), list(message = "m", call = NULL)))')).error.name, 'mine')
  })
})

describe('Java', () => {
  test('values are results, what is printed is output', async () => {
    assert.equal((await java('System.out.println("Hello, World!")')).logs.stdout.join(''), 'Hello, World!\n')
    const { results, text, logs } = await java('int x = 41; x; "ü \\" \\\\ \\n"; // a comment\nSystem.err.print("to stderr");\nx + 1 // the last\n')
    assert.deepEqual([results.map((one) => [one.text, one.isMainResult]), text, logs.stderr.join('')], [[['41', false], ['ü " \\ \n', false], ['42', true]], '42', 'to stderr'])
    assert.equal((await java('List.of(1, x).stream().map(n -> n * 2).collect(Collectors.toList())')).text, '[2, 82]')
    assert.deepEqual((await java('x = 3;')).results, [])
    assert.equal((await java('var where = System.getProperty("user.dir"); where')).text, '/home/user')
  })
  test('classes and methods stay, may be declared again, and may use what comes later', async () => {
    assert.equal((await java('record P(int a) { int twice() { return a * 2; } }\nint f(int n) { return n <= 1 ? 1 : n * f(n - 1); }\nnew P(f(5)).twice()')).text, '240')
    assert.match((await java('int h() { return later() + 1; }')).logs.stderr.join(''), /later\(\)/)
    assert.equal((await java('h()')).error.name, 'UnresolvedReference')
    assert.equal((await java('int later() { return 1; }\nh()')).text, '2')
    assert.equal((await java('int later() { return 5; }\nif (h() == 6) System.out.print("six");')).logs.stdout.join(''), 'six')
  })
  test('output comes while the cell runs, with what its commands write, in order', async () => {
    assert.equal((await java('System.out.print("a "); new ProcessBuilder("sh", "-c", "echo b; cat").inheritIO().start().waitFor(); System.out.print("c");')).logs.stdout.join(''), 'a b\nc')
    let first
    const slow = java('System.out.print("first"); var go = Path.of("/tmp/go-on"); while (!Files.exists(go)) Thread.sleep(20); Files.delete(go); 7', { onStdout: (one) => (first ??= one.line) })
    await eventually('the first text', () => first === 'first')
    await sandbox.files.write('/tmp/go-on', '')
    assert.equal((await slow).text, '7')
  })
  test('errors have a name, a value and a traceback', async () => {
    const { error } = await java('void fail() { throw new IllegalStateException("no \\"way\\"", new RuntimeException("deep")); }\nfail();\n1')
    assert.deepEqual([error.name, error.value], ['java.lang.IllegalStateException', 'no "way"'])
    assert.match(error.traceback, /^java\.lang\.IllegalStateException: no "way"\n {4}at .*fail.*\nCaused by: java\.lang\.RuntimeException: deep\n/s)
    const wrong = (await java('int fine = 1;\nint more() {\n  return 1;\n}\nint z =\n  "a";')).error
    assert.deepEqual([wrong.name, wrong.value], ['CompilationError', 'incompatible types: java.lang.String cannot be converted to int'])
    assert.match(wrong.traceback, /^line 6: incompatible types.*\nint z =\n  "a";$/)
    assert.deepEqual(Object.values((await java('foo(')).error).slice(0, 2), ['CompilationError', 'reached end of file while parsing'])
  })
})

const LANGUAGES = {
  r: { one: r, value: (name) => `Sys.getenv("${name}", unset = "none")`, shown: (text) => `[1] "${text}"`, keep: 'kept <- 7', kept: ['kept', '[1] 7'], endless: ['repeat { }', 'Sys.sleep(600)'], cwd: 'getwd()', die: 'quit(status = 3)', lost: /'kept' not found/, kill: 'cat("last words"); system(paste("kill -9", Sys.getpid())); Sys.sleep(60)' },
  java: { one: java, value: (name) => `System.getProperty("${name}", "none")`, shown: (text) => text, keep: 'int kept = 7;', kept: ['kept', '7'], endless: ['while (true) {}', 'Thread.sleep(600000);'], cwd: 'System.getProperty("user.dir")', die: 'System.exit(3)', lost: /cannot find symbol/, kill: 'System.out.print("last words"); new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor(); Thread.sleep(60000);' },
}

for (const [language, { one, value, shown, keep, kept, endless, cwd, die, lost, kill }] of Object.entries(LANGUAGES))
  describe(`both: ${language}`, () => {
    test('variables of the sandbox, and of one cell', async () => {
      assert.equal((await one(value('OF_SANDBOX'))).text, shown('from the sandbox'))
      assert.equal((await one(value('FOO'), { envs: { FOO: "it's =x ü" } })).text, shown("it's =x ü"))
      assert.equal((await one(value('FOO'))).text, shown('none'))
      assert.equal((await one(value('OTHER'), { envs: { OTHER: 'two' } })).text, shown('two'))
      assert.equal((await one(value('OTHER'))).text, shown('one'))
    })
    test('contexts: a directory, a number, a restart', async () => {
      const own = await context(language, '/tmp')
      assert.deepEqual([own.language, own.cwd], [language, '/tmp'])
      assert.equal((await one(cwd, { context: own })).text, shown('/tmp'))
      assert.equal((await one(keep, { context: own })).executionCount, 2)
      await sandbox.restartCodeContext(own, { requestTimeoutMs: LONG })
      const gone = await one(kept[0], { context: own })
      assert.match(gone.error.value, lost)
      assert.equal(gone.executionCount, 1)
      await sandbox.removeCodeContext(own)
    })
    test('a cell whose client leaves is interrupted, and the kernel keeps what it has', async () => {
      const own = await context(language)
      await one(keep, { context: own })
      for (const code of endless) {
        await assert.rejects(one(code, { context: own, timeoutMs: 1500 * patience }), /timed out|timeout/i)
        assert.equal((await one(kept[0], { context: own })).text, kept[1], code)
      }
      await sandbox.removeCodeContext(own)
    })
    test('a kernel that dies is told and replaced', async () => {
      const own = await context(language)
      await one(keep, { context: own })
      const left = (await one(die, { context: own })).error
      assert.deepEqual([left.name, left.value.split(';')[0]], ['UnexpectedEndOfExecution', 'the kernel has ended with status 3'])
      assert.match((await one(kept[0], { context: own })).error.value, lost)
      const killed = await one(kill, { context: own })
      assert.deepEqual([killed.error.name, killed.logs.stdout.join('')], ['UnexpectedEndOfExecution', 'last words'])
      assert.match(killed.error.value, /signal 9/)
      await one(keep, { context: own })
      assert.equal((await one(kept[0], { context: own })).text, kept[1])
      await sandbox.removeCodeContext(own)
    })
  })

test('the languages of the small template are here as well', async () => {
  assert.equal((await run('6 * 7')).text, '42')
  assert.equal((await run('const x: number = 6; x * 7', { language: 'ts' })).text, '42')
  await assert.rejects(context('cobol'), /500/)
  const refused = await server.sandbox(sandbox.sandboxId, 49999, '/contexts', { method: 'POST', body: JSON.stringify({ language: 'cobol' }) })
  assert.equal(refused.text, "Failed to create context: there is no kernel for 'cobol'; here are python, javascript, typescript, bash, r, java")
})

test('quicksand code -l r, -l java: in the larger template without being told', async () => {
  const sum = await quicksand(server, ['code', '-l', 'r', 'x <- 6; x * 7'])
  assert.deepEqual([sum.code, sum.stdout, sum.stderr], [0, '[1] 42\n', ''])
  const text = await quicksand(server, ['code', '-l', 'Java', '"a" + 1'])
  assert.deepEqual([text.code, text.stdout, text.stderr], [0, 'a1\n', ''])
  fs.writeFileSync(path.join(server.home, 'plot.R'), 'plot(1:3)\nprint("drawn")\n')
  const plot = await quicksand(server, ['code', '-l', 'r', '-s', sandbox.sandboxId, '-f', 'plot.R'])
  assert.deepEqual([plot.code, plot.stdout], [0, '[1] "drawn"\nwrote figure-1.png\n'])
  assert.equal(fs.readFileSync(path.join(server.home, 'figure-1.png')).subarray(1, 4).toString(), 'PNG')
})
