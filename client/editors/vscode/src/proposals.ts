/**
 * Proposals: the list, the diff of each file with an editable right side, and the decisions.
 *
 * The right side is a file of the scheme `editd-proposal`. A change of it is the reviewer's own text, which an
 * approval sends in place of the hunks of that file. It is kept in memory until the proposal is settled.
 */

import { join } from 'node:path'
import * as vscode from 'vscode'
import { requestId, type Connection } from './connection'
import { fetchProposed, sourceOf, uriOf } from './contents'
import { encode, withLineEnds } from './documents'
import { authorOf } from './history'
import { realPath } from './place'
import { bytesOf, contentOf, type Content, type Outcome, type ProposalFile, type ProposalHunk, type ProposalEntry } from './protocol'
import type { Workspaces } from './workspaces'

export const EDITABLE = 'editd-proposal'

export interface ProposalNode {
  kind: 'proposal'
  connection: Connection
  proposal: ProposalEntry
}

export interface FileNode {
  kind: 'file'
  connection: Connection
  proposal: ProposalEntry
  file: ProposalFile
}

export interface HunkNode {
  kind: 'hunk'
  connection: Connection
  proposal: ProposalEntry
  file: ProposalFile
  hunk: ProposalHunk
}

/** A check of a proposal, or a comment on it. */
export interface NoteNode {
  kind: 'note'
  label: string
  description: string
  icon: vscode.ThemeIcon
  /** The output of the check, or the whole comment. */
  text: string
}

interface WorkspaceNode {
  kind: 'root'
  connection: Connection
}

type Node = WorkspaceNode | ProposalNode | FileNode | HunkNode | NoteNode

const MARKS = { fits: '', there: 'there already', conflict: 'conflicts', landed: 'landed', rejected: 'rejected' }

/** Return the two sides of a proposed file: as it is now, and as the proposal would leave it. */
export function proposedSides({ connection, proposal, file }: FileNode | HunkNode): [vscode.Uri, vscode.Uri] {
  const source = { root: connection.root, proposal: proposal.proposal }
  return [uriOf(file.path, source), uriOf(file.path, source, EDITABLE)]
}

/** A right side: the proposed bytes, the bytes now with their text, and the version of the file that is shown beside them. */
interface Reviewed {
  proposed: Uint8Array
  current: Uint8Array
  text: string
  now: string | null
  changed: number
}

/** The right sides, which the reviewer may change. */
export class ReviewedTexts implements vscode.FileSystemProvider, vscode.Disposable {
  private readonly texts = new Map<string, Reviewed>()
  /** What an open document has shown last. A newer one may be on its way, or never come because the reviewer types. */
  private readonly shown = new WeakMap<vscode.TextDocument, Reviewed>()
  private readonly changes = new vscode.EventEmitter<vscode.FileChangeEvent[]>()
  readonly onDidChangeFile = this.changes.event
  private readonly subscriptions: vscode.Disposable[]

  constructor(private readonly workspaces: Workspaces) {
    this.subscriptions = [
      this.changes,
      vscode.workspace.onDidOpenTextDocument(document => this.recognise(document)),
      vscode.workspace.onDidChangeTextDocument(({ document }) => this.recognise(document)),
    ]
    workspaces.onEvent(({ connection, event: { proposal, transaction } }) => {
      for (const key of this.texts.keys()) {
        const uri = vscode.Uri.parse(key)
        const source = sourceOf(uri)
        if (source.root !== connection.root) continue
        const isChanged = transaction?.files.some(({ path }) => `/${path}` === uri.path) ?? false
        if (isChanged || source.proposal === proposal?.proposal) void this.forget(uri, isOver(proposal))
      }
    })
  }

  async stat(uri: vscode.Uri): Promise<vscode.FileStat> {
    const { current, changed } = await this.load(uri)
    return { type: vscode.FileType.File, ctime: 0, mtime: changed, size: current.length }
  }

  async readFile(uri: vscode.Uri): Promise<Uint8Array> {
    return (await this.load(uri)).current
  }

  async writeFile(uri: vscode.Uri, content: Uint8Array): Promise<void> {
    const document = documentOf(uri)
    const reviewed = (document && this.shown.get(document)) ?? (await this.load(uri))
    const written = { ...reviewed, current: content, text: await vscode.workspace.decode(content, { uri }), changed: Date.now() }
    this.texts.set(uri.toString(), written)
    if (document !== undefined) this.shown.set(document, written)
    this.changes.fire([{ type: vscode.FileChangeType.Changed, uri }])
  }

  /** Return the reviewer's text for an approval, or undefined if it is still the proposal's. An unsaved one counts, too. */
  async own(uri: vscode.Uri): Promise<{ path: string; content: Content; base: string | null } | undefined> {
    const document = documentOf(uri)
    const reviewed = (document && this.shown.get(document)) ?? this.texts.get(uri.toString())
    if (reviewed === undefined) return undefined
    // Not `isDirty`, which is not set yet right after the first change.
    const isAsShown = document === undefined || hasText(document, reviewed)
    const current = isAsShown ? reviewed.current : await encode(document.getText(), document)
    if (Buffer.compare(current, reviewed.proposed) === 0) return undefined
    return { path: uri.path.slice(1), content: contentOf(current), base: reviewed.now }
  }

  watch(): vscode.Disposable {
    return new vscode.Disposable(() => undefined)
  }

  readDirectory(): [string, vscode.FileType][] {
    return []
  }

  createDirectory(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri)
  }

  delete(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri)
  }

  rename(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri)
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  /** Note that a document has the text that was read last. */
  private recognise(document: vscode.TextDocument): void {
    const reviewed = document.uri.scheme === EDITABLE ? this.texts.get(document.uri.toString()) : undefined
    if (reviewed !== undefined && hasText(document, reviewed)) this.shown.set(document, reviewed)
  }

  /** Have a text read anew. The reviewer's own stays, unless the proposal is over. */
  private async forget(uri: vscode.Uri, isSettled: boolean): Promise<void> {
    if (!isSettled && (await this.own(uri)) !== undefined) return
    this.texts.delete(uri.toString())
    this.changes.fire([{ type: vscode.FileChangeType.Changed, uri }])
  }

  private async load(uri: vscode.Uri): Promise<Reviewed> {
    const known = this.texts.get(uri.toString())
    if (known !== undefined) return known
    const file = await fetchProposed(this.workspaces, uri)
    const proposed = bytesOf(file?.new ?? '')
    const text = await vscode.workspace.decode(proposed, { uri })
    const reviewed = { proposed, current: proposed, text, now: file?.now ?? null, changed: Date.now() }
    this.texts.set(uri.toString(), reviewed)
    return reviewed
  }
}

function documentOf(uri: vscode.Uri): vscode.TextDocument | undefined {
  return vscode.workspace.textDocuments.find(document => document.uri.toString() === uri.toString())
}

function hasText(document: vscode.TextDocument, { text }: Reviewed): boolean {
  return withLineEnds(text, document.eol) === document.getText()
}

function isOver(proposal: ProposalEntry | undefined): boolean {
  return proposal !== undefined && proposal.state !== 'open' && proposal.state !== 'draft'
}

export class ProposalTree implements vscode.TreeDataProvider<Node> {
  private readonly changes = new vscode.EventEmitter<undefined>()
  readonly onDidChangeTreeData = this.changes.event
  private readonly counts = new vscode.EventEmitter<number>()
  /** The number of the proposals that wait has been read anew. */
  readonly onCount = this.counts.event
  private count = 0

  constructor(
    private readonly workspaces: Workspaces,
    private readonly texts: ReviewedTexts,
  ) {
    workspaces.onState(() => this.refresh())
    workspaces.onEvent(({ event }) => {
      const isAbout = event.transaction !== undefined && this.count > 0
      if (event.proposal !== undefined || isAbout) this.refresh()
    })
  }

  refresh(): void {
    this.changes.fire(undefined)
  }

  async getChildren(node?: Node): Promise<Node[]> {
    if (node === undefined) {
      const ready = this.workspaces.all.filter(({ state }) => state === 'ready')
      const lists = await Promise.all(ready.map(connection => this.of(connection)))
      this.count = lists.flat().length
      this.counts.fire(this.count)
      if (this.workspaces.all.length === 1) return lists[0] ?? []
      return ready.filter((_, at) => lists[at]!.length > 0).map(connection => ({ kind: 'root', connection }))
    }
    if (node.kind === 'root') return this.of(node.connection)
    if (node.kind === 'proposal') return [...(await this.files(node)), ...notesOf(node.proposal)]
    return node.kind === 'file' ? node.file.hunks.map(hunk => ({ ...node, kind: 'hunk', hunk })) : []
  }

  async getTreeItem(node: Node): Promise<vscode.TreeItem> {
    const { Collapsed, Expanded, None } = vscode.TreeItemCollapsibleState
    if (node.kind === 'root') return new vscode.TreeItem(node.connection.root.split('/').at(-1)!, Expanded)
    if (node.kind === 'proposal') {
      const { proposal, message, lines, paths, state, checks } = node.proposal
      const failed = checks.filter(({ is_current, exit }) => is_current && exit !== 0).length
      const item = new vscode.TreeItem(`${proposal} ${message.split('\n')[0] || paths.join(', ')}`, Expanded)
      item.description = `${authorOf(node.proposal)}, +${lines.added} −${lines.deleted}${state === 'draft' ? ', draft' : ''}${failed > 0 ? ', a check has failed' : ''}`
      item.contextValue = `proposal-${state}`
      item.iconPath = new vscode.ThemeIcon('git-pull-request')
      return item
    }
    if (node.kind === 'file') {
      const item = new vscode.TreeItem(vscode.Uri.joinPath(vscode.Uri.file(node.connection.root), node.file.path), Collapsed)
      const [, right] = proposedSides(node)
      const path = join(node.connection.root, node.file.path)
      const isUnsaved = vscode.workspace.textDocuments.some(({ isDirty, uri }) => isDirty && realPath(uri.fsPath) === path)
      const hasOwn = (await this.texts.own(right)) !== undefined
      item.description = hasOwn ? 'your text' : isUnsaved ? 'you have unsaved changes' : true
      item.contextValue = 'file'
      item.iconPath = vscode.ThemeIcon.File
      item.command = { command: 'editd.proposal.diff', title: 'Show the Proposed Change', arguments: [node] }
      return item
    }
    if (node.kind === 'note') {
      const item = new vscode.TreeItem(node.label, None)
      item.description = node.description
      item.iconPath = node.icon
      item.tooltip = node.text
      item.command = { command: 'editd.proposal.note', title: 'Show the Whole Text', arguments: [node] }
      return item
    }
    const { number, state, text, old_start } = node.hunk
    const first = text.split('\n').find(line => /^[+-]/.test(line)) ?? node.hunk.kind
    const item = new vscode.TreeItem(`${number}: ${first}`, None)
    item.description = [`line ${old_start}`, MARKS[state]].filter(Boolean).join(', ')
    item.tooltip = new vscode.MarkdownString().appendCodeblock(text, 'diff')
    item.contextValue = `hunk-${state}`
    item.command = { command: 'editd.proposal.diff', title: 'Show the Proposed Change', arguments: [node] }
    return item
  }

  private async of(connection: Connection): Promise<ProposalNode[]> {
    const { proposals } = await connection.request<{ proposals: ProposalEntry[] }>('proposal.list')
    return proposals.map(proposal => ({ kind: 'proposal', connection, proposal }))
  }

  private async files({ connection, proposal }: ProposalNode): Promise<FileNode[]> {
    const shown = await connection.request<ProposalEntry & { files: ProposalFile[] }>('proposal.get', { proposal: proposal.proposal })
    return shown.files.map(file => ({ kind: 'file', connection, proposal: shown, file }))
  }
}

/** Return the checks of a proposal, and the comments that are on no file. */
function notesOf({ checks, running, comments }: ProposalEntry): NoteNode[] {
  const icon = (name: string, colour?: string) => new vscode.ThemeIcon(name, colour === undefined ? undefined : new vscode.ThemeColor(colour))
  return [
    ...checks.map(({ name, exit, seconds, output, is_current }): NoteNode => ({
      kind: 'note',
      label: exit === 0 ? `${name} has passed` : `${name} has failed (exit status ${exit})`,
      description: `${seconds.toFixed(1)} s${is_current ? '' : ', on an earlier view'}`,
      icon: exit === 0 ? icon('pass', 'testing.iconPassed') : icon('error', 'testing.iconFailed'),
      text: output,
    })),
    ...running.map(({ name, seconds }): NoteNode => ({
      kind: 'note',
      label: seconds === null ? `${name} waits for its turn` : `${name} is running`,
      description: '',
      icon: icon(seconds === null ? 'clock' : 'loading~spin'),
      text: '',
    })),
    ...comments.filter(({ hunk, path }) => hunk === null && path === null).map(({ text, by }): NoteNode => ({
      kind: 'note',
      label: text.split('\n')[0]!,
      description: authorOf(by),
      icon: icon('comment'),
      text,
    })),
  ]
}

/** Approve a proposal, or one of its hunks, with the reviewer's own texts. */
export async function approve(node: ProposalNode | HunkNode, texts: ReviewedTexts): Promise<Outcome> {
  const { connection, proposal } = node
  const decision = { proposal: proposal.proposal, request_id: requestId() }
  if (node.kind === 'hunk') return connection.request<Outcome>('proposal.approve', { ...decision, hunks: [node.hunk.hunk, ...node.hunk.needs] })
  const own = await Promise.all(
    proposal.paths.map(path => texts.own(uriOf(path, { root: connection.root, proposal: proposal.proposal }, EDITABLE))),
  )
  const files = own.filter(file => file !== undefined)
  return connection.request<Outcome>('proposal.approve', { ...decision, view: proposal.view, files })
}

/** Reject a proposal or a hunk, with a comment for its author. */
export async function reject(node: ProposalNode | HunkNode, comment: string): Promise<void> {
  const hunks = node.kind === 'hunk' ? { hunks: [node.hunk.hunk] } : {}
  const params = { proposal: node.proposal.proposal, ...hunks, ...(comment !== '' && { comment }), request_id: requestId() }
  await node.connection.request('proposal.reject', params)
}
