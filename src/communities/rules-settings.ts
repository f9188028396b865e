/**
 * The settings of a community: one list with the schema, default and description of each key. Values are
 * stored in the database and edited live. NIP-11 is generated from the same values.
 */
import { z } from 'zod';
import { KIND_MAX } from '../events/rules/event.js';
import { peersSchema, type SyncPeer } from '../sync/rules-peers.js';
import { NODE_DEFAULTS, type NodeSettings, underCeilings } from './rules-node-settings.js';
import { checkValue, count, type Definition, define, valuesFrom } from './rules-setting.js';

/**
 * The hard limit of a frame. The socket gets it before the community is known, so no setting can raise it.
 */
export const FRAME_BYTES_MAX = 1_048_576;

const text = (max: number) => z.string().max(max);
const YEAR_SECONDS = 31_536_000;
const kindEntry = z.union([
  z.number().int().min(0).max(KIND_MAX),
  z
    .string()
    .regex(/^\d{1,5}-\d{1,5}$/, 'a range of kinds looks like "10000-19999"')
    .refine((range) => {
      const [from, to] = range.split('-').map(Number) as [number, number];
      return from <= to && to <= KIND_MAX;
    }, `a range of kinds must ascend, up to ${KIND_MAX} at most`),
]);

export const settingDefinitions = {
  'relay.name': define(text(200), 'Minato', 'Name shown in NIP-11 and on the landing page'),
  'relay.description': define(
    text(4_000),
    'A community node for Nostr.',
    'Description shown in NIP-11 and on the landing page',
  ),
  'relay.contact': define(text(400), '', 'How to reach the operator (mailto: or https:)'),
  'relay.pubkey': define(
    z.union([z.literal(''), z.string().regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters, or empty')]),
    '',
    "The operator's public key, hex",
  ),
  'relay.icon': define(text(2_000), '', 'URL of an icon'),
  'relay.banner': define(text(2_000), '', 'URL of a banner'),
  'relay.termsOfService': define(text(2_000), '', 'URL of the terms of service'),
  'relay.privacyPolicy': define(text(2_000), '', 'URL of the privacy policy'),
  'relay.urls': define(
    z.array(z.url({ protocol: /^wss?$/ })).max(20),
    [] as string[],
    'Public websocket addresses',
  ),

  'topic.mode': define(
    z.enum(['required', 'default', 'open']),
    'required',
    'required: events and filters must name a topic (t, #t); default: events without a topic belong to the ' +
      'global topic; open: a plain relay without topics',
  ),
  'topic.namespace': define(
    z.string().regex(/^[a-z][a-z0-9-]{0,31}$/, 'lower-case letters, digits and -, beginning with a letter'),
    'kukuri',
    'Prefix of topic ids; ids with another prefix are other topics',
  ),
  'topic.enabledMax': define(count(1, 100_000), 1_000, 'Maximum of topics that are carried at the same time'),
  'topic.freeKinds': define(
    z.array(kindEntry).max(100),
    [0, 3, 5, 62, 1059, 1984, 1985, '10000-19999', 30382, 39006] as (number | string)[],
    'Kinds that need no topic, as numbers and ranges',
  ),
  'auth.mode': define(
    z.enum(['off', 'required']),
    'off',
    'required: clients must authenticate (NIP-42), and private topics need a subscription',
  ),
  'auth.enforceAt': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'When auth.mode=required takes effect, in seconds since 1970; 0: at once',
  ),
  'auth.graceSeconds': define(
    count(0, YEAR_SECONDS),
    60,
    'How long connections that were already open may continue without authentication',
  ),
  'auth.timeoutSeconds': define(
    count(1, 86_400),
    30,
    'A connection that must authenticate is closed after this time without authentication',
  ),
  'auth.tokenSeconds': define(count(60, 86_400), 900, 'How long a token of the HTTP API is valid'),
  'auth.sessionHours': define(count(1, 720), 12, 'How long an operator stays signed in with a browser'),
  'auth.privateKinds': define(
    z.array(kindEntry).max(100),
    [4, 1059, 21059] as (number | string)[],
    'Kinds served only to their author and the keys in their p tags, after authentication; in both modes',
  ),

  'p2p.gossip': define(
    z.boolean(),
    true,
    'Exchange the public topics of this community with other nodes, if the node has p2p.enabled',
  ),

  'events.missingD': define(
    z.enum(['auto', 'refuse', 'empty']),
    'auto',
    'Addressable events without a d tag: reject them, or treat them as d="" (NIP-01); auto: reject if ' +
      'topic.mode is required',
  ),

  'membership.list': define(
    z.boolean(),
    false,
    'Publish the list of members, readable by everyone (NIP-43, kind 13534)',
  ),
  'membership.invitesBy': define(
    z.enum(['operators', 'members']),
    'operators',
    'Who can get an invite through a client (NIP-43, kind 28935): operators only, or members too',
  ),
  'membership.inviteDays': define(count(1, 365), 7, 'Days that an invite requested by a client is valid'),

  'subscription.pendingMax': define(count(1, 1_000), 5, 'Maximum of pending requests of one member'),
  'subscription.pendingTotalMax': define(
    count(1, 1_000_000),
    10_000,
    'Maximum of pending requests of all members together',
  ),
  'subscription.autoApproval': define(
    z.enum(['off', 'within-limits', 'allow-list', 'invite']),
    'off',
    'Which requests are approved without review: none, all within the limits, those of keys on the ' +
      'allow-list, or those with an invite',
  ),
  'subscription.allowList': define(
    z.array(z.string().regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters each')).max(10_000),
    [] as string[],
    'Public keys that subscription.autoApproval=allow-list approves',
  ),

  'retention.regularDays': define(count(0, 36_500), 30, 'Days that regular events are kept; 0: for ever'),
  'retention.historyDays': define(
    z.union(
      [count(0, 36_500), z.literal('forever')],
      'a number of days from 0 to 36500, or forever',
    ) as z.ZodType<number | 'forever'>,
    7 as number | 'forever',
    'Days that superseded versions are kept for the operator; 0: not at all; forever: without limit',
  ),

  'retention.dedupeDays': define(
    count(1, 3_650),
    180,
    'Days that the id of an event is remembered after the event was purged',
  ),
  'retention.outboxDays': define(
    count(1, 3_650),
    30,
    'Days that changes are kept in the outbox for its consumers',
  ),

  'deletion.mode': define(
    z.enum(['soft', 'physical']),
    'soft',
    'soft: an event deleted by its author is hidden at once and purged after deletion.auditDays; ' +
      'physical: purged at once',
  ),
  'deletion.auditDays': define(
    count(0, 3_650),
    30,
    'Days that a deleted event stays in the database, hidden from everyone',
  ),
  'deletion.keepRequestsDays': define(
    z.union([z.literal('forever'), count(1, 36_500)], { error: 'days from 1 to 36500, or "forever"' }),
    'forever' as 'forever' | number,
    'Days that deletion requests and their tombstones are kept; with a number, deleted events can be ' +
      'uploaded again once their ids are forgotten (retention.dedupeDays)',
  ),
  'deletion.targetsPerDayMax': define(
    count(1, 1_000_000),
    10_000,
    'Targets that the deletion requests of one author may name per day, existing or not; a request without ' +
      'one counts as one',
  ),

  'moderation.undoDays': define(
    count(1, 3_650),
    30,
    'Days that events removed by a moderator can be restored; then they are purged',
  ),

  'privacy.exportHours': define(
    count(1, 720),
    24,
    'Hours that the file of a personal data export can be downloaded',
  ),
  'privacy.exportBytesMax': define(
    count(1_048_576, 1_099_511_627_776),
    5_368_709_120,
    'Largest file of a personal data export; an operator can make a larger one with the command',
  ),
  'privacy.exportsWaitingMax': define(
    count(1, 1_000_000),
    1_000,
    'Maximum of pending personal data exports of all members together',
  ),

  'erasure.memberGraceDays': define(
    count(0, 30),
    0,
    'Days between the request to erase a member and the erasure; until then it can be cancelled',
  ),
  'erasure.communityGraceDays': define(
    count(0, 365),
    30,
    'Days between the request to erase this community and the erasure; until then it can be cancelled',
  ),
  'erasure.auditLog': define(
    z.enum(['delete', 'anonymise', 'keep']),
    'anonymise',
    'What an erasure does to rows of the audit log that name the member',
  ),
  'erasure.auditKeepDays': define(
    count(1, 3_650),
    365,
    'With erasure.auditLog=keep: days after which all rows of the audit log are deleted',
  ),

  'capacity.maxEvents': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Maximum of served events, without deletion requests; near it the node accepts less, at it the oldest ' +
      'are purged; 0: no limit',
  ),
  'capacity.maxBytes': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Maximum bytes of served events as JSON, without deletion requests, with the same steps; 0: no limit',
  ),
  'capacity.backfillSeconds': define(
    count(0, 100 * YEAR_SECONDS),
    86_400,
    'Events older than this count as backfill, which is refused first when space is short',
  ),
  'capacity.lagSecondsMax': define(
    count(0, 86_400),
    300,
    'When search or another consumer of the outbox is this far behind, backfill is refused; at twice ' +
      'this, posts of low priority too; 0: never',
  ),

  'search.kinds': define(
    z.array(kindEntry).max(100),
    [0, 1, 11, 1111, 30023] as (number | string)[],
    'Kinds with searchable text, as numbers and ranges; private kinds are never searchable',
  ),
  'search.freshnessDays': define(
    count(1, 3_650),
    7,
    'Days after which the freshness of a post counts half in its score',
  ),
  'search.freshnessWeight': define(
    z.number().min(0).max(10),
    0.5,
    'How much freshness raises the score of a post; 0: age does not count',
  ),
  'search.popularityWeight': define(
    z.number().min(0).max(10),
    0.3,
    'How much replies, reposts and reactions raise the score of a post; 0: they do not count',
  ),

  'trust.windowDays': define(
    count(1, 365),
    30,
    'Days that reports, labels and contacts count for a trust score',
  ),
  'trust.reportsFull': define(
    count(1, 1_000),
    10,
    'How many reports by established members and labels give a person the highest risk score',
  ),
  'trust.densityFull': define(
    count(1, 1_000),
    20,
    'How many full ties with established members give a person the highest communication density',
  ),
  'trust.establishedMin': define(
    count(2, 100),
    5,
    'How many established members must have ties with a person to establish that person; fewer ' +
      'established members together move no score by more than a tenth',
  ),
  'trust.foundingDays': define(
    count(0, 3_650),
    30,
    'Keys first seen in these first days of the community are founders, whose ties count; 0: no ' +
      'founders, only approved members start out established',
  ),
  'trust.kindWeights': define(
    z
      .record(z.string().regex(/^\d{1,5}$/, 'a kind'), z.number().min(0.1).max(10))
      .refine((weights) => Object.keys(weights).length <= 20, 'at most 20 kinds'),
    { 1: 1, 6: 0.5, 7: 0.3 } as Record<string, number>,
    'Kinds in which p tags count as contacts, each with the weight of one contact',
  ),
  'trust.reporters': define(
    z.enum(['established', 'approved']),
    'established',
    'Which reports have weight: those of established members, or only of members approved by an operator',
  ),
  'trust.assertionDays': define(
    count(1, 365),
    7,
    'Days after which a published score expires; the node renews it earlier',
  ),
  'trust.publish': define(z.boolean(), true, 'Publish scores as signed assertions (NIP-85)'),

  'sync.peers': define(
    peersSchema,
    [] as SyncPeer[],
    'Relays that a node exchanges events with on a schedule ("minato peers" edits them)',
  ),

  'limits.messageBytesMax': define(count(1_024, FRAME_BYTES_MAX), 786_432, 'Longest frame a client may send'),
  // A deletion request with 1,000 targets has 72,000 bytes, with a short relay hint for each 95,000.
  'limits.eventBytesMax': define(count(512, FRAME_BYTES_MAX), 98_304, 'Largest event, as JSON'),
  // A contact list of 5,000 with relays and names has about 500,000 bytes.
  'limits.listBytesMax': define(
    count(512, FRAME_BYTES_MAX),
    524_288,
    'Largest contact list (kind 3), list (10000-19999) or addressable event (30000-39999), as JSON',
  ),
  'limits.tagsMax': define(count(0, 20_000), 10_000, 'Maximum of tags in one event'),
  'limits.tagBytesMax': define(
    count(64, FRAME_BYTES_MAX),
    524_288,
    'Maximum bytes of the tags of one event, as JSON',
  ),
  'limits.subscriptionsMax': define(count(1, 10_000), 200, 'Maximum of open subscriptions on one connection'),
  'limits.subscriptionValuesMax': define(
    count(1, 1_000_000),
    100_000,
    'Maximum of values in all filters of the open subscriptions and waiting COUNTs of one connection',
  ),
  'limits.connectionsPerAddressMax': define(
    count(1, 10_000),
    100,
    'Maximum of connections from one address; clients on this machine are exempt',
  ),
  'limits.filtersMax': define(count(1, 1_000), 100, 'Maximum of filters in one REQ or COUNT'),
  'limits.filterValuesMax': define(
    count(1, 10_000),
    5_000,
    'Maximum of values in one filter, all fields together',
  ),
  'limits.limitDefault': define(count(1, 5_000), 500, 'Events returned for a filter without a limit'),
  'limits.limitMax': define(
    count(1, 5_000),
    5_000,
    'Maximum of events for one filter; a larger limit is lowered to it',
  ),
  'limits.subscriptionIdLengthMax': define(count(1, 256), 64, 'Longest subscription id'),
  'limits.countMax': define(
    count(1, 1_000_000),
    10_000,
    'COUNT is exact up to this number, above it approximate',
  ),
  'limits.negentropySessionsMax': define(
    count(0, 100),
    10,
    'Maximum of open negentropy sessions (NIP-77) on one connection; 0: negentropy is turned off',
  ),
  'limits.negentropyRecordsMax': define(
    count(1, 100_000_000),
    1_000_000,
    'Maximum of events in one negentropy session; a filter that matches more is refused',
  ),
  'limits.createdAheadSecondsMax': define(
    count(0, 100 * YEAR_SECONDS),
    900,
    'How far created_at may be in the future',
  ),
  'limits.createdBehindSecondsMax': define(
    count(0, 100 * YEAR_SECONDS),
    0,
    'How far created_at may be in the past; 0: no limit',
  ),
  'limits.powBitsMin': define(
    count(0, 256),
    0,
    'Leading zero bits that an event id must have (proof of work, NIP-13)',
  ),

  'rate.eventsPerSecond': define(
    count(0, 1_000_000),
    50,
    'Events a second from one address, and by one author; 0: no limit',
  ),
  'rate.eventsBurst': define(
    count(1, 1_000_000),
    1_000,
    'Events that may arrive at once before the rate applies',
  ),
  'rate.queriesPerSecond': define(
    count(0, 1_000_000),
    50,
    'REQ and COUNT a second from one address, and from one authenticated key; 0: no limit',
  ),
  'rate.queriesBurst': define(
    count(1, 1_000_000),
    500,
    'REQ and COUNT that may arrive at once before the rate applies',
  ),
  'rate.connectionsPerSecond': define(
    count(0, 1_000_000),
    10,
    'New connections a second from one address, and authentications of one key; 0: no limit',
  ),
  'rate.connectionsBurst': define(count(1, 1_000_000), 200, 'New connections that may arrive at once'),
  'rate.httpPublicPerSecond': define(
    count(0, 1_000_000),
    20,
    'API requests a second from one address that need no authentication; 0: no limit',
  ),
  'rate.httpPublicBurst': define(count(1, 1_000_000), 200, 'Requests of this kind that may arrive at once'),
  'rate.httpMemberPerSecond': define(
    count(0, 1_000_000),
    10,
    'API requests of members a second, from one address and by one key; 0: no limit',
  ),
  'rate.httpMemberBurst': define(count(1, 1_000_000), 100, 'Requests of this kind that may arrive at once'),
  'rate.httpAdminPerSecond': define(
    count(0, 1_000_000),
    20,
    'API requests of operators a second, from one address and by one key; 0: no limit',
  ),
  'rate.httpAdminBurst': define(count(1, 1_000_000), 400, 'Requests of this kind that may arrive at once'),
  'rate.subscriptionRequestsPerHour': define(
    count(0, 1_000_000),
    60,
    'Requests for topics an hour, from one address and by one key; 0: no limit',
  ),
  'rate.deletionRequestsPerHour': define(
    count(0, 1_000_000),
    2_000,
    'Requests to delete, and as many to vanish, an hour from one address, by their weight, whoever signs ' +
      'them; 0: no limit',
  ),
  'rate.exemptLoopback': define(z.boolean(), true, 'No rate limit for clients on this machine'),
} as const;

export type SettingKey = keyof typeof settingDefinitions;
export type Settings = {
  readonly [K in SettingKey]: (typeof settingDefinitions)[K] extends Definition<infer T> ? T : never;
};

export const settingKeys = Object.keys(settingDefinitions) as SettingKey[];

export function isSettingKey(key: string): key is SettingKey {
  return Object.hasOwn(settingDefinitions, key);
}

/** Checks one value. The problem is a sentence for the operator. */
export function checkSetting(key: SettingKey, value: unknown): { value: unknown } | { problem: string } {
  return checkValue(key, settingDefinitions[key], value);
}

/**
 * The effective settings of a community: the defaults, overwritten by the stored values, limited by the
 * ceilings of the node. A stored value that no longer fits its schema is ignored.
 */
export function settingsFrom(
  stored: ReadonlyMap<string, unknown>,
  node: NodeSettings = NODE_DEFAULTS,
): Settings {
  return underCeilings(settingsAsSet(stored), node);
}

/** The same without the ceilings: the values that its operators have set. */
export function settingsAsSet(stored: ReadonlyMap<string, unknown>): Settings {
  return Object.freeze(valuesFrom(settingDefinitions, stored)) as Settings;
}
