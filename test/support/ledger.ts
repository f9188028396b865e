/** A small consumer for tests: a row for each effective event, in a table of its own, and ways to make it fail. */
import type { ClientBase, Pool } from 'pg';
import type { Consumer } from '../../src/services/consumer.js';
import type { Change } from '../../src/store/changes.js';

const COLUMNS = 'community, seq, kind, id, payload';

export interface Ledger extends Consumer {
  /** Called before a batch is applied; what it throws fails the batch. */
  before: (batch: readonly Change[], generation: number) => Promise<void> | void;
  /** Called when a batch is applied, but not committed. */
  after: (batch: readonly Change[], generation: number) => Promise<void> | void;
  opened: () => Promise<void> | void;
  why: string | undefined;
  /** The numbers that it was given, as they came. */
  readonly given: number[];
}

export async function makeLedger(db: ClientBase | Pool, name = 'ledger'): Promise<Ledger> {
  await db.query(`CREATE TABLE IF NOT EXISTS ${name} (generation int NOT NULL, community int NOT NULL, seq bigint NOT NULL,
    kind int NOT NULL, id text NOT NULL, payload text NOT NULL, PRIMARY KEY (generation, community, id))`);
  await db.query(`CREATE TABLE IF NOT EXISTS ${name}_open (generation int PRIMARY KEY)`);
  const remove = (tx: ClientBase, generation: number, { community, id }: Change) =>
    tx.query(`DELETE FROM ${name} WHERE generation = $1 AND community = $2 AND id = $3`, [
      generation,
      community,
      id,
    ]);
  const put = (tx: ClientBase, generation: number, { community, seq, kind, id, payload }: Change) =>
    tx.query(
      `INSERT INTO ${name} (generation, ${COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)
       ON CONFLICT (generation, community, id) DO UPDATE SET seq = excluded.seq, payload = excluded.payload`,
      [generation, community, seq, kind, id, payload],
    );
  const drop = async (client: ClientBase, generation: number): Promise<void> => {
    await client.query(`DELETE FROM ${name} WHERE generation = $1`, [generation]);
    await client.query(`DELETE FROM ${name}_open WHERE generation = $1`, [generation]);
  };
  const ledger: Ledger = {
    name,
    about: 'a row for each event',
    before: () => undefined,
    after: () => undefined,
    opened: () => undefined,
    why: undefined,
    given: [],
    apply: async (batch, tx, generation) => {
      await ledger.before(batch, generation);
      ledger.given.push(...batch.map(({ seq }) => seq));
      for (const change of batch) {
        if (change.op === 'delete') await remove(tx, generation, change);
        else if (change.payload !== undefined) await put(tx, generation, change);
      }
      await ledger.after(batch, generation);
    },
    open: async (tx, generation) => {
      await drop(tx, generation);
      await tx.query(`INSERT INTO ${name}_open VALUES ($1)`, [generation]);
      await ledger.opened();
    },
    drop,
    outdated: async () => ledger.why,
  };
  return ledger;
}

/** What it holds of the generation that is read. */
export async function readLedger(db: ClientBase | Pool, name = 'ledger'): Promise<unknown[]> {
  const { rows } = await db.query(
    `SELECT ${COLUMNS} FROM ${name} l
     WHERE generation = (SELECT generation FROM consumer_offsets WHERE consumer = $1) ORDER BY community, id`,
    [name],
  );
  return rows;
}

/** What it should hold: the view, straight from the events. */
export async function readViewOf(db: ClientBase | Pool): Promise<unknown[]> {
  const { rows } = await db.query(
    `SELECT community, seq, kind, encode(id, 'hex') AS id, payload FROM events WHERE hidden IS NULL ORDER BY community, encode(id, 'hex')`,
  );
  return rows;
}
