/**
 * A thousand reports by new keys do not slow others down. Counted, not timed: they cost the lane as few
 * statements as notes do, their cases are made outside of the lane, and nothing else is written because of
 * them.
 */
import { expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import type { Database } from '../../src/postgres/database.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode } from '../support/node.js';
import { hash, unsigned } from '../support/stores/life.js';
import { openTestStore } from '../support/stores/store.js';

const REPORTS = 1_000;
/** Events in one commit. */
const LANE_EVENTS_MAX = 500;

it('a thousand reports take as many commits as notes, and one statement more in each', async () => {
  const store = await openTestStore();
  const texts: string[] = [];
  const counting: Database = {
    ...store.database,
    connect: async (options) => {
      const session = await store.database.connect(options);
      const query = session.query.bind(session) as (...args: unknown[]) => unknown;
      const counted = (...args: unknown[]): unknown => {
        texts.push(typeof args[0] === 'string' ? args[0] : (args[0] as { text: string }).text);
        return query(...args);
      };
      return Object.assign(session, { query: counted });
    },
  };
  const lane = store.lane({ database: counting });
  const seconds = Math.floor(Date.now() / 1_000);
  const submit = (event: NostrEvent) => lane.submit({ community: 1, event, payload: serializeEvent(event) });
  const target = unsigned({ kind: 1, pubkey: hash('member'), created_at: seconds, content: 'a note' });
  expect(await submit(target)).toBe('stored');
  const draft = (at: number) => ({ pubkey: hash(`newcomer ${at}`), created_at: seconds });
  const spentFor = async (events: readonly NostrEvent[]) => {
    texts.length = 0;
    const outcomes = await Promise.all(events.map(submit));
    expect(new Set(outcomes)).toEqual(new Set(['stored']));
    const commits = texts.filter((text) => /\bCOMMIT\b/.test(text)).length;
    expect(commits).toBeGreaterThanOrEqual(REPORTS / LANE_EVENTS_MAX);
    return { commits, perCommit: texts.length / commits };
  };
  const notes = await spentFor(
    Array.from({ length: REPORTS }, (_, at) => unsigned({ kind: 1, ...draft(at), content: `${at}` })),
  );
  const reports = await spentFor(
    Array.from({ length: REPORTS }, (_, at) =>
      unsigned({ kind: 1_984, ...draft(at), tags: [['e', target.id, 'spam']], content: `${at}` }),
    ),
  );
  // The first commit may begin before all of them have arrived.
  for (const { commits } of [notes, reports])
    expect(commits).toBeLessThanOrEqual(REPORTS / LANE_EVENTS_MAX + 2);
  expect(reports.perCommit).toBeLessThanOrEqual(notes.perCommit + 1);
  await store.close();
});

it('a thousand reports by new keys beside other notes make one case and nothing else', async () => {
  const node = await startTestNode({ trust: true });
  const { pool } = node.database;
  const member = await RawClient.connect(node.url);
  const authors = [newAuthor(), newAuthor()] as const;
  const targets = authors.map((author) => sign(author, { content: 'reported' }));
  for (const target of targets) expect(await member.publish(target)).toEqual([true, '']);
  await node.node.consumers!.drained();
  const sockets = await Promise.all(Array.from({ length: 10 }, () => RawClient.connect(node.url)));
  const reports = Array.from({ length: REPORTS }, (_, at) => {
    const target = targets[at % targets.length]!;
    return sign(newAuthor(), {
      kind: 1_984,
      content: `${at}`,
      tags: [
        ['e', target.id, 'spam'],
        ['p', target.pubkey],
      ],
    });
  });
  const flood = Promise.all(reports.map((report, at) => sockets[at % sockets.length]!.publish(report)));
  const notes = Array.from({ length: 50 }, (_, at) => sign(newAuthor(), { content: `meanwhile ${at}` }));
  for (const note of notes) expect(await member.publish(note)).toEqual([true, '']);
  for (const answer of await flood) expect(answer).toEqual([true, '']);
  await node.node.consumers!.drained();

  const { rows: cases } = await pool.query<{ status: string; reports: number }>(
    `SELECT c.status, count(r.report_id) AS reports FROM moderation_cases c
     JOIN reports r ON r.case_id = c.case_id
     WHERE c.target_event IS NOT NULL GROUP BY c.case_id`,
  );
  expect(cases).toEqual(targets.map(() => ({ status: 'open', reports: REPORTS / targets.length })));
  const { rows: actions } = await pool.query(
    'SELECT 1 FROM moderation_actions UNION ALL SELECT 1 FROM labels',
  );
  expect(actions).toEqual([]);
  // The lane has written only the events of clients, and the node's assertions about the few reported people.
  const { rows: written } = await pool.query<{ kind: number; changes: number }>(
    'SELECT kind, count(*) AS changes FROM events_outbox GROUP BY kind ORDER BY kind',
  );
  const changes = new Map(written.map(({ kind, changes: count }) => [kind, count]));
  expect(changes.get(1)).toBe(targets.length + notes.length);
  expect(changes.get(1_984)).toBe(REPORTS);
  const others = [...changes].filter(([kind]) => kind !== 1 && kind !== 1_984);
  const sum = others.reduce((total, [, count]) => total + count, 0);
  expect(sum).toBeLessThanOrEqual(20 * targets.length);
  for (const client of [member, ...sockets]) await client.close();
  await node.close();
});
