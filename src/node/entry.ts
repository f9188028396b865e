/**
 * The HTTP port of a node and what limits its clients in this process: work, query slots, bytes held. The
 * port listens only after the relay and the API have been added to it.
 */
import type { Communities } from '../communities/communities.js';
import { GreedyShare } from '../limits/greedy-share.js';
import { LoopTurns } from '../limits/loop-turns.js';
import { Work } from '../limits/work.js';
import { type AddressOf, createAddresses } from '../port/client-address.js';
import { CONNECTION_BOUNDS } from '../port/connections.js';
import { RESERVED_DESCRIPTORS, readDescriptorLimit, roomFor } from '../port/descriptors.js';
import type { EarlyPort } from '../port/early-port.js';
import { Entrance } from '../port/entrance.js';
import { Http, ROOM } from '../port/http.js';
import type { ServerBounds } from '../port/server.js';
import { HeldBytes, INPUT_BYTES_MAX, OUTPUT_BYTES_MAX } from '../relay/input/held-bytes.js';
import { QueryGate } from '../relay/query-gate.js';
import type { Config } from './config.js';
import type { PassedPort } from './instances/instance.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import type { Privileges } from './privileges.js';
import type { Stores } from './stores.js';

export interface EntryOptions {
  readonly config: Config;
  readonly log: Log;
  readonly now: () => number;
  /** Replaces some of the default limits of HTTP connections. */
  readonly httpBounds?: Partial<ServerBounds> | undefined;
  /** What /metrics answers; by default the metrics of this process. */
  readonly scrape?: (() => Promise<string>) | undefined;
  readonly passed?: PassedPort | undefined;
}

export interface Entry {
  readonly http: Http;
  readonly addressOf: AddressOf;
  /** The work that clients cause in this process. */
  readonly work: Work;
  readonly gate: QueryGate;
  readonly turns: LoopTurns;
  readonly greedyShare: GreedyShare;
  /** Bytes that clients have sent and that are not processed yet. */
  readonly input: HeldBytes;
  /** Bytes that clients have not read yet. */
  readonly output: HeldBytes;
}

export async function openEntry(
  { config, log, now, httpBounds, scrape, passed }: EntryOptions,
  { rates, writer: { communities, dynamodb, metrics, store } }: Stores,
): Promise<Entry> {
  const work = new Work();
  const greedyShare = new GreedyShare();
  const turns = new LoopTurns((client) => work.isGreedy(client), greedyShare);
  const input = new HeldBytes(INPUT_BYTES_MAX);
  const addresses = addressesFor(config, { communities, metrics, log });
  const addressOf = addresses.of;
  const http = new Http({
    metrics,
    scrape,
    metricsToken: config.metricsToken,
    log,
    ready: async () => {
      await Promise.all([store.head(), dynamodb?.check()]);
    },
    addresses,
    entrance: new Entrance({ communities, rates, work, turns, input, addressOf, now }),
    work,
    proxyProtocol: config.proxyProtocol,
    room: await connectionRoom(log),
    bounds: { perAddressMax: shareOf(CONNECTION_BOUNDS.perAddressMax, passed), ...httpBounds },
  });
  const gate = new QueryGate({
    work,
    communities: () => communities.all().length,
    hasOthers: () => greedyShare.hasOthers,
  });
  const output = new HeldBytes(OUTPUT_BYTES_MAX);
  return { http, addressOf, work, gate, turns, greedyShare, input, output };
}

/** The part of a limit per address that applies here: the port gives the instances to an address in turn. */
export const shareOf = (max: number, passed: PassedPort | undefined) =>
  Math.ceil(max / (passed?.instances ?? 1));

export interface ListenOptions {
  readonly config: Config;
  readonly privileges?: Privileges | undefined;
  readonly early?: EarlyPort | undefined;
  readonly passed?: PassedPort | undefined;
}

/** The port on which it listens. */
export async function listen(http: Http, options: ListenOptions): Promise<number> {
  const { config, privileges, early, passed } = options;
  if (passed !== undefined) {
    passed.onConnection(await http.serve());
    return passed.port;
  }
  await privileges?.prepare();
  const port = await http.listen(config.host, config.port, early);
  // In the same pass of the event loop: no connection has been accepted yet.
  privileges?.drop();
  early?.transfer(http.app.server);
  return port;
}

/**
 * Finds the address of a client. If the operator of the default community does not exempt clients on this
 * machine, no client counts as local: rates, blocks and /metrics treat all of them alike.
 */
function addressesFor(
  { trustedProxies, proxyHeader }: Config,
  { communities, metrics, log }: { communities: Communities; metrics: Metrics; log: Log },
) {
  let warned = false;
  return createAddresses({
    trustedProxies,
    header: proxyHeader,
    trustsLoopback: () => communities.find(undefined, undefined)?.settings['rate.exemptLoopback'] ?? true,
    onUnnamed: (host) => {
      metrics.unnamedForwards.inc();
      if (warned) return;
      warned = true;
      log.warn(
        { host },
        'a program on this machine forwards clients without naming them; ' +
          'see "Behind a proxy" in docs/limits.md',
      );
    },
  });
}

/** The connections for which the limit of open files has room. */
async function connectionRoom(log: Log) {
  const descriptors = await readDescriptorLimit();
  const room = roomFor(descriptors, ROOM);
  if (room !== ROOM)
    log.warn(
      { ...room, descriptors, reserved: RESERVED_DESCRIPTORS },
      'fewer connections than usual: the limit of open files is low (ulimit -n)',
    );
  return room;
}
