
// ── Amp ──

const EDITS = { edit_file: "path", create_file: "path", apply_patch: "" }

export default function (amp) {
  const editd = new Editd("amp", process.cwd())
  const key = (event) => `amp:${event.thread?.id}:${event.toolUseID}`
  const session = (event) => editd.session(String(event.thread?.id ?? process.pid))
  amp.on("tool.call", async (event) => {
    const input = event.input ?? {}
    let refusal = null
    if (event.tool === "Bash") refusal = await editd.beforeCommand(session(event), key(event), String(input.cmd ?? input.command ?? ""))
    else if (event.tool === "apply_patch") {
      const { named, whole } = patched(input.patch ?? input.input ?? input.patchText)
      refusal = await editd.beforeEdit(session(event), key(event), event.tool, named, whole)
    } else if (event.tool in EDITS) {
      const whole = event.tool === "create_file" ? [input.path] : []
      refusal = await editd.beforeEdit(session(event), key(event), event.tool, [input.path], whole)
    }
    return refusal ? { action: "reject-and-continue", message: refusal } : { action: "allow" }
  })
  amp.on("tool.result", async (event) => {
    if (event.tool === "Read" && event.status === "done") await editd.seen(session(event), [event.input?.path])
    else if (event.tool in EDITS || event.tool === "Bash") await editd.after(session(event), key(event), event.status === "done" ? 0 : 1)
  })
  amp.on("agent.end", async (event) => { await editd.turnEnd(session(event)) })
}
