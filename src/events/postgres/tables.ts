/**
 * Declares the tables of events (I12): events, their tags, ids, versions and deletions, and the totals that
 * the lane updates.
 */
import { IS_PAST_DAY, IS_TOPIC, MINE } from '../../erasure/conditions.sql.js';
import { declareTable, hexOf, OF_AUTHOR, OF_PUBKEY } from '../../postgres/table.js';
import { KIND_VANISH } from '../rules/classify.js';
import { KIND_GIFT_WRAP } from '../rules/deletion.js';
import { HIDDEN_CODES, hiddenOf } from '../rules/hidden.js';
import { eventAt } from './places.js';

const EVENT_PORTION_ROWS = 32;

const eventOf = ({ payload }: Record<string, unknown>): object => JSON.parse(payload as string) as object;
const hiddenWord = (code: unknown) => (code === null ? null : hiddenOf(code as number));
const hiddenEventOf = (row: Record<string, unknown>): object => ({
  hidden: hiddenWord(row.hidden),
  hidden_at: row.hidden_at,
  event: eventOf(row),
});

const IS_WRAP = `e.community = :community AND e.kind = ${KIND_GIFT_WRAP} AND e.pubkey <> :pubkey
  AND strpos(e.payload, '["p","' || :hex || '"') > 0`;

const GOES_WITH_EVENT = `${IS_TOPIC} It belongs to the author of the event, and is deleted with that row.`;

export const eventsTable = declareTable('events', {
  row:
    'An event as it is served, or hidden and not purged yet; ' +
    'partitioned by how long it is kept, then by month.',
  people: {
    pubkey: [
      { index: 'events_author', where: 'hidden IS NULL' },
      { index: 'events_hidden_author', where: 'hidden IS NOT NULL' },
    ],
  },
  files: {
    events: {
      about: 'The events that you published and that are served here, one per line, as any relay takes them.',
      names: ['id', 'pubkey', 'payload'],
      columns: 'e.payload',
      from: `FROM events e WHERE e.community = :community AND e.pubkey = :pubkey AND e.hidden IS NULL
        ORDER BY e.created_at DESC`,
      shape: eventOf,
      portionRows: EVENT_PORTION_ROWS,
    },
    'hidden-events': {
      about:
        'Your events that are no longer served but not purged yet: deleted, superseded by a newer version, ' +
        'expired, or past their retention; with the reason and since when.',
      names: ['id', 'pubkey', 'payload'],
      columns: 'e.hidden, e.hidden_at, e.payload',
      from: 'FROM events e WHERE e.community = :community AND e.pubkey = :pubkey AND e.hidden IS NOT NULL',
      shape: hiddenEventOf,
      portionRows: EVENT_PORTION_ROWS,
    },
    'gift-wraps': {
      about: 'Sealed messages (kind 1059) that others addressed to you, served or hidden.',
      names: ['id', 'pubkey', 'payload'],
      columns: 'w.hidden, w.hidden_at, w.payload',
      from: `FROM (
          SELECT e.hidden, e.hidden_at, e.payload
          FROM (SELECT * FROM event_tags WHERE tag = :recipient OFFSET 0) g ${eventAt('g')}
          WHERE e.hidden IS NULL AND ${IS_WRAP}
          UNION ALL
          SELECT e.hidden, e.hidden_at, e.payload FROM events e WHERE e.hidden IS NOT NULL AND ${IS_WRAP}) w`,
      shape: hiddenEventOf,
      portionRows: EVENT_PORTION_ROWS,
    },
  },
  inNoFile: { bound: GOES_WITH_EVENT },
  erased: {
    store: 'events',
    by: 'events',
    // The request to vanish itself has a row here, and it stays.
    traces: [
      't.pubkey = :pubkey AND t.hidden IS NULL',
      `t.pubkey = :pubkey AND t.hidden IS NOT NULL AND t.kind <> ${KIND_VANISH}`,
    ],
  },
});

export const eventTagsTable = declareTable('event_tags', {
  row: 'One single-letter tag of an event that is served, by a hash of community, letter and value.',
  erased: { store: 'events', by: 'events' },
});

const ERASED_CODES = `${HIDDEN_CODES.vanished}, ${HIDDEN_CODES.erased}`;
const GONE = `t.hidden IN (${ERASED_CODES}) OR t.gone_at IS NOT NULL AND t.first_seen_at <= :ms`;

export const eventDedupeTable = declareTable('event_dedupe', {
  row: 'The id of an event that was accepted once, and the place of its row or why it was purged.',
  people: { author: { index: 'event_dedupe_author', where: 'first_seen_at >= 0' } },
  files: {
    'event-ids': {
      about:
        'The ids of the events that were ever accepted from you, when they were seen, and why an event is ' +
        'no longer served. They keep a deleted event from coming back.',
      names: ['event_id', 'author'],
      columns: `${hexOf('event_id')}, first_seen_at, last_seen_at, seen_count, hidden, gone_at`,
      where: OF_AUTHOR,
      shape: (row) => ({ ...row, hidden: hiddenWord(row.hidden) }),
    },
  },
  erased: {
    store: 'event_dedupe',
    member: [
      `t.author = :pubkey AND t.first_seen_at >= 0 AND (NOT :bounded OR ${GONE})`,
      // Gift wraps to these members and the node's own events about them, which others have signed. The rows
      // of any other member who is being erased may be deleted here as well.
      { where: `t.hidden IN (${ERASED_CODES})`, uncounted: true },
    ],
  },
});

export const eventHeadsTable = declareTable('event_heads', {
  row: 'The newest version that was seen of a replaceable event; it stays when that version is deleted.',
  people: { pubkey: { index: 'event_heads_pubkey', where: 'created_at >= 0' } },
  files: {
    'newest-versions': {
      about:
        'The newest version that was seen of each of your replaceable events. ' +
        'It keeps older versions from coming back.',
      names: ['pubkey', 'event_id', 'address_hash'],
      columns: `kind, created_at, ${hexOf('event_id')}, topics`,
      where: OF_PUBKEY,
    },
  },
  inNoFile: { topics: GOES_WITH_EVENT },
  erased: {
    store: 'event_heads',
    member: [`${MINE} AND t.created_at >= 0 AND t.created_at <= :until`],
  },
});

export const deletionTombstonesTable = declareTable('deletion_tombstones', {
  row: 'A target that its owner asked to delete, keyed by owner, also before the target arrived.',
  people: { author: { index: 'deletion_tombstones_author', where: 'requested_at >= 0' } },
  files: {
    deletions: {
      about:
        'What you asked to delete: the id of an event, or the SHA-256 of an address. ' +
        'It keeps the deleted event from coming back.',
      names: ['target', 'author', 'deletion_event'],
      columns: `${hexOf('target')}, is_address, requested_at, applied_at, ${hexOf('deletion_event')}`,
      where: OF_AUTHOR,
    },
  },
  erased: {
    store: 'deletion_tombstones',
    member: ['t.author = :pubkey AND t.requested_at >= 0 AND t.requested_at <= :until'],
  },
});

export const deletionQuotasTable = declareTable('deletion_quotas', {
  row: 'How many deletions an author asked for on a day.',
  people: { author: { index: 'deletion_quotas_pkey' } },
  files: {
    'deletions-by-day': {
      about: 'How many deletions you asked for on a day (days since 1970).',
      names: ['author'],
      columns: 'day, targets',
      where: OF_AUTHOR,
    },
  },
  erased: { store: 'deletion_tombstones', member: [`t.author = :pubkey AND ${IS_PAST_DAY}`] },
});

export const historyDeletionsTable = declareTable('history_deletions', {
  row: 'An address with older versions that are still to be deleted, and the position of that job.',
  people: { author: 'small' },
  files: {
    'deletions-under-way': {
      about: 'Addresses whose older versions are still being deleted.',
      names: ['author', 'address_hash'],
      columns: `kind, ${hexOf('address_hash')}, requested_at`,
      where: OF_AUTHOR,
    },
  },
  erased: { store: 'deletion_tombstones', member: ['t.author = :pubkey AND t.requested_at <= :until'] },
});

export const vanishMarksTable = declareTable('vanish_marks', {
  row:
    'A request to vanish (NIP-62), or a running erasure: ' +
    'up to when everything of a key is hidden and refused.',
  people: { pubkey: { index: 'vanish_marks_pkey' } },
  files: {
    vanish: {
      about: 'Your request to vanish: up to when everything of yours is erased and refused.',
      names: ['pubkey', 'request'],
      columns: `until, erased_at, ${hexOf('request')}`,
      where: OF_PUBKEY,
    },
  },
  erased: {
    store: 'vanish_marks',
    member: [`${MINE} AND t.request IS NOT NULL AND t.until <= :until AND NOT :vanishes`],
  },
});

export const liveBusTable = declareTable('live_bus', {
  row: 'An ephemeral event on its way between instances; deleted after minutes.',
  inNoFile: {
    event_id: 'Ephemeral events on their way between instances; deleted after five minutes.',
    payload: 'Ephemeral events on their way between instances; deleted after five minutes.',
    came_by: 'A gossip topic, or the word sync.',
  },
  erased: {
    store: 'live_bus',
    // In a string of JSON quotes are escaped, so this is the field. The few rows of five minutes are read.
    member: [`position('"pubkey":"' || :hex || '"' in t.payload) > 0 AND t.sent_at <= :ms`],
  },
});

export const communityTotalsTable = declareTable('community_totals', {
  row: 'How many events and bytes a community holds; the lane keeps it up to date.',
  erased: { store: 'counters' },
});

export const topicTotalsTable = declareTable('topic_totals', {
  row: 'How many served events and bytes a topic holds; the lane keeps it up to date.',
  inNoFile: { topic: `${IS_TOPIC} Only how much is held there; deleted with its last event.` },
  erased: { store: 'counters' },
});

export const capacityStepsTable = declareTable('capacity_steps', {
  row: 'That the space of a community or a topic is short, by how much and since when.',
  inNoFile: { topic: `${IS_TOPIC} Only that its space is short; deleted when it no longer is.` },
  erased: { store: 'counters' },
});

export const laneStateTable = declareTable('lane_state', {
  row:
    'One row: the last offset of the outbox and the first one that is kept, ' +
    'written under the lock of the lane.',
  erased: { never: 'It holds offsets of the whole node, and no personal data.' },
});
