// The pages of this build. ABSENT lists the extras that it lacks; tools/web_assets.py puts them in.
import ALL from './pages.json'

export const built = (extra) => !ABSENT.includes(extra)
export const PAGES = ALL.filter((page) => built(page.extra))
