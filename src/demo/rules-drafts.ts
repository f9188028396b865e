/** Unsigned events of the demo with their ids, and when things happen. Pure: the clock is an input. */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import type { Dice } from './rules-dice.js';
import type { Person } from './rules-people.js';

export const HOUR = 3_600;
export const DAY = 24 * HOUR;

/** What an event of the demo is for. */
export const USES = [
  'profile',
  'follows',
  'post',
  'reply',
  'reaction',
  'repost',
  'article',
  'deletion',
  'expiring',
  'report',
  'reported',
  'held',
  'vanish',
] as const;
export type Use = (typeof USES)[number];

export interface Draft {
  readonly id: string;
  readonly use: Use;
  /** The place of its author. */
  readonly place: number;
  readonly pubkey: string;
  readonly created_at: number;
  readonly kind: number;
  readonly tags: string[][];
  readonly content: string;
}

/** A person with a key and the time of joining, in seconds. */
export interface Neighbour extends Person {
  readonly pubkey: string;
  readonly joinedAt: number;
  /** Nothing is written from then on. */
  readonly goneAt: number;
}

type Said = Pick<Draft, 'use' | 'created_at' | 'kind' | 'tags' | 'content'>;

export function draftOf({ place, pubkey }: Pick<Neighbour, 'place' | 'pubkey'>, said: Said): Draft {
  const { use, created_at, kind, tags, content } = said;
  const id = bytesToHex(sha256(utf8ToBytes(JSON.stringify([0, pubkey, created_at, kind, tags, content]))));
  return { id, use, place, pubkey, created_at, kind, tags, content };
}

/** The demo happens from `start` to `end`, in seconds. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

const TOKYO_SECONDS = 9 * HOUR;
/** How busy each hour of the day is, from midnight. */
const BUSY = [2, 1, 0.2, 0.2, 0.4, 2, 5, 7, 6, 5, 4, 5, 8, 6, 4, 4, 5, 7, 9, 10, 10, 9, 7, 4];
const BUSY_MAX = 10;
const TRIES_MAX = 20;

/** From 0 to 1, at a time in seconds. */
export const busyAt = (at: number): number =>
  BUSY[Math.floor(((at + TOKYO_SECONDS) % DAY) / HOUR)]! / BUSY_MAX;

/** A time within the span at which people of this town are awake. */
export function momentIn(dice: Dice, { start, end }: Span): number {
  let at = start;
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    at = dice.between(start, end);
    if (dice.chance(busyAt(at))) break;
  }
  return at;
}

/** The earlier in the list, the more often: some people talk more than others. */
export function talkative<T>(dice: Dice, list: readonly T[]): T {
  return list[Math.floor(dice.next() ** 1.7 * list.length)]!;
}
