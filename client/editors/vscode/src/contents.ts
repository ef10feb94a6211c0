/** Read-only documents of the history and of proposals, under the scheme `editd`. */

import * as vscode from 'vscode'
import { bytesOf, Refusal, type Content, type ProposedFile } from './protocol'
import type { Workspaces } from './workspaces'

/** A text of the daemon: a file right after a transaction, or one side of a proposal. */
export interface Source {
  root: string
  at?: number
  proposal?: number
  side?: 'old' | 'new'
}

export const SCHEME = 'editd'

export function uriOf(path: string, source: Source, scheme = SCHEME): vscode.Uri {
  return vscode.Uri.from({ scheme, path: `/${path}`, query: JSON.stringify(source) })
}

export function sourceOf(uri: vscode.Uri): Source {
  return JSON.parse(uri.query) as Source
}

/** Return the bytes of a source. A file that is not there is empty. */
export async function fetchBytes(workspaces: Workspaces, uri: vscode.Uri): Promise<Uint8Array> {
  const { root, at, proposal, side } = sourceOf(uri)
  const path = uri.path.slice(1)
  const connection = workspaces.get(root)
  if (connection === undefined) return new Uint8Array()
  try {
    if (proposal === undefined) {
      const { content } = await connection.request<{ content: Content }>('read', { path, at: String(at) })
      return bytesOf(content)
    }
    const answer = await connection.request<{ files: ProposedFile[] }>('proposal.get', { proposal, content: true, paths: [path] })
    return bytesOf(answer.files[0]?.[side!] ?? '')
  } catch (error) {
    if (error instanceof Refusal && error.refusal === 'file_missing') return new Uint8Array()
    throw error
  }
}

export class Contents implements vscode.TextDocumentContentProvider {
  private readonly changes = new vscode.EventEmitter<vscode.Uri>()
  readonly onDidChange = this.changes.event

  constructor(private readonly workspaces: Workspaces) {}

  async provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
    const bytes = await fetchBytes(this.workspaces, uri)
    return vscode.workspace.decode(bytes, { uri: vscode.Uri.joinPath(vscode.Uri.file(sourceOf(uri).root), uri.path) })
  }

  /** Read the documents of proposals again. */
  refresh(): void {
    for (const { uri } of vscode.workspace.textDocuments) {
      if (uri.scheme === SCHEME && sourceOf(uri).proposal !== undefined) this.changes.fire(uri)
    }
  }
}
