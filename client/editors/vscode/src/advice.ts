/** The next step after a refusal, in the words of an editor. docs/protocol.md has the form of an advice. */

import { WORDS } from './words'

interface Term {
  kind: string
  method?: string
  option?: string
  argument?: string
  lead?: string
  purpose?: string
  words?: string
}

/** Return the message of a refusal with its next step in the words of an editor. */
export function inWords(message: string, data: Record<string, unknown>): string {
  const { advice, hint } = data
  if (!Array.isArray(advice) || typeof hint !== 'string' || !message.endsWith(hint)) return message
  const parts = (advice as (string | Term)[]).map((part) => (typeof part === 'string' ? part : wordsOf(part)))
  return message.slice(0, message.length - hint.length) + parts.join('')
}

/** Return the words for a term: an editor's own, or the protocol's. An empty text leaves the term out. */
function wordsOf({ kind, method, option, argument = '', lead = '', purpose = '', words = '' }: Term): string {
  const name = kind === 'option' ? option : (method ?? argument)
  const exact = WORDS[`${kind} ${name} ${argument}`]
  let own = exact ?? WORDS[`${kind} ${name}`] ?? words
  if (own === '') return ''
  if (exact === undefined && own !== words && argument !== '') {
    if (kind === 'method') own = own.replace(/`$/, ` ${argument}\``)
    if (kind === 'option') own += ` ${argument}`
  }
  return lead + own + purpose
}
