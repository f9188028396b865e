/** The HTTP routes of the audit log, for operators: the list with filters, and its export. */
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { Flow, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import { type AuditEntry, listAudit, type ReadAudit } from './audit.sql.js';
import { type DynamodbAudit, DynamodbError, TOO_MANY_ROWS } from './dynamodb.js';
import { AUDIT_ACTIONS, type AuditAction } from './rules.js';
import { csvLine } from './rules-csv.js';

const AUDIT = '/admin/audit-log';
const NDJSON = 'application/x-ndjson';
const CSV = 'text/csv';
/** Rows of one export, and of one of its queries. */
const EXPORT_ROWS_MAX = 100_000;
const EXPORT_PAGE_ROWS = 500;

export interface AuditOptions {
  readonly pool: Pool;
  /** The store that rows of the audit log are moved to. */
  readonly audit?: DynamodbAudit | undefined;
}

function asAction(text: string, context: z.RefinementCtx): AuditAction {
  const action = AUDIT_ACTIONS.find((one) => one === text);
  if (action !== undefined) return action;
  context.addIssue({ code: 'custom', message: 'not an action of the audit log' });
  return z.NEVER;
}

const time = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional();
const filters = {
  actor: pubkey.optional().describe('Only what this key did'),
  // Not an enum: the document would list all of them in each route.
  action: z.string().max(64).transform(asAction).optional().describe('One of those in the answer'),
  target: plainText(1_000).min(1).optional().describe('The whole target: an id, a key, a topic, a setting'),
  since: time.describe('Milliseconds since 1970, inclusive'),
  until: time.describe('Milliseconds since 1970, inclusive'),
};
const entry = z.strictObject({
  position: z.number().int(),
  at: milliseconds,
  actor: pubkey
    .nullable()
    .describe('Null for the command line on the node itself, and for an erased operator (see details.actor)'),
  action: z.enum(AUDIT_ACTIONS),
  target: z.string().describe('What the action changed: an id, a key, a topic or a setting'),
  details: z.record(z.string(), z.unknown()),
});

/** Part of the log would look like all of it. */
function refusalOf(error: unknown): Denial {
  if (!(error instanceof DynamodbError)) throw error;
  if (error.reason !== TOO_MANY_ROWS) return denial('UNAVAILABLE');
  const message = 'this time has too many rows for a filter; choose a shorter one with since and until';
  return denial('INVALID_REQUEST', { problems: [{ path: 'querystring/since', message }] });
}

export function auditRoutes({ pool, audit }: AuditOptions): Route[] {
  const readArchive: ReadAudit | undefined = audit && ((...page) => audit.newest(...page));
  const tags = ['admin: audit'] as const;
  return [
    route({
      method: 'GET',
      url: AUDIT,
      summary: 'What operators did, newest first',
      tags,
      who: 'operator',
      query: pageQuery.extend(filters),
      response: pageOf(entry),
      errors: ['UNAVAILABLE'],
      handler: async ({ community, query: { limit, cursor, ...filter } }) => {
        try {
          const page = await listAudit(pool, community.id, { limit, cursor }, readArchive, filter);
          return showPage(page, (row) => row);
        } catch (error) {
          return refusalOf(error);
        }
      },
    }),
    route({
      method: 'GET',
      url: `${AUDIT}/export`,
      summary: 'The audit log as JSON lines or CSV, newest first',
      description:
        'By the Accept header. At most 100,000 rows; continue with `until` of the oldest. ' +
        'In CSV a text that a spreadsheet would take for a formula begins with an apostrophe.',
      tags,
      who: 'operator',
      query: z.strictObject(filters),
      produces: { [NDJSON]: entry, [CSV]: z.string() },
      response: z.custom<Flow>(),
      errors: ['UNAVAILABLE'],
      handler: async ({ community, query, type, left }) => {
        const read = (cursor?: string) =>
          listAudit(pool, community.id, { limit: EXPORT_PAGE_ROWS, cursor }, readArchive, query);
        try {
          // The first page is read before the answer begins, so that a refusal is one.
          const first = await read();
          if (isDenial(first)) return first;
          return new Flow(Readable.from(exported(first, read, type, left), { objectMode: false }));
        } catch (error) {
          return refusalOf(error);
        }
      },
    }),
  ];
}

type AuditPage = Exclude<Awaited<ReturnType<typeof listAudit>>, Denial>;

async function* exported(
  first: AuditPage,
  read: (cursor: string) => ReturnType<typeof listAudit>,
  type: string,
  left: AbortSignal | undefined,
): AsyncGenerator<string> {
  const lineOf = type === CSV ? csvOf : (row: AuditEntry) => `${JSON.stringify(row)}\n`;
  if (type === CSV) yield csvLine(['position', 'at', 'actor', 'action', 'target', 'details']);
  let page = first;
  for (let rows = 0; rows < EXPORT_ROWS_MAX && !left?.aborted; rows += EXPORT_PAGE_ROWS) {
    if (page.items.length > 0) yield page.items.map(lineOf).join('');
    if (page.cursor === undefined) return;
    const next = await read(page.cursor);
    // The cursor is our own.
    if (isDenial(next)) throw new Error(`an export of the audit log stopped: ${next.denied}`);
    page = next;
  }
}

function csvOf({ position, at, actor, action, target, details }: AuditEntry): string {
  return csvLine([position, new Date(at).toISOString(), actor, action, target, JSON.stringify(details)]);
}
