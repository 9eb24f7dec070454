// Files of a sandbox: browse, upload by drag and drop, download, create, rename, delete, and edit text with a diff before saving.
import { useMemo, useState } from 'preact/hooks'
import { enc, post, remove, request, v1 } from '../api.js'
import { Button, Card, Confirm, Dialog, Empty, Field, Icon, Loading, Problem, Text, attempt, useData } from '../parts.jsx'
import { bytes, moment, plain } from '../words.js'

const EDIT_MAX = 512 * 1024
const join = (folder, name) => `${folder === '/' ? '' : folder}/${name}`
const address = (id, path) => `/api/v1/sandboxes/${enc(id)}/files?path=${enc(path)}`

const RAW = { 'Content-Type': 'application/octet-stream' }
const HOME = '/home/user'

// A program with words as arguments, in the sandbox.
async function run(id, argv) {
  const { exit_code, stdout, stderr } = await post(`/api/v1/sandboxes/${enc(id)}/execute`, { argv, timeout: 10 })
  if (exit_code !== 0) throw new Error(stderr.trim() || `${argv[0]} failed with exit code ${exit_code}`)
  return stdout
}

// The folder of the address, the workspace, or where commands start. That is known from the paths of its files; when it has none, a
// command asks for it, but not for viewers.
async function firstFolder(box, reads) {
  const given = new URLSearchParams(location.hash.split('?')[1] ?? '').get('path')
  if (given?.startsWith('/')) return given
  if (box.workspace_root?.startsWith('/')) return box.workspace_root
  const { entries } = await v1(`/sandboxes/${enc(box.id)}/files?path=.&list=true`)
  if (entries[0]?.path.startsWith('/')) return entries[0].path.slice(0, -entries[0].name.length - 1) || '/'
  return reads ? HOME : (await run(box.id, ['pwd'])).trim()
}

export function Files({ box, reads }) {
  const first = useData(() => firstFolder(box, reads).catch(() => HOME), [box.id])
  return first.data ? <Folder key={first.data} id={box.id} first={first.data} reads={reads} /> : <Loading />
}

// Checks a name for an entry of a folder; undefined: it is good.
function faultOf(name, entries, old) {
  if (!name.trim()) return 'Type a name.'
  if (name === '.' || name === '..' || /[/\0]/.test(name)) return 'A name has no slash, and is not . or ..'
  if (name !== old && entries.some((one) => one.name === name)) return `${plain(name)} exists already.`
}

const WISHES = {
  file: { title: 'New file', action: 'Create', work: (id, path) => request(address(id, path), { method: 'PUT', body: '', headers: RAW }) },
  folder: { title: 'New folder', action: 'Create', work: (id, path) => run(id, ['mkdir', '--', path]) },
  rename: { title: 'Rename', action: 'Rename', work: (id, path, old) => run(id, ['sh', '-c', 'if [ -e "$2" ] || [ -L "$2" ]; then echo "$2 exists already" >&2; exit 1; fi; exec mv -- "$1" "$2"', 'mv', old, path]) },
}

// Asks for a name and does it. old: the entry that gets another name.
function NameDialog({ kind, id, folder, entries, old, onClose }) {
  const [name, setName] = useState(old ?? '')
  const [fault, setFault] = useState(null)
  const [busy, setBusy] = useState(false)
  const { title, action, work } = WISHES[kind]
  const submit = async (event) => {
    event.preventDefault()
    const wrong = faultOf(name, entries, old)
    setFault(wrong)
    if (wrong || name === old) return wrong || onClose()
    setBusy(true)
    try {
      await work(id, join(folder, name), old && join(folder, old))
      onClose(name)
    } catch (why) {
      setFault(why.message)
      setBusy(false)
    }
  }
  return (
    <Dialog title={old ? `Rename ${plain(old)}` : title} onClose={() => onClose()}>
      <form onSubmit={submit} novalidate>
        <Field label="Name" error={fault && plain(fault)} hint={`In ${plain(folder)}`}><input autofocus spellcheck={false} maxlength={255} value={name} onInput={(event) => setName(event.target.value)} /></Field>
        <footer>
          <Button kind="quiet" onClick={() => onClose()}>Cancel</Button>
          <Button kind="main" type="submit" disabled={busy}>{action}</Button>
        </footer>
      </form>
    </Dialog>
  )
}

function Folder({ id, first, reads }) {
  const [folder, setFolder] = useState(first)
  const { data, error, again } = useData(() => v1(`/sandboxes/${enc(id)}/files?path=${enc(folder)}&list=true`), [id, folder])
  const [wish, setWish] = useState(null) // {kind, old}
  const [over, setOver] = useState(false)
  const [edited, setEdited] = useState(null)
  const [dropped, setDropped] = useState(null)
  const parts = folder.split('/').filter(Boolean)
  const upload = async (files) => {
    for (const file of files) await attempt(`Uploaded ${file.name}`, () => request(address(id, join(folder, file.name)), { method: 'PUT', body: file, headers: RAW }))
    again()
  }
  const drop = (event) => {
    event.preventDefault()
    setOver(false)
    if (!reads) upload([...event.dataTransfer.files])
  }
  const entries = useMemo(() => [...(data?.entries ?? [])].sort((a, b) => (a.type === b.type ? (a.name < b.name ? -1 : 1) : a.type === 'directory' ? -1 : 1)), [data])
  return (
    <Card
      class={over ? 'over' : ''}
      title={
        <nav class="crumbs" aria-label="Folders">
          <button type="button" onClick={() => setFolder('/')}>/</button>
          {parts.map((part, at) => <button type="button" key={at} onClick={() => setFolder(`/${parts.slice(0, at + 1).join('/')}`)}>{plain(part)}{at < parts.length - 1 && ' /'}</button>)}
        </nav>
      }
      actions={
        <>
          {!reads && <Button icon="file" onClick={() => setWish({ kind: 'file' })}>New file</Button>}
          {!reads && <Button icon="folder" onClick={() => setWish({ kind: 'folder' })}>New folder</Button>}
          {!reads && (
            <label class="button">
              <Icon name="up" size={16} /> Upload
              <input class="hidden" type="file" multiple onChange={(event) => (upload([...event.target.files]), (event.target.value = ''))} />
            </label>
          )}
          <Button icon="refresh" kind="quiet" label="Refresh" onClick={again} />
        </>
      }
    >
      <div onDragOver={(event) => (event.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)} onDrop={drop}>
        {error && <Problem error={error} again={again} />}
        {!data && !error && <Loading />}
        {data && (
          <div class="table-wrap" tabIndex={0}><table class="files">
            <thead><tr><th>name</th><th class="number">size</th><th>mode</th><th>changed</th><th /></tr></thead>
            <tbody>
              {entries.map((one) => (
                <tr key={one.name}>
                  <td>
                    <button type="button" class="name" onClick={() => (one.type === 'directory' ? setFolder(join(folder, one.name)) : setEdited(one))}>
                      <Icon name={one.type === 'directory' ? 'folder' : 'file'} size={16} /> <Text>{one.name}</Text>
                    </button>
                  </td>
                  <td class="number">{one.type === 'directory' ? '' : bytes(one.size)}</td>
                  <td class="mono soft mode">{one.mode}</td>
                  <td class="soft changed">{moment(one.modified_at)}</td>
                  <td class="do">
                    {one.type !== 'directory' && <a class="button quiet" href={address(id, join(folder, one.name))} download={one.name} aria-label={`Download ${plain(one.name)}`} title={`Download ${plain(one.name)}`}><Icon name="down" size={16} /></a>}
                    {!reads && <Button icon="pen" kind="quiet" label={`Rename ${plain(one.name)}`} onClick={() => setWish({ kind: 'rename', old: one.name })} />}
                    {!reads && <Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => setDropped(one)} />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table></div>
        )}
        {data && !entries.length && <Empty icon="folder" title="This folder is empty">{reads ? 'It has no files.' : 'Drop files here to upload them.'}</Empty>}
      </div>
      {edited && <Editor id={id} path={join(folder, edited.name)} size={edited.size} reads={reads} onClose={() => (setEdited(null), again())} />}
      {wish && <NameDialog {...wish} id={id} folder={folder} entries={entries} onClose={(made) => (setWish(null), made && again(), wish.kind === 'file' && made && setEdited({ name: made, size: 0 }))} />}
      {dropped && (
        <Confirm title={`Delete ${plain(dropped.name)}?`} action="Delete" onClose={() => setDropped(null)} onDo={() => remove(address(id, join(folder, dropped.name))).then(again)}>
          {plain(join(folder, dropped.name))}{dropped.type === 'directory' ? ' and all files in it' : ''} will be deleted.
        </Confirm>
      )}
    </Card>
  )
}

// Lines that are in one and not in the other, by the longest common run; long texts are compared from both ends.
export function diff(before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')]
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const [x, y] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)]
  if (x.length * y.length > 1_000_000) return { head, rows: [...x.map((line) => ['-', line]), ...y.map((line) => ['+', line])] }
  const table = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1))
  for (let i = x.length - 1; i >= 0; i--) for (let k = y.length - 1; k >= 0; k--) table[i][k] = x[i] === y[k] ? table[i + 1][k + 1] + 1 : Math.max(table[i + 1][k], table[i][k + 1])
  const rows = []
  for (let i = 0, k = 0; i < x.length || k < y.length; ) {
    if (i < x.length && k < y.length && x[i] === y[k]) rows.push([' ', x[i++]], k++ && null)
    else if (k >= y.length || (i < x.length && table[i + 1][k] >= table[i][k + 1])) rows.push(['-', x[i++]])
    else rows.push(['+', y[k++]])
  }
  return { head, rows: rows.filter(Array.isArray) }
}

export const Diff = ({ rows }) => (
  <pre class="diff" tabIndex={0} aria-label="Changes">
    {rows.map(([sign, line], at) => <div key={at} class={{ '+': 'added', '-': 'gone', '@': 'hunk' }[sign] ?? ''}>{sign === '@' ? '' : `${sign} `}{plain(line)}</div>)}
  </pre>
)

function Editor({ id, path, size, reads, onClose }) {
  const { data, error } = useData(async () => {
    if (size > EDIT_MAX) throw new Error(`This file has ${bytes(size)}; the editor takes at most ${bytes(EDIT_MAX)}. Download it instead.`)
    const buffer = await (await request(address(id, path))).arrayBuffer()
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(buffer)
    } catch {
      throw new Error('This file is not text. Download it instead.')
    }
  }, [path])
  const [text, setText] = useState(null)
  const [looking, setLooking] = useState(false)
  const now = text ?? data ?? ''
  const save = async () => {
    const done = await attempt(`Saved ${path}`, async () => {
      const newest = await (await request(address(id, path))).text().catch(() => null)
      if (newest !== null && newest !== data) throw new Error('The file has changed since you opened it. Close the editor and open it again.')
      await request(address(id, path), { method: 'PUT', body: now, headers: RAW })
      return true
    })
    if (done) onClose()
  }
  return (
    <Dialog title={plain(path)} onClose={onClose} wide>
      {error && <Problem error={error} />}
      {!error && data === null && <Loading />}
      {data !== null && (looking ? <Diff rows={diff(data, now).rows} /> : <textarea class="editor" spellcheck={false} aria-label={`Text of ${plain(path)}`} readOnly={reads} value={now} onInput={(event) => setText(event.target.value)} />)}
      <footer>
        <a class="button quiet" href={address(id, path)} download={path.split('/').pop()}>Download</a>
        <span class="fill" />
        {looking && <Button onClick={() => setLooking(false)}>Back</Button>}
        {!reads && data !== null && (looking ? <Button kind="main" onClick={save}>Save</Button> : <Button kind="main" disabled={now === data} onClick={() => setLooking(true)}>Review changes</Button>)}
      </footer>
    </Dialog>
  )
}
