import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  BLOCKED_WORD_LENGTH_MAX,
  BLOCKED_WORDS_MAX,
  checkWord,
  foldText,
  isBounded,
  WordMatcher,
} from './blocked-words.js';

const kept = (text: string): string => {
  const checked = checkWord(text);
  if ('problem' in checked) throw new Error(checked.problem);
  return checked.word;
};
const matcher = (...words: string[]) => new WordMatcher(words.map(kept));

describe('a blocked word', () => {
  it.each([
    ['spam', 'this is spam!', true],
    ['spam', 'SPAM', true],
    ['SPAM', 'buy Spam, now', true],
    ['spam', 'spammer', false],
    ['spam', 'antispam', false],
    ['spam', 'spam2', false],
    ['spam', 'spam_bot', true],
    ['spam', 'ｓｐａｍ', true],
    ['spam', '𝖘𝖕𝖆𝖒', true],
    ['spam', 's\u200bp\u200da\ufeffm', true],
    ['sp\u00adam', 'spam', true],
    ['spam', 'spamです', true],
    ['spam', '買うspam', true],
    ['spam', 'spa', false],
    ['迷惑', 'それは迷惑です', true],
    ['スパム', 'ｽﾊﾟﾑ業者', true],
    ['すぱむ', 'これはすぱむだ', true],
    ['スパム', 'すぱむ', false],
    ['LINE登録', 'いまlineで登録、LINE登録して', true],
    ['LINE登録', 'ONLINE登録', false],
    ['스팸', '스팸은 싫어요', true],
    ['สแปม', 'นี่คือสแปมนะ', true],
    ['💩', 'what a 💩💩 day', true],
    ['💩', 'abc💩def', true],
    ['👨‍👩‍👧', 'we are 👨‍👩‍👧!', true],
    ['❤️', 'I ❤ this', true],
    ['❤', 'I ❤️ this', true],
    ['💩', '💪', false],
    ['free money', 'FREE\n\t money for all', true],
    ['free money', 'freemoney', false],
    ['$$$', 'a$$$b', true],
    ['100', 'win 1000', false],
    ['100', 'win 100!', true],
    ['.*', 'anything', false],
    ['café', 'CAFE\u0301', true],
    ['cafe', 'café', false],
    ['straße', 'STRASSE', false],
    ['ёлка', 'Ёлка!', true],
    ['ёлка', 'ёлками', false],
    ['𐐀', '𐐨', true],
    ['a', '𐐨a', false],
    ['a', '💩a', true],
  ])('%s in %j: %s', (word, text, found) => {
    expect(matcher(word).matches(text)).toBe(found);
  });

  it('is found among many, also where it lies within another or overlaps it', () => {
    const many = matcher('she', 'he', 'hers', 'ushers now', '京都', '東京都庁');
    for (const text of ['she', 'he', 'hers', 'ushers now', '東京都', '東京都庁'])
      expect(many.matches(text), text).toBe(true);
    for (const text of ['ushers', 'sher', 'h e', '東京']) expect(many.matches(text), text).toBe(false);
    expect(matcher('bcd', 'abcde').matches('abcd bcd')).toBe(true);
    expect(matcher('迷惑メール', '惑').matches('迷惑メー')).toBe(true);
  });

  it('is kept in one spelling', () => {
    expect(checkWord('  Ｓpam\u200b ')).toEqual({ word: 'spam' });
    expect(checkWord('Free \n Money')).toEqual({ word: 'free money' });
  });

  it.each(['', '   ', '\u200b\ufeff', 'a\u0000b', 'x'.repeat(BLOCKED_WORD_LENGTH_MAX + 1)])(
    'is not %j',
    (text) => {
      expect(checkWord(text)).toEqual({ problem: expect.any(String) });
    },
  );
});

/** Each word at each place, by the rule as it is written. */
function naive(words: readonly string[], content: string): boolean {
  const characters = [...foldText(content)];
  return words.some((word) => {
    const wanted = [...word];
    return characters.some((_, at) => {
      const end = at + wanted.length;
      if (!wanted.every((character, place) => characters[at + place] === character)) return false;
      const left = isBounded(wanted[0]) && isBounded(characters[at - 1]);
      const right = isBounded(wanted.at(-1)) && isBounded(characters[end]);
      return !left && !right;
    });
  });
}

describe('the matcher', () => {
  const piece = fc.constantFrom(
    'a',
    'b',
    'A',
    'ab',
    'ba',
    'あ',
    '京',
    '都',
    '💩',
    '𐐀',
    ' ',
    '\u200b',
    '!',
    '1',
    'é',
  );
  const text = (max: number) => fc.array(piece, { maxLength: max }).map((pieces) => pieces.join(''));
  const words = fc
    .array(text(4), { minLength: 1, maxLength: 8 })
    .map((texts) => texts.flatMap((one) => ('word' in checkWord(one) ? [kept(one)] : [])));

  it('agrees with a naive one', () => {
    let found = 0;
    fc.assert(
      fc.property(words, text(14), (blocked, content) => {
        const expected = naive(blocked, content);
        found += expected ? 1 : 0;
        expect(new WordMatcher(blocked).matches(content)).toBe(expected);
      }),
      { numRuns: 3_000, seed: 7_447 },
    );
    expect(found).toBeGreaterThan(300);
    expect(found).toBeLessThan(2_700);
  });

  it('agrees with a naive one on any text', () => {
    const anyText = fc.string({ unit: 'binary', maxLength: 30 });
    fc.assert(
      fc.property(anyText, anyText, fc.nat({ max: 20 }), (before, after, at) => {
        const blocked = [kept(`x${before.slice(at, at + 2).replaceAll('\u0000', '')}`)];
        expect(new WordMatcher(blocked).matches(before + after)).toBe(naive(blocked, before + after));
      }),
      { seed: 7_447 },
    );
  });

  it('without words matches nothing', () => {
    expect(new WordMatcher([]).matches('anything')).toBe(false);
  });

  it('finds its end with a thousand words that are made to be slow', () => {
    // A pattern that tries each word at each place would need 1,000 × 100 × 60,000 steps here.
    const worst = Array.from(
      { length: BLOCKED_WORDS_MAX },
      (_, at) => `${'a'.repeat(96)}${at.toString(36).padStart(3, '0')}`,
    );
    const slow = new WordMatcher(worst);
    expect(slow.matches('a'.repeat(60_000))).toBe(false);
    expect(slow.matches(`${'a'.repeat(60_000)} ${worst[7]}`)).toBe(true);
  });
});
