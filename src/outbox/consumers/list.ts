/** All consumers of a node. */
import type { Communities } from '../../communities/communities.js';
import type { EventStore } from '../../events/store.js';
import type { NodeKeys } from '../../keys/keys.js';
import type { SubjectKey } from '../../keys/subject-key.js';
import { moderationConsumer } from '../../moderation/consumer.js';
import type { Log } from '../../node/log.js';
import type { Database } from '../../postgres/database.js';
import { searchConsumer } from '../../search/consumer.js';
import { trustConsumer } from '../../trust/consumer.js';
import type { Consumer } from './consumer.js';

export interface ConsumerContext {
  readonly communities: Communities;
  readonly database: Database;
  readonly store: EventStore;
  readonly keys: NodeKeys;
  /** Used to ignore erased members. */
  readonly subjectKey: SubjectKey;
  readonly log: Log;
  readonly now: () => number;
}

export function consumersOf(context: ConsumerContext): readonly Consumer[] {
  const pool = context.database.ownPool;
  return [searchConsumer(context), moderationConsumer({ ...context, pool }), trustConsumer(context)];
}
