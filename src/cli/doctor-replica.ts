/** The part of `minato doctor` that checks DATABASE_READ_URL. */
import type { ClientBase } from 'pg';
import { readReplicaState } from '../events/postgres/replica.js';
import { type Finding, fail, messageOf, ok, warn } from '../health/finding.js';
import { openDatabase } from '../postgres/database.js';
import { withoutPassword } from '../postgres/rules-database-url.js';

const STATEMENT_MS_MAX = 5_000;

export async function* checkReplica(primary: ClientBase, url: string): AsyncGenerator<Finding> {
  const where = `the replica ${withoutPassword(url)}`;
  const database = openDatabase({ url });
  try {
    const client = await database.connect({ statementTimeoutMs: STATEMENT_MS_MAX }).catch(messageOf);
    if (typeof client === 'string') {
      yield warn(
        `${where} does not answer: ${client}`,
        'Until it does, everything is read from DATABASE_URL.',
      );
      return;
    }
    try {
      const { isReplica, isSame, behind, isPaused } = await readReplicaState(primary, client);
      if (!isSame) {
        const advice = 'Correct DATABASE_READ_URL, or unset it. The node does not start with it.';
        yield fail(`${where} is not a replica of DATABASE_URL, but another database`, advice);
      } else if (!isReplica)
        yield warn(`${where} is no replica but the primary itself`, 'Unset it, or name a streaming replica.');
      else if (isPaused)
        yield warn(`${where} does not replay: paused`, 'Call pg_wal_replay_resume() on the replica.');
      else if (behind > 0)
        yield warn(`${where} is ${behind} changes behind`, 'Reads use DATABASE_URL until it has caught up.');
      else yield ok(`${where} has everything`);
    } finally {
      await client.end();
    }
  } finally {
    await database.close();
  }
}
