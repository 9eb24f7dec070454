// Creates a sandbox from a template or profile, with its size, idle time, variables, volumes and network.
import { useState } from 'preact/hooks'
import { ask, post, v1 } from '../api.js'
import { Button, Dialog, Field, Problem, note, useData } from '../parts.jsx'
import { go } from '../shell.jsx'

// "A=1" lines as an object; throws on the first invalid line.
export function readEnv(text) {
  const env = {}
  for (const line of text.split('\n')) {
    if (!line.trim()) continue
    const at = line.indexOf('=')
    if (at < 1 || !/^[A-Za-z_]\w*$/.test(line.slice(0, at).trim())) throw new Error(`"${line.slice(0, 40)}" is not NAME=VALUE`)
    env[line.slice(0, at).trim()] = line.slice(at + 1)
  }
  return env
}

// "name:/path" lines as mounts.
export function readVolumes(text) {
  return text.split('\n').map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, name, path] = /^([\w-]+):(\/.+)$/.exec(line) ?? []
    if (!name) throw new Error(`"${line.slice(0, 40)}" is not NAME:/PATH`)
    return { name, path }
  })
}

function number(text, name, low, high) {
  if (text === '') return undefined
  const value = Number(text)
  if (!Number.isInteger(value) || value < low || value > high) throw new Error(`${name} must be a whole number from ${low} to ${high}`)
  return value
}

// The body of the request, or {field: what is wrong}.
function readForm(form) {
  const wrong = {}
  const take = (field, read) => {
    try {
      return read()
    } catch (error) {
      wrong[field] = error.message
    }
  }
  const limits = {
    cpu: take('cpu', () => number(form.cpu, 'Processors', 1, 1024)),
    memoryMb: take('memory', () => number(form.memory, 'Memory', 64, 1048576)),
    diskMb: take('disk', () => number(form.disk, 'Disk', 64, 1048576)),
  }
  const minutes = take('minutes', () => number(form.minutes, 'Minutes', 1, 525600))
  const body = {
    [form.from]: form.name || undefined,
    key: form.key.trim() || undefined,
    env: take('env', () => readEnv(form.env)),
    network: form.network ? { mode: form.network, ...(form.network === 'restricted' ? { allowDomains: form.domains.split(/[\s,]+/).filter(Boolean) } : {}) } : undefined,
    timeout_ms: minutes && minutes * 60_000,
  }
  if (Object.values(limits).some((one) => one !== undefined)) body.limits = limits
  const volumeMounts = take('volumes', () => readVolumes(form.volumes)) ?? []
  if (!volumeMounts.length) return { path: '/api/v1/sandboxes', body, wrong }
  return { path: '/sandboxes', body: withVolumes(form, body, limits, volumeMounts, wrong), wrong }
}

// Volumes are of the engine's own API, which has neither profiles nor keys.
function withVolumes(form, body, limits, volumeMounts, wrong) {
  if (form.from === 'profile' && form.name) wrong.name = 'Volumes need a template.'
  if (body.key) wrong.key = 'A sandbox with volumes cannot have a key.'
  const network = { 'deny-all': { denyOut: ['0.0.0.0/0'] }, restricted: { allowOut: body.network?.allowDomains, denyOut: ['0.0.0.0/0'] } }[form.network]
  return { templateID: (form.from === 'template' && form.name) || 'base', timeout: (body.timeout_ms ?? 3600_000) / 1000, envVars: body.env, cpuCount: limits.cpu, memoryMB: limits.memoryMb, diskSizeMB: limits.diskMb, network, volumeMounts }
}

const START = { from: 'template', name: '', key: '', cpu: '', memory: '', disk: '', minutes: '60', env: '', volumes: '', network: '', domains: '' }

export function Create({ onClose }) {
  const [form, setForm] = useState(START)
  const [wrong, setWrong] = useState({})
  const [error, setError] = useState(null)
  const [busy, setBusy] = useState(false)
  const { data: templates } = useData(() => ask('/templates'), [])
  const { data: volumes } = useData(() => ask('/volumes'), [])
  const { data: profiles } = useData(() => v1('/profiles'), [])
  const field = (name) => ({ value: form[name], onInput: (event) => setForm({ ...form, [name]: event.target.value }) })
  const submit = async (event) => {
    event.preventDefault()
    const { path, body, wrong } = readForm(form)
    setWrong(wrong)
    if (Object.keys(wrong).length) return
    setBusy(true)
    setError(null)
    try {
      const made = await post(path, body)
      const id = made.id ?? made.sandboxID
      note(`Created ${made.key ?? id}`)
      go(`sandboxes/${encodeURIComponent(id)}`)
    } catch (why) {
      setError(why)
      setBusy(false)
    }
  }
  const names = form.from === 'template' ? (templates ?? []).map((one) => one.aliases?.[0] ?? one.names?.[0] ?? one.templateID) : (profiles?.profiles ?? []).map((one) => one.name)
  return (
    <Dialog title="New sandbox" onClose={onClose} wide>
      <form onSubmit={submit} novalidate>
        <div class="grid">
          <Field label="From">
            <select value={form.from} onChange={(event) => setForm({ ...form, from: event.target.value, name: '' })}>
              <option value="template">a template</option>
              <option value="profile">a profile</option>
            </select>
          </Field>
          <Field label={form.from === 'template' ? 'Template' : 'Profile'} error={wrong.name} hint="Optional">
            <select {...field('name')} onChange={(event) => setForm({ ...form, name: event.target.value })}>
              <option value="">default</option>
              {names.map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
          </Field>
          <Field label="Key" error={wrong.key} hint="A name to find it by; optional">
            <input autofocus {...field('key')} maxlength={256} />
          </Field>
          <Field label="Idle minutes" error={wrong.minutes} hint="Time without use after which it is paused or ends">
            <input inputmode="numeric" {...field('minutes')} />
          </Field>
          <Field label="Processors" error={wrong.cpu}>
            <input inputmode="numeric" placeholder="template default" {...field('cpu')} />
          </Field>
          <Field label="Memory, MiB" error={wrong.memory}>
            <input inputmode="numeric" placeholder="template default" {...field('memory')} />
          </Field>
          <Field label="Disk, MiB" error={wrong.disk}>
            <input inputmode="numeric" placeholder="template default" {...field('disk')} />
          </Field>
          <Field label="Network">
            <select {...field('network')} onChange={(event) => setForm({ ...form, network: event.target.value })}>
              <option value="">profile default</option>
              <option value="allow-all">public internet</option>
              <option value="restricted">some domains only</option>
              <option value="deny-all">none</option>
            </select>
          </Field>
        </div>
        {form.network === 'restricted' && (
          <Field label="Allowed domains" hint="Separated by spaces, for example pypi.org *.debian.org">
            <input {...field('domains')} />
          </Field>
        )}
        <Field label="Environment" error={wrong.env} hint="NAME=VALUE, one per line">
          <textarea rows={3} spellcheck={false} {...field('env')} />
        </Field>
        <Field label="Volumes" error={wrong.volumes} hint={volumes?.length ? `NAME:/PATH, one per line. Volumes: ${volumes.map((one) => one.name).slice(0, 8).join(', ')}` : 'NAME:/PATH, one per line. There are no volumes yet.'}>
          <textarea rows={2} spellcheck={false} {...field('volumes')} />
        </Field>
        {error && <Problem error={error} />}
        <footer>
          <Button kind="quiet" onClick={onClose}>Cancel</Button>
          <Button kind="main" type="submit" disabled={busy}>{busy ? 'Creating…' : 'Create'}</Button>
        </footer>
      </form>
    </Dialog>
  )
}
