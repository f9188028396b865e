/**
 * A community's settings: one list that gives each key its schema, its default and its explanation.
 * They live in the database, are edited live, and what NIP-11 says is generated from the same values (never a copy).
 */
import { z } from 'zod';
import { KIND_MAX } from './event.js';
import { isStorable } from './text.js';

/** The frame limit that no setting can raise: it is given to the socket before any community is known. */
export const FRAME_BYTES_MAX = 1_048_576;

interface Definition<T> {
  readonly schema: z.ZodType<T>;
  readonly default: T;
  readonly about: string;
}
function define<T>(schema: z.ZodType<T>, defaultValue: T, about: string): Definition<T> {
  return { schema, default: defaultValue, about };
}

const text = (max: number) => z.string().max(max);
const count = (min: number, max: number) => z.number().int().min(min).max(max);
const YEAR_SECONDS = 31_536_000;
const kindEntry = z.union([
  z.number().int().min(0).max(KIND_MAX),
  z
    .string()
    .regex(/^\d{1,5}-\d{1,5}$/, 'a range of kinds looks like "10000-19999"')
    .refine((range) => {
      const [from, to] = range.split('-').map(Number) as [number, number];
      return from <= to && to <= KIND_MAX;
    }, `a range of kinds goes upwards, to ${KIND_MAX} at most`),
]);

export const settingDefinitions = {
  'relay.name': define(text(200), 'Minato', 'Name shown in NIP-11 and on the landing page'),
  'relay.description': define(text(4_000), 'A community node for Nostr.', 'Description shown there'),
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
    'required: events and filters name a topic (t, #t); default: what names none belongs to the global topic; open: a plain relay',
  ),
  'topic.namespace': define(
    z.string().regex(/^[a-z][a-z0-9-]{0,31}$/, 'lower-case letters, digits and -, beginning with a letter'),
    'kukuri',
    'What topic ids begin with; ids of another namespace are other topics',
  ),
  'topic.enabledMax': define(count(1, 100_000), 1_000, 'Most topics that are carried at the same time'),
  'topic.freeKinds': define(
    z.array(kindEntry).max(100),
    [0, 3, 5, 62, 1059, 1984, 1985, '10000-19999', 30382, 39006] as (number | string)[],
    'Kinds that need no topic, as numbers and ranges',
  ),
  'auth.mode': define(
    z.enum(['off', 'required']),
    'off',
    'required: clients authenticate (NIP-42), and topics that are not public need a subscription',
  ),
  'auth.enforceAt': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'From when auth.mode=required holds, in seconds since 1970; 0 means at once',
  ),
  'auth.graceSeconds': define(
    count(0, YEAR_SECONDS),
    60,
    'How long connections that were open before may go on without authenticating',
  ),
  'auth.timeoutSeconds': define(
    count(1, 86_400),
    30,
    'A connection that has not authenticated for so long, though it must, is closed',
  ),
  'auth.tokenSeconds': define(count(60, 86_400), 900, 'How long a token of the HTTP API is good for'),
  'auth.sessionHours': define(
    count(1, 720),
    12,
    'How long an operator who signed in with a browser stays signed in',
  ),
  'auth.privateKinds': define(
    z.array(kindEntry).max(100),
    [4, 1059, 21059] as (number | string)[],
    'Kinds served only to their author and those they name (p), once authenticated; in both modes',
  ),

  'events.missingD': define(
    z.enum(['auto', 'refuse', 'empty']),
    'auto',
    'An addressable event without d: refused, or taken as d="" (NIP-01); auto: refused where topic.mode is required',
  ),

  'membership.list': define(
    z.boolean(),
    false,
    'Publish who is a member, for everyone to read (NIP-43, kind 13534)',
  ),
  'membership.invitesBy': define(
    z.enum(['operators', 'members']),
    'operators',
    'Whose clients get an invite when they ask for one (NIP-43, kind 28935): operators, or members too',
  ),
  'membership.inviteDays': define(count(1, 365), 7, 'Days that an invite which a client asked for is good'),

  'subscription.pendingMax': define(count(1, 1_000), 5, 'Requests of one member that may wait for review'),
  'subscription.pendingTotalMax': define(
    count(1, 1_000_000),
    10_000,
    'Requests of all members together that may wait for review',
  ),
  'subscription.autoApproval': define(
    z.enum(['off', 'within-limits', 'allow-list', 'invite']),
    'off',
    'Who is approved without review: nobody, all within the limits, those of the allow-list, or holders of an invite',
  ),
  'subscription.allowList': define(
    z.array(z.string().regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters each')).max(10_000),
    [] as string[],
    'Public keys that subscription.autoApproval=allow-list approves',
  ),

  'retention.regularDays': define(
    count(0, 36_500),
    30,
    'Days that regular events are kept; 0 means for ever',
  ),
  'retention.historyDays': define(
    z.union(
      [count(0, 36_500), z.literal('forever')],
      'a number of days from 0 to 36500, or forever',
    ) as z.ZodType<number | 'forever'>,
    7 as number | 'forever',
    'Days that superseded versions are kept for the operator; 0 means not at all, forever means for ever',
  ),

  'retention.dedupeDays': define(
    count(1, 3_650),
    180,
    'Days that the id of an event is remembered after the event is gone',
  ),
  'retention.outboxDays': define(count(1, 3_650), 30, 'Days that the outbox reaches back for its readers'),

  'deletion.mode': define(
    z.enum(['soft', 'physical']),
    'soft',
    'soft: what its author deleted is hidden at once and purged after deletion.auditDays; physical: purged at once',
  ),
  'deletion.auditDays': define(
    count(0, 3_650),
    30,
    'Days that a deleted event stays in the database, hidden',
  ),
  'deletion.keepRequestsDays': define(
    z.union([z.literal('forever'), count(1, 36_500)], { error: 'days from 1 to 36500, or "forever"' }),
    'forever' as 'forever' | number,
    'Days that deletion requests and their tombstones are kept; with a number, what was deleted before can be uploaded again once its id is forgotten (retention.dedupeDays)',
  ),
  'deletion.targetsPerDayMax': define(
    count(1, 1_000_000),
    10_000,
    'Targets that one author may name in a day, whether they are deleted or not',
  ),

  'moderation.undoDays': define(
    count(1, 3_650),
    30,
    'Days that what a moderator removed can be restored; then it is purged',
  ),

  'privacy.exportHours': define(
    count(1, 720),
    24,
    'Hours that the file of a personal data export can be downloaded',
  ),
  'privacy.exportBytesMax': define(
    count(1_048_576, 1_099_511_627_776),
    5_368_709_120,
    'Largest file of a personal data export; beyond it the operator makes it by command',
  ),
  'privacy.exportsWaitingMax': define(
    count(1, 1_000_000),
    1_000,
    'Personal data exports of all members that may wait to be made',
  ),

  'erasure.memberGraceDays': define(
    count(0, 30),
    0,
    'Days between the request to erase a member and the erasure, in which it can be taken back',
  ),
  'erasure.communityGraceDays': define(
    count(0, 365),
    30,
    'Days between the request to erase this community and the erasure, in which it can be taken back',
  ),
  'erasure.auditLog': define(
    z.enum(['delete', 'anonymise', 'keep']),
    'anonymise',
    'What an erasure does to rows of the audit log that name the member',
  ),
  'erasure.auditKeepDays': define(
    count(1, 3_650),
    365,
    'With erasure.auditLog = keep: days that rows of the audit log are kept, for everyone; then they are deleted',
  ),

  'capacity.maxEvents': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Most served events; near it intake is narrowed, at it the oldest are purged; 0 means no limit',
  ),
  'capacity.maxBytes': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Most bytes of served events as JSON, with the same steps; 0 means no limit',
  ),
  'capacity.backfillSeconds': define(
    count(0, 100 * YEAR_SECONDS),
    86_400,
    'Events older than this are backfill, which stops first when space is short',
  ),
  'capacity.lagSecondsMax': define(
    count(0, 86_400),
    300,
    'When search or another reader of the outbox is so far behind, backfill stops, and at twice of it posts of low priority; 0: never',
  ),

  'search.kinds': define(
    z.array(kindEntry).max(100),
    [0, 1, 11, 1111, 30023] as (number | string)[],
    'Kinds whose text can be searched, as numbers and ranges; private kinds never are',
  ),
  'search.freshnessDays': define(
    count(1, 3_650),
    7,
    'After so many days the weight of freshness in a score has halved',
  ),
  'search.freshnessWeight': define(
    z.number().min(0).max(10),
    0.5,
    'How much a fresh post gains in a score; 0: age does not count',
  ),
  'search.popularityWeight': define(
    z.number().min(0).max(10),
    0.3,
    'How much replies, reposts and reactions raise a score; 0: they do not count',
  ),

  'trust.windowDays': define(count(1, 365), 30, 'Days that reports, labels and contacts count for a score'),
  'trust.reportsFull': define(
    count(1, 1_000),
    10,
    'How many established reporters and labels make the risk of a person full',
  ),
  'trust.densityFull': define(
    count(1, 1_000),
    20,
    'How many full ties with people of standing make the communication density of a person full',
  ),
  'trust.establishedMin': define(
    count(2, 100),
    5,
    'How many people of standing establish somebody; fewer of them move no score by more than a tenth',
  ),
  'trust.foundingDays': define(
    count(0, 3_650),
    30,
    'Keys first seen in these first days of the community are founders, whose ties count; 0: only approved members begin it',
  ),
  'trust.kindWeights': define(
    z
      .record(z.string().regex(/^\d{1,5}$/, 'a kind'), z.number().min(0.1).max(10))
      .refine((weights) => Object.keys(weights).length <= 20, 'at most 20 kinds'),
    { 1: 1, 6: 0.5, 7: 0.3 } as Record<string, number>,
    'Kinds whose p tags are contacts, each with the weight of one',
  ),
  'trust.reporters': define(
    z.enum(['established', 'approved']),
    'established',
    'Whose reports have weight: those who are established, or only those whom an operator has approved',
  ),
  'trust.assertionDays': define(
    count(1, 365),
    7,
    'Days after which an assertion of a score expires; it is renewed before',
  ),
  'trust.publish': define(z.boolean(), true, 'Publish scores as signed assertions (NIP-85)'),

  'limits.messageBytesMax': define(count(1_024, FRAME_BYTES_MAX), 786_432, 'Longest frame a client may send'),
  // A deletion request with 1,000 targets has 72,000 bytes, with a short relay hint for each 95,000.
  'limits.eventBytesMax': define(count(512, FRAME_BYTES_MAX), 98_304, 'Largest event, as JSON'),
  // A contact list of 5,000 with relays and names has about 500,000 bytes.
  'limits.listBytesMax': define(
    count(512, FRAME_BYTES_MAX),
    524_288,
    'Largest contact list (kind 3), list (10000-19999) or addressable event (30000-39999), as JSON',
  ),
  'limits.tagsMax': define(count(0, 20_000), 10_000, 'Most tags in one event'),
  'limits.tagBytesMax': define(
    count(64, FRAME_BYTES_MAX),
    524_288,
    'Most bytes in the tags of one event, as JSON',
  ),
  'limits.subscriptionsMax': define(count(1, 10_000), 200, 'Most open subscriptions on one connection'),
  'limits.subscriptionValuesMax': define(
    count(1, 1_000_000),
    50_000,
    'Most values in all filters of the open subscriptions of one connection',
  ),
  'limits.connectionsPerAddressMax': define(
    count(1, 10_000),
    100,
    'Most connections from one address; clients on this machine are exempt',
  ),
  'limits.filtersMax': define(count(1, 1_000), 100, 'Most filters in one REQ or COUNT'),
  'limits.filterValuesMax': define(count(1, 10_000), 5_000, 'Most values in one filter, all fields together'),
  'limits.limitDefault': define(count(1, 5_000), 500, 'Rows for a filter that has no limit'),
  'limits.limitMax': define(
    count(1, 5_000),
    5_000,
    'Most rows for one filter; a larger limit is lowered to it',
  ),
  'limits.subscriptionIdLengthMax': define(count(1, 256), 64, 'Longest subscription id'),
  'limits.countMax': define(count(1, 1_000_000), 10_000, 'COUNT is exact up to here, then says approximate'),
  'limits.createdAheadSecondsMax': define(
    count(0, 100 * YEAR_SECONDS),
    900,
    'How far ahead created_at may be',
  ),
  'limits.createdBehindSecondsMax': define(
    count(0, 100 * YEAR_SECONDS),
    0,
    'How far back created_at may be; 0 means no bound',
  ),
  'limits.powBitsMin': define(count(0, 256), 0, 'Leading zero bits that an id must have (NIP-13)'),

  'rate.eventsPerSecond': define(
    count(0, 1_000_000),
    50,
    'Events a second from one address, and by one author; 0 means no limit',
  ),
  'rate.eventsBurst': define(
    count(1, 1_000_000),
    1_000,
    'Events that may come at once before the rate holds',
  ),
  'rate.queriesPerSecond': define(
    count(0, 1_000_000),
    50,
    'REQ and COUNT a second from one address, and from one authenticated key; 0: no limit',
  ),
  'rate.queriesBurst': define(
    count(1, 1_000_000),
    500,
    'REQ and COUNT that may come at once before the rate holds',
  ),
  'rate.connectionsPerSecond': define(
    count(0, 1_000_000),
    10,
    'New connections a second from one address, and authentications of one key; 0: no limit',
  ),
  'rate.connectionsBurst': define(count(1, 1_000_000), 200, 'New connections that may come at once'),
  'rate.httpPublicPerSecond': define(
    count(0, 1_000_000),
    20,
    'API requests a second from one address that need no authentication; 0: no limit',
  ),
  'rate.httpPublicBurst': define(count(1, 1_000_000), 200, 'Such requests that may come at once'),
  'rate.httpMemberPerSecond': define(
    count(0, 1_000_000),
    10,
    'API requests of members a second, from one address and by one key; 0: no limit',
  ),
  'rate.httpMemberBurst': define(count(1, 1_000_000), 100, 'Such requests that may come at once'),
  'rate.httpAdminPerSecond': define(
    count(0, 1_000_000),
    20,
    'API requests of operators a second, from one address and by one key; 0: no limit',
  ),
  'rate.httpAdminBurst': define(count(1, 1_000_000), 400, 'Such requests that may come at once'),
  'rate.subscriptionRequestsPerHour': define(
    count(0, 1_000_000),
    60,
    'Requests for topics an hour, from one address and by one key; 0: no limit',
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
  const result = settingDefinitions[key].schema.safeParse(value);
  if (!isStorable(value)) return { problem: `${key}: a text holds neither NUL nor lone surrogates` };
  if (result.success) return { value: result.data };
  return { problem: `${key}: ${result.error.issues.map((issue) => issue.message).join('; ')}` };
}

/** The defaults, with the stored values over them. A stored value that no longer fits its schema is left out. */
export function settingsFrom(stored: ReadonlyMap<string, unknown>): Settings {
  const entries = settingKeys.map((key) => {
    const checked = stored.has(key) ? checkSetting(key, stored.get(key)) : undefined;
    return [key, checked && 'value' in checked ? checked.value : settingDefinitions[key].default];
  });
  return Object.freeze(Object.fromEntries(entries)) as Settings;
}
