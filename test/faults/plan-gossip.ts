/**
 * What is posted in the community that gossips with the peer: pure. Events are posted at the instances and at
 * the peer, deletions before and after their targets and at the other end, versions of a key at both ends.
 */
import {
  AUTHORS,
  INSTANCES,
  isGone,
  LEAVERS,
  type Operation,
  PEER,
  type PlannedEvent,
  ROUND_MS,
  SHARED,
  TOPICS,
} from './plan.js';
import type { Random } from './random.js';

const POSTS = 10;
const VERSIONS = 6;
const REQUESTS = 5;

export function planShared(random: Random, round: number, events: PlannedEvent[]): Operation[] {
  const operations: Operation[] = [];
  const everyone = Array.from({ length: AUTHORS + LEAVERS }, (_, author) => author);
  const present = everyone.filter((author) => !isGone(author, round));
  const draft = () => ({
    community: SHARED,
    author: random.pick(present),
    createdAt: round * 60 + random.between(0, 59),
    topic: random.pick(TOPICS),
  });
  const post = (event: Omit<PlannedEvent, 'number'>) => {
    const number = events.length;
    events.push({ ...event, number });
    // The peer has no rule that holds: what the node holds must not reach it.
    const place = event.isHeld ? random.between(0, INSTANCES - 1) : random.pick([0, 1, PEER, PEER]);
    const instances = random.chance(0.15) && !event.isHeld ? [...new Set([place, PEER])] : [place];
    operations.push({ do: 'post', event: number, instances, atMs: random.between(0, ROUND_MS) });
  };
  const first = events.length;
  for (let at = 0; at < POSTS; at += 1) {
    const expiresIn = random.between(1, 8);
    const special = random.pick([{}, {}, {}, {}, {}, { isHeld: true }, { isForged: true }, { expiresIn }]);
    post({ ...draft(), kind: 1, ...special });
  }
  for (let at = 0; at < VERSIONS; at += 1) {
    const createdAt = random.between(0, round * 20 + 20);
    const author = random.between(0, 2);
    post({ ...draft(), author, createdAt, kind: 30_023, d: random.pick(['', 'a:b']) });
  }
  const targets = events.filter(
    ({ community, kind, isForged }) => community === SHARED && kind !== 5 && !isForged,
  );
  const fresh = targets.filter(({ number }) => number >= first);
  for (let at = 0; at < REQUESTS; at += 1) {
    const target = random.pick(random.chance(0.5) ? fresh : targets);
    const author = random.chance(0.2) ? (target.author + 1) % 4 : target.author;
    if (isGone(author, round)) continue;
    const byAddress = target.kind !== 1 && random.chance(0.7);
    const createdAt = Math.max(0, target.createdAt + random.pick([-1, 0, 0, 1, 5]));
    const deletes = byAddress
      ? { ids: [], addresses: [target.number] }
      : { ids: [target.number], addresses: [] };
    post({ community: SHARED, author, kind: 5, createdAt, topic: target.topic, deletes });
  }
  return operations;
}
