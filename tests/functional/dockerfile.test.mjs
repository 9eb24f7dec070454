// Dockerfiles of the kind people write, built by us and by buildah on the same base, compared file by file; and the command
// line around them.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import crypto from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { Buildah, makeSmallRoot, makeToolsRoot } from '../harness/buildah.mjs'
import { binary, eventually, startServer } from '../harness/server.mjs'

const FROM = 'ARG BASE\nFROM $BASE\nUSER root\nWORKDIR /\n'

let server, buildah
// What a base itself has on our side only: the user `user` and what comes with being a sandbox.
let own = []
before(async () => {
  server = await startServer()
  buildah = new Buildah(path.join(server.home, 'buildah'))
  await addBase('small', makeSmallRoot)
  own = await same('base-itself', { files: { Dockerfile: FROM } })
})
after(async () => {
  await buildah.destroy()
  await server.destroy()
})

function start(args, { input = '', env = {} } = {}) {
  const child = spawn(binary, args, { env: { PATH: process.env.PATH, HOME: '/root', TMPDIR: server.home, ...server.clientEnv(), ...env } })
  child.stdout.setEncoding('utf8')
  child.stderr.setEncoding('utf8')
  child.seen = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => (child.seen.stdout += chunk))
  child.stderr.on('data', (chunk) => (child.seen.stderr += chunk))
  child.stdin.on('error', () => {}) // it may have ended without reading
  child.stdin.end(input)
  child.result = new Promise((done) => child.on('close', (code, signal) => done({ ...child.seen, code: signal ?? code })))
  return child
}
const quicksand = (args, options) => start(args, options).result

async function good(args, options) {
  const result = await quicksand(args, options)
  assert.equal(result.code, 0, `${args.join(' ')}: ${result.stdout}${result.stderr}`)
  return result.stdout
}

// The same root as an image of buildah's and, from an archive of it, as a template.
async function addBase(name, make) {
  const root = path.join(server.home, `root-${name}`)
  const archive = path.join(server.home, `${name}.tar`)
  fs.mkdirSync(root)
  make(root)
  await buildah.importRoot(`localhost/${name}`, root)
  await buildah.save(`localhost/${name}`, archive)
  await good(['template', 'build', name, '--from-archive', archive])
  fs.rmSync(root, { recursive: true })
  fs.rmSync(archive)
}

// files: {path: text}, or {path: {text, mode}}, or {path: {link}}.
function makeContext(name, files) {
  const folder = path.join(server.home, `context-${name}`)
  for (const [file, what] of Object.entries(files)) {
    const at = path.join(folder, file)
    fs.mkdirSync(path.dirname(at), { recursive: true })
    if (typeof what.link === 'string') fs.symlinkSync(what.link, at)
    else fs.writeFileSync(at, what.text ?? what)
    if (what.mode) fs.chmodSync(at, what.mode)
  }
  return folder
}

const python = 'import json,sqlite3,sys; print(json.dumps(sqlite3.connect(sys.argv[1]).execute(sys.argv[2], sys.argv[3:]).fetchall()))'
const query = (sql, ...values) => JSON.parse(execFileSync('python3', ['-c', python, path.join(server.data, 'store/quicksand.db'), sql, ...values], { encoding: 'utf8' }))

// The files of a build, stacked as its sandboxes see them.
function mountBuild(id) {
  const [[layers]] = query('SELECT layers FROM builds WHERE id = ?', id)
  const at = path.join(server.home, `mount-${id}`)
  const folders = layers.split(/[ ,]/).reverse().map((layer) => path.join(server.data, 'layers', layer))
  fs.mkdirSync(at)
  if (folders.length === 1) execFileSync('mount', ['--bind', folders[0], at])
  else execFileSync('mount', ['-t', 'overlay', 'overlay', '-o', `ro,lowerdir=${folders.join(':')}`, at])
  return at
}

// What every sandbox brings itself, or an engine of containers while it builds; where PATH is kept for login shells.
const expected = [/^\/(proc|sys|dev|run)(\/|$)/, /^\/etc\/(resolv\.conf|hosts|hostname|mtab|profile\.d(\/template-path\.sh)?)$/]

function describe(root, name) {
  const at = path.join(root, name)
  const st = fs.lstatSync(at)
  const type = st.isDirectory() ? 'directory' : st.isSymbolicLink() ? 'link' : st.isFile() ? 'file' : 'other'
  const content = type === 'link' ? fs.readlinkSync(at) : type === 'file' ? crypto.createHash('sha256').update(fs.readFileSync(at)).digest('hex').slice(0, 16) : ''
  return `${type} ${type === 'link' ? '' : (st.mode & 0o7777).toString(8)} ${st.uid}:${st.gid} ${content}`
}

function list(root, top = '/') {
  const found = new Map()
  const walk = (folder) => {
    for (const name of fs.readdirSync(path.join(root, folder))) {
      const at = path.posix.join(folder, name)
      if (expected.some((pattern) => pattern.test(at))) continue
      found.set(at, describe(root, at))
      if (found.get(at).startsWith('directory')) walk(at)
    }
  }
  walk(top)
  return found
}

function differences(ours, theirs) {
  const all = []
  for (const [name, what] of ours) if (theirs.get(name) !== what) all.push(`${name}: ours ${what}, theirs ${theirs.get(name) ?? 'nothing'}`)
  for (const name of theirs.keys()) if (!ours.has(name)) all.push(`${name}: ours nothing, theirs ${theirs.get(name)}`)
  return all
}

// Builds by both and compares. top: where in the root; allow: lines that may differ.
async function same(name, { base = 'small', files, options = [], top, allow = [] }) {
  const folder = makeContext(name, files)
  const out = await good(['template', 'build', name, ...options, '--build-arg', `BASE=template://${base}`, '--json', folder])
  const build = JSON.parse(out.trim().split('\n').at(-1))
  await buildah.bud(`localhost/${name}`, folder, ...options, '--build-arg', `BASE=localhost/${base}`)
  const mine = mountBuild(build.buildID)
  try {
    const theirs = await buildah.mount(`localhost/${name}`)
    return differences(list(mine, top), list(theirs, top)).filter((line) => !own.includes(line) && !allow.some((pattern) => pattern.test(line)))
  } finally {
    execFileSync('umount', [mine])
  }
}

// Runs in a new sandbox of the template.
const inside = (template, command) => good(['run', '--template', template, '--', 'sh', '-c', command])

test('the two bases are the same, but for what makes one a sandbox', () => {
  for (const line of own) assert.match(line, /^\/(etc\/|home\/user|code|bin\/bash|usr\/bin\/bash|var\/|tmp|usr\/local)/, line)
})

test('copies: files, directories, patterns, links, owners, modes', async () => {
  const found = await same('copies', {
    files: {
      Dockerfile: `${FROM}WORKDIR /app
COPY one.txt two.txt ./
COPY one.txt renamed.txt
COPY one.txt sub/
COPY src /app/src
COPY src/*.js /app/js/
COPY --chown=app:staff script.sh /usr/local/bin/
COPY --chown=1001:1002 one.txt /owned/by-number
COPY --chmod=640 one.txt /app/secret
COPY link /app/followed
COPY ["with blank.txt", "/app/with blank.txt"]
COPY --chown=app src /home/app/src
`,
      'one.txt': 'one\n',
      'two.txt': 'two\n',
      'script.sh': { text: '#!/bin/sh\necho hi\n', mode: 0o755 },
      'src/a.js': 'a',
      'src/b.js': { text: 'b', mode: 0o600 },
      'src/deep/er/c.txt': 'c',
      'src/l': { link: 'a.js' },
      'src/dangling': { link: '/nowhere' },
      link: { link: 'one.txt' },
      'with blank.txt': 'blank',
    },
  })
  assert.deepEqual(found, [])
})

test('.dockerignore', async () => {
  const found = await same('ignored', {
    files: {
      Dockerfile: `${FROM}COPY . /app/\n`,
      '.dockerignore': '# not wanted\nnode_modules\n**/*.log\n!important.log\nDockerfile\ntmp*\ndocs\n!docs/README.md\n',
      'node_modules/x/y.js': 'y',
      'a.log': 'a',
      'src/b.log': 'b',
      'important.log': 'i',
      'src/keep.js': 'k',
      tmp1: 't',
      'docs/long.md': 'd',
      'docs/README.md': 'r',
    },
  })
  assert.deepEqual(found, [])
})

test('a static server: user, entrypoint, healthcheck, ready when it is', async () => {
  const found = await same('static', {
    files: {
      Dockerfile: `${FROM}LABEL maintainer="somebody" version=1.0
RUN mkdir -p /srv/www && chown app:app /srv/www
COPY --chown=app:app index.html /srv/www/
EXPOSE 8080/tcp
USER app
WORKDIR /srv/www
ENV PORT=8080
HEALTHCHECK --interval=1s --retries=3 CMD wget -q -O /dev/null http://127.0.0.1:8080/ || exit 1
ENTRYPOINT ["httpd", "-f", "-p", "8080"]
CMD ["-h", "/srv/www"]
STOPSIGNAL SIGTERM
`,
      'index.html': '<h1>it works</h1>\n',
    },
  })
  assert.deepEqual(found, [])
  assert.equal(await inside('static', 'wget -q -O - http://127.0.0.1:8080/index.html; id -un; pwd; echo $PORT'), '<h1>it works</h1>\napp\n/srv/www\n8080\n')
})

// Debian's buildah does not know them.
test('here-documents', async () => {
  const folder = makeContext('heredocs', {
    Dockerfile: `# syntax=docker/dockerfile:1
FROM template://small
USER root
ARG WHO=world
RUN <<EOF
set -e
mkdir -p /out
echo "hello $WHO" > /out/one
EOF
RUN cat <<A > /out/two && cat <<'B' > /out/three
first $((1 + 1))
A
second $HOME
B
RUN <<SCRIPT
#!/bin/awk -f
BEGIN { print "by awk" > "/out/four" }
SCRIPT
COPY <<config.ini <<-"raw" /etc/app/
who=$WHO
config.ini
	who=$WHO
	raw
`,
  })
  await good(['template', 'build', 'heredocs', folder])
  assert.equal(await inside('heredocs', 'cd /out; cat one two three four; cat /etc/app/config.ini /etc/app/raw; stat -c %a /etc/app/raw'), 'hello world\nfirst 2\nsecond $HOME\nby awk\nwho=world\nwho=$WHO\n644\n')
})

test('ARG and ENV: scopes, defaults, operators', async () => {
  const found = await same('arguments', {
    options: ['--build-arg', 'GIVEN=given', '--build-arg', 'OVER=from the command line'],
    files: {
      Dockerfile: `ARG BASE
ARG TOP=top
FROM $BASE AS first
USER root
ARG TOP
ARG GIVEN=default
ARG OVER=default
ARG UNSET
ENV A=\${GIVEN} B="\${OVER}" C=\${UNSET:-fallback} D=\${GIVEN:+yes} E='$GIVEN' F=a\\ b
ENV OLD form of it
ENV PATH=/opt/bin:$PATH
ENV G=$A-$TOP
RUN env | grep -E '^(A|B|C|D|E|F|G|OLD|PATH|TOP|GIVEN|OVER)=' | sort > /env-first
ENV GIVEN=stronger
RUN echo "$GIVEN" > /stronger
FROM first
RUN env | grep -E '^(A|B|C|D|E|F|G|OLD|PATH|TOP|GIVEN|OVER|UNSET)=' | sort > /env-second
WORKDIR /$A
WORKDIR below
RUN pwd > /where
`,
    },
  })
  assert.deepEqual(found, [])
})

test('stages: COPY --from by name, by number, of the same base', async () => {
  const found = await same('stages', {
    files: {
      Dockerfile: `ARG BASE
FROM $BASE AS builder
USER root
RUN mkdir -p /out/sub && echo built > /out/app && chmod 750 /out/app && ln -s app /out/link && echo x > /out/sub/x && chown 12:34 /out/sub/x
FROM $BASE
USER root
RUN echo other > /other
FROM $BASE AS unused
RUN exit 1
FROM scratch AS files
COPY only.txt /only/
FROM builder AS more
RUN echo more >> /out/app
FROM $BASE
USER root
COPY --from=builder /out /opt/app
COPY --from=1 /other /opt/
COPY --from=more --chown=app:app /out/app /opt/more
COPY --from=builder /out/sub/* /opt/flat/
COPY --from=files /only/ /opt/only/
`,
      'only.txt': 'only',
    },
  })
  assert.deepEqual(found, [])
})

test('ADD: archives are unpacked, others are copied', async () => {
  const folder = makeContext('archives-made', { 'in/a.txt': 'a', 'in/b/c.sh': { text: '#!/bin/sh\n', mode: 0o755 }, 'in/l': { link: 'a.txt' } })
  const archives = [['plain.tar', '-cf'], ['packed.tar.gz', '-czf'], ['packed.tar.xz', '-cJf']]
  for (const [name, flag] of archives) execFileSync('tar', ['-C', folder, '--owner=5', '--group=6', flag, path.join(folder, name), 'in'])
  const read = (name) => fs.readFileSync(path.join(folder, name))
  const found = await same('archives', {
    files: {
      Dockerfile: `${FROM}ADD plain.tar /plain/
ADD packed.tar.gz packed.tar.xz /both/
ADD file.txt /file/
COPY plain.tar /kept/
ADD --chown=app:app file.txt /mine
`,
      'plain.tar': read('plain.tar'),
      'packed.tar.gz': read('packed.tar.gz'),
      'packed.tar.xz': read('packed.tar.xz'),
      'file.txt': 'f',
    },
  })
  assert.deepEqual(found, [])
})

test('SHELL, exec form, users, removed and replaced files, volumes', async () => {
  const found = await same('shells', {
    files: {
      Dockerfile: `${FROM}SHELL ["/bin/busybox", "sh", "-e", "-c"]
RUN echo shell > /shell; false | true
RUN ["/bin/sh", "-c", "echo exec $0 > /exec", "name"]
RUN mkdir /d && echo 1 > /d/1 && echo 2 > /d/2
RUN rm -r /d && mkdir /d && echo 3 > /d/3
RUN rm /bin/wget && ln -sf cat /bin/tac2
USER app
RUN id -u > /tmp/id && echo $HOME > /tmp/home
WORKDIR /home/app/work
USER root
RUN touch mine && chmod 1777 /home/app/work && chown app /d
VOLUME /data
VOLUME ["/data/one", "/data/two"]
`,
    },
    allow: [/^\/data.*theirs nothing$/], // made when a container starts
  })
  assert.deepEqual(found, [])
})

test('a C program built in one stage, alone in the next', async () => {
  await addBase('tools', makeToolsRoot)
  const found = await same('c-build', {
    base: 'tools',
    top: '/opt',
    files: {
      Dockerfile: `ARG BASE
FROM $BASE AS build
USER root
WORKDIR /src
COPY Makefile *.c ./
RUN make
FROM $BASE
USER root
COPY --from=build /src/hello /opt/bin/hello
RUN /opt/bin/hello > /opt/said
`,
      Makefile: 'hello: main.c\n\tgcc -O1 -static -Wl,--build-id=none -o hello main.c\n',
      'main.c': '#include <stdio.h>\nint main(void) { puts("hello from C"); return 0; }\n',
    },
  })
  assert.deepEqual(found, [])
  assert.equal(await inside('c-build', '/opt/bin/hello'), 'hello from C\n')
})

// A package as `pip` wants it, made here.
function makeWheel(file) {
  const script = `import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    z.writestr('greet.py', 'def hello():\\n    return "hello from pip"\\n')
    z.writestr('greet-1.2.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greet\\nVersion: 1.2\\n')
    z.writestr('greet-1.2.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr('greet-1.2.dist-info/RECORD', 'greet.py,,\\ngreet-1.2.dist-info/METADATA,,\\ngreet-1.2.dist-info/WHEEL,,\\ngreet-1.2.dist-info/RECORD,,\\n')
`
  execFileSync('python3', ['-c', script, file])
  return fs.readFileSync(file)
}

test('Python with pip from a local index', async () => {
  const found = await same('pip-app', {
    base: 'tools',
    top: '/app',
    files: {
      Dockerfile: `${FROM}WORKDIR /app
COPY requirements.txt .
COPY index /index/
RUN pip install --no-cache-dir --no-compile --no-index --find-links /index --target /app/lib -r requirements.txt && rm -r /index
COPY app.py .
ENV PYTHONPATH=/app/lib PYTHONDONTWRITEBYTECODE=1
RUN python3 app.py > said
CMD ["python3", "app.py"]
`,
      'requirements.txt': 'greet==1.2\n',
      'index/greet-1.2-py3-none-any.whl': makeWheel(path.join(server.home, 'greet-1.2-py3-none-any.whl')),
      'app.py': 'import greet\nprint(greet.hello())\n',
    },
  })
  assert.deepEqual(found, [])
  assert.equal(await inside('pip-app', 'cd /app && python3 app.py'), 'hello from pip\n')
})

// On the base template: too large to be an image of buildah's as well.
test('a Node.js application, as a user, with its start command', async () => {
  const folder = makeContext('node-app', {
    Dockerfile: `FROM template://base
USER root
WORKDIR /srv/app
COPY package*.json ./
RUN npm install --offline --no-audit && node -e "require('fs').writeFileSync('built.json', process.versions.node.split('.')[0])"
COPY . .
RUN chown -R user /srv/app
USER user
ENV NODE_ENV=production PORT=3000
EXPOSE 3000
CMD ["node", "server.js"]
`,
    '.dockerignore': 'node_modules\nDockerfile\n.dockerignore\n',
    'package.json': '{"name":"app","version":"1.0.0"}\n',
    'node_modules/old/index.js': 'old',
    'server.js': "require('http').createServer((q, s) => s.end('hello from node\\n')).listen(process.env.PORT)\n",
  })
  await good(['template', 'build', 'node-app', folder])
  assert.equal(await inside('node-app', 'curl -s http://127.0.0.1:3000; id -un; pwd; echo $NODE_ENV; ls -A; stat -c %U server.js'), 'hello from node\nuser\n/srv/app\nproduction\nbuilt.json\npackage-lock.json\npackage.json\nserver.js\nuser\n')
})

// ---- mounts ----

test('mounts of RUN: secrets leave nothing, caches stay, what is bound is seen', async () => {
  const folder = makeContext('mounts', {
    Dockerfile: `FROM template://small AS made
USER root
RUN mkdir /made && echo made > /made/file
FROM template://small
USER root
RUN --mount=type=secret,id=token,required cat /run/secrets/token | sha256sum > /hash
RUN --mount=type=secret,id=none test ! -e /run/secrets/none
RUN --mount=type=cache,target=/cache echo x >> /cache/count; wc -l < /cache/count > /count
RUN --mount=type=bind,source=src,target=/mnt/src cp /mnt/src/a /copied
RUN --mount=type=bind,from=made,source=/made,target=/mnt/made cat /mnt/made/file > /from-made
`,
    'src/a': 'bound\n',
    token: 'very secret',
  })
  const out = await good(['template', 'build', 'mounts', '--secret', `id=token,src=${folder}/token`, folder])
  assert.ok(!out.includes('very secret'))
  const hash = crypto.createHash('sha256').update('very secret').digest('hex')
  assert.equal(await inside('mounts', 'cut -c1-64 /hash; cat /count /copied /from-made; ls -d /run/secrets /cache/count 2>/dev/null; true'), `${hash}\n1\nbound\nmade\n`)
  fs.writeFileSync(path.join(folder, 'Missing'), 'FROM template://small\nRUN --mount=type=secret,id=token,required cat /run/secrets/token\n')
  const missing = await quicksand(['template', 'build', 'mounts-bad', '-f', path.join(folder, 'Missing'), folder])
  assert.equal(missing.code, 1)
  assert.match(missing.stderr, /token/)
})

// ---- the command line ----

test('a step that fails: its line, its output, exit code 1', async () => {
  const folder = makeContext('failing', { Dockerfile: 'FROM template://small\n\nRUN echo fine\nRUN echo oops >&2; \\\n  exit 7\n' })
  const result = await quicksand(['template', 'build', 'failing', folder])
  assert.equal(result.code, 1)
  assert.match(result.stdout, /oops/)
  assert.match(result.stderr, /Dockerfile:4: RUN echo oops[^]*step 2 failed: .*exit status 7/)
  const logs = await good(['template', 'logs', 'failing'])
  assert.match(logs, /oops/)
})

test('faults are told before anything is sent', async () => {
  const folder = makeContext('faulty', { Dockerfile: 'FROM template://small\nCOPY nothing /x\n', Other: 'FROM template://small\nRNU x\n' })
  const missing = await quicksand(['template', 'build', 'faulty', folder])
  assert.deepEqual([missing.code, missing.stderr.split(': ').slice(1).join(': ')], [1, `${missing.stderr.split(': ')[1]}: 'nothing' is not in the context\n`])
  assert.match(missing.stderr, /Dockerfile:2: /)
  const unknown = await quicksand(['template', 'build', 'faulty', '-f', path.join(folder, 'Other'), folder])
  assert.match(unknown.stderr, /Other:2: 'RNU' is no instruction; did you mean RUN\?/)
  assert.ok(!(await good(['template', 'ls'])).includes('faulty'))
})

test('what did not change is neither sent nor run again; --no-cache runs all', async () => {
  const folder = makeContext('again', { Dockerfile: 'FROM template://small\nCOPY a /a\nRUN echo $((6 * 7)) > /tmp/b\n', a: 'a' })
  const first = await good(['template', 'build', 'again', folder])
  assert.match(first, /uploading/)
  fs.utimesSync(path.join(folder, 'a'), 1, 1)
  const second = await good(['template', 'build', 'again', folder])
  assert.ok(!second.includes('uploading'), second)
  assert.equal(second.match(/CACHED \[builder /g).length, 2, second)
  const third = await good(['template', 'build', '--no-cache', 'again', folder])
  assert.ok(!third.includes('CACHED [builder'), third)
})

test('settings of e2b.toml, flags win; tags, show, ls, logs, rm', async () => {
  const folder = makeContext('settings', {
    'e2b.toml': 'template_name = "from-settings"\ndockerfile = "My.Dockerfile"\ncpu_count = 4\nmemory_mb = 256\n',
    'My.Dockerfile': 'FROM template://small\nRUN true\n',
  })
  const built = JSON.parse((await good(['template', 'build', '--config', path.join(folder, 'e2b.toml'), '--json', '--memory', '512', '--tag', 'v1', '--tag', 'v2', 'from-settings', folder])).trim().split('\n').at(-1))
  assert.deepEqual([...built.tags].sort(), ['v1', 'v2'])
  const shown = JSON.parse(await good(['template', 'show', '--json', 'from-settings']))
  assert.deepEqual([shown.builds[0].cpuCount, shown.builds[0].memoryMB], [4, 512])
  await good(['template', 'tag', 'from-settings:v1', 'stable'])
  assert.match(await good(['template', 'show', 'from-settings']), /stable/)
  await good(['template', 'tag', '--rm', 'from-settings', 'v2'])
  assert.ok(!/\bv2\b/.test(await good(['template', 'show', 'from-settings'])))
  const listed = JSON.parse(await good(['template', 'ls', '--json'])).find(({ names }) => names[0].endsWith('/from-settings'))
  assert.ok(listed.layerCount >= 1 && listed.layerBytes > 100_000, JSON.stringify(listed))
  assert.match(await good(['template', 'ls']), /from-settings .* \d+(\.\d)? [KMG]iB +\d+ /)
  assert.match(await good(['template', 'logs', 'from-settings']), /RUN true/)
  await good(['template', 'rm', 'from-settings'])
  assert.ok(!(await good(['template', 'ls'])).includes('from-settings'))
})

test('Ctrl-C cancels the build and leaves nothing of it running', async () => {
  const folder = makeContext('endless', { Dockerfile: 'FROM template://small\nRUN echo begun; sleep 1000\n' })
  const child = start(['template', 'build', 'endless', folder])
  await eventually('the step runs', () => child.seen.stdout.includes('[stdout]: begun'))
  const before = performance.now()
  child.kill('SIGINT')
  const result = await child.result
  assert.equal(result.code, 1, result.stderr)
  assert.match(result.stderr, /cancelled/)
  assert.ok(performance.now() - before < 10_000)
  const shown = JSON.parse(await good(['template', 'show', '--json', 'endless']))
  assert.equal(shown.builds[0].status, 'error')
  await eventually('no box is left', () => !execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' }).includes('sleep 1000'))
})

// `script` gives it a terminal. What is left of the lines that were written again stays.
function onTerminal(args) {
  const command = [binary, 'template', 'build', ...args].join(' ')
  return execFileSync('script', ['-qec', command, '/dev/null'], { encoding: 'utf8', env: { PATH: process.env.PATH, HOME: '/root', TERM: 'xterm', TMPDIR: server.home, ...server.clientEnv() } })
}
const stays = (text) => text.split('\r\n').map((line) => line.split(/\r(?:\x1b\[K)?/).at(-1)).filter(Boolean)

test('on a terminal the upload is in the same line as the steps, and the second step has an estimate', () => {
  const folder = makeContext('uploaded', { Dockerfile: 'FROM template://small\nCOPY a /a\nRUN sleep 1\n', a: crypto.randomBytes(100_000) })
  const out = onTerminal(['uploaded', folder])
  assert.match(out, /\r\x1b\[Kuploading 1 file, \d+(\.\d)? KiB/)
  assert.match(out, /\r\x1b\[K\[builder 2\/2\] RUN sleep 1  \d\.\d s, about \d+ s left/)
  assert.match(stays(out).join('\n'), /^uploaded is ready .*$/, 'nothing else stays')
})

test('on a terminal a build is one line, with the time and what is left of it', async () => {
  const folder = makeContext('terminal', { Dockerfile: 'FROM template://small\nRUN for i in 1 2 3; do echo line $i; sleep 0.2; done\n' })
  const out = onTerminal(['terminal', folder])
  assert.match(out, /\r\x1b\[K\[builder 1\/1\] RUN for i/)
  assert.match(out, /\x1b\[2mline \d/)
  assert.match(out, /\d\.\d s/)
  assert.doesNotMatch(out, /left/, 'the only step says nothing about the time left')
  assert.match(stays(out).join('\n'), /^terminal is ready .*$/, 'nothing else stays')
  assert.match(onTerminal(['terminal', folder, '--no-cache']), /\[builder 1\/1\] RUN for i.*  \d\.\d s, about \d+ s left/, 'the second build knows how long the first took')
})
