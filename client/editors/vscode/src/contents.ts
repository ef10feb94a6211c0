/** Read-only documents of the history and of proposals, under the scheme `editd`. */

import * as vscode from 'vscode'
import { bytesOf, Refusal, type Content, type ProposalFile } from './protocol'
import type { Workspaces } from './workspaces'

/** A text of the daemon: a file right after a transaction, or a file of a proposal. */
export interface Source {
  root: string
  at?: number
  proposal?: number
}

export const SCHEME = 'editd'

export function uriOf(path: string, source: Source, scheme = SCHEME): vscode.Uri {
  return vscode.Uri.from({ scheme, path: `/${path}`, query: JSON.stringify(source) })
}

export function sourceOf(uri: vscode.Uri): Source {
  return JSON.parse(uri.query) as Source
}

/** Return the file of a proposal that a document shows, with its texts now and as proposed. */
export async function fetchProposed(workspaces: Workspaces, uri: vscode.Uri): Promise<ProposalFile | undefined> {
  const { root, proposal } = sourceOf(uri)
  const params = { proposal, content: true, paths: [uri.path.slice(1)] }
  return (await workspaces.get(root)?.request<{ files: ProposalFile[] }>('proposal.get', params))?.files[0]
}

/** Return the bytes of a file right after a transaction. A file that is not there is empty. */
async function fetchPast(workspaces: Workspaces, uri: vscode.Uri): Promise<Uint8Array> {
  const { root, at } = sourceOf(uri)
  try {
    const params = { path: uri.path.slice(1), at: String(at) }
    return bytesOf((await workspaces.get(root)?.request<{ content: Content }>('read', params))?.content ?? '')
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
    const isPast = sourceOf(uri).proposal === undefined
    const bytes = isPast ? await fetchPast(this.workspaces, uri) : bytesOf((await fetchProposed(this.workspaces, uri))?.old ?? '')
    return vscode.workspace.decode(bytes, { uri: vscode.Uri.joinPath(vscode.Uri.file(sourceOf(uri).root), uri.path) })
  }

  /** Read the left sides of proposals again. */
  refresh(): void {
    for (const { uri } of vscode.workspace.textDocuments) {
      if (uri.scheme === SCHEME && sourceOf(uri).proposal !== undefined) this.changes.fire(uri)
    }
  }
}
