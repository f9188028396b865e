/** The tables of blocks, declared (I12). */
import { MINE } from '../erasure/conditions.sql.js';
import { declareTable, OF_PUBKEY } from '../postgres/table.js';

export const blockedAuthorsTable = declareTable('blocked_authors', {
  row: 'A key whose events the operator refuses.',
  people: { pubkey: { index: 'blocked_authors_pkey' } },
  files: {
    blocks: {
      about: 'That the operator has blocked you, since when and why.',
      names: ['pubkey', 'reason'],
      columns: 'reason, created_at',
      where: OF_PUBKEY,
    },
  },
  erased: { store: 'blocked_authors', member: [`${MINE} AND t.created_at <= :ms`] },
});

export const blockedWordsTable = declareTable('blocked_words', {
  row: 'A word that the operator refuses in events.',
  erased: { store: 'blocks' },
});

export const blockedAddressesTable = declareTable('blocked_addresses', {
  row: 'A network whose clients the operator refuses.',
  inNoFile: { network: 'Networks that the operator blocks; nothing here links an address to a key.' },
  erased: { store: 'blocks' },
});
