import { describe, expect, it } from 'vitest';
import {
  checkSetting,
  isSettingKey,
  type SettingKey,
  settingDefinitions,
  settingKeys,
  settingsFrom,
} from './rules-settings.js';

const defaults = settingsFrom(new Map());

describe('settings', () => {
  it.each(settingKeys)('the default of %s passes its own schema unchanged and has a description', (key) => {
    expect(checkSetting(key, settingDefinitions[key].default)).toEqual({
      value: settingDefinitions[key].default,
    });
    expect(settingDefinitions[key].about.length).toBeGreaterThan(5);
    expect(defaults[key]).toEqual(settingDefinitions[key].default);
  });

  it('the defaults are consistent with each other', () => {
    expect(defaults['limits.eventBytesMax']).toBeLessThanOrEqual(defaults['limits.listBytesMax']);
    expect(defaults['limits.listBytesMax']).toBeLessThan(defaults['limits.messageBytesMax']);
    expect(defaults['limits.tagBytesMax']).toBeLessThanOrEqual(defaults['limits.listBytesMax']);
    expect(defaults['limits.filterValuesMax']).toBeLessThanOrEqual(defaults['limits.subscriptionValuesMax']);
    expect(defaults['limits.limitDefault']).toBeLessThanOrEqual(defaults['limits.limitMax']);
  });

  it('are safe by default: topics are required and every limit is on', () => {
    expect(defaults['topic.mode']).toBe('required');
    expect(defaults['rate.eventsPerSecond']).toBeGreaterThan(0);
    expect(defaults['rate.queriesPerSecond']).toBeGreaterThan(0);
  });
});

/** Invalid values for each key. */
const BAD: Record<SettingKey, unknown[]> = {
  'relay.name': [1, null, 'x'.repeat(201), 'a\u0000b', '\ud800'],
  'relay.description': [1, 'x'.repeat(4_001)],
  'relay.contact': [[], 'x'.repeat(401)],
  'relay.pubkey': ['A'.repeat(64), 'a'.repeat(63), 'npub1x', null],
  'relay.icon': [1, 'x'.repeat(2_001)],
  'relay.banner': [1, 'x'.repeat(2_001)],
  'relay.termsOfService': [1, 'x'.repeat(2_001)],
  'relay.privacyPolicy': [1, 'x'.repeat(2_001)],
  'relay.urls': ['wss://a.example', ['https://a.example'], ['not a url'], Array(21).fill('wss://a.example')],
  'topic.mode': ['closed', '', true],
  'topic.freeKinds': [1, [-1], [65_536], [1.5], ['a'], ['1-'], ['1-2-3'], ['123456-1'], Array(101).fill(1)],
  'topic.namespace': ['', 'Kukuri', 'a:b', '1a', 'x'.repeat(33)],
  'topic.enabledMax': [0, 100_001],
  'auth.mode': ['on', false],
  'auth.enforceAt': [-1, 'now'],
  'auth.graceSeconds': [-1, 31_536_001],
  'auth.timeoutSeconds': [0, 86_401],
  'auth.tokenSeconds': [59, 86_401, 900.5],
  'auth.sessionHours': [0, 721, 1.5],
  'auth.privateKinds': [4, [-1], ['5-4'], Array(101).fill(4)],
  'p2p.gossip': ['true', 1],
  'events.missingD': ['', 'allow', true],
  'membership.list': ['on', 1],
  'membership.invitesBy': ['everyone', true],
  'membership.inviteDays': [0, 366, 1.5],
  'subscription.pendingMax': [0, 1_001],
  'subscription.pendingTotalMax': [0, 1_000_001],
  'subscription.autoApproval': ['on', true],
  'subscription.allowList': ['a', ['npub1x'], ['A'.repeat(64)]],
  'retention.regularDays': [-1, 36_501, 1.5],
  'retention.historyDays': [-1, 36_501, null],
  'retention.outboxDays': [-1, 36_501, '30'],
  'retention.dedupeDays': [-1, 36_501],
  'deletion.mode': ['hard', '', true],
  'deletion.auditDays': [-1, 3_651, 0.5],
  'deletion.keepRequestsDays': [0, -1, 1.5, 36_501, '30', 'ever', null],
  'deletion.targetsPerDayMax': [0, 1_000_001, '5'],
  'erasure.memberGraceDays': [-1, 31, 0.5],
  'erasure.communityGraceDays': [-1, 366, '30'],
  'erasure.auditLog': ['forget', true],
  'erasure.auditKeepDays': [0, 3_651, null],
  'privacy.exportHours': [0, 721, 1.5],
  'privacy.exportBytesMax': [1_048_575, 1_099_511_627_777, '5'],
  'privacy.exportsWaitingMax': [0, 1_000_001, 1.5],
  'capacity.maxEvents': [-1, 1.5, 2 ** 53],
  'capacity.maxBytes': [-1, '1'],
  'capacity.backfillSeconds': [-1, 1e12],
  'moderation.undoDays': [0, 3_651, '30'],
  'capacity.lagSecondsMax': [-1, 86_401],
  'search.kinds': ['1', [-1], [65_536], ['1-'], [[1]]],
  'search.freshnessDays': [0, 3_651, 1.5],
  'search.freshnessWeight': [-0.1, 10.1, '1'],
  'search.popularityWeight': [-0.1, 10.1, null],
  'trust.windowDays': [0, 366, 1.5],
  'trust.reportsFull': [0, 1_001, '10'],
  'trust.densityFull': [0, 1_001, 0.5],
  'trust.establishedMin': [1, 101, 2.5],
  'trust.foundingDays': [-1, 3_651, 'month'],
  'trust.kindWeights': [[1], { one: 1 }, { 1: 0 }, { 1: 11 }, { 123456: 1 }, { 1: '1' }],
  'trust.reporters': ['all', true],
  'trust.assertionDays': [0, 366],
  'trust.publish': ['true', 1],
  'sync.peers': [
    ['wss://a.example/'],
    [{ url: 'https://a.example/', direction: 'down', everyMinutes: 15, topics: [] }],
    [{ url: 'wss://a.example', direction: 'down', everyMinutes: 15, topics: [] }],
    [{ url: 'wss://user:secret@a.example/', direction: 'down', everyMinutes: 15, topics: [] }],
    [{ url: 'wss://a.example/', direction: 'sideways', everyMinutes: 15, topics: [] }],
    [{ url: 'wss://a.example/', direction: 'down', everyMinutes: 0, topics: [] }],
    Array(2).fill({ url: 'wss://a.example/', direction: 'down', everyMinutes: 15, topics: [] }),
  ],
  'limits.messageBytesMax': [1_023, 1_048_577, 2_000.5, '2000'],
  'limits.eventBytesMax': [511, 1_048_577],
  'limits.listBytesMax': [511, 1_048_577],
  'limits.tagsMax': [-1, 20_001],
  'limits.tagBytesMax': [63, 1_048_577],
  'limits.subscriptionsMax': [0, 10_001],
  'limits.subscriptionValuesMax': [0, 1_000_001],
  'limits.connectionsPerAddressMax': [0, 10_001],
  'limits.filtersMax': [0, 1_001],
  'limits.filterValuesMax': [0, 10_001],
  'limits.limitDefault': [0, 5_001],
  'limits.limitMax': [0, 5_001],
  'limits.subscriptionIdLengthMax': [0, 257],
  'limits.countMax': [0, 1_000_001],
  'limits.negentropySessionsMax': [-1, 101],
  'limits.negentropyRecordsMax': [0, 100_000_001],
  'limits.createdAheadSecondsMax': [-1, 1e12],
  'limits.createdBehindSecondsMax': [-1, Number.NaN],
  'limits.powBitsMin': [-1, 257],
  'rate.eventsPerSecond': [-1, Number.POSITIVE_INFINITY],
  'rate.eventsBurst': [0],
  'rate.queriesPerSecond': [-1],
  'rate.queriesBurst': [0],
  'rate.connectionsPerSecond': [-1],
  'rate.connectionsBurst': [0],
  'rate.httpPublicPerSecond': [-1],
  'rate.httpPublicBurst': [0],
  'rate.httpMemberPerSecond': [-1],
  'rate.httpMemberBurst': [0],
  'rate.httpAdminPerSecond': [-1],
  'rate.httpAdminBurst': [0],
  'rate.subscriptionRequestsPerHour': [-1, 0.5],
  'rate.deletionRequestsPerHour': [-1, 0.5],
  'rate.exemptLoopback': ['true', 1],
};

describe('checkSetting', () => {
  const each = settingKeys.flatMap((key) => [...BAD[key], undefined].map((value) => [key, value] as const));
  it.each(each)('%s: %j is refused, and the message names the key', (key, value) => {
    const checked = checkSetting(key, value);
    expect(checked).toEqual({ problem: expect.stringMatching(new RegExp(`^${key}: .{5}`)) });
  });

  it.each([
    ['relay.pubkey', 'a'.repeat(64)],
    ['relay.urls', ['wss://relay.example', 'ws://localhost:7447/c/sea']],
    ['topic.freeKinds', [0, '30000-39999']],
    ['limits.powBitsMin', 256],
  ] as const)('%s: %j fits', (key, value) => {
    expect(checkSetting(key, value)).toEqual({ value });
  });
});

describe('isSettingKey', () => {
  it('knows its own keys, not the properties of every object', () => {
    for (const key of settingKeys) expect(isSettingKey(key)).toBe(true);
    for (const key of ['', 'relay', 'toString', '__proto__', 'constructor', 'relay.Name']) {
      expect(isSettingKey(key)).toBe(false);
    }
  });
});

describe('settingsFrom', () => {
  it('overwrites the defaults with stored values', () => {
    const settings = settingsFrom(new Map<string, unknown>([['relay.name', 'Harbour']]));
    expect(settings).toEqual({ ...defaults, 'relay.name': 'Harbour' });
  });

  it('ignores a stored value that no longer fits, and an unknown key', () => {
    const stored = new Map<string, unknown>([
      ['limits.tagsMax', -1],
      ['gone.setting', 1],
      ['__proto__', { polluted: true }],
    ]);
    expect(settingsFrom(stored)).toEqual(defaults);
    expect(Object.keys(settingsFrom(stored))).toEqual(settingKeys);
  });

  it('is frozen', () => {
    expect(Object.isFrozen(defaults)).toBe(true);
  });
});
