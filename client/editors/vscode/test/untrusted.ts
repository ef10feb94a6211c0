/** The one test of a window whose folder is not trusted. It prints its result as `vscode.ts` does. */

import * as assert from 'node:assert'
import * as vscode from 'vscode'

export async function run(): Promise<void> {
  const name = 'in a folder that is not trusted nothing runs'
  let failure = ''
  try {
    assert.equal(vscode.workspace.isTrusted, false)
    await new Promise(resolve => setTimeout(resolve, 1000)) // onStartupFinished would have come
    assert.ok(!vscode.extensions.getExtension('editd.editd')?.isActive)
    const commands = await vscode.commands.getCommands()
    assert.ok(!commands.includes('editd.undoLast'))
  } catch (error) {
    failure = (error as Error).stack!
  }
  console.log(`test: ${JSON.stringify({ name, failure })}`)
}
