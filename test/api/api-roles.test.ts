/**
 * Roles over real HTTP: every admin route of the OpenAPI document with every role, without one, and as an
 * operator of another community; and roles that change while they are used, on two instances.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { hasRole, ROLES, type Role } from '../../src/members/rules-roles.js';
import {
  type Api,
  authorization,
  createApi,
  credential,
  type OpenApi,
  type Refused,
  readOpenApi,
} from '../support/clients/api.js';
import { LineReader } from '../support/clients/stream.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const OPERATORS = '/v1/admin/operators';
const MEMBERS = '/v1/admin/members';
const CASES = '/v1/admin/moderation/cases';
const AUDIT = '/v1/admin/audit-log';
const FAR = { timeout: 100_000 };

/** What each role may call beside what lower roles may. Every other admin route is for operators. */
const MAY: Record<'viewer' | 'moderator', readonly string[]> = {
  viewer: [
    'GET /overview',
    'GET /history',
    'GET /live',
    'GET /activity',
    'GET /jobs',
    'GET /session',
    'POST /session',
    'DELETE /session',
    'GET /sessions',
    'DELETE /sessions/{session_id}',
    'GET /topic-subscription-requests',
    'GET /topic-subscription-requests/{request_id}',
    'GET /node-subscriptions',
    'GET /node-subscriptions/{topic_id}',
    'GET /blocked-topics',
    'GET /capacity',
    'GET /storage',
    'GET /erasure-certificates',
    'GET /erasure-certificates/{erasure_id}/verification',
    'GET /members',
    'GET /members/{pubkey}',
    'GET /profiles',
    'GET /members/{pubkey}/plan',
    'GET /members/{pubkey}/topic-subscriptions',
    'GET /operators',
    'GET /labels',
    'GET /invites',
    'GET /settings',
    'GET /settings/{key}',
    'GET /policies',
    'GET /policies/{type}/{version}',
    'GET /policies/{type}/{version}/texts/{locale}',
    'GET /consents',
    'GET /plans',
    'GET /plans/{plan_id}',
    'GET /usage',
    'GET /events',
    'GET /events/{event_id}/readers',
    'GET /trust/{pubkey}',
    'GET /consumers',
    'GET /consumers/{name}/dead-letters',
    'GET /followers',
  ],
  moderator: [
    'GET /events/{event_id}/life',
    'GET /reports',
    'GET /blocks/authors',
    'GET /blocks/words',
    'GET /blocks/addresses',
    'GET /moderation/waiting',
    'GET /moderation/rules',
    'GET /moderation/rules/{rule_id}/releases',
    'POST /labels/{label_id}/withdraw',
    'POST /moderation/rules/try',
    'GET /moderation/cases',
    'POST /moderation/cases',
    'GET /moderation/cases/{case_id}',
    'POST /moderation/cases/{case_id}/actions',
    'POST /moderation/cases/actions',
    'GET /moderation/batches',
    'POST /moderation/batches',
    'POST /moderation/batches/preview',
    'GET /moderation/batches/{batch_id}',
    'POST /moderation/batches/{batch_id}/undo',
  ],
};

const root = newAuthor();
const artist = newAuthor();
const stranger = newAuthor();
const people: Record<Role, Author> = {
  viewer: newAuthor(),
  moderator: newAuthor(),
  operator: newAuthor(),
};

let relay: TestNode;
let second: TestNode;
let api: Api;
let other: Api;
let document: OpenApi;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  relay = await startTestNode({ env });
  second = await startTestNode({ env, on: relay.test });
  [api, other] = [createApi(relay.http), createApi(second.http)];
  document = await readOpenApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, FAR);
  await give(artist, 'operator', '/c/art');
  for (const role of ROLES) await give(people[role], role);
});
afterAll(async () => {
  await second.close();
  await relay.close();
});

async function give({ pubkey }: Author, role: Role, at = ''): Promise<void> {
  const given = await api.ask('PUT', `${at}${OPERATORS}/${pubkey}`, { as: root, body: { role } });
  expect(given).toMatchObject({ status: 200, body: { pubkey, role } });
}

interface AdminRoute {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  /** As the document declares it. */
  readonly role: unknown;
}

/** Every admin route. The values of parameters are those of nothing that exists. */
function adminRoutes(): AdminRoute[] {
  return Object.entries(document.paths)
    .filter(([template]) => template.startsWith('/v1/admin/'))
    .flatMap(([template, methods]) =>
      Object.entries(methods).map(([name, operation]) => {
        const method = name.toUpperCase();
        const path = template
          .replace(/\{\w+_id\}/g, '00000000-0000-4000-8000-000000000000')
          .replace('{pubkey}', newAuthor().pubkey)
          .replace('{key}', 'relay.name')
          .replace(/\{\w+\}/g, 'x');
        const role = (operation as { 'x-role'?: unknown })['x-role'];
        return { name: `${method} ${template.replace('/v1/admin', '')}`, method, path, role };
      }),
    );
}

/** The role that the refusal names; undefined if the role was not refused. */
async function lacking({ method, path }: AdminRoute, as: Author): Promise<unknown> {
  const { status, body } = await api.ask<Refused>(method, path, { as });
  expect(status).not.toBe(401);
  if (status !== 403 || body.code !== 'OPERATORS_ONLY') return undefined;
  if (body.details.role !== undefined) expect(body.message).toContain(String(body.details.role));
  return body.details.role;
}

describe('every admin route', () => {
  it('declares its least role, and only those listed here are for less than operators', () => {
    const declared = adminRoutes().map(({ name, role }) => [name, role]);
    expect(declared.length).toBeGreaterThan(100);
    expect(declared.filter(([, role]) => !ROLES.includes(role as Role))).toEqual([]);
    for (const least of ['viewer', 'moderator'] as const) {
      const named = declared.filter(([, role]) => role === least).map(([name]) => name);
      expect(named.sort()).toEqual([...MAY[least]].sort());
    }
  });

  it('that a viewer may call only reads, but for the own sessions', () => {
    expect(MAY.viewer.filter((name) => !/^GET |^\w+ \/sessions?(\/|$)/.test(name))).toEqual([]);
  });

  it('is the only kind with a role', () => {
    const outside = Object.entries(document.paths)
      .filter(([path]) => !path.startsWith('/v1/admin/'))
      .flatMap(([, methods]) => Object.values(methods));
    expect(outside.filter((operation) => 'x-role' in operation)).toEqual([]);
  });

  it('lets each role in that may call it, and tells the others which role they lack', async () => {
    for (const route of adminRoutes()) {
      const { name, method, path, role: least } = route;
      await api.refused(401, 'AUTH_REQUIRED', method, path);
      for (const as of [stranger, artist]) expect(await lacking(route, as), name).toBe(least);
      for (const role of ROLES) {
        const expected = hasRole(role, least as Role) ? undefined : least;
        expect(await lacking(route, people[role]), `${name} as ${role}`).toBe(expected);
      }
      expect(await lacking(route, root), name).toBeUndefined();
    }
  });

  it('lets nobody in with a role of another community', async () => {
    for (const role of ROLES)
      await api.refused(403, 'OPERATORS_ONLY', 'GET', `/c/art${MEMBERS}`, { as: people[role] });
  });
});

describe('a role', () => {
  it('applies to the next request on every instance, and is in the audit log', async () => {
    const person = newAuthor();
    const may = async () => ({
      views: (await other.ask('GET', MEMBERS, { as: person })).status,
      moderates: (await other.ask('GET', CASES, { as: person })).status,
      operates: (await other.ask('GET', AUDIT, { as: person })).status,
    });
    expect(await may()).toEqual({ views: 403, moderates: 403, operates: 403 });
    await give(person, 'viewer');
    expect(await may()).toEqual({ views: 200, moderates: 403, operates: 403 });
    await give(person, 'operator');
    expect(await may()).toEqual({ views: 200, moderates: 200, operates: 200 });
    await give(person, 'moderator');
    expect(await may()).toEqual({ views: 200, moderates: 200, operates: 403 });
    // Without a role in the body nothing changes.
    const same = await api.ask('PUT', `${OPERATORS}/${person.pubkey}`, { as: root });
    expect(same.body).toMatchObject({ role: 'moderator' });
    expect((await api.ask('DELETE', `${OPERATORS}/${person.pubkey}`, { as: root })).status).toBe(200);
    expect(await may()).toEqual({ views: 403, moderates: 403, operates: 403 });
    const log = await api.ask<{ items: { action: string; target: string; details: object }[] }>(
      'GET',
      `${AUDIT}?limit=50`,
      { as: root },
    );
    expect(
      log.body.items
        .filter(({ target }) => target === person.pubkey)
        .map(({ action, details }) => [action, details]),
    ).toEqual([
      ['operator.remove', { role: 'moderator' }],
      ['operator.change', { role: 'moderator', before: 'operator' }],
      ['operator.change', { role: 'operator', before: 'viewer' }],
      ['operator.add', { role: 'viewer' }],
    ]);
  });

  it('that is lowered ends what it may no longer read: open streams, also on another instance', async () => {
    const person = newAuthor();
    await give(person, 'operator');
    await vi.waitUntil(
      () => second.node.communities.find(undefined, undefined)!.operators.has(person.pubkey),
      FAR,
    );
    const stream = await LineReader.open(second.http, '/v1/admin/outbox?follow=true', { as: person });
    await stream.waitFor('a position', ({ op }) => op === 'position');
    await give(person, 'moderator');
    const closed = await stream.waitFor('why', ({ op }) => op === 'closed');
    expect(closed).toEqual({ op: 'closed', code: 'OPERATORS_ONLY' });
  });

  it('that is lowered limits an open session at once', async () => {
    const person = newAuthor();
    await give(person, 'operator');
    const started = await api.ask<{ role: Role }>('POST', '/v1/admin/session', { as: person });
    expect(started).toMatchObject({ status: 201, body: { role: 'operator' } });
    const headers = { cookie: started.headers.get('set-cookie')!.split(';')[0]! };
    expect((await other.ask('GET', AUDIT, { headers })).status).toBe(200);
    await give(person, 'viewer');
    const { body } = await other.refused(403, 'OPERATORS_ONLY', 'GET', AUDIT, { headers });
    expect(body.details).toEqual({ role: 'operator' });
    expect((await other.ask('GET', '/v1/admin/session', { headers })).body).toMatchObject({ role: 'viewer' });
  });

  it('of a viewer does not show the notes about members', async () => {
    const member = newAuthor();
    const path = `${MEMBERS}/${member.pubkey}`;
    await api.ask('PATCH', path, { as: root, body: { note: 'was warned' } });
    const noteFor = async (role: Role) =>
      (await api.ask<{ note: string | null }>('GET', path, { as: people[role] })).body.note;
    expect(await noteFor('operator')).toBe('was warned');
    expect(await noteFor('moderator')).toBe('was warned');
    expect(await noteFor('viewer')).toBeNull();
    const listed = await api.ask<{ items: { note: string | null }[] }>('GET', `${MEMBERS}?limit=200`, {
      as: people.viewer,
    });
    expect(listed.body.items.filter(({ note }) => note !== null)).toEqual([]);
  });

  it('of a moderator does not manage the relay (NIP-86)', async () => {
    const body = JSON.stringify({ method: 'supportedmethods', params: [] });
    const manage = async (as: Author) => {
      const signed = authorization(credential(as, { method: 'POST', url: relay.http, body }));
      const headers = { 'content-type': 'application/nostr+json+rpc', authorization: signed };
      return (await fetch(relay.http, { method: 'POST', headers, body })).status;
    };
    expect(await manage(people.moderator)).toBe(403);
    expect(await manage(people.operator)).toBe(200);
  });
});
