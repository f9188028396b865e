/**
 * An old export is imported again. Events that were deleted, expired or vanished since do not come back,
 * whether their rows still exist, are purged, or even their ids are forgotten, and the import names the
 * reason for each line (I6). The test runs the real program with a clock set ahead.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { type Ended, runCli } from '../support/cli.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

type Signed = ReturnType<typeof sign>;

const DELETED = 'blocked: deleted by its author';
const VANISHED = 'blocked: its author asked to vanish';
const EXPIRED = 'invalid: expired';
const AGED = 'blocked: past retention';

let folder: string;
let database: TestDatabase;
let db: pg.Client;
let backup: string;

const NOW = nowSeconds() - 100;
const [alice, bob, carol] = [newAuthor(), newAuthor(), newAuthor()];
const by = (author: Author, second: number, draft: Draft = {}) =>
  sign(author, { created_at: NOW + second, ...draft });
const version = (second: number) => by(bob, second, { kind: 0, content: `version ${second}` });
const article = (d: string) => by(alice, 0, { kind: 30_023, tags: [['d', d]] });

const before = {
  deleted: by(alice, 0, { content: 'deleted', tags: [['t', 'sea']] }),
  deletedArticle: article('gone'),
  keptArticle: article('kept'),
  superseded: version(0),
  aged: by(bob, 0, { content: 'aged' }),
  expired: by(bob, 0, { content: 'expired', tags: [['expiration', `${NOW + 86_400}`]] }),
  vanished: by(carol, 0, { content: 'vanished' }),
  vanishedProfile: by(carol, 0, { kind: 0 }),
  vanishedRequest: by(carol, 0, { kind: 5, tags: [['e', '0'.repeat(64)]] }),
  wrap: by(newAuthor(), 0, { kind: 1_059, tags: [['p', carol.pubkey]] }),
};
const since = {
  request: by(alice, 1, { kind: 5, tags: [['e', before.deleted.id]] }),
  addressRequest: by(alice, 1, { kind: 5, tags: [['a', `30023:${alice.pubkey}:gone`]] }),
  profile: version(1),
  vanish: by(carol, 1, { kind: 62, tags: [['relay', 'ALL_RELAYS']] }),
};
const alwaysServed = [before.keptArticle, since.request, since.addressRequest, since.profile];

const jsonl = (events: Record<string, Signed>) =>
  Object.values(events)
    .map((event) => `${JSON.stringify(event)}\n`)
    .join('');

/** Runs the program as if it were `days` days later. */
function minato(days: number, ...args: string[]): Promise<Ended> {
  const clock = `const now = Date.now; Date.now = () => now() + ${days * DAY_MS}`;
  const moved = `--import=data:text/javascript,${encodeURIComponent(clock)}`;
  return runCli(args, { DATABASE_URL: database.url, NODE_OPTIONS: moved });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-restore-'));
  database = await createTestDatabase();
  db = new pg.Client(database.connection);
  await db.connect();
  const [first, second] = [join(folder, 'first.jsonl'), join(folder, 'second.jsonl')];
  backup = join(folder, 'backup.jsonl');
  await writeFile(first, jsonl(before));
  await writeFile(second, jsonl(since));
  expect((await minato(0, 'import', first)).code).toBe(0);
  expect((await minato(0, 'export', backup)).code).toBe(0);
  expect((await minato(0, 'import', second)).code).toBe(0);
});
afterAll(async () => {
  await db?.end();
  await database?.drop();
  await rm(folder, { recursive: true, force: true });
});

const idsIn = (text: string) =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as Signed).id);
const idsOf = (events: readonly Signed[]) => events.map(({ id }) => id).sort();

async function served(days: number): Promise<string[]> {
  const { code, stdout } = await minato(days, 'export');
  expect(code).toBe(0);
  return idsIn(stdout).sort();
}

async function rowsOf(event: Signed): Promise<{ rows: number; known: number }> {
  const { rows } = await db.query(
    `SELECT (SELECT count(*)::int FROM events WHERE id = $1) AS rows,
       (SELECT count(*)::int FROM event_dedupe WHERE event_id = $1) AS known`,
    [Buffer.from(event.id, 'hex')],
  );
  return rows[0] as { rows: number; known: number };
}

/** Imports the export again. Returns the reason of each refusal and the counts of the summary. */
async function restore(
  days: number,
): Promise<{ refused: Record<string, string>; counts: Record<string, number> }> {
  const rejects = join(folder, `rejects-${days}.jsonl`);
  const { code, stdout } = await minato(days, 'import', backup, '--rejects', rejects);
  expect(code).toBe(2);
  const nameOf = new Map(Object.entries(before).map(([name, { id }]) => [id, name]));
  const lines = (await readFile(rejects, 'utf8')).trimEnd().split('\n');
  const refused = lines.map((line) => {
    const { reason, text } = JSON.parse(line) as { reason: string; text: string };
    return [nameOf.get((JSON.parse(text) as Signed).id)!, reason];
  });
  const counts = [...stdout.matchAll(/^(\S.*?) {2,}([\d,]+)$/gm)].map(([, name, times]) => [
    name!,
    Number(times),
  ]);
  return {
    refused: Object.fromEntries(refused),
    counts: Object.fromEntries(counts.filter(([, times]) => times !== 0)),
  };
}

const FOR_EVER = {
  deleted: DELETED,
  deletedArticle: DELETED,
  expired: EXPIRED,
  vanished: VANISHED,
  vanishedProfile: VANISHED,
  vanishedRequest: VANISHED,
  wrap: VANISHED,
};

describe('an old export, imported again', () => {
  it('contains the events of its time', async () => {
    expect(idsIn(await readFile(backup, 'utf8')).sort()).toEqual(idsOf(Object.values(before)));
  });

  it('before any purge: nothing comes back', async () => {
    const { refused, counts } = await restore(2);
    expect(refused).toEqual(FOR_EVER);
    expect(counts).toEqual({ duplicate: 3, 'refused: blocked': 6, 'refused: invalid': 1 });
    expect(await served(2)).toEqual(idsOf([...alwaysServed, before.aged]));
  });

  it('after the purge of the rows: nothing comes back, also no event past its retention', async () => {
    expect((await minato(40, 'purge')).code).toBe(0);
    const { keptArticle: _kept, ...gone } = before;
    // Not even the ids of a vanished author are kept.
    for (const [name, event] of Object.entries(gone))
      expect(await rowsOf(event), name).toEqual({ rows: 0, known: /^(vanished|wrap)/.test(name) ? 0 : 1 });
    const { refused, counts } = await restore(40);
    expect(refused).toEqual({ ...FOR_EVER, aged: AGED });
    expect(counts).toEqual({ duplicate: 2, 'refused: blocked': 7, 'refused: invalid': 1 });
    expect(await served(40)).toEqual(idsOf(alwaysServed));
    // Not even the ids of a vanished author are kept.
    for (const [name, event] of Object.entries(gone))
      expect(await rowsOf(event), name).toEqual({ rows: 0, known: /^(vanished|wrap)/.test(name) ? 0 : 1 });
  });

  it('after the ids are forgotten: only events past their retention are imported, as new', async () => {
    expect((await minato(300, 'purge')).code).toBe(0);
    const { keptArticle: _kept, ...gone } = before;
    for (const [name, event] of Object.entries(gone))
      expect(await rowsOf(event), name).toEqual({ rows: 0, known: 0 });
    const { refused, counts } = await restore(300);
    expect(refused).toEqual(FOR_EVER);
    expect(counts).toEqual({
      stored: 1,
      duplicate: 1,
      older: 1,
      'refused: blocked': 6,
      'refused: invalid': 1,
    });
    expect(await served(300)).toEqual(idsOf([...alwaysServed, before.aged]));
  });
});
