/**
 * The community of the demo besides its events: topics, terms, plans, who joins what, who uses what. Pure.
 * Times are in seconds.
 */
import type { DailyMetric } from '../plans/rules.js';
import type { Dice } from './rules-dice.js';
import { DAY, HOUR, type Neighbour, type Span } from './rules-drafts.js';
import { THEMES, type Theme } from './rules-texts.js';

export interface DemoTopic {
  readonly name: string;
  readonly public: boolean;
  readonly priority: number;
  readonly retentionDays?: number;
}

export const TOPICS: Record<Theme, DemoTopic> = {
  harbour: { name: 'Harbour news', public: true, priority: 10, retentionDays: 365 },
  fishing: { name: 'Fishing', public: true, priority: 0 },
  ferry: { name: 'Ferry timetable', public: true, priority: 5, retentionDays: 90 },
  coffee: { name: 'Coffee', public: true, priority: 0 },
  garden: { name: 'Gardening', public: true, priority: 0 },
  photos: { name: '写真', public: true, priority: 0, retentionDays: 365 },
  nostr: { name: 'Nostr development', public: true, priority: 0 },
  festival: { name: '夏祭り実行委員会', public: false, priority: 0 },
};

/** Topics that somebody has asked for and that are not carried. */
const WANTED = [
  'Tide-pool walks',
  '陶芸の会',
  'Second-hand bicycles',
  '朗読の夕べ',
  'Sea shanties',
  '猫の会',
];
export const BLOCKED_TOPIC = { name: 'Get rich quickly', reason: 'Only ever used for advertising.' };

export const PLAN = { planId: 'supporter', name: 'Supporter', maxTopics: 500, exportsPerDay: 10 };

export const TERMS = {
  version: 'demo-1',
  texts: [
    {
      type: 'terms',
      locale: 'en',
      title: 'Terms of the harbour',
      content:
        'This is a demo community. Be kind, stay on topic, and return the umbrella.\n\n' +
        'Posts that sell something belong on the market board, not here.',
    },
    {
      type: 'terms',
      locale: 'ja',
      title: '港のきまり',
      content:
        'これはデモ用のコミュニティです。親切に、話題に沿って、傘は返しましょう。\n\n' +
        '宣伝は市場の掲示板へお願いします。',
    },
    {
      type: 'privacy',
      locale: 'en',
      title: 'What the harbour knows about you',
      content: 'Everybody here is invented. The node keeps what they post until they delete it or leave.',
    },
    {
      type: 'privacy',
      locale: 'ja',
      title: '港があなたについて知っていること',
      content: 'ここにいる人はみな架空です。投稿は、本人が消すか去るまで保存されます。',
    },
  ],
} as const;

export type Answer = 'approved' | 'pending' | 'rejected' | 'cancelled';

export interface Joining {
  readonly place: number;
  /** The name of the topic. */
  readonly topic: string;
  readonly askedAt: number;
  readonly answer: Answer;
  readonly answeredAt: number;
  readonly note?: string;
}

const WELCOME = ['Welcome aboard!', 'ようこそ！', 'Nice to have you.', 'どうぞよろしく。'];

export function makeJoinings(dice: Dice, people: readonly Neighbour[], { end }: Span): Joining[] {
  const joined = people
    .filter(({ part }) => part !== 'invited')
    .flatMap(({ place, joinedAt }): Joining[] => {
      const others = dice.shuffled(THEMES.filter((theme) => theme !== 'harbour' && theme !== 'festival'));
      const themes: Theme[] = ['harbour', ...others.slice(0, dice.between(1, 4))];
      if (dice.chance(0.3)) themes.push('festival');
      return themes.map((theme) => ({
        ...{ place, topic: TOPICS[theme].name, askedAt: joinedAt, answer: 'approved' },
        answeredAt: joinedAt + dice.between(5 * 60, 10 * HOUR),
        ...(dice.chance(0.3) ? { note: dice.pick(WELCOME) } : {}),
      }));
    });
  return [...joined, ...answeredOtherwise(dice, people, end)].sort((a, b) => a.askedAt - b.askedAt);
}

/** Requests that wait, that were rejected, and one that was taken back. */
function answeredOtherwise(dice: Dice, people: readonly Neighbour[], end: number): Joining[] {
  const neighbours = people.filter(({ part }) => part === 'neighbour');
  const asking = dice.shuffled(neighbours);
  const pending = WANTED.map((topic, number): Joining => {
    const askedAt = end - dice.between(HOUR, 3 * DAY);
    return { place: asking[number]!.place, topic, askedAt, answer: 'pending', answeredAt: askedAt };
  });
  const placeOf = (part: Neighbour['part']) => people.find((one) => one.part === part)!.place;
  const before = (days: number) => ({ askedAt: end - days * DAY, answeredAt: end - days * DAY + 3 * HOUR });
  return [
    ...pending,
    {
      ...{ place: placeOf('spammer'), topic: 'Cheap watches', answer: 'rejected', ...before(5) },
      note: 'This is advertising. The market board is on the corner.',
    },
    {
      ...{ place: placeOf('rude'), topic: 'Complaints only', answer: 'rejected', ...before(4) },
      note: 'Please use Harbour news, and a friendly tone.',
    },
    { place: placeOf('moderator'), topic: 'Moderators’ lunch', answer: 'cancelled', ...before(6) },
  ];
}

export interface Use {
  readonly place: number;
  readonly metric: DailyMetric;
  readonly at: number;
  /** Counted once, however often the demo runs. */
  readonly requestId: string;
}

/** Searches and queries of members over the last days. */
export function makeUses(dice: Dice, people: readonly Neighbour[], { end }: Span): Use[] {
  return dice
    .shuffled(people.filter(({ part, joinedAt }) => part === 'neighbour' && joinedAt < end - 6 * DAY))
    .slice(0, 8)
    .flatMap(({ place }) =>
      Array.from({ length: dice.between(2, 9) }, (_, number) => ({
        ...{ place, metric: dice.chance(0.8) ? ('search' as const) : ('trust' as const) },
        at: end - dice.between(0, 5) * DAY - 60,
        requestId: `demo-${place}-${number}`,
      })),
    );
}

/** Those who support the town have another plan. */
export function makeSupporters(dice: Dice, people: readonly Neighbour[], { end }: Span): number[] {
  const settled = people.filter(({ part, joinedAt }) => part === 'neighbour' && joinedAt < end - 10 * DAY);
  return dice.shuffled(settled.map(({ place }) => place)).slice(0, 3);
}
