import { describe, expect, it } from 'vitest';
import { settingsFrom } from '../communities/rules-settings.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { TopicRule } from '../events/rules/retention.js';
import {
  countTopics,
  type GossipRules,
  gossipHex,
  refuseGossip,
  refuseKind,
  topicsToJoin,
  topicsToSend,
} from './rules.js';
import { PeerRecords } from './rules-peers.js';
import { isSameNode, readTicket, writeTicket } from './rules-ticket.js';

const rule = (given: Partial<TopicRule> = {}): TopicRule => ({
  enabled: true,
  blocked: false,
  public: true,
  priority: 0,
  policy: {},
  ...given,
});

const community = (
  id: number,
  topics: Record<string, TopicRule>,
  settings: Record<string, unknown> = {},
): GossipRules => ({
  id,
  settings: settingsFrom(new Map(Object.entries({ 'topic.mode': 'required', ...settings }))),
  topics: new Map(Object.entries(topics)),
});

const NOW = 1_700_000_000;
const event = (kind: number, topics: readonly string[], given: Partial<NostrEvent> = {}): NostrEvent => ({
  id: 'aa'.repeat(32),
  pubkey: 'bb'.repeat(32),
  created_at: NOW,
  kind,
  tags: topics.map((topic) => ['t', topic]),
  content: '',
  sig: 'cc'.repeat(64),
  ...given,
});

const CHAT = 'kukuri:chat';
const NEWS = 'kukuri:news';
const SECRET = 'kukuri:secret';
const HOME = community(1, { [CHAT]: rule(), [NEWS]: rule(), [SECRET]: rule({ public: false }) });
const hex = (topic: string) => gossipHex(topic, HOME);

describe('the joined topics', () => {
  it('are the public, carried ones of communities that take part', () => {
    const joined = topicsToJoin([HOME, community(2, { [CHAT]: rule() })], 10);
    expect([...joined.keys()].sort()).toEqual([hex(CHAT), hex(NEWS)].sort());
    expect(joined.get(hex(CHAT))).toEqual([
      { community: 1, topic: CHAT },
      { community: 2, topic: CHAT },
    ]);
    expect(topicsToJoin([community(3, { [CHAT]: rule() }, { 'p2p.gossip': false })], 10).size).toBe(0);
    expect(topicsToJoin([community(3, { [CHAT]: rule({ enabled: false }) })], 10).size).toBe(0);
  });

  it('are capped by priority, and a community with many leaves places for another', () => {
    const many = Object.fromEntries(
      Array.from({ length: 50 }, (_, at) => [`kukuri:${at}`, rule({ priority: at })]),
    );
    const joined = topicsToJoin([community(1, many), community(2, { [CHAT]: rule() })], 4);
    const names = [...joined.values()].flat().map(({ topic }) => topic);
    expect(names).toEqual(['kukuri:49', CHAT, 'kukuri:48', 'kukuri:47']);
    expect(countTopics([community(1, many), community(2, { [CHAT]: rule() })])).toBe(51);
  });
});

describe('what is sent', () => {
  const joined = topicsToJoin([HOME], 10);
  const sent = (given: NostrEvent, bound: readonly string[] = []) =>
    topicsToSend(given, bound, HOME, joined).sort();

  it('goes into the topics that it names or is bound to', () => {
    expect(sent(event(1, [CHAT]))).toEqual([hex(CHAT)]);
    expect(sent(event(1, [CHAT, NEWS, 'kukuri:other']))).toEqual([hex(CHAT), hex(NEWS)].sort());
    expect(sent(event(5, []), [NEWS])).toEqual([hex(NEWS)]);
    expect(sent(event(20_001, [CHAT]))).toEqual([hex(CHAT)]);
    expect(sent(event(1, []))).toEqual([]);
  });

  it('is nothing private, protected, or about access', () => {
    for (const kind of [4, 1_059, 21_059, 39_020, 39_021, 39_022, 22_242, 27_235, 24_242, 24_133, 28_934])
      expect(sent(event(kind, [CHAT]))).toEqual([]);
    expect(sent(event(1, [CHAT], { tags: [['t', CHAT], ['-']] }))).toEqual([]);
    expect(sent(event(1, [CHAT, SECRET]))).toEqual([]);
    expect(sent(event(5, []), [SECRET])).toEqual([]);
  });

  it('is a request to vanish with ALL_RELAYS, into every topic', () => {
    const vanish = (relay: string) => event(62, [], { tags: [['relay', relay]] });
    expect(sent(vanish('ALL_RELAYS'))).toEqual([hex(CHAT), hex(NEWS)].sort());
    expect(sent(vanish('wss://here.example'))).toEqual([]);
  });
});

describe('what is taken', () => {
  const taken = (given: NostrEvent, topic = CHAT, home = HOME) =>
    refuseGossip(given, { hex: hex(topic), topic }, home, NOW);

  it('names a topic of the gossip topic through which it came', () => {
    expect(taken(event(1, [CHAT]))).toBeUndefined();
    expect(taken(event(1, [NEWS]))).toEqual({ refused: 'invalid', why: 'topic mismatch' });
    expect(taken(event(1, []))).toEqual({ refused: 'invalid', why: 'topic mismatch' });
    expect(taken(event(1, [CHAT, SECRET]))?.refused).toBe('restricted');
  });

  it('is a deletion in any topic, and a request to vanish with ALL_RELAYS', () => {
    expect(taken(event(5, []))).toBeUndefined();
    expect(taken(event(62, [], { tags: [['relay', 'ALL_RELAYS']] }))).toBeUndefined();
    expect(taken(event(62, [], { tags: [['relay', 'wss://x']] }))?.refused).toBe('restricted');
  });

  it('in the default mode is also what names no topic, through the global one', () => {
    const open = community(1, { 'kukuri:global': rule() }, { 'topic.mode': 'default' });
    expect(taken(event(1, []), 'kukuri:global', open)).toBeUndefined();
    expect(taken(event(1, ['hashtag']), 'kukuri:global', open)).toBeUndefined();
  });

  it('is not older than maxDelaySeconds, also where backfill is allowed; requests and versions pass', () => {
    const strict = community(1, { [CHAT]: rule({ policy: { maxDelaySeconds: 60, allowBackfill: true } }) });
    const old = { created_at: NOW - 61 };
    expect(taken(event(1, [CHAT], { created_at: NOW - 60 }), CHAT, strict)).toBeUndefined();
    expect(taken(event(1, [CHAT], old), CHAT, strict)?.why).toContain('at most 60 s');
    expect(taken(event(5, [], old), CHAT, strict)).toBeUndefined();
    expect(taken(event(30_023, [CHAT], old), CHAT, strict)).toBeUndefined();
  });

  it('has no kind that is never exchanged', () => {
    for (const kind of [4, 1_059, 39_020, 22_242]) expect(refuseKind(event(kind, []), HOME)).toBeDefined();
    for (const kind of [0, 1, 5, 1_111, 20_001, 30_023])
      expect(refuseKind(event(kind, []), HOME)).toBeUndefined();
  });
});

describe('a peer', () => {
  const limits = { invalidPerMinute: 3, dropMs: 10_000 };

  it('is dropped after too much that is invalid within a minute, and comes back', () => {
    const peers = new PeerRecords();
    const at = (now: number) => peers.noteInvalid('a', limits, now);
    expect([0, 1, 2].map(at)).toEqual([false, false, false]);
    expect(at(3)).toBe(true);
    expect(peers.isDropped('a', 10_002)).toBe(true);
    expect(peers.takeReturned(10_002)).toEqual([]);
    expect(peers.takeReturned(10_003)).toEqual(['a']);
    expect(peers.takeReturned(10_004)).toEqual([]);
    expect(peers.isDropped('b', 5)).toBe(false);
  });

  it('that is wrong now and then is not', () => {
    const peers = new PeerRecords();
    const results = Array.from({ length: 50 }, (_, at) => peers.noteInvalid('a', limits, at * 20_000));
    expect(results).not.toContain(true);
  });
});

describe('a ticket', () => {
  const machine = (digit: string, addresses = ['127.0.0.1:7448', '[2001:db8::1]:7448']) => ({
    id: digit.repeat(64),
    addresses,
  });

  it('is read as it was written', () => {
    const ticket = { machines: [machine('a'), machine('b')], urls: ['wss://one.example/c/art'] };
    expect(readTicket(` ${writeTicket(ticket)}\n`)).toEqual(ticket);
    expect(isSameNode(ticket, { machines: [machine('b')], urls: [] })).toBe(true);
    expect(isSameNode(ticket, { machines: [machine('c')], urls: [] })).toBe(false);
  });

  it('that is not one is refused', () => {
    const text = (value: unknown) => `minato1${Buffer.from(JSON.stringify(value)).toString('base64url')}`;
    for (const bad of [
      '',
      'minato1',
      'minato1%%%',
      text({}),
      text({ machines: [], urls: [] }),
      text({ machines: [machine('a', ['host.example:7448'])], urls: [] }),
      text({ machines: [{ id: 'AA'.repeat(32), addresses: [] }], urls: [] }),
      text({ machines: [machine('a')], urls: ['http://internal/'] }),
    ])
      expect(readTicket(bad)).toBeUndefined();
  });
});
