/**
 * The outbox consumer that indexes the words of events: it writes one document for each searchable event
 * (events/rules/access.ts). Who may find an event is decided when it is read, on the event itself
 * (search.sql.ts).
 */
import type { ClientBase } from 'pg';
import type { Communities, Community } from '../communities/communities.js';
import { isSearchable } from '../events/rules/access.js';
import type { EventStore } from '../events/store.js';
import { inTimeSlices, rest } from '../limits/time-slices.js';
import { type Change, eventOf } from '../outbox/changes.sql.js';
import type { Consumer } from '../outbox/consumers/consumer.js';
import { SQLSTATE } from '../postgres/rules-error-code.js';
import { allTopics, asMatched } from '../topics/rules.js';
import {
  type DeletedDocument,
  type Document,
  type DocumentChanges,
  type DocumentKey,
  dropGeneration,
  hasCommunity,
  hasReadEvents,
  makeGeneration,
  markMixed,
  readRules,
  type SearchRules,
  saveRules,
  writeDocuments,
} from './documents.sql.js';
import { toTsvector, WORDS_VERSION, wordsInSteps } from './rules-words.js';

export interface SearchConsumerOptions {
  readonly communities: Pick<Communities, 'all' | 'get'>;
  /** Where events are; in the database by default. */
  readonly store?: Pick<EventStore, 'stored'>;
}

export function searchConsumer({ communities, store }: SearchConsumerOptions): Consumer {
  const inDatabase = store?.stored.inDatabase ?? true;
  return {
    name: 'search',
    about: 'the words of posts, for search (NIP-50)',
    gatherMs: 1_000,
    apply: async (batch, tx, generation) => {
      const known = await communitiesOf(batch, tx, communities);
      await noteRules(tx, generation, known);
      await writeDocuments(tx, generation, await sort(batch, known));
    },
    open: async (tx, generation) => {
      await makeGeneration(tx, generation);
      await saveRules(tx, generation, rulesOfAll(communities));
    },
    drop: dropGeneration,
    outdated: async (client, generation) => {
      const made = await readRules(client, generation);
      const today = rulesOfAll(communities);
      for (const [community, rules] of today) {
        const why = await whyOutdated(client, { community, inDatabase }, made.get(community), rules);
        if (why !== undefined) return `${communities.get(community)?.slug}: ${why}`;
      }
      if (!isSame(inOrder(made), inOrder(today))) await saveRules(client, generation, today);
      return undefined;
    },
  };
}

// ── The communities of a batch ─────────────────────────────────────────────────────────────────────────────

/** The communities of a batch, read once for the whole batch. */
type BatchCommunities = ReadonlyMap<number, Community>;

/** Has the code of a lock time-out, so that the batch is retried: nothing is wrong with it. */
class CommunityNotYetSeen extends Error {
  readonly code = SQLSTATE.lockNotAvailable;
}

/** A new community becomes known with the next poll; until then its posts wait. A closed one is left out. */
async function communitiesOf(
  batch: readonly Change[],
  tx: ClientBase,
  communities: SearchConsumerOptions['communities'],
): Promise<BatchCommunities> {
  const known = new Map<number, Community>();
  const unseen: number[] = [];
  for (const id of new Set(batch.map(({ community }) => community))) {
    const community = communities.get(id);
    if (community === undefined) unseen.push(id);
    else known.set(id, community);
  }
  if (unseen.length > 0 && (await hasCommunity(tx, unseen)))
    throw new CommunityNotYetSeen('this process has not loaded a new community yet');
  return known;
}

/**
 * Rules may change and change back between two checks for outdated rules. So each batch stores the fact that
 * some of its documents were made by other rules than the rest.
 */
async function noteRules(tx: ClientBase, generation: number, communities: BatchCommunities): Promise<void> {
  const made = await readRules(tx, generation, [...communities.keys()]);
  for (const [id, community] of communities) {
    const [before, rules] = [made.get(id), rulesOf(community)];
    if (before !== undefined && isSame(spelt(before), spelt(rules))) continue;
    const why = before && whyChanged(before, rules);
    if (why === undefined) await saveRules(tx, generation, new Map([[id, rules]]));
    else await markMixed(tx, generation, id, why);
  }
}

// ── Documents ──────────────────────────────────────────────────────────────────────────────────────────────

type Action = Document | 'remove' | { readonly deletedAt: number };

/**
 * The last change of an event counts. An upsert whose event is no longer served is left to a later change.
 */
async function sort(batch: readonly Change[], communities: BatchCommunities): Promise<DocumentChanges> {
  const actions = new Map<string, { readonly change: Change; readonly action: Action }>();
  for (const change of batch) {
    const action = await actionOf(change, communities.get(change.community));
    if (action !== undefined) actions.set(`${change.community}/${change.id}`, { change, action });
    await rest();
  }
  const changes = {
    written: [] as Document[],
    removed: [] as DocumentKey[],
    deleted: [] as DeletedDocument[],
  };
  for (const { change, action } of actions.values()) {
    const { community, id } = change;
    if (action === 'remove') changes.removed.push({ community, id });
    else if ('words' in action) changes.written.push(action);
    else changes.deleted.push({ community, id, at: action.deletedAt });
  }
  return changes;
}

async function actionOf(change: Change, rules: Community | undefined): Promise<Action | undefined> {
  const { op, bound, community, id, author, kind, createdAt, seq, ingestedAt } = change;
  if (op === 'delete') return { deletedAt: ingestedAt };
  const read = eventOf(change);
  if (read === undefined) return undefined;
  const event = asMatched(read, bound);
  if (rules === undefined || !isSearchable(event, rules)) return 'remove';
  const topics = allTopics(event, bound);
  const words = toTsvector(await inTimeSlices(wordsInSteps(event)));
  return { community, id, author, kind, createdAt, seq, topics, words };
}

// ── Rules of the index ─────────────────────────────────────────────────────────────────────────────────────

function rulesOfAll({ all }: SearchConsumerOptions['communities']): Map<number, SearchRules> {
  return new Map(all().map((community) => [community.id, rulesOf(community)]));
}

function rulesOf(community: Community): SearchRules {
  const { 'search.kinds': kinds, 'auth.privateKinds': privateKinds } = community.settings;
  return { words: WORDS_VERSION, kinds, privateKinds };
}

/** A community without stored rules is outdated when the index has read posts of it. */
async function whyOutdated(
  client: ClientBase,
  { community, inDatabase }: { readonly community: number; readonly inDatabase: boolean },
  made: SearchRules | undefined,
  today: SearchRules,
): Promise<string | undefined> {
  if (made !== undefined) return made.mixed ?? whyChanged(made, today);
  const hasRead = await hasReadEvents(client, community, inDatabase);
  return hasRead ? 'it was not known when its posts arrived' : undefined;
}

/** Topics are not part of the rules: they are checked when somebody searches. */
function whyChanged(made: SearchRules, today: SearchRules): string | undefined {
  if (made.words !== today.words) return 'the rules for splitting words have changed';
  return isSame([made.kinds, made.privateKinds], [today.kinds, today.privateKinds])
    ? undefined
    : 'the kinds that can be searched have changed';
}

/** Sorted by community, because the database may return another order. */
function inOrder(all: ReadonlyMap<number, SearchRules>): unknown {
  return [...all]
    .sort(([one], [other]) => one - other)
    .map(([community, rules]) => [community, spelt(rules)]);
}

function spelt({ words, kinds, privateKinds }: SearchRules): unknown {
  return [words, kinds, privateKinds];
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
