import { Command } from 'commander';
import { pubkeyArgument, pubkeyArguments, timeText } from '../../cli/answers.js';
import { withDatabase } from '../../cli/context.js';
import { prepareDatabase } from '../../node/prepare.js';
import type { Database } from '../../postgres/database.js';
import { isUuid } from '../../postgres/values.js';
import { listCertificates, readCertificate } from './certificates.sql.js';
import { checkFiles, type VerifyOptions } from './check.js';

const PORTION = 500;

const EXAMPLES = `
A certificate is a Nostr event, signed by the key of the node (minato keys list shows it), with the id of the
one before it. To verify one you need the file and the public key, which you get from the operator, and
neither the node nor its database.

Examples:
  $ minato certificate show ID > proof.json
  $ minato certificate show ID --html > proof.html      a page to print
  $ minato certificate verify proof.json --key npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6
  $ minato certificate verify data/certificates.jsonl    all of them, and that none is missing between them
  $ minato certificate verify proof.json --subject npub1…   on the node's machine: is it about this person?`;

export function certificateCommand(): Command {
  const command = new Command('certificate')
    .description('the signed proofs of erasures: show, print, verify')
    .addHelpText('after', EXAMPLES);
  command
    .command('list', { isDefault: true })
    .description('show them, in the order in which they were signed')
    .action(() => withPrepared(list));
  command
    .command('show <erasure>')
    .description('write the certificate of an erasure, as the event or as a page')
    .option('--html', 'a page to print')
    .action((id: string, { html }: { html?: boolean }) =>
      withPrepared((database) => show(database, id, html === true)),
    );
  command
    .command('verify <file...>')
    .description('check files, JSON lines or folders of them; exit code 1 when something is wrong')
    .option(
      '--key <pubkey>',
      'npub or hex that must have signed; may be repeated for each key of the node',
      pubkeyArguments,
    )
    .option('--subject <pubkey>', 'is it about this key? needs the erasure key', pubkeyArgument)
    .option('-c, --community <slug>', 'with --subject: of this community only')
    .addHelpText('after', EXAMPLES)
    .action(verify);
  return command;
}

function withPrepared(work: (database: Database) => Promise<void>): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    await prepareDatabase(database, config, Date.now, log);
    await work(database);
  });
}

async function list({ pool }: Database): Promise<void> {
  for (let after = 0; ; ) {
    const certificates = await listCertificates(pool, { after, limit: PORTION });
    for (const { position, at, erasureId, id } of certificates)
      process.stdout.write(`${String(position).padStart(6, '0')}  ${timeText(at)}  ${erasureId}  ${id}\n`);
    if (after === 0 && certificates.length === 0) process.stdout.write('there is no certificate yet\n');
    if (certificates.length < PORTION) return;
    after = certificates.at(-1)!.position;
  }
}

async function show({ pool }: Database, id: string, html: boolean): Promise<void> {
  const found = isUuid(id) ? await readCertificate(pool, id) : undefined;
  if (found === undefined)
    throw new Error(`there is no certificate of "${id}"; "minato certificate list" shows them`);
  if (!html) {
    process.stdout.write(`${found.event}\n`);
    return;
  }
  const { certificatePage } = await import('./page.js');
  const page = certificatePage(JSON.parse(found.event));
  if (page === undefined) throw new Error('this certificate has a version that this program does not know');
  process.stdout.write(page);
}

async function verify(paths: readonly string[], options: VerifyOptions): Promise<void> {
  const { lines, problems } = await checkFiles(paths, options);
  for (const line of lines) process.stdout.write(`${line}\n`);
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  if (problems.length > 0) process.exitCode = 1;
}
