/** Rules to break, each as a change of the built program. A change that no longer applies is an error. */
export interface BrokenRule {
  readonly name: string;
  readonly what: string;
  /** In `dist`. */
  readonly changes: readonly { readonly file: string; readonly from: string; readonly to: string }[];
  readonly seed: number;
  /** The first round, counted from 0. */
  readonly from?: number;
  readonly rounds: number;
}

const DECIDE = 'events/rules/decide.js';
const FANOUT = 'relay/fanout.js';

export const BROKEN_RULES: readonly BrokenRule[] = [
  { name: 'none', what: 'None: a check must see nothing here', changes: [], seed: 1, rounds: 3 },
  {
    name: 'tombstones',
    what: 'A deletion that comes before its target does not block it',
    changes: [{ file: DECIDE, from: 'return idDeleted || (', to: 'return (' }],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'owner',
    what: 'Anybody may delete an event',
    changes: [
      {
        file: 'events/rules/deletion.js',
        from: 'return ownersOf(event).includes(requester);',
        to: 'return true;',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'versions',
    what: 'An older version replaces a newer one',
    changes: [{ file: DECIDE, from: "isNewer(facts.head, event) ? 'older' : 'new'", to: "'new'" }],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'dedupe',
    what: 'An id that is known is stored again',
    changes: [{ file: DECIDE, from: 'if (facts.known !== undefined)', to: 'if (false)' }],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'durability',
    what: 'OK before the commit is on the disk',
    changes: [{ file: 'events/postgres/lane/lock.js', from: 'if (!durable)', to: 'if (true)' }],
    seed: 5310,
    rounds: 3,
  },
  {
    name: 'outbox',
    what: 'The outbox has no row for a superseded version',
    changes: [
      {
        file: 'events/postgres/batch.js',
        from: "writes.outbox.filter(({ op }) => op === 'delete')",
        to: "writes.outbox.filter(({ op, reason }) => op === 'delete' && reason !== 'superseded')",
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'expired-stored',
    what: 'Queries do not look at the expiration',
    changes: [
      {
        file: 'events/postgres/read/query.js',
        from: 'e.expires_at IS NULL OR',
        to: 'true OR',
      },
      {
        file: 'relay/window/conditions.js',
        from: 'window.expiresAt(place) > nowSeconds &&',
        to: '',
      },
      {
        file: 'relay/stored.js',
        from: '|| (row.expiresAt ?? seconds + 1) <= seconds',
        to: '',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'twice',
    what: 'Live delivery sends an event twice',
    changes: [
      {
        file: FANOUT,
        from: 'return reader.deliver(this);',
        to: 'return reader.deliver(this) + reader.deliver(this);',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'communities',
    what: 'Live delivery sends an event to another community',
    changes: [
      {
        file: FANOUT,
        from: 'const index = this.indexes.get(community);',
        to: 'const index = [...this.indexes.values()].at(-1);',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'held',
    what: 'A rule is not judged on arrival',
    changes: [
      {
        file: 'moderation/arrival/on-arrival.js',
        from: 'if (judgement.met.length > 0)',
        to: 'if (false)',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'signatures',
    what: 'A wrong signature is accepted',
    changes: [
      {
        file: 'events/signature-checks.js',
        from: "return verdict === 'wrong-signature' ? WRONG_SIGNATURE : undefined;",
        to: 'return undefined;',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'expired-live',
    what: 'Live delivery does not look at the expiration',
    changes: [
      {
        file: FANOUT,
        from: 'this.expiresAt !== undefined && this.expiresAt <=',
        to: 'false && this.expiresAt <=',
      },
    ],
    // An instance is frozen while an event expires that was posted at the other one.
    seed: 4159,
    rounds: 1,
  },
  {
    name: 'search',
    what: 'The search index ignores deletes',
    changes: [
      {
        file: 'search/consumer.js',
        from: 'changes.deleted.push({ community, id, at: action.deletedAt });',
        to: ';',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'cursor',
    what: 'A subscription that continues with its cursor is not told of deletes',
    changes: [
      {
        file: 'relay/cursors/catch-up.js',
        from: "if (change.op === 'delete')",
        to: "if (change.op === 'delete') return [];\n            if (false)",
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'erasure',
    what: 'An erasure forgets the outbox, and counts nothing there',
    changes: [
      {
        file: 'erasure/stores/outbox.js',
        from: 'count: (subject) => countOutbox(client, subject.community, authorOf(subject)),',
        to: 'count: async () => 0,',
      },
      {
        file: 'erasure/stores/outbox.js',
        from: 'if (last === undefined)',
        to: 'if (true)',
      },
    ],
    seed: 1,
    rounds: 3,
  },
  {
    name: 'gaps',
    what: 'Gossip does not fill gaps',
    changes: [{ file: 'p2p/catch-up.js', from: "if (since === 'none')", to: 'if (true)' }],
    seed: 1,
    from: 24,
    rounds: 8,
  },
];
