// The reference's side of the interchange test: writes, inspects, repairs and resumes sessions with its npm packages,
// composed as an application would. `main.rs` beside this file starts it and compares.
//
//   reference.mjs write  ROOT ENCODING        writes sessions of its own
//   reference.mjs report ROOT ENCODING OUT    describes every session, in the layout of tests/samples
//   reference.mjs turn   ROOT ENCODING        resumes every session, its invariants on, and runs one turn
//
// ENCODING is zstd, none, or plain (none without packed rows).
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { Context } from '@deepseek-ai/cordis'
import AgentRegistry from '@deepseek-ai/dsh-agent'
import AgentLoop from '@deepseek-ai/dsh-agent-loop'
import InvariantRegistry from '@deepseek-ai/dsh-invariants'
import LlmRuntime, { CallId, LlmAdapter, createUserMessage } from '@deepseek-ai/dsh-llm'
import SessionStore, { Session, SessionId, foldSurface } from '@deepseek-ai/dsh-session'
import * as SessionInvariants from '@deepseek-ai/dsh-session/invariant'
import JsonlSessionPersistence from '@deepseek-ai/dsh-session-persistence-jsonl'
import SystemPrompt from '@deepseek-ai/dsh-system-prompt'
import ToolRuntime, { defineContentToolFixture } from '@deepseek-ai/dsh-tools'

const usage = { inputTokens: 11, outputTokens: 7, cacheReadTokens: 3 }

/** The chunks of one answer: reasoning, text in small pieces, calls. */
function answer({ reasoning = [], text = [], calls = [], finish }) {
  const chunks = []
  const block = (blockType, deltas, whole) => {
    const index = chunks.filter(chunk => chunk.type === 'block-start').length
    chunks.push({ type: 'block-start', index, blockType })
    chunks.push(...deltas.map(delta => ({ ...delta, index })))
    chunks.push({ type: 'block-end', index, block: whole })
  }
  if (reasoning.length) {
    const deltas = reasoning.map(text => ({ type: 'reasoning-delta', index: 0, text }))
    block('reasoning', deltas, { type: 'reasoning', text: reasoning.join('') })
  }
  if (text.length) {
    block('text', text.map(text => ({ type: 'text-delta', index: 0, text })), { type: 'text', text: text.join('') })
  }
  for (const { id, name, pieces } of calls) {
    const deltas = pieces.map(argumentsDelta => ({ type: 'tool-call-delta', index: 0, id: CallId(id), name, argumentsDelta }))
    block('tool-call', deltas, { type: 'tool-call', id: CallId(id), name, arguments: pieces.join('') })
  }
  chunks.push({ type: 'usage', usage }, { type: 'finish', reason: finish ?? { kind: calls.length ? 'tool-calls' : 'stop' } })
  return chunks
}

/** Plays prepared answers; an answer may end in a wait for the signal, or in a failure. */
class Played extends LlmAdapter {
  answers = []
  waiting = undefined
  resolveModel(provider, model) { return Promise.resolve({ provider, id: model, name: model }) }
  async * stream(options) {
    const next = this.answers.shift() ?? answer({ text: ['resumed ', 'by ', 'the ', 'reference: ü 漢 😀'] })
    for (const chunk of Array.isArray(next) ? next : next.chunks) yield chunk
    if (next.hang) {
      this.waiting?.()
      await new Promise((_, reject) => options.signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true }))
    }
    if (next.fail) throw new Error(next.fail)
  }
}

async function compose(root, encoding, checked = false) {
  const ctx = new Context()
  if (checked) {
    await ctx.plugin(InvariantRegistry, { enabled: true })
    await ctx.plugin(SessionInvariants)
  }
  await ctx.plugin(LlmRuntime)
  await ctx.plugin(SessionStore)
  await ctx.plugin(SystemPrompt, { persona: 'A persona.' })
  await ctx.plugin(ToolRuntime)
  await ctx.plugin(AgentRegistry)
  await ctx.plugin(AgentLoop, { agents: [], maxParallelToolCalls: 4 })
  const compression = encoding === 'zstd' ? 'zstd' : 'none'
  await ctx.plugin(JsonlSessionPersistence, { root, compression, packChunks: encoding !== 'plain' })
  const model = new Played()
  ctx.llm.registerAdapter(['mock'], model)
  ctx.tools.register(defineContentToolFixture({
    name: 'look', description: 'Looks up', parameters: { what: { type: 'string' } }, isConcurrencySafe: () => true,
    execute: async ({ what }) => [{ type: 'text', text: `found ${what}` }],
  }))
  ctx.tools.register(defineContentToolFixture({
    name: 'fail', description: 'Fails', parameters: {}, execute: async () => { throw new Error('it failed') },
  }))
  const say = text => createUserMessage({ content: [{ type: 'text', text }], source: { kind: 'user' } })
  const open = (id, more = {}) => ctx.agents.create({ sessionId: SessionId(id), agentOptions: { provider: 'mock', model: 'mock' }, ...more })
  const turn = async (agent, text, answers) => {
    model.answers.push(...answers)
    agent.followup(say(text))
    await agent.whenIdle()
  }
  const close = async handle => {
    await ctx.sessions.flush(handle.agent.session)
    await handle.dispose()
  }
  return { ctx, model, say, open, turn, close }
}

const calling = [
  answer({ reasoning: ['think', ''], calls: [{ id: 'c1', name: 'look', pieces: ['{"wh', '', 'at":"a"}'] }, { id: 'c2', name: 'fail', pieces: ['{}'] }, { id: 'c3', name: 'nobody', pieces: [''] }] }),
  answer({ text: ['done'] }),
]

async function write(root, encoding) {
  const { ctx, model, say, open, turn, close } = await compose(root, encoding)
  const plain = await open('their-plain', { meta: { cwd: '/home/ünï/a b' } })
  await turn(plain.agent, 'hello "\u2028" \\ 😀', [answer({ reasoning: ['a', 'b', 'c', 'd'], text: ['ü', '', '漢', '\u0001\t'] })])
  await turn(plain.agent, 'again', [answer({ text: ['cut'], finish: { kind: 'max-tokens' } })])
  await turn(plain.agent, 'fail', [{ chunks: answer({ text: ['x'] }).slice(0, 2), fail: 'the model is gone' }])
  await close(plain)

  const tools = await open('their-tools')
  await turn(tools.agent, 'look', calling)
  const bent = ctx.sessions.fork(tools.agent.session, undefined, SessionId('their-fork'))
  await ctx.sessions.flush(bent)
  const prefix = tools.agent.session.events
  await close(tools)

  const cancelled = await open('their-cancelled', { meta: { cwd: '/tmp' } })
  const started = new Promise(resolve => { model.waiting = resolve })
  model.answers.push({ chunks: answer({ text: ['half ', 'an ', 'answer'] }).slice(0, 4), hang: true })
  cancelled.agent.followup(say('never answered'))
  await started
  cancelled.agent.steer(say('discarded'))
  cancelled.agent.cancel({ kind: 'user' })
  await cancelled.agent.whenIdle()
  await close(cancelled)

  const replaced = await open('their-replaced')
  await turn(replaced.agent, 'one', [answer({ text: ['first'] })])
  await turn(replaced.agent, 'two', [answer({ text: ['second'] })])
  const nodes = replaced.agent.session.surface.nodes
  const shadowed = nodes.slice(0, 3)
  replaced.agent.session.append('user/message', say('a summary'), {
    surfaceOp: { op: 'replace', start: shadowed[0], end: shadowed[2] }, sourceEventSeqs: [...shadowed],
  })
  await turn(replaced.agent, 'three', [answer({ text: ['third'] })])
  await close(replaced)

  // A process that died in the middle of a step: its log, cut at every event of the turn with calls.
  const persistence = ctx.sessionPersistence
  const batches = {}
  for (let length = 1; length <= prefix.length; length++) {
    const id = SessionId(`their-cut-${String(length).padStart(2, '0')}`)
    await persistence.create({ version: 0, id, createdAt: 1_700_000_000_000 })
    const half = Math.ceil(length / 2)
    await persistence.append(id, prefix.slice(0, half))
    await persistence.append(id, prefix.slice(half, length))
    batches[id] = [[0, half - 1], ...(half < length ? [[half, length - 1]] : [])]
  }

  // Long runs of deltas of every kind, in batches of changing size.
  const events = [{ type: 'turn/start', seq: 0, time: 5, data: { turn: 1 } }, { type: 'step/start', seq: 1, time: 5, data: { turn: 1, step: 1 } }]
  let state = 12345
  const random = n => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % n
  let time = 1_700_000_000_000
  for (let run = 0; run < 120; run++) {
    const kind = random(3), index = random(3), named = random(2), id = CallId(`c${random(2)}`)
    for (let k = 1 + random(6); k > 0; k--) {
      const text = ['', 'a', 'ü', '😀', '"\\', '\n'][random(6)].repeat(1 + random(3))
      time += random(20) - 4
      const chunk = kind === 0 ? { type: 'text-delta', index, text } : kind === 1 ? { type: 'reasoning-delta', index, text }
        : { type: 'tool-call-delta', index, id, ...(named ? { name: 'look' } : {}), argumentsDelta: text }
      events.push({ type: 'assistant/chunk', seq: events.length, time, data: { turn: 1, step: 1, chunk } })
    }
  }
  for (const id of ['their-packed', 'their-packed-small']) {
    await persistence.create({ version: 0, id: SessionId(id), createdAt: 0, cwd: '/p', origin: 'subagent', delegationDepth: 2, agentPreset: 'x' })
    batches[id] = []
    for (let at = 0; at < events.length;) {
      const size = id === 'their-packed' ? 200 : 1 + random(9)
      const batch = events.slice(at, at + size)
      await persistence.append(SessionId(id), batch)
      batches[id].push([at, at + batch.length - 1])
      at += size
    }
  }
  // Written as it is known, so that the other side can write the same batches and compare the files.
  writeFileSync(join(root, '..', 'batches.json'), JSON.stringify(batches))
  await ctx.fiber.dispose()
}

async function report(root, encoding, out) {
  mkdirSync(out, { recursive: true })
  const { ctx } = await compose(root, encoding)
  const persistence = ctx.sessionPersistence
  const key = encoding === 'zstd' ? 'zstd' : 'raw'
  const known = join(root, '..', 'batches.json')
  const batches = encoding !== 'plain' && existsSync(known) ? JSON.parse(readFileSync(known, 'utf8')) : {}
  for (const meta of await persistence.list()) {
    const name = `${meta.id.replaceAll(/[^A-Za-z0-9._-]/g, '_')}.${encoding}`
    const { path } = persistence.locate(meta)
    const inspected = await persistence.inspect(meta.id)
    const restored = Session.fromRestore(meta.id, inspected.events, inspected.meta)
    const stored = await persistence.readFrom(meta.id, 0)
    const { nodes, replacements } = foldSurface(inspected.events)
    copyFileSync(path, join(out, `${name}.log`))
    const raw = await persistence.readRaw(meta.id)
    const files = { [key]: `${name}.log` }
    if (stored.events.length < inspected.events.length) {
      await persistence.load(meta.id)
      copyFileSync(path, join(out, `${name}.repaired.log`))
      files.repaired = `${name}.repaired.log`
    }
    writeFileSync(join(out, `${name}.json`), JSON.stringify({
      files, appendBatches: batches[meta.id], storedAt: { [key]: relative(root, path) }, header: inspected.meta,
      storedEvents: stored.events, storedTexts: stored.events.map(event => JSON.stringify(event)), events: inspected.events, messages: restored.deriveMessages(),
      surface: nodes, replacements, raw: raw.content,
      requestHeader: restored.requestHeader() ?? null, requestContext: restored.requestContext() ?? null,
    }))
  }
  await ctx.fiber.dispose()
}

async function turn(root, encoding) {
  const { ctx, say, close } = await compose(root, encoding, true)
  for (const meta of await ctx.sessionPersistence.list()) {
    const handle = await ctx.agents.resume({ resumeSessionId: meta.id, agentOptions: { provider: 'mock', model: 'mock' } })
    handle.agent.followup(say('from the reference'))
    await handle.agent.whenIdle()
    const last = handle.agent.session.events.findLast(event => event.type === 'turn/end')
    if (last.data.reason.kind !== 'completed') throw new Error(`${meta.id}: ${JSON.stringify(last.data)}`)
    await close(handle)
  }
  await ctx.fiber.dispose()
}

const [command, root, encoding, out] = process.argv.slice(2)
try {
  await { write, report, turn }[command](root, encoding, out)
} catch (error) {
  console.error(`${error.code ?? error.name}: ${error.message}`)
  process.exit(1)
}
