/** The facts about a batch in an empty store. */
import type { BatchFacts } from '../../../src/events/rules/facts.js';

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
