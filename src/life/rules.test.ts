import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../events/rules/event.js';
import { HIDDEN_CODES, type Hidden } from '../events/rules/hidden.js';
import { lifeOf, type OtherFacts, type StoreFacts } from './rules.js';

const ID = 'a'.repeat(64);
const AUTHOR = 'b'.repeat(64);
const [REQUEST, NEWER, CASE] = ['c'.repeat(64), 'd'.repeat(64), '00000000-0000-4000-8000-000000000001'];
const NOW = 1_700_000_000_000;
const NOTHING: OtherFacts = { actions: [], cases: [], labels: [], isBlocked: false, refusedAs: undefined };

const event = (change: Partial<NostrEvent> = {}): NostrEvent => ({
  id: ID,
  pubkey: AUTHOR,
  created_at: NOW / 1_000 - 100,
  kind: 1,
  tags: [],
  content: '',
  sig: '',
  ...change,
});
function facts(hidden?: Hidden, { stored = true, lived = event() } = {}): StoreFacts {
  return {
    known: {
      author: AUTHOR,
      firstSeenAt: NOW - 90_000,
      lastSeenAt: null,
      seenCount: 1,
      hidden,
      goneAt: stored ? null : NOW - 10_000,
      stored: stored ? { event: lived, hiddenAt: hidden === undefined ? null : NOW - 50_000 } : undefined,
    },
    tombstones: [],
    head: undefined,
    vanish: undefined,
  };
}
const steps = (store: StoreFacts, others = NOTHING) =>
  lifeOf(ID, store, others, NOW).timeline.map(({ what }) => what);

/** The answer to each event that is known and hidden. */
const REPLIES: Record<Hidden, string> = {
  superseded: 'duplicate: already have this event',
  deleted: 'blocked: deleted by its author',
  expired: 'invalid: expired',
  retention: 'blocked: past retention',
  capacity: 'blocked: purged to make room',
  vanished: 'blocked: its author asked to vanish',
  withheld: 'duplicate: already have this event',
  removed: 'blocked: removed by a moderator',
  erased: 'blocked: erased',
};

describe('the life of an event', () => {
  it('that is served begins with its arrival, and it does not come twice', () => {
    const life = lifeOf(ID, facts(), NOTHING, NOW);
    expect(life).toMatchObject({ status: 'served', hidden: undefined });
    expect(life.timeline).toEqual([{ at: NOW - 90_000, what: 'arrived', pubkey: AUTHOR }]);
    expect(life.again).toEqual({ comesBack: false, reply: REPLIES.superseded, also: [] });
  });

  it.each(Object.keys(HIDDEN_CODES) as Hidden[])(
    'that is %s names it, stored or purged, and stays out',
    (hidden) => {
      const kept = lifeOf(ID, facts(hidden), NOTHING, NOW);
      expect(kept).toMatchObject({ status: 'hidden', hidden });
      expect(kept.timeline.map(({ at, what }) => [at, what])).toEqual([
        [NOW - 90_000, 'arrived'],
        [NOW - 50_000, hidden],
      ]);
      const purged = lifeOf(ID, facts(hidden, { stored: false }), NOTHING, NOW);
      expect(purged).toMatchObject({ status: 'purged', hidden });
      // The time at which it was hidden was purged with its row.
      expect(purged.timeline.map(({ at, what }) => [at, what])).toEqual([
        [NOW - 90_000, 'arrived'],
        [NOW - 10_000, 'purged'],
        [null, hidden],
      ]);
      for (const { again } of [kept, purged])
        expect(again).toEqual({ comesBack: false, reply: REPLIES[hidden], also: [] });
    },
  );

  it('names the newest version, the deletion request and the request to vanish', () => {
    const head = { id: NEWER, created_at: NOW / 1_000 };
    const tombstones = [
      { author: AUTHOR, isAddress: false, requestedAt: NOW / 1_000 - 60, deletionEvent: REQUEST },
    ];
    const vanish = { until: NOW / 1_000, request: REQUEST };
    const last = (store: StoreFacts) => lifeOf(ID, store, NOTHING, NOW).timeline.at(-1);
    expect(last({ ...facts('superseded'), head })).toMatchObject({ what: 'superseded', event: NEWER });
    expect(last({ ...facts('deleted'), tombstones })).toMatchObject({ what: 'deleted', event: REQUEST });
    expect(last({ ...facts('vanished'), vanish })).toMatchObject({ what: 'vanished', event: REQUEST });
    expect(steps({ ...facts('deleted'), tombstones })).toEqual(['arrived', 'deletion-requested', 'deleted']);
  });

  it('that time or a mark hides says so before its row does', () => {
    const past = { lived: event({ tags: [['expiration', String(NOW / 1_000 - 1)]] }) };
    const expired = lifeOf(ID, facts(undefined, past), NOTHING, NOW);
    expect(expired).toMatchObject({
      status: 'hidden',
      hidden: 'expired',
      again: { reply: 'invalid: expired' },
    });
    const vanish = { until: NOW / 1_000, request: null };
    expect(lifeOf(ID, { ...facts(), vanish }, NOTHING, NOW)).toMatchObject({ hidden: 'vanished' });
    const older = { until: NOW / 1_000 - 101, request: null };
    expect(lifeOf(ID, { ...facts(), vanish: older }, NOTHING, NOW)).toMatchObject({ status: 'served' });
  });

  it('that a moderator removed and its author deleted stays out as deleted', () => {
    const tombstones = [
      { author: AUTHOR, isAddress: false, requestedAt: NOW / 1_000 - 60, deletionEvent: REQUEST },
    ];
    expect(lifeOf(ID, { ...facts('removed'), tombstones }, NOTHING, NOW).again.reply).toBe(REPLIES.deleted);
  });

  it('that never arrived here shows who has asked to delete it', () => {
    const tombstones = [
      { author: AUTHOR, isAddress: false, requestedAt: NOW / 1_000 - 60, deletionEvent: REQUEST },
    ];
    const life = lifeOf(
      ID,
      { known: undefined, tombstones, head: undefined, vanish: undefined },
      NOTHING,
      NOW,
    );
    expect(life).toMatchObject({ status: 'unknown', hidden: undefined });
    expect(life.timeline.map(({ what }) => what)).toEqual(['deletion-requested']);
    expect(life.again).toEqual({
      comesBack: undefined,
      reply: undefined,
      also: [`if ${AUTHOR} wrote it: deleted by its author`],
    });
  });

  it('has the cases, actions and labels, in the order of time', () => {
    const others: OtherFacts = {
      ...NOTHING,
      cases: [
        {
          caseId: CASE,
          status: 'resolved',
          reason: 'spam',
          ruleId: null,
          openedAt: NOW - 80_000,
          closedAt: NOW - 60_000,
        },
      ],
      actions: [
        { action: 'remove', at: NOW - 70_000, outcome: 'removed', caseId: CASE, ruleId: null, actor: AUTHOR },
      ],
      labels: [
        { label: 'spam', createdAt: NOW - 75_000, withdrawnAt: NOW - 1_000, caseId: CASE, ruleId: null },
      ],
    };
    expect(steps(facts('removed'), others)).toEqual([
      'arrived',
      'case-opened',
      'labelled',
      'action',
      'case-closed',
      'removed',
      'label-withdrawn',
    ]);
  });

  it('names a blocked author and a disabled account', () => {
    const others: OtherFacts = { ...NOTHING, isBlocked: true, refusedAs: 'disabled' };
    expect(lifeOf(ID, facts(), others, NOW).again.also).toEqual([
      'its author is blocked',
      'the account of its author is disabled',
    ]);
  });
});
