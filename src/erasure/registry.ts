/**
 * I12: the one list of places that hold something about a person. What is exported for them, and what is erased of them, is
 * what stands here. Every column that can name a person is in a store of this list or among the exemptions; a test compares
 * both with the real schema, so that a table which is not registered fails the build.
 */
import type { ClientBase } from 'pg';
import { countPersonal, type Person, type PersonalStoreName, readPersonal } from '../store/personal-data.js';

export interface PersonalStore {
  /** Also the name of its file, without .jsonl. */
  readonly name: PersonalStoreName;
  /** What it is, for the person. */
  readonly about: string;
  readonly tables: readonly string[];
  /** Those that name the person, as table.column. */
  readonly columns: readonly string[];
  /** Within a transaction, one store at a time; in portions, so that memory does not grow with the rows. */
  rows(client: ClientBase, person: Person): AsyncIterable<object>;
  count(client: ClientBase, person: Person): Promise<number>;
}

interface Entry {
  readonly about: string;
  readonly columns: readonly [string, ...string[]];
  /** Tables of the store that name nobody themselves. */
  readonly also?: readonly string[];
}

const OF_EVENTS = ['events.id', 'events.pubkey', 'events.payload'] as const;

const ENTRIES: Record<PersonalStoreName, Entry> = {
  events: {
    about: 'The events that you published and that are served here, one per line, as any relay takes them.',
    columns: OF_EVENTS,
    also: ['event_tags'],
  },
  'hidden-events': {
    about:
      'Events of yours that are no longer served but not purged yet: deleted, superseded by a newer version, expired, past their time; with the reason and since when.',
    columns: OF_EVENTS,
  },
  'gift-wraps': {
    about: 'Sealed messages (kind 1059) that others addressed to you, served or hidden.',
    columns: OF_EVENTS,
    also: ['event_tags'],
  },
  'event-ids': {
    about:
      'The ids of the events that were ever accepted from you, when they were seen, and why an event is no longer served. They keep a deleted event from coming back.',
    columns: ['event_dedupe.event_id', 'event_dedupe.author'],
  },
  'newest-versions': {
    about:
      'The newest version that was seen of each of your replaceable events, so that no older one comes back.',
    columns: ['event_heads.pubkey', 'event_heads.event_id', 'event_heads.address_hash'],
  },
  deletions: {
    about:
      'What you asked to delete: the id of an event, or the SHA-256 of an address. It keeps the deleted from coming back.',
    columns: [
      'deletion_tombstones.target',
      'deletion_tombstones.author',
      'deletion_tombstones.deletion_event',
    ],
  },
  'deletions-by-day': {
    about: 'How many deletions you asked for on a day (days since 1970).',
    columns: ['deletion_quotas.author'],
  },
  'deletions-under-way': {
    about: 'Addresses whose older versions are still being deleted.',
    columns: ['history_deletions.author', 'history_deletions.address_hash'],
  },
  vanish: {
    about: 'Your request to vanish: up to when everything of yours is erased and refused.',
    columns: ['vanish_marks.pubkey', 'vanish_marks.request'],
  },
  outbox: {
    about: 'What changed about your events lately, as the parts of this node that follow the events read it.',
    columns: ['events_outbox.author', 'events_outbox.event_id', 'events_outbox.effective_key'],
  },
  'search-documents': {
    about: 'The words by which your posts are found.',
    columns: ['post_search_documents.event_id', 'post_search_documents.author'],
  },
  'failed-changes': {
    about: 'Changes about your events that a part of this node could not take in, with the error.',
    columns: [
      'consumer_dead_letters.event_id',
      'consumer_dead_letters.author',
      'consumer_dead_letters.effective_key',
    ],
  },
  member: {
    about: 'Your membership: its status, your name here, its plan, and what the operator noted about you.',
    columns: ['members.pubkey', 'members.note', 'members.name'],
  },
  'topic-requests': {
    about: 'The topics that you asked for, and what became of each request.',
    columns: ['topic_subscription_requests.pubkey', 'topic_subscription_requests.review_note'],
  },
  reviews: {
    about: 'Requests of members that you decided as an operator: when and how, not whose.',
    columns: ['topic_subscription_requests.reviewed_by'],
  },
  'topic-subscriptions': {
    about: 'Your subscriptions to topics, from their start to their end.',
    columns: ['topic_subscriptions.pubkey'],
  },
  consents: {
    about: 'Which texts you agreed to, and when; the hash is of the very words.',
    columns: ['consents.pubkey'],
  },
  usage: {
    about: 'What you used of your plan, by day (days since 1970).',
    columns: ['usage_counters.pubkey'],
  },
  'plan-changes': {
    about: 'Changes of your plan that a payment provider has told this node of.',
    columns: ['plan_events.pubkey', 'plan_events.event_id'],
  },
  'usage-requests': {
    about: 'Requests of yours that were counted, so that one sent twice counts once.',
    columns: ['usage_requests.pubkey'],
  },
  'revoked-tokens': { about: 'Tokens of yours that were revoked.', columns: ['revoked_tokens.pubkey'] },
  reports: {
    about: 'What you reported.',
    columns: ['reports.pubkey', 'reports.comment', 'reports.event_id'],
  },
  'trust-contacts': {
    about:
      'Public events by which you named others, or others you, as they count for your communication density; whether the event is gone.',
    columns: ['trust_contacts.author', 'trust_contacts.named', 'trust_contacts.event_id'],
  },
  'trust-reports': {
    about: 'What you reported, with the weight that your report had when it came.',
    columns: ['trust_reports.reporter', 'trust_reports.source', 'trust_reports.target_event'],
  },
  'trust-scores': {
    about: 'Your scores of trust, and what was last asserted of them. Who reported you is not told.',
    columns: ['trust_scores.subject', 'trust_scores.assertion'],
    also: ['trust_due'],
  },
  'first-seen': {
    about: 'When you were first seen here.',
    columns: ['trust_authors.pubkey'],
  },
  labels: {
    about: 'Labels that this community has put on you or on events of yours, and the events that tell them.',
    columns: [
      'labels.target_event',
      'labels.target_pubkey',
      'labels.label_event',
      'labels.label_address_event',
    ],
  },
  moderation: {
    about:
      'What rules and moderators did about you or events of yours, and their notes; not who, and not who reported.',
    columns: [
      'moderation_actions.target_event',
      'moderation_actions.target_pubkey',
      'moderation_actions.note',
    ],
  },
  appeals: {
    about: 'Your appeals against what was done.',
    columns: ['moderation_cases.appeal'],
  },
  'moderation-by-you': {
    about: 'What you did as a moderator: when and what, not to whom.',
    columns: ['moderation_actions.actor'],
  },
  'moderation-rules': {
    about: 'Rules of moderation that name you.',
    columns: ['moderation_rules.conditions'],
  },
  'moderation-batches': {
    about: 'What moderators did to many events at once that names you, and what you started: when and what.',
    columns: ['moderation_batches.conditions', 'moderation_batches.actor', 'moderation_batches.undone_by'],
  },
  'moderation-rates': {
    about: 'Events of yours that rules with a rate count; forgotten after two days.',
    columns: ['moderation_rates.pubkey', 'moderation_rates.event_id'],
  },
  invites: {
    about: 'Invites that you made or used. Who made or used the other end is not told.',
    columns: ['invites.created_by', 'invites.used_by'],
  },
  operators: {
    about: 'That you are an operator here, and that you added operators.',
    columns: ['operators.pubkey', 'operators.added_by'],
  },
  followers: {
    about: 'Services that you registered, as an operator, as followers of the outbox.',
    columns: ['outbox_followers.registered_by', 'outbox_followers.name'],
  },
  sessions: {
    about: 'When you signed in with a browser as an operator, and until when that holds.',
    columns: [
      'operator_sessions.pubkey',
      'operator_sessions.token_hash',
      'csrf_tokens.pubkey',
      'csrf_tokens.token_hash',
      'csrf_tokens.csrf_hash',
    ],
  },
  blocks: {
    about: 'That the operator has blocked you, since when and why.',
    columns: ['blocked_authors.pubkey', 'blocked_authors.reason'],
  },
  settings: {
    about: 'Settings of the community that name you, such as the list of those who need no review.',
    columns: ['community_settings.value'],
  },
  'audit-log': {
    about:
      'What operators did about you, and what you did as an operator. To whom you did it, and who did it to you, is not told.',
    columns: ['audit_log.actor', 'audit_log.target', 'audit_log.details'],
  },
  erasures: {
    about: 'That you are to be erased here: who asked for it, and how far it has come.',
    columns: ['erasures.pubkey', 'erasures.subject'],
  },
  'personal-data-requests': {
    about: 'Your requests for a file like this one, or for deletion.',
    columns: [
      'personal_data_requests.pubkey',
      'personal_data_requests.note',
      'personal_data_requests.request_key',
    ],
    also: ['personal_data_files'],
  },
};

const tableOf = (column: string) => column.slice(0, column.indexOf('.'));

/** In the order of the files. */
export const PERSONAL_STORES: readonly PersonalStore[] = (Object.keys(ENTRIES) as PersonalStoreName[]).map(
  (name) => {
    const { about, columns, also = [] } = ENTRIES[name];
    return {
      name,
      about,
      tables: [...new Set([...columns.map(tableOf), ...also])],
      columns,
      rows: (client, person) => readPersonal(client, name, person),
      count: (client, person) => countPersonal(client, name, person),
    };
  },
);

/** `<namespace>:user:<pubkey>` is a topic about a person. */
const IS_TOPIC =
  'The id of a topic, made of public words; one about a person is a place where others talk, and an erasure takes it along.';

const IS_KEYED = 'A keyed hash of one who was erased; the key is no part of the database.';

/** Columns that look as if they named a person, and why what they hold is in no file and needs no erasure. */
export const EXEMPT_COLUMNS: Readonly<Record<string, string>> = {
  'erasure_marks.subject': `${IS_KEYED} It keeps out what was erased.`,
  'erasure_alarms.subject': `${IS_KEYED} It tells that something of theirs was found again.`,
  'erasure_certificates.certificate_id':
    'The id of a certificate that the node has signed, and that names nobody.',
  'erasure_certificates.previous': 'The id of the certificate before it.',
  'subject_key_requests.asked_with':
    'A public key that an instance made for one message; gone within minutes.',
  'subject_key_requests.wanted': 'The public half of a key of the node, which stands for no person.',
  'subject_key_requests.sealed':
    'A message to that instance, which nobody else can open; gone within minutes.',
  'live_bus.event_id': 'Ephemeral events on their way between instances; gone after five minutes.',
  'live_bus.payload': 'Ephemeral events on their way between instances; gone after five minutes.',
  'rate_buckets.key':
    'How fast an address or a key asked: a number that is forgotten after an hour and lost in a crash. An erasure takes it along.',
  'used_credentials.key': 'Signatures that were used, by themselves; forgotten after minutes.',
  'reports.target_event': 'What others said about an event is theirs; whose event it is stands elsewhere.',
  'reports.target_pubkey': 'What others said about a person is theirs, and told to nobody but the operators.',
  'trust_reports.subject':
    'What others said about a person is theirs, and told to nobody; the score tells the sum.',
  'trust_scores.asserted_by': "The node's own key, which signed the assertion.",
  'trust_due.subject': 'That a score is to be computed again; gone within seconds.',
  'trust_sweeps.after': 'How far the scores of a community have been gone through; gone when it is done.',
  'trust_sweeps.passed': 'How far the daily pass over the scores has come; gone when it is done.',
  'moderation_cases.target_event':
    'That somebody reported an event is told to the operators only; what was done about it is told to its author.',
  'moderation_cases.target_pubkey':
    'That somebody reported a person is told to the operators only; what was done about it is told to that person.',
  'node_keys.pubkey': 'A key of the node itself, which stands for no person.',
  'blocked_addresses.network': 'Networks that the operator blocks; nothing here links an address to a key.',
  'invites.code_hash': 'The hash of a random code.',
  'consents.content_hash': 'The hash of a text of the community.',
  'policy_texts.content_hash': 'The hash of a text of the community.',
  'personal_data_files.portion':
    'The files themselves; they go when privacy.exportHours are over, or before when the request is cancelled.',
  'node_subscriptions.topic': `${IS_TOPIC} The operator carries it, or members asked for it.`,
  'blocked_topics.topic': `${IS_TOPIC} The operator keeps it out.`,
  'topic_totals.topic': `${IS_TOPIC} Only how much is held there; gone with its last event.`,
  'capacity_steps.topic': `${IS_TOPIC} Only that its space is short; gone when it no longer is.`,
  'topic_subscription_requests.topic': `${IS_TOPIC} It belongs to the member who asked, and goes with that row.`,
  'topic_subscriptions.topic': `${IS_TOPIC} It belongs to the member who subscribes, and goes with that row.`,
  'invites.topic': `${IS_TOPIC} It belongs to the invite, and goes with that row.`,
  'events.bound': `${IS_TOPIC} It belongs to the author of the event, and goes with that row.`,
  'event_heads.topics': `${IS_TOPIC} It belongs to the author of the event, and goes with that row.`,
  'moderation_batches.cursor_id': 'How far a batch has come, by the id of an event.',
  'moderation_batches.note': 'Why, in the words of a moderator; it goes with its row.',
  'moderation_cases.topics': `${IS_TOPIC} It belongs to the case, and goes with that row.`,
  'labels.topics': `${IS_TOPIC} It belongs to the label, and goes with that row.`,
  'consumer_dead_letters.topics': `${IS_TOPIC} It belongs to the author of the event, and goes with that row.`,
  'post_search_documents.topics': 'Hashes of the topics of an event; they are in its row, and go with it.',
  'events_outbox.topics': `${IS_TOPIC} It belongs to the author of the event, and goes with that row.`,
};
