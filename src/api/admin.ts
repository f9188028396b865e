/** What operators do over HTTP. Every change is noted in the audit log, in the transaction that makes it. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type DynamodbAudit, DynamodbError } from '../audit/dynamodb.js';
import { denial } from '../core/errors.js';
import { AUDIT_ACTIONS } from '../core/membership.js';
import { listAudit, type ReadAudit } from '../store/audit.js';
import { blockRoutes } from './admin-blocks.js';
import { capacityRoutes } from './admin-capacity.js';
import { consumerRoutes } from './admin-consumers.js';
import { type ErasureOptions, erasureRoutes } from './admin-erasures.js';
import { followerRoutes } from './admin-followers.js';
import { memberRoutes } from './admin-members.js';
import { type ModerationOptions, moderationRoutes } from './admin-moderation.js';
import { personalDataReviewRoutes } from './admin-personal-data.js';
import { planRoutes } from './admin-plans.js';
import { policyAdminRoutes } from './admin-policies.js';
import { reviewRoutes } from './admin-requests.js';
import { type AdminSessionOptions, sessionRoutes } from './admin-session.js';
import { settingRoutes } from './admin-settings.js';
import { nodeTopicRoutes } from './admin-topics.js';
import { type Route, route } from './contract.js';
import { type OutboxOptions, outboxRoutes } from './outbox.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from './schemas.js';

export interface AdminOptions extends OutboxOptions, ModerationOptions, AdminSessionOptions, ErasureOptions {
  readonly pool: Pool;
  /** Where rows of the audit log are moved to. */
  readonly audit?: DynamodbAudit | undefined;
  /** Operators of every community, whom nobody can remove or lock out. */
  readonly adminPubkeys: readonly string[];
}

export function adminRoutes(options: AdminOptions): Route[] {
  return [
    ...sessionRoutes(options),
    ...reviewRoutes(options),
    ...nodeTopicRoutes(options),
    ...capacityRoutes(options),
    ...memberRoutes(options),
    ...blockRoutes(options),
    ...planRoutes(options),
    ...settingRoutes(options),
    ...policyAdminRoutes(options),
    ...personalDataReviewRoutes(options),
    ...erasureRoutes(options),
    ...moderationRoutes(options),
    ...consumerRoutes(options),
    ...outboxRoutes(options),
    ...followerRoutes(options),
    auditRoute(options),
  ];
}

function auditRoute({ pool, audit }: AdminOptions): Route {
  const readArchive: ReadAudit | undefined = audit && ((...page) => audit.newest(...page));
  return route({
    method: 'GET',
    url: '/admin/audit-log',
    summary: 'What operators did, the newest first',
    tags: ['admin: audit'],
    who: 'operator',
    query: pageQuery,
    response: pageOf(
      z.strictObject({
        position: z.number().int(),
        at: milliseconds,
        actor: pubkey
          .nullable()
          .describe(
            'Null: the command line on the machine of the node, or somebody who was erased (details.actor stands for them)',
          ),
        action: z.enum(AUDIT_ACTIONS),
        target: z.string().describe('What it was done to: an id, a key, a topic or a setting'),
        details: z.record(z.string(), z.unknown()),
      }),
    ),
    errors: ['UNAVAILABLE'],
    handler: async ({ community, query }) => {
      try {
        return showPage(await listAudit(pool, community.id, query, readArchive), (entry) => entry);
      } catch (error) {
        // Half of the log would look like all of it.
        if (error instanceof DynamodbError) return denial('UNAVAILABLE');
        throw error;
      }
    },
  });
}
