import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EIGHTFOLD_MAX, growth } from '../../test/support/models/growth.js';
import {
  BLOCKED_WORD_LENGTH_MAX,
  BLOCKED_WORDS_MAX,
  checkWord,
  foldText,
  isBounded,
  WordMatcher,
} from './rules-words.js';

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
    ['spam', '\ufeffspam', true],
    ['spam', 's\u0001pa\ufff9m', true],
    ['free money', 'free\u2800money', true],
    ['spam', '🅂🄿🄰🄼', true],
    ['spam', '🆂🅿🅰🅼', true],
  ])('%s in %j: %s', (word, text, found) => {
    expect(matcher(word).matches(text)).toBe(found);
  });

  it.each([
    ['spam', 'buy sраm now', 'Cyrillic letters among Latin ones'],
    ['spam', 'SPАМ', 'Cyrillic capitals among Latin ones'],
    ['cocaine', 'сосаіnе', 'Cyrillic letters, one Latin'],
    ['sex', 'free ѕех here', 'Cyrillic letters alone, in a Latin text'],
    ['copy', 'a сору of it', 'a word that is also Russian, in a Latin text'],
    ['viagra', 'νiαgrα', 'Greek letters'],
    ['NUDE', 'ΝUDΕ', 'Greek capitals'],
    ['casino', 'ᴄᴀꜱɪɴᴏ', 'small capitals'],
    ['casino', 'ᏟASINO', 'Cherokee capitals'],
    ['casino', 'a ꓚꓮꓢꓲꓠꓳ', 'Lisu letters alone, in a Latin text'],
    ['copy', 'ⲥopy', 'a Coptic letter'],
    ['free money', 'b frее b mоnеу', 'a part of it only'],
    ['спам', 'cпaм', 'Latin letters in a Cyrillic word'],
    ['паж', 'пaж', 'one Latin letter in a Cyrillic word'],
  ])('%s is found in %s: %s', (word, text) => {
    expect(matcher(word, 'b').matches(text.replace('b frее b', 'frее'))).toBe(true);
    expect(matcher(word).matches(`${text}s и`.replace('s', 'ж'))).toBe(false);
  });

  it('is found after a shorter word that ends before it and does not count', () => {
    expect(matcher('free x y', 'ж').matches('frее x y')).toBe(true);
  });

  it.each([
    ['cop', 'Вынес сор из избы', 'Russian'],
    ['copy', 'сору и пыли', 'Russian'],
    ['copy', 'Не сору, а пыли: see https://example.com/a', 'Russian with an address'],
    ['cop', 'Сор', 'one word of Russian'],
    ['pop', 'рор из словаря', 'Russian'],
    ['сор', 'a cop is here', 'English, of a Russian word'],
    ['bot', 'вот он', 'Russian'],
    ['tom', 'том первый', 'Russian'],
    ['noo', 'του νόο', 'Greek'],
    ['tax', 'τα χέρια', 'Greek'],
    ['kai', 'και τα λοιπά', 'Greek'],
    ['kai', 'Το βιβλίο και the book', 'Greek with English'],
    ['a', 'α-ξ', 'Greek letters'],
    ['mm', '5 µm, 10 kΩ', 'units'],
    ['sms', 'SMSка пришла', 'a Latin word with a Russian ending'],
    ['no', 'これはノートです', 'Japanese'],
    ['oo', 'まるまる○○さん', 'Japanese'],
    ['ao', 'ハロー、ロロ', 'Japanese'],
    ['no', '오늘은 노래를 들었다', 'Korean'],
    ['o', '이응 ㅇㅇ', 'Korean'],
    ['he', 'Սա հայերեն է', 'Armenian'],
    ['sik', 'sık sık', 'Turkish'],
    ['bar', 'b4r', 'digits'],
  ])('%s is not in %s: %s', (word, text) => {
    expect(matcher(word).matches(text)).toBe(false);
  });

  it('is found among many words, also inside another one or overlapping it', () => {
    const many = matcher('she', 'he', 'hers', 'ushers now', '京都', '東京都庁');
    for (const text of ['she', 'he', 'hers', 'ushers now', '東京都', '東京都庁'])
      expect(many.matches(text), text).toBe(true);
    for (const text of ['ushers', 'sher', 'h e', '東京']) expect(many.matches(text), text).toBe(false);
    expect(matcher('bcd', 'abcde').matches('abcd bcd')).toBe(true);
    expect(matcher('迷惑メール', '惑').matches('迷惑メー')).toBe(true);
  });

  it('is stored in one spelling', () => {
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

/** Tries each word at each position, by the rule as it is documented. */
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

  it('agrees with a naive matcher', () => {
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

  it('agrees with a naive matcher on any text', () => {
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

  it('takes time proportional to the length of the text, whatever it contains', () => {
    const made = {
      'marks in disorder': '\u0301\u0327',
      'marks of half width': 'ｶﾞﾟ',
      'marks beyond the first plane': '\u{1d165}\u{1d16d}\u{1d167}',
      'one letter and its marks': `a${'\u0301\u0327'.repeat(15)}`,
      'letters that become eighteen': '\ufdfa',
      'unseen characters': 'a\u200b\u034f',
      'look-alikes': 'sраm ',
      jamo: '\u1100\u1161\u11a8\u11a8',
      sigma: "Σ'",
      blanks: ' \u2800',
    };
    const plain = matcher('spam', 'free money');
    for (const [name, piece] of Object.entries(made)) {
      const ratio = growth((length) => plain.matches(piece.repeat(length / piece.length)));
      expect(ratio, name).toBeLessThan(EIGHTFOLD_MAX);
    }
  });

  it('gives the same result for a long text as for its parts', () => {
    for (const piece of ['e\u0301', 'ｶﾞ', '\u1100\u1161\u11a8', '𝖘', 'a\u0327\u0301']) {
      const text = `x${piece.repeat(9_000)}`;
      expect(foldText(text)).toBe(text.normalize('NFKC').toLowerCase());
    }
  });

  it('finishes with a thousand words that are chosen to be slow', () => {
    // A pattern that tries each word at each position would need 1,000 × 100 × 60,000 steps here.
    const worst = Array.from(
      { length: BLOCKED_WORDS_MAX },
      (_, at) => `${'a'.repeat(96)}${at.toString(36).padStart(3, '0')}`,
    );
    const slow = new WordMatcher(worst);
    expect(slow.matches('a'.repeat(60_000))).toBe(false);
    expect(slow.matches(`${'a'.repeat(60_000)} ${worst[7]}`)).toBe(true);
  });
});
