/** What a store that holds nothing knows about a batch. */
import type { BatchFacts } from '../../src/core/plan.js';

export const NO_FACTS: BatchFacts = {
  lastSeq: 0,
  known: new Map(),
  heads: new Map(),
  targets: new Map(),
  tombstones: new Map(),
  vanished: new Map(),
  deletionsLeft: new Map(),
  purgesDeleted: new Set(),
};
