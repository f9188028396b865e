/** Reads who is served one stored event: anybody, members, its author, and a key that is asked about. */
import type { Pool } from 'pg';
import type { Community } from '../communities/communities.js';
import type { Access } from '../events/rules/access.js';
import type { NostrEvent } from '../events/rules/event.js';
import { factKey } from '../events/rules/facts.js';
import { asKept } from '../events/rules/retention.js';
import type { StoredEvents } from '../events/stored-events.js';
import { heldAmong } from '../moderation/cases.sql.js';
import { hasAgreed } from '../policies/rules.js';
import { allTopics, asMatched } from '../topics/rules.js';
import { readRights, rightsKey } from '../topics/subscriptions.sql.js';
import { type State, stateOf } from './rules-finder.js';
import { accessAs, type Reader, type Unseen, unseenBy } from './rules-readers.js';

export interface SeenBy {
  readonly state: State;
  readonly topics: readonly string[];
  readonly readers: readonly {
    readonly reader: Reader;
    readonly pubkey?: string;
    readonly why: Unseen | undefined;
  }[];
}

/** Undefined if the event is not stored in this community. */
export async function readReaders(
  pool: Pool,
  events: StoredEvents,
  community: Community,
  id: string,
  asked: string | undefined,
  now: number,
): Promise<SeenBy | undefined> {
  const ref = { community: community.id, id };
  const row = (await events.byIds(pool, [ref])).get(factKey(community.id, id));
  if (row === undefined) return undefined;
  const event = JSON.parse(row.payload) as NostrEvent;
  const isHeld = row.hidden === 'removed' && (await heldAmong(pool, community.id, [id])).has(id);
  const state = stateOf({ ...row, event, isHeld }, community, now);
  const topics = allTopics(event, row.bound);
  const enforced = community.settings['auth.mode'] === 'required';
  const matched = asKept(community, event, row, now) ?? asMatched(event, row.bound);
  const why = (access: Access) => unseenBy(matched, topics, state, access, community);
  const keys = [
    { reader: 'author', pubkey: row.pubkey },
    ...(asked === undefined ? [] : [{ reader: 'asked', pubkey: asked } as const]),
  ] as const;
  const people = [];
  for (const { reader, pubkey } of keys)
    people.push({ reader, pubkey, why: why(await accessOfKey(pool, community, pubkey, enforced)) });
  const others = (['anonymous', 'member', 'subscriber'] as const).map((reader) => ({
    reader,
    why: why(accessAs(reader, topics, enforced)),
  }));
  return { state, topics, readers: [...others, ...people] };
}

/** As a connection has that has authenticated with this key (relay/identity.ts). */
async function accessOfKey(
  pool: Pool,
  { id, policies, refused }: Community,
  pubkey: string,
  enforced: boolean,
): Promise<Access> {
  const holder = { community: id, pubkey };
  const rights = (await readRights(pool, [holder])).get(rightsKey(holder));
  const mayRead = !refused.has(pubkey) && (!enforced || hasAgreed(policies, rights?.agreed ?? new Set()));
  return {
    pubkeys: new Set([pubkey]),
    enforced,
    consented: new Set(mayRead ? [pubkey] : []),
    subscribed: (mayRead ? rights?.topics : undefined) ?? new Set(),
  };
}
