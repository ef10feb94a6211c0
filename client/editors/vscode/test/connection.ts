/** Tests of `connection` with a real daemon on EDITD_TEST_ROOT, for `node --test`: they need no VS Code. */

import * as assert from 'node:assert'
import { mkdtempSync, renameSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Connection, MissingProgram, requestId, type Options } from '../src/connection'
import { reviewSocketOf, socketOf } from '../src/place'
import { bytesOf, contentOf, Refusal, Unreachable, type DaemonEvent, type Outcome } from '../src/protocol'

const root = process.env.EDITD_TEST_ROOT!
const options: Options = { program: [process.env.EDITD_TEST_PROGRAM!], actor: 'node', start: true }
const made: Connection[] = []

function connect(more: Partial<Options> = {}, socket = socketOf(root)): Connection {
  const connection = new Connection(root, () => ({ ...options, ...more }), socket)
  made.push(connection)
  return connection
}

after(async () => {
  for (const connection of made) connection.dispose()
})

async function until(condition: () => boolean): Promise<void> {
  for (const end = Date.now() + 20000; !condition(); ) {
    assert.ok(Date.now() < end, `it never was: ${condition}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

const write = (path: string, content: string) => ({ edits: [{ op: 'write', path, content, force: true }] })

test('a request gets its answer, and a refusal has its name and its data', async () => {
  const connection = connect()
  const outcome = await connection.request<Outcome>('apply', write('one.txt', 'one\n'))
  assert.equal(outcome.transaction!.actor, 'node')
  const refusal = await connection.request('read', { path: 'none.txt' }).catch(error => error)
  assert.ok(refusal instanceof Refusal)
  assert.deepEqual([refusal.refusal, refusal.data.path], ['file_missing', 'none.txt'])
  assert.equal(connection.state, 'ready')
})

test('after the death of the daemon a new one is started, and no event is missing', async () => {
  const [watcher, author] = [connect(), connect()]
  const seen: number[] = []
  watcher.onEvent(({ transaction }: DaemonEvent) => transaction && seen.push(transaction.seq))
  await watcher.connect()
  const first = watcher.head
  const { pid } = await author.request<{ pid: number }>('status')
  await author.request('apply', write('two.txt', '1\n'))
  process.kill(pid, 'SIGKILL')
  await until(() => author.state !== 'ready')
  writeFileSync(join(root, 'two.txt'), 'from outside\n')
  await author.request('apply', write('two.txt', '2\n'))
  await author.request('settle')
  await until(() => watcher.state === 'ready' && watcher.head >= author.head)
  await until(() => seen.length >= author.head - first)
  assert.deepEqual(seen, seen.map((_, at) => first + 1 + at))
})

test('a request with an id whose answer is lost is sent again, and takes effect once', async () => {
  const connection = connect()
  const { pid } = await connection.request<{ pid: number }>('status')
  const before = connection.head
  const params = { ...write('three.txt', '1\n'), request_id: requestId() }
  process.kill(pid, 'SIGSTOP')
  const answer = connection.request<Outcome>('apply', params)
  setTimeout(() => process.kill(pid, 'SIGKILL'), 100)
  assert.equal((await answer).transaction!.seq, before + 1)
  assert.equal((await connection.request<Outcome>('apply', params)).transaction!.seq, before + 1)
})

test('a request without an id is not sent again', async () => {
  const connection = connect()
  const { pid } = await connection.request<{ pid: number }>('status')
  process.kill(pid, 'SIGSTOP')
  const answer = connection.request('apply', write('four.txt', '1\n'))
  setTimeout(() => process.kill(pid, 'SIGKILL'), 100)
  await assert.rejects(answer, Unreachable)
})

test('a missing program, a socket of another workspace and an end on purpose are reported', async () => {
  await assert.rejects(connect({ program: ['no-such-program'] }, '/nowhere').request('status'), MissingProgram)
  await assert.rejects(connect({ start: false }, '/nowhere').request('status'), /you have no socket at \/nowhere/)
  const connection = connect()
  await connection.request('status')
  const elsewhere = new Connection(mkdtempSync(join(tmpdir(), 'editd-')), () => options, socketOf(root))
  await assert.rejects(elsewhere.request('status'), /serves .*, not /)
  elsewhere.dispose()
  const states: string[] = []
  connection.onState(state => states.push(state))
  await connection.request('shutdown')
  await until(() => states.filter(state => state === 'waiting').length > 1)
  assert.ok(!states.includes('ready'), 'a daemon that was stopped is not started without a request')
})

test('what only the owner may do goes to the socket for reviewers, which asks for the PIN once', async () => {
  const own = process.env.EDITD_TEST_OWN_ROOT!
  const asked: string[] = []
  const askPin = async (reason: string) => (asked.push(reason), '1234')
  const [author, reviewer, stranger] = [undefined, askPin, undefined].map(ask => {
    const connection = new Connection(own, () => ({ ...options, start: false, askPin: ask }))
    made.push(connection)
    return connection
  }) as [Connection, Connection, Connection]
  const { session } = await author.request<{ session: string }>('session.open', { name: 'night' })
  const first = await author.request<Outcome>('apply', write('one.txt', 'one\n'))
  const undone = await reviewer.request<Outcome>('undo', { tx: first.transaction!.seq, request_id: requestId() })
  assert.deepEqual(undone.files.map(({ path }) => path), ['one.txt'])
  assert.deepEqual(asked, [], 'the person takes back what anybody has made')
  for (const name of ['two.txt', 'three.txt']) await author.request('apply', { ...write(name, 'x\n'), propose: true })
  const { proposals } = await reviewer.request<{ proposals: { proposal: number }[] }>('proposal.list')
  for (const { proposal } of proposals) await reviewer.request('proposal.reject', { proposal })
  assert.equal(asked.length, 1)
  await author.request('apply', { ...write('four.txt', 'x\n'), propose: true })
  await assert.rejects(stranger.request('proposal.reject', { proposal: 3 }), /only with the PIN/)
  const path = reviewSocketOf(socketOf(own))
  renameSync(path, `${path}.away`)
  try {
    await assert.rejects(author.request('session.pause', { session }), /separate socket for reviewers/)
  } finally {
    renameSync(`${path}.away`, path)
  }
})

test('bytes that are not UTF-8 travel as base64', () => {
  for (const bytes of [Buffer.from('text ä\n'), Buffer.from([0x63, 0xe9, 0x0a])]) {
    assert.ok(Buffer.from(bytesOf(contentOf(bytes))).equals(bytes))
  }
  assert.equal(contentOf(Buffer.from('ä')), 'ä')
})
