/** The extension: its parts put together, the commands, and the status bar. */

import * as vscode from 'vscode'
import { BlameLine } from './blame'
import { comment, ReviewComments } from './comments'
import { MissingProgram, type Connection } from './connection'
import { Contents, SCHEME } from './contents'
import { Documents, type Tracked } from './documents'
import {
  authorOf, Badges, HistoryTree, SessionTree, sidesOf, titleOf,
  type ChangeNode, type SessionNode, type TransactionNode,
} from './history'
import type { Change, Transaction } from './protocol'
import {
  approve, EDITABLE, proposedSides, ProposalTree, reject, ReviewedTexts,
  type FileNode, type HunkNode, type NoteNode, type ProposalNode,
} from './proposals'
import { Saving } from './saving'
import { publish, questions, takeBack } from './undoing'
import { setting, Workspaces } from './workspaces'

/** The parts, for tests. */
export interface Parts {
  workspaces: Workspaces
  documents: Documents
  history: HistoryTree
  sessions: SessionTree
  proposals: ProposalTree
  comments: ReviewComments
  badges: Badges
  blame: BlameLine
  status: vscode.StatusBarItem
  questions: typeof questions
}

export function activate(context: vscode.ExtensionContext): Parts {
  const workspaces = new Workspaces()
  const documents = new Documents(workspaces)
  const saving = new Saving(documents, workspaces)
  const contents = new Contents(workspaces)
  const texts = new ReviewedTexts(workspaces)
  const parts: Parts = {
    workspaces, documents,
    history: new HistoryTree(workspaces), sessions: new SessionTree(workspaces), proposals: new ProposalTree(workspaces, texts),
    comments: new ReviewComments(workspaces),
    badges: new Badges(workspaces), blame: new BlameLine(documents),
    status: vscode.window.createStatusBarItem('editd', vscode.StatusBarAlignment.Left),
    questions,
  }
  const update = () => {
    workspaces.update()
    documents.update()
    void vscode.commands.executeCommand('setContext', 'editd.hasWorkspace', workspaces.all.length > 0)
  }
  const proposals = vscode.window.createTreeView('editd.proposals', { treeDataProvider: parts.proposals })
  parts.proposals.onCount(count => {
    proposals.badge = count === 0 ? undefined : { value: count, tooltip: `${count} proposals wait for you` }
  })
  context.subscriptions.push(
    workspaces, documents, saving, texts, parts.comments, parts.blame, parts.status, proposals,
    vscode.window.registerTreeDataProvider('editd.history', parts.history),
    vscode.window.registerTreeDataProvider('editd.sessions', parts.sessions),
    vscode.window.registerFileDecorationProvider(parts.badges),
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, contents),
    vscode.workspace.registerFileSystemProvider(EDITABLE, texts, { isCaseSensitive: true }),
    vscode.workspace.onDidChangeWorkspaceFolders(update),
    workspaces.onEvent(({ event }) => {
      if (event.proposal !== undefined || event.transaction !== undefined) contents.refresh()
    }),
    saving.onCollision(tracked => tracked.colliding !== undefined && offer(tracked, saving)),
    ...showStatus(parts, saving),
    ...registerCommands(parts, saving, texts),
  )
  update()
  return parts
}

/** Tell the user of a document that does not merge with its file, once for each version of the file. */
async function offer(tracked: Tracked, saving: Saving): Promise<void> {
  const mark = 'Mark Both'
  const text = `editd: others have changed lines of ${tracked.path} that you have changed and not saved.`
  if ((await vscode.window.showWarningMessage(text, mark)) === mark) await saving.rebase(tracked, true)
}

/** Show in the status bar the state of the active document's workspace, and the last change by another. */
function showStatus({ workspaces, documents, status }: Parts, saving: Saving): vscode.Disposable[] {
  const latest = new Map<Connection, Transaction>()
  let isToldOfProgram = false
  status.name = 'editd'
  status.command = 'editd.history.focus'
  const show = () => {
    const document = vscode.window.activeTextEditor?.document
    const tracked = document && documents.get(document)
    const connection = tracked?.connection ?? workspaces.all[0]
    if (connection === undefined) return status.hide()
    const isReady = connection.state === 'ready'
    const last = latest.get(connection)
    status.text = `$(history) editd${isReady ? ` ${connection.head}` : ''}`
    status.tooltip = !isReady
      ? `No daemon answers, so VS Code saves without editd: ${connection.failure?.message ?? 'connecting'}`
      : last && `${last.seq} by ${authorOf(last)}: ${titleOf(last)}`
    const warning = !isReady || tracked?.colliding !== undefined
    status.backgroundColor = warning ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined
    if (tracked?.colliding !== undefined) status.text += ' $(warning) collides'
    status.show()
  }
  return [
    workspaces.onEvent(({ connection, event: { transaction } }) => {
      if (transaction !== undefined && transaction.actor !== setting<string>('actor')) latest.set(connection, transaction)
      show()
    }),
    workspaces.onState(async ({ connection }) => {
      show()
      if (!(connection.failure instanceof MissingProgram) || isToldOfProgram) return
      isToldOfProgram = true
      const open = 'Open the Setting'
      const text = `editd: ${connection.failure.message}. VS Code saves without editd until it is.`
      if ((await vscode.window.showWarningMessage(text, open)) === open) {
        await vscode.commands.executeCommand('workbench.action.openSettings', 'editd.program')
      }
    }),
    saving.onCollision(show),
    vscode.window.onDidChangeActiveTextEditor(show),
  ]
}

function registerCommands(parts: Parts, saving: Saving, texts: ReviewedTexts): vscode.Disposable[] {
  const { workspaces, documents, history, blame } = parts
  const active = () => {
    const editor = vscode.window.activeTextEditor
    return editor && documents.get(editor.document)
  }
  /** Return the workspace of the active document; without one, the only workspace, or the user's choice. */
  const here = async () => {
    const known = active()?.connection ?? (workspaces.all.length === 1 ? workspaces.all[0] : undefined)
    if (known !== undefined) return known
    const root = await vscode.window.showQuickPick(workspaces.all.map(({ root }) => root), { placeHolder: 'In which workspace?' })
    return root === undefined ? undefined : workspaces.get(root)
  }
  const output = vscode.window.createOutputChannel('editd: Proposals')
  const commands: Record<string, (...nodes: never[]) => unknown> = {
    diff: ({ connection, transaction: { seq, actor }, change }: ChangeNode) => {
      const [left, right] = sidesOf(connection, change, seq - 1, seq)
      const title = `${change.path} (${seq}, ${actor})`
      return vscode.commands.executeCommand('vscode.diff', left, right, title)
    },
    changes: ({ connection, transaction }: TransactionNode) =>
      showChanges(connection, titleOf(transaction), transaction.files, transaction.seq - 1, transaction.seq),
    undo: ({ connection, transaction }: TransactionNode) =>
      takeBack(connection, 'undo', { tx: transaction.seq }, `Undo ${transaction.seq}`),
    undoFile: ({ connection, transaction, change }: ChangeNode) =>
      takeBack(connection, 'undo', { tx: transaction.seq, paths: [change.path] }, `Undo ${transaction.seq} in ${change.path}`),
    undoLast: async () => {
      const connection = await here()
      if (connection === undefined) return undefined
      const kind = ['edit', 'exec', 'rollback', 'restore']
      const { transactions } = await connection.request<{ transactions: Transaction[] }>('log', { kind })
      const newest = transactions.find(({ undone_by }) => undone_by === null)
      if (newest === undefined) throw new Error('There is no edit to undo.')
      const what = `Undo ${newest.seq}, “${titleOf(newest)}”, by ${authorOf(newest)}`
      return takeBack(connection, 'undo', { tx: newest.seq }, what, true)
    },
    redo: async () => {
      const connection = await here()
      return connection && takeBack(connection, 'redo', {}, 'Redo')
    },
    rollback: ({ connection, session }: SessionNode) =>
      takeBack(connection, 'rollback', { session: session.session }, `Roll back ${session.session}`, true),
    publish: ({ connection, session }: SessionNode) => publish(connection, session.session),
    review: ({ connection, session }: SessionNode) => reviewSession(connection, session.session),
    more: () => history.more(),
    follow: () => history.follow(true),
    followNot: () => history.follow(false),
    blame: () => blame.toggle(),
    merge: async () => {
      const tracked = active()
      if (tracked !== undefined) await saving.rebase(tracked, true)
    },
    'proposal.diff': (node: FileNode | HunkNode) => {
      const [left, right] = proposedSides(node)
      const title = `${node.file.path} (proposal ${node.proposal.proposal}, ${node.proposal.actor})`
      return vscode.commands.executeCommand('vscode.diff', left, right, title)
    },
    'proposal.approve': (node: ProposalNode | HunkNode) => approve(node, texts),
    'proposal.reject': async (node: ProposalNode | HunkNode) => {
      const text = await questions.input('Comment for the author')
      if (text !== undefined) await reject(node, text)
    },
    'proposal.comment': async (node: ProposalNode | FileNode | HunkNode) => {
      const text = await questions.input('Comment for the author')
      if (text) await comment(node, text)
    },
    'proposal.reply': (reply: vscode.CommentReply) => parts.comments.reply(reply),
    'proposal.note': ({ label, text }: NoteNode) => {
      output.replace(`${label}\n\n${text}\n`)
      output.show(true)
    },
  }
  const registered = Object.entries(commands).map(([name, run]) =>
    vscode.commands.registerCommand(`editd.${name}`, async (...nodes: never[]) => {
      try {
        return await run(...nodes)
      } catch (error) {
        void vscode.window.showErrorMessage(`editd: ${(error as Error).message}`)
        return undefined
      }
    }),
  )
  return [output, ...registered]
}

/** Open the multi-file diff of files between two transactions. */
function showChanges(connection: Connection, title: string, files: readonly Change[], from: number, to: number): Thenable<unknown> {
  const resources = files.map(change => [
    vscode.Uri.joinPath(vscode.Uri.file(connection.root), change.path),
    ...sidesOf(connection, change, from, to),
  ])
  return vscode.commands.executeCommand('vscode.changes', title, resources)
}

/** Show the files of a session from before its first transaction to its newest one. */
async function reviewSession(connection: Connection, session: string): Promise<void> {
  const { transactions } = await connection.request<{ transactions: Transaction[] }>('log', { session, limit: 10000 })
  const newest = transactions[0]
  if (newest === undefined) return
  const files = new Map<string, Change>()
  for (const transaction of [...transactions].reverse()) {
    for (const change of transaction.files) files.set(change.path, files.get(change.path) ?? change)
  }
  await showChanges(connection, `Session ${session}`, [...files.values()], transactions.at(-1)!.seq - 1, newest.seq)
}
