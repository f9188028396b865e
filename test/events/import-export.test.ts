import { readFileSync, statSync } from 'node:fs';
import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import type { VerifiedEvent } from 'nostr-tools/pure';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EXPORT_PAGE_SQL, HISTORY_EXPORT_SQL } from '../../src/events/postgres/read/export.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { openDatabase } from '../../src/postgres/database.js';
import { type Ended, eventually, runCli, startCli } from '../support/cli.js';
import { type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { READY } from '../support/servers/templates.js';

/**
 * More events than an import has in flight plus one batch of the lane, so that a stopped import has some
 * left.
 */
const MANY = 2_600;
/** The lock that the second batch of a stalled import waits for. Used by this file only. */
const STALL_LOCK = 77_001;
const UNUSUAL = [
  '',
  'plain',
  'quotes " and \\ backslashes \\u0041 \\n',
  'lines\none\r\ntwo\ttabbed',
  'control \u0000 \u0001 \u001f \u007f characters',
  'separators \u2028 \u2029 \u0085 and a BOM \ufeff',
  '港 みなと 🏮👨‍👩‍👧‍👦 e\u0301 \u202eright to left\u202c עברית',
  '{"id":"not an event"}\n["EVENT"]',
  'x'.repeat(60_000),
];

const author = newAuthor();
let folder: string;
let many: VerifiedEvent[];
let database: TestDatabase;
let env: Record<string, string>;
let db: pg.Client;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-import-'));
  many = Array.from({ length: MANY }, (_, i) => note(`number ${i}`, { created_at: nowSeconds() - i }));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

beforeEach(async () => {
  database = await createTestDatabase(READY);
  env = { DATABASE_URL: database.url };
  db = new pg.Client(database.connection);
  await db.connect();
});
afterEach(async () => {
  await db.end();
  await database.drop();
});

function note(content: string, draft: Draft = {}): VerifiedEvent {
  return sign(author, { content, ...draft });
}
const lineOf = (event: VerifiedEvent) => serializeEvent(event);
const jsonl = (events: readonly VerifiedEvent[]) =>
  events.map((event) => `${JSON.stringify(event)}\n`).join('');
const sorted = (lines: readonly string[]) => [...lines].sort();
const linesOf = (text: string) => text.split('\n').slice(0, -1);

let files = 0;
function path(extension = '.jsonl'): string {
  files += 1;
  return join(folder, `file-${files}${extension}`);
}
async function fileWith(content: string | Buffer, extension?: string): Promise<string> {
  const file = path(extension);
  await writeFile(file, content);
  return file;
}

/** The counts of the summary by name, without zeros. */
function counts({ stdout }: Ended): Record<string, number> {
  const rows = [...stdout.matchAll(/^(\S.*?) {2,}([\d,]+)$/gm)];
  const all = rows.map(([, name, times]): [string, number] => [name!, Number(times!.replaceAll(',', ''))]);
  return Object.fromEntries(all.filter(([, times]) => times > 0));
}

async function exported(...args: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await runCli(['export', ...args], env);
  expect(stderr).toMatch(/\d+ events/);
  expect(code).toBe(0);
  return linesOf(stdout);
}

const exists = (file: string) =>
  stat(file).then(
    () => true,
    () => false,
  );

async function storedIds(): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    "SELECT encode(event_id, 'hex') AS id FROM events_outbox WHERE op = 'upsert' ORDER BY seq",
  );
  return rows.map((row) => row.id);
}

describe('import and export', () => {
  test('events are exported with exactly the imported bytes, with any characters', async () => {
    const events = UNUSUAL.flatMap((text, i) => [
      note(text, { created_at: 1_700_000_000 + i }),
      note('tagged', {
        tags: [
          ['t', text],
          ['x', '', 'y'],
        ],
        created_at: 1_700_000_000 + i,
      }),
    ]);
    const imported = await runCli(['import', await fileWith(jsonl(events))], env);
    expect(imported.code).toBe(0);
    expect(counts(imported)).toEqual({ stored: events.length });

    const file = path();
    expect((await runCli(['export', file], env)).code).toBe(0);
    expect(sorted(linesOf(await readFile(file, 'utf8')))).toEqual(sorted(events.map(lineOf)));
  });

  test('unknown fields are dropped; spelling and order of the others do not matter', async () => {
    const event = note('kept');
    const spelled = JSON.stringify({ seen: ['wss://a'], ...event, created_at: event.created_at }, null, 1);
    await runCli(['import'], env, `${spelled.replaceAll('\n', ' ').replace('kept', '\\u006bept')}\n`);
    expect(await exported()).toEqual([lineOf(event)]);
  });

  test('a name in .gz is unpacked and packed; several gzip members are one file', async () => {
    const events = many.slice(0, 20);
    const packed = Buffer.concat([gzipSync(jsonl(events.slice(0, 7))), gzipSync(jsonl(events.slice(7)))]);
    const imported = await runCli(['import', await fileWith(packed, '.jsonl.gz')], env);
    expect(counts(imported)).toEqual({ stored: 20 });

    const file = path('.jsonl.gz');
    await runCli(['export', file], env);
    const lines = linesOf(gunzipSync(await readFile(file)).toString());
    expect(sorted(lines)).toEqual(sorted(events.map(lineOf)));
  });

  test('an export of nothing is an empty file, and a whole gzip file', async () => {
    const [plain, packed] = [path(), path('.gz')];
    expect((await runCli(['export', plain], env)).code).toBe(0);
    expect((await runCli(['export', packed], env)).code).toBe(0);
    expect(await readFile(plain, 'utf8')).toBe('');
    expect(gunzipSync(await readFile(packed)).toString()).toBe('');
  });

  test('pipes: lines end with LF or CRLF, blank lines are skipped, the last needs no line end', async () => {
    const events = many.slice(0, 3);
    const [a, b, c] = events.map((event) => JSON.stringify(event));
    const imported = await runCli(['import', '-'], env, `${a}\r\n\n  \n${b}\n${c}`);
    expect(imported.code).toBe(0);
    expect(counts(imported)).toEqual({ stored: 3 });
    expect(sorted(await exported('-'))).toEqual(sorted(events.map(lineOf)));
  });

  test('communities are separate: events are exported only from their own community', async () => {
    await runCli(['communities', 'add', 'art'], env);
    const [here, there] = ['here', 'there'].map((text) => note(text, { tags: [['t', 'kukuri:global']] }));
    await runCli(['import'], env, jsonl([here!]));
    await runCli(['import', '--community', 'art'], env, jsonl([there!]));
    expect(await exported()).toEqual([lineOf(here!)]);
    expect(await exported('-c', 'art')).toEqual([lineOf(there!)]);
  });

  test('the error for an unknown community names the existing ones', async () => {
    const { code, stderr } = await runCli(['import', '-c', 'nowhere'], env, '');
    expect(code).toBe(1);
    expect(stderr).toContain('there is no community "nowhere"; this node has: default');
  });
});

describe('import', () => {
  test('a second import of the same file finds only duplicates', async () => {
    const file = await fileWith(jsonl(many.slice(0, 50)));
    expect(counts(await runCli(['import', file], env))).toEqual({ stored: 50 });
    const again = await runCli(['import', file], env);
    expect(counts(again)).toEqual({ duplicate: 50 });
    expect(again.code).toBe(0);
    expect(await storedIds()).toHaveLength(50);
  });

  test('an older version and an ephemeral event do not count as failures', async () => {
    const [older, newer] = [100, 200].map((created_at) => note('', { kind: 0, created_at }));
    await runCli(['import'], env, jsonl([newer!]));
    const result = await runCli(['import'], env, jsonl([older!, note('', { kind: 20_001 })]));
    expect(counts(result)).toEqual({ older: 1, broadcast: 1 });
    expect(result.code).toBe(0);
  });

  test('a bad line is reported with its number and reason, and the others are imported', async () => {
    const good = many.slice(0, 3);
    const forged = { ...many[3]!, content: 'another' };
    const unsigned = { ...many[4]!, sig: '0'.repeat(128) };
    const lines: (string | Buffer)[] = [
      JSON.stringify(good[0]),
      '{"id": ',
      JSON.stringify(good[1]),
      JSON.stringify(forged),
      JSON.stringify({ ...many[5]!, content: 'y'.repeat(1_100_000) }),
      JSON.stringify(unsigned),
      '[1,2]',
      Buffer.from([0x22, 0xff, 0xfe, 0x22]),
      JSON.stringify(good[2]),
    ];
    const file = await fileWith(
      Buffer.concat(lines.flatMap((line) => [Buffer.from(line), Buffer.from('\n')])),
    );
    const rejects = path();
    const expected = [
      { line: 2, reason: 'the line is not JSON' },
      { line: 4, reason: 'invalid: id is not the hash of the event' },
      { line: 5, reason: 'the line is longer than 1048576 bytes' },
      { line: 6, reason: 'invalid: signature verification failed' },
      { line: 7, reason: 'invalid: event must be a JSON object' },
      { line: 8, reason: 'the line is not UTF-8' },
    ];

    const first = await runCli(['import', file, '--rejects', rejects], env);
    expect(first.code).toBe(2);
    expect(counts(first)).toEqual({ stored: 3, 'refused: invalid': 3, malformed: 3 });
    const written = linesOf(await readFile(rejects, 'utf8')).map((line) => JSON.parse(line));
    expect(written.map(({ line, reason }) => ({ line, reason }))).toEqual(expected);
    expect(written[0].text).toBe('{"id": ');
    expect(JSON.parse(written[1].text)).toEqual(forged);
    expect(written[2].text.length).toBeLessThan(1_000);
    expect(first.stderr).not.toContain('line 2');

    const second = await runCli(['import', file], env);
    expect(second.code).toBe(2);
    for (const { line, reason } of expected) expect(second.stderr).toContain(`line ${line}: ${reason}`);
  });

  test('an event without a topic is refused where the community requires one', async () => {
    await runCli(['settings', 'set', 'topic.mode', 'required'], env);
    await runCli(['topics', 'set', 'tea'], env);
    const result = await runCli(
      ['import'],
      env,
      jsonl([
        note('none'),
        note('not carried', { tags: [['t', 'coffee']] }),
        note('one', { tags: [['t', 'tea']] }),
      ]),
    );
    expect(result.code).toBe(2);
    expect(counts(result)).toEqual({ stored: 1, 'refused: invalid': 1, 'refused: restricted': 1 });
  });

  test('only the first ten refusals are shown', async () => {
    const { stderr } = await runCli(['import'], env, 'no\n'.repeat(25));
    expect(stderr.match(/^ {2}line /gm)).toHaveLength(10);
  });

  test('a missing file, or a folder, is reported before anything is started', async () => {
    const unreachable = { DATABASE_URL: 'postgres://nobody@localhost:1/none' };
    expect((await runCli(['import', join(folder, 'absent')], unreachable)).stderr).toContain(
      'there is no file',
    );
    expect((await runCli(['import', folder], unreachable)).stderr).toContain('is not a file');
  });

  test('a truncated gzip file is an error, and the events before the end are imported', async () => {
    const whole = gzipSync(jsonl(many.slice(0, 500)));
    const file = await fileWith(whole.subarray(0, whole.length - 2_000), '.gz');
    const { code, stderr } = await runCli(['import', file], env);
    expect(code).toBe(1);
    expect(stderr).toContain(`${file} cannot be read further`);
    const taken = await storedIds();
    expect(taken.length).toBeGreaterThan(0);
    expect(stderr).toContain(`The first ${taken.length} lines are imported`);
  });

  /**
   * An import in the middle of its file: its first batch is committed, its second waits for a lock held here.
   */
  async function stalledImport(file: string, ...options: string[]) {
    await db.query(`
      SELECT pg_advisory_lock(${STALL_LOCK});
      CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock_shared(${STALL_LOCK}); RETURN NEW; END';
      CREATE TRIGGER stall BEFORE UPDATE ON lane_state
        FOR EACH ROW WHEN (OLD.last_seq > 0) EXECUTE FUNCTION stall()`);
    const running = startCli(['import', file, ...options], env);
    const lines = await eventually('a checkpoint past the first batch', async () => {
      const text = await readFile(`${file}.minato-import`, 'utf8').catch(() => '{"ledger":{"lines":0}}');
      const settled = (JSON.parse(text) as { ledger: { lines: number } }).ledger.lines;
      return settled > 0 ? settled : undefined;
    });
    return { ...running, lines };
  }
  const release = () => db.query('SELECT pg_advisory_unlock($1)', [STALL_LOCK]);

  test('a killed import continues after its checkpoint: nothing is lost, nothing stored twice', async () => {
    const bad = ['not json', JSON.stringify({ ...many[0]!, content: 'forged' })];
    const file = await fileWith(`${bad[0]}\n${jsonl(many)}${bad[1]}\n`);
    const rejects = path();
    const { child, ended, lines } = await stalledImport(file, '--rejects', rejects);
    child.kill('SIGKILL');
    expect((await ended).code).toBeNull();
    await release();
    // A killed run may have written past its checkpoint.
    await appendFile(rejects, `{"line":99,"text":"${'half a line '.repeat(500)}`);

    const second = await runCli(['import', file, '--rejects', rejects], env);
    expect(second.stderr).toContain(`Resuming after line ${lines.toLocaleString('en-US')}`);
    expect(second.code).toBe(2);
    const { stored, duplicate = 0, ...refused } = counts(second);
    expect(stored! + duplicate).toBe(MANY);
    expect(refused).toEqual({ 'refused: invalid': 1, malformed: 1 });
    expect(sorted(await storedIds())).toEqual(sorted(many.map((event) => event.id)));
    const written = linesOf(await readFile(rejects, 'utf8')).map((line) => JSON.parse(line).line);
    expect(written).toEqual([1, MANY + 2]);
    expect(await exists(`${file}.minato-import`)).toBe(false);
  });

  test('SIGINT finishes the events in flight and ends with 130, and the same command continues', async () => {
    const file = await fileWith(gzipSync(jsonl(many)), '.gz');
    const { child, ended } = await stalledImport(file);
    child.kill('SIGINT');
    // The signal must arrive before the lane continues, or the rest of the file would be imported first.
    await new Promise((resolve) => setTimeout(resolve, 500));
    await release();
    const first = await ended;
    expect(first.code).toBe(130);
    expect(first.stderr).toContain('run the same command to continue from there');
    const taken = (await storedIds()).length;
    expect(counts(first)).toEqual({ stored: taken });
    expect(taken).toBeLessThan(MANY);

    const second = await runCli(['import', file], env);
    expect(second.stderr).toContain(`Resuming after line ${taken.toLocaleString('en-US')}`);
    expect(counts(second)).toEqual({ stored: MANY });
    expect(sorted(await storedIds())).toEqual(sorted(many.map((event) => event.id)));
  });

  test('a checkpoint is ignored for a changed file and with --restart', async () => {
    const file = await fileWith(jsonl(many.slice(0, 10)));
    const checkpoint = async () => {
      const { size, mtimeMs } = await stat(file);
      const ledger = {
        lines: 10,
        outcomes: { stored: 10, duplicate: 0, older: 0, broadcast: 0 },
        refused: {},
        shown: [],
      };
      const state = { size, modifiedMs: mtimeMs, community: 'default', ledger };
      await writeFile(`${file}.minato-import`, JSON.stringify(state));
    };
    await checkpoint();
    expect(counts(await runCli(['import', file], env))).toEqual({ stored: 10 });
    expect(await storedIds()).toEqual([]);

    await checkpoint();
    await runCli(['import', file, '--restart'], env);
    expect(await storedIds()).toHaveLength(10);

    await checkpoint();
    await appendFile(file, jsonl(many.slice(10, 15)));
    const changed = await runCli(['import', file], env);
    expect(changed.stderr).toContain('has changed since: starting again');
    expect(counts(changed)).toEqual({ stored: 5, duplicate: 10 });
  });
});

describe('export', () => {
  test('a superseded version is not exported, in any order of arrival', async () => {
    const versions = [300, 100, 200].map((created_at) => note(`v${created_at}`, { kind: 0, created_at }));
    const articles = [100, 200].map((created_at) =>
      note('', { kind: 30_023, created_at, tags: [['d', 'a']] }),
    );
    await runCli(['import'], env, jsonl([...versions.slice(0, 2), articles[0]!]));
    await runCli(['import'], env, jsonl([...versions.slice(2), articles[1]!]));
    expect(sorted(await exported())).toEqual(sorted([lineOf(versions[0]!), lineOf(articles[1]!)]));
  });

  test('an expired event is not exported even before a sweep, also by a shortened topic', async () => {
    const about = (content: string, ...topics: string[]) =>
      note(content, { tags: topics.map((topic) => ['t', topic]) });
    const [brief, both, plain] = [about('brief', 'brief'), about('both', 'brief', 'lasting'), about('plain')];
    const young = note('young');
    const profile = note('{}', { kind: 0 });
    await runCli(['settings', 'set', 'retention.regularDays', '0'], env);
    await runCli(['import'], env, jsonl([brief, both, plain, profile]));
    await db.query('UPDATE events SET ingested_at = ingested_at - $1', [25 * 86_400_000]);
    await runCli(['import'], env, jsonl([young]));
    expect(await exported()).toHaveLength(5);
    await runCli(['topics', 'set', 'brief', '--retention-days', '2'], env);
    await runCli(['topics', 'set', 'lasting', '--retention-days', '90'], env);
    await runCli(['settings', 'set', 'retention.regularDays', '20'], env);
    expect(sorted(await exported())).toEqual(sorted([both, profile, young].map(lineOf)));
    expect(await exported('--filter', '{"#t":["brief"]}')).toEqual([]);
    expect(await exported('--filter', '{"#t":["lasting"]}')).toEqual([lineOf(both)]);
  });

  test('--history writes only superseded versions, without deleted, expired or vanished ones', async () => {
    const gone = newAuthor();
    const at = nowSeconds() - 100;
    const article = (second: number, d: string, by = author, tags: string[][] = []) =>
      sign(by, {
        kind: 30_023,
        created_at: at + second,
        tags: [['d', d], ...tags],
        content: `${d} ${second}`,
      });
    const versionsOf = (second: number) => [
      article(second, 'plain'),
      article(second, 'by address'),
      article(second, 'by id'),
      article(second, 'left to the job'),
      article(second, 'brief', author, second === 0 ? [['expiration', String(nowSeconds() + 3_600)]] : []),
      article(second, 'vanished', gone),
    ];
    const [older, newer] = [versionsOf(0), versionsOf(1)];
    const named = [
      ['a', `30023:${author.pubkey}:by address`],
      ['e', older[2]!.id],
    ];
    const requests = [
      sign(author, { kind: 5, created_at: at, tags: named }),
      sign(gone, { kind: 62, created_at: at + 50, tags: [['relay', 'ALL_RELAYS']] }),
    ];
    for (const events of [older, newer]) await runCli(['import'], env, jsonl(events));
    expect(sorted(await exported('--history'))).toEqual(sorted(older.map(lineOf)));
    await runCli(['import'], env, jsonl(requests));
    await db.query(
      `INSERT INTO history_deletions (community, kind, requested_at, created_at, seq, address_hash, author)
       VALUES (1, 30023, $1, $1, 0, sha256($2), '')`,
      [at, Buffer.from(`30023:${author.pubkey}:left to the job`)],
    );
    await db.query(`UPDATE events SET payload = replace(payload, $1, '1000000000') WHERE hidden = 1`, [
      older[4]!.tags[1]![1],
    ]);
    expect(await exported('--history')).toEqual([lineOf(older[0]!)]);
    expect(await exported('--history', '--filter', '{"kinds":[0]}')).toEqual([]);
    const served = [...newer.slice(0, 5), requests[0]!];
    expect(sorted(await exported())).toEqual(sorted(served.map(lineOf)));
  });

  test('--filter exports what a REQ with the filter returns', async () => {
    const tea = note('tea', { tags: [['t', 'tea']] });
    await runCli(['import'], env, jsonl([tea, note('coffee', { tags: [['t', 'coffee']] }), many[0]!]));
    expect(await exported('--filter', '{"kinds":[1],"#t":["tea"]}')).toEqual([lineOf(tea)]);
    expect(await exported('--filter', '{"kinds":[]}')).toEqual([]);
  });

  test.each([
    ['{"limit":5}', 'limit is not supported'],
    ['{"kinds":["1"]}', 'kinds must be a list of integers'],
    ['{"search":"tea"}', 'search'],
    ['{kinds}', 'not JSON'],
  ])('--filter %s is refused with a reason', async (filter, reason) => {
    const { code, stderr } = await runCli(['export', '--filter', filter], env);
    expect(code).toBe(1);
    expect(stderr).toContain(reason);
  });

  test('an existing file is overwritten only with --force', async () => {
    await runCli(['import'], env, jsonl(many.slice(0, 2)));
    const file = await fileWith('precious');
    const refused = await runCli(['export', file], env);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('--force');
    expect(await readFile(file, 'utf8')).toBe('precious');
    expect((await runCli(['export', file, '--force'], env)).code).toBe(0);
    expect(linesOf(await readFile(file, 'utf8'))).toHaveLength(2);
  });

  test('--resume needs an interrupted export of the same subject', async () => {
    const file = path();
    expect((await runCli(['export', file, '--resume'], env)).stderr).toContain('no interrupted export');
    const state = { seq: 0, events: 0, bytes: 0, community: 'default', filter: '{"kinds":[1]}' };
    await writeFile(`${file}.minato-export`, JSON.stringify(state));
    await writeFile(file, '');
    expect((await runCli(['export', file, '--resume'], env)).stderr).toContain(`--filter '{"kinds":[1]}'`);
    await writeFile(`${file}.minato-export`, JSON.stringify({ ...state, filter: '', history: true }));
    expect((await runCli(['export', file, '--resume'], env)).stderr).toContain('default --history');
  });

  /** Writes rows in the shape of the lane, with arbitrary contents. */
  async function fillStore(rows: number, payloadBytes: number): Promise<void> {
    await runCli(['settings'], env);
    await db.query(
      `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
       SELECT n, $1, n, c.id, 1, 3, sha256(n::text::bytea), sha256('author'), rpad('{"n":' || n || ',"x":"',
       $2, md5(n::text)) || '"}'
       FROM generate_series(1, $3::int) n, communities c`,
      [Date.now(), payloadBytes, rows],
    );
    await db.query('UPDATE lane_state SET last_seq = $1', [rows]);
  }

  test.each(['.jsonl', '.jsonl.gz'])(
    'an export to %s that was interrupted and killed resumes to the same file',
    async (extension) => {
      await fillStore(60_000, 700);
      const [whole, broken] = [path(extension), path(extension)];
      expect((await runCli(['export', whole], env)).code).toBe(0);

      const sizeNow = () => statSync(broken, { throwIfNoEntry: false })?.size ?? 0;
      const interrupted = startCli(['export', broken], env);
      await eventually('the first page', () => (sizeNow() > 0 ? true : undefined));
      interrupted.child.kill('SIGINT');
      expect((await interrupted.ended).code).toBe(130);
      const { bytes, events } = JSON.parse(readFileSync(`${broken}.minato-export`, 'utf8'));
      expect(bytes).toBe(sizeNow());
      expect(events).toBeLessThan(60_000);

      const killed = startCli(['export', broken, '--resume'], env);
      await eventually('a further page', () => (sizeNow() > bytes ? true : undefined));
      killed.child.kill('SIGKILL');
      expect((await killed.ended).code).toBeNull();
      // Half a page, as a kill in the middle of a write leaves it.
      await appendFile(broken, '{"half a pa');

      const resumed = await runCli(['export', broken, '--resume'], env);
      expect(resumed.code).toBe(0);
      expect(resumed.stderr).toContain('Resuming after');
      expect(await exists(`${broken}.minato-export`)).toBe(false);
      const unpack = (data: Buffer) => (extension.endsWith('.gz') ? gunzipSync(data) : data);
      expect(unpack(await readFile(broken)).equals(unpack(await readFile(whole)))).toBe(true);
      expect(linesOf(unpack(await readFile(whole)).toString())).toHaveLength(60_000);
    },
  );

  test('a reader that closes the pipe ends the export, as with any program', async () => {
    await fillStore(20_000, 700);
    const { child, ended } = startCli(['export'], env);
    child.stdout?.once('data', () => child.stdout?.destroy());
    const { code, stderr } = await ended;
    expect(code).toBe(141);
    expect(stderr).not.toContain('EPIPE');
  });

  test.each([
    ['served events', EXPORT_PAGE_SQL, 'events_days30', 'events_history'],
    ['history', HISTORY_EXPORT_SQL, 'events_history', 'events_days30'],
  ])(
    'a page of %s reads along the index on seq of each partition once, and sorts nothing',
    async (_, text, read, left) => {
      await fillStore(5_000, 100);
      await db.query('ANALYZE events');
      const { pool, close } = openDatabase(database.connection);
      const { rows } = await pool.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${text}`, [
        1_000,
        5_000,
        1,
        ...(text.includes('$4') ? [0] : []),
      ]);
      await close();
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
      expect(plan).toContain('Merge Append');
      expect(plan).not.toMatch(/->\s+(Sort|Incremental Sort|Seq Scan|Bitmap)/);
      expect(plan).toContain(read);
      expect(plan).not.toContain(left);
    },
  );

  test('large events make small pages: a page is limited in bytes', async () => {
    await fillStore(60, 1_000_000);
    const { pool, close } = openDatabase(database.connection);
    const { rows } = await pool.query(EXPORT_PAGE_SQL, [0, 60, 1]);
    await close();
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.length).toBeLessThan(10);
    expect(await exported()).toHaveLength(60);
  });
});
