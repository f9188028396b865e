/** The table of the node itself, declared (I12). */
import { declareTable } from '../postgres/table.js';

export const nodeStateTable = declareTable('node_state', {
  row: 'A value that is fixed for the whole node: network_id, tag_hash_seed and others.',
  inNoFile: {
    key: 'The name of the value, from a list in the program.',
    value: 'The value; it contains nothing about a person.',
  },
  erased: { never: 'It belongs to the node and contains nothing about a person.' },
});
