/** Newer events of a member that rows of the control plane are about, where the tables do not know them. */
import type { Client } from 'pg';
import { factKey } from '../../events/rules/facts.js';
import type { EventStore } from '../../events/store.js';
import { readTargets } from '../rows.sql.js';
import type { Subject } from '../rules.js';

interface Stores {
  readonly client: Client;
  readonly store: Pick<EventStore, 'held'>;
}

export async function stayingOf({ client, store }: Stores, subject: Subject): Promise<readonly string[]> {
  if (store.held === undefined || subject.type !== 'member' || subject.until === undefined) return [];
  const { community } = subject;
  const ids = await readTargets(client, subject);
  if (ids.length === 0) return [];
  const held = await store.held(ids.map((id) => ({ community, id })));
  return ids.filter((id) => held.has(factKey(community, id)));
}
