/**
 * Signing in for a token over real HTTP: only a right answer to a challenge gives a token, once, and the
 * token is accepted only while it is valid.
 */
import { createHmac, randomBytes } from 'node:crypto';
import { decodeJwt, SignJWT } from 'jose';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { changeMember } from '../../src/members/members.sql.js';
import { type Api, createApi, type Refused } from '../support/clients/api.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const LIST = '/v1/topic-subscriptions';
const ADMIN = '/v1/admin/members';
const CHALLENGE = '/v1/auth/challenge';
const VERIFY = '/v1/auth/verify';
const REVOKE = '/v1/auth/revoke';
/** The public address of both instances, whatever their ports are. */
const PUBLIC = 'wss://relay.example';

const root = newAuthor();
let alice: Author;
let relay: TestNode;
let second: TestNode;
let stranger: TestNode;
let api: Api;
let secondApi: Api;
let secret: string;
let home: number;
let art: number;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  relay = await startTestNode({ env });
  second = await startTestNode({ env, on: relay.test });
  stranger = await startTestNode({ env });
  api = createApi(relay.http);
  secondApi = createApi(second.http);
  home = relay.node.communities.find(undefined, undefined)!.id;
  art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await writeSetting(relay.database.pool, home, 'relay.urls', [PUBLIC], Date.now());
  for (const { node } of [relay, second]) {
    const known = () => node.communities.get(home)?.settings['relay.urls'][0] === PUBLIC;
    await vi.waitUntil(() => known() && node.communities.get(art) !== undefined, { timeout: 100_000 });
  }
  const { rows } = await relay.database.pool.query<{ value: string }>(
    `SELECT value FROM node_state WHERE key = 'token_secret'`,
  );
  secret = rows[0]!.value;
});
afterAll(async () => {
  await stranger?.close();
  await second?.close();
  await relay?.close();
});
beforeEach(() => {
  alice = newAuthor();
});

interface Challenge {
  challenge: string;
  relay: string;
  expires_at: number;
}
interface Token {
  token: string;
  token_type: string;
  expires_at: number;
  pubkey: string;
}

async function challengeOf(at = api, prefix = ''): Promise<Challenge> {
  const { status, body } = await at.ask<Challenge>('POST', prefix + CHALLENGE);
  expect(status).toBe(200);
  return body;
}
const answerTo = (issued: Challenge, as: Author, draft: Draft = {}) =>
  sign(as, {
    kind: 22_242,
    tags: [
      ['relay', issued.relay],
      ['challenge', issued.challenge],
    ],
    ...draft,
  });
async function signIn(as: Author, at = api, prefix = ''): Promise<Token> {
  const event = answerTo(await challengeOf(at, prefix), as);
  const { status, body } = await at.ask<Token>('POST', prefix + VERIFY, { body: { event } });
  expect({ status, body }).toMatchObject({ status: 200, body: { pubkey: as.pubkey } });
  return body;
}
const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });
const statusOf = async (token: string, path = LIST, at = api) =>
  (await at.ask('GET', path, bearer(token))).status;
async function expectInvalid(reason: string, token: string, path = LIST, at = api): Promise<void> {
  const { headers, body } = await at.refused(401, 'INVALID_TOKEN', 'GET', path, bearer(token));
  expect(body.details).toEqual({ reason });
  expect(headers.get('www-authenticate')).toBe('Nostr, Bearer');
}
async function expectNoToken(reason: string, event: unknown, prefix = ''): Promise<void> {
  const { body } = await api.refused(401, 'INVALID_AUTH', 'POST', prefix + VERIFY, { body: { event } });
  expect(body.details).toMatchObject({ reason });
  // The event is in the body.
  expect(JSON.stringify(body)).not.toMatch(/header/i);
}

describe('a challenge', () => {
  it('is given to anybody, with the relay and the expiry, and stores no row', async () => {
    const before = await contents();
    const issued = await challengeOf();
    expect(issued).toEqual({
      challenge: expect.stringMatching(/^\d+\.[0-9a-f]{32}\.[0-9a-f]{64}$/),
      relay: PUBLIC,
      expires_at: expect.any(Number),
    });
    expect(issued.expires_at - Date.now()).toBeGreaterThan(240_000);
    expect(issued.expires_at - Date.now()).toBeLessThanOrEqual(300_000);
    expect((await challengeOf()).challenge).not.toBe(issued.challenge);
    expect(await contents()).toEqual(before);
  });

  it('is requested with no body or with {}', async () => {
    const empty = { body: {} };
    expect(await api.ask('POST', CHALLENGE, empty)).toMatchObject({ status: 200 });
    for (const body of [{ a: 1 }, [], 'x', 0, null])
      await api.refused(400, 'INVALID_REQUEST', 'POST', CHALLENGE, { body });
  });

  it('can be answered on another instance', async () => {
    const issued = await challengeOf();
    const { status } = await secondApi.ask('POST', VERIFY, { body: { event: answerTo(issued, alice) } });
    expect(status).toBe(200);
  });

  it('works once over all instances, also under concurrency', async () => {
    const issued = await challengeOf();
    const event = answerTo(issued, alice);
    const answers = await Promise.all(
      [api, secondApi, api, secondApi].map((at) => at.ask<Refused>('POST', VERIFY, { body: { event } })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401, 401]);
    await api.refused(401, 'REPLAYED_AUTH', 'POST', VERIFY, { body: { event: answerTo(issued, alice) } });
    await api.refused(401, 'REPLAYED_AUTH', 'POST', VERIFY, {
      body: { event: answerTo(issued, newAuthor()) },
    });
  });

  it('is not used up by a wrong answer', async () => {
    const issued = await challengeOf();
    const event = answerTo(issued, alice);
    await expectNoToken('signature', { ...event, sig: '0'.repeat(128) });
    expect((await api.ask('POST', VERIFY, { body: { event } })).status).toBe(200);
  });
});

describe('an answer gives no token', () => {
  it('when it is not an event, or of another kind', async () => {
    for (const event of [null, 'x', {}, []]) await expectNoToken('event', event);
    await expectNoToken('event', answerTo(await challengeOf(), alice, { kind: 1 }));
    await expectNoToken('event', answerTo(await challengeOf(), alice, { kind: 27_235 }));
  });

  it('when its challenge is missing, made up, changed, of another community or of another node', async () => {
    const issued = await challengeOf();
    const [expiresAt, nonce, seal] = issued.challenge.split('.') as [string, string, string];
    const elsewhere = await challengeOf(createApi(stranger.http));
    const wrong = [
      '',
      'x',
      `${Number(expiresAt) + 1}.${nonce}.${seal}`,
      `${expiresAt}.${'0'.repeat(32)}.${seal}`,
      `${expiresAt}.${nonce}.${'0'.repeat(64)}`,
      (await challengeOf(api, '/c/art')).challenge,
      elsewhere.challenge,
    ];
    for (const challenge of wrong)
      await expectNoToken('challenge', answerTo({ ...issued, challenge }, alice));
    await expectNoToken('challenge', answerTo(issued, alice, { tags: [['relay', issued.relay]] }));
    await expectNoToken('challenge', answerTo(issued, alice), '/c/art');
  });

  it('when its challenge has expired', async () => {
    const open = `${Date.now() - 1}.${randomBytes(16).toString('hex')}`;
    const key = createHmac('sha256', secret).update('challenge').digest();
    const seal = createHmac('sha256', key).update(`${home}.${open}`).digest('hex');
    const issued = { ...(await challengeOf()), challenge: `${open}.${seal}` };
    await expectNoToken('challenge', answerTo(issued, alice));
    const fresh = `${Date.now() + 60_000}.${randomBytes(16).toString('hex')}`;
    const right = createHmac('sha256', key).update(`${home}.${fresh}`).digest('hex');
    const event = answerTo({ ...issued, challenge: `${fresh}.${right}` }, alice);
    expect((await api.ask('POST', VERIFY, { body: { event } })).status).toBe(200);
  });

  it('when its relay is another one, or its time is not now', async () => {
    const issued = await challengeOf();
    await expectNoToken('event', answerTo({ ...issued, relay: 'wss://evil.example' }, alice));
    await expectNoToken('event', answerTo(issued, alice, { tags: [['challenge', issued.challenge]] }));
    await expectNoToken('event', answerTo(issued, alice, { created_at: nowSeconds() - 3_600 }));
    await expectNoToken('event', answerTo(issued, alice, { created_at: nowSeconds() + 3_600 }));
  });

  it('when its id or its signature is invalid', async () => {
    const issued = await challengeOf();
    const event = answerTo(issued, alice);
    await expectNoToken('id', { ...event, content: 'changed' });
    await expectNoToken('signature', { ...event, sig: answerTo(issued, newAuthor()).sig });
  });

  it('when the account is disabled or deleted', async () => {
    const rules = { fixed: [] };
    const change = { community: home, pubkey: alice.pubkey };
    const { pool } = relay.database;
    await changeMember(pool, { ...change, status: 'disabled' }, rules, Date.now());
    const first = { body: { event: answerTo(await challengeOf(), alice) } };
    await api.refused(403, 'ACCOUNT_DISABLED', 'POST', VERIFY, first);
    await changeMember(pool, { ...change, status: 'deleted' }, rules, Date.now());
    const next = { body: { event: answerTo(await challengeOf(), alice) } };
    await api.refused(410, 'ACCOUNT_DELETED', 'POST', VERIFY, next);
  });

  it('when the body has another form', async () => {
    await api.refused(400, 'INVALID_REQUEST', 'POST', VERIFY, { body: { proof: {} } });
    await api.refused(400, 'INVALID_REQUEST', 'POST', VERIFY, { body: 'x' });
  });
});

describe('a token', () => {
  it('authenticates its key on every instance, for as long as the setting says', async () => {
    const made = await signIn(alice);
    expect(made).toMatchObject({ token_type: 'Bearer', pubkey: alice.pubkey });
    const claims = decodeJwt(made.token);
    expect(claims).toMatchObject({ iss: 'minato', aud: `community:${home}`, sub: alice.pubkey });
    expect(claims.exp! - claims.iat!).toBe(900);
    expect(made.expires_at).toBe(claims.exp! * 1_000);
    expect([await statusOf(made.token), await statusOf(made.token, LIST, secondApi)]).toEqual([200, 200]);
    expect(await statusOf(made.token)).toBe(200);
    await writeSetting(relay.database.pool, home, 'auth.tokenSeconds', 60, Date.now());
    await vi.waitUntil(() => relay.node.communities.get(home)!.settings['auth.tokenSeconds'] === 60, {
      timeout: 100_000,
    });
    const { exp, iat } = decodeJwt((await signIn(alice)).token);
    expect(exp! - iat!).toBe(60);
  });

  it('is not stored by caches', async () => {
    const event = answerTo(await challengeOf(), alice);
    const { headers } = await api.ask('POST', VERIFY, { body: { event } });
    expect(headers.get('cache-control')).toBe('no-store');
  });

  it('makes requests as its key, also with a body', async () => {
    const { token } = await signIn(alice);
    const issued = await api.ask<{ request: { requester_pubkey: string } }>(
      'POST',
      '/v1/topic-subscription-requests',
      { ...bearer(token), body: { name: 'boats' } },
    );
    expect(issued).toMatchObject({ status: 201, body: { request: { requester_pubkey: alice.pubkey } } });
  });

  it('of an operator opens the routes of operators, of a member not', async () => {
    expect(await statusOf((await signIn(root)).token, ADMIN)).toBe(200);
    await api.refused(403, 'OPERATORS_ONLY', 'GET', ADMIN, bearer((await signIn(alice)).token));
  });

  it('is valid in its own community only', async () => {
    const { token } = await signIn(alice);
    await expectInvalid('invalid', token, `/c/art${LIST}`);
    const other = await signIn(alice, api, '/c/art');
    expect(await statusOf(other.token, `/c/art${LIST}`)).toBe(200);
    await expectInvalid('invalid', other.token);
    expect(decodeJwt(other.token).aud).toBe(`community:${art}`);
  });

  it('is refused when it is malformed', async () => {
    const { token } = await signIn(alice);
    const [header, payload] = token.split('.');
    for (const bad of ['x', 'a.b.c', `${header}.${payload}`, `${header}.${payload}.`, `${token}x`])
      await expectInvalid('invalid', bad);
    await api.refused(401, 'INVALID_AUTH', 'GET', LIST, { headers: { authorization: 'Bearer a b' } });
  });
});

/** A token as the node would make it, except for the given changes. */
async function forged(
  claims: Record<string, unknown> = {},
  options: { key?: Uint8Array; typ?: string } = {},
): Promise<string> {
  const { key = tokenKey(), typ = 'JWT' } = options;
  const payload = {
    iss: 'minato',
    aud: `community:${home}`,
    sub: alice.pubkey,
    jti: crypto.randomUUID(),
    iat: nowSeconds(),
    exp: nowSeconds() + 600,
    mark: 0,
    ...claims,
  };
  return new SignJWT(payload).setProtectedHeader({ alg: 'HS256', typ }).sign(key);
}
const tokenKey = (of = secret) => new Uint8Array(createHmac('sha256', of).update('token').digest());
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

describe('a forged token', () => {
  it('passes when it is made with the node’s key (a check of this test)', async () => {
    expect(await statusOf(await forged())).toBe(200);
  });

  it('is refused with another secret, such as that of another node', async () => {
    await expectInvalid('invalid', await forged({}, { key: tokenKey('another') }));
    const { token } = await signIn(alice, createApi(stranger.http));
    await expectInvalid('invalid', token);
    // Challenges use a different key.
    const key = new Uint8Array(createHmac('sha256', secret).update('challenge').digest());
    await expectInvalid('invalid', await forged({}, { key }));
  });

  it('is refused unsigned, whatever algorithm it names', async () => {
    const payload = (await forged()).split('.')[1];
    for (const alg of ['none', 'None', 'NONE', 'HS256', 'RS256'])
      await expectInvalid('invalid', `${part({ alg, typ: 'JWT' })}.${payload}.`);
  });

  it('is refused under any other algorithm, also with the right secret', async () => {
    const payload = (await forged()).split('.')[1];
    for (const [alg, hash] of [
      ['HS384', 'sha384'],
      ['HS512', 'sha512'],
      ['RS256', 'sha256'],
      ['ES256', 'sha256'],
    ] as const) {
      const open = `${part({ alg, typ: 'JWT' })}.${payload}`;
      const seal = createHmac(hash, tokenKey()).update(open).digest('base64url');
      await expectInvalid('invalid', `${open}.${seal}`);
    }
  });

  it('is refused with another issuer, audience, type, key or id', async () => {
    const wrong = [
      { iss: 'another' },
      { iss: undefined },
      { aud: undefined },
      { aud: String(home) },
      { sub: 'x' },
      { sub: undefined },
      { jti: 'x' },
      { jti: undefined },
      { exp: undefined },
      { mark: undefined },
    ];
    for (const claims of wrong) await expectInvalid('invalid', await forged(claims));
    await expectInvalid('invalid', await forged({}, { typ: 'at+jwt' }));
  });

  it('is refused after it expired', async () => {
    await expectInvalid('expired', await forged({ exp: nowSeconds() - 1 }));
    await expectInvalid('expired', await forged({ exp: nowSeconds() }));
  });
});

describe('revoking', () => {
  const revoke = (token: string, body: unknown = {}, at = api) =>
    at.ask<{ revoked: string }>('POST', REVOKE, { ...bearer(token), body });

  it('revokes this token at once on every instance, and no other', async () => {
    const [mine, another] = [await signIn(alice), await signIn(alice, secondApi)];
    expect(await revoke(mine.token)).toMatchObject({ status: 200, body: { revoked: 'token' } });
    await expectInvalid('revoked', mine.token, LIST, secondApi);
    await expectInvalid('revoked', mine.token);
    expect(await statusOf(another.token)).toBe(200);
    const { status, body } = await api.ask<Refused>('POST', REVOKE, { ...bearer(mine.token), body: {} });
    expect({ status, code: body.code }).toEqual({ status: 401, code: 'INVALID_TOKEN' });
  });

  it('revokes all tokens of a member here, not later ones, those of others or elsewhere', async () => {
    const other = newAuthor();
    const before = [await signIn(alice), await signIn(alice, secondApi)];
    const spared = await signIn(other);
    const inArt = await signIn(alice, api, '/c/art');
    expect(await revoke(before[0]!.token, { all: true }, secondApi)).toMatchObject({
      body: { revoked: 'all' },
    });
    for (const { token } of before) {
      await expectInvalid('revoked', token);
      await expectInvalid('revoked', token, LIST, secondApi);
    }
    expect(await statusOf(spared.token)).toBe(200);
    expect(await statusOf(inArt.token, `/c/art${LIST}`)).toBe(200);
    expect(await statusOf((await signIn(alice)).token)).toBe(200);
    const again = await signIn(alice);
    await revoke(again.token, { all: true });
    await expectInvalid('revoked', again.token);
  });

  it('of all tokens works with a signature too', async () => {
    const { token } = await signIn(alice);
    await api.refused(400, 'INVALID_REQUEST', 'POST', REVOKE, { as: alice, body: {} });
    expect(await statusOf(token)).toBe(200);
    expect((await api.ask('POST', REVOKE, { as: alice, body: { all: true } })).status).toBe(200);
    await expectInvalid('revoked', token);
  });

  it('needs somebody', async () => {
    await api.refused(401, 'AUTH_REQUIRED', 'POST', REVOKE, { body: { all: true } });
  });

  it('happens for good when the account is disabled', async () => {
    const newcomer = await signIn(newAuthor());
    const { pool } = relay.database;
    for (const { token, pubkey } of [await signIn(alice), newcomer]) {
      const change = { community: home, pubkey };
      await changeMember(pool, { ...change, status: 'disabled' }, { fixed: [] }, Date.now());
      await expectInvalid('revoked', token, LIST, secondApi);
      await changeMember(pool, { ...change, status: 'active' }, { fixed: [] }, Date.now());
      await expectInvalid('revoked', token);
    }
    expect(await statusOf((await signIn(alice)).token)).toBe(200);
  });

  it('happens when the account is deleted, and a signature is refused with its own reason', async () => {
    const { token } = await signIn(alice);
    const change = { community: home, pubkey: alice.pubkey, status: 'deleted' as const };
    await changeMember(relay.database.pool, change, { fixed: [] }, Date.now());
    await expectInvalid('revoked', token);
    await api.refused(410, 'ACCOUNT_DELETED', 'GET', LIST, { as: alice });
  });
});

/** The number of rows in every table where a sign-in could leave some. */
async function contents(): Promise<unknown> {
  const { rows } = await relay.database.pool.query(
    `SELECT (SELECT count(*) FROM members) AS members, (SELECT count(*) FROM used_credentials) AS used,
       (SELECT count(*) FROM revoked_tokens) AS revoked, (SELECT count(*) FROM node_state) AS state`,
  );
  return rows[0];
}
