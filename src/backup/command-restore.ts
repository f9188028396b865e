/** `minato restore` makes a data folder from a backup. */
import { access } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { bytesText, startProgress, watchInterruption } from '../cli/progress.js';
import { readConfig } from '../node/config.js';
import { createLog } from '../node/log.js';
import { restoreBackup } from './restore.js';
import { readPassphrase } from './sealing.js';
import { walFolderOf } from './wal-archive.js';

export function restoreCommand(): Command {
  return new Command('restore')
    .description('make the data folder from a backup of "minato backup"')
    .argument('<file>', 'base-TIME.tar.gz, or base-TIME.tar.gz.sealed')
    .option(
      '--until <time>',
      'restore what was committed up to this time, such as 2026-11-17T11:00:00Z',
      timeOf,
    )
    .option('--wal <folder>', 'where the archived log is (default: the folder wal beside the file)')
    .option('--no-wal', 'restore the backup alone, without the log after it')
    .addHelpText(
      'after',
      `
The data folder (MINATO_DATA_DIR) must be new; keys/ and certificates.jsonl may be in it already. Without
--until everything that was archived is restored. A failure leaves the folder as it was.

A backup has members who were erased after it was made. Put keys/ and certificates.jsonl, as they were last,
into the data folder before a node starts on it: then they are erased again before anybody is served.

Examples:
  $ MINATO_DATA_DIR=/srv/minato minato restore /backups/base-20261117T030000Z.tar.gz
  $ minato restore /backups/base-20261117T030000Z.tar.gz --until 2026-11-17T11:59:00Z
  $ minato erase replay`,
    )
    .action(restore);
}

function timeOf(text: string): number {
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)$/.test(text)
    ? Date.parse(text)
    : Number.NaN;
  if (Number.isNaN(time)) throw new InvalidArgumentError('must be a time like 2026-11-17T11:00:00Z.');
  return time;
}

interface Options {
  readonly until?: number;
  /** False by --no-wal. */
  readonly wal: string | boolean;
}

async function restore(file: string, { until, wal }: Options): Promise<void> {
  const config = readConfig(process.env);
  if (config.databaseUrl !== undefined)
    throw new Error(
      'DATABASE_URL is a server of your own: restore it with its tools (docs/operations/backup.md), ' +
        'or unset the variable to restore into the data folder',
    );
  const passphraseFile = config.backupPassphraseFile;
  const path = resolve(file);
  const interruption = watchInterruption();
  let progress: ReturnType<typeof startProgress> | undefined;
  try {
    const { manifest, lastAt } = await restoreBackup({
      dataDir: resolve(config.dataDir),
      path,
      walFolder: await walFolder(path, wal),
      until,
      passphrase: passphraseFile === undefined ? undefined : await readPassphrase(passphraseFile),
      user: config.user,
      log: createLog(config.logLevel === 'info' ? 'warn' : config.logLevel, 'stderr'),
      signal: interruption.signal,
      onProgress: (done, total) => {
        progress ??= startProgress(total);
        progress.update(done, `${bytesText(done)} of ${bytesText(total)}`);
      },
    });
    const last = new Date(lastAt ?? manifest.startedAt).toISOString();
    process.stdout.write(
      `restored into ${config.dataDir}: the backup of ${new Date(manifest.startedAt).toISOString()}, ` +
        `${lastAt === undefined ? 'with no transaction after it' : `and its log up to ${last}`}\n` +
        'next: put keys/ and certificates.jsonl into the data folder, then minato erase replay, ' +
        'or start the node, which does the same before it serves\n',
    );
  } finally {
    progress?.stop();
    interruption.done();
  }
}

async function walFolder(path: string, wal: string | boolean): Promise<string | undefined> {
  if (wal === false) return undefined;
  const folder = typeof wal === 'string' ? resolve(wal) : walFolderOf(dirname(path));
  const isThere = await access(folder).then(
    () => true,
    () => false,
  );
  if (!isThere && typeof wal === 'string') throw new Error(`${folder} cannot be read`);
  return isThere ? folder : undefined;
}
