/** Puts a node together, in the order of dependence, and takes it apart in the reverse order. */
import { setTimeout as delay } from 'node:timers/promises';
import { addressesOf, basesOf } from './addresses.js';
import { type Admission, createAdmission, RecentIds } from './admission.js';
import { addApi } from './api/server.js';
import { DynamodbAudit } from './audit/dynamodb.js';
import { createAddressOf } from './client-address.js';
import { type Communities, watchCommunities } from './communities.js';
import type { Config } from './config.js';
import { isDenial } from './core/errors.js';
import type { NostrEvent } from './core/event.js';
import type { Plan } from './core/plan.js';
import { refusal } from './core/reply.js';
import { settingsFrom } from './core/settings.js';
import type { Erasing } from './erasure/all.js';
import { auditDeleters } from './erasure/audit-deleters.js';
import { Certificates } from './erasure/certificate.js';
import { sessionDeleters } from './erasure/sessions.js';
import { Http } from './http.js';
import { erase } from './jobs/erase.js';
import { startErasureGauge } from './jobs/erasure-gauge.js';
import { exportPersonalData } from './jobs/export-personal-data.js';
import { BOUNDS } from './jobs/job.js';
import { JOBS } from './jobs/list.js';
import { type Schedule, startSchedule } from './jobs/schedule.js';
import { KeySharing } from './key-sharing.js';
import { NodeKeys } from './keys.js';
import { type Lane, startLane } from './lane.js';
import { Rates } from './limits/rates.js';
import { openLimits, type SharedLimits } from './limits/shared.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import { carryOut } from './orders.js';
import type { Database } from './postgres/database.js';
import { prepareDatabase } from './prepare.js';
import type { SearchUse } from './relay/connection.js';
import { Fanout } from './relay/fanout.js';
import { Intake } from './relay/intake.js';
import { Memory } from './relay/memory.js';
import { SOFTWARE_VERSION } from './relay/nip11.js';
import { QueryGate } from './relay/query-gate.js';
import { addRelay } from './relay/server.js';
import { Rights } from './rights.js';
import { ROLES, type Role } from './roles.js';
import { SeenCounts, startSeenFlush } from './seen-counts.js';
import type { Consumer } from './services/consumer.js';
import { consumersOf } from './services/list.js';
import { type RunningConsumers, startConsumers } from './services/start.js';
import { openSessions, type Sessions } from './sessions/shared.js';
import { hasErasureMarks } from './store/erasure-steps.js';
import { fixCursorSecret, fixDownloadSecret, fixTokenSecret, readSubjectPrint } from './store/node-state.js';
import { readHead } from './store/outbox.js';
import { isServed } from './store/seen.js';
import type { TagHash } from './store/tag-hash.js';
import { countUse, giveBack } from './store/usage.js';
import { SubjectKey } from './subject-key.js';
import { startVerifier, type Verifier } from './verify/pool.js';
import { Wakeups } from './wakeups.js';

export interface NodeOptions {
  readonly database: Database;
  readonly config: Config;
  readonly log: Log;
  readonly now?: () => number;
  /** All of them unless told. */
  readonly roles?: ReadonlySet<Role>;
  /** Those of the list unless told: others, or some of them. */
  readonly consumers?: readonly Consumer[] | ((listed: readonly Consumer[]) => readonly Consumer[]);
  /** How often consumers look whether their rules have changed. */
  readonly upkeepMs?: number;
}

/** What writes events, without a server: an import needs no more. */
export interface Writer {
  readonly admission: Admission;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  readonly communities: Communities;
  readonly verifier: Verifier;
  readonly lane: Lane;
  readonly tagHash: TagHash;
  readonly keys: NodeKeys;
  readonly erasing: Erasing;
  /** Where the audit log is moved to, if anywhere. */
  readonly audit: DynamodbAudit | undefined;
  readonly networkId: string;
  readonly recent: RecentIds;
  readonly metrics: Metrics;
  close(): Promise<void>;
}

/** By the id of the event: sent again, it is not counted again. */
function reportUse(pool: Database['apiPool'], now: () => number) {
  const counting = (community: number, { id, pubkey }: NostrEvent) =>
    ({ community, pubkey, metric: 'reports', requestId: id, now: now() }) as const;
  return {
    count: async (community: number, event: NostrEvent) =>
      !isDenial(await countUse(pool, counting(community, event))),
    giveBack: (community: number, event: NostrEvent) => giveBack(pool, counting(community, event)),
  };
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

export interface WriterHooks {
  readonly onCommit?: (plan: Plan) => void;
  /** Where it listens; what is configured unless told. */
  readonly port?: () => number;
  /** Without them no author is limited. */
  readonly rates?: Rates;
}

export async function startWriter(
  options: NodeOptions,
  { onCommit, port, rates }: WriterHooks = {},
): Promise<Writer> {
  const { database, config, log, now = Date.now } = options;
  const metrics = createMetrics();
  const recent = new RecentIds();
  const { tagHash, networkId } = await prepareDatabase(database, config, now, log);
  const { subjectKey, sharing } = await openSubjectKey(database, config, now);
  const communities = await watchCommunities(database.ownPool, log);
  communities.afterPoll(() => sharing.tend(communities.subjectPrint()));
  const verifier = await startVerifier();
  const settingsOf = (community: number) => communities.get(community)?.settings ?? settingsFrom(new Map());
  const lane = startLane({
    database,
    subjectKey,
    tagHash,
    metrics,
    log,
    now,
    settingsOf,
    topicsOf: (community) => communities.get(community)?.topics ?? new Map(),
    ...(onCommit ? { onCommit } : {}),
  });
  const keys = new NodeKeys({ folder: config.dataDir, pool: database.apiPool, now });
  const audit = config.dynamodb && new DynamodbAudit(config.dynamodb);
  const erasing: Erasing = {
    pool: database.apiPool,
    lane,
    tagHash,
    subjectKey,
    keys,
    certificates: new Certificates({
      pool: database.apiPool,
      keys,
      folder: config.dataDir,
      version: SOFTWARE_VERSION,
    }),
    aheadSeconds: (community) => settingsOf(community)['limits.createdAheadSecondsMax'],
    others: (pool) => [
      ...sessionDeleters({ pool, redisUrl: config.redisUrl }),
      ...auditDeleters({
        pool,
        dynamodb: audit,
        settingsOf,
        now,
        hashOf: (community, pubkey) => subjectKey.hash(community, pubkey).toString('hex'),
      }),
    ],
  };
  const bases = () => basesOf(config.publicUrl, config.host, port?.() ?? config.port);
  const seen = new SeenCounts();
  const stopSeen = startSeenFlush(seen, database.pool, log);
  const admission = createAdmission({
    lane,
    verifier,
    recent,
    seen,
    metrics,
    now,
    communities,
    bases,
    rates,
    reportUse: reportUse(database.apiPool, now),
    isServed: (community, event) => isServed(database.pool, community, event),
  });
  return {
    admission,
    bases,
    communities,
    verifier,
    lane,
    tagHash,
    keys,
    erasing,
    audit,
    networkId,
    recent,
    metrics,
    close: async () => {
      await lane.close();
      await audit?.close();
      await stopSeen();
      await verifier.close();
      await communities.stop();
      await sharing.withdraw().catch(() => undefined);
    },
  };
}

/** A node that cannot tell who was erased does not start; first it asks those that run. */
async function openSubjectKey(
  { ownPool }: Database,
  config: Config,
  now: () => number,
): Promise<{ readonly subjectKey: SubjectKey; readonly sharing: KeySharing }> {
  const subjectKey = new SubjectKey({ folder: config.dataDir, given: config.erasureKey });
  const sharing = new KeySharing(ownPool, subjectKey, now);
  const print = await readSubjectPrint(ownPool);
  if (print === undefined || (await subjectKey.load(print))) return { subjectKey, sharing };
  for (let waited = 0; waited < KEY_WAIT_MS; waited += KEY_LOOK_MS) {
    await sharing.tend(print);
    if (subjectKey.print === print) return { subjectKey, sharing };
    await delay(KEY_LOOK_MS);
  }
  await sharing.withdraw();
  if (await hasErasureMarks(ownPool)) subjectKey.check(print);
  return { subjectKey, sharing };
}
const KEY_WAIT_MS = 3_000;
const KEY_LOOK_MS = 200;

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
  /** Stops accepting, finishes the lane, closes the sockets with 1001. The database is the caller's. */
  close(): Promise<void>;
}

export async function startNode(options: NodeOptions): Promise<Node> {
  const { database, config, log, now = Date.now, roles = new Set(ROLES) } = options;
  const memory = new Memory();
  let port = config.port;
  const limits = await openLimits(config.redisUrl, database.limitsPool, log);
  const rates = new Rates({ shared: limits, log });
  const onCommit = (plan: Plan) => fanout.onCommit(plan);
  const hooks = { port: () => port, rates, ...(roles.has('relay') ? { onCommit } : {}) };
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
  const topicSettingsOf = (community: number) => communities.get(community)?.settings;
  const wakeups = new Wakeups(database, log);
  const fanout = new Fanout({ database, wakeups, memory, recent, metrics, log, now, topicSettingsOf });
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
        ownPool: database.ownPool,
        gate,
        intake: new Intake(),
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
  const context = { database, lane, communities, now, bounds: BOUNDS, erasing, audit, metrics, log };
  let consumers: RunningConsumers | undefined;
  let stopGauge: (() => Promise<void>) | undefined;
  if (roles.has('worker')) {
    schedule = startSchedule({ context, jobs: JOBS, metrics, log });
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
      http.stopAccepting();
      await Promise.all([schedule?.stop(), consumers?.stop(), stopGauge?.()]);
      await lane.close();
      await relay?.close();
      await http.close();
      await stop();
    },
  };
}
