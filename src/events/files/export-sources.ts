/**
 * Where an export reads: the tables of PostgreSQL in the order of the outbox, or DynamoDB, first all events
 * from the newest to the oldest, and then what arrived meanwhile, from the log. Every event that is served at
 * the end of the export is in it.
 */
import type { Pool } from 'pg';
import type { Community } from '../../communities/communities.js';
import { readHead } from '../../outbox/outbox.sql.js';
import type { MatchedEvent } from '../../topics/rules.js';
import { placeFrom, placeText, type StoredEvent } from '../dynamodb/read/export.js';
import type { DynamodbStore } from '../dynamodb/store.js';
import { type Exported, readExportPage } from '../postgres/read/export.js';
import type { NostrEvent } from '../rules/event.js';
import { isExpired } from '../rules/expiration.js';
import { asKept } from '../rules/retention.js';

export interface ExportPlace {
  /** Everything up to this offset of the outbox was read. */
  readonly seq: number;
  /** In DynamoDB: the place of the walk; `end` when it is done. */
  readonly walk?: string | undefined;
}

export interface ExportedPage {
  readonly events: readonly { readonly payload: string; readonly matched: () => MatchedEvent }[];
  readonly place: ExportPlace;
  /** Nothing more was found now. */
  readonly isEnd: boolean;
  /** It ends although there is more: events arrive faster than they are read. */
  readonly isLate?: boolean;
}

/** How often the end of the outbox may have advanced when it is reached (I14). */
const HEAD_CHASES_MAX = 1_000;

export type ExportSource = (from: ExportPlace) => Promise<ExportedPage>;

export function fromPostgres(pool: Pool, community: Community, what: Exported): ExportSource {
  let head = 0;
  let chases = 0;
  return async ({ seq }) => {
    if (seq >= head) {
      chases += 1;
      head = await readHead(pool);
    }
    const isLate = chases > HEAD_CHASES_MAX;
    if (seq >= head || isLate) return { events: [], place: { seq }, isEnd: true, isLate: seq < head };
    const page = await readExportPage(pool, community, seq, head, Date.now(), what);
    return { events: page.events, place: { seq: page.seq }, isEnd: false };
  };
}

const WALKED_ROWS = 250;
const DONE = 'end';

export function fromDynamodb(store: DynamodbStore, community: Community, what: Exported): ExportSource {
  let chases = 0;
  const show = (events: readonly StoredEvent[]) => events.flatMap((event) => shown(community, event));
  const walked = async (place: ExportPlace): Promise<ExportedPage> => {
    const { walk = '' } = place;
    // Before the walk: what arrives during it is read from the log.
    const seq = walk === '' ? await store.head() : place.seq;
    if (what === 'history') {
      const { events, next } = await store.history(community, walk, Date.now());
      return { events: show(events), place: { seq, walk: next ?? DONE }, isEnd: false };
    }
    const after = placeFrom(walk);
    const { events, next } = await store.walk({ community: community.id, after, limit: WALKED_ROWS });
    const passed = next === undefined ? DONE : placeText(next);
    return { events: show(events), place: { seq, walk: passed }, isEnd: false };
  };
  return async (place) => {
    if (place.walk !== DONE) return walked(place);
    if (what === 'history') return { events: [], place, isEnd: true };
    chases += 1;
    const isLate = chases > HEAD_CHASES_MAX;
    const { changes, upTo, head } = await store.changesOf(
      { community: community.id, after: place.seq, limit: WALKED_ROWS },
      'heavy',
    );
    const upserts = changes.filter(({ op }) => op === 'upsert');
    const found = upserts.length === 0 ? [] : [...(await store.byIds(upserts)).values()];
    return { events: show(found), place: { seq: upTo, walk: DONE }, isEnd: upTo >= head || isLate, isLate };
  };
}

/** An event is not exported from the second of its expiration on, nor past its days (I7, I8). */
function shown(community: Community, { payload, bound, ingestedAt }: StoredEvent): ExportedPage['events'] {
  const now = Date.now();
  const event = JSON.parse(payload) as NostrEvent;
  if (isExpired(event, Math.floor(now / 1_000))) return [];
  const kept = asKept(community, event, { bound, ingestedAt }, now);
  return kept === undefined ? [] : [{ payload, matched: () => kept }];
}
