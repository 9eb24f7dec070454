// What cells show, by the published @e2b/code-interpreter: tables, pictures, charts, other forms.
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { loadInterpreter, startInterpreter } from '../harness/interpreter.mjs'

let server, sandbox
before(async () => {
  server = await startInterpreter()
  sandbox = await loadInterpreter(server).Sandbox.create({ timeoutMs: 600_000 })
})
after(() => server.destroy())

async function results(code) {
  const execution = await sandbox.runCode(code)
  assert.equal(execution.error, undefined, execution.error?.traceback)
  return execution.results
}
const only = async (code) => {
  const all = await results(code)
  assert.equal(all.length, 1)
  return all[0]
}
const chart = async (code) => (await only(`import matplotlib.pyplot as plt\nimport numpy as np\n${code}\nplt.show()`)).chart

describe('values', () => {
  test('a DataFrame is data, text and a table of HTML', async () => {
    const result = await only('import pandas as pd\npd.DataFrame({"n": [1, None], "s": ["a", "b"], "t": pd.to_datetime(["2024-01-02", None]), 5: [True, False]})')
    assert.deepEqual(result.data, { n: [1, null], s: ['a', 'b'], t: ['2024-01-02T00:00:00', null], 5: [true, false] })
    assert.match(result.html, /<table/)
    assert.match(result.text, /NaT/)
    assert.deepEqual(Object.keys(result.raw).sort(), ['data', 'extra', 'html', 'text'])
  })
  test('lists and dictionaries are JSON as far as they can be', async () => {
    assert.deepEqual((await only('import numpy as np\n{"a": np.int64(1), 2: [np.float32(0.5), float("nan"), (1, "x")], "n": None}')).json, { a: 1, 2: [0.5, null, [1, 'x']], n: null })
    assert.deepEqual((await only('[1, "x", {"y": True}]')).json, [1, 'x', { y: true }])
    assert.equal((await only('[object()]')).json, undefined)
    assert.equal((await only('x = []; x.append(x); x')).json, undefined)
    assert.deepEqual(JSON.parse((await only('list(range(2000))')).text), [...Array(2000).keys()])
  })
  test('every form that display() knows', async () => {
    const shown = await results(`
from IPython.display import *
display(HTML("<b>h</b>")); display(Markdown("*m*")); display(SVG("<svg></svg>")); display(Latex("$x$")); display(JSON({"a": 1})); display(Javascript("1"))
display({"text/latex": r"\\text{CPI}"}, raw=True)
display({"application/x-own": "mine", "application/pdf": b"%PDF"}, raw=True)`)
    assert.deepEqual(shown.map((one) => one.isMainResult), Array(8).fill(false))
    assert.equal(shown[0].html, '<b>h</b>')
    assert.equal(shown[1].markdown, '*m*')
    assert.match(shown[2].svg, /<svg/)
    assert.equal(shown[3].latex, '$x$')
    assert.deepEqual(shown[4].json, { a: 1 })
    assert.equal(shown[5].javascript, '1')
    assert.deepEqual(shown[6].formats(), ['latex'])
    // The client itself leaves out what is in "extra".
    assert.deepEqual([shown[7].raw.extra, Buffer.from(shown[7].pdf, 'base64').toString()], [{ 'application/x-own': 'mine' }, '%PDF'])
  })
  test('an object with forms of its own, and one whose text cannot be made', async () => {
    const own = await only('class A:\n    def _repr_html_(self): return "<i>a</i>"\n    def __repr__(self): return "an A"\nA()')
    assert.deepEqual([own.html, own.text], ['<i>a</i>', 'an A'])
    const bad = await sandbox.runCode('class B:\n    def __repr__(self): raise ValueError("no")\nB()')
    assert.equal(bad.results.filter((one) => one.text).length, 0)
    assert.equal((await only('1')).text, '1')
  })
})

describe('pictures', () => {
  const isPng = (text) => Buffer.from(text, 'base64').subarray(1, 4).toString() === 'PNG'
  test('a figure that is shown, and one that is left open', async () => {
    const result = await only('import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()')
    assert.ok(isPng(result.png))
    assert.deepEqual(result.extra, {})
    assert.ok(isPng((await only('fig, ax = plt.subplots(); ax.plot([1]);')).png))
  })
  test('a figure and a value are two results', async () => {
    const both = await results('x = 1\nplt.plot([1, 2])\nplt.show()\nx')
    assert.deepEqual(both.map((one) => [Boolean(one.png), one.isMainResult, one.text === '1']), [[true, false, false], [false, true, true]])
  })
  test('images of PIL: as a value, by show() and by save()', async () => {
    const make = 'from PIL import Image\nimage = Image.new("RGB", (60, 30), color="red")\n'
    assert.ok(isPng((await only(`${make}image`)).png))
    assert.ok(isPng((await only(`${make}image.show()`)).png))
    assert.ok(isPng((await only(`${make}image.save("/tmp/test.png")`)).png))
    assert.equal((await results(`${make}import io\nimage.save(io.BytesIO(), "png")`)).length, 0)
  })
})

describe('charts', () => {
  test('lines, with labels, units and ticks', async () => {
    const found = await chart('plt.plot([0, 1, 2], [0, 10, 40], label="speed"); plt.plot([0, 1], [1, 1.5]); plt.title("Ride"); plt.xlabel("Time (s)"); plt.ylabel("Speed [m/s]"); plt.grid(); plt.axhline(5)')
    assert.deepEqual([found.type, found.title, found.x_label, found.x_unit, found.y_label, found.y_unit, found.x_scale, found.y_scale], ['line', 'Ride', 'Time (s)', 's', 'Speed [m/s]', 'm/s', 'linear', 'linear'])
    assert.deepEqual(found.elements, [{ label: 'speed', points: [[0, 0], [1, 10], [2, 40]] }, { label: 'Line 1', points: [[0, 1], [1, 1.5]] }])
    assert.ok(found.x_ticks.length > 1 && found.x_ticks.length === found.x_tick_labels.length && found.x_ticks.every((at) => typeof at === 'number'))
  })
  test('lines over time', async () => {
    const found = await chart('import datetime\nplt.plot([datetime.datetime(2024, 9, 1) + datetime.timedelta(days=d) for d in range(3)], [1, 2, 3])')
    assert.deepEqual([found.type, found.x_scale, found.elements[0].points[1]], ['line', 'datetime', ['2024-09-02T00:00:00', 2]])
    assert.match(found.x_ticks[0], /^2024-0\d-\d\dT/)
  })
  test('scales: logarithmic and of categories', async () => {
    const found = await chart('plt.plot(["a", "b", "c"], [1, 10, 100]); plt.yscale("log")')
    assert.deepEqual([found.x_scale, found.y_scale, found.elements[0].points[2]], ['categorical', 'log', ['c', 100]])
  })
  test('scatter', async () => {
    const found = await chart('plt.scatter([1, 2], [3, 4], label="one"); plt.scatter([5], [6], label="two"); plt.xlabel("A")')
    assert.deepEqual([found.type, found.title, found.x_label, found.x_unit, found.elements], ['scatter', null, 'A', null, [{ label: 'one', points: [[1, 3], [2, 4]] }, { label: 'two', points: [[5, 6]] }]])
  })
  test('bars, standing and lying, in groups', async () => {
    const standing = await chart('plt.bar(["Alice", "Bob"], [10, 12.5]); plt.ylabel("Books")')
    assert.deepEqual([standing.type, standing.x_label, standing.y_label, standing.elements], ['bar', null, 'Books', [{ label: 'Alice', group: 'Group 0', value: 10 }, { label: 'Bob', group: 'Group 0', value: 12.5 }]])
    const lying = await chart('plt.barh(["Alice", "Bob"], [10, 12], label="read"); plt.xlabel("Books"); plt.ylabel("Who")')
    assert.deepEqual([lying.type, lying.x_label, lying.y_label, lying.elements], ['bar', 'Who', 'Books', [{ label: 'Alice', group: 'read', value: 10 }, { label: 'Bob', group: 'read', value: 12 }]])
  })
  test('the angles of a pie are rounded as upstream rounds them', async () => {
    const found = await chart('plt.pie([15, 30, 45, 10], labels=["a", "b", "c", "d"], radius=0.123456789)')
    assert.deepEqual(found.elements.map(({ angle }) => angle), [54, 108, 162, 36])
    assert.deepEqual(found.elements.map(({ radius }) => radius), Array(4).fill(0.123456789))
    assert.deepEqual((await chart('plt.pie([1, 1, 5])')).elements.map(({ angle }) => angle), [51.42857, 51.42857, 257.143])
  })

  test('pie', async () => {
    const found = await chart('plt.pie([1, 3], labels=["a", "b"], autopct="%1.0f%%"); plt.title("Parts")')
    assert.deepEqual(found, { type: 'pie', title: 'Parts', elements: [{ label: 'a', angle: 90, radius: 1 }, { label: 'b', angle: 270, radius: 1 }] })
  })
  test('boxes', async () => {
    const found = await chart('plt.boxplot([[1, 2, 3, 4, 5, 20], [2, 4, 6]], labels=["x", "y"], patch_artist=True); plt.ylabel("V (mV)")')
    assert.equal(found.type, 'box_and_whisker')
    assert.deepEqual(found.elements[0], { label: 'x', min: 1, first_quartile: 2.25, median: 3.5, third_quartile: 4.75, max: 5, outliers: [20] })
    assert.deepEqual(found.elements[1], { label: 'y', min: 2, first_quartile: 3, median: 4, third_quartile: 5, max: 6, outliers: [] })
    assert.equal(found.y_unit, 'mV')
  })
  test('several in one figure', async () => {
    const found = await chart('fig, (a, b) = plt.subplots(1, 2); a.plot([1, 2]); b.bar(["z"], [3]); fig.suptitle("Two")')
    assert.deepEqual([found.type, found.title, found.elements.map((one) => one.type)], ['superchart', 'Two', ['line', 'bar']])
  })
  test('what is none of these, and nothing at all', async () => {
    assert.deepEqual(await chart('plt.imshow(np.zeros((3, 3))); plt.title("Map")'), { type: 'unknown', title: 'Map', elements: [] })
    assert.equal((await chart('plt.figure(); plt.gca()'))?.elements, undefined)
  })
})
