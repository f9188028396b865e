/** `minato erase` and `minato certificate`, as an operator runs them where no node is running. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { checkFiles } from '../../src/erasure/certificates/check.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { type Ended, eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const UNKNOWN = '00000000-0000-4000-8000-000000000000';
const [alice, bob, carol, boss] = [newAuthor(), newAuthor(), newAuthor(), newAuthor()];
const npub = ({ pubkey }: Author) => npubEncode(pubkey);
let folder: string;
let test: TestDatabase;
let database: Database;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-erase-'));
  test = await createTestDatabase();
  database = openDatabase(test.connection);
});
afterAll(async () => {
  await database.close();
  await test.drop();
  await rm(folder, { recursive: true });
});

const env = () => ({
  DATABASE_URL: test.url,
  MINATO_PORT: '0',
  MINATO_DATA_DIR: folder,
  MINATO_ADMIN_PUBKEYS: boss.pubkey,
});
const minato = (...args: string[]): Promise<Ended> => runCli(args, env());
async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  // On a busy machine the command takes long enough to show its progress.
  expect({ code, stderr: stderr.replace(/^\d+ %, .*\n/gm, '') }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
/** One sentence, and nothing was done. */
async function problem(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}
async function addMembers(...people: Author[]): Promise<void> {
  for (const { pubkey } of people)
    await database.pool.query(
      'INSERT INTO members (community, pubkey, created_at, updated_at) VALUES (1, $1, 1, 1)',
      [Buffer.from(pubkey, 'hex')],
    );
}
const idIn = (text: string) => /^erasure (\S+)$/m.exec(text)![1]!;
const certificates = () => join(folder, 'certificates.jsonl');

it('what cannot be erased is refused with one sentence', async () => {
  expect(await output('erase')).toBe('nothing was erased\n');
  const refused = [
    await problem('erase', 'member', npub(alice)),
    await problem('erase', 'member', 'npub1none', '--yes'),
    await problem('erase', 'member', npub(alice), '--yes', '-c', 'none'),
    await problem('erase', 'member', npub(boss), '--yes'),
    await problem('erase', 'community', 'default', '--yes'),
    await problem('erase', 'show', UNKNOWN),
    await problem('certificate', 'show', 'x'),
  ];
  expect(refused.map((text) => text.split('\n')[0])).toEqual([
    'minato: an erasure cannot be undone: without a terminal to ask on it needs --yes',
    expect.stringMatching(/'npub1none' is invalid.* must be 64 lowercase hex characters or an npub\.$/),
    'minato: there is no community "none"; this node has: default',
    'minato: this key is an operator by MINATO_ADMIN_PUBKEYS; remove it there first',
    expect.stringMatching(/^minato: the default community is the node itself/),
    `minato: there is no erasure "${UNKNOWN}"; "minato erase list" shows them`,
    'minato: there is no certificate of "x"; "minato certificate list" shows them',
  ]);
});

it('a member is erased: the manifest first, then the end and where the certificate is', async () => {
  await addMembers(alice, bob, carol);
  const text = await output('erase', 'member', npub(alice), '--yes');
  expect(text).toMatch(
    new RegExp(
      `^What is held about ${npub(alice)} in default:\n  postgres:members +1\n  1 row in 1 of \\d+ stores\n`,
    ),
  );
  expect(text).toContain('erased: 1 row from 1 store; every store counts 0 now\n');
  expect(text).toContain(
    `certificate: minato certificate show ${idIn(text)}\n             kept in ${certificates()}\n`,
  );
  const listed = await output('erase', 'list');
  expect(listed).toMatch(
    new RegExp(`^${idIn(text)}  \\S+Z  completed  operator +1 row  a member of default\n$`),
  );
  expect(listed).not.toContain(alice.pubkey);
});

it('a store that fails is named, by the command and by doctor, and tried again', async () => {
  await database.pool.query('ALTER TABLE invites RENAME TO gone');
  const { code, stdout, stderr } = await minato('erase', 'member', bob.pubkey, '--yes');
  await database.pool.query('ALTER TABLE gone RENAME TO invites');
  const id = idIn(stdout);
  expect(code).toBe(1);
  expect(stdout).toMatch(/postgres:invites +unknown: .*does not exist/);
  expect(stderr).toMatch(
    new RegExp(
      '^not everything was erased:\n  failed: postgres:invites: .*does not exist\n' +
        `Fix that store, then: minato erase retry ${id}\n$`,
    ),
  );
  const asked = await output('erase', 'member', carol.pubkey, '--yes', '--grace-days', '3');
  const held = idIn(asked);
  expect(asked).toMatch(new RegExp(`it waits until \\S+Z; to cancel: minato erase cancel ${held}\n$`));
  expect(await output('erase', 'hold', held, '--reason', 'court order 7')).toBe(
    `held; to continue: minato erase release ${held}\n`,
  );
  const [doctor, conflict, shown] = [
    await minato('doctor'),
    await problem('erase', 'cancel', held),
    await output('erase', 'show', held),
  ];
  expect(doctor.stdout).toContain(`warn community default: erasure ${id} failed in postgres:invites\n`);
  expect(doctor.stdout).toContain(`warn community default: erasure ${held} is held (court order 7)\n`);
  expect(doctor.stdout).toContain('ok   the erasure key is present\n');
  expect(conflict).toBe('minato: This is not possible in the current status. (stage: held)\n');
  expect(shown).toMatch(
    new RegExp(`^${held}  held\n  about +${npub(carol)} of default\n[\\s\\S]*  why +"court order 7"\n$`),
  );
  const [released, retried] = [await output('erase', 'release', held), await output('erase', 'retry', id)];
  expect(released).toMatch(/^released; /);
  expect(retried).toContain('every store counts 0 now\n');
});

it('a whole community is erased', async () => {
  await addCommunity(database.pool, 'art', undefined, Date.now());
  const later = await output('erase', 'community', 'art', '--yes', '--grace-days', '0', '--no-wait');
  expect(later).toMatch(/^What is held about community art:\n/);
  expect(later).toMatch(/\na running node carries it out; see: minato erase show \S+\n$/);
  const text = await output('erase', 'community', 'art', '--yes');
  expect(idIn(text)).toBe(idIn(later));
  expect(text).toContain('every store counts 0 now\n');
});

// ── Certificates ───────────────────────────────────────────────────────────────────────────────────────────

it('certificates are listed, printed and valid; only the erasure key tells whom one is about', async () => {
  const events = await readCertificates();
  const signer = npubEncode(events[0]!.pubkey);
  const id = (JSON.parse(events[0]!.content) as { erasure_id: string }).erasure_id;
  const options = ['--key', signer, '--subject', npub(alice), '-c', 'default'];
  const [listed, page, all, stranger] = [
    await output('certificate'),
    await output('certificate', 'show', id, '--html'),
    await output('certificate', 'verify', certificates(), ...options),
    await minato('certificate', 'verify', certificates(), '--subject', npub(carol)),
  ];
  expect(
    listed
      .trimEnd()
      .split('\n')
      .map((line) => line.split('  ').at(-1)),
  ).toEqual(events.map((event) => event.id));
  expect(page).toContain(events[0]!.sig);
  const lines = all.split('\n');
  expect(lines.slice(0, 3).map((line) => /about [\w ]+$/.exec(line)?.[0])).toEqual([
    'about this key',
    'about another',
    'about another',
  ]);
  expect(lines.slice(3)).toEqual([
    'all 3 certificates hold, none is missing between them',
    `signed by ${signer}`,
    '',
  ]);
  expect(stranger.code).toBe(1);
  expect(stranger.stderr).toBe('none of them is about this key (or it was made with another erasure key)\n');
});

it('what was changed, signed by another, cut out or is none is found, without a database', async () => {
  const [first, second, third] = await readCertificates();
  const { sig } = first!;
  const wrong: unknown[] = [
    { ...first!, content: first!.content.replace('"deleted":1', '"deleted":2') },
    { ...first!, sig: `${sig.slice(0, -2)}${sig.endsWith('00') ? '11' : '00'}` },
    resigned(boss, first!),
    resigned(boss, first!, (content) => content.replace('"after":0', '"after":4')),
    { hello: 'there' },
  ];
  const path = join(folder, 'given.json');
  const problems = async (text: string) => {
    await writeFile(path, text);
    const found = await checkFiles([path], { key: [second!.pubkey] });
    return found.problems.map((problem) => problem.slice(path.length));
  };
  const isChanged = ': its id or its signature does not hold: it was changed';
  const isAnothers = expect.stringMatching(new RegExp(`^: it is signed by ${npub(boss)}, not by npub`));
  expect([
    await problems(JSON.stringify(wrong[0], null, 2)),
    await problems(JSON.stringify(wrong[1])),
    await problems(JSON.stringify(wrong[2])),
    await problems(JSON.stringify(wrong[3])),
    await problems(JSON.stringify(wrong[4])),
    await problems('{'),
    await problems(lines(first, second, third)),
    await problems(lines(second, third)),
  ]).toEqual([
    [isChanged, expect.stringMatching(/ do not add up$/)],
    [isChanged],
    [isAnothers],
    [expect.stringMatching(/ still counts 4$/), expect.stringMatching(/ do not add up$/), isAnothers],
    [': it is no event: id must be 64 lowercase hex characters'],
    [':1: it is not JSON, or was cut off'],
    [],
    [],
  ]);
  await writeFile(path, lines(first, third));
  const cut = await runCli(['certificate', 'verify', path], { MINATO_DATA_DIR: folder });
  expect(cut.code).toBe(1);
  expect(cut.stderr).toBe(`${path}:2: the certificate before it (${second!.id.slice(0, 16)}…) is missing\n`);
});

const lines = (...events: (NostrEvent | undefined)[]) =>
  events.map((event) => `${JSON.stringify(event)}\n`).join('');

async function readCertificates(): Promise<NostrEvent[]> {
  const text = await readFile(certificates(), 'utf8');
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as NostrEvent]));
}

function resigned(by: Author, event: NostrEvent, change = (content: string) => content): NostrEvent {
  const { kind, created_at, tags, content } = event;
  return sign(by, { kind, created_at, tags: tags.map((tag) => [...tag]), content: change(content) });
}

describe('where no node runs', () => {
  const people = Array.from({ length: 5 }, () => newAuthor());
  const [dave, erin, frank, grace, henry] = people as [Author, Author, Author, Author, Author];
  const held = async () =>
    (await database.pool.query('SELECT 1 FROM consumer_offsets WHERE holder IS NOT NULL')).rowCount;
  const stageOf = async (id: string) => /^\S+ {2}(\S+)/.exec(await output('erase', 'show', id))![1];

  it('the last one was killed, and its consumers hold their leases', async () => {
    const sea = await addCommunity(database.pool, 'sea', undefined, Date.now());
    await writeSetting(database.pool, sea, 'topic.mode', 'open', Date.now());
    const { child, ended } = startCli(['serve'], env());
    let said = '';
    child.stdout!.on('data', (text: Buffer) => {
      said += text.toString();
    });
    const url = await eventually('the node is ready', () => /ws:\/\/[\d.:]+/.exec(said)?.[0]);
    for (const path of ['', '/c/sea']) {
      const client = await RawClient.connect(url + path);
      for (const person of people)
        expect(await client.publish(sign(person, { content: `by ${person.pubkey}` }))).toEqual([true, '']);
      await client.close();
    }
    await eventually('every consumer has a holder', async () => ((await held())! >= 3 ? true : undefined));
    child.kill('SIGKILL');
    await ended;
    expect(await held()).toBeGreaterThanOrEqual(3);
  });

  it('a member with events is erased by the command alone', async () => {
    const text = await output('erase', 'member', npub(dave), '--yes');
    expect(text).toContain('every store counts 0 now\n');
    expect(await held(), 'the leases are given back').toBe(0);
  });

  it('a command that is killed in the middle is gone on with by the next', async () => {
    const { child, ended } = startCli(['erase', 'member', npub(erin), '--yes'], env());
    const id = await eventually('it was fenced', async () => {
      const { rows } = await database.pool.query<{ id: string }>(
        `SELECT erasure_id AS id FROM erasures WHERE stage IN ('fenced', 'counted', 'deleting', 'verifying')`,
      );
      return rows[0]?.id;
    });
    child.kill('SIGKILL');
    await ended;
    expect(await output('erase', 'member', npub(erin), '--yes')).toContain('every store counts 0 now\n');
    expect(await stageOf(id)).toBe('completed');
  });

  it('the jobs by command carry out what waits, and a whole community goes', async () => {
    const waiting = idIn(await output('erase', 'member', npub(frank), '--yes', '--no-wait'));
    expect(await output('jobs', 'run', 'erase')).toMatch(/^erase +done, \d+ changed\n$/);
    expect(await stageOf(waiting)).toBe('completed');
    const purged = idIn(await output('erase', 'member', npub(grace), '--yes', '--no-wait'));
    expect(await output('purge')).toMatch(/^erase +done, [1-9]\d* changed$/m);
    expect(await stageOf(purged)).toBe('completed');
    expect(await output('erase', 'community', 'sea', '--yes', '--grace-days', '0')).toContain(
      'every store counts 0 now\n',
    );
  });

  it('a consumer that an operator has paused is named, and nothing waits for ever', async () => {
    await database.pool.query(
      `UPDATE consumer_offsets SET paused_at = 1, last_seq = 0 WHERE consumer = 'trust'`,
    );
    const { code, stderr } = await minato('erase', 'member', npub(henry), '--yes');
    expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringContaining('waits for trust') });
    await database.pool.query(`UPDATE consumer_offsets SET paused_at = NULL WHERE consumer = 'trust'`);
    expect(await output('erase', 'member', npub(henry), '--yes')).toContain('every store counts 0 now\n');
  });
});
