/** The command `minato personal-data`: lists requests, and writes the file of one key. */
import { type FileHandle, open, rm } from 'node:fs/promises';
import { Command } from 'commander';
import type { Client } from 'pg';
import { DynamodbAudit } from '../audit/dynamodb.js';
import { oneOf, printAll, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { bytesText, count, startProgress, watchInterruption } from '../cli/progress.js';
import type { Community } from '../communities/communities.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { openPersonal, type PersonalEvents } from '../events/dynamodb/erasing/personal.js';
import type { Database } from '../postgres/database.js';
import { writePersonalFile } from './file.js';
import { findPerson, inSnapshot, type Person } from './personal-data.sql.js';
import { PERSONAL_STORES } from './registry.js';
import { listPersonal, type PersonalRequest } from './requests.sql.js';
import { PERSONAL_KINDS, PERSONAL_STATUSES, type PersonalKind, type PersonalStatus } from './rules.js';

interface ListOptions {
  community: string;
  kind?: PersonalKind;
  status?: PersonalStatus;
}

interface ExportOptions {
  community: string;
  force?: boolean;
}

export function personalDataCommand(): Command {
  const personalData = new Command('personal-data').description(
    'requests of members about their own data, and a file of everything held about one key',
  );
  personalData
    .command('list', { isDefault: true })
    .description('show the requests for exports and deletions, newest first')
    .option(...COMMUNITY_OPTION)
    .option('--kind <kind>', PERSONAL_KINDS.join(', '), oneOf(PERSONAL_KINDS))
    .option('--status <status>', PERSONAL_STATUSES.join(', '), oneOf(PERSONAL_STATUSES))
    .addHelpText(
      'after',
      `
Examples:
  $ minato personal-data
  $ minato personal-data list --kind deletion --status pending -c art`,
    )
    .action(({ community: slug, kind, status }: ListOptions) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll(
          (page) => listPersonal(database.pool, { community: id, kind, status }, page),
          lineOf,
          'no requests',
        ),
      ),
    );
  personalData
    .command('export')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .argument('<file>', 'the zip file to write')
    .description('write the same file that a member can request; for requests that arrive by letter or mail')
    .option(...COMMUNITY_OPTION)
    .option('--force', 'overwrite an existing file')
    .addHelpText(
      'after',
      `
The export is written to the audit log. privacy.exportBytesMax does not limit this file.

Examples:
  $ minato personal-data export npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 fiatjaf.zip`,
    )
    .action(exportFile);
  return personalData;
}

function lineOf({ requestId, createdAt, kind, status, pubkey, note, error }: PersonalRequest): string {
  const words = [note, error].flatMap((text) => (text === null ? [] : [JSON.stringify(text)]));
  return [requestId, timeText(createdAt), kind.padEnd(8), status.padEnd(9), pubkey, ...words].join('  ');
}

async function exportFile(
  pubkey: string,
  path: string,
  { community: slug, force }: ExportOptions,
): Promise<void> {
  const interruption = watchInterruption();
  try {
    await withCommunity(slug, async ({ database, config }, community) => {
      const file = await openFile(path, force === true);
      const audit = config.dynamodb && new DynamodbAudit(config.dynamodb);
      const events = config.eventStore === 'dynamodb' ? openPersonal(config.dynamodb!) : undefined;
      try {
        await exportTo(file, { database, audit, events, community, pubkey, signal: interruption.signal });
      } catch (error) {
        // A partial zip cannot be read.
        await rm(path, { force: true });
        if (!interruption.signal.aborted) throw error;
        process.stderr.write('Interrupted; nothing was written.\n');
        process.exitCode = interruption.exitCode() ?? 1;
      } finally {
        await audit?.close();
        await events?.close();
        await file.close();
      }
    });
  } finally {
    interruption.done();
  }
}

interface Export {
  readonly database: Database;
  readonly audit: DynamodbAudit | undefined;
  readonly events: PersonalEvents | undefined;
  readonly community: Community;
  readonly pubkey: string;
  readonly signal: AbortSignal;
}

/** Reading the rows of a member who has posted for years takes minutes. */
const STATEMENT_MS_MAX = 600_000;

async function exportTo(file: FileHandle, wanted: Export): Promise<void> {
  const { database, community, pubkey } = wanted;
  // The audit row is written before anything is read, so that no export goes unrecorded.
  await changeConfig(database.pool, { community: community.id, now: Date.now() }, (change) =>
    change.audit('personal-data.export', pubkey),
  );
  const client = await database.connect({ statementTimeoutMs: STATEMENT_MS_MAX });
  try {
    const person = await findPerson(client, community.id, pubkey);
    await writeFile(client, person, file, wanted);
  } finally {
    await client.end();
  }
}

async function openFile(path: string, force: boolean): Promise<FileHandle> {
  try {
    return await open(path, force ? 'w' : 'wx', 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(
      code === 'EEXIST'
        ? `${path} already exists. Use --force to overwrite it`
        : `${path} cannot be written (${code})`,
    );
  }
}

async function writeFile(
  client: Client,
  person: Person,
  file: FileHandle,
  { audit, events, community: { slug, settings }, signal }: Export,
): Promise<void> {
  const moved = (await audit?.count(person)) ?? 0;
  const progress = startProgress((await countRows(client, person)) + moved);
  const { rows, bytes } = await writePersonalFile(
    {
      client,
      person,
      community: { slug, name: settings['relay.name'] },
      now: Date.now(),
      signal,
      audit,
      events,
      onRows: (rows) => progress.update(rows, `${count(rows)} rows`),
    },
    async (piece) => {
      await file.writeFile(piece);
    },
  );
  await file.datasync();
  progress.stop();
  process.stderr.write(`${count(rows)} rows, ${bytesText(bytes)}\n`);
}

function countRows(client: Client, person: Person): Promise<number> {
  return inSnapshot(client, async () => {
    let rows = 0;
    for (const store of PERSONAL_STORES) rows += await store.count(client, person);
    return rows;
  });
}
