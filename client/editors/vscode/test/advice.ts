/** Tests of `advice`, for `node --test`: they need no VS Code. */

import * as assert from 'node:assert'
import { test } from 'node:test'
import { inWords } from '../src/advice'

const MERGE = { kind: 'option', option: 'on_stale', argument: 'merge', lead: ', or use ', words: 'on_stale: merge' }
const SHOW = { kind: 'method', method: 'show', argument: '7', words: '`show` with tx 7' }
const LATER = { kind: 'gesture', words: 'a nod' }

test('the next step of a refusal has the words of an editor', () => {
  const hint = 'Use `show` with tx 7, or use on_stale: merge.'
  const data = { hint, advice: ['Use ', SHOW, MERGE, '.'] }
  assert.equal(inWords(`No. ${hint}`, data), 'No. Use `editctl show 7`.')
})

test('a term of a later daemon has the words of the protocol', () => {
  assert.equal(inWords('No. Give a nod.', { hint: 'Give a nod.', advice: ['Give ', LATER, '.'] }), 'No. Give a nod.')
})

test('a message without an advice stays as it is', () => {
  assert.equal(inWords('No. Wait.', { hint: 'Wait.' }), 'No. Wait.')
  assert.equal(inWords('No.', {}), 'No.')
})
