/**
 * Puts together everything that writes events, without a server. Imports and jobs by command need no more,
 * and start faster without the rest.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isDenial } from '../api/rules-errors.js';
import { DynamodbAudit } from '../audit/dynamodb.js';
import { basesOf } from '../communities/addresses.js';
import { type ChangeNotices, type Communities, watchCommunities } from '../communities/communities.js';
import { settingsFrom } from '../communities/rules-settings.js';
import { Certificates } from '../erasure/certificates/sign.js';
import { hasErasureMarks } from '../erasure/steps.sql.js';
import { auditDeleters } from '../erasure/stores/audit.js';
import type { Erasing } from '../erasure/stores/registry.js';
import { sessionDeleters } from '../erasure/stores/sessions.js';
import { type Admission, createAdmission } from '../events/admission.js';
import { changedEventsOf } from '../events/dynamodb/changed-events.js';
import { type DynamodbEvents, openDynamodbEvents } from '../events/dynamodb/open.js';
import { readKeptBytes } from '../events/postgres/capacity.js';
import { Replica } from '../events/postgres/replica.js';
import { startPostgresStore } from '../events/postgres/store.js';
import type { TagHash } from '../events/postgres/tag-hash.js';
import { RecentIds } from '../events/recent-ids.js';
import { type RoomMaker, startRoomMaker } from '../events/room.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { BatchWrites } from '../events/rules/writes.js';
import { SeenCounts, startSeenFlush } from '../events/seen-counts.js';
import type { EventStore } from '../events/store.js';
import { startVerifier, type Verifier } from '../events/verify/pool.js';
import { NodeKeys } from '../keys/keys.js';
import { KeySharing } from '../keys/sharing.js';
import { SubjectKey } from '../keys/subject-key.js';
import type { Rates } from '../limits/rates.js';
import { OnArrival } from '../moderation/arrival/on-arrival.js';
import { type ChangedEvents, IN_DATABASE } from '../outbox/changes.sql.js';
import { countUse, giveBack } from '../plans/usage.sql.js';
import type { Database } from '../postgres/database.js';
import type { SearchedEvents } from '../search/search.sql.js';
import type { Config } from './config.js';
import { type DiskGuard, startDiskGuard } from './disk.js';
import type { Log } from './log.js';
import { createMetrics, type Metrics } from './metrics.js';
import { prepareDatabase } from './prepare.js';
import { readSubjectFingerprint } from './state.sql.js';
import { SOFTWARE_VERSION } from './version.js';

export interface WriterOptions {
  readonly database: Database;
  readonly config: Config;
  readonly log: Log;
  readonly now?: () => number;
  /** Purges for space right after a commit that fills it. If false, only the job purges. */
  readonly makesRoom?: boolean;
}

/** Everything that writes events, without a server. */
export interface Writer {
  readonly admission: Admission;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  readonly communities: Communities;
  readonly verifier: Verifier;
  readonly store: EventStore;
  /** The events of changes, for readers of the outbox. */
  readonly changed: ChangedEvents;
  /** For searches: where events are, if they are not in the database. */
  readonly elsewhere: SearchedEvents | undefined;
  /** Undefined where events are in PostgreSQL. */
  readonly dynamodb: DynamodbEvents | undefined;
  /** Undefined without DATABASE_READ_URL. */
  readonly replica: Replica | undefined;
  readonly tagHash: TagHash;
  readonly keys: NodeKeys;
  readonly erasing: Erasing;
  /** The store to which the audit log is moved, if there is one. */
  readonly audit: DynamodbAudit | undefined;
  readonly networkId: string;
  readonly recent: RecentIds;
  readonly metrics: Metrics;
  /** Watches the free space of the database's disk. */
  readonly disk: DiskGuard;
  close(): Promise<void>;
}

/** Counts a report by the id of its event: an event that is sent twice counts once. */
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
  readonly onCommit?: (writes: BatchWrites) => void;
  /** The session of the lane, by the number of its server process; undefined when it has ended. */
  readonly onLaneSession?: (processId: number | undefined) => void;
  /** The port on which it listens; by default the configured one. */
  readonly port?: () => number;
  /** Without rates no author is limited. */
  readonly rates?: Rates;
  /** Notifications of changed settings; without them settings are polled. */
  readonly notices?: ChangeNotices;
  /** This process has the role worker, which signs labels, scores and certificates. */
  readonly signs?: boolean;
}

export async function startWriter(
  options: WriterOptions,
  { onCommit, onLaneSession, port, rates, notices, signs = false }: WriterHooks = {},
): Promise<Writer> {
  const { database, config, log, now = Date.now, makesRoom = true } = options;
  let room: RoomMaker | undefined;
  const metrics = createMetrics();
  const recent = new RecentIds();
  const { tagHash, networkId } = await prepareDatabase(database, config, now, log);
  const { subjectKey, keys, sharing } = await openKeys(database, config, { now, signs });
  const communities = await watchCommunities(database.ownPool, log, notices);
  communities.afterPoll(() => sharing.tend(communities.subjectFingerprint()));
  const disk = await startDiskGuard({
    folder: config.databaseUrl === undefined ? config.dataDir : undefined,
    settings: () => communities.node(),
    kept: async () => {
      const bytes = await readKeptBytes(database.ownPool);
      return new Map(communities.all().map(({ id }) => [id, bytes.get(id) ?? 0]));
    },
    metrics,
    log,
  });
  const replica = await openReplica(database, config, metrics, log);
  const verifier = await startVerifier({ checksAtOnce: true });
  const settingsOf = (community: number) => communities.get(community)?.settings ?? settingsFrom(new Map());
  const common = {
    database,
    replica,
    subjectKey,
    tagHash,
    metrics,
    log,
    now,
    settingsOf,
    topicsOf: (community: number) => communities.get(community)?.topics ?? new Map(),
    refusedUntilOf: (community: number) => communities.get(community)?.refusedUntil,
    keptSinceOf: (community: number) => communities.get(community)?.keptSince ?? 0,
    onArrival: new OnArrival(communities),
  };
  const idsOfCommunities = () => communities.all().map(({ id }) => id);
  const dynamodb =
    config.eventStore === 'postgres'
      ? undefined
      : await openDynamodbEvents({
          ...common,
          place: config.dynamodb!,
          communities: idsOfCommunities,
          onGone: (community, id) => recent.withdraw(community, id),
          onMark: () => recent.clear(),
        });
  const store =
    dynamodb?.store ??
    startPostgresStore({
      ...common,
      onSession: onLaneSession,
      onCommit: (writes) => {
        onCommit?.(writes);
        room?.note(writes);
      },
    });
  const changed = dynamodb === undefined ? IN_DATABASE : changedEventsOf(dynamodb.store, idsOfCommunities);
  if (makesRoom && dynamodb === undefined)
    room = startRoomMaker({ database, store, communities, tagHash, now, log });
  const audit = config.dynamodb && new DynamodbAudit(config.dynamodb);
  const erasing: Erasing = {
    pool: database.apiPool,
    store,
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
  const stopSeen = startSeenFlush(seen, store, log);
  const admission = createAdmission({
    store,
    verifier,
    recent,
    isRecentBehind: dynamodb !== undefined,
    seen,
    metrics,
    now,
    communities,
    diskLevel: disk.levelFor,
    bases,
    rates,
    reportUse: reportUse(database.apiPool, now),
  });
  return {
    admission,
    bases,
    communities,
    verifier,
    store,
    changed,
    elsewhere: dynamodb && { events: store, changed },
    dynamodb,
    replica,
    tagHash,
    keys,
    erasing,
    audit,
    networkId,
    recent,
    metrics,
    disk,
    close: async () => {
      await disk.stop();
      await room?.close();
      await (dynamodb ?? store).close();
      await store.close();
      await replica?.close();
      await audit?.close();
      await stopSeen();
      await verifier.close();
      await communities.stop();
      await sharing.withdraw().catch(() => undefined);
    },
  };
}

function openReplica(
  primary: Database,
  { databaseReadUrl: url }: Config,
  { replicaReads, replicaUsed, replicaBehind }: Metrics,
  log: Log,
): Promise<Replica> | undefined {
  if (url === undefined) return undefined;
  replicaUsed.set(1);
  return Replica.open({
    url,
    primary,
    log,
    onRead: (result) => replicaReads.inc({ result }),
    onState: (isUsed, behind) => {
      replicaUsed.set(Number(isUsed));
      replicaBehind.set(behind);
    },
  });
}

/**
 * Without the erasure key a node does not know who was erased, and does not start. It asks running nodes
 * first.
 */
async function openKeys(
  { ownPool, apiPool }: Database,
  { dataDir: folder, erasureKey }: Config,
  { now, signs }: { readonly now: () => number; readonly signs: boolean },
): Promise<{ readonly subjectKey: SubjectKey; readonly keys: NodeKeys; readonly sharing: SharingKeys }> {
  const subjectKey = new SubjectKey({ folder, given: erasureKey });
  const keys = new NodeKeys({ folder, pool: apiPool, now, signs });
  let fingerprint = await readSubjectFingerprint(ownPool);
  const sharing = new KeySharing(ownPool, [subjectKey.shared(() => fingerprint), keys.shared()], now);
  const opened = {
    subjectKey,
    keys,
    sharing: {
      tend: (fingerprintNow: string | undefined) => {
        fingerprint = fingerprintNow;
        return sharing.tend();
      },
      withdraw: () => sharing.withdraw(),
    },
  };
  if (fingerprint === undefined || (await subjectKey.load(fingerprint))) return opened;
  for (let waited = 0; waited < KEY_WAIT_MS; waited += KEY_LOOK_MS) {
    await sharing.tend();
    if (subjectKey.fingerprint === fingerprint) return opened;
    await delay(KEY_LOOK_MS);
  }
  await sharing.withdraw();
  if (await hasErasureMarks(ownPool)) subjectKey.check(fingerprint);
  return opened;
}
interface SharingKeys {
  /** `fingerprint`: that of the erasure key in the database. */
  tend(fingerprint: string | undefined): Promise<void>;
  withdraw(): Promise<void>;
}
const KEY_WAIT_MS = 3_000;
const KEY_LOOK_MS = 200;
