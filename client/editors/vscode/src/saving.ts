/**
 * Saving through the daemon, and the merge of unsaved documents with the writes of others.
 *
 * VS Code does not let an extension save in its place. So before it saves, the daemon saves, and the text that the
 * daemon has written is returned as edits. VS Code then finds on the disk what it is about to write, and accepts it.
 * The same step gives a document a new base at any time: VS Code "saves" what the file holds anyway, and afterwards
 * the user's own text is put back, merged.
 *
 * Without an answer in time, or if the daemon does not take the file, VS Code saves as it always does. The daemon
 * records that as a change from outside.
 */

import { utimes } from 'node:fs/promises'
import * as vscode from 'vscode'
import { requestId, type Connection } from './connection'
import { decode, encode, modifiedOf, readDisk, type Documents, type Known, type Tracked } from './documents'
import { carry, linesOf, merge, moved, spansBetween, type Span } from './lines'
import { versionOf } from './place'
import { bytesOf, contentOf, Refusal, Unreachable, type Outcome, type Transaction } from './protocol'
import { setting, type Workspaces } from './workspaces'

const SAVE_MILLISECONDS = 1200 // VS Code waits for 1500
const SENT_MILLISECONDS = 1400
const SAVED_MILLISECONDS = 500
const EDITS_WAITS_MAX = 5
const WRITE_MILLISECONDS = 30000
const NOTICE_MILLISECONDS = 3000 // from a write by VS Code to the event that reports it
const RECORDED_MAX = 20
const PAUSE_MILLISECONDS = 300 // in typing, before a merge into an unsaved document
const PAUSES_MAX = 100
const PUT_BACK_MILLISECONDS = 2000
const REPEATS_MAX = 3
const TYPED_REPEATS_MAX = 30 // VS Code saves automatically only after a save that has succeeded
const CHANGES_MAX = 50
/**
 * VS Code compares a text with the file before it refuses to write, but only in three pieces of 64 KiB: see
 * `peekBufferForWriting` in its fileService.ts. A longer one is written if the file has the time that VS Code knows.
 */
const COMPARED_LENGTH_MAX = 3 * 65536
const NAMES: [string, string] = ['this editor', 'the file']

/** A save between VS Code's question and its end. */
interface Save {
  /** The text that the document had, and with the keys that were pressed before the edits were made. */
  readonly sent: string
  latest: string
  /** The text of its base. */
  readonly base: string
  /** The file by now, which VS Code is to write. */
  readonly file: Known
  /** The document's own text comes back afterwards, unsaved. */
  readonly isAside: boolean
  /** The number of characters that `sent`, and the text now, have to change to be the file's. */
  readonly distance: number
  left: number
  /** VS Code makes the edits, however late. It drops those for an older text of the document. */
  readonly isSent: boolean
  /** It is not a save of this extension, so that the document is to be saved with its own text. */
  isWanted?: boolean
  /** The text after the edits: the file's, unless a key was pressed in the moment before. Undefined: they were not made. */
  applied?: string
  /** The selections in `sent`, as offsets, of each editor that shows the document. */
  readonly selections: [vscode.TextEditor, [number, number][]][]
  timer?: NodeJS.Timeout
}

export class Saving implements vscode.Disposable {
  private readonly saves = new Map<vscode.TextDocument, Save>()
  private readonly repeats = new Map<vscode.TextDocument, number>()
  private readonly rebases = new Map<vscode.TextDocument, Known>()
  /** The documents that this extension saves. VS Code refuses a save while it asks about another. */
  private readonly ownSaves = new Set<vscode.TextDocument>()
  /** The documents that are brought up to date, and whether their file has changed since. */
  private readonly follows = new Map<vscode.TextDocument, boolean>()
  /** The ends of the saves that are under way. */
  private readonly settlements = new Map<vscode.TextDocument, Promise<void>>()
  /** The version that VS Code was last to write for each document, and the latest time for a report of that. */
  private readonly written = new WeakMap<vscode.TextDocument, { version: string; end: number }>()
  /** The newest versions of each document's file that transactions have made. */
  private readonly recorded = new WeakMap<vscode.TextDocument, { version: string; kind: string }[]>()
  private readonly changed = new WeakMap<vscode.TextDocument, number>()
  private readonly subscriptions: vscode.Disposable[]
  private readonly collisions = new vscode.EventEmitter<Tracked>()
  /** An unsaved document does not merge with its file, or does again. */
  readonly onCollision = this.collisions.event

  constructor(
    private readonly documents: Documents,
    workspaces: Workspaces,
  ) {
    this.subscriptions = [
      this.collisions,
      vscode.workspace.onWillSaveTextDocument(event => this.willSave(event)),
      vscode.workspace.onDidSaveTextDocument(document => void this.didSave(document)),
      vscode.workspace.onDidChangeTextDocument(event => this.didChange(event)),
      workspaces.onEvent(({ connection, event }) => {
        if (event.transaction !== undefined) this.record(connection, event.transaction)
        const paths = event.transaction?.files.map(({ path }) => path)
        if (paths === undefined && event.event !== 'resync') return
        for (const tracked of documents.of(connection)) {
          if (paths === undefined || paths.includes(tracked.path)) void this.follow(tracked)
        }
      }),
      workspaces.onState(({ connection, state }) => {
        if (state === 'ready') for (const tracked of documents.of(connection)) void this.follow(tracked)
      }),
    ]
  }

  /** Merge the file into an unsaved document. Where both changed the same lines, do it only `withMarkers`. */
  async rebase(tracked: Tracked, withMarkers: boolean): Promise<void> {
    const { document, base } = tracked
    if (base === undefined || this.isSaving(document)) return
    if (document.getText().length > COMPARED_LENGTH_MAX) return // the save merges it
    const disk = await readDisk(document)
    if (disk === undefined || disk.version === tracked.base?.version || !document.isDirty) return
    if (disk.text === document.getText() || this.isSaving(document)) return
    const { conflicts } = merge(base.text, document.getText(), disk.text, NAMES)
    if (conflicts > 0 && !withMarkers) {
      if (tracked.colliding !== disk.version) {
        tracked.colliding = disk.version
        this.collisions.fire(tracked)
      }
      return
    }
    this.rebases.set(document, disk)
    const hasSaved = await this.saveOurselves(document)
    const isPending = this.rebases.delete(document)
    const save = this.saves.get(document)
    if (hasSaved || isPending || save === undefined) return
    if (save.applied !== undefined) await this.settle(document, false)
    else save.isWanted = true // another save has taken the edits, which are still to come, and VS Code has refused ours
  }

  dispose(): void {
    for (const { timer } of this.saves.values()) clearTimeout(timer)
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  /** Bring a document up to date after its file has changed; once more, if that happens meanwhile. */
  private async follow(tracked: Tracked): Promise<void> {
    const { document } = tracked
    const isRunning = this.follows.has(document)
    this.follows.set(document, true)
    if (isRunning) return
    try {
      while (this.follows.get(document)) {
        this.follows.set(document, false)
        await this.catchUp(tracked)
      }
    } finally {
      this.follows.delete(document)
    }
  }

  private async catchUp(tracked: Tracked): Promise<void> {
    const { document } = tracked
    if (!document.isDirty) return this.documents.note(tracked)
    if (setting<string>('merge', document.uri) !== 'auto') return
    await this.pause(document)
    await this.rebase(tracked, false)
  }

  /** Wait for a pause in typing. */
  private async pause(document: vscode.TextDocument): Promise<void> {
    const isTyping = () => Date.now() - (this.changed.get(document) ?? 0) < PAUSE_MILLISECONDS
    for (let pauses = 0; pauses < PAUSES_MAX && isTyping(); pauses++) {
      await new Promise(resolve => setTimeout(resolve, PAUSE_MILLISECONDS))
    }
  }

  private isSaving(document: vscode.TextDocument): boolean {
    return this.saves.has(document) || this.ownSaves.has(document)
  }

  private async saveOurselves(document: vscode.TextDocument): Promise<boolean> {
    this.ownSaves.add(document)
    try {
      return await document.save()
    } finally {
      this.ownSaves.delete(document)
    }
  }

  private willSave(event: vscode.TextDocumentWillSaveEvent): void {
    const { document } = event
    const tracked = this.documents.get(document)
    if (tracked?.base === undefined) return
    const disk = this.rebases.get(document)
    this.rebases.delete(document)
    // The edits of a rebase are made at once, so that no key is pressed in between.
    event.waitUntil(disk === undefined ? this.save(tracked) : Promise.resolve(this.stepAside(tracked, disk)))
  }

  /** Return the edits that give the document the file's text. The merged text comes back after the save. */
  private stepAside(tracked: Tracked, disk: Known): vscode.TextEdit[] {
    return this.begin(tracked, tracked.document.getText(), disk, { isAside: true, isSent: true })
  }

  private async save(tracked: Tracked): Promise<vscode.TextEdit[]> {
    const { document, connection, path } = tracked
    const { version } = document
    const asked = Date.now()
    // VS Code drops the edits if the document has changed since its question, or if they come too late.
    const isSent = () => document.version === version && Date.now() - asked < SENT_MILLISECONDS
    await this.settlements.get(document) // the document's own text comes back first
    await this.finish(tracked)
    const base = tracked.base!
    const sent = document.getText()
    const bytes = await encode(sent, document)
    const edit = { op: 'write', path, content: contentOf(bytes), base: base.version }
    this.written.set(document, { version: versionOf(bytes), end: Date.now() + WRITE_MILLISECONDS }) // if the answer is late
    try {
      const request = connection.request<Outcome>('apply', {
        edits: [edit], message: `Save ${path}`, on_stale: 'merge', on_unsaved: 'ignore',
        return_content: true, request_id: requestId(),
      })
      const answer = await inTime(request)
      if (answer === undefined) {
        void request.then(late => this.takeLate(tracked, base, sent, late)).catch(() => undefined)
        return []
      }
      const file = answer.files[0]
      if (answer.proposal) {
        await connection.request('proposal.withdraw', { proposal: answer.proposal.proposal })
        warn(`A rule of your review asks about ${path}. VS Code saved it without editd.`)
        return []
      }
      if (file?.content === undefined || file.content === null) return []
      const known = await decode(bytesOf(file.content), document)
      await keepTime(tracked)
      return this.begin(tracked, sent, known, { isAside: false, isSent: isSent() })
    } catch (error) {
      if (error instanceof Unreachable) return []
      if (!(error instanceof Refusal)) throw error
      if (error.refusal === 'conflict') return this.mark(tracked, sent, isSent)
      warn(`${error.message} VS Code saved ${path} without editd.`)
      return []
    }
  }

  /**
   * Note the versions of a transaction. If VS Code has overwritten another's edit, undo that: it was to write what the
   * file held, and it looks for a change by another only if the file has another size than VS Code knows. Such a write
   * comes in the moment of a save, makes a version anew, and follows an edit. Other programs that do so are left alone.
   */
  private record(connection: Connection, { seq, kind, files }: Transaction): void {
    for (const { document, path } of this.documents.of(connection)) {
      const version = files.find(file => file.path === path)?.version
      if (version === undefined || version === null) continue
      const recorded = this.recorded.get(document) ?? []
      const written = this.written.get(document)
      this.recorded.set(document, [...recorded.slice(-RECORDED_MAX), { version, kind }])
      const isOurs = kind === 'outside' && written?.version === version && Date.now() < written.end
      const isAnew = recorded.some(one => one.version === version) && recorded.at(-1)!.kind !== 'outside'
      if (!isOurs || !isAnew) continue
      const undo = { tx: seq, paths: [path], request_id: requestId() }
      void connection.request('undo', undo).catch((error: Error) => warn(`${path} was overwritten by VS Code: ${error.message}`))
    }
  }

  /** Note a save by the daemon for which VS Code did not wait. */
  private async takeLate(tracked: Tracked, base: Known, sent: string, answer: Outcome): Promise<void> {
    const { document } = tracked
    const content = answer.files[0]?.content
    if (content === undefined || content === null || tracked.base !== base || this.isSaving(document)) return
    const known = await decode(bytesOf(content), document)
    if (!document.isDirty || tracked.base !== base || this.isSaving(document)) return
    this.begin(tracked, sent, known, { isAside: false, isSent: false })
    await this.settle(document, false)
  }

  /** Finish a save whose end VS Code did not report. A further one has begun, so that its edits cannot come any more. */
  private async finish(tracked: Tracked): Promise<void> {
    const save = this.saves.get(tracked.document)
    clearTimeout(save?.timer)
    this.saves.delete(tracked.document)
    if (save !== undefined) await this.conclude(tracked, save, false)
  }

  /** Return the edits for a document of which the same lines were changed: nothing in the file is overwritten. */
  private async mark(tracked: Tracked, sent: string, isSent: () => boolean): Promise<vscode.TextEdit[]> {
    const disk = await readDisk(tracked.document)
    if (disk === undefined) return []
    if (merge(tracked.base!.text, sent, disk.text, NAMES).conflicts > 0) {
      warn(`${tracked.path} was not saved, because others have changed the same lines. Both are marked in the editor.`)
    }
    await keepTime(tracked)
    return this.begin(tracked, sent, disk, { isAside: true, isSent: isSent() })
  }

  private begin(tracked: Tracked, sent: string, file: Known, how: Pick<Save, 'isAside' | 'isSent'>): vscode.TextEdit[] {
    const { document } = tracked
    const { isAside } = how
    tracked.isAside = isAside
    const spans = spansBetween(sent, file.text)
    const [base, distance] = [tracked.base!.text, lengthOf(spans)]
    const save: Save = { ...how, sent, latest: sent, base, file, distance, left: distance, selections: selectionsOf(document) }
    if (spans.length === 0) save.applied = sent
    const limit = isAside && how.isSent ? PUT_BACK_MILLISECONDS : SAVED_MILLISECONDS
    const wait = (waits: number) => {
      save.timer = setTimeout(() => {
        if (how.isSent && save.applied === undefined && waits < EDITS_WAITS_MAX) wait(waits + 1)
        else void this.settle(document, false)
      }, limit)
    }
    wait(0)
    this.written.set(document, { version: file.version, end: Date.now() + WRITE_MILLISECONDS })
    this.saves.set(document, save)
    const edits = textEdits(sent, spans)
    return file.eol === document.eol ? edits : [...edits, vscode.TextEdit.setEndOfLine(file.eol)]
  }

  /** Notice the edits of a save. VS Code makes them smaller, and a key that was pressed just before moves them. */
  private didChange({ document }: vscode.TextDocumentChangeEvent): void {
    this.changed.set(document, Date.now())
    const save = this.saves.get(document)
    if (save === undefined || save.applied !== undefined) return
    const text = document.getText()
    const left = lengthOf(spansBetween(text, save.file.text))
    if (2 * (save.left - left) >= save.distance) save.applied = text
    else save.latest = text
    save.left = left
  }

  private async didSave(document: vscode.TextDocument): Promise<void> {
    const written = this.written.get(document)
    if (written !== undefined) written.end = Date.now() + NOTICE_MILLISECONDS
    await this.settle(document, true)
    this.repeats.delete(document)
    const tracked = this.documents.get(document)
    if (tracked !== undefined && !document.isDirty) await this.documents.note(tracked)
  }

  /** Bring the base and the document up to date, after VS Code has written the file or refused to. */
  private async settle(document: vscode.TextDocument, hasSaved: boolean): Promise<void> {
    const save = this.saves.get(document)
    const tracked = this.documents.get(document)
    clearTimeout(save?.timer)
    this.saves.delete(document)
    if (save === undefined || tracked === undefined) return this.settlements.get(document)
    const settlement = this.conclude(tracked, save, hasSaved)
    this.settlements.set(document, settlement)
    await settlement
    if (this.settlements.get(document) === settlement) this.settlements.delete(document)
    const isDone = save.applied !== undefined || hasSaved
    if (!document.isDirty) return
    if (save.isWanted) await this.repeat(document, save, () => this.saveAgain(tracked))
    else if (save.isAside) await (isDone ? this.follow(tracked) : this.repeat(document, save, () => this.follow(tracked)))
    else if (!hasSaved || save.applied !== save.file.text) await this.repeat(document, save, () => this.saveAgain(tracked))
  }

  private async saveAgain(tracked: Tracked): Promise<void> {
    if (this.isSaving(tracked.document)) return
    await this.saveOurselves(tracked.document)
    if (tracked.document.isDirty) await this.follow(tracked) // which had to wait for the save
  }

  private async conclude(tracked: Tracked, save: Save, hasSaved: boolean): Promise<void> {
    const { document } = tracked
    const { base, sent, file, applied, isAside } = save
    tracked.isAside = false
    if (applied === undefined && isAside && !hasSaved) return // nothing has happened: the old base holds
    const text = document.getText()
    tracked.base = { ...file, modified: hasSaved ? await modifiedOf(document) : tracked.base?.modified }
    if (hasSaved && applied !== file.text) {
      // VS Code has written another text than ours: that is the file now.
      const written = applied ?? text
      tracked.base = { ...tracked.base, text: written, version: versionOf(await encode(written, document)) }
    }
    delete tracked.colliding
    if (applied === undefined) await change(document, text => merge(isAside ? base : sent, text, file.text, NAMES).text)
    else await putBack(document, save, applied)
    this.documents.plan(tracked, 0)
    this.collisions.fire(tracked)
  }

  /** Try again after another extension, or the user, has changed the text behind us, once there is a pause in that. */
  private async repeat(document: vscode.TextDocument, { applied, isSent }: Save, step: () => Promise<void>): Promise<void> {
    await this.pause(document)
    const repeats = this.repeats.get(document) ?? 0
    this.repeats.set(document, repeats + 1)
    const isTyped = applied === undefined && !isSent
    if (repeats < (isTyped ? TYPED_REPEATS_MAX : REPEATS_MAX) && document.isDirty) await step()
  }
}

/** Change the text of a document. If another changes it meanwhile, try again with its new text. */
async function change(document: vscode.TextDocument, wanted: (text: string) => string): Promise<void> {
  for (let tries = 0; tries < CHANGES_MAX && !document.isClosed; tries++) {
    const before = document.getText()
    const spans = spansBetween(before, wanted(before))
    if (spans.length === 0) return
    const edit = new vscode.WorkspaceEdit()
    edit.set(document.uri, textEdits(before, spans))
    if (await vscode.workspace.applyEdit(edit)) return
  }
}

/** Return the text that a document is to have after a save. */
function goalOf({ base, sent, latest, file, isAside }: Save): string {
  return merge(isAside ? base : sent, latest, file.text, NAMES).text
}

/** Give a document its text, with the keys that were pressed since the edits, and put the cursors where they were. */
async function putBack(document: vscode.TextDocument, save: Save, applied: string): Promise<void> {
  const { sent, isAside, selections } = save
  const goal = goalOf(save)
  const toGoal = spansBetween(sent, goal)
  const caret = selections.find(([editor]) => editor === vscode.window.activeTextEditor)?.[1][0]?.[1]
  const carets = caret === undefined ? undefined : { base: moved(caret, spansBetween(sent, applied)), theirs: moved(caret, toGoal) }
  await change(document, text => {
    if (text === applied) return goal
    return carry(applied, text, goal, carets) ?? merge(applied, text, goal, NAMES).text
  })
  if (!isAside) return
  const toNow = spansBetween(goal, document.getText())
  const positionOf = (offset: number) => document.positionAt(moved(moved(offset, toGoal), toNow))
  for (const [editor, pairs] of selections) {
    if (!vscode.window.visibleTextEditors.includes(editor)) continue
    editor.selections = pairs.map(([anchor, active]) => new vscode.Selection(positionOf(anchor), positionOf(active)))
  }
}

/** Return the number of characters that spans remove and add. */
function lengthOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { start, end, text }) => sum + end - start + text.length, 0)
}

function selectionsOf(document: vscode.TextDocument): Save['selections'] {
  const editors = vscode.window.visibleTextEditors.filter(editor => editor.document === document)
  return editors.map(editor => [
    editor,
    editor.selections.map(({ anchor, active }) => [document.offsetAt(anchor), document.offsetAt(active)]),
  ])
}

/** Give the file of a long text, which the daemon has just written, the time that VS Code knows. VS Code writes it once more. */
async function keepTime({ document, base }: Tracked): Promise<void> {
  if (document.getText().length <= COMPARED_LENGTH_MAX || base?.modified === undefined) return
  await utimes(document.uri.fsPath, new Date(), new Date(base.modified)).catch(() => undefined)
}

function textEdits(before: string, spans: readonly Span[]): vscode.TextEdit[] {
  const starts = [0]
  for (const line of linesOf(before)) starts.push(starts.at(-1)! + line.length)
  const positionOf = (offset: number, from = 0) => {
    let line = from
    while (line + 2 < starts.length && starts[line + 1]! <= offset) line++
    return new vscode.Position(line, offset - starts[line]!)
  }
  let line = 0
  return spans.map(({ start, end, text }) => {
    const first = positionOf(start, line)
    line = first.line
    return vscode.TextEdit.replace(new vscode.Range(first, positionOf(end, line)), text)
  })
}

function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  answer.catch(() => undefined)
  return Promise.race([answer, new Promise<undefined>(resolve => setTimeout(resolve, SAVE_MILLISECONDS, undefined))])
}

function warn(message: string): void {
  void vscode.window.showWarningMessage(`editd: ${message}`)
}
