// The model and tool doubles (SCENARIO.md sections 4 and 5).

import { ToolResult } from 'turnwheel';
import { errorOf, message, withSurrogates } from './world.mjs';

/** Plays the scripted responses of whichever agent asks. */
export function modelDouble(world) {
  const { lifetime } = world;
  return (request, options) => {
    world.recorder.request(request);
    const response = world.nextResponse(request.sessionId);
    if (response === undefined) {
      if (world.lifetime === lifetime) world.problems.push(`the script of ${request.sessionId} has no response left`);
      throw new Error('the script has no response left');
    }
    return play(world, response, options);
  };
}

async function* play(world, response, options) {
  const chunks = withSurrogates(expand(response));
  const hold = (position) => {
    const gate = response.gates?.[position];
    return gate === undefined ? undefined : world.gates.hold(gate, options.signal, response.onAbort ?? 'fail');
  };
  for (const [position, chunk] of chunks.entries()) {
    await hold(position);
    yield chunk;
  }
  await hold(chunks.length);
  if (response.throw !== undefined) throw errorOf(response.throw);
}

/** The chunks that a response stands for. */
function expand(response) {
  if (response.chunks !== undefined) return response.chunks;
  const blocks = [];
  const { reasoning, text, calls = [], error, aborted, usage, replayState } = response;
  if (reasoning !== undefined) blocks.push(['reasoning', { text: reasoning }, { type: 'reasoning', text: reasoning }]);
  if (text !== undefined) blocks.push(['text', { text }, { type: 'text', text }]);
  for (const { id, name, arguments: given = '{}' } of calls) {
    blocks.push(['tool-call', { id, name, argumentsDelta: given }, { type: 'tool-call', id, name, arguments: given }]);
  }
  const isBroken = error !== undefined || aborted !== undefined || response.throw !== undefined;
  const chunks = blocks.flatMap(([kind, members, block], index) => [
    { type: 'block-start', index, blockType: kind },
    { type: `${kind}-delta`, index, ...members },
    ...(isBroken && index + 1 === blocks.length ? [] : [{ type: 'block-end', index, block }]),
  ]);
  if (usage !== undefined) chunks.push({ type: 'usage', usage });
  const reason = finish(response, calls);
  if (reason !== undefined) chunks.push({ type: 'finish', reason, ...(replayState === undefined ? {} : { replayState }) });
  return chunks;
}

function finish(response, calls) {
  if (response.throw !== undefined) return undefined;
  if (response.error !== undefined) return { kind: 'error', failure: response.error };
  if (response.aborted !== undefined) return { kind: 'aborted', failure: response.aborted };
  if (response.finish === null) return undefined;
  return { kind: response.finish ?? (calls.length === 0 ? 'stop' : 'tool-calls') };
}

/** The tool that a declaration stands for. */
export function toolDouble(world, spec) {
  const { name, description = '', parameters, validate, parallel, timeoutMs } = spec;
  const overlaps = typeof parallel === 'object' ? (args) => args?.[parallel.argument] === parallel.equals : parallel;
  return { name, description, parameters, checked: validate === true, parallel: overlaps, timeoutMs, execute: (_, call) => run(world, spec, call) };
}

async function run(world, spec, call) {
  const own = { ...spec, ...spec.calls?.[call.callId] };
  world.recorder.run(call);
  world.performBatch(own.actions, `tool ${call.callId}`);
  let aborted;
  if (own.gate !== undefined) {
    await world.gates.hold(own.gate, call.signal, own.onAbort ?? 'ignore').catch((error) => (aborted = error));
  }
  // Contexts and the mark come before a throw, too.
  for (const context of own.contexts ?? []) call.deferContext(message(context));
  if (own.concludesTurn) call.concludeTurn();
  if (aborted !== undefined) throw aborted;
  const result = typeof own.result === 'string' ? { text: own.result } : (own.result ?? {});
  if (result.error !== undefined) throw errorOf(result.error);
  return new ToolResult({ content: withSurrogates(result.content ?? [{ type: 'text', text: result.text ?? '' }]), meta: own.meta });
}
