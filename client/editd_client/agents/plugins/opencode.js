
// ── opencode ──

const EDITS = { edit: "filePath", write: "filePath", multiedit: "filePath", patch: "", apply_patch: "" }
const isOurs = (tool) => tool in EDITS || tool === "bash"

export const EditdPlugin = async ({ directory }) => {
  const editd = new Editd("opencode", directory)
  const questions = new Map() // the keys of the calls that the user is asked about, by the request's id
  const called = (tool, args) => {
    if (tool === "bash") return { command: String(args.command ?? "").slice(0, 10000) }
    if (EDITS[tool] === "") return editd.call(tool, patchedTexts(args.patchText ?? args.input ?? ""))
    if (tool === "write") return editd.call(tool, [[args.filePath, null, String(args.content ?? "")]])
    const edits = Array.isArray(args.edits) ? args.edits : [args]
    const known = edits.filter((one) => typeof one?.newString === "string")
    return editd.call(tool, known.map((one) => [args.filePath, one.oldString ?? "", one.newString]))
  }
  const parents = new Map() // of the sessions of sub-agents
  const session = (id) => editd.session(id, parents.get(id))
  const key = (part) => `opencode:${part.sessionID}:${part.callID}` // a call's id is unique in its session only
  return {
    "tool.execute.before": async ({ tool, sessionID, callID }, output) => {
      const args = output.args ?? {}
      if (!isOurs(tool)) return
      const [name, id] = [session(sessionID), key({ sessionID, callID })]
      let refusal
      if (tool === "bash") refusal = await editd.beforeCommand(name, id, String(args.command ?? ""))
      else if (EDITS[tool] === "") {
        const { named, whole } = patched(args.patchText ?? args.input)
        refusal = await editd.beforeEdit(name, id, tool, named, whole)
      } else refusal = await editd.beforeEdit(name, id, tool, [args[EDITS[tool]]], tool === "write" ? [args.filePath] : [])
      if (refusal) throw new Error(refusal)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      if (tool === "read") await editd.seen(session(sessionID), [args?.filePath])
      else if (isOurs(tool)) await editd.after(session(sessionID), key({ sessionID, callID }), output?.metadata?.exit ?? 0, called(tool, args ?? {}))
    },
    event: async ({ event }) => {
      const asked = event.properties ?? {}
      if (event.type === "permission.asked" && asked.tool?.callID) {
        const id = key({ sessionID: asked.sessionID, callID: asked.tool.callID })
        questions.set(asked.id, id)
        await editd.asked(session(asked.sessionID), id)
      }
      if (event.type === "permission.replied") {
        const id = questions.get(asked.requestID)
        questions.delete(asked.requestID)
        if (id && asked.reply === "reject") await editd.denied(session(asked.sessionID), id)
      }
      if (event.type === "session.created" && event.properties?.info?.parentID)
        parents.set(event.properties.info.id, event.properties.info.parentID)
      if (event.type === "session.idle") await editd.turnEnd(session(event.properties.sessionID))
      const part = event.type === "message.part.updated" ? event.properties.part : null
      if (part?.type === "tool" && part.state?.status === "error" && isOurs(part.tool)) // a failed call has no "after"
        await editd.after(session(part.sessionID), key(part), 1)
    },
    "shell.env": async (input, output) => {
      if (input.sessionID) output.env.EDITD_SESSION = session(input.sessionID)
    },
  }
}
