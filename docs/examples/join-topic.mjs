// From a name to a post: node docs/examples/join-topic.mjs "Old Boats" [http://127.0.0.1:7447] Prints every
// request and its answer. The operator approves meanwhile: npx minato requests approve <request_id>
import { createHash } from 'node:crypto';
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay';
import WebSocket from 'ws';

const [name = 'Old Boats', node = 'http://127.0.0.1:7447'] = process.argv.slice(2);
const secret = generateSecretKey(); // an app asks the member's signer instead
const now = () => Math.floor(Date.now() / 1000);

/** One request, signed as NIP-98 says: its method, its address, and the hash of its body. */
async function api(method, path, body) {
  const url = node + path;
  const text = body === undefined ? undefined : JSON.stringify(body);
  const tags = [
    ['u', url],
    ['method', method],
  ];
  if (text !== undefined) tags.push(['payload', createHash('sha256').update(text).digest('hex')]);
  const signed = finalizeEvent({ kind: 27235, created_at: now(), tags, content: '' }, secret);
  const response = await fetch(url, {
    method,
    body: text,
    headers: {
      authorization: `Nostr ${Buffer.from(JSON.stringify(signed)).toString('base64')}`,
      ...(text === undefined ? {} : { 'content-type': 'application/json' }),
    },
  });
  const answer = await response.json();
  console.log(`\n${method} ${path}${text === undefined ? '' : `\n${text}`}\n→ ${response.status}`);
  console.log(JSON.stringify(answer, undefined, 2));
  // A refusal has a code for the program and a message for the person.
  if (!response.ok) throw new Error(`${answer.code}: ${answer.message}`);
  return answer;
}

// 1. The name becomes an id, the same on every node of this network.
const { topic_id } = await api('GET', `/v1/topics/resolve?name=${encodeURIComponent(name)}`);

// 2. Ask for the topic, and wait for the operator's decision.
let { request } = await api('POST', '/v1/topic-subscription-requests', {
  name,
  requested_services: ['index'],
});
while (request.status === 'pending') {
  await new Promise((resolve) => setTimeout(resolve, 2000));
  request = await api('GET', `/v1/topic-subscription-requests/${request.request_id}`);
}
if (request.status !== 'active') throw new Error(`${request.status}: ${request.review_note ?? 'no reason given'}`);

// 3. Post and read. The relay offers AUTH (NIP-42) at once; where it is required, nothing works before it.
useWebSocketImplementation(WebSocket); // Node 20 has none of its own
const relay = await Relay.connect(node.replace(/^http/, 'ws'));
relay.onauth = async (template) => finalizeEvent(template, secret);
const note = () =>
  finalizeEvent({ kind: 1, created_at: now(), tags: [['t', topic_id]], content: `Hello, ${name}!` }, secret);
for (let tries = 0; ; tries += 1) {
  try {
    await relay.publish(note());
    break;
  } catch (error) {
    // Every instance carries a new topic within a second.
    if (tries === 3 || !error.message.startsWith('restricted: topic not enabled')) throw error;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
await new Promise((resolve) => {
  relay.subscribe([{ '#t': [topic_id], limit: 10 }], {
    onevent: (event) => console.log(`\n${event.id.slice(0, 8)}  ${event.content}`),
    oneose: resolve,
  });
});

// 4. Pause, go on, and leave.
await api('POST', `/v1/topic-subscriptions/${topic_id}/pause`);
await api('POST', `/v1/topic-subscriptions/${topic_id}/resume`);
await api('GET', '/v1/topic-subscriptions');
await api('DELETE', `/v1/topic-subscriptions/${topic_id}`);
relay.close();
