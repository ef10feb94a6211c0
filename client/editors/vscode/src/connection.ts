/**
 * One connection to the daemon of a workspace. It starts the daemon, connects again, and repeats safe requests.
 *
 *   closed ──connect──▶ connecting ──hello──▶ ready ──lost──▶ waiting ──timer, or a request──▶ connecting
 *                           └──failed──▶ waiting
 *
 * A request that was sent but not answered is sent again only if that is safe: it only reads, or it has a
 * `request_id`. A refused request goes to the socket for reviewers if it needs that, and is sent again after the
 * PIN if it needs that. Knows nothing of VS Code.
 */

import { execFile } from 'node:child_process'
import { EventEmitter } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { promisify } from 'node:util'
import {
  createMessageConnection,
  ResponseError,
  SocketMessageReader,
  SocketMessageWriter,
  type MessageConnection,
} from 'vscode-jsonrpc/node'
import { inWords } from './advice'
import { isElsewhere, isOurs, reviewSocketOf, socketOf } from './place'
import { Refusal, Unreachable, type DaemonEvent } from './protocol'

export type State = 'closed' | 'connecting' | 'ready' | 'waiting'

export interface Options {
  program: string[]
  actor: string
  /** Start a daemon if none runs. */
  start: boolean
  /** Ask the user for the PIN, with the reason. Undefined if the user leaves the question. */
  askPin?: (reason: string) => PromiseLike<string | undefined>
}

interface Hello {
  workspace: { root: string }
  head: number
}

const RETRY_MILLISECONDS = [100, 250, 500, 1000, 2000, 5000, 10000, 30000]
const START_MILLISECONDS = 30000
const READING = new Set([
  'read', 'stat', 'log', 'show', 'blame', 'diff', 'status', 'session.list', 'proposal.list', 'proposal.get',
  'document.hold', 'document.list',
])

let count = 0

/** Return an id for a request that no other has, of this editor or another, now or later. */
export function requestId(): string {
  return `vscode-${process.pid}-${Date.now()}-${process.hrtime.bigint()}-${++count}`
}

/** Connect to a socket, and resolve once it is connected. */
function dial(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    if (!isOurs(path)) return reject(new Unreachable(`you have no socket at ${path}`))
    const socket = createConnection(path)
    socket.once('error', reject).once('connect', () => resolve(socket.off('error', reject)))
  })
}

export class Connection {
  state: State = 'closed'
  /** The newest transaction that is known. */
  head = 0
  /** The cause, while no daemon answers. */
  failure: Error | undefined
  private link: MessageConnection | undefined
  /** The socket that was reached last. */
  private path: string | undefined
  /** The connection on the socket for reviewers. It is kept, because it may have been given the PIN. */
  private reviewers: Connection | undefined
  private opening: Promise<MessageConnection> | undefined
  private timer: NodeJS.Timeout | undefined
  private failures = 0
  private wasShutDown = false
  private isDisposed = false
  private readonly emitter = new EventEmitter()

  constructor(
    readonly root: string,
    private readonly options: () => Options,
    private readonly socket: string = socketOf(root),
  ) {}

  onEvent(listener: (event: DaemonEvent) => void): void {
    this.emitter.on('event', listener)
  }

  onState(listener: (state: State) => void): void {
    this.emitter.on('state', listener)
  }

  /** Call a method of the daemon. Rejects with Refusal or Unreachable. */
  async request<Result>(method: string, params: object = {}): Promise<Result> {
    try {
      return await this.send<Result>(method, params)
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      const reviewers = error.data.needs_review_socket === true ? this.atReviewers() : undefined
      if (reviewers !== undefined) return reviewers.request<Result>(method, params)
      if (error.data.needs_pin !== true || method === 'review.unlock') throw error
      const pin = await this.options().askPin?.(error.message)
      if (!pin) throw error
      await this.send('review.unlock', { pin })
      return this.send<Result>(method, params)
    }
  }

  /** Return the connection on the socket for reviewers, or undefined if there is no such socket. */
  private atReviewers(): Connection | undefined {
    const own = this.path === undefined ? undefined : reviewSocketOf(this.path)
    if (own === undefined || !isOurs(own)) return undefined
    if (this.reviewers?.socket !== own) {
      this.reviewers?.dispose()
      this.reviewers = new Connection(this.root, () => ({ ...this.options(), start: false }), own)
    }
    return this.reviewers
  }

  /** Send a request, and again if the connection is lost and that is safe. */
  private async send<Result>(method: string, params: object): Promise<Result> {
    for (let mayRepeat = ('request_id' in params) || READING.has(method); ; mayRepeat = false) {
      const link = await this.connect()
      try {
        return await call<Result>(link, method, params)
      } catch (error) {
        if (error instanceof Refusal || !mayRepeat) throw error
      }
    }
  }

  /** Return the open link. Without one, connect, and start a daemon if none runs. */
  connect(mayStart = true): Promise<MessageConnection> {
    if (this.link !== undefined) return Promise.resolve(this.link)
    this.opening ??= this.open(mayStart && this.options().start).finally(() => (this.opening = undefined))
    return this.opening
  }

  /** End the connection for good. */
  dispose(): void {
    this.isDisposed = true
    clearTimeout(this.timer)
    this.emitter.removeAllListeners()
    this.link?.dispose()
    this.reviewers?.dispose()
    this.link = this.reviewers = undefined
    this.state = 'closed'
  }

  private async open(mayStart: boolean): Promise<MessageConnection> {
    clearTimeout(this.timer)
    this.become('connecting')
    try {
      return await this.reach(this.socket).catch(async (error: Error) => {
        if (!mayStart || error instanceof Elsewhere) throw error
        return this.reach(await this.start())
      })
    } catch (error) {
      this.failure = error instanceof Unreachable ? error : new Unreachable((error as Error).message)
      this.become('waiting')
      this.retry(false)
      throw this.failure
    }
  }

  /** Start a daemon, and return the path of its socket. */
  private async start(): Promise<string> {
    const [program, ...words] = this.options().program
    if (program === undefined) throw new Unreachable('the setting editd.program is empty')
    try {
      const run = promisify(execFile)(program, [...words, '-C', this.root, 'socket'], { timeout: START_MILLISECONDS })
      return (await run).stdout.trim()
    } catch (error) {
      const { code, stderr } = error as { code?: string | number; stderr?: string }
      if (code === 'ENOENT') throw new MissingProgram(`the program ${program} was not found`)
      throw new Unreachable(stderr?.trim() || (error as Error).message)
    }
  }

  /** Connect to the daemon at a socket, and subscribe. */
  private async reach(path: string): Promise<MessageConnection> {
    const socket = await dial(path)
    const link = createMessageConnection(new SocketMessageReader(socket), new SocketMessageWriter(socket))
    link.onNotification('event', (event: DaemonEvent) => this.take(event))
    link.onClose(() => this.lose(link))
    link.onError(() => this.lose(link))
    link.onDispose(() => socket.destroy())
    link.listen()
    try {
      const hello = await call<Hello>(link, 'hello', { client: this.options().actor, protocol: 1 })
      if (isElsewhere(hello.workspace.root, this.root)) {
        throw new Elsewhere(`the daemon at EDITD_SOCKET serves ${hello.workspace.root}, not ${this.root}`)
      }
      const isKnown = this.head > 0 && hello.head >= this.head
      await call(link, 'subscribe', isKnown ? { since: this.head } : {})
      this.head = Math.max(hello.head, isKnown ? this.head : 0)
      if (this.isDisposed) throw new Unreachable('the connection is closed')
    } catch (error) {
      link.dispose()
      throw error
    }
    this.link = link
    this.path = path
    this.failures = 0
    this.failure = undefined
    this.wasShutDown = false
    this.become('ready')
    return link
  }

  private take(event: DaemonEvent): void {
    if (event.transaction !== undefined) this.head = Math.max(this.head, event.transaction.seq)
    if (event.event === 'shutdown') this.wasShutDown = true
    this.emitter.emit('event', event)
  }

  private lose(link: MessageConnection): void {
    link.dispose() // rejects the requests that wait
    if (this.link !== link) return
    this.link = undefined
    this.failure = new Unreachable('the daemon has closed the connection')
    this.become('waiting')
    this.retry(!this.wasShutDown) // one that was stopped on purpose starts with the next save, or elsewhere
  }

  private retry(mayStart: boolean): void {
    if (this.isDisposed) return
    const delay = RETRY_MILLISECONDS[Math.min(this.failures++, RETRY_MILLISECONDS.length - 1)]
    this.timer = setTimeout(() => void this.connect(mayStart).catch(() => undefined), delay)
    this.timer.unref()
  }

  private become(state: State): void {
    if (this.isDisposed) return
    this.state = state
    this.emitter.emit('state', state)
  }
}

/** The daemon at the socket serves another folder. */
class Elsewhere extends Unreachable {}

/** `editctl` is not where the setting says. */
export class MissingProgram extends Unreachable {}

async function call<Result>(link: MessageConnection, method: string, params: object): Promise<Result> {
  try {
    return await link.sendRequest<Result>(method, params)
  } catch (error) {
    const refusal = error instanceof ResponseError ? (error.data as { name?: string; data?: object } | undefined) : undefined
    if (refusal?.name === undefined) throw new Unreachable((error as Error).message)
    const data = (refusal.data ?? {}) as Record<string, unknown>
    throw new Refusal(refusal.name, inWords((error as Error).message, data), data)
  }
}
