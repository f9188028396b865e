/** `minato`: one command per file. Errors become one sentence and an exit code; a stack is shown at debug level only. */
import { Command } from 'commander';
import { SOFTWARE_VERSION } from '../relay/nip11.js';
import { blocksCommand } from './blocks.js';
import { communitiesCommand } from './communities.js';
import { consumersCommand } from './consumers.js';
import { doctorCommand } from './doctor.js';
import { exportCommand } from './export.js';
import { importCommand } from './import.js';
import { invitesCommand } from './invites.js';
import { jobsCommand } from './jobs.js';
import { keysCommand } from './keys.js';
import { membersCommand } from './members.js';
import { migrateCommand } from './migrate.js';
import { moderationCommand } from './moderation.js';
import { operatorsCommand } from './operators.js';
import { personalDataCommand } from './personal-data.js';
import { plansCommand } from './plans.js';
import { policiesCommand } from './policies.js';
import { purgeCommand } from './purge.js';
import { requestsCommand } from './requests.js';
import { serveCommand } from './serve.js';
import { settingsCommand } from './settings.js';
import { topicsCommand } from './topics.js';
import { usageCommand } from './usage.js';

const program = new Command('minato')
  .description('A community node for Nostr: a relay with topics, members and an operator, on PostgreSQL.')
  .version(SOFTWARE_VERSION)
  .addHelpText(
    'after',
    `
Examples:
  $ minato serve                                  a relay at ws://127.0.0.1:7447, its data in ./data
  $ MINATO_TOPIC_MODE=open minato serve           the first start of a plain relay for any client
  $ minato settings set relay.name "Our harbour"  takes effect at once, without a restart
  $ minato requests                               what members ask for, to approve or reject
  $ minato import events.jsonl.gz                 through the same checks as a post
  $ minato doctor                                 what is configured, and what to do about problems

Boot settings are environment variables; "minato serve --help" lists them.`,
  );

for (const command of [
  serveCommand(),
  migrateCommand(),
  settingsCommand(),
  communitiesCommand(),
  topicsCommand(),
  requestsCommand(),
  membersCommand(),
  operatorsCommand(),
  invitesCommand(),
  policiesCommand(),
  blocksCommand(),
  moderationCommand(),
  keysCommand(),
  plansCommand(),
  usageCommand(),
  personalDataCommand(),
  importCommand(),
  exportCommand(),
  jobsCommand(),
  consumersCommand(),
  purgeCommand(),
  doctorCommand(),
]) {
  program.addCommand(command);
}

/** An error of usage points to the help of the very command; commander does not hand this down by itself. */
function pointToHelp(command: Command, name: string): void {
  command.showHelpAfterError(`(try: ${name} --help)`);
  for (const child of command.commands) pointToHelp(child, `${name} ${child.name()}`);
}
pointToHelp(program, 'minato');

// `minato export | head` ends when its reader does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 141 : 1));

program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`minato: ${error instanceof Error ? error.message : String(error)}\n`);
  if (process.env.MINATO_LOG_LEVEL === 'debug' && error instanceof Error)
    process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
