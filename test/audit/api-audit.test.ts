/** The audit log over real HTTP: filters, pages, exports, and who changed a setting. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Api, createApi } from '../support/clients/api.js';
import { type Author, newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const AUDIT = '/v1/admin/audit-log';
const ROWS = 1_200;
const boss = newAuthor();
const other = newAuthor();
let relay: TestNode;
let api: Api;

interface Entry {
  position: number;
  at: number;
  actor: string | null;
  action: string;
  target: string;
  details: Record<string, unknown>;
}
interface Page {
  items: Entry[];
  next_cursor: string | null;
}

beforeAll(async () => {
  relay = await startTestNode({ jobs: [], env: { MINATO_ADMIN_PUBKEYS: boss.pubkey } });
  api = createApi(relay.http);
  const { pool } = relay.database;
  // Old rows: every third by `other`, every tenth blocks a topic with an awkward name.
  await pool.query(
    `INSERT INTO audit_log (community, at, actor, action, target, details)
     SELECT 1, 1000 + n, CASE WHEN n % 3 = 0 THEN $1::bytea ELSE $2::bytea END,
       CASE WHEN n % 10 = 0 THEN 'topic.block' ELSE 'topic.change' END,
       CASE WHEN n % 10 = 0 THEN '=tea,"x"' ELSE 'topic-' || n % 7 END, '{"n": 1}'
     FROM generate_series(1, $3::int) n`,
    [Buffer.from(other.pubkey, 'hex'), Buffer.from(boss.pubkey, 'hex'), ROWS],
  );
});
afterAll(() => relay.close());

async function all(query: string): Promise<Entry[]> {
  const found: Entry[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const path: string = `${AUDIT}?limit=200${query}${cursor === '' ? '' : `&cursor=${cursor}`}`;
    const { body } = await api.ask<Page>('GET', path, { as: boss });
    found.push(...body.items);
    cursor = body.next_cursor;
  }
  return found;
}

describe('the audit log', () => {
  it('is filtered by actor, action, target and time, page by page', async () => {
    const every = await all('&until=5000');
    expect(every).toHaveLength(ROWS);
    const newestFirst = every.map(({ at }) => at);
    expect(newestFirst).toEqual([...newestFirst].sort((a, b) => b - a));
    const expected = (matches: (entry: Entry) => boolean) => every.filter(matches);
    expect(await all(`&until=5000&actor=${other.pubkey}`)).toEqual(
      expected(({ actor }) => actor === other.pubkey),
    );
    expect(await all('&until=5000&action=topic.block')).toEqual(
      expected(({ action }) => action === 'topic.block'),
    );
    expect(await all('&until=5000&target=topic-3')).toEqual(expected(({ target }) => target === 'topic-3'));
    expect(await all('&since=1100&until=1199')).toEqual(expected(({ at }) => at >= 1_100 && at <= 1_199));
    expect(
      await all(
        `&until=1500&actor=${other.pubkey}&action=topic.block&target=${encodeURIComponent('=tea,"x"')}`,
      ),
    ).toEqual(
      expected(({ at, actor, action }) => at <= 1_500 && actor === other.pubkey && action === 'topic.block'),
    );
  });

  it('refuses an unknown action and a bad key', async () => {
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${AUDIT}?action=none`, { as: boss });
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${AUDIT}?actor=x`, { as: boss });
  });

  it('uses an index for each filter', async () => {
    const client = await relay.database.connect({ indexWalks: true });
    await client.query('ANALYZE audit_log');
    for (const [condition, index] of [
      ["actor = '\\x00'", 'audit_log_by_actor'],
      ["action = 'topic.block'", 'audit_log_by_action'],
      ["target = 'topic-3'", 'audit_log_by_target'],
    ] as const) {
      const { rows } = await client.query<{ 'QUERY PLAN': string }>(
        `EXPLAIN SELECT 1 FROM audit_log WHERE community = 1 AND (at, position) < (9000, 0) AND ${condition}
         ORDER BY at DESC, position DESC LIMIT 50`,
      );
      expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toContain(index);
    }
    await client.end();
  });

  it('is exported as JSON lines and as CSV, all of it or by filter', async () => {
    const path = `${AUDIT}/export?until=5000`;
    const lines = await api.ask<string>('GET', path, { as: boss });
    expect(lines.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8');
    const entries = lines.body
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Entry);
    expect(entries).toEqual(await all('&until=5000'));
    const headers = { accept: 'text/csv' };
    const csv = await api.ask<string>('GET', `${path}&action=topic.block`, { as: boss, headers });
    expect(csv.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    const rows = csv.body.trim().split('\r\n');
    expect(rows[0]).toBe('position,at,actor,action,target,details');
    expect(rows).toHaveLength(1 + ROWS / 10);
    // A spreadsheet must not run it as a formula.
    expect(rows[1]).toContain(`,topic.block,"'=tea,""x""","{""n"":1}"`);
  });
});

describe('a setting', () => {
  const changedBy = async (as: Author, key = 'relay.name') => {
    const { body } = await api.ask<{ changed: { by: string | null; at: number } | null }>(
      'GET',
      `/v1/admin/settings/${key}`,
      { as },
    );
    return body.changed;
  };

  it('says who changed it last and when, also after a reset', async () => {
    expect(await changedBy(boss)).toBeNull();
    await api.ask('PUT', `/v1/admin/operators/${other.pubkey}`, { as: boss, body: { role: 'operator' } });
    const began = Date.now();
    const set = await api.ask<{ version: number; changed: object }>('PUT', '/v1/admin/settings/relay.name', {
      as: other,
      body: { value: 'The harbour', version: 0 },
    });
    expect(set.body.changed).toMatchObject({ by: other.pubkey });
    const changed = await changedBy(boss);
    expect(changed!.by).toBe(other.pubkey);
    expect(changed!.at).toBeGreaterThanOrEqual(began);
    await api.ask('DELETE', `/v1/admin/settings/relay.name?version=${set.body.version}`, { as: boss });
    expect((await changedBy(boss))!.by).toBe(boss.pubkey);
    const list = await api.ask<{ items: { key: string; changed: object | null }[] }>(
      'GET',
      '/v1/admin/settings',
      {
        as: boss,
      },
    );
    const listed = (key: string) => list.body.items.find((item) => item.key === key)!.changed;
    expect(listed('relay.name')).toMatchObject({ by: boss.pubkey });
    expect(listed('relay.description')).toBeNull();
  });

  it('of the node says it too', async () => {
    const path = '/v1/admin/node-settings/node.outboxStreamsMax';
    const { body } = await api.ask<{ value: number; changed: object | null }>('GET', path, { as: boss });
    expect(body.changed).toBeNull();
    const set = await api.ask('PUT', path, { as: boss, body: { value: body.value - 1, version: 0 } });
    expect(set.body).toMatchObject({ changed: { by: boss.pubkey } });
  });
});
