/** The tables of limits, declared (I12). Not used with Redis. */
import { declareTable } from '../postgres/table.js';

export const rateBucketsTable = declareTable('rate_buckets', {
  row: 'The recent request rate of a client or a key; lost in a crash.',
  inNoFile: {
    key:
      'The request rate of an address or a key: a number that is deleted after an hour. ' +
      'An erasure deletes it.',
  },
  erased: { store: 'rate_limits', by: 'rates' },
});

export const usedCredentialsTable = declareTable('used_credentials', {
  row: 'A signature or challenge that was used and must not be used again.',
  inNoFile: { key: 'Only the used signatures; deleted after minutes.' },
  erased: { never: 'Only used signatures and challenges; deleted after minutes.' },
});
