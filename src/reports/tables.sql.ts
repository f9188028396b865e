/** The table of reports, declared (I12). */
import { declareTable, hexOf, OF_PUBKEY } from '../postgres/table.js';

export const reportsTable = declareTable('reports', {
  row: 'A report by a member, over HTTP or by an event of kind 1984.',
  people: {
    pubkey: { index: 'reports_member' },
    target_pubkey: { index: 'reports_target_pubkey', where: 'target_pubkey IS NOT NULL' },
  },
  files: {
    reports: {
      about: 'What you reported.',
      names: ['pubkey', 'comment', 'event_id'],
      columns: `report_id, ${hexOf('target_event')}, ${hexOf('target_pubkey')}, reason, comment,
        ${hexOf('event_id')}, created_at`,
      where: OF_PUBKEY,
      order: 'created_at, report_id',
    },
  },
  inNoFile: {
    target_event: 'A report belongs to its reporter; the author of the event is in another table.',
    target_pubkey: 'A report belongs to its reporter, and only operators see it.',
  },
  erased: {
    store: 'reports',
    member: ['(t.pubkey = :pubkey OR t.target_pubkey = :pubkey) AND t.created_at <= :ms'],
  },
});
