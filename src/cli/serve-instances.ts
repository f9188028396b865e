/**
 * `minato serve --instances N`: the process that the operator starts. It opens the port and the embedded
 * PostgreSQL, drops the privileges of root, and runs the instances (node/instances/primary.ts). It serves
 * nobody itself.
 */
import { archiveExtras } from '../backup/wal-archive.js';
import type { Config } from '../node/config.js';
import { INSTANCES_MAX } from '../node/instances/messages.js';
import { Primary } from '../node/instances/primary.js';
import { planPrivileges, userNamed } from '../node/privileges.js';
import type { Role } from '../node/roles.js';
import { EarlyPort } from '../port/early-port.js';
import { addressesOf } from '../port/host.js';
import type { ServerExtras } from '../postgres/embedded-site.js';
import { openPostgres } from '../postgres/open.js';
import { portError } from './serve.js';
import { boot, stopOnSignal, warnOfUnknown } from './serve-node.js';

/** Of one process to PostgreSQL, with some for commands: docs/bounds.md. */
const CONNECTIONS_PER_INSTANCE = 40;
const CONNECTIONS_MIN = 250;

export async function serveInstances(
  count: number,
  roles: ReadonlySet<Role>,
  opening: Promise<EarlyPort | undefined> | undefined,
): Promise<void> {
  const { config, log } = boot('primary');
  warnOfUnknown(log);
  if (config.user !== undefined) await userNamed(config.user);
  const starting = new AbortController();
  let stop = async (): Promise<void> => starting.abort();
  stopOnSignal(log, () => stop());
  // During the start there is nothing to replace yet.
  let roll = async (): Promise<void> => undefined;
  process.on('SIGHUP', () => void roll());
  const ports = await openPorts(config, await opening);
  const closePorts = () => {
    for (const port of ports) port.close();
  };
  const giveUp = (why: string): void => {
    log.error({ why }, 'the node cannot be kept running; it stops');
    process.exit(1);
  };
  const opened = await openPostgres({
    ...config,
    log,
    extras: async () => withConnections(await archiveExtras(config), count),
    attach: false,
    signal: starting.signal,
    onGiveUp: (error) => giveUp(error.message),
  }).catch((error: unknown) => {
    closePorts();
    throw error;
  });
  const port = ports[0]!.port;
  const start = { port, database: opened.connection };
  const primary = new Primary({ count, roles, ports, start, log, onGiveUp: giveUp });
  stop = async () => {
    closePorts();
    await primary.stop();
    await opened.close();
    log.info('stopped');
  };
  try {
    const privileges = await planPrivileges({ ...config, starts: [process.execPath] }, log);
    await privileges?.prepare();
    privileges?.drop();
    await primary.start();
    roll = () => primary.roll();
  } catch (error) {
    await stop();
    throw error;
  }
  log.info(
    {
      address: `ws://${config.host}:${port}`,
      instances: count,
      roles: [...roles].join(','),
      database: opened.where,
    },
    'ready',
  );
}

/** On every address of the host, and on the port that was opened early. */
async function openPorts({ host, port }: Config, early: EarlyPort | undefined): Promise<EarlyPort[]> {
  if (early !== undefined) return [early];
  const [first = host, ...others] = await addressesOf(host);
  const opened = await EarlyPort.openAt(first, port).catch((error: unknown) => {
    throw portError(error, host, port);
  });
  // An address on which it cannot listen (IPv6 is off) is skipped.
  const also = others.map((other) => EarlyPort.openAt(other, opened.port).catch(() => undefined));
  return [opened, ...(await Promise.all(also)).filter((each) => each !== undefined)];
}

/** A rolling restart has one process more. */
function withConnections(extras: ServerExtras | undefined, count: number): ServerExtras {
  const processes = Math.min(INSTANCES_MAX, count) + 2;
  const connections = Math.max(CONNECTIONS_MIN, processes * CONNECTIONS_PER_INSTANCE);
  return {
    env: {},
    ...extras,
    settings: { ...extras?.settings, max_connections: `${connections}` },
  };
}
