/** The views of transactions and of sessions, with their diffs, and the badges of files that others changed. */

import * as vscode from 'vscode'
import type { Connection } from './connection'
import { uriOf } from './contents'
import type { Change, SessionEntry, Transaction } from './protocol'
import { setting, type Workspaces } from './workspaces'

const PAGE = 50

export interface RootNode {
  kind: 'root'
  connection: Connection
}

export interface TransactionNode {
  kind: 'transaction'
  connection: Connection
  transaction: Transaction
}

/** Saves of the same file by the same author, one after the other. */
interface RunNode {
  kind: 'run'
  connection: Connection
  transactions: Transaction[]
}

export interface ChangeNode {
  kind: 'change'
  connection: Connection
  transaction: Transaction
  change: Change
}

interface MoreNode {
  kind: 'more'
}

export interface SessionNode {
  kind: 'session'
  connection: Connection
  session: SessionEntry
}

type HistoryNode = RootNode | TransactionNode | RunNode | ChangeNode | MoreNode
type SessionsNode = RootNode | SessionNode | TransactionNode | ChangeNode

/** Return the first line of a message, or the names of the files. */
export function titleOf(transaction: Transaction): string {
  const paths = transaction.files.map(({ path }) => path)
  return transaction.message.split('\n')[0] || paths.slice(0, 3).join(', ') + (paths.length > 3 ? ' …' : '') || transaction.kind
}

export function authorOf({ actor, session }: { actor: string; session: string | null }): string {
  return session === null || session === actor ? actor : `${actor} in ${session}`
}

/** Return the time that has passed, in one short word. */
export function ageOf(time: string, now = Date.now()): string {
  const minutes = Math.floor((now - Date.parse(time)) / 60000)
  if (minutes < 1) return 'now'
  if (minutes < 60) return `${minutes}m`
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)}h` : `${Math.floor(minutes / 1440)}d`
}

/** Return the two sides of a change: the file right after two transactions. */
export function sidesOf({ root }: Connection, change: Change, before: number, after: number): [vscode.Uri, vscode.Uri] {
  return [uriOf(change.from ?? change.path, { root, at: before }), uriOf(change.path, { root, at: after })]
}

function fileUri(connection: Connection, path: string): vscode.Uri {
  return vscode.Uri.joinPath(vscode.Uri.file(connection.root), path)
}

function rootItem({ connection }: RootNode): vscode.TreeItem {
  const item = new vscode.TreeItem(connection.root.split('/').at(-1)!, vscode.TreeItemCollapsibleState.Expanded)
  item.tooltip = connection.root
  item.iconPath = vscode.ThemeIcon.Folder
  return item
}

function transactionItem({ transaction }: TransactionNode): vscode.TreeItem {
  const item = new vscode.TreeItem(`${transaction.seq} ${titleOf(transaction)}`, vscode.TreeItemCollapsibleState.Collapsed)
  const undone = transaction.undone_by === null ? '' : `, undone by ${transaction.undone_by}`
  item.description = `${authorOf(transaction)}, ${ageOf(transaction.time)}${undone}`
  item.tooltip = `${transaction.kind} ${transaction.seq}, ${new Date(transaction.time).toLocaleString()}\n${transaction.message}`
  item.contextValue = transaction.undone_by === null ? 'transaction' : 'transaction-undone'
  item.iconPath = new vscode.ThemeIcon(transaction.kind === 'edit' ? 'edit' : transaction.kind === 'exec' ? 'terminal' : 'history')
  return item
}

function changeItem(node: ChangeNode): vscode.TreeItem {
  const { connection, change } = node
  const item = new vscode.TreeItem(fileUri(connection, change.path))
  item.description = change.change === 'renamed' ? `from ${change.from}` : change.change === 'modified' ? true : `${change.change}`
  item.contextValue = 'change'
  item.iconPath = vscode.ThemeIcon.File
  item.command = { command: 'editd.diff', title: 'Show the Change', arguments: [node] }
  return item
}

function changesOf(connection: Connection, transaction: Transaction): ChangeNode[] {
  return transaction.files.map(change => ({ kind: 'change', connection, transaction, change }))
}

/** Put successive saves of one file by one author into one node. */
function folded(connection: Connection, transactions: readonly Transaction[]): (TransactionNode | RunNode)[] {
  const nodes: (TransactionNode | RunNode)[] = []
  let run: Transaction[] = []
  const flush = () => {
    if (run.length > 1) nodes.push({ kind: 'run', connection, transactions: run })
    else for (const transaction of run) nodes.push({ kind: 'transaction', connection, transaction })
    run = []
  }
  for (const transaction of transactions) {
    const last = run.at(-1)
    const isSave = transaction.message.startsWith('Save ')
    if (!isSave || last?.message !== transaction.message || authorOf(last) !== authorOf(transaction)) flush()
    run.push(transaction)
  }
  flush()
  return nodes
}

/** A tree with one root for each workspace, or without roots if there is one workspace. */
abstract class WorkspaceTree<Node extends { kind: string }> implements vscode.TreeDataProvider<Node | RootNode> {
  protected readonly changes = new vscode.EventEmitter<undefined>()
  readonly onDidChangeTreeData = this.changes.event

  constructor(protected readonly workspaces: Workspaces) {
    workspaces.onState(() => this.refresh())
  }

  refresh(): void {
    this.changes.fire(undefined)
  }

  async getChildren(node?: Node | RootNode): Promise<(Node | RootNode)[]> {
    const all = this.workspaces.all
    if (node === undefined && all.length > 1) return all.map(connection => ({ kind: 'root', connection }))
    const connection = node === undefined ? all[0] : node.kind === 'root' ? (node as RootNode).connection : undefined
    if (connection !== undefined) return connection.state === 'ready' ? this.of(connection) : []
    return node === undefined ? [] : this.below(node as Node)
  }

  getTreeItem(node: Node | RootNode): vscode.TreeItem {
    return node.kind === 'root' ? rootItem(node as RootNode) : this.item(node as Node)
  }

  protected abstract of(connection: Connection): Promise<Node[]>
  protected abstract below(node: Node): Promise<Node[]>
  protected abstract item(node: Node): vscode.TreeItem
}

export class HistoryTree extends WorkspaceTree<HistoryNode> {
  /** Only the transactions of the file in the active editor. */
  isFollowing = false
  private limit = PAGE

  constructor(workspaces: Workspaces) {
    super(workspaces)
    workspaces.onEvent(({ event }) => {
      if (event.event === 'transaction' || event.event === 'resync') this.refresh()
    })
    vscode.window.onDidChangeActiveTextEditor(() => {
      if (this.isFollowing) this.refresh()
    })
  }

  more(): void {
    this.limit += PAGE
    this.refresh()
  }

  follow(isFollowing: boolean): void {
    this.isFollowing = isFollowing
    void vscode.commands.executeCommand('setContext', 'editd.isFollowing', isFollowing)
    this.refresh()
  }

  protected async of(connection: Connection): Promise<HistoryNode[]> {
    const active = vscode.window.activeTextEditor?.document.uri
    const located = this.isFollowing && active !== undefined ? this.workspaces.locate(active) : undefined
    if (this.isFollowing && located?.connection !== connection) return []
    const { transactions, more } = await connection.request<{ transactions: Transaction[]; more: boolean }>('log', {
      limit: this.limit,
      ...(located && { path: located.path }),
    })
    const nodes: HistoryNode[] = folded(connection, transactions)
    return more ? [...nodes, { kind: 'more' }] : nodes
  }

  protected async below(node: HistoryNode): Promise<HistoryNode[]> {
    if (node.kind === 'transaction') return changesOf(node.connection, node.transaction)
    if (node.kind !== 'run') return []
    return node.transactions.map(transaction => ({ kind: 'transaction', connection: node.connection, transaction }))
  }

  protected item(node: HistoryNode): vscode.TreeItem {
    if (node.kind === 'transaction') return transactionItem(node)
    if (node.kind === 'change') return changeItem(node)
    if (node.kind === 'run') {
      const [newest] = node.transactions as [Transaction]
      const item = new vscode.TreeItem(titleOf(newest), vscode.TreeItemCollapsibleState.Collapsed)
      item.description = `${node.transactions.length} times, ${authorOf(newest)}, ${ageOf(newest.time)}`
      item.iconPath = new vscode.ThemeIcon('edit')
      return item
    }
    const item = new vscode.TreeItem('Older transactions')
    item.command = { command: 'editd.more', title: 'Show Older Transactions' }
    return item
  }
}

export class SessionTree extends WorkspaceTree<SessionsNode> {
  constructor(workspaces: Workspaces) {
    super(workspaces)
    workspaces.onEvent(({ event }) => {
      if (event.event === 'session' || event.transaction?.session != null) this.refresh()
    })
  }

  protected async of(connection: Connection): Promise<SessionsNode[]> {
    const { sessions } = await connection.request<{ sessions: SessionEntry[] }>('session.list', { all: true, stat: true })
    return sessions.slice(0, PAGE).map(session => ({ kind: 'session', connection, session }))
  }

  protected async below(node: SessionsNode): Promise<SessionsNode[]> {
    if (node.kind === 'transaction') return changesOf(node.connection, node.transaction)
    if (node.kind !== 'session') return []
    const { connection, session } = node
    const { transactions } = await connection.request<{ transactions: Transaction[] }>('log', { session: session.session })
    return transactions.map(transaction => ({ kind: 'transaction', connection, transaction }))
  }

  protected item(node: SessionsNode): vscode.TreeItem {
    if (node.kind === 'transaction') return transactionItem(node)
    if (node.kind === 'change') return changeItem(node)
    const { session } = node as SessionNode
    const item = new vscode.TreeItem(session.session, vscode.TreeItemCollapsibleState.Collapsed)
    const lines = session.added === null ? '' : `, +${session.added} −${session.removed}`
    item.description = `${session.files} files${lines}, ${ageOf(session.used)}`
    item.contextValue = 'session'
    item.iconPath = new vscode.ThemeIcon(session.state === 'connected' ? 'vm-running' : session.state === 'open' ? 'vm' : 'vm-outline')
    return item
  }
}

/** Badges on the files that others have changed, until the user has seen them. */
export class Badges implements vscode.FileDecorationProvider {
  private readonly changes = new vscode.EventEmitter<vscode.Uri[]>()
  readonly onDidChangeFileDecorations = this.changes.event
  private readonly unseen = new Map<string, string>()

  constructor(workspaces: Workspaces) {
    workspaces.onEvent(({ connection, event: { transaction } }) => {
      if (transaction === undefined || transaction.actor === setting<string>('actor')) return
      if (!setting<boolean>('badges') || transaction.kind === 'baseline') return
      const uris = transaction.files.filter(({ version }) => version !== null).map(({ path }) => fileUri(connection, path))
      for (const uri of uris) this.unseen.set(uri.toString(), `Changed by ${authorOf(transaction)} in ${transaction.seq}`)
      this.changes.fire(uris)
      this.see()
    })
    vscode.window.onDidChangeVisibleTextEditors(() => this.see())
  }

  provideFileDecoration(uri: vscode.Uri): vscode.FileDecoration | undefined {
    const tooltip = this.unseen.get(uri.toString())
    return tooltip === undefined ? undefined : { badge: '●', tooltip, color: new vscode.ThemeColor('gitDecoration.modifiedResourceForeground') }
  }

  private see(): void {
    const uris = vscode.window.visibleTextEditors.map(({ document }) => document.uri).filter(uri => this.unseen.delete(uri.toString()))
    if (uris.length > 0) this.changes.fire(uris)
  }
}
