/**
 * The part of `minato doctor` that opens the database. health/server.ts checks the server, doctor-schema.ts
 * the contents of the database.
 */
import { join } from 'node:path';
import { archiveExtras } from '../backup/wal-archive.js';
import { type Finding, fail, info, messageOf, warn } from '../health/finding.js';
import { checkServer } from '../health/server.js';
import type { Config } from '../node/config.js';
import { checkSessions, POOLED } from '../postgres/database.js';
import { openPostgres } from '../postgres/open.js';
import { checkBackups } from './doctor-backup.js';
import { exists } from './doctor-configuration.js';
import { checkReplica } from './doctor-replica.js';
import { checkSchema } from './doctor-schema.js';

const STATEMENT_MS_MAX = 10_000;

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
  const extras = () => archiveExtras(config);
  const opened = await openPostgres({ databaseUrl, dataDir, user, log, extras, attach: true });
  try {
    const pooled = await checkSessions(opened.database).catch(messageOf);
    if (pooled === POOLED) {
      yield fail(`${opened.where} is a pooler`, POOLED);
      return;
    }
    const client = await opened.database.connect({ statementTimeoutMs: STATEMENT_MS_MAX }).catch(messageOf);
    if (typeof client === 'string') {
      const advice = databaseUrl === undefined ? EMBEDDED_ADVICE : REACH_ADVICE;
      yield fail(`${opened.where} does not answer: ${client}`, advice);
      return;
    }
    try {
      yield* checkServer(client, opened.where);
      if (config.databaseReadUrl !== undefined) yield* checkReplica(client, config.databaseReadUrl);
      yield* checkSchema(client, opened.database, config);
      yield* checkBackups(client, config, Date.now());
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
