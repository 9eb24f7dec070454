// What the way out of sandboxes is measured against: a namespace on a plain veth, for which the host forwards and no more; and
// nginx and dnsmasq in the place of our own proxy and resolver: in the gateway's namespace, with the connections of some
// sandboxes led to them instead. The far end of everything is in "the world" (tests/harness/lab.sh).
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { eventually, repository } from '../tests/harness/server.mjs'

const execute = promisify(execFile)
const HERE = '192.0.2.1' // the host's end
const THERE = '192.0.2.2'
export const FAR = '203.0.113.1'
export const NAME = 'web.test'
export const PORT = 9443

const ROUTER = '169.254.0.1'
const PEER_TCP = 17443
const PEER_DNS = 17053

const inside = (pid) => ['nsenter', `--net=/proc/${pid}/ns/net`]
const world = () => inside(process.env.QUICKSAND_LAB_WORLD)
const run = ([program, ...args]) => execFileSync(program, args, { encoding: 'utf8' })
const ended = (child) => new Promise((done) => (child.exitCode === null && child.signalCode === null ? (child.once('exit', done), child.kill('SIGKILL')) : done()))

export function compile(scratch) {
  const program = path.join(scratch, 'reach')
  execFileSync('musl-gcc', ['-static', '-O2', '-s', '-D_GNU_SOURCE', path.join(repository, 'bench/reach.c'), '-o', program])
  return program
}

// What the program prints, in the network of that process.
export async function reachFrom(pid, program, args) {
  const [enter, ...rest] = [...inside(pid), program, ...args.map(String)]
  return (await execute(enter, rest)).stdout
}

// Gives {run: measures from the plain namespace, stop}.
export async function startOutside(program) {
  const far = spawn(world()[0], [...world().slice(1), program, 'serve', String(PORT)], { stdio: 'ignore' })
  const plain = spawn('unshare', ['--net', 'sleep', 'infinity'], { stdio: 'ignore' })
  await eventually('a namespace', () => fs.readlinkSync(`/proc/${plain.pid}/ns/net`) !== fs.readlinkSync('/proc/self/ns/net'))
  const there = inside(plain.pid)
  run(['ip', 'link', 'add', 'plain0', 'type', 'veth', 'peer', 'name', 'p0', 'netns', String(plain.pid)])
  run(['ip', 'address', 'add', `${HERE}/30`, 'dev', 'plain0'])
  run(['ip', 'link', 'set', 'plain0', 'up'])
  run([...there, 'ip', 'address', 'add', `${THERE}/30`, 'dev', 'p0'])
  run([...there, 'ip', 'link', 'set', 'p0', 'up'])
  run([...there, 'ip', 'route', 'add', 'default', 'via', HERE])
  run([...world(), 'ip', 'route', 'replace', '192.0.2.0/30', 'via', '198.51.100.2'])
  await eventually('the far end', () => reachFrom(plain.pid, program, ['rate', FAR, PORT, NAME, 1, 1]).catch(() => 0), 10_000)
  return {
    run: async (...args) => Number(await reachFrom(plain.pid, program, args)),
    stop: async () => {
      await Promise.all([ended(far), ended(plain)])
      spawnSync('ip', ['link', 'delete', 'plain0']) // it may have gone with its other end
    },
  }
}

const addressOf = (pid) => /inet (10\.[\d.]+)/.exec(run([...inside(pid), 'ip', '-4', 'address', 'show']))[1]

// nginx as a proxy of TCP that looks at the name in the hello, with a worker for each processor.
function nginxArgs(scratch) {
  const folder = path.join(scratch, 'nginx-preread')
  fs.rmSync(folder, { recursive: true, force: true })
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(
    path.join(folder, 'nginx.conf'),
    `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; worker_processes auto; user root; pid ${folder}/pid; error_log ${folder}/error.log;
events { worker_connections 8192; }
stream {
  map $ssl_preread_server_name $to { ${NAME} ${FAR}:${PORT}; }
  server { listen ${ROUTER}:${PEER_TCP} reuseport; ssl_preread on; tcp_nodelay on; proxy_pass $to; }
}
`,
  )
  return ['/usr/sbin/nginx', '-c', path.join(folder, 'nginx.conf'), '-p', folder]
}

// With its cache, as it comes.
const DNSMASQ = ['/usr/sbin/dnsmasq', '--no-daemon', '--conf-file=/dev/null', '--no-hosts', '--no-resolv', '--server=203.0.113.53', `--port=${PEER_DNS}`, `--listen-address=${ROUTER}`, '--bind-interfaces', '--user=root', '--pid-file=']

// Both, until stop(); take(pid) leads what comes out of that process's network to them.
export function startPeers(server, scratch) {
  const gateway = ['nsenter', `--net=${server.data}/run/gateway.netns`]
  const nft = (text) => run([...gateway, 'nft', text])
  nft('add set inet quicksand bench { type ipv4_addr; }')
  nft(`insert rule inet quicksand to_egress ip saddr @bench tcp dport ${PORT} dnat ip to ${ROUTER}:${PEER_TCP}`)
  nft(`insert rule inet quicksand to_egress ip saddr @bench udp dport 53 dnat ip to ${ROUTER}:${PEER_DNS}`)
  nft(`insert rule inet quicksand input ct status dnat th dport { ${PEER_TCP}, ${PEER_DNS} } accept`)
  const children = [nginxArgs(scratch), DNSMASQ].map((command) => spawn(gateway[0], [...gateway.slice(1), ...command], { stdio: 'ignore' }))
  return {
    take: (pid) => nft(`add element inet quicksand bench { ${addressOf(pid)} }`),
    stop: () => Promise.all(children.map((child) => new Promise((done) => (child.exitCode !== null ? done() : (child.once('exit', done), child.kill('SIGTERM')))))),
  }
}
