/**
 * The part of `minato doctor` about the PostgreSQL server. doctor-schema.ts checks the contents of the
 * database.
 */
import { join } from 'node:path';
import type { Client } from 'pg';
import type { Config } from '../node/config.js';
import { VERSION_MIN } from '../postgres/database.js';
import { openPostgres } from '../postgres/open.js';
import { exists } from './doctor-configuration.js';
import { checkSchema } from './doctor-schema.js';
import { type Finding, fail, info, messageOf, ok, warn } from './finding.js';
import { readServerHealth, type ServerHealth } from './health.sql.js';
import { bytesText } from './progress.js';

const CLOCK_APART_MS_MAX = 5_000;
const STATEMENT_MS_MAX = 10_000;
/** The connections that one node opens: reader pools, lane, listener, upkeep. */
const CONNECTIONS_PER_NODE = 34;

export async function* checkDatabase(config: Config, holder: number | undefined): AsyncGenerator<Finding> {
  const { databaseUrl, dataDir, user } = config;
  if (
    databaseUrl === undefined &&
    holder === undefined &&
    !(await exists(join(dataDir, 'postgres', 'PG_VERSION')))
  ) {
    yield info(`there is no database in ${dataDir} yet`, 'The first "minato serve" creates it.');
    return;
  }
  const heard: string[] = [];
  const listen = (message: string): void => void heard.push(message);
  const log = { info: () => undefined, warn: listen, error: listen };
  const opened = await openPostgres({ databaseUrl, dataDir, user, log, attach: true });
  try {
    const client = await opened.database.connect({ statementTimeoutMs: STATEMENT_MS_MAX }).catch(messageOf);
    if (typeof client === 'string') {
      const advice = databaseUrl === undefined ? EMBEDDED_ADVICE : REACH_ADVICE;
      yield fail(`${opened.where} does not answer: ${client}`, advice);
      return;
    }
    try {
      yield* checkServer(client, opened.where);
      yield* checkSchema(client, opened.database, config);
    } finally {
      await client.end();
    }
  } finally {
    await opened.close();
    for (const message of heard) yield warn(message, 'PostgreSQL reported this during the check.');
  }
}

const REACH_ADVICE =
  'Check DATABASE_URL: host, port, user, password and database; ' +
  'and that the server runs and accepts connections from this machine.';
const EMBEDDED_ADVICE = 'Restart the node and read its log.';

async function* checkServer(client: Client, where: string): AsyncGenerator<Finding> {
  const askedAt = Date.now();
  const health = await readServerHealth(client);
  const ours = (askedAt + Date.now()) / 2;
  if (health.versionNumber >= VERSION_MIN) yield ok(`PostgreSQL ${health.version}, ${where}`);
  else {
    const advice = 'Upgrade it to version 15 or newer, or unset DATABASE_URL to use the embedded one.';
    yield fail(`PostgreSQL ${health.version} is too old, ${where}`, advice);
  }
  yield* checkDurability(health);
  const apartMs = Math.round(Math.abs(health.clock - ours));
  if (apartMs <= CLOCK_APART_MS_MAX) yield ok(`the clocks of node and database are ${apartMs} ms apart`);
  else {
    const advice =
      'Synchronise both machines by NTP: created_at limits and partitions use the clock of the node.';
    yield warn(`the clocks of node and database are ${Math.round(apartMs / 1_000)} s apart`, advice);
  }
  const { connections, connectionsMax } = health;
  if (connectionsMax - connections >= CONNECTIONS_PER_NODE) {
    yield ok(`${connections} of ${connectionsMax} connections in use`);
  } else {
    const advice = `Raise max_connections: a node opens up to ${CONNECTIONS_PER_NODE}.`;
    yield warn(`${connections} of ${connectionsMax} connections in use`, advice);
  }
  yield ok(`the database holds ${bytesText(health.databaseBytes)}`);
}

type Durability = Pick<ServerHealth, 'fsync' | 'fullPageWrites' | 'synchronousCommit' | 'checksums'>;

export function* checkDurability(health: Durability): Generator<Finding> {
  const { fsync, fullPageWrites, synchronousCommit, checksums } = health;
  const off = [fsync ? [] : ['fsync'], fullPageWrites ? [] : ['full_page_writes']].flat();
  if (off.length > 0) {
    const fix = `ALTER SYSTEM SET ${off[0]} = on; then reload PostgreSQL.`;
    const advice = `${fix} Until then a power cut can destroy the database.`;
    yield fail(`${off.join(' and ')} off: accepted events can be lost`, advice);
  } else if (synchronousCommit === 'off') {
    const advice =
      'Events are safe: the lane turns it on. For settings: ALTER SYSTEM SET synchronous_commit = on;';
    yield warn('synchronous_commit is off', advice);
  } else {
    const settings = `fsync on, full_page_writes on, synchronous_commit ${synchronousCommit}`;
    yield ok(`durable: ${settings}, checksums ${checksums ? 'on' : 'off'}`);
  }
}
