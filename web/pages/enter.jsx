// Sign-in with an API key.
import { useEffect, useState } from 'preact/hooks'
import { signin } from '../api.js'
import { Button, Field } from '../parts.jsx'

export function Enter({ onEnter, said }) {
  const [key, setKey] = useState('')
  const [error, setError] = useState(said)
  const [busy, setBusy] = useState(false)
  useEffect(() => void (document.title = 'Sign in · Quicksand'), [])
  const submit = async (event) => {
    event.preventDefault()
    if (!key.trim()) return setError('Type or paste an API key first.')
    setBusy(true)
    try {
      await signin(key.trim())
      setKey('')
      await onEnter()
    } catch (why) {
      setError(why.status === 401 ? 'The server does not know this API key. It may be incomplete or revoked.' : why.message)
    }
    setBusy(false)
  }
  return (
    <main class="enter">
      <form onSubmit={submit} novalidate>
        <img src="/ui/icon.svg" alt="" width="56" height="56" />
        <h1>Quicksand</h1>
        <p>Sandboxes for agents, on your own machine.</p>
        <Field label="API key" error={error}>
          <input id="key" type="password" autocomplete="current-password" autofocus spellcheck={false} value={key} onInput={(event) => setKey(event.target.value)} />
        </Field>
        <Button type="submit" kind="main" disabled={busy}>Sign in</Button>
        <small>
          No API key? On the server, <code>quicksand open</code> prints a link that signs you in once.
        </small>
      </form>
    </main>
  )
}
