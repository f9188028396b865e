/**
 * The worker that makes the files: its memory stays flat, and nothing is left behind when it is killed,
 * stopped, cancelled or fails.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { changeNodeSetting } from '../../src/communities/node-settings.sql.js';
import { readJobRuns } from '../../src/jobs/job-runs.sql.js';
import {
  cancelPersonal,
  type PersonalRequest,
  requestPersonal,
} from '../../src/personal-data/requests.sql.js';
import { type Ended, eventually, runCli, startCli } from '../support/cli.js';
import { createApi } from '../support/clients/api.js';
import { countLines, readZip } from '../support/clients/zip.js';
import { type Author, newAuthor } from '../support/events.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

/** A file of 100,000 events takes seconds, and longer on a busy machine. */
vi.setConfig({ testTimeout: 240_000 });
const LONG_MS = 110_000;

const MANY_EVENTS = 100_000;
/** Heap of the node: enough for a node, too little for the events, which are 140 MB as text alone. */
const HEAP_MB = 128;
/** Events of a smaller member, to compare with. */
const FEW_EVENTS = 10_000;
/** Enough events that making the file takes a while. */
const EVENTS = 20_000;
const JOB = ['jobs', 'run', 'export-personal'];
const writer = newAuthor();
const modest = newAuthor();
const tireless = newAuthor();
let store: TestStore;
let env: Record<string, string>;
let folder: string;

beforeAll(async () => {
  store = await openTestStore();
  env = { DATABASE_URL: store.test.url, MINATO_DATA_DIR: store.test.folder };
  folder = await mkdtemp(join(tmpdir(), 'minato-export-'));
  // One person makes more requests here than a plan would allow.
  await store.database.pool.query(
    `INSERT INTO plans (community, plan_id, name, limits, created_at, updated_at)
     VALUES (1, 'free', 'Free', '{}', 1, 1)`,
  );
  await fill(writer, 1, EVENTS);
}, 180_000);
afterAll(async () => {
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const rows = async <T extends object>(text: string, values: unknown[] = []): Promise<T[]> =>
  (await store.database.pool.query<T>(text, values)).rows;

/** Events of 1.4 kB each, with their ids and outbox rows. */
async function fill(author: Author, from: number, to: number): Promise<void> {
  const client = await store.database.connect();
  const now = Date.now();
  await client.query(
    `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
     SELECT n, $2::bigint, $2::bigint / 1000 - n, 1, 1, 3, sha256(n::text::bytea), $1::bytea,
       json_build_object(
       'id', encode(sha256(n::text::bytea), 'hex'), 'pubkey', encode($1::bytea, 'hex'),
       'created_at', $2::bigint / 1000 - n, 'kind', 1, 'tags', '[]'::json,
       'content', (SELECT string_agg(md5(n || ':' || i), '') FROM generate_series(1, 10) i)
         || repeat('.', 700),
       'sig', repeat('0', 128))::text
     FROM generate_series($3::int, $4::int) n`,
    [Buffer.from(author.pubkey, 'hex'), now, from, to],
  );
  await client.query(
    `INSERT INTO event_dedupe (seq, ingested_at, first_seen_at, community, keep, event_id, author)
     SELECT seq, ingested_at, ingested_at, 1, keep, id, pubkey FROM events WHERE seq >= $1`,
    [from],
  );
  await client.query(
    `INSERT INTO events_outbox (seq, ingested_at, created_at, community, kind, op, event_id, author, topics)
     SELECT seq, ingested_at, created_at, 1, kind, 'upsert', id, pubkey, '{}' FROM events WHERE seq >= $1`,
    [from],
  );
  await client.query('UPDATE lane_state SET last_seq = $1', [to]);
  await client.query('ANALYZE');
  await client.end();
}

async function ask(author: Author): Promise<PersonalRequest> {
  const wanted = { community: 1, pubkey: author.pubkey, kind: 'export' } as const;
  const request = await requestPersonal(store.database.pool, wanted, Date.now());
  if (isDenial(request)) throw new Error(request.denied);
  return request;
}

const statusOf = async ({ requestId }: PersonalRequest) =>
  (
    await rows<{ status: string; error: string | null; bytes: number }>(
      'SELECT status, error, bytes FROM personal_data_requests WHERE request_id = $1',
      [requestId],
    )
  )[0]!;
const portionsOf = ({ requestId }: PersonalRequest) =>
  rows<{ position: number; portion: Buffer }>(
    'SELECT position, portion FROM personal_data_files WHERE request_id = $1 ORDER BY position',
    [requestId],
  );
const runExports = async (): Promise<Ended> => runCli(JOB, env);

/** Runs the job in its own process until it has written something. */
async function underWay(request: PersonalRequest) {
  const running = startCli(JOB, env);
  await eventually(
    'the first portions are written',
    async () => {
      const { length } = await rows('SELECT 1 FROM personal_data_files WHERE request_id = $1 LIMIT 2', [
        request.requestId,
      ]);
      return length === 2 ? true : undefined;
    },
    LONG_MS,
  );
  expect((await statusOf(request)).status).toBe('running');
  return running;
}

async function expectWhole(request: PersonalRequest): Promise<void> {
  const { status, bytes } = await statusOf(request);
  expect(status).toBe('ready');
  const portions = await portionsOf(request);
  expect(portions.map(({ position }) => position)).toEqual(portions.map((_, at) => at));
  const file = Buffer.concat(portions.map(({ portion }) => portion));
  expect(file).toHaveLength(bytes);
  expect(await countLines(file, 'events.jsonl')).toBe(EVENTS);
}

describe('a worker that ends in the middle of a file', () => {
  it('by kill -9 leaves a request that the next worker makes again', async () => {
    const request = await ask(writer);
    const { child, ended } = await underWay(request);
    child.kill('SIGKILL');
    await ended;
    expect((await statusOf(request)).status).toBe('running');
    expect((await portionsOf(request)).length).toBeGreaterThan(0);
    expect((await runExports()).code).toBe(0);
    await expectWhole(request);
  });

  it('because its node stops does the same', async () => {
    const request = await ask(writer);
    const { child, ended } = await underWay(request);
    child.kill('SIGTERM');
    await ended;
    expect((await statusOf(request)).status).toBe('running');
    expect((await runExports()).code).toBe(0);
    await expectWhole(request);
  });

  it('because the member cancels writes no more, and leaves nothing behind', async () => {
    await rows('CREATE TABLE written (position integer)');
    await rows(`CREATE FUNCTION note_written() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN INSERT INTO written VALUES (NEW.position); RETURN NULL; END'`);
    await rows(`CREATE TRIGGER written AFTER INSERT ON personal_data_files
      FOR EACH ROW EXECUTE FUNCTION note_written()`);
    const written = () => rows('SELECT position FROM written');
    const request = await ask(writer);
    const { ended } = await underWay(request);
    // While the row is locked, the worker waits before its next portion: nothing is written between the two
    // reads.
    const session = await store.database.connect();
    await session.query('BEGIN');
    await session.query('SELECT 1 FROM personal_data_requests WHERE request_id = $1 FOR UPDATE', [
      request.requestId,
    ]);
    const before = await written();
    const own = { ...request, pubkey: writer.pubkey };
    expect(await cancelPersonal(session, own, Date.now())).toMatchObject({ status: 'cancelled' });
    await session.query('COMMIT');
    await session.end();
    expect(await ended).toMatchObject({ code: 0, stderr: '' });
    expect(await written()).toEqual(before);
    expect((await statusOf(request)).status).toBe('cancelled');
    expect(await portionsOf(request)).toEqual([]);
    await rows('DROP TRIGGER written ON personal_data_files');
  });

  it('three times is not retried', async () => {
    const request = await ask(newAuthor());
    await rows(`UPDATE personal_data_requests SET status = 'running', tries = 3 WHERE request_id = $1`, [
      request.requestId,
    ]);
    expect((await runExports()).code).toBe(0);
    expect(await statusOf(request)).toMatchObject({
      status: 'failed',
      error: expect.stringContaining('never finished'),
    });
  });
});

describe('a file that cannot be made', () => {
  it('because it is too large fails with a sentence, and takes no space', async () => {
    await writeSetting(store.database.pool, 1, 'privacy.exportBytesMax', 2_097_152, Date.now());
    const request = await ask(writer);
    expect((await runExports()).code).toBe(0);
    expect(await statusOf(request)).toEqual({
      status: 'failed',
      error: 'The file is larger than this community allows. Your operator can make it for you.',
      bytes: 0,
    });
    expect(await portionsOf(request)).toEqual([]);
    await writeSetting(store.database.pool, 1, 'privacy.exportBytesMax', 5_368_709_120, Date.now());
  });

  it('because of an error fails with a sentence, is logged, and blocks no other', async () => {
    const [broken, fine] = [newAuthor(), newAuthor()];
    await rows(
      `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
       VALUES (0, $2, 1, 1, 1, 3, sha256('broken'), $1, 'not JSON')`,
      [Buffer.from(broken.pubkey, 'hex'), Date.now()],
    );
    const [first, second] = [await ask(broken), await ask(fine)];
    const ended = await runExports();
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('not JSON');
    expect(await statusOf(first)).toMatchObject({
      status: 'failed',
      error: 'Making the file failed. Request it again.',
    });
    const runs = await readJobRuns(store.database.pool);
    expect(runs.find(({ job }) => job === 'export-personal')?.error).toContain('not JSON');
    expect((await runExports()).code).toBe(0);
    expect((await statusOf(second)).status).toBe('ready');
    const files = await readZip(Buffer.concat((await portionsOf(second)).map(({ portion }) => portion)));
    expect(files.get('events.jsonl')).toBe('');
  });
});

describe('minato personal-data', () => {
  it('lists requests by kind and status', async () => {
    const member = newAuthor();
    const wanted = { community: 1, pubkey: member.pubkey, kind: 'deletion', note: 'good bye' } as const;
    const request = await requestPersonal(store.database.pool, wanted, Date.now());
    const { requestId } = request as PersonalRequest;
    const list = await runCli(['personal-data', 'list', '--kind', 'deletion', '--status', 'pending'], env);
    expect(list).toMatchObject({ code: 0, stderr: '' });
    expect(list.stdout).toMatch(
      new RegExp(`^${requestId}  \\S+Z  deletion  pending    ${member.pubkey}  "good bye"\n$`),
    );
    const none = await runCli(['personal-data', 'list', '--kind', 'export', '--status', 'pending'], env);
    expect(none.stdout).toBe('no requests\n');
    expect((await runCli(['personal-data', 'list', '--kind', 'all'], env)).code).not.toBe(0);
  });

  it('writes the same zip to a file, also for a stranger, and writes an audit row', async () => {
    const path = join(folder, 'writer.zip');
    const { code, stdout, stderr } = await runCli(['personal-data', 'export', writer.pubkey, path], env);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    // Events, their ids, their outbox rows, and earlier requests of this file.
    expect(stderr).toMatch(/^(\d+ %, [\d,]+ rows\n)*60,0\d\d rows, \d+\.\d MiB\n$/);
    expect(await countLines(await readFile(path), 'events.jsonl')).toBe(EVENTS);
    const audit = await rows(
      `SELECT actor FROM audit_log WHERE action = 'personal-data.export' AND target = $1`,
      [writer.pubkey],
    );
    expect(audit).toEqual([{ actor: null }]);
  });

  it('overwrites a file only with --force, and leaves no partial file', async () => {
    const path = join(folder, 'kept.zip');
    await writeFile(path, 'precious');
    const refused = await runCli(['personal-data', 'export', newAuthor().pubkey, path], env);
    expect(refused).toMatchObject({
      code: 1,
      stderr: `minato: ${path} already exists. Use --force to overwrite it\n`,
    });
    expect(await readFile(path, 'utf8')).toBe('precious');
    const forced = await runCli(['personal-data', 'export', newAuthor().pubkey, path, '--force'], env);
    expect(forced.code).toBe(0);
    expect((await readZip(await readFile(path))).get('member.jsonl')).toBe('');
    const half = join(folder, 'half.zip');
    const { child, ended } = startCli(['personal-data', 'export', writer.pubkey, half], env);
    await eventually(
      'the file grows',
      async () => {
        const { length } = await readFile(half).catch(() => Buffer.alloc(0));
        return length > 100_000 ? true : undefined;
      },
      LONG_MS,
    );
    child.kill('SIGINT');
    expect(await ended).toMatchObject({ code: 130, stderr: 'Interrupted; nothing was written.\n' });
    await expect(readFile(half)).rejects.toThrow('ENOENT');
  });
});

describe('the memory of a node', () => {
  let child: ChildProcess;
  let http: string;

  beforeAll(async () => {
    await fill(modest, EVENTS + 1, EVENTS + FEW_EVENTS);
    await fill(tireless, EVENTS + FEW_EVENTS + 1, EVENTS + FEW_EVENTS + MANY_EVENTS);
    // The cost of these events for search, and in the window of the relay, does not matter here.
    await changeNodeSetting(store.database.pool, { key: 'node.memoryWindowMB', value: 0 }, Date.now());
    await rows(
      `INSERT INTO consumer_offsets (consumer, last_seq, generation, updated_at, paused_at)
       VALUES ('search', $1, 1, 1, 1)`,
      [EVENTS + FEW_EVENTS + MANY_EVENTS],
    );
    child = spawn(process.execPath, ['bin/minato.js', 'serve'], {
      cwd: fileURLToPath(new URL('../..', import.meta.url)),
      env: {
        ...process.env,
        ...env,
        MINATO_PORT: '0',
        MINATO_TOPIC_MODE: 'open',
        NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}`,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const line of createInterface({ input: child.stdout! })) {
      const address = /"address":"ws:([^"]+)"/.exec(line)?.[1];
      if (address === undefined) continue;
      http = `http:${address.replace(/\/$/, '')}`;
      break;
    }
    child.stdout!.resume();
  }, 180_000);
  afterAll(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    await once(child, 'exit');
  });

  const peakMB = async () => {
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
    return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1]) / 1_024;
  };
  /** Makes the kernel count the peak from now on. */
  const forgetPeak = () => writeFile(`/proc/${child.pid}/clear_refs`, '5');

  it.runIf(process.platform === 'linux')(
    'stays flat while it makes and sends the file of 100,000 events',
    async () => {
      const api = createApi(http);
      const url = '/v1/personal-data-export-requests';
      const ready = async (as: Author) => {
        const { body } = await api.ask<{ request_id: string }>('POST', url, { as });
        return eventually(
          'the file is ready',
          async () => {
            const path = `${url}/${body.request_id}`;
            const { body: now } = await api.ask<{ status: string; download_url: string }>('GET', path, {
              as,
            });
            if (now.status === 'ready') return now.download_url;
            // Polls slowly, to leave the CPU to the node.
            await new Promise((resolve) => setTimeout(resolve, 200));
            return undefined;
          },
          LONG_MS,
        );
      };
      const peakAfter = async <T>(work: () => Promise<T>): Promise<[T, number]> => {
        await forgetPeak();
        const done = await work();
        return [done, await peakMB()];
      };
      const fetched = async (link: string) => Buffer.from(await (await fetch(link)).arrayBuffer());
      const [few, madeFew] = await peakAfter(() => ready(modest));
      const [, sentFew] = await peakAfter(() => fetched(few));
      const [many, madeMany] = await peakAfter(() => ready(tireless));
      const [file, sentMany] = await peakAfter(() => fetched(many));
      expect(await countLines(file, 'events.jsonl')).toBe(MANY_EVENTS);
      expect(file.length).toBeGreaterThan(20_000_000);
      // Ten times as many events need hardly more memory.
      const grown = { made: madeMany - madeFew, sent: sentMany - sentFew };
      expect(grown.made, JSON.stringify(grown)).toBeLessThan(100);
      expect(grown.sent, JSON.stringify(grown)).toBeLessThan(100);
    },
  );
});
