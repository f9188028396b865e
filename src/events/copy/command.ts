/**
 * `minato events copy`: moves the events of a node to the other store. Most of it runs beside the node. For
 * the switch the node is stopped: what changed meanwhile is brought over, both stores are compared, and the
 * node remembers where its events are now.
 */
import { Command, Option } from 'commander';
import type { Client } from 'pg';
import { withDatabase } from '../../cli/context.js';
import { count, startProgress, watchInterruption } from '../../cli/progress.js';
import { watchCommunities } from '../../communities/communities.js';
import { settingsFrom } from '../../communities/rules-settings.js';
import type { Config } from '../../node/config.js';
import { prepareDatabase } from '../../node/prepare.js';
import { writeEventStore } from '../../node/state.sql.js';
import { Dynamodb } from '../dynamodb/client.js';
import { ensureTables } from '../dynamodb/tables.js';
import { countHistoryDeletions, countOthers, holdLane, truncateEvents } from './source.sql.js';
import {
  type CopyOptions,
  copyAll,
  copyState,
  finishCopy,
  forgetCopy,
  removeOrphans,
  type Verified,
  verifyCopy,
} from './to-dynamodb.js';

interface Options {
  to: 'dynamodb' | 'postgres';
  switch?: boolean;
  quick?: boolean;
  restart?: boolean;
}

export function copyCommand(): Command {
  return new Command('copy')
    .description('move the events of this node to another store')
    .addOption(new Option('--to <store>', 'where to').choices(['dynamodb', 'postgres']).makeOptionMandatory())
    .option('--switch', 'after the node was stopped: copy what changed, compare, and use the new store')
    .option('--quick', 'with --switch: do not compare both stores as a whole')
    .option('--restart', 'compare everything again, from the beginning')
    .addHelpText(
      'after',
      `
1. Run "minato events copy --to dynamodb" beside the running node, as often as you like. It creates the
   tables that are missing, copies events (served and hidden), ids, heads, tombstones and marks, and resumes
   where it was interrupted or killed.
2. Stop all instances of the node.
3. Run it with --switch. It copies what changed since, compares the counts and the hash of each item, and
   remembers the new place. The longer the first step is ago, the longer this takes.
4. Start the node with MINATO_EVENT_STORE=dynamodb.
5. When all is well, "minato events drop --from postgres" deletes the old copy, which erasures no longer
   reach. Until then the node can go back by a restore of the value, without what was posted since.

DYNAMODB_ENDPOINT, AWS_REGION and MINATO_DYNAMODB_PREFIX name the tables. The credentials need the right to
create and to scan tables, which a running node does not need. Counters of repeated events are not copied.

From DynamoDB to PostgreSQL: "minato export" and "minato import" on an empty database move what is served.

Examples:
  $ minato events copy --to dynamodb
  $ minato events copy --to dynamodb --switch`,
    )
    .action(copy);
}

export function dropCommand(): Command {
  return new Command('drop')
    .description('delete the copy of the events that a move has left')
    .addOption(new Option('--from <store>', 'where').choices(['postgres']).makeOptionMandatory())
    .option('--yes', 'delete it')
    .addHelpText(
      'after',
      `
Only for a node whose events are in DynamoDB (MINATO_EVENT_STORE=dynamodb). It deletes events, tags, ids,
heads and tombstones in PostgreSQL, not the log, and nothing of the control plane.`,
    )
    .action(async ({ yes }: { yes?: boolean }) => {
      if (!yes) throw new Error('add --yes: the copy cannot be restored');
      await withDatabase(async ({ config, database, log }) => {
        await prepareDatabase(database, config, Date.now, log);
        if (config.eventStore !== 'dynamodb') throw new Error('the events of this node are in PostgreSQL');
        await truncateEvents(database.pool);
        process.stdout.write('the old copy of the events in PostgreSQL is deleted\n');
      });
    });
}

async function copy(options: Options): Promise<void> {
  if (options.to === 'postgres')
    throw new Error(
      'events are copied from PostgreSQL to DynamoDB only; to move them back, export them and import them ' +
        'into an empty database: minato export events.jsonl.gz',
    );
  const interruption = watchInterruption();
  try {
    await withDatabase(async ({ config, database, log }) => {
      if (config.dynamodb === undefined) throw new Error('set DYNAMODB_ENDPOINT: it says where to');
      const first = await database.connect();
      await prepareDatabase(database, config, Date.now, log);
      if (config.eventStore === 'dynamodb')
        throw new Error('the events of this node are in DynamoDB already');
      const communities = await watchCommunities(database.pool, log);
      await communities.stop();
      const db = new Dynamodb(config.dynamodb);
      const settingsOf = (id: number) => communities.get(id)?.settings ?? settingsFrom(new Map());
      const { signal } = interruption;
      try {
        for (const name of await ensureTables(db)) process.stdout.write(`created the table ${name}\n`);
        if (options.restart) await forgetCopy(database.pool);
        const moving = { pool: database.pool, db, settingsOf, signal };
        if (options.switch) await switchStore(moving, options, { config, first });
        else await copyBeside(moving);
      } finally {
        await first.end();
        await db.close();
      }
    });
  } finally {
    interruption.done();
    process.exitCode ??= interruption.exitCode();
  }
}

type Moving = Omit<CopyOptions, 'onPage'>;

/** Shows how many rows were read and written. */
async function shown<T>(
  what: string,
  moving: Moving,
  work: (options: CopyOptions) => Promise<T>,
): Promise<T> {
  const progress = startProgress(undefined);
  const startedAt = Date.now();
  const sums = { read: 0, written: 0 };
  const result = await work({
    ...moving,
    onPage: (section, { read, written }) => {
      sums.read += read;
      sums.written += written;
      progress.update(
        sums.read,
        `${what} ${section}: ${count(sums.read)} read, ${count(sums.written)} written`,
      );
    },
  });
  progress.stop();
  const seconds = ((Date.now() - startedAt) / 1_000).toFixed(1);
  process.stdout.write(`${what}: ${count(sums.read)} read, ${count(sums.written)} written, ${seconds} s\n`);
  return result;
}

async function copyBeside(moving: Moving): Promise<void> {
  const before = await copyState(moving.pool);
  if (before === 'unfinished') process.stderr.write('Resuming where the last run stopped.\n');
  if (before === 'done') {
    process.stdout.write('Everything was copied. Stop the node, then run this command with --switch.\n');
    return;
  }
  const isWhole = await shown('copied', moving, copyAll);
  process.stdout.write(
    isWhole
      ? 'Next: stop all instances of the node, then run this command with --switch.\n'
      : 'Interrupted. Run the same command to continue.\n',
  );
}

async function switchStore(
  moving: Moving,
  { quick = false }: Options,
  { config, first }: { readonly config: Config; readonly first: Client },
): Promise<void> {
  const { pool } = moving;
  if ((await countOthers(first)) > 0)
    throw new Error(
      'another program of this node is connected to the database; stop all its instances first',
    );
  // A node that starts meanwhile cannot write.
  await holdLane(first);
  if ((await countHistoryDeletions(pool)) > 0)
    throw new Error('deletions of long histories are under way; run first: minato jobs run delete-history');
  if (!(await shown('copied', moving, copyAll))) return;
  const isComplete = await shown('changed since', moving, finishCopy);
  if (!isComplete && quick) throw new Error('the log no longer has all changes since; run without --quick');
  if (!quick) {
    const removed = await shown('deleted since', moving, removeOrphans);
    if (removed > 0) process.stdout.write(`${count(removed)} items removed that were deleted since\n`);
    report(await shown('compared', moving, verifyCopy));
  }
  if (moving.signal.aborted) return;
  await writeEventStore(pool, 'dynamodb');
  await forgetCopy(pool);
  const place = `DYNAMODB_ENDPOINT=${config.dynamodb!.endpoint}`;
  process.stdout.write(
    `The events of this node are in DynamoDB now.\n` +
      `Start it with MINATO_EVENT_STORE=dynamodb ${place}\n` +
      `Then delete the old copy, which erasures no longer reach: minato events drop --from postgres --yes\n`,
  );
}

function report(found: readonly Verified[]): void {
  for (const { section, source, target, differing } of found)
    process.stdout.write(
      `${section.padEnd(12)} ${count(source).padStart(12)} in PostgreSQL ${count(target).padStart(12)} ` +
        `in DynamoDB ${count(differing).padStart(8)} differ\n`,
    );
  if (found.some(({ source, target, differing }) => differing > 0 || source !== target))
    throw new Error('the two stores differ, so nothing was switched; run the command again with --restart');
}
