/**
 * `minato`: one command per file. An error is printed as one sentence and sets the exit code; its stack is
 * shown only at log level debug.
 */
import cluster from 'node:cluster';
import { Command, CommanderError } from 'commander';
import { SOFTWARE_VERSION } from '../node/version.js';
import { EarlyPort } from '../port/early-port.js';
import { earlyAddress } from '../port/rules-early.js';

const [wanted = '', ...others] = process.argv.slice(2);

/** For what a node that cannot start has printed. */
const SERVER_EXIT_MS_MAX = 1_000;

const isHelp = others.some((word) => word === '--help' || word === '-h');
const isDemoNode = wanted === 'demo' && others.some((word) => /^--serve(=|$)/.test(word));
/** It must not wait for who reads its words. */
const isNode = !isHelp && (wanted === 'serve' || isDemoNode);

/**
 * Before the rest is loaded, which takes four times as long as all until here (0.24 of 0.30 s of CPU time):
 * clients that a restart has cut off come back within a second, and some of them try only once.
 */
const isServing = cluster.isPrimary && wanted === 'serve' && !isHelp;
const address = isServing ? earlyAddress(process.env) : undefined;
const opening = address && EarlyPort.open(address.host, address.port);

/**
 * Each command loads only what it needs, and so starts in half the time (0.3 instead of 0.57 s).
 */
const COMMANDS: Record<string, () => Promise<Command>> = {
  serve: async () => (await import('./serve.js')).serveCommand(opening),
  migrate: async () => (await import('./migrate.js')).migrateCommand(),
  settings: async () => (await import('../communities/command-settings.js')).settingsCommand(),
  communities: async () => (await import('../communities/command.js')).communitiesCommand(),
  topics: async () => (await import('../topics/command.js')).topicsCommand(),
  requests: async () => (await import('../topics/command-requests.js')).requestsCommand(),
  members: async () => (await import('../members/command.js')).membersCommand(),
  operators: async () => (await import('../members/command-operators.js')).operatorsCommand(),
  invites: async () => (await import('../members/command-invites.js')).invitesCommand(),
  policies: async () => (await import('../policies/command.js')).policiesCommand(),
  blocks: async () => (await import('../blocks/command.js')).blocksCommand(),
  moderation: async () => (await import('../moderation/command.js')).moderationCommand(),
  keys: async () => (await import('../keys/command.js')).keysCommand(),
  plans: async () => (await import('../plans/command.js')).plansCommand(),
  usage: async () => (await import('../plans/command-usage.js')).usageCommand(),
  erase: async () => (await import('../erasure/command.js')).eraseCommand(),
  certificate: async () => (await import('../erasure/certificates/command.js')).certificateCommand(),
  'personal-data': async () => (await import('../personal-data/command.js')).personalDataCommand(),
  events: async () => (await import('../life/command.js')).eventsCommand(),
  import: async () => (await import('../events/files/command-import.js')).importCommand(),
  export: async () => (await import('../events/files/command-export.js')).exportCommand(),
  sync: async () => (await import('../sync/command.js')).syncCommand(),
  peers: async () => (await import('../sync/command-peers.js')).peersCommand(),
  backup: async () => (await import('../backup/command.js')).backupCommand(),
  restore: async () => (await import('../backup/command-restore.js')).restoreCommand(),
  jobs: async () => (await import('../jobs/command.js')).jobsCommand(),
  consumers: async () => (await import('../outbox/consumers/command.js')).consumersCommand(),
  p2p: async () => (await import('../p2p/command.js')).p2pCommand(),
  followers: async () => (await import('../outbox/command-followers.js')).followersCommand(),
  purge: async () => (await import('../jobs/command-purge.js')).purgeCommand(),
  demo: async () => (await import('../demo/command.js')).demoCommand(),
  doctor: async () => (await import('./doctor.js')).doctorCommand(),
};

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
  $ minato requests                               requests of members, to approve or reject
  $ minato import events.jsonl.gz                 through the same checks as a post
  $ minato doctor                                 what is configured, and what to do about problems

Boot settings are environment variables; "minato serve --help" lists them.`,
  );

const isVersion = wanted === '--version' || wanted === '-V';
const chosen = Object.hasOwn(COMMANDS, wanted) ? [wanted] : isVersion ? [] : Object.keys(COMMANDS);
for (const name of chosen) program.addCommand(await COMMANDS[name]!());

/**
 * An error of usage points to the help of that command, and does not end the process before it is written.
 * Commander does not pass this to its children.
 */
function prepare(command: Command, name: string): void {
  command.showHelpAfterError(`(try: ${name} --help)`).exitOverride();
  for (const child of command.commands) prepare(child, `${name} ${child.name()}`);
}
prepare(program, 'minato');

// `minato export | head` ends when its reader does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 141 : 1));
// It is for people, who may have closed it. Opened here, a full pipe cannot block the last words of a node.
process.stderr.on('error', () => undefined);

program.parseAsync().catch(async (error: unknown) => {
  // The help, or an error of usage: commander has printed it.
  if (error instanceof CommanderError) return exit(error.exitCode);
  const { sentenceOf } = await import('./answers.js');
  process.stderr.write(`minato: ${sentenceOf(error)}\n`);
  if (process.env.MINATO_LOG_LEVEL === 'debug' && error instanceof Error)
    process.stderr.write(`${error.stack}\n`);
  await exit(1);
});

/** A command waits for its reader, as it does while it runs. A node that cannot start must end (I15). */
async function exit(code: number): Promise<void> {
  if (isNode) setTimeout(() => process.exit(code), SERVER_EXIT_MS_MAX).unref();
  for (const stream of [process.stdout, process.stderr])
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
  process.exit(code);
}
