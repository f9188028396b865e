/** The tables of the keys of the node, declared (I12). */
import { declareTable } from '../postgres/table.js';

const IS_NODES = 'A key of the node itself, not of a person.';

export const nodeKeysTable = declareTable('node_keys', {
  row: 'The public half of a key that the node signs with in a community; the secret half is a file.',
  people: { pubkey: { unchecked: IS_NODES } },
  inNoFile: { pubkey: IS_NODES },
  erased: { store: 'node_keys' },
});

export const subjectKeyRequestsTable = declareTable('subject_key_requests', {
  row: 'The request of an instance for a key, and the answer, encrypted for that instance.',
  inNoFile: {
    asked_with: 'A public key that an instance made for one message; deleted within minutes.',
    wanted: 'The public half of a key of the node, not of a person.',
    sealed: 'A message that only that instance can decrypt; deleted within minutes.',
  },
  erased: { never: 'Requests of instances for keys of the node; deleted within minutes.' },
});
