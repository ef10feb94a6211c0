/** The answers of the daemon, made by tests/generated from the messages. docs/protocol.md explains them. */

/** The bytes of a file: text if they are UTF-8. */
export type Content = string | { base64: string }

export interface Server {
  name: string
  version: string
}

export interface Workspace {
  root: string
  id: string
}

export interface HelloResult {
  server: Server
  protocol: number
  workspace: Workspace
  head: number
  limits: Record<string, number>
  dialects: string[]
  encodings: string[]
}

/** An agent that tells the daemon what its own tools do, and the last method it called. */
export interface AgentEntry {
  name: string
  session: string
  event: string
  time: string
  pid: number | null
  missed: number
}

/** An optional part of editd, found by its entry point. */
export interface InstalledPart {
  group: string
  name: string
  distribution: string
  error: string | null
}

export interface StatusResult {
  root: string
  head: number
  uptime: number
  version: string
  state: 'broken' | 'ready' | 'scanning'
  reason: string | null
  sessions: number
  leases: number
  proposals: number
  watcher: Record<string, unknown>
  journal: Record<string, number>
  history: Record<string, unknown>
  config: Record<string, unknown>
  hooks: Record<string, unknown>[]
  clients: number
  weaker: string[]
  uncovered: string[]
  pid: number
  id: string
  system: Record<string, unknown>
  review_socket: string | null
  remote: Record<string, unknown> | null
  agents: AgentEntry[]
  documents: number
  notices: string[]
  outer: string | null
  parts: InstalledPart[]
}

export interface CheckResult {
  ok: boolean
  problems: string[]
  repaired: string[]
  lost: string[]
  aside: string | null
  known: number | null
  known_time: string | null
}

export interface Empty {
}

/** A tool as `tools/list` of MCP has it: `schema` is the JSON Schema of its arguments. */
export interface ToolEntry {
  name: string
  description: string
  schema: Record<string, unknown>
  read_only: boolean
  destructive: boolean
  idempotent: boolean
}

export interface DialectEntry {
  name: string
  description: string
  tools: ToolEntry[]
}

export interface DialectsResult {
  dialects: DialectEntry[]
}

/** Lines of a file, from 1, both included. */
export interface LineRange {
  start_line: number
  end_line: number
}

/** Who holds a file unsaved, and in what version; null without the text. */
export interface HeldBy {
  client: string
  session: string | null
  base: string | null
  version: string | null
  lines: LineRange[]
}

export interface ReadResult {
  path: string
  content: Content
  version: string
  mode: '100644' | '100755' | '120000'
  kind: 'file' | 'symlink'
  encoding: string | null
  bom: boolean
  eol: 'cr' | 'crlf' | 'lf' | 'mixed' | 'none'
  size: number
  lines: number
  unsaved: HeldBy[]
  unsaved_of: HeldBy
}

export interface StatEntry {
  path: string
  version: string | null
  mode: '100644' | '100755' | '120000' | null
  size: number | null
  kind: 'file' | 'symlink' | null
}

export interface StatResult {
  files: StatEntry[]
}

export interface SettleResult {
  head: number
}

export interface Part {
  seq: number
  path: string
  hunks: number[]
}

/** The commit in the user's git that a transaction was published in. */
export interface Published {
  commit: string
  branch: string
}

/** The person who marked a transaction as reviewed. */
export interface ReviewedBy {
  actor: string
  time: string
}

/** Who let a transaction land: a reviewer, or a rule. */
export interface ApprovedBy {
  actor: string | null
  session: string | null
  rule: string | null
}

export interface Change {
  path: string
  change: 'added' | 'deleted' | 'mode' | 'modified' | 'renamed'
  base: string | null
  version: string | null
  from: string
  mode: '100644' | '100755' | '120000' | null
  undone_by: number
}

/** A version whose content a person had removed from the history. */
export interface ForgottenVersion {
  version: string
  size: number
  actor: string
  time: string
}

export interface Transaction {
  seq: number
  id: string
  kind: 'baseline' | 'claim' | 'edit' | 'exec' | 'outside' | 'redo' | 'restore' | 'rollback' | 'undo'
  actor: string
  session: string | null
  message: string
  time: string
  undoes: number[]
  undone_by: number | null
  request_id: string | null
  by: 'path' | 'time'
  candidates: string[]
  turn: number
  model: string
  parts: Part[]
  claims: number[]
  claimed_by: number
  published: Published
  reviewed_by: ReviewedBy
  proposal: number
  approved_by: ApprovedBy
  modified: boolean
  number: number
  host: string
  made: string
  rest_on: string
  kept_back: string
  files_count: number
  path: string | null
  added: number | null
  deleted: number | null
  files: Change[]
  forgotten: ForgottenVersion[]
  excluded: string[]
  stays: string[]
}

export interface FileResult {
  path: string
  version: string | null
  base: string | null
  change: 'added' | 'deleted' | 'mode' | 'modified' | 'renamed' | null
  from: string
  mode: '100644' | '100755' | '120000' | null
  content: Content | null
  diff: string
  replacements: number
  warnings: string[]
  changed_by: Transaction[]
  unsaved: 'merged'
}

/** The proposal that an edit became, or would become (a dry run: without number and view). */
export interface ProposedResult {
  proposal: number | null
  state: 'draft' | 'expired' | 'landed' | 'moot' | 'open' | 'partly' | 'rejected' | 'withdrawn' | null
  revision: number | null
  view: string | null
  rule: string
  lands_after: string[]
}

export interface Decider {
  actor: string
  session: string | null
  via: string
  pid: number | null
  program: string | null
}

export interface ReviewComment {
  number: number
  revision: number
  hunk: string | null
  path: string | null
  line: number | null
  text: string
  by: Decider
  time: string
}

export interface ApplyResult {
  transaction: Transaction | null
  files: FileResult[]
  warnings: string[]
  merged: string[]
  answers: (string | null)[]
  proposal: ProposedResult
  would_propose: ProposedResult
  approved_by: ApprovedBy
  transactions: Transaction[]
  comments: ReviewComment[]
  reviewer_diff: string
}

export interface BeginResult {
  changeset: string
}

/** A file with a conflict of an undo. */
export interface InTheWay {
  path: string
  blocking: number[]
  needs: number[]
  reason: string
  lines: LineRange[]
  hunks: string[]
}

export interface UndoResult {
  transaction: Transaction | null
  files: FileResult[]
  warnings: string[]
  merged: string[]
  answers: (string | null)[]
  proposal: ProposedResult
  would_propose: ProposedResult
  approved_by: ApprovedBy
  transactions: Transaction[]
  comments: ReviewComment[]
  reviewer_diff: string
  conflicts: InTheWay[]
  by_time: Part[]
}

export interface LogResult {
  transactions: Transaction[]
  more: boolean
  warnings: string[]
}

export interface LogCountResult {
  count: number
  head: number
  warnings: string[]
}

/** The refusal of a request that would have changed files. */
export interface RefusalEntry {
  number: number
  time: string
  method: string
  error: string
  message: string
  session: string | null
  actor: string | null
  paths: string[]
  head: number
  attempt: string
}

export interface LogRefusalsResult {
  refusals: RefusalEntry[]
}

/** A hunk of a transaction's change to a file; an undo names it by its path and number. */
export interface Hunk {
  path: string
  hunk: number
  diff: string
}

export interface ShowResult {
  transaction: Transaction
  diff: string | null
  hunks: Hunk[]
}

export interface DiffResult {
  diff: string
  files: Change[]
}

/** A file of a published commit, with its lines added and removed; null for a binary file. */
export interface PublishedFile {
  path: string
  change: 'added' | 'deleted' | 'modified'
  added: number | null
  removed: number | null
}

export interface PublishResult {
  commit: string
  branch: string
  left_out: string[]
  transactions: number[]
  files: PublishedFile[]
  message: string
}

export interface SessionOpenResult {
  session: string
  token: string
}

/** The globs of the paths that a session may write and read; null is all paths. */
export interface Scope {
  write: string[] | null
  read: string[] | null
}

/** The newest transaction of a session, in brief. */
export interface LastTransaction {
  seq: number
  time: string
  kind: 'baseline' | 'claim' | 'edit' | 'exec' | 'outside' | 'redo' | 'restore' | 'rollback' | 'undo'
  path: string | null
  message: string
}

/** What a session does at present. */
export interface SessionActivity {
  last: LastTransaction | null
  edits: number
  in_force: number
  added: number | null
  deleted: number | null
  proposals: number[]
  leases: string[]
  running: string[]
  waits_for: 'lease' | 'review' | null
  since: string | null
  wants: string[]
  holders: string[]
  missed: number
}

/** The pause of a session. */
export interface PauseEntry {
  action: 'propose' | 'refuse'
  reason: string
  by: string
  since: string
}

export interface SessionEntry {
  session: string
  actor: string | null
  scope: Scope
  on_stale: 'merge' | 'reject' | null
  unread: 'allow' | 'reject'
  ttl: number
  created: string
  used: string
  connections: number
  in_doubt: boolean
  kind: 'agent' | 'person'
  state: 'closed' | 'connected' | 'open'
  edits: number
  files: number
  added: number | null
  removed: number | null
  published: Published[]
  activity: SessionActivity
  paused: PauseEntry | null
}

export interface SessionListResult {
  sessions: SessionEntry[]
}

export interface SessionPauseResult {
  paused: PauseEntry
  leases: string[]
}

export interface LeaseAcquireResult {
  lease: string
  token: number
  expires: string
}

/** As the lease was granted, with its new end. */
export interface LeaseRenewResult {
  lease: string
  token: number
  expires: string
}

export interface LeaseEntry {
  lease: string
  session: string
  token: number
  paths: string[]
  expires: string
}

export interface LeaseListResult {
  leases: LeaseEntry[]
  waiting: number
}

export interface DocumentHoldResult {
  version: string | null
}

export interface DocumentEntry {
  path: string
  since: string
  client: string
  session: string | null
  base: string | null
  version: string | null
  lines: LineRange[]
}

export interface DocumentListResult {
  documents: DocumentEntry[]
}

export interface ExecBeginResult {
  exec: string
  waited: number
  unrecorded: string[]
}

export interface ExecEndResult {
  transaction: Transaction | null
  transactions: number[]
  unrecorded: string[]
  warnings: string[]
}

export interface ClaimResult {
  transactions: number[]
}

export interface TurnBeginResult {
  turn: number
  warnings: string[]
}

/** A turn of another session. */
export interface TurnOf {
  session: string
  turn: number | null
}

/** A transaction of a turn, in brief. */
export interface TurnTransaction {
  seq: number
  kind: 'baseline' | 'claim' | 'edit' | 'exec' | 'outside' | 'redo' | 'restore' | 'rollback' | 'undo'
  message: string
  undone_by: number | null
  added: number | null
  deleted: number | null
}

/** A turn of an agent's session. What is null is unknown, or not for this client. */
export interface TurnEntry {
  session: string
  turn: number
  agent: string | null
  model: string | null
  source: string | null
  parent: TurnOf | null
  began: string
  ended: string | null
  reason: string | null
  characters: number | null
  redactions: number
  prompt: string | null
  conversation: string | null
  native: string | null
  transcript: string | null
  transactions: TurnTransaction[]
  proposals: number[]
  calls: Record<string, number>
}

export interface TurnsResult {
  turns: TurnEntry[]
  more: boolean
}

export interface BlameLine {
  line: number
  seq: number
  actor: string
  session: string | null
  time: string
  number: number
  host: string
}

export interface BlameResult {
  version: string
  lines: BlameLine[]
  gaps: number[]
}

/** The reason of a line. What is null is unknown, or not for this client. */
export interface WhyLine {
  line: number
  path: string
  transaction: number
  kind: 'baseline' | 'claim' | 'edit' | 'exec' | 'outside' | 'redo' | 'restore' | 'rollback' | 'undo'
  message: string
  actor: string
  session: string | null
  agent: string | null
  model: string | null
  turn: number | null
  prompt: string | null
  characters: number | null
  began: string | null
  time: string
  reviewed: ReviewedBy | null
  host: string | null
  transcript: string | null
}

export interface WhyResult {
  version: string
  lines: WhyLine[]
}

export interface SubscribeResult {
  subscription: number
  head: number
}

export interface GcResult {
  oldest: number
  compacted: number
  freed: number
  bytes: number
}

/** A content that is removed from the history, and its places there. */
export interface RemovedContent {
  version: string
  size: number
  paths: string[]
  transactions: number[]
}

/** The contents that are removed, or would be; what stays is named as well. */
export interface ForgetResult {
  removed: RemovedContent[]
  proposals: number[]
  kept: string[]
  borrowed: string[]
  shared: string[]
  others: number
  remaining: string[]
  searched: number
  prompts: number
}

/** An entry of the log that this host cannot use, or not all of it. */
export interface NamedEntry {
  number: number
  host: string | null
  reason: string
}

export interface RemoteResult {
  state: 'behind' | 'current' | 'forked' | 'none' | 'offline' | 'paused' | 'refused'
  error: string | null
  url: string | null
  ref: string | null
  host: string | null
  number: number | null
  head: number | null
  tentative: number
  oldest: number | null
  aside: number
  in_part: number[]
  returned: number[]
  kept_back: number[]
  reasons: Record<string, string>
  unusable: NamedEntry[]
  unusable_entries: number
  newer: NamedEntry[]
  newer_entries: number
  version: number | null
  held: string[]
  exclude: string[]
  stays: string[]
  hosts: Record<string, number>
  files: number
  bytes: number
}

export interface RemoteLandResult {
  seq: number
  number: number
  outcome: 'applied' | 'aside'
}

export interface ConfigReloadResult {
  applied: string[]
  restart: string[]
}

export interface HooksRunResult {
  hooks: string[]
  files: Record<string, unknown>[]
  diff: string
  warnings: string[]
}

export interface LineCount {
  added: number
  deleted: number
}

export interface DecisionEntry {
  time: string
  by: Decider
  what: 'approve' | 'expire' | 'moot' | 'reject' | 'reopen' | 'submit' | 'withdraw'
  hunks: string[]
  comment: string | null
  seq: number | null
  modified: boolean
}

export interface CheckReport {
  name: string
  view: string
  exit: number
  seconds: number
  output: string
  by: Decider
  is_current: boolean
  hunks: string[] | null
}

export interface RunningCheck {
  name: string
  seconds: number | null
}

/** A proposal without its files. */
export interface ProposalEntry {
  proposal: number
  state: 'draft' | 'expired' | 'landed' | 'moot' | 'open' | 'partly' | 'rejected' | 'withdrawn'
  kind: 'edit' | 'redo' | 'restore' | 'rollback' | 'undo'
  actor: string
  session: string | null
  message: string
  request_id: string | null
  created: string
  changed: string
  expires: string | null
  rule: string
  revision: number
  at: number
  head: number
  view: string
  counts: Record<string, number>
  lines: LineCount
  paths: string[]
  landed: number[]
  decisions: DecisionEntry[]
  comments: ReviewComment[]
  checks: CheckReport[]
  running: RunningCheck[]
  waiting: number
  lands_after: string[]
}

export interface ProposalListResult {
  proposals: ProposalEntry[]
  more: boolean
}

/** A hunk of a proposal. Lines are numbered from 1: of the present file, and of the file with the hunk. */
export interface ProposalHunk {
  hunk: string
  number: number
  kind: 'file' | 'lines' | 'mode' | 'move'
  state: 'conflict' | 'fits' | 'landed' | 'rejected' | 'there'
  old_start: number
  old_lines: number
  new_start: number
  new_lines: number
  text: string
  needs: string[]
  blocking: number[]
  now_text: string
}

export interface ProposalFile {
  path: string
  change: 'added' | 'deleted' | 'mode' | 'modified' | 'renamed'
  mode: '100644' | '100755' | '120000' | null
  base: string | null
  now: string | null
  proposed: string | null
  hunks: ProposalHunk[]
  from: string
  old: Content | null
  new: Content | null
  encoding: string | null
}

export interface ProposalGetResult {
  proposal: number
  state: 'draft' | 'expired' | 'landed' | 'moot' | 'open' | 'partly' | 'rejected' | 'withdrawn'
  kind: 'edit' | 'redo' | 'restore' | 'rollback' | 'undo'
  actor: string
  session: string | null
  message: string
  request_id: string | null
  created: string
  changed: string
  expires: string | null
  rule: string
  revision: number
  at: number
  head: number
  view: string
  counts: Record<string, number>
  lines: LineCount
  paths: string[]
  landed: number[]
  decisions: DecisionEntry[]
  comments: ReviewComment[]
  checks: CheckReport[]
  running: RunningCheck[]
  waiting: number
  lands_after: string[]
  files: ProposalFile[]
  diff: string
}

export interface ProposalApproveResult {
  transaction: Transaction | null
  files: FileResult[]
  proposal: ProposalEntry
  reviewer_diff: string
  warnings: string[]
}

export interface ProposalResult {
  proposal: ProposalEntry
}

export interface DecidedProposal {
  proposal: number
  seq: number | null
}

/** An error reply. `message` states the fact and the next step. */
export interface Error {
  code: number
  name: string
  message: string
  data: Record<string, unknown>
}

export interface LeftProposal {
  proposal: number
  error: Error
}

export interface ProposalDecideResult {
  done: DecidedProposal[]
  left: LeftProposal[]
}

export interface ProposalWaitResult {
  state: 'draft' | 'expired' | 'landed' | 'moot' | 'open' | 'partly' | 'rejected' | 'withdrawn'
  proposal: ProposalEntry
  transactions: Transaction[]
  files: FileResult[]
  comments: ReviewComment[]
  reviewer_diff: string
}

export interface ReviewAllowResult {
  grant: number
  expires: string
  matching: number[]
}

export interface GrantEntry {
  grant: number
  session: string | null
  paths: string[]
  expires: string
  uses: number | null
  lines: number | null
  by: Decider
}

export interface ReviewGrantsResult {
  grants: GrantEntry[]
}

export interface ReviewMarkResult {
  marked: number
}
