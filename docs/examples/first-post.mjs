// A first post and a first query: node docs/examples/first-post.mjs [ws://127.0.0.1:7447]
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay';
import WebSocket from 'ws';

useWebSocketImplementation(WebSocket); // Node 20 has none of its own

const relay = await Relay.connect(process.argv[2] ?? 'ws://127.0.0.1:7447');
const topic = 'kukuri:global';

// The post: an ordinary note with a `t` tag that names its topic.
const note = finalizeEvent(
  { kind: 1, created_at: Math.floor(Date.now() / 1000), tags: [['t', topic]], content: 'Hello, harbour!' },
  generateSecretKey(),
);
await relay.publish(note); // resolves after the event is on disk
console.log('posted', note.id);

// The query: the ten newest notes of the topic, then it stays open for new ones.
const subscription = relay.subscribe([{ '#t': [topic], kinds: [1], limit: 10 }], {
  onevent: (event) => console.log(`${event.id.slice(0, 8)}  ${event.content}`),
  oneose: () => {
    subscription.close();
    relay.close();
  },
});
