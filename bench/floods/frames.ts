/** Floods of frames that are neither a query nor an event, or that never become complete. */
import { randomBytes } from 'node:crypto';
import { clientFrame, type Flood, message, nowSeconds, OPCODE, roundRobin, sockets } from './flood.js';

/** Its ratio is 1 in truth: it shows how far a ratio of this machine can be trusted. */
const nothing: Flood = {
  name: 'nothing',
  title: 'no flood: six sockets that send nothing',
  cause: 'Chance: there is nothing to wait for.',
  sockets: 6,
  perSecond: 1,
  prepare: () => roundRobin([Buffer.alloc(0)]),
};

const PINGS_IN_A_WRITE = 2_000;

const pings: Flood = {
  name: 'pings',
  title: 'empty pings, 200,000/s',
  cause: 'The headers of all frames of a read, some ten thousand, are walked in one step.',
  sockets: 3,
  perSecond: 100,
  prepare: () => roundRobin([Buffer.concat(Array(PINGS_IN_A_WRITE).fill(clientFrame('', OPCODE.ping)))]),
};

const FRAGMENTS_IN_A_WRITE = 500;

/** A socket of `ws` holds up to 16,384 fragments. These messages never end. */
const fragments: Flood = {
  name: 'fragments',
  title: (count) => `fragments of messages that never end, ${sockets(count)}`,
  cause: 'A connection costs some tenths of a millisecond when it is opened, and again when it is closed.',
  addresses: 24,
  sockets: 2_400,
  perSecond: 3_000,
  prepare: () => {
    const open = clientFrame('[', OPCODE.text, false);
    const piece = clientFrame('"', OPCODE.continuation, false);
    const pieces = Buffer.concat(Array(FRAGMENTS_IN_A_WRITE).fill(piece));
    return { first: () => open, next: () => pieces };
  },
};

const DEEP = 60_000;

const deepJson: Flood = {
  name: 'deep-json',
  title: 'JSON nested 60,000 deep, 120 kB, 100/s',
  cause: 'A frame of 120 kB is unmasked and scanned in one step before it is refused.',
  sockets: 3,
  perSecond: 100,
  prepare: () => roundRobin([clientFrame(`["REQ","deep",${'['.repeat(DEEP)}${']'.repeat(DEEP)}]`)]),
};

const malformed: Flood = {
  name: 'malformed',
  title: 'malformed frames, 5,000/s',
  cause:
    'Each is unmasked, parsed and answered by the event loop until its connection is closed, ' +
    'after 100 of an address; then the address connects again, twice.',
  sockets: 6,
  perSecond: 5_000,
  prepare: () =>
    roundRobin(
      [
        'hello',
        '["EVENT"',
        '["EVENT",{}]',
        '["REQ"]',
        '["REQ","x",{"kinds":"all"}]',
        '{"a":1}',
        '["NONSENSE",1]',
        `["EVENT",{"id":"${'0'.repeat(64)}","kind":-1}]`,
      ].map((text) => clientFrame(text)),
    ),
};

/** A query for private events makes the node send its challenge. */
const PRIVATE_QUERY = message(['REQ', 'mine', { kinds: [4], limit: 1 }]);
const KEYS_PER_SOCKET = 20;

/** Valid, but with a new key each time. Beyond the keys that a socket may have, the signature is wrong. */
const auth: Flood = {
  name: 'auth',
  title: 'AUTH with new keys, 300/s',
  cause:
    'Each AUTH costs a signature check in a thread and a query for rights, ' +
    'up to 100 a second from an address.',
  sockets: 30,
  perSecond: 300,
  prepare: ({ sign, nodePort }) => ({
    first: () => PRIVATE_QUERY,
    next: (_, { challenge, sent }) => {
      const tags = [
        ['relay', `ws://127.0.0.1:${nodePort}/`],
        ['challenge', challenge],
      ];
      const event = sign({ created_at: nowSeconds(), kind: 22_242, tags, content: '' }, randomBytes(32));
      const sig = sent < KEYS_PER_SOCKET ? event.sig : randomBytes(64).toString('hex');
      return message(['AUTH', { ...event, sig }]);
    },
  }),
};

const IDLE_OF_EIGHT = 5;
/** In groups of a hundred sockets, so that each address has both. */
const isIdle = (number: number): boolean => Math.floor(number / 100) % 8 < IDLE_OF_EIGHT;
const idleOf = (count: number): number =>
  Array.from({ length: count }, (_, number) => number).filter(isIdle).length;

/** Five of eight sockets send nothing; the others send single bytes of a frame that is never complete. */
const idle: Flood = {
  name: 'idle',
  title: (count) =>
    `${idleOf(count).toLocaleString('en')} idle sockets and ` +
    `${(count - idleOf(count)).toLocaleString('en')} slow ones`,
  cause: 'A connection costs some tenths of a millisecond of the event loop when it is opened.',
  addresses: 80,
  sockets: 8_000,
  perSecond: 2_000,
  prepare: () => {
    const head = clientFrame(Buffer.alloc(60_000, ' ')).subarray(0, 8);
    const byte = Buffer.from(' ');
    const nothing = Buffer.alloc(0);
    return {
      first: ({ number }) => (isIdle(number) ? nothing : head),
      next: (_, { number }) => (isIdle(number) ? nothing : byte),
    };
  },
};

export const FRAME_FLOODS: readonly Flood[] = [nothing, malformed, deepJson, pings, fragments, auth, idle];
