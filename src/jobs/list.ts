/** All jobs of a node. `minato purge` runs those with `purges`, in this order. */

import { forgetAudit, shipAudit } from '../audit/jobs.js';
import { erase } from '../erasure/jobs.js';
import { reauditErasures } from '../erasure/jobs-reaudit.js';
import { capacity } from '../events/jobs/capacity.js';
import { deleteHistory } from '../events/jobs/delete-history.js';
import { expire } from '../events/jobs/expire.js';
import { forgetDedupeRows } from '../events/jobs/forget-dedupe.js';
import { forgetRequests } from '../events/jobs/forget-requests.js';
import { purgeDeletedEvents } from '../events/jobs/purge-deleted.js';
import { purgeHistory } from '../events/jobs/purge-history.js';
import { dropMonths, retain } from '../events/jobs/retain.js';
import { membershipList } from '../members/jobs.js';
import { purgeRemovedEvents } from '../moderation/jobs.js';
import type { EventStoreName } from '../node/config.js';
import { trimOutboxRows } from '../outbox/jobs.js';
import { keepHistory } from '../overview/jobs.js';
import { exportPersonalData } from '../personal-data/jobs.js';
import { forgetUsage } from '../plans/jobs.js';
import { purgeDocumentsOfDeleted } from '../search/jobs.js';
import { forgetTokens } from '../sessions/jobs.js';
import { forgetTrust, trustPass } from '../trust/jobs.js';
import type { Job } from './job.js';
import {
  checkpointWhenCalm,
  forgetLimits,
  forgetQuotas,
  forgetSessions,
  freeJobs,
  partitions,
  trimLiveBus,
} from './upkeep.js';

export const JOBS: readonly Job[] = [
  expire,
  erase,
  deleteHistory,
  purgeDeletedEvents,
  purgeDocumentsOfDeleted,
  purgeRemovedEvents,
  purgeHistory,
  retain,
  forgetRequests,
  capacity,
  // After all jobs that empty the partitions of a month.
  dropMonths,
  trimOutboxRows,
  forgetDedupeRows,
  forgetQuotas,
  forgetLimits,
  forgetSessions,
  forgetUsage,
  forgetTokens,
  membershipList,
  trustPass,
  forgetTrust,
  exportPersonalData,
  reauditErasures,
  shipAudit,
  forgetAudit,
  keepHistory,
  partitions,
  trimLiveBus,
  freeJobs,
  checkpointWhenCalm,
];

/** The jobs of a node whose events are in this store. */
export const jobsIn = (store: EventStoreName): readonly Job[] =>
  JOBS.filter(({ notIn }) => notIn?.[store] === undefined);
