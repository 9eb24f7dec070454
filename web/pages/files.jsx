// Files of a sandbox: browse, drop to upload, download, edit text with a look at what changes.
import { useMemo, useState } from 'preact/hooks'
import { enc, remove, request, v1 } from '../api.js'
import { Button, Card, Confirm, Dialog, Empty, Icon, Loading, Problem, Text, attempt, useData } from '../parts.jsx'
import { bytes, moment, plain } from '../words.js'

const EDIT_MAX = 512 * 1024
const join = (folder, name) => `${folder === '/' ? '' : folder}/${name}`
const address = (id, path) => `/api/v1/sandboxes/${enc(id)}/files?path=${enc(path)}`

export function Files({ id, reads }) {
  const [folder, setFolder] = useState('/home/user')
  const { data, error, again } = useData(() => v1(`/sandboxes/${enc(id)}/files?path=${enc(folder)}&list=true`), [id, folder])
  const [over, setOver] = useState(false)
  const [edited, setEdited] = useState(null)
  const [dropped, setDropped] = useState(null)
  const parts = folder.split('/').filter(Boolean)
  const upload = async (files) => {
    for (const file of files) await attempt(`${file.name} is there`, () => request(address(id, join(folder, file.name)), { method: 'PUT', body: file, headers: { 'Content-Type': 'application/octet-stream' } }))
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
          {!reads && (
            <label class="button">
              <Icon name="up" size={16} /> Upload
              <input class="hidden" type="file" multiple onChange={(event) => (upload([...event.target.files]), (event.target.value = ''))} />
            </label>
          )}
          <Button icon="refresh" kind="quiet" label="Read again" onClick={again} />
        </>
      }
    >
      <div onDragOver={(event) => (event.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)} onDrop={drop}>
        {error && <Problem error={error} again={again} />}
        {!data && !error && <Loading />}
        {data && (
          <div class="table-wrap"><table>
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
                  <td class="mono soft">{one.mode}</td>
                  <td class="soft">{moment(one.modified_at)}</td>
                  <td class="do">
                    {one.type !== 'directory' && <a class="button quiet" href={address(id, join(folder, one.name))} download={one.name} aria-label={`Download ${plain(one.name)}`}>Download</a>}
                    {!reads && <Button icon="bin" kind="quiet" label={`Delete ${plain(one.name)}`} onClick={() => setDropped(one)} />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table></div>
        )}
        {data && !entries.length && <Empty icon="folder" title="An empty folder">{reads ? 'There is nothing to see.' : 'Drop files here to upload them.'}</Empty>}
      </div>
      {edited && <Editor id={id} path={join(folder, edited.name)} size={edited.size} reads={reads} onClose={() => (setEdited(null), again())} />}
      {dropped && (
        <Confirm title="Delete?" action="Delete" onClose={() => setDropped(null)} onDo={() => remove(address(id, join(folder, dropped.name))).then(again)}>
          {plain(join(folder, dropped.name))} and all that is in it will be gone.
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
  <pre class="diff" tabIndex={0} aria-label="What changes">
    {rows.map(([sign, line], at) => <div key={at} class={sign === '+' ? 'added' : sign === '-' ? 'gone' : ''}>{sign} {plain(line)}</div>)}
  </pre>
)

function Editor({ id, path, size, reads, onClose }) {
  const { data, error } = useData(async () => {
    if (size > EDIT_MAX) throw new Error(`This file has ${bytes(size)}; at most ${bytes(EDIT_MAX)} can be edited here. Download it instead.`)
    const buffer = await (await request(address(id, path))).arrayBuffer()
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(buffer)
    } catch {
      throw new Error('This file is no text. Download it instead.')
    }
  }, [path])
  const [text, setText] = useState(null)
  const [looking, setLooking] = useState(false)
  const now = text ?? data ?? ''
  const save = async () => {
    const done = await attempt(`${path} is saved`, async () => {
      const newest = await (await request(address(id, path))).text().catch(() => null)
      if (newest !== null && newest !== data) throw new Error('The file was changed by somebody else meanwhile. Close, open it again and look.')
      await request(address(id, path), { method: 'PUT', body: now, headers: { 'Content-Type': 'application/octet-stream' } })
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
        {!reads && data !== null && (looking ? <Button kind="main" onClick={save}>Save</Button> : <Button kind="main" disabled={now === data} onClick={() => setLooking(true)}>Look at what changes</Button>)}
      </footer>
    </Dialog>
  )
}
