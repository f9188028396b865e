/** All routes for operators. Every change writes its audit row in the same transaction. */
import type { Pool } from 'pg';
import { type AuditOptions, auditRoute } from '../audit/routes.js';
import { blockRoutes } from '../blocks/routes.js';
import { type CapacityOptions, capacityRoutes } from '../communities/routes-capacity.js';
import { nodeSettingRoutes } from '../communities/routes-node-settings.js';
import { settingRoutes } from '../communities/routes-settings.js';
import { type ErasureOptions, erasureRoutes } from '../erasure/routes.js';
import { labelAdminRoutes } from '../labels/routes-admin.js';
import { lifeRoutes } from '../life/routes.js';
import { memberRoutes } from '../members/routes.js';
import { nameRoutes } from '../members/routes-names.js';
import { type ModerationOptions, moderationRoutes } from '../moderation/routes.js';
import { consumerRoutes } from '../outbox/consumers/routes.js';
import { type OutboxOptions, outboxRoutes } from '../outbox/routes.js';
import { followerRoutes } from '../outbox/routes-followers.js';
import { personalDataReviewRoutes } from '../personal-data/routes-admin.js';
import { planRoutes } from '../plans/routes-admin.js';
import { policyAdminRoutes } from '../policies/routes-admin.js';
import { type AdminSessionOptions, sessionRoutes } from '../sessions/routes.js';
import { nodeTopicRoutes } from '../topics/routes-admin.js';
import { reviewRoutes } from '../topics/routes-requests.js';
import type { Route } from './contract.js';

export interface AdminOptions
  extends AuditOptions,
    OutboxOptions,
    ModerationOptions,
    AdminSessionOptions,
    ErasureOptions,
    CapacityOptions {
  readonly pool: Pool;
  /** Operators of every community. Nobody can remove or disable them. */
  readonly adminPubkeys: readonly string[];
}

export function adminRoutes(options: AdminOptions): Route[] {
  return [
    ...sessionRoutes(options),
    ...reviewRoutes(options),
    ...nodeTopicRoutes(options),
    ...capacityRoutes(options),
    ...memberRoutes(options),
    ...nameRoutes(options),
    ...blockRoutes(options),
    ...planRoutes(options),
    ...settingRoutes(options),
    ...nodeSettingRoutes(options),
    ...policyAdminRoutes(options),
    ...personalDataReviewRoutes(options),
    ...erasureRoutes(options),
    ...moderationRoutes(options),
    ...labelAdminRoutes(options),
    ...lifeRoutes(options),
    ...consumerRoutes(options),
    ...outboxRoutes(options),
    ...followerRoutes(options),
    auditRoute(options),
  ];
}
