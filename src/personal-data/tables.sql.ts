/** The tables of requests for personal data, declared (I12). */
import { ACCOUNT } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const personalDataFilesTable = declareTable('personal_data_files', {
  row: 'One portion of the file of an export.',
  inNoFile: {
    portion:
      'The files. They are deleted after privacy.exportHours, or earlier when the request is cancelled.',
  },
  erased: {
    store: 'personal_data_requests',
    member: [
      `EXISTS (SELECT 1 FROM personal_data_requests r JOIN members m USING (community, pubkey)
        WHERE r.request_id = t.request_id
        AND r.community = :community AND r.pubkey = :pubkey AND m.created_at <= :ms)`,
    ],
    through: `EXISTS (SELECT 1 FROM personal_data_requests r
      WHERE r.request_id = t.request_id AND r.community = :community)`,
  },
});

export const personalDataRequestsTable = declareTable('personal_data_requests', {
  row: "A member's request for a file of everything that is held about them, or for its deletion.",
  people: { pubkey: { index: 'personal_data_requests_member' } },
  files: {
    'personal-data-requests': {
      about: 'Your requests for a file like this one, or for deletion.',
      names: ['pubkey', 'note', 'request_key'],
      columns:
        'request_id, kind, status, note, error, bytes, request_key, tries, ' +
        'created_at, started_at, finished_at, expires_at',
      where: OF_PUBKEY,
      order: 'created_at, request_id',
    },
  },
  erased: { store: 'personal_data_requests', member: [ACCOUNT] },
});
