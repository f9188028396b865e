/**
 * The processes of a world and the links between them:
 *
 *   clients ─▶ a (relay, api)          ┐
 *   clients ─▶ b (relay, api, worker)  ├─▶ PostgreSQL, Redis, DynamoDB Local
 *              worker                  ┘
 *                 ⇅ gossip
 *   clients ─▶ peer (all roles)        ──▶ PostgreSQL, in some worlds
 *
 * Each arrow is a link of its own, which can break.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort } from '../../support/servers/free-port.js';
import { Link } from '../../support/servers/link.js';
import { CREDENTIALS, type Programs } from '../environment.js';
import { LINKS, type LinkName, NODES, PEER, PEER_LINKS, type Process } from '../plan.js';
import { Clock } from './clock.js';
import { SmallDisk } from './disk.js';
import { NodeProcess } from './node-process.js';
import { PEER_DATABASE, WorldPostgres } from './postgres.js';
import type { WorldProcess } from './process.js';
import { WorldDynamodb, WorldRedis } from './stores.js';

/** What clients sign for; the links have other ports. */
export const PUBLIC_URL = 'http://faults.test';
const ROLES = { a: 'relay,api', b: 'relay,api,worker', worker: 'worker' } as const;
type NodeName = (typeof NODES)[number];
type Server = NodeName | 'peer';
/** Longer than the node needs for anything: one that is not ready by then is broken. */
const READY_MS_MAX = 180_000;

export interface World {
  readonly disk: SmallDisk;
  readonly postgres: WorldPostgres;
  /** The peer is started in worlds that have one. */
  readonly hasPeer: boolean;
  readonly processes: Readonly<Record<Process, WorldProcess>>;
  readonly nodes: Readonly<Record<NodeName, NodeProcess>>;
  readonly links: Readonly<Record<LinkName, Link>>;
  readonly clocks: Readonly<Record<NodeName, Clock>>;
  /** The environment of a command beside the nodes. */
  readonly commandEnv: Readonly<Record<string, string>>;
  readonly dynamodbUrl: string;
  readonly redisPort: number;
  /** The address of an instance for clients, through its link. */
  port(instance: number): number;
  /** Starts what does not run, and waits until everything serves. */
  ensure(): Promise<void>;
  close(): Promise<void>;
}

export async function openWorld(programs: Programs, adminPubkey: string, hasPeer: boolean): Promise<World> {
  const disk = await SmallDisk.open();
  const folder = (name: string) => join(disk.folder, name);
  const beside = (name: string) => join(disk.beside, name);
  for (const path of [folder('database'), beside('redis'), beside('dynamodb')]) await mkdir(path);
  const postgres = await WorldPostgres.open(programs.cluster, folder('database'));
  const [redisPort, dynamodbPort] = [await freePort(), await freePort()];
  const redis = new WorldRedis({ program: programs.redis, folder: beside('redis'), port: redisPort });
  const dynamodb = new WorldDynamodb({
    program: programs.java,
    folder: beside('dynamodb'),
    port: dynamodbPort,
  });
  const targets = {
    postgres: { path: postgres.socket },
    redis: { host: '127.0.0.1', port: redisPort },
    dynamodb: { host: '127.0.0.1', port: dynamodbPort },
  };
  const ports = {
    a: await freePort(),
    b: await freePort(),
    worker: await freePort(),
    peer: await freePort(),
  };
  const links = {} as Record<LinkName, Link>;
  for (const name of [...LINKS, ...PEER_LINKS]) {
    const [, to] = name.split('-') as [string, keyof typeof targets | Server];
    links[name] = await Link.start(
      to in ports ? { host: '127.0.0.1', port: ports[to as Server] } : targets[to as 'redis'],
    );
  }
  const common = {
    PATH: process.env.PATH ?? '',
    MINATO_ADMIN_PUBKEYS: adminPubkey,
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'warn',
    MINATO_USER: 'root',
  };
  const databaseUrl = (name: Server, database: string) =>
    `postgres://minato@127.0.0.1:${links[`${name}-postgres`].port}/${database}`;
  const envOf = (name: NodeName) => ({
    ...CREDENTIALS,
    ...common,
    DATABASE_URL: databaseUrl(name, 'minato'),
    REDIS_URL: `redis://127.0.0.1:${links[`${name}-redis`].port}`,
    DYNAMODB_ENDPOINT: `http://127.0.0.1:${links[`${name}-dynamodb`].port}`,
    MINATO_DATA_DIR: folder(name),
    MINATO_PUBLIC_URL: PUBLIC_URL,
  });
  const clocks = {} as Record<NodeName, Clock>;
  const nodes = {} as Record<NodeName, NodeProcess>;
  for (const name of NODES) {
    clocks[name] = new Clock(programs.faketime, beside(`clock-${name}`));
    const env = { ...envOf(name), ...clocks[name].env };
    nodes[name] = new NodeProcess(name, { roles: ROLES[name], port: ports[name], env });
  }
  const peer = new NodeProcess('peer', {
    roles: 'relay,api,worker',
    port: ports.peer,
    env: {
      ...common,
      DATABASE_URL: databaseUrl('peer', PEER_DATABASE),
      MINATO_DATA_DIR: folder('peer'),
      // Its ticket names this address, so gaps are filled through a link.
      MINATO_PUBLIC_URL: `http://127.0.0.1:${links['fill-peer'].port}`,
    },
  });
  const processes = { ...nodes, postgres, redis, dynamodb, peer };
  return {
    disk,
    postgres,
    hasPeer,
    processes,
    nodes,
    links,
    clocks,
    commandEnv: { ...envOf('worker'), MINATO_DATA_DIR: folder('command') },
    dynamodbUrl: `http://127.0.0.1:${dynamodbPort}`,
    redisPort,
    port: (instance) =>
      links[instance === PEER ? 'clients-peer' : instance === 0 ? 'clients-a' : 'clients-b'].port,
    ensure: async () => {
      await Promise.all([postgres, redis, dynamodb].map((store) => store.ensure(READY_MS_MAX)));
      const servers = [...NODES.map((name) => nodes[name]), ...(hasPeer ? [peer] : [])];
      await Promise.all(servers.map((server) => server.ensure(READY_MS_MAX)));
    },
    close: async () => {
      for (const one of Object.values(processes)) await one.kill();
      for (const link of Object.values(links)) await link.stop();
      await postgres.remove();
      await disk.close();
    },
  };
}
