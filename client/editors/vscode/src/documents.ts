/**
 * The documents of the window's workspaces: the version that each was read at, and its unsaved text.
 *
 * A document without changes has the version of its file. VS Code follows the file by itself. With changes, its
 * text is held in the daemon, so that an agent's edit is tried on it. After a transaction it is merged: see `saving`.
 */

import { readFile, stat } from 'node:fs/promises'
import * as vscode from 'vscode'
import type { Connection } from './connection'
import { versionOf } from './place'
import { contentOf, Refusal } from './protocol'
import { setting, type Workspaces } from './workspaces'

/** A text and the version of its bytes. */
export interface Known {
  text: string
  version: string
  eol: vscode.EndOfLine
  /** The time of the file, in milliseconds, when VS Code read or saved it. */
  modified?: number
}

export interface Tracked {
  readonly document: vscode.TextDocument
  readonly connection: Connection
  readonly path: string
  /** The file as the document was read or saved last. Undefined: not known, as after a restart with unsaved changes. */
  base?: Known
  /** The version that the daemon has as this document's unsaved text. */
  held?: string
  /** The document has the file's text for a moment: the unsaved one comes back. */
  isAside?: boolean
  /** The version of the file that the unsaved text does not merge with. */
  colliding?: string
}

const HOLD_MILLISECONDS = 300
const HELD_BYTES_MAX = 1 << 20

/** Return a text with the line ends of a document, in which VS Code keeps only one kind. */
export function withLineEnds(text: string, eol: vscode.EndOfLine): string {
  return text.replace(/\r\n|\r|\n/g, eol === vscode.EndOfLine.CRLF ? '\r\n' : '\n')
}

/** Return the text of bytes in the encoding of a document, and their version. */
export async function decode(bytes: Uint8Array, document: vscode.TextDocument): Promise<Known> {
  const text = await vscode.workspace.decode(bytes, { encoding: document.encoding })
  const crlf = text.split('\r\n').length - 1
  const eol = 2 * crlf > text.split('\n').length - 1 ? vscode.EndOfLine.CRLF : vscode.EndOfLine.LF
  const isWithout = !/[\r\n]/.test(text)
  return { text: withLineEnds(text, document.eol), version: versionOf(bytes), eol: isWithout ? document.eol : eol }
}

/** Return what VS Code would write for a text of a document. */
export function encode(text: string, document: vscode.TextDocument): Thenable<Uint8Array> {
  return vscode.workspace.encode(text, { encoding: document.encoding })
}

/** Return the file of a document as it is now, or undefined if it cannot be read. */
export async function readDisk(document: vscode.TextDocument): Promise<Known | undefined> {
  const bytes = await readFile(document.uri.fsPath).catch(() => undefined)
  return bytes === undefined ? undefined : decode(bytes, document)
}

/** Return the time of a document's file in milliseconds, or undefined if there is none. */
export async function modifiedOf(document: vscode.TextDocument): Promise<number | undefined> {
  return (await stat(document.uri.fsPath).catch(() => undefined))?.mtime.getTime()
}

export class Documents implements vscode.Disposable {
  private readonly tracked = new Map<vscode.TextDocument, Tracked>()
  private readonly timers = new Map<vscode.TextDocument, NodeJS.Timeout>()
  private readonly subscriptions: vscode.Disposable[]

  constructor(private readonly workspaces: Workspaces) {
    this.subscriptions = [
      vscode.workspace.onDidOpenTextDocument(document => this.open(document)),
      vscode.workspace.onDidCloseTextDocument(document => this.close(document)),
      vscode.workspace.onDidChangeTextDocument(({ document }) => this.changed(document)),
      workspaces.onState(({ connection, state }) => {
        if (state !== 'ready') return
        for (const tracked of this.of(connection)) {
          delete tracked.held // a hold ends with its connection
          this.plan(tracked)
        }
      }),
    ]
  }

  get(document: vscode.TextDocument): Tracked | undefined {
    return this.tracked.get(document)
  }

  /** Return the documents of a workspace; of one path, if it is named. */
  of(connection: Connection, path?: string): Tracked[] {
    return [...this.tracked.values()].filter(
      tracked => tracked.connection === connection && (path === undefined || tracked.path === path),
    )
  }

  /** Find the workspace of each document anew. A document that stays in its workspace keeps its base. */
  update(): void {
    for (const document of vscode.workspace.textDocuments) {
      const located = this.workspaces.locate(document.uri)
      const tracked = this.tracked.get(document)
      if (tracked !== undefined && tracked.connection === located?.connection) continue
      this.close(document)
      this.open(document)
    }
  }

  /** Take the file's version for that of the document, if both have the same text. */
  async note(tracked: Tracked): Promise<void> {
    const { document } = tracked
    const modified = await modifiedOf(document)
    const disk = await readDisk(document)
    if (disk === undefined || disk.text !== document.getText()) return
    tracked.base = { ...disk, modified }
    delete tracked.colliding
    this.plan(tracked)
  }

  /** Hold or release the unsaved text, after a pause in typing. */
  plan(tracked: Tracked, milliseconds = HOLD_MILLISECONDS): void {
    if (tracked.held === undefined && !tracked.document.isDirty) return
    clearTimeout(this.timers.get(tracked.document))
    const timer = setTimeout(() => void this.hold(tracked).catch(ignoreRefusal), milliseconds)
    this.timers.set(tracked.document, timer)
  }

  dispose(): void {
    for (const timer of this.timers.values()) clearTimeout(timer)
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  private open(document: vscode.TextDocument): void {
    const located = this.workspaces.locate(document.uri)
    if (located === undefined) return
    const tracked = { document, ...located }
    this.tracked.set(document, tracked)
    if (!document.isDirty) void this.note(tracked)
  }

  private close(document: vscode.TextDocument): void {
    const tracked = this.tracked.get(document)
    if (tracked === undefined) return
    clearTimeout(this.timers.get(document))
    this.timers.delete(document)
    this.tracked.delete(document)
    void this.release(tracked).catch(ignoreRefusal)
  }

  /** A change without `isDirty` is that of a file that was read anew, or the first one: only the text shows which. */
  private changed(document: vscode.TextDocument): void {
    const tracked = this.tracked.get(document)
    if (tracked === undefined) return
    if (!document.isDirty) void this.note(tracked)
    this.plan(tracked)
  }

  private async hold(tracked: Tracked): Promise<void> {
    const { document, connection, path, base } = tracked
    if (tracked.isAside) return
    const sharing = setting<string>('shareUnsaved', document.uri)
    if (!document.isDirty || sharing === 'off') return this.release(tracked)
    if (base === undefined || connection.state !== 'ready') return
    const bytes = await encode(document.getText(), document)
    const version = versionOf(bytes)
    const held = `${version} on ${base.version}`
    if (tracked.held === held) return
    tracked.held = held
    const isShared = sharing === 'text' && bytes.length <= HELD_BYTES_MAX && !isPrivate(document)
    await connection.request('document.hold', { path, base: base.version, ...(isShared && { content: contentOf(bytes) }) })
  }

  private async release(tracked: Tracked): Promise<void> {
    if (tracked.held === undefined) return
    delete tracked.held
    if (tracked.connection.state === 'ready') await tracked.connection.request('document.release', { path: tracked.path })
  }
}

/** Return whether only the fact of unsaved changes is shared, not the text. */
function isPrivate(document: vscode.TextDocument): boolean {
  const globs = setting<string[]>('privateFiles', document.uri)
  return globs.some(pattern => vscode.languages.match({ pattern }, document) > 0)
}

/** A hold is a service to others: the daemon may refuse it, and the editor goes on. */
function ignoreRefusal(error: Error): void {
  if (!(error instanceof Refusal)) console.warn(`editd: ${error.message}`)
}
