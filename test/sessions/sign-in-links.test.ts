/**
 * One-time links that sign in with a browser, and lists of sessions, over real HTTP: with sessions in
 * PostgreSQL and in Redis.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { changeMember } from '../../src/members/members.sql.js';
import { addOperator, removeOperator } from '../../src/members/operators.sql.js';
import { makeLink } from '../../src/sessions/links.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { TestRedis } from '../support/servers/redis.js';

const LINK = '/v1/sessions/link';
const SESSION = '/v1/admin/session';
const SESSIONS = '/v1/admin/sessions';
const AUDIT = '/v1/admin/audit-log';
const MINUTE_MS = 60_000;
const quiet = { fixed: [] };

interface Shown {
  readonly pubkey: string;
  readonly role: string;
  readonly csrf_token: string;
}
interface Listed {
  readonly items: { session_id: string; created_at: number; expires_at: number; current: boolean }[];
}

let redis: TestRedis;
beforeAll(async () => {
  redis = await TestRedis.start();
});
afterAll(() => redis.stop());

describe.each(['PostgreSQL', 'Redis'] as const)('with sessions in %s', (store) => {
  let relay: TestNode;
  let second: TestNode;
  let api: Api;
  let other: Api;
  let home: number;
  let art: number;
  let aheadMs = 0;
  const root = newAuthor();

  beforeAll(async () => {
    const env = {
      MINATO_ADMIN_PUBKEYS: root.pubkey,
      ...(store === 'Redis' ? { REDIS_URL: redis.url } : {}),
    };
    const now = () => Date.now() + aheadMs;
    relay = await startTestNode({ env, now });
    second = await startTestNode({ env, now, on: relay.test });
    [api, other] = [createApi(relay.http), createApi(second.http)];
    art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await relay.node.communities.refresh();
    home = relay.node.communities.find(undefined, undefined)!.id;
  });
  afterAll(async () => {
    await second.close();
    await relay.close();
  });

  async function newPerson(role: 'viewer' | 'moderator' | 'operator'): Promise<Author> {
    const person = newAuthor();
    const given = { community: home, pubkey: person.pubkey, role };
    await addOperator(relay.database.pool, given, quiet, Date.now());
    return person;
  }
  async function linkFor({ pubkey }: Author, community = home): Promise<string> {
    const made = await makeLink(relay.database.pool, { community, pubkey }, Date.now() + aheadMs);
    if (isDenial(made)) throw new Error(made.denied);
    return made.code;
  }
  async function signIn(code: string, at = api) {
    const answer = await at.ask<Shown>('POST', LINK, { body: { code } });
    expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 201 });
    const setCookie = answer.headers.get('set-cookie')!;
    const cookie = setCookie.split(';')[0]!;
    const headers = { cookie, 'x-csrf-token': answer.body.csrf_token };
    return { setCookie, headers, shown: answer.body };
  }
  const audited = async ({ pubkey }: Author) => {
    const { rows } = await relay.database.pool.query<{ actor: string; action: string; details: object }>(
      `SELECT encode(actor, 'hex') AS actor, action, details FROM audit_log
       WHERE target = $1 AND action LIKE 'session.%' ORDER BY position`,
      [pubkey],
    );
    return rows;
  };

  describe('a link', () => {
    it('signs its key in once, on any instance, with cookie and CSRF token, and is audited', async () => {
      const person = await newPerson('moderator');
      const code = await linkFor(person);
      const { setCookie, headers, shown } = await signIn(code, other);
      expect(setCookie).toMatch(/; HttpOnly; SameSite=Strict$/);
      expect(shown).toMatchObject({ pubkey: person.pubkey, role: 'moderator' });
      expect((await api.ask('GET', '/v1/admin/moderation/cases', { headers })).status).toBe(200);
      const { cookie } = headers;
      await api.refused(403, 'CSRF_REQUIRED', 'DELETE', SESSION, { headers: { cookie } });
      await api.refused(403, 'OPERATORS_ONLY', 'GET', AUDIT, { headers });
      for (const at of [api, other]) await at.refused(401, 'INVALID_LINK', 'POST', LINK, { body: { code } });
      expect(await audited(person)).toEqual([
        { actor: null, action: 'session.link', details: { expires_at: expect.any(Number) } },
        { actor: person.pubkey, action: 'session.start', details: { by: 'link' } },
      ]);
    });

    it('that two browsers use at the same moment signs one of them in', async () => {
      const code = await linkFor(await newPerson('viewer'));
      const answers = await Promise.all(
        [api, other, api, other].map((at) => at.ask('POST', LINK, { body: { code } })),
      );
      expect(answers.map(({ status }) => status).sort()).toEqual([201, 401, 401, 401]);
    });

    it('is stored as a hash only', async () => {
      const code = await linkFor(await newPerson('viewer'));
      const { rows } = await relay.database.pool.query('SELECT l::text AS row FROM sign_in_links l');
      const kept = JSON.stringify(rows);
      expect(rows.length).toBeGreaterThan(0);
      for (const secret of [
        code,
        Buffer.from(code).toString('hex'),
        Buffer.from(code, 'base64url').toString('hex'),
      ])
        expect(kept).not.toContain(secret);
    });

    it('is replaced by the next one of its key', async () => {
      const person = await newPerson('viewer');
      const [first, next] = [await linkFor(person), await linkFor(person)];
      await api.refused(401, 'INVALID_LINK', 'POST', LINK, { body: { code: first } });
      await signIn(next);
    });

    it('is valid in its community only, and wrong codes are not', async () => {
      const code = await linkFor(root, art);
      for (const wrong of [code, '', 'x', 'x'.repeat(101)])
        expect([400, 401]).toContain((await api.ask('POST', LINK, { body: { code: wrong } })).status);
      const there = await api.ask('POST', `/c/art${LINK}`, { body: { code } });
      expect(there).toMatchObject({ status: 201, body: { pubkey: root.pubkey, role: 'operator' } });
    });

    it('signs nobody in whose role or account has ended', async () => {
      const { pool } = relay.database;
      const [removed, disabled] = [await newPerson('operator'), await newPerson('operator')];
      const codes = [await linkFor(removed), await linkFor(disabled)];
      await removeOperator(pool, { community: home, pubkey: removed.pubkey }, quiet, Date.now());
      const change = { community: home, pubkey: disabled.pubkey, status: 'disabled' } as const;
      await changeMember(pool, change, quiet, Date.now());
      await api.refused(403, 'OPERATORS_ONLY', 'POST', LINK, { body: { code: codes[0] } });
      await api.refused(403, 'ACCOUNT_DISABLED', 'POST', LINK, { body: { code: codes[1] } });
      for (const code of codes) await api.refused(401, 'INVALID_LINK', 'POST', LINK, { body: { code } });
    });

    it('expires after ten minutes', async () => {
      const code = await linkFor(await newPerson('viewer'));
      aheadMs = 10 * MINUTE_MS;
      await api.refused(401, 'INVALID_LINK', 'POST', LINK, { body: { code } });
      aheadMs = 0;
    });
  });

  describe('sessions', () => {
    it('of a key are listed, newest first, and ended one by one', async () => {
      const [person, stranger] = [await newPerson('viewer'), await newPerson('viewer')];
      const [first, last] = [await signIn(await linkFor(person)), await signIn(await linkFor(person))];
      const foreign = await signIn(await linkFor(stranger));
      const listed = await other.ask<Listed>('GET', SESSIONS, { headers: last.headers });
      const { items } = listed.body;
      expect(items.map(({ current }) => current)).toEqual([true, false]);
      expect(items[0]!.created_at).toBeGreaterThanOrEqual(items[1]!.created_at);
      expect(JSON.stringify(items)).not.toContain(last.headers.cookie.split('.')[1]);
      const end = (headers: Record<string, string>) =>
        other.ask('DELETE', `${SESSIONS}/${items[1]!.session_id}`, { headers });
      expect((await end(foreign.headers)).status).toBe(404);
      expect(await end(last.headers)).toMatchObject({ status: 200, body: { ended: 1 } });
      expect((await end(last.headers)).status).toBe(404);
      await api.refused(401, 'INVALID_SESSION', 'GET', SESSION, { headers: first.headers });
      expect((await api.ask('GET', SESSION, { headers: last.headers })).status).toBe(200);
      expect((await api.ask<Listed>('GET', SESSIONS, { as: person })).body.items).toHaveLength(1);
      expect((await audited(person)).at(-1)).toMatchObject({ actor: person.pubkey, action: 'session.end' });
    });

    it('of another key are listed and ended by operators only, at once on every instance', async () => {
      const [boss, person] = [await newPerson('operator'), await newPerson('moderator')];
      const path = `/v1/admin/operators/${person.pubkey}/sessions`;
      const browsers = [await signIn(await linkFor(person)), await signIn(await linkFor(person))];
      for (const method of ['GET', 'DELETE'])
        await api.refused(403, 'OPERATORS_ONLY', method, path, { as: person });
      expect((await api.ask<Listed>('GET', path, { as: boss })).body.items).toHaveLength(2);
      expect(await api.ask('DELETE', path, { as: boss })).toMatchObject({ status: 200, body: { ended: 2 } });
      for (const { headers } of browsers)
        await other.refused(401, 'INVALID_SESSION', 'GET', SESSION, { headers });
      expect(await api.ask('DELETE', path, { as: boss })).toMatchObject({ status: 200, body: { ended: 0 } });
      const ends = (await audited(person)).filter(({ action }) => action === 'session.end');
      expect(ends).toEqual([{ actor: boss.pubkey, action: 'session.end', details: {} }]);
    });

    it('of an operator of the node are ended by such operators only', async () => {
      const boss = await newPerson('operator');
      const path = `/v1/admin/operators/${root.pubkey}/sessions`;
      const { headers } = await signIn(await linkFor(root));
      await api.refused(409, 'FIXED_OPERATOR', 'DELETE', path, { as: boss });
      expect((await api.ask('GET', SESSION, { headers })).status).toBe(200);
      expect((await api.ask('DELETE', path, { as: root })).status).toBe(200);
      await api.refused(401, 'INVALID_SESSION', 'GET', SESSION, { headers });
    });
  });
});
