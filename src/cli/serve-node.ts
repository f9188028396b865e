/**
 * Runs one node in this process, alone or as one of several instances: it starts the roles on an open
 * database, makes the keys, and says what an operator should know.
 */
import { addressesOf, basesOf, toHttp } from '../communities/addresses.js';
import { NodeKeys } from '../keys/keys.js';
import { KEY_PURPOSES } from '../keys/keys.sql.js';
import { type Config, readConfig, unknownVariables } from '../node/config.js';
import { createLog, type Log, LogLines } from '../node/log.js';
import type { Node, NodeOptions } from '../node/node.js';
import type { Role } from '../node/roles.js';
import type { Database } from '../postgres/database.js';
import { openSetup } from '../setup/setup.sql.js';

export const STOP_MS_MAX = 60_000;

export interface ServedNode {
  readonly node: Node;
  /** Writes what was accepted and stops. The caller closes the database. */
  stop(): Promise<void>;
}

export interface ServeOptions extends NodeOptions {
  readonly roles: ReadonlySet<Role>;
  /** A description of the database for people. */
  readonly where: string;
  /** What is said once, where a node has several instances. */
  readonly isFirst: boolean;
  readonly readyWord: string;
}

/** Loaded while PostgreSQL starts, and only by this command: the others do not need it. */
export function loadNode(): Promise<typeof import('../node/node.js')> {
  const loading = import('../node/node.js');
  loading.catch(() => undefined);
  return loading;
}

export async function serveNode(
  { startNode }: Awaited<ReturnType<typeof loadNode>>,
  options: ServeOptions,
): Promise<ServedNode> {
  const { database, config, log, roles, where, isFirst } = options;
  const node = await startNode(options);
  // At the first boot, so that they can be backed up and published before anything is signed.
  if (roles.has('worker')) await makeKeys(database, config, node, log);
  if (roles.has('api') && isFirst) await offerSetup(database, config, node, log);
  const { settings } = node.communities.find(undefined, 'default') ?? {};
  log.info(
    {
      address: `ws://${config.host}:${node.port}`,
      roles: [...roles].join(','),
      database: where,
      topicMode: settings?.['topic.mode'],
      verifier: node.verifier.backend,
      verifierThreads: node.verifier.workers,
      ...(options.passed === undefined ? {} : { pid: process.pid }),
    },
    options.readyWord,
  );
  if (isFirst && settings?.['topic.mode'] === 'required') log.info(BY_TOPIC);
  if (isFirst && node.verifier.backend === 'wasm') log.warn(SLOW_SIGNATURES);
  const stop = async (): Promise<void> => {
    log.info('stopping: writing the accepted events');
    await node.close();
  };
  return { node, stop };
}

export interface Boot {
  readonly config: Config;
  readonly log: Log;
  readonly logLines: LogLines;
}

export function boot(instance?: string): Boot {
  const config = readConfig(process.env);
  const logLines = new LogLines(Date.now());
  const log = createLog(config.logLevel, 'stdout', logLines, instance);
  logWarnings(log);
  return { config, log, logLines };
}

export function warnOfUnknown(log: Log): void {
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0)
    log.warn({ variables: unknown }, 'unknown environment variables; are they misspelt?');
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

/**
 * Also during the start: it stops in order whatever has been started so far. The returned function does the
 * same without a signal.
 */
export function stopOnSignal(log: Log, stop: () => Promise<void>): () => void {
  let stopping = false;
  const end = (): void => {
    if (stopping) return;
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
  const onSignal = (): void => {
    // A second signal ends the process at once.
    if (stopping) process.exit(1);
    end();
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  return end;
}
