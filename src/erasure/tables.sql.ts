/** The tables of erasures themselves, declared (I12). */
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

const IS_KEYED = 'A keyed hash of an erased member; the key is not in the database.';

export const erasuresTable = declareTable('erasures', {
  row: 'An erasure of a member or a community: who requested it, its stage, what it counted.',
  people: {
    pubkey: { unchecked: 'An erasure that is running is no leftover; the public key is deleted at its end.' },
    subject: { unchecked: IS_KEYED },
  },
  files: {
    erasures: {
      about: 'That you are to be erased here: who asked for it, and its stage.',
      names: ['pubkey', 'subject'],
      columns: 'erasure_id, cause, stage, requested_at, grace_until, fenced_at, held_at, hold_reason',
      where: OF_PUBKEY,
      order: 'requested_at, erasure_id',
    },
  },
  erased: {
    store: 'erasures',
    community: `t.type = 'member' AND t.stage NOT IN ('completed', 'cancelled')`,
  },
});

export const erasureMarksTable = declareTable('erasure_marks', {
  row: 'Up to when events of an erased member are refused, by a keyed hash.',
  people: { subject: { unchecked: IS_KEYED } },
  inNoFile: { subject: `${IS_KEYED} It keeps erased events out.` },
  erased: {
    store: 'erasures',
    // The mark of the community itself stays: it refuses events from an instance that missed the erasure.
    community: `t.subject NOT IN (SELECT e.subject FROM erasures e
      WHERE e.community = :community AND e.type = 'community' AND e.subject IS NOT NULL)`,
  },
});

export const erasureAlarmsTable = declareTable('erasure_alarms', {
  row: 'Something of an erased member that the daily check has found again.',
  people: { subject: { unchecked: IS_KEYED } },
  inNoFile: { subject: `${IS_KEYED} It says that rows of theirs were found again.` },
  erased: { store: 'erasures' },
});

export const erasureCertificatesTable = declareTable('erasure_certificates', {
  row: 'A signed certificate of an erasure, with the id of the one before it.',
  inNoFile: {
    certificate_id: 'The id of a certificate that the node has signed, and that names nobody.',
    previous: 'The id of the certificate before it.',
  },
  erased: { never: 'Certificates stay. They name nobody.' },
});
