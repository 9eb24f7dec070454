// All pages but the first one.
export { Admin } from './admin.jsx'
export { ApiPages } from './apidocs.jsx'
export { Browsers } from './browsers.jsx'
export { Snapshots, Volumes } from './kept.jsx'
export { Sandbox } from './sandbox.jsx'
export { Sandboxes } from './sandboxes.jsx'
export { Templates } from './templates.jsx'
export { Work } from './work.jsx'
