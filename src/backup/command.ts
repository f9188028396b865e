/** `minato backup` saves the embedded database while the node serves. */
import { mkdir, realpath } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Command } from 'commander';
import { wholeNumber } from '../cli/answers.js';
import { type CommandContext, withDatabase } from '../cli/context.js';
import { bytesText, count, startProgress, watchInterruption } from '../cli/progress.js';
import { type Config, readConfig } from '../node/config.js';
import { SOFTWARE_VERSION } from '../node/version.js';
import { deleteOlder, type MadeBase, makeBase } from './base.js';
import { readArchiver } from './base-backup.sql.js';
import { keyReader, readManifest } from './restore.js';
import { readPassphrase } from './sealing.js';
import { folderKey } from './wal-archive.js';

/** The checkpoint at the start writes what is in memory. */
const STATEMENT_MS_MAX = 10 * 60_000;

export function backupCommand(): Command {
  return new Command('backup')
    .description('save the embedded database to a folder, while the node serves')
    .argument('[folder]', 'where to; without it MINATO_BACKUP_DIR is used')
    .option(
      '--keep <count>',
      'then delete all but the newest backups, and the log before',
      wholeNumber(1, 10_000),
    )
    .addHelpText(
      'after',
      `
Writes base-TIME.tar.gz, from which "minato restore" makes a new data folder. With
MINATO_BACKUP_DIR the node also copies its write-ahead log there, at least once a minute, and you can restore
to any moment since the oldest backup. With MINATO_BACKUP_PASSPHRASE_FILE both are encrypted.

Not in a backup: keys/ and certificates.jsonl of the data folder. Save them elsewhere, because together
with a backup they tell who was erased (docs/operations/backup.md).

Examples:
  $ minato backup /backups
  $ minato backup --keep 7                every night, with MINATO_BACKUP_DIR`,
    )
    .action(backup);
}

async function backup(given: string | undefined, { keep }: { keep?: number }): Promise<void> {
  const config = readConfig(process.env);
  if (config.databaseUrl !== undefined)
    throw new Error(
      'DATABASE_URL is a server of your own: use its tools, pg_basebackup or pg_dump ' +
        '(docs/operations/backup.md)',
    );
  const to = given ?? config.backupDir;
  if (to === undefined) throw new Error('name the folder: minato backup FOLDER, or set MINATO_BACKUP_DIR');
  const folder = resolve(to);
  await mkdir(folder, { recursive: true, mode: 0o711 }).catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${folder} cannot be made (${error.code})`);
  });
  const made = await withDatabase((context) => makeIn(folder, context));
  process.stdout.write(
    `${made.path}: ${bytesText(made.archiveBytes)}, from ${bytesText(made.bytes)} of the database` +
      `${config.backupPassphraseFile === undefined ? '' : ', encrypted'}\n`,
  );
  if (keep !== undefined) await deleteOld(folder, keep, config);
}

async function makeIn(folder: string, { config, database }: CommandContext): Promise<MadeBase> {
  const key = await folderKey(folder, config.backupPassphraseFile);
  const pgdata = join(await realpath(config.dataDir), 'postgres');
  const client = await database.connect({ statementTimeoutMs: STATEMENT_MS_MAX });
  const interruption = watchInterruption();
  let progress: ReturnType<typeof startProgress> | undefined;
  try {
    await warnOfArchive(client, config);
    return await makeBase({
      client,
      pgdata,
      folder,
      key,
      program: SOFTWARE_VERSION,
      now: Date.now,
      signal: interruption.signal,
      onProgress: (done, total) => {
        progress ??= startProgress(total);
        progress.update(done, `${bytesText(done)} of ${bytesText(total)}`);
      },
    });
  } finally {
    progress?.stop();
    interruption.done();
    await client.end();
  }
}

async function warnOfArchive(client: Parameters<typeof readArchiver>[0], config: Config): Promise<void> {
  const { isOn, isFailing } = await readArchiver(client);
  if (isFailing) process.stderr.write('the log is not archived at the moment: "minato doctor" says more\n');
  if (config.backupDir !== undefined && !isOn)
    process.stderr.write('the log is not archived: restart the node with MINATO_BACKUP_DIR\n');
}

async function deleteOld(folder: string, keep: number, config: Config): Promise<void> {
  const file = config.backupPassphraseFile;
  const keyFor = keyReader(file === undefined ? undefined : await readPassphrase(file));
  const firstOf = async (path: string) => (await readManifest(path, keyFor)).segment;
  const { bases, segments } = await deleteOlder(folder, keep, firstOf);
  if (bases > 0)
    process.stdout.write(`deleted ${count(bases)} older backups and ${count(segments)} files of the log\n`);
}
