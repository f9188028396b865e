/**
 * Selects the stored events of a batch: those that match its conditions, the newest first, or those that a
 * search found when the batch started. Events that arrived later are never selected. Reads in portions (I14).
 */

import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { moderatorsView } from '../events/rules/access.js';
import type { NostrEvent } from '../events/rules/event.js';
import { factKey } from '../events/rules/facts.js';
import { parseFilter } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import type { ServedEvent, ServedPage, StoredEvents, StoredRow } from '../events/stored-events.js';
import { rest } from '../limits/time-slices.js';
import type { Db } from '../postgres/values.js';
import {
  type SearchedCommunity,
  type SearchPools,
  SearchTooLong,
  selectSearched,
} from '../search/search.sql.js';
import { asMatched, type MatchedEvent } from '../topics/rules.js';
import { inSteps } from './patterns/thread.js';
import {
  BATCH_SEARCH_MAX,
  type BatchSpec,
  type Conditions,
  type SearchResult,
  type Selection,
} from './rules.js';
import { type CompiledRule, compileRule } from './rules-match.js';
import { Trial, type TrialResult } from './rules-trial.js';

export const PORTION_ROWS = 200;
/** Maximum number of events that a preview reads. */
export const PREVIEW_EVENTS_MAX = 20_000;

export interface Place {
  readonly cursorAt: number;
  readonly cursorId: string;
}

interface Looking {
  readonly community: number;
  readonly conditions: Conditions;
  readonly since?: number | null | undefined;
  /** Milliseconds: events that arrived later are not selected. */
  readonly arrivedUntil: number;
}

/** The next portion after the cursor, the newest first. */
export function nextRows(
  db: Db,
  events: StoredEvents,
  { community, conditions: { authors }, since, arrivedUntil }: Looking,
  { cursorAt, cursorId }: Place,
): Promise<ServedPage> {
  return events.served(db, {
    community,
    authors,
    since: since ?? undefined,
    arrivedUntil,
    after: { createdAt: cursorAt, id: cursorId },
    limit: PORTION_ROWS,
  });
}

/** The events of the list that are still served, in the order of the list. */
export async function listedRows(
  db: Db,
  events: StoredEvents,
  { community, arrivedUntil }: Pick<Looking, 'community' | 'arrivedUntil'>,
  ids: readonly string[],
): Promise<StoredRow[]> {
  const rows = await events.byIds(
    db,
    ids.map((id) => ({ community, id })),
  );
  return ids.flatMap((id) => {
    const row = rows.get(factKey(community, id));
    if (row === undefined || row.hidden !== undefined || row.isVanished) return [];
    return row.ingestedAt <= arrivedUntil ? [row] : [];
  });
}

export const eventOf = ({ payload, bound }: Pick<ServedEvent, 'payload' | 'bound'>): MatchedEvent =>
  asMatched(JSON.parse(payload) as NostrEvent, bound);

/** Compiles all conditions except the search, which is represented by the list of ids that it found. */
export function compiledOf(conditions: Conditions): CompiledRule {
  const spec = { name: '', priority: 0, conditions, action: 'hide' as const, label: null };
  return compileRule({ ...spec, ruleId: '', version: 0, enabledAt: null });
}

// ── Selection by search ────────────────────────────────────────────────────────────────────────────────────

export interface SearchScope {
  readonly since?: number | undefined;
  readonly until?: number | undefined;
  readonly now: number;
}

/**
 * Uses the same search as a REQ, in every topic. SEARCH_NOT_READY: the index is not complete yet;
 * UNAVAILABLE: the search took too long.
 */
export async function selectBySearch(
  pools: SearchPools,
  community: SearchedCommunity,
  { search, kinds, authors, topics }: Selection,
  { since, until, now }: SearchScope,
): Promise<SearchResult | Denial> {
  const fields = { search, kinds, authors, since, until, '#t': topics };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const filter = parseFilter(given, community.settings);
  if (isRefusal(filter)) return invalid(filter.why);
  if (filter.search === undefined) return invalid('there is nothing to search for');
  try {
    const seen = { ...filter, view: moderatorsView(community) };
    const found = await selectSearched(pools, community, seen, BATCH_SEARCH_MAX, now);
    if (isDenial(found)) return found;
    const { isOutdated: isRebuilding, ...same } = found;
    return { ...same, isRebuilding };
  } catch (error) {
    if (error instanceof SearchTooLong) return denial('UNAVAILABLE');
    throw error;
  }
}

const invalid = (message: string) =>
  denial('INVALID_REQUEST', { problems: [{ path: 'body/conditions/search', message }] });

// ── Preview ────────────────────────────────────────────────────────────────────────────────────────────────

export interface Preview extends TrialResult {
  readonly stoppedEarly: boolean;
}

/** Counts what the batch would act on; changes nothing. */
export async function previewBatch(
  db: Db,
  events: StoredEvents,
  { id: community, settings }: SearchedCommunity,
  { conditions, since, until, found, asOf }: BatchSpec,
  now: number,
): Promise<Preview> {
  const trial = new Trial(compiledOf(conditions), settings);
  const looking = { community, conditions, since, arrivedUntil: asOf ?? now };
  if (found !== undefined) {
    for (let at = 0; at < found.ids.length; at += PORTION_ROWS)
      await lookAt(trial, await listedRows(db, events, looking, found.ids.slice(at, at + PORTION_ROWS)));
    return { ...trial.result(), stoppedEarly: found.isMore };
  }
  let place: Place = { cursorAt: until ?? Number.MAX_SAFE_INTEGER, cursorId: '' };
  for (let left = PREVIEW_EVENTS_MAX; left > 0; left -= PORTION_ROWS) {
    const { rows, next } = await nextRows(db, events, looking, place);
    await lookAt(trial, rows);
    if (next === undefined) return { ...trial.result(), stoppedEarly: false };
    place = { cursorAt: next.createdAt, cursorId: next.id };
  }
  return { ...trial.result(), stoppedEarly: true };
}

async function lookAt(trial: Trial, rows: readonly Pick<ServedEvent, 'payload' | 'bound'>[]): Promise<void> {
  for (const row of rows) {
    await inSteps(trial.look(eventOf(row)));
    await rest();
  }
}
