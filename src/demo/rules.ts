/**
 * The whole story of the demo, from a seed: the same seed, sizes and end give the same people, events and
 * decisions, in the same order. Pure: keys, clock and names of topics are inputs. Times are in seconds.
 */
import { ARTICLES, articleText } from './rules-articles.js';
import { type Cases, makeCases } from './rules-cases.js';
import { makeConversations, makeDeletions } from './rules-conversations.js';
import { Dice } from './rules-dice.js';
import { DAY, type Draft, draftOf, HOUR, momentIn, type Neighbour, type Span } from './rules-drafts.js';
import { MEMBERS_MIN, makePeople, type Part, profileOf } from './rules-people.js';
import type { Theme } from './rules-texts.js';
import { type Joining, makeJoinings, makeSupporters, makeUses, type Use } from './rules-town.js';

export const WEEKS_MIN = 2;
export const WEEKS_MAX = 52;
export const EVENTS_MAX = 20_000;
export const DEFAULTS = { seed: 'minato', members: 40, weeks: 4, events: 1_500 } as const;

export interface Sizes {
  readonly seed: string;
  readonly members: number;
  readonly weeks: number;
  readonly events: number;
}

export interface Setting extends Sizes {
  /** The end of the story. */
  readonly until: number;
  /** The public key of the person at each place. */
  readonly pubkeys: readonly string[];
  /** The id of the topic of each theme. */
  readonly topics: Readonly<Record<Theme, string>>;
  /** The address that the request to vanish names. */
  readonly relayUrl: string;
}

export interface Story extends Cases {
  readonly people: readonly Neighbour[];
  /** In the order of their times. */
  readonly drafts: readonly Draft[];
  readonly joinings: readonly Joining[];
  readonly uses: readonly Use[];
  /** Places of those with another plan. */
  readonly supporters: readonly number[];
  readonly span: Span;
}

/** Enough for everything that the demo shows, and for some conversation. */
export const eventsMin = (members: number) => 3 * members + 100;

const UPDATED_SHARE = 0.15;
const DELETED_SHARE = 0.015;
/** After this many hours each of the notes expires, counted from the end of the story. */
const EXPIRING: readonly (readonly [hours: number, theme: Theme, content: string])[] = [
  [0.5, 'coffee', 'The pot at the kiosk is still warm. First come, first served!'],
  [6, 'ferry', '本日の最終便は満席です。明日の朝の便をどうぞ。'],
  [24, 'harbour', 'The north pier is closed for painting until tomorrow.'],
  [72, 'garden', '苗の引き取りは今週いっぱいです。'],
  [168, 'festival', 'Sign up for the drum practice by next week.'],
];

export function makeStory(setting: Setting): Story {
  const { seed, members, weeks, events, until, topics } = setting;
  const dice = new Dice(`minato demo/${seed}/${members}/${weeks}/${events}`);
  const span = { start: until - weeks * 7 * DAY, end: until };
  const people = withLives(new Dice(`minato demo/${seed}`), setting, span);
  const scene = { people, span, topics };
  const cases = makeCases(dice.for('cases'), scene);
  const fixed = [
    ...profiles(dice.for('profiles'), people, span),
    ...followLists(dice.for('follows'), people),
    ...articles(dice.for('articles'), setting, people, span),
    ...expiring(dice.for('expiring'), setting, people),
    ...cases.posts,
    vanishing(setting, people),
  ];
  const deleted = Math.max(3, Math.floor(events * DELETED_SHARE));
  const left = events - fixed.length - deleted;
  const talk = makeConversations(dice.for('talk'), scene, left);
  const deletions = makeDeletions(dice.for('deletions'), talk, people, deleted, until);
  return {
    ...{ people, span, ...cases },
    drafts: [...fixed, ...talk, ...deletions].sort(byTime),
    joinings: makeJoinings(dice.for('joinings'), people, span),
    uses: makeUses(dice.for('uses'), people, span),
    supporters: makeSupporters(dice.for('supporters'), people, span),
  };
}

/** A deletion after what it deletes, and the order never depends on how the list was made. */
const byTime = (one: Draft, other: Draft) =>
  one.created_at - other.created_at || (one.id < other.id ? -1 : 1);

/** The first ones join in the first days, the others until the last quarter. */
function withLives(dice: Dice, { members, pubkeys }: Setting, span: Span): Neighbour[] {
  const joining = dice.for('joining');
  const { start, end } = span;
  return makePeople(dice, members).map((person) => {
    const isFirst = person.place < MEMBERS_MIN;
    const latest = isFirst ? start + DAY : start + 0.75 * (end - start);
    const joinedAt = momentIn(joining, { start, end: Math.floor(latest) });
    const goneAt = person.part === 'vanishing' ? vanishAt(end) : end;
    return { ...person, pubkey: pubkeys[person.place]!, joinedAt, goneAt };
  });
}

const vanishAt = (end: number) => end - 2 * DAY;
const partOf = (people: readonly Neighbour[], part: Part) => people.find((one) => one.part === part)!;

/** Some people change their profile later: the older one is superseded. */
function profiles(dice: Dice, people: readonly Neighbour[], { end }: Span): Draft[] {
  return people.flatMap((person) => {
    const { joinedAt, goneAt, language } = person;
    const written = { use: 'profile', kind: 0, tags: [] } as const;
    const first = draftOf(person, { ...written, tags: [], created_at: joinedAt, content: profileOf(person) });
    if (person.place === 0 || !dice.chance(UPDATED_SHARE)) return [first];
    const remark = language === 'ja' ? '最近は写真も。' : ' Lately also photos.';
    const created_at = dice.between(joinedAt + HOUR, Math.min(end, goneAt) - HOUR);
    return [first, draftOf(person, { ...written, tags: [], created_at, content: profileOf(person, remark) })];
  });
}

function followLists(dice: Dice, people: readonly Neighbour[]): Draft[] {
  return people.map((person) => {
    const others = dice.shuffled(
      people.filter(({ place, part }) => place !== person.place && part !== 'spammer'),
    );
    const followed = others.slice(0, dice.between(3, Math.min(25, others.length)));
    const tags = followed.map(({ pubkey, name }) => ['p', pubkey, '', name]);
    return draftOf(person, { use: 'follows', kind: 3, created_at: person.joinedAt + 600, tags, content: '' });
  });
}

/** Each article with its revisions. The author of the last one deletes it by its address. */
function articles(dice: Dice, { topics }: Setting, people: readonly Neighbour[], span: Span): Draft[] {
  const made: Draft[] = [];
  const middle = span.start + (span.end - span.start) / 2;
  ARTICLES.forEach((article, number) => {
    const { slug, language, theme, title, summary } = article;
    const writers = people.filter((one) => one.part === 'neighbour' && one.language === language);
    const author = writers[number % writers.length]!;
    let created_at = momentIn(dice, { start: Math.floor(middle), end: span.end - 3 * DAY });
    created_at = Math.max(created_at, Math.min(author.joinedAt + HOUR, span.end - 3 * DAY));
    const published = String(created_at);
    for (let revision = 0; revision <= article.additions.length; revision += 1) {
      const tags = [
        ['d', slug],
        ['title', title],
        ['summary', summary],
        ['published_at', published],
      ];
      const content = articleText(article, revision);
      const said = { use: 'article', kind: 30_023, created_at, content } as const;
      made.push(draftOf(author, { ...said, tags: [...tags, ['t', topics[theme]]] }));
      created_at += dice.between(2 * HOUR, 20 * HOUR);
    }
    if (number === ARTICLES.length - 1) {
      const tags = [
        ['a', `30023:${author.pubkey}:${slug}`],
        ['k', '30023'],
      ];
      const content = '新しいものを書きます';
      made.push(draftOf(author, { use: 'deletion', kind: 5, created_at, tags, content }));
    }
  });
  return made;
}

function expiring(dice: Dice, { until, topics }: Setting, people: readonly Neighbour[]): Draft[] {
  const neighbours = people.filter(({ part }) => part === 'neighbour');
  return EXPIRING.map(([hours, theme, content]) => {
    const created_at = until - dice.between(600, 5 * HOUR);
    const tags = [
      ['expiration', String(until + hours * HOUR)],
      ['t', topics[theme]],
    ];
    return draftOf(dice.pick(neighbours), { use: 'expiring', kind: 1, created_at, tags, content });
  });
}

/** NIP-62. */
function vanishing({ until, relayUrl }: Setting, people: readonly Neighbour[]): Draft {
  const content = 'I am moving to another harbour. Thank you for everything.';
  const said = { use: 'vanish', kind: 62, created_at: vanishAt(until), content } as const;
  return draftOf(partOf(people, 'vanishing'), { ...said, tags: [['relay', relayUrl]] });
}
