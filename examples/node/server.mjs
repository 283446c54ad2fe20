// An agent behind HTTP. `POST /messages` queues a prompt; `GET /events` streams the session's events as server-sent
// events, whose ids are seqs: a browser that lost its connection goes on where it was (Last-Event-ID). `GET /` is a page
// that shows it. Usage: server.mjs [store] [port]

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Context, openAIChat, repeated } from 'turnwheel';

const [store = 'sessions', port = '8080'] = process.argv.slice(2);
const { TURNWHEEL_BASE_URL: baseUrl, TURNWHEEL_API_KEY: apiKey, TURNWHEEL_MODEL: model = 'default' } = process.env;
const ctx = new Context({ store });
ctx.llm.register('llm', baseUrl ? openAIChat({ baseUrl, apiKey }) : repeated({ text: 'Every word of this comes on its own.', chunkSize: 5, delayMs: 30 }));
const agent = await ctx.agent('served', { provider: 'llm', model });
const closing = new AbortController();

/** Sends what the log has from `from` on, and then what comes, as long as somebody reads. */
async function stream(response, from, signal) {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  response.flushHeaders();
  for await (const { seq, type, json } of agent.session.follow({ from, signal })) {
    const isWritten = response.write(`id: ${seq}\nevent: ${type}\ndata: ${json}\n\n`);
    // A slow reader holds back its own stream only: the log keeps what it has not read.
    if (!isWritten) await new Promise((resolve) => response.once('drain', resolve).once('close', resolve));
  }
  response.end();
}

async function answer(request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  if (request.method === 'GET' && pathname === '/') {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    return response.end(await readFile(new URL('page.html', import.meta.url)));
  }
  if (request.method === 'GET' && pathname === '/events') {
    const last = request.headers['last-event-id'] ?? searchParams.get('after');
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    return stream(response, last === null ? 0 : Number(last) + 1, AbortSignal.any([gone.signal, closing.signal]));
  }
  if (request.method === 'POST' && pathname === '/messages') {
    const text = Buffer.concat(await request.toArray()).toString();
    const { messageId } = agent.followup(text);
    response.writeHead(202, { 'content-type': 'application/json' });
    return response.end(JSON.stringify({ messageId }));
  }
  if (request.method === 'POST' && pathname === '/cancel') {
    agent.cancel();
    return response.writeHead(204).end();
  }
  return response.writeHead(404).end();
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => {
    if (response.headersSent) return response.end();
    return response.writeHead(error.code === 'INVALID_MESSAGE' ? 400 : 500).end(`${error.code ?? 'ERROR'}: ${error.message}\n`);
  });
});
server.listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`));

process.once('SIGTERM', async () => {
  closing.abort();
  server.close();
  await ctx.close();
  server.closeAllConnections();
});
