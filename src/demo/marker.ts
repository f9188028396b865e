/**
 * The mark of the demo in a community: an addressable event (kind 30078) of the harbourmaster. It says how
 * the demo was made, so that the same command continues an interrupted run and changes nothing after a whole
 * one.
 */
import { z } from 'zod';
import type { NostrEvent } from '../events/rules/event.js';
import type { EventStore } from '../events/store.js';
import { type DemoKey, signDraft } from './keys.js';
import { EVENTS_MAX, WEEKS_MAX, WEEKS_MIN } from './rules.js';
import { MEMBERS_MAX, MEMBERS_MIN } from './rules-people.js';

const KIND_APP_DATA = 30_078;
const ADDRESS = 'minato-demo';
const FOUND_MAX = 10;

/** Whoever knows the seed can sign a mark, so its sizes are bounded like those of the command (I14). */
const markSchema = z.object({
  members: z.number().int().min(MEMBERS_MIN).max(MEMBERS_MAX),
  weeks: z.number().int().min(WEEKS_MIN).max(WEEKS_MAX),
  events: z.number().int().max(EVENTS_MAX),
  /** The end of the story, in seconds. */
  until: z.number().int().min(0),
  /** Everything is there. */
  done: z.boolean(),
});
export type Mark = z.output<typeof markSchema>;

export async function readMark(
  store: Pick<EventStore, 'find' | 'byIds'>,
  community: number,
  pubkey: string,
  now: number,
): Promise<Mark | undefined> {
  const filter = {
    ...{ kinds: new Set([KIND_APP_DATA]), authors: new Set([pubkey]) },
    tags: [{ name: 'd', values: new Set([ADDRESS]) }],
  };
  const found = await store.find({ community, filter, limit: FOUND_MAX, now }, 'light');
  const events = await store.byIds(found.map(({ id }) => ({ community, id })));
  for (const { payload } of events.values()) {
    const { content } = JSON.parse(payload) as NostrEvent;
    const mark = markIn(content);
    if (mark !== undefined) return mark;
  }
  return undefined;
}

function markIn(content: string): Mark | undefined {
  try {
    return markSchema.safeParse(JSON.parse(content)).data;
  } catch {
    return undefined;
  }
}

/** The one that says "done" is newer, and so replaces the first one. */
export function signMark(mark: Mark, host: DemoKey, topic: string): NostrEvent {
  return signDraft(
    {
      ...{ use: 'article', place: 0, pubkey: host.pubkey, kind: KIND_APP_DATA },
      created_at: mark.done ? mark.until : mark.until - 1,
      tags: [
        ['d', ADDRESS],
        ['t', topic],
      ],
      content: JSON.stringify(mark),
    },
    host,
  );
}
