/** The author of the current line, after its end, if the user has turned that on. */

import * as vscode from 'vscode'
import type { Documents, Tracked } from './documents'
import { ageOf, authorOf } from './history'
import { originsOf } from './lines'
import type { BlameLine as BlamedLine } from './protocol'
import { setting } from './workspaces'

const REST_MILLISECONDS = 200

/** The authors of the lines of a document at a version of its file. */
interface Blame {
  version: string
  lines: BlamedLine[]
}

export class BlameLine implements vscode.Disposable {
  isOn = setting<boolean>('blame')
  private timer: NodeJS.Timeout | undefined
  private readonly known = new WeakMap<vscode.TextDocument, Blame>()
  private readonly decoration = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor('editorCodeLens.foreground'), margin: '0 0 0 3em', fontStyle: 'italic' },
  })
  private readonly subscriptions: vscode.Disposable[]

  constructor(private readonly documents: Documents) {
    this.subscriptions = [
      this.decoration,
      vscode.window.onDidChangeTextEditorSelection(() => this.plan()),
      vscode.window.onDidChangeActiveTextEditor(() => this.plan()),
    ]
  }

  toggle(): void {
    this.isOn = !this.isOn
    this.plan()
  }

  /** Return who wrote the line of an editor's cursor, in words, or undefined. */
  async describe(editor: vscode.TextEditor): Promise<string | undefined> {
    const tracked = this.documents.get(editor.document)
    if (tracked?.base === undefined) return undefined
    const blame = await this.of(tracked)
    if (blame?.version !== tracked.base?.version) return undefined
    const origin = originsOf(tracked.base!.text, editor.document.getText())[editor.selection.active.line]
    if (origin === undefined) return 'not saved'
    const line = blame!.lines[origin]
    if (line === undefined) return undefined
    return line.seq === 0 ? 'baseline' : `${authorOf(line)}, ${ageOf(line.time)}, ${line.seq}`
  }

  dispose(): void {
    clearTimeout(this.timer)
    vscode.Disposable.from(...this.subscriptions).dispose()
  }

  private plan(): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.show().catch(() => undefined), REST_MILLISECONDS)
  }

  private async show(): Promise<void> {
    const editor = vscode.window.activeTextEditor
    const line = editor?.selection.active.line
    const text = this.isOn && editor !== undefined ? await this.describe(editor) : undefined
    for (const each of vscode.window.visibleTextEditors) {
      if (each !== editor) each.setDecorations(this.decoration, [])
    }
    if (editor === undefined || line !== editor.selection.active.line) return
    const end = editor.document.lineAt(line).range.end
    const decoration = { range: new vscode.Range(end, end), renderOptions: { after: { contentText: text } } }
    editor.setDecorations(this.decoration, text === undefined ? [] : [decoration])
  }

  private async of(tracked: Tracked): Promise<Blame | undefined> {
    const known = this.known.get(tracked.document)
    if (known !== undefined && known.version === tracked.base?.version) return known
    const blame = await tracked.connection.request<Blame>('blame', { path: tracked.path })
    this.known.set(tracked.document, blame)
    return blame
  }
}
