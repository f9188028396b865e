/** The audit log, declared (I12). */
import { declareTable } from '../postgres/table.js';

const ABOUT_THEM = `(target = :hex OR coalesce(details->>'pubkey', '') = :hex)`;

export const auditLogTable = declareTable('audit_log', {
  row: 'What an operator did, in the transaction of the action. With DynamoDB these rows are moved there.',
  people: { actor: { unchecked: 'Part of `keysIn`.' } },
  keysIn: `concat_ws(' ', encode(t.actor, 'hex'), t.target, t.details)`,
  files: {
    'audit-log': {
      about:
        'What operators did about you, and what you did as an operator. ' +
        'It does not say who did it, or to whom you did it.',
      names: ['actor', 'target', 'details'],
      columns: `at, action, coalesce(actor = :pubkey, false) AS by_you, ${ABOUT_THEM} AS about_you,
        CASE WHEN ${ABOUT_THEM} THEN target END AS target,
        CASE WHEN ${ABOUT_THEM} THEN details END AS details`,
      where: '(actor = :pubkey OR target = :hex OR strpos(details::text, :hex) > 0)',
      order: 'position',
    },
  },
  erased: {
    store: 'audit_log',
    by: 'audit',
    traces: ['t.actor = :pubkey', 't.target = :hex'],
  },
});
