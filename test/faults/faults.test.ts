/**
 * A few rounds of faults with a fresh seed, which is printed. `npm run test:faults` runs more of them, and
 * replays one by its seed. The pure parts of it are tested here as well.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finalizeEvent, type VerifiedEvent } from 'nostr-tools/pure';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { SCHEDULER_SCHEMA } from '../../src/jobs/job-runs.sql.js';
import { seedOf } from '../support/run-seed.js';
import { createTestDatabase } from '../support/servers/database.js';
import { seenIn } from './broken.js';
import { allPages, findInTables } from './checks/erasure.js';
import { personOf } from './keys.js';
import { expectedView, type Sent } from './model.js';
import { readOptions } from './options.js';
import {
  hasPeer,
  LINKS,
  PEER,
  PEER_LINKS,
  type PlannedFault,
  PROCESSES,
  planWorld,
  ROUNDS_PER_WORLD,
  SHARED,
} from './plan.js';

const ROUNDS = 2;
/** One of the worlds 0 to 3, of which the last one has a peer. */
const firstRoundOf = (seed: number) => (seed % 4) * ROUNDS_PER_WORLD;

describe('real nodes while things break', () => {
  it('keep every invariant', { timeout: 900_000 }, async ({ task }) => {
    const folder = await mkdtemp(join(tmpdir(), 'minato-faults-state-'));
    const seed = seedOf(task);
    const rounds = ['--from', `${firstRoundOf(seed)}`, '--rounds', `${ROUNDS}`];
    const args = ['--seed', `${seed}`, ...rounds, '--state', join(folder, 'state.json')];
    const child = spawn(process.execPath, ['--import', 'tsx', 'test/faults/main.ts', ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => {
      said += chunk;
      process.stdout.write(chunk);
    });
    const [code] = await once(child, 'exit');
    await rm(folder, { recursive: true, force: true });
    expect(code, said).toBe(0);
    expect(said.match(/^round \d+: ok, /gm)).toHaveLength(ROUNDS);
  });
});

describe('a plan', () => {
  it('follows from the seed and the world alone', () => {
    expect(planWorld(7, 3)).toEqual(planWorld(7, 3));
    expect(planWorld(7, 3)).not.toEqual(planWorld(8, 3));
    expect(planWorld(7, 3)).not.toEqual(planWorld(7, 4));
  });

  it('reaches every process and every link in every way, and every other fault', () => {
    const nameOf = (fault: PlannedFault) =>
      fault.fault === 'link'
        ? `${fault.how} ${fault.link}`
        : fault.fault === 'kill' && fault.atOk
          ? 'kill-at-ok'
          : fault.fault === 'kill' || fault.fault === 'freeze'
            ? `${fault.fault} ${fault.process}`
            : fault.fault === 'endpoint'
              ? `${fault.how} endpoint of ${fault.of}`
              : fault.fault;
    const seen = new Set<string>();
    for (let world = 0; world < 200; world += 1)
      for (const { faults } of planWorld(1, world).rounds)
        for (const fault of faults) seen.add(nameOf(fault));
    const ways = ['cut', 'refuse', 'stall', 'slow', 'half-open', 'lose-answers'];
    const wanted = [
      ...[...PROCESSES, 'peer'].flatMap((name) => [`kill ${name}`, `freeze ${name}`]),
      ...['node', 'peer'].flatMap((of) => [`kill endpoint of ${of}`, `freeze endpoint of ${of}`]),
      ...[...LINKS, ...PEER_LINKS].flatMap((name) => ways.map((how) => `${how} ${name}`)),
      ...['disk-full', 'clock', 'client', 'lost-lease', 'kill-at-ok'],
    ];
    expect([...seen].sort()).toEqual(wanted.sort());
  });

  it('has deletions before and after their targets, and each other operation', () => {
    const { rounds, events } = planWorld(1, 0);
    expect(rounds).toHaveLength(ROUNDS_PER_WORLD);
    const sentAt = new Map<number, number>();
    const orders = new Set<string>();
    const kinds = new Set<string>();
    for (const [round, { operations }] of rounds.entries())
      for (const operation of operations) {
        kinds.add(operation.do);
        if (operation.do === 'post') sentAt.set(operation.event, round * 100_000 + operation.atMs);
      }
    for (const { number, deletes } of events)
      for (const target of deletes?.ids ?? [])
        orders.add((sentAt.get(number) ?? 0) < (sentAt.get(target) ?? 0) ? 'before' : 'after');
    expect([...orders].sort()).toEqual(['after', 'before']);
    for (const name of ['post', 'remove', 'erase', 'request-topic']) expect(kinds).toContain(name);
  });
});

describe('a plan with a peer', () => {
  it('shares events both ways, and never holds what is posted at the peer', () => {
    expect([0, 1, 2, 3, 7].filter(hasPeer)).toEqual([3, 7]);
    const { rounds, events } = planWorld(1, 3);
    const operations = rounds.flatMap((round) => round.operations);
    const shared = operations.flatMap((one) =>
      one.do === 'post' && events[one.event]!.community === SHARED ? [one] : [],
    );
    expect(new Set(shared.flatMap(({ instances }) => instances))).toEqual(new Set([0, 1, PEER]));
    const held = shared.filter(({ event }) => events[event]!.isHeld);
    expect(held.length).toBeGreaterThan(0);
    expect(held.flatMap(({ instances }) => instances)).not.toContain(PEER);
    expect(planWorld(1, 2).events.some(({ community }) => community === SHARED)).toBe(false);
  });
});

describe('a run with a broken rule', () => {
  it('names the checks of the first round that has violations', () => {
    const output = [
      'round 0: ok, 9 events, 5.0 s; no fault',
      'round 1: 3 VIOLATIONS, 9 events, 5.0 s; kill a',
      '  I1 I4 I5 I6: default at port 1, by kinds: 1 missing: x',
      '  I10: posts by cursor: 1 missing: x',
      '  I10: a topic by cursor: 1 missing: x',
      '  a logged last:',
      '    {"level":40,"error":"Error: x","msg":"the worker: it failed"}',
      '  load average 1.0 on 2 cores',
    ].join('\n');
    expect(seenIn(output)).toEqual({ round: 1, checks: ['I1 I4 I5 I6', 'I10'] });
    expect(seenIn('round 0: ok, 9 events, 5.0 s; no fault')).toBeUndefined();
  });
});

describe('the model', () => {
  const [alice, bob] = [personOf('alice'), personOf('bob')];
  const sign = (by: typeof alice, kind: number, created_at: number, tags: string[][], content = '') =>
    finalizeEvent({ kind, created_at, tags, content }, by.secret);
  const sent = (event: VerifiedEvent, more: Partial<Sent> = {}): Sent => ({
    community: 0,
    event,
    isForged: false,
    isHeld: false,
    accepted: true,
    message: '',
    ...more,
  });
  const view = (all: readonly Sent[], removed: readonly string[] = [], erased: readonly string[] = []) =>
    expectedView(all, 0, { removed: new Set(removed), erased: new Set(erased) }, { from: 1_000, to: 1_060 });

  it('serves the newest version of a key, the lowest id on a tie, in any order', () => {
    const versions = [10, 20, 20].map((at, number) => sent(sign(alice, 0, at, [], `${number}`)));
    const [best] = versions.slice(1).sort((a, b) => (a.event.id < b.event.id ? -1 : 1));
    for (const all of [versions, [...versions].reverse()])
      expect([...view(all).served.keys()]).toEqual([best!.event.id]);
  });

  it('obeys deletions of the author only, also when they came first', () => {
    const post = sent(sign(alice, 1, 10, []));
    const own = sent(sign(alice, 5, 10, [['e', post.event.id]]));
    const foreign = sent(sign(bob, 5, 10, [['e', post.event.id]]));
    expect([...view([own, post]).served.keys()]).toEqual([own.event.id]);
    expect([...view([foreign, post]).served.keys()]).toEqual([foreign.event.id, post.event.id]);
    const refused = { ...own, accepted: false };
    expect(view([refused, post]).served.has(post.event.id)).toBe(true);
  });

  it('knows which version a node may serve that never got a newer, deleted one', () => {
    const article = (at: number) => sent(sign(alice, 30_023, at, [['d', 'x']], `${at}`));
    const [first, second, third] = [article(10), article(20), article(30)] as const;
    const byId = sent(sign(alice, 5, 40, [['e', third.event.id]]));
    const seen = view([first, second, third, byId]);
    expect([...seen.served.keys()]).toEqual([byId.event.id]);
    expect([...seen.behindGone]).toEqual([first.event.id, second.event.id]);
    expect(view([first, second, third]).behindGone.size).toBe(0);
    const byAddress = sent(sign(alice, 5, 40, [['a', `30023:${alice.pubkey}:x`]]));
    expect(view([first, second, third, byAddress]).behindGone.size).toBe(0);
  });

  it('knows what a peer may keep: events of an erased member whose request never reached it', () => {
    const [post, held] = [sent(sign(alice, 1, 10, [])), sent(sign(alice, 1, 11, []), { isHeld: true })];
    const own = sent(sign(alice, 5, 12, [['e', post.event.id]]));
    const foreign = sent(sign(bob, 1, 10, []));
    const seen = view([post, held, own, foreign], [], [alice.pubkey]);
    expect([...seen.ofErased]).toEqual([post.event.id, own.event.id]);
    expect([...seen.served.keys()]).toEqual([foreign.event.id]);
  });

  it('leaves open what expires now or is being erased; held, removed and forged is hidden', () => {
    const expiring = [999, 1_030, 2_000].map((at) => sent(sign(alice, 1, 10, [['expiration', `${at}`]])));
    const seen = view(expiring);
    expect([...seen.open]).toEqual([expiring[1]!.event.id]);
    expect([...seen.served.keys()]).toEqual([expiring[2]!.event.id]);
    const post = sent(sign(bob, 1, 10, []));
    expect([...view([post], [], [bob.pubkey]).open]).toEqual([post.event.id]);
    expect(view([post], [post.event.id]).served.size).toBe(0);
    expect(view([{ ...post, isHeld: true }]).served.size).toBe(0);
    expect(view([{ ...post, isForged: true }]).served.size).toBe(0);
    expect(view([{ ...post, community: 1 }]).served.size).toBe(0);
  });
});

describe('the search for an erased key', () => {
  const { pubkey } = personOf('carol');

  it('looks into tables of every schema, as bytes, text, arrays and JSON', async () => {
    const database = await createTestDatabase();
    const client = new pg.Client(database.connection);
    await client.connect();
    try {
      await client.query(`CREATE SCHEMA "Odd name"; CREATE TABLE "Odd name".things (
        number bigint, bytes bytea, words varchar(100), list text[], keys bytea[], body jsonb)`);
      expect(await findInTables(client, pubkey)).toEqual([]);
      const bytes = Buffer.from(pubkey, 'hex');
      await client.query(`INSERT INTO "Odd name".things VALUES (1, $1, $2, $3, $4, $5)`, [
        Buffer.concat([Buffer.from('x'), bytes]),
        `of ${pubkey}`,
        ['a', pubkey],
        [bytes],
        { by: pubkey },
      ]);
      await client.query(
        `SELECT ${SCHEDULER_SCHEMA}.add_job('a-job', json_build_object('member', $1::text))`,
        [pubkey],
      );
      expect((await findInTables(client, pubkey)).sort()).toEqual([
        ...['body', 'bytes', 'keys', 'list', 'words'].map((name) => `"Odd name".things.${name}: 1`),
        `${SCHEDULER_SCHEMA}._private_jobs.payload: 1`,
      ]);
    } finally {
      await client.end();
      await database.drop();
    }
  });

  it('reads every page of DynamoDB, and a list without an end is an error', async () => {
    const pages = [['a'], [], ['b', 'c']];
    const read = async (after = -1) => ({
      part: pages[after + 1]!,
      next: after + 2 < pages.length ? after + 1 : undefined,
    });
    expect(await allPages(read)).toEqual(['a', 'b', 'c']);
    await expect(allPages(async () => ({ part: [], next: 1 }))).rejects.toThrow('more than');
  });
});

describe('options', () => {
  it('have a fresh seed by default, and refuse what is no number', () => {
    expect(readOptions([], () => 0.5).seed).toBe(500_000_000);
    expect(readOptions(['--seed', '7', '--rounds', '20'])).toMatchObject({ seed: 7, rounds: 20, from: 0 });
    expect(() => readOptions(['--rounds', 'many'])).toThrow('--rounds must be a whole number');
    expect(() => readOptions(['--resume'])).toThrow('--seed');
  });
});
