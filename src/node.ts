/** Puts a node together, in the order of dependence, and takes it apart in the reverse order. */
import { addressesOf } from './addresses.js';
import { addApi } from './api/server.js';
import { createAddressOf } from './client-address.js';
import type { Communities } from './communities.js';
import { isDenial } from './core/errors.js';
import type { Plan } from './core/plan.js';
import { refusal } from './core/reply.js';
import { replayForgotten } from './erase-now.js';
import type { Erasing } from './erasure/all.js';
import { Http } from './http.js';
import { erase } from './jobs/erase.js';
import { startErasureGauge } from './jobs/erasure-gauge.js';
import { exportPersonalData } from './jobs/export-personal-data.js';
import { BOUNDS } from './jobs/job.js';
import { JOBS } from './jobs/list.js';
import { type Schedule, startSchedule } from './jobs/schedule.js';
import type { NodeKeys } from './keys.js';
import type { Lane } from './lane.js';
import { Rates } from './limits/rates.js';
import { openLimits, type SharedLimits } from './limits/shared.js';
import type { Log } from './log.js';
import { Membership } from './membership.js';
import type { Metrics } from './metrics.js';
import { carryOut } from './orders.js';
import type { Database } from './postgres/database.js';
import { Fanout } from './relay/fanout.js';
import { Intake } from './relay/intake.js';
import { Memory } from './relay/memory.js';
import { OpenValues } from './relay/open-values.js';
import { QueryGate } from './relay/query-gate.js';
import type { SearchUse } from './relay/search-use.js';
import { addRelay } from './relay/server.js';
import { Rights } from './rights.js';
import { ROLES, type Role } from './roles.js';
import type { Consumer } from './services/consumer.js';
import { consumersOf } from './services/list.js';
import { type RunningConsumers, startConsumers } from './services/start.js';
import { openSessions, type Sessions } from './sessions/shared.js';
import { fixCursorSecret, fixDownloadSecret, fixTokenSecret } from './store/node-state.js';
import { readHead } from './store/outbox.js';
import { countUse, giveBack } from './store/usage.js';
import type { Verifier } from './verify/pool.js';
import { SOFTWARE_VERSION } from './version.js';
import { Wakeups } from './wakeups.js';
import { startWriter, type WriterOptions } from './writer.js';

/**
 * I15: a database that hangs does not keep a node from stopping. Longer than anything takes that is answered.
 */
const ORDERLY_MS_MAX = 30_000;

export interface NodeOptions extends WriterOptions {
  /** All of them unless told. */
  readonly roles?: ReadonlySet<Role>;
  /** Those of the list unless told: others, or some of them. */
  readonly consumers?: readonly Consumer[] | ((listed: readonly Consumer[]) => readonly Consumer[]);
  /** How often consumers look whether their rules have changed. */
  readonly upkeepMs?: number;
}

/** Each search counts, whatever was asked before. */
function searchUse(pool: Database['apiPool'], now: () => number): SearchUse {
  const counting = (community: number, pubkey: string) =>
    ({ community, pubkey, metric: 'search', now: now() }) as const;
  return {
    count: async (community, pubkey) => {
      const used = await countUse(pool, counting(community, pubkey));
      if (!isDenial(used)) return undefined;
      return refusal('restricted', `quota exceeded: search, ${used.details?.limit} a day`);
    },
    giveBack: (community, pubkey) => giveBack(pool, counting(community, pubkey)),
  };
}

/** Other machines may have completed erasures since: a restore on this one has to know of them. */
async function keepCertificates({ certificates }: Erasing, log: Log): Promise<void> {
  await certificates.keepFile().catch((error: unknown) => {
    log.warn(
      { error: String(error) },
      'certificates cannot be kept in the data folder; a restore needs them',
    );
  });
}

/** Each community has a key of its own from its first moment on: NIP-11 names it. */
function ownKeys(communities: Communities, keys: NodeKeys, log: Log): () => Promise<void> {
  let failing = false;
  return async () => {
    if (failing) return;
    try {
      for (const { id, self } of communities.all()) if (self === undefined) await keys.pubkey(id, 'relay');
    } catch (error) {
      failing = true;
      log.warn(
        { error: String(error) },
        'the key of the relay cannot be made; it signs nothing until a restart',
      );
    }
  };
}

export interface Node {
  readonly port: number;
  readonly communities: Communities;
  readonly fanout: Fanout;
  readonly lane: Lane;
  readonly erasing: Erasing;
  readonly schedule: Schedule | undefined;
  readonly consumers: RunningConsumers | undefined;
  readonly metrics: Metrics;
  readonly verifier: Verifier;
  /** What a client may do how often, over all instances. */
  readonly rates: Rates;
  /** What stands behind the rates, and credentials that count once. */
  readonly limits: SharedLimits;
  /** Stops accepting, finishes the lane, ends the sockets. The database is the caller's. */
  close(): Promise<void>;
}

export async function startNode(options: NodeOptions): Promise<Node> {
  const { database, config, log, now = Date.now, roles = new Set(ROLES) } = options;
  const memory = new Memory();
  let port = config.port;
  const limits = await openLimits(config.redisUrl, database.limitsPool, log);
  const rates = new Rates({ shared: limits, log });
  // What is erased again before there is a relay has nobody to be delivered to.
  let live: Fanout | undefined;
  const onCommit = (plan: Plan) => live?.onCommit(plan);
  const signs = roles.has('worker');
  const hooks = { port: () => port, rates, signs, ...(roles.has('relay') ? { onCommit } : {}) };
  const writer = await startWriter(options, hooks).catch(async (error) => {
    await limits.close();
    throw error;
  });
  const {
    admission,
    audit,
    bases,
    communities,
    erasing,
    keys,
    lane,
    metrics,
    networkId,
    recent,
    tagHash,
    verifier,
  } = writer;
  const jobs = { database, lane, communities, now, bounds: BOUNDS, erasing, audit, metrics, log };
  try {
    await replayForgotten({ ...jobs, keys, signal: new AbortController().signal }, config.dataDir);
    if (signs) await keepCertificates(erasing, log);
  } catch (error) {
    await writer.close();
    await limits.close();
    throw error;
  }
  const wakeups = new Wakeups(database, log);
  const rulesOf = (community: number) => communities.get(community);
  const fanout = new Fanout({ database, wakeups, memory, recent, metrics, log, now, rulesOf });
  live = fanout;
  if (roles.has('relay')) await fanout.start();
  if (roles.has('relay') || roles.has('worker')) wakeups.start();
  const stop = async (): Promise<void> => {
    await wakeups.stop();
    await fanout.stop();
    await writer.close();
    rates.close();
    await limits.close();
    await sessions?.close();
  };
  const http = new Http({
    metrics,
    metricsToken: config.metricsToken,
    ready: async () => {
      await readHead(database.ownPool);
    },
  });
  const addressOf = createAddressOf(config.trustedProxies);
  const gate = new QueryGate();
  let schedule: Schedule | undefined;
  let sessions: Sessions | undefined;
  const relay = roles.has('relay')
    ? addRelay(http, {
        hasApi: roles.has('api'),
        publicUrl: config.publicUrl,
        rights: new Rights(database.ownPool, communities, log),
        verifier,
        addressesOf: (community) => addressesOf(community, bases()),
        admission,
        communities,
        fanout,
        stored: {
          pool: database.pool,
          searchPool: database.searchPool,
          tagHash,
          memory,
          metrics,
          now,
          caughtUp: () => fanout.caughtUp(),
        },
        searchUse: searchUse(database.apiPool, now),
        membership: new Membership({
          pool: database.apiPool,
          keys,
          rates,
          adminPubkeys: config.adminPubkeys,
          log,
          now,
        }),
        ownPool: database.ownPool,
        gate,
        intake: new Intake(),
        openValues: new OpenValues(),
        rates,
        addressOf,
        metrics,
        log,
        now,
      })
    : undefined;
  if (roles.has('api')) {
    sessions = await openSessions(config.redisUrl, database.apiPool, log);
    addApi(http, {
      pool: database.apiPool,
      audit,
      networkId,
      communities,
      bases,
      verifier,
      useOnce: (...credential) => limits.useOnce(...credential),
      tokenSecret: await fixTokenSecret(database.ownPool),
      subjectOf: (community, pubkey) => erasing.subjectKey.tryHash(community, pubkey),
      adminPubkeys: config.adminPubkeys,
      sessions,
      carryOut: (about) => carryOut({ lane, pool: database.apiPool }, about),
      downloadSecret: await fixDownloadSecret(database.ownPool),
      // Where no worker runs in this process, another one finds the request within a minute.
      exportSoon: async () => schedule?.trigger(exportPersonalData.name),
      eraseSoon: async () => schedule?.trigger(erase.name),
      hashOf: async (community, pubkey) => erasing.subjectKey.tryHash(community, pubkey)?.toString('hex'),
      search: {
        pool: database.pool,
        searchPool: database.searchPool,
        tagHash,
        cursorSecret: await fixCursorSecret(database.ownPool),
      },
      inTurn: (client, query) => gate.run(client, query),
      rates,
      addressOf,
      version: SOFTWARE_VERSION,
      log,
      now,
    });
  }
  // A port that is taken must not leave the rest running.
  port = await http.listen(config.host, config.port).catch(async (error) => {
    await relay?.close();
    await stop();
    throw error;
  });
  let consumers: RunningConsumers | undefined;
  let stopGauge: (() => Promise<void>) | undefined;
  if (roles.has('worker')) {
    communities.afterPoll(ownKeys(communities, keys, log));
    schedule = startSchedule({ context: jobs, jobs: JOBS, metrics, log });
    stopGauge = startErasureGauge({ pool: database.ownPool, metrics, log });
    const { subjectKey } = erasing;
    const listed = consumersOf({ communities, database, lane, keys, subjectKey, log, now });
    const chosen = options.consumers ?? listed;
    const list = typeof chosen === 'function' ? chosen(listed) : chosen;
    const { upkeepMs } = options;
    consumers = startConsumers({
      database,
      communities,
      consumers: list,
      wakeups,
      metrics,
      log,
      now,
      upkeepMs,
    });
  }
  return {
    port,
    communities,
    fanout,
    lane,
    erasing,
    schedule,
    consumers,
    metrics,
    verifier,
    rates,
    limits,
    close: async () => {
      const late = setTimeout(() => {
        log.error('not everything stopped in time: what PostgreSQL has not answered by now is given up');
        database.cut();
      }, ORDERLY_MS_MAX);
      try {
        http.stopAccepting();
        await Promise.all([schedule?.stop(), consumers?.stop(), stopGauge?.()]);
        await lane.close();
        await relay?.close();
        await http.close();
        await stop();
      } finally {
        clearTimeout(late);
      }
    },
  };
}
