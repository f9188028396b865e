/** The HTTP route that lists the audit log for operators. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from '../api/schemas.js';
import { listAudit, type ReadAudit } from './audit.sql.js';
import { type DynamodbAudit, DynamodbError } from './dynamodb.js';
import { AUDIT_ACTIONS } from './rules.js';

export interface AuditOptions {
  readonly pool: Pool;
  /** The store that rows of the audit log are moved to. */
  readonly audit?: DynamodbAudit | undefined;
}

export function auditRoute({ pool, audit }: AuditOptions): Route {
  const readArchive: ReadAudit | undefined = audit && ((...page) => audit.newest(...page));
  return route({
    method: 'GET',
    url: '/admin/audit-log',
    summary: 'What operators did, newest first',
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
            'Null for the command line on the node itself, and for an erased operator (see details.actor)',
          ),
        action: z.enum(AUDIT_ACTIONS),
        target: z.string().describe('What the action changed: an id, a key, a topic or a setting'),
        details: z.record(z.string(), z.unknown()),
      }),
    ),
    errors: ['UNAVAILABLE'],
    handler: async ({ community, query }) => {
      try {
        return showPage(await listAudit(pool, community.id, query, readArchive), (entry) => entry);
      } catch (error) {
        // Part of the log would look like all of it.
        if (error instanceof DynamodbError) return denial('UNAVAILABLE');
        throw error;
      }
    },
  });
}
