/** The place of a file: its workspace, its path in there, and the daemon's socket. Knows nothing of VS Code. */

import { createHash } from 'node:crypto'
import { lstatSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { basename, dirname, isAbsolute, join, resolve } from 'node:path'

export interface Place {
  root: string
  path: string
}

type Variables = Record<string, string | undefined>

/** Return the version of a file with these bytes: git's blob id. */
export function versionOf(bytes: Uint8Array): string {
  return createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')
}

/** Return the value of a function, or undefined if the file system refuses it. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** Return the real path of a file. For a missing file, return its folder's real path with its name. */
export function realPath(path: string): string | undefined {
  const real = attempt(() => realpathSync(path))
  if (real !== undefined) return real
  if (attempt(() => lstatSync(path)) !== undefined) return undefined // a dangling link
  const folder = attempt(() => realpathSync(dirname(path)))
  return folder === undefined ? undefined : join(folder, basename(path))
}

const idOf = (root: string): string => createHash('sha256').update(root).digest('hex').slice(0, 16)
const exists = (path: string): boolean => attempt(() => lstatSync(path)) !== undefined

/** Return whether the `.git` file of a folder is that of a linked worktree. */
function isLinkedWorktree(folder: string): boolean {
  const text = attempt(() => (lstatSync(join(folder, '.git')).isFile() ? readFileSync(join(folder, '.git'), 'utf8') : ''))
  const named = /^gitdir: ([^\r\n]+)/.exec(text ?? '')?.[1]
  if (named === undefined || basename(dirname(named)) !== 'worktrees') return false
  const git = resolve(folder, named)
  return exists(join(git, 'commondir')) || !exists(git)
}

/** Return whether a folder is a workspace already, or a linked worktree, which is always a separate one. */
function isServed(folder: string, variables: Variables): boolean {
  const above = variables.XDG_STATE_HOME
  const states = above && isAbsolute(above) ? above : join(variables.HOME ?? homedir(), '.local/state')
  const state = join(states, 'editd', idOf(folder))
  if (exists(join(state, 'nested')) || (!variables.EDITD_SOCKET && exists(socketOf(folder, variables)))) return true
  return exists(join(folder, '.git')) && (exists(join(state, 'store.git')) || isLinkedWorktree(folder))
}

/**
 * Return the root of the workspace of a folder: EDITD_WORKSPACE, or the workspace that serves it.
 *
 * That is the nearest one upwards, otherwise the nearest git top level.
 */
export function rootOf(folder: string, variables: Variables = process.env): string | undefined {
  const real = attempt(() => realpathSync(folder))
  if (real === undefined) return undefined
  const named = variables.EDITD_WORKSPACE ? attempt(() => realpathSync(variables.EDITD_WORKSPACE!)) : undefined
  if (named !== undefined && (real + '/').startsWith(named + '/')) return named
  const home = attempt(() => realpathSync(variables.HOME ?? homedir()))
  let top: string | undefined
  for (let at = real; at !== '/'; at = dirname(at)) {
    if (isServed(at, variables)) return at === home ? undefined : at
    if (top === undefined && exists(join(at, '.git'))) top = at
  }
  return top === home ? undefined : top
}

/** Return the root and the path in it of a file, or undefined if no workspace has it. */
export function placeOf(file: string, variables: Variables = process.env): Place | undefined {
  const path = realPath(file)
  if (path === undefined || path.split('/').includes('.git')) return undefined
  const root = rootOf(dirname(path), variables)
  return root === undefined ? undefined : { root, path: path.slice(root.length + 1) }
}

/** Return the path of the daemon's socket, in the order that docs/protocol.md gives. */
export function socketOf(root: string, variables: Variables = process.env): string {
  if (variables.EDITD_SOCKET) return resolve(root, variables.EDITD_SOCKET)
  const name = idOf(root) + '.sock'
  const runtime = variables.XDG_RUNTIME_DIR
  if (runtime && isAbsolute(runtime)) return join(runtime, 'editd', name)
  const user = `/run/user/${process.getuid!()}`
  if (attempt(() => statSync(user)) !== undefined) return join(user, 'editd', name)
  return join(tmpdir(), `editd-${process.getuid!()}`, name)
}

/** Return the path of the socket for reviewers, beside the daemon's. */
export function reviewSocketOf(socket: string): string {
  return socket.replace(/\.sock$/, '') + '.review.sock'
}

/** Return whether a socket exists and is ours. One of another user in a shared folder is not used. */
export function isOurs(socket: string): boolean {
  const stat = attempt(() => statSync(socket))
  return stat !== undefined && stat.isSocket() && stat.uid === process.getuid!()
}

/** Return whether a daemon serves another folder, as with an EDITD_SOCKET for another workspace. */
export function isElsewhere(served: string, root: string): boolean {
  const [there, here] = [attempt(() => statSync(served)), attempt(() => statSync(root))]
  return there !== undefined && here !== undefined && (there.dev !== here.dev || there.ino !== here.ino)
}
