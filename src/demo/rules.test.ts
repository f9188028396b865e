import fc from 'fast-check';
import { getEventHash, verifyEvent } from 'nostr-tools/pure';
import { describe, expect, it } from 'vitest';
import { makeKeys, signDraft } from './keys.js';
import { EVENTS_MAX, eventsMin, makeStory, type Sizes, type Story } from './rules.js';
import { RULE } from './rules-cases.js';
import { Dice } from './rules-dice.js';
import { DAY, type Draft, USES } from './rules-drafts.js';
import { makeHistory } from './rules-history.js';
import { MEMBERS_MAX, MEMBERS_MIN, PARTS } from './rules-people.js';
import { sentencesOf, THEMES, type Theme } from './rules-texts.js';

const UNTIL = 1_900_000_000;
const SMALL: Sizes = { seed: 'minato', members: MEMBERS_MIN, weeks: 2, events: 400 };
const topics = Object.fromEntries(THEMES.map((theme) => [theme, `kukuri:${theme}`])) as Record<Theme, string>;

function storyOf(sizes: Partial<Sizes> = {}): Story {
  const whole = { ...SMALL, ...sizes };
  const pubkeys = makeKeys(whole.seed, whole.members).map(({ pubkey }) => pubkey);
  return makeStory({ ...whole, until: UNTIL, pubkeys, topics, relayUrl: 'ws://127.0.0.1:7447' });
}

const story = storyOf();
const byId = new Map(story.drafts.map((draft) => [draft.id, draft]));
const partOf = ({ place }: Draft) => story.people[place]!.part;

/** The posts of each conversation. */
function threadsOf({ drafts }: Story): Draft[][] {
  const threads = new Map<string, Draft[]>();
  for (const draft of drafts.filter(({ kind }) => kind === 1)) {
    const root = draft.tags.find(([, , , marker]) => marker === 'root')?.[1] ?? draft.id;
    threads.set(root, [...(threads.get(root) ?? []), draft]);
  }
  return [...threads.values()];
}

describe('the same seed', () => {
  it('gives the same people, keys, events and decisions, in the same order', () => {
    expect(storyOf()).toEqual(story);
  });

  it('gives the same people in every size', () => {
    const named = ({ people }: Story) =>
      people.slice(0, MEMBERS_MIN).map(({ name, pubkey }) => [name, pubkey]);
    expect(named(storyOf({ members: 60, events: 600, weeks: 5 }))).toEqual(named(story));
  });

  it('is needed: another seed gives other keys and texts', () => {
    const other = storyOf({ seed: 'another' });
    const known = new Set(story.people.map(({ pubkey }) => pubkey));
    expect(other.people.filter(({ pubkey }) => known.has(pubkey))).toEqual([]);
    const texts = ({ drafts }: Story) => drafts.filter(({ use }) => use === 'post').map((one) => one.content);
    expect(texts(other)).not.toEqual(texts(story));
  });
});

describe('events', () => {
  it('have exactly the wanted number, each id once, in the order of their times', () => {
    expect(story.drafts).toHaveLength(SMALL.events);
    expect(byId.size).toBe(SMALL.events);
    const times = story.drafts.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    expect(times[0]).toBeGreaterThanOrEqual(UNTIL - SMALL.weeks * 7 * DAY);
    expect(times.at(-1)).toBeLessThanOrEqual(UNTIL);
  });

  it('have the ids of NIP-01, and signatures that noble accepts', () => {
    const keys = makeKeys(SMALL.seed, SMALL.members);
    for (const draft of story.drafts) {
      const { id: _id, use: _use, place, ...unsigned } = draft;
      expect(getEventHash(unsigned)).toBe(draft.id);
      const signed = signDraft(draft, keys[place]!);
      expect(signed.id).toBe(draft.id);
      expect(verifyEvent(JSON.parse(JSON.stringify(signed)))).toBe(true);
    }
  });

  it('have every use that the demo shows, and every part of the story a person', () => {
    expect(new Set(story.drafts.map(({ use }) => use))).toEqual(new Set(USES));
    expect(story.people.slice(0, PARTS.length).map(({ part }) => part)).toEqual([...PARTS]);
    const revisions = story.drafts.filter(({ use }) => use === 'article').map(({ tags }) => tags[0]![1]);
    expect(new Set(revisions).size).toBeLessThan(revisions.length);
  });

  it('refer only to earlier events of the story', () => {
    for (const { tags, created_at } of story.drafts)
      for (const [, id] of tags.filter(([name]) => name === 'e'))
        expect(byId.get(id!)!.created_at).toBeLessThan(created_at);
  });

  it('are written by people who have joined and are not gone', () => {
    for (const draft of story.drafts) {
      const { joinedAt, goneAt } = story.people[draft.place]!;
      expect(draft.created_at).toBeGreaterThanOrEqual(joinedAt);
      if (draft.use !== 'vanish') expect(draft.created_at).toBeLessThan(goneAt);
    }
  });

  it('delete only what their author wrote', () => {
    for (const { tags, pubkey } of story.drafts.filter(({ use }) => use === 'deletion'))
      for (const [name, target] of tags.filter(([letter]) => letter === 'e' || letter === 'a'))
        expect(name === 'e' ? byId.get(target!)!.pubkey : target!.split(':')[1]).toBe(pubkey);
  });
});

describe('texts', () => {
  it('never repeat a sentence in a conversation, in any size', () => {
    for (const each of [story, storyOf({ members: 100, events: 4_000, weeks: 8 })])
      for (const thread of threadsOf(each)) {
        const sentences = thread.flatMap(({ content }) => sentencesOf(content));
        expect(new Set(sentences).size, sentences.join('\n')).toBe(sentences.length);
      }
  });

  it('are in both languages, one in each conversation, and nearly all different', () => {
    const isJapanese = ({ content }: Draft) => /\p{Script=Hiragana}/u.test(content);
    const talks = threadsOf(story).filter(([first]) => first!.use === 'post');
    const mixed = talks.filter((thread) => thread.some(isJapanese) && !thread.every(isJapanese));
    // A few Japanese replies have no hiragana at all.
    expect(mixed.length).toBeLessThan(talks.length / 20);
    const japanese = talks.filter((thread) => thread.every(isJapanese)).length;
    expect(japanese).toBeGreaterThan(talks.length / 5);
    expect(japanese).toBeLessThan((4 * talks.length) / 5);
    const all = talks.flat().map(({ content }) => content);
    expect(new Set(all).size).toBeGreaterThan(0.95 * all.length);
  });

  it('have no slot left, name no other host, and say that people are invented', () => {
    for (const { content, use } of story.drafts) {
      expect(content).not.toMatch(/https?:|www\./);
      if (use !== 'profile') expect(content).not.toMatch(/[{}]/);
      else
        expect(JSON.parse(content)).toEqual({
          name: expect.stringMatching(/^[a-z-]+$/),
          display_name: expect.any(String),
          about: expect.stringMatching(/demo persona|架空の人物/),
        });
    }
  });

  it('have the words of the rule only where a post is to be held', () => {
    const { words } = RULE.conditions;
    const hit = story.drafts.filter(({ content }) => words.some((word) => content.includes(word)));
    expect(hit.map(({ use }) => use)).toEqual(['held', 'held', 'held']);
    expect(new Set(hit.map(partOf))).toEqual(new Set(['spammer', 'misunderstood']));
  });
});

it('reports and decisions are about events of the story, by people who were there', () => {
  for (const { event, place, at } of story.reportings) {
    expect(story.people[place]!.joinedAt).toBeLessThan(at);
    if (event !== undefined) expect(byId.get(event)!.created_at).toBeLessThan(at);
  }
  for (const { event, author } of story.decidings) expect(byId.get(event)!.pubkey).toBe(author);
});

it('any seed and size within the bounds makes a whole story', () => {
  const sizes = fc.record({
    seed: fc.string({ maxLength: 12 }),
    members: fc.integer({ min: MEMBERS_MIN, max: 80 }),
    weeks: fc.integer({ min: 2, max: 12 }),
    more: fc.integer({ min: 0, max: 400 }),
  });
  const pubkeys = makeKeys('any', 80).map(({ pubkey }) => pubkey);
  fc.assert(
    fc.property(sizes, ({ more, ...given }) => {
      const events = eventsMin(given.members) + more;
      const made = makeStory({ ...given, events, until: UNTIL, pubkeys, topics, relayUrl: 'ws://x' });
      expect(made.drafts).toHaveLength(events);
      expect(new Set(made.drafts.map(({ use }) => use))).toContain('deletion');
    }),
    { numRuns: 40, seed: 7_448 },
  );
});

it('the most people and the most events have names and texts of their own', () => {
  const { people, drafts } = storyOf({ members: MEMBERS_MAX, events: EVENTS_MAX, weeks: 52 });
  expect(new Set(people.map(({ name }) => name)).size).toBe(MEMBERS_MAX);
  expect(drafts).toHaveLength(EVENTS_MAX);
});

it('dice are fair enough, and parts do not depend on each other', () => {
  const dice = new Dice('x');
  const counts = [0, 0, 0, 0, 0, 0];
  for (let at = 0; at < 6_000; at += 1) counts[dice.between(0, 5)]! += 1;
  for (const count of counts) expect(Math.abs(count - 1_000)).toBeLessThan(150);
  const [one, other] = [new Dice('x'), new Dice('x')];
  one.next();
  expect(one.for('part').next()).toBe(other.for('part').next());
});

describe('the figures of past weeks', () => {
  const now = { events: 380, bytes: 500_000, databaseBytes: 60_000_000 };
  const { minutes, hours, sizes } = makeHistory(new Dice('history'), story, now);
  const storedIn = (samples: typeof hours) => samples.reduce((sum, { outcomes }) => sum + outcomes[0]!, 0);
  const written = (since: number, until: number) =>
    story.drafts.filter((draft) => draft.created_at * 1_000 >= since && draft.created_at * 1_000 < until);

  it('have what the story says was stored, in every hour and in the minutes of the last day', () => {
    const end = hours.at(-1)!.at + 3_600_000;
    expect(storedIn(hours)).toBe(written(hours[0]!.at, end).length);
    expect(hours).toHaveLength((end - hours[0]!.at) / 3_600_000);
    expect(minutes).toHaveLength(24 * 60);
    expect(storedIn(minutes)).toBe(written(minutes[0]!.at, minutes.at(-1)!.at + 60_000).length);
    expect(minutes.at(-1)!.at + 60_000).toBeLessThanOrEqual(UNTIL * 1_000);
  });

  it('grow to what is there now', () => {
    const events = sizes.map((size) => size.events);
    expect(events).toEqual([...events].sort((a, b) => a - b));
    expect(events.at(-1)).toBeGreaterThan(0.95 * now.events);
    expect(events.at(-1)).toBeLessThanOrEqual(now.events);
  });
});
