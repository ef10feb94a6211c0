// A part of editd: tells its daemon which edits and commands are this agent's own. Written by `editctl integrate`.
// Without a daemon, or after any failure, the agent goes on as though this file were not here.

import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readFileSync, realpathSync } from "node:fs"
import { connect } from "node:net"
import { homedir } from "node:os"
import { basename, dirname, isAbsolute, join, relative } from "node:path"

const EDITCTL = "" // the command that starts a daemon; empty: none is started
const STRICT = false // refuse any edit of a file that others changed since it was read
const FIRST_MS = 1000 * Number(process.env.EDITD_HOOK_SECONDS || 0.2) || 200, ANSWER_MS = Math.max(3000, FIRST_MS)
const END_MS = process.env.EDITD_HOOK_SECONDS ? FIRST_MS : 2000 // once the tool has run, the agent waits in any case
const SILENT_MS = 10000, FAILURES_MAX = 3, DIFF_MAX = 4000
const REFUSALS = ["leased", "stale", "permission_denied", "path_protected", "unread"]
const READERS = new Set(("basename cat cd cmp cut date df diff dirname du echo false grep head id jq ls md5sum nl printf ps pwd " +
  "readlink realpath rg sha1sum sha256sum stat tail test tr true type uname wc which whoami").split(" "))
const GIT_READERS = new Set(("blame cat-file describe diff for-each-ref grep log ls-files ls-tree merge-base rev-list rev-parse " +
  "shortlog show show-ref status").split(" "))
const MADE_MAX = 4000000 // of the texts of a call, in characters
const NAMED = /^\*\*\* (?:(Add|Update|Delete) File|Move to): (.+?)\s*$/gm

const idOf = (root) => createHash("sha256").update(root).digest("hex").slice(0, 16)
const absolute = (name) => (isAbsolute(process.env[name] ?? "") ? process.env[name] : null)

/** The socket of a workspace's daemon. */
function socketOf(root) {
  const own = `/run/user/${process.getuid()}`
  const runtime = absolute("XDG_RUNTIME_DIR") ?? (existsSync(own) ? own : null)
  const sockets = runtime ? join(runtime, "editd") : join(process.env.TMPDIR || "/tmp", `editd-${process.getuid()}`)
  return join(sockets, `${idOf(root)}.sock`)
}

/** Whether a folder is a workspace already, or a linked worktree, which is always a separate one. */
function isServed(root) {
  const state = join(absolute("XDG_STATE_HOME") ?? join(homedir(), ".local/state"), "editd", idOf(root))
  if (existsSync(join(state, "nested")) || (!process.env.EDITD_SOCKET && existsSync(socketOf(root)))) return true
  const git = join(root, ".git")
  if (!existsSync(git)) return false
  if (existsSync(join(state, "store.git"))) return true
  try {
    const folder = /^gitdir: (.*?)[\r\n]*$/s.exec(readFileSync(git, "utf8"))?.[1]
    if (!folder || basename(dirname(folder)) !== "worktrees") return false
    const at = isAbsolute(folder) ? folder : join(root, folder)
    return existsSync(join(at, "commondir")) || !existsSync(at)
  } catch { return false } // a folder, as in most repositories
}

/** Whether a shell command cannot write a file, by its words alone; false if in doubt. */
function onlyReads(command) {
  if (!command.includes("\\")) // quoted text is literal: its marks mean nothing
    command = command.replace(/'[^']*'|"[^"$`]*"/g, (text) => (/^['"][\d,$]+p['"]$/.test(text) ? text : text.replace(/[|;&<>()\n`$]/g, "_")))
  if (/[<>`]|\$\(|(?<!&)&(?!&)/.test(command)) return false
  return command.split(/&&|\|\||[;|\n]/).every((part) => {
    const words = part.trim().split(/\s+/)
    if (words[0] === "" || /^sed -n\s+(['"]?)[\d,$]+p\1(?:\s+[^-\s]\S*)*$/.test(part.trim())) return true
    if (/\s(?:-o|--output|--pre)/.test(part)) return false
    return READERS.has(words[0]) || (words[0] === "git" && GIT_READERS.has(words[1]))
  })
}

/** The paths of a patch, and those of them that it writes whole or deletes. */
function patched(patch) {
  const all = [...String(patch).matchAll(NAMED)]
  return { named: all.map((m) => m[2]), whole: all.filter((m) => m[1] !== "Update").map((m) => m[2]) }
}

/** Each part of a patch: its path, the old text (null: the whole file), and the new text (null: it is deleted). */
function patchedTexts(patch) {
  const texts = []
  let verb = "", path = "", old = [], text = []
  const endHunk = () => {
    if (verb === "Update" && (old.length || text.length)) texts.push([path, old.join(""), text.join("")])
    else if (verb === "Add") texts.push([path, null, text.join("")])
    else if (verb === "Delete") texts.push([path, null, null])
    old = []
    text = []
  }
  for (const line of String(patch).split("\n")) {
    if (line.startsWith("*** ")) {
      endHunk()
      const named = /^\*\*\* (Add|Update|Delete) File: (.+?)\s*$/.exec(line)
      verb = named?.[1] ?? ""
      path = named?.[2] ?? ""
    } else if (line.startsWith("@@")) endHunk()
    else if (verb) {
      if ("- ".includes(line[0] ?? " ")) old.push(`${line.slice(1)}\n`)
      if ("+ ".includes(line[0] ?? " ")) text.push(`${line.slice(1)}\n`)
    }
  }
  return texts
}

class Editd {
  constructor(agent, folder) {
    this.agent = agent
    this.folder = folder
    this.failures = 0
    this.failedAt = 0
    try { this.root = this.rootOf(realpathSync(process.env.EDITD_WORKSPACE || folder)) } catch { this.root = null }
    if (this.root === null) return
    this.socket = process.env.EDITD_SOCKET || socketOf(this.root)
    if (EDITCTL && existsSync(join(this.root, ".git")))
      this.exchange([]).catch((error) => {
        if (error.code !== "ENOENT" && error.code !== "ECONNREFUSED") return
        spawn(EDITCTL, ["-C", folder, "start"], { detached: true, stdio: "ignore" }).on("error", () => {}).unref()
      })
  }

  /** The workspace that serves a folder: the nearest one upwards, otherwise the nearest git top level. */
  rootOf(folder) {
    let top = null, root = folder
    while (!isServed(root)) {
      if (top === null && existsSync(join(root, ".git"))) top = root
      if (dirname(root) === root) { root = top ?? folder; break }
      root = dirname(root)
    }
    return root === "/" || root === homedir() ? null : root
  }

  /** The session's name; a sub-agent has one below that of its parent, so that it can be undone alone. */
  session(id, parent) {
    if (process.env.EDITD_SESSION) return process.env.EDITD_SESSION
    return parent ? `${this.agent}-${parent.slice(-8)}-${id.slice(-4)}` : `${this.agent}-${id.slice(-8)}`
  }

  /** Before an edit: `named` are its paths, `whole` those that it overwrites. Returns the text of a refusal. */
  beforeEdit(session, key, tool, named, whole) {
    const paths = this.inside(named)
    if (!paths.length) return null
    return this.begin({ session, key, command: `${tool} ${paths.join(" ")}`, paths, whole: STRICT ? paths : this.inside(whole) })
  }

  /** Before a command. Returns the text of a refusal. */
  beforeCommand(session, key, command) {
    if (!command.trim() || onlyReads(command)) return null
    return this.begin({ session, key, command: command.slice(0, 10000) })
  }

  async begin(params) {
    try {
      await this.ask("exec.begin", { ...params, pid: process.pid })
    } catch (error) {
      if (!REFUSALS.includes(error.editd?.data?.name)) return null
      const diff = error.editd.data.data?.diff
      const changes = typeof diff === "string" && diff ? `\nThe changes since it was read:\n${diff.slice(0, DIFF_MAX)}` : ""
      return `editd: ${error.editd.message}${changes}`
    }
    return null
  }

  after(session, key, status, call = {}) {
    return this.ask("exec.end", { session, key, status, seen: true, ...call }).catch(() => {})
  }

  /** The agent asks its user about a tool: until its end, no change is known to be the tool's. */
  asked(session, key) { return this.ask("exec.ask", { session, key }).catch(() => {}) }

  /** The user has said no. */
  denied(session, key) { return this.ask("exec.end", { session, key }).catch(() => {}) }

  /** What the end of a call tells: its command, and of an edit the old and the new text of each file. */
  call(tool, texts) {
    const made = texts.flatMap(([name, old, text]) => this.inside([name]).map((path) => ({ path, old, new: text })))
    const paths = [...new Set(made.map((one) => one.path))]
    return paths.length && JSON.stringify(made).length <= MADE_MAX ? { command: `${tool} ${paths.join(" ")}`, made } : {}
  }

  turnEnd(session) { return this.ask("exec.end", { session, all: true, status: 0 }).catch(() => {}) }

  seen(session, named) {
    const files = this.inside(named).map((path) => ({ path }))
    return files.length ? this.ask("seen", { session, files, pid: process.pid }).catch(() => {}) : null
  }

  /** Paths relative to the root, links resolved; those outside of the workspace are left out. */
  inside(named) {
    if (this.root === null) return []
    const real = (path) => {
      try { return realpathSync(path) } catch { /* it is new */ }
      return dirname(path) === path ? path : join(real(dirname(path)), basename(path))
    }
    const all = named.filter((name) => typeof name === "string" && name).flatMap((name) => {
      const path = isAbsolute(name) ? name : join(this.folder, name)
      return [join(real(dirname(path)), basename(path)), real(path)].map((one) => relative(this.root, one))
    })
    return [...new Set(all)].filter((path) => path && ![".git", ".."].includes(path.split("/")[0]))
  }

  async ask(method, params) {
    if (this.root === null) throw new Error("no workspace")
    if (this.failures >= FAILURES_MAX && Date.now() - this.failedAt < SILENT_MS) throw new Error("silent")
    const token = process.env.EDITD_SESSION && process.env.EDITD_TOKEN
    const known = token ? { session: process.env.EDITD_SESSION, token } : {}
    let answers
    try {
      const limit = method === "exec.begin" ? FIRST_MS : END_MS
      answers = await this.exchange([["hello", { client: this.agent, ...known }], [method, params]], limit)
    } catch (error) {
      if (error.code !== "ENOENT" && error.code !== "ECONNREFUSED") { this.failures++; this.failedAt = Date.now() }
      throw error
    }
    this.failures = 0
    const refused = answers.find((answer) => answer.error)
    if (refused) throw Object.assign(new Error(refused.error.message), { editd: refused.error })
    return answers[1].result
  }

  /** One connection; each request is sent when the one before is answered. */
  exchange(requests, limit = FIRST_MS) {
    return new Promise((resolve, reject) => {
      const answers = []
      let text = "", timer = setTimeout(() => end(reject, new Error("editd does not answer")), limit)
      const socket = connect(this.socket)
      const end = (settle, value) => { clearTimeout(timer); socket.destroy(); settle(value) }
      const next = () => {
        if (answers.length === requests.length || answers.at(-1)?.error) return end(resolve, answers)
        const [method, params] = requests[answers.length]
        socket.write(JSON.stringify({ id: answers.length + 1, method, params }) + "\n")
      }
      socket.setEncoding("utf8")
      socket.on("error", (error) => end(reject, error))
      socket.on("close", () => end(reject, new Error("editd has closed the connection")))
      socket.on("connect", next)
      socket.on("data", (data) => {
        text += data
        for (let at; (at = text.indexOf("\n")) >= 0; text = text.slice(at + 1)) {
          answers.push(JSON.parse(text.slice(0, at)))
          clearTimeout(timer)
          timer = setTimeout(() => end(reject, new Error("editd does not answer")), ANSWER_MS)
          next()
        }
      })
    })
  }
}
