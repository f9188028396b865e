/** A node that computes and asserts trust, with a clock that the test moves, and ways to read its scores. */
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { expect } from 'vitest';
import { BOUNDS, type Job, type JobResult } from '../../../src/jobs/job.js';
import { runJob } from '../../../src/jobs/run.js';
import { trustPass } from '../../../src/trust/jobs.js';
import { CLAIMS, type Claim, scoringRules } from '../../../src/trust/rules.js';
import { readClaimKeys, readSweeps } from '../../../src/trust/scoring-rules.sql.js';
import { eventually } from '../cli.js';
import { type Asking, authorization, createApi, credential } from '../clients/api.js';
import { RawClient } from '../clients/client.js';
import { type Author, type Draft, sign } from '../events.js';
import { startTestNode, type TestNode } from '../node.js';

export const DAY = 86_400_000;

export interface Clock {
  now: number;
}

export interface Trusting extends TestNode {
  readonly clock: Clock;
  readonly api: ReturnType<typeof createApi>;
  /** Published at the time of the clock by default. */
  post(author: Author, draft?: Draft, path?: string): Promise<{ readonly id: string }>;
  /** Waits until everything that was sent is counted, computed and asserted. */
  settled(): Promise<void>;
  run(job: Job): Promise<JobResult>;
  /** Runs the daily pass once no score has to be computed by changed rules. Returns how many it repairs. */
  pass(): Promise<number>;
  /** A request signed at the time of the clock. */
  signed(as: Author, method: string, path: string, body?: unknown): Asking;
  /** Reads a score, of the default community by default. */
  ask<G = unknown>(claim: Claim, subject: string, path?: string): Promise<Score<G>>;
  /** The served assertions about somebody, in the order of the claims. */
  assertions(subject: string, path?: string): Promise<Assertion[]>;
}

export interface Score<G> {
  readonly subject: string;
  readonly claim: Claim;
  readonly score: number;
  readonly rank: number;
  readonly computed_at: number | null;
  readonly window_days: number;
  readonly assertion: string | null;
  readonly grounds: G;
}

export interface Assertion {
  readonly id: string;
  readonly pubkey: string;
  readonly created_at: number;
  readonly kind: number;
  readonly tags: string[][];
  readonly content: string;
  readonly sig: string;
}

export async function startTrusting(clock: Clock, env: Record<string, string> = {}): Promise<Trusting> {
  const folder = await mkdtemp(join(tmpdir(), 'minato-trust-'));
  const node = await startTestNode({
    trust: true,
    upkeepMs: 500,
    now: () => clock.now,
    env: { MINATO_DATA_DIR: folder, ...env },
  });
  const { pool } = node.database;
  const api = createApi(node.http);
  const clients = new Map<string, RawClient>();
  const clientAt = async (path: string): Promise<RawClient> => {
    const known = clients.get(path) ?? (await RawClient.connect(`${node.url}${path}`));
    clients.set(path, known);
    return known;
  };
  const settled = async (): Promise<void> => {
    await node.node.consumers!.drained();
    await eventually('everything is computed and asserted', async () => {
      await hasten(pool, clock.now);
      node.node.consumers!.hurry();
      return (await isSettled(pool, clock.now)) ? true : undefined;
    });
  };
  const run = async (job: Job): Promise<JobResult> => {
    const { store, communities, erasing, metrics } = node.node;
    const { database } = node;
    const signal = new AbortController().signal;
    const context = {
      database,
      store,
      communities,
      erasing,
      now: () => clock.now,
      signal,
      bounds: BOUNDS,
      metrics,
    };
    const result = await runJob(job, context);
    if (result === 'busy') throw new Error('another job is running');
    return result;
  };
  return {
    ...node,
    clock,
    api,
    post: async (author, draft = {}, path = '') => {
      const event = sign(author, { created_at: Math.floor(clock.now / 1_000), ...draft });
      expect(await (await clientAt(path)).publish(event)).toEqual([true, expect.any(String)]);
      return event;
    },
    settled,
    run,
    pass: async () => {
      await eventually('the rules are those of today', async () => {
        node.node.consumers!.hurry();
        return (await isOfToday(node)) ? true : undefined;
      });
      await settled();
      return (await run(trustPass)).changed;
    },
    signed: (as, method, path, body) => {
      const created_at = Math.floor(clock.now / 1_000);
      const event = credential(as, { method, url: node.http + path, body }, { created_at });
      return { headers: { authorization: authorization(event) }, ...(body === undefined ? {} : { body }) };
    },
    ask: async <G>(claim: Claim, subject: string, path = '') => {
      const { status, body } = await api.ask<Score<G>>('GET', `${path}/v1/trust/${claim}?subject=${subject}`);
      expect(status).toBe(200);
      return body;
    },
    assertions: async (subject, path = '') => {
      const { body } = await api.ask<{ keys: { claim: Claim; pubkey: string | null }[] }>(
        'GET',
        `${path}/v1/trust/keys`,
      );
      const keys = CLAIMS.map((claim) => body.keys.find((key) => key.claim === claim)?.pubkey);
      const { events } = await (await clientAt(path)).query({ kinds: [30_382], '#d': [subject] });
      return ([...events] as Assertion[]).sort(
        (one, other) => keys.indexOf(one.pubkey) - keys.indexOf(other.pubkey),
      );
    },
    close: async () => {
      for (const client of clients.values()) await client.close();
      await node.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Ends the wait of a changed density, which is otherwise a minute (DENSITY_REST_MS). */
export async function hasten(db: Pick<Pool, 'query'>, now: number): Promise<void> {
  await db.query('UPDATE trust_due SET due_at = $1 WHERE due_at > $1', [now]);
}

/** A score that is being asserted has a lease of a minute. */
async function isSettled(pool: Pool, now: number): Promise<boolean> {
  const { rows } = await pool.query<{ left: number }>(
    `SELECT (SELECT count(*) FROM trust_due WHERE due_at <= $1)
       + (SELECT count(*) FROM trust_scores
          WHERE changes_at <= $1 OR publish_at <= $1 OR publish_at / 1000 = asserted_at + 60) AS left`,
    [now],
  );
  return rows[0]!.left === 0;
}

async function isOfToday({ database, node }: TestNode): Promise<boolean> {
  const sweeps = await readSweeps(database.pool);
  const keys = await readClaimKeys(database.pool);
  return node.communities.all().every((community) => {
    const { id } = community;
    const own = CLAIMS.map((claim) => keys.get(`${id}/${claim}`));
    return sweeps.get(id)?.isDone === true && sweeps.get(id)?.rules === scoringRules(community, own);
  });
}

export interface LabelRow {
  readonly community: number;
  readonly pubkey: string;
  readonly label: string;
  readonly at: number;
  /** Seconds. */
  readonly lapsesAt: number;
  /** Topics of the labelled event; without them the person is labelled. */
  readonly topics?: readonly string[];
}

/** Writes a label as moderation does. */
export async function putLabel(
  db: Pick<Pool, 'query'>,
  { community, pubkey, label, at, lapsesAt, topics = [] }: LabelRow,
): Promise<string> {
  const row = {
    label_id: randomUUID(),
    community,
    created_at: at,
    signed_at: Math.floor(at / 1_000),
    lapses_at: lapsesAt,
    confidence: 1,
    label,
    target_pubkey: `\\x${pubkey}`,
    ...(topics.length > 0 ? { target_event: `\\x${randomBytes(32).toString('hex')}` } : {}),
    policy: '',
    topics,
  };
  await db.query('INSERT INTO labels SELECT * FROM jsonb_populate_record(NULL::labels, $1)', [row]);
  return row.label_id;
}
