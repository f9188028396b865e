/** Every job of a node. A purge runs those that purge, in this order. */
import { capacity } from './capacity.js';
import { deleteHistory } from './delete-history.js';
import { erase } from './erase.js';
import { expire } from './expire.js';
import { exportPersonalData } from './export-personal-data.js';
import { forgetDedupeRows } from './forget-dedupe.js';
import { forgetRequests } from './forget-requests.js';
import { forgetTokens, forgetUsage } from './forget-usage.js';
import type { Job } from './job.js';
import { membershipList } from './membership-list.js';
import { purgeDeletedEvents } from './purge-deleted.js';
import { purgeDocumentsOfDeleted } from './purge-documents.js';
import { purgeHistory } from './purge-history.js';
import { purgeRemovedEvents } from './purge-removed.js';
import { reauditErasures } from './reaudit.js';
import { dropMonths, retain } from './retain.js';
import { forgetAudit, shipAudit } from './ship-audit.js';
import { trimOutboxRows } from './trim-outbox.js';
import { forgetTrust, trustPass } from './trust.js';
import { forgetLimits, forgetQuotas, forgetSessions, freeJobs, partitions, trimLiveBus } from './upkeep.js';

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
  // Behind all that empties a month.
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
  partitions,
  trimLiveBus,
  freeJobs,
];
