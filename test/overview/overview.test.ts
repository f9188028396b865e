/** What needs attention, the jobs and the log, over real HTTP. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { SCHEDULER_SCHEMA } from '../../src/jobs/job-runs.sql.js';
import { JOBS } from '../../src/jobs/list.js';
import { LogLines } from '../../src/node/log.js';
import { type Api, createApi } from '../support/clients/api.js';
import { LineReader } from '../support/clients/stream.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const root = newAuthor();
const viewer = newAuthor();
const FAR = { timeout: 60_000 };
const OVERVIEW = '/v1/admin/overview';
const JOB_LIST = '/v1/admin/jobs';
const LOG = '/v1/admin/log';

let relay: TestNode;
let api: Api;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey, MINATO_LOG_LEVEL: 'info' } });
  api = createApi(relay.http);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art') !== undefined, FAR);
  for (const at of ['', '/c/art'])
    await api.ask('PUT', `${at}/v1/admin/operators/${viewer.pubkey}`, { as: root, body: { role: 'viewer' } });
});
afterAll(() => relay.close());

interface Overview {
  readonly requests: object;
  readonly cases_open: object;
  readonly jobs: { readonly name: string; readonly error: string | null; readonly failures: number }[];
  readonly consumers: { readonly name: string; readonly problems: string[] }[];
  readonly findings: { readonly text: string }[] | null;
}
const overview = async (as = viewer, at = '') =>
  (await api.ask<Overview>('GET', `${at}${OVERVIEW}`, { as })).body;

describe('the overview', () => {
  it('counts what waits in this community, up to a hundred', async () => {
    expect(await overview()).toMatchObject({
      requests: { count: 0, more: false },
      cases_open: { count: 0, more: false },
      erasures: { count: 0, more: false },
      erasure_alarms: 0,
      capacity: { space_step: 0, lag_step: 0, disk_level: 0 },
    });
    const { pool } = relay.database;
    await pool.query(
      `INSERT INTO moderation_cases (case_id, community, status, opened_at, updated_at, target_pubkey, reason)
       SELECT gen_random_uuid(), 1, 'open', n, n, sha256(n::text::bytea), 'spam'
       FROM generate_series(1, 130) AS n`,
    );
    expect((await overview()).cases_open).toEqual({ count: 100, more: true });
    expect((await overview(viewer, '/c/art')).cases_open).toEqual({ count: 0, more: false });
  });

  it('names consumers with a problem', async () => {
    await api.ask('POST', '/v1/admin/consumers/search/pause', { as: root });
    expect((await overview()).consumers).toMatchObject([{ name: 'search', problems: ['paused'] }]);
    await api.ask('POST', '/v1/admin/consumers/search/resume', { as: root });
    expect((await overview()).consumers).toEqual([]);
  });

  it('names failed jobs to everybody, their errors and the findings to operators of the node', async () => {
    await relay.database.pool.query(
      `INSERT INTO job_runs (job, started_at, finished_at, error, failures)
       VALUES ('gone', 1, 2, 'broken', 3)`,
    );
    const failed = (jobs: Overview['jobs']) => jobs.filter(({ name }) => name === 'gone');
    const seen = await overview();
    expect(failed(seen.jobs)).toEqual([{ name: 'gone', failed_at: 2, failures: 3, error: null }]);
    expect(seen.findings).toBeNull();
    const all = await overview(root);
    expect(failed(all.jobs)).toMatchObject([{ error: 'broken' }]);
    expect(all.findings).toEqual(expect.any(Array));
    expect((await overview(root, '/c/art')).findings).toBeNull();
  });
});

describe('jobs', () => {
  interface Listed {
    readonly items: { readonly name: string; readonly state: string; readonly ok_at: number | null }[];
  }
  const jobOf = async (name: string) =>
    (await api.ask<Listed>('GET', JOB_LIST, { as: viewer })).body.items.find((job) => job.name === name)!;

  it('are listed with their schedule, and one that never ran says so', async () => {
    const { items } = (await api.ask<Listed>('GET', JOB_LIST, { as: viewer })).body;
    expect(items.map(({ name }) => name)).toEqual(JOBS.map(({ name }) => name));
    expect(await jobOf('reaudit-erasures')).toMatchObject({ state: 'never', ok_at: null, failures: 0 });
  });

  it('are run by operators of the node, with an audit row, by any free worker', async () => {
    await api.refused(403, 'OPERATORS_ONLY', 'POST', `${JOB_LIST}/history/run`, { as: viewer });
    await api.refused(404, 'NOT_FOUND', 'POST', `${JOB_LIST}/unknown/run`, { as: root });
    await vi.waitUntil(async () => {
      const { status } = await api.ask('POST', `${JOB_LIST}/history/run`, { as: root });
      return status === 202;
    }, FAR);
    await vi.waitUntil(async () => (await jobOf('history')).state === 'ok', FAR);
    expect((await jobOf('history')).ok_at).not.toBeNull();
    const log = await api.ask<{ items: { action: string; target: string }[] }>('GET', '/v1/admin/audit-log', {
      as: root,
    });
    expect(log.body.items).toContainEqual(expect.objectContaining({ action: 'job.run', target: 'history' }));
  });

  it('wait for a first worker', async () => {
    const alone = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey }, roles: ['api'] });
    // The database of a test has it from the beginning.
    await alone.database.pool.query(`DROP SCHEMA ${SCHEDULER_SCHEMA} CASCADE`);
    await createApi(alone.http).refused(409, 'NOT_READY', 'POST', `${JOB_LIST}/history/run`, { as: root });
    await alone.close();
  });

  it('count their failures in a row, and a success ends the count', async () => {
    const { pool } = relay.database;
    await pool.query(`UPDATE job_runs SET failures = 2, error = 'x' WHERE job = 'history'`);
    await api.ask('POST', `${JOB_LIST}/history/run`, { as: root });
    await vi.waitUntil(async () => (await jobOf('history')).state === 'ok', FAR);
    expect(await jobOf('history')).toMatchObject({ failures: 0 });
  });
});

describe('the log', () => {
  const open = (query: string, headers = {}) =>
    LineReader.open(relay.http, `${LOG}?${query}`, {
      as: root,
      headers: { accept: 'text/event-stream', ...headers },
    });

  it('is for operators of the node only, at the default community', async () => {
    await api.refused(403, 'OPERATORS_ONLY', 'GET', LOG, { as: viewer });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', `/c/art${LOG}`, { as: root });
  });

  it('is followed live, by level and text, and continues where the reader was', async () => {
    relay.log.info({ at: 'start' }, 'a first line');
    const stream = await open('level=warn&text=HARBOUR');
    relay.log.info('harbour, too low');
    relay.log.warn('elsewhere');
    relay.log.warn({ ship: 'Ume' }, 'in the harbour');
    const line = await stream.waitFor('the line', ({ message }) => message === 'in the harbour');
    expect(line).toMatchObject({ level: 'warn', fields: { ship: 'Ume' } });
    expect(stream.lines).toHaveLength(1);
    await stream.close();
    relay.log.error('harbour closed');
    const again = await open('level=debug&text=harbour', { 'last-event-id': String(line.position) });
    await again.waitFor('the next line', ({ message }) => message === 'harbour closed');
    expect(again.lines).toHaveLength(1);
    await again.close();
  });

  it('is a list for a reader of JSON', async () => {
    relay.log.warn('only this');
    const { body } = await api.ask<{ items: { message: string }[] }>('GET', `${LOG}?text=only%20this`, {
      as: root,
    });
    expect(body.items.map(({ message }) => message)).toEqual(['only this']);
  });

  it('keeps a bounded number of lines and characters', () => {
    const lines = new LogLines(1_000);
    for (let n = 0; n < 5_000; n += 1) lines.add(`{"n":${n}}`);
    const kept = lines.after(0, 10_000);
    expect(kept).toHaveLength(2_000);
    expect(kept.at(-1)).toEqual({ position: 5_999, text: '{"n":4999}' });
    expect(lines.after(lines.newest(3), 10)).toHaveLength(3);
    expect(lines.after(lines.newest(0), 10)).toEqual([]);
    for (let n = 0; n < 500; n += 1) lines.add('x'.repeat(8_000));
    expect(lines.after(0, 10_000).length).toBeLessThanOrEqual(125);
    lines.add('y'.repeat(8_001));
    expect(lines.after(0, 10_000).at(-1)!.text).not.toContain('y');
  });
});
