/** Tests of `lines` and of `place`, for `node --test`: they need no VS Code. */

import * as assert from 'node:assert'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { carry, linesOf, merge, moved, originsOf, spansBetween } from '../src/lines'
import { placeOf, rootOf, socketOf, versionOf } from '../src/place'

const NAMES: [string, string] = ['ours', 'theirs']

/** Return the numbers of a small generator, so that a failure can be repeated. */
function* numbers(seed: number): Generator<number, never> {
  for (let state = seed; ; ) yield (state = (state * 48271) % 2147483647)
}

function drawn(random: Generator<number, never>, most: number): number {
  return random.next().value % (most + 1)
}

/** Return a text of few different lines, with any line ends, and perhaps none at its end. */
function text(random: Generator<number, never>): string {
  const lines = Array.from({ length: drawn(random, 12) }, () => 'abc'[drawn(random, 2)]! + ['\n', '\n', '\r\n', '\r'][drawn(random, 3)]!)
  return lines.join('') + ['', 'end'][drawn(random, 1)]!
}

/** Return a text with some lines changed, removed or added. */
function changed(random: Generator<number, never>, base: string): string {
  return linesOf(base)
    .flatMap(line => [[line], [line], [line], [line], ['new\n'], [], [line, 'more\n']][drawn(random, 6)]!)
    .join('')
}

function applied(before: string, after: string): string {
  let result = before
  for (const { start, end, text } of spansBetween(before, after).reverse()) result = result.slice(0, start) + text + result.slice(end)
  return result
}

test('the spans between two texts lead from the one to the other', () => {
  const random = numbers(1)
  for (let round = 0; round < 2000; round++) {
    const before = text(random)
    const after = round % 2 ? text(random) : changed(random, before)
    assert.equal(applied(before, after), after, JSON.stringify([before, after]))
  }
})

test('the spans are the characters that differ, and no character or line end is split', () => {
  assert.deepEqual(spansBetween('1\n2\n3\n4\n', '1\nnew\n2\n4\n'), [
    { start: 2, end: 2, text: 'new\n' },
    { start: 4, end: 6, text: '' },
  ])
  assert.deepEqual(spansBetween('a word here\n', 'a longer word here\n'), [{ start: 2, end: 2, text: 'longer ' }])
  assert.deepEqual(spansBetween('\u{1f600}\n', '\u{1f601}\n'), [{ start: 0, end: 2, text: '\u{1f601}' }])
  assert.deepEqual(spansBetween('a\r\n', 'a\n'), [{ start: 1, end: 3, text: '\n' }])
})

test('an offset moves with its text', () => {
  assert.equal(moved(0, [{ start: 0, end: 0, text: 'ONE ' }]), 4)
  assert.equal(moved(5, [{ start: 0, end: 0, text: 'ONE ' }]), 9)
  assert.equal(moved(2, [{ start: 0, end: 4, text: 'x' }]), 1)
  assert.equal(moved(9, [{ start: 0, end: 4, text: 'x' }, { start: 8, end: 8, text: 'y' }]), 7)
})

test('a typed text is carried to its place in a text that was changed elsewhere, or to the caret', () => {
  assert.equal(carry('1\n2\n3\n', '1\n2\n3x\n', 'new\n1\n2\n3\n'), 'new\n1\n2\n3x\n')
  assert.equal(carry('1\n2\n3\n', '1\n2\n\n', 'new\n1\n2\n3\n'), 'new\n1\n2\n\n')
  assert.equal(carry('a\n', 'ax\n', 'a word\n'), 'a wordx\n')
  assert.equal(carry('a\n', 'ax\n', 'a word\n', { base: 1, theirs: 4 }), 'a woxrd\n')
  assert.equal(carry('a\n', 'ax\n', 'a word\n', { base: 0, theirs: 0 }), 'a wordx\n')
  assert.equal(carry('a\n', '\n', 'a word\n'), undefined)
})

test('a merge keeps what one side changed, and is the same from both sides', () => {
  const random = numbers(2)
  let clean = 0
  for (let round = 0; round < 2000; round++) {
    const base = text(random)
    const [ours, theirs] = [changed(random, base), changed(random, base)]
    assert.deepEqual(merge(base, ours, base, NAMES), { text: ours, conflicts: 0 })
    assert.deepEqual(merge(base, base, theirs, NAMES), { text: theirs, conflicts: 0 })
    assert.deepEqual(merge(base, ours, ours, NAMES), { text: ours, conflicts: 0 })
    const merged = merge(base, ours, theirs, NAMES)
    if (merged.conflicts > 0) continue
    clean++
    assert.deepEqual(merge(base, theirs, ours, NAMES), merged, JSON.stringify([base, ours, theirs]))
  }
  assert.ok(clean > 200, `only ${clean} were clean`)
})

test('a merge of changes with lines between them is that of git', () => {
  const folder = mkdtempSync(join(tmpdir(), 'editd-merge-'))
  const lines = (at: number, text: string) => Array.from({ length: 9 }, (_, line) => (line === at ? text : `${line}\n`)).join('')
  const random = numbers(3)
  for (let round = 0; round < 8; round++) {
    const [one, other] = [drawn(random, 3), 5 + drawn(random, 3)]
    const texts = [lines(one, ['', 'new\n', 'x\ny\n'][drawn(random, 2)]!), lines(-1, ''), lines(other, ['', 'new\n'][drawn(random, 1)]!)] as const
    const files = texts.map((text, at) => {
      writeFileSync(join(folder, `${at}`), text)
      return join(folder, `${at}`)
    })
    const theirs = execFileSync('git', ['merge-file', '-p', ...files], { encoding: 'utf8' })
    assert.deepEqual(merge(texts[1], texts[0], texts[2], NAMES), { text: theirs, conflicts: 0 })
  }
})

test('changes of neighbouring lines are no conflict, and changes of the same lines are marked', () => {
  assert.deepEqual(merge('1\n2\n3\n', 'one\n2\n3\n', '1\ntwo\n3\n', NAMES), { text: 'one\ntwo\n3\n', conflicts: 0 })
  assert.deepEqual(merge('1\n2\n3\n', '1\nnew\n2\n3\n', '1\ntwo\n3\n', NAMES), { text: '1\nnew\ntwo\n3\n', conflicts: 0 })
  assert.deepEqual(merge('1\n2\n3\n', '1\nA\n3\n', '1\nB\n3\nmore\n', NAMES), {
    text: '1\n<<<<<<< ours\nA\n=======\nB\n>>>>>>> theirs\n3\nmore\n',
    conflicts: 1,
  })
  assert.deepEqual(merge('1\r\nend', '1\r\nA', '1\r\nB', NAMES), {
    text: '1\r\n<<<<<<< ours\r\nA\r\n=======\r\nB\r\n>>>>>>> theirs\r\n',
    conflicts: 1,
  })
})

test('each line knows the line that it came from', () => {
  assert.deepEqual(originsOf('1\n2\n3\n', '1\nnew\n2\n3\n'), [0, undefined, 1, 2, 3])
  assert.deepEqual(originsOf('1\n2\n3\n', '3\n'), [2, 3])
})

test('texts that differ in all of their many lines are compared in a short time', () => {
  const many = (mark: string) => Array.from({ length: 50000 }, (_, line) => `${mark} ${line}\n`).join('')
  const started = Date.now()
  assert.equal(spansBetween(many('a'), many('b')).length, 1)
  assert.ok(Date.now() - started < 5000)
})

test('a workspace is the git repository around a folder, or EDITD_WORKSPACE, and neither a home nor another folder', () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'editd-place-')))
  for (const name of ['home/.git', 'home/code/.git/x', 'home/code/src', 'home/loose']) mkdirSync(join(folder, name), { recursive: true })
  const variables = { HOME: join(folder, 'home') }
  const code = join(folder, 'home/code')
  assert.equal(rootOf(join(code, 'src'), variables), code)
  assert.equal(rootOf(join(folder, 'home/loose'), variables), undefined)
  assert.equal(rootOf(join(folder, 'none'), variables), undefined)
  assert.equal(rootOf(join(folder, 'home/loose'), { ...variables, EDITD_WORKSPACE: join(folder, 'home/loose') }), join(folder, 'home/loose'))
  symlinkSync(code, join(folder, 'link'))
  assert.deepEqual(placeOf(join(folder, 'link/src/new.txt'), variables), { root: code, path: 'src/new.txt' })
  assert.equal(placeOf(join(code, '.git/x/file'), variables), undefined)
  symlinkSync('nowhere', join(code, 'dangling'))
  assert.equal(placeOf(join(code, 'dangling'), variables), undefined)
})

test('a submodule belongs to the workspace around it, and a linked worktree to itself', () => {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'editd-place-')))
  const variables = { HOME: join(folder, 'home'), XDG_STATE_HOME: join(folder, 'state'), EDITD_SOCKET: '/none' }
  const outer = join(folder, 'outer')
  const id = createHash('sha256').update(outer).digest('hex').slice(0, 16)
  for (const name of [`state/editd/${id}/store.git`, 'outer/.git/modules/sub', 'outer/.git/worktrees/wt', 'outer/sub', 'outer/wt', 'outer/lost', 'outer/clone/.git'])
    mkdirSync(join(folder, name), { recursive: true })
  writeFileSync(join(outer, 'sub/.git'), 'gitdir: ../.git/modules/sub\n')
  writeFileSync(join(outer, 'wt/.git'), `gitdir: ${outer}/.git/worktrees/wt\n`)
  writeFileSync(join(outer, '.git/worktrees/wt/commondir'), '../..\n')
  writeFileSync(join(outer, 'lost/.git'), 'gitdir: /nowhere/.git/worktrees/lost\n')
  for (const [name, root] of [['sub', outer], ['clone', outer], ['wt', join(outer, 'wt')], ['lost', join(outer, 'lost')]])
    assert.equal(rootOf(join(outer, name!), variables), root)
})

test('versions and sockets have the names that the daemon gives them', () => {
  assert.equal(versionOf(Buffer.from('hello\n')), 'ce013625030ba8dba906f756967f9e9ca394464a')
  assert.equal(socketOf('/w', { XDG_RUNTIME_DIR: '/run/me' }), '/run/me/editd/' + process.env.EXPECTED_ID + '.sock')
  assert.equal(socketOf('/w', { EDITD_SOCKET: 'own.sock', XDG_RUNTIME_DIR: '/run/me' }), '/w/own.sock')
})
