// The kernel of JavaScript and TypeScript. Descriptor 3 is its socket to the interpreter: cells come as lines of JSON, frames go
// back ("KIND LENGTH\n" and as many bytes: k it is there, r a result, e an error, d the cell has ended).
//
// A cell is rewritten before it is run, so that it works like one of a notebook: import statements become calls, what is declared at
// the top stays for the next cells and may be declared again, await works there, and the last expression is the cell's value.
'use strict'
const acorn = require('/usr/share/nodejs/acorn') // Debian's
const fs = require('fs')
const net = require('net')
const path = require('path')
const util = require('util')
const vm = require('vm')
const { createRequire } = require('module')

const ASYNC = '__quicksand_import'

// ---- the socket ----

// Written at once and whole: a cell that keeps the process busy must not hold back what it has shown.
function send(kind, body = '') {
  const bytes = Buffer.concat([Buffer.from(`${kind} ${Buffer.byteLength(body)}\n`), Buffer.from(body)])
  for (let at = 0; at < bytes.length; ) {
    try {
      at += fs.writeSync(3, bytes, at)
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1)
    }
  }
}

const sendLine = (kind, line) => send(kind, JSON.stringify(line))

// ---- rewriting ----

const parse = (code) => acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true, allowReturnOutsideFunction: false, allowHashBang: true })

// The names that a pattern of a declaration binds.
function namesOf(pattern, out = []) {
  if (!pattern) return out
  if (pattern.type === 'Identifier') out.push(pattern.name)
  else if (pattern.type === 'ObjectPattern') pattern.properties.forEach((one) => namesOf(one.type === 'RestElement' ? one.argument : one.value, out))
  else if (pattern.type === 'ArrayPattern') pattern.elements.forEach((one) => namesOf(one, out))
  else if (pattern.type === 'AssignmentPattern') namesOf(pattern.left, out)
  else if (pattern.type === 'RestElement') namesOf(pattern.argument, out)
  return out
}

const isFunction = (node) => /Function/.test(node.type)

// Is there an await outside of functions?
function awaits(node) {
  if (!node || typeof node !== 'object') return false
  if (Array.isArray(node)) return node.some(awaits)
  if (!node.type || isFunction(node)) return false
  if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) return true
  return Object.values(node).some((value) => value && typeof value === 'object' && awaits(value))
}

// import a, {b as c}, * as d from 'm'
function importText(node, names) {
  const from = `await ${ASYNC}(${node.source.raw})`
  if (!node.specifiers.length) return `${from};`
  const all = `__quicksand_module_${node.start}`
  const parts = [`const ${all} = ${from};`]
  for (const one of node.specifiers) {
    const value = one.type === 'ImportNamespaceSpecifier' ? all : one.type === 'ImportDefaultSpecifier' ? `(${all}.default ?? ${all})` : `${all}[${JSON.stringify(one.imported.name ?? one.imported.value)}]`
    names.push(one.local.name)
    parts.push(`${one.local.name} = ${value};`)
  }
  return parts.join(' ')
}

// Declarations at the top become assignments to names that are declared before.
function statementText(code, node, names) {
  const own = (at) => code.slice(at.start, at.end)
  if (node.type === 'ImportDeclaration') return importText(node, names)
  if (/^Export/.test(node.type)) return node.declaration ? statementText(code, node.declaration, names) : ''
  if (node.type === 'VariableDeclaration') {
    const parts = node.declarations.map((one) => {
      namesOf(one.id, names)
      return one.init ? `(${own(one.id)} = ${own(one.init)})` : `(${own(one.id)} = undefined)`
    })
    return `void ${parts.length > 1 ? `(${parts.join(', ')})` : parts[0]};`
  }
  if ((node.type === 'FunctionDeclaration' || node.type === 'ClassDeclaration') && node.id) {
    names.push(node.id.name)
    return `void (${node.id.name} = ${own(node)});`
  }
  return own(node)
}

// {text, wrapped}: wrapped text is an async function's, whose value is in a list, since promises would melt otherwise.
function rewrite(code) {
  const tree = parse(code)
  const names = []
  const wrapped = tree.body.some((node) => node.type === 'ImportDeclaration' || awaits(node))
  const functions = tree.body.filter((node) => node.type === 'FunctionDeclaration')
  const others = tree.body.filter((node) => node.type !== 'FunctionDeclaration')
  const last = others.at(-1)
  const lines = functions.map((node) => statementText(code, node, names))
  for (const node of others) {
    if (node === last && node.type === 'ExpressionStatement') lines.push(wrapped ? `return [(${code.slice(node.expression.start, node.expression.end)}\n)];` : `(${code.slice(node.expression.start, node.expression.end)}\n);`)
    else lines.push(statementText(code, node, names))
  }
  if (!wrapped && last?.type !== 'ExpressionStatement') lines.push(';undefined')
  const body = lines.join('\n')
  const declared = names.length ? `var ${[...new Set(names)].join(', ')};\n` : ''
  return { text: wrapped ? `${declared}(async () => {\n${body}\n})()` : declared + body, wrapped }
}

function stripTypes(code) {
  const done = require('child_process').spawnSync('esbuild', ['--loader=ts', '--format=esm', '--target=es2022', '--log-level=error', '--color=false', '--tsconfig-raw={"compilerOptions":{"preserveValueImports":true,"importsNotUsedAsValues":"remove"}}'], { input: code, encoding: 'utf8' })
  if (done.error) throw done.error
  if (done.status !== 0) throw new SyntaxError(done.stderr.trim())
  return done.stdout
}

// ---- what is shown ----

const isObject = (value) => value !== null && typeof value === 'object'

function jsonOf(value) {
  if (!Array.isArray(value) && (!isObject(value) || Object.getPrototypeOf(value) !== Object.prototype)) return undefined
  try {
    return JSON.parse(JSON.stringify(value))
  } catch {
    return undefined
  }
}

const FIELDS = { 'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png', 'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json', 'application/javascript': 'javascript' }

// display({'image/png': '…'}) shows what a MIME type says; everything else is shown as the value of a cell is.
function bundleOf(value) {
  if (isObject(value) && Object.keys(value).length && Object.keys(value).every((key) => key.includes('/'))) return value
  const bundle = { 'text/plain': typeof value === 'string' ? value : util.inspect(value, { maxArrayLength: null, maxStringLength: null }) }
  const json = jsonOf(value)
  if (json !== undefined) bundle['application/json'] = json
  return bundle
}

function sendResult(value, main) {
  const line = { type: 'result', is_main_result: main }
  const extra = {}
  for (const [mime, content] of Object.entries(bundleOf(value))) {
    const shown = Buffer.isBuffer(content) ? content.toString('base64') : content
    if (FIELDS[mime]) line[FIELDS[mime]] = shown
    else extra[mime] = shown
  }
  sendLine('r', { ...line, extra })
}

function sendError(error) {
  const known = isObject(error) && 'stack' in error
  sendLine('e', { type: 'error', name: String(known ? error.name : 'Error'), value: String(known ? error.message : util.inspect(error)), traceback: String(known ? error.stack : util.inspect(error)) })
}

// ---- running ----

let interrupt = null
process.on('SIGINT', () => interrupt?.())
process.on('uncaughtException', (error) => process.stderr.write(`${error?.stack ?? error}\n`))
process.on('unhandledRejection', (error) => process.stderr.write(`${error?.stack ?? error}\n`))

globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'))
globalThis.module = { exports: {} }
globalThis.exports = globalThis.module.exports
globalThis.display = (value) => sendResult(value, false)
Object.defineProperty(globalThis, ASYNC, {
  value: (name) => (/^\.{0,2}\//.test(name) ? import(path.resolve(name)) : import(name).catch((error) => {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error
    return import(globalThis.require.resolve(name))
  })),
})

async function runCode(request) {
  const code = request.language === 'typescript' ? stripTypes(request.code) : request.code
  const { text, wrapped } = rewrite(code)
  const interrupted = new Promise((_, fail) => (interrupt = () => fail(Object.assign(new Error('the cell was interrupted'), { name: 'KeyboardInterrupt' }))))
  interrupted.catch(() => {})
  const value = vm.runInThisContext(text, { filename: 'cell', breakOnSigint: true, importModuleDynamically: (name) => globalThis[ASYNC](name) })
  if (!wrapped && !util.types.isPromise(value)) return value
  const settled = await Promise.race([value, interrupted])
  return wrapped ? await Promise.race([settled?.[0], interrupted]) : settled
}

function setVariables(values) {
  const before = {}
  for (const [name, value] of Object.entries(values ?? {})) {
    if (typeof value !== 'string' || !name || name.includes('=') || /\0/.test(name + value)) continue
    before[name] = process.env[name]
    process.env[name] = value
  }
  return () => {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
    }
  }
}

async function runCell(request) {
  setVariables(request.globals)
  const restore = setVariables(request.envs)
  try {
    const value = await runCode(request)
    if (value !== undefined) sendResult(value, true)
  } catch (error) {
    sendError(error)
  }
  interrupt = null
  restore()
  send('d')
}

const socket = new net.Socket({ fd: 3, readable: true, writable: false })
let pending = []
socket.on('data', (chunk) => {
  const end = chunk.indexOf(10)
  pending.push(end < 0 ? chunk : chunk.subarray(0, end))
  if (end < 0) return
  const line = Buffer.concat(pending).toString()
  pending = end + 1 < chunk.length ? [chunk.subarray(end + 1)] : []
  runCell(JSON.parse(line))
})
socket.on('close', () => process.exit(0))
send('k')
