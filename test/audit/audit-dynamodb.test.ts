/**
 * The audit log in DynamoDB, on Amazon's DynamoDB Local behind a proxy that interferes. Rows are moved
 * without loss or duplicates, read from both stores, and erased from both by the rule of their community. A
 * call that fails half-way says so, and the next call finishes the work.
 */
import { randomBytes } from 'node:crypto';
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { type AuditEntry, type AuditFilter, listAudit } from '../../src/audit/audit.sql.js';
import { DynamodbAudit } from '../../src/audit/dynamodb.js';
import { forgetAudit, shipAudit } from '../../src/audit/jobs.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { type Settings, settingsFrom } from '../../src/communities/rules-settings.js';
import { auditDeleters } from '../../src/erasure/stores/audit.js';
import type { Deleter } from '../../src/erasure/stores/deleter.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type JobContext } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { writePersonalFile } from '../../src/personal-data/file.js';
import { findPerson } from '../../src/personal-data/personal-data.sql.js';
import { eventually, runCli } from '../support/cli.js';
import { createApi } from '../support/clients/api.js';
import { readZip, rowsOf } from '../support/clients/zip.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { CREDENTIALS, DynamodbProxy, TestDynamodb } from '../support/servers/dynamodb.js';

const boss = newAuthor();
const START = Date.now() - 10 * DAY_MS;

let dynamodb: TestDynamodb;
let proxy: DynamodbProxy;
let relay: TestNode;
/** One client through the proxy, one directly. */
let archive: DynamodbAudit;
let direct: DynamodbAudit;
let context: JobContext;
/** Two communities for each test. The log does not check that they exist. */
let [art, sea] = [1_000, 1_001];
/** Communities that exist. */
let [club, quay, pier] = [0, 0, 0];

beforeAll(async () => {
  dynamodb = await TestDynamodb.start();
  proxy = await DynamodbProxy.start(dynamodb.url);
  const { endpoint } = proxy.place();
  relay = await startTestNode({
    env: { DYNAMODB_ENDPOINT: endpoint, MINATO_ADMIN_PUBKEYS: boss.pubkey },
    roles: ['api'],
  });
  const add = (slug: string) => addCommunity(relay.database.pool, slug, undefined, Date.now());
  [club, quay, pier] = [await add('club'), await add('quay'), await add('pier')];
  archive = new DynamodbAudit(proxy.place());
  direct = new DynamodbAudit({ ...proxy.place(), endpoint: dynamodb.url });
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  context = {
    database: relay.database,
    store,
    communities,
    erasing,
    now: Date.now,
    signal,
    bounds: BOUNDS,
    audit: archive,
  };
});
afterAll(async () => {
  await relay?.close();
  await archive?.close();
  await direct?.close();
  await proxy?.stop();
  await dynamodb?.stop();
});
beforeEach(async () => {
  proxy.interfere = () => undefined;
  [art, sea] = [art + 2, sea + 2];
  await query('DELETE FROM audit_log');
});

const query = async <T extends object>(text: string, values: unknown[] = []): Promise<T[]> =>
  (await relay.database.pool.query<T>(text, values)).rows;
const waiting = async (community: number) =>
  (
    await query<{ rows: number }>('SELECT count(*) AS rows FROM audit_log WHERE community = $1', [community])
  )[0]!.rows;
const ship = (changed: Partial<JobContext> = {}) => runJob(shipAudit, { ...context, ...changed });
const bytes = (hex: string) => Buffer.from(hex, 'hex');

/**
 * Of each four rows one is by the person, one is about them, one names them in its details, one has their
 * npub in a note.
 */
const SEED = `INSERT INTO audit_log (community, at, actor, action, target, details)
  SELECT $1, $2::bigint + i / 2, CASE i % 4 WHEN 0 THEN $3::bytea ELSE $4::bytea END, 'member.change',
    CASE i % 4 WHEN 1 THEN $5::text ELSE 'kukuri:topic' END,
    CASE i % 4 WHEN 2 THEN jsonb_build_object('pubkey', $5::text, 'number', i)
      WHEN 3 THEN jsonb_build_object('note', 'about "' || $6::text || '"')
      ELSE '{"quota": 1.5, "old": null}' END
  FROM generate_series(0, $7::int - 1) i`;

/** Two rows share each millisecond. */
async function seed(community: number, pubkey: string, rows: number, at = START): Promise<void> {
  const who = [bytes(pubkey), bytes(boss.pubkey), pubkey, npubEncode(pubkey)];
  await query(SEED, [community, at, ...who, rows]);
}

async function list(community: number, limit = 200, between?: () => Promise<unknown>): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = [];
  let cursor: string | undefined;
  do {
    const page = await listAudit(relay.database.pool, community, { limit, cursor }, (...asked) =>
      archive.newest(...asked),
    );
    if (isDenial(page)) throw new Error(page.denied);
    entries.push(...page.items);
    cursor = page.cursor;
    await between?.();
  } while (cursor !== undefined);
  return entries;
}

const hash = randomBytes(32).toString('hex');
const ALIAS = `erased:${hash.slice(0, 16)}`;

function deletersOf(
  policy: Settings['erasure.auditLog'],
  { through = archive, days = 365, now = Date.now } = {},
): [Deleter, Deleter] {
  const changed = new Map<string, unknown>([
    ['erasure.auditLog', policy],
    ['erasure.auditKeepDays', days],
  ]);
  return auditDeleters({
    pool: relay.database.pool,
    dynamodb: through,
    settingsOf: () => settingsFrom(changed),
    now,
    hashOf: () => hash,
  }) as [Deleter, Deleter];
}

const quiet = async () => undefined;
const member = (community: number, pubkey: string, until?: number) => ({
  type: 'member' as const,
  community,
  pubkey,
  ...(until === undefined ? {} : { until }),
});
const counts = (deleters: readonly Deleter[], subject: Parameters<Deleter['count']>[0]) =>
  Promise.all(deleters.map((one) => one.count(subject)));
async function eraseFrom(deleters: readonly Deleter[], subject: Parameters<Deleter['count']>[0]) {
  const gone: number[] = [];
  for (const deleter of deleters) gone.push(await deleter.delete(subject, quiet));
  return gone;
}

describe('a filter', () => {
  it('selects the rows that match, also between two times', async () => {
    const entries = Array.from({ length: 40 }, (_, n) => ({
      community: art,
      position: n + 1,
      at: START + n,
      actor: n % 2 === 0 ? boss.pubkey : null,
      action: n % 3 === 0 ? ('topic.block' as const) : ('topic.change' as const),
      target: `topic-${n % 4}`,
      details: {},
    }));
    await direct.put(entries);
    const filters = [
      {},
      { actor: boss.pubkey },
      { action: 'topic.block' as const },
      { target: 'topic-1', since: START + 5, until: START + 25 },
      { actor: boss.pubkey, action: 'topic.block' as const, target: 'topic-0' },
      { since: START + 30, until: START + 10 },
    ];
    for (const filter of filters) {
      const { actor, action, target, since = 0, until = Number.MAX_SAFE_INTEGER } = filter as AuditFilter;
      const expected = entries
        .filter((one) => actor === undefined || one.actor === actor)
        .filter((one) => action === undefined || one.action === action)
        .filter((one) => target === undefined || one.target === target)
        .filter(({ at }) => at >= since && at <= until && at < START + 38)
        .map(({ position }) => position)
        .reverse();
      const found = await direct.newest(art, [START + 38, 0], 100, filter);
      expect(found.map(({ position }) => position)).toEqual(expected);
    }
  });
});

describe('moving', () => {
  it('a row leaves PostgreSQL only once it is in DynamoDB; a kill between does not double it', async () => {
    await seed(art, newAuthor().pubkey, 240);
    const before = await list(art);
    await query(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'killed here'; END $$;
      CREATE TRIGGER fail BEFORE DELETE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION fail()`);
    await expect(ship()).rejects.toThrow('killed here');
    expect(await waiting(art)).toBe(240);
    expect(await direct.count({ community: art })).toBe(100);
    expect(await list(art, 7)).toEqual(before);
    await query('DROP FUNCTION fail CASCADE');

    let lost = false;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'BatchWriteItem' || lost) return undefined;
      lost = true;
      return { loseAnswer: true };
    };
    expect(await dryRunJob(shipAudit, context)).toEqual([{ reason: 'waiting', class: 'audit', rows: 240 }]);
    expect(await ship()).toEqual({ changed: 240, more: false });
    expect(lost).toBe(true);
    expect(await waiting(art)).toBe(0);
    expect(await direct.count({ community: art })).toBe(240);
    expect(await list(art, 33)).toEqual(before);
  });

  it('the table is created at the first use, also by two workers at once', async () => {
    await seed(art, newAuthor().pubkey, 30);
    const entries = (await list(art)).map((entry) => ({ ...entry, community: art }));
    const both = [1, 2].map(() => new DynamodbAudit(proxy.place('first.use-')));
    expect(await both[0]!.state()).toBeUndefined();
    await Promise.all(both.map((one) => one.put(entries)));
    expect(await both[1]!.state()).toBe('ACTIVE');
    expect(await both[1]!.count({ community: art })).toBe(30);
    await Promise.all(both.map((one) => one.close()));
  });

  it('without DynamoDB the rows stay', async () => {
    await seed(art, newAuthor().pubkey, 4);
    expect(await ship({ audit: undefined })).toEqual({ changed: 0, more: false });
    expect(await dryRunJob(shipAudit, { ...context, audit: undefined })).toEqual([]);
    expect(await waiting(art)).toBe(4);
  });

  it('a row that is too large for an item stays, is read where it is, and blocks no other row', async () => {
    const long = JSON.stringify({ text: 'x'.repeat(450_000) });
    await query(
      `INSERT INTO audit_log (community, at, action, target, details)
       VALUES ($1, $2, 'member.change', 'x', $3)`,
      [art, START, long],
    );
    await seed(art, newAuthor().pubkey, 3, START + 1);
    expect(await ship()).toEqual({ changed: 3, more: false });
    expect(await waiting(art)).toBe(1);
    expect((await list(art)).map(({ target }) => target.length)).toHaveLength(4);
  });

  it('a page has each row once while rows move between and within its two reads', async () => {
    await seed(art, newAuthor().pubkey, 120);
    const positions = (await list(art)).map(({ position }) => position);
    const some = { bounds: { rows: 9, batches: 1 }, audit: direct };
    let moving = 0;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'Query') return undefined;
      moving += 1;
      return { before: () => ship(some), after: () => ship(some) };
    };
    expect((await list(art, 17, () => ship(some))).map(({ position }) => position)).toEqual(positions);
    expect(moving).toBeGreaterThan(6);
    expect(await waiting(art)).toBe(0);
  });
});

describe('an erasure', () => {
  const [alice, bob] = [newAuthor().pubkey, newAuthor().pubkey];

  /** Three of four rows are in DynamoDB; two members, two communities. */
  async function seedAll(rows: number): Promise<void> {
    for (const community of [art, sea])
      for (const pubkey of [alice, bob]) await seed(community, pubkey, rows);
    await ship({ bounds: { rows: 100, batches: Math.floor((rows * 3) / 100) }, audit: direct });
  }

  const rest = (deleters: readonly Deleter[]) =>
    Promise.all([member(art, bob), member(sea, alice), member(sea, bob)].map((who) => counts(deleters, who)));
  const sum = (numbers: readonly number[]) => numbers.reduce((one, two) => one + two, 0);

  it('deletes the rows that name the member, and no others', async () => {
    await seedAll(600);
    const deleters = deletersOf('delete');
    const [here, there] = await counts(deleters, member(art, alice));
    expect(here! + there!).toBe(600);
    const others = await rest(deleters);
    // First only up to a time: two rows share each millisecond.
    const until = Math.floor(START / 1_000);
    const first = sum(await counts(deleters, member(art, alice, until)));
    expect(first).toBe(Math.min(600, 2 * (1_000 - (START % 1_000))));
    expect(sum(await eraseFrom(deleters, member(art, alice, until)))).toBe(first);
    let counted = 0;
    for (const deleter of deleters)
      await deleter.delete(member(art, alice), async (taken) => {
        counted += taken;
      });
    expect(counted).toBe(600 - first);
    expect(await counts(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await eraseFrom(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await rest(deleters)).toEqual(others);

    const community = { type: 'community' as const, community: sea };
    expect(sum(await eraseFrom(deletersOf('keep'), community))).toBe(1_200);
    expect(await counts(deletersOf('keep'), community)).toEqual([0, 0]);
    expect(sum(await counts(deleters, member(art, bob)))).toBe(600);
  });

  it('anonymises: the rows stay and name nobody, in both stores', async () => {
    await seedAll(120);
    const deleters = deletersOf('anonymise');
    const before = await list(art);
    const others = await rest(deleters);
    expect(sum(await eraseFrom(deleters, member(art, alice)))).toBe(120);
    expect(await counts(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await eraseFrom(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await rest(deleters)).toEqual(others);
    const expected = before.map((entry) => {
      const text = JSON.stringify(entry).replaceAll(npubEncode(alice), ALIAS);
      const { actor, ...others } = JSON.parse(text.replaceAll(alice, ALIAS)) as AuditEntry;
      if (actor !== ALIAS) return { ...others, actor };
      return { ...others, actor: null, details: { ...others.details, actor: ALIAS } };
    });
    expect(await list(art)).toEqual(expected);
    expect(JSON.stringify(expected)).toContain(bob);
    // A row that was anonymised before the move arrives anonymised.
    await ship();
    expect(await list(art)).toEqual(expected);
  });

  it('two erasures of one row at the same time leave neither name in it', async () => {
    await query(
      `INSERT INTO audit_log (community, at, actor, action, target, details)
       VALUES ($1, $2, $3, 'member.change', $4, '{}')`,
      [art, START, bytes(alice), bob],
    );
    await ship();
    const [, second] = deletersOf('anonymise', { through: direct });
    let met = false;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'UpdateItem' || met) return undefined;
      met = true;
      return { before: () => second.delete(member(art, bob), quiet) };
    };
    const [, first] = deletersOf('anonymise');
    expect(await first.delete(member(art, alice), quiet)).toBe(1);
    expect(met).toBe(true);
    expect(await list(art)).toMatchObject([{ actor: null, target: ALIAS, details: { actor: ALIAS } }]);
  });

  it('keeps: says what stays, until when and why, and deletes rows past their days', async () => {
    const now = Date.now();
    await seed(art, alice, 40, now - 2 * DAY_MS);
    await seed(art, alice, 60, now - 9 * DAY_MS);
    await ship({ bounds: { rows: 50, batches: 1 } });
    const deleters = deletersOf('keep', { days: 5, now: () => now });
    const kept = await Promise.all(deleters.map((one) => one.kept!(member(art, alice))));
    expect(sum(kept.map((one) => one?.rows ?? 0))).toBe(40);
    expect(Math.max(...kept.map((one) => one?.until ?? 0))).toBe(now - 2 * DAY_MS + 19 + 5 * DAY_MS);
    expect(kept.find((one) => one !== undefined)?.why).toMatch(/erasure\.auditLog.*keep.*5 days/);
    expect(sum(await counts(deleters, member(art, alice)))).toBe(60);
    expect(sum(await eraseFrom(deleters, member(art, alice)))).toBe(60);
    expect(await counts(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await list(art)).toHaveLength(40);
    // Everything to erase is older than what is kept.
    const early = member(art, alice, Math.floor((now - 8 * DAY_MS) / 1_000));
    expect(await Promise.all(deleters.map((one) => one.kept!(early)))).toEqual([undefined, undefined]);
    for (const policy of ['delete', 'anonymise'] as const)
      expect(await deletersOf(policy)[1].kept!(member(art, alice))).toBeUndefined();
  });

  it('waits for rows that are being moved, so that none arrives after it', async () => {
    await seed(art, alice, 20);
    const deleters = deletersOf('anonymise', { through: direct });
    let erasing: Promise<unknown> = Promise.resolve();
    proxy.interfere = ({ operation }) => {
      if (operation !== 'BatchWriteItem') return undefined;
      const waits = eventually('the erasure waits', async () => {
        const locks = await query(`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`);
        return locks.length > 0 ? true : undefined;
      });
      erasing = eraseFrom(deleters, member(art, alice));
      return { before: () => Promise.race([erasing, waits]) };
    };
    await ship();
    await erasing;
    expect(await counts(deleters, member(art, alice))).toEqual([0, 0]);
    expect(await list(art)).toHaveLength(20);
  });

  it('retries unprocessed items, then says how many are left, and counts none of them', async () => {
    await seed(art, alice, 100);
    await ship();
    const [, deleter] = deletersOf('delete');
    let batches = 0;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'BatchWriteItem') return undefined;
      batches += 1;
      return { handBack: batches <= 2 ? 10 : 3 };
    };
    let counted = 0;
    const progress = async (taken: number) => {
      counted += taken;
    };
    await expect(deleter.delete(member(art, alice), progress)).rejects.toThrow(
      /did not write 3 of 25 rows in 5 tries/,
    );
    expect(batches).toBe(5);
    expect(counted).toBe(22);
    expect(await deleter.count(member(art, alice))).toBe(78);
    batches = 0;
    proxy.interfere = ({ operation }) => {
      if (operation !== 'BatchWriteItem') return undefined;
      batches += 1;
      return batches <= 2 ? { handBack: 10 } : undefined;
    };
    expect(await deleter.delete(member(art, alice), progress)).toBe(78);
    expect(counted).toBe(100);
    // The same while moving: unprocessed rows are not deleted here.
    await seed(art, bob, 30);
    proxy.interfere = ({ operation }) => (operation === 'BatchWriteItem' ? { handBack: 5 } : undefined);
    await expect(ship()).rejects.toThrow(/did not write 5 of 25 rows/);
    expect(await waiting(art)).toBe(30);
  });

  it('stops when the progress callback throws', async () => {
    await seed(art, alice, 60);
    await ship();
    const [, deleter] = deletersOf('delete');
    const stop = () => Promise.reject(new Error('held'));
    await expect(deleter.delete(member(art, alice), stop)).rejects.toThrow('held');
    expect(await deleter.count(member(art, alice))).toBe(35);
  });
});

it('the file of a person has moved rows in the same form as other rows', async () => {
  const person = newAuthor().pubkey;
  await seed(art, person, 8);
  await seed(art, newAuthor().pubkey, 8);
  const file = async (audit?: DynamodbAudit) => {
    const client = await relay.database.connect();
    const pieces: Buffer[] = [];
    await writePersonalFile(
      {
        client,
        person: await findPerson(client, art, person),
        community: { slug: 'art', name: 'Art' },
        now: Date.now(),
        signal: new AbortController().signal,
        audit,
      },
      async (piece) => {
        pieces.push(piece);
      },
    );
    await client.end();
    return rowsOf(await readZip(Buffer.concat(pieces)), 'audit-log');
  };
  const before = await file();
  expect(before).toHaveLength(6);
  // As after a kill during a move: some rows are in both stores.
  await direct.put((await list(art)).slice(4, 12).map((entry) => ({ ...entry, community: art })));
  expect(await file(archive)).toEqual(before);
  await ship({ bounds: { rows: 5, batches: 1 } });
  expect(await file(archive)).toEqual(before);
  await ship();
  expect(await file(archive)).toEqual(before);
  expect(JSON.stringify(before)).not.toContain(boss.pubkey);
});

it('rows past erasure.auditKeepDays are deleted from both stores, only where the log is kept', async () => {
  const { pool } = relay.database;
  await writeSetting(pool, club, 'erasure.auditLog', 'keep', Date.now());
  for (const community of [quay, club])
    await writeSetting(pool, community, 'erasure.auditKeepDays', 8, Date.now());
  await eventually('the settings are effective', () =>
    relay.node.communities.get(club)?.settings['erasure.auditKeepDays'] === 8 ? true : undefined,
  );
  for (const community of [club, quay]) await seed(community, newAuthor().pubkey, 60);
  await seed(club, newAuthor().pubkey, 10, Date.now() - DAY_MS);
  await ship({ bounds: { rows: 40, batches: 1 } });
  expect(await dryRunJob(forgetAudit, context)).toEqual([{ reason: 'past', class: 'audit', rows: 60 }]);
  expect(await runJob(forgetAudit, { ...context, bounds: { rows: 500, batches: 1 } })).toMatchObject({
    more: true,
  });
  expect(await runJob(forgetAudit, context)).toMatchObject({ more: false });
  expect(await list(club)).toHaveLength(10);
  expect(await list(quay)).toHaveLength(60);
});

describe('DynamoDB away', () => {
  it('an erasure fails and the next call finishes it; rows wait; no partial log is shown', async () => {
    const person = newAuthor().pubkey;
    await seed(pier, person, 200);
    await ship();
    await seed(pier, person, 5, START + DAY_MS);
    const [, deleter] = deletersOf('delete');
    let counted = 0;
    const failed = deleter.delete(member(pier, person), async (taken) => {
      counted += taken;
      if (counted === 75) await dynamodb.goDown();
    });
    await expect(failed).rejects.toThrow(
      /^DynamoDB at 127\.0\.0\.1:\d+, table minato_audit_logs, did not complete/,
    );
    expect(counted).toBe(75);
    const env = {
      ...CREDENTIALS,
      DATABASE_URL: relay.test.url,
      DYNAMODB_ENDPOINT: dynamodb.url,
      MINATO_PORT: '0',
    };
    const down = runCli(['doctor'], env);
    await expect(deleter.count(member(pier, person))).rejects.toThrow(/^DynamoDB at/);
    await expect(ship()).rejects.toThrow(/^DynamoDB at/);
    expect(await waiting(pier)).toBe(5);
    const { refused, ask } = createApi(relay.http);
    await refused(503, 'UNAVAILABLE', 'GET', '/c/pier/v1/admin/audit-log', { as: boss });
    expect((await down).stdout).toMatch(
      /^warn DynamoDB at 127\.0\.0\.1:\d+, .* did not complete a request: .*ECONNREFUSED/m,
    );

    await dynamodb.comeBack();
    const up = runCli(['doctor'], env);
    expect(await deleter.count(member(pier, person))).toBe(125);
    expect(await deleter.delete(member(pier, person), quiet)).toBe(125);
    expect(await ship()).toMatchObject({ changed: 5 });
    const shown = await ask<{ items: AuditEntry[] }>('GET', '/c/pier/v1/admin/audit-log', { as: boss });
    expect(shown.body.items).toEqual(await list(pier));
    expect(shown.body.items).toHaveLength(5);
    const { stdout, code } = await up;
    expect(stdout).toMatch(/^ok {3}DynamoDB at .* answers, and has the table minato_audit_logs$/m);
    expect(code, stdout).toBe(0);
  });
});
