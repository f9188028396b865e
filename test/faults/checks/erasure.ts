/** I12, I17: after an erasure no store names the person, and the follower had acknowledged the deletes. */
import { connect } from 'node:net';
import type { AttributeValue } from '@aws-sdk/client-dynamodb';
import type pg from 'pg';
import { CREDENTIALS } from '../environment.js';
import type { Violations } from '../violations.js';

export interface ErasureRow {
  readonly id: string;
  readonly stage: string;
  readonly failures: Record<string, string>;
  readonly neededSeq: string | null;
  readonly unacknowledged: readonly { readonly name?: string }[];
  readonly acknowledgedSeq: string | null;
}

export async function readErasures(client: pg.Client): Promise<ErasureRow[]> {
  const { rows } = await client.query<ErasureRow>(
    `SELECT e.erasure_id AS id, e.stage, e.failures, e.outbox_seq AS "neededSeq", e.unacknowledged,
       (SELECT f.acknowledged_seq FROM outbox_followers f
        WHERE f.community = e.community AND f.name = 'mirror') AS "acknowledgedSeq"
     FROM erasures e`,
  );
  return rows;
}

export function checkFollowers(rows: readonly ErasureRow[], violations: Violations): void {
  for (const { id, stage, neededSeq, acknowledgedSeq, unacknowledged } of rows) {
    // In a community without a follower there is nothing to wait for.
    if (stage !== 'completed' || acknowledgedSeq === null) continue;
    const isNamed = unacknowledged.some(({ name }) => name === 'mirror');
    if (!isNamed && Number(acknowledgedSeq) < Number(neededSeq ?? 0))
      violations.add(
        'I17',
        `erasure ${id} is certified; the follower is at ${acknowledgedSeq} of ${neededSeq}`,
      );
  }
}

/** Columns of these types cannot hold a key. */
const WITHOUT_KEYS =
  /^(smallint|integer|bigint|real|double precision|numeric|boolean|date|interval|time.*|uuid)$/;

/**
 * Every column of every table that can hold a key, as bytes or as text. Also of schemas of others, such as
 * that of the scheduler, whose jobs have a payload.
 */
export async function findInTables(client: pg.Client, pubkey: string): Promise<string[]> {
  const { rows: columns } = await client.query<{ table: string; column: string; type: string }>(
    `SELECT format('%I.%I', c.table_schema, c.table_name) AS table, format('%I', c.column_name) AS column,
       c.data_type AS type
     FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
     WHERE c.table_schema NOT IN ('pg_catalog', 'information_schema') AND t.table_type = 'BASE TABLE'`,
  );
  const found: string[] = [];
  for (const { table, column, type } of columns) {
    if (WITHOUT_KEYS.test(type)) continue;
    const condition =
      type === 'bytea'
        ? `position(decode($1, 'hex') in ${column}) > 0`
        : `${column}::text LIKE '%' || $1 || '%'`;
    const { rows } = await client.query<{ count: string }>(
      `SELECT count(*) FROM ${table} WHERE ${condition}`,
      [pubkey],
    );
    if (Number(rows[0]!.count) > 0) found.push(`${table}.${column}: ${rows[0]!.count}`);
  }
  return found;
}

/** A rate bucket is full again after seconds; Redis keeps it a minute longer. */
const RATE_MS_MAX = 120_000;

/**
 * Names of keys of Redis that name the person. `isBrought`: a peer still has events of the person, and brings
 * them. They are refused, but counted in a rate, and that must expire soon.
 */
export async function findInRedis(port: number, pubkey: string, isBrought: boolean): Promise<string[]> {
  const lines = (await askRedis(port, 'KEYS *')).split('\r\n');
  const keys = lines.filter((line) => line.includes(pubkey));
  const found = isBrought ? keys.filter((key) => !/^minato:rate\/\d+:brought:/.test(key)) : keys;
  for (const key of keys.filter((one) => !found.includes(one))) {
    const ms = Number(/:(-?\d+)/.exec(await askRedis(port, `PTTL ${key}`))?.[1]);
    // -2: it has expired meanwhile.
    if (ms !== -2 && !(ms >= 0 && ms <= RATE_MS_MAX)) found.push(`${key}, for ${ms} ms`);
  }
  return found;
}

/** One command of the inline protocol. */
function askRedis(port: number, command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(`${command}\r\nQUIT\r\n`));
    socket.setTimeout(20_000, () => socket.destroy(new Error('Redis does not answer')));
    socket.on('data', (data) => {
      said += String(data);
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(said));
  });
}

/** Pages of one list or table, 1 MB each (I14). A world has a few. */
const PAGES_MAX = 1_000;

export async function findInDynamodb(endpoint: string, pubkey: string): Promise<string[]> {
  const { DynamoDBClient, ListTablesCommand, ScanCommand } = await import('@aws-sdk/client-dynamodb');
  const credentials = {
    accessKeyId: CREDENTIALS.AWS_ACCESS_KEY_ID,
    secretAccessKey: CREDENTIALS.AWS_SECRET_ACCESS_KEY,
  };
  const client = new DynamoDBClient({ endpoint, region: 'us-east-1', credentials });
  try {
    const tables = await allPages(async (after?: string) => {
      const page = await client.send(new ListTablesCommand({ ExclusiveStartTableName: after }));
      return { part: page.TableNames ?? [], next: page.LastEvaluatedTableName };
    });
    const found: string[] = [];
    for (const TableName of tables) {
      const hits = await allPages(async (after?: Record<string, AttributeValue>) => {
        const page = await client.send(new ScanCommand({ TableName, ExclusiveStartKey: after }));
        const isHere = JSON.stringify(page.Items ?? [], bytesAsHex).includes(pubkey);
        return { part: isHere ? [TableName] : [], next: page.LastEvaluatedKey };
      });
      found.push(...hits.slice(0, 1));
    }
    return found;
  } finally {
    client.destroy();
  }
}

const bytesAsHex = (_name: string, value: unknown) =>
  value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value;

/** Throws rather than to leave out a page. */
export async function allPages<Part, Key>(
  read: (after?: Key) => Promise<{ part: readonly Part[]; next: Key | undefined }>,
): Promise<Part[]> {
  const all: Part[] = [];
  let after: Key | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const { part, next } = await read(after);
    all.push(...part);
    if (next === undefined) return all;
    after = next;
  }
  throw new Error(`more than ${PAGES_MAX} pages`);
}
