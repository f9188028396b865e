/**
 * How contacts are stored: people as numbers, events by the first bytes of their ids. Numbers are given and
 * taken back while others write, and contacts of an older database are converted.
 */
import { readdir, readFile } from 'node:fs/promises';
import type { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import {
  type Contact,
  forgetContacts,
  forgetPeople,
  removeContacts,
  writeContacts,
} from '../../src/trust/grounds.sql.js';
import { eventually } from '../support/cli.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const MIGRATIONS = new URL('../../migrations/', import.meta.url);

let server: TestDatabase;
let database: Database;
let client: Client;
let other: Client;

beforeAll(async () => {
  server = await createTestDatabase();
  database = openDatabase(server.connection);
  [client, other] = [await database.connect(), await database.connect()];
});
afterAll(async () => {
  await Promise.all([client.end(), other.end()]);
  await database.close();
  await server.drop();
});
beforeEach(async () => {
  await client.query('TRUNCATE trust_people, trust_contacts');
});

const id = (letter: string) => letter.repeat(64);
const [ann, ben, cid] = [id('a'), id('b'), id('c')];
const contact = (draft: Partial<Contact> = {}): Contact => ({
  ...{ community: 1, kind: 1, at: 1_000, author: ann, named: ben, eventId: id('1'), shared: 1 },
  ...draft,
});

async function inTransaction(work: () => Promise<void>): Promise<void> {
  await client.query('BEGIN');
  await work();
  await client.query('COMMIT');
}

const write = (...contacts: Contact[]) => inTransaction(() => writeContacts(client, contacts, 1));

/** `author>named@event` of each contact, by the first digit of each. */
async function stored(): Promise<string[]> {
  const { rows } = await client.query<{ contact: string }>(
    `SELECT left(encode(a.pubkey, 'hex'), 1) || '>' || left(encode(n.pubkey, 'hex'), 1) || '@' ||
       encode(substr(int8send(c.event), 1, 1), 'hex') AS contact
     FROM trust_contacts c JOIN trust_people a ON a.id = c.author JOIN trust_people n ON n.id = c.named
     ORDER BY 1`,
  );
  return rows.map((row) => row.contact);
}

async function known(): Promise<string[]> {
  const { rows } = await client.query<{ key: string }>(
    `SELECT community || left(encode(pubkey, 'hex'), 1) AS key FROM trust_people ORDER BY 1`,
  );
  return rows.map((row) => row.key);
}

it('a contact is stored once, and a person has one number in each community', async () => {
  const again = [contact(), contact({ author: ben, named: ann, eventId: id('f') })];
  await write(...again);
  await write(...again, contact({ community: 2 }));
  expect(await stored()).toEqual(['a>b@11', 'a>b@11', 'b>a@ff']);
  expect(await known()).toEqual(['1a', '1b', '2a', '2b']);
});

it('only the contacts of the event are removed', async () => {
  await write(contact(), contact({ named: cid }), contact({ eventId: id('2') }), contact({ community: 2 }));
  await inTransaction(() => removeContacts(client, [contact(), contact({ named: cid })], 1));
  expect(await stored()).toEqual(['a>b@11', 'a>b@22']);
  expect(await known()).toEqual(['1a', '1b', '1c', '2a', '2b']);
});

it('contacts are forgotten by the age that their community allows, in any batches', async () => {
  const at = (time: number, eventId: string) => contact({ at: time, eventId });
  await write(at(1, id('1')), at(2, id('2')), at(3, id('3')), contact({ community: 2, at: 1 }));
  await write(contact({ author: cid, at: 1 }));
  const before = new Map([
    [1, 3],
    [2, 0],
  ]);
  const forget = async (limit: number) => {
    for (let after: number | undefined = 0; after !== undefined; )
      after = (await forgetContacts(client, before, after, limit)).after;
  };
  await forget(1);
  expect(await stored()).toEqual(['a>b@11', 'a>b@33']);
  await client.query('DELETE FROM trust_people WHERE community = 2');
  await forget(100);
  const { rows } = await client.query('SELECT at FROM trust_contacts');
  expect(rows).toEqual([{ at: 3 }]);
});

it('a person in no contact is forgotten, but not while somebody writes a contact with them', async () => {
  await write(contact(), contact({ author: cid, named: ann, eventId: id('2') }));
  await inTransaction(() => removeContacts(client, [contact()], 1));
  await client.query('BEGIN');
  await writeContacts(client, [contact({ author: cid, named: ben, eventId: id('3') })], 1);
  const pid = (await other.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
  const forgotten = forgetPeople(other, 0, 100);
  await eventually('it waits for the writer', async () => {
    const { rows } = await client.query(
      `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = $1`,
      [pid],
    );
    return rows[0];
  });
  await client.query('COMMIT');
  expect(await forgotten).toEqual({ deleted: 0, after: undefined });
  expect(await stored()).toEqual(['c>a@22', 'c>b@33']);
  await inTransaction(() => removeContacts(client, [contact({ author: cid, eventId: id('3') })], 1));
  expect(await forgetPeople(other, 0, 1)).toMatchObject({ deleted: 0 });
  expect(await forgetPeople(other, 0, 100)).toEqual({ deleted: 1, after: undefined });
  expect(await known()).toEqual(['1a', '1c']);
});

it('a batch reads the people it names, not everybody in the community', async () => {
  await client.query(`INSERT INTO trust_people (community, pubkey)
    SELECT 1, sha256(n::text::bytea) FROM generate_series(1, 3000) AS n`);
  await write(contact(), contact({ author: cid, named: ann, eventId: id('2') }));
  const consumer = await database.connect({ indexWalks: true });
  try {
    await consumer.query('BEGIN');
    const answers = [contact({ author: ben, named: ann }), contact({ named: cid })];
    await writeContacts(consumer, answers, 1);
    const { rows } = await consumer.query<{ read: number }>(
      `SELECT coalesce(seq_tup_read, 0) + idx_tup_fetch AS read
       FROM pg_stat_xact_user_tables WHERE relname = 'trust_people'`,
    );
    const due = await consumer.query('SELECT FROM trust_due');
    expect(due.rowCount).toBe(3);
    expect(rows[0]!.read).toBeLessThan(50);
  } finally {
    await consumer.end();
  }
});

it('the migration converts contacts of an older database', async () => {
  const files = await readdir(MIGRATIONS);
  const migration = files.find((name) => name.startsWith('000024-'))!;
  await client.query(`CREATE SCHEMA older; SET search_path = older, public;
    CREATE TABLE trust_contacts (community integer NOT NULL, kind integer NOT NULL, at bigint NOT NULL,
      gone boolean NOT NULL DEFAULT false, author bytea NOT NULL, named bytea NOT NULL,
      event_id bytea NOT NULL, shared smallint NOT NULL DEFAULT 1,
      PRIMARY KEY (community, event_id, named))`);
  try {
    await client.query(
      `INSERT INTO trust_contacts (community, kind, at, author, named, event_id, shared, gone)
       VALUES (1, 7, 5, $1, $2, $4, 2, false), (1, 7, 5, $1, $3, $4, 2, true),
         (2, 1, 9, $2, $1, $5, 1, false)`,
      [ann, ben, cid, id('1'), id('f')].map((hex) => Buffer.from(hex, 'hex')),
    );
    await inTransaction(async () => {
      await client.query(await readFile(new URL(migration, MIGRATIONS), 'utf8'));
    });
    expect(await stored()).toEqual(['a>b@11', 'a>c@11', 'b>a@ff']);
    expect(await known()).toEqual(['1a', '1b', '1c', '2a', '2b']);
    const { rows } = await client.query('SELECT kind, at, shared FROM trust_contacts ORDER BY at, named');
    expect(rows.map(({ kind, at, shared }) => [kind, at, shared])).toEqual([
      [7, 5, 2],
      [7, 5, 2],
      [1, 9, 1],
    ]);
    // A contact that was there before is not stored again.
    await write(contact({ kind: 7, at: 5, shared: 2 }));
    expect(await stored()).toHaveLength(3);
  } finally {
    await client.query('ROLLBACK; RESET search_path; DROP SCHEMA older CASCADE');
  }
});
