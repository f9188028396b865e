/**
 * Reads what the declared tables hold about one person, as rows for that person. Other people stay out of it:
 * it does not say who reviewed, invited or reported.
 *
 * I14: rows are read through a cursor in portions. Some of these tables have no index for this query (ids,
 * heads, tombstones, outbox). An export is rare and runs in the background, while an index would slow down
 * every event that is written.
 */
import type { ClientBase } from 'pg';
import { type AuditEntry, findHeld } from '../audit/audit.sql.js';
import { createTagHash } from '../events/postgres/tag-hash.js';
import { fixTagHashSeed } from '../node/state.sql.js';
import { named } from '../postgres/named.js';
import type { PersonalFile } from '../postgres/table.js';
import { bytes } from '../postgres/values.js';

export interface Person {
  readonly community: number;
  readonly pubkey: string;
  /** The key of ["p", pubkey] in event_tags. */
  readonly recipient: bigint;
}

export async function findPerson(db: ClientBase, community: number, pubkey: string): Promise<Person> {
  const tagHash = await createTagHash(await fixTagHashSeed(db));
  return { community, pubkey, recipient: tagHash(community, 'p', pubkey) };
}

const PORTION_ROWS = 500;

/**
 * The rows of `audit-log` that were moved to another store, in the same shape. Skips rows that are still
 * here, which the cursor reads.
 */
export async function shapeMovedAudit(
  client: ClientBase,
  { pubkey }: Person,
  entries: readonly AuditEntry[],
): Promise<object[]> {
  const held = await findHeld(client, entries);
  return entries
    .filter(({ position }) => !held.has(position))
    .filter(
      ({ actor, target, details }) =>
        actor === pubkey || target === pubkey || JSON.stringify(details).includes(pubkey),
    )
    .map(({ at, action, actor, target, details }) => {
      const about = target === pubkey || details.pubkey === pubkey;
      const words = about ? { target, details } : { target: null, details: null };
      return { at, action, by_you: actor === pubkey, about_you: about, ...words };
    });
}

/** A file of an export, and the table that declares it. */
export type DeclaredFile = PersonalFile & { readonly table: string };

function rowsOf(file: DeclaredFile): string {
  if (file.from !== undefined) return file.from;
  const { table, where, order } = file;
  const ordered = order === undefined ? '' : ` ORDER BY ${order}`;
  return `FROM ${table} WHERE community = :community AND ${where}${ordered}`;
}

function bind(text: string, { community, pubkey, recipient }: Person): { text: string; values: unknown[] } {
  return named(text, {
    community: ['int', community],
    pubkey: ['bytea', bytes(pubkey)],
    hex: ['text', pubkey],
    recipient: ['bigint', recipient],
  });
}

/** Everything that `work` reads comes from one snapshot. */
export async function inSnapshot<T>(client: ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  try {
    return await work();
  } finally {
    // When the connection failed there is nothing to roll back, and the caller must get the first error.
    await client.query('ROLLBACK').catch(() => undefined);
  }
}

/** Call it within a transaction, for one store at a time. */
export async function* readPersonal(
  client: ClientBase,
  file: DeclaredFile,
  person: Person,
): AsyncGenerator<object> {
  const { columns, shape, portionRows = PORTION_ROWS } = file;
  const { text, values } = bind(`SELECT ${columns} ${rowsOf(file)}`, person);
  await client.query(`DECLARE personal NO SCROLL CURSOR FOR ${text}`, values);
  try {
    for (let read = portionRows; read === portionRows; ) {
      const { rows } = await client.query<Record<string, unknown>>(`FETCH ${portionRows} FROM personal`);
      for (const row of rows) yield shape === undefined ? row : shape(row);
      read = rows.length;
    }
  } finally {
    await client.query('CLOSE personal').catch(() => undefined);
  }
}

export async function countPersonal(client: ClientBase, file: DeclaredFile, person: Person): Promise<number> {
  const { text, values } = bind(`SELECT count(*) AS rows FROM (SELECT 1 ${rowsOf(file)}) held`, person);
  const { rows } = await client.query<{ rows: number }>(text, values);
  return rows[0]!.rows;
}
