// What a scenario can do to the system (SCENARIO.md section 7).

import { ask, wait, withdraw } from './additions.mjs';
import { choice, message } from './world.mjs';

/** Performs one action: `{returned}`, `{awaited}` or `{failed: true}`; a failure is recorded under `place`. */
export function perform(world, action, place) {
  if (action.act === 'batch') {
    world.performBatch(action.actions, place);
    return {};
  }
  try {
    return act(world, action, place) ?? {};
  } catch (error) {
    world.failed(place, error);
    return { failed: true };
  }
}

function report(world, name, promise) {
  promise.then(
    () => world.settled.push([name, 'ok']),
    (error) => world.settled.push([name, `failed: ${error.message}`]),
  );
}

/** Awaits an operation within its step. */
function awaited(promise) {
  const done = { isSettled: false };
  promise.then(
    () => Object.assign(done, { isSettled: true }),
    (error) => Object.assign(done, { isSettled: true, error }),
  );
  return { awaited: done };
}

function act(world, action, place) {
  const id = action.agent ?? world.defaultAgent;
  const agent = () => world.agent(id);
  const { target } = action;
  switch (action.act) {
    case 'followup':
    case 'steer':
    case 'inject':
      agent()[action.act](message(action));
      return undefined;
    case 'send':
      agent().send(message(action), { target, wakeup: action.wakeup });
      return undefined;
    case 'cancel':
      agent().cancel(action.cause, { keepInbox: action.keepInbox });
      return undefined;
    case 'inbox-append':
      return void agent().inbox.append(target, message(action));
    case 'inbox-prepend':
      return void agent().inbox.prepend(target, message(action));
    case 'inbox-replace':
      return { returned: agent().inbox.replace(action.replace, message(action)) };
    case 'inbox-remove':
      return { returned: agent().inbox.remove(action.remove) };
    case 'inbox-splice': {
      const inserted = (action.insert ?? []).map(message);
      return { returned: agent().inbox.splice(target, action.start ?? 0, action.deleteCount ?? 0, ...inserted).map(({ id }) => id) };
    }
    case 'inbox-clear':
      return void agent().inbox.clear();
    case 'open':
      return void world.gates.open(action.gate);
    case 'when-idle':
      return void report(world, action.name, agent().whenIdle());
    case 'maintenance':
      return maintenance(world, action, agent(), place);
    case 'refuse':
      return void world.refusals.set(action.type, action.count ?? 1);
    case 'start':
      return void world.ctx.startAgents(action.agents.map((id) => ({ id, sessionId: id, provider: 'mock', model: 'm1' })));
    case 'wait-for':
      return undefined;
    case 'wake':
      return void agent().wake();
    case 'ask':
      return void ask(world, action, agent());
    case 'settled':
    case 'durable':
    case 'run':
      return void wait(world, action, agent());
    case 'withdraw':
      return void withdraw(world, action);
    case 'store':
      return void Object.assign(world.store, { refuses: action.refuses });
    case 'set': {
      const kind = ['section', 'context', 'variable'].find((kind) => action[kind] !== undefined);
      world.text(kind, action[kind], action.agent).text = action.text;
      return undefined;
    }
    case 'select':
      return void world.selections.get(id).select(choice(action));
    case 'tool-add':
      world.registerTool(world.ctx, action.tool);
      world.tools.push(action.tool);
      return undefined;
    case 'tool-remove':
      world.toolRegistrations.get(action.name ?? action.tool).dispose();
      return undefined;
    case 'emit':
      return void emit(agent(), action);
    case 'session-append':
      return { returned: agent().session.appendRaw(action.event) };
    case 'session-fork': {
      const session = world.ctx.forkSession(action.from, { at: action.at, id: action.id });
      const { seedLength = null, parentSession = null } = session.header;
      return { returned: { seedLength, parentSession, types: [...session.events()].map(({ type }) => type) } };
    }
    case 'create':
      return awaited(world.openDeclared(world.declared(id)));
    case 'fork': {
      const spec = world.declared(action.id) ?? { id: action.id };
      world.agent(action.from);
      return awaited(world.open(spec, { options: action.options, fork: { from: action.from, at: action.at } }));
    }
    case 'dispose':
      return void report(world, `dispose ${id}`, agent().dispose());
    default:
      throw new Error(`the scenario is wrong: ${action.act} is no action here`);
  }
}

/** A refusal is the action's failure, heard of before the step has settled; a failed task is the operation's. */
function maintenance(world, action, agent, place) {
  const done = {};
  let hasStarted = false;
  const running = agent.runMaintenance(async ({ signal }) => {
    hasStarted = true;
    world.performBatch(action.actions, `maintenance ${action.name}`);
    if (action.gate !== undefined) await world.gates.hold(action.gate, signal, action.onAbort ?? 'fail');
    if (action.fail !== undefined) throw new Error(action.fail);
  });
  running.then(
    () => world.settled.push([action.name, 'ok']),
    (error) => {
      if (hasStarted) return world.settled.push([action.name, `failed: ${error.message}`]);
      world.failed(place, error);
      return Object.assign(done, { failed: true });
    },
  );
  return done;
}

function emit(agent, { event, payload = {} }) {
  const { id = 'emitted', message: text = 'emitted', turn, step, status } = payload;
  agent.emit(event, { message: message({ id }), error: { message: text }, turn, step, status });
}

/** Starts the next lifetime with one agent of this one (`resume`). A step only: it settles in between. */
export async function resume(world, action, settle) {
  const id = action.agent ?? world.defaultAgent;
  const agent = world.recorder.agent(id);
  if (agent === undefined) throw new Error('there is no agent to resume');
  if (action.mode === 'dispose') {
    agent.dispose();
    await settle(world);
  }
  const { header, events } = agent.session.toJSON();
  const log = { header, events: action.keep === undefined ? events : events.slice(0, action.keep) };
  world.nextLifetime();
  world.recorder.lifetime(id, world.lifetime, log.events.length);
  return awaited(world.open(world.declared(id) ?? { id }, { options: action.options, log }));
}
