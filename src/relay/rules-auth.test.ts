import { describe, expect, it } from 'vitest';
import { type SettingKey, settingsFrom } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import { authDeadline, type Challenge, enforcedFrom, isInForce, refuseAuth } from './rules-auth.js';

const NOW = 1_700_000_000;
const expected: Challenge = {
  challenge: 'one',
  addresses: ['wss://relay.example/c/art', 'ws://127.0.0.1:7447'],
  nowSeconds: NOW,
};
const proof = (change: Partial<NostrEvent> = {}, relay = 'wss://relay.example/c/art', challenge = 'one') => ({
  id: 'a'.repeat(64),
  pubkey: 'b'.repeat(64),
  created_at: NOW,
  kind: 22_242,
  tags: [
    ['relay', relay],
    ['challenge', challenge],
  ],
  content: '',
  sig: 'c'.repeat(128),
  ...change,
});
const why = (event: NostrEvent) => refuseAuth(event, expected)?.why;

describe('a proof of a key', () => {
  it.each(['wss://relay.example/c/art', 'WSS://Relay.Example:443/c/art/', 'ws://127.0.0.1:7447/'])(
    'holds when it names %s',
    (relay) => {
      expect(why(proof({}, relay))).toBeUndefined();
    },
  );

  it.each([
    'wss://relay.example',
    'wss://relay.example/c/other',
    'wss://relay.example.evil/c/art',
    'wss://evil.example/c/art',
    'ws://127.0.0.1:7448',
    '',
    'not a url',
  ])('does not hold when it names %s', (relay) => {
    expect(why(proof({}, relay))).toMatch(/relay/);
  });

  it('holds for its own challenge only', () => {
    expect(why(proof({}, undefined, 'two'))).toMatch(/challenge/);
    expect(why(proof({ tags: [['relay', 'wss://relay.example/c/art']] }))).toMatch(/challenge/);
  });

  it('holds for ten minutes, before and after', () => {
    for (const away of [-600, 0, 600]) expect(why(proof({ created_at: NOW + away }))).toBeUndefined();
    for (const away of [-601, 601]) expect(why(proof({ created_at: NOW + away }))).toMatch(/600 seconds/);
  });

  it('has the kind of a proof', () => {
    for (const kind of [1, 27_235]) expect(why(proof({ kind }))).toMatch(/22242/);
  });
});

describe('when a connection must authenticate', () => {
  const at = (settings: Partial<Record<SettingKey, unknown>>, authModeAt: number) => ({
    settings: settingsFrom(
      new Map(Object.entries({ 'auth.graceSeconds': 60, 'auth.timeoutSeconds': 10, ...settings })),
    ),
    authModeAt,
  });
  const required = { 'auth.mode': 'required' };

  it('never, while the mode is off', () => {
    expect(enforcedFrom(at({ 'auth.enforceAt': 1 }, 1), 5)).toBe(Number.POSITIVE_INFINITY);
    expect(authDeadline(at({}, 1), 5)).toBe(Number.POSITIVE_INFINITY);
  });

  it('at once, when it was opened after the mode was set, within its deadline', () => {
    expect(enforcedFrom(at(required, 1_000), 5_000)).toBe(1_000);
    expect(authDeadline(at(required, 1_000), 5_000)).toBe(15_000);
  });

  it('after a grace, when it was open before', () => {
    expect(enforcedFrom(at(required, 1_000), 500)).toBe(61_000);
    expect(authDeadline(at(required, 1_000), 500)).toBe(71_000);
  });

  it('from the announced second on, also when it was opened after the announcement', () => {
    const rules = at({ ...required, 'auth.enforceAt': 100 }, 1_000);
    expect(enforcedFrom(rules, 5_000)).toBe(160_000);
    expect(enforcedFrom(rules, 100_000)).toBe(100_000);
    expect(authDeadline(rules, 120_000)).toBe(130_000);
  });
});

it('over HTTP it is in force from the announced second, while the mode is required', () => {
  const inForce = (mode: string, now: number) => {
    const settings = settingsFrom(
      new Map<SettingKey, unknown>([
        ['auth.mode', mode],
        ['auth.enforceAt', NOW],
      ]),
    );
    return isInForce({ settings }, now);
  };
  expect(inForce('required', NOW * 1_000 - 1)).toBe(false);
  expect(inForce('required', NOW * 1_000)).toBe(true);
  expect(inForce('off', NOW * 1_000)).toBe(false);
});
