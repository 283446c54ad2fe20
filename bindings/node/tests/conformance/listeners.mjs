// Scenario listeners (SCENARIO.md section 6).

import { errorOf, message } from './world.mjs';

const waterfalls = {
  'agent/pre-step': preStep,
  'agent/request': request,
  'agent/request-error': (then, _, next) => (then.retry ? 'retry' : next()),
  'system-prompt/assemble': (_, __, next) => next(),
  'tools/pre-execute': (then, _, next) => (then.deny === undefined ? next() : { kind: 'deny', reason: then.deny }),
  'tools/post-execute': postExecute,
  // A listener's answer means nothing (D-12).
  'agent/turn-stopping': (then) => then.return,
};

/** What a dispatch tells the filters of `when`. */
function factsOf(event, payload) {
  if (event === 'session/event') {
    const { turn, step } = payload.data;
    return { agent: payload.sessionId, type: payload.type, turn, step };
  }
  const { agentId: agent, turn, step, status, source, callId, name } = payload;
  const facts = { agent, turn, step, status, source, id: payload.message?.id };
  return event.startsWith('tools/') ? { agent, tool: name, callId } : facts;
}

/** Counts the dispatch and, if it matches, records it and performs its actions; gives what else it does. */
function reach(world, index, payload) {
  const { event, name, when = {}, do: then = {} } = world.scenario.on[index];
  const facts = factsOf(event, payload);
  const matches = Object.entries(when).every(([key, wanted]) => key === 'nth' || facts[key] === wanted);
  if (!matches) return undefined;
  const reached = world.count(index);
  if (when.nth !== undefined && when.nth !== reached) return undefined;
  if (name !== undefined) world.recorder.hit(facts.agent, name, event);
  world.performBatch(then.actions, `listener ${name ?? `on[${index}]`}`);
  return then;
}

/** Registers the scenario's listener `index`. */
export function registerListener(world, to, index) {
  const { event } = world.scenario.on[index];
  const { lifetime } = world;
  const decide = waterfalls[event];
  if (decide === undefined) {
    to.on(event, (payload) => {
      const then = world.lifetime === lifetime ? reach(world, index, payload) : undefined;
      if (then?.throw !== undefined) throw errorOf(then.throw);
    });
    return;
  }
  to.on(event, async (payload, next) => {
    const then = world.lifetime === lifetime ? reach(world, index, payload) : undefined;
    if (then === undefined) return next?.();
    if (then.gate !== undefined) await world.gates.hold(then.gate, payload.signal, then.onAbort ?? 'ignore');
    if (then.throw !== undefined) throw errorOf(then.throw);
    return decide(then, payload, then.nextTwice ? () => twice(world, index, next) : next);
  });
}

/** Delegates a second time as well, whose failure is recorded. */
async function twice(world, index, next) {
  const answer = await next();
  await next().catch((error) => world.failed(`listener ${world.scenario.on[index].name ?? `on[${index}]`}`, error));
  return answer;
}

async function preStep(then, payload, next) {
  if (then.reject) return { kind: 'reject' };
  if (then.enter !== undefined) {
    const messages = then.enter.map((item) => {
      if (typeof item !== 'string') return message(item);
      const offered = payload.messages.find(({ id }) => id === item);
      if (offered === undefined) throw new Error(`message ${item} was not offered`);
      return offered;
    });
    return { kind: 'enter', messages };
  }
  const decision = await next();
  if (decision.kind === 'reject') return decision;
  const { prepend = [], drop = [], append = [] } = then;
  const kept = decision.messages.filter(({ id }) => !drop.includes(id));
  return { kind: 'enter', messages: [...prepend.map(message), ...kept, ...append.map(message)] };
}

async function request(then, _, next) {
  if (then.config !== undefined) return then.config;
  const config = { ...(await next()), ...then.set };
  for (const key of then.unset ?? []) delete config[key];
  for (const key of then.undefined ?? []) config[key] = undefined;
  return config;
}

async function postExecute(then, _, next) {
  const contexts = (then.contexts ?? []).map(message);
  const text = (text) => [{ type: 'text', text }];
  if (then.block !== undefined) return { kind: 'block', feedback: text(then.block), contexts };
  if (then.content !== undefined) return { kind: 'accept', content: text(then.content), contexts };
  const decision = await next();
  return { ...decision, contexts: [...(decision.contexts ?? []), ...contexts] };
}
