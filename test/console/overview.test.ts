/** The overview, consumers, jobs and the log in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HOUR_MS, MINUTE_MS } from '../../src/overview/rules.js';
import { writeSamples } from '../../src/overview/samples.sql.js';
import { eventually } from '../support/cli.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import type { Author } from '../support/events.js';

let test: ConsoleTest;
let viewer: Author;
interface ConsumerState {
  readonly name: string;
  readonly lag_rows: number;
  readonly rebuild: unknown;
}
const now = Date.now();

beforeAll(async () => {
  test = await startConsole({ demo: true, env: { MINATO_LOG_LEVEL: 'warn' } });
  viewer = await test.giveRole('viewer');
  const { pool } = test.node.database;
  await fillHistory();
  await eventually('search follows the outbox', async () => {
    const { body } = await test.api.ask<{ items: ConsumerState[] }>('GET', '/v1/admin/consumers', {
      as: test.boss,
    });
    const search = body.items.find(({ name }) => name === 'search');
    return search?.rebuild === null && search.lag_rows === 0 ? true : undefined;
  });
  await pool.query(
    `INSERT INTO consumer_dead_letters (consumer, generation, seq, ingested_at, failed_at, created_at,
       attempts, community, kind, op, retry_asked, event_id, author, topics, error)
     SELECT 'search', generation, 7, $1, $1, 1700000000, 3, 1, 1, 'upsert', false,
       sha256('letter'), sha256('author'), '{}', 'the words could not be read'
     FROM consumer_offsets WHERE consumer = 'search'`,
    [now],
  );
});
afterAll(() => test?.close());

/** A day of minutes and a month of hours, as a node of one community has them. */
async function fillHistory(): Promise<void> {
  const { pool } = test.node.database;
  const wave = (n: number, period: number) => 1 + Math.sin((2 * Math.PI * n) / period);
  const counts = (n: number, scale: number) =>
    [30, 6, 9, 1, 0, 1, 2, 1].map((each) => Math.round(each * scale * wave(n, 24)));
  const times = Array.from({ length: 14 }, (_, bucket) => (bucket < 5 ? 0 : 40 - 4 * (bucket - 5)));
  const hours = Array.from({ length: 24 * 30 }, (_, n) => ({
    at: Math.floor(now / HOUR_MS) * HOUR_MS - (n + 1) * HOUR_MS,
    outcomes: counts(n, 60),
    okTimes: times,
    connections: Math.round(20 * wave(n, 24)),
    laneDepth: n % 7,
    lagSeconds: { search: 0.4 + 0.2 * wave(n, 12), moderation: 0.2, trust: 0.3 },
    databaseBytes: 900_000_000 - n * 600_000,
    diskFreeBytes: null,
  }));
  await writeSamples(pool, 'hour', hours);
  await pool.query(
    `INSERT INTO node_samples (step_seconds, at, connections, lane_depth, database_bytes, outcomes, ok_times,
       lag_seconds)
     SELECT 60, h.at + n * $1::bigint, h.connections, h.lane_depth, h.database_bytes,
       ARRAY(SELECT x / 60 FROM unnest(h.outcomes) AS x), h.ok_times, h.lag_seconds
     FROM node_samples h, generate_series(0, 59) AS n WHERE h.step_seconds = 3600 AND h.at > $2`,
    [MINUTE_MS, now - 25 * HOUR_MS],
  );
}

describe('the overview', () => {
  it('shows first what waits, then live figures, charts and the newest events', async () => {
    const view = await test.open('/admin/', { as: test.boss });
    const { page } = view;
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    await page.getByText('open cases').waitFor();
    await page.getByText('The consumer search has a problem').waitFor();
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('figure', { name: 'Chart: Time to OK' }).waitFor();
    await page.getByRole('heading', { name: 'Kinds' }).waitFor();
    await view.expectAccessible();
    await page.getByText('30 days').click();
    await expect.poll(() => page.url()).toContain('range=30d');
    await page.getByRole('figure', { name: 'Chart: Size of the database' }).waitFor();
    await page.getByRole('link', { name: 'Show: The consumer search has a problem' }).click();
    await page.getByRole('heading', { name: 'search', level: 1 }).waitFor();
    await view.close();
  });

  it('is complete in Japanese, dark, and at the width of a phone', async () => {
    const view = await test.open('/admin/overview', {
      as: viewer,
      language: 'ja',
      width: 390,
      height: 844,
      isDark: true,
    });
    const { page } = view;
    await page.getByRole('heading', { name: '概要', level: 1 }).waitFor();
    await page.getByText('未対応の案件').waitFor();
    await page.getByRole('figure', { name: 'グラフ：OK までの時間' }).waitFor();
    await page.getByRole('heading', { name: '投稿者' }).waitFor();
    await view.expectAccessible();
    await view.expectNoOverflow();
    await view.close();
  });
});

describe('consumers', () => {
  it('are listed with their lag, and one is paused, resumed, replayed and rebuilt', async () => {
    const view = await test.open('/admin/consumers', { as: test.boss });
    const { page } = view;
    await page.getByRole('figure', { name: 'Chart: Lag' }).waitFor();
    await view.expectAccessible();
    await page.getByRole('link', { name: 'search', exact: true }).click();
    await page.getByText('the words could not be read').waitFor();
    await view.expectAccessible();

    await page.getByRole('button', { name: 'Retry change 7' }).click();
    await page.getByText('Changes that are tried again: 1').waitFor();

    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByText('search continues').waitFor();

    await page.getByRole('button', { name: 'Apply again…' }).click();
    await page.getByRole('dialog').getByText('100 changes').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Apply again' }).click();
    await page.getByText('search applies the changes again').waitFor();

    await page.getByRole('button', { name: 'Rebuild…' }).click();
    const rebuild = page.getByRole('dialog').getByRole('button', { name: 'Rebuild' });
    expect(await rebuild.isDisabled()).toBe(true);
    await page.getByLabel('Type search to confirm').fill('search');
    await rebuild.click();
    await page.getByText('The rebuild of search was requested').waitFor();
    await expect
      .poll(async () => (await generationOf('search')) > 1, { timeout: 60_000, interval: 500 })
      .toBe(true);
    await view.close();
  });

  it('say in Japanese who may change them', async () => {
    const view = await test.open('/admin/consumers/search', { as: viewer, language: 'ja' });
    await view.page.getByText('操作できるのはノードの運営者').waitFor();
    await view.page.getByRole('heading', { name: '適用できなかった変更', exact: true }).waitFor();
    expect(await view.page.getByRole('button', { name: '一時停止' }).count()).toBe(0);
    await view.expectAccessible();
    await view.close();
  });
});

async function generationOf(consumer: string): Promise<number> {
  const { rows } = await test.node.database.pool.query<{ generation: number }>(
    'SELECT generation FROM consumer_offsets WHERE consumer = $1',
    [consumer],
  );
  return rows[0]!.generation;
}

describe('jobs', () => {
  it('are run now, and one that deletes asks for its name', async () => {
    const view = await test.open('/admin/jobs', { as: test.boss });
    const { page } = view;
    await page.getByRole('button', { name: 'Run now: forget-quotas' }).click();
    await page.getByText('forget-quotas is queued').waitFor();
    await page.getByRole('button', { name: 'Run now: purge-history' }).click();
    const run = page.getByRole('dialog').getByRole('button', { name: 'Run now' });
    expect(await run.isDisabled()).toBe(true);
    await page.getByLabel('Type purge-history to confirm').fill('purge-history');
    await run.click();
    await page.getByText('purge-history is queued').waitFor();
    await page
      .getByRole('row', { name: /^purge-history/ })
      .getByText('Done')
      .waitFor();
    await view.expectAccessible();
    await page.getByText('Failed only').click();
    await page.getByText('No job has failed').waitFor();
    expect(page.url()).toContain('only=failed');
    await view.close();
  });

  it('are shown in Japanese to a viewer, who runs none', async () => {
    const view = await test.open('/admin/jobs', { as: viewer, language: 'ja', width: 390, height: 844 });
    await view.page.getByText('期限切れのイベントを通知し、削除します').waitFor();
    expect(await view.page.getByRole('button', { name: /今すぐ実行/ }).count()).toBe(0);
    await view.expectAccessible();
    await view.expectNoOverflow();
    await view.close();
  });
});

describe('the log', () => {
  it('is followed, filtered and paused', async () => {
    const view = await test.open('/admin/log', { as: test.boss });
    const { page } = view;
    await page.getByText('Live', { exact: true }).waitFor();
    test.node.log.warn({ ship: 'Ume' }, 'a ship arrives');
    await page.getByText('a ship arrives').waitFor();
    await page.getByText('ship=Ume').waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'Pause' }).click();
    test.node.log.warn('a second ship');
    await page.getByText('Paused. New lines: 1').waitFor();
    expect(await page.getByText('a second ship').count()).toBe(0);
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByText('a second ship').waitFor();
    await page.getByLabel('Lines that contain').fill('second');
    await page.getByText('a second ship').waitFor();
    await expect.poll(() => page.getByText('a ship arrives').count()).toBe(0);
    expect(page.url()).toContain('text=second');
    await view.close();
  });

  it('is not shown to operators of a community, in Japanese', async () => {
    const operator = await test.giveRole('operator');
    const view = await test.open('/admin/log', { as: operator, language: 'ja' });
    await view.page.getByText('ログはノード全体のものです').waitFor();
    await view.expectAccessible();
    await view.close();
  });
});
