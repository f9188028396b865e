/** The three tables in an erasure, each as a store of its own (I12). */
import type { MemberSubject, Subject } from '../../../erasure/rules.js';
import type { Deleter } from '../../../erasure/rules-deleter.js';
import type { Owner } from '../../store.js';
import { type Dynamodb, eachOf, type Item, type WriteOf } from '../client.js';
import { removeAll } from '../commit.js';
import { readNodeKeys } from '../control.sql.js';
import { type Entry, personEntry } from '../items.js';
import {
  END,
  markKey,
  newestKey,
  partitionOf,
  partitions,
  pendingMarks,
  placeOf,
  TABLE_NAMES,
} from '../keys.js';
import { page } from '../selections.js';
import { Eraser, type ErasingOptions, entriesAbout } from './eraser.js';
import { everythingOf, type Found, hiddenOf, peopleIn, servedOf } from './found.js';
import { eraseState, isErased, type OwnedState, stateOf } from './state.js';

const EVENTS = 'dynamodb:events';
const STATE = 'dynamodb:event_state';
const INDEX = 'dynamodb:event_index';
const FOR_EVER = Number.MAX_SAFE_INTEGER;

interface Counted {
  readonly events: number;
  readonly entries: number;
}

export function dynamodbDeleters(options: ErasingOptions): Deleter[] {
  const { db } = options;
  /** Events and entries of one round share one walk: the registry passes the same subject object to each. */
  const counted = new WeakMap<Subject, Promise<Counted>>();
  const countOnce = (subject: Subject): Promise<Counted> => {
    const known = counted.get(subject) ?? countAll(options, subject);
    counted.set(subject, known);
    return known;
  };
  return [
    {
      name: EVENTS,
      holds: [TABLE_NAMES.events],
      isAwaited: true,
      count: async (subject) => (await countOnce(subject)).events,
      delete: async (subject, progress) => {
        let deleted = 0;
        const hidden = subject.type === 'member' && subject.vanishes ? 'vanished' : 'erased';
        const eraser = new Eraser(options, hidden, async (events, entries) => {
          deleted += events;
          await progress(events, { [INDEX]: entries });
        });
        for await (const found of everything(options, subject)) await eraser.take(found);
        await eraser.finish();
        return deleted;
      },
    },
    {
      name: STATE,
      holds: [TABLE_NAMES.state],
      isAwaited: true,
      count: async (subject) => {
        let count = 0;
        for await (const states of stateOfAll(db, subject)) count += states.length;
        return count;
      },
      delete: async (subject, progress) => {
        let deleted = 0;
        for await (const states of stateOfAll(db, subject)) {
          await db.write(eraseState(subject.community, states));
          deleted += states.length;
          await progress(states.length);
        }
        if (subject.type === 'community') await removeMarks(db, subject.community);
        return deleted;
      },
    },
    {
      name: INDEX,
      holds: [TABLE_NAMES.index],
      isAwaited: true,
      people: (community) => peopleIn(db, community),
      count: async (subject) => (await countOnce(subject)).entries,
      delete: async (subject, progress) => {
        let deleted = 0;
        for await (const found of everything(options, subject)) {
          const left = found.flatMap((one) => (one.type === 'left' ? [one.entry] : []));
          await db.write([...removeAll(left), ...left.flatMap(entriesBeside)]);
          deleted += left.length;
          await progress(left.length);
        }
        for await (const people of peopleToForget(db, subject)) {
          const { community } = subject;
          await db.write(
            people.map((pubkey) => ({ table: 'index', remove: personEntry(community, pubkey) })),
          );
          deleted += people.length;
          await progress(people.length);
        }
        if (subject.type === 'community') await emptyPartitions(db, subject.community);
        return deleted;
      },
    },
  ];
}

async function countAll(options: ErasingOptions, subject: Subject): Promise<Counted> {
  let [events, entries] = [0, 0];
  for await (const found of everything(options, subject)) {
    events += found.filter(({ type }) => type !== 'left').length;
    for (const one of found) entries += entriesAbout(one);
  }
  for await (const people of peopleToForget(options.db, subject)) entries += people.length;
  return { events, entries };
}

// ── Whose ──────────────────────────────────────────────────────────────────────────────────────────────────

const untilOf = ({ until = FOR_EVER }: MemberSubject) => until;

async function* everything({ db, pool }: ErasingOptions, subject: Subject): AsyncGenerator<Found[]> {
  const { community } = subject;
  if (subject.type === 'member') {
    const { pubkey, vanishes: sparesRequest = false } = subject;
    const nodeKeys = sparesRequest ? [] : await readNodeKeys(pool, community);
    yield* everythingOf(db, { community, pubkey, until: untilOf(subject), sparesRequest, nodeKeys });
    return;
  }
  for await (const pubkey of everybody(db, community)) {
    const author = { community, pubkey, until: FOR_EVER, sparesRequest: false };
    yield* servedOf(db, author);
    yield* hiddenOf(db, author);
  }
}

async function* everybody(db: Dynamodb, community: number): AsyncGenerator<string> {
  for await (const people of peopleIn(db, community)) yield* people;
}

async function* stateOfAll(db: Dynamodb, subject: Subject): AsyncGenerator<OwnedState[]> {
  const { community } = subject;
  if (subject.type === 'member') {
    const until = untilOf(subject);
    for await (const states of stateOf(db, subject)) yield states.filter((state) => isErased(state, until));
    return;
  }
  for await (const pubkey of everybody(db, community)) yield* stateOf(db, { community, pubkey });
}

/** A member who has newer events stays listed; so does one who vanished, by the request. */
async function* peopleToForget(db: Dynamodb, subject: Subject): AsyncGenerator<readonly string[]> {
  const { community } = subject;
  if (subject.type === 'community') yield* peopleIn(db, community);
  else {
    const { pubkey, vanishes } = subject;
    const isListed =
      vanishes !== true && (await db.get('index', personEntry(community, pubkey))) !== undefined;
    if (isListed && !(await hasNewer(db, subject, untilOf(subject)))) yield [pubkey];
  }
}

async function hasNewer(db: Dynamodb, { community, pubkey }: Owner, until: number): Promise<boolean> {
  if (until === FOR_EVER) return false;
  const range = { from: ' ', to: newestKey(until + 1, END), limit: 1 };
  for (const pk of [...partitions.author(community, pubkey), ...partitions.hidden(community, pubkey)])
    if ((await page(db, pk, range)).entries.length > 0) return true;
  return false;
}

/** Other entries of the same event, as far as this one names them. */
function entriesBeside({ pk, sk, kind, author }: Entry): WriteOf[] {
  const community = Number(pk.split('/')[0]);
  const { id } = placeOf(sk);
  const { all, kind: ofKind, author: ofAuthor, hidden } = partitions;
  const byAuthor = [ofAuthor, hidden].map((list) => list(community, author));
  const lists = [all(community), ofKind(community, kind), ...byAuthor];
  const keys = lists.map((list) => ({ pk: partitionOf(list, id), sk }));
  return removeAll(keys.filter((key) => key.pk !== pk));
}

// ── What is left of a community ────────────────────────────────────────────────────────────────────────────

const AT_ONCE = 4;

async function emptyPartitions(db: Dynamodb, community: number): Promise<void> {
  const { all, ingested, requests, expires, history, removed, vanish } = partitions;
  const lists = [all, ingested, requests, expires, history, removed, vanish];
  const keys = lists.flatMap((list) => list(community));
  await eachOf(keys, AT_ONCE, (pk) => empty(db, 'index', pk));
}

async function removeMarks(db: Dynamodb, community: number): Promise<void> {
  await empty(db, 'state', pendingMarks(community), (pubkey) => [
    { table: 'state', remove: markKey(community, pubkey) },
  ]);
  for await (const pubkey of everybody(db, community))
    await db.write([{ table: 'state', remove: markKey(community, pubkey) }]);
}

async function empty(
  db: Dynamodb,
  table: 'index' | 'state',
  partition: string,
  beside: (sk: string) => WriteOf[] = () => [],
): Promise<void> {
  let next: Item | undefined;
  do {
    const found = await db.query(table, {
      KeyConditionExpression: 'pk = :pk',
      ExpressionAttributeValues: { ':pk': partition },
      ExclusiveStartKey: next,
    });
    await db.write(
      found.items.flatMap(({ pk, sk }) => [{ table, remove: { pk, sk } }, ...beside(sk as string)]),
    );
    next = found.next;
  } while (next !== undefined);
}
