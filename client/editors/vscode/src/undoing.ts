/** Undo, redo, rollback and publish: a trial first, a question where others' work depends on it, then the act. */

import * as vscode from 'vscode'
import { requestId, type Connection } from './connection'
import type { Outcome } from './protocol'

/** The questions to the user. VS Code shows no dialog to tests, so they answer in its place. */
export const questions = {
  choose: (message: string, detail: string, choices: string[]): Thenable<string | undefined> =>
    vscode.window.showWarningMessage(message, { modal: true, detail }, ...choices),
  input: (prompt: string, password = false): Thenable<string | undefined> =>
    vscode.window.showInputBox({ prompt, password, ignoreFocusOut: true }),
}

const SKIP = 'Undo the Rest'
const FORCE = 'Undo All'

/** Call `undo`, `redo` or `rollback`. Returns its outcome, or undefined if the user has cancelled. */
export async function takeBack(connection: Connection, method: string, params: object, what: string, mustAsk = false): Promise<Outcome | undefined> {
  const trial = await connection.request<Outcome>(method, { ...params, dry_run: true })
  const conflicts = trial.conflicts ?? []
  const files = trial.files.map(({ path }) => path)
  let reaction = 'fail'
  if (conflicts.length > 0) {
    const blocking = [...new Set(conflicts.flatMap(({ blocking }) => blocking))].sort((one, other) => one - other)
    const detail = `${conflicts.map(({ path }) => path).join(', ')}: later transactions (${blocking.join(', ')}) changed the same lines. “${SKIP}” leaves these places alone. “${FORCE}” puts the earlier lines back there.`
    const choices = files.length > 0 ? [SKIP, FORCE] : [FORCE]
    const choice = await questions.choose(`${what}?`, detail, choices)
    if (choice === undefined) return undefined
    reaction = choice === FORCE ? 'force' : 'skip'
  } else if (mustAsk) {
    const detail = `This changes ${files.length === 1 ? files[0] : `${files.length} files: ${files.slice(0, 10).join(', ')}`}. The work of others stays.`
    if ((await questions.choose(`${what}?`, detail, ['OK'])) === undefined) return undefined
  }
  const outcome = await connection.request<Outcome>(method, { ...params, on_conflict: reaction, request_id: requestId() })
  const { transaction, proposal, warnings } = outcome
  const result = transaction !== null ? `as ${transaction.seq}` : proposal ? `waits as proposal ${proposal.proposal}` : 'changed nothing'
  vscode.window.setStatusBarMessage(`editd: ${what} ${result}`, 5000)
  if (warnings.length > 0) void vscode.window.showWarningMessage(`editd: ${warnings.join(' ')}`)
  return outcome
}

/** Publish the work of a session as a commit of the user's git. */
export async function publish(connection: Connection, session: string): Promise<void> {
  const message = await questions.input(`Commit message for the work of ${session}`)
  if (!message) return
  const result = await connection.request<{ commit: string; branch: string; files: unknown[] }>('publish', { session, message })
  void vscode.window.showInformationMessage(
    `editd: ${result.files.length} files of ${session} are commit ${result.commit.slice(0, 10)} on ${result.branch}.`,
  )
}
