/**
 * The limits of exports: made once per request, counted only when they had a result, with limits of pending
 * requests, tries and downloads. The node here has no worker, so a request waits until the test runs the job.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Call, Download } from '../../src/api/contract.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { exportPersonalData } from '../../src/personal-data/jobs.js';
import { personalDataRoutes } from '../../src/personal-data/routes.js';
import { runCli } from '../support/cli.js';
import { type Api, createApi, readOpenApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const EXPORTS = '/v1/personal-data-export-requests';
const DELETIONS = '/v1/personal-data-deletion-requests';
const WAIT = { timeout: 40_000, interval: 50 };
const DAY_MS = 86_400_000;

let relay: TestNode;
let api: Api;

beforeAll(async () => {
  relay = await startTestNode({ roles: ['relay', 'api'] });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art'), WAIT);
});
afterAll(() => relay.close());
/** Each test begins without pending requests. */
beforeEach(async () => {
  await rows('DELETE FROM personal_data_files');
  await rows('DELETE FROM personal_data_requests');
});

const rows = async <T extends object>(text: string, values: unknown[] = []): Promise<T[]> =>
  (await relay.database.pool.query<T>(text, values)).rows;
const key = ({ pubkey }: Author) => Buffer.from(pubkey, 'hex');

interface Request {
  request_id: string;
  status: string;
  error: string | null;
  created_at: number;
  download_url: string | null;
}

async function ask(as: Author, id?: string, url = EXPORTS, body?: object): Promise<Request> {
  const headers: Record<string, string> = id === undefined ? {} : { 'x-request-id': id };
  const asking = { as, headers, ...(body === undefined ? {} : { body }) };
  const answer = await api.ask<Request>('POST', url, asking);
  expect(answer.status).toBe(202);
  return answer.body;
}
const read = async (as: Author, { request_id }: Request) =>
  (await api.ask<Request>('GET', `${EXPORTS}/${request_id}`, { as })).body;
const cancel = (as: Author, { request_id }: Request, url = EXPORTS) =>
  api.ask<Request>('POST', `${url}/${request_id}/cancel`, { as });

async function usedOf(as: Author): Promise<number> {
  interface Usage {
    metrics: { metric: string; used: number }[];
  }
  const { body } = await api.ask<Usage>('GET', '/v1/usage', { as });
  return body.metrics.find(({ metric }) => metric === 'exports')!.used;
}

const context = () => {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  return { database: relay.database, store, communities, erasing, now: Date.now, signal, bounds: BOUNDS };
};
const run = (job: Job = exportPersonalData) => runJob(job, context());

const change = ({ request_id }: Request, assignments: string) =>
  rows(`UPDATE personal_data_requests SET ${assignments} WHERE request_id = $1`, [request_id]);
const portionsOf = ({ request_id }: Request) =>
  rows('SELECT 1 FROM personal_data_files WHERE request_id = $1', [request_id]);
const exists = async ({ request_id }: Request) =>
  (await rows('SELECT 1 FROM personal_data_requests WHERE request_id = $1', [request_id])).length === 1;

describe('the same request id', () => {
  it('returns the request that it made, in any status, and counts nothing', async () => {
    const member = newAuthor();
    const first = await ask(member, 'mine');
    await run();
    const again = await ask(member, 'mine');
    expect(again).toMatchObject({ request_id: first.request_id, status: 'ready' });
    expect(again.download_url).not.toBeNull();
    expect(await usedOf(member)).toBe(1);
    const [other, unnamed] = [await ask(member, 'another'), await ask(member)];
    expect(other.request_id).not.toBe(first.request_id);
    expect(unnamed.request_id).toBe(other.request_id);
    // Also while another request is open, and when the quota is used up.
    expect((await ask(member, 'mine')).request_id).toBe(first.request_id);
    await run();
    await ask(member);
    await run();
    await api.refused(402, 'QUOTA_EXCEEDED', 'POST', EXPORTS, { as: member });
    expect((await ask(member, 'mine')).request_id).toBe(first.request_id);
    expect(await usedOf(member)).toBe(3);
  });

  it('in concurrent calls makes one request', async () => {
    const member = newAuthor();
    const requested = await Promise.all([1, 2, 3, 4].map(() => ask(member, 'mine')));
    expect(new Set(requested.map(({ request_id }) => request_id)).size).toBe(1);
    expect(await usedOf(member)).toBe(1);
  });

  it('of another member, in another community, or for something else is another request', async () => {
    const [alice, bob] = [newAuthor(), newAuthor()];
    const requested = [
      await ask(alice, 'mine'),
      await ask(bob, 'mine'),
      await ask(alice, 'mine', `/c/art${EXPORTS}`),
      await ask(alice, 'mine', DELETIONS, { note: 'all' }),
    ];
    await cancel(alice, requested[3]!, DELETIONS);
    requested.push(await ask(alice, 'mine', DELETIONS, { note: 'all of it' }));
    expect(new Set(requested.map(({ request_id }) => request_id)).size).toBe(5);
  });

  it('is chosen by the client, and the API documents it', async () => {
    const headers = { 'x-request-id': 'x'.repeat(129) };
    await api.refused(400, 'INVALID_REQUEST', 'POST', EXPORTS, { as: newAuthor(), headers });
    const { paths } = await readOpenApi(relay.http);
    const names = paths[EXPORTS]?.post?.parameters?.map(({ name }) => name);
    expect(names).toContain('x-request-id');
  });
});

describe('a use of the plan', () => {
  it('is given back to its day when the node fails to make the file', async () => {
    const member = newAuthor();
    const request = await ask(member);
    const yesterday = Math.floor(Date.now() / DAY_MS) - 1;
    await change(request, `created_at = created_at - ${DAY_MS}`);
    await rows(
      `INSERT INTO usage_counters (community, pubkey, day, metric, used) VALUES (1, $1, $2, 'exports', 2)`,
      [key(member), yesterday],
    );
    await rows(
      `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
       VALUES (0, $2, 1, 1, 1, 3, $3, $1, 'not JSON')`,
      [key(member), Date.now(), key(newAuthor())],
    );
    await expect(run()).rejects.toThrow('not JSON');
    expect(await read(member, request)).toMatchObject({ status: 'failed' });
    const counted = await rows('SELECT day, used FROM usage_counters WHERE pubkey = $1 ORDER BY day', [
      key(member),
    ]);
    expect(counted).toEqual([
      { day: yesterday, used: 1 },
      { day: yesterday + 1, used: 1 },
    ]);
  });

  it('is given back once when the member cancels before it was started', async () => {
    const member = newAuthor();
    const request = await ask(member);
    expect(await usedOf(member)).toBe(1);
    await Promise.all([cancel(member, request), cancel(member, request)]);
    expect(await usedOf(member)).toBe(0);
    expect((await ask(member)).request_id).not.toBe(request.request_id);
  });

  it('stays counted when a running or ready export is cancelled', async () => {
    const member = newAuthor();
    const ready = await ask(member);
    await run();
    expect((await cancel(member, ready)).body.status).toBe('cancelled');
    expect(await usedOf(member)).toBe(1);
    const running = await ask(member);
    await change(running, `status = 'running', started_at = 1, tries = 1`);
    expect((await cancel(member, running)).body.status).toBe('cancelled');
    expect(await usedOf(member)).toBe(2);
  });

  it('is given back at most 20 times a day', async () => {
    const member = newAuthor();
    for (let made = 0; made < 20; made += 1) await cancel(member, await ask(member));
    const { body } = await api.refused(429, 'RATE_LIMITED', 'POST', EXPORTS, { as: member });
    expect(body.details).toMatchObject({ limit: 20 });
    expect(await usedOf(member)).toBe(0);
    await rows(`UPDATE personal_data_requests SET created_at = created_at - ${DAY_MS} WHERE pubkey = $1`, [
      key(member),
    ]);
    await ask(member);
  });
});

describe('pending exports', () => {
  const limit = async (waiting: number) => {
    await writeSetting(relay.database.pool, 1, 'privacy.exportsWaitingMax', waiting, Date.now());
    const held = () => relay.node.communities.get(1)!.settings['privacy.exportsWaitingMax'];
    await vi.waitUntil(() => held() === waiting, WAIT);
  };

  it('are limited over all members of a community; other communities have their own limit', async () => {
    await limit(2);
    const [first, second, third] = [newAuthor(), newAuthor(), newAuthor()];
    const waiting = await ask(first);
    await change(waiting, `status = 'running', started_at = 1`);
    await ask(second);
    const { body } = await api.refused(429, 'RATE_LIMITED', 'POST', EXPORTS, { as: third });
    expect(body.details).toEqual({ limit: 2, of: 'all members' });
    expect(await usedOf(third)).toBe(0);
    expect((await ask(first)).request_id).toBe(waiting.request_id);
    await ask(third, undefined, `/c/art${EXPORTS}`);
    await ask(third, undefined, DELETIONS);
    await cancel(second, await ask(second));
    await ask(third);
    await limit(1_000);
  });

  it('never exceed the limit under concurrency', async () => {
    await limit(3);
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => api.ask('POST', EXPORTS, { as: newAuthor() })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([202, 202, 202, 429, 429, 429, 429, 429]);
    await limit(1_000);
  });
});

describe('an export that has ended', () => {
  const ended = async (status: string, daysAgo: number, expiredDaysAgo = 0): Promise<Request> => {
    const member = newAuthor();
    const request = await ask(member);
    const at = (days: number) => Date.now() - days * DAY_MS;
    await change(
      request,
      `status = '${status}', started_at = 1, finished_at = ${at(daysAgo)},
       expires_at = ${at(expiredDaysAgo)}`,
    );
    return request;
  };

  it('is deleted 90 days after its end, and not before', async () => {
    const old = [await ended('failed', 91), await ended('cancelled', 91), await ended('expired', 120, 91)];
    const kept = [await ended('failed', 89), await ended('cancelled', 89), await ended('expired', 120, 89)];
    const counts = await dryRunJob(exportPersonalData, context());
    expect(counts).toContainEqual({ reason: 'long ended', class: 'export', rows: 3 });
    await runJob(exportPersonalData, { ...context(), bounds: { rows: 2, batches: 100 } });
    for (const request of old) expect(await exists(request)).toBe(false);
    for (const request of kept) expect(await exists(request)).toBe(true);
  });

  it('loses its file first; a request for deletion is kept', async () => {
    const request = await ended('expired', 120, 91);
    await rows(`INSERT INTO personal_data_files VALUES ($1, 0, 'x')`, [request.request_id]);
    const deletion = await ask(newAuthor(), undefined, DELETIONS);
    await change(deletion, `status = 'cancelled', finished_at = 1`);
    await run();
    expect(await exists(request)).toBe(false);
    expect(await exists(deletion)).toBe(true);
  });
});

describe('a request to vanish', () => {
  it('deletes earlier exports and their files, of this key only', async () => {
    const [member, stranger] = [newAuthor(), newAuthor()];
    const ready = await ask(member);
    await run();
    const theirs = await ask(stranger);
    await run();
    const pending = await ask(member);
    expect(await portionsOf(ready)).not.toEqual([]);
    const client = await RawClient.connect(relay.url);
    const vanish = { kind: 62, created_at: nowSeconds(), tags: [['relay', 'ALL_RELAYS']] };
    expect(await client.publish(sign(member, vanish))).toEqual([true, '']);
    await client.close();
    await run(erase);
    expect(await read(member, ready)).toMatchObject({ code: 'NOT_FOUND' });
    expect(await portionsOf(ready)).toEqual([]);
    expect(await read(member, pending)).toMatchObject({ code: 'NOT_FOUND' });
    expect(await read(stranger, theirs)).toMatchObject({ status: 'ready' });
    expect(await portionsOf(theirs)).not.toEqual([]);
  });

  it('keeps later requests', async () => {
    const member = newAuthor();
    const request = await ask(member);
    await run();
    const client = await RawClient.connect(relay.url);
    const vanish = { kind: 62, created_at: nowSeconds() - 60, tags: [['relay', 'ALL_RELAYS']] };
    expect(await client.publish(sign(member, vanish))).toEqual([true, '']);
    await client.close();
    await run(erase);
    expect(await read(member, request)).toMatchObject({ status: 'ready' });
    expect(await portionsOf(request)).not.toEqual([]);
  });
});

describe('a worker that dies', () => {
  const triesOf = async ({ request_id }: Request) =>
    (
      await rows<{ tries: number }>('SELECT tries FROM personal_data_requests WHERE request_id = $1', [
        request_id,
      ])
    )[0]!.tries;

  it('does not block others: its request comes after those with fewer tries', async () => {
    const [unlucky, patient] = [newAuthor(), newAuthor()];
    const left = await ask(unlucky);
    await change(left, `status = 'running', started_at = 1, tries = 1, created_at = created_at - 1000`);
    const waiting = await ask(patient);
    await run();
    expect(await read(patient, waiting)).toMatchObject({ status: 'ready' });
    expect(await read(unlucky, left)).toMatchObject({ status: 'running' });
    await run();
    expect(await read(unlucky, left)).toMatchObject({ status: 'ready' });
    expect(await triesOf(left)).toBe(2);
  });

  it('three times fails the request, and its use is given back', async () => {
    const member = newAuthor();
    const request = await ask(member);
    await change(request, `status = 'running', started_at = 1, tries = 3`);
    await run();
    expect(await read(member, request)).toMatchObject({
      status: 'failed',
      error: 'Making the file was started three times and never finished. Ask your operator.',
    });
    expect(await usedOf(member)).toBe(0);
  });

  it('is not assumed for a request that has only waited long', async () => {
    const [member, other] = [newAuthor(), newAuthor()];
    const waited = await ask(member);
    await change(waited, `created_at = created_at - ${7 * DAY_MS}`);
    const begun = await ask(other);
    await change(
      begun,
      `created_at = created_at - ${7 * DAY_MS}, status = 'running', started_at = 1, tries = 2`,
    );
    await run();
    await run();
    expect(await read(member, waited)).toMatchObject({ status: 'ready', error: null });
    expect(await read(other, begun)).toMatchObject({ status: 'ready', error: null });
  });

  it('because its node stops does not count as a try', async () => {
    const request = await ask(newAuthor());
    const stopping = AbortSignal.abort();
    await runJob(exportPersonalData, { ...context(), signal: stopping });
    expect(await triesOf(request)).toBe(0);
    expect(await rows('SELECT status FROM personal_data_requests')).toEqual([{ status: 'running' }]);
  });
});

/** A file larger than all socket buffers: a client that does not read keeps its place. */
async function largeFile(): Promise<Request & { owner: Author }> {
  const owner = newAuthor();
  const request = await ask(owner);
  await change(
    request,
    `status = 'ready', started_at = 1, finished_at = 1, bytes = 41943040,
     expires_at = ${Date.now() + DAY_MS}`,
  );
  await rows(
    `INSERT INTO personal_data_files
     SELECT $1, p, convert_to(repeat('x', 1048576), 'UTF8') FROM generate_series(0, 39) p`,
    [request.request_id],
  );
  return { ...(await read(owner, request)), owner };
}

describe('downloads', () => {
  it('are limited to four at a time per address, over all files', async () => {
    const [one, two] = [await largeFile(), await largeFile()];
    const leaving = new AbortController();
    const from = (address: string, { download_url }: Request) =>
      fetch(download_url!, { signal: leaving.signal, headers: { 'x-forwarded-for': address } });
    const first = await Promise.all([one, one, two, two].map((file) => from('203.0.113.7', file)));
    expect(first.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    const refused = await from('203.0.113.7', one);
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      code: 'RATE_LIMITED',
      details: { retry_after_seconds: 10 },
    });
    expect((await from('203.0.113.8', one)).status).toBe(200);
    leaving.abort();
    const later = () => fetch(one.download_url!, { headers: { 'x-forwarded-for': '203.0.113.7' } });
    await expect
      .poll(async () => {
        const { status, body } = await later();
        await body?.cancel();
        return status;
      }, WAIT)
      .toBe(200);
  });

  it('end after their longest duration, however slowly the client reads', async () => {
    const { owner, request_id } = await largeFile();
    const routes = personalDataRoutes({
      pool: relay.database.pool,
      bases: () => [relay.url],
      downloadSecret: randomUUID(),
      exportSoon: async () => undefined,
      adminPubkeys: [],
      eraseSoon: async () => undefined,
      hashOf: async () => undefined,
      downloadMsMax: 20,
    });
    const call = (path: string, query: object): unknown => {
      const { handler } = routes.find(({ method, url }) => method === 'GET' && url.endsWith(path))!;
      const requested: Call<'member'> = {
        community: relay.node.communities.get(1)!,
        client: {
          address: '203.0.113.9',
          rateKey: '203.0.113.9',
          networkKey: '203.0.113.9',
          isLoopback: false,
        },
        pubkey: owner.pubkey,
        params: { request_id },
        query,
        body: {},
        type: 'application/zip',
        now: Date.now(),
      };
      return handler(requested);
    };
    const { download_url } = (await call('export-requests/:request_id', {})) as Request;
    const token = new URL(download_url!).searchParams.get('token');
    const answer = await call('/download', { token });
    if (!(answer instanceof Download)) throw new Error('no file');
    const { stream } = answer;
    expect(stream.destroyed).toBe(false);
    await expect.poll(() => stream.destroyed, WAIT).toBe(true);
  });
});

describe('minato personal-data export', () => {
  it('leaves no file when it fails, even before the first byte', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'minato-limits-'));
    await rows('ALTER TABLE audit_log RENAME TO audit_log_away');
    try {
      const args = ['personal-data', 'export', newAuthor().pubkey, join(folder, 'member.zip')];
      const { code, stderr } = await runCli(args, { DATABASE_URL: relay.test.url });
      expect(code).toBe(1);
      expect(stderr).toContain('audit_log');
      expect(await readdir(folder)).toEqual([]);
    } finally {
      await rows('ALTER TABLE audit_log_away RENAME TO audit_log');
      await rm(folder, { recursive: true, force: true });
    }
  });
});
