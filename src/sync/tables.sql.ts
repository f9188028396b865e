/** The tables of sync, declared (I12). They name peers and counts, and nothing about a person. */
import { declareTable } from '../postgres/table.js';

const ADDRESS = 'The websocket address of a relay that an operator named.';

export const syncRunsTable = declareTable('sync_runs', {
  row: 'The last sync with a peer of a community: when, how it ended, how many events.',
  inNoFile: {
    url: ADDRESS,
    outcome: 'How the sync ended, in words about the peer.',
    counts: 'How many events were received, stored and sent.',
  },
  erased: { store: 'counters' },
});

export const syncPositionsTable = declareTable('sync_positions', {
  row: 'Where a sync with a peer that does not know negentropy was interrupted.',
  inNoFile: { url: ADDRESS, filter: 'A hash of the filter that is synced.' },
  erased: { store: 'counters' },
});
