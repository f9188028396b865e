/**
 * `minato events copy`: moves the events of a node to the other store. Most of it runs beside the node. For
 * the switch the node is stopped: what changed meanwhile is brought over, both stores are compared, and the
 * node remembers where its events are now.
 */
import { Command, Option } from 'commander';
import { withDatabase } from '../../cli/context.js';
import { count, startProgress, watchInterruption } from '../../cli/progress.js';
import { watchCommunities } from '../../communities/communities.js';
import { settingsFrom } from '../../communities/rules-settings.js';
import type { DynamodbPlace, EventStoreName } from '../../node/config.js';
import type { Log } from '../../node/log.js';
import { prepareDatabase } from '../../node/prepare.js';
import { writeEventStore } from '../../node/state.sql.js';
import { Dynamodb } from '../dynamodb/client.js';
import { checkTables, deleteTables, ensureTables } from '../dynamodb/tables.js';
import { copyState, forgetCopy } from './checkpoint.js';
import { type CopyOptions, type Verified, verifyCopy } from './compare.js';
import { countHistoryDeletions, countOthers, holdLane, truncateEvents } from './source.sql.js';
import { forgetStream, resetSweeps } from './target.sql.js';
import * as toDynamodb from './to-dynamodb.js';
import * as toPostgres from './to-postgres.js';

interface Options {
  to: EventStoreName;
  switch?: boolean;
  quick?: boolean;
  restart?: boolean;
}

const NAMES: Readonly<Record<EventStoreName, string>> = { dynamodb: 'DynamoDB', postgres: 'PostgreSQL' };
const other = (store: EventStoreName): EventStoreName => (store === 'dynamodb' ? 'postgres' : 'dynamodb');

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
5. When all is well, "minato events drop --from postgres --yes" deletes the old copy. Until then the node can
   go back by a restore of the value, without what was posted since. Erasures delete from the old copy too.

From DynamoDB to PostgreSQL the steps are the same, with "--to postgres", and with MINATO_EVENT_STORE=dynamodb
until the last start. The switch reads the tables of DynamoDB again as a whole. Afterwards erasures do not
reach these tables: delete them soon, with "minato events drop --from dynamodb --yes".

DYNAMODB_ENDPOINT, AWS_REGION and MINATO_DYNAMODB_PREFIX name the tables. The credentials need the right to
create, to scan and to delete tables, which a running node does not need. Counters of repeated events are not
copied. Delete the old copy before you move the events there again.

Examples:
  $ minato events copy --to dynamodb
  $ minato events copy --to dynamodb --switch
  $ minato events copy --to postgres`,
    )
    .action(copy);
}

export function dropCommand(): Command {
  return new Command('drop')
    .description('delete the copy of the events that a move has left')
    .addOption(new Option('--from <store>', 'where').choices(['dynamodb', 'postgres']).makeOptionMandatory())
    .option('--yes', 'delete it')
    .addHelpText(
      'after',
      `
Only the store that the node does not use. In PostgreSQL it deletes events, tags, ids, heads and tombstones,
not the log, and nothing of the control plane. In DynamoDB it deletes the three tables of the events.`,
    )
    .action(drop);
}

async function drop({ from, yes }: { from: EventStoreName; yes?: boolean }): Promise<void> {
  if (!yes) throw new Error('add --yes: the copy cannot be restored');
  await withDatabase(async ({ config, database, log }) => {
    await prepareDatabase(database, config, Date.now, log);
    if (config.eventStore === from) throw new Error(`the events of this node are in ${NAMES[from]}`);
    // A copy that was begun there begins again.
    await forgetCopy(database.pool);
    if (from === 'postgres') await truncateEvents(database.pool);
    else {
      const db = new Dynamodb(placeOf(config.dynamodb));
      try {
        await deleteTables(db);
      } finally {
        await db.close();
      }
      await forgetStream(database.pool);
    }
    process.stdout.write(`the old copy of the events in ${NAMES[from]} is deleted\n`);
  });
}

function placeOf(place: DynamodbPlace | undefined): DynamodbPlace {
  if (place === undefined) throw new Error('set DYNAMODB_ENDPOINT: it says where DynamoDB is');
  return place;
}

async function copy(options: Options): Promise<void> {
  const interruption = watchInterruption();
  try {
    await withDatabase(async ({ config, database, log }) => {
      const place = placeOf(config.dynamodb);
      const first = await database.connect();
      const { tagHash } = await prepareDatabase(database, config, Date.now, log);
      if (config.eventStore === options.to)
        throw new Error(`the events of this node are in ${NAMES[options.to]} already`);
      const watched = await watchCommunities(database.pool, log);
      await watched.stop();
      const communities = watched
        .all()
        .map(({ id }) => id)
        .sort((a, b) => a - b);
      const db = new Dynamodb(place);
      const settingsOf = (id: number) => watched.get(id)?.settings ?? settingsFrom(new Map());
      const { signal } = interruption;
      try {
        if (options.to === 'postgres') await checkTables(db);
        else for (const name of await ensureTables(db)) process.stdout.write(`created the table ${name}\n`);
        if (options.restart) await forgetCopy(database.pool);
        const { pool } = database;
        const moving = { pool, db, settingsOf, client: first, tagHash, communities, signal };
        if (options.switch) await switchStore(moving, options, { place, log });
        else await copyBeside(moving, options);
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

type Moving = Omit<CopyOptions, 'onPage'> & { readonly communities: readonly number[] };
type Shown = Moving & Pick<CopyOptions, 'onPage'>;

/** Shows how many rows were read and written. */
async function shown<T>(what: string, moving: Moving, work: (options: Shown) => Promise<T>): Promise<T> {
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

async function copyBeside(moving: Moving, { to }: Options): Promise<void> {
  const before = await copyState(moving.pool);
  if (before === 'unfinished') process.stderr.write('Resuming where the last run stopped.\n');
  if (before === 'done') {
    process.stdout.write('Everything was copied. Stop the node, then run this command with --switch.\n');
    return;
  }
  const { copyAll } = to === 'postgres' ? toPostgres : toDynamodb;
  const isWhole = await shown('copied', moving, (options) => copyAll(options));
  process.stdout.write(
    isWhole
      ? 'Next: stop all instances of the node, then run this command with --switch.\n'
      : 'Interrupted. Run the same command to continue.\n',
  );
}

async function switchStore(
  moving: Moving,
  { to, quick = false }: Options,
  { place, log }: { readonly place: DynamodbPlace; readonly log: Log },
): Promise<void> {
  const { pool, client, signal } = moving;
  if ((await countOthers(client)) > 0)
    throw new Error(
      'another program of this node is connected to the database; stop all its instances first',
    );
  if (to === 'postgres')
    await shown('read the stream', moving, (options) => toPostgres.readStream(options, { place, log }));
  // A node that starts meanwhile cannot write.
  await holdLane(client);
  if (to === 'dynamodb' && (await countHistoryDeletions(pool)) > 0)
    throw new Error('deletions of long histories are under way; run first: minato jobs run delete-history');
  const way = to === 'postgres' ? toPostgres : toDynamodb;
  if (!(await shown('copied', moving, (options) => way.copyAll(options, true)))) return;
  const isComplete = await shown('changed since', moving, (options) => way.finishCopy(options));
  if (!isComplete && quick) throw new Error('the log no longer has all changes since; run without --quick');
  if (!quick || to === 'postgres') {
    const removed = await shown('deleted since', moving, (options) => way.removeOrphans(options));
    if (removed > 0) process.stdout.write(`${count(removed)} items removed that were deleted since\n`);
  }
  if (!quick) report(await shown('compared', moving, verifyCopy));
  if (signal.aborted) return;
  await resetSweeps(pool);
  // A place of this copy must not be taken for one of the way back.
  await forgetCopy(pool);
  await writeEventStore(pool, to);
  const named = to === 'dynamodb' ? ` DYNAMODB_ENDPOINT=${place.endpoint}` : '';
  const erased = to === 'dynamodb' ? '' : ', which erasures do not reach';
  process.stdout.write(
    `The events of this node are in ${NAMES[to]} now.\n` +
      `Start it with MINATO_EVENT_STORE=${to}${named}\n` +
      `Then delete the old copy${erased}: minato events drop --from ${other(to)} --yes\n`,
  );
}

function report(found: readonly Verified[]): void {
  for (const { section, postgres, dynamodb, differing } of found)
    process.stdout.write(
      `${section.padEnd(12)} ${count(postgres).padStart(12)} in PostgreSQL ${count(dynamodb).padStart(12)} ` +
        `in DynamoDB ${count(differing).padStart(8)} differ\n`,
    );
  if (found.some(({ postgres, dynamodb, differing }) => differing > 0 || postgres !== dynamodb))
    throw new Error(
      'the two stores differ, so nothing was switched; run the command again with --restart, ' +
        'or first delete the copy that an earlier move has left: minato events drop',
    );
}
