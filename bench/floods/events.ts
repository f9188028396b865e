/** Floods of events: refused ones, and ones that are valid but heavy. */
import { randomBytes } from 'node:crypto';
import { type BenchEvent, hashEvent, type Unsigned } from '../sign.js';
import { type Flood, message, nowSeconds, prepared, roundRobin } from './flood.js';

const HEAVY_TAGS = 1_990;
const BIG_BYTES = 90_000;
const MARKS_BYTES = 94_000;

const invalid: Flood = {
  name: 'invalid-signatures',
  title: 'events with an invalid signature, 2,000/s',
  cause:
    'Each is parsed by the event loop and checked in a thread, which shares the cores with everybody; ' +
    'an address sends 100 of them before its first connection is closed.',
  sockets: 6,
  perSecond: 2_000,
  prepare: ({ variants }) =>
    prepared(variants, (number) => message(['EVENT', unsigned(note(`no signature ${number}`))])),
};

const duplicates: Flood = {
  name: 'duplicates',
  title: 'events that are stored already, 2,000/s',
  cause:
    'Each is parsed, compared with the events in memory and answered by the event loop, ' +
    '1,000 at once from an address before it reaches its rate limit.',
  sockets: 6,
  perSecond: 2_000,
  prepare: ({ stored }) => roundRobin(stored.map((event) => message(['EVENT', event]))),
};

const heavyTags: Flood = {
  name: 'heavy-tags',
  title: 'valid events of 1,990 tags, 40/s',
  cause:
    'The lane writes 1,990 rows of tags and as many totals of topics in one transaction of some 30 ms; ' +
    'a light event that comes meanwhile waits for it. Such transactions take a fiftieth of its time.',
  sockets: 6,
  perSecond: 40,
  prepare: ({ variants, sign }) =>
    prepared(Math.min(variants, 1_000), (number) => {
      const tags = Array.from({ length: HEAVY_TAGS }, (_, place) => ['t', `tag-${number}-${place}`]);
      return message(['EVENT', sign({ ...note('many tags'), tags }, randomBytes(32))]);
    }),
};

const bigContent: Flood = {
  name: 'big-content',
  title: 'valid events of 90 kB of words, 60/s',
  cause:
    'The lane writes two or three of them in one transaction, ' +
    'and their words are indexed in the process of the node, in steps of about half a millisecond.',
  sockets: 6,
  perSecond: 60,
  prepare: ({ stored, variants, sign }) => {
    const text = stored.map((event) => event.content).join(' ');
    return prepared(Math.min(variants, 500), (number) => {
      const words = cut(`${number} ${text}`, BIG_BYTES);
      return message(['EVENT', sign(note(words), randomBytes(32))]);
    });
  },
};

const combining: Flood = {
  name: 'combining-marks',
  title: 'unsigned events of 94 kB of combining marks, 20/s',
  cause: '94 kB are unmasked, parsed and sent to a thread: 1 ms in all.',
  sockets: 3,
  perSecond: 20,
  prepare: () =>
    prepared(20, (number) => {
      // Two marks of different classes, the later class first: a normaliser has to sort them.
      const marks = `a${'\u0301\u0316'.repeat(MARKS_BYTES / 4)}`;
      return message(['EVENT', unsigned(note(`${number}${marks}`))]);
    }),
};

const jsonContent: Flood = {
  name: 'json-content',
  title: 'unsigned events of 90 kB of JSON as content, 60/s',
  cause: '90 kB are unmasked, parsed and sent to a thread: half a millisecond in all.',
  sockets: 3,
  perSecond: 60,
  prepare: () =>
    prepared(50, (number) => {
      const fields = Array.from({ length: 2_200 }, (_, place) => [`key-${number}-${place}`, `text ${place}`]);
      return message(['EVENT', unsigned({ ...note(JSON.stringify(Object.fromEntries(fields))), kind: 0 })]);
    }),
};

function note(content: string): Unsigned {
  return { created_at: nowSeconds(), kind: 1, tags: [], content };
}

/** An event with a correct id by a new key, and an invalid signature. */
function unsigned(event: Unsigned): BenchEvent {
  const pubkey = randomBytes(32).toString('hex');
  const id = hashEvent(event, pubkey).toString('hex');
  return { id, pubkey, ...event, sig: randomBytes(64).toString('hex') };
}

/** Cuts the text between two characters, near this many bytes. */
function cut(text: string, bytes: number): string {
  return Buffer.from(text.repeat(Math.ceil(bytes / text.length)))
    .subarray(0, bytes)
    .toString()
    .replaceAll('\ufffd', '');
}

export const EVENT_FLOODS: readonly Flood[] = [
  invalid,
  duplicates,
  heavyTags,
  bigContent,
  combining,
  jsonContent,
];
