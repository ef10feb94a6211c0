
// ── opencode ──

const EDITS = { edit: "filePath", write: "filePath", multiedit: "filePath", patch: "", apply_patch: "" }
const isOurs = (tool) => tool in EDITS || tool === "bash"

export const EditdPlugin = async ({ directory }) => {
  const editd = new Editd("opencode", directory)
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
      else if (isOurs(tool)) await editd.after(session(sessionID), key({ sessionID, callID }), output?.metadata?.exit ?? 0)
    },
    event: async ({ event }) => {
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
