/** What the database must hold after a round, by SQL in one snapshot (I1, I3, I4, I8, I11, I16). */

import type { VerifiedEvent } from 'nostr-tools/pure';
import type pg from 'pg';
import { addressOf, expirationOf, isEphemeral, type Sent } from '../model.js';
import { SHARED, SLUGS } from '../plan.js';
import type { Violations } from '../violations.js';

interface EventRow {
  readonly id: string;
  readonly community: number;
  readonly hidden: number | null;
  readonly payload: string;
}
interface OutboxRow {
  readonly seq: string;
  readonly op: 'upsert' | 'delete';
  readonly id: string;
  readonly community: number;
}
export interface Snapshot {
  readonly events: readonly EventRow[];
  readonly outbox: readonly OutboxRow[];
  readonly dedupe: ReadonlySet<string>;
  readonly tombstones: ReadonlySet<string>;
  readonly heads: number;
  readonly lastSeq: number;
  readonly communities: readonly number[];
}

export async function readSnapshot(client: pg.Client): Promise<Snapshot> {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  const rows = async <T>(text: string) => (await client.query(text)).rows as T[];
  const events = await rows<EventRow>(
    "SELECT encode(id, 'hex') AS id, community, hidden, payload FROM events",
  );
  const outbox = await rows<OutboxRow>(
    "SELECT seq, op, encode(event_id, 'hex') AS id, community FROM events_outbox ORDER BY seq",
  );
  const dedupe = await rows<{ key: string }>(
    "SELECT community || ' ' || encode(event_id, 'hex') AS key FROM event_dedupe",
  );
  const tombstones = await rows<{ key: string }>(
    `SELECT community || ' ' || encode(target, 'hex') || ' ' || encode(author, 'hex') AS key
     FROM deletion_tombstones WHERE NOT is_address`,
  );
  const [state] = await rows<{ last: string; heads: string }>(
    'SELECT last_seq AS last, (SELECT count(*) FROM event_heads) AS heads FROM lane_state',
  );
  const known = await rows<{ id: number; slug: string }>('SELECT id, slug FROM communities');
  await client.query('COMMIT');
  return {
    events,
    outbox,
    dedupe: new Set(dedupe.map(({ key }) => key)),
    tombstones: new Set(tombstones.map(({ key }) => key)),
    heads: Number(state!.heads),
    lastSeq: Number(state!.last),
    communities: SLUGS.flatMap((slug) => known.find((one) => one.slug === slug)?.id ?? []),
  };
}

export interface DatabaseFacts {
  readonly sent: readonly Sent[];
  readonly erased: ReadonlySet<string>;
  /** Expired events up to this second may be purged. */
  readonly expiredUpTo: number;
}

export function checkDatabase(snapshot: Snapshot, facts: DatabaseFacts, violations: Violations): void {
  checkStored(snapshot, facts, violations);
  checkKeys(snapshot, violations);
  checkOutbox(snapshot, facts, violations);
  checkKept(snapshot, facts, violations);
}

/** I1, I3: every acknowledged event is there once, with exactly its fields. A forged one is not. */
function checkStored(
  { events, dedupe, communities }: Snapshot,
  { sent, erased, expiredUpTo }: DatabaseFacts,
  violations: Violations,
): void {
  const rows = new Map<string, EventRow[]>();
  for (const row of events) {
    const key = `${row.community} ${row.id}`;
    rows.set(key, [...(rows.get(key) ?? []), row]);
  }
  for (const { event, community, accepted, message, isForged } of sent) {
    // It may have been accepted by the peer only.
    if (community === SHARED) continue;
    const key = `${communities[community]} ${event.id}`;
    const found = rows.get(key) ?? [];
    if (found.length > 1) violations.add('I3', `${found.length} rows of ${nameOf(event)}`);
    if (isForged && found.length > 0) violations.add('I2', `a forged event is stored: ${nameOf(event)}`);
    const mustBeStored =
      accepted &&
      !isEphemeral(event.kind) &&
      !erased.has(event.pubkey) &&
      !/newer version/.test(message) &&
      expirationOf(event) > expiredUpTo;
    if (!mustBeStored) continue;
    if (found.length === 0 || !dedupe.has(key))
      violations.add('I1', `acknowledged ("${message}") and not stored: ${nameOf(event)}`);
    else if (!isSame(JSON.parse(found[0]!.payload) as VerifiedEvent, event))
      violations.add('I1', `stored with other fields: ${nameOf(event)}`);
  }
}

/** I4: at most one effective event for each key. */
function checkKeys({ events }: Snapshot, violations: Violations): void {
  const effective = new Map<string, string>();
  for (const { community, hidden, payload } of events) {
    if (hidden !== null) continue;
    const event = JSON.parse(payload) as VerifiedEvent;
    const address = addressOf(event);
    if (address === undefined) continue;
    const key = `${community} ${address}`;
    if (effective.has(key)) violations.add('I4', `two effective versions of ${address}`);
    effective.set(key, event.id);
  }
}

/** I3, I8, I16: the outbox replays to the effective view; nothing is announced twice or was held. */
function checkOutbox(
  { events, outbox, lastSeq, communities }: Snapshot,
  { sent, erased }: DatabaseFacts,
  violations: Violations,
): void {
  const held = new Set(sent.flatMap(({ isHeld, event }) => (isHeld ? [event.id] : [])));
  const replayed = new Set<string>();
  for (const { op, id, community } of outbox) {
    const key = `${community} ${id}`;
    if (held.has(id) && op === 'upsert') violations.add('I16', `a held event is in the outbox: ${id}`);
    if (op === 'upsert' && replayed.has(key)) violations.add('I3', `announced twice: ${id}`);
    if (op === 'upsert') replayed.add(key);
    else replayed.delete(key);
  }
  const last = Number(outbox.at(-1)?.seq ?? 0);
  if (last > lastSeq) violations.add('I8', `the outbox is at ${last}, the lane at ${lastSeq}`);
  const authors = new Map(sent.map(({ event }) => [event.id, event.pubkey]));
  const isErased = (key: string) => erased.has(authors.get(key.split(' ')[1]!) ?? '');
  const rows = events
    .filter(({ hidden }) => hidden === null)
    .map(({ community, id }) => `${community} ${id}`);
  const ours = (key: string) => communities.includes(Number(key.split(' ')[0])) && !isErased(key);
  const expected = new Set(rows.filter(ours));
  violations.same('I8', 'the outbox replayed', { expected, seen: new Set([...replayed].filter(ours)) });
}

/** I11: requests, tombstones and high-water marks stay. */
function checkKept(
  { events, tombstones, heads, communities }: Snapshot,
  { sent, erased }: DatabaseFacts,
  violations: Violations,
): void {
  const effective = new Set(
    events.flatMap(({ hidden, community, id }) => (hidden === null ? [`${community} ${id}`] : [])),
  );
  const authors = new Map(sent.map(({ event }) => [event.id, event.pubkey]));
  const addresses = new Set<string>();
  for (const { event, community, accepted, isForged } of sent) {
    if (community === SHARED || !accepted || isForged || erased.has(event.pubkey)) continue;
    const address = addressOf(event);
    if (address !== undefined) addresses.add(`${community} ${address}`);
    if (event.kind !== 5) continue;
    const at = communities[community];
    if (!effective.has(`${at} ${event.id}`)) violations.add('I11', `no deletion request ${event.id}`);
    for (const [name, target] of event.tags)
      if (name === 'e' && authors.get(target!) === event.pubkey)
        if (!tombstones.has(`${at} ${target} ${event.pubkey}`))
          violations.add('I11', `no tombstone of ${target} by ${event.id}`);
  }
  if (heads < addresses.size) violations.add('I11', `${heads} high-water marks for ${addresses.size} keys`);
}

const nameOf = ({ id, kind, content }: VerifiedEvent) => `${id} kind ${kind} "${content}"`;

function isSame(a: VerifiedEvent, b: VerifiedEvent): boolean {
  const fields = ({ id, pubkey, created_at, kind, tags, content, sig }: VerifiedEvent) =>
    JSON.stringify([id, pubkey, created_at, kind, tags, content, sig]);
  return fields(a) === fields(b);
}
