// The API key: asked for once, kept for this tab only, never part of an address.
'use strict'

const KEY = 'quicksand.key'

window.quicksand = {
  // Resolves to the key; shows the dialog when there is none.
  key() {
    const known = sessionStorage.getItem(KEY)
    if (known) return Promise.resolve(known)
    const dialog = document.getElementById('key-dialog')
    const input = document.getElementById('key')
    return new Promise((done) => {
      dialog.addEventListener(
        'close',
        () => {
          sessionStorage.setItem(KEY, input.value.trim())
          input.value = ''
          done(sessionStorage.getItem(KEY))
        },
        { once: true },
      )
      dialog.showModal()
    })
  },

  forget() {
    sessionStorage.removeItem(KEY)
  },

  // One request of the API; a refused key is forgotten.
  async api(path, options = {}) {
    const key = await this.key()
    const answer = await fetch(`/api/v1${path}`, { ...options, headers: { 'X-API-KEY': key, ...options.headers } })
    if (answer.status === 401) {
      this.forget()
      throw new Error('the key was refused; reload to give another')
    }
    if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message ?? `status ${answer.status}`)
    return answer
  },

  // Browsers let a WebSocket carry nothing but an address and protocol names: the key goes in a name.
  protocols(key) {
    const bytes = new TextEncoder().encode(key)
    const text = btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
    return ['quicksand', `key.${text}`]
  },
}
