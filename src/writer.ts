/** What writes events, put together without a server: imports and jobs by command need no more, and start sooner without the rest. */
import { setTimeout as delay } from 'node:timers/promises';
import { basesOf } from './addresses.js';
import { type Admission, createAdmission, RecentIds } from './admission.js';
import { DynamodbAudit } from './audit/dynamodb.js';
import { type Communities, watchCommunities } from './communities.js';
import type { Config } from './config.js';
import { isDenial } from './core/errors.js';
import type { NostrEvent } from './core/event.js';
import type { Plan } from './core/plan.js';
import { settingsFrom } from './core/settings.js';
import type { Erasing } from './erasure/all.js';
import { auditDeleters } from './erasure/audit-deleters.js';
import { Certificates } from './erasure/certificate.js';
import { sessionDeleters } from './erasure/sessions.js';
import { KeySharing } from './key-sharing.js';
import { NodeKeys } from './keys.js';
import { type Lane, startLane } from './lane.js';
import type { Rates } from './limits/rates.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import type { Database } from './postgres/database.js';
import { prepareDatabase } from './prepare.js';
import { type RoomMaker, startRoomMaker } from './room.js';
import { SeenCounts, startSeenFlush } from './seen-counts.js';
import { hasErasureMarks } from './store/erasure-steps.js';
import { readSubjectPrint } from './store/node-state.js';
import { isServed } from './store/seen.js';
import type { TagHash } from './store/tag-hash.js';
import { countUse, giveBack } from './store/usage.js';
import { SubjectKey } from './subject-key.js';
import { startVerifier, type Verifier } from './verify/pool.js';
import { SOFTWARE_VERSION } from './version.js';

export interface WriterOptions {
  readonly database: Database;
  readonly config: Config;
  readonly log: Log;
  readonly now?: () => number;
  /** Purge for space right after the commits that fill it; else only the job does. */
  readonly makesRoom?: boolean;
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

export interface WriterHooks {
  readonly onCommit?: (plan: Plan) => void;
  /** Where it listens; what is configured unless told. */
  readonly port?: () => number;
  /** Without them no author is limited. */
  readonly rates?: Rates;
  /** It has a worker, which signs labels, scores and certificates. */
  readonly signs?: boolean;
}

export async function startWriter(
  options: WriterOptions,
  { onCommit, port, rates, signs = false }: WriterHooks = {},
): Promise<Writer> {
  const { database, config, log, now = Date.now, makesRoom = true } = options;
  let room: RoomMaker | undefined;
  const metrics = createMetrics();
  const recent = new RecentIds();
  const { tagHash, networkId } = await prepareDatabase(database, config, now, log);
  const { subjectKey, keys, sharing } = await openKeys(database, config, { now, signs });
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
    refusedUntilOf: (community) => communities.get(community)?.refusedUntil,
    keptSinceOf: (community) => communities.get(community)?.keptSince ?? 0,
    onCommit: (plan) => {
      onCommit?.(plan);
      room?.note(plan);
    },
  });
  if (makesRoom) room = startRoomMaker({ database, lane, communities, tagHash, now, log });
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
      log,
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
      await room?.close();
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
async function openKeys(
  { ownPool, apiPool }: Database,
  { dataDir: folder, erasureKey }: Config,
  { now, signs }: { readonly now: () => number; readonly signs: boolean },
): Promise<{ readonly subjectKey: SubjectKey; readonly keys: NodeKeys; readonly sharing: SharingKeys }> {
  const subjectKey = new SubjectKey({ folder, given: erasureKey });
  const keys = new NodeKeys({ folder, pool: apiPool, now, signs });
  let print = await readSubjectPrint(ownPool);
  const sharing = new KeySharing(ownPool, [subjectKey.shared(() => print), keys.shared()], now);
  const opened = {
    subjectKey,
    keys,
    sharing: {
      tend: (printNow: string | undefined) => {
        print = printNow;
        return sharing.tend();
      },
      withdraw: () => sharing.withdraw(),
    },
  };
  if (print === undefined || (await subjectKey.load(print))) return opened;
  for (let waited = 0; waited < KEY_WAIT_MS; waited += KEY_LOOK_MS) {
    await sharing.tend();
    if (subjectKey.print === print) return opened;
    await delay(KEY_LOOK_MS);
  }
  await sharing.withdraw();
  if (await hasErasureMarks(ownPool)) subjectKey.check(print);
  return opened;
}
interface SharingKeys {
  /** With what the database knows of the key of the erased. */
  tend(print: string | undefined): Promise<void>;
  withdraw(): Promise<void>;
}
const KEY_WAIT_MS = 3_000;
const KEY_LOOK_MS = 200;
