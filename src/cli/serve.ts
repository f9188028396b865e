import { Command, InvalidArgumentError, Option } from 'commander';
import { archiveExtras } from '../backup/wal-archive.js';
import { addressesOf, basesOf, toHttp } from '../communities/addresses.js';
import { NodeKeys } from '../keys/keys.js';
import { KEY_PURPOSES } from '../keys/keys.sql.js';
import { type Config, readConfig, unknownVariables } from '../node/config.js';
import { createLog, type Log, LogLines } from '../node/log.js';
import type { Node } from '../node/node.js';
import { planPrivileges, userNamed } from '../node/privileges.js';
import { ROLES, type Role } from '../node/roles.js';
import type { EarlyPort } from '../port/early-port.js';
import type { Database } from '../postgres/database.js';
import { openPostgres } from '../postgres/open.js';
import { errorCode } from '../postgres/rules-error-code.js';
import { openSetup } from '../setup/setup.sql.js';
import { bootVariables } from './variables.js';

const STOP_MS_MAX = 60_000;

/** The port may be open already. */
export function serveCommand(opening?: Promise<EarlyPort | undefined>): Command {
  return new Command('serve')
    .description('run the node')
    .addOption(
      new Option(
        '--roles <list>',
        `what this process does, of ${ROLES.join(', ')}; several processes share one DATABASE_URL`,
      )
        .argParser(rolesOf)
        .default(new Set(ROLES), 'all of them'),
    )
    .addHelpText(
      'after',
      `
Environment:
${variableLines()}

Examples:
  $ minato serve                          everything in one process
  $ minato serve --roles relay            only the websocket; many of these may share one database
  $ minato serve --roles api,worker       members' and operators' API, and the jobs

The two modes are only the first values; change them later with "minato settings set topic.mode open".
With "required" clients name a topic; "default" and "open" accept any Nostr client.`,
    )
    .action(({ roles }: { roles: ReadonlySet<Role> }) => serve(roles, opening));
}

function variableLines(): string {
  return bootVariables()
    .map(({ name, about, otherwise }) => `  ${name.padEnd(22)} ${about} (${otherwise || 'none'})`)
    .join('\n');
}

function rolesOf(list: string): ReadonlySet<Role> {
  const names = list.split(',').map((name) => name.trim());
  for (const name of names) {
    if (!(ROLES as readonly string[]).includes(name))
      throw new InvalidArgumentError(`"${name}" is not one of ${ROLES.join(', ')}.`);
  }
  return new Set(names as Role[]);
}

async function serve(
  roles: ReadonlySet<Role>,
  opening: Promise<EarlyPort | undefined> | undefined,
): Promise<void> {
  const config = readConfig(process.env);
  const logLines = new LogLines(Date.now());
  const log = createLog(config.logLevel, 'stdout', logLines);
  logWarnings(log);
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0)
    log.warn({ variables: unknown }, 'unknown environment variables; are they misspelt?');
  if (config.user !== undefined) await userNamed(config.user);
  const starting = new AbortController();
  let stop = async (): Promise<void> => starting.abort();
  stopOnSignal(log, () => stop());
  const early = await opening;
  // Loaded while PostgreSQL starts, and only here, because the other commands do not need it.
  const loading = import('../node/node.js');
  loading.catch(() => undefined);
  const opened = await openPostgres({
    ...config,
    log,
    extras: () => archiveExtras(config),
    attach: false,
    signal: starting.signal,
    onGiveUp: (error) => {
      log.error({ error: error.message }, 'PostgreSQL cannot be kept running; the node stops');
      process.exit(1);
    },
  }).catch((error: unknown) => {
    early?.close();
    throw error;
  });
  stop = () => opened.close();
  let node: Node;
  try {
    const { startNode } = await loading;
    const privileges = await planPrivileges(config, log);
    node = await startNode({ database: opened.database, config, log, logLines, roles, privileges, early });
  } catch (error) {
    early?.close();
    await opened.close();
    throw portError(error, config.host, config.port);
  }
  // At the first boot, so that they can be backed up and published before anything is signed.
  if (roles.has('worker')) await makeKeys(opened.database, config, node, log);
  stop = async () => {
    log.info('stopping: writing the accepted events');
    await node.close();
    await opened.close();
    log.info('stopped');
  };
  if (roles.has('api')) await offerSetup(opened.database, config, node, log);
  const { settings } = node.communities.find(undefined, 'default') ?? {};
  log.info(
    {
      address: `ws://${config.host}:${node.port}`,
      roles: [...roles].join(','),
      database: opened.where,
      topicMode: settings?.['topic.mode'],
      verifier: node.verifier.backend,
      verifierThreads: node.verifier.workers,
    },
    'ready',
  );
  if (settings?.['topic.mode'] === 'required') log.info(BY_TOPIC);
  if (node.verifier.backend === 'wasm') log.warn(SLOW_SIGNATURES);
}

/** Where no operator has ever existed, the log has a one-time link that sets the node up. */
async function offerSetup(
  { apiPool }: Database,
  { adminPubkeys, publicUrl, host }: Config,
  { communities, port }: Node,
  log: Log,
): Promise<void> {
  const community = communities.find(undefined, 'default');
  if (community === undefined) return;
  const code = await openSetup(apiPool, { fixed: adminPubkeys }).catch((error: unknown) =>
    log.warn({ error: String(error) }, 'the link to set the node up cannot be made'),
  );
  if (code === undefined) return;
  const base = toHttp(addressesOf(community, basesOf(publicUrl, host, port))[0]!).replace(/\/$/, '');
  log.info({ setup: `${base}/admin/setup#setup=${code}` }, NO_OPERATOR);
}

const NO_OPERATOR =
  'this node has no operator yet; whoever opens this link can set it up, once (docs/operations/setup.md); ' +
  'or: minato operators add NPUB (minato serve --help names MINATO_ADMIN_PUBKEYS)';

const SLOW_SIGNATURES =
  'signatures are checked by WASM, several times slower than the native build; to get it: install a ' +
  'compiler and Python, then run npm rebuild bcrypto (minato doctor says more)';

const BY_TOPIC =
  'this relay requires topics; to accept any Nostr client: ' +
  'minato settings set topic.mode default (or open, for a plain relay)';

/** Node.js prints warnings of libraries as plain text, which a reader of a JSON log cannot parse. */
function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log.warn({ warning: name }, message));
}

/** If the folder cannot be written, only labels and scores wait. */
async function makeKeys(
  { apiPool }: Database,
  { dataDir }: Config,
  { communities }: Node,
  log: Log,
): Promise<void> {
  const keys = new NodeKeys({ folder: dataDir, pool: apiPool, now: Date.now });
  try {
    for (const { id } of communities.all())
      for (const purpose of KEY_PURPOSES) await keys.pubkey(id, purpose);
  } catch (error) {
    log.warn(
      { error: String(error) },
      'the keys of the node cannot be made; labels and scores wait for them',
    );
  }
}

/** Also during the start: it stops in order whatever has been started so far. */
function stopOnSignal(log: Log, stop: () => Promise<void>): void {
  let stopping = false;
  const onSignal = (): void => {
    // A second signal ends the process at once.
    if (stopping) process.exit(1);
    stopping = true;
    setTimeout(() => {
      log.error(`not everything stopped within ${STOP_MS_MAX / 1_000} seconds; the process ends`);
      process.exit(1);
    }, STOP_MS_MAX).unref();
    stop().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
}

function portError(error: unknown, host: string, port: number): unknown {
  if (errorCode(error) !== 'EADDRINUSE') return error;
  return new Error(
    `${host}:${port} is in use by another program; stop it, or set MINATO_PORT to a free port`,
  );
}
