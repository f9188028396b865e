/** The tables of the history, declared (I12). They hold counts, and nothing about a person. */
import { declareTable } from '../postgres/table.js';

export const nodeSamplesTable = declareTable('node_samples', {
  row: 'What the whole node did in a minute or an hour: counts of events, connections, times, sizes.',
  erased: { never: 'It contains counts of the whole node, and nothing about a person or a community.' },
});

export const communitySizesTable = declareTable('community_sizes', {
  row: 'How many events and bytes a community kept at an hour.',
  erased: { store: 'counters' },
});
