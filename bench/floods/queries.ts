/** Floods of queries: many, wide, counted, searched, and never read. */
import { randomBytes } from 'node:crypto';
import { type Flood, type Material, message, prepared, sockets } from './flood.js';

const WIDE_AUTHORS = 900;
const KNOWN_AUTHORS = 100;
const COUNT_FILTERS = 10;
const ROWS_MAX = 5_000;

const storm: Flood = {
  name: 'req-storm',
  title: 'small REQs, 2,000/s',
  cause: 'An address may send 500 small queries in a burst; they run beside the queries of others.',
  sockets: 6,
  perSecond: 2_000,
  prepare: ({ stored, variants }) =>
    prepared(variants, (number) =>
      message(['REQ', `storm-${number % 20}`, { authors: [authorOf(stored, number), nobody()], limit: 20 }]),
    ),
};

const wide: Flood = {
  name: 'wide-filters',
  title: 'REQs of 900 authors, 60 kB, 60/s',
  cause:
    'Each is parsed in one step of about 1 ms, and brings up to 500 events through the event loop ' +
    'in turns, until its address is in debt.',
  sockets: 6,
  perSecond: 60,
  prepare: ({ stored }) =>
    prepared(100, (number) =>
      message(['REQ', `wide-${number % 20}`, { authors: manyAuthors(stored), kinds: [1, 6, 7], limit: 500 }]),
    ),
};

const oneNetwork: Flood = {
  ...wide,
  name: 'one-network',
  title: 'the same from 60 addresses of one IPv6 /48',
  addresses: 60,
  oneNetwork: true,
  sockets: 60,
};

const count: Flood = {
  name: 'count',
  title: 'COUNTs of 10 × 900 values, 600 kB, 15/s',
  cause: 'A frame of 600 kB is unmasked and parsed in one step.',
  sockets: 6,
  perSecond: 15,
  prepare: ({ stored }) =>
    prepared(20, (number) =>
      message([
        'COUNT',
        `count-${number}`,
        ...Array.from({ length: COUNT_FILTERS }, (_, place) => ({
          authors: manyAuthors(stored),
          kinds: [1, 6, 7, 40_000 + place],
        })),
      ]),
    ),
};

const search: Flood = {
  name: 'search',
  title: 'searches of two common words, 300/s',
  cause:
    'A search takes tens of milliseconds of a core. ' +
    'Its process has a low priority, but the caches of the database are shared.',
  sockets: 6,
  perSecond: 300,
  prepare: ({ stored, variants }) =>
    prepared(variants, (number) => {
      const words = stored[number % stored.length]!.content.split(' ');
      const text = `${words[number % words.length]} ${words[(number + 3) % words.length]}`;
      return message(['REQ', `search-${number % 20}`, { search: text, kinds: [1], limit: 100 }]);
    }),
};

/** Each socket requests far more than a socket's buffers hold. */
const unread: Flood = {
  name: 'unread-sockets',
  title: (count) => `answers that are never read, ${sockets(count)}`,
  cause:
    'The first megabytes of 300 answers are looked up and copied to the buffers of the system, ' +
    'in one turn of each pass of the event loop once their addresses are greedy.',
  sockets: 300,
  perSecond: 150,
  unread: true,
  prepare: ({ variants }) =>
    prepared(variants, (number) =>
      message(['REQ', `unread-${number % 100}`, { kinds: [1, 40_000 + number], limit: ROWS_MAX }]),
    ),
};

/** Some of them have stored events, so that something is found. */
function manyAuthors(stored: Material['stored']): string[] {
  return Array.from({ length: WIDE_AUTHORS }, (_, place) =>
    place < KNOWN_AUTHORS ? authorOf(stored, place) : nobody(),
  );
}

const authorOf = (stored: Material['stored'], place: number): string => stored[place % stored.length]!.pubkey;
/** A value that no event has, so that no answer comes from the node's cache of filters. */
const nobody = (): string => randomBytes(32).toString('hex');

export const QUERY_FLOODS: readonly Flood[] = [storm, wide, oneNetwork, count, search, unread];
