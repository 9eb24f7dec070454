// Builds of templates against `buildah bud --layers`, on the same small base: what the steps themselves do is the same.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { Buildah, makeSmallRoot } from '../tests/harness/buildah.mjs'
import { binary } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const rounds = 3

const three = (mark) => `ARG BASE
FROM $BASE
USER root
RUN mkdir -p /app && echo ${mark} > /app/mark
COPY files /app/files/
RUN cat /app/files/* | sha256sum > /app/sum
`

// Three stages that need nothing of each other, each with some work to do, and one that gathers them.
const stages = (mark) => `ARG BASE
${['a', 'b', 'c']
  .map((name) => `FROM $BASE AS ${name}
USER root
RUN echo ${mark} ${name} > /mark
RUN head -c 10000000 /dev/zero | sha256sum > /one
RUN head -c 10000000 /dev/zero | sha256sum > /two
RUN cat /one /two /mark > /${name}
`)
  .join('')}FROM $BASE
USER root
COPY --from=a /a /out/
COPY --from=b /b /out/
COPY --from=c /c /out/
`

function makeContext(folder) {
  fs.mkdirSync(path.join(folder, 'files'), { recursive: true })
  for (let i = 0; i < 50; i++) fs.writeFileSync(path.join(folder, 'files', `f${i}`), Buffer.alloc(20_000, i))
}

const timed = async (fn) => {
  const began = performance.now()
  await fn()
  return performance.now() - began
}

const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]

export async function partBuild(server, { measured, show, spread }) {
  const folder = path.join(server.home, 'context')
  const env = { PATH: process.env.PATH, HOME: '/root', TMPDIR: server.home, ...server.clientEnv() }
  const buildah = new Buildah(path.join(server.home, 'buildah'))
  const ours = () => timed(() => execute(binary, ['template', 'build', 'bench', '--build-arg', 'BASE=template://small', folder], { env }))
  const theirs = () => timed(() => buildah.bud('localhost/bench', folder, '--layers', '--build-arg', 'BASE=localhost/small'))
  const times = { cold: [[], []], cached: [[], []], stages: [[], []] }
  try {
    makeContext(folder)
    const root = path.join(server.home, 'small')
    fs.mkdirSync(root)
    makeSmallRoot(root)
    await buildah.importRoot('localhost/small', root)
    await buildah.save('localhost/small', `${root}.tar`)
    await execute(binary, ['template', 'build', 'small', '--from-archive', `${root}.tar`], { env })
    for (let round = 0; round < rounds; round++) {
      fs.writeFileSync(path.join(folder, 'Dockerfile'), three(`round ${round}`))
      times.cold[0].push(await ours())
      times.cached[0].push(await ours())
      times.cold[1].push(await theirs())
      times.cached[1].push(await theirs())
      fs.writeFileSync(path.join(folder, 'Dockerfile'), stages(`round ${round}`))
      times.stages[0].push(await ours())
      times.stages[1].push(await theirs())
    }
  } finally {
    await buildah.destroy()
  }
  for (const [name, [mine, peer]] of Object.entries(times)) {
    show(`build, ${name}`, spread(mine))
    show(`buildah bud --layers, ${name}`, spread(peer))
  }
  const ratio = ([mine, peer]) => middle(mine) / middle(peer)
  measured.build_cold_vs_buildah = ratio(times.cold)
  measured.build_cached_vs_buildah = ratio(times.cached)
  measured.build_stages_vs_buildah = ratio(times.stages)
}
