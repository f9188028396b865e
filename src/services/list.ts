/** Every consumer of a node. */
import type { Communities } from '../communities.js';
import type { NodeKeys } from '../keys.js';
import type { Lane } from '../lane.js';
import type { Log } from '../log.js';
import type { Database } from '../postgres/database.js';
import type { SubjectKey } from '../subject-key.js';
import type { Consumer } from './consumer.js';
import { moderationConsumer } from './moderation.js';
import { searchConsumer } from './search.js';
import { trustConsumer } from './trust.js';

export interface ConsumerContext {
  readonly communities: Communities;
  readonly database: Database;
  readonly lane: Lane;
  readonly keys: NodeKeys;
  /** Of those who were erased nothing is noted again. */
  readonly subjectKey: SubjectKey;
  readonly log: Log;
  readonly now: () => number;
}

export function consumersOf(context: ConsumerContext): readonly Consumer[] {
  const pool = context.database.ownPool;
  return [searchConsumer(context), moderationConsumer({ ...context, pool }), trustConsumer(context)];
}
