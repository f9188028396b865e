/**
 * A member with many events, documents, contacts, sessions and audit rows is erased by the running node while
 * others post. It measures the events per second from the fence to the certificate, how long the others wait
 * for their OK meanwhile, and the peak memory of the node. Afterwards nothing of the member is left, and
 * everything of the others is there.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { type Connection, publish, withConnections } from '../client.js';
import { withDatabase } from '../database.js';
import { liveKey } from '../generate.js';
import { type Bench, type Findings, latency, type Row, type Sample, Skip } from '../measure.js';
import { nodeEnvironment, residentMegabytes, runCommand } from '../node.js';
import { untilUpToDate } from '../settle.js';
import type { BenchEvent } from '../sign.js';
import { outgoingOf, prepare } from './live.js';

const PORTION = 2_000;
const IN_FLIGHT = 100;
const OTHERS = 500;
const AROUND = 3_000;
const LOAD_GAP_MS = 10;
const POLL_MS = 100;
const ERASED_WITHIN_MS = 20 * 60_000;

export const erase: Row = {
  id: 'erase',
  title: 'erasing a member, under load',
  headline: 'perSecond',
  unit: 'events/s',
  main: true,
  once: true,
  needsStored: true,
  seconds: ({ eraseEvents }) => 10 + eraseEvents / 1_000,
  async measure(bench, findings) {
    if (bench.node === undefined) throw new Skip('only for a node that the bench booted');
    const pubkey = await post(bench);
    await untilUpToDate(bench);
    return withDatabase(bench, async (client) => {
      await fillAround(client, pubkey);
      return eraseUnderLoad(bench, findings, client, pubkey);
    });
  },
};

/** Posts events of one author, each naming somebody. */
async function post(bench: Bench): Promise<string> {
  const topic = `bench-erase-${Date.now()}`;
  const key = liveKey(bench.seed, topic);
  const [sample] = prepare(bench, topic, 1).events;
  const named = Array.from({ length: OTHERS }, (_, at) => at.toString(16).padStart(64, 'e'));
  let pubkey = '';
  await withConnections(bench.url, bench.sizes.ingestConnections, async (connections) => {
    for (let done = 0; done < bench.sizes.eraseEvents; done += PORTION) {
      const count = Math.min(PORTION, bench.sizes.eraseEvents - done);
      const events = Array.from({ length: count }, (_, at): BenchEvent => {
        const tags = [
          ['t', topic],
          ['p', named[(done + at) % OTHERS]!],
        ];
        const created_at = Math.floor(Date.now() / 1_000);
        return bench.sign({ kind: 1, created_at, tags, content: `${done + at} ${sample!.content}` }, key);
      });
      pubkey = events[0]!.pubkey;
      const { refused } = await publish(connections, events.map(outgoingOf), IN_FLIGHT);
      if (refused.length > 0) throw new Error(`refused: ${refused[0]}`);
    }
  });
  return pubkey;
}

/** Adds what else a member leaves: sessions, contacts, audit rows. */
async function fillAround(client: Client, pubkey: string): Promise<void> {
  const key = Buffer.from(pubkey, 'hex');
  const now = Date.now();
  await client.query(
    `INSERT INTO operator_sessions (community, created_at, expires_at, pubkey, token_hash)
     SELECT 1, $2::bigint, $2::bigint + 3600000, $1, sha256(n::text::bytea)
     FROM generate_series(1, $3::int) n`,
    [key, now, AROUND],
  );
  await client.query(
    `INSERT INTO audit_log (community, at, actor, action, target, details)
     SELECT 1, $2::bigint, $1, 'member.change', encode(sha256(n::text::bytea), 'hex'), '{}'
     FROM generate_series(1, $3::int) n`,
    [key, now, AROUND],
  );
}

async function eraseUnderLoad(
  bench: Bench,
  findings: Findings,
  client: Client,
  pubkey: string,
): Promise<Sample> {
  const key = Buffer.from(pubkey, 'hex');
  const since = Date.now();
  const others = async () => {
    const { rows } = await client.query<{ count: number }>(
      // Without the node's own events about its members, which change with them.
      `SELECT count(*) AS count FROM events
       WHERE hidden IS NULL AND pubkey <> $1 AND ingested_at < $2
         AND pubkey NOT IN (SELECT pubkey FROM node_keys)`,
      [key, since],
    );
    return rows[0]!.count;
  };
  const before = await others();
  const { pid } = bench.node!;
  const calm = residentMegabytes(pid);
  return withConnections(bench.url, 1, async ([connection]) => {
    const load = startLoad(bench, connection!);
    const request = await runCommand(
      ['erase', 'member', pubkey, '--yes', '--no-wait'],
      nodeEnvironment(join(bench.folder, 'data'), 0, bench.nodeEnv),
      bench.program,
    );
    if (request.code !== 0) throw new Error(`the erasure could not be requested: ${request.output}`);
    const { tookMs, peak, events } = await untilErased(client, pid);
    const latenciesMs = await load.stop();
    findings.note(
      `${events.toLocaleString('en')} events, ${AROUND.toLocaleString('en')} sessions and audit rows each; ` +
        'latency of the OK of others meanwhile',
    );
    findings.note(`memory ${calm.toFixed(0)} MB before, ${peak.toFixed(0)} at most`);
    if ((await others()) !== before) findings.fail('events of others are missing');
    const left = await client.query('SELECT 1 FROM events WHERE community = 1 AND pubkey = $1 LIMIT 1', [
      key,
    ]);
    if (left.rowCount !== 0) findings.fail('something of the member is left');
    return { perSecond: (events / tookMs) * 1_000, ...latency(latenciesMs), megabytes: peak };
  });
}

async function untilErased(
  client: Client,
  pid: number,
): Promise<{ tookMs: number; peak: number; events: number }> {
  let peak = 0;
  const deadline = performance.now() + ERASED_WITHIN_MS;
  while (performance.now() < deadline) {
    peak = Math.max(peak, residentMegabytes(pid));
    const { rows } = await client.query<{ fenced: number; completed: number | null; events: number }>(
      `SELECT fenced_at AS fenced, completed_at AS completed, (counted->>'postgres:events')::bigint AS events
       FROM erasures ORDER BY requested_at DESC LIMIT 1`,
    );
    const { fenced, completed, events } = rows[0]!;
    if (completed !== null) return { tookMs: completed - fenced, peak, events };
    await sleep(POLL_MS);
  }
  throw new Error('the member was not erased in time');
}

/** One post after another, at a steady pace. */
function startLoad(bench: Bench, connection: Connection): { stop(): Promise<number[]> } {
  const latenciesMs: number[] = [];
  let stopped = false;
  const send = async (): Promise<void> => {
    const topic = `bench-erase-load-${Date.now()}`;
    const key = liveKey(bench.seed, topic);
    for (let number = 0; !stopped; number += 1) {
      const event = bench.sign(
        { kind: 1, created_at: Math.floor(Date.now() / 1_000), tags: [['t', topic]], content: `${number}` },
        key,
      );
      const sent = await publish([connection], [outgoingOf(event)], 1);
      latenciesMs.push(...sent.latenciesMs);
      await sleep(LOAD_GAP_MS);
    }
  };
  const running = send();
  return {
    stop: async () => {
      stopped = true;
      await running;
      return latenciesMs;
    },
  };
}
