/**
 * Trust over real sockets and HTTP: what counts, what is shown, what is asserted, and how time and deletion
 * change it.
 */
import { npubEncode } from 'nostr-tools/nip19';
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { erase } from '../../src/erasure/jobs.js';
import { expire } from '../../src/events/jobs/expire.js';
import { listCases } from '../../src/moderation/cases.sql.js';
import { approveRequest, requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { forgetTrust } from '../../src/trust/jobs.js';
import { ASSERTION_GAP } from '../../src/trust/rules.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Clock, DAY, putLabel, startTrusting, type Trusting } from '../support/domains/trust.js';
import { type Author, newAuthor, sign } from '../support/events.js';

const START = Date.now();
const GAP = ASSERTION_GAP.usualMs;
/** Assertions have whole seconds, so each test begins in its own second, and on another day. */
const clock: Clock = { now: START - 60 * DAY };
const root = newAuthor();
let node: Trusting;
let home: number;
/** Members who have been here for two months and talk with one another. */
const elders: Author[] = Array.from({ length: 12 }, newAuthor);

beforeAll(async () => {
  node = await startTrusting(clock, { MINATO_ADMIN_PUBKEYS: root.pubkey });
  home = node.node.communities.find(undefined, undefined)!.id;
  // When the clock jumps, every consumer looks late.
  await set('capacity.lagSecondsMax', 0);
  for (const elder of elders) await node.post(elder, { kind: 0 });
  // One note to one person is the maximum of a day for a tie.
  await set('trust.kindWeights', WEIGHTS);
  clock.now = START - 5 * DAY;
  for (const [at, elder] of elders.entries())
    for (const away of [1, 2, 3]) await befriend(elder, elders[(at + away) % elders.length]!);
  await node.settled();
  clock.now = START;
});
afterAll(() => node.close());
beforeEach(() => {
  clock.now += 60_000;
});

const WEIGHTS = { 1: 3, 6: 1.5, 7: 0.9 };
/** Each writes a note to the other only. */
async function befriend(one: Author, other: Author, path = ''): Promise<void> {
  await node.post(one, { tags: p(other), content: `${clock.now}` }, path);
  await node.post(other, { tags: p(one), content: `${clock.now}` }, path);
}
const p = (...people: readonly Author[]) => people.map(({ pubkey }) => ['p', pubkey]);
const density = (of: Author, path?: string) =>
  node.ask<{ event_id: string; kind: number; direction: string; at: number; weight: number }[]>(
    'communication-density',
    of.pubkey,
    path,
  );
interface Reported {
  readonly reports: Record<string, number>;
  readonly labels: Record<string, number>;
  readonly weight: number;
}
const risk = (of: Author, path?: string) => node.ask<Reported>('report-based', of.pubkey, path);
const report = (reporter: Author, subject: Author, reason = 'spam') =>
  node.post(reporter, { kind: 1_984, tags: [['p', subject.pubkey, reason]], content: `${clock.now}` });
const tag = (event: { tags: string[][] } | undefined, name: string) =>
  event?.tags.find(([key]) => key === name)?.[1];

async function place(name: string, mode = 'open'): Promise<{ community: number; path: string }> {
  const community = await addCommunity(node.database.pool, name, undefined, Date.now());
  await set('topic.mode', mode, community);
  await set('trust.kindWeights', WEIGHTS, community);
  // The elders founded it.
  for (const { pubkey } of elders)
    await node.database.pool.query(
      'INSERT INTO trust_authors (community, first_seen_at, pubkey) VALUES ($1, 1, $2)',
      [community, Buffer.from(pubkey, 'hex')],
    );
  return { community, path: `/c/${name}` };
}

async function set(key: SettingKey, value: unknown, community = home): Promise<void> {
  await writeSetting(node.database.pool, community, key, value, Date.now());
  await eventually(`${key} is known`, () =>
    JSON.stringify(node.node.communities.get(community)?.settings[key]) === JSON.stringify(value)
      ? true
      : undefined,
  );
}

interface Trust {
  readonly communication_density: {
    readonly ties: {
      readonly pubkey: string;
      readonly strength: number;
      readonly counts_from: number | null;
    }[];
  };
}

describe('one person', () => {
  it('is shown to operators with both scores, what they are made of, and not who reported', async () => {
    const ann = newAuthor();
    const stranger = newAuthor();
    await befriend(ann, elders[0]!);
    await node.post(ann, { tags: p(elders[1]!) });
    await node.post(elders[1]!, { kind: 6, tags: p(ann) });
    await befriend(ann, stranger);
    await report(elders[2]!, ann);
    await report(elders[3]!, ann, 'nudity');
    await report(stranger, ann, 'illegal');
    await node.settled();
    const url = `/v1/admin/trust/${ann.pubkey}`;
    const { body } = await node.api.ask<Trust>('GET', url, node.signed(root, 'GET', url));
    const [density_, risk_] = [await density(ann), await risk(ann)];
    expect(body).toMatchObject({
      subject: ann.pubkey,
      window_days: 30,
      standing: { first_seen_at: clock.now, founder: false, approved: false, stands_from: null },
      report_based: {
        score: risk_.score,
        rank: risk_.rank,
        weight: risk_.grounds.weight,
        reports: { nudity: 1, spam: 1 },
        labels: {},
      },
      communication_density: { score: density_.score, weight: 1.5, contacts: density_.grounds },
    });
    const ties = body.communication_density.ties.map(({ pubkey, strength, counts_from }) => [
      pubkey,
      strength,
      counts_from !== null,
    ]);
    expect(ties).toEqual([
      [elders[0]!.pubkey, 1, true],
      [elders[1]!.pubkey, 0.5, true],
      [stranger.pubkey, 1, false],
    ]);
    expect(JSON.stringify(body)).not.toContain(elders[2]!.pubkey);
    const unknown = `/v1/admin/trust/${newAuthor().pubkey}`;
    const nobody = await node.api.ask('GET', unknown, node.signed(root, 'GET', unknown));
    expect(nobody.body).toMatchObject({ standing: null, report_based: { score: 0, computed_at: null } });
  });
});

describe('communication density', () => {
  it('counts ties with people of standing, by the lesser direction and the weights of kinds', async () => {
    const ann = newAuthor();
    const note = await node.post(ann, { tags: p(elders[0]!) });
    await node.post(ann, { tags: p(elders[1]!) });
    await node.post(ann, { tags: p(elders[2]!) });
    await node.post(elders[0]!, { tags: p(ann) });
    await node.post(elders[1]!, { kind: 6, tags: p(ann) });
    await node.post(elders[2]!, { kind: 7, tags: p(ann), content: '+' });
    await node.post(elders[3]!, { kind: 30_023, tags: [['d', 'x'], ...p(ann)] });
    await node.settled();
    const found = await density(ann);
    // 1 + 0.5 + 0.3 of the first five ties, which give a tenth.
    expect(found).toMatchObject({ score: 0.036, rank: 4, window_days: 30, computed_at: clock.now });
    expect(found.grounds.map(({ weight }) => weight).sort()).toEqual([0.9, 1.5, 3, 3, 3, 3]);
    const directions = found.grounds.map(({ event_id, direction }) => [event_id, direction]);
    expect(Object.fromEntries(directions)[note.id]).toBe('out');
  });

  it('counts a day once, and divides a note that names many between them', async () => {
    const [ann, ben] = [newAuthor(), newAuthor()];
    for (let at = 0; at < 3; at += 1) {
      await node.post(ann, { kind: 7, tags: p(elders[0]!), content: `+${at}` });
      await node.post(elders[0]!, { tags: p(ann), content: `ann ${at}` });
    }
    await node.post(ben, { tags: p(ben, elders[0]!, elders[0]!, elders[1]!, elders[2]!) });
    for (const elder of elders.slice(0, 3)) await node.post(elder, { tags: p(ben) });
    await node.settled();
    expect(await density(ann)).toMatchObject({ score: 0.006 });
    expect(await density(ben)).toMatchObject({ score: 0.01998 });
  });

  it('does not count unanswered notes, nor a crowd of new keys', async () => {
    const [ann, ben] = [newAuthor(), newAuthor()];
    await node.post(ann, { tags: p(...elders) });
    for (const elder of elders.slice(0, 5)) await node.post(elder, { tags: p(ben) });
    for (const other of Array.from({ length: 8 }, newAuthor)) await befriend(other, ann);
    await node.settled();
    expect(await density(ann)).toMatchObject({ score: 0, assertion: null });
    expect(await density(ben)).toMatchObject({ score: 0, computed_at: null, grounds: [] });
    expect(await node.assertions(ann.pubkey)).toEqual([]);
  });

  it('is returned for an npub, and for an unknown key', async () => {
    const nobody = newAuthor();
    const found = await node.ask('communication-density', npubEncode(nobody.pubkey));
    expect(found).toEqual({
      subject: nobody.pubkey,
      claim: 'communication-density',
      score: 0,
      rank: 0,
      computed_at: null,
      window_days: 30,
      assertion: null,
      grounds: [],
    });
    expect(await risk(nobody)).toMatchObject({ score: 0, rank: 100, grounds: { weight: 0 } });
    for (const bad of ['', 'x', `${'A'.repeat(64)}`, 'npub1xyz'])
      await node.api.refused(400, 'INVALID_REQUEST', 'GET', `/v1/trust/report-based?subject=${bad}`);
  });

  it('still counts a deleted event, but does not show it', async () => {
    const [ann, elder] = [newAuthor(), elders[0]!];
    const note = await node.post(ann, { tags: p(elder) });
    const kept = await node.post(ann, { tags: p(elder), content: 'kept' });
    const answer = await node.post(elder, { tags: p(ann) });
    await node.settled();
    expect((await density(ann)).grounds).toHaveLength(3);
    await node.post(ann, { kind: 5, tags: [['e', note.id]] });
    // At once, because each shown event is looked up in the store.
    const shown = async () => (await density(ann)).grounds.map(({ event_id }) => event_id).sort();
    expect(await shown()).toEqual([kept.id, answer.id].sort());
    await node.post(ann, { kind: 5, tags: [['e', kept.id]] });
    await node.settled();
    expect(await density(ann)).toMatchObject({ score: 0.02, grounds: [{ event_id: answer.id }] });
  });

  it('still counts an expired event, but does not show it from that second on', async () => {
    const [ann, elder] = [newAuthor(), elders[0]!];
    const expiration = Math.floor(clock.now / 1_000) + 10;
    const note = await node.post(ann, { tags: p(elder) });
    await node.post(elder, { tags: [...p(ann), ['expiration', `${expiration}`]] });
    await node.settled();
    expect((await density(ann)).grounds).toHaveLength(2);
    clock.now += 10_000;
    expect((await density(ann)).grounds).toMatchObject([{ event_id: note.id }]);
    await node.run(expire);
    await node.settled();
    expect(await density(ann)).toMatchObject({ score: 0.02, grounds: [{ event_id: note.id }] });
  });

  it('shows an event again that a moderator has removed and restored', async () => {
    const [ann, ben] = [elders[0]!, newAuthor()];
    const { id } = await node.post(ann, { tags: p(ben) });
    const answer = await node.post(ben, { tags: p(ann) });
    await node.settled();
    const { store } = node.node;
    await store.hide({
      hidden: 'removed',
      purge: false,
      which: { by: 'ids', refs: [{ community: home, id }] },
    });
    await node.settled();
    expect(await density(ben)).toMatchObject({ score: 0.02, grounds: [{ event_id: answer.id }] });
    expect(await store.restore([{ community: home, id }])).toEqual(['stored']);
    await node.settled();
    const back = await density(ben);
    expect(back.score).toBe(0.02);
    expect(back.grounds.map(({ event_id }) => event_id)).toContain(id);
  });
});

describe('report-based', () => {
  it('counts an established reporter once, over HTTP or as an event, and ignores a newcomer', async () => {
    const subject = newAuthor();
    const newcomers = Array.from({ length: 5 }, newAuthor);
    for (const one of newcomers) {
      await node.post(one, { tags: p(...newcomers) });
      await report(one, subject);
    }
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0, rank: 100, grounds: { reports: {}, weight: 0 } });
    expect(await node.assertions(subject.pubkey)).toEqual([]);
    await report(elders[0]!, subject);
    await report(elders[0]!, subject, 'illegal');
    await report(elders[1]!, subject);
    await node.settled();
    expect(await risk(subject)).toMatchObject({
      score: 0.04,
      rank: 96,
      grounds: { reports: { spam: 2, illegal: 1 }, labels: {}, weight: 2 },
    });
    expect(JSON.stringify(await risk(subject))).not.toContain(elders[0]!.pubkey);
  });

  it('shows in a case how many of its reporters have standing', async () => {
    const subject = newAuthor();
    const newcomers = Array.from({ length: 3 }, newAuthor);
    for (const one of newcomers) await report(one, subject);
    await node.settled();
    const shown = async () => {
      const listed = await listCases(
        node.database.pool,
        { community: home, author: subject.pubkey },
        { limit: 5 },
      );
      return isDenial(listed) ? listed : listed.items;
    };
    expect(await shown()).toMatchObject([{ reports: 3, reportsWithStanding: 0, reportWeight: 0 }]);
    await report(elders[4]!, subject);
    await node.settled();
    const url = '/v1/reports';
    const overHttp = node.signed(elders[5]!, 'POST', url, { pubkey: subject.pubkey, reason: 'spam' });
    expect((await node.api.ask('POST', url, overHttp)).status).toBe(201);
    expect(await shown()).toMatchObject([{ reports: 5, reportsWithStanding: 2, reportWeight: 2 }]);
  });

  it('counts a report over HTTP once when sent again, and still when it was withdrawn', async () => {
    const subject = newAuthor();
    const send = async () => {
      clock.now += 1_000;
      const asking = node.signed(elders[2]!, 'POST', '/v1/reports', {
        pubkey: subject.pubkey,
        reason: 'malware',
      });
      const { status, body } = await node.api.ask<{ report_id: string }>('POST', '/v1/reports', asking);
      expect(status).toBe(201);
      return `/v1/reports/${body.report_id}`;
    };
    const url = await send();
    expect(await send()).toBe(url);
    const event = await report(elders[3]!, subject);
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0.04, grounds: { reports: { malware: 1, spam: 1 } } });
    const gone = await node.api.ask('DELETE', url, node.signed(elders[2]!, 'DELETE', url));
    expect(gone.status).toBe(200);
    await node.post(elders[3]!, { kind: 5, tags: [['e', event.id]] });
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0.04 });
  });

  it('is about the author of the reported event, whoever else the report names', async () => {
    const [ann, innocent] = [newAuthor(), newAuthor()];
    const note = await node.post(ann);
    await node.post(elders[0]!, {
      kind: 1_984,
      tags: [
        ['e', note.id, 'spam'],
        ['p', innocent.pubkey],
      ],
    });
    await node.settled();
    expect(await risk(ann)).toMatchObject({ score: 0.02 });
    expect(await risk(innocent)).toMatchObject({ score: 0 });
  });

  it('counts a newcomer whom an operator approved, not one approved automatically', async () => {
    const { pool } = node.database;
    const subject = newAuthor();
    const [approved, waved] = [newAuthor(), newAuthor()];
    const rules = requestRules(node.node.communities.get(home)!.settings);
    const ask = async ({ pubkey }: Author, autoApproval: 'off' | 'within-limits') => {
      const request = { community: home, pubkey, topic: `kukuri:${pubkey}`, name: 'x', services: [] };
      const made = await requestTopic(pool, request, { ...rules, autoApproval }, clock.now);
      if (isDenial(made)) throw new Error(made.denied);
      return made.request.requestId;
    };
    const requestId = await ask(approved, 'off');
    const review = { community: home, requestId, actor: elders[0]!.pubkey };
    expect(isDenial(await approveRequest(pool, review, rules, clock.now))).toBe(false);
    await ask(waved, 'within-limits');
    await report(waved, subject);
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0 });
    await report(approved, subject);
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0.02 });
  });

  it('counts labels until they lapse, one each, and never "safe"', async () => {
    const subject = newAuthor();
    const lapsesAt = Math.floor(clock.now / 1_000) + 3_600;
    const label = { community: home, pubkey: subject.pubkey, at: clock.now, lapsesAt };
    const { pool } = node.database;
    const spam = await putLabel(pool, { ...label, label: 'spam' });
    await putLabel(pool, { ...label, label: 'nsfw', lapsesAt: lapsesAt + 3_600 });
    await putLabel(pool, { ...label, label: 'safe' });
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0.2, grounds: { labels: { spam: 1, nsfw: 1 } } });
    await pool.query('UPDATE labels SET withdrawn_at = $2 WHERE label_id = $1', [spam, clock.now]);
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0.1, grounds: { labels: { nsfw: 1 } } });
    clock.now += 7_200_000;
    await node.settled();
    expect(await risk(subject)).toMatchObject({ score: 0, rank: 100, grounds: { labels: {} } });
  });
});

describe('assertions', () => {
  it('have the rank of each claim, signed by its own key, and do not replace each other', async () => {
    const ann = newAuthor();
    await befriend(ann, elders[0]!);
    await report(elders[0]!, ann);
    await node.settled();
    const [reported, dense] = await node.assertions(ann.pubkey);
    for (const event of [reported, dense]) {
      expect(verifyEvent(event as Parameters<typeof verifyEvent>[0])).toBe(true);
      expect(event).toMatchObject({ kind: 30_382, content: '', created_at: Math.floor(clock.now / 1_000) });
      expect(tag(event, 'd')).toBe(ann.pubkey);
      expect(tag(event, 'expiration')).toBe(String(event!.created_at + 7 * 86_400));
    }
    expect([tag(reported, 'rank'), tag(dense, 'rank')]).toEqual(['98', '2']);
    expect(reported!.pubkey).not.toBe(dense!.pubkey);
    expect((await density(ann)).assertion).toBe(dense!.id);
    expect((await risk(ann)).assertion).toBe(reported!.id);
  });

  it('are published again some minutes after the rank changed, not when it is the same', async () => {
    const ann = newAuthor();
    await befriend(ann, elders[0]!);
    await node.settled();
    const [first] = await node.assertions(ann.pubkey);
    await befriend(ann, elders[1]!);
    await node.settled();
    expect(await density(ann)).toMatchObject({ rank: 4, assertion: first!.id });
    clock.now += GAP;
    await node.settled();
    const [second] = await node.assertions(ann.pubkey);
    expect(tag(second, 'rank')).toBe('4');
    expect(second!.created_at).toBeGreaterThan(first!.created_at);
    clock.now += GAP;
    await node.post(ann, { kind: 7, tags: [['e', first!.id]], content: '+' });
    await node.settled();
    expect(await node.assertions(ann.pubkey)).toEqual([second]);
  });

  it('are renewed before they expire, and corrected once when no grounds are left', async () => {
    const ann = newAuthor();
    await befriend(ann, elders[0]!);
    await node.settled();
    const [first] = await node.assertions(ann.pubkey);
    clock.now += 6 * DAY;
    await node.settled();
    const [renewed] = await node.assertions(ann.pubkey);
    expect(renewed!.created_at).toBe(Math.floor(clock.now / 1_000));
    expect(tag(renewed, 'rank')).toBe(tag(first, 'rank'));
    clock.now += 25 * DAY;
    await node.settled();
    const [last] = await node.assertions(ann.pubkey);
    expect(tag(last, 'rank')).toBe('0');
    expect(await density(ann)).toMatchObject({ score: 0, rank: 0, grounds: [] });
    clock.now += 8 * DAY;
    await node.settled();
    expect(await node.assertions(ann.pubkey)).toEqual([]);
  });

  it('are not published when trust.publish is off', async () => {
    const ann = newAuthor();
    const { community, path } = await place('quiet');
    await set('trust.publish', false, community);
    await befriend(ann, elders[0]!, path);
    await node.settled();
    expect(await density(ann, path)).toMatchObject({ score: 0.02, assertion: null });
    expect(await node.assertions(ann.pubkey, path)).toEqual([]);
  });
});

describe('the current rules', () => {
  const [open, shut] = ['kukuri:open', 'kukuri:shut'];
  const rules = { pinned: true, priority: 0, policy: {} };

  it('count only what anyone may read, and a change updates scores and grounds', async () => {
    const { pool } = node.database;
    const [ann, ben] = [newAuthor(), elders[0]!];
    const { community, path } = await place('closed');
    const other = await place('weighed');
    await writeTopic(pool, community, open, { ...rules, public: true }, Date.now());
    await writeTopic(pool, community, shut, { ...rules, public: false }, Date.now());
    await set('auth.mode', 'required', community);
    await eventually('the topics are carried', () =>
      node.node.communities.get(community)?.topics.get(shut)?.enabled ? true : undefined,
    );
    const submit = async (topic: string, author = ann, named = ben) => {
      const tags = [['t', topic], ...p(named)];
      const event = sign(author, { tags, created_at: Math.floor(clock.now / 1_000) });
      expect(await node.node.store.submit({ community, event, payload: JSON.stringify(event) })).toBe(
        'stored',
      );
      return event.id;
    };
    const label = {
      community,
      pubkey: ann.pubkey,
      at: clock.now,
      lapsesAt: Math.floor(clock.now / 1_000) + 86_400,
    };
    await putLabel(pool, { ...label, label: 'spam', topics: [open] });
    await putLabel(pool, { ...label, label: 'nsfw', topics: [shut] });
    await putLabel(pool, { ...label, label: 'harassment' });
    const shown = [await submit(open), await submit(open, ben, ann)];
    const closed = await submit(shut);
    await submit(shut, elders[1]!, ann);
    await submit(shut, ann, elders[1]!);
    await befriend(ann, ben, other.path);
    await node.settled();
    const url = `${path}/v1/trust/communication-density?subject=${ann.pubkey}`;
    const labelled = `${path}/v1/trust/report-based?subject=${ann.pubkey}`;
    const ask = async (path: string, as = ben) => {
      clock.now += 1_000;
      const { status, body } = await node.api.ask<{ score: number; grounds: { event_id: string }[] }>(
        'GET',
        path,
        node.signed(as, 'GET', path),
      );
      expect(status).toBe(200);
      return body;
    };
    await node.api.refused(401, 'AUTH_REQUIRED', 'GET', url);
    const found = await ask(url);
    expect(found.score).toBe(0.02);
    expect(found.grounds.map(({ event_id }) => event_id).sort()).toEqual(shown.sort());
    expect(await ask(labelled)).toMatchObject({
      score: 0.2,
      grounds: { labels: { spam: 1, harassment: 1 }, weight: 2 },
    });
    // Only subscribers of a topic also see what is in it about a person.
    const member = newAuthor();
    const wanted = { community, pubkey: member.pubkey, topic: shut, services: [] };
    const rulesOfAll = requestRules(node.node.communities.get(community)!.settings);
    const requested = await requestTopic(
      pool,
      wanted,
      { ...rulesOfAll, autoApproval: 'within-limits' },
      clock.now,
    );
    expect(isDenial(requested)).toBe(false);
    const ofMember = await ask(url, member);
    expect(ofMember.score).toBe(0.02);
    expect(ofMember.grounds.map(({ event_id }) => event_id)).toEqual(
      expect.arrayContaining([...shown, closed]),
    );
    expect(await ask(labelled, member)).toMatchObject({
      score: 0.3,
      grounds: { labels: { spam: 1, nsfw: 1, harassment: 1 }, weight: 3 },
    });
    expect((await ask(url)).grounds).toHaveLength(2);
    await set('trust.establishedMin', 2, other.community);
    await writeTopic(pool, community, open, { ...rules, public: false }, Date.now());
    await eventually('the topic is not public', () =>
      node.node.communities.get(community)?.topics.get(open)?.public ? undefined : true,
    );
    // At once, before the rebuild.
    expect(await ask(url)).toMatchObject({ grounds: [] });
    expect(await ask(labelled)).toMatchObject({ grounds: { labels: { harassment: 1 }, weight: 1 } });
    await eventually('everything follows', async () => {
      node.node.consumers!.hurry();
      const scores = [
        (await ask(url)).score,
        (await ask(labelled)).score,
        (await density(ann, other.path)).score,
      ];
      return JSON.stringify(scores) === '[0,0.1,0.05]' ? true : undefined;
    });
    clock.now += GAP;
    await node.settled();
    expect(tag((await node.assertions(ann.pubkey, other.path))[0], 'rank')).toBe('5');
    expect(await node.pass()).toBe(0);
  });
});

describe('trust', () => {
  it('keeps communities apart', async () => {
    const [ann, ben] = [newAuthor(), elders[0]!];
    const { community, path } = await place('apart', 'required');
    await befriend(ann, ben);
    await node.settled();
    expect(await density(ann, path)).toMatchObject({ score: 0, grounds: [], assertion: null });
    expect(await node.assertions(ann.pubkey, path)).toEqual([]);
    await putLabel(node.database.pool, {
      community,
      pubkey: ann.pubkey,
      label: 'spam',
      at: clock.now,
      lapsesAt: clock.now,
    });
    await node.settled();
    expect(await risk(ann, path)).toMatchObject({ score: 0.1 });
    expect(await risk(ann)).toMatchObject({ score: 0 });
    // Also when every filter needs a topic.
    const [there] = await node.assertions(ann.pubkey, path);
    const [here] = await node.assertions(ann.pubkey);
    expect(tag(there, 'rank')).toBe('90');
    expect(there!.pubkey).not.toBe(here!.pubkey);
  });

  it('requests of a signing key are counted in its plan', async () => {
    const ann = newAuthor();
    await node.database.pool.query(
      `INSERT INTO plans (community, plan_id, name, limits, created_at, updated_at)
       VALUES ($1, 'free', 'Free', '{"trustPerDay": 1}', 1, 1)`,
      [home],
    );
    const url = `/v1/trust/report-based?subject=${ann.pubkey}`;
    expect((await node.api.ask('GET', url, node.signed(ann, 'GET', url))).status).toBe(200);
    clock.now += 1_000;
    await node.api.refused(402, 'QUOTA_EXCEEDED', 'GET', url, node.signed(ann, 'GET', url));
    expect((await node.api.ask('GET', url)).status).toBe(200);
  });

  it('grounds of a vanished member are erased, and scores that depended on them change', async () => {
    const { pool } = node.database;
    const [leaver, ben] = [elders[11]!, newAuthor()];
    const key = Buffer.from(leaver.pubkey, 'hex');
    for (const elder of elders.slice(0, 5)) await befriend(elder, leaver);
    await befriend(leaver, ben);
    await node.settled();
    await report(leaver, ben);
    await node.settled();
    expect(await risk(ben)).toMatchObject({ score: 0.02 });
    expect(await density(ben)).toMatchObject({ score: 0.02 });
    await node.post(leaver, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    await node.settled();
    await node.run(erase);
    await node.settled();
    const left = await pool.query(
      `SELECT (SELECT count(*) FROM trust_people WHERE pubkey = $1) + (SELECT count(*) FROM trust_reports
       WHERE reporter = $1) + (SELECT count(*) FROM trust_contacts
         WHERE NOT EXISTS (SELECT 1 FROM trust_people p WHERE p.id = author)
           OR NOT EXISTS (SELECT 1 FROM trust_people p WHERE p.id = named))
         + (SELECT count(*) FROM trust_authors WHERE pubkey = $1) AS rows`,
      [key],
    );
    expect(left.rows[0].rows).toBe(0);
    expect(await risk(ben)).toMatchObject({ score: 0 });
    expect(await density(ben)).toMatchObject({ score: 0, grounds: [] });
  });

  it('standing is earned by talk with people who have it, a day later, and lost by a block', async () => {
    const { pool } = node.database;
    const [ann, ben] = [newAuthor(), newAuthor()];
    await node.post(ann, { kind: 0 });
    clock.now += 31 * DAY;
    for (const elder of elders.slice(0, 5)) await befriend(ann, elder);
    await befriend(ann, ben);
    await node.settled();
    expect(await density(ben)).toMatchObject({ score: 0 });
    expect(await node.pass()).toBe(0);
    await node.settled();
    expect(await density(ben)).toMatchObject({ score: 0 });
    clock.now += DAY;
    await node.settled();
    expect(await density(ben)).toMatchObject({ score: 0.02 });
    await pool.query('INSERT INTO blocked_authors (community, pubkey, created_at) VALUES ($1, $2, 1)', [
      home,
      Buffer.from(ann.pubkey, 'hex'),
    ]);
    expect(await node.pass()).toBe(0);
    await node.settled();
    expect(await density(ben)).toMatchObject({ score: 0 });
    await pool.query('DELETE FROM blocked_authors');
    expect(await node.pass()).toBe(0);
  });

  it('the daily pass finds, counts and corrects a wrong score', async () => {
    const ann = newAuthor();
    await befriend(ann, elders[0]!);
    await node.settled();
    const before = (await node.node.metrics.trustCorrections.get()).values[0]!.value;
    await node.database.pool.query('UPDATE trust_scores SET score = 0.7 WHERE subject = $1', [
      Buffer.from(ann.pubkey, 'hex'),
    ]);
    expect(await node.pass()).toBe(1);
    expect((await node.node.metrics.trustCorrections.get()).values[0]!.value).toBe(before + 1);
    await node.settled();
    expect(await density(ann)).toMatchObject({ score: 0.02 });
    expect(await node.pass()).toBe(0);
  });

  it('grounds older than the window are deleted, and then scores without grounds', async () => {
    clock.now += 200 * DAY;
    await node.settled();
    while ((await node.run(forgetTrust)).changed > 0);
    const { rows } = await node.database.pool.query(
      `SELECT (SELECT count(*) FROM trust_contacts) AS contacts,
         (SELECT count(*) FROM trust_people) AS people, (SELECT count(*) FROM trust_reports) AS reports`,
    );
    expect(rows[0]).toEqual({ contacts: 0, people: 0, reports: 0 });
    clock.now += 100 * DAY;
    while ((await node.run(forgetTrust)).changed > 0);
    const scores = await node.database.pool.query('SELECT count(*) AS rows FROM trust_scores');
    expect(scores.rows[0].rows).toBe(0);
  });
});
