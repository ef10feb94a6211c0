/** What this extension adds to the daemon's messages, which `messages` has. */

import type { ApplyResult, Content, ProposalEntry, Transaction, UndoResult } from './messages'

export type {
  ApplyResult,
  BlameLine,
  Change,
  CheckReport,
  Content,
  ProposalEntry,
  ProposalFile,
  ProposalHunk,
  ReviewComment,
  SessionEntry,
  Transaction,
} from './messages'

export interface DaemonEvent {
  event: 'transaction' | 'session' | 'lease' | 'proposal' | 'document' | 'resync' | 'shutdown'
  transaction?: Transaction
  proposal?: ProposalEntry
}

/** The answer to an edit, or to an undo. */
export type Outcome = ApplyResult & Partial<UndoResult>

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
