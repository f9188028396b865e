/** All routes for operators. Every change writes its audit row in the same transaction. */
import type { Pool } from 'pg';
import { type AuditOptions, auditRoutes } from '../audit/routes.js';
import { blockRoutes } from '../blocks/routes.js';
import { type CapacityOptions, capacityRoutes } from '../communities/routes-capacity.js';
import { communityRoutes } from '../communities/routes-communities.js';
import { nodeSettingRoutes } from '../communities/routes-node-settings.js';
import { settingRoutes } from '../communities/routes-settings.js';
import { certificateRoutes } from '../erasure/certificates/routes-list.js';
import { type ErasureOptions, erasureRoutes } from '../erasure/routes.js';
import type { EventStore } from '../events/store.js';

import { jobsIn } from '../jobs/list.js';
import { type JobRouteOptions, jobRoutes } from '../jobs/routes.js';

import { labelAdminRoutes } from '../labels/routes-admin.js';

import { lifeRoutes } from '../life/routes.js';
import { type FinderOptions, finderRoutes } from '../life/routes-finder.js';
import { memberRoutes } from '../members/routes.js';
import { type ModerationOptions, moderationRoutes } from '../moderation/routes.js';
import { consumerRoutes } from '../outbox/consumers/routes.js';
import { type OutboxOptions, outboxRoutes } from '../outbox/routes.js';
import { followerRoutes } from '../outbox/routes-followers.js';
import { type OverviewOptions, overviewRoutes } from '../overview/routes.js';
import { type LogRouteOptions, logRoutes } from '../overview/routes-log.js';
import { type P2pRouteOptions, p2pRoutes } from '../p2p/routes.js';
import { personalDataReviewRoutes, type ReviewOptions } from '../personal-data/routes-admin.js';
import { planRoutes } from '../plans/routes-admin.js';
import { policyAdminRoutes } from '../policies/routes-admin.js';
import { type AdminSessionOptions, sessionRoutes } from '../sessions/routes.js';
import { type StorageOptions, storageRoutes } from '../storage/routes.js';
import { nodeTopicRoutes } from '../topics/routes-admin.js';
import { type TopicPreviewOptions, topicPreviewRoute } from '../topics/routes-preview.js';
import { reviewRoutes } from '../topics/routes-requests.js';
import { trustOfMemberRoute } from '../trust/routes-admin.js';
import type { Route } from './contract.js';

export interface AdminOptions
  extends AuditOptions,
    OutboxOptions,
    ModerationOptions,
    AdminSessionOptions,
    ErasureOptions,
    OverviewOptions,
    LogRouteOptions,
    CapacityOptions,
    FinderOptions,
    ReviewOptions,
    P2pRouteOptions,
    TopicPreviewOptions,
    JobRouteOptions,
    StorageOptions {
  readonly pool: Pool;
  readonly events: EventStore;
  /** Operators of every community. Nobody can remove or disable them. */
  readonly adminPubkeys: readonly string[];
}

export function adminRoutes(options: AdminOptions): Route[] {
  return [
    ...overviewRoutes(options),
    ...sessionRoutes(options),
    ...reviewRoutes(options),
    ...nodeTopicRoutes(options),
    topicPreviewRoute(options),
    ...capacityRoutes(options),
    ...memberRoutes(options),
    ...blockRoutes(options),
    ...planRoutes(options),
    ...settingRoutes(options),
    ...nodeSettingRoutes(options),
    ...communityRoutes(options),
    ...storageRoutes(options),
    ...policyAdminRoutes(options),
    ...personalDataReviewRoutes(options),
    ...erasureRoutes(options),
    ...certificateRoutes(options),
    ...moderationRoutes(options),
    ...finderRoutes(options),
    ...labelAdminRoutes(options),
    ...lifeRoutes(options),
    trustOfMemberRoute(options),
    ...consumerRoutes(options),
    ...outboxRoutes(options),
    ...followerRoutes(options),
    ...p2pRoutes(options),
    ...jobRoutes(options, jobsIn(options.eventStore ?? 'postgres')),
    ...logRoutes(options),
    ...auditRoutes(options),
  ];
}
