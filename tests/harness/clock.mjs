// Moves the clock of a server under test: it is started again as a copy of the program in which a variable of
// src/base/clock.c, zero in every build, has another initial value. All its processes then see a later time.
// Envd inside sandboxes, the command line and this test keep the real time.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'

const VARIABLE = 'test_pass_us'

// Where the bytes of a variable with this name are in an ELF file with symbols.
function offsetOf(elf, name) {
  const sectionsAt = Number(elf.readBigUInt64LE(0x28))
  const [size, count] = [elf.readUInt16LE(0x3a), elf.readUInt16LE(0x3c)]
  const sections = Array.from({ length: count }, (_, i) => {
    const at = sectionsAt + i * size
    return {
      type: elf.readUInt32LE(at + 4),
      address: Number(elf.readBigUInt64LE(at + 16)),
      offset: Number(elf.readBigUInt64LE(at + 24)),
      size: Number(elf.readBigUInt64LE(at + 32)),
      link: elf.readUInt32LE(at + 40),
    }
  })
  const symbols = sections.find((one) => one.type === 2)
  assert.ok(symbols, 'the program has no symbols')
  const names = sections[symbols.link].offset
  for (let at = symbols.offset; at < symbols.offset + symbols.size; at += 24) {
    const from = names + elf.readUInt32LE(at)
    if (elf.toString('latin1', from, from + name.length + 1) !== `${name}\0`) continue
    const section = sections[elf.readUInt16LE(at + 6)]
    assert.equal(section.type, 1, `${name} is not in a section with data`)
    return section.offset + Number(elf.readBigUInt64LE(at + 8)) - section.address
  }
  assert.fail(`the program has no variable ${name}`)
}

// Stops the server and starts it again `seconds` later; more than once adds up.
export async function passTime(server, seconds) {
  const original = server.originalProgram ?? server.program
  const folder = path.join(server.home, `later-${(server.passedSeconds ?? 0) + seconds}`)
  const elf = fs.readFileSync(original)
  server.originalProgram = original
  server.passedSeconds = (server.passedSeconds ?? 0) + seconds
  elf.writeBigInt64LE(BigInt(server.passedSeconds) * 1_000_000n, offsetOf(elf, VARIABLE))
  await server.stop()
  fs.mkdirSync(folder, { mode: 0o755 })
  for (const name of fs.readdirSync(path.dirname(original), { withFileTypes: true })) {
    if (name.isFile() && name.name !== path.basename(original)) fs.copyFileSync(path.join(path.dirname(original), name.name), path.join(folder, name.name))
  }
  server.program = path.join(folder, path.basename(original))
  fs.writeFileSync(server.program, elf, { mode: 0o755 })
  await server.start()
}

export const HOUR = 3600
export const DAY = 24 * HOUR
