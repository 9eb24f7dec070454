// Templates from images through the published SDK: the registry that stands for the hub on a host without one, and one that wants
// a password.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { startRegistry, tar } from '../harness/registry.mjs'
import { loadSdk, only } from '../harness/sdk.mjs'
import { eventually, startServer } from '../harness/server.mjs'

const login = { username: 'me', password: 'pass word' }
let hub, guarded, server

// A root that is small: busybox for everything.
const root = () => {
  const programs = 'sh ls cat id whoami stat touch mkdir rm mv cp echo pwd env test true sleep chmod ln readlink printf sort head'.split(' ')
  return tar([
    { name: 'bin/', type: 'dir' },
    { name: 'etc/', type: 'dir' },
    { name: 'etc/os-release', content: 'NAME=Small\n' },
    { name: 'bin/busybox', content: fs.readFileSync('/bin/busybox'), mode: 0o755 },
    ...programs.map((name) => ({ name: `bin/${name}`, type: 'symlink', target: 'busybox' })),
  ])
}

before(async () => {
  hub = await startRegistry()
  guarded = await startRegistry({ login })
  const image = { layers: [root(), tar([{ name: 'etc/second', content: 'layer\n' }])], config: { Env: ['PATH=/usr/bin:/bin', 'FROM_IMAGE=yes'], WorkingDir: '/srv', Cmd: ['sh'] } }
  for (const [name, tag] of [['library/ubuntu', '22.04'], ['library/python', '3.12'], ['library/node', 'lts']]) await hub.push(name, tag, image)
  await guarded.push('team/app', 'latest', image)
  server = await startServer({ args: ['--registry-mirrors', `docker.io=${hub.url},private.example=${guarded.url}`] })
})
after(async () => {
  await server?.destroy()
  await hub?.stop()
  await guarded?.stop()
})

for (const version of only(['2.45.0', 'latest'])) {
  describe(`SDK ${version}`, () => {
    const suffix = version.replaceAll('.', '-')
    let sdk, Template, Sandbox
    before(async () => {
      sdk = await loadSdk(server, version)
      ;({ Template, Sandbox } = sdk)
    })

    const build = (template, name, options) => Template.build(template, `${name}-${suffix}`, options)
    const failure = (template, name) => build(template, name).then(() => assert.fail('the build succeeded'), (error) => error)
    async function output(name, command) {
      const sandbox = await Sandbox.create(`${name}-${suffix}`)
      try {
        return (await sandbox.commands.run(command)).stdout.trim()
      } finally {
        await sandbox.kill()
      }
    }

    test('an image of the hub, by its short name', async () => {
      await build(Template().fromUbuntuImage('22.04').skipCache().runCmd('ls -l').runCmd('cat /etc/second > ~/seen'), 'ubuntu')
      assert.equal(await output('ubuntu', 'whoami; pwd; cat seen; echo $FROM_IMAGE'), 'user\n/home/user\nlayer\nyes')
    })

    test('the SDK names others', async () => {
      await build(Template().fromPythonImage('3.12').runCmd('touch /tmp/p'), 'python')
      await build(Template().fromNodeImage('lts').runCmd('touch /tmp/n'), 'node')
      assert.equal(await output('python', 'ls /tmp/p'), '/tmp/p')
      assert.equal(await output('node', 'ls /tmp/n'), '/tmp/n')
    })

    test('users: root, and one that is not there', async () => {
      await build(Template().fromImage('ubuntu:22.04').skipCache().runCmd('test "$(whoami)" = "root"', { user: 'root' }), 'root')
      const error = await failure(Template().fromImage('ubuntu:22.04').skipCache().runCmd('whoami', { user: 'root123' }), 'nobody')
      assert.match(error.message, /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'/)
    })

    test('links', async () => {
      await build(
        Template()
          .fromImage('ubuntu:22.04')
          .makeSymlink('.bashrc', '.bashrc.local')
          .skipCache()
          .makeSymlink('.bashrc', '.bashrc.local', { force: true })
          .runCmd('test "$(readlink .bashrc.local)" = ".bashrc"'),
        'links',
      )
    })

    test('in the background', async () => {
      const info = await Template.buildInBackground(Template().fromImage('ubuntu:22.04').skipCache().runCmd('sleep 2').setStartCmd('echo "Hello"', sdk.waitForTimeout(500)), `background-${suffix}:v1`, { cpuCount: 1, memoryMB: 1024 })
      assert.equal((await Template.getBuildStatus(info)).status, 'building')
      await eventually('the build is ready', async () => (await Template.getBuildStatus(info)).status === 'ready', 30_000, 200)
    })

    test('an image that is not there: the error names it and the line', async () => {
      const error = await failure(Template().fromImage('ubuntu:1.0'), 'absent')
      assert.ok(error instanceof sdk.BuildError)
      assert.match(error.message, /ubuntu:1\.0/)
      const [, line] = /:(\d+):\d+\)?$/.exec(error.stack.split('\n')[0])
      assert.match(fs.readFileSync(new URL(import.meta.url), 'utf8').split('\n')[line - 1], /fromImage\('ubuntu:1\.0'\)/)
    })

    test('a password: none, a wrong one, one for the build, one of the team', async () => {
      const image = 'private.example/team/app:latest'
      assert.match((await failure(Template().fromImage(image), 'secret')).message, /private\.example/)
      assert.match((await failure(Template().fromImage(image, { ...login, password: 'wrong' }), 'secret')).message, /private\.example/)
      await build(Template().fromImage(image, login).runCmd('touch ~/own'), 'secret')
      assert.equal(await output('secret', 'ls own'), 'own')
      assert.equal((await server.api('PUT', '/registries/private.example', login)).status, 204)
      await build(Template().fromImage(image).runCmd('touch ~/teams'), 'secret')
      assert.equal(await output('secret', 'ls teams'), 'teams')
      assert.equal((await server.api('DELETE', '/registries/private.example')).status, 204)
      // That its layers are here already is no way around it.
      assert.match((await failure(Template().fromImage(image).runCmd('touch ~/teams'), 'secret')).message, /private\.example/)
      assert.ok(!server.log.includes(login.password))
    })

    test("Amazon's access keys: refused where the image is", async () => {
      const error = await failure(Template().fromAWSRegistry('1.dkr.ecr.r.amazonaws.com/x:1', { accessKeyId: 'a', secretAccessKey: 'b', region: 'r' }), 'amazon')
      assert.match(error.message, /get-login-password/)
      assert.match(error.stack.split('\n')[0], /template-images\.test\.mjs/)
    })
  })
}
