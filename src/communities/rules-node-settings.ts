/**
 * Settings of the whole node, above those of its communities, so that one community cannot harm another. Only
 * operators of the node (MINATO_ADMIN_PUBKEYS, or the command line) change them.
 *
 * `node.<key>` is the ceiling of a community's setting `<key>`: the effective value is never above it. When 0
 * means "no limit" in a community, the ceiling is used instead.
 */
import { z } from 'zod';
import { ticketText, udpAddress } from '../p2p/rules-ticket.js';
import { checkValue, count, type Definition, define, valuesFrom } from './rules-setting.js';
import type { SettingKey, Settings } from './rules-settings.js';

const RATE_MAX = 1_000_000;
const MIB = 1_048_576;

/** Ten times the default of a community, except where a comment gives another reason. */
const ceilings = {
  'node.rate.eventsPerSecond': ceiling(count(1, RATE_MAX), 500, 'rate.eventsPerSecond'),
  'node.rate.eventsBurst': ceiling(count(1, RATE_MAX), 10_000, 'rate.eventsBurst'),
  'node.rate.queriesPerSecond': ceiling(count(1, RATE_MAX), 500, 'rate.queriesPerSecond'),
  'node.rate.queriesBurst': ceiling(count(1, RATE_MAX), 5_000, 'rate.queriesBurst'),
  'node.rate.connectionsPerSecond': ceiling(count(1, RATE_MAX), 100, 'rate.connectionsPerSecond'),
  'node.rate.connectionsBurst': ceiling(count(1, RATE_MAX), 2_000, 'rate.connectionsBurst'),
  'node.rate.httpPublicPerSecond': ceiling(count(1, RATE_MAX), 200, 'rate.httpPublicPerSecond'),
  'node.rate.httpPublicBurst': ceiling(count(1, RATE_MAX), 2_000, 'rate.httpPublicBurst'),
  'node.rate.httpMemberPerSecond': ceiling(count(1, RATE_MAX), 100, 'rate.httpMemberPerSecond'),
  'node.rate.httpMemberBurst': ceiling(count(1, RATE_MAX), 1_000, 'rate.httpMemberBurst'),
  'node.rate.httpAdminPerSecond': ceiling(count(1, RATE_MAX), 200, 'rate.httpAdminPerSecond'),
  'node.rate.httpAdminBurst': ceiling(count(1, RATE_MAX), 4_000, 'rate.httpAdminBurst'),
  'node.rate.deletionRequestsPerHour': ceiling(count(1, RATE_MAX), 20_000, 'rate.deletionRequestsPerHour'),
  'node.rate.subscriptionRequestsPerHour': ceiling(
    count(1, RATE_MAX),
    600,
    'rate.subscriptionRequestsPerHour',
  ),
  'node.rate.exemptLoopback': define(
    z.boolean(),
    true,
    'Whether communities may exempt clients on this machine from the rates (rate.exemptLoopback)',
  ),

  // All communities share the frame limit of the socket.
  'node.limits.messageBytesMax': ceiling(count(1_024, MIB), MIB, 'limits.messageBytesMax'),
  'node.limits.eventBytesMax': ceiling(count(512, MIB), 262_144, 'limits.eventBytesMax'),
  'node.limits.listBytesMax': ceiling(count(512, MIB), 524_288, 'limits.listBytesMax'),
  'node.limits.tagsMax': ceiling(count(1, 20_000), 10_000, 'limits.tagsMax'),
  'node.limits.tagBytesMax': ceiling(count(64, MIB), 524_288, 'limits.tagBytesMax'),
  'node.limits.connectionsPerAddressMax': ceiling(count(1, 10_000), 1_000, 'limits.connectionsPerAddressMax'),
  'node.limits.subscriptionsMax': ceiling(count(1, 10_000), 1_000, 'limits.subscriptionsMax'),
  'node.limits.subscriptionValuesMax': ceiling(count(1, 1_000_000), 100_000, 'limits.subscriptionValuesMax'),
  'node.limits.filtersMax': ceiling(count(1, 1_000), 200, 'limits.filtersMax'),
  'node.limits.filterValuesMax': ceiling(count(1, 10_000), 10_000, 'limits.filterValuesMax'),
  'node.limits.limitDefault': ceiling(count(1, 5_000), 5_000, 'limits.limitDefault'),
  'node.limits.limitMax': ceiling(count(1, 5_000), 5_000, 'limits.limitMax'),
  'node.limits.countMax': ceiling(count(1, 1_000_000), 100_000, 'limits.countMax'),
  'node.limits.negentropyRecordsMax': ceiling(
    count(1, 100_000_000),
    10_000_000,
    'limits.negentropyRecordsMax',
  ),

  'node.topic.enabledMax': ceiling(count(1, 100_000), 10_000, 'topic.enabledMax'),
  'node.subscription.pendingTotalMax': ceiling(count(1, 1_000_000), 100_000, 'subscription.pendingTotalMax'),
  'node.deletion.targetsPerDayMax': ceiling(count(1, 1_000_000), 100_000, 'deletion.targetsPerDayMax'),
  'node.privacy.exportBytesMax': ceiling(
    count(MIB, 1_099_511_627_776),
    5_368_709_120,
    'privacy.exportBytesMax',
  ),
  'node.privacy.exportsWaitingMax': ceiling(count(1, 1_000_000), 1_000, 'privacy.exportsWaitingMax'),

  'node.capacity.maxEvents': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Maximum of served events in one community, without deletion requests (capacity.maxEvents); ' +
      '0: no ceiling',
  ),
  'node.capacity.maxBytes': define(
    count(0, Number.MAX_SAFE_INTEGER),
    0,
    'Maximum bytes of served events in one community, without deletion requests (capacity.maxBytes); ' +
      '0: no ceiling',
  ),
} as const;

export const nodeSettingDefinitions = {
  ...ceilings,
  'node.communitySharePercent': define(
    count(1, 100),
    50,
    'Share of all values in open filters that one community may hold; a single community may hold all',
  ),
  'node.outboxStreamsMax': define(
    count(1, 1_000),
    16,
    'Open outbox streams of all communities together; the same number of streams of erasure progress',
  ),
  'node.outboxStreamsPerCommunityMax': define(
    count(1, 1_000),
    8,
    'The same for one community; a quarter of node.outboxStreamsMax is reserved for the default community',
  ),
  'node.memoryWindowMB': define(
    count(0, 1_048_576),
    256,
    'MiB of the newest events of all communities in the memory of each relay, with what finds them; 0: none',
  ),
  'node.syncPrivatePeers': define(
    z.boolean(),
    false,
    'Whether peers (sync.peers, tickets of gossip) may be on this machine or in a private network',
  ),
  'node.diskSharePercent': define(
    count(1, 100),
    50,
    'When several communities share a nearly full disk: posts are refused in a community that holds more ' +
      'than this share of all bytes',
  ),
  'node.diskFreeMinPercent': define(
    z.number().min(0).max(100),
    5,
    'With the embedded PostgreSQL: posts are refused while less of its disk is free, in percent; 0: never',
  ),
  'node.diskFreeMinBytes': define(
    count(0, Number.MAX_SAFE_INTEGER),
    536_870_912,
    'The same in bytes; the larger of the two applies; 0: only the percentage',
  ),

  'p2p.enabled': define(
    z.boolean(),
    false,
    'Exchange events of public topics with other nodes over iroh-gossip; opens a UDP port',
  ),
  'p2p.bind': define(
    z.union([z.ipv4(), z.ipv6()]),
    '0.0.0.0',
    'The IP address to which gossip binds; 127.0.0.1 for this machine only',
  ),
  'p2p.port': define(count(0, 65_535), 7_448, 'The UDP port of gossip; 0: any, another one at each start'),
  'p2p.announce': define(
    z.array(udpAddress).max(8),
    [] as string[],
    'Addresses such as "192.0.2.1:7448" that the ticket names in addition, for machines behind NAT',
  ),
  'p2p.peers': define(
    z.array(ticketText).max(100),
    [] as string[],
    'Tickets of other nodes: with these gossip begins, and from their relays gaps are filled',
  ),
  'p2p.discovery': define(
    z.boolean(),
    false,
    'Publish the addresses of this node with the discovery service of iroh, and look up others there',
  ),
  'p2p.topicsMax': define(count(1, 10_000), 200, 'Gossip topics of all communities that this node joins'),
  'p2p.messagesPerSecond': define(
    count(1, 100_000),
    200,
    'Gossip messages that are taken from one peer; ten times as many in a burst. A large event has several',
  ),
  'p2p.sendPerSecond': define(
    count(1, 100_000),
    500,
    'Gossip messages that this node sends; more wait in the outbox, because peers that lag lose messages',
  ),
  'p2p.invalidPerMinute': define(
    count(1, 100_000),
    30,
    'Malformed or forged messages of one peer; with more it is ignored for p2p.dropSeconds',
  ),
  'p2p.dropSeconds': define(count(1, 86_400), 300, 'How long a peer is ignored after too many of them'),
} as const;

export type NodeSettingKey = keyof typeof nodeSettingDefinitions;
export type NodeSettings = {
  readonly [K in NodeSettingKey]: (typeof nodeSettingDefinitions)[K] extends Definition<infer T> ? T : never;
};

export const nodeSettingKeys = Object.keys(nodeSettingDefinitions) as NodeSettingKey[];

export function isNodeSettingKey(key: string): key is NodeSettingKey {
  return Object.hasOwn(nodeSettingDefinitions, key);
}

export function checkNodeSetting(key: NodeSettingKey, value: unknown) {
  return checkValue(key, nodeSettingDefinitions[key], value);
}

export function nodeSettingsFrom(stored: ReadonlyMap<string, unknown>): NodeSettings {
  return Object.freeze(valuesFrom(nodeSettingDefinitions, stored)) as NodeSettings;
}

export const NODE_DEFAULTS = nodeSettingsFrom(new Map());

// ── Ceilings ───────────────────────────────────────────────────────────────────────────────────────────────

function ceiling(schema: z.ZodType<number>, value: number, key: string): Definition<number> {
  return define(schema, value, `The highest value that a community may set ${key} to`);
}

/** The community's settings that have a ceiling, each with the name of the ceiling. */
const CEILING_OF = new Map(
  Object.keys(ceilings).map((name) => [
    name.slice('node.'.length) as SettingKey,
    name as keyof typeof ceilings,
  ]),
);
/** For these settings, 0 in a community means no limit. */
const isUnlimitedAtZero = (key: SettingKey) => /^rate\..*Per(Second|Hour)$|^capacity\.max/.test(key);

export interface Ceiling {
  /** The node's setting. */
  readonly key: NodeSettingKey;
  readonly value: number | boolean;
}

/** The ceiling of a community's setting; undefined if it has none. */
export function ceilingOf(key: SettingKey, node: NodeSettings): Ceiling | undefined {
  const name = CEILING_OF.get(key);
  if (name === undefined) return undefined;
  const value = node[name];
  return value === 0 ? undefined : { key: name, value };
}

function exceeds(key: SettingKey, value: unknown, max: number | boolean): boolean {
  if (typeof max === 'boolean') return value === true && !max;
  return typeof value === 'number' && (value > max || (value === 0 && isUnlimitedAtZero(key)));
}

/** The effective value of one setting of a community. */
export function inForce(key: SettingKey, value: unknown, node: NodeSettings): unknown {
  const ceiling = ceilingOf(key, node);
  return ceiling !== undefined && exceeds(key, value, ceiling.value) ? ceiling.value : value;
}

/** The effective settings of a community: its own values, limited by the node's ceilings. */
export function underCeilings(settings: Settings, node: NodeSettings): Settings {
  const held = [...CEILING_OF.keys()].map((key) => [key, inForce(key, settings[key], node)]);
  return Object.freeze({ ...settings, ...Object.fromEntries(held) }) as Settings;
}

/** Why a community may not set this value, as a sentence for its operator. */
export function ceilingProblem(key: SettingKey, value: unknown, node: NodeSettings): string | undefined {
  const ceiling = ceilingOf(key, node);
  if (ceiling === undefined || !exceeds(key, value, ceiling.value)) return undefined;
  if (typeof ceiling.value === 'boolean')
    return `${key}: the node does not allow it (${ceiling.key} is false)`;
  const zero = value === 0 ? ', and 0 would mean no limit' : '';
  return (
    `${key}: the ceiling of the node is ${ceiling.value} (${ceiling.key})${zero}; ` +
    'an operator of the node may raise it'
  );
}
