/** The workspaces of the window: a connection for each, opened when a folder or a document needs it. */

import * as vscode from 'vscode'
import { Connection, type State } from './connection'
import { placeOf, realPath, rootOf } from './place'
import type { DaemonEvent } from './protocol'
import { questions } from './undoing'

export interface Located {
  connection: Connection
  path: string
}

/** Return a setting of this extension. */
export function setting<T>(name: string, scope?: vscode.Uri): T {
  return vscode.workspace.getConfiguration('editd', scope).get<T>(name)!
}

export class Workspaces implements vscode.Disposable {
  private readonly connections = new Map<string, Connection>()
  private readonly events = new vscode.EventEmitter<{ connection: Connection; event: DaemonEvent }>()
  private readonly states = new vscode.EventEmitter<{ connection: Connection; state: State }>()
  readonly onEvent = this.events.event
  readonly onState = this.states.event

  /** Return all connections, in the order of their roots. */
  get all(): Connection[] {
    return [...this.connections.values()].sort((one, other) => one.root.localeCompare(other.root))
  }

  /** Connect to the workspaces of the window's folders, and drop those of folders that are gone. */
  update(): void {
    const roots = new Set(this.folders.map(folder => rootOf(folder)).filter(root => root !== undefined))
    for (const root of roots) void this.of(root).connect().catch(() => undefined)
    for (const [root, connection] of this.connections) {
      if (!roots.has(root) && !this.holds(root)) {
        this.connections.delete(root)
        connection.dispose()
        this.states.fire({ connection, state: 'closed' })
      }
    }
  }

  /** Return the workspace of a file and its path in there, or undefined if editd has no business with it. */
  locate(uri: vscode.Uri): Located | undefined {
    const place = uri.scheme === 'file' ? placeOf(uri.fsPath) : undefined
    if (place === undefined || !(this.connections.has(place.root) || this.holds(place.root))) return undefined
    return { connection: this.of(place.root), path: place.path }
  }

  /** Return the connection of a root that is known, or undefined. */
  get(root: string): Connection | undefined {
    return this.connections.get(root)
  }

  dispose(): void {
    for (const connection of this.connections.values()) connection.dispose()
    this.events.dispose()
    this.states.dispose()
  }

  private get folders(): string[] {
    const local = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file')
    return local.map(({ uri }) => realPath(uri.fsPath)).filter(folder => folder !== undefined)
  }

  /** Return whether a root is one of the window's folders, below one, or above one. */
  private holds(root: string): boolean {
    return this.folders.some(folder => rootOf(folder) === root || (root + '/').startsWith(folder + '/'))
  }

  private of(root: string): Connection {
    let connection = this.connections.get(root)
    if (connection === undefined) {
      const made = new Connection(root, () => ({
        program: setting<string[]>('program'),
        actor: setting<string>('actor'),
        start: setting<boolean>('start'),
        askPin: reason => questions.input(reason, true),
      }))
      made.onEvent(event => this.events.fire({ connection: made, event }))
      made.onState(state => this.states.fire({ connection: made, state }))
      this.connections.set(root, made)
      connection = made
    }
    return connection
  }
}
