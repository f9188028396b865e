/**
 * The history that the node keeps: a row a minute for all instances, a row an hour, old rows, and what the
 * API shows of it.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { BOUNDS, type JobContext } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { keepHistory } from '../../src/overview/jobs.js';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../src/overview/rules.js';
import { Sampler } from '../../src/overview/sampler.js';
import { readSamples } from '../../src/overview/samples.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { LineReader } from '../support/clients/stream.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const root = newAuthor();
const viewer = newAuthor();
const artist = newAuthor();
const author = newAuthor();
const FAR = { timeout: 60_000 };

let one: TestNode;
let two: TestNode;
let api: Api;
let client: RawClient;
let context: JobContext;
/** The clock of the history: in the past, where the nodes themselves write nothing. */
let now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS - 90 * MINUTE_MS;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  one = await startTestNode({ env, jobs: [] });
  two = await startTestNode({ env, on: one.test, jobs: [] });
  api = createApi(one.http);
  await addCommunity(one.database.pool, 'art', undefined, Date.now());
  await vi.waitUntil(() => one.node.communities.find(undefined, 'art') !== undefined, FAR);
  const give = (at: string, pubkey: string) =>
    api.ask('PUT', `${at}/v1/admin/operators/${pubkey}`, { as: root, body: { role: 'viewer' } });
  expect((await give('', viewer.pubkey)).status).toBe(200);
  expect((await give('/c/art', artist.pubkey)).status).toBe(200);
  client = await RawClient.connect(one.url);
  const { store, communities, erasing } = one.node;
  const { signal } = new AbortController();
  const { database } = one;
  context = { database, store, communities, erasing, now: () => now, signal, bounds: BOUNDS };
});
afterAll(async () => {
  client.close();
  await two.close();
  await one.close();
});

const samplerOf = ({ node, database, log }: TestNode) =>
  new Sampler({
    pool: database.pool,
    metrics: node.metrics,
    log,
    now: () => now,
    isWorker: true,
    diskFreeBytes: () => 1_000,
  });

async function post(content: string, tags: string[][] = []): Promise<void> {
  const event = sign(author, { content, tags });
  client.send(['EVENT', event]);
  await client.waitFor((frame) => frame[0] === 'OK' && frame[1] === event.id);
}

interface History {
  readonly step_seconds: number;
  readonly node: {
    readonly at: number[];
    readonly events: Record<string, (number | null)[]>;
    readonly connections: (number | null)[];
    readonly ok_p50_ms: (number | null)[];
    readonly lag_seconds: Record<string, (number | null)[]>;
    readonly database_bytes: (number | null)[];
  } | null;
  readonly community: { readonly at: number[]; readonly events: number[] };
  readonly forecasts: { readonly of: string; readonly full_at: number | null; readonly limit: number }[];
}

const readHistory = async (range: string, as = viewer, at = '') =>
  (await api.ask<History>('GET', `${at}/v1/admin/history?range=${range}`, { as })).body;
const sum = (values: readonly (number | null)[] = []) =>
  values.reduce<number>((all, value) => all + (value ?? 0), 0);

describe('the history', () => {
  it('has one row a minute, to which every instance adds what it counted', async () => {
    const [first, second] = [samplerOf(one), samplerOf(two)];
    await first.take();
    await second.take();
    now += MINUTE_MS;
    for (const content of ['a', 'b', 'c']) await post(content);
    await first.take();
    await second.take();
    const minute = Math.floor(now / MINUTE_MS) * MINUTE_MS - MINUTE_MS;
    const rows = await readSamples(one.database.pool, 'minute', minute, minute + 1);
    expect(rows).toHaveLength(1);
    const [row] = rows;
    expect(row!.outcomes[0]).toBe(3);
    expect(sum(row!.okTimes)).toBe(3);
    expect(row!.connections).toBe(1);
    expect(row!.diskFreeBytes).toBe(1_000);
    expect(Object.keys(row!.lagSeconds)).toContain('search');
  });

  it('counts again what could not be written', async () => {
    const sampler = samplerOf(one);
    await sampler.take();
    await post('kept');
    const { query } = one.database.pool;
    one.database.pool.query = () => Promise.reject(new Error('no answer'));
    await expect(sampler.take()).rejects.toThrow('no answer');
    one.database.pool.query = query;
    now += MINUTE_MS;
    await sampler.take();
    const minute = Math.floor(now / MINUTE_MS) * MINUTE_MS - MINUTE_MS;
    const [row] = await readSamples(one.database.pool, 'minute', minute, minute + 1);
    expect(row!.outcomes[0]).toBe(1);
  });

  it('is shown in columns without gaps, and only at the default community', async () => {
    const shown = await readHistory('24h');
    expect(shown.step_seconds).toBe(300);
    const { at, events, connections, database_bytes: bytes } = shown.node!;
    expect(at.every((time, n) => n === 0 || time - at[n - 1]! === 300_000)).toBe(true);
    expect(at.length).toBeGreaterThanOrEqual(287);
    expect(connections).toHaveLength(at.length);
    expect(Object.keys(events)).toContain('stored');
    expect(sum(bytes)).toBeGreaterThan(0);
    const other = await readHistory('24h', artist, '/c/art');
    expect(other.node).toBeNull();
  });

  it('is summed by hour, once, and old rows are deleted', async () => {
    const { pool } = one.database;
    await pool.query(
      `INSERT INTO node_samples (step_seconds, at, connections, lane_depth, outcomes, ok_times, lag_seconds)
       VALUES (60, $1, 0, 0, '{}', '{}', '{}'), (3600, $2, 0, 0, '{}', '{}', '{}')`,
      [now - 27 * HOUR_MS, now - 32 * DAY_MS],
    );
    await pool.query('INSERT INTO community_sizes VALUES (1, $1, 1, 1)', [now - 32 * DAY_MS]);
    expect(await dryRunJob(keepHistory, context)).toEqual([{ reason: 'past', class: 'sample', rows: 3 }]);
    now += HOUR_MS;
    expect(await runJob(keepHistory, context)).toMatchObject({ more: false });
    const hours = await readSamples(pool, 'hour', 0, now);
    expect(sum(hours.map(({ outcomes }) => outcomes[0] ?? 0))).toBeGreaterThanOrEqual(4);
    await runJob(keepHistory, context);
    expect(await readSamples(pool, 'hour', 0, now)).toEqual(hours);
    expect(await dryRunJob(keepHistory, context)).toEqual([]);
    const { rows } = await pool.query('SELECT community, at, events FROM community_sizes');
    expect(rows).toEqual([{ community: 1, at: Math.floor(now / HOUR_MS) * HOUR_MS, events: 4 }]);
  });

  it('foretells when the limit of a community is met', async () => {
    const { pool } = one.database;
    const today = Date.now();
    await pool.query('DELETE FROM community_sizes WHERE community = 1');
    for (let hours = 24; hours > 0; hours -= 1)
      await pool.query('INSERT INTO community_sizes VALUES (1, $1, $2, 0) ON CONFLICT DO NOTHING', [
        today - hours * HOUR_MS,
        100 - hours,
      ]);
    expect((await readHistory('30d')).forecasts).toEqual([]);
    await writeSetting(pool, 1, 'capacity.maxEvents', 1_000, Date.now());
    await vi.waitUntil(() => one.node.communities.get(1)!.settings['capacity.maxEvents'] === 1_000, FAR);
    // Half of them are deletion requests, which the limit does not count: 950 are left at one an hour.
    await pool.query('UPDATE community_totals SET events = 100, requests = 50 WHERE community = 1');
    const { forecasts } = await readHistory('30d');
    expect(forecasts).toMatchObject([{ of: 'events', limit: 1_000 }]);
    const hours = (forecasts[0]!.full_at! - Date.now()) / HOUR_MS;
    expect(Math.round(hours / 50)).toBe(19);
    const { body } = await api.ask<History>('GET', '/v1/admin/overview', { as: viewer });
    expect(body.forecasts).toHaveLength(1);
  });
});

describe('live figures', () => {
  it('are sent while somebody reads, and end with the right to read', async () => {
    const stream = await LineReader.open(one.http, '/v1/admin/live', {
      as: viewer,
      headers: { accept: 'text/event-stream' },
    });
    await stream.waitFor('the first figures', ({ connections }) => connections === 1);
    await post('live');
    await stream.waitFor('a rate', ({ per_second: rates }) => {
      const { stored = 0 } = (rates ?? {}) as { stored?: number };
      return stored > 0;
    });
    await api.ask('DELETE', `/v1/admin/operators/${viewer.pubkey}`, { as: root });
    const closed = await stream.waitFor('why it ended', ({ code }) => code !== undefined);
    expect(closed.code).toBe('OPERATORS_ONLY');
    await stream.end();
  });

  it('are one answer for a reader of JSON, and not shown to other communities', async () => {
    const { body } = await api.ask('GET', '/v1/admin/live', { as: root });
    expect(body).toMatchObject({ connections: 1 });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', '/c/art/v1/admin/live', { as: artist });
  });
});

describe('the activity', () => {
  it('names kinds, topics and authors of the newest events of this community', async () => {
    await post('about boats', [['t', 'boats']]);
    const { body } = await api.ask('GET', '/v1/admin/activity', { as: root });
    expect(body).toMatchObject({
      events: 6,
      kinds: [{ kind: 1, events: 6 }],
      topics: [{ topic: 'boats', events: 1 }],
      authors: [{ pubkey: author.pubkey, events: 6 }],
    });
    const other = await api.ask('GET', '/c/art/v1/admin/activity', { as: artist });
    expect(other.body).toEqual({ events: 0, since: null, kinds: [], topics: [], authors: [] });
  });
});
