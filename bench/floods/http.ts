/** Floods over HTTP: slow bodies, unread answers, expensive documents, signed requests. */
import { randomBytes } from 'node:crypto';
import { type Flood, nowSeconds, request, sockets } from './flood.js';

const SLOW_BODY_BYTES = 100_000;
const SIGNED_PATH = '/v1/topic-subscriptions';

/** A body that arrives byte by byte and is never complete. */
const slow: Flood = {
  name: 'slow-http',
  title: (count) => `POST bodies that never end, ${sockets(count)}`,
  cause:
    'A connection costs some tenths of a millisecond of the event loop when it is opened, ' +
    'and again when it is closed to make room.',
  sockets: 1_200,
  perSecond: 400,
  http: true,
  prepare: () => {
    const byte = Buffer.from(' ');
    const headers = { 'Content-Type': 'application/json', 'Content-Length': String(SLOW_BODY_BYTES) };
    return {
      first: ({ address }) => request('POST', '/v1/auth/verify', address, headers),
      next: () => byte,
    };
  },
};

const unread: Flood = {
  name: 'unread-http',
  title: (count) => `downloads of /docs/yaml that are never read, ${sockets(count)}`,
  cause:
    'The buffers of the system take some megabytes of each socket, gigabytes in all. ' +
    'Copying them takes up to a millisecond of each pass of the event loop, and an answer takes several.',
  addresses: 15,
  sockets: 1_500,
  perSecond: 750,
  http: true,
  unread: true,
  prepare: () => ({ next: (_, { address }) => request('GET', '/docs/yaml', address) }),
};

const docs: Flood = {
  name: 'docs',
  title: 'GET /docs/json, 150/s',
  cause:
    'Each is some tenths of a millisecond of the event loop for the request, ' +
    'and 0.5 MB that the system copies to the attacker and the attacker reads.',
  sockets: 6,
  perSecond: 150,
  http: true,
  prepare: () => ({ next: (_, { address }) => request('GET', '/docs/json', address) }),
};

const nip98: Flood = {
  name: 'nip-98',
  title: 'signed requests (NIP-98) of new keys, 300/s',
  cause: 'Each is a signature in a thread and two statements in the database, up to the rate of members.',
  sockets: 12,
  perSecond: 300,
  http: true,
  prepare: ({ sign, nodePort }) => ({
    next: (_, { address }) => {
      const tags = [
        ['u', `http://127.0.0.1:${nodePort}${SIGNED_PATH}`],
        ['method', 'GET'],
      ];
      const event = sign({ created_at: nowSeconds(), kind: 27_235, tags, content: '' }, randomBytes(32));
      const credential = Buffer.from(JSON.stringify(event)).toString('base64');
      return request('GET', SIGNED_PATH, address, { Authorization: `Nostr ${credential}` });
    },
  }),
};

export const HTTP_FLOODS: readonly Flood[] = [docs, nip98, slow, unread];
