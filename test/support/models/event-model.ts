/**
 * Random events with many collisions, for property tests of the store, and the naive model of what is served
 * after they have arrived in any order.
 */
import fc from 'fast-check';
import type { NostrEvent } from '../../../src/events/rules/event.js';
import { hash, unsigned } from '../stores/life.js';

export const SEED = 7447;
/** The clock of every run starts here, in seconds, shortly before the end of a month. */
export const START = Date.UTC(2026, 0, 28) / 1_000;

// ── Events: small pools, so that keys, times and ids collide ──────────────────────────────────

export const AUTHORS = ['alice', 'bob'].map(hash);
/** The only author who requests to vanish. */
export const CAROL = hash('carol');
export const EVERYBODY = [...AUTHORS, CAROL];
const TIME_MAX = 6;
const KINDS = {
  regular: [1, 1_059, 9_999, 65_535],
  replaceable: [0, 10_002],
  addressable: [30_000],
  ephemeral: [20_000, 29_999],
};
type Class = keyof typeof KINDS;
export const CLASS_OF = new Map<number, Class>([
  ...Object.entries(KINDS).flatMap(([name, kinds]) => kinds.map((kind) => [kind, name as Class] as const)),
  [5, 'regular'],
  [62, 'regular'],
]);
/** Colons, the empty value, a value that looks like another key, and one that PostgreSQL text cannot hold. */
export const D_VALUES = ['', 'a', 'a:b', ':', '\u0000', '🌊', 'x'.repeat(5_000)];

export interface Sent {
  /** 0, 1 or 2; each run has its own communities. In the last one deletion is physical. */
  readonly community: number;
  readonly event: NostrEvent;
  /** For a request to vanish. */
  readonly vanishIn?: readonly number[];
}
/** An event with the second of its arrival. */
export interface Arrived extends Sent {
  readonly clock: number;
}

/** `expiresIn` are the seconds after the start, or none. */
export const eventWith = (expiresIn: readonly (number | undefined)[]) =>
  fc
    .record({
      kind: fc.constantFrom(...Object.values(KINDS)).chain((kinds) => fc.constantFrom(...kinds)),
      pubkey: fc.constantFrom(...AUTHORS, ...AUTHORS, CAROL),
      recipients: fc.subarray(EVERYBODY),
      created_at: fc.integer({ min: 0, max: TIME_MAX }),
      d: fc.oneof(fc.constantFrom('', 'a'), fc.constantFrom(...D_VALUES)),
      topic: fc.constantFrom('sea', 'wind'),
      expiresIn: fc.constantFrom(...expiresIn),
      nonce: fc.integer({ min: 0, max: 20 }),
    })
    .map(({ kind, pubkey, created_at, d, topic, expiresIn, recipients, nonce }): NostrEvent => {
      const tags = [
        ['t', topic],
        ...(CLASS_OF.get(kind) === 'addressable' ? [['d', d]] : []),
        ...(kind === 1_059 ? recipients.map((one) => ['p', one]) : []),
        ...(expiresIn === undefined ? [] : [['expiration', `${START + expiresIn}`]]),
      ];
      return unsigned({ kind, pubkey, created_at, tags, content: `${nonce}` });
    });
export const sentOf = (event: fc.Arbitrary<NostrEvent>): fc.Arbitrary<Sent> =>
  fc.record({ community: fc.constantFrom(0, 0, 0, 1, 2, 2), event });

/**
 * A deletion request for events of the list, by id and by address, by the author and by others, and for some
 * that never arrive.
 */
export function requestFor(list: readonly Sent[]): fc.Arbitrary<Sent> {
  return fc
    .record({
      named: fc.array(fc.record({ one: fc.constantFrom(...list), byAddress: fc.boolean() }), {
        minLength: 1,
        maxLength: 6,
        size: 'max',
      }),
      requester: fc.constantFrom(undefined, undefined, ...EVERYBODY),
      elsewhere: fc.constantFrom(undefined, undefined, undefined, 0, 1, 2),
      created_at: fc.integer({ min: 0, max: TIME_MAX }),
    })
    .map(({ named, requester, elsewhere, created_at }) => {
      const pubkey = requester ?? named[0]!.one.event.pubkey;
      const tags = named.map(({ one: { event }, byAddress }) =>
        byAddress ? ['a', addressOf(event) ?? `1:${event.pubkey}:`] : ['e', event.id],
      );
      const extra = [
        ['e', hash('never sent')],
        ['e', 'malformed'],
        ['k', '1'],
      ];
      const event = unsigned({ kind: 5, pubkey, created_at, tags: [...tags, ...extra], content: '' });
      return { community: elsewhere ?? named[0]!.one.community, event };
    });
}

export const vanishing: fc.Arbitrary<Sent> = fc
  .record({
    community: fc.constantFrom(0, 1, 2),
    created_at: fc.integer({ min: 0, max: TIME_MAX }),
    everywhere: fc.boolean(),
  })
  .map(({ community, created_at, everywhere }) => ({
    community,
    event: unsigned({
      kind: 62,
      pubkey: CAROL,
      created_at,
      tags: everywhere ? [['relay', 'ALL_RELAYS']] : [],
      content: '',
    }),
    vanishIn: everywhere ? [0, 1, 2] : [community],
  }));

/**
 * Events, deletion requests and sometimes requests to vanish, most of them more than once, in a random order.
 */
export const shuffled = (sent: fc.Arbitrary<Sent>, max = 70): fc.Arbitrary<Sent[]> =>
  fc
    .array(sent, { minLength: 1, maxLength: max, size: 'max' })
    .chain((list) =>
      fc
        .tuple(
          fc.array(requestFor(list), { maxLength: 12, size: 'max' }),
          fc.oneof({ weight: 2, arbitrary: fc.constant([]) }, fc.array(vanishing, { maxLength: 2 })),
        )
        .map(([requests, vanishes]) => [...list, ...requests, ...vanishes]),
    )
    .chain((list) => fc.shuffledSubarray([...list, ...list], { minLength: list.length }));

// ── The model ──────────────────────────────────────────────────────────────────────────────────────────────

const tagOf = ({ tags }: NostrEvent, name: string) => tags.find((tag) => tag[0] === name)?.[1];

export function addressOf(event: NostrEvent): string | undefined {
  const name = CLASS_OF.get(event.kind);
  if (name !== 'replaceable' && name !== 'addressable') return undefined;
  return `${event.kind}:${event.pubkey}:${name === 'addressable' ? (tagOf(event, 'd') ?? '') : ''}`;
}

const isOwner = ({ kind, pubkey, tags }: NostrEvent, who: string) =>
  pubkey === who || (kind === 1_059 && tags.some(([name, value]) => name === 'p' && value === who));

export const isExpired = (event: NostrEvent, seconds: number) =>
  Number(tagOf(event, 'expiration') ?? Number.POSITIVE_INFINITY) <= seconds;

export function isDeleted({ community, event }: Sent, list: readonly Sent[]): boolean {
  if (event.kind === 5 || event.kind === 62) return false;
  return list.some(
    ({ community: where, event: request }) =>
      where === community &&
      request.kind === 5 &&
      request.tags.some(([name, value]) => {
        if (name === 'e') return value === event.id && isOwner(event, request.pubkey);
        const isAsked = name === 'a' && event.pubkey === request.pubkey && value === addressOf(event);
        return isAsked && event.created_at <= request.created_at;
      }),
  );
}

export function isVanished({ community, event }: Sent, list: readonly Sent[]): boolean {
  if (event.kind === 62 || !isOwner(event, CAROL)) return false;
  return list.some(
    ({ event: request, vanishIn }) => vanishIn?.includes(community) && event.created_at <= request.created_at,
  );
}

export const isNewer = (a: NostrEvent, b: NostrEvent) =>
  a.created_at > b.created_at || (a.created_at === b.created_at && a.id < b.id);

/**
 * What is served in a community after all of these have arrived: the newest version of each key that arrived
 * before its expiration, unless it is deleted, vanished or expired since. The order of the list does not
 * matter.
 */
export function modelView(
  list: readonly Arrived[],
  community: number,
  seconds: number,
): Map<string, NostrEvent> {
  const winners = new Map<string, Arrived>();
  for (const one of list) {
    const { event } = one;
    if (one.community !== community || event.kind === 62 || CLASS_OF.get(event.kind) === 'ephemeral')
      continue;
    if (isExpired(event, one.clock)) continue;
    const key = addressOf(event) ?? event.id;
    const best = winners.get(key);
    if (best === undefined || isNewer(event, best.event)) winners.set(key, one);
  }
  const served = [...winners.values()].filter(
    (one) => !isDeleted(one, list) && !isVanished(one, list) && !isExpired(one.event, seconds),
  );
  return new Map(served.map(({ event }) => [event.id, event]));
}
