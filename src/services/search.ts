/**
 * The consumer of the outbox that makes events findable by their words: it keeps one document for each, by the rules of what can be
 * searched (core/access.ts). Who may find it is decided at read, on the event itself (store/search.ts).
 */
import type { ClientBase } from 'pg';
import type { Communities, Community } from '../communities.js';
import { isSearchable } from '../core/access.js';
import type { NostrEvent } from '../core/event.js';
import { toTsvector, WORDS_VERSION, wordsOf } from '../core/search-words.js';
import { allTopics, asMatched } from '../core/topic.js';
import type { Change } from '../store/changes.js';
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
} from '../store/search-documents.js';
import { Turns } from '../turns.js';
import type { Consumer } from './consumer.js';

export interface SearchConsumerOptions {
  readonly communities: Pick<Communities, 'all' | 'get'>;
}

export function searchConsumer({ communities }: SearchConsumerOptions): Consumer {
  return {
    name: 'search',
    about: 'the words of posts, for search (NIP-50)',
    apply: async (batch, tx, generation) => {
      const judges = await judgesOf(batch, tx, communities);
      await noteRules(tx, generation, judges);
      await writeDocuments(tx, generation, await sort(batch, judges));
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
        const why = await whyOutdated(client, community, made.get(community), rules);
        if (why !== undefined) return `${communities.get(community)?.slug}: ${why}`;
      }
      if (!isSame(inOrder(made), inOrder(today))) await saveRules(client, generation, today);
      return undefined;
    },
  };
}

// ── Who judges a batch ────────────────────────────────────────────────────────────────────────────────────────────

/** The communities of a batch, as they are for all of it. */
type Judges = ReadonlyMap<number, Community>;

/** Its code is that of a lock that did not come: nothing is wrong with the batch, and it is tried again. */
class CommunityNotYetSeen extends Error {
  readonly code = '55P03';
}

/** A new community is seen here with the next poll; till then its posts wait. One that is gone is nobody's. */
async function judgesOf(
  batch: readonly Change[],
  tx: ClientBase,
  communities: SearchConsumerOptions['communities'],
): Promise<Judges> {
  const judges = new Map<number, Community>();
  const unseen: number[] = [];
  for (const id of new Set(batch.map(({ community }) => community))) {
    const community = communities.get(id);
    if (community === undefined) unseen.push(id);
    else judges.set(id, community);
  }
  if (unseen.length > 0 && (await hasCommunity(tx, unseen)))
    throw new CommunityNotYetSeen('a community is too new to be known here');
  return judges;
}

/** Rules may change and change back between two looks at them: what was judged by others than the rest is remembered with it. */
async function noteRules(tx: ClientBase, generation: number, judges: Judges): Promise<void> {
  const made = await readRules(tx, generation, [...judges.keys()]);
  for (const [id, community] of judges) {
    const [before, rules] = [made.get(id), rulesOf(community)];
    if (before !== undefined && isSame(spelt(before), spelt(rules))) continue;
    const why = before && whyChanged(before, rules);
    if (why === undefined) await saveRules(tx, generation, new Map([[id, rules]]));
    else await markMixed(tx, generation, id, why);
  }
}

// ── What a batch changes ──────────────────────────────────────────────────────────────────────────────────────────

type Action = Document | 'remove' | { readonly deletedAt: number };

/** The last change of an event decides. An upsert without its event says nothing: a later change says why. */
async function sort(batch: readonly Change[], judges: Judges): Promise<DocumentChanges> {
  const actions = new Map<string, { readonly change: Change; readonly action: Action }>();
  const turns = new Turns();
  for (const change of batch) {
    const action = actionOf(change, judges.get(change.community));
    if (action !== undefined) actions.set(`${change.community}/${change.id}`, { change, action });
    await turns.rest();
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

function actionOf(change: Change, rules: Community | undefined): Action | undefined {
  const { op, payload, bound, community, id, author, kind, createdAt, seq, ingestedAt } = change;
  if (op === 'delete') return { deletedAt: ingestedAt };
  if (payload === undefined) return undefined;
  const event = asMatched(JSON.parse(payload) as NostrEvent, bound);
  if (rules === undefined || !isSearchable(event, rules)) return 'remove';
  const topics = allTopics(event, bound);
  return { community, id, author, kind, createdAt, seq, topics, words: toTsvector(wordsOf(event)) };
}

// ── By which rules ────────────────────────────────────────────────────────────────────────────────────────────────

function rulesOfAll({ all }: SearchConsumerOptions['communities']): Map<number, SearchRules> {
  return new Map(all().map((community) => [community.id, rulesOf(community)]));
}

function rulesOf(community: Community): SearchRules {
  const { 'search.kinds': kinds, 'auth.privateKinds': privateKinds } = community.settings;
  return { words: WORDS_VERSION, kinds, privateKinds };
}

/** What is known of no community was judged by no rules, unless it has nothing yet. */
async function whyOutdated(
  client: ClientBase,
  community: number,
  made: SearchRules | undefined,
  today: SearchRules,
): Promise<string | undefined> {
  if (made !== undefined) return made.mixed ?? whyChanged(made, today);
  return (await hasReadEvents(client, community)) ? 'it was not known when its posts came' : undefined;
}

/** Topics decide when somebody searches, not here. */
function whyChanged(made: SearchRules, today: SearchRules): string | undefined {
  if (made.words !== today.words) return 'words are cut in another way';
  return isSame([made.kinds, made.privateKinds], [today.kinds, today.privateKinds])
    ? undefined
    : 'the kinds that can be searched have changed';
}

/** The database has its own order of keys. */
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
