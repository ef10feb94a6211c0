/** The tests that run in VS Code's extension host, in their order. Each has files of its own. */

import * as assert from 'node:assert'
import { readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import * as vscode from 'vscode'
import { Connection } from '../src/connection'
import type { Parts } from '../src/extension'
import { proposedSides, type FileNode, type HunkNode, type ProposalNode } from '../src/proposals'
import type { Outcome, ProposalEntry, Transaction } from '../src/protocol'

const TEST_MILLISECONDS = 60000
const TEN = [...Array(10).keys()].map(at => `line ${at}\n`).join('')

let parts: Parts
let editor: Connection
let agent: Connection
const transactions: Transaction[] = []
const tests: [string, () => Promise<void>][] = []

function test(name: string, body: () => Promise<void>): void {
  tests.push([name, body])
}

const folderOf = (name: string) => vscode.workspace.workspaceFolders!.find(each => each.name === name)!.uri.fsPath
const root = () => folderOf('workspace')
/** Return the nodes of the first workspace in a tree: the window has two. */
const top = async <Node>(tree: vscode.TreeDataProvider<Node>) =>
  (await tree.getChildren({ kind: 'root', connection: editor } as Node))!
const fileOf = (name: string) => join(root(), name)
const contentOf = (name: string) => readFileSync(fileOf(name), 'utf8')
const sleep = (milliseconds: number) => new Promise(resolve => setTimeout(resolve, milliseconds))

async function until<T>(condition: () => T | Promise<T>, what = condition.toString()): Promise<T> {
  for (const end = Date.now() + 30000; ; await sleep(10)) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`it never was: ${what}`)
  }
}

/** Write a file from outside, and open it. */
async function opened(name: string, text = TEN): Promise<[vscode.TextDocument, vscode.TextEditor]> {
  writeFileSync(fileOf(name), text)
  await agent.request('settle')
  const document = await vscode.workspace.openTextDocument(fileOf(name))
  const shown = await vscode.window.showTextDocument(document, { preview: false })
  await until(() => parts.documents.get(document)?.base)
  return [document, shown]
}

/** Type a line at the end of a document. */
async function type(shown: vscode.TextEditor, text: string): Promise<void> {
  // An edit fails if the document changes meanwhile, for example by a merge.
  await until(async () => await shown.edit(edit => edit.insert(new vscode.Position(shown.document.lineCount - 1, 0), text)))
}

const replaceLine = (shown: vscode.TextEditor, line: number, text: string) =>
  shown.edit(edit => edit.replace(shown.document.lineAt(line).range, text))

const agentReplaces = (path: string, old: string, text: string, more = {}) =>
  agent.request<Outcome>('apply', { edits: [{ op: 'replace', path, old, new: text, guard: 'text' }], ...more })

/** Change a setting of the workspace while a function runs. */
async function withSetting(name: string, value: unknown, body: () => Promise<void>): Promise<void> {
  const change = (to: unknown) => vscode.workspace.getConfiguration().update(name, to, vscode.ConfigurationTarget.Workspace)
  await change(value)
  try {
    await body()
  } finally {
    await change(undefined)
  }
}

const newest = async () => (await agent.request<{ transactions: Transaction[] }>('log', { limit: 1 })).transactions[0]!

test('a save is one transaction by this editor', async () => {
  const [document, shown] = await opened('save.txt')
  const before = editor.head
  await type(shown, 'mine\n')
  assert.ok(await document.save())
  assert.equal(contentOf('save.txt'), TEN + 'mine\n')
  await agent.request('settle')
  const { seq, kind, actor, message } = await newest()
  assert.deepEqual([seq, kind, actor, message], [before + 1, 'edit', 'vscode', 'Save save.txt'])
})

test('a document without changes follows the file', async () => {
  const [document, shown] = await opened('clean.txt')
  await agentReplaces('clean.txt', 'line 0', 'LINE 0')
  await until(() => document.getText().startsWith('LINE 0'))
  await until(() => parts.documents.get(document)!.base!.text === document.getText())
  await type(shown, 'mine\n')
  assert.ok(await document.save())
  assert.equal(contentOf('clean.txt'), TEN.replace('line 0', 'LINE 0') + 'mine\n')
})


test('a change of the same size, which VS Code alone overwrites, is merged by the save', async () => {
  await withSetting('editd.merge', 'ask', async () => {
    const [document, shown] = await opened('size.txt')
    await type(shown, 'mine\n')
    await agentReplaces('size.txt', 'line 0', 'LINE 0')
    await sleep(200)
    assert.ok(document.getText().startsWith('line 0'), 'it was not to merge before the save')
    assert.ok(await document.save())
    assert.equal(contentOf('size.txt'), TEN.replace('line 0', 'LINE 0') + 'mine\n')
    assert.equal(document.getText(), contentOf('size.txt'))
  })
})

test('an unsaved document takes in what an agent writes, without being saved, and undo goes back', async () => {
  const [document, shown] = await opened('rebase.txt')
  await type(shown, 'mine\n')
  const [other] = await opened('other.txt')
  const before = editor.head
  await agentReplaces('rebase.txt', 'line 0', 'the agent was here')
  const both = TEN.replace('line 0', 'the agent was here') + 'mine\n'
  await until(() => document.getText() === both)
  assert.ok(document.isDirty)
  assert.equal(contentOf('rebase.txt'), TEN.replace('line 0', 'the agent was here'))
  assert.equal(vscode.window.activeTextEditor!.document, other)
  await until(() => parts.documents.get(document)!.base!.text === contentOf('rebase.txt'))
  await agent.request('settle')
  assert.equal((await newest()).seq, before + 1)
  await vscode.window.showTextDocument(document)
  await vscode.commands.executeCommand('undo')
  await vscode.commands.executeCommand('undo')
  assert.equal(document.getText(), TEN + 'mine\n')
  await vscode.commands.executeCommand('redo')
  await vscode.commands.executeCommand('redo')
  assert.ok(await document.save())
  assert.equal(contentOf('rebase.txt'), both)
})

test('the same lines get conflict markers on the new base, and nothing is overwritten', async () => {
  for (const [name, theirs] of [['conflict.txt', 'the agent was here'], ['same.txt', 'LINE 0']] as const) {
    const [document, shown] = await opened(name)
    await replaceLine(shown, 0, 'mine')
    await agentReplaces(name, 'line 0', theirs, { on_unsaved: 'ignore' })
    await until(() => parts.documents.get(document)!.colliding)
    assert.ok(parts.status.text.includes('collides'))
    await document.save()
    const marked = `<<<<<<< this editor\nmine\n=======\n${theirs}\n>>>>>>> the file\n`
    await until(() => document.getText() === TEN.replace('line 0\n', marked))
    assert.ok(document.isDirty)
    assert.equal(contentOf(name), TEN.replace('line 0', theirs))
    assert.equal(parts.documents.get(document)!.colliding, undefined)
    await shown.edit(edit => edit.replace(new vscode.Range(0, 0, 5, 0), 'both\n'))
    assert.ok(await document.save())
    assert.equal(contentOf(name), TEN.replace('line 0', 'both'))
    await agent.request('settle')
    assert.equal((await newest()).actor, 'vscode')
    await vscode.commands.executeCommand('workbench.action.closeActiveEditor')
  }
})

test('auto-save and the edits of an agent go on side by side', async () => {
  await withSetting('files.autoSave', 'afterDelay', () =>
    withSetting('files.autoSaveDelay', 50, async () => {
      const [document, shown] = await opened('auto.txt')
      for (let round = 0; round < 8; round++) {
        await type(shown, `mine ${round}\n`)
        await agentReplaces('auto.txt', round === 0 ? 'line 0' : `theirs ${round - 1}`, `theirs ${round}`)
        await sleep(30 * round)
      }
      const expected = TEN.replace('line 0', 'theirs 7') + [...Array(8).keys()].map(round => `mine ${round}\n`).join('')
      await until(() => !document.isDirty && contentOf('auto.txt') === expected && document.getText() === expected).catch(() => {
        assert.deepEqual([document.getText(), contentOf('auto.txt'), document.isDirty], [expected, expected, false])
      })
    }),
  )
})

test('an edit of the same size in the moment before VS Code writes is brought back', async () => {
  for (const isAside of [true, false]) {
    const name = `moment${isAside}.txt`
    const [document, shown] = await opened(name)
    await replaceLine(shown, 4, 'LINE 4')
    let isWritten = false
    const late = vscode.workspace.onWillSaveTextDocument(event => {
      if (event.document !== document || isWritten) return
      isWritten = true
      event.waitUntil(agentReplaces(name, isAside ? 'Line 0' : 'line 0', 'LINE 0', { on_unsaved: 'ignore' }).then(() => []))
    })
    try {
      if (isAside) await agentReplaces(name, 'line 0', 'Line 0')
      else await document.save()
      const theirs = TEN.replace('line 0', 'LINE 0')
      const both = theirs.replace('line 4', 'LINE 4')
      await until(() => document.getText() === both && contentOf(name) === (isAside ? theirs : both)).catch(() => {
        assert.deepEqual([document.getText(), contentOf(name)], [both, isAside ? theirs : both])
      })
      assert.ok(isWritten)
    } finally {
      late.dispose()
    }
  }
})

test('a text of 1 MiB, with 20 changes a second, loses neither these nor the edits of an agent', async () => {
  const lines = [...Array(16384).keys()].map(at => `line ${at} ${'x'.repeat(52)}\n`)
  const [document, shown] = await opened('large.txt', lines.join(''))
  let slowest = 0
  const typed = [...Array(40).keys()].map(at => `typed ${at}\n`)
  const typing = (async () => {
    for (const text of typed) {
      const started = Date.now()
      await type(shown, text)
      slowest = Math.max(slowest, Date.now() - started)
      await sleep(50)
    }
  })()
  for (let at = 0; at < 5; at++) {
    await sleep(300)
    await agentReplaces('large.txt', lines[1000 * at]!, `agent ${at}\n`)
  }
  await typing
  const expected = lines.map((line, at) => (at % 1000 === 0 && at < 5000 ? `agent ${at / 1000}\n` : line)).concat(typed).join('')
  await document.save()
  await until(() => !document.isDirty)
  assert.equal(document.getText(), expected)
  assert.equal(contentOf('large.txt'), expected)
  await type(shown, 'once more\n')
  assert.ok(await document.save())
  assert.equal(contentOf('large.txt'), expected + 'once more\n')
  console.log(`the slowest change took ${slowest} ms`)
})

test('a merge into an unsaved document leaves the cursor at its text, and loses no key', async () => {
  const [document, shown] = await opened('cursor.txt')
  await replaceLine(shown, 5, 'one two')
  shown.selection = new vscode.Selection(5, 4, 5, 4)
  await agentReplaces('cursor.txt', 'line 0\n', 'two\nlines\n')
  await until(() => document.lineAt(0).text === 'two' && document.lineAt(6).text === 'one two')
  await until(() => shown.selection.isEqual(new vscode.Selection(6, 4, 6, 4)))
  const typed = 'abcdefghij'
  const typing = (async () => {
    for (const text of typed) {
      await vscode.commands.executeCommand('type', { text })
      await sleep(330) // about as long as a merge waits for a pause in typing
    }
  })()
  for (let at = 0; at < 10; at++) {
    await agentReplaces('cursor.txt', at === 0 ? 'two\n' : `agent ${at - 1}\n`, `agent ${at}\n`)
    await sleep(300)
  }
  await typing
  const sorted = (text: string) => [...text].sort().join('')
  const expected = TEN.replace('line 0', 'agent 9\nlines').replace('line 5', sorted(`one ${typed}two`))
  const text = () => document.getText().replace(/^one.*$/m, sorted)
  await until(() => text() === expected).catch(() => {
    const { base, colliding } = parts.documents.get(document)!
    assert.deepEqual([text(), base!.text.slice(0, 8), base!.version, colliding], [expected])
  })
})

test('a shell that writes just before the save is merged', async () => {
  await withSetting('editd.merge', 'ask', async () => {
    const [document, shown] = await opened('shell.txt')
    await type(shown, 'mine\n')
    writeFileSync(fileOf('shell.txt'), 'shell\n' + TEN)
    assert.ok(await document.save())
    assert.equal(contentOf('shell.txt'), 'shell\n' + TEN + 'mine\n')
  })
})

test('another extension that edits in its own onWillSave after this one is saved as well', async () => {
  const late = vscode.workspace.onWillSaveTextDocument(event => {
    if (!event.document.getText().startsWith('// late')) {
      event.waitUntil(Promise.resolve([vscode.TextEdit.insert(new vscode.Position(0, 0), '// late\n')]))
    }
  })
  try {
    const [document, shown] = await opened('late.txt')
    await type(shown, 'mine\n')
    await document.save()
    await until(() => !document.isDirty)
    assert.equal(contentOf('late.txt'), '// late\n' + TEN + 'mine\n')
    assert.equal(document.getText(), contentOf('late.txt'))
  } finally {
    late.dispose()
  }
})

test('what is typed during a save stays, and so does what another has written', async () => {
  await withSetting('editd.merge', 'ask', async () => {
    const [document, shown] = await opened('typed.txt')
    await type(shown, 'mine\n')
    await agentReplaces('typed.txt', 'line 0', 'the agent was here')
    const saving = document.save()
    await replaceLine(shown, 5, 'typed during the save')
    await saving
    await until(() => /agent/.test(document.getText()))
    await document.save()
    await until(() => !document.isDirty)
    const expected = TEN.replace('line 0', 'the agent was here').replace('line 5', 'typed during the save') + 'mine\n'
    assert.equal(contentOf('typed.txt'), expected)
    assert.equal(document.getText(), expected)
  })
})

test('an unsaved document is held: an edit beside it merges, one in it is refused with who and where', async () => {
  const [document, shown] = await opened('held.txt')
  await replaceLine(shown, 4, 'mine')
  const held = async () => {
    const { documents } = await agent.request<{ documents: Record<string, unknown>[] }>('document.list')
    return documents.find(({ path }) => path === 'held.txt')
  }
  const { client, base } = (await until(held))!
  assert.deepEqual([client, base], ['vscode', parts.documents.get(document)!.base!.version])
  const outcome = await agentReplaces('held.txt', 'line 0', 'LINE 0')
  assert.equal(outcome.files[0]!.unsaved, 'merged')
  await until(() => document.getText() === TEN.replace('line 0', 'LINE 0').replace('line 4', 'mine'))
  const refusal = await agentReplaces('held.txt', 'line 4', 'theirs').catch(error => error)
  assert.equal(refusal.refusal, 'unsaved')
  assert.equal(refusal.data.held_by[0].client, 'vscode')
  assert.equal(refusal.data.lines[0].start_line, 5)
  await until(async () => (await held())?.base === parts.documents.get(document)!.base!.version)
  const unsaved = await agent.request<{ content: string }>('read', { path: 'held.txt', unsaved: true })
  assert.equal(unsaved.content, document.getText())
  assert.ok(await document.save())
  await until(async () => (await held()) === undefined)
})

test('an unsaved text is not shared where the settings say so, and its release follows an undo and a close', async () => {
  const held = async (name: string) => {
    const { documents } = await agent.request<{ documents: Record<string, unknown>[] }>('document.list')
    return documents.find(({ path }) => path === name)
  }
  const [, secret] = await opened('.env', 'KEY=1\n')
  await type(secret, 'KEY=2\n')
  assert.equal((await until(() => held('.env')))!.version, null)
  await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor')
  await until(async () => (await held('.env')) === undefined)
  const [document, shown] = await opened('undone.txt')
  await type(shown, 'mine\n')
  await until(() => held('undone.txt'))
  await vscode.commands.executeCommand('undo')
  assert.ok(!document.isDirty)
  await until(async () => (await held('undone.txt')) === undefined)
})

test('the bytes of other encodings and line ends stay as VS Code would write them', async () => {
  const files: [string, Buffer][] = [
    ['bom.txt', Buffer.from('\ufeffone\ntwo\n')],
    ['crlf.txt', Buffer.from('one\r\ntwo\r\n')],
    ['latin.txt', Buffer.from('caf\xe9\ntwo\n', 'latin1')],
    ['utf16.txt', Buffer.from('\ufeffone\ntwo\n', 'utf16le')],
  ]
  await withSetting('files.autoGuessEncoding', false, async () => {
    for (const [name, bytes] of files) {
      writeFileSync(fileOf(name), bytes)
      await agent.request('settle')
      const encoding = name === 'latin.txt' ? { encoding: 'iso88591' } : undefined
      const document = await vscode.workspace.openTextDocument(vscode.Uri.file(fileOf(name)), encoding)
      const shown = await vscode.window.showTextDocument(document, { preview: false })
      await until(() => parts.documents.get(document)?.base, `the base of ${name}`)
      await type(shown, 'mine\n')
      const before = (await newest()).seq
      assert.ok(await document.save(), name)
      await agent.request('settle')
      const last = await newest()
      assert.deepEqual([last.seq, last.kind], [before + 1, 'edit'], name)
      const line = name === 'utf16.txt' ? Buffer.from('mine\n', 'utf16le') : Buffer.from(name === 'crlf.txt' ? 'mine\r\n' : 'mine\n')
      assert.ok(readFileSync(fileOf(name)).equals(Buffer.concat([bytes, line])), name)
    }
  })
})

test('mixed line ends become those of VS Code with the first save', async () => {
  const [document, shown] = await opened('mixed.txt', 'one\r\ntwo\nthree\n')
  await type(shown, 'mine\n')
  await document.save()
  await until(() => !document.isDirty)
  assert.equal(contentOf('mixed.txt'), document.getText())
  assert.equal((await newest()).kind, 'edit')
})

test('a hook of the daemon formats the document, too', async () => {
  const [document, shown] = await opened('text.loud')
  await type(shown, 'mine\n')
  assert.ok(await document.save())
  assert.equal(document.getText(), (TEN + 'mine\n').toUpperCase())
  assert.equal(contentOf('text.loud'), document.getText())
  assert.ok(!document.isDirty)
})

test('a file that the daemon does not take is saved by VS Code, and recorded', async () => {
  const [document, shown] = await opened('text.never')
  await type(shown, 'mine\n')
  assert.ok(await document.save())
  assert.equal(contentOf('text.never'), TEN + 'mine\n')
  await agent.request('settle')
  assert.equal((await newest()).kind, 'outside')
  await type(shown, 'more\n')
  assert.ok(await document.save())
  assert.equal(contentOf('text.never'), TEN + 'mine\nmore\n')
})

test('a new file, and one that was deleted meanwhile, are saved', async () => {
  const uri = vscode.Uri.file(fileOf('new.txt')).with({ scheme: 'untitled' })
  const fresh = await vscode.workspace.openTextDocument(uri)
  await type(await vscode.window.showTextDocument(fresh, { preview: false }), 'mine\n')
  await fresh.save()
  assert.equal(contentOf('new.txt'), 'mine\n')
  const [document, shown] = await opened('gone.txt')
  await type(shown, 'mine\n')
  await agent.request('apply', { edits: [{ op: 'delete', path: 'gone.txt' }], on_unsaved: 'ignore' })
  await document.save()
  await until(() => !document.isDirty)
  assert.equal(contentOf('gone.txt'), TEN + 'mine\n')
})

const here = () => ({ kind: 'root' as const, connection: editor })

/** Return the children of a node of a tree, as their labels. */
async function labels<Node>(tree: vscode.TreeDataProvider<Node>, node?: Node): Promise<string[]> {
  const nodes = (await tree.getChildren(node))!
  return Promise.all(
    nodes.map(async each => {
      const item = await tree.getTreeItem(each)
      return typeof item.label === 'string' ? item.label : vscode.workspace.asRelativePath(item.resourceUri!, false)
    }),
  )
}

/** Answer the questions to the user while a function runs, and return the questions. */
async function answering(answer: string | undefined, body: () => PromiseLike<unknown>): Promise<string[]> {
  const asked: string[] = []
  const { choose, input } = parts.questions
  parts.questions.choose = async (message, detail) => (asked.push(`${message} ${detail}`), answer)
  parts.questions.input = async prompt => (asked.push(prompt), answer)
  try {
    await body()
  } finally {
    Object.assign(parts.questions, { choose, input })
  }
  return asked
}

const write = (path: string, content: string) => ({ op: 'write', path, content, force: true })
const command = (name: string, ...nodes: unknown[]) => vscode.commands.executeCommand(`editd.${name}`, ...nodes)

test('the view of transactions has each with its files, and folds repeated saves', async () => {
  const [document, shown] = await opened('fold.txt')
  for (const text of ['one\n', 'two\n', 'three\n']) {
    await type(shown, text)
    assert.ok(await document.save())
  }
  const edits = [write('a/one.txt', '1\n'), write('a/two.txt', '2\n')]
  const { transaction } = await agent.request<Outcome>('apply', { edits, message: 'two files\n\nof one edit' })
  const [first, run] = (await top(parts.history))
  assert.equal(parts.history.getTreeItem(first!).label, `${transaction!.seq} two files`)
  assert.match(parts.history.getTreeItem(first!).description as string, /^agent, now/)
  assert.deepEqual(await labels(parts.history, first), ['a/one.txt', 'a/two.txt'])
  assert.match(parts.history.getTreeItem(run!).description as string, /^3 times, vscode/)
  assert.equal((await parts.history.getChildren(run))!.length, 3)
  await command('follow')
  assert.deepEqual((await labels(parts.history, here())).slice(0, 1), ['Save fold.txt'])
  await command('followNot')
  const before = (await top(parts.history)).length
  await command('more')
  assert.ok((await top(parts.history)).length > before)
})

test('a change is shown as a diff, and a transaction as the diff of its files', async () => {
  await agent.request('apply', { edits: [write('d/one.txt', 'old\n'), write('d/two.txt', 'old\n')] })
  await agent.request('apply', { edits: [write('d/one.txt', 'new\n'), { op: 'move', path: 'd/two.txt', to: 'd/moved.txt' }] })
  const [transaction] = (await top(parts.history))
  const changes = (await parts.history.getChildren(transaction))!
  const sides = async (node: unknown) => {
    await command('diff', node)
    const input = (await until(() => vscode.window.tabGroups.activeTabGroup.activeTab?.input)) as vscode.TabInputTextDiff
    const documents = await Promise.all([input.original, input.modified].map(uri => vscode.workspace.openTextDocument(uri)))
    return documents.map(document => document.getText())
  }
  const labelsOf = await labels(parts.history, transaction)
  assert.deepEqual(await sides(changes[labelsOf.indexOf('d/one.txt')]), ['old\n', 'new\n'])
  assert.deepEqual(await sides(changes[labelsOf.indexOf('d/moved.txt')]), ['old\n', 'old\n'])
  await command('changes', transaction)
  await until(() => vscode.window.tabGroups.activeTabGroup.activeTab?.label.startsWith('d/'), 'the multi-file diff')
})

test('an undo takes back one transaction, in all or one of its files, and a redo brings it back', async () => {
  await agent.request('apply', { edits: [write('u/one.txt', TEN), write('u/two.txt', TEN)] })
  await agent.request('apply', { edits: [write('u/one.txt', 'new\n'), write('u/two.txt', 'new\n')] })
  const [transaction] = (await top(parts.history))
  const [change] = (await parts.history.getChildren(transaction))!
  await command('undoFile', change)
  assert.deepEqual([contentOf('u/one.txt'), contentOf('u/two.txt')], [TEN, 'new\n'])
  await vscode.window.showTextDocument(vscode.Uri.file(fileOf('u/one.txt')))
  await command('undo', transaction)
  assert.deepEqual([contentOf('u/one.txt'), contentOf('u/two.txt')], [TEN, TEN])
  await command('redo')
  assert.equal(contentOf('u/two.txt'), 'new\n')
  const asked = await answering(undefined, () => command('undoLast'))
  assert.match(asked[0]!, /^Undo \d+, .* by agent/)
})

test('an undo that later work depends on asks, and the answer is heeded', async () => {
  await agent.request('apply', { edits: [write('c.txt', TEN)] })
  const { transaction } = await agent.request<Outcome>('apply', { edits: [write('c.txt', TEN.replace('line 0', 'A').replace('line 9', 'Z'))] })
  const later = await agentReplaces('c.txt', 'A', 'B')
  const node = { kind: 'transaction', connection: editor, transaction }
  const asked = await answering(undefined, () => command('undo', node))
  assert.match(asked[0]!, new RegExp(`c.txt: later transactions \\(${later.transaction!.seq}\\)`))
  assert.equal(contentOf('c.txt'), TEN.replace('line 0', 'B').replace('line 9', 'Z'))
  await answering('Undo All', () => command('undo', node))
  assert.equal(contentOf('c.txt'), TEN)
})

test('a session is reviewed, published and rolled back, and the work of others stays', async () => {
  await agent.request('apply', { edits: [write('s/one.txt', TEN)], session: 'robot', message: 'robot one' })
  await agent.request('apply', { edits: [write('s/two.txt', TEN)], session: 'robot' })
  await agentReplaces('s/one.txt', 'line 9', 'of another')
  const find = async () =>
    (await top(parts.sessions)).find(node => parts.sessions.getTreeItem(node).label === 'robot')
  const session = (await find())!
  assert.equal(parts.sessions.getTreeItem(session).contextValue, 'session')
  assert.equal((await labels(parts.sessions, session)).length, 2)
  await command('review', session)
  await until(() => vscode.window.tabGroups.activeTabGroup.activeTab?.label.startsWith('Session robot'), 'the review')
  await answering('The robot’s work', () => command('publish', session))
  const { transactions } = await agent.request<{ transactions: Transaction[] }>('log', { session: 'robot' })
  assert.ok(transactions.every(({ published }) => published !== undefined))
  await agent.request('apply', { edits: [write('s/three.txt', TEN)], session: 'robot' })
  const changed = (await find())!
  const asked = await answering('OK', () => command('rollback', changed))
  assert.match(asked[0]!, /s\/three.txt/)
  await assert.rejects(async () => contentOf('s/three.txt'))
  assert.equal(contentOf('s/one.txt'), TEN.replace('line 9', 'of another'))
})

test('the author of the current line is shown, also in a document with changes', async () => {
  await agent.request('apply', { edits: [write('b.txt', TEN)] })
  const [, shown] = await opened('b.txt', contentOf('b.txt'))
  await shown.edit(edit => edit.insert(new vscode.Position(0, 0), 'mine\n'))
  const describe = (line: number) => {
    shown.selection = new vscode.Selection(line, 0, line, 0)
    return parts.blame.describe(shown)
  }
  assert.equal(await describe(0), 'not saved')
  assert.match((await describe(1))!, /^agent, now, \d+$/)
  await command('blame')
  assert.ok(parts.blame.isOn)
  await command('blame')
})

test('a badge marks the files that others have changed, until they are seen', async () => {
  const uri = vscode.Uri.file(fileOf('badge.txt'))
  await agent.request('apply', { edits: [write('badge.txt', TEN)] })
  const decoration = await until(() => parts.badges.provideFileDecoration(uri))
  assert.match(decoration!.tooltip!, /^Changed by agent in \d+$/)
  await vscode.window.showTextDocument(uri)
  await until(() => parts.badges.provideFileDecoration(uri) === undefined)
})

/** Give the PIN, which the daemon asks of a connection once. */
const unlock = () => editor.request('review.unlock', { pin: '1234' })

/** Have the agent propose an edit, and return its node and that of its file in the view. */
async function proposed(edit: object, message: string): Promise<[ProposalNode, FileNode]> {
  const { proposal } = await agent.request<Outcome>('apply', { edits: [edit], message, propose: true })
  const nodes = (await top(parts.proposals)) as ProposalNode[]
  const node = nodes.find(each => each.proposal.proposal === proposal!.proposal)!
  const [file] = (await parts.proposals.getChildren(node)) as FileNode[]
  return [node, file!]
}

test('a proposal is listed with its files and hunks, and decided hunk by hunk, with the PIN', async () => {
  await agent.request('apply', { edits: [write('p/one.txt', TEN)] })
  const text = TEN.replace('line 0', 'ZERO').replace('line 9', 'NINE')
  const [node, file] = await proposed(write('p/one.txt', text), 'capitals')
  assert.equal((await parts.proposals.getTreeItem(node)).label, `${node.proposal.proposal} capitals`)
  assert.equal((await parts.proposals.getTreeItem(node)).contextValue, 'proposal-open')
  const [first, second] = (await parts.proposals.getChildren(file)) as HunkNode[]
  assert.deepEqual(await labels(parts.proposals, file), ['1: -line 0', '2: -line 9'])
  const wrong = await answering('0000', () => command('proposal.approve', first))
  assert.match(wrong[0]!, /PIN/)
  assert.equal(contentOf('p/one.txt'), TEN)
  await answering('1234', () => command('proposal.approve', first))
  assert.equal(contentOf('p/one.txt'), TEN.replace('line 0', 'ZERO'))
  assert.equal((await newest()).actor, 'agent')
  const asked = await answering('not this one', () => command('proposal.reject', second))
  assert.deepEqual(asked, ['Comment for the author'])
  const shown = await agent.request<ProposalEntry & { decisions: { comment: string }[] }>('proposal.get', { proposal: node.proposal.proposal })
  assert.equal(shown.state, 'partly')
  assert.equal(shown.decisions.at(-1)!.comment, 'not this one')
  assert.ok(!(await labels(parts.proposals, here())).includes(`${node.proposal.proposal} capitals`))
})

test('the right side of a proposal is the reviewer’s to edit, and an approval lands that text', async () => {
  await unlock()
  await agent.request('apply', { edits: [write('p/two.txt', TEN)] })
  const [node, file] = await proposed(write('p/two.txt', TEN.replace('line 0', 'theirs')), 'two')
  await command('proposal.diff', file)
  const input = (await until(() => vscode.window.tabGroups.activeTabGroup.activeTab?.input)) as vscode.TabInputTextDiff
  const [left, right] = await Promise.all([input.original, input.modified].map(uri => vscode.workspace.openTextDocument(uri)))
  assert.deepEqual([left!.getText(), right!.getText()], [TEN, TEN.replace('line 0', 'theirs')])
  const side = await until(() => vscode.window.visibleTextEditors.find(({ document }) => document === right))
  await replaceLine(side!, 0, 'mine')
  await right!.save()
  assert.equal(contentOf('p/two.txt'), TEN)
  assert.equal((await parts.proposals.getTreeItem(file)).description, 'your text')
  await replaceLine(side!, 9, 'not saved there')
  await command('proposal.approve', node)
  assert.equal(contentOf('p/two.txt'), TEN.replace('line 0', 'mine').replace('line 9', 'not saved there'))
  const { transactions } = await agent.request<{ transactions: (Transaction & { modified: boolean })[] }>('log', { limit: 1 })
  assert.deepEqual([transactions[0]!.actor, transactions[0]!.modified], ['agent', true])
})

test('comments stand beside the lines of a proposal, and its checks in the view', async () => {
  await unlock()
  await agent.request('apply', { edits: [write('p/four.txt', TEN)] })
  const [node, file] = await proposed(write('p/four.txt', TEN.replace('line 4', 'theirs')), 'four')
  const { proposal, view } = node.proposal
  await agent.request('proposal.comment', { proposal, text: 'See [this](https://example.org).', path: 'p/four.txt', line: 2 })
  await agent.request('proposal.check', { proposal, view, name: 'pytest', exit: 1, seconds: 2.25, output: 'one has failed' })
  await command('proposal.diff', file)
  const [, right] = proposedSides(file)
  const document = await vscode.workspace.openTextDocument(right)
  const threads = () => parts.comments.of(document).map(({ range, comments }) =>
    [range!.start.line, ...comments.map(({ body, author }) => `${author.name}: ${(body as vscode.MarkdownString).value}`)])
  await until(() => threads().length === 1)
  assert.match(threads().join(), /^1,agent: See(&nbsp;| )\\\[this\\\]/) // no link
  const thread = { uri: right, range: new vscode.Range(4, 0, 4, 0), comments: [], dispose: () => undefined }
  await command('proposal.reply', { thread, text: 'Why?' })
  await until(() => threads().length === 2)
  assert.deepEqual(threads()[1], [4, 'vscode: Why?'])
  await answering('In general', () => command('proposal.comment', node))
  const renewed = await until(async () => {
    const now = ((await top(parts.proposals)) as ProposalNode[]).find(each => each.proposal.proposal === proposal)!
    return now.proposal.comments.length === 3 ? now : undefined
  })
  assert.match((await parts.proposals.getTreeItem(renewed!)).description as string, /a check has failed/)
  const notes = (await parts.proposals.getChildren(renewed)).filter(({ kind }) => kind === 'note')
  const shown = await Promise.all(notes.map(async note => (await parts.proposals.getTreeItem(note)).label))
  assert.deepEqual(shown, ['pytest has failed (exit status 1)', 'In general'])
  await command('proposal.note', notes[0])
  await agentReplaces('p/four.txt', 'line 8', 'of another')
  const now = (await top(parts.proposals))[0] as ProposalNode
  assert.equal(now.proposal.comments.find(({ text }) => text === 'Why?')!.hunk, file.file.hunks[0]!.hunk)
  await answering('', () => command('proposal.reject', now))
})

test('a proposal of a new file and a rejected one', async () => {
  await unlock()
  const [fresh, file] = await proposed(write('p/new.txt', 'new\n'), 'new')
  await command('proposal.diff', file)
  await command('proposal.approve', fresh)
  assert.equal(contentOf('p/new.txt'), 'new\n')
  const [refused] = await proposed(write('p/new.txt', 'newer\n'), 'newer')
  await answering(undefined, () => command('proposal.reject', refused))
  assert.ok((await labels(parts.proposals, here())).includes(`${refused.proposal.proposal} newer`), 'no comment: nothing was to happen')
  await answering('', () => command('proposal.reject', refused))
  assert.equal(contentOf('p/new.txt'), 'new\n')
  assert.deepEqual(await labels(parts.proposals, here()), [])
})

test('an approval of a view that has changed lands nothing', async () => {
  await unlock()
  await agent.request('apply', { edits: [write('p/three.txt', TEN)] })
  const [node, file] = await proposed(write('p/three.txt', TEN.replace('line 0', 'theirs')), 'three')
  await agentReplaces('p/three.txt', 'line 0', 'of another')
  await command('proposal.approve', node)
  assert.equal(contentOf('p/three.txt'), TEN.replace('line 0', 'of another'))
  const own = TEN.replace('line 0', 'of both')
  const [, right] = proposedSides(file)
  await replaceLine(await vscode.window.showTextDocument(right), 0, 'of both')
  await agentReplaces('p/three.txt', 'line 9', 'of another')
  const [now] = (await top(parts.proposals)) as ProposalNode[]
  await command('proposal.approve', now)
  assert.equal(contentOf('p/three.txt'), own.replace('line 9', 'of another'))
})

test('decisions go to the socket for reviewers, which asks for the PIN once', async () => {
  const other = parts.workspaces.get(realpathSync(folderOf('second')))!
  await until(() => other.state === 'ready')
  const author = new Connection(other.root, () => ({ program: [], actor: 'agent', start: false }))
  for (const name of ['one.txt', 'two.txt']) await author.request('apply', { edits: [write(name, TEN)], message: name, propose: true })
  const nodes = (await parts.proposals.getChildren({ kind: 'root', connection: other })) as ProposalNode[]
  assert.deepEqual(nodes.map(({ proposal }) => proposal.message), ['two.txt', 'one.txt'])
  const asked = await answering('1234', async () => {
    for (const node of nodes) await command('proposal.approve', node)
  })
  assert.equal(asked.length, 1)
  for (const name of ['one.txt', 'two.txt']) assert.equal(readFileSync(join(other.root, name), 'utf8'), TEN)
  author.dispose()
})

test('each repository of the window has its daemon, and other folders have none', async () => {
  const [loose, , second] = ['loose', 'workspace', 'second'].map(name => realpathSync(folderOf(name)))
  assert.deepEqual(parts.workspaces.all.map(({ root }) => root), [second, realpathSync(root())])
  const other = parts.workspaces.get(second!)!
  await until(() => other.state === 'ready')
  const trees = [parts.history, parts.sessions]
  for (const tree of trees) assert.deepEqual(await labels(tree as typeof parts.history), ['second', 'workspace'])
  for (const folder of [loose!, second!]) {
    writeFileSync(join(folder, 'file.txt'), TEN)
    const document = await vscode.workspace.openTextDocument(join(folder, 'file.txt'))
    const shown = await vscode.window.showTextDocument(document, { preview: false })
    if (folder === second) await until(() => parts.documents.get(document)?.base)
    await type(shown, 'mine\n')
    assert.ok(await document.save())
    assert.equal(readFileSync(join(folder, 'file.txt'), 'utf8'), TEN + 'mine\n')
    assert.equal(parts.documents.get(document) === undefined, folder === loose)
  }
  const { transactions } = await other.request<{ transactions: Transaction[] }>('log', { limit: 1 })
  assert.deepEqual([transactions[0]!.message, transactions[0]!.actor], ['Save file.txt', 'vscode'])
  await other.request('shutdown')
})

test('without a daemon VS Code saves as ever, and a killed daemon is started again', async () => {
  const [document, shown] = await opened('offline.txt')
  const { pid } = await agent.request<{ pid: number }>('status')
  await withSetting('editd.start', false, async () => {
    process.kill(pid, 'SIGKILL')
    await until(() => editor.state === 'waiting')
    await until(() => parts.status.backgroundColor)
    await type(shown, 'mine\n')
    assert.ok(await document.save())
    assert.equal(contentOf('offline.txt'), TEN + 'mine\n')
  })
  const program = (value: unknown) => vscode.workspace.getConfiguration().update('editd.program', value, vscode.ConfigurationTarget.Global)
  let states = 0
  editor.onState(() => states++)
  await program(['no-such-editctl'])
  await assert.rejects(editor.request('status'), /no-such-editctl was not found/)
  assert.match(parts.status.tooltip as string, /no-such-editctl was not found/)
  await sleep(500)
  assert.ok(states < 10, `${states} states in half a second`)
  await program(undefined)
  await type(shown, 'more\n')
  const started = Date.now()
  await document.save()
  await until(() => editor.state === 'ready')
  console.log(`the daemon was started in ${Date.now() - started} ms`)
  await until(() => !document.isDirty)
  await agent.request('settle')
  assert.equal(contentOf('offline.txt'), TEN + 'mine\nmore\n')
  await type(shown, 'again\n')
  assert.ok(await document.save())
  const { kind, actor } = await newest()
  assert.deepEqual([kind, actor], ['edit', 'vscode'])
  await agent.request('shutdown')
})

test('a window without a repository is idle', async () => {
  const names = vscode.workspace.workspaceFolders!.map(({ name }) => name)
  assert.deepEqual(names, ['loose', 'workspace', 'second'])
  vscode.workspace.updateWorkspaceFolders(2, 1)
  await until(() => parts.workspaces.all.length === 1)
  vscode.workspace.updateWorkspaceFolders(1, 1)
  await until(() => parts.workspaces.all.length === 0)
  assert.deepEqual(await parts.history.getChildren(), [])
  await until(() => editor.state === 'closed')
})

export async function run(): Promise<void> {
  for (const end = Date.now() + 5000; vscode.workspace.workspaceFolders?.length !== 3; await sleep(50)) {
    if (Date.now() > end) throw new Error('the window has no folders')
  }
  parts = (await vscode.extensions.getExtension<Parts>('editd.editd')!.activate())!
  editor = (await until(() => parts.workspaces.get(realpathSync(root()))))!
  agent = new Connection(editor.root, () => ({ program: [], actor: 'agent', start: false }))
  agent.onEvent(({ transaction }) => transaction && transactions.push(transaction))
  await until(() => editor.state === 'ready')
  let failures = 0
  const only = new RegExp(process.env.EDITD_TEST_ONLY ?? '')
  for (const [name, body] of tests.filter(([name]) => only.test(name))) {
    const started = Date.now()
    const limit = sleep(TEST_MILLISECONDS).then(() => Promise.reject(new Error('it takes too long')))
    const failure = await Promise.race([body(), limit]).then(() => '', (error: Error) => error.stack ?? String(error))
    if (failure !== '') failures++
    console.log(`test: ${JSON.stringify({ name, failure, milliseconds: Date.now() - started })}`)
    await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor')
    await vscode.commands.executeCommand('workbench.action.closeAllEditors')
  }
  if (failures > 0) throw new Error(`${failures} tests have failed`)
}
