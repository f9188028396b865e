/** The role api: opens the sessions and adds the routes of the HTTP API to the port. */
import { addApi } from '../api/server.js';
import { erase } from '../erasure/jobs.js';
import { heldCounter } from '../erasure/preview.js';
import { checkRunning } from '../health/running.js';
import { BOUNDS } from '../jobs/job.js';
import { jobsIn } from '../jobs/list.js';
import { previewJobs } from '../jobs/run.js';
import { carryOut } from '../moderation/pending-actions.js';
import type { BuiltPages } from '../pages/built.js';
import { addMembersPages } from '../pages/members.js';
import { addConsole } from '../pages/server.js';
import { exportPersonalData } from '../personal-data/jobs.js';
import { isExempt } from '../port/rate.js';
import type { Database } from '../postgres/database.js';
import { openSessions, type Sessions } from '../sessions/shared.js';
import type { ChangesOptions } from '../topics/routes-changes.js';
import type { Config } from './config.js';
import type { Entry } from './entry.js';
import type { Log, LogLines } from './log.js';
import { fixCursorSecret, fixDownloadSecret, fixTokenSecret } from './state.sql.js';
import type { Stores } from './stores.js';
import { SOFTWARE_VERSION } from './version.js';

export interface ApiRoleOptions {
  readonly database: Database;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => number;
  readonly pages: BuiltPages;
  /** Queues a job for now. Without a worker in this process, another one finds the work within a minute. */
  readonly runSoon: (job: string) => Promise<void>;
  /** The newest lines of the log. */
  readonly logLines?: LogLines | undefined;
}

/** Returns the sessions. The caller closes them after everything that uses them. */
export async function startApi(
  { database, config, log, now, pages, runSoon, logLines }: ApiRoleOptions,
  { limits, rates, cursors, writer }: Stores,
  { http, addressOf, gate }: Entry,
): Promise<Sessions> {
  const { audit, bases, changed, communities, disk, erasing, metrics, networkId, store, tagHash, verifier } =
    writer;
  const sessions = await openSessions(config.redisUrl, database.apiPool, log);
  const inClass: ChangesOptions['inClass'] = ({ client, community }, cost, query) => {
    const queryClient = {
      client,
      community: community.id,
      isExempt: isExempt(client, community.settings),
      isHasty: true,
    };
    return gate.run(queryClient, cost, query);
  };
  addApi(http, {
    pool: database.apiPool,
    audit,
    eventStore: config.eventStore,
    changed,
    networkId,
    communities,
    bases,
    verifier,
    useOnce: (...credential) => limits.useOnce(...credential),
    tokenSecret: await fixTokenSecret(database.ownPool),
    subjectOf: (community, pubkey) => erasing.subjectKey.tryHash(community, pubkey),
    adminPubkeys: config.adminPubkeys,
    disk: () => disk.now(),
    metrics,
    examine: checkRunning({
      pool: database.apiPool,
      dataDir: config.dataDir,
      verifier: verifier.backend,
      now,
    }),
    ...(logLines === undefined ? {} : { logLines }),
    sessions,
    carryOut: (about) => carryOut({ store, pool: database.apiPool, now }, about),
    downloadSecret: await fixDownloadSecret(database.ownPool),
    exportSoon: () => runSoon(exportPersonalData.name),
    eraseSoon: () => runSoon(erase.name),
    countHeld: heldCounter(erasing, database, now),
    previewPurge: (msMax) => {
      const { signal } = new AbortController();
      const diskLevel = () => disk.now().level;
      const context = {
        database,
        store,
        communities,
        erasing,
        audit,
        now,
        signal,
        bounds: BOUNDS,
        diskLevel,
      };
      return previewJobs(
        jobsIn(config.eventStore).filter(({ purges }) => purges),
        context,
        msMax,
      );
    },
    hashOf: async (community, pubkey) => erasing.subjectKey.tryHash(community, pubkey)?.toString('hex'),
    search: {
      pool: database.pool,
      searchPool: database.searchPool,
      tagHash,
      elsewhere: writer.elsewhere,
      cursorSecret: await fixCursorSecret(database.ownPool),
    },
    inSlot: (asker, cost, query) => inClass(asker, cost, (kind) => query(database.queryPools[kind])),
    inClass,
    events: store,
    cursors,
    rates,
    addressOf,
    version: SOFTWARE_VERSION,
    log,
    now,
  });
  addConsole(http, { communities, pages });
  addMembersPages(http, { communities, pages });
  return sessions;
}
