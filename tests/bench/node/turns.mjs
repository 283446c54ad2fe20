// What an agent loop costs when the model costs nothing: the Node package, the reference and pi-agent-core in one run.
//
//   node turns.mjs                    prints a table (make bench-node sets up what it needs, beside a copy of this file)
//   node turns.mjs <peer> <workload>  measures one cell and prints it as JSON
//
// A model answers at once: 64 text deltas of 8 bytes, or one tool call and then 16 deltas. A session begins anew every 50
// turns. Every cell is a process of its own; the peers take turns, so that whatever else the machine does meets all of
// them. Microseconds of processor time per turn are the steadier number on a busy machine.

import { execFileSync } from 'node:child_process';

const { BENCH_ROUNDS = '5', BENCH_WARM_MS = '1000', BENCH_MS = '2000' } = process.env;
const workloads = {
  'text, no listener': { deltas: 64, listeners: 0 },
  'text, one listener': { deltas: 64, listeners: 1 },
  'text, ten listeners and five hooks': { deltas: 64, listeners: 10, hooks: 5 },
  'a tool turn': { deltas: 16, listeners: 0, hasTool: true },
};
const delta = 'abcdefg ';
const prompt = 'What is the weather?';
const args = { city: 'Paris', units: 'metric' };
const seen = { events: 0, tools: 0 };

function textChunks(count) {
  const text = Array.from({ length: count }, () => ({ type: 'text-delta', index: 0, text: delta }));
  const block = { type: 'text', text: delta.repeat(count) };
  return [
    { type: 'block-start', index: 0, blockType: 'text' },
    ...text,
    { type: 'block-end', index: 0, block },
    { type: 'usage', usage: { inputTokens: 10, outputTokens: 64 } },
    { type: 'finish', reason: { kind: 'stop' } },
  ];
}

function callChunks(id) {
  const text = JSON.stringify(args);
  return [
    { type: 'block-start', index: 0, blockType: 'tool-call' },
    { type: 'tool-call-delta', index: 0, id, name: 'lookup', argumentsDelta: text },
    { type: 'block-end', index: 0, block: { type: 'tool-call', id, name: 'lookup', arguments: text } },
    { type: 'usage', usage: { inputTokens: 10, outputTokens: 64 } },
    { type: 'finish', reason: { kind: 'tool-calls' } },
  ];
}

/** Each peer: `open()` gives a session, `turn(session)` runs one, `close(session)` ends it. */
const peers = {
  async turnwheel({ deltas, listeners, hooks = 0, hasTool }) {
    const { Context } = await import('turnwheel');
    const ctx = new Context();
    const text = textChunks(deltas);
    let calls = 0;
    ctx.llm.register('mock', async function* (request) {
      const isAnswered = !hasTool || request.messages.at(-1).source.kind === 'tool';
      for (const chunk of isAnswered ? text : callChunks(`call-${(calls += 1)}`)) yield chunk;
    });
    const parameters = { type: 'object', properties: { city: { type: 'string' }, units: { type: 'string' } }, required: ['city', 'units'] };
    ctx.tool({ name: 'lookup', description: 'Look up the weather', parameters, parallel: true, execute: async () => ((seen.tools += 1), 'sunny, 21C') });
    for (let at = 0; at < listeners; at += 1) ctx.on('session/event', () => void (seen.events += 1));
    for (let at = 0; at < hooks; at += 1) ctx.on('agent/pre-step', (_, next) => next());
    let ids = 0;
    return {
      open: () => ctx.agent(`s-${(ids += 1)}`, { provider: 'mock', model: 'mock' }),
      turn: (agent) => agent.run(prompt),
      close: (agent) => agent.dispose(),
    };
  },

  async reference({ deltas, listeners, hooks = 0, hasTool }) {
    const { Context } = await import('@deepseek-ai/cordis');
    const { default: LlmRuntime, createUserMessage, CallId, LlmAdapter } = await import('@deepseek-ai/dsh-llm');
    const { default: SessionStore, SessionId } = await import('@deepseek-ai/dsh-session');
    const { default: ToolRuntime, defineContentToolFixture } = await import('@deepseek-ai/dsh-tools');
    const ctx = new Context();
    await ctx.plugin(LlmRuntime);
    await ctx.plugin(SessionStore);
    await ctx.plugin((await import('@deepseek-ai/dsh-system-prompt')).default, { persona: 'You are a helpful assistant.' });
    await ctx.plugin(ToolRuntime);
    await ctx.plugin((await import('@deepseek-ai/dsh-agent')).default);
    await ctx.plugin((await import('@deepseek-ai/dsh-agent-loop')).default, { agents: [], maxParallelToolCalls: 10 });
    const text = textChunks(deltas);
    let calls = 0;
    class Mock extends LlmAdapter {
      resolveModel(provider, model) {
        return Promise.resolve({ provider, id: model, name: model });
      }
      async *stream({ messages }) {
        const isAnswered = !hasTool || messages.at(-1).content.some(({ type }) => type === 'tool-result');
        for (const chunk of isAnswered ? text : callChunks(CallId(`call-${(calls += 1)}`))) yield chunk;
      }
    }
    ctx.llm.registerAdapter(['mock'], new Mock());
    const execute = async () => ((seen.tools += 1), [{ type: 'text', text: 'sunny, 21C' }]);
    const parameters = { city: { type: 'string' }, units: { type: 'string' } };
    ctx.tools.register(defineContentToolFixture({ name: 'lookup', description: 'Look up the weather', parameters, isConcurrencySafe: () => true, execute }));
    for (let at = 0; at < listeners; at += 1) ctx.on('session/event', () => void (seen.events += 1));
    for (let at = 0; at < hooks; at += 1) ctx.on('agent/pre-step', (_, next) => next());
    let ids = 0;
    return {
      open: () => ctx.agents.create({ sessionId: SessionId(`s-${(ids += 1)}`), agentOptions: { provider: 'mock', model: 'mock' } }),
      turn: ({ agent }) => {
        agent.followup(createUserMessage({ content: [{ type: 'text', text: prompt }], source: { kind: 'user' } }));
        return agent.whenIdle();
      },
      close: (handle) => handle.dispose(),
    };
  },

  async pi({ deltas, listeners, hooks = 0, hasTool }) {
    const { Agent } = await import('@mariozechner/pi-agent-core');
    const { Type, createAssistantMessageEventStream } = await import('@mariozechner/pi-ai');
    const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
    const model = { id: 'mock', name: 'mock', api: 'mock', provider: 'mock', baseUrl: '', reasoning: false, input: ['text'], cost, contextWindow: 128_000, maxTokens: 16_384 };
    let calls = 0;
    const streamFn = (_, { messages }) => {
      const stream = createAssistantMessageEventStream();
      const usage = { input: 10, output: 64, cacheRead: 0, cacheWrite: 0, totalTokens: 74, cost: { ...cost, total: 0 } };
      const partial = { role: 'assistant', content: [], api: 'mock', provider: 'mock', model: 'mock', usage, stopReason: 'stop', timestamp: Date.now() };
      const push = (event) => stream.push({ ...event, partial });
      const produce = async () => {
        stream.push({ type: 'start', partial });
        if (hasTool && messages.at(-1).role !== 'toolResult') {
          const toolCall = { type: 'toolCall', id: `call-${(calls += 1)}`, name: 'lookup', arguments: args };
          partial.content.push(toolCall);
          push({ type: 'toolcall_start', contentIndex: 0 });
          await null;
          push({ type: 'toolcall_delta', contentIndex: 0, delta: JSON.stringify(args) });
          await null;
          push({ type: 'toolcall_end', contentIndex: 0, toolCall });
          await null;
          partial.stopReason = 'toolUse';
        } else {
          const block = { type: 'text', text: '' };
          partial.content.push(block);
          push({ type: 'text_start', contentIndex: 0 });
          await null;
          for (let at = 0; at < deltas; at += 1) {
            block.text += delta;
            stream.push({ type: 'text_delta', contentIndex: 0, delta, partial });
            await null;
          }
          push({ type: 'text_end', contentIndex: 0, content: block.text });
        }
        stream.push({ type: 'done', reason: partial.stopReason, message: partial });
        stream.end(partial);
      };
      void produce();
      return stream;
    };
    const parameters = Type.Object({ city: Type.String(), units: Type.String() });
    const execute = async () => ((seen.tools += 1), { content: [{ type: 'text', text: 'sunny, 21C' }], details: {} });
    const tools = [{ name: 'lookup', label: 'lookup', description: 'Look up the weather', parameters, execute }];
    const compose = async (messages) => {
      let composed = messages;
      for (let at = 0; at < hooks; at += 1) composed = await (async (given) => given)(composed);
      return composed;
    };
    return {
      open: async () => {
        const agent = new Agent({ initialState: { systemPrompt: 'You are a helpful assistant.', model, tools }, streamFn, ...(hooks > 0 ? { transformContext: compose } : {}) });
        for (let at = 0; at < listeners; at += 1) agent.subscribe(() => void (seen.events += 1));
        return agent;
      },
      turn: (agent) => agent.prompt(prompt),
      close: async () => undefined,
    };
  },
};

async function measure(peer, workload) {
  const { open, turn, close } = await peers[peer](workload);
  let session;
  let turns = 0;
  const loop = async (milliseconds) => {
    const begin = performance.now();
    let count = 0;
    do {
      if (turns % 50 === 0) {
        if (session !== undefined) await close(session);
        session = await open();
      }
      await turn(session);
      turns += 1;
      count += 1;
    } while (performance.now() - begin < milliseconds);
    return { count, wall: (performance.now() - begin) * 1000 };
  };
  await loop(Number(BENCH_WARM_MS));
  const before = process.cpuUsage();
  const { count, wall } = await loop(Number(BENCH_MS));
  const { user, system } = process.cpuUsage(before);
  if (workload.hasTool && seen.tools < turns) throw new Error(`${peer}: the tool did not run in every turn`);
  if (workload.listeners > 0 && seen.events < turns * workload.listeners) throw new Error(`${peer}: the listeners heard nothing`);
  return { wall: wall / count, cpu: (user + system) / count };
}

const median = (numbers) => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];

function table() {
  const cells = new Map();
  for (let round = 0; round < Number(BENCH_ROUNDS); round += 1) {
    for (const name of Object.keys(workloads)) {
      for (const peer of Object.keys(peers)) {
        const out = execFileSync(process.execPath, [process.argv[1], peer, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
        const key = `${name}\t${peer}`;
        cells.set(key, [...(cells.get(key) ?? []), JSON.parse(out)]);
      }
    }
  }
  console.log(`Node ${process.version}, ${BENCH_ROUNDS} rounds; microseconds per turn, medians: wall (best) / processor; and how often turnwheel's processor time goes into it`);
  for (const name of Object.keys(workloads)) {
    const cpuOf = (peer) => median(cells.get(`${name}\t${peer}`).map(({ cpu }) => cpu));
    const shown = Object.keys(peers).map((peer) => {
      const walls = cells.get(`${name}\t${peer}`).map(({ wall }) => wall);
      const times = `${median(walls).toFixed(0)} (${Math.min(...walls).toFixed(0)}) / ${cpuOf(peer).toFixed(0)}`;
      return `${peer} ${times}${peer === 'turnwheel' ? '' : `, ${(cpuOf(peer) / cpuOf('turnwheel')).toFixed(1)}x`}`;
    });
    console.log(`${name}: ${shown.join(' | ')}`);
  }
}

const [peer, workload] = process.argv.slice(2);
if (peer === undefined) table();
else {
  console.log(JSON.stringify(await measure(peer, workloads[workload])));
  process.exit(0);
}
