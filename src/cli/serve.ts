import cluster from 'node:cluster';
import { availableParallelism } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { archiveExtras } from '../backup/wal-archive.js';
import { INSTANCES_MAX } from '../node/instances/messages.js';
import { planPrivileges, userNamed } from '../node/privileges.js';
import { ROLES, type Role } from '../node/roles.js';
import type { EarlyPort } from '../port/early-port.js';
import { openPostgres } from '../postgres/open.js';
import { errorCode } from '../postgres/rules-error-code.js';
import { boot, loadNode, serveNode, stopOnSignal, warnOfUnknown } from './serve-node.js';
import { bootVariables } from './variables.js';

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
    .addOption(
      new Option(
        '--instances <number>',
        'share the port among this many processes, or "auto": one for each core; ' +
          'the role worker has a process of its own',
      ).argParser(instancesOf),
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
  $ minato serve --instances auto         all cores of this machine, one port, one database (docs/scale.md)
  $ kill -HUP PID                         with --instances: a rolling restart that refuses nobody

The two modes are only the first values; change them later with "minato settings set topic.mode open".
With "required" clients name a topic; "default" and "open" accept any Nostr client.`,
    )
    .action(async ({ roles, instances }: { roles: ReadonlySet<Role>; instances?: number }) => {
      if (cluster.isWorker) await (await import('./serve-instance.js')).serveInstance();
      else if (instances === undefined) await serve(roles, opening);
      else await (await import('./serve-instances.js')).serveInstances(instances, roles, opening);
    });
}

function instancesOf(text: string): number {
  if (text === 'auto') return Math.min(INSTANCES_MAX, availableParallelism());
  const number = Number(text);
  if (/^\d+$/.test(text) && number >= 1 && number <= INSTANCES_MAX) return number;
  throw new InvalidArgumentError(`It must be auto, or a number from 1 to ${INSTANCES_MAX}.`);
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
  const { config, log, logLines } = boot();
  warnOfUnknown(log);
  if (config.user !== undefined) await userNamed(config.user);
  const starting = new AbortController();
  let stop = async (): Promise<void> => starting.abort();
  stopOnSignal(log, () => stop());
  const early = await opening;
  const loading = loadNode();
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
  const { database, where } = opened;
  try {
    const privileges = await planPrivileges(config, log);
    const options = { database, config, log, logLines, roles, privileges, early, where };
    const served = await serveNode(await loading, { ...options, isFirst: true, readyWord: 'ready' });
    stop = async () => {
      await served.stop();
      await opened.close();
      log.info('stopped');
    };
  } catch (error) {
    early?.close();
    await opened.close();
    throw portError(error, config.host, config.port);
  }
}

export function portError(error: unknown, host: string, port: number): unknown {
  if (errorCode(error) !== 'EADDRINUSE') return error;
  return new Error(
    `${host}:${port} is in use by another program; stop it, or set MINATO_PORT to a free port`,
  );
}
