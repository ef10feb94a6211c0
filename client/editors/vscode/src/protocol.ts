/** The parts of the daemon's messages that this extension uses. docs/protocol.md has all of them. */

export type Content = string | { base64: string }

export interface Change {
  path: string
  change: 'added' | 'modified' | 'deleted' | 'renamed' | 'mode' | null
  base: string | null
  version: string | null
  from?: string
  undone_by?: number | null
}

export interface Transaction {
  seq: number
  kind: string
  actor: string
  session: string | null
  message: string
  time: string
  files: Change[]
  undoes: number[]
  undone_by: number | null
  published?: { commit: string; branch: string }
}

export interface DaemonEvent {
  event: 'transaction' | 'session' | 'lease' | 'proposal' | 'document' | 'resync' | 'shutdown'
  transaction?: Transaction
  proposal?: Proposal
}

export interface ChangedFile extends Change {
  content?: Content
  unsaved?: 'merged'
}

export interface Conflict {
  path: string
  reason: string
  blocking: number[]
}

export interface Outcome {
  transaction: Transaction | null
  files: ChangedFile[]
  warnings: string[]
  proposal?: { proposal: number } | null
  conflicts?: Conflict[]
}

export interface Session {
  session: string
  actor: string | null
  state: 'connected' | 'open' | 'closed'
  used: string
  edits: number
  files: number
  added: number | null
  removed: number | null
}

export interface Proposal {
  proposal: number
  state: string
  actor: string
  session: string | null
  message: string
  view: string
  lines: { added: number; deleted: number }
  paths: string[]
  comments: ReviewComment[]
  checks: CheckReport[]
  running: { name: string; seconds: number | null }[]
}

export interface ReviewComment {
  hunk: string | null
  path: string | null
  line: number | null
  text: string
  by: { actor: string; session: string | null }
  time: string
}

/** The result of a command that was run on the files as a proposal would leave them. */
export interface CheckReport {
  name: string
  exit: number
  seconds: number
  output: string
  is_current: boolean
}

export interface ProposedHunk {
  hunk: string
  number: number
  kind: string
  state: 'fits' | 'there' | 'conflict' | 'landed' | 'rejected'
  old_start: number
  new_start: number
  new_lines: number
  text: string
  needs: string[]
}

export interface ProposedFile {
  path: string
  change: string
  from?: string
  base: string | null
  now: string | null
  proposed: string | null
  hunks: ProposedHunk[]
  old?: Content | null
  new?: Content | null
}

export interface BlamedLine {
  line: number
  seq: number
  actor: string
  session: string | null
  time: string
}

export interface Limits {
  message_bytes_max: number
}

/** A refusal of the daemon: `name` is the error's name, such as `stale`. */
export class Refusal extends Error {
  constructor(
    readonly refusal: string,
    message: string,
    readonly data: Record<string, unknown>,
  ) {
    super(message)
  }
}

/** The daemon cannot be reached, or the connection broke before the answer. */
export class Unreachable extends Error {}

/** Return the bytes of a content. */
export function bytesOf(content: Content): Uint8Array {
  return typeof content === 'string' ? Buffer.from(content) : Buffer.from(content.base64, 'base64')
}

/** Return bytes as the protocol has them: text if they are UTF-8, otherwise base64. */
export function contentOf(bytes: Uint8Array): Content {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const text = buffer.toString()
  return Buffer.from(text).equals(buffer) ? text : { base64: buffer.toString('base64') }
}
