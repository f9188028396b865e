/**
 * Uses of a plan, over real HTTP on two instances, with routes of this test that count like any other. Counts
 * are exact under concurrency, once per request, and given back when nothing was done.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { route } from '../../src/api/contract.js';
import { denial, isDenial } from '../../src/api/rules-errors.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { assignPlan, changePlan, createPlan, deletePlan } from '../../src/plans/plans.sql.js';
import { countUse, giveBack, readUsage } from '../../src/plans/usage.sql.js';
import type { Http } from '../../src/port/http.js';
import { type Api, createApi, type Refused, readOpenApi } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { serveApi } from '../support/servers/api-port.js';

const PATH = '/v1/things';
let one: TestNode;
let other: TestNode;
let http: Http[];
let apis: [Api, Api];
let bases: string[];
let home: number;
let member: Author;

/** What the next handlers do, in the order of their calls; later ones just respond. */
let acts: (() => Promise<unknown> | unknown)[] = [];
let handled = 0;

const things = [
  route({
    method: 'POST',
    url: '/things',
    summary: 'Counts as a report',
    tags: ['test'],
    who: 'member',
    counts: 'reports',
    body: z.strictObject({ what: z.string().default('') }),
    response: z.strictObject({ ok: z.boolean() }),
    errors: ['STATUS_CONFLICT'],
    handler: async () => {
      handled += 1;
      const act = acts.shift();
      const done = await act?.();
      return isDenial(done) ? done : { ok: true };
    },
  }),
];

beforeAll(async () => {
  one = await startTestNode();
  other = await startTestNode({ on: one.test });
  home = one.node.communities.find(undefined, undefined)!.id;
  const served = [await serveApi(one, {}, things), await serveApi(other, {}, things)];
  http = served.map(([each]) => each);
  bases = served.map(([, base]) => base);
  apis = [createApi(bases[0]!), createApi(bases[1]!)];
});
afterAll(async () => {
  for (const each of http ?? []) await each.close();
  await other?.close();
  await one?.close();
});
beforeEach(() => {
  member = newAuthor();
  acts = [];
  handled = 0;
});

let plans = 0;
/** Puts the member on a plan with this many reports a day; null means unlimited. */
async function limitTo(reportsPerDay: number | null): Promise<string> {
  plans += 1;
  const planId = `plan-${plans}`;
  const { pool } = one.database;
  await createPlan(pool, { community: home, planId, limits: { reportsPerDay } }, Date.now());
  await assignPlan(pool, { community: home, pubkey: member.pubkey, planId }, Date.now());
  return planId;
}

interface Ask {
  readonly id?: string;
  readonly body?: unknown;
  readonly as?: Author;
}
const ask = async ({ id, body = {}, as = member }: Ask = {}, at = 0) =>
  apis[at % 2]!.ask<Refused>('POST', PATH, {
    as,
    body,
    headers: id === undefined ? {} : { 'x-request-id': id },
  });
const statusOf = async (asking: Ask = {}, at = 0) => (await ask(asking, at)).status;
async function used(as = member): Promise<number> {
  const { metrics } = await readUsage(one.database.pool, { community: home, pubkey: as.pubkey }, Date.now());
  return metrics.find(({ metric }) => metric === 'reports')!.used;
}
const times = <T>(count: number, make: (at: number) => T): T[] =>
  Array.from({ length: count }, (_, at) => make(at));
const tally = (statuses: number[]) =>
  Object.fromEntries(
    [...new Set(statuses)].map((status) => [status, statuses.filter((one) => one === status).length]),
  );

describe('a quota', () => {
  it('is exact for 50 concurrent requests on two instances', async () => {
    await limitTo(20);
    const answers = await Promise.all(times(50, (at) => ask({}, at)));
    expect(tally(answers.map(({ status }) => status))).toEqual({ 200: 20, 402: 30 });
    expect({ handled, used: await used() }).toEqual({ handled: 20, used: 20 });
    const { code, details } = answers.find(({ status }) => status === 402)!.body;
    const midnight = (Math.floor(Date.now() / DAY_MS) + 1) * DAY_MS;
    expect({ code, details }).toEqual({
      code: 'QUOTA_EXCEEDED',
      details: { metric: 'reports', current: 20, limit: 20, reset_at: midnight },
    });
  });

  it('is exact while the handler refuses some requests and gives their use back', async () => {
    await limitTo(10);
    acts = times(30, (at) => () => (at % 3 === 0 ? denial('STATUS_CONFLICT') : undefined));
    const statuses = await Promise.all(times(40, (at) => statusOf({}, at)));
    const passed = statuses.filter((status) => status === 200).length;
    expect(passed).toBeLessThanOrEqual(10);
    expect(await used()).toBe(passed);
  });

  it('of 0 allows nothing; without a limit uses are only counted', async () => {
    await limitTo(0);
    expect((await ask()).body.details).toMatchObject({ current: 0, limit: 0 });
    await limitTo(null);
    expect(await Promise.all(times(5, (at) => statusOf({}, at)))).toEqual(times(5, () => 200));
    expect(await used()).toBe(5);
  });

  it('is per member and day, and starts again at midnight', async () => {
    await limitTo(1);
    const stranger = newAuthor();
    expect([await statusOf(), await statusOf()]).toEqual([200, 402]);
    expect(await statusOf({ as: stranger })).toBe(200);
    const { pool } = one.database;
    const counting = { community: home, pubkey: member.pubkey, metric: 'reports' as const };
    const midnight = (Math.floor(Date.now() / DAY_MS) + 1) * DAY_MS;
    expect(isDenial(await countUse(pool, { ...counting, now: midnight - 1 }))).toBe(true);
    expect(await countUse(pool, { ...counting, now: midnight })).toEqual({ used: 1, limit: 1 });
    expect(isDenial(await countUse(pool, { ...counting, now: midnight }))).toBe(true);
  });

  it('follows a change of the plan or of its members from the next request on', async () => {
    const planId = await limitTo(1);
    const { pool } = one.database;
    const change = (reportsPerDay: number | null) =>
      changePlan(pool, { community: home, planId, limits: { reportsPerDay } }, Date.now());
    expect([await statusOf(), await statusOf({}, 1)]).toEqual([200, 402]);
    await change(2);
    expect([await statusOf({}, 1), await statusOf()]).toEqual([200, 402]);
    await change(null);
    expect(await statusOf({}, 1)).toBe(200);
    await limitTo(3);
    expect(await statusOf({}, 1)).toBe(402);
    await assignPlan(pool, { community: home, pubkey: member.pubkey, planId: 'free' }, Date.now());
    expect(await statusOf({}, 1)).toBe(200);
  });

  it('is that of the free plan once the plan has expired or was removed', async () => {
    const { pool } = one.database;
    await createPlan(pool, { community: home, planId: 'free', limits: { reportsPerDay: 0 } }, Date.now());
    try {
      const planId = await limitTo(5);
      expect(await statusOf()).toBe(200);
      await pool.query('UPDATE members SET plan_until = $2 WHERE pubkey = $1', [
        Buffer.from(member.pubkey, 'hex'),
        Date.now() - 1,
      ]);
      expect((await ask()).body.details).toMatchObject({ limit: 0, current: 1 });
      // It has no members any more, so it can be removed.
      expect(await deletePlan(pool, { community: home, planId }, Date.now())).toMatchObject({ planId });
      expect(await statusOf({}, 1)).toBe(402);
    } finally {
      await deletePlan(pool, { community: home, planId: 'free' }, Date.now());
    }
    expect(await statusOf()).toBe(200);
  });
});

describe('a request id', () => {
  it('is counted once, however often it is sent at once on two instances', async () => {
    await limitTo(10);
    const statuses = await Promise.all(times(50, (at) => statusOf({ id: `r${at % 10}` }, at)));
    expect(tally(statuses)).toEqual({ 200: 50 });
    expect(await used()).toBe(10);
  });

  it('without a use left is refused each time, the others pass each time', async () => {
    await limitTo(4);
    const ids = times(50, (at) => `r${at % 10}`);
    const statuses = await Promise.all(ids.map((id, at) => statusOf({ id }, at)));
    const passed = new Set(ids.filter((_, at) => statuses[at] === 200));
    expect(passed.size).toBe(4);
    expect(ids.every((id, at) => (statuses[at] === 200) === passed.has(id))).toBe(true);
    expect(await used()).toBe(4);
  });

  it('that was counted passes again even when the quota is used up', async () => {
    await limitTo(2);
    expect(await statusOf({ id: 'mine' })).toBe(200);
    expect(await statusOf()).toBe(200);
    expect(await statusOf({ id: 'another' })).toBe(402);
    expect([await statusOf({ id: 'mine' }), await statusOf({ id: 'mine' }, 1)]).toEqual([200, 200]);
    expect(await used()).toBe(2);
  });

  it('belongs to its content: other content under the same id counts', async () => {
    await limitTo(2);
    expect(await statusOf({ id: 'mine', body: { what: 'a' } })).toBe(200);
    expect(await statusOf({ id: 'mine', body: { what: 'b' } })).toBe(200);
    expect(await statusOf({ id: 'mine', body: { what: 'c' } })).toBe(402);
    expect(await statusOf({ id: 'mine', body: { what: 'a' } })).toBe(200);
    expect(await used()).toBe(2);
  });

  it('is per member', async () => {
    await limitTo(1);
    const stranger = newAuthor();
    expect(await statusOf({ id: 'same' })).toBe(200);
    expect(await statusOf({ id: 'same', as: stranger })).toBe(200);
    expect([await used(), await used(stranger)]).toEqual([1, 1]);
  });

  it('is optional: without it each request counts', async () => {
    await limitTo(5);
    expect([await statusOf(), await statusOf()]).toEqual([200, 200]);
    expect(await used()).toBe(2);
  });

  it.each(['x'.repeat(129), 'ü', ''])('must be 1 to 128 printable characters: "%s"', async (id) => {
    const { status, body } = await ask({ id });
    expect({ status, code: body.code }).toEqual({ status: 400, code: 'INVALID_REQUEST' });
    expect(await used()).toBe(0);
  });

  it('may have 128 characters, and blanks', async () => {
    expect(await statusOf({ id: `a ${'~'.repeat(126)}` })).toBe(200);
  });
});

describe('a use', () => {
  it('is given back when the handler refuses or fails', async () => {
    await limitTo(1);
    acts = [
      () => denial('STATUS_CONFLICT'),
      () => {
        throw new Error('on purpose');
      },
    ];
    expect([await statusOf(), await statusOf({}, 1)]).toEqual([409, 500]);
    expect(await used()).toBe(0);
    expect([await statusOf(), await statusOf()]).toEqual([200, 402]);
  });

  it('that was given back is counted again when its request is sent again', async () => {
    await limitTo(1);
    acts = [() => denial('STATUS_CONFLICT')];
    expect(await statusOf({ id: 'mine' })).toBe(409);
    expect(await used()).toBe(0);
    expect(await statusOf({ id: 'mine' }, 1)).toBe(200);
    expect(await used()).toBe(1);
    acts = [() => denial('STATUS_CONFLICT')];
    expect(await statusOf({ id: 'mine' })).toBe(409);
    expect(await used()).toBe(1);
  });

  it('stays counted when the request succeeds although its first copy fails', async () => {
    await limitTo(1);
    let refuse = () => {};
    const waiting = new Promise<void>((resolve) => {
      refuse = resolve;
    });
    acts = [() => waiting.then(() => denial('STATUS_CONFLICT'))];
    const first = statusOf({ id: 'mine' });
    await expect.poll(() => handled, { timeout: 100_000 }).toBe(1);
    expect(await statusOf({ id: 'mine' }, 1)).toBe(200);
    refuse();
    expect(await first).toBe(409);
    expect(await used()).toBe(1);
    expect(await statusOf()).toBe(402);
  });

  it('is given back to the day that it was counted on', async () => {
    const { pool } = one.database;
    const before = DAY_MS * 20_000 - 1;
    const counting = { community: home, pubkey: member.pubkey, metric: 'search' as const, requestId: 'late' };
    expect(await countUse(pool, { ...counting, now: before })).toMatchObject({ used: 1 });
    expect(await countUse(pool, { ...counting, now: before + 1 })).toMatchObject({ used: 0 });
    await giveBack(pool, { ...counting, now: before });
    await giveBack(pool, { ...counting, now: before + 1 });
    const { rows } = await pool.query('SELECT day, used FROM usage_counters WHERE pubkey = $1', [
      Buffer.from(member.pubkey, 'hex'),
    ]);
    expect(rows).toEqual([{ day: 19_999, used: 0 }]);
  });

  it('is not taken by a malformed or unsigned request', async () => {
    await limitTo(5);
    expect(await statusOf({ body: { what: 1 } })).toBe(400);
    expect((await apis[0].ask('POST', PATH, { body: {} })).status).toBe(401);
    expect({ handled, used: await used() }).toEqual({ handled: 0, used: 0 });
  });
});

describe('a route that counts', () => {
  it('says so in the OpenAPI document, with the header', async () => {
    const document = await readOpenApi(bases[0]!);
    const operation = document.paths[PATH]!.post!;
    expect(Object.keys(operation.responses)).toContain('402');
    expect(operation.parameters).toContainEqual(
      expect.objectContaining({ name: 'x-request-id', in: 'header' }),
    );
  });

  it('lets a page of another origin send the header', async () => {
    const preflight = await fetch(bases[0] + PATH, {
      method: 'OPTIONS',
      headers: {
        origin: 'https://app.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'x-request-id',
      },
    });
    expect(preflight.headers.get('access-control-allow-headers')).toContain('x-request-id');
  });
});
