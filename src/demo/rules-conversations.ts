/** The conversations of the demo: threads with replies, reactions and reposts, in two languages. Pure. */
import type { Dice } from './rules-dice.js';
import {
  DAY,
  type Draft,
  draftOf,
  HOUR,
  momentIn,
  type Neighbour,
  type Span,
  talkative,
} from './rules-drafts.js';
import type { Language } from './rules-people.js';
import { Said, Texts, THEMES, type Theme } from './rules-texts.js';

const ENGLISH_SHARE = 0.55;
const REPLIES_MAX = 9;
const REACTIONS_MAX = 4;
const SPEAKERS_MIN = 3;
const REPOST_SHARE = 0.05;
/** Of the replies: they answer another reply instead of the opening. */
const NESTED_SHARE = 0.4;
const REACTIONS = ['+', '+', '+', '🤙', '❤️', '⚓', '🐟', '☕', '🌱', '📷'];

export interface Talk {
  readonly people: readonly Neighbour[];
  readonly span: Span;
  /** The id of the topic of each theme. */
  readonly topics: Readonly<Record<Theme, string>>;
}

/** Exactly this many events, whole threads except the last one. */
export function makeConversations(dice: Dice, talk: Talk, count: number): Draft[] {
  const texts = new Texts(dice.for('texts'));
  const made: Draft[] = [];
  for (let tries = 0; made.length < count && tries < 10 * count + 100; tries += 1) {
    const thread = makeThread(dice, texts, talk);
    made.push(...thread.slice(0, count - made.length));
  }
  if (made.length < count) throw new Error(`the demo has no text for ${count} events`);
  return made;
}

function makeThread(dice: Dice, texts: Texts, { people, span, topics }: Talk): Draft[] {
  const language: Language = dice.chance(ENGLISH_SHARE) ? 'en' : 'ja';
  const theme = dice.pick(THEMES);
  const at = momentIn(dice, span);
  const present = people.filter(({ joinedAt, goneAt }) => joinedAt < at && goneAt > at + DAY);
  const speakers = present.filter((one) => one.language === language && one.part !== 'spammer');
  if (speakers.length < SPEAKERS_MIN) return [];
  const said = new Said();
  const content = texts.opening(language, theme, said);
  if (content === undefined) return [];
  const topic = topics[theme];
  const opening = draftOf(talkative(dice, speakers), {
    ...{ use: 'post', created_at: at, kind: 1, tags: [['t', topic]], content },
  });
  const thread = [opening, ...echoesOf(dice, present, opening, topic, span)];
  let last = at;
  let parent = opening;
  let before = opening;
  // Most threads are short.
  const replies = Math.floor(dice.next() ** 2 * (REPLIES_MAX + 1));
  for (let number = 0; number < replies; number += 1) {
    last += dice.between(90, dice.chance(0.7) ? 40 * 60 : 5 * HOUR);
    const isFree = ({ place, goneAt }: Neighbour) =>
      place !== parent.place && place !== before.place && goneAt > last;
    const others = speakers.filter(isFree);
    const text = others.length === 0 ? undefined : texts.reply(language, theme, said);
    if (last >= span.end || text === undefined) break;
    const reply = draftOf(talkative(dice, others), {
      ...{ use: 'reply', created_at: last, kind: 1, tags: replyTags(opening, parent, topic), content: text },
    });
    thread.push(reply, ...echoesOf(dice, present, reply, topic, span));
    before = reply;
    parent = dice.chance(NESTED_SHARE) ? reply : opening;
  }
  return thread;
}

/** NIP-10, with markers. */
function replyTags(opening: Draft, parent: Draft, topic: string): string[][] {
  const named = new Set([opening.pubkey, parent.pubkey]);
  return [
    ['e', opening.id, '', 'root'],
    ...(parent === opening ? [] : [['e', parent.id, '', 'reply']]),
    ...[...named].map((pubkey) => ['p', pubkey]),
    ['t', topic],
  ];
}

/** Reactions to a post, and reposts of it. */
function echoesOf(
  dice: Dice,
  present: readonly Neighbour[],
  { id, pubkey, created_at: since }: Draft,
  topic: string,
  { end }: Span,
): Draft[] {
  const about = [
    ['e', id],
    ['p', pubkey],
  ];
  const reactions = Math.floor(dice.next() ** 3 * (REACTIONS_MAX + 1));
  const isThere = (one: Neighbour) => one.pubkey !== pubkey && one.goneAt > since + 12 * HOUR;
  const others = dice.shuffled(present.filter(isThere));
  const echoes = others.slice(0, reactions).map((one) =>
    draftOf(one, {
      ...{ use: 'reaction', kind: 7, content: dice.pick(REACTIONS) },
      created_at: since + dice.between(20, 8 * HOUR),
      tags: [...about, ['k', '1'], ['t', topic]],
    }),
  );
  const reposter = others[reactions];
  if (reposter !== undefined && dice.chance(REPOST_SHARE)) {
    const created_at = since + dice.between(60, 12 * HOUR);
    const tags = [...about, ['t', topic]];
    // Without the reposted event in it: its signature differs from run to run.
    echoes.push(draftOf(reposter, { use: 'repost', kind: 6, content: '', created_at, tags }));
  }
  return echoes.filter((echo) => echo.created_at < end);
}

/** Authors delete some of their own posts, soon after they wrote them. */
export function makeDeletions(
  dice: Dice,
  posts: readonly Draft[],
  people: readonly Neighbour[],
  count: number,
  end: number,
): Draft[] {
  const chosen = dice
    .shuffled(posts.filter(({ use, place, created_at }) => isDeletable(use, people[place]!, created_at, end)))
    .slice(0, count);
  if (chosen.length < count) throw new Error('the demo has too few posts for its deletions');
  return chosen.map((post) => {
    const created_at = Math.min(end - 1, post.created_at + dice.between(60, 6 * HOUR));
    const tags = [
      ['e', post.id],
      ['k', String(post.kind)],
    ];
    const content = people[post.place]!.language === 'ja' ? '書きまちがえました' : 'I wrote this by mistake';
    return draftOf(people[post.place]!, { use: 'deletion', created_at, kind: 5, tags, content });
  });
}

/** Those who leave take their posts along anyway. */
function isDeletable(use: Draft['use'], { part }: Neighbour, at: number, end: number): boolean {
  const stays = part !== 'vanishing' && part !== 'erased';
  return (use === 'post' || use === 'reply') && stays && at < end - HOUR;
}
