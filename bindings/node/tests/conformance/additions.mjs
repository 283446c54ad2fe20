// Actions and doubles of our own (SCENARIO.md section 13).

import { TurnwheelError } from 'turnwheel';
import { message } from './world.mjs';

/** How long real time may take to bring an event. */
const patienceMs = 10_000;

/** Notes what the agent says of itself, as a notice. */
export function ask(world, { what, id }, agent) {
  const answers = {
    state: () => agent.state(),
    receipt: () => agent.receipt(id).state ?? null,
    agent: () => {
      const found = world.ctx.agents.get(id);
      return found === undefined ? null : { id: found.id, status: found.status };
    },
    stored: () => world.store.sessions.get(agent.id)?.length ?? 0,
  };
  const notice = { event: 'ask', what, answer: answers[what]() };
  world.recorder.push(agent, id === undefined ? notice : { ...notice, id });
}

/** Starts waiting: `settled`, `durable` or `run`. */
export function wait(world, action, agent) {
  const controller = new AbortController();
  const { signal } = controller;
  const start = {
    settled: () => agent.receipt(action.id).settled({ signal }),
    durable: () => agent.receipt(action.id).durable().then(() => 'ok'),
    run: () => agent.run(message(action), { signal, detached: action.detached }).then(brought),
  };
  const operation = { isWithdrawn: false, controller };
  world.operations.set(action.name, operation);
  start[action.act]().then(
    (outcome) => operation.isWithdrawn || world.settled.push([action.name, outcome]),
    (error) => operation.isWithdrawn || world.settled.push([action.name, { failed: error.code }]),
  );
}

function brought({ turn, reason, text, messages, usage }) {
  return { turn, reason, text, messages: messages.map(({ role }) => role), usage };
}

/** Gives up waiting for an operation. */
export function withdraw(world, { name }) {
  const operation = world.operations.get(name);
  operation.isWithdrawn = true;
  operation.controller.abort();
  world.settled.push([name, 'withdrawn']);
}

/** The clock is the machine's: waits until the event has come. A step only. */
export async function elapse(world, { agent: id = world.defaultAgent, event, count = 1 }) {
  const { session } = world.agent(id);
  const deadline = performance.now() + patienceMs;
  while ([...session.events()].filter(({ type }) => type === event).length < count) {
    if (performance.now() > deadline) throw new Error(`no ${event} came`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A store in memory. It outlives lifetimes, and refuses batches when told to. */
export class StoreDouble {
  sessions = new Map();
  refuses = false;

  listPage() {
    return [];
  }

  exists() {
    return false;
  }

  read() {
    return undefined;
  }

  open() {
    return undefined;
  }

  create({ id }) {
    const append = (_, events) => {
      if (this.refuses) throw new TurnwheelError('STORE_FAILED', 'the store refuses');
      this.sessions.set(id, [...(this.sessions.get(id) ?? []), ...events]);
    };
    return { append, close() {} };
  }
}
