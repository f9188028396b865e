/** What erasures ask before they delete: who has anything here, up to when they have signed, what stays. */
import { KIND_VANISH } from '../../rules/classify.js';
import { KIND_GIFT_WRAP } from '../../rules/deletion.js';
import type { EventRef, FenceOf, Owned, Owner } from '../../store.js';
import { type Dynamodb, eachOf } from '../client.js';
import type { Entry } from '../items.js';
import { END, partitions, placeOf } from '../keys.js';
import { itemsByRef, page } from '../selections.js';
import { entriesIn } from './found.js';
import { stateOf } from './state.js';

const AT_ONCE = 16;
const FOR_EVER = Number.MAX_SAFE_INTEGER;

export async function heldOf(db: Dynamodb, refs: readonly EventRef[]): Promise<Set<string>> {
  const items = await itemsByRef(db, refs);
  return new Set([...items].flatMap(([key, { payload }]) => (payload === undefined ? [] : [key])));
}

export async function strangersAmong<Key extends Owner>(db: Dynamodb, keys: readonly Key[]): Promise<Key[]> {
  const strangers = new Set<Key>();
  await eachOf(keys, AT_ONCE, async (key) => {
    if (!(await hasTraces(db, key))) strangers.add(key);
  });
  return keys.filter((key) => strangers.has(key));
}

async function hasTraces(db: Dynamodb, owner: Owner): Promise<boolean> {
  const { community, pubkey } = owner;
  const { author, hidden, tag } = partitions;
  const isOther = ({ kind }: Entry) => kind !== KIND_VANISH;
  const isWrap = ({ kind }: Entry) => kind === KIND_GIFT_WRAP;
  const asked: [string[], (entry: Entry) => boolean][] = [
    [author(community, pubkey), () => true],
    [hidden(community, pubkey), isOther],
    [tag(community, 'p', pubkey), isWrap],
  ];
  for (const [list, isTrace] of asked)
    for (const pk of list)
      for await (const _ of entriesIn(db, pk, { community, until: FOR_EVER }, isTrace)) return true;
  for await (const states of stateOf(db, owner)) if (states.length > 0) return true;
  return false;
}

export async function newestOf(db: Dynamodb, { community, pubkey }: Owned, fence: FenceOf): Promise<number> {
  const { all, author, hidden } = partitions;
  const lists =
    pubkey === undefined ? [all(community)] : [author(community, pubkey), hidden(community, pubkey)];
  const first = await Promise.all(lists.flat().map((pk) => page(db, pk, { from: '', to: END, limit: 1 })));
  const times = first.flatMap(({ entries }) => entries.map(({ sk }) => placeOf(sk).createdAt));
  if (pubkey !== undefined)
    for await (const states of stateOf(db, { community, pubkey }))
      for (const state of states) {
        if (state.type === 'head') times.push(state.createdAt);
        // A deletion is physical here, so the time of what it deleted is not known.
        if (state.type === 'tombstone' && state.requestedAt >= fence.at - fence.aheadSeconds)
          times.push(state.isAddress ? state.requestedAt : fence.at + fence.aheadSeconds);
      }
  return times.reduce((newest, time) => Math.max(newest, time), 0);
}
