// tests/functional/directory.test.mjs with a million entries.
process.env.DIRECTORY_ENTRIES ??= '1000000'
await import('../functional/directory.test.mjs')
