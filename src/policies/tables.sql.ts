/** The tables of policies, declared (I12): their texts, and who agreed to which. */
import { ACCOUNT } from '../erasure/conditions.sql.js';
import { declareTable, hexOf, OF_PUBKEY } from '../postgres/table.js';

export const consentsTable = declareTable('consents', {
  row: 'The consent of a member to a text, with the hash of the text.',
  people: { pubkey: { index: 'consents_member' } },
  files: {
    consents: {
      about: 'Which texts you agreed to, and when, with the hash of each text.',
      names: ['pubkey'],
      columns: `consent_id, type, version, locale, ${hexOf('content_hash')}, consented_at, withdrawn_at`,
      where: OF_PUBKEY,
      order: 'consented_at, consent_id',
    },
  },
  inNoFile: { content_hash: 'The hash of a text of the community.' },
  erased: { store: 'consents', member: [ACCOUNT] },
});

export const policyTextsTable = declareTable('policy_texts', {
  row: 'The text of a version of a policy in one language.',
  inNoFile: { content_hash: 'The hash of a text of the community.' },
  erased: { store: 'policies' },
});

export const policyVersionsTable = declareTable('policy_versions', {
  row: 'A version of the terms or of the privacy policy: a draft, published, or the current one.',
  erased: { store: 'policies' },
});
