// An assistant with two tools that survives being killed. Offline by default; with TURNWHEEL_BASE_URL (and
// TURNWHEEL_API_KEY, TURNWHEEL_MODEL) on any OpenAI-compatible server. Usage: assistant.mjs [store]

import { existsSync } from 'node:fs';
import { Context, openAIChat, scripted } from 'turnwheel';

const store = process.argv[2] ?? 'sessions';
const isNew = !existsSync(store);
const ctx = new Context({ store });
const numbers = { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] };

ctx.section('role', 'You are a careful assistant. Use the tools to calculate, then answer in one sentence.');
ctx.tool({ name: 'add', description: 'Add two numbers.', parameters: numbers, execute: ({ a, b }) => a + b });
ctx.tool({ name: 'multiply', description: 'Multiply two numbers.', parameters: numbers, execute: ({ a, b }) => a * b });
ctx.llm.register('llm', model());

function model() {
  const { TURNWHEEL_BASE_URL: baseUrl, TURNWHEEL_API_KEY: apiKey } = process.env;
  if (baseUrl) return openAIChat({ baseUrl, apiKey });
  const later = { text: 'It is sixty-five away from one hundred.', chunkSize: 4, delayMs: 20 };
  const first = [
    { calls: [{ id: '1', name: 'add', arguments: { a: 2, b: 3 } }] },
    { calls: [{ id: '2', name: 'multiply', arguments: { a: 5, b: 7 } }] },
    { text: 'Two and three make five, and five times seven is thirty-five.', chunkSize: 6, delayMs: 50 },
  ];
  return scripted(...(isNew ? first : []), later);
}

const agent = await ctx.agent('assistant', { provider: 'llm', model: process.env.TURNWHEEL_MODEL ?? 'default' });
const { session, inbox } = agent;
const from = session.length;
const ended = [...session.events()].filter(({ type }) => type === 'turn/end').at(-1);
if (ended) {
  const waiting = inbox.nextTurn.map(({ content }) => content[0].text);
  console.log(`recovered ${from} events; the last turn ended: ${ended.data.reason.kind}; waiting: ${JSON.stringify(waiting)}`);
}
let last = inbox.nextTurn.at(-1) && agent.receipt(inbox.nextTurn.at(-1).id);
if (last) agent.wake();
else {
  agent.followup('What is (2 + 3) * 7?');
  last = agent.followup('And how far is that from 100?');
}
for await (const event of session.follow({ from })) {
  if (event.type === 'tool/call') console.log(`[${event.data.name} ${event.data.arguments}]`);
  else if (event.type === 'user/message') process.stdout.write(`> ${event.text}\n`);
  else if (event.type === 'assistant/chunk') process.stdout.write(event.text);
  else if (event.type === 'turn/end') {
    const { reason } = event.data;
    console.log(reason.kind === 'error' ? `failed: ${reason.error.message}` : '');
    if (reason.kind === 'error' || last.state.turn === event.data.turn) break;
  }
}
await ctx.close();
