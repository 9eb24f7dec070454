// sandbox.git of the published SDK: everything it does, with repositories served inside the sandbox.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { eventually, startServer } from '../harness/server.mjs'
import { loadSdk, shell, only } from '../harness/sdk.mjs'

// Repositories below /srv over HTTP, for user "ada" with password "s3cret p/w:@" only.
const HTTP_SERVER = `
import base64, http.server, os, subprocess
EXPECTED = 'Basic ' + base64.b64encode(b'ada:s3cret p/w:@').decode()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get('Authorization') != EXPECTED:
            self.send_response(401)
            self.send_header('WWW-Authenticate', 'Basic realm="git"')
            self.send_header('Content-Length', '0')
            self.end_headers()
            return
        path, _, query = self.path.partition('?')
        if self.headers.get('Transfer-Encoding') == 'chunked':
            body = b''
            while (size := int(self.rfile.readline(), 16)) > 0:
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        env = dict(os.environ, GIT_PROJECT_ROOT='/srv', GIT_HTTP_EXPORT_ALL='1', PATH_INFO=path, QUERY_STRING=query,
                   REQUEST_METHOD=self.command, REMOTE_USER='ada', REMOTE_ADDR='127.0.0.1', CONTENT_LENGTH=str(len(body)),
                   CONTENT_TYPE=self.headers.get('Content-Type') or '', HTTP_CONTENT_ENCODING=self.headers.get('Content-Encoding') or '')
        out = subprocess.run(['git', 'http-backend'], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = out.partition(b'\\r\\n\\r\\n')
        fields = [line.split(': ', 1) for line in head.decode().split('\\r\\n')]
        self.send_response(int(dict(fields).get('Status', '200').split()[0]))
        for name, value in fields:
            if name != 'Status':
                self.send_header(name, value)
        self.send_header('Content-Length', str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)
    do_POST = do_GET
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8418), Handler).serve_forever()
`
const PASSWORD = 's3cret p/w:@'

let server
before(async () => {
  server = await startServer()
})
after(() => server.destroy())

for (const version of only(['2.45.0', 'latest'])) {
  describe(`git of e2b ${version}`, () => {
    let sdk, sandbox, git
    before(async () => {
      sdk = await loadSdk(server, version)
      sandbox = await sdk.Sandbox.create('base', { timeoutMs: 300_000 })
      git = sandbox.git
      await sandbox.commands.run('mkdir -p /srv && chown user: /srv && git config --system init.defaultBranch main', { user: 'root' })
      await git.init('/srv/team.git', { bare: true, initialBranch: 'main' })
      await sandbox.commands.run('git -C /srv/team.git config http.receivepack true')
      await sandbox.commands.run('git daemon --reuseaddr --listen=127.0.0.1 --export-all --enable=receive-pack --base-path=/srv /srv', { background: true, timeoutMs: 0 })
      await sandbox.files.write('/tmp/server.py', HTTP_SERVER)
      await sandbox.commands.run('python3 /tmp/server.py', { background: true, timeoutMs: 0 })
      await eventually('both servers listen', async () => (await shell(sandbox, 'bash -c "</dev/tcp/127.0.0.1/9418 && </dev/tcp/127.0.0.1/8418"')).exitCode === 0)
    })
    after(async () => {
      await sandbox?.kill()
    })

    const named = (name) => (error) => {
      assert.equal(error.constructor.name, name, error.stack)
      return true
    }
    const run = async (command) => (await sandbox.commands.run(command)).stdout.trim()
    const head = (path) => run(`git -C ${path} log -1 --format='%an <%ae> %s'`)

    test('configureUser, setConfig, getConfig: global, system, local', async () => {
      await git.configureUser('Ada Lovelace', 'ada@example.org')
      assert.equal(await git.getConfig('user.name'), 'Ada Lovelace')
      assert.equal(await git.getConfig('user.email'), 'ada@example.org')
      assert.equal(await git.getConfig('user.nothing'), undefined)
      await git.init('/tmp/conf')
      await git.setConfig('core.odd', 'a "b" $c', { scope: 'local', path: '/tmp/conf' })
      assert.equal(await git.getConfig('core.odd', { scope: 'local', path: '/tmp/conf' }), 'a "b" $c')
      assert.equal(await git.getConfig('core.odd'), undefined)
      await git.setConfig('core.wide', 'yes', { scope: 'system', user: 'root' })
      assert.equal(await git.getConfig('core.wide', { scope: 'system' }), 'yes')
      await assert.rejects(git.setConfig('core.odd', 'x', { scope: 'local' }), named('InvalidArgumentError'))
      await git.configureUser('Local', 'local@example.org', { scope: 'local', path: '/tmp/conf' })
      assert.equal(await git.getConfig('user.name', { scope: 'local', path: '/tmp/conf' }), 'Local')
    })

    test('init: plain, bare, with a branch name', async () => {
      await git.init('/tmp/plain')
      assert.equal((await git.status('/tmp/plain')).currentBranch, 'main')
      await git.init('/tmp/named', { initialBranch: 'trunk' })
      assert.equal((await git.status('/tmp/named')).currentBranch, 'trunk')
      await git.init('/tmp/bare.git', { bare: true })
      assert.equal(await run('git -C /tmp/bare.git rev-parse --is-bare-repository'), 'true')
    })

    test('status of every kind, add, commit', async () => {
      const repo = '/tmp/work'
      await git.init(repo)
      const empty = await git.status(repo)
      assert.equal(empty.isClean, true)
      for (const name of ['kept', 'changed', 'removed', 'moved from']) await sandbox.files.write(`${repo}/${name}`, `${name}\n`.repeat(5))
      const before = await git.status(repo)
      assert.equal(before.untrackedCount, 4)
      assert.equal(before.hasUntracked, true)
      await git.add(repo, { files: ['kept', 'moved from'] })
      assert.equal((await git.status(repo)).stagedCount, 2)
      await git.add(repo)
      await git.commit(repo, "first: it's a \"start\"")
      assert.equal(await head(repo), 'Ada Lovelace <ada@example.org> first: it\'s a "start"')
      assert.equal((await git.status(repo)).isClean, true)

      await sandbox.files.write(`${repo}/changed`, 'other\n')
      await sandbox.commands.run(`cd ${repo} && rm removed && git mv 'moved from' moved`)
      await sandbox.files.write(`${repo}/new file`, 'x')
      const after = await git.status(repo)
      const kinds = Object.fromEntries(after.fileStatus.map((one) => [one.name.replaceAll('"', ''), one.status]))
      assert.deepEqual(kinds, { changed: 'modified', removed: 'deleted', moved: 'renamed', 'new file': 'untracked' })
      assert.equal(after.fileStatus.find((one) => one.status === 'renamed').renamedFrom.replaceAll('"', ''), 'moved from')
      assert.equal(after.hasChanges, true)
      assert.equal(after.hasStaged, true)
      await git.add(repo, { all: true })
      await git.commit(repo, 'second', { authorName: 'Grace', authorEmail: 'grace@example.org' })
      assert.equal(await head(repo), 'Grace <grace@example.org> second')
      await git.commit(repo, 'third', { allowEmpty: true })
      await assert.rejects(git.commit(repo, 'nothing to say'), (error) => error.exitCode === 1)
    })

    test('branches: create, check out, list, delete', async () => {
      const repo = '/tmp/work'
      await git.createBranch(repo, 'feature/one')
      assert.deepEqual(await git.branches(repo), { branches: ['feature/one', 'main'], currentBranch: 'feature/one' })
      await git.commit(repo, 'on the branch', { allowEmpty: true })
      await git.checkoutBranch(repo, 'main')
      await assert.rejects(git.deleteBranch(repo, 'feature/one'), (error) => /not fully merged/.test(error.stderr))
      await git.deleteBranch(repo, 'feature/one', { force: true })
      assert.deepEqual((await git.branches(repo)).branches, ['main'])
      await assert.rejects(git.checkoutBranch(repo, 'nowhere'), named('CommandExitError'))
      await sandbox.commands.run(`git -C ${repo} checkout --detach`)
      assert.equal((await git.status(repo)).detached, true)
      await git.checkoutBranch(repo, 'main')
    })

    test('reset and restore', async () => {
      const repo = '/tmp/work'
      const file = `${repo}/kept`
      await sandbox.files.write(file, 'edited\n')
      await git.restore(repo, { paths: ['kept'] })
      assert.equal(await sandbox.files.read(file), 'kept\n'.repeat(5))
      await sandbox.files.write(file, 'edited\n')
      await git.add(repo)
      await git.restore(repo, { paths: ['.'], staged: true })
      assert.equal((await git.status(repo)).hasStaged, false)
      await git.restore(repo, { paths: ['kept'], staged: true, worktree: true, source: 'HEAD~1' })
      assert.equal((await git.status(repo)).isClean, true)
      await assert.rejects(git.restore(repo, { paths: [] }), named('InvalidArgumentError'))

      await sandbox.files.write(file, 'edited\n')
      await git.add(repo)
      await git.reset(repo, { paths: ['kept'] })
      assert.equal((await git.status(repo)).stagedCount, 0)
      await git.reset(repo, { mode: 'hard' })
      assert.equal((await git.status(repo)).isClean, true)
      const first = await run(`git -C ${repo} rev-parse HEAD`)
      await git.reset(repo, { mode: 'soft', target: 'HEAD~1' })
      assert.notEqual(await run(`git -C ${repo} rev-parse HEAD`), first)
      await assert.rejects(git.reset(repo, { mode: 'sideways' }), named('InvalidArgumentError'))
    })

    test('remotes over git://: add, get, push, clone, pull, ahead and behind', async () => {
      const repo = '/tmp/work'
      const url = 'git://127.0.0.1/team.git'
      await git.remoteAdd(repo, 'origin', url)
      assert.equal(await git.remoteGet(repo, 'origin'), url)
      assert.equal(await git.remoteGet(repo, 'none'), undefined)
      await assert.rejects(git.remoteAdd(repo, 'origin', url), (error) => /already exists/.test(error.stderr))
      await git.remoteAdd(repo, 'origin', url, { overwrite: true, fetch: true })
      await assert.rejects(git.pull(repo), named('GitUpstreamError'))
      await assert.rejects(git.push(repo, { setUpstream: false }), named('GitUpstreamError'))
      await git.push(repo, { remote: 'origin', branch: 'main' })
      assert.equal((await git.status(repo)).upstream, 'origin/main')

      await git.clone(url, { path: '/tmp/other' })
      await sandbox.files.write('/tmp/other/theirs', 'x')
      await git.add('/tmp/other')
      await git.commit('/tmp/other', 'theirs')
      assert.equal((await git.status('/tmp/other')).ahead, 1)
      await git.push('/tmp/other')
      assert.equal((await git.status('/tmp/other')).ahead, 0)
      await git.remoteAdd(repo, 'origin', url, { overwrite: true, fetch: true })
      assert.equal((await git.status(repo)).behind, 1)
      await git.pull(repo)
      assert.equal(await head(repo), 'Ada Lovelace <ada@example.org> theirs')

      // Both changed: a push is refused, a conflict is seen.
      for (const [where, text] of [[repo, 'mine'], ['/tmp/other', 'yours']]) {
        await sandbox.files.write(`${where}/theirs`, text)
        await git.add(where)
        await git.commit(where, text)
      }
      await git.push('/tmp/other')
      await assert.rejects(git.push(repo), (error) => /rejected/.test(error.stderr))
      await git.setConfig('pull.rebase', 'false')
      await assert.rejects(git.pull(repo), (error) => /CONFLICT/.test(error.stdout))
      const status = await git.status(repo)
      assert.equal(status.hasConflicts, true)
      assert.equal(status.conflictCount, 1)
      await git.reset(repo, { mode: 'hard', target: 'origin/main' })
    })

    test('clone: branch, depth, into a derived folder, of nothing', async () => {
      const url = 'git://127.0.0.1/team.git'
      await git.createBranch('/tmp/other', 'side')
      await git.commit('/tmp/other', 'aside', { allowEmpty: true })
      await git.push('/tmp/other', { remote: 'origin', branch: 'side' })
      await git.clone(url, { path: '/tmp/side', branch: 'side', depth: 1 })
      assert.equal((await git.status('/tmp/side')).currentBranch, 'side')
      assert.equal(await run('git -C /tmp/side rev-list --count HEAD'), '1')
      await git.clone(url, { cwd: '/tmp' })
      assert.equal(await sandbox.files.exists('/tmp/team/.git'), true)
      // git daemon does not tell a missing repository from one it keeps to itself.
      await assert.rejects(git.clone('git://127.0.0.1/nothing.git', { path: '/tmp/nothing' }), named('GitAuthError'))
      await assert.rejects(git.clone('git://127.0.0.1:1/nothing.git', { path: '/tmp/nothing' }), named('CommandExitError'))
    })

    test('credentials over http: clone, push, pull; never left in the repository unless asked', async () => {
      const url = 'http://127.0.0.1:8418/team.git'
      await assert.rejects(git.clone(url, { path: '/tmp/refused' }), named('GitAuthError'))
      await assert.rejects(git.clone(url, { path: '/tmp/refused', username: 'ada', password: 'wrong' }), named('GitAuthError'))
      await assert.rejects(git.clone(url, { path: '/tmp/refused', password: PASSWORD }), named('InvalidArgumentError'))
      await git.clone(url, { path: '/tmp/cloned', username: 'ada', password: PASSWORD })
      assert.equal(await git.remoteGet('/tmp/cloned', 'origin'), url)
      await git.clone(url, { path: '/tmp/stored', username: 'ada', password: PASSWORD, dangerouslyStoreCredentials: true })
      assert.match(await git.remoteGet('/tmp/stored', 'origin'), /ada:.*@/)

      await git.commit('/tmp/cloned', 'over http', { allowEmpty: true })
      await assert.rejects(git.push('/tmp/cloned'), named('GitAuthError'))
      await git.push('/tmp/cloned', { username: 'ada', password: PASSWORD })
      assert.equal(await git.remoteGet('/tmp/cloned', 'origin'), url)
      await git.pull('/tmp/stored')
      assert.equal(await head('/tmp/stored'), 'Ada Lovelace <ada@example.org> over http')
      await assert.rejects(git.pull('/tmp/cloned'), named('GitAuthError'))
      await git.pull('/tmp/cloned', { username: 'ada', password: PASSWORD })

      await git.dangerouslyAuthenticate({ username: 'ada', password: PASSWORD, host: '127.0.0.1:8418', protocol: 'http' })
      await git.pull('/tmp/cloned')
      await git.clone(url, { path: '/tmp/by-store' })
      assert.equal(await head('/tmp/by-store'), 'Ada Lovelace <ada@example.org> over http')
    })

    test('options of every call: user, cwd, envs, timeoutMs', async () => {
      await git.init('rooted', { user: 'root', cwd: '/opt' })
      assert.equal(await run('stat -c %U /opt/rooted/.git'), 'root')
      await git.commit('/tmp/plain', 'by environment', { allowEmpty: true, envs: { GIT_AUTHOR_NAME: 'Env', GIT_AUTHOR_EMAIL: 'env@example.org' } })
      assert.equal(await head('/tmp/plain'), 'Env <env@example.org> by environment')
      await assert.rejects(git.status('/tmp/none'), (error) => /cannot change to|not a git repository/.test(error.stderr))
      await sandbox.commands.run("mkdir -p /tmp/plain/.git/hooks && printf '#!/bin/sh\\nsleep 30\\n' > /tmp/plain/.git/hooks/pre-commit && chmod +x /tmp/plain/.git/hooks/pre-commit")
      await assert.rejects(git.commit('/tmp/plain', 'slow', { allowEmpty: true, timeoutMs: 1000 }), named('TimeoutError'))
    })
  })
}
