// One scenario in the making: its gates, texts, scripts, and the composition of the current lifetime.

import { Context } from 'turnwheel';
import { perform } from './actions.mjs';
import { StoreDouble } from './additions.mjs';
import { modelDouble, toolDouble } from './doubles.mjs';
import { registerListener } from './listeners.mjs';
import { Recorder, registerRecorder } from './record.mjs';

/** The gates of a scenario. An open gate stays open, also for later lifetimes. */
class Gates {
  #open = new Set();
  #holders = new Set();

  open(gate) {
    this.#open.add(gate);
    for (const holder of [...this.#holders]) if (holder.gate === gate) holder.release();
  }

  get held() {
    return [...new Set([...this.#holders].map((holder) => holder.gate))].sort();
  }

  forgetHolders() {
    this.#holders.clear();
  }

  /** Holds until the gate opens, or until the signal fires when that ends the hold. */
  hold(gate, signal, onAbort) {
    if (this.#open.has(gate)) return Promise.resolve();
    const watched = onAbort === 'ignore' ? undefined : signal;
    return new Promise((resolve, reject) => {
      const end = (settle) => {
        this.#holders.delete(holder);
        watched?.removeEventListener('abort', aborted);
        settle();
      };
      const aborted = () => end(() => (onAbort === 'fail' ? reject(new Error(`aborted at gate ${gate}`)) : resolve()));
      const holder = { gate, release: () => end(resolve) };
      if (watched?.aborted) return aborted();
      this.#holders.add(holder);
      watched?.addEventListener('abort', aborted);
    });
  }
}

/** A value in whose texts each placeholder has become a lone surrogate (D-22). */
export function withSurrogates(value) {
  if (typeof value === 'string') return value.replaceAll('$lone-surrogate', '\ud800');
  if (Array.isArray(value)) return value.map(withSurrogates);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, withSurrogates(member)]));
}

/** A message in short form (section 3.1). */
export function message({ id, text = '', content, source }) {
  return { id, role: 'user', content: withSurrogates(content ?? [{ type: 'text', text }]), source: source ?? { kind: 'user' } };
}

/** An error to throw (section 3.5). */
export function errorOf(facts) {
  if (typeof facts === 'string') return new Error(facts);
  const { message: text, code, name, llm, status, providerRetryAfterMs } = facts;
  const error = new Error(text);
  if (llm) error.failure = { message: text, code: code ?? 'UNKNOWN', status, providerRetryAfterMs };
  else if (code !== undefined) Object.assign(error, { code, name: name ?? 'HarnessError' });
  return error;
}

export class World {
  gates = new Gates();
  recorder;
  errors = [];
  settled = [];
  problems = [];
  tools;
  selections = new Map();
  toolRegistrations = new Map();
  /** How many more events of a type are refused before they are committed. */
  refusals = new Map();
  /** Operations that are waited for, by name. */
  operations = new Map();
  store = new StoreDouble();
  lifetime = 0;
  ctx;
  #scripts;
  #texts = new Map();
  #counters;

  constructor(scenario) {
    this.scenario = { providers: [{ id: 'mock' }], prompt: {}, sections: [], contexts: [], variables: [], tools: [], agents: [{}], model: [], on: [], record: [], needs: [], eventTypes: [], loop: {}, ...scenario };
    this.scenario.agents = this.scenario.agents.map((agent) => ({ id: 'a1', ...agent }));
    this.defaultAgent = this.scenario.agents[0]?.id ?? 'a1';
    const { model } = this.scenario;
    this.#scripts = Array.isArray(model) ? { [this.defaultAgent]: [...model] } : structuredClone(model);
    this.#counters = this.scenario.on.map(() => 0);
    this.tools = [...this.scenario.tools];
    this.recorder = new Recorder(this);
    for (const [kind, list] of [['section', 'sections'], ['context', 'contexts'], ['variable', 'variables']]) {
      for (const { name, agent, text } of this.scenario[list]) this.#texts.set(textKey(kind, name, agent), { text });
    }
  }

  /** Begins a lifetime: a fresh composition. */
  beginLifetime() {
    this.lifetime += 1;
    this.toolRegistrations.clear();
    const { maxParallelToolCalls, turnBudget, turnTimeoutMs, durability, maxToolResultBytes } = this.scenario.loop;
    const budget = turnBudget && { steps: null, toolCalls: null, ...turnBudget };
    const storing = this.scenario.needs.includes('store') ? { store: this.store, durability } : {};
    this.ctx = new Context({ maxParallelToolCalls, turnBudget: budget, turnTimeoutMs, maxToolResultBytes, ...storing });
    const { ctx, scenario } = this;
    for (const provider of scenario.providers) {
      const models = {};
      for (const [name, { contextWindow, maxTokens, efforts, effort }] of Object.entries(provider.models ?? {})) {
        models[name] = { contextWindow, defaultMaxTokens: maxTokens, efforts, defaultEffort: effort };
      }
      ctx.llm.register(provider.id, modelDouble(this), { models });
    }
    registerRecorder(this, ctx);
    const { identity, persona, runtimeContext, toolOrder } = scenario.prompt;
    if (identity) ctx.identity();
    if (persona) ctx.persona(persona);
    if (runtimeContext === false) ctx.suppressContexts();
    if (toolOrder !== undefined) ctx.toolOrder(toolOrder);
    this.#registerInputs(ctx, undefined);
    this.#registerAdditions(ctx);
    for (const { type, version } of scenario.eventTypes) ctx.registerEventType(type, version);
    scenario.on.forEach((listener, index) => {
      if (listener.scope !== 'agent') registerListener(this, ctx, index);
    });
  }

  /** What the actions of section 13 need. */
  #registerAdditions(ctx) {
    const { needs } = this.scenario;
    if (needs.includes('event-checks')) {
      ctx.checkEvents(({ type }) => {
        const left = this.refusals.get(type) ?? 0;
        if (left === 0) return;
        this.refusals.set(type, left - 1);
        throw new Error(`${type} is refused`);
      });
    }
    if (needs.includes('config')) {
      ctx.on('agent-loop/config-start-failed', ({ sessionId, error }) => this.failed(`start ${sessionId}`, error));
    }
  }

  /** Abandons the lifetime and composes the next one. */
  nextLifetime() {
    this.recorder.freeze();
    this.ctx.abandon();
    this.gates.forgetHolders();
    this.beginLifetime();
  }

  #registerInputs(to, agent) {
    const own = (spec) => spec.agent === agent;
    const text = (kind, spec) => {
      const cell = this.text(kind, spec.name, spec.agent);
      return () => cell.text ?? undefined;
    };
    for (const spec of this.scenario.sections.filter(own)) to.section(spec.name, text('section', spec), { order: spec.order, complete: spec.complete });
    for (const spec of this.scenario.contexts.filter(own)) to.context(spec.name, text('context', spec), { order: spec.order });
    for (const spec of this.scenario.variables.filter(own)) to.variable(spec.name, text('variable', spec));
    for (const spec of this.scenario.tools.filter(own)) this.registerTool(to, spec);
  }

  registerTool(to, spec) {
    this.toolRegistrations.set(spec.name, to.tool(toolDouble(this, spec)));
  }

  /** An agent's own registrations, in the order of section 3.2. */
  #setUp(scope, spec) {
    if (Object.hasOwn(spec, 'select')) {
      const known = this.selections.get(spec.id);
      this.selections.set(spec.id, scope.modelSelection(known === undefined ? choice(spec.select) : known.current));
    }
    this.#registerInputs(scope, spec.id);
    this.scenario.on.forEach((listener, index) => {
      if (listener.scope === 'agent' && (listener.agent ?? this.defaultAgent) === spec.id) registerListener(this, scope, index);
    });
    if (spec.setup !== undefined) throw errorOf(spec.setup.throw);
  }

  /** Creates an agent, or resumes it from `log`. */
  open(spec, { options, seed, log, fork } = {}) {
    const owner = spec.owner === undefined ? this.ctx : this.agent(spec.owner);
    const { provider, model, maxTokens } = options ?? spec.options ?? { provider: 'mock', model: 'm1' };
    const { cwd, parentSession, seedLength, delegationDepth } = spec;
    const how = log === undefined ? { mode: 'create', seed, fork } : { mode: 'resume', log };
    const header = log === undefined ? { cwd, parentSession, seedLength, delegationDepth } : {};
    return owner.agent(spec.id, { provider, model, maxTokens, ...header, ...how, setup: (scope) => this.#setUp(scope, spec) });
  }

  /** Creates a declared agent, or resumes it from its declared log. */
  openDeclared(spec) {
    const { stored } = spec;
    const log = stored && { header: { version: 0, id: spec.id, createdAt: 1, ...stored.header }, events: events(stored.events) };
    return this.open(spec, { seed: spec.seed && events(spec.seed), log });
  }

  /** An agent of this lifetime, live or disposed. */
  agent(id) {
    const agent = this.ctx.agents.get(id) ?? this.recorder.agentOf(id, this.lifetime);
    if (agent === undefined) throw new Error(`there is no agent ${id}`);
    return agent;
  }

  declared(id) {
    return this.scenario.agents.find((agent) => agent.id === id);
  }

  text(kind, name, agent) {
    return this.#texts.get(textKey(kind, name, agent));
  }

  nextResponse(agent) {
    return this.#scripts[agent]?.shift();
  }

  get leftResponses() {
    return Object.values(this.#scripts).reduce((left, script) => left + script.length, 0);
  }

  /** Counts a matching dispatch of a listener; the first is 1. */
  count(index) {
    return (this.#counters[index] += 1);
  }

  records(what) {
    return this.scenario.record.includes(what);
  }

  failed(where, error) {
    const described = { where, ...describeError(error) };
    if (error.cause instanceof Error) described.cause = error.cause.message;
    this.errors.push(described);
  }

  performBatch(actions, place) {
    actions?.forEach((action, index) => perform(this, action, `${place}[${index}]`));
  }
}

function textKey(kind, name, agent) {
  return JSON.stringify([kind, name, agent]);
}

/** Message, and code where the error has one of its own: a plain error of host code has none. */
export function describeError(error) {
  const described = { message: error.message };
  const code = error.failure?.code ?? error.code;
  if (code !== undefined && code !== 'HOST_ERROR') described.code = code;
  return described;
}

/** A model choice; none without a provider. */
export function choice(declared) {
  const { provider, model = '', reasoningEffort } = declared ?? {};
  return provider === undefined || provider === null ? undefined : { provider, model, reasoningEffort };
}

/** Events in the short form of section 3.2. */
function events(list) {
  const surface = ['user/message', 'assistant/message', 'tool/result'];
  return list.map((event, seq) => {
    const placed = event.surfaceOp === undefined && surface.includes(event.type) ? { surfaceOp: 'append' } : {};
    return { seq, time: 1, ...placed, ...event };
  });
}
