/** The tables of gossip, declared (I12). */
import { declareTable } from '../postgres/table.js';

export const p2pLeaseTable = declareTable('p2p_lease', {
  row: 'The instance that holds the gossip endpoint, and its offset in the outbox.',
  erased: { never: 'It contains an offset of the whole node, and nothing about a person.' },
});

export const p2pMachinesTable = declareTable('p2p_machines', {
  row: 'A machine of this database that takes part in gossip: its key, its addresses and its state.',
  inNoFile: {
    machine: 'The public half of a key of the machine, not of a person.',
    addresses: 'Addresses of machines of the node.',
    bases: 'Addresses of the node itself.',
    state: 'Counters, and public keys of machines of other nodes.',
  },
  erased: { never: 'It is about machines of nodes, and nothing about a person.' },
});
