// Templates through the published SDK: every kind of step, what sandboxes of them are like, tags, background builds,
// logs, failures with the right step, the cache.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { loadSdk, only } from '../harness/sdk.mjs'
import { eventually, startServer } from '../harness/server.mjs'

let server, context
before(async () => {
  server = await startServer()
  context = fs.mkdtempSync(path.join(os.tmpdir(), 'template-context-'))
  const write = (name, text, mode = 0o644) => {
    fs.mkdirSync(path.dirname(path.join(context, name)), { recursive: true })
    fs.writeFileSync(path.join(context, name), text, { mode })
  }
  write('folder/test.txt', 'This is a test file.')
  fs.symlinkSync('test.txt', path.join(context, 'folder/symlink.txt'))
  fs.symlinkSync(path.join(context, 'folder/test.txt'), path.join(context, 'folder/symlink2.txt'))
  fs.symlinkSync('12345test.txt', path.join(context, 'folder/symlink3.txt'))
  write('app/run.sh', '#!/bin/sh\necho ran\n', 0o755)
  write('app/src/a.js', 'a')
  write('app/src/b.js', 'b')
  write('app/src/notes.md', 'n')
  write('app/src/deep/c.js', 'c')
  write('app/secret.env', 'never')
  write('.dockerignore', '# no secrets\n**/*.env\n')
})
after(async () => {
  await server?.destroy()
  if (context) fs.rmSync(context, { recursive: true, force: true })
})

for (const version of only(['2.45.0', 'latest'])) {
  describe(`SDK ${version}`, () => {
    const suffix = version.replaceAll('.', '-')
    let sdk, Template, Sandbox
    before(async () => {
      sdk = await loadSdk(server, version)
      ;({ Template, Sandbox } = sdk)
    })

    const recipe = () => Template({ fileContextPath: context })

    // Builds it; gives what build() gave, and the log's messages.
    async function build(template, name, options = {}) {
      const logs = []
      const info = await Template.build(template, `${name}-${suffix}`, { onBuildLogs: (entry) => logs.push(entry), ...options })
      return { ...info, logs, text: logs.map((entry) => entry.message).join('\n') }
    }

    // Runs one command in a new sandbox of the template.
    async function inSandbox(name, use) {
      const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 })
      try {
        return await use(sandbox)
      } finally {
        await sandbox.kill()
      }
    }
    const output = (name, command, options) => inSandbox(name, async (sandbox) => (await sandbox.commands.run(command, options)).stdout.trim())

    test('from the base template, no steps', async () => {
      const info = await build(Template().fromTemplate('base'), 'plain')
      assert.match(info.buildId, /^[0-9a-f-]{36}$/)
      assert.equal(await output(`plain-${suffix}`, 'whoami; pwd'), 'user\n/home/user')
    })

    test('from the base image: copy, run, workdir, start command', async () => {
      const template = recipe()
        .fromBaseImage()
        .copy('folder/*', 'folder', { forceUpload: true })
        .runCmd('cat folder/test.txt')
        .setWorkdir('/app')
        .setStartCmd('echo "Hello, world!"', sdk.waitForTimeout(1000))
      const info = await build(template, 'first', { skipCache: true })
      assert.match(info.text, /\[builder 1\/3\] COPY folder/, info.text)
      assert.match(info.text, /\[builder 2\/3\] RUN cat folder\/test.txt/)
      assert.match(info.text, /This is a test file\./)
      assert.match(info.text, /Running start command/)
      assert.match(info.text, /Template is ready/)
      assert.equal(await output(`first-${suffix}`, 'pwd; cat ~/folder/test.txt'), '/app\nThis is a test file.')
    })

    test('run: several commands, another user, a login shell', async () => {
      const info = await build(
        Template()
          .fromTemplate('base')
          .runCmd(['echo one > /tmp/x', 'echo two >> /tmp/x'])
          .runCmd('test "$(whoami)" = root && touch /root/made', { user: 'root' })
          .runCmd('shopt -q login_shell && touch ~/login')
          .runCmd('echo to-stdout; echo to-stderr >&2'),
        'run',
      )
      assert.match(info.text, /to-stdout/)
      assert.match(info.text, /to-stderr/)
      await inSandbox(`run-${suffix}`, async (sandbox) => {
        assert.equal((await sandbox.commands.run('cat /tmp/x')).stdout, 'one\ntwo\n')
        await sandbox.commands.run('test -e /root/made', { user: 'root' })
        assert.equal((await sandbox.commands.run('stat -c %U ~/login')).stdout, 'user\n')
      })
    })

    test('environment: quoting, expansion, several lines, no command is run', async () => {
      const pem = '-----BEGIN KEY-----\nMIIB+/=\n-----END KEY-----\n'
      await build(
        Template()
          .fromTemplate('base')
          .setEnvs({ PLAIN: 'one', QUOTED: `it's "quoted" \`not run\` $(touch /tmp/pwned)`, PEM: pem })
          .setEnvs({ NEXT: '$PLAIN-two', PATH: '/opt/tool/bin:$PATH' })
          .setEnvs({ PATH: '/opt/other/bin:$PATH' })
          .runCmd('test "$PLAIN" = one && test ! -e /tmp/pwned && echo "$NEXT" > ~/seen'),
        'env',
      )
      await inSandbox(`env-${suffix}`, async (sandbox) => {
        const get = async (name) => (await sandbox.commands.run(`printf %s "$${name}"`)).stdout
        assert.equal(await get('PLAIN'), 'one')
        assert.equal(await get('NEXT'), 'one-two')
        assert.equal(await get('QUOTED'), `it's "quoted" \`not run\` $(touch /tmp/pwned)`)
        assert.equal(await get('PEM'), pem)
        assert.match(await get('PATH'), /^\/opt\/other\/bin:\/opt\/tool\/bin:.*\/usr\/bin/)
        assert.equal((await sandbox.commands.run('cat ~/seen; ls /tmp/pwned 2>/dev/null; true')).stdout, 'one-two\n')
      })
      const own = await Sandbox.create(`env-${suffix}`, { envs: { PLAIN: 'mine' } })
      assert.equal((await own.commands.run('echo $PLAIN $NEXT')).stdout, 'mine one-two\n')
      await own.kill()
    })

    test('workdir and user persist', async () => {
      await build(
        Template()
          .fromTemplate('base')
          .setWorkdir('/srv/app')
          .runCmd('pwd > ~/first')
          .setUser('root')
          .runCmd('whoami > /where; pwd >> /where')
          .setWorkdir('sub')
          .runCmd('pwd >> /where'),
        'place',
      )
      assert.equal(await output(`place-${suffix}`, 'whoami; pwd; cat /where /home/user/first'), 'root\n/srv/app/sub\nroot\n/srv/app\n/srv/app/sub\n/srv/app')
    })

    test('copy: directories, globs, modes, owners, ignored files', async () => {
      await build(
        recipe()
          .fromTemplate('base')
          .copy('app', '/app')
          .copy('app/src/*.js', '/js/')
          .copy('folder/test.txt', '/etc/test.conf', { user: 'root', mode: 0o600 })
          .copy(['app/run.sh', 'folder/test.txt'], 'both/')
          .copyItems([{ src: 'app/run.sh', dest: '/usr/local/bin/tool', user: 'root', mode: 0o755 }]),
        'copy',
      )
      await inSandbox(`copy-${suffix}`, async (sandbox) => {
        const find = async (where) => (await sandbox.commands.run(`cd ${where} && find . -type f | sort`)).stdout.trim().split('\n')
        assert.deepEqual(await find('/app'), ['./run.sh', './src/a.js', './src/b.js', './src/deep/c.js', './src/notes.md'])
        assert.deepEqual(await find('/js'), ['./a.js', './b.js'])
        assert.deepEqual(await find('/home/user/both'), ['./run.sh', './test.txt'])
        const stat = async (file) => (await sandbox.commands.run(`stat -c '%a %U:%G' ${file}`, { user: 'root' })).stdout.trim()
        assert.equal(await stat('/app/run.sh'), '755 user:user')
        assert.equal(await stat('/app/src/a.js'), '644 user:user')
        assert.equal(await stat('/etc/test.conf'), '600 root:root')
        assert.equal(await stat('/usr/local/bin/tool'), '755 root:root')
        assert.equal((await sandbox.commands.run('tool')).stdout, 'ran\n')
      })
    })

    test('copy: symbolic links, as they are or resolved', async () => {
      await build(
        recipe()
          .fromTemplate('base')
          .copy('folder/*', 'folder', { forceUpload: true })
          .runCmd('cat folder/symlink.txt')
          .copy('folder/symlink.txt', 'resolved.txt', { forceUpload: true, resolveSymlinks: true }),
        'links',
      )
      await inSandbox(`links-${suffix}`, async (sandbox) => {
        const links = await sandbox.commands.run('cd folder; for l in symlink.txt symlink2.txt symlink3.txt; do readlink $l; done; test ! -L ~/resolved.txt && cat ~/resolved.txt')
        assert.equal(links.stdout, `test.txt\n${path.join(context, 'folder/test.txt')}\n12345test.txt\nThis is a test file.`)
      })
    })

    test('files: remove, rename, make a directory, make a link', async () => {
      await build(
        Template()
          .fromTemplate('base')
          .runCmd('echo a > a; echo b > b; mkdir -p tree/x')
          .remove('a')
          .remove('tree', { recursive: true, force: true })
          .rename('b', 'c')
          .makeDir(['one', 'two'], { mode: 0o700 })
          .makeSymlink('.bashrc', '.bashrc.local')
          .makeSymlink('.bashrc', '.bashrc.local', { force: true })
          .runCmd('test "$(readlink .bashrc.local)" = ".bashrc"'),
        'files',
      )
      assert.equal(await output(`files-${suffix}`, 'ls; stat -c %a one'), 'c\none\ntwo\n700')
    })

    test('clone of a repository', async () => {
      const clone = path.join(context, 'repository')
      fs.mkdirSync(clone, { recursive: true })
      const git = (...args) => execFileSync('git', ['-C', clone, '-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { stdio: 'pipe' })
      git('init', '-q', '-b', 'main')
      fs.writeFileSync(path.join(clone, 'README'), 'cloned')
      git('add', '.')
      git('commit', '-q', '-m', 'first')
      const bare = path.join(context, 'bare.git')
      execFileSync('git', ['clone', '-q', '--bare', clone, bare])
      await build(recipe().fromTemplate('base').copy('bare.git', '/home/user/bare.git').gitClone('/home/user/bare.git', 'work', { branch: 'main' }), 'clone')
      assert.equal(await output(`clone-${suffix}`, 'cat work/README'), 'cloned')
      fs.rmSync(clone, { recursive: true })
      fs.rmSync(bare, { recursive: true })
    })

    test('packages: npm, pip and apt, from files', async () => {
      const folder = path.join(context, 'packages')
      fs.mkdirSync(path.join(folder, 'package'), { recursive: true })
      fs.writeFileSync(path.join(folder, 'package/package.json'), '{"name":"said","version":"1.0.0","bin":{"said":"said.js"}}')
      fs.writeFileSync(path.join(folder, 'package/said.js'), '#!/usr/bin/env node\nconsole.log("by npm")\n', { mode: 0o755 })
      execFileSync('tar', ['-C', folder, '-czf', path.join(folder, 'said-1.0.0.tgz'), 'package'])
      const wheel = `
import zipfile
with zipfile.ZipFile("told-1.0-py3-none-any.whl", "w") as z:
    z.writestr("told.py", "def say(): print('by pip')\\n")
    z.writestr("told-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: told\\nVersion: 1.0\\n")
    z.writestr("told-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    z.writestr("told-1.0.dist-info/RECORD", "told.py,,\\ntold-1.0.dist-info/METADATA,,\\ntold-1.0.dist-info/WHEEL,,\\ntold-1.0.dist-info/RECORD,,\\n")
`
      execFileSync('python3', ['-c', wheel], { cwd: folder })
      fs.mkdirSync(path.join(folder, 'deb/DEBIAN'), { recursive: true })
      fs.mkdirSync(path.join(folder, 'deb/opt'))
      fs.writeFileSync(path.join(folder, 'deb/DEBIAN/control'), 'Package: spoken\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.com>\nDescription: t\n')
      fs.writeFileSync(path.join(folder, 'deb/opt/spoken'), 'by apt\n')
      execFileSync('dpkg-deb', ['--root-owner-group', '-b', path.join(folder, 'deb'), path.join(folder, 'spoken.deb')], { stdio: 'pipe' })
      await build(
        recipe()
          .fromTemplate('base')
          .copy('packages/*.*', '/packages/')
          .npmInstall('/packages/said-1.0.0.tgz', { g: true })
          .setEnvs({ PIP_BREAK_SYSTEM_PACKAGES: '1', PIP_NO_INDEX: '1' })
          .pipInstall('/packages/told-1.0-py3-none-any.whl')
          .pipInstall('/packages/told-1.0-py3-none-any.whl', { g: false })
          .runCmd('rm -rf /etc/apt/sources.list*', { user: 'root' })
          .aptInstall('/packages/spoken.deb', { noInstallRecommends: true }),
        'packages',
      )
      assert.equal(await output(`packages-${suffix}`, 'said; python3 -c "import told; told.say()"; cat /opt/spoken'), 'by npm\nby pip\nby apt')
      fs.rmSync(folder, { recursive: true })
    })

    test('start command: it runs in each new sandbox, and create waits for it', async () => {
      const info = await build(
        Template()
          .fromTemplate('base')
          .setStartCmd('sleep 1; cd /tmp && echo started > log && exec python3 -m http.server 8123', sdk.waitForPort(8123)),
        'start',
      )
      assert.match(info.text, /Running start command/)
      assert.match(info.text, /Waiting for template to be ready/)
      assert.match(info.text, /Template is ready/)
      assert.equal(await output(`start-${suffix}`, 'curl -s http://127.0.0.1:8123/log'), 'started')
      // What is built on it has it too.
      await build(Template().fromTemplate(`start-${suffix}`).runCmd('echo more > ~/more'), 'start-more')
      assert.equal(await output(`start-more-${suffix}`, 'curl -s http://127.0.0.1:8123/log; cat ~/more'), 'started\nmore')
    })

    test('ready commands of the SDK', async () => {
      const template = Template()
        .fromTemplate('base')
        .setStartCmd('sleep 0.5; touch /tmp/ready; sleep 1000', sdk.waitForFile('/tmp/ready'))
      await build(template, 'ready')
      assert.equal(await output(`ready-${suffix}`, 'ls /tmp/ready'), '/tmp/ready')
    })

    test('a template from a template inherits environment, place and user', async () => {
      await build(Template().fromTemplate('base').setEnvs({ LEVEL: 'one', KEPT: 'yes' }).setWorkdir('/opt/parent').setUser('root').runCmd('echo p > /parent'), 'parent')
      await build(Template().fromTemplate(`parent-${suffix}`).setEnvs({ LEVEL: '$LEVEL-two' }).runCmd('pwd > /child; whoami >> /child'), 'child')
      assert.equal(await output(`child-${suffix}`, 'echo $LEVEL $KEPT; whoami; pwd; cat /parent /child'), 'one-two yes\nroot\n/opt/parent\np\n/opt/parent\nroot')
    })

    test('background: building at once, then ready', async () => {
      const info = await Template.buildInBackground(Template().fromTemplate('base').skipCache().runCmd('sleep 2'), `background-${suffix}`, { cpuCount: 1, memoryMB: 1024 })
      const status = await Template.getBuildStatus(info)
      assert.equal(status.status, 'building')
      assert.equal(status.buildID, info.buildId)
      assert.equal(status.templateID, info.templateId)
      await eventually('the build is ready', async () => (await Template.getBuildStatus(info)).status === 'ready', 30_000, 200)
      const size = await inSandbox(`background-${suffix}`, (sandbox) => sandbox.getInfo())
      assert.equal(size.cpuCount, 1)
      assert.equal(size.memoryMB, 1024)
    })

    test('the cache: an unchanged prefix is not run again', async () => {
      const make = (last) => Template().fromTemplate('base').setEnvs({ OF: version }).runCmd('date +%N > ~/when').runCmd(`echo ${last} > ~/last`)
      await build(make('one'), 'cache-a')
      const again = await build(make('one'), 'cache-b')
      assert.match(again.text, /CACHED \[builder 1\/3\] ENV OF/, again.text)
      assert.match(again.text, /CACHED \[builder 2\/3\] RUN date/)
      assert.match(again.text, /CACHED \[builder 3\/3\] RUN echo one/)
      const other = await build(make('two'), 'cache-c')
      assert.match(other.text, /CACHED \[builder 2\/3\] RUN date/)
      assert.doesNotMatch(other.text, /CACHED \[builder 3\/3\]/)
      const when = await output(`cache-a-${suffix}`, 'cat when')
      assert.equal(await output(`cache-c-${suffix}`, 'cat when'), when)
      const forced = await build(make('two'), 'cache-c', { skipCache: true })
      assert.doesNotMatch(forced.text, /CACHED/)
      assert.notEqual(await output(`cache-c-${suffix}`, 'cat when'), when)
    })

    test('the cache: a changed file is copied again, an unchanged one not uploaded', async () => {
      const file = path.join(context, 'changing.txt')
      const make = () => recipe().fromTemplate('base').copy('changing.txt', 'c.txt')
      fs.writeFileSync(file, `one ${version}`)
      assert.match((await build(make(), 'changing')).text, /Uploaded 'changing.txt'/)
      assert.match((await build(make(), 'changing')).text, /Skipping upload of 'changing.txt'/)
      fs.writeFileSync(file, `two ${version}`)
      const info = await build(make(), 'changing')
      assert.match(info.text, /Uploaded 'changing.txt'/)
      assert.doesNotMatch(info.text, /CACHED \[builder 1\/1\]/)
      assert.equal(await output(`changing-${suffix}`, 'cat c.txt'), `two ${version}`)
      fs.rmSync(file)
    })

    // What fails, and the method whose line the stack's first entry must name.
    const failures = {
      runCmd: () => Template().fromTemplate('base').skipCache().runCmd('./nonexistent/path'),
      remove: () => Template().fromTemplate('base').skipCache().remove('nonexistent/path'),
      rename: () => Template().fromTemplate('base').skipCache().rename('nonexistent/path', '/tmp/dest.txt'),
      makeDir: () => Template().fromTemplate('base').skipCache().makeDir('.bashrc'),
      makeSymlink: () => Template().fromTemplate('base').skipCache().makeSymlink('.bashrc', '.bashrc'),
      setWorkdir: () => Template().fromTemplate('base').skipCache().setWorkdir('/root/.bashrc'),
      setUser: () => Template().fromTemplate('base').skipCache().setUser('; exit 1'),
      gitClone: () => Template().fromTemplate('base').skipCache().gitClone('/nonexistent/repo.git'),
      npmInstall: () => Template().fromTemplate('base').setEnvs({ npm_config_registry: 'http://127.0.0.1:9', npm_config_fetch_retries: '0' }).npmInstall('nonexistent-package'),
      pipInstall: () => Template().fromTemplate('base').setEnvs({ PIP_INDEX_URL: 'http://127.0.0.1:9', PIP_RETRIES: '0' }).pipInstall('nonexistent-package'),
      aptInstall: () => Template().fromTemplate('base').runCmd('rm -rf /etc/apt/sources.list*', { user: 'root' }).aptInstall('nonexistent-package'),
      copy: () => recipe().fromTemplate('base').copy('folder/test.txt', '/proc/nothing/here'),
      copyItems: () => recipe().fromTemplate('base').copyItems([{ src: 'folder/test.txt', dest: '/ok' }, { src: 'folder/test.txt', dest: '/proc/nothing/here' }]), // prettier-ignore
      fromTemplate: () => Template().fromTemplate('this-template-does-not-exist'),
      setStartCmd: () => Template().fromTemplate('base').setStartCmd('./nonexistent/path', sdk.waitForTimeout(2000)),
    }
    const source = fs.readFileSync(new URL(import.meta.url), 'utf8').split('\n')
    for (const [method, make] of Object.entries(failures)) {
      test(`a failure names its step: ${method}`, async () => {
        const error = await build(make(), 'failing').then(
          () => assert.fail('the build succeeded'),
          (error) => error,
        )
        assert.ok(error instanceof sdk.BuildError, String(error))
        const [, line, column] = /:(\d+):(\d+)\)?$/.exec(error.stack.split('\n')[0]) ?? assert.fail(error.stack)
        assert.ok(source[line - 1].slice(column - 1).startsWith(`${method}(`), `${error.stack}\n${source[line - 1]}`)
      })
    }

    test('a failing command: exit code and output are told', async () => {
      const logs = []
      const template = Template().fromTemplate('base').runCmd('true').runCmd('echo the-last-words >&2; exit 7')
      const error = await Template.build(template, `broken-${suffix}`, { onBuildLogs: (entry) => logs.push(entry) }).catch((error) => error)
      assert.match(error.message, /exit status 7|exit code 7/)
      assert.ok(logs.some((entry) => /the-last-words/.test(entry.message)), error.message)
      await assert.rejects(Sandbox.create(`broken-${suffix}`), /404/)
    })

    test('a user that does not exist', async () => {
      await assert.rejects(
        build(Template().fromTemplate('base').skipCache().runCmd('whoami', { user: 'root123' }), 'nobody'),
        /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'/,
      )
    })

    test('a template is not touched by a build that fails', async () => {
      await build(Template().fromTemplate('base').runCmd('echo good > ~/which'), 'kept')
      await assert.rejects(build(Template().fromTemplate('base').runCmd('echo bad > ~/which; false'), 'kept'), sdk.BuildError)
      assert.equal(await output(`kept-${suffix}`, 'cat which'), 'good')
    })

    test('exists', async () => {
      assert.equal(await Template.exists('base'), true)
      assert.equal(await Template.exists(`plain-${suffix}`), true)
      assert.equal(await Template.exists(`nonexistent-${suffix}`), false)
    })

    test('tags: build with them, assign, start by them, remove', async () => {
      const name = `tagged-${suffix}`
      const make = (text) => Template().fromTemplate('base').runCmd(`echo ${text} > ~/version`)
      const one = await Template.build(make('one'), `${name}:v1`, { tags: ['stable'] })
      assert.deepEqual([...one.tags].sort(), ['stable', 'v1'])
      const two = await Template.build(make('two'), `${name}:v2`)
      assert.equal(one.templateId, two.templateId)
      assert.equal(await output(`${name}:v1`, 'cat version'), 'one')
      assert.equal(await output(`${name}:stable`, 'cat version'), 'one')
      assert.equal(await output(`${name}:v2`, 'cat version'), 'two')
      await assert.rejects(Sandbox.create(`${name}:v3`), /404/)
      const moved = await Template.assignTags(`${name}:v2`, ['stable', 'production'])
      assert.equal(moved.buildId, two.buildId)
      assert.deepEqual([...moved.tags].sort(), ['production', 'stable'])
      assert.equal(await output(`${name}:stable`, 'cat version'), 'two')
      const tags = await Template.getTags(one.templateId)
      assert.deepEqual(tags.map((one) => one.tag).sort(), ['production', 'stable', 'v1', 'v2'])
      assert.equal(tags.find((one) => one.tag === 'v1').buildId, one.buildId)
      assert.ok(Math.abs(tags[0].createdAt - Date.now()) < 600_000)
      await Template.removeTags(name, ['production', 'v1'])
      await assert.rejects(Sandbox.create(`${name}:v1`), /404/)
      await assert.rejects(Template.assignTags(`${name}:v2`, ':bad'), sdk.TemplateError)
      await assert.rejects(Template.assignTags(`${name}:v2`, 'bad:'), sdk.TemplateError)
      await assert.rejects(Template.assignTags(`${name}:nope`, 'x'), sdk.TemplateError)
      await Template.build(make('three'), name)
      assert.equal(await output(name, 'cat version'), 'three')
      await assert.rejects(Template.removeTags(name, 'default'), /400/)
      await assert.rejects(Template.getTags(`nonexistent-${suffix}`), /404/)
    })

    test('sizes are checked', async () => {
      const make = (options) => Template.build(Template().fromTemplate('base'), `sizes-${suffix}`, options)
      await assert.rejects(make({ cpuCount: 3 }), /CPU count must be 1 or an even number/)
      await assert.rejects(make({ cpuCount: 64 }), /CPU count must be at most 32/)
      await assert.rejects(make({ memoryMB: 513 }), /Memory must be divisible by 2/)
      await assert.rejects(Template.build(Template().fromTemplate('base'), 'Not A Name!'), sdk.BuildError)
    })

    test('names with the team, in any case', async () => {
      const [{ name: team }] = (await server.api('GET', '/teams')).body
      await build(Template().fromTemplate('base').runCmd('echo named > ~/n'), 'Cased')
      assert.equal(await output(`cased-${suffix}`, 'cat n'), 'named')
      const slug = (await server.api('GET', `/templates/cased-${suffix}`)).body.names[0].split('/')[0]
      assert.ok(team.toLowerCase().startsWith(slug[0]), `${team} ${slug}`)
      assert.equal(await output(`${slug}/cased-${suffix}`, 'cat n'), 'named')
      await assert.rejects(Template.build(Template().fromTemplate('base'), `another-team/x-${suffix}`), sdk.BuildError)
    })

    test('a Dockerfile, by the SDK', async () => {
      const dockerfile = `FROM e2bdev/base
ENV GREETING=hello
WORKDIR /app
COPY app/src/a.js app/src/b.js ./
RUN echo "$GREETING" > greeting && whoami > who
USER user
CMD ["sleep", "1000"]`
      const template = recipe().fromDockerfile(dockerfile)
      template.setReadyCmd(sdk.waitForTimeout(500))
      await build(template, 'dockerfile')
      assert.equal(await output(`dockerfile-${suffix}`, 'pwd; cat a.js b.js greeting who; pgrep -fx "sleep 1000" >/dev/null && echo runs'), '/app\nabhello\nroot\nruns')
    })

    test('pause, snapshot and fork of a built one', async () => {
      await build(Template().fromTemplate('base').setEnvs({ FROM_TEMPLATE: 'yes' }).runCmd('echo built > ~/b'), 'living')
      const sandbox = await Sandbox.create(`living-${suffix}`)
      await sandbox.commands.run('echo mine > ~/m')
      await sandbox.pause()
      const again = await Sandbox.connect(sandbox.sandboxId)
      assert.equal((await again.commands.run('cat b m; echo $FROM_TEMPLATE')).stdout, 'built\nmine\nyes\n')
      const snapshot = await again.createSnapshot()
      const copy = await Sandbox.create(snapshot.snapshotId)
      assert.equal((await copy.commands.run('cat b m; echo $FROM_TEMPLATE')).stdout, 'built\nmine\nyes\n')
      await copy.kill()
      await again.kill()
    })

    test('a build is cancelled', async () => {
      const info = await Template.buildInBackground(Template().fromTemplate('base').skipCache().runCmd('sleep 300'), `cancelled-${suffix}`)
      assert.equal((await server.api('DELETE', `/templates/${info.templateId}/builds/${info.buildId}`)).status, 204)
      const status = await Template.getBuildStatus(info)
      assert.equal(status.status, 'error')
      assert.match(status.reason.message, /cancel/)
    })
  })
}

// Older ones upload without telling the length.
for (const version of only(['2.14.0', '2.19.0', '2.27.1'])) {
  test(`SDK ${version}: a build with files, a sandbox of it, a failure`, async () => {
    const { Template, Sandbox, BuildError, waitForTimeout } = await loadSdk(server, version)
    const alias = `old-${version.replaceAll('.', '-')}`
    const template = Template({ fileContextPath: context }).fromBaseImage().copy('folder/test.txt', '/opt/a.txt', { forceUpload: true }).setEnvs({ X: version }).setStartCmd('sleep 1000', waitForTimeout(300))
    await Template.build(template, { alias })
    const sandbox = await Sandbox.create(alias)
    assert.equal((await sandbox.commands.run('cat /opt/a.txt; echo $X')).stdout, `This is a test file.${version}\n`)
    await sandbox.kill()
    await assert.rejects(Template.build(Template().fromTemplate('base').runCmd('exit 4'), { alias: `${alias}-broken` }), BuildError)
  })
}
