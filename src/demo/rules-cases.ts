/**
 * What moderators see in the demo: posts that somebody reports, posts that a rule holds, and what was
 * decided. Pure. Times are in seconds.
 */
import type { Label } from '../labels/rules.js';
import type { CaseAction } from '../moderation/rules.js';
import { KIND_REPORT, type ReportReason } from '../reports/rules.js';
import type { Dice } from './rules-dice.js';
import { DAY, type Draft, draftOf, HOUR, type Neighbour, type Span } from './rules-drafts.js';
import { MEMBERS_MIN, type Part } from './rules-people.js';
import type { Theme } from './rules-texts.js';

/** Holds posts with these words until a moderator decides. No other text of the demo has them. */
export const RULE = {
  name: 'Prize draws',
  conditions: { words: ['prize draw', '抽選で当たる'] },
  action: 'hold',
} as const;

/** Written, and neither tried nor enabled. */
export const RULE_DRAFT = {
  name: 'Many posts in a minute',
  conditions: { kinds: [1], rate: { count: 20, seconds: 60 } },
  action: 'hold',
} as const;

export interface Reporting {
  readonly place: number;
  readonly at: number;
  readonly event: string | undefined;
  /** The reported person, where it is not about an event. */
  readonly pubkey: string | undefined;
  readonly reason: ReportReason;
  readonly comment: string;
}

export interface Deciding {
  /** The event that the case is about. */
  readonly event: string;
  readonly author: string;
  /** Undefined: now, because the case was opened when the event arrived. */
  readonly at: number | undefined;
  readonly actions: readonly {
    readonly action: CaseAction;
    readonly note: string;
    readonly label?: Label;
  }[];
  /** What the author says against it. */
  readonly appeal?: string;
}

export interface Cases {
  readonly posts: readonly Draft[];
  readonly reportings: readonly Reporting[];
  readonly decidings: readonly Deciding[];
}

export interface Scene {
  readonly people: readonly Neighbour[];
  readonly span: Span;
  readonly topics: Readonly<Record<Theme, string>>;
}

export function makeCases(dice: Dice, { people, span, topics }: Scene): Cases {
  const { end } = span;
  const of = (part: Part) => people.find((one) => one.part === part)!;
  // Those who were here from the first days on.
  const witnesses = dice.shuffled(people.slice(0, MEMBERS_MIN).filter(({ part }) => part === 'neighbour'));
  const said = (
    who: Neighbour,
    use: 'reported' | 'held',
    created_at: number,
    theme: Theme,
    content: string,
  ) => draftOf(who, { use, created_at, kind: 1, tags: [['t', topics[theme]]], content });
  const [spammer, rude, misunderstood] = [of('spammer'), of('rude'), of('misunderstood')];

  const watches = said(
    ...([spammer, 'reported', end - 6 * DAY, 'coffee'] as const),
    'Gold watches, ninety percent off, only for harbour people! Write to me quickly!',
  );
  const boats = said(
    ...([spammer, 'reported', end - 2 * DAY, 'ferry'] as const),
    'Why wait for the ferry? Speedboats on credit, no questions! Write to me!',
  );
  const shouting = said(
    ...([rude, 'reported', end - 4 * DAY, 'harbour'] as const),
    'Whoever parks in front of slip three has the brain of a barnacle and should be thrown off the pier.',
  );
  const gossip = said(
    ...([rude, 'reported', end - 30 * HOUR, 'fishing'] as const),
    'Half of the catches in this topic are from the supermarket, and everybody knows whose.',
  );
  const octopus = said(
    ...([witnesses[0]!, 'reported', end - 5 * DAY, 'fishing'] as const),
    'Cleaned an octopus on the pier today, pictures for those who ask. Not for the faint of heart.',
  );
  const held = [
    said(
      ...([spammer, 'held', end - 20 * HOUR, 'harbour'] as const),
      'You have been chosen for our prize draw! Send your key to claim the boat.',
    ),
    said(
      ...([spammer, 'held', end - 9 * HOUR, 'harbour'] as const),
      '抽選で当たる高級腕時計！今すぐご連絡ください。',
    ),
  ];
  const raffle = said(
    ...([misunderstood, 'held', end - 26 * HOUR, 'festival'] as const),
    'The prize draw of the festival needs three more baskets. I have one with jam.',
  );

  const reporting = (
    number: number,
    hoursAgo: number,
    about: Draft | Neighbour,
    reason: ReportReason,
    comment: string,
  ): Reporting => ({
    ...{ place: witnesses[number % witnesses.length]!.place, at: end - hoursAgo * HOUR, reason, comment },
    ...('kind' in about
      ? { event: about.id, pubkey: undefined }
      : { event: undefined, pubkey: about.pubkey }),
  });
  const reportings = [
    reporting(1, 143, watches, 'spam', 'The third one this week.'),
    reporting(2, 141, watches, 'spam', 'また宣伝です。'),
    reporting(3, 140, watches, 'spam', 'Not about coffee.'),
    reporting(4, 118, octopus, 'nudity', 'The octopus wore nothing.'),
    reporting(2, 94, shouting, 'profanity', 'We can say this in a friendlier way.'),
    reporting(5, 93, shouting, 'other', '言いすぎだと思います。'),
    reporting(3, 28, gossip, 'other', 'This is about my uncle.'),
    reporting(1, 6, spammer, 'impersonation', 'Pretends to speak for the harbour office.'),
  ];
  // By an event (NIP-56), as clients do it.
  const byEvent = [witnesses[4 % witnesses.length]!, witnesses[5 % witnesses.length]!].map((who, number) =>
    draftOf(who, {
      ...{ use: 'report', kind: KIND_REPORT, created_at: end - (40 - number) * HOUR },
      tags: [
        ['e', boats.id, 'spam'],
        ['p', spammer.pubkey],
      ],
      content: number === 0 ? 'Advertising.' : '広告です。',
    }),
  );
  const decidings: Deciding[] = [
    {
      ...{ event: watches.id, author: spammer.pubkey, at: end - 130 * HOUR },
      actions: [
        { action: 'label', note: 'advertising', label: 'spam' },
        { action: 'remove', note: 'advertising in a topic for conversation' },
        { action: 'ban', note: 'the third warning' },
      ],
    },
    {
      ...{ event: octopus.id, author: witnesses[0]!.pubkey, at: end - 110 * HOUR },
      actions: [{ action: 'dismiss', note: 'it is dinner' }],
    },
    {
      ...{ event: shouting.id, author: rude.pubkey, at: end - 80 * HOUR },
      actions: [
        { action: 'label', note: 'about a neighbour', label: 'harassment' },
        { action: 'remove', note: 'please say it again without the barnacle' },
      ],
      appeal: 'I was angry about the van. I would like to write it again, politely.',
    },
    {
      ...{ event: raffle.id, author: misunderstood.pubkey, at: undefined },
      actions: [{ action: 'restore', note: 'the raffle of the festival, not advertising' }],
    },
  ];
  return {
    posts: [watches, boats, shouting, gossip, octopus, ...held, raffle, ...byEvent],
    reportings,
    decidings,
  };
}
