// Runs a scenario and describes what happened in the layout of `expect` (SCENARIO.md section 8).

import { texts } from 'turnwheel';
import { perform, resume } from './actions.mjs';
import { elapse } from './additions.mjs';
import { World } from './world.mjs';

/** After so many turns of the event loop without any progress nothing can proceed any more. */
const quietTurns = 6;

/**
 * Everything is scripted and in memory. One turn of the event loop runs what microtasks left over, and the runtime's own
 * leftovers take one more each: how many depends on how fast the machine is.
 */
async function settle(world) {
  let last;
  for (let quiet = 0; quiet < quietTurns; quiet += 1) {
    await new Promise((resolve) => setImmediate(resolve));
    const now = progress(world);
    if (now !== last) quiet = 0;
    last = now;
  }
}

function progress({ recorder, settled, errors, gates }) {
  const counts = recorder.agents.map(({ lives, notices, requests, runs }) => [lives.at(-1).length, notices.length, requests.length, runs.length]);
  return JSON.stringify([counts, settled.length, errors.length, gates.held]);
}

export async function runScenario(scenario) {
  const world = new World(scenario);
  world.beginLifetime();
  const marks = [];
  for (const spec of world.scenario.agents.filter(({ create }) => create !== false)) {
    const opened = world.openDeclared(spec).catch((error) => world.failed(`create ${spec.id}`, error));
    await settle(world);
    await opened;
  }
  marks.push(mark(world, {}));
  for (const [index, action] of world.scenario.steps.entries()) {
    const place = `step ${index}`;
    let done;
    try {
      if (action.act === 'resume') done = await resume(world, action, settle);
      else if (action.act === 'elapse') done = (await elapse(world, action)) ?? {};
      else done = perform(world, action, place);
    } catch (error) {
      world.failed(place, error);
      done = { failed: true };
    }
    await settle(world);
    if (done.awaited !== undefined) {
      const { isSettled, error = isSettled ? undefined : new Error('the operation did not settle within its step') } = done.awaited;
      if (error !== undefined) {
        world.failed(place, error);
        done = { failed: true };
      }
    }
    marks.push(mark(world, done));
  }
  const result = describe(world, marks);
  world.ctx.abandon();
  const problems = [...world.problems];
  if (world.leftResponses > 0) problems.push(`${world.leftResponses} scripted responses were not asked for`);
  return { result, problems };
}

function mark(world, { returned, failed }) {
  const agents = {};
  for (const { id, lives, notices, requests } of world.recorder.agents) {
    const { events, status } = lives.at(-1).state;
    agents[id] = { log: events.length, notices: notices.length, requests: requests.length, status };
  }
  const made = { agents };
  const { held } = world.gates;
  if (held.length > 0) made.blocked = held;
  const settled = world.settled.splice(0);
  if (settled.length > 0) made.settled = Object.fromEntries(settled);
  if (returned !== undefined) made.returned = returned;
  if (failed) made.failed = true;
  return made;
}

function describe(world, steps) {
  const agents = {};
  for (const record of world.recorder.agents) agents[record.id] = describeAgent(world, record);
  return JSON.parse(JSON.stringify({ live: world.ctx.agents.ids, agents, errors: world.errors, steps }));
}

function describeAgent(world, record) {
  const { lives, notices, requests, runs } = record;
  const { status, events, header: given, history, consumedWork, pending } = lives.at(-1).state;
  const names = new Names(world, record);
  const { createdAt: _, ...header } = given;
  const log = events.map(({ seq: _, time: __, ...event }) => names.clean(event));
  const carriers = new Carriers(names, events);
  const described = {
    status,
    header,
    pending: names.clean(pending),
    work: consumedWork,
    history: history.map((message) => carriers.reference(message)),
    log,
    notices: notices.map((notice) => names.clean(notice)),
    requests: requests.map((request) => describeRequest(world, names, request)),
  };
  if (runs.length > 0) described.tools = runs;
  return described;
}

function describeRequest(world, names, { life, config, system, tools, messages, initiator }) {
  const described = {};
  if (initiator !== undefined && world.records('initiator')) described.initiator = initiator;
  described.config = config;
  if (system !== undefined) described.system = system;
  const declared = world.tools.map(({ name, description = '', parameters = { type: 'object', properties: {} } }) => sorted({ name, description, parameters }));
  if (tools?.length > 0) described.tools = tools.map((tool) => (declared.includes(sorted(tool)) ? tool.name : tool));
  const clean = names.clean(described);
  const carriers = new Carriers(names, life.events);
  clean.messages = messages.map((message) => carriers.reference(message));
  return clean;
}

function sorted(value) {
  return JSON.stringify(value, (_, member) => {
    const isObject = member !== null && typeof member === 'object' && !Array.isArray(member);
    return isObject ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1))) : member;
  });
}

/** The messages that an event carries. */
function carried({ type, data }) {
  if (type === 'agent/inbox/spliced') return data.inserted ?? [];
  if (type === 'user/message') return [data];
  return ['assistant/message', 'tool/result'].includes(type) ? [data.message] : [];
}

/** What generated message ids are called: ids that the scenario's file does not have. */
class Names {
  #names = new Map();

  constructor(world, { lives }) {
    const text = JSON.stringify(world.scenario);
    for (const { events } of [...lives].reverse()) {
      for (const event of events) {
        for (const { id } of carried(event)) {
          const isGenerated = /^[0-9a-f]{8}-/.test(id) && !text.includes(id);
          if (isGenerated && !this.#names.has(id)) this.#names.set(id, `@${event.seq}`);
        }
      }
    }
  }

  /** Replaces generated ids and the implementation's own texts. */
  clean(value) {
    if (typeof value === 'string') return this.#names.get(value) ?? (isUuid(value) ? '@?' : resolveText(value));
    if (Array.isArray(value)) return value.map((item) => this.clean(item));
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, this.clean(member)]));
  }
}

function isUuid(text) {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/.test(text);
}

const keys = [
  'TOOL_ABORTED_BEFORE_DISPATCH',
  'TOOL_ABORTED',
  'TOOL_NOT_STARTED',
  'TOOL_OUTCOME_UNKNOWN',
  'UNKNOWN_TOOL',
  'INVALID_ARGS',
  'CONTEXT_SNAPSHOT',
  'CONTEXT_CLEARED',
  'HARNESS_IDENTITY',
];

function resolveText(text) {
  const key = keys.find((key) => text.startsWith(texts[key]));
  return key === undefined ? text : `$text:${key}${text.slice(texts[key].length)}`;
}

/** The first message of each id in a log. */
class Carriers {
  #names;
  #first = new Map();

  constructor(names, events) {
    this.#names = names;
    for (const event of events) {
      for (const message of carried(event)) {
        if (!this.#first.has(message.id)) this.#first.set(message.id, sorted(names.clean(message)));
      }
    }
  }

  /** The id of a message that the log carries unchanged, or the message. */
  reference(message) {
    const full = this.#names.clean(message);
    return this.#first.get(message.id) === sorted(full) ? full.id : full;
  }
}
