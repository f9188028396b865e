/** The tables of the outbox and of its readers, declared (I12). */
import { IS_TOPIC } from '../erasure/conditions.sql.js';
import { isLabelOfErased } from '../labels/tables.sql.js';
import { declareTable, hexOf, OF_AUTHOR } from '../postgres/table.js';

const GOES_WITH_EVENT = `${IS_TOPIC} It belongs to the author of the event, and is deleted with that row.`;

export const eventsOutboxTable = declareTable('events_outbox', {
  row:
    'A change of what is served, in commit order: an upsert, a delete, or a row that an erasure has ' +
    'scrubbed.',
  people: { author: { index: 'events_outbox_author', where: 'ingested_at >= 0' } },
  files: {
    outbox: {
      about: 'Recent changes of your events, as the consumers of this node read them.',
      names: ['author', 'event_id', 'effective_key'],
      columns: `seq, op, reason, ${hexOf('event_id')}, kind, topics, effective_key, created_at, ingested_at`,
      where: OF_AUTHOR,
    },
  },
  inNoFile: { topics: GOES_WITH_EVENT, came_by: 'A gossip topic, or the word sync.' },
  erased: { store: 'events_outbox', by: 'outbox' },
});

export const consumerOffsetsTable = declareTable('consumer_offsets', {
  row: 'The offset of a consumer of the outbox, its live generation, and the instance that holds its lease.',
  erased: { never: 'It contains offsets of the whole node, and nothing about a person.' },
});

export const consumerRebuildsTable = declareTable('consumer_rebuilds', {
  row: 'A rebuild of a consumer, and its progress.',
  erased: { never: 'It contains offsets of the whole node, and nothing about a person.' },
});

export const consumerDeadLettersTable = declareTable('consumer_dead_letters', {
  row: 'A change that a consumer could not apply, with the error.',
  people: { author: { index: 'consumer_dead_letters_author' } },
  files: {
    'failed-changes': {
      about: 'Changes of your events that a consumer of this node could not apply, with the error.',
      names: ['event_id', 'author', 'effective_key'],
      columns: `consumer, seq, op, reason, ${hexOf('event_id')}, kind, topics, effective_key, error,
        failed_at`,
      where: OF_AUTHOR,
    },
  },
  inNoFile: { topics: GOES_WITH_EVENT },
  erased: {
    store: 'consumer_dead_letters',
    member: [
      `t.created_at <= :until AND (t.author = :pubkey
        OR t.author IN (SELECT k.pubkey FROM node_keys k WHERE k.community = :community)
        AND (strpos(t.effective_key, :hex) > 0 OR ${isLabelOfErased('t')}))`,
    ],
  },
});

export const outboxFollowersTable = declareTable('outbox_followers', {
  row: 'An external service that follows the outbox of a community, and what it has acknowledged.',
  people: { registered_by: 'small' },
  files: {
    followers: {
      about: 'Services that you registered, as an operator, as followers of the outbox.',
      names: ['registered_by', 'name'],
      columns: 'name, limit_seconds, registered_at',
      where: 'registered_by = :pubkey',
      order: 'name',
    },
  },
  erased: {
    store: 'followers',
    member: [
      {
        where: 't.registered_by = :pubkey AND t.registered_at <= :ms',
        release: 'registered_by = NULL',
      },
    ],
  },
});

export const outboxStreamsTable = declareTable('outbox_streams', {
  row: 'An open stream of the outbox, and the offset that it has sent.',
  erased: { store: 'followers', uncounted: true },
});
