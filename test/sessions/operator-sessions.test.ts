/**
 * Sessions of operators in a browser, over real HTTP: the same rules with sessions in PostgreSQL and in
 * Redis.
 */
import { createClient } from 'redis';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { REDIS_PREFIXES } from '../../src/erasure/stores/sessions.js';
import { changeMember } from '../../src/members/members.sql.js';
import { addOperator, removeOperator } from '../../src/members/operators.sql.js';
import { SESSION_PREFIXES } from '../../src/sessions/keys.js';
import { openSessions, type Sessions } from '../../src/sessions/shared.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { TestRedis } from '../support/servers/redis.js';

const SESSION = '/v1/admin/session';
const AUDIT = '/v1/admin/audit-log';
const SETTING = '/v1/admin/settings/relay.name';
const HOUR_MS = 3_600_000;
const FAR = { timeout: 100_000 };

interface Shown {
  readonly pubkey: string;
  readonly role: string;
  readonly csrf_token: string;
  readonly expires_at: number;
}
interface Browser {
  /** The value that the browser sends. */
  readonly cookie: string;
  readonly csrf: string;
  readonly setCookie: string;
  readonly shown: Shown;
}

let redis: TestRedis;
beforeAll(async () => {
  redis = await TestRedis.start();
});
afterAll(() => redis.stop());

describe.each(['PostgreSQL', 'Redis'] as const)('a session in %s', (store) => {
  let relay: TestNode;
  let api: Api;
  let home: number;
  let art: number;
  let aheadMs = 0;
  const root = newAuthor();
  /** An operator of both communities; others only where a test says so. */
  const clerk = newAuthor();
  const [leaving, eager] = [newAuthor(), newAuthor()];
  const quiet = { fixed: [] };

  beforeAll(async () => {
    const env = {
      MINATO_ADMIN_PUBKEYS: root.pubkey,
      ...(store === 'Redis' ? { REDIS_URL: redis.url } : {}),
    };
    relay = await startTestNode({ env, now: () => Date.now() + aheadMs });
    api = createApi(relay.http);
    const { pool } = relay.database;
    art = await addCommunity(pool, 'art', undefined, Date.now());
    await writeSetting(pool, art, 'relay.urls', ['wss://art.example'], Date.now());
    await writeSetting(pool, art, 'auth.sessionHours', 1, Date.now());
    home = relay.node.communities.find(undefined, undefined)!.id;
    for (const { pubkey } of [leaving, eager, clerk])
      await addOperator(pool, { community: home, pubkey }, quiet, Date.now());
    await addOperator(pool, { community: art, pubkey: clerk.pubkey }, quiet, Date.now());
    await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(clerk.pubkey), FAR);
  });
  afterAll(() => relay.close());

  async function signIn(as: Author, prefix = '', headers: Record<string, string> = {}): Promise<Browser> {
    const url = prefix === '' ? undefined : `https://art.example${SESSION}`;
    const signed =
      url === undefined ? {} : { authorization: authorization(credential(as, { method: 'POST', url })) };
    const answer = await api.ask<Shown>('POST', prefix + SESSION, { as, headers: { ...headers, ...signed } });
    expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 201 });
    const setCookie = answer.headers.get('set-cookie')!;
    return {
      cookie: setCookie.split(';')[0]!,
      csrf: answer.body.csrf_token,
      setCookie,
      shown: answer.body,
    };
  }
  const by = ({ cookie, csrf }: Pick<Browser, 'cookie'> & { csrf?: string }) => ({
    headers: { cookie, ...(csrf === undefined ? {} : { 'x-csrf-token': csrf }) },
  });
  const reads = async (cookie: string, path = AUDIT) => (await api.ask('GET', path, by({ cookie }))).status;
  const isOut = (cookie: string, path = AUDIT) =>
    api.refused(401, 'INVALID_SESSION', 'GET', path, by({ cookie }));
  const audited = async (action: string) => {
    const { rows } = await relay.database.pool.query<{ actor: string; target: string }>(
      `SELECT encode(actor, 'hex') AS actor, target FROM audit_log
       WHERE community = $1 AND action = $2 ORDER BY position DESC`,
      [home, action],
    );
    return rows;
  };

  it('starts with a signature and is identified by its cookie', async () => {
    const { cookie, csrf, setCookie, shown } = await signIn(clerk);
    expect(setCookie).toMatch(
      new RegExp(
        `^minato_session=${clerk.pubkey}\\.[\\w-]{43}; Max-Age=43200; Path=/; HttpOnly; SameSite=Strict$`,
      ),
    );
    expect(shown).toEqual({
      pubkey: clerk.pubkey,
      role: 'operator',
      csrf_token: csrf,
      expires_at: expect.any(Number),
    });
    expect(await reads(cookie)).toBe(200);
    const again = await api.ask('GET', SESSION, by({ cookie }));
    expect(again).toMatchObject({ status: 200, body: shown });
    expect(again.headers.get('cache-control')).toBe('no-store');
    expect(await audited('session.start')).toContainEqual({ actor: clerk.pubkey, target: clerk.pubkey });
  });

  it('has a Secure cookie only if the public address has TLS, and lives as set', async () => {
    const { setCookie, cookie } = await signIn(clerk, '/c/art');
    expect(setCookie).toMatch(/; Max-Age=3600; Path=\/; HttpOnly; Secure; SameSite=Strict$/);
    expect(await reads(cookie, `/c/art${AUDIT}`)).toBe(200);
  });

  it('changes nothing without its own CSRF token', async () => {
    const [mine, other, boss] = [await signIn(clerk), await signIn(clerk), await signIn(root)];
    const change = { value: store, version: 0 };
    const wrong = [
      undefined,
      '',
      'x',
      'x'.repeat(5_000),
      other.csrf,
      boss.csrf,
      mine.csrf.slice(1),
      `${mine.csrf}x`,
    ];
    for (const csrf of wrong) {
      const headers = { cookie: mine.cookie, ...(csrf === undefined ? {} : { 'x-csrf-token': csrf }) };
      await api.refused(403, 'CSRF_REQUIRED', 'PUT', SETTING, { headers, body: change });
      await api.refused(403, 'CSRF_REQUIRED', 'DELETE', SESSION, { headers });
    }
    expect((await api.ask('GET', SETTING, by(mine))).body).toMatchObject({ version: 0 });
    const head = await fetch(relay.http + AUDIT, { method: 'HEAD', headers: { cookie: mine.cookie } });
    expect(head.status).toBe(200);
    const changed = await api.ask('PUT', SETTING, { ...by(mine), body: change });
    expect(changed).toMatchObject({ status: 200, body: { value: store } });
  });

  it('cannot be started by a token, by another session, or by a member', async () => {
    const browser = await signIn(clerk);
    await api.refused(401, 'AUTH_REQUIRED', 'POST', SESSION);
    await api.refused(401, 'AUTH_REQUIRED', 'POST', SESSION, by(browser));
    await api.refused(401, 'AUTH_REQUIRED', 'POST', SESSION, { headers: { authorization: 'Bearer x.y.z' } });
    await api.refused(403, 'OPERATORS_ONLY', 'POST', SESSION, { as: newAuthor() });
  });

  it('is valid for routes of operators only, and only without an Authorization header', async () => {
    const { cookie, csrf } = await signIn(clerk);
    await api.refused(401, 'AUTH_REQUIRED', 'GET', '/v1/topic-subscriptions', by({ cookie, csrf }));
    const management = await fetch(relay.http, {
      method: 'POST',
      headers: { cookie, 'x-csrf-token': csrf, 'content-type': 'application/nostr+json+rpc' },
      body: '{"method":"supportedmethods","params":[]}',
    });
    expect(management.status).toBe(401);
    const headers = { cookie, 'x-csrf-token': csrf, authorization: 'Nostr e30=' };
    await api.refused(401, 'INVALID_AUTH', 'GET', AUDIT, { headers });
    // A signed request is not a session, whatever cookie its browser sends.
    await api.refused(404, 'NOT_FOUND', 'GET', SESSION, { as: clerk, headers: { cookie } });
    await api.refused(404, 'NOT_FOUND', 'DELETE', SESSION, { as: clerk, headers: { cookie } });
    expect(await reads(cookie)).toBe(200);
  });

  it('is not offered to pages of other sites', async () => {
    const { cookie } = await signIn(clerk);
    const preflight = await fetch(relay.http + AUDIT, {
      method: 'OPTIONS',
      headers: { origin: 'https://evil.example', 'access-control-request-method': 'PUT' },
    });
    expect(preflight.headers.get('access-control-allow-headers')).not.toMatch(/csrf|cookie/i);
    const read = await fetch(relay.http + AUDIT, { headers: { origin: 'https://evil.example', cookie } });
    for (const { headers } of [preflight, read])
      expect(headers.get('access-control-allow-credentials')).toBe(null);
  });

  it('never reuses a value that the browser sent', async () => {
    const planted = `minato_session=${clerk.pubkey}.${'A'.repeat(43)}`;
    const old = await signIn(clerk);
    for (const cookie of [planted, old.cookie]) {
      const fresh = await signIn(clerk, '', { cookie });
      expect(fresh.cookie).not.toBe(cookie);
      expect(await reads(fresh.cookie)).toBe(200);
    }
    await isOut(planted);
  });

  it('ends with its sign-out for good; another session of the same operator stays', async () => {
    const [mine, other] = [await signIn(clerk), await signIn(clerk)];
    const { length } = await audited('session.end');
    const ended = await api.ask('DELETE', SESSION, by(mine));
    expect(ended).toMatchObject({ status: 200, body: { ended: 1 } });
    expect(ended.headers.get('set-cookie')).toMatch(
      /^minato_session=; Max-Age=0; Path=\/; HttpOnly; SameSite=Strict$/,
    );
    await isOut(mine.cookie);
    await api.refused(401, 'INVALID_SESSION', 'DELETE', SESSION, by(mine));
    expect(await reads(other.cookie)).toBe(200);
    expect(await audited('session.end')).toHaveLength(length + 1);
  });

  it('ends with all sessions of its operator, and of nobody else', async () => {
    const [here, there] = [await signIn(clerk), await signIn(clerk)];
    const [abroad, boss] = [await signIn(clerk, '/c/art'), await signIn(root)];
    const all = await api.ask<{ ended: number }>('DELETE', `${SESSION}?all=true`, { as: clerk });
    expect(all.body.ended).toBeGreaterThanOrEqual(2);
    for (const { cookie } of [here, there]) await isOut(cookie);
    expect(await reads(abroad.cookie, `/c/art${AUDIT}`)).toBe(200);
    expect(await reads(boss.cookie)).toBe(200);
    expect((await api.ask('DELETE', `${SESSION}?all=true`, { as: clerk })).body).toEqual({ ended: 0 });
    const last = await signIn(clerk);
    expect((await api.ask('DELETE', `${SESSION}?all=true`, by(last))).body).toEqual({ ended: 1 });
    await api.refused(400, 'INVALID_REQUEST', 'DELETE', `${SESSION}?all=x`, { as: clerk });
  });

  it('is valid in its community and for its key only', async () => {
    const [mine, boss] = [await signIn(clerk), await signIn(root)];
    await isOut(mine.cookie, `/c/art${AUDIT}`);
    await isOut(boss.cookie, `/c/art${AUDIT}`);
    await isOut(mine.cookie.replace(clerk.pubkey, root.pubkey));
    expect(await reads(boss.cookie)).toBe(200);
  });

  it('expires', async () => {
    const { cookie } = await signIn(clerk);
    try {
      aheadMs = 12 * HOUR_MS - 30_000;
      expect(await reads(cookie)).toBe(200);
      aheadMs = 12 * HOUR_MS + 1;
      await isOut(cookie);
    } finally {
      aheadMs = 0;
    }
  });

  it('cannot be forged', async () => {
    const { cookie } = await signIn(clerk);
    const value = cookie.slice('minato_session='.length);
    const garbage = [
      '',
      'x',
      '.',
      '%',
      '%00',
      '[object Object]',
      clerk.pubkey,
      `${clerk.pubkey}.`,
      `${value}x`,
    ];
    garbage.push(
      value.toUpperCase(),
      value.slice(0, -1),
      `${value}.${value}`,
      `${clerk.pubkey}.${'*'.repeat(43)}`,
    );
    for (const one of garbage) await isOut(`minato_session=${one}`);
    await isOut(`minato_session=${'x'.repeat(12_000)}`);
    const huge = await fetch(relay.http + AUDIT, {
      headers: { cookie: `minato_session=${'x'.repeat(20_000)}` },
    });
    expect(huge.status).toBe(431);
    await api.refused(401, 'AUTH_REQUIRED', 'GET', AUDIT, by({ cookie: 'other=1; ;;=; minato_sessio=x' }));
    expect(await reads(`other=1; ${cookie}`)).toBe(200);
  });

  it('ends when its holder is no longer an operator', async () => {
    const { pool } = relay.database;
    const ref = { community: home, pubkey: leaving.pubkey };
    const { cookie } = await signIn(leaving);
    await changeMember(pool, { ...ref, status: 'disabled' }, quiet, Date.now());
    await api.refused(403, 'ACCOUNT_DISABLED', 'GET', AUDIT, by({ cookie }));
    await changeMember(pool, { ...ref, status: 'active' }, quiet, Date.now());
    expect(await reads(cookie)).toBe(200);
    await removeOperator(pool, ref, quiet, Date.now());
    await vi.waitUntil(() => !relay.node.communities.get(home)!.operators.has(leaving.pubkey), FAR);
    await api.refused(403, 'OPERATORS_ONLY', 'GET', AUDIT, by({ cookie }));
  });

  it('is stored without its tokens', async () => {
    const { cookie, csrf } = await signIn(clerk);
    const kept = await everything(store, relay);
    expect(kept).toContain(clerk.pubkey);
    expect(kept).not.toContain(cookie.split('.')[1]);
    expect(kept).not.toContain(csrf);
  });

  it('is the same on every instance', async () => {
    const url = store === 'Redis' ? redis.url : undefined;
    const open = () => openSessions(url, relay.database.pool, { debug: () => undefined } as never);
    const [one, other]: Sessions[] = [await open(), await open()];
    const ref = { community: home, pubkey: clerk.pubkey, tokenHash: '1'.repeat(64) };
    const session = { createdAt: 1_000, expiresAt: 2_000, csrfHash: '2'.repeat(64) };
    await one!.create(ref, session);
    expect(await other!.find(ref, 1_999)).toEqual(session);
    expect(await other!.find(ref, 2_000)).toBe(undefined);
    expect([await other!.end(ref), await one!.end(ref), await one!.find(ref, 1_999)]).toEqual([
      true,
      false,
      undefined,
    ]);
    await Promise.all([one!.close(), other!.close()]);
  });

  if (store === 'PostgreSQL') {
    it('has a limit of sign-ins', async () => {
      for (let made = 0; made < 30; made += 1) await signIn(eager);
      const { headers } = await api.refused(429, 'RATE_LIMITED', 'POST', SESSION, { as: eager });
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    });

    it('ends its outbox streams when it ends', async () => {
      const browser = await signIn(clerk);
      const response = await fetch(`${relay.http}/v1/admin/outbox?follow=true`, by(browser));
      expect(response.status).toBe(200);
      await api.ask('DELETE', SESSION, by(browser));
      expect(await response.text()).toContain('{"op":"closed","code":"INVALID_SESSION"}');
    });
  } else {
    it('has two keys, named by community, public key and hash, which expire', async () => {
      await withRedis(async (client) => {
        const written = await client.keys('*');
        const isKnown = (key: string) => REDIS_PREFIXES.some((prefix) => key.startsWith(prefix));
        expect(written.filter((key) => !isKnown(key))).toEqual([]);
        for (const prefix of REDIS_PREFIXES)
          expect(
            written.filter((key) => key.startsWith(prefix)),
            prefix,
          ).not.toEqual([]);
        await client.flushAll();
        await signIn(root);
        const keys = (await client.keys('*:*:*')).filter((key) => !key.startsWith('minato:')).sort();
        expect(keys).toEqual([
          expect.stringMatching(new RegExp(`^csrf:\\d+:${root.pubkey}:[0-9a-f]{64}$`)),
          expect.stringMatching(new RegExp(`^session:\\d+:${root.pubkey}:[0-9a-f]{64}$`)),
        ]);
        for (const key of keys) {
          const left = await client.pTTL(key);
          expect(left).toBeGreaterThan(12 * HOUR_MS);
          expect(left).toBeLessThanOrEqual(12 * HOUR_MS + 60_000);
        }
        // One of the two keys alone is not a session.
        const only = by({ cookie: (await signIn(root)).cookie });
        await client.unlink(await client.keys('csrf:*'));
        await api.refused(401, 'INVALID_SESSION', 'GET', AUDIT, only);
      });
    });

    it('is refused while Redis is down or silent, and none can start', async () => {
      const cookie = by({ cookie: (await signIn(root)).cookie });
      redis.freeze();
      try {
        await api.refused(503, 'UNAVAILABLE', 'GET', AUDIT, cookie);
      } finally {
        redis.thaw();
      }
      await expect.poll(async () => (await api.ask('GET', AUDIT, cookie)).status, FAR).toBe(200);
      await redis.goDown();
      await api.refused(503, 'UNAVAILABLE', 'GET', AUDIT, cookie);
      await api.refused(503, 'UNAVAILABLE', 'POST', SESSION, { as: root });
      await redis.comeBack();
      await expect.poll(async () => (await api.ask('GET', AUDIT, cookie)).status, FAR).toBe(401);
      await api.refused(401, 'INVALID_SESSION', 'GET', AUDIT, cookie);
    });
  }
});

/** Everything in the store, as one text. */
async function everything(store: 'PostgreSQL' | 'Redis', { database }: TestNode): Promise<string> {
  if (store === 'Redis') {
    return withRedis(async (client) => {
      const keys = await client.keys('*');
      const ours = keys.filter((key) => SESSION_PREFIXES.some((prefix) => key.startsWith(prefix)));
      expect(ours.length).toBeGreaterThan(1);
      return [...ours, ...(await client.mGet(ours))].join('\n');
    });
  }
  const { rows } = await database.pool.query<{ row: string }>(
    `SELECT encode(pubkey, 'hex') || translate(encode(token_hash, 'base64'), '+/', '-_') AS row
     FROM operator_sessions
     UNION ALL SELECT translate(encode(token_hash || csrf_hash, 'base64'), E'+/\\n', '-_') FROM csrf_tokens
     UNION ALL SELECT translate(encode(csrf_hash, 'base64'), '+/', '-_') FROM csrf_tokens`,
  );
  return rows.map(({ row }) => row).join('\n');
}

const clientOf = () => createClient({ url: redis.url });
async function withRedis<T>(work: (client: ReturnType<typeof clientOf>) => Promise<T>): Promise<T> {
  const client = clientOf();
  await client.connect();
  try {
    return await work(client);
  } finally {
    client.destroy();
  }
}
