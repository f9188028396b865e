/**
 * The figures of past weeks for the node of the demo, so that its charts show something: what was stored
 * follows the story, the rest is invented. Pure.
 */
import {
  bucketOf,
  HOUR_MS,
  inSteps,
  MINUTE_MS,
  OUTCOMES,
  type Sample,
  TIME_BUCKETS,
} from '../overview/rules.js';
import type { Story } from './rules.js';
import type { Dice } from './rules-dice.js';
import { busyAt, DAY } from './rules-drafts.js';

/** As long as the overview keeps them. */
const HOURS_DAYS = 30;
const MINUTES_DAYS = 1;
const MEASURED_MS = 10 * MINUTE_MS;
const CONSUMERS = ['moderation', 'search', 'trust'] as const;

/** What is there at the end. */
export interface Now {
  readonly events: number;
  readonly bytes: number;
  readonly databaseBytes: number;
}

export interface History {
  readonly minutes: readonly Sample[];
  readonly hours: readonly Sample[];
  readonly sizes: readonly { readonly at: number; readonly events: number; readonly bytes: number }[];
}

export function makeHistory(dice: Dice, story: Pick<Story, 'drafts' | 'people' | 'span'>, now: Now): History {
  const { start, end } = story.span;
  const until = Math.floor((end * 1_000) / MINUTE_MS) * MINUTE_MS;
  const since = Math.ceil((Math.max(start, end - HOURS_DAYS * DAY) * 1_000) / HOUR_MS) * HOUR_MS;
  const shareAt = shareOf(story);
  const stored = new Map<number, number>();
  for (const { created_at } of story.drafts) {
    const minute = Math.floor(created_at / 60) * MINUTE_MS;
    stored.set(minute, (stored.get(minute) ?? 0) + 1);
  }
  const minutes: Sample[] = [];
  for (let at = since; at < until; at += MINUTE_MS)
    minutes.push({
      ...minuteAt(dice, busyAt(at / 1_000), stored.get(at) ?? 0, story.people.length),
      at,
      databaseBytes:
        at % MEASURED_MS === 0 ? Math.round(now.databaseBytes * (0.6 + 0.4 * shareAt(at))) : null,
      diskFreeBytes: null,
    });
  const hours = inSteps(minutes, HOUR_MS).filter(({ at }) => at + HOUR_MS <= until);
  return {
    minutes: minutes.filter(({ at }) => at >= until - MINUTES_DAYS * DAY * 1_000),
    hours,
    sizes: hours.map(({ at }) => ({
      at,
      events: Math.round(now.events * shareAt(at)),
      bytes: Math.round(now.bytes * shareAt(at)),
    })),
  };
}

/** The share of all events that was written until then, in milliseconds. */
function shareOf({ drafts }: Pick<Story, 'drafts'>): (at: number) => number {
  let place = 0;
  return (at) => {
    if (place > 0 && drafts[place - 1]!.created_at * 1_000 > at) place = 0;
    while (place < drafts.length && drafts[place]!.created_at * 1_000 <= at) place += 1;
    return place / drafts.length;
  };
}

type Minute = Omit<Sample, 'at' | 'databaseBytes' | 'diskFreeBytes'>;

/** `busy` is from 0 to 1. */
function minuteAt(dice: Dice, busy: number, stored: number, people: number): Minute {
  const some = (most: number) => Math.floor(dice.next() * (most + 1));
  const outcomes = {
    stored,
    // Clients that show who is typing.
    broadcast: Math.round(busy * people * (0.3 + dice.next())),
    duplicate: some(busy * 6),
    invalid: dice.chance(0.02) ? 1 + some(2) : 0,
    blocked: dice.chance(0.01) ? 1 + some(8) : 0,
    'rate-limited': dice.chance(0.004) ? 5 + some(30) : 0,
  };
  const okTimes = new Array<number>(TIME_BUCKETS).fill(0);
  for (let event = outcomes.stored + outcomes.broadcast; event > 0; event -= 1) {
    const isSlow = dice.chance(0.02);
    okTimes[bucketOf(isSlow ? 12 + 30 * dice.next() : 2 + 4 * dice.next() * dice.next())]! += 1;
  }
  return {
    outcomes: OUTCOMES.map((outcome) => (outcomes as Partial<Record<string, number>>)[outcome] ?? 0),
    okTimes,
    connections: 2 + Math.round(busy * people * 0.6) + some(2),
    laneDepth: stored + (outcomes.duplicate > 2 ? some(3) : 0),
    lagSeconds: Object.fromEntries(
      CONSUMERS.map((name) => [
        name,
        dice.chance(0.0003) ? 4 + some(8) : Number((0.1 + 0.9 * dice.next()).toFixed(2)),
      ]),
    ),
  };
}
