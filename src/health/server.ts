/** Checks the PostgreSQL server: its version, durability, clock and connections. */
import { VERSION_MIN } from '../postgres/database.js';
import type { Db } from '../postgres/values.js';
import { type Finding, fail, ok, warn } from './finding.js';
import { readServerHealth, type ServerHealth } from './health.sql.js';
import { bytesText } from './rules-text.js';

const CLOCK_APART_MS_MAX = 5_000;
/** The connections that one node opens: reader pools, lane, listener, upkeep. */
const CONNECTIONS_PER_NODE = 34;

export async function* checkServer(client: Db, where: string): AsyncGenerator<Finding> {
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
