/** `minato erase replay` applies erasures again after a restore, from their certificates; and `unban`. */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { npubEncode } from 'nostr-tools/nip19';
import { pubkeyArgument, pubkeyArguments } from '../cli/answers.js';
import { COMMUNITY_OPTION, chooseCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import { type CommandJobs, runNow, withJobs } from '../jobs/command.js';
import { readConfig } from '../node/config.js';
import { knownCertificates } from './certificates/certificates.sql.js';
import { readProofs } from './certificates/files.js';
import { certificatesFile } from './certificates/sign.js';
import { readErasure, shownStage } from './erasures.sql.js';
import { strangeOrigin, strangersAmong } from './forgotten.js';
import { erase } from './jobs.js';
import { type Proof, replayErasures } from './replay.js';
import { liftBan } from './steps.sql.js';
import { withRegistry } from './stores/registry.js';

export function replayCommand(): Command {
  return new Command('replay')
    .description('after a restore from a backup: apply again every erasure since')
    .argument('[files...]', 'files with certificates (default: those in the data folder)')
    .option(
      '--key <npub>',
      'also accept certificates that this key has signed; may be repeated',
      pubkeyArguments,
    )
    .option('--all', 'also those that the database knows: DynamoDB was restored, and PostgreSQL was not')
    .addHelpText(
      'after',
      `
A restored backup contains members who were erased after it was made. Their certificates are kept outside
the database, in certificates.jsonl of the data folder. They name nobody, so every key in the database is
compared with them, and erased members are erased again. You can run this more than once. Only certificates
that this node has signed are accepted.

Examples:
  $ minato erase replay
  $ minato erase replay --all
  $ minato erase replay proofs.jsonl --key npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6`,
    )
    .action(replay);
}

interface ReplayFlags {
  readonly key?: readonly string[];
  readonly all?: boolean;
}

async function replay(files: readonly string[], { key = [], all = false }: ReplayFlags): Promise<void> {
  const { dataDir } = readConfig(process.env);
  const paths = files.length === 0 ? [certificatesFile(dataDir)] : files;
  const proofs: Proof[] = [];
  for (const path of paths) proofs.push(...(await proofsIn(path)));
  await withJobs(async (context) => {
    await refuseStrangers(context, proofs, key);
    await refuseOthers(context, proofs, key);
    await again(context, proofs, all);
  });
}

async function proofsIn(path: string): Promise<readonly Proof[]> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new Error(`${path} cannot be read (${error.code}): give the files with the certificates`);
  });
  const { proofs, problems } = readProofs(text);
  if (problems.length > 0)
    throw new Error(
      `${path} holds what is no certificate, and nothing was done:\n  ${problems.join('\n  ')}`,
    );
  return proofs;
}

async function refuseStrangers(
  { erasing }: CommandJobs,
  proofs: readonly Proof[],
  trusted: readonly string[],
): Promise<void> {
  for (const signer of await strangersAmong(erasing, proofs))
    if (!trusted.includes(signer))
      throw new Error(
        `a certificate was signed by ${npubEncode(signer)}, ` +
          'which is no key of this node, and nothing was done; ' +
          `if you trust it, add --key ${npubEncode(signer)}`,
      );
}

/** Refuses certificates of another database, unless the operator has named all of their signers. */
async function refuseOthers(
  { erasing: { pool } }: CommandJobs,
  proofs: readonly Proof[],
  trusted: readonly string[],
): Promise<void> {
  const ids = proofs.map(({ id }) => id);
  const known = await knownCertificates(pool, ids);
  const forgotten = proofs.filter(({ id }) => !known.has(id));
  const why = await strangeOrigin(pool, { proofs: forgotten, known: known.size });
  if (why === undefined || proofs.every(({ pubkey }) => trusted.includes(pubkey))) return;
  throw new Error(
    `these certificates are of another database (${why}), and nothing was done: ` +
      'check DATABASE_URL and MINATO_DATA_DIR; if they are of this one, add --key with each of their signers',
  );
}

async function again(context: CommandJobs, proofs: readonly Proof[], all: boolean): Promise<void> {
  const { database, erasing, now, signal, bounds } = context;
  const {
    known,
    elsewhere,
    marked,
    again: ids,
    deleted,
  } = await withRegistry(erasing, database, { now, rows: bounds.rows }, (opened) =>
    replayErasures({ ...erasing, ...opened, signal, now, all }, proofs),
  );
  process.stdout.write(
    `${count(proofs.length)} certificates: ${count(known)} known here, ` +
      `${count(elsewhere)} of communities that are not here, ` +
      `${count(marked)} whose refusal is in force again, ${count(ids.length)} to erase again\n`,
  );
  if (deleted > 0) process.stdout.write(`${count(deleted)} rows of erased communities were deleted again\n`);
  if (ids.length === 0) return;
  await runNow(erase, context);
  for (const id of ids) {
    const erasure = await readErasure(database.pool, id);
    const stage = erasure === undefined ? 'unknown' : shownStage(erasure);
    process.stdout.write(`${id}  ${stage}\n`);
    if (stage !== 'completed') process.exitCode = 1;
  }
}

export function unbanCommand(): Command {
  return new Command('unban')
    .description('let a member who was banned when they were erased come back')
    .argument('<pubkey>', 'npub or hex', pubkeyArgument)
    .option(...COMMUNITY_OPTION)
    .action((pubkey: string, { community: slug }: { community: string }) =>
      withJobs(async ({ erasing, communities }) => {
        const { id } = chooseCommunity(communities, slug);
        const subject = erasing.subjectKey.tryHash(id, pubkey);
        const lifted = subject !== undefined && (await liftBan(erasing.pool, id, subject));
        if (!lifted) throw new Error(`nobody with this key was erased from "${slug}" while banned`);
        process.stdout.write('they may come back with newer events\n');
      }),
    );
}
