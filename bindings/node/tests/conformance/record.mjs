// The runner's own recorder: the outermost listener of everything, and what the doubles were asked.

import { describeError } from './world.mjs';

/** An agent of a lifetime, whose state can still be read when its context is gone. */
class Life {
  #frozen;

  constructor(agent) {
    this.agent = agent;
  }

  read() {
    const { agent } = this;
    const { session } = agent;
    const events = [...session.events()].map((event) => JSON.parse(event.json));
    const { header, history, consumedWork } = session;
    return { status: agent.status, events, header, history, consumedWork, pending: pending(agent) };
  }

  get state() {
    return this.#frozen ?? this.read();
  }

  get events() {
    return this.state.events;
  }

  get length() {
    return this.#frozen === undefined ? this.agent.session.length : this.#frozen.events.length;
  }

  freeze() {
    this.#frozen ??= this.read();
  }
}

export class Recorder {
  /** What happened to each agent that a notification named, in order. */
  agents = [];
  #world;

  constructor(world) {
    this.#world = world;
  }

  #record(agent) {
    let record = this.agents.find(({ id }) => id === agent.id);
    if (record === undefined) {
      record = { id: agent.id, agent, lifetime: this.#world.lifetime, lives: [new Life(agent)], notices: [], requests: [], runs: [] };
      this.agents.push(record);
    }
    if (record.agent !== agent) Object.assign(record, { agent, lifetime: this.#world.lifetime, lives: [...record.lives, new Life(agent)] });
    return record;
  }

  /** The latest agent of an id. */
  agent(id) {
    return this.agents.find((record) => record.id === id)?.agent;
  }

  /** The latest agent of an id, if it is of that lifetime. */
  agentOf(id, lifetime) {
    return this.agents.find((record) => record.id === id && record.lifetime === lifetime)?.agent;
  }

  /** Keeps the logs of a lifetime that is about to end. */
  freeze() {
    for (const { lives } of this.agents) for (const life of lives) life.freeze();
  }

  push(agent, notice) {
    notice.at = agent.session.length;
    if (this.#world.records('inbox') && notice.event?.startsWith('agent/inbox/')) notice.pending = pending(agent);
    this.#record(agent).notices.push(notice);
    return notice;
  }

  /** Marks the begin of a later lifetime. */
  lifetime(id, number, at) {
    this.agents.find((record) => record.id === id).notices.push({ at, event: 'lifetime', number });
  }

  /** A named listener fired. */
  hit(id, listener, event) {
    const agent = this.agent(id);
    if (agent !== undefined) this.push(agent, { listener, event });
  }

  /** A request reached the adapter. */
  request(request) {
    const agent = this.agent(request.sessionId);
    if (agent === undefined) return this.#world.problems.push('a request of an unknown agent');
    const { config, system, tools, messages } = request;
    const record = this.#record(agent);
    record.requests.push({ life: record.lives.at(-1), config, system, tools, messages, initiator: this.#world.ctx.initiator?.id });
  }

  /** A tool body started. */
  run(call) {
    const run = { callId: call.callId, name: call.name, arguments: call.arguments };
    const initiator = this.#world.records('initiator') ? this.#world.ctx.initiator?.id : undefined;
    if (initiator !== undefined) run.initiator = initiator;
    this.#record(call.agent).runs.push(run);
  }
}

/** The pending ids. */
export function pending(agent) {
  const ids = (target) => agent.inbox.pending(target).map(({ id }) => id);
  return { nextTurn: ids('next-turn'), nextStep: ids('next-step') };
}

const ids = (messages) => messages.map(({ id }) => id);

const notices = {
  'agent/created': () => ({}),
  'agent/disposed': () => ({}),
  'agent/session-start': ({ source }) => ({ source }),
  'agent/status': ({ status }) => ({ status }),
  'agent/inbox/inserted': ({ message }) => ({ id: message.id }),
  'agent/inbox/discarded': ({ message }) => ({ id: message.id }),
  'agent/inbox/claimed': ({ message, turn }) => ({ id: message.id, turn }),
  'agent/error': ({ turn, step, error }) => ({ turn, step, error: describeError(error) }),
};

const results = {
  'agent/pre-step': (decision) => (decision.kind === 'enter' ? { kind: 'enter', messages: ids(decision.messages) } : decision),
  'agent/request': (config) => config,
  'agent/request-error': (recovery) => recovery,
};

const offers = {
  'agent/pre-step': ({ messages }) => ({ messages: ids(messages) }),
  'agent/request': () => ({}),
  'agent/request-error': ({ provider, failure }) => ({ provider, failure }),
};

/** Registers the recorder: first, so that it is outermost. */
export function registerRecorder(world, ctx) {
  const { lifetime } = world;
  const push = (agent, notice) => (world.lifetime === lifetime ? world.recorder.push(agent, notice) : notice);
  for (const [event, describe] of Object.entries(notices)) {
    ctx.on(event, (notice) => void push(notice.agent, { event, ...describe(notice) }));
  }
  if (world.records('inbox')) {
    ctx.on('session/event', (event) => {
      if (event.type !== 'agent/inbox/spliced' || event.agent === undefined) return;
      push(event.agent, { event: 'session/event', type: event.type, pending: pending(event.agent) });
    });
  }
  for (const [event, offer] of Object.entries(offers)) {
    ctx.on(event, async (payload, next) => {
      const { agent, turn, step } = payload;
      const notice = push(agent, { event, turn, step, ...offer(payload) });
      try {
        const decision = await next();
        notice.result = results[event](decision);
        return decision;
      } catch (error) {
        // What is abandoned with its lifetime is still waiting, as far as anybody observed.
        if (world.lifetime === lifetime) notice.threw = error.message;
        throw error;
      }
    });
  }
  ctx.on('agent/turn-stopping', ({ agent, turn }) => void push(agent, { event: 'agent/turn-stopping', turn }));
}
