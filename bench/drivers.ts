/**
 * `pg` or `postgres` (postgres.js)? The two jobs that matter here, on the same embedded server: a batch of
 * 500 events written by one statement, and a page of 500 rows read. Run: node --import tsx bench/drivers.ts
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import postgres from 'postgres';
import { hexArray, int8Array, textArray } from '../src/postgres/binary.js';
import { startEmbedded } from '../src/postgres/embedded.js';

const BATCH = 500;
const BATCHES = 40;
const PAGES = 400;
const REPEATS = 3;
const payload = JSON.stringify({
  content: 'x'.repeat(200),
  tags: Array.from({ length: 10 }, () => ['p', 'a'.repeat(64)]),
});
const INSERT = 'INSERT INTO t SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[])';
const PAGE = 'SELECT seq, id, payload FROM t WHERE seq > $1 ORDER BY seq LIMIT 500';

type Job = (batch: number) => Promise<unknown>;

async function perSecond(times: number, rows: number, job: Job): Promise<{ rate: number; cpuMs: number }> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  for (let i = 0; i < times; i++) await job(i);
  const seconds = (performance.now() - start) / 1_000;
  const used = process.cpuUsage(cpu);
  return { rate: Math.round((times * rows) / seconds), cpuMs: Math.round((used.user + used.system) / 1_000) };
}

function batchOf(batch: number) {
  const seqs = Array.from({ length: BATCH }, (_, i) => batch * BATCH + i);
  const ids = seqs.map(() => randomBytes(32).toString('hex'));
  return { seqs, ids, payloads: seqs.map(() => payload) };
}

const folder = await mkdtemp(join(tmpdir(), 'minato-drivers-'));
const server = await startEmbedded(folder, { info: () => {}, warn: () => {}, error: console.error });
const client = new pg.Client(server.connection);
await client.connect();
const sql = postgres({ ...server.connection, max: 1, onnotice: () => {} });
const batches = Array.from({ length: BATCHES }, (_, i) => batchOf(i));

const jobs: Record<string, [times: number, rows: number, job: Job]> = {
  'write, pg, binary arrays': [
    BATCHES,
    BATCH,
    (i) => {
      const { seqs, ids, payloads } = batches[i]!;
      return client.query({
        name: 'w',
        text: INSERT,
        values: [int8Array(seqs), hexArray(ids), textArray(payloads)],
      });
    },
  ],
  'write, pg, text arrays': [
    BATCHES,
    BATCH,
    (i) => {
      const { seqs, ids, payloads } = batches[i]!;
      return client.query({ name: 'v', text: INSERT, values: [seqs, ids.map((id) => `\\x${id}`), payloads] });
    },
  ],
  'write, postgres.js': [
    BATCHES,
    BATCH,
    (i) => {
      const { seqs, ids, payloads } = batches[i]!;
      return sql.unsafe(INSERT, [seqs, ids.map((id) => `\\x${id}`), payloads], { prepare: true });
    },
  ],
  'read, pg': [
    PAGES,
    500,
    (i) => client.query({ name: 'r', text: PAGE, values: [(i * 37) % 10_000], rowMode: 'array' }),
  ],
  'read, postgres.js': [PAGES, 500, (i) => sql.unsafe(PAGE, [(i * 37) % 10_000], { prepare: true }).values()],
};

for (const [name, [times, rows, job]] of Object.entries(jobs)) {
  const runs = [];
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    if (name.startsWith('write')) {
      await client.query('DROP TABLE IF EXISTS t');
      await client.query('CREATE TABLE t (seq bigint PRIMARY KEY, id bytea, payload text)');
    }
    runs.push(await perSecond(times, rows, job));
  }
  runs.sort((a, b) => a.rate - b.rate);
  const median = runs[1]!;
  console.log(`${name.padEnd(28)} ${String(median.rate).padStart(8)} rows/s, ${median.cpuMs} ms CPU here`);
}
await sql.end();
await client.end();
await server.stop();
await rm(folder, { recursive: true, force: true });
