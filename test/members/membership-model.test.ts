/**
 * Membership against a simple model: any sequence of actions, two at a time from two connections, and rows
 * changed behind the store's back. One order of the two actions must always explain both answers, and the
 * view must match the model.
 */
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Denial, isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, readCommunities, readConfigVersions } from '../../src/communities/communities.sql.js';
import { changeMember } from '../../src/members/members.sql.js';
import type { MemberStatus } from '../../src/members/rules.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { blockTopic, unblockTopic } from '../../src/topics/blocked-topics.sql.js';
import { changeNodeTopic, createNodeTopic, deleteNodeTopic } from '../../src/topics/node-topics.sql.js';
import {
  approveRequest,
  cancelRequest,
  type Requested,
  rejectRequest,
  requestTopic,
} from '../../src/topics/requests.sql.js';
import {
  endSubscription,
  pauseSubscription,
  resumeSubscription,
} from '../../src/topics/subscriptions.sql.js';
import { readTopics } from '../../src/topics/topics.sql.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const MEMBERS = ['1', '2', '3'].map((digit) => digit.repeat(64));
const TOPICS = ['kukuri:a', 'kukuri:b', 'kukuri:c'];
const PENDING_MAX = 2;
/** The global topic is carried from the start, so two of the three fit. */
const ENABLED_MAX = 3;
const RULES = { pendingMax: PENDING_MAX, pendingTotalMax: 10_000, enabledMax: ENABLED_MAX, allowList: [] };

let store: TestStore;
let second: Database;
let clock = 1_700_000_000_000;
let made = 0;

beforeAll(async () => {
  store = await openTestStore();
  second = openDatabase(store.test.connection);
});
afterAll(async () => {
  await second.close();
  await store.close();
});

// ─── The model ─────────────────────────────────────────────────────────────────────────────────────────────

interface State {
  readonly members: ReadonlyMap<string, MemberStatus>;
  /** By member and topic: the last request, and whether a subscription is open. */
  readonly requests: ReadonlyMap<string, 'pending' | 'active' | 'rejected' | 'cancelled'>;
  readonly open: ReadonlyMap<string, 'active' | 'paused'>;
  /** Rows of the node, pinned or not. */
  readonly rows: ReadonlyMap<string, boolean>;
  readonly blocked: ReadonlySet<string>;
}

const EMPTY: State = {
  members: new Map(),
  requests: new Map(),
  open: new Map(),
  rows: new Map(),
  blocked: new Set(),
};

type Name =
  | 'request'
  | 'join'
  | 'approve'
  | 'reject'
  | 'cancel'
  | 'pause'
  | 'resume'
  | 'end'
  | 'disable'
  | 'enable'
  | 'delete member'
  | 'block'
  | 'unblock'
  | 'create'
  | 'pin'
  | 'unpin'
  | 'delete topic'
  | 'raw end'
  | 'raw disable'
  | 'raw drop row';

interface Action {
  readonly name: Name;
  readonly member: string;
  readonly topic: string;
}

const keyOf = ({ member, topic }: { member: string; topic: string }) => `${member}|${topic}`;
const statusOf = (state: State, member: string) => state.members.get(member) ?? 'active';
const refCount = (state: State, topic: string) =>
  MEMBERS.filter(
    (member) => state.open.get(keyOf({ member, topic })) === 'active' && statusOf(state, member) === 'active',
  ).length;
const isEnabled = (state: State, topic: string) =>
  state.rows.has(topic) &&
  !state.blocked.has(topic) &&
  (state.rows.get(topic) === true || refCount(state, topic) > 0);
const enabledCount = (state: State) => TOPICS.filter((topic) => isEnabled(state, topic)).length + 1;

function put<K, V>(map: ReadonlyMap<K, V>, key: K, value: V | undefined): ReadonlyMap<K, V> {
  const copy = new Map(map);
  if (value === undefined) copy.delete(key);
  else copy.set(key, value);
  return copy;
}

/** The new state, or the code of the refusal. */
type Outcome = State | string;

function capped(before: State, after: State, topic: string): Outcome {
  const more = !isEnabled(before, topic) && isEnabled(after, topic);
  return more && enabledCount(after) > ENABLED_MAX ? 'TOPIC_LIMIT_REACHED' : after;
}

function refuseUse(state: State, { member, topic }: Action): string | undefined {
  const status = statusOf(state, member);
  if (status !== 'active') return status === 'disabled' ? 'ACCOUNT_DISABLED' : 'ACCOUNT_DELETED';
  return state.blocked.has(topic) ? 'TOPIC_BLOCKED' : undefined;
}

function activate(state: State, { member, topic }: Action): State {
  const key = keyOf({ member, topic });
  return {
    ...state,
    requests: put(state.requests, key, 'active'),
    open: put(state.open, key, 'active'),
    rows: put(state.rows, topic, state.rows.get(topic) ?? false),
  };
}

function request(state: State, action: Action, automatic: boolean): Outcome {
  const key = keyOf(action);
  const refused = refuseUse(state, action);
  if (refused !== undefined) return refused;
  if (state.open.has(key)) return 'ALREADY_SUBSCRIBED';
  if (state.requests.get(key) === 'pending') return 'REQUEST_PENDING';
  const room = isEnabled(state, action.topic) || enabledCount(state) < ENABLED_MAX;
  const members = put(state.members, action.member, 'active');
  if (automatic && room) return activate({ ...state, members }, action);
  const waiting = TOPICS.filter(
    (topic) => state.requests.get(keyOf({ ...action, topic })) === 'pending',
  ).length;
  if (waiting >= PENDING_MAX) return 'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED';
  return { ...state, members, requests: put(state.requests, key, 'pending') };
}

function settle(state: State, action: Action, to: 'rejected' | 'cancelled'): Outcome {
  const status = state.requests.get(keyOf(action));
  if (status === undefined) return 'NOT_FOUND';
  if (status === to) return state;
  if (status !== 'pending') return 'STATUS_CONFLICT';
  return { ...state, requests: put(state.requests, keyOf(action), to) };
}

function approve(state: State, action: Action): Outcome {
  const status = state.requests.get(keyOf(action));
  if (status === undefined) return 'NOT_FOUND';
  if (status === 'active') return state;
  if (status !== 'pending') return 'STATUS_CONFLICT';
  return refuseUse(state, action) ?? capped(state, activate(state, action), action.topic);
}

function setOpen(state: State, action: Action, to: 'active' | 'paused' | undefined): Outcome {
  const key = keyOf(action);
  const status = state.open.get(key);
  if (status === undefined) return 'NOT_FOUND';
  if (status === to) return state;
  const after = { ...state, open: put(state.open, key, to) };
  if (to !== 'active') return after;
  return refuseUse(state, action) ?? capped(state, after, action.topic);
}

function setMember(state: State, { member }: Action, to: MemberStatus): Outcome {
  const status = statusOf(state, member);
  if (status === 'deleted' && to !== 'deleted') return 'STATUS_CONFLICT';
  const members = put(state.members, member, to);
  if (to !== 'deleted') return { ...state, members };
  const own = (key: string) => key.startsWith(member);
  return {
    ...state,
    members,
    open: new Map([...state.open].filter(([key]) => !own(key))),
    requests: new Map(
      [...state.requests].map(([key, value]) => [key, own(key) && value === 'pending' ? 'cancelled' : value]),
    ),
  };
}

function pin(state: State, { topic }: Action, pinned: boolean): Outcome {
  if (!state.rows.has(topic)) return 'NOT_FOUND';
  return capped(state, { ...state, rows: put(state.rows, topic, pinned) }, topic);
}

const MODEL: Record<Name, (state: State, action: Action) => Outcome> = {
  request: (state, action) => request(state, action, false),
  join: (state, action) => request(state, action, true),
  approve,
  reject: (state, action) => settle(state, action, 'rejected'),
  cancel: (state, action) => settle(state, action, 'cancelled'),
  pause: (state, action) => setOpen(state, action, 'paused'),
  resume: (state, action) => setOpen(state, action, 'active'),
  end: (state, action) => setOpen(state, action, undefined),
  disable: (state, action) => setMember(state, action, 'disabled'),
  enable: (state, action) => setMember(state, action, 'active'),
  'delete member': (state, action) => setMember(state, action, 'deleted'),
  block: (state, { topic }) => ({ ...state, blocked: new Set([...state.blocked, topic]) }),
  unblock: (state, { topic }) =>
    state.blocked.has(topic)
      ? { ...state, blocked: new Set([...state.blocked].filter((one) => one !== topic)) }
      : 'NOT_FOUND',
  create: (state, { topic }) =>
    state.rows.has(topic)
      ? 'TOPIC_EXISTS'
      : capped(state, { ...state, rows: put(state.rows, topic, true) }, topic),
  pin: (state, action) => pin(state, action, true),
  unpin: (state, action) => pin(state, action, false),
  'delete topic': (state, { topic }) => {
    if (!state.rows.has(topic)) return 'NOT_FOUND';
    const used = MEMBERS.some((member) => state.open.has(keyOf({ member, topic })));
    return used ? 'TOPIC_IN_USE' : { ...state, rows: put(state.rows, topic, undefined) };
  },
  'raw end': (state, action) => ({ ...state, open: put(state.open, keyOf(action), undefined) }),
  'raw disable': (state, { member }) =>
    statusOf(state, member) === 'active' && state.members.has(member)
      ? { ...state, members: put(state.members, member, 'disabled') }
      : state,
  'raw drop row': (state, { topic }) => ({ ...state, rows: put(state.rows, topic, undefined) }),
};

// ─── The store ─────────────────────────────────────────────────────────────────────────────────────────────

interface World {
  readonly community: number;
  /** The id of the last request by member and topic. */
  readonly ids: Map<string, string>;
}

type Answer = Denial | object | undefined;

function perform({ community, ids }: World, pool: Pool, action: Action): Promise<Answer> {
  const { name, member: pubkey, topic } = action;
  clock += 1;
  const now = clock;
  const ref = { community, pubkey, topic };
  const cap = { enabledMax: ENABLED_MAX };
  const review = { community, requestId: ids.get(keyOf(action)) ?? 'none' };
  const member = (status: MemberStatus) =>
    changeMember(pool, { community, pubkey, status }, { fixed: [] }, now);
  const change = (pinned: boolean) =>
    changeNodeTopic(pool, { community, topic, changes: { pinned } }, cap, now);
  const ask = (autoApproval: 'off' | 'within-limits') =>
    requestTopic(pool, { ...ref, services: [] }, { ...RULES, autoApproval }, now);
  const raw = async (text: string, values: unknown[]) => {
    await pool.query(text, values);
    return undefined;
  };
  const key = Buffer.from(pubkey, 'hex');
  const does: Record<Name, () => Promise<Answer>> = {
    request: () => ask('off'),
    join: () => ask('within-limits'),
    approve: () => approveRequest(pool, review, cap, now),
    reject: () => rejectRequest(pool, review, now),
    cancel: () => cancelRequest(pool, { ...review, pubkey }, now),
    pause: () => pauseSubscription(pool, ref, now),
    resume: () => resumeSubscription(pool, ref, cap, now),
    end: () => endSubscription(pool, ref, now),
    disable: () => member('disabled'),
    enable: () => member('active'),
    'delete member': () => member('deleted'),
    block: () => blockTopic(pool, { community, topic }, now),
    unblock: () => unblockTopic(pool, { community, topic }, now),
    create: () => createNodeTopic(pool, { community, topic }, cap, now),
    pin: () => change(true),
    unpin: () => change(false),
    'delete topic': () => deleteNodeTopic(pool, { community, topic }, now),
    'raw end': () =>
      raw(
        `UPDATE topic_subscriptions SET status = 'ended', ended_at = $4
         WHERE community = $1 AND pubkey = $2 AND topic = $3 AND status <> 'ended'`,
        [community, key, topic, now],
      ),
    'raw disable': () =>
      raw(
        `UPDATE members SET status = 'disabled' WHERE community = $1 AND pubkey = $2 AND status = 'active'`,
        [community, key],
      ),
    'raw drop row': () =>
      raw('DELETE FROM node_subscriptions WHERE community = $1 AND topic = $2', [community, topic]),
  };
  return does[name]();
}

const isRaw = ({ name }: Action) => name.startsWith('raw');

/** What the view contains, and what the model expects. */
async function viewOf(community: number): Promise<object[]> {
  const { rows } = await store.database.pool.query(
    `SELECT topic, pinned, ref_count, enabled FROM node_topics
     WHERE community = $1 AND topic <> 'kukuri:global' ORDER BY topic`,
    [community],
  );
  return rows;
}
function expectedView(state: State): object[] {
  return TOPICS.filter((topic) => state.rows.has(topic)).map((topic) => ({
    topic,
    pinned: state.rows.get(topic),
    ref_count: refCount(state, topic),
    enabled: isEnabled(state, topic),
  }));
}

/** The states that some order of the actions leads to, with these answers. */
function explain(state: State, steps: readonly { action: Action; answer: Answer }[]): State[] {
  const orders = steps.length < 2 ? [steps] : [steps, [...steps].reverse()];
  return orders.flatMap((order) => {
    let at: State = state;
    for (const { action, answer } of order) {
      const outcome = MODEL[action.name](at, action);
      const word = typeof outcome === 'string' ? outcome : undefined;
      if (word !== (isDenial(answer) ? answer.denied : undefined)) return [];
      if (typeof outcome !== 'string') at = outcome;
    }
    return [at];
  });
}

function distinct(states: readonly State[]): State[] {
  return states.filter((state, at) => states.findIndex((other) => isDeepStrictEqual(other, state)) === at);
}

/** What instances cache of a community, and which changes they must be notified of. */
async function heldOf(community: number): Promise<{ held: string; rights: string }> {
  const { pool } = store.database;
  const topics = [...((await readTopics(pool)).get(community) ?? [])].filter(([, { enabled }]) => enabled);
  const refused = (await readCommunities(pool)).find(({ id }) => id === community)?.refused;
  const { rows } = await pool.query(
    'SELECT topic, pubkey FROM topic_rights WHERE community = $1 ORDER BY 1, 2',
    [community],
  );
  return {
    held: JSON.stringify([topics, Object.entries(refused ?? {}).sort()]),
    rights: JSON.stringify(rows),
  };
}

const actionArbitrary: fc.Arbitrary<Action> = fc.record({
  // Actions that build up state are drawn more often than those that remove it.
  name: fc.oneof(
    {
      weight: 6,
      arbitrary: fc.constantFrom<Name>('request', 'join', 'approve', 'pause', 'resume', 'end'),
    },
    {
      weight: 3,
      arbitrary: fc.constantFrom<Name>(
        'reject',
        'cancel',
        'disable',
        'enable',
        'enable',
        'block',
        'unblock',
        'unblock',
        'create',
        'pin',
        'unpin',
        'delete topic',
      ),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom<Name>('delete member', 'raw end', 'raw disable', 'raw drop row'),
    },
  ),
  member: fc.constantFrom(...MEMBERS),
  topic: fc.constantFrom(...TOPICS),
});

async function play(pairs: readonly (readonly Action[])[]): Promise<void> {
  made += 1;
  clock += 1;
  const community = await addCommunity(store.database.pool, `m${made}`, undefined, clock);
  const world: World = { community, ids: new Map() };
  const pools = [store.database.pool, second.pool];
  // Two orders may explain the same answers and the same view (disable and enable at once). Both stay
  // possible until a later answer distinguishes them.
  let possible: readonly State[] = [EMPTY];
  for (const pair of pairs) {
    const before = { ...(await heldOf(community)), ...(await readConfigVersions(second.pool)) };
    // A row changed by hand takes no lock, so it runs alone: it could overtake the checks of a partner.
    const actions = pair.some(isRaw) ? pair.slice(0, 1) : pair;
    const answers = await Promise.all(actions.map((action, at) => perform(world, pools[at]!, action)));
    const steps = actions.map((action, at) => ({ action, answer: answers[at] }));
    for (const { action, answer } of steps) {
      if (['request', 'join'].includes(action.name) && !isDenial(answer))
        world.ids.set(keyOf(action), (answer as Requested).request.requestId);
    }
    const view = await viewOf(community);
    const states = possible.flatMap((state) => explain(state, steps));
    expect(states, `no order explains ${JSON.stringify(steps)}`).not.toEqual([]);
    expect(states.map(expectedView)).toContainEqual(view);
    possible = distinct(states.filter((one) => isDeepStrictEqual(expectedView(one), view)));
    await checkBounds(community);
    if (!actions.some(isRaw)) await checkTold(community, before);
  }
}

async function checkBounds(community: number): Promise<void> {
  const { rows } = await store.database.pool.query<{ pending: number; open: number }>(
    `SELECT coalesce((SELECT max(n) FROM (SELECT count(*) AS n FROM topic_subscription_requests
         WHERE community = $1 AND status = 'pending' GROUP BY pubkey) p), 0) AS pending,
       coalesce((SELECT max(n) FROM (SELECT count(*) AS n FROM topic_subscriptions
         WHERE community = $1 AND status <> 'ended' GROUP BY pubkey, topic) o), 0) AS open`,
    [community],
  );
  expect(rows[0]!.pending).toBeLessThanOrEqual(PENDING_MAX);
  expect(rows[0]!.open).toBeLessThanOrEqual(1);
}

async function checkTold(
  community: number,
  before: { held: string; rights: string; version: number; rightsVersion: number },
): Promise<void> {
  const after = { ...(await heldOf(community)), ...(await readConfigVersions(second.pool)) };
  if (after.held !== before.held) expect(after.version).toBeGreaterThan(before.version);
  if (after.rights !== before.rights) expect(after.rightsVersion).toBeGreaterThan(before.rightsVersion);
}

it('any actions, two at once, leave carried topics, limits and polled versions as in the model', async () => {
  const pairs = fc.array(fc.array(actionArbitrary, { minLength: 2, maxLength: 2 }), {
    minLength: 5,
    maxLength: 30,
    size: 'max',
  });
  await fc.assert(fc.asyncProperty(pairs, play), { numRuns: 25, endOnFailure: true });
}, 300_000);

it('of concurrent approvals for the last free place, one succeeds', async () => {
  const [one, two] = MEMBERS as [string, string];
  const [a, b, c] = TOPICS as [string, string, string];
  for (let round = 0; round < 10; round += 1) {
    await play([
      [
        { name: 'request', member: one, topic: a },
        { name: 'request', member: two, topic: b },
      ],
      [{ name: 'create', member: one, topic: c }],
      [
        { name: 'approve', member: one, topic: a },
        { name: 'approve', member: two, topic: b },
      ],
    ]);
  }
});
