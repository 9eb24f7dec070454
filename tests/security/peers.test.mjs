// Private networks, attacked: by another team's network of the same name, by neighbours of the same team, and by a member itself.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { eventually, patience, startServer } from '../harness/server.mjs'
import { loadSdk, python, shell } from '../harness/sdk.mjs'

const life = { timeoutMs: 300_000 * patience }
let server, sdk, theirKey, db, web, outside, foreign, addresses
before(async () => {
  server = await startServer()
  sdk = await loadSdk(server)
  await eventually('the egress process', async () => /^quicksand_egress_up 1$/m.test((await server.api('GET', '/metrics')).text))
  const { body: team } = await server.api('POST', '/admin/teams', { name: 'others' })
  theirKey = (await server.api('POST', `/admin/teams/${team.teamID}/api-keys`, { name: 'k' })).body.key
  const member = async (name, key = server.key) => {
    const { sandboxID } = await server.create({ network: { peers: { network: 'shop', name } } }, { key })
    return sdk.Sandbox.connect(sandboxID, { ...life, apiKey: key })
  }
  db = await member('db')
  web = await member('web')
  foreign = await member('db', theirKey)
  outside = await sdk.Sandbox.create('base', life)
  addresses = {}
  for (const [name, one] of Object.entries({ db, web, foreign, outside })) addresses[name] = (await run(one, 'hostname -I')).stdout.trim()
  await db.commands.run(
    `python3 -c "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7000)); print('up', flush=True)
while True: print(s.recvfrom(99), file=open('/tmp/heard', 'a'), flush=True)"`,
    { background: true, timeoutMs: 0 },
  )
  await db.commands.run('python3 -m http.server 8000 --bind 0.0.0.0', { background: true, timeoutMs: 0 })
  await eventually('it serves', async () => (await run(web, 'curl -fsS -m 3 http://db:8000/')).exitCode === 0)
})
after(async () => {
  await foreign?.kill()
  await server.destroy()
})

const run = (sandbox, command, user = 'user') => shell(sandbox, command, { timeoutMs: 30_000 * patience, user })
const heard = async () => (await run(db, 'cat /tmp/heard 2>/dev/null')).stdout
// What arrives within a moment; the word is the packet's own.
const arrives = async (word, ms = 500) => {
  const end = Date.now() + ms * patience
  while (Date.now() < end) if ((await heard()).includes(word)) return true
  return false
}

test('another team has another network of that name', async () => {
  for (const host of [addresses.db, addresses.web, 'web', 'web.shop.internal', db.sandboxId, `${web.sandboxId}.shop.internal`])
    assert.notEqual((await run(foreign, `curl -fsS -m 3 http://${host}:8000/`)).exitCode, 0, host)
  assert.match((await run(foreign, 'getent hosts db')).stdout, new RegExp(`^${addresses.foreign.replaceAll('.', '\\.')}\\s`))
  assert.match((await run(web, 'getent hosts db')).stdout, new RegExp(`^${addresses.db.replaceAll('.', '\\.')}\\s`))
  // Nor does it see or change who is in it.
  assert.equal((await server.api('GET', `/sandboxes/${db.sandboxId}`, undefined, { key: theirKey })).status, 404)
  assert.equal((await server.api('PUT', `/sandboxes/${db.sandboxId}/network`, {}, { key: theirKey })).status, 404)
  const taken = await server.api('POST', '/sandboxes', { templateID: 'base', timeout: 60, network: { peers: { network: 'shop', name: 'db' } } }, { key: theirKey })
  assert.equal(taken.status, 409)
  assert.ok(!taken.text.includes(db.sandboxId), taken.text)
})

// As root inside, with every right there is.
const forge = (sandbox, word, source) =>
  python(
    sandbox,
    `import socket, struct
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff
word = ${JSON.stringify(word)}.encode()
source, target = socket.inet_aton('${source}'), socket.inet_aton('${addresses.db}')
udp = struct.pack('!HHHH', 5000, 7000, 8 + len(word), 0) + word
head = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0) + source + target
head = head[:10] + struct.pack('!H', checksum(head)) + head[12:]
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
try:
    s.sendto(head + udp, ('${addresses.db}', 0))
    result = 'sent'
except OSError as error:
    result = str(error)`,
    { user: 'root' },
  )

test('forged addresses lead nowhere', async () => {
  // The attack works where nothing is forged, from one who may.
  assert.equal(await forge(web, 'honest', addresses.web), 'sent')
  assert.ok(await arrives('honest', 5000), 'a member’s own packet arrives')
  for (const [who, one] of Object.entries({ foreign, outside }))
    for (const [as, source] of Object.entries({ ...addresses, router: '169.254.0.1', stranger: '203.0.113.1' })) {
      await forge(one, `${who}-as-${as}-`, source)
      assert.equal(await arrives(`${who}-as-${as}-`, 150), false, `${who} as ${as}`)
    }
  // Nor can a member speak in another's name.
  for (const as of ['foreign', 'outside']) {
    await forge(web, `web-as-${as}-`, addresses[as])
    assert.equal(await arrives(`web-as-${as}-`, 150), false, as)
  }
})

const FRAMES = `import socket
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    result = 'open'
except OSError as error:
    result = str(error)`

test('addresses given to oneself, ARP and other neighbours change nothing', async () => {
  const tricks = [
    `ip addr add ${addresses.web}/32 dev eth0 && curl -fsS -m 2 --interface ${addresses.web} http://${addresses.db}:8000/`,
    `ip route add ${addresses.db}/32 dev eth0; curl -fsS -m 2 http://${addresses.db}:8000/`,
    `ip link set eth0 arp on; ip neigh replace ${addresses.db} lladdr ff:ff:ff:ff:ff:ff dev eth0; curl -fsS -m 2 http://${addresses.db}:8000/`,
  ]
  const attacker = await sdk.Sandbox.create('base', life)
  for (const trick of tricks) assert.notEqual((await run(attacker, trick, 'root')).exitCode, 0, trick)
  // Frames of one's own making are not to be had.
  assert.match(await python(attacker, FRAMES, { user: 'root' }), /not supported|not permitted/)
  assert.equal((await run(web, 'curl -fsS -m 3 http://db:8000/')).exitCode, 0)
  await attacker.kill()
})

test('the next sandbox of an address inherits nothing', async () => {
  const one = await server.create({ network: { peers: { network: 'shop', name: 'gone' } } })
  const gone = await sdk.Sandbox.connect(one.sandboxID, life)
  const holding = await gone.commands.run(
    `python3 -c "import socket, time; s = socket.create_connection(('db', 8000)); print('open', flush=True); time.sleep(600)"`,
    { background: true, timeoutMs: 0 },
  )
  await eventually('it is open', () => holding.stdout.includes('open'))
  const address = (await run(gone, 'hostname -I')).stdout.trim()
  await gone.kill()
  // Until one has its address; those that have others are kept so that theirs are not given again.
  const others = []
  for (let i = 0; i < 40; i++) {
    const next = await sdk.Sandbox.create('base', life)
    others.push(next)
    assert.notEqual((await run(next, `curl -fsS -m 2 http://${addresses.db}:8000/`)).exitCode, 0)
    if ((await run(next, 'hostname -I')).stdout.trim() === address) break
  }
  await Promise.all(others.map((other) => other.kill()))
})
