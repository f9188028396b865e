import { Command, InvalidArgumentError, Option } from 'commander';
import { type Config, defaultsOfVariables, readConfig, unknownVariables, type Variable } from '../config.js';
import { NodeKeys } from '../keys.js';
import { createLog, type Log } from '../log.js';
import type { Node } from '../node.js';
import type { Database } from '../postgres/database.js';
import { openPostgres } from '../postgres/open.js';
import { DEFAULT_NETWORK_ID } from '../prepare.js';
import { ROLES, type Role } from '../roles.js';
import { KEY_PURPOSES } from '../store/node-keys.js';

const STOP_MS_MAX = 60_000;

export function serveCommand(): Command {
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

The modes are only the first value: later, "minato settings set topic.mode open".
With "required" clients name a topic; "default" and "open" let any Nostr client in.`,
    )
    .action(serve);
}

/** A variable that is missing here does not compile. What is in brackets is the default. */
const VARIABLES: Record<Variable, string> = {
  MINATO_HOST: 'address to listen on',
  MINATO_PORT: 'port for everything: websocket, pages, metrics; 0 takes a free one',
  MINATO_DATA_DIR: 'the embedded PostgreSQL and the keys of the node live here',
  DATABASE_URL: 'your own PostgreSQL, 15 or newer; then nothing is started',
  REDIS_URL: 'keeps rate limits and sessions that instances share, instead of PostgreSQL: redis://host:6379',
  DYNAMODB_ENDPOINT: 'keeps the audit log there: https://dynamodb.eu-central-1.amazonaws.com',
  AWS_REGION: 'of that endpoint; credentials as the AWS SDK finds them',
  MINATO_DYNAMODB_PREFIX: 'begins the names of the tables there',
  MINATO_PUBLIC_URL: 'the address that clients use, for example wss://relay.example.org',
  MINATO_NETWORK_ID: 'names the network in topic ids; fixed at the first boot',
  MINATO_ADMIN_PUBKEYS: 'the operators, hex or npub, comma separated',
  MINATO_TOPIC_MODE: 'first value of topic.mode: required, default or open',
  MINATO_AUTH_MODE: 'first value of auth.mode: off or required',
  MINATO_TRUSTED_PROXIES: 'whose X-Forwarded-For is believed: addresses, networks, loopback, comma separated',
  MINATO_ERASURE_KEY: 'names erased members by a keyed hash, the same on every machine: 64 hex characters',
  MINATO_LOG_LEVEL: 'debug, info, warn, error or silent',
  MINATO_METRICS_TOKEN: 'lets a bearer of it read /metrics from elsewhere',
};

/** What holds instead where a variable has no default of its own. */
const OTHERWISE: Partial<Record<Variable, string>> = {
  DATABASE_URL: 'the embedded one',
  REDIS_URL: 'PostgreSQL',
  DYNAMODB_ENDPOINT: 'PostgreSQL',
  MINATO_PUBLIC_URL: 'where it listens',
  MINATO_NETWORK_ID: DEFAULT_NETWORK_ID,
  MINATO_ERASURE_KEY: 'a file in the data folder',
};

function variableLines(): string {
  const defaults = defaultsOfVariables();
  const lines = (Object.keys(VARIABLES) as Variable[]).map((name) => {
    const value = defaults[name];
    const text = Array.isArray(value) ? value.join(',') : String(value ?? '');
    return `  ${name.padEnd(22)} ${VARIABLES[name]} (${text || (OTHERWISE[name] ?? 'none')})`;
  });
  return lines.join('\n');
}

function rolesOf(list: string): ReadonlySet<Role> {
  const names = list.split(',').map((name) => name.trim());
  for (const name of names) {
    if (!(ROLES as readonly string[]).includes(name))
      throw new InvalidArgumentError(`"${name}" is not one of ${ROLES.join(', ')}.`);
  }
  return new Set(names as Role[]);
}

async function serve({ roles }: { roles: ReadonlySet<Role> }): Promise<void> {
  const config = readConfig(process.env);
  const log = createLog(config.logLevel);
  logWarnings(log);
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0)
    log.warn({ variables: unknown }, 'unknown environment variables; are they misspelt?');
  const starting = new AbortController();
  let stop = async (): Promise<void> => starting.abort();
  stopOnSignal(log, () => stop());
  const opened = await openPostgres({
    ...config,
    log,
    attach: false,
    signal: starting.signal,
    onGiveUp: (error) => {
      log.error({ error: error.message }, 'PostgreSQL cannot be kept running; the node stops');
      process.exit(1);
    },
  });
  stop = () => opened.close();
  let node: Node;
  try {
    // Only now: the other commands do not wait for what only a node needs.
    const { startNode } = await import('../node.js');
    node = await startNode({ database: opened.database, config, log, roles });
  } catch (error) {
    await opened.close();
    throw portError(error, config.host, config.port);
  }
  // At the first boot, so that they can be backed up and named before anything is signed.
  if (roles.has('worker')) await makeKeys(opened.database, config, node, log);
  stop = async () => {
    log.info('stopping: finishing what was accepted');
    await node.close();
    await opened.close();
    log.info('stopped');
  };
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
}

const BY_TOPIC =
  'this relay works by topic; to let any Nostr client in: minato settings set topic.mode default (or open, for a plain relay)';

/** Node writes what libraries warn of as plain text; in a log of JSON that is a line nobody can read. */
function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log.warn({ warning: name }, message));
}

/** A folder that cannot be written keeps labels and scores waiting, and nothing else. */
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

/** From the first moment on: what has been started by then is stopped in order. */
function stopOnSignal(log: Log, stop: () => Promise<void>): void {
  let stopping = false;
  const onSignal = (): void => {
    // A second signal while stopping means now.
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
  if ((error as { code?: string }).code !== 'EADDRINUSE') return error;
  return new Error(
    `${host}:${port} is in use by another program; stop it, or set MINATO_PORT to a free port`,
  );
}
