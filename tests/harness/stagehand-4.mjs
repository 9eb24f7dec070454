// Stagehand 4 in a process of its own, since it wants a newer Node.js: stagehand-4.mjs SERVER PAGE. Prints what it saw, as JSON.
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { think } from './model.mjs'

const packages = path.join(import.meta.dirname, '../../build/npm/stagehand-4/node_modules')
const { Stagehand, browserbase } = await import(pathToFileURL(path.join(packages, '@browserbasehq/stagehand/dist/index.mjs')))
const { z } = await import(pathToFileURL(path.join(packages, 'zod/v4/index.js')))
const [, , baseUrl, address] = process.argv

const model = {
  generate: async (params) => {
    const answer = think(params.messages.map(({ content }) => [content].flat().map((part) => part.text ?? '').join('\n')).join('\n'), params.responseFormat?.schema)
    return { role: 'assistant', content: { type: 'text', text: JSON.stringify(answer) }, outputFormat: 'json_schema', structuredContent: answer }
  },
}
const browser = await browserbase.launch({ apiKey: process.env.BROWSERBASE_API_KEY, baseUrl })
const hand = await Stagehand.create({ browser, model, logging: { level: 'error', format: 'json' } })
const [page] = await browser.context.pages()
await page.goto(address)
const seen = { title: await page.title(), size: typeof (await page.evaluate('innerWidth')), picture: Buffer.from(await page.screenshot()).subarray(1, 4).toString() }
const observed = await hand.observe('find the button go')
seen.observed = observed.data[0].method
await hand.act("type 'by a model' into the textbox word")
await hand.act('press the button go')
seen.typed = await page.title()
seen.extracted = (await hand.extract('what the heading says', z.object({ heading: z.string() }))).data
await hand.close()
await browser.close()
console.log(JSON.stringify(seen))
