/** A small consumer for tests: a row for each effective event in its own table, and hooks to make it fail. */
import type { ClientBase, Pool } from 'pg';
import type { Change } from '../../../src/outbox/changes.sql.js';
import type { Consumer } from '../../../src/outbox/consumers/consumer.js';

type Db = ClientBase | Pool;
type Hook = (batch: readonly Change[], generation: number, tx: ClientBase) => unknown;

export interface Ledger extends Consumer {
  /** Called before a batch is applied; an exception fails the batch. */
  before: Hook;
  /** Called when a batch is applied but not committed. */
  after: Hook;
  opened: (generation: number) => unknown;
  why: string | undefined;
  /** The offsets of the rows that it applied, committed or not. */
  readonly given: number[];
}

const nothing = () => undefined;

/** Two of the same name are the same consumer on two instances. */
export async function makeLedger(db: Db, name = 'ledger'): Promise<Ledger> {
  await db.query(`CREATE TABLE IF NOT EXISTS ${name} (
    generation int NOT NULL, community int NOT NULL, seq bigint NOT NULL,
    kind int NOT NULL, id text NOT NULL, payload text NOT NULL, PRIMARY KEY (generation, community, id))`);
  await db.query(`CREATE TABLE IF NOT EXISTS ${name}_open (generation int PRIMARY KEY)`);
  const drop = async (client: ClientBase, generation: number): Promise<void> => {
    await client.query(`DELETE FROM ${name} WHERE generation = $1`, [generation]);
    await client.query(`DELETE FROM ${name}_open WHERE generation = $1`, [generation]);
  };
  const ledger: Ledger = {
    name,
    about: 'a row for each event',
    before: nothing,
    after: nothing,
    opened: nothing,
    why: undefined,
    given: [],
    apply: async (batch, tx, generation) => {
      await ledger.before(batch, generation, tx);
      for (const change of batch) await write(tx, name, generation, change);
      ledger.given.push(...batch.map(({ seq }) => seq));
      await ledger.after(batch, generation, tx);
    },
    open: async (tx, generation) => {
      await drop(tx, generation);
      await tx.query(`INSERT INTO ${name}_open VALUES ($1)`, [generation]);
      await ledger.opened(generation);
    },
    drop,
    outdated: async () => ledger.why,
  };
  return ledger;
}

async function write(tx: ClientBase, name: string, generation: number, change: Change): Promise<void> {
  const { op, community, seq, kind, id, payload } = change;
  if (op === 'delete') {
    await tx.query(`DELETE FROM ${name} WHERE generation = $1 AND community = $2 AND id = $3`, [
      generation,
      community,
      id,
    ]);
  } else if (payload !== undefined) {
    await tx.query(
      `INSERT INTO ${name} (generation, community, seq, kind, id, payload) VALUES ($1, $2, $3, $4, $5, $6)
       ON CONFLICT (generation, community, id) DO UPDATE SET seq = excluded.seq, payload = excluded.payload`,
      [generation, community, seq, kind, id, payload],
    );
  }
}

export interface Held {
  readonly community: number;
  readonly seq: number;
  readonly id: string;
  readonly kind: number;
  readonly payload: string;
}

/** Its rows of the active generation, or of another. */
export async function readLedger(db: Db, name = 'ledger', generation?: number): Promise<Held[]> {
  const { rows } = await db.query<Held>(
    `SELECT community, seq, id, kind, payload FROM ${name}
     WHERE generation = coalesce($2::int, (SELECT generation FROM consumer_offsets WHERE consumer = $1))
     ORDER BY seq`,
    [name, generation ?? null],
  );
  return rows;
}

export async function openGenerations(db: Db, name: string): Promise<number[]> {
  const { rows } = await db.query<{ generation: number }>(`SELECT generation FROM ${name}_open ORDER BY 1`);
  return rows.map(({ generation }) => generation);
}

/** The expected rows: the view, read from the events table. */
export async function readWholeView(db: Db): Promise<Held[]> {
  const { rows } = await db.query<Held>(
    `SELECT community, seq, encode(id, 'hex') AS id, kind, payload FROM events
     WHERE hidden IS NULL ORDER BY seq`,
  );
  return rows;
}
