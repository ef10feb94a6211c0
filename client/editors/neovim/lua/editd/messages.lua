---@meta
-- The answers of the daemon, made by tests/generated from the messages. docs/protocol.md explains them.

---@class editd.Server
---@field name string
---@field version string

---@class editd.Workspace
---@field root string
---@field id string

---@class editd.HelloResult
---@field server editd.Server
---@field protocol integer
---@field workspace editd.Workspace
---@field head integer
---@field limits table<string, integer>
---@field dialects string[]
---@field encodings string[]

---An agent that tells the daemon what its own tools do, and the last method it called.
---@class editd.AgentEntry
---@field name string
---@field session string
---@field event string
---@field time string
---@field pid integer|vim.NIL
---@field missed integer

---An optional part of editd, found by its entry point.
---@class editd.InstalledPart
---@field group string
---@field name string
---@field distribution string
---@field error string|vim.NIL

---@class editd.StatusResult
---@field root string
---@field head integer
---@field uptime number
---@field version string
---@field state 'broken'|'ready'|'scanning'
---@field reason string|vim.NIL
---@field sessions integer
---@field leases integer
---@field proposals integer
---@field watcher table<string, any>
---@field journal table<string, integer>
---@field history table<string, any>
---@field config table<string, any>
---@field hooks table<string, any>[]
---@field clients integer
---@field weaker string[]
---@field uncovered string[]
---@field pid integer
---@field id string
---@field system table<string, any>
---@field review_socket string|vim.NIL
---@field remote table<string, any>|vim.NIL
---@field agents editd.AgentEntry[]
---@field documents integer
---@field notices string[]
---@field outer string|vim.NIL
---@field parts editd.InstalledPart[]

---@class editd.CheckResult
---@field ok boolean
---@field problems string[]
---@field repaired string[]
---@field lost string[]
---@field aside string|vim.NIL
---@field known integer|vim.NIL
---@field known_time string|vim.NIL

---@class editd.Empty

---A tool as `tools/list` of MCP has it: `schema` is the JSON Schema of its arguments.
---@class editd.ToolEntry
---@field name string
---@field description string
---@field schema table<string, any>
---@field read_only boolean
---@field destructive boolean
---@field idempotent boolean

---@class editd.DialectEntry
---@field name string
---@field description string
---@field tools editd.ToolEntry[]

---@class editd.DialectsResult
---@field dialects editd.DialectEntry[]

---Lines of a file, from 1, both included.
---@class editd.LineRange
---@field start_line integer
---@field end_line integer

---Who holds a file unsaved, and in what version; null without the text.
---@class editd.HeldBy
---@field client string
---@field session string|vim.NIL
---@field base string|vim.NIL
---@field version string|vim.NIL
---@field lines editd.LineRange[]

---@class editd.ReadResult
---@field path string
---@field content string
---@field version string
---@field mode '100644'|'100755'|'120000'
---@field kind 'file'|'symlink'
---@field encoding string|vim.NIL
---@field bom boolean
---@field eol 'cr'|'crlf'|'lf'|'mixed'|'none'
---@field size integer
---@field lines integer
---@field unsaved editd.HeldBy[]
---@field unsaved_of editd.HeldBy

---@class editd.StatEntry
---@field path string
---@field version string|vim.NIL
---@field mode '100644'|'100755'|'120000'|vim.NIL
---@field size integer|vim.NIL
---@field kind 'file'|'symlink'|vim.NIL

---@class editd.StatResult
---@field files editd.StatEntry[]

---@class editd.SettleResult
---@field head integer

---@class editd.Part
---@field seq integer
---@field path string
---@field hunks integer[]

---The commit in the user's git that a transaction was published in.
---@class editd.Published
---@field commit string
---@field branch string

---The person who marked a transaction as reviewed.
---@class editd.ReviewedBy
---@field actor string
---@field time string

---Who let a transaction land: a reviewer, or a rule.
---@class editd.ApprovedBy
---@field actor string|vim.NIL
---@field session string|vim.NIL
---@field rule string|vim.NIL

---@class editd.Change
---@field path string
---@field change 'added'|'deleted'|'mode'|'modified'|'renamed'
---@field base string|vim.NIL
---@field version string|vim.NIL
---@field from string
---@field mode '100644'|'100755'|'120000'|vim.NIL
---@field undone_by integer

---A version whose content a person had removed from the history.
---@class editd.ForgottenVersion
---@field version string
---@field size integer
---@field actor string
---@field time string

---@class editd.Transaction
---@field seq integer
---@field id string
---@field kind 'baseline'|'claim'|'edit'|'exec'|'outside'|'redo'|'restore'|'rollback'|'undo'
---@field actor string
---@field session string|vim.NIL
---@field message string
---@field time string
---@field undoes integer[]
---@field undone_by integer|vim.NIL
---@field request_id string|vim.NIL
---@field by 'path'|'time'
---@field candidates string[]
---@field turn integer
---@field model string
---@field parts editd.Part[]
---@field claims integer[]
---@field claimed_by integer
---@field published editd.Published
---@field reviewed_by editd.ReviewedBy
---@field proposal integer
---@field approved_by editd.ApprovedBy
---@field modified boolean
---@field number integer
---@field host string
---@field made string
---@field rest_on string
---@field kept_back string
---@field files_count integer
---@field path string|vim.NIL
---@field added integer|vim.NIL
---@field deleted integer|vim.NIL
---@field files editd.Change[]
---@field forgotten editd.ForgottenVersion[]
---@field excluded string[]
---@field stays string[]

---@class editd.FileResult
---@field path string
---@field version string|vim.NIL
---@field base string|vim.NIL
---@field change 'added'|'deleted'|'mode'|'modified'|'renamed'|vim.NIL
---@field from string
---@field mode '100644'|'100755'|'120000'|vim.NIL
---@field content string|vim.NIL
---@field diff string
---@field replacements integer
---@field warnings string[]
---@field changed_by editd.Transaction[]
---@field unsaved 'merged'

---The proposal that an edit became, or would become (a dry run: without number and view).
---@class editd.ProposedResult
---@field proposal integer|vim.NIL
---@field state 'draft'|'expired'|'landed'|'moot'|'open'|'partly'|'rejected'|'withdrawn'|vim.NIL
---@field revision integer|vim.NIL
---@field view string|vim.NIL
---@field rule string
---@field lands_after string[]

---@class editd.Decider
---@field actor string
---@field session string|vim.NIL
---@field via string
---@field pid integer|vim.NIL
---@field program string|vim.NIL

---@class editd.ReviewComment
---@field number integer
---@field revision integer
---@field hunk string|vim.NIL
---@field path string|vim.NIL
---@field line integer|vim.NIL
---@field text string
---@field by editd.Decider
---@field time string

---@class editd.ApplyResult
---@field transaction editd.Transaction|vim.NIL
---@field files editd.FileResult[]
---@field warnings string[]
---@field merged string[]
---@field answers (string|vim.NIL)[]
---@field proposal editd.ProposedResult
---@field would_propose editd.ProposedResult
---@field approved_by editd.ApprovedBy
---@field transactions editd.Transaction[]
---@field comments editd.ReviewComment[]
---@field reviewer_diff string

---@class editd.BeginResult
---@field changeset string

---A file with a conflict of an undo.
---@class editd.InTheWay
---@field path string
---@field blocking integer[]
---@field needs integer[]
---@field reason string
---@field lines editd.LineRange[]
---@field hunks string[]

---@class editd.UndoResult
---@field transaction editd.Transaction|vim.NIL
---@field files editd.FileResult[]
---@field warnings string[]
---@field merged string[]
---@field answers (string|vim.NIL)[]
---@field proposal editd.ProposedResult
---@field would_propose editd.ProposedResult
---@field approved_by editd.ApprovedBy
---@field transactions editd.Transaction[]
---@field comments editd.ReviewComment[]
---@field reviewer_diff string
---@field conflicts editd.InTheWay[]
---@field by_time editd.Part[]

---@class editd.LogResult
---@field transactions editd.Transaction[]
---@field more boolean
---@field warnings string[]

---@class editd.LogCountResult
---@field count integer
---@field head integer
---@field warnings string[]

---The refusal of a request that would have changed files.
---@class editd.RefusalEntry
---@field number integer
---@field time string
---@field method string
---@field error string
---@field message string
---@field session string|vim.NIL
---@field actor string|vim.NIL
---@field paths string[]
---@field head integer
---@field attempt string

---@class editd.LogRefusalsResult
---@field refusals editd.RefusalEntry[]

---A hunk of a transaction's change to a file; an undo names it by its path and number.
---@class editd.Hunk
---@field path string
---@field hunk integer
---@field diff string

---@class editd.ShowResult
---@field transaction editd.Transaction
---@field diff string|vim.NIL
---@field hunks editd.Hunk[]

---@class editd.DiffResult
---@field diff string
---@field files editd.Change[]

---A file of a published commit, with its lines added and removed; null for a binary file.
---@class editd.PublishedFile
---@field path string
---@field change 'added'|'deleted'|'modified'
---@field added integer|vim.NIL
---@field removed integer|vim.NIL

---@class editd.PublishResult
---@field commit string
---@field branch string
---@field left_out string[]
---@field transactions integer[]
---@field files editd.PublishedFile[]
---@field message string

---@class editd.SessionOpenResult
---@field session string
---@field token string

---The globs of the paths that a session may write and read; null is all paths.
---@class editd.Scope
---@field write string[]|vim.NIL
---@field read string[]|vim.NIL

---The newest transaction of a session, in brief.
---@class editd.LastTransaction
---@field seq integer
---@field time string
---@field kind 'baseline'|'claim'|'edit'|'exec'|'outside'|'redo'|'restore'|'rollback'|'undo'
---@field path string|vim.NIL
---@field message string

---What a session does at present.
---@class editd.SessionActivity
---@field last editd.LastTransaction|vim.NIL
---@field edits integer
---@field in_force integer
---@field added integer|vim.NIL
---@field deleted integer|vim.NIL
---@field proposals integer[]
---@field leases string[]
---@field running string[]
---@field waits_for 'lease'|'review'|vim.NIL
---@field since string|vim.NIL
---@field wants string[]
---@field holders string[]
---@field missed integer

---The pause of a session.
---@class editd.PauseEntry
---@field action 'propose'|'refuse'
---@field reason string
---@field by string
---@field since string

---@class editd.SessionEntry
---@field session string
---@field actor string|vim.NIL
---@field scope editd.Scope
---@field on_stale 'merge'|'reject'|vim.NIL
---@field unread 'allow'|'reject'
---@field ttl number
---@field created string
---@field used string
---@field connections integer
---@field in_doubt boolean
---@field kind 'agent'|'person'
---@field state 'closed'|'connected'|'open'
---@field edits integer
---@field files integer
---@field added integer|vim.NIL
---@field removed integer|vim.NIL
---@field published editd.Published[]
---@field activity editd.SessionActivity
---@field paused editd.PauseEntry|vim.NIL

---@class editd.SessionListResult
---@field sessions editd.SessionEntry[]

---@class editd.SessionPauseResult
---@field paused editd.PauseEntry
---@field leases string[]

---@class editd.LeaseAcquireResult
---@field lease string
---@field token integer
---@field expires string

---As the lease was granted, with its new end.
---@class editd.LeaseRenewResult
---@field lease string
---@field token integer
---@field expires string

---@class editd.LeaseEntry
---@field lease string
---@field session string
---@field token integer
---@field paths string[]
---@field expires string

---@class editd.LeaseListResult
---@field leases editd.LeaseEntry[]
---@field waiting integer

---@class editd.DocumentHoldResult
---@field version string|vim.NIL

---@class editd.DocumentEntry
---@field path string
---@field since string
---@field client string
---@field session string|vim.NIL
---@field base string|vim.NIL
---@field version string|vim.NIL
---@field lines editd.LineRange[]

---@class editd.DocumentListResult
---@field documents editd.DocumentEntry[]

---@class editd.ExecBeginResult
---@field exec string
---@field waited number
---@field unrecorded string[]

---@class editd.ExecEndResult
---@field transaction editd.Transaction|vim.NIL
---@field transactions integer[]
---@field unrecorded string[]
---@field warnings string[]

---@class editd.ClaimResult
---@field transactions integer[]

---@class editd.TurnBeginResult
---@field turn integer
---@field warnings string[]

---A turn of another session.
---@class editd.TurnOf
---@field session string
---@field turn integer|vim.NIL

---A transaction of a turn, in brief.
---@class editd.TurnTransaction
---@field seq integer
---@field kind 'baseline'|'claim'|'edit'|'exec'|'outside'|'redo'|'restore'|'rollback'|'undo'
---@field message string
---@field undone_by integer|vim.NIL
---@field added integer|vim.NIL
---@field deleted integer|vim.NIL

---A turn of an agent's session. What is null is unknown, or not for this client.
---@class editd.TurnEntry
---@field session string
---@field turn integer
---@field agent string|vim.NIL
---@field model string|vim.NIL
---@field source string|vim.NIL
---@field parent editd.TurnOf|vim.NIL
---@field began string
---@field ended string|vim.NIL
---@field reason string|vim.NIL
---@field characters integer|vim.NIL
---@field redactions integer
---@field prompt string|vim.NIL
---@field conversation string|vim.NIL
---@field native string|vim.NIL
---@field transcript string|vim.NIL
---@field transactions editd.TurnTransaction[]
---@field proposals integer[]
---@field calls table<string, integer>

---@class editd.TurnsResult
---@field turns editd.TurnEntry[]
---@field more boolean

---@class editd.BlameLine
---@field line integer
---@field seq integer
---@field actor string
---@field session string|vim.NIL
---@field time string
---@field number integer
---@field host string

---@class editd.BlameResult
---@field version string
---@field lines editd.BlameLine[]
---@field gaps integer[]

---The reason of a line. What is null is unknown, or not for this client.
---@class editd.WhyLine
---@field line integer
---@field path string
---@field transaction integer
---@field kind 'baseline'|'claim'|'edit'|'exec'|'outside'|'redo'|'restore'|'rollback'|'undo'
---@field message string
---@field actor string
---@field session string|vim.NIL
---@field agent string|vim.NIL
---@field model string|vim.NIL
---@field turn integer|vim.NIL
---@field prompt string|vim.NIL
---@field characters integer|vim.NIL
---@field began string|vim.NIL
---@field time string
---@field reviewed editd.ReviewedBy|vim.NIL
---@field host string|vim.NIL
---@field transcript string|vim.NIL

---@class editd.WhyResult
---@field version string
---@field lines editd.WhyLine[]

---@class editd.SubscribeResult
---@field subscription integer
---@field head integer

---@class editd.GcResult
---@field oldest integer
---@field compacted integer
---@field freed integer
---@field bytes integer

---A content that is removed from the history, and its places there.
---@class editd.RemovedContent
---@field version string
---@field size integer
---@field paths string[]
---@field transactions integer[]

---The contents that are removed, or would be; what stays is named as well.
---@class editd.ForgetResult
---@field removed editd.RemovedContent[]
---@field proposals integer[]
---@field kept string[]
---@field borrowed string[]
---@field shared string[]
---@field others integer
---@field remaining string[]
---@field searched integer
---@field prompts integer

---An entry of the log that this host cannot use, or not all of it.
---@class editd.NamedEntry
---@field number integer
---@field host string|vim.NIL
---@field reason string

---@class editd.RemoteResult
---@field state 'behind'|'current'|'forked'|'none'|'offline'|'paused'|'refused'
---@field error string|vim.NIL
---@field url string|vim.NIL
---@field ref string|vim.NIL
---@field host string|vim.NIL
---@field number integer|vim.NIL
---@field head integer|vim.NIL
---@field tentative integer
---@field oldest number|vim.NIL
---@field aside integer
---@field in_part integer[]
---@field returned integer[]
---@field kept_back integer[]
---@field reasons table<string, string>
---@field unusable editd.NamedEntry[]
---@field unusable_entries integer
---@field newer editd.NamedEntry[]
---@field newer_entries integer
---@field version integer|vim.NIL
---@field held string[]
---@field exclude string[]
---@field stays string[]
---@field hosts table<string, integer>
---@field files integer
---@field bytes integer

---@class editd.RemoteLandResult
---@field seq integer
---@field number integer
---@field outcome 'applied'|'aside'

---@class editd.ConfigReloadResult
---@field applied string[]
---@field restart string[]

---@class editd.HooksRunResult
---@field hooks string[]
---@field files table<string, any>[]
---@field diff string
---@field warnings string[]

---@class editd.LineCount
---@field added integer
---@field deleted integer

---@class editd.DecisionEntry
---@field time string
---@field by editd.Decider
---@field what 'approve'|'expire'|'moot'|'reject'|'reopen'|'submit'|'withdraw'
---@field hunks string[]
---@field comment string|vim.NIL
---@field seq integer|vim.NIL
---@field modified boolean

---@class editd.CheckReport
---@field name string
---@field view string
---@field exit integer
---@field seconds number
---@field output string
---@field by editd.Decider
---@field is_current boolean
---@field hunks string[]|vim.NIL

---@class editd.RunningCheck
---@field name string
---@field seconds number|vim.NIL

---A proposal without its files.
---@class editd.ProposalEntry
---@field proposal integer
---@field state 'draft'|'expired'|'landed'|'moot'|'open'|'partly'|'rejected'|'withdrawn'
---@field kind 'edit'|'redo'|'restore'|'rollback'|'undo'
---@field actor string
---@field session string|vim.NIL
---@field message string
---@field request_id string|vim.NIL
---@field created string
---@field changed string
---@field expires string|vim.NIL
---@field rule string
---@field revision integer
---@field at integer
---@field head integer
---@field view string
---@field counts table<string, integer>
---@field lines editd.LineCount
---@field paths string[]
---@field landed integer[]
---@field decisions editd.DecisionEntry[]
---@field comments editd.ReviewComment[]
---@field checks editd.CheckReport[]
---@field running editd.RunningCheck[]
---@field waiting integer
---@field lands_after string[]

---@class editd.ProposalListResult
---@field proposals editd.ProposalEntry[]
---@field more boolean

---A hunk of a proposal. Lines are numbered from 1: of the present file, and of the file with the hunk.
---@class editd.ProposalHunk
---@field hunk string
---@field number integer
---@field kind 'file'|'lines'|'mode'|'move'
---@field state 'conflict'|'fits'|'landed'|'rejected'|'there'
---@field old_start integer
---@field old_lines integer
---@field new_start integer
---@field new_lines integer
---@field text string
---@field needs string[]
---@field blocking integer[]
---@field now_text string

---@class editd.ProposalFile
---@field path string
---@field change 'added'|'deleted'|'mode'|'modified'|'renamed'
---@field mode '100644'|'100755'|'120000'|vim.NIL
---@field base string|vim.NIL
---@field now string|vim.NIL
---@field proposed string|vim.NIL
---@field hunks editd.ProposalHunk[]
---@field from string
---@field old string|vim.NIL
---@field new string|vim.NIL
---@field encoding string|vim.NIL

---@class editd.ProposalGetResult
---@field proposal integer
---@field state 'draft'|'expired'|'landed'|'moot'|'open'|'partly'|'rejected'|'withdrawn'
---@field kind 'edit'|'redo'|'restore'|'rollback'|'undo'
---@field actor string
---@field session string|vim.NIL
---@field message string
---@field request_id string|vim.NIL
---@field created string
---@field changed string
---@field expires string|vim.NIL
---@field rule string
---@field revision integer
---@field at integer
---@field head integer
---@field view string
---@field counts table<string, integer>
---@field lines editd.LineCount
---@field paths string[]
---@field landed integer[]
---@field decisions editd.DecisionEntry[]
---@field comments editd.ReviewComment[]
---@field checks editd.CheckReport[]
---@field running editd.RunningCheck[]
---@field waiting integer
---@field lands_after string[]
---@field files editd.ProposalFile[]
---@field diff string

---@class editd.ProposalApproveResult
---@field transaction editd.Transaction|vim.NIL
---@field files editd.FileResult[]
---@field proposal editd.ProposalEntry
---@field reviewer_diff string
---@field warnings string[]

---@class editd.ProposalResult
---@field proposal editd.ProposalEntry

---@class editd.DecidedProposal
---@field proposal integer
---@field seq integer|vim.NIL

---An error reply. `message` states the fact and the next step.
---@class editd.Error
---@field code integer
---@field name string
---@field message string
---@field data table<string, any>

---@class editd.LeftProposal
---@field proposal integer
---@field error editd.Error

---@class editd.ProposalDecideResult
---@field done editd.DecidedProposal[]
---@field left editd.LeftProposal[]

---@class editd.ProposalWaitResult
---@field state 'draft'|'expired'|'landed'|'moot'|'open'|'partly'|'rejected'|'withdrawn'
---@field proposal editd.ProposalEntry
---@field transactions editd.Transaction[]
---@field files editd.FileResult[]
---@field comments editd.ReviewComment[]
---@field reviewer_diff string

---@class editd.ReviewAllowResult
---@field grant integer
---@field expires string
---@field matching integer[]

---@class editd.GrantEntry
---@field grant integer
---@field session string|vim.NIL
---@field paths string[]
---@field expires string
---@field uses integer|vim.NIL
---@field lines integer|vim.NIL
---@field by editd.Decider

---@class editd.ReviewGrantsResult
---@field grants editd.GrantEntry[]

---@class editd.ReviewMarkResult
---@field marked integer
