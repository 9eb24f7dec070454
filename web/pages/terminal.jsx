// The card with a terminal of a sandbox or a session. Scripts of the terminal are loaded when the first one is shown.
import { useEffect, useRef, useState } from 'preact/hooks'
import { Card, Chips } from '../parts.jsx'

const USERS = { '': 'as user', root: 'as root' }

// kind: 'sandboxes' or 'sessions'.
export function TerminalCard({ kind, id }) {
  const place = useRef(null)
  const [user, setUser] = useState('')
  const [status, setStatus] = useState('connecting')
  useEffect(() => {
    let end = null
    let gone = false
    // Once more when it is connected: what is above it may have grown meanwhile.
    const show = () => place.current?.scrollIntoView({ block: 'nearest' })
    const say = (word) => {
      setStatus(word)
      if (word === 'connected') show()
    }
    show()
    import('../terminal.js').then(({ openTerminal }) => {
      if (!gone) end = openTerminal(place.current, kind, id, { user, say })
    })
    return () => {
      gone = true
      end?.()
    }
  }, [kind, id, user])
  const actions = (
    <>
      <span class="soft" role="status">{status}</span>
      <Chips label="User" all={USERS} chosen={user} choose={(name) => name !== user && (setStatus('connecting'), setUser(name))} />
    </>
  )
  return (
    <Card class="terminal" title="Terminal" actions={actions}>
      <div class="screen" ref={place} />
    </Card>
  )
}
