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

import * as vscode from 'vscode'
import { requestId } from './connection'
import { decode, encode, readDisk, type Documents, type Known, type Tracked } from './documents'
import { editsBetween, merge } from './lines'
import { bytesOf, contentOf, Refusal, Unreachable, type Outcome } from './protocol'
import { setting, type Workspaces } from './workspaces'

const SAVE_MILLISECONDS = 1200 // VS Code waits for 1500
const SAVED_MILLISECONDS = 500
const PUT_BACK_MILLISECONDS = 2000
const SAVES_MAX = 3
const NAMES: [string, string] = ['this editor', 'the file']

/** A save between VS Code's question and its end. */
interface Save {
  /** The text that the document had. */
  sent: string
  /** The file by now, which VS Code is to write. */
  file: Known
  /** The text to put back afterwards, unsaved. */
  back?: string
  /** The document has had the file's text: the edits were made. */
  isApplied: boolean
  timer?: NodeJS.Timeout
}

export class Saving implements vscode.Disposable {
  private readonly saves = new Map<vscode.TextDocument, Save>()
  private readonly repeats = new Map<vscode.TextDocument, number>()
  private readonly rebases = new Map<vscode.TextDocument, Known>()
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
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        const save = this.saves.get(document)
        if (save !== undefined && document.getText() === save.file.text) save.isApplied = true
      }),
      workspaces.onEvent(({ connection, event }) => {
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
    if (base === undefined || this.saves.has(document) || this.rebases.has(document)) return
    const disk = await readDisk(document)
    if (disk === undefined || disk.version === tracked.base?.version || !document.isDirty) return
    if (disk.text === document.getText() || this.saves.has(document)) return
    const { conflicts } = merge(base.text, document.getText(), disk.text, NAMES)
    if (conflicts > 0 && !withMarkers) {
      if (tracked.colliding !== disk.version) {
        tracked.colliding = disk.version
        this.collisions.fire(tracked)
      }
      return
    }
    this.rebases.set(document, disk)
    const hasSaved = await document.save()
    this.rebases.delete(document)
    if (!hasSaved) await this.settle(document, false)
  }

  dispose(): void {
    for (const { timer } of this.saves.values()) clearTimeout(timer)
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  private async follow(tracked: Tracked): Promise<void> {
    if (!tracked.document.isDirty) return this.documents.note(tracked)
    if (setting<string>('merge', tracked.document.uri) === 'auto') await this.rebase(tracked, false)
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
    const sent = tracked.document.getText()
    const back = merge(tracked.base!.text, sent, disk.text, NAMES).text
    return this.begin(tracked, { sent, file: disk, back, isApplied: false })
  }

  private async save(tracked: Tracked): Promise<vscode.TextEdit[]> {
    const { document, connection, path } = tracked
    const base = tracked.base!
    const sent = document.getText()
    const bytes = await encode(sent, document)
    const edit = { op: 'write', path, content: contentOf(bytes), base: base.version }
    try {
      const answer = await inTime(
        connection.request<Outcome>('apply', {
          edits: [edit], message: `Save ${path}`, on_stale: 'merge', on_unsaved: 'ignore',
          return_content: true, request_id: requestId(),
        }), // prettier-ignore
      )
      const file = answer?.files[0]
      if (answer === undefined) return []
      if (answer.proposal) {
        await connection.request('proposal.withdraw', { proposal: answer.proposal.proposal })
        warn(`A rule of your review asks about ${path}. VS Code saved it without editd.`)
        return []
      }
      if (file?.content === undefined || file.content === null) return []
      return this.begin(tracked, { sent, file: await decode(bytesOf(file.content), document), isApplied: false })
    } catch (error) {
      if (error instanceof Unreachable) return []
      if (!(error instanceof Refusal)) throw error
      if (error.refusal === 'conflict') return this.mark(tracked, sent)
      warn(`${error.message} VS Code saved ${path} without editd.`)
      return []
    }
  }

  /** Return the edits for a document of which the same lines were changed: nothing in the file is overwritten. */
  private async mark(tracked: Tracked, sent: string): Promise<vscode.TextEdit[]> {
    const disk = await readDisk(tracked.document)
    if (disk === undefined) return []
    const { text, conflicts } = merge(tracked.base!.text, sent, disk.text, NAMES)
    const edits = this.begin(tracked, { sent, file: disk, back: text, isApplied: false })
    if (conflicts > 0) {
      warn(`${tracked.path} was not saved, because others have changed the same lines. Both are marked in the editor.`)
    }
    return edits
  }

  private begin(tracked: Tracked, save: Save): vscode.TextEdit[] {
    const { document } = tracked
    const edits = textEdits(save.sent, save.file.text)
    if (save.file.eol !== document.eol) edits.push(vscode.TextEdit.setEndOfLine(save.file.eol))
    save.isApplied = edits.length === 0
    const limit = save.back === undefined ? SAVED_MILLISECONDS : PUT_BACK_MILLISECONDS
    save.timer = setTimeout(() => void this.settle(document, false), limit)
    clearTimeout(this.saves.get(document)?.timer)
    this.saves.set(document, save)
    return edits
  }

  private async didSave(document: vscode.TextDocument): Promise<void> {
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
    if (save === undefined || tracked === undefined) return
    const { sent, file, back, isApplied } = save
    const text = document.getText()
    if (!isApplied && !hasSaved && back !== undefined) return // nothing has happened: the old base holds
    // If VS Code has saved another text than ours, that is the file now, and the others' text comes back into it.
    if (isApplied || !hasSaved) tracked.base = file
    else tracked.base = { ...file, text, version: (await readDisk(document))?.version ?? file.version }
    delete tracked.colliding
    const wanted = merge(isApplied ? file.text : sent, text, back ?? file.text, NAMES).text
    if (wanted !== text) {
      const edit = new vscode.WorkspaceEdit()
      edit.set(document.uri, textEdits(text, wanted))
      await vscode.workspace.applyEdit(edit)
    }
    this.documents.plan(tracked, 0)
    this.collisions.fire(tracked)
    const repeats = this.repeats.get(document) ?? 0
    if (back === undefined && document.isDirty && (!hasSaved || !isApplied) && repeats < SAVES_MAX) {
      this.repeats.set(document, repeats + 1) // another extension, or the user, has changed the text behind us
      await document.save()
    }
  }
}

function textEdits(before: string, after: string): vscode.TextEdit[] {
  return editsBetween(before, after).map(({ startLine, endLine, text }) =>
    vscode.TextEdit.replace(new vscode.Range(startLine, 0, endLine, 0), text),
  )
}

function inTime<T>(answer: Promise<T>): Promise<T | undefined> {
  answer.catch(() => undefined)
  return Promise.race([answer, new Promise<undefined>(resolve => setTimeout(resolve, SAVE_MILLISECONDS, undefined))])
}

function warn(message: string): void {
  void vscode.window.showWarningMessage(`editd: ${message}`)
}
