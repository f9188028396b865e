/** The part of `minato doctor` about the schema and the contents of the database. */
import type { Client } from 'pg';
import { missingPartitions } from '../events/postgres/partitions.js';
import { type Finding, fail, ok, warn } from '../health/finding.js';
import { readHeld } from '../health/health.sql.js';
import { checkKeys } from '../health/keys.js';
import { checkSettings } from '../health/settings.js';
import type { Config } from '../node/config.js';
import { followerProblems } from '../outbox/follower-words.js';
import { readHead } from '../outbox/outbox.sql.js';
import type { Database } from '../postgres/database.js';
import { schemaState } from '../postgres/migrate.js';
import { checkCapacity, checkDisk } from './doctor-capacity.js';
import { checkErasures } from './doctor-erasure.js';
import { checkP2p } from './doctor-gossip.js';
import { checkLoopback } from './doctor-port.js';
import { checkConsumers, checkJobs } from './doctor-work.js';
import { bytesText, count } from './progress.js';

export async function* checkSchema(
  client: Client,
  database: Database,
  config: Config,
): AsyncGenerator<Finding> {
  const { applied, pending, unknown } = await schemaState(client);
  if (unknown.length > 0) {
    const advice = 'Start a newer Minato, or restore a backup made with this one.';
    yield fail(`the schema is newer than this program: it has ${unknown.join(', ')}`, advice);
  }
  if (pending.length > 0) {
    yield warn(
      `the schema lacks ${pending.join(', ')}`,
      'Run "minato migrate"; "minato serve" also does it.',
    );
  }
  if (applied.length === 0 || pending.length > 0) return;
  if (unknown.length === 0) yield ok(`schema up to date (${applied.at(-1)})`);
  const missing = await missingPartitions(client, Date.now());
  if (missing.length === 0) yield ok('partitions of this month and the next exist');
  else
    yield warn(
      `partitions are missing: ${missing.join(', ')}`,
      'A running node creates them within a minute; start it.',
    );
  for (const { slug, events, bytes } of await readHeld(client)) {
    yield ok(`community ${slug}: ${count(events)} events kept, ${bytesText(bytes)}`);
  }
  yield ok(`outbox at offset ${count(await readHead(client))}`);
  yield* checkSettings(client);
  yield* checkLoopback(client, config);
  yield* checkCapacity(client);
  yield* checkDisk(client, config.databaseUrl === undefined ? config.dataDir : undefined);
  yield* checkConsumers(client);
  yield* checkJobs(client);
  yield* checkP2p(database.pool);
  for (const { text, advice } of await followerProblems(client)) yield warn(text, advice);
  yield* checkKeys(database.pool, config.dataDir);
  yield* checkErasures(client, database, config);
}
