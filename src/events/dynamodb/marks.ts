/**
 * Marks: up to when everything of a public key is refused and hidden (NIP-62, and erasures under way). A mark
 * stays for ever and refuses. While its events are not erased yet, it is also in a list of the community that
 * every read asks for, so that it hides at once, on every instance (I6).
 */
import type { VanishMark } from '../rules/writes.js';
import type { PendingMark } from '../store.js';
import { Conflict, type Dynamodb } from './client.js';
import { markKey, ownerOf, pendingMarks } from './keys.js';

const ATTEMPTS_MAX = 10;

/** Only a later time changes a mark. */
export async function writeMark(
  db: Dynamodb,
  { community, pubkey, until, requestId }: VanishMark,
): Promise<void> {
  const key = markKey(community, pubkey);
  const owner_key = ownerOf(community, pubkey);
  for (let attempt = 1; ; attempt += 1) {
    const seen = await db.get('state', key);
    if (seen !== undefined && (seen.until_at as number) >= until) return;
    try {
      await db.transact([
        {
          table: 'state',
          put: { ...key, until_at: until, request_id: requestId, owner_key },
          if: { text: 'attribute_not_exists(pk) OR until_at < :until', values: { ':until': until } },
        },
        {
          table: 'state',
          put: { pk: pendingMarks(community), sk: pubkey, until_at: until, owner_key },
        },
      ]);
      return;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt === ATTEMPTS_MAX) throw error;
    }
  }
}

/** Its events are erased: the mark only refuses from now on. */
export async function endMark(db: Dynamodb, { community, pubkey, until }: PendingMark): Promise<void> {
  await db.change({
    table: 'state',
    remove: { pk: pendingMarks(community), sk: pubkey },
    if: { text: 'until_at <= :until', values: { ':until': until } },
  });
}

/** I14: an erasure ends its mark, so there are as many as erasures under way. */
const PENDING_MAX = 100_000;

export async function readPendingMarks(db: Dynamodb, community: number): Promise<PendingMark[]> {
  const marks: PendingMark[] = [];
  let next: Record<string, unknown> | undefined;
  do {
    const page = await db.query('state', {
      KeyConditionExpression: 'pk = :pk',
      ExpressionAttributeValues: { ':pk': pendingMarks(community) },
      ExclusiveStartKey: next,
    });
    for (const { sk, until_at } of page.items)
      marks.push({ community, pubkey: sk as string, until: until_at as number });
    next = page.next;
  } while (next !== undefined && marks.length < PENDING_MAX);
  return marks;
}

/**
 * The pending marks of a community, as they are after the call: a request that began earlier does not count.
 * Callers that arrive while one is under way share the next one, so a process has two under way at most.
 */
export class PendingMarks {
  private readonly next = new Map<number, Promise<PendingMark[]>>();
  private readonly running = new Map<number, Promise<unknown>>();

  constructor(private readonly db: Dynamodb) {}

  of(community: number): Promise<PendingMark[]> {
    const shared = this.next.get(community);
    if (shared !== undefined) return shared;
    const before = this.running.get(community) ?? Promise.resolve();
    const asked = before.then(() => {
      this.next.delete(community);
      const read = readPendingMarks(this.db, community);
      const ended = read.catch(() => undefined);
      this.running.set(community, ended);
      void ended.then(() => {
        if (this.running.get(community) === ended) this.running.delete(community);
      });
      return read;
    });
    this.next.set(community, asked);
    return asked;
  }
}
