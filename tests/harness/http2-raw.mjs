// HTTP/2 by hand, for tests of what no well-behaved client does: frames as bytes, a window that never opens.
import net from 'node:net'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
export const FRAME = { data: 0, headers: 1, reset: 3, settings: 4, goaway: 7, continuation: 9 }
export const ERROR = { protocol: 1, refused: 7, calm: 11 }
const END_STREAM = 1
const END_HEADERS = 4

export function frame(type, flags, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = type
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

// HPACK: a literal without indexing and without Huffman coding.
function field(name, value) {
  const text = (s) => {
    const bytes = Buffer.from(s, 'latin1')
    if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes])
    const size = [127]
    let rest = bytes.length - 127
    for (; rest >= 128; rest >>= 7) size.push((rest & 127) | 128)
    return Buffer.concat([Buffer.from([...size, rest]), bytes])
  }
  return Buffer.concat([Buffer.from([0]), text(name), text(value)])
}

export const headers = (stream, fields, flags = END_STREAM | END_HEADERS) => frame(FRAME.headers, flags, stream, Buffer.concat(fields.map(([name, value]) => field(name, value))))

export const get = (path, extra = []) => [[':method', 'GET'], [':scheme', 'http'], [':path', path], [':authority', 'x'], ...extra]

// A connection with an initial window of `window` bytes. It counts the frames that it reads; `read: false` leaves all of
// them in the socket.
export class RawHttp2 {
  constructor(socket, { window = 0, read = true } = {}) {
    this.socket = socket
    this.next = 1
    this.resets = new Map() // stream → error
    this.statuses = new Map() // stream → first byte of its response head (0x88: status 200)
    this.ended = new Set() // streams whose response is whole
    this.data = new Map() // stream → chunks
    this.over = false
    this.pending = Buffer.alloc(0)
    socket.on('error', () => {})
    socket.on('close', () => (this.over = true))
    if (read) socket.on('data', (chunk) => this.#take(chunk))
    else socket.pause()
    const settings = Buffer.alloc(6)
    settings.writeUInt16BE(4, 0)
    settings.writeUInt32BE(window, 2)
    socket.write(Buffer.concat([PREFACE, frame(FRAME.settings, 0, 0, settings)]))
  }

  static open(options, settings) {
    return new Promise((done, fail) => {
      const socket = net.connect(options)
      socket.once('connect', () => done(new RawHttp2(socket, settings)))
      socket.once('error', fail)
    })
  }

  // Sends `count` requests with the same fields in one write.
  ask(fields, count = 1) {
    const frames = []
    for (let i = 0; i < count; i++, this.next += 2) frames.push(headers(this.next, fields))
    this.socket.write(Buffer.concat(frames))
  }

  #take(chunk) {
    this.pending = Buffer.concat([this.pending, chunk])
    while (this.pending.length >= 9) {
      const length = this.pending.readUIntBE(0, 3)
      if (this.pending.length < 9 + length) return
      const [type, flags, stream] = [this.pending[3], this.pending[4], this.pending.readUInt32BE(5)]
      const payload = this.pending.subarray(9, 9 + length)
      this.pending = this.pending.subarray(9 + length)
      if (type === FRAME.settings && !(flags & 1)) this.socket.write(frame(FRAME.settings, 1, 0))
      if (type === FRAME.headers && !this.statuses.has(stream)) this.statuses.set(stream, payload[0])
      if (type === FRAME.data) this.data.set(stream, [...(this.data.get(stream) ?? []), Buffer.from(payload)])
      if ((type === FRAME.headers || type === FRAME.data) && flags & END_STREAM) this.ended.add(stream)
      if (type === FRAME.reset) this.resets.set(stream, payload.readUInt32BE(0))
      if (type === FRAME.goaway) this.goaway = payload.readUInt32BE(4)
    }
  }

  body(stream) {
    return Buffer.concat(this.data.get(stream) ?? []).toString('latin1')
  }

  close() {
    this.socket.destroy()
  }
}
