/**
 * What a record of the stream means: an event entered the view, left it for a reason, or a mark took effect.
 * Everything else, such as a purge of what was hidden before, changes no view. Pure.
 */
import { allTopics, UNBOUND } from '../../../topics/rules.js';
import { addressOf } from '../../rules/classify.js';
import type { NostrEvent } from '../../rules/event.js';
import type { CameBy } from '../../rules/facts.js';
import { type Announced, type Hidden, OUTBOX_REASONS } from '../../rules/hidden.js';
import type { OutboxReason } from '../../rules/writes.js';

/** A value of DynamoDB as the stream has it. Items of `Events` hold texts, numbers and lists of texts. */
export interface StreamValue {
  readonly S?: string;
  readonly N?: string;
  readonly L?: readonly StreamValue[];
}
export type Image = Readonly<Record<string, StreamValue>>;

export interface StreamRecord {
  readonly userIdentity?: { readonly principalId?: string } | undefined;
  readonly dynamodb?:
    | {
        readonly SequenceNumber?: string | undefined;
        readonly ApproximateCreationDateTime?: { getTime(): number } | undefined;
        readonly OldImage?: Image | undefined;
        readonly NewImage?: Image | undefined;
      }
    | undefined;
}

export type LogEntry = ViewEntry | { readonly op: 'mark' };

export interface ViewEntry {
  readonly op: 'upsert' | 'delete';
  readonly reason: OutboxReason | undefined;
  readonly community: number;
  readonly event: NostrEvent;
  readonly payload: string;
  readonly topics: readonly string[];
  /** How it came here, if it was not posted here. */
  readonly cameBy: CameBy | undefined;
  readonly effectiveKey: string | undefined;
}

/** Records of deletions by TTL name this service. */
const TTL_SERVICE = 'dynamodb.amazonaws.com';

export function entryOf({ userIdentity, dynamodb }: StreamRecord): LogEntry | undefined {
  const before = itemIn(dynamodb?.OldImage);
  const after = itemIn(dynamodb?.NewImage);
  // A copy from another store was announced there.
  if (after?.copied_at !== undefined && after.copied_at !== before?.copied_at) return undefined;
  if (isServed(after)) return isServed(before) ? undefined : viewEntry(after, 'upsert', undefined);
  if (!isServed(before))
    return before === undefined && after?.hidden_as === 'withheld' ? { op: 'mark' } : undefined;
  if (after?.hidden_as !== undefined && after.hidden_as !== 'withheld')
    return viewEntry(before, 'delete', OUTBOX_REASONS[after.hidden_as satisfies Announced]);
  // Only an author deletes a served item, and TTL, which removes what has expired.
  const isByTtl = userIdentity?.principalId === TTL_SERVICE;
  return viewEntry(before, 'delete', isByTtl ? OUTBOX_REASONS.expired : OUTBOX_REASONS.deleted);
}

/** What a record needs of an item of `Events`. */
interface EventItem {
  readonly community: number;
  readonly payload?: string;
  readonly bound?: readonly string[];
  readonly came_by?: CameBy;
  readonly hidden_as?: Hidden;
  readonly copied_at?: number;
}
type ServedItem = EventItem & { readonly payload: string };

const isServed = (item: EventItem | undefined): item is ServedItem =>
  item !== undefined && item.hidden_as === undefined && item.payload !== undefined;

function viewEntry(item: ServedItem, op: ViewEntry['op'], reason: OutboxReason | undefined): ViewEntry {
  const event = JSON.parse(item.payload) as NostrEvent;
  const topics = allTopics(event, item.bound ?? UNBOUND);
  const { community, payload, came_by: cameBy } = item;
  return { op, reason, community, event, payload, topics, cameBy, effectiveKey: addressOf(event) };
}

function itemIn(image: Image | undefined): EventItem | undefined {
  if (image === undefined) return undefined;
  return Object.fromEntries(
    Object.entries(image).map(([name, value]) => [name, plain(value)]),
  ) as unknown as EventItem;
}

function plain({ S, N, L }: StreamValue): unknown {
  if (N !== undefined) return Number(N);
  return L === undefined ? S : L.map(plain);
}
