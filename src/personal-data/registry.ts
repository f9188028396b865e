/** The files of a person's export, as the tables declare them (I12). */
import type { ClientBase } from 'pg';
import { TABLES } from '../erasure/all-tables.sql.js';
import { countPersonal, type Person, readPersonal } from './personal-data.sql.js';

export interface PersonalStore {
  /** Also the name of its file, without .jsonl. */
  readonly name: string;
  /** A description for the person. */
  readonly about: string;
  /** Call it within a transaction, for one store at a time. Reads in portions, so that memory stays flat. */
  rows(client: ClientBase, person: Person): AsyncIterable<object>;
  count(client: ClientBase, person: Person): Promise<number>;
}

/** The order for readers: what they wrote comes first. Files that are not listed here come last. */
export const READING_ORDER: readonly string[] = [
  ...['events', 'hidden-events', 'gift-wraps', 'event-ids', 'newest-versions'],
  ...[
    'deletions',
    'deletions-by-day',
    'deletions-under-way',
    'vanish',
    'outbox',
    'search-documents',
    'failed-changes',
  ],
  ...['member', 'topic-requests', 'reviews', 'topic-subscriptions', 'consents'],
  ...['usage', 'plan-changes', 'usage-requests', 'revoked-tokens', 'reports'],
  ...['trust-contacts', 'trust-reports', 'trust-scores', 'first-seen'],
  ...[
    'labels',
    'moderation',
    'appeals',
    'moderation-by-you',
    'moderation-rules',
    'moderation-batches',
    'moderation-rates',
  ],
  ...['invites', 'operators', 'followers', 'sessions', 'sign-in-links', 'blocks', 'settings', 'audit-log'],
  ...['erasures', 'personal-data-requests'],
];

const placeOf = ({ name }: PersonalStore) => {
  const place = READING_ORDER.indexOf(name);
  return place === -1 ? READING_ORDER.length : place;
};

/** In the order of the files. */
export const PERSONAL_STORES: readonly PersonalStore[] = TABLES.flatMap(({ name: table, files }) =>
  Object.entries(files).map(([name, file]): PersonalStore => {
    const declared = { ...file, table };
    return {
      name,
      about: file.about,
      rows: (client, person) => readPersonal(client, declared, person),
      count: (client, person) => countPersonal(client, declared, person),
    };
  }),
).sort((a, b) => placeOf(a) - placeOf(b));
