/** Comments on proposals: beside the lines of the right sides, and from the view. */

import * as vscode from 'vscode'
import type { Connection } from './connection'
import { sourceOf } from './contents'
import { authorOf } from './history'
import { EDITABLE, type FileNode, type HunkNode, type ProposalNode } from './proposals'
import type { ProposalEntry, ProposalFile, ReviewComment } from './protocol'
import type { Workspaces } from './workspaces'

type Shown = ProposalEntry & { files: ProposalFile[] }

export class ReviewComments implements vscode.Disposable {
  private readonly controller = vscode.comments.createCommentController('editd.proposals', 'Comments on a proposal')
  private readonly threads = new Map<vscode.TextDocument, vscode.CommentThread[]>()
  private readonly subscriptions: vscode.Disposable[]

  constructor(private readonly workspaces: Workspaces) {
    this.controller.commentingRangeProvider = {
      provideCommentingRanges: document =>
        document.uri.scheme === EDITABLE ? [new vscode.Range(0, 0, Math.max(document.lineCount - 1, 0), 0)] : [],
    }
    this.subscriptions = [
      this.controller,
      vscode.workspace.onDidOpenTextDocument(document => this.refresh(document)),
      vscode.workspace.onDidCloseTextDocument(document => this.clear(document)),
      workspaces.onEvent(({ connection, event: { proposal } }) => {
        for (const document of proposal === undefined ? [] : vscode.workspace.textDocuments) {
          if (document.uri.scheme !== EDITABLE) continue
          const source = sourceOf(document.uri)
          if (source.root === connection.root && source.proposal === proposal!.proposal) this.refresh(document)
        }
      }),
    ]
  }

  /** Return the threads of a document. */
  of(document: vscode.TextDocument): readonly vscode.CommentThread[] {
    return this.threads.get(document) ?? []
  }

  /** Send a comment that was written beside a line. The event that follows shows it. */
  async reply({ thread, text }: vscode.CommentReply): Promise<void> {
    const shown = await this.fetch(thread.uri)
    if (shown === undefined) return
    const [connection, proposal, file] = shown
    const line = (thread.range?.start.line ?? 0) + 1
    const hunk = file?.hunks.find(each => each.new_start <= line && line < each.new_start + each.new_lines)
    const place = hunk === undefined ? { path: thread.uri.path.slice(1), line } : { hunk: hunk.hunk }
    await connection.request('proposal.comment', { proposal: proposal.proposal, text, ...place })
    if (thread.comments.length === 0) thread.dispose()
  }

  dispose(): void {
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  private refresh(document: vscode.TextDocument): void {
    if (document.uri.scheme === EDITABLE) void this.show(document).catch(() => undefined)
  }

  private async show(document: vscode.TextDocument): Promise<void> {
    const shown = await this.fetch(document.uri)
    if (shown === undefined || document.isClosed) return
    const [, proposal, file] = shown
    this.clear(document)
    const byLine = new Map<number, ReviewComment[]>()
    for (const comment of proposal.comments) {
      const hunk = file?.hunks.find(each => each.hunk === comment.hunk)
      if (hunk === undefined && comment.path !== file?.path) continue
      const line = Math.min(hunk?.new_start ?? comment.line ?? 1, document.lineCount)
      byLine.set(line, [...(byLine.get(line) ?? []), comment])
    }
    const threads = [...byLine].map(([line, comments]) => {
      const range = new vscode.Range(Math.max(line - 1, 0), 0, Math.max(line - 1, 0), 0)
      return this.controller.createCommentThread(document.uri, range, comments.map(commentOf))
    })
    this.threads.set(document, threads)
  }

  private clear(document: vscode.TextDocument): void {
    for (const thread of this.of(document)) thread.dispose()
    this.threads.delete(document)
  }

  private async fetch(uri: vscode.Uri): Promise<[Connection, ProposalEntry, ProposalFile | undefined] | undefined> {
    const { root, proposal } = sourceOf(uri)
    const connection = this.workspaces.get(root)
    if (connection === undefined) return undefined
    const shown = await connection.request<Shown>('proposal.get', { proposal, paths: [uri.path.slice(1)] })
    return [connection, shown, shown.files[0]]
  }
}

/** Send a comment on a proposal, a file of it, or a hunk. */
export async function comment(node: ProposalNode | FileNode | HunkNode, text: string): Promise<void> {
  const place = node.kind === 'hunk' ? { hunk: node.hunk.hunk } : node.kind === 'file' ? { path: node.file.path } : {}
  await node.connection.request('proposal.comment', { proposal: node.proposal.proposal, text, ...place })
}

function commentOf({ text, by, time }: ReviewComment): vscode.Comment {
  // Not Markdown: an agent's text may hold links and pictures.
  const body = new vscode.MarkdownString().appendText(text)
  return { body, mode: vscode.CommentMode.Preview, author: { name: authorOf(by) }, timestamp: new Date(time) }
}
