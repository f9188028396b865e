/** The table of labels, declared (I12). */
import { aboutTarget, IS_TOPIC, sinceCase } from '../erasure/conditions.sql.js';
import { declareTable, hexOf } from '../postgres/table.js';
import { KIND_LABEL_CLAIM } from './rules.js';

/**
 * Matches published labels whose label row does not exist any more. Their address contains the id of the
 * target, and only an erasure deletes labels.
 */
export const isLabelOfErased = (
  row: string,
) => `(${row}.kind = ${KIND_LABEL_CLAIM} AND NOT EXISTS (SELECT 1 FROM labels l
    WHERE l.community = ${row}.community
  AND (l.target_event = decode(split_part(${row}.effective_key, ':', 3), 'hex')
    OR l.target_event IS NULL
      AND l.target_pubkey = decode(split_part(${row}.effective_key, ':', 3), 'hex'))))`;

export const labelsTable = declareTable('labels', {
  row: 'A label of the node (NIP-32, kind 39006) on an event or a person, and the events that publish it.',
  people: { target_pubkey: { index: 'labels_person' } },
  files: {
    labels: {
      about:
        'Labels that this community has put on you or on events of yours, and the events that publish them.',
      names: ['target_event', 'target_pubkey', 'label_event', 'label_address_event'],
      columns: `label, confidence, policy, ${hexOf('target_event')}, created_at, lapses_at, withdrawn_at,
        topics,
        ${hexOf('label_event')}, ${hexOf('label_address_event')}`,
      where: 'target_pubkey = :pubkey',
      order: 'created_at, label_id',
    },
  },
  inNoFile: { topics: `${IS_TOPIC} It is deleted with the row of the label.` },
  erased: { store: 'labels', by: 'labels', member: [aboutTarget(sinceCase('t.created_at'))] },
});
