/** Membership in the database: requests, decisions, carried topics. Every rule against a real PostgreSQL. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Denial, isDenial } from '../../src/api/rules-errors.js';
import { listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity, readConfigVersions } from '../../src/communities/communities.sql.js';
import {
  changeSetting,
  clearSetting,
  readSetting,
  readSettingVersions,
} from '../../src/communities/settings.sql.js';
import { createInvite, listInvites, revokeInvite } from '../../src/members/invites.sql.js';
import { changeMember, listMembers, readMember } from '../../src/members/members.sql.js';
import { addOperator, listOperators, removeOperator } from '../../src/members/operators.sql.js';
import type { Page, PageOf } from '../../src/postgres/page.js';
import { blockTopic, listBlockedTopics, unblockTopic } from '../../src/topics/blocked-topics.sql.js';
import {
  changeNodeTopic,
  createNodeTopic,
  deleteNodeTopic,
  listNodeTopics,
  readDirectory,
  readNodeTopic,
} from '../../src/topics/node-topics.sql.js';
import {
  approveRequest,
  cancelRequest,
  listRequests,
  listRequestsOf,
  readRequest,
  rejectRequest,
  requestTopic,
} from '../../src/topics/requests.sql.js';
import type { RequestRules } from '../../src/topics/rules-requests.js';
import {
  endSubscription,
  listSubscriptions,
  pauseSubscription,
  readRights,
  resumeSubscription,
  rightsKey,
} from '../../src/topics/subscriptions.sql.js';
import { newAuthor } from '../support/events.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const RULES: RequestRules = {
  pendingMax: 5,
  pendingTotalMax: 10_000,
  enabledMax: 1_000,
  autoApproval: 'off',
  allowList: [],
};
const NONE_FIXED = { fixed: [] };
const FIRST: PageOf = { limit: 100 };
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

let store: TestStore;
let community: number;
let clock = 1_700_000_000_000;
const pool = () => store.database.pool;
const tick = () => ++clock;

beforeAll(async () => {
  store = await openTestStore();
});
afterAll(() => store.close());

let made = 0;
beforeEach(async () => {
  made += 1;
  community = await addCommunity(pool(), `c${made}`, undefined, tick());
});

function granted<T>(result: T | Denial): T {
  if (isDenial(result)) throw new Error(`denied: ${JSON.stringify(result)}`);
  return result;
}
const items = <T>(page: Page<T> | Denial): readonly T[] => granted(page).items;
const denied = (code: string) => expect.objectContaining({ denied: code });
const pubkey = () => newAuthor().pubkey;
const topicOf = (name: string) => `kukuri:${name}`;

function ask(member: string, topic: string, rules: Partial<RequestRules> = {}, invite?: string) {
  const wanted = { community, pubkey: member, topic, services: ['index'], invite };
  return requestTopic(pool(), wanted, { ...RULES, ...rules }, tick());
}
async function pending(member: string, topic: string): Promise<string> {
  return granted(await ask(member, topic)).request.requestId;
}
function approve(requestId: string, more: { note?: string; actor?: string; enabledMax?: number } = {}) {
  const { enabledMax = 1_000, ...review } = more;
  return approveRequest(pool(), { community, requestId, ...review }, { enabledMax }, tick());
}
async function subscribed(member: string, topic: string) {
  return granted(await approve(await pending(member, topic)));
}
const ref = (member: string, topic: string) => ({ community, pubkey: member, topic });
const pause = (member: string, topic: string) => pauseSubscription(pool(), ref(member, topic), tick());
const resume = (member: string, topic: string, enabledMax = 1_000) =>
  resumeSubscription(pool(), ref(member, topic), { enabledMax }, tick());
const end = (member: string, topic: string) => endSubscription(pool(), ref(member, topic), tick());
const topicRow = (topic: string) => readNodeTopic(pool(), community, topic);
const audit = async () => items(await listAudit(pool(), community, FIRST));
const rightsOf = async (member: string) => [
  ...((await readRights(pool(), [{ community, pubkey: member }])).get(
    rightsKey({ community, pubkey: member }),
  )?.topics ?? []),
];

/** How much some work raises the two polled versions. */
async function raised(work: () => Promise<unknown>): Promise<{ version: number; rights: number }> {
  const before = await readConfigVersions(pool());
  await work();
  const after = await readConfigVersions(pool());
  return {
    version: after.version - before.version,
    rights: after.rightsVersion - before.rightsVersion,
  };
}

describe('a request', () => {
  it('waits for review, and makes its author a member', async () => {
    const member = pubkey();
    const { request, subscription } = granted(await ask(member, topicOf('a')));
    expect(subscription).toBeUndefined();
    expect(request).toMatchObject({
      pubkey: member,
      topic: 'kukuri:a',
      services: ['index'],
      status: 'pending',
      reviewedAt: null,
    });
    expect(await readMember(pool(), community, member)).toMatchObject({ status: 'active', pending: 1 });
    expect(await topicRow('kukuri:a')).toBeUndefined();
    expect(await rightsOf(member)).toEqual([]);
  });

  it('raises no version that instances poll', async () => {
    expect(await raised(() => ask(pubkey(), topicOf('a')))).toEqual({ version: 0, rights: 0 });
  });

  it('for a topic with a pending request is refused, with that request', async () => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    expect(await ask(member, topicOf('a'))).toEqual({
      denied: 'REQUEST_PENDING',
      details: { request_id: requestId },
    });
  });

  it.each(['active', 'paused'])('for a topic whose subscription is %s is refused', async (status) => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    if (status === 'paused') await pause(member, topicOf('a'));
    expect(await ask(member, topicOf('a'))).toEqual({ denied: 'ALREADY_SUBSCRIBED', details: { status } });
  });

  it('for a blocked topic is refused', async () => {
    await blockTopic(pool(), { community, topic: topicOf('a') }, tick());
    expect(await ask(pubkey(), topicOf('a'))).toEqual({ denied: 'TOPIC_BLOCKED' });
  });

  it.each([
    ['disabled', 'ACCOUNT_DISABLED'],
    ['deleted', 'ACCOUNT_DELETED'],
  ] as const)('of an account that is %s is refused', async (status, code) => {
    const member = pubkey();
    await changeMember(pool(), { community, pubkey: member, status }, NONE_FIXED, tick());
    expect(await ask(member, topicOf('a'))).toEqual({ denied: code });
  });

  it('that is refused leaves no member behind', async () => {
    const member = pubkey();
    await blockTopic(pool(), { community, topic: topicOf('a') }, tick());
    await ask(member, topicOf('a'));
    await ask(member, topicOf('b'), {}, 'no such code');
    expect(await readMember(pool(), community, member)).toBeUndefined();
  });

  it('above the limit of pending requests is refused, exactly, under concurrency', async () => {
    const member = pubkey();
    const asked = await Promise.all(
      Array.from({ length: 12 }, (_, at) => ask(member, topicOf(`t${at}`), { pendingMax: 5 })),
    );
    const refused = asked.filter(isDenial);
    expect(refused).toHaveLength(7);
    for (const one of refused) {
      expect(one).toEqual({ denied: 'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED', details: { limit: 5 } });
    }
    expect(await readMember(pool(), community, member)).toMatchObject({ pending: 5 });
  });

  it('sent at once over several connections is made once', async () => {
    const member = pubkey();
    const asked = await Promise.all(Array.from({ length: 6 }, () => ask(member, topicOf('a'))));
    expect(asked.filter((one) => !isDenial(one))).toHaveLength(1);
    expect(asked.filter(isDenial).map((one) => one.denied)).toEqual(Array(5).fill('REQUEST_PENDING'));
  });

  it('of another member or in another community does not count', async () => {
    const member = pubkey();
    await ask(member, topicOf('a'), { pendingMax: 1 });
    expect(await ask(member, topicOf('b'), { pendingMax: 1 })).toEqual(
      denied('PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED'),
    );
    granted(await ask(pubkey(), topicOf('b'), { pendingMax: 1 }));
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    granted(await ask(member, topicOf('a'), { pendingMax: 1 }));
  });
});

describe('cancelling a request', () => {
  const cancel = (member: string, requestId: string) =>
    cancelRequest(pool(), { community, pubkey: member, requestId }, tick());

  it('frees its place, and doing it again changes nothing', async () => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    const cancelled = granted(await cancel(member, requestId));
    expect(cancelled).toMatchObject({ requestId, status: 'cancelled' });
    expect(await cancel(member, requestId)).toEqual(cancelled);
    granted(await ask(member, topicOf('a'), { pendingMax: 1 }));
  });

  it("of another member's request does not reveal that it exists", async () => {
    const requestId = await pending(pubkey(), topicOf('a'));
    expect(await cancel(pubkey(), requestId)).toEqual(await cancel(pubkey(), UNKNOWN));
    expect(await cancel(pubkey(), requestId)).toEqual({ denied: 'NOT_FOUND' });
    expect(await readRequest(pool(), community, requestId)).toMatchObject({ status: 'pending' });
  });

  it("of another member's decided request does not reveal it either", async () => {
    const requestId = await pending(pubkey(), topicOf('a'));
    await approve(requestId);
    expect(await cancel(pubkey(), requestId)).toEqual({ denied: 'NOT_FOUND' });
  });

  it('in another community, or by an invalid id, finds nothing', async () => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    expect(await cancel(member, 'x')).toEqual({ denied: 'NOT_FOUND' });
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    expect(await cancel(member, requestId)).toEqual({ denied: 'NOT_FOUND' });
  });

  it.each(['active', 'rejected'])('that is %s is refused with its status', async (status) => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    if (status === 'active') await approve(requestId);
    else await rejectRequest(pool(), { community, requestId }, tick());
    expect(await cancel(member, requestId)).toEqual({ denied: 'STATUS_CONFLICT', details: { status } });
  });
});

describe('approval', () => {
  it('starts the subscription, and the topic is carried from then on', async () => {
    const member = pubkey();
    const operator = pubkey();
    const wanted = { community, pubkey: member, topic: topicOf('a'), name: 'Ships', services: ['trust'] };
    const asked = granted(await requestTopic(pool(), wanted, RULES, tick()));
    const { request, subscription } = granted(
      await approve(asked.request.requestId, { note: 'welcome', actor: operator }),
    );
    expect(request).toMatchObject({
      status: 'active',
      reviewNote: 'welcome',
      reviewedBy: operator,
      reviewedAt: clock,
    });
    expect(subscription).toMatchObject({
      requestId: request.requestId,
      pubkey: member,
      topic: 'kukuri:a',
      services: ['trust'],
      plan: 'free',
      status: 'active',
      startedAt: clock,
      endedAt: null,
    });
    expect(await topicRow('kukuri:a')).toMatchObject({
      name: 'Ships',
      pinned: false,
      public: false,
      refCount: 1,
      enabled: true,
    });
    expect(await rightsOf(member)).toEqual(['kukuri:a']);
  });

  it('of the same request again gives the same answer, and is audited once', async () => {
    const requestId = await pending(pubkey(), topicOf('a'));
    const first = granted(await approve(requestId, { note: 'one' }));
    expect(
      await raised(async () => expect(await approve(requestId, { note: 'two' })).toEqual(first)),
    ).toEqual({
      version: 0,
      rights: 0,
    });
    expect((await audit()).map(({ action }) => action)).toEqual(['request.approve']);
  });

  it('at once from several connections makes one subscription', async () => {
    const requestId = await pending(pubkey(), topicOf('a'));
    const answers = await Promise.all(Array.from({ length: 5 }, () => approve(requestId)));
    const ids = answers.map((one) => granted(one).subscription?.subscriptionId);
    expect(new Set(ids).size).toBe(1);
    expect(await topicRow('kukuri:a')).toMatchObject({ refCount: 1 });
  });

  it.each(['rejected', 'cancelled'])('of one that is %s is refused', async (status) => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    if (status === 'rejected') await rejectRequest(pool(), { community, requestId }, tick());
    else await cancelRequest(pool(), { community, pubkey: member, requestId }, tick());
    expect(await approve(requestId)).toEqual({ denied: 'STATUS_CONFLICT', details: { status } });
    expect(await rightsOf(member)).toEqual([]);
  });

  it('of an unknown request, or one of another community, finds nothing', async () => {
    const requestId = await pending(pubkey(), topicOf('a'));
    expect(await approve(UNKNOWN)).toEqual({ denied: 'NOT_FOUND' });
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    expect(await approve(requestId)).toEqual({ denied: 'NOT_FOUND' });
    expect(await rejectRequest(pool(), { community, requestId }, tick())).toEqual({ denied: 'NOT_FOUND' });
  });

  it('is refused if the topic was blocked or the account disabled meanwhile', async () => {
    const member = pubkey();
    const requestId = await pending(member, topicOf('a'));
    await blockTopic(pool(), { community, topic: topicOf('a') }, tick());
    expect(await approve(requestId)).toEqual({ denied: 'TOPIC_BLOCKED' });
    await unblockTopic(pool(), { community, topic: topicOf('a') }, tick());
    await changeMember(pool(), { community, pubkey: member, status: 'disabled' }, NONE_FIXED, tick());
    expect(await approve(requestId)).toEqual({ denied: 'ACCOUNT_DISABLED' });
    await changeMember(pool(), { community, pubkey: member, status: 'active' }, NONE_FIXED, tick());
    granted(await approve(requestId));
  });

  it('above the cap on carried topics is refused; for one that is carried it is not', async () => {
    // The global topic is carried from the start and takes one place.
    await subscribed(pubkey(), topicOf('a'));
    const [second, other] = [await pending(pubkey(), topicOf('a')), await pending(pubkey(), topicOf('b'))];
    expect(await approve(other, { enabledMax: 2 })).toEqual({
      denied: 'TOPIC_LIMIT_REACHED',
      details: { limit: 2 },
    });
    expect(await topicRow('kukuri:b')).toBeUndefined();
    granted(await approve(second, { enabledMax: 2 }));
    granted(await approve(other, { enabledMax: 3 }));
  });

  it('at once for many topics never goes above the cap', async () => {
    const requests = await Promise.all(
      Array.from({ length: 8 }, (_, at) => pending(pubkey(), topicOf(`t${at}`))),
    );
    const answers = await Promise.all(requests.map((requestId) => approve(requestId, { enabledMax: 4 })));
    expect(answers.filter((one) => !isDenial(one))).toHaveLength(3);
    const enabled = items(await listNodeTopics(pool(), community, FIRST)).filter((topic) => topic.enabled);
    expect(enabled).toHaveLength(4);
  });

  it('makes instances reload everything only when the topic was not carried before', async () => {
    const [first, second] = [await pending(pubkey(), topicOf('a')), await pending(pubkey(), topicOf('a'))];
    expect(await raised(() => approve(first))).toEqual({ version: 1, rights: 1 });
    expect(await raised(() => approve(second))).toEqual({ version: 0, rights: 1 });
  });
});

describe('rejection', () => {
  it('is audited once and repeatable, and the member may request again', async () => {
    const member = pubkey();
    const operator = pubkey();
    const requestId = await pending(member, topicOf('a'));
    const reject = () =>
      rejectRequest(pool(), { community, requestId, note: 'not here', actor: operator }, tick());
    const rejected = granted(await reject());
    expect(rejected).toMatchObject({ status: 'rejected', reviewNote: 'not here', reviewedBy: operator });
    expect(await reject()).toEqual(rejected);
    expect(await audit()).toEqual([
      expect.objectContaining({
        actor: operator,
        action: 'request.reject',
        target: requestId,
        details: { pubkey: member, topic: 'kukuri:a', note: 'not here' },
      }),
    ]);
    granted(await ask(member, topicOf('a')));
  });

  it('of an active request is refused, and the subscription stays active', async () => {
    const member = pubkey();
    const { request } = await subscribed(member, topicOf('a'));
    const { requestId } = request;
    expect(await rejectRequest(pool(), { community, requestId }, tick())).toEqual(denied('STATUS_CONFLICT'));
    expect(await rightsOf(member)).toEqual(['kukuri:a']);
  });
});

describe('approval without review', () => {
  const auto = (autoApproval: RequestRules['autoApproval'], more: Partial<RequestRules> = {}) => ({
    autoApproval,
    ...more,
  });
  const invite = async (topic?: string, expiresAt = clock + 1_000_000) =>
    granted(await createInvite(pool(), { community, topic, expiresAt }, tick()));

  it('within the limits approves everyone while there is room; the rest stay pending', async () => {
    const rules = auto('within-limits', { enabledMax: 2 });
    const first = granted(await ask(pubkey(), topicOf('a'), rules));
    expect(first).toMatchObject({
      request: { status: 'active', reviewNote: 'approved by the setting within-limits' },
      subscription: { status: 'active' },
    });
    expect(granted(await ask(pubkey(), topicOf('b'), rules)).request.status).toBe('pending');
    expect(granted(await ask(pubkey(), topicOf('a'), rules)).request.status).toBe('active');
  });

  it('by the allow-list approves only keys on it', async () => {
    const friend = pubkey();
    const rules = auto('allow-list', { allowList: [friend] });
    expect(granted(await ask(friend, topicOf('a'), rules)).request.status).toBe('active');
    expect(granted(await ask(pubkey(), topicOf('a'), rules)).request.status).toBe('pending');
  });

  it('by an invite approves its holder, and uses it up', async () => {
    const { code, invite: made } = await invite();
    const member = pubkey();
    expect(granted(await ask(member, topicOf('a'), auto('invite'), code)).request.status).toBe('active');
    expect(items(await listInvites(pool(), community, FIRST))).toEqual([
      { ...made, usedBy: member, usedAt: expect.any(Number) },
    ]);
    expect(await ask(pubkey(), topicOf('a'), auto('invite'), code)).toEqual({ denied: 'INVALID_INVITE' });
    expect(granted(await ask(pubkey(), topicOf('a'), auto('invite'))).request.status).toBe('pending');
  });

  it('by one invite approves one holder only, under concurrency', async () => {
    const { code } = await invite();
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => ask(pubkey(), topicOf('a'), auto('invite'), code)),
    );
    expect(answers.filter((one) => !isDenial(one))).toHaveLength(1);
    expect(await topicRow('kukuri:a')).toMatchObject({ refCount: 1 });
  });

  it('an invalid invite is refused in every mode', async () => {
    const { code: bound } = await invite(topicOf('only'));
    const { code: late } = await invite(undefined, clock + 2);
    const { code: revoked, invite: taken } = await invite();
    granted(await revokeInvite(pool(), { community, inviteId: taken.inviteId }, tick()));
    const { code: foreign } = await invite();
    for (const mode of ['off', 'within-limits', 'allow-list', 'invite'] as const) {
      for (const code of [bound, late, revoked, 'no such code', '']) {
        expect(await ask(pubkey(), topicOf('a'), auto(mode), code)).toEqual({ denied: 'INVALID_INVITE' });
      }
    }
    granted(await ask(pubkey(), topicOf('only'), auto('invite'), bound));
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    expect(await ask(pubkey(), topicOf('a'), auto('invite'), foreign)).toEqual({ denied: 'INVALID_INVITE' });
  });

  it('an invite is not used up when it decided nothing: in another mode, and above the cap', async () => {
    const { code } = await invite();
    granted(await ask(pubkey(), topicOf('a'), auto('off'), code));
    granted(await ask(pubkey(), topicOf('a'), auto('within-limits'), code));
    granted(await ask(pubkey(), topicOf('b'), auto('invite', { enabledMax: 1 }), code));
    expect(granted(await ask(pubkey(), topicOf('a'), auto('invite'), code)).request.status).toBe('active');
  });

  it('does not count against the limit of pending requests', async () => {
    const member = pubkey();
    await ask(member, topicOf('a'), { pendingMax: 1 });
    const rules = auto('within-limits', { pendingMax: 1 });
    expect(granted(await ask(member, topicOf('b'), rules)).request.status).toBe('active');
  });
});

describe('a subscription', () => {
  it('that is paused gives no right until it is resumed; both are repeatable', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    const paused = granted(await pause(member, topicOf('a')));
    expect(paused.status).toBe('paused');
    expect(await pause(member, topicOf('a'))).toEqual(paused);
    expect(await rightsOf(member)).toEqual([]);
    const resumed = granted(await resume(member, topicOf('a')));
    expect(resumed).toMatchObject({ subscriptionId: paused.subscriptionId, status: 'active' });
    expect(await resume(member, topicOf('a'))).toEqual(resumed);
    expect(await rightsOf(member)).toEqual(['kukuri:a']);
  });

  it('that has ended can be requested again, and is then a new one', async () => {
    const member = pubkey();
    const first = await subscribed(member, topicOf('a'));
    expect(granted(await end(member, topicOf('a')))).toMatchObject({ status: 'ended', endedAt: clock });
    expect(await rightsOf(member)).toEqual([]);
    const second = await subscribed(member, topicOf('a'));
    expect(second.subscription?.subscriptionId).not.toBe(first.subscription?.subscriptionId);
    const all = items(await listSubscriptions(pool(), { community, pubkey: member }, FIRST));
    expect(all.map(({ status }) => status)).toEqual(['active', 'ended']);
  });

  it.each([
    ['pause', pause],
    ['resume', resume],
    ['end', end],
  ] as const)('that is not open cannot be changed: %s', async (_name, action) => {
    const member = pubkey();
    expect(await action(member, topicOf('a'))).toEqual({ denied: 'NOT_FOUND' });
    await subscribed(member, topicOf('a'));
    expect(await action(pubkey(), topicOf('a'))).toEqual({ denied: 'NOT_FOUND' });
    expect(await action(member, topicOf('b'))).toEqual({ denied: 'NOT_FOUND' });
    await end(member, topicOf('a'));
    expect(await action(member, topicOf('a'))).toEqual({ denied: 'NOT_FOUND' });
  });

  it.each([
    ['pausing', pause],
    ['ending', end],
  ] as const)('%s the last one stops the topic, unless it is pinned', async (_name, action) => {
    const [one, two] = [pubkey(), pubkey()];
    await createNodeTopic(pool(), { community, topic: topicOf('pinned') }, { enabledMax: 9 }, tick());
    for (const topic of [topicOf('a'), topicOf('pinned')]) {
      await subscribed(one, topic);
      await subscribed(two, topic);
    }
    expect(await raised(() => action(one, topicOf('a')))).toEqual({ version: 0, rights: 1 });
    expect(await topicRow('kukuri:a')).toMatchObject({ refCount: 1, enabled: true });
    expect(await raised(() => action(two, topicOf('a')))).toEqual({ version: 1, rights: 1 });
    expect(await topicRow('kukuri:a')).toMatchObject({ refCount: 0, enabled: false });
    await action(one, topicOf('pinned'));
    expect(await raised(() => action(two, topicOf('pinned')))).toEqual({ version: 0, rights: 1 });
    expect(await topicRow('kukuri:pinned')).toMatchObject({ refCount: 0, enabled: true });
  });

  it('resumes only while its topic has room and is not blocked, and its account is active', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    await pause(member, topicOf('a'));
    expect(await resume(member, topicOf('a'), 1)).toEqual(denied('TOPIC_LIMIT_REACHED'));
    await blockTopic(pool(), { community, topic: topicOf('a') }, tick());
    expect(await resume(member, topicOf('a'))).toEqual({ denied: 'TOPIC_BLOCKED' });
    await unblockTopic(pool(), { community, topic: topicOf('a') }, tick());
    await changeMember(pool(), { community, pubkey: member, status: 'disabled' }, NONE_FIXED, tick());
    expect(await resume(member, topicOf('a'))).toEqual({ denied: 'ACCOUNT_DISABLED' });
    await changeMember(pool(), { community, pubkey: member, status: 'active' }, NONE_FIXED, tick());
    await subscribed(pubkey(), topicOf('a'));
    granted(await resume(member, topicOf('a'), 1));
  });
});

describe('a topic of the node', () => {
  const create = (topic: string, more = {}, enabledMax = 1_000) =>
    createNodeTopic(pool(), { community, topic, ...more }, { enabledMax }, tick());
  const change = (topic: string, changes: object, enabledMax = 1_000) =>
    changeNodeTopic(pool(), { community, topic, changes }, { enabledMax }, tick());
  const remove = (topic: string) => deleteNodeTopic(pool(), { community, topic }, tick());

  it('is created pinned, once, under the cap', async () => {
    const policy = { retentionDays: 3 };
    expect(
      granted(await create(topicOf('a'), { name: 'A', public: true, priority: 2, policy })),
    ).toMatchObject({
      topic: 'kukuri:a',
      name: 'A',
      pinned: true,
      public: true,
      priority: 2,
      policy,
      refCount: 0,
      enabled: true,
      blocked: false,
      events: 0,
      bytes: 0,
    });
    expect(await create(topicOf('a'))).toEqual({ denied: 'TOPIC_EXISTS' });
    expect(await create(topicOf('b'), {}, 2)).toEqual({
      denied: 'TOPIC_LIMIT_REACHED',
      details: { limit: 2 },
    });
    granted(await create(topicOf('b'), { pinned: false }, 2));
    expect((await audit()).map(({ action, target }) => [action, target])).toEqual([
      ['topic.create', 'kukuri:b'],
      ['topic.create', 'kukuri:a'],
    ]);
  });

  it('is pinned under the cap only, and unpinned at any time; subscribers keep it carried', async () => {
    await subscribed(pubkey(), topicOf('a'));
    granted(await create(topicOf('b'), { pinned: false }));
    expect(await change(topicOf('b'), { pinned: true }, 2)).toEqual(denied('TOPIC_LIMIT_REACHED'));
    granted(await change(topicOf('a'), { pinned: true }, 2));
    expect(granted(await change(topicOf('a'), { pinned: false }))).toMatchObject({
      enabled: true,
      refCount: 1,
    });
    expect(await change(topicOf('nowhere'), { pinned: true })).toEqual({ denied: 'NOT_FOUND' });
  });

  it('is switched on and off, but not off while members use it', async () => {
    const member = pubkey();
    granted(await create(topicOf('a'), { pinned: false }));
    expect(granted(await change(topicOf('a'), { enabled: true }))).toMatchObject({
      pinned: true,
      enabled: true,
    });
    await subscribed(member, topicOf('a'));
    expect(await change(topicOf('a'), { enabled: false })).toEqual({
      denied: 'TOPIC_IN_USE',
      details: { ref_count: 1 },
    });
    await end(member, topicOf('a'));
    expect(granted(await change(topicOf('a'), { enabled: false }))).toMatchObject({
      pinned: false,
      enabled: false,
    });
  });

  it('changes only the given fields; setting the same value is no change', async () => {
    granted(await create(topicOf('a'), { name: 'A', policy: { maxEvents: 5, retentionDays: 3 } }));
    expect(granted(await change(topicOf('a'), { priority: 7 }))).toMatchObject({ name: 'A', priority: 7 });
    expect(granted(await change(topicOf('a'), { name: null }))).toMatchObject({ name: null, priority: 7 });
    const same = { priority: 7, pinned: true, policy: { retentionDays: 3, maxEvents: 5 } };
    expect(await raised(() => change(topicOf('a'), same))).toEqual({ version: 0, rights: 0 });
    expect((await audit()).map(({ details }) => details).slice(0, 2)).toEqual([
      { name: null },
      { priority: 7 },
    ]);
    expect(await raised(() => change(topicOf('a'), { priority: 8 }))).toEqual({ version: 1, rights: 0 });
    expect(await raised(() => change(topicOf('a'), { public: true }))).toEqual({ version: 1, rights: 1 });
  });

  it('is deleted only when nobody subscribes to it, paused ones included', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    await pause(member, topicOf('a'));
    expect(await remove(topicOf('a'))).toEqual({ denied: 'TOPIC_IN_USE', details: { subscriptions: 1 } });
    await end(member, topicOf('a'));
    granted(await remove(topicOf('a')));
    expect(await topicRow('kukuri:a')).toBeUndefined();
    expect(await remove(topicOf('a'))).toEqual({ denied: 'NOT_FOUND' });
    await subscribed(member, topicOf('a'));
    expect(await topicRow('kukuri:a')).toMatchObject({ enabled: true });
  });

  it('that is blocked is not carried; its rights return when unblocked, even above the cap', async () => {
    const member = pubkey();
    const topic = topicOf('a');
    await subscribed(member, topic);
    const block = (reason?: string) => blockTopic(pool(), { community, topic, reason }, tick());
    expect(await raised(() => block('spam'))).toEqual({ version: 1, rights: 1 });
    expect(await topicRow(topic)).toMatchObject({ blocked: true, enabled: false, refCount: 1 });
    expect(await raised(() => block())).toEqual({ version: 0, rights: 0 });
    expect(await raised(() => block('worse'))).toEqual({ version: 0, rights: 0 });
    expect(items(await listBlockedTopics(pool(), community, FIRST))).toEqual([
      { topic, reason: 'worse', createdAt: expect.any(Number) },
    ]);
    const unblock = () => unblockTopic(pool(), { community, topic }, tick());
    expect(await raised(unblock)).toEqual({ version: 1, rights: 1 });
    expect(await topicRow(topic)).toMatchObject({ blocked: false, enabled: true, refCount: 1 });
    expect(await unblock()).toEqual({ denied: 'NOT_FOUND' });
    expect((await audit()).map(({ action }) => action)).toEqual([
      'topic.unblock',
      'topic.block',
      'topic.block',
      'request.approve',
    ]);
  });

  it('that is carried is in the directory, with its public facts', async () => {
    await subscribed(pubkey(), topicOf('a'));
    granted(await create(topicOf('off'), { pinned: false }));
    granted(await create(topicOf('bad')));
    await blockTopic(pool(), { community, topic: topicOf('bad') }, tick());
    await pool().query('INSERT INTO topic_totals (community, topic, events, bytes) VALUES ($1, $2, 7, 900)', [
      community,
      'kukuri:a',
    ]);
    expect(items(await readDirectory(pool(), { community: community, publicOnly: false }, FIRST))).toEqual([
      { topic: 'kukuri:a', name: null, public: false, subscribers: 1, events: 7 },
      { topic: 'kukuri:global', name: null, public: true, subscribers: 0, events: 0 },
    ]);
    expect(await topicRow('kukuri:a')).toMatchObject({ events: 7, bytes: 900 });
  });
});

describe('a member', () => {
  const set = (member: string, status: 'active' | 'disabled' | 'deleted', note?: string | null) =>
    changeMember(pool(), { community, pubkey: member, status, note }, NONE_FIXED, tick());

  it('that is disabled has no rights and keeps no topic carried, until it is enabled again', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    expect(await raised(() => set(member, 'disabled', 'spam'))).toEqual({ version: 1, rights: 1 });
    expect(await rightsOf(member)).toEqual([]);
    expect(await topicRow('kukuri:a')).toMatchObject({ refCount: 0, enabled: false });
    expect(await readMember(pool(), community, member)).toMatchObject({ note: 'spam', active: 1 });
    expect(await raised(() => set(member, 'disabled'))).toEqual({ version: 0, rights: 0 });
    expect(await raised(() => set(member, 'active', null))).toEqual({ version: 1, rights: 1 });
    expect(await rightsOf(member)).toEqual(['kukuri:a']);
    expect((await audit()).map(({ details }) => details).slice(0, 2)).toEqual([
      { status: 'active', note: null },
      { status: 'disabled', note: 'spam' },
    ]);
  });

  it('that is deleted loses everything, for good', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    await subscribed(member, topicOf('b'));
    await pause(member, topicOf('b'));
    const requestId = await pending(member, topicOf('c'));
    await addOperator(pool(), { community, pubkey: member }, NONE_FIXED, tick());
    expect(granted(await set(member, 'deleted'))).toMatchObject({ pending: 0, active: 0, paused: 0 });
    expect(await readRequest(pool(), community, requestId)).toMatchObject({ status: 'cancelled' });
    expect(items(await listOperators(pool(), community, FIRST))).toEqual([]);
    const { rows } = await pool().query(
      'SELECT status, ended_at FROM topic_subscriptions WHERE community = $1',
      [community],
    );
    expect(rows).toEqual(Array(2).fill({ status: 'ended', ended_at: clock }));
    expect(await set(member, 'active')).toEqual({
      denied: 'STATUS_CONFLICT',
      details: { status: 'deleted' },
    });
    expect(await set(member, 'disabled')).toEqual(denied('STATUS_CONFLICT'));
    expect(await raised(async () => granted(await set(member, 'deleted')))).toEqual({
      version: 0,
      rights: 0,
    });
    expect(await approve(requestId)).toEqual(denied('STATUS_CONFLICT'));
  });

  it('can be disabled before any request', async () => {
    const stranger = pubkey();
    expect(granted(await set(stranger, 'disabled', 'known elsewhere'))).toMatchObject({ status: 'disabled' });
    const disabled = await listMembers(pool(), { community, status: 'disabled' }, FIRST);
    expect(items(disabled).map((one) => one.pubkey)).toEqual([stranger]);
    expect(items(await listMembers(pool(), { community, status: 'active' }, FIRST))).toEqual([]);
  });

  it('gets a note without a change of status, which notifies no instance', async () => {
    const member = pubkey();
    await ask(member, topicOf('a'));
    const note = () => changeMember(pool(), { community, pubkey: member, note: 'kind' }, NONE_FIXED, tick());
    expect(await raised(note)).toEqual({ version: 0, rights: 0 });
    expect(await readMember(pool(), community, member)).toMatchObject({ status: 'active', note: 'kind' });
  });

  it('that is a fixed operator cannot be locked out', async () => {
    const root = pubkey();
    for (const status of ['disabled', 'deleted'] as const) {
      const change = { community, pubkey: root, status, actor: pubkey() };
      expect(await changeMember(pool(), change, { fixed: [root] }, tick())).toEqual({
        denied: 'FIXED_OPERATOR',
      });
    }
  });
});

describe('operators, invites and settings', () => {
  it('an operator is added and removed, each audited once with the actor', async () => {
    const [root, second] = [pubkey(), pubkey()];
    const who = { community, pubkey: second, actor: root };
    const add = () => addOperator(pool(), who, { fixed: [root] }, tick());
    expect(await raised(add)).toEqual({ version: 1, rights: 0 });
    expect(await raised(add)).toEqual({ version: 0, rights: 0 });
    expect(items(await listOperators(pool(), community, FIRST))).toEqual([
      { pubkey: second, role: 'operator', addedBy: root, createdAt: expect.any(Number) },
    ]);
    const remove = () => removeOperator(pool(), who, { fixed: [root] }, tick());
    expect(await raised(remove)).toEqual({ version: 1, rights: 0 });
    expect(await remove()).toEqual({ denied: 'NOT_FOUND' });
    expect((await audit()).map(({ actor, action, target }) => ({ actor, action, target }))).toEqual([
      { actor: root, action: 'operator.remove', target: second },
      { actor: root, action: 'operator.add', target: second },
    ]);
  });

  it('an operator of the boot settings is neither added nor removed', async () => {
    const root = pubkey();
    const who = { community, pubkey: root };
    expect(await addOperator(pool(), who, { fixed: [root] }, tick())).toEqual({ denied: 'FIXED_OPERATOR' });
    expect(await removeOperator(pool(), who, { fixed: [root] }, tick())).toEqual({
      denied: 'FIXED_OPERATOR',
    });
  });

  it("an invite's code is not in the database", async () => {
    const operator = pubkey();
    const { code, invite } = granted(
      await createInvite(pool(), { community, expiresAt: clock + 1_000, actor: operator }, tick()),
    );
    expect(Buffer.from(code, 'base64url')).toHaveLength(16);
    const { rows } = await pool().query('SELECT i::text AS row FROM invites i WHERE community = $1', [
      community,
    ]);
    expect(rows).toHaveLength(1);
    expect(rows[0].row).not.toContain(code);
    expect(rows[0].row).not.toContain(Buffer.from(code).toString('hex'));
    expect(await audit()).toEqual([
      expect.objectContaining({ actor: operator, action: 'invite.create', target: invite.inviteId }),
    ]);
    expect(JSON.stringify(await audit())).not.toContain(code);
  });

  it('an invite is revoked, repeatably, unless used; one of another community is not found', async () => {
    const make = async () =>
      granted(await createInvite(pool(), { community, expiresAt: clock + 1_000 }, tick()));
    const revoke = (inviteId: string) => revokeInvite(pool(), { community, inviteId }, tick());
    const [one, two] = [await make(), await make()];
    const revoked = granted(await revoke(one.invite.inviteId));
    expect(revoked.revokedAt).toBe(clock);
    expect(await revoke(one.invite.inviteId)).toEqual(revoked);
    granted(await ask(pubkey(), topicOf('a'), { autoApproval: 'invite' }, two.code));
    expect(await revoke(two.invite.inviteId)).toEqual(denied('STATUS_CONFLICT'));
    expect(await revoke(UNKNOWN)).toEqual({ denied: 'NOT_FOUND' });
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    expect(await revoke(one.invite.inviteId)).toEqual({ denied: 'NOT_FOUND' });
  });

  it('an invite with an expiry in the past is refused', async () => {
    expect(await createInvite(pool(), { community, expiresAt: clock }, tick())).toEqual(
      denied('INVALID_REQUEST'),
    );
  });

  it('a setting changes only over the version read; else the refusal has its value and version', async () => {
    const key = 'relay.name' as const;
    const write = (value: string, seenVersion?: number) =>
      changeSetting(pool(), { community, key, value, seenVersion }, tick());
    expect(await readSetting(pool(), community, key)).toEqual({
      value: 'Minato',
      version: 0,
      updatedAt: null,
    });
    const first = granted(await write('One', 0));
    expect(first).toMatchObject({ value: 'One', updatedAt: clock });
    const current = { value: 'One', version: first.version };
    expect(await write('Two', 0)).toEqual({ denied: 'VERSION_MISMATCH', details: current });
    const second = granted(await write('Two', first.version));
    expect(second.version).toBeGreaterThan(first.version);
    expect(await readSettingVersions(pool(), community)).toEqual(new Map([[key, second]]));
    expect(await clearSetting(pool(), { community, key, seenVersion: first.version }, tick())).toEqual(
      denied('VERSION_MISMATCH'),
    );
    const cleared = granted(
      await clearSetting(pool(), { community, key, seenVersion: second.version }, tick()),
    );
    expect(cleared).toEqual({ value: 'Minato', version: 0, updatedAt: null });
    const third = granted(await write('Three', 0));
    expect(third.version).toBeGreaterThan(second.version);
    expect((await audit()).map(({ action, details }) => ({ action, details }))).toEqual([
      { action: 'setting.change', details: { from: 'Minato', to: 'Three' } },
      { action: 'setting.reset', details: { from: 'Two' } },
      { action: 'setting.change', details: { from: 'One', to: 'Two' } },
      { action: 'setting.change', details: { from: 'Minato', to: 'One' } },
    ]);
  });

  it('of writers who read the same version one wins, also against a reset', async () => {
    const key = 'relay.name' as const;
    const base = granted(await changeSetting(pool(), { community, key, value: 'base' }, tick()));
    const seenVersion = base.version;
    const answers = await Promise.all([
      ...['x', 'y', 'z'].map((value) =>
        changeSetting(pool(), { community, key, value, seenVersion }, tick()),
      ),
      ...[1, 2].map(() => clearSetting(pool(), { community, key, seenVersion }, tick())),
    ]);
    expect(answers.filter((one) => !isDenial(one))).toHaveLength(1);
  });
});

describe('lists', () => {
  /** Reads all pages, two rows at a time. */
  async function everything<T>(read: (page: PageOf) => Promise<Page<T> | Denial>): Promise<T[]> {
    const all: T[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = granted(await read({ limit: 2, cursor }));
      expect(page.items.length).toBeLessThanOrEqual(2);
      all.push(...page.items);
      if (page.cursor === undefined) return all;
      cursor = page.cursor;
    }
  }

  it('return every row once over their pages, in order, also when times are equal', async () => {
    const member = pubkey();
    const now = tick();
    for (let at = 0; at < 5; at += 1) {
      const wanted = { community, pubkey: member, topic: topicOf(`t${at}`), services: [] };
      granted(await requestTopic(pool(), wanted, RULES, now));
    }
    const mine = await everything((page) => listRequestsOf(pool(), { community, pubkey: member }, page));
    const waiting = await everything((page) => listRequests(pool(), { community, status: 'pending' }, page));
    expect(mine).toHaveLength(5);
    expect(waiting.map(({ requestId }) => requestId)).toEqual(
      mine.map(({ requestId }) => requestId).reverse(),
    );
    for (const { requestId } of waiting) granted(await approve(requestId));
    const active = await everything((page) => listRequests(pool(), { community, status: 'active' }, page));
    expect(active).toHaveLength(5);
    const subscriptions = await everything((page) =>
      listSubscriptions(pool(), { community, pubkey: member, status: 'active' }, page),
    );
    expect(subscriptions.map(({ topic }) => topic)).toEqual(waiting.map(({ topic }) => topic).reverse());
    const topics = await everything((page) => listNodeTopics(pool(), community, page));
    expect(topics.map(({ topic }) => topic)).toEqual([...new Set(topics.map(({ topic }) => topic))].sort());
    expect(topics).toHaveLength(6);
    expect(
      await everything((page) => readDirectory(pool(), { community: community, publicOnly: false }, page)),
    ).toHaveLength(6);
    expect(
      (await everything((page) => listAudit(pool(), community, page))).map(({ target }) => target),
    ).toEqual(waiting.map(({ requestId }) => requestId).reverse());
  });

  it('of members, operators, blocked topics and invites have pages too', async () => {
    for (let at = 0; at < 5; at += 1) {
      const member = pubkey();
      granted(await addOperator(pool(), { community, pubkey: member }, NONE_FIXED, tick()));
      granted(
        await changeMember(pool(), { community, pubkey: member, status: 'disabled' }, NONE_FIXED, tick()),
      );
      granted(await blockTopic(pool(), { community, topic: topicOf(`t${at}`) }, tick()));
      granted(await createInvite(pool(), { community, expiresAt: clock + 1_000 }, clock));
    }
    const keys = (rows: { pubkey: string }[]) => rows.map((row) => row.pubkey);
    const operators = keys(await everything((page) => listOperators(pool(), community, page)));
    expect(operators).toHaveLength(5);
    expect(operators).toEqual([...operators].sort());
    expect(keys(await everything((page) => listMembers(pool(), { community }, page)))).toEqual(operators);
    expect(await everything((page) => listBlockedTopics(pool(), community, page))).toHaveLength(5);
    const invites = await everything((page) => listInvites(pool(), community, page));
    expect(new Set(invites.map(({ inviteId }) => inviteId)).size).toBe(5);
  });

  it.each([
    'x',
    '%',
    '',
    Buffer.from('[1]').toString('base64url'),
    Buffer.from('["\\u0000"]').toString('base64url'),
  ])('refuse a foreign cursor: %j', async (cursor) => {
    const page = { limit: 2, cursor };
    const refusal = denied('INVALID_REQUEST');
    expect(await listRequests(pool(), { community, status: 'pending' }, page)).toEqual(refusal);
    expect(await listMembers(pool(), { community }, page)).toEqual(refusal);
    expect(await listNodeTopics(pool(), community, page)).toEqual(refusal);
  });

  it('show nothing of another community, nor of another member', async () => {
    const member = pubkey();
    await subscribed(member, topicOf('a'));
    await pending(member, topicOf('b'));
    await blockTopic(pool(), { community, topic: topicOf('z') }, tick());
    await addOperator(pool(), { community, pubkey: member }, NONE_FIXED, tick());
    await createInvite(pool(), { community, expiresAt: clock + 1_000 }, tick());
    const stranger = { community, pubkey: pubkey() };
    expect(items(await listRequestsOf(pool(), stranger, FIRST))).toEqual([]);
    expect(items(await listSubscriptions(pool(), stranger, FIRST))).toEqual([]);
    community = await addCommunity(pool(), `c${made}-other`, undefined, tick());
    const mine = { community, pubkey: member };
    expect(items(await listRequestsOf(pool(), mine, FIRST))).toEqual([]);
    expect(items(await listRequests(pool(), { community, status: 'pending' }, FIRST))).toEqual([]);
    expect(items(await listSubscriptions(pool(), mine, FIRST))).toEqual([]);
    expect(items(await listMembers(pool(), { community }, FIRST))).toEqual([]);
    expect(items(await listBlockedTopics(pool(), community, FIRST))).toEqual([]);
    expect(items(await listOperators(pool(), community, FIRST))).toEqual([]);
    expect(items(await listInvites(pool(), community, FIRST))).toEqual([]);
    expect(items(await listAudit(pool(), community, FIRST))).toEqual([]);
    expect(
      items(await readDirectory(pool(), { community: community, publicOnly: false }, FIRST)).map(
        ({ topic }) => topic,
      ),
    ).toEqual(['kukuri:global']);
    expect(await rightsOf(member)).toEqual([]);
  });

  it('of rights return many members at once, each with their own', async () => {
    const [one, two, three] = [pubkey(), pubkey(), pubkey()];
    await subscribed(one, topicOf('a'));
    await subscribed(one, topicOf('b'));
    await subscribed(two, topicOf('b'));
    const holders = [one, two, three].map((key) => ({ community, pubkey: key }));
    const rights = await readRights(pool(), holders);
    expect(holders.map((holder) => [...rights.get(rightsKey(holder))!.topics].sort())).toEqual([
      ['kukuri:a', 'kukuri:b'],
      ['kukuri:b'],
      [],
    ]);
    expect(await readRights(pool(), [])).toEqual(new Map());
  });
});
