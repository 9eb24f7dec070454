// Random numbers that a seed brings back: `const random = randomFrom(7)`, then random(10) is 0 to 9.
export function randomFrom(seed) {
  let state = seed | 0
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit
  }
}

// The seed that the environment names, or a new one: whoever uses it says which it was.
export const seedOf = (name) => Number(process.env[name] ?? Date.now() % 1_000_000)
