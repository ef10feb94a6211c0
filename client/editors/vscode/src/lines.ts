/** Texts as lines: their difference as spans, and the merge of two texts with their common base. Pure. */

/** Lines `oldStart` to `oldEnd` (the end left out) of one text, which became the lines `newStart` to `newEnd` of the other. */
export interface Hunk {
  oldStart: number
  oldEnd: number
  newStart: number
  newEnd: number
}

export interface Merge {
  text: string
  conflicts: number
}

/** The characters from `start` to `end` (left out) of a text, and those in their place. */
export interface Span {
  start: number
  end: number
  text: string
}

/** Beyond this number of differing lines, the differing part counts as one hunk. It bounds the time and the memory. */
const DIFFERENCE_MAX = 1000

/** Return the lines of a text, each with its line end. The last one has none, and may be empty. */
export function linesOf(text: string): string[] {
  return text.split(/(?<=\r\n|\n|\r(?!\n))/).concat(/[\r\n]$/.test(text) ? [''] : [])
}

/** Return the hunks that lead from one list of lines to another. */
export function diff(before: readonly string[], after: readonly string[]): Hunk[] {
  let start = 0
  let beforeEnd = before.length
  let afterEnd = after.length
  while (start < beforeEnd && start < afterEnd && before[start] === after[start]) start++
  while (start < beforeEnd && start < afterEnd && before[beforeEnd - 1] === after[afterEnd - 1]) {
    beforeEnd--
    afterEnd--
  }
  if (start === beforeEnd && start === afterEnd) return []
  const whole = [{ oldStart: start, oldEnd: beforeEnd, newStart: start, newEnd: afterEnd }]
  if (start === beforeEnd || start === afterEnd) return whole
  const kept = commonLines(before.slice(start, beforeEnd), after.slice(start, afterEnd))
  if (kept === undefined) return whole
  const hunks: Hunk[] = []
  let [old, now] = [start, start]
  for (const [x, y] of [...kept, [beforeEnd - start, afterEnd - start] as const]) {
    if (old < start + x || now < start + y) {
      hunks.push({ oldStart: old, oldEnd: start + x, newStart: now, newEnd: start + y })
    }
    old = start + x + 1
    now = start + y + 1
  }
  return hunks
}

/** Return the pairs of equal lines of a longest common subsequence, by Myers' algorithm, or undefined beyond the limit. */
function commonLines(before: readonly string[], after: readonly string[]): [number, number][] | undefined {
  const limit = Math.min(before.length + after.length, DIFFERENCE_MAX)
  const trail: Int32Array[] = []
  let reached = new Int32Array(2 * limit + 3)
  for (let steps = 0; steps <= limit; steps++) {
    trail.push(reached.slice(limit - steps, limit + steps + 3))
    for (let diagonal = -steps; diagonal <= steps; diagonal += 2) {
      const at = limit + 1 + diagonal
      const isDown = diagonal === -steps || (diagonal !== steps && reached[at - 1]! < reached[at + 1]!)
      let x = isDown ? reached[at + 1]! : reached[at - 1]! + 1
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x++
      reached[at] = x
      if (x >= before.length && x - diagonal >= after.length) return walkBack(trail, before.length, after.length)
    }
  }
  return undefined
}

function walkBack(trail: readonly Int32Array[], beforeLength: number, afterLength: number): [number, number][] {
  const pairs: [number, number][] = []
  let [x, y] = [beforeLength, afterLength]
  for (let steps = trail.length - 1; steps >= 0; steps--) {
    const reached = trail[steps]!
    const [diagonal, middle] = [x - y, steps + 1]
    const at = middle + diagonal
    const isDown = diagonal === -steps || (diagonal !== steps && reached[at - 1]! < reached[at + 1]!)
    const fromX = steps === 0 ? 0 : isDown ? reached[at + 1]! : reached[at - 1]!
    const fromY = steps === 0 ? 0 : fromX - (isDown ? diagonal + 1 : diagonal - 1)
    const afterStep = steps === 0 ? 0 : isDown ? fromX : fromX + 1
    while (x > afterStep) pairs.push([--x, --y])
    ;[x, y] = [fromX, fromY]
  }
  return pairs.reverse()
}

/** Return the spans that lead from one text to another, in their order and without an overlap. */
export function spansBetween(before: string, after: string): Span[] {
  const [beforeLines, afterLines] = [linesOf(before), linesOf(after)]
  const offsets = [0]
  for (const line of beforeLines) offsets.push(offsets.at(-1)! + line.length)
  return diff(beforeLines, afterLines).map(({ oldStart, oldEnd, newStart, newEnd }) => {
    const [start, end] = [offsets[oldStart]!, offsets[oldEnd]!]
    return trimmed({ start, end, text: afterLines.slice(newStart, newEnd).join('') }, before.slice(start, end))
  })
}

/** Return a span without the characters at its ends that stay. It splits neither a line end nor a character. */
function trimmed({ start, end, text }: Span, old: string): Span {
  const most = Math.min(old.length, text.length)
  let [first, last] = [0, 0]
  while (first < most && old[first] === text[first]) first++
  while (first > 0 && (isSplit(old, first) || isSplit(text, first))) first--
  while (last < most - first && old[old.length - 1 - last] === text[text.length - 1 - last]) last++
  while (last > 0 && (isSplit(old, old.length - last) || isSplit(text, text.length - last))) last--
  return { start: start + first, end: end - last, text: text.slice(first, text.length - last) }
}

function isSplit(text: string, at: number): boolean {
  return /^(\r\n|[\ud800-\udbff][\udc00-\udfff])$/.test(text.slice(at - 1, at + 1))
}

/** Return where an offset is after the spans were replaced. At the place of an insertion, it is behind that. */
export function moved(offset: number, spans: readonly Span[]): number {
  let shift = 0
  for (const { start, end, text } of spans) {
    if (offset < start) break
    if (offset < end) return start + shift + Math.min(offset - start, text.length)
    shift += text.length - (end - start)
  }
  return offset + shift
}

/**
 * Make the one change between `base` and `ours` in `theirs`. At a place that `theirs` changed, a text that was typed
 * at the cursor goes to the cursor of `theirs`. Returns undefined if the change removed characters there.
 */
export function carry(base: string, ours: string, theirs: string, caret?: { base: number; theirs: number }): string | undefined {
  const typed = trimmed({ start: 0, end: base.length, text: ours }, base)
  const spans = spansBetween(base, theirs)
  const isApart = spans.every(({ start, end }) => end < typed.start || typed.end < start)
  if (!isApart && typed.start < typed.end) return undefined
  const start = typed.start === caret?.base ? caret.theirs : moved(typed.start, spans)
  return theirs.slice(0, start) + typed.text + theirs.slice(start + typed.end - typed.start)
}

/** Return the line of `before` that each line of `after` came from, or undefined for a new line. */
export function originsOf(before: string, after: string): (number | undefined)[] {
  const afterLines = linesOf(after)
  const origins: (number | undefined)[] = []
  let shift = 0
  let from = 0
  for (const hunk of [...diff(linesOf(before), afterLines), undefined]) {
    for (; from < (hunk?.newStart ?? afterLines.length); from++) origins[from] = from + shift
    if (hunk === undefined) break
    for (; from < hunk.newEnd; from++) origins[from] = undefined
    shift = hunk.oldEnd - hunk.newEnd
  }
  return origins
}

/**
 * Merge what two texts made of their base. Where both changed the same lines, both stay, between conflict
 * markers with the names of their sides. Changes of neighbouring lines are no conflict, as for the daemon.
 */
export function merge(base: string, ours: string, theirs: string, names: [string, string]): Merge {
  const [baseLines, ourLines, theirLines] = [linesOf(base), linesOf(ours), linesOf(theirs)]
  const eol = /\r\n/.test(ours) ? '\r\n' : '\n'
  const sides = [diff(baseLines, ourLines), diff(baseLines, theirLines)] as const
  const next = [0, 0]
  const shift = [0, 0] // from a line of the base to the line of the side
  const merged: string[] = []
  let [at, conflicts] = [0, 0]
  for (;;) {
    const heads = sides.map((hunks, side) => hunks[next[side]!])
    const first = firstOf(heads[0], heads[1])
    if (first === undefined) break
    const start = first.oldStart
    let end = start
    const taken: Hunk[][] = [[], []]
    for (let grew = true; grew; ) {
      grew = false
      for (const side of [0, 1]) {
        const hunk = sides[side]![next[side]!]
        if (hunk === undefined || (hunk !== first && !collides(hunk, start, end))) continue
        if (hunk !== first && taken[0]!.length + taken[1]!.length === 0) continue
        taken[side]!.push(hunk)
        next[side]!++
        end = Math.max(end, hunk.oldEnd)
        grew = true
      }
    }
    const [mine, other] = [ourLines, theirLines].map((lines, side) => {
      const from = start + shift[side]!
      for (const hunk of taken[side]!) shift[side] = hunk.newEnd - hunk.oldEnd
      return lines.slice(from, end + shift[side]!).join('')
    }) as [string, string]
    merged.push(...baseLines.slice(at, start))
    if (taken[1]!.length === 0 || mine === other) merged.push(mine)
    else if (taken[0]!.length === 0) merged.push(other)
    else {
      conflicts++
      const ended = (text: string) => (text === '' || /[\r\n]$/.test(text) ? text : text + eol)
      merged.push(`<<<<<<< ${names[0]}${eol}`, ended(mine), `=======${eol}`, ended(other), `>>>>>>> ${names[1]}${eol}`)
    }
    at = end
  }
  merged.push(...baseLines.slice(at))
  return { text: merged.join(''), conflicts }
}

/** Return the hunk that comes first. At the same line, an insertion comes before a change of that line. */
function firstOf(one: Hunk | undefined, other: Hunk | undefined): Hunk | undefined {
  if (one === undefined || other === undefined) return one ?? other
  if (one.oldStart !== other.oldStart) return one.oldStart < other.oldStart ? one : other
  return other.oldStart === other.oldEnd ? other : one
}

/** Return whether a hunk changes a line of the region, or inserts lines where the region does. */
function collides(hunk: Hunk, start: number, end: number): boolean {
  if (hunk.oldStart === hunk.oldEnd) return start === end ? hunk.oldStart === start : hunk.oldStart > start && hunk.oldStart < end
  return hunk.oldStart < end
}
