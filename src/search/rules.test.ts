import fc from 'fast-check';
import * as nip19 from 'nostr-tools/nip19';
import { describe, expect, it, vi } from 'vitest';
import { settingsFrom } from '../communities/rules-settings.js';
import { type Filter, matchesNothing, parseFilter, valuesIn } from '../events/rules/filter.js';
import { pubkeyOf } from '../events/rules/public-key-text.js';
import { isRefusal } from '../events/rules/reply.js';
import { matchSearch, parseSearch, type SearchQuery, toRankQuery, toTsquery } from './rules.js';
import { scoreOf } from './rules-score.js';
import { TEXT_LENGTH_MAX, toTsvector, type Words, wordsInSteps, wordsOf } from './rules-words.js';

const KEY = 'ab'.repeat(32);
interface Draft {
  readonly kind?: number;
  readonly tags?: string[][];
  readonly bound?: string[];
}
const wordsIn = (content: string, { kind = 1, tags = [], bound = [] }: Draft = {}): Words =>
  wordsOf({ id: '', pubkey: KEY, created_at: 0, sig: '', kind, tags, content, bound });
const query = (text: string) => parseSearch(text) as SearchQuery;
const finds = (text: string, content: string, draft?: Draft) =>
  matchSearch(query(text), wordsIn(content, draft));
const lexemes = (words: Words) => [...words.keys()];

/** As long as an event may be, and expensive to split. */
const HOSTILE = [
  `#a${':'.repeat(TEXT_LENGTH_MAX - 3)}b`,
  `é #a${'-'.repeat(TEXT_LENGTH_MAX - 5)}b`,
  `a${'\u0301\u0323'.repeat(20_000)}`,
  `ｶ${'\uff9e\u0301'.repeat(16_000)}`,
  '\ufdfa'.repeat(30_000),
  '\u3300'.repeat(30_000),
  'ア'.repeat(30_000),
  'あいうえお'.repeat(6_000),
  '一'.repeat(30_000),
  'ก'.repeat(30_000),
  'ភ'.repeat(30_000),
  'က'.repeat(30_000),
  "a'".repeat(40_000),
  '❤\u200d'.repeat(15_000),
  '가'.repeat(30_000),
  '한국어에서는'.repeat(15_000),
  'ا\u064b\u0651'.repeat(30_000),
  'ά\u0345'.repeat(30_000),
  'а\u0301'.repeat(40_000),
  '--a'.repeat(30_000),
  'é-a'.repeat(30_000),
  'c++'.repeat(30_000),
  'ヴァ'.repeat(40_000),
  'a1'.repeat(40_000),
  '學習'.repeat(30_000),
  '#é '.repeat(20_000),
];

describe('words of a post', () => {
  it('are split in steps where it is long, with the same result', () => {
    const event = { id: '', pubkey: KEY, created_at: 0, sig: '', kind: 1, tags: [] };
    const content = Array.from({ length: 3_000 }, (_, number) => `w${number}`).join(' ');
    const work = wordsInSteps({ ...event, content });
    let steps = 0;
    let next = work.next();
    for (; !next.done; next = work.next()) steps += 1;
    expect(steps).toBeGreaterThan(5);
    expect(next.value).toEqual(wordsOf({ ...event, content }));
    expect(wordsInSteps({ ...event, content: 'a short one' }).next().done).toBe(true);
  });

  it.each([
    ['case and width', 'ＮＯＳＴＲ Relays', 'nostr relay'],
    ['English endings', 'three harbours, running ships', 'harbour run ship'],
    ['accents of Latin letters', 'Café Ørsted naïve Straße', 'cafe orsted naive strasse'],
    ['an apostrophe', "the sailor's boat doesn't sink", 'sailor doesnt'],
    ['the other apostrophe', 'it doesn’t', "doesn't"],
    ['half-width kana', 'ｶﾀｶﾅ', 'カタカナ'],
    ['a long vowel at the end', 'サーバーが落ちた', 'サーバ'],
    ['a missing long vowel', 'サーバが落ちた', 'サーバー'],
    ['a part of a compound', '東京都に住む', '東京'],
    ['a part across words', '東京都に住む', '京都'],
    ['one character', '小さな港町', '港'],
    ['the last character', '静かな港', '港'],
    ['Thai words', 'ภาษาไทยสวยมาก', 'ไทย'],
    ['an emoji', 'good morning ☕️!', '☕'],
    ['an emoji as a picture', 'fine 👍', '👍\ufe0f'],
    ['an emoji as a text', 'fine 👍\ufe0f', '"fine 👍"'],
    ['a joined emoji, spelt without variation selectors', 'us ❤\ufe0f‍🔥', '❤‍🔥'],
    ['another drawing of a character', '葛\u{e0100}飾区', '葛飾'],
    ['an emoji of several parts', 'us 👩‍👩‍👧', '👩‍👩‍👧'],
    ['the host of an address', 'see https://example.org/docs/Relay-List?x=1', 'example.org'],
    ['the path of an address', 'see https://example.org/docs/Relay-List?x=1', '"relay list"'],
    ['the word of a hashtag', 'I like #boats', 'boat'],
    ['a name that is mentioned', 'thanks @alice!', 'alice'],
    ['a Korean word without its particle', '어제 서울에서는', '서울'],
    ['a part of a Korean compound', '제주도여행', '여행'],
    ['one Korean syllable with its particle', '책을 읽다', '책'],
    ['an Arabic word without its article', 'زرت المدينة', 'مدينة'],
    ['an Arabic word with what is joined to it', 'السوق والمدينة', 'المدينة'],
    ['Arabic without vowel marks', 'كِتَابٌ', 'كتاب'],
    ['Arabic without tatweel', 'مرحبـــا', 'مرحبا'],
    ['another alef', 'أحمد', 'احمد'],
    ['digits of Arabic', '٢٠٢٤', '2024'],
    ['Greek without accents, in capitals', 'Ο δρόμος', 'ΔΡΟΜΟΣ'],
    ['a case of Greek', 'της Αθήνας', 'αθηνα'],
    ['a case of Russian', 'в Москве', 'Москва'],
    ['ё as е', 'ёжик', 'ежик'],
    ['what an apostrophe joins in French', 'boire de l’eau', 'eau'],
    ['the same in the query', 'eau', "d'eau"],
    ['simplified Chinese', '機器學習', '机器学习'],
    ['traditional Chinese', '台湾', '臺灣'],
    ['the past of a verb', '昼に食べた', '食べる'],
    ['its polite form', '毎朝走ります', '走る'],
    ['a form that one verb alone has', '東京に行った', '行く'],
    ['another form of what is wished', '公園で遊んだ', '遊びたい'],
    ['a verb in kana', 'できました', 'できる'],
    ['an adjective before another word', '静かに暮らす', '静かな'],
    ['the other kana in a compound', 'らーめん屋', 'ラーメン屋'],
    ['an Arabic word that somebody owns', 'هاتفي الجديد', 'هاتف'],
    ['the plural of a short word', 'three buses', 'bus'],
    ['the past of an adjective', '美味しかった', '美味しい'],
    ['the other kana', 'ラーメン', 'らーめん'],
    ['the other kana of a short word', 'うちのネコ', 'ねこ'],
    ['and the other way round', 'ねこが好き', 'ネコ'],
    ['ヴァ as バ', 'ヴァイオリン', 'バイオリン'],
    ['a word before digits', 'my iPhone15', 'iphone'],
    ['digits behind a word', 'my iPhone 15', 'iphone15'],
    ['a word before another script', 'AI가 그린', 'ai'],
    ['a name of code', 'modern C++17', 'c++'],
    ['a name of code in other writing', 'on nodejs', 'node.js'],
    ['and the other way round', 'on Node.js', 'nodejs'],
    ['.NET behind a name', 'ASP.NET', '.net'],
    ['a hidden file', 'commit your .env by accident', '.env'],
    ['a hidden file without its dot', 'commit your .env by accident', 'env'],
    ['a Korean compound that is written apart', '서울 여행을 갔다', '서울여행'],
    ['an acronym in the plural', 'two TVs', 'tv'],
    ['a name that is asked for as a mention', 'thanks alice', '@alice'],
  ])('are found by %s', (_what, content, text) => {
    expect(finds(text, content)).toBe(true);
  });

  it.each([
    ['dakuten', 'はと', 'ばと'],
    ['another word with the same beginning', 'harbour', 'harb'],
    ['the scheme of an address', 'see https://example.org', 'https'],
    ['the query of an address', 'see https://example.org/?secret=1', 'secret'],
    ['a hashtag that is only a word', 'boats', '#boats'],
    ['a short word that ends like a plural', 'alice.github.io', 'iOS'],
    ['news that are only new', 'a new boat', 'news'],
    ['a word that the stemmer takes for another', 'the universe', 'university'],
    ['a door that is no port', 'la porte', 'port'],
    ['a verb form that is no acronym', "j'ai faim", 'AI'],
    ['one Korean syllable inside a word', '새로운 정책', '책'],
    ['a word that a particle would make', '영화가 길다', '화가'],
    ['an Arabic word that another only begins with', 'بطاقة البنك', 'طاقة'],
    ['another Arabic word with an ending', 'المكتب', 'مكتبة'],
    ['a Greek word of another declension', 'ο χώρος', 'χώρα'],
    ['two kana inside other words', '静かに', 'カニ'],
    ['two of the other kana inside a word', 'オーストラリア', 'とら'],
    ['a noun with the character of a verb', '飲料水', '飲む'],
    ['another name of code', 'modern C++', 'C#'],
    ['the letter alone', 'modern C++', 'c'],
    ['a word without its dot', 'a fishing net', '.net'],
    ['a hidden file that is only a word', 'the env is set', '.env'],
    ['the parts of a Korean compound, apart', '여행은 서울', '서울여행'],
    ['a part of a joined emoji', 'us ❤\ufe0f‍🔥', '🔥'],
  ])('are not found by %s', (_what, content, text) => {
    expect(finds(text, content)).toBe(false);
  });

  it('of a title weigh more than those of the content', () => {
    const words = toTsvector(
      wordsIn('second', {
        tags: [
          ['title', 'First'],
          ['summary', 'third'],
        ],
      }),
    );
    expect(words).toContain("'first':2A");
    expect(words).toMatch(/'third':\d+B/);
    expect(words).toMatch(/'second':\d+B/);
  });

  it('of a profile are its names and its description; a content that is not JSON has none', () => {
    const profile = JSON.stringify({
      name: 'Minato',
      display_name: '港',
      about: 'a harbour',
      picture: 'cat',
    });
    const words = wordsIn(profile, { kind: 0 });
    expect(lexemes(words)).toEqual(expect.arrayContaining(['minato', '港', 'harbour']));
    expect(lexemes(words)).not.toContain('cat');
    for (const content of ['{', 'null', '[]', '{"name":1}'])
      expect(wordsIn(content, { kind: 0 }).size).toBe(0);
  });

  it('include topics, also those that it is bound to, and mentions', () => {
    const profile = nip19.nprofileEncode({ pubkey: 'cd'.repeat(32), relays: ['wss://x'] });
    const content = `hello nostr:${nip19.npubEncode(KEY)} and nostr:${profile}`;
    const tags = [
      ['t', 'Kukuri:Boats'],
      ['p', 'ef'.repeat(32)],
      ['p', 'no key'],
    ];
    const found = lexemes(wordsIn(content, { tags, bound: ['kukuri:global'] }));
    expect(found).toEqual(
      expect.arrayContaining([
        `@${KEY.slice(0, 16)}`,
        `@${'cd'.repeat(8)}`,
        `@${'ef'.repeat(8)}`,
        '#kukuri:boats',
        '#kukuri:global',
      ]),
    );
    expect(found).not.toContain('@no key');
    expect(finds(nip19.npubEncode(KEY), content)).toBe(true);
    expect(finds(`nostr:${nip19.npubEncode('00'.repeat(32))}`, content)).toBe(false);
  });

  it('are limited in number for any post', () => {
    const hostile = [
      'word '.repeat(50_000),
      Array.from({ length: 50_000 }, (_, at) => `w${at}`).join(' '),
      '東京'.repeat(50_000),
      'x'.repeat(90_000),
      '👩‍👩‍👧'.repeat(5_000),
      `#${'t'.repeat(90_000)}`,
    ];
    for (const content of hostile) {
      const words = wordsIn(content);
      const places = [...words.values()].flat();
      expect(places.length).toBeLessThanOrEqual(6_000);
      expect(Math.max(...places.map((entry) => entry & 16_383))).toBeLessThan(16_383);
      expect(Math.max(...[...words.values()].map(({ length }) => length))).toBeLessThanOrEqual(250);
      expect(Math.max(...lexemes(words).map(({ length }) => length))).toBeLessThanOrEqual(65);
    }
  });

  it('are read from the first characters of a long post', () => {
    const piece = fc.constantFrom(
      ...HOSTILE,
      '東京都の港 ',
      'harbour lights ',
      '#a:-',
      '👍',
      '\ufdfa',
      '\ud800',
    );
    fc.assert(
      fc.property(
        fc.array(fc.tuple(piece, fc.integer({ min: 1, max: 2_000 })), { maxLength: 30 }),
        (pieces) => {
          const text = pieces.map(([of, length]) => of.repeat(20).slice(0, length)).join('');
          expect(wordsIn(text)).toEqual(wordsIn(text.slice(0, TEXT_LENGTH_MAX)));
        },
      ),
      { numRuns: 50 },
    );
  });

  it('of a run stay whole at the end of a piece', () => {
    expect(lexemes(wordsIn('ภาษาไทย'.repeat(150)))).toEqual(lexemes(wordsIn('ภาษาไทย')));
  });

  it('are read from no more text than the positions can hold', () => {
    const segmented = vi.spyOn(Intl.Segmenter.prototype, 'segment');
    const normalized = vi.spyOn(String.prototype, 'normalize');
    try {
      for (const content of HOSTILE) {
        segmented.mockClear();
        normalized.mockClear();
        wordsIn(content);
        const handed = segmented.mock.calls.reduce((sum, [text]) => sum + text.length, 0);
        expect(handed, content.slice(0, 4)).toBeLessThan(1.5 * TEXT_LENGTH_MAX);
        const pieces = segmented.mock.calls.map(([text]) => text.length);
        expect(Math.max(0, ...pieces)).toBeLessThanOrEqual(256);
        expect(normalized.mock.contexts.every((text) => String(text).length <= TEXT_LENGTH_MAX)).toBe(true);
      }
    } finally {
      segmented.mockRestore();
      normalized.mockRestore();
    }
  });

  it('of all its texts together are read from a limited number of characters, folded or not', () => {
    const tags = Array.from({ length: 2_000 }, () => ['title', '\ufdfa'.repeat(600)]);
    const folded = vi.spyOn(String.prototype, 'toLowerCase');
    try {
      wordsIn('\ufdfa'.repeat(600), { tags });
      const length = folded.mock.contexts.reduce<number>((sum, text) => sum + String(text).length, 0);
      expect(length).toBeGreaterThan(0);
      expect(length).toBeLessThanOrEqual(TEXT_LENGTH_MAX);
    } finally {
      folded.mockRestore();
    }
  });

  it('NUL, lone surrogates and quotes are harmless', () => {
    const words = wordsIn("sea\u0000wind \ud800 it's \\ \udc00boat", { tags: [['t', "a'b\\c\u0000\ud800"]] });
    expect(lexemes(words)).toEqual(["#a'b\\c\ufffd", 'sea', 'wind', 'it', 'boat']);
    expect(toTsvector(words)).toContain("'#a''b\\\\c");
  });
});

describe('a query', () => {
  it.each([
    ['all words are needed', 'red boat', 'a boat', false],
    ['in any order', 'boat red', 'a red boat', true],
    ['a phrase is in a row', '"red boat"', 'a red small boat', false],
    ['a phrase that is there', '"red boat"', 'the red boats', true],
    ['an unfinished quote is a phrase', '"red boat', 'a boat, red', false],
    ['an excluded word', 'boat -red', 'a red boat', false],
    ['an excluded word that is not there', 'boat -red', 'a blue boat', true],
    ['an excluded phrase', 'boat -"red sail"', 'a boat with a red sail', false],
    ['part of an excluded phrase is no harm', 'boat -"red sail"', 'a red boat with a sail', true],
    ['words written together are in a row', 'well-known', 'known well', false],
    ['a hashtag', '#boat 東京', '東京 #boat', true],
    ['a run in the middle of a run', '京都の秋', '東京都の秋祭り', true],
    ['a run that particles join, apart', '東京の秋', '東京と京都の秋', true],
    ['one of its parts alone', '東京の秋', '京都の秋', false],
    ['such a run in quotes', '"東京の秋"', '東京と京都の秋', false],
    ['such a run excluded', '京都 -東京の秋', '東京と京都の秋', true],
    ['a run without particles is in a row', '東京都', '東京の都', false],
    ['a mixture of scripts', 'Nostr入門', '入門書: Nostr', true],
    ['a mixture in quotes', '"Nostr入門"', '入門書: Nostr', false],
    ['the end of one text and the beginning of the next', '"title content"', 'content', false],
    ['extensions are passed over', 'boat include:spam language:en', 'a boat', true],
    ['extensions that are not known are too', 'boat sort:hot min_score:5 -foo:bar key:"a b"', 'a boat', true],
    ['in quotes they are text', 'boat "sort:hot"', 'a boat', false],
    ['in quotes they are found as text', '"sort:hot"', 'sort: hot first', true],
    ['a time is text', '12:30', 'from 12:30 on', true],
    ['a time that is another', '12:30', 'from 12 to 30', false],
    ['a drive is text', 'C:\\x', 'in C:\\x', true],
    ['an address is text', 'http://example.com/boats', 'example com', false],
    ['a name with two colons is text', 'std::vector', 'a vector', false],
    ['a host and its port are text', 'localhost:7447', 'on localhost', false],
    ['a word before a colon is a word', 'note: boat', 'a boat', false],
    ['a flag excludes nothing', 'push --force', 'git push --force', true],
    ['a flag is more than its word', 'push --force', 'push with force', false],
    ['a flag is not the beginning of another', '--force', 'push --force-with-lease', false],
    ['a short flag excludes nothing', 'rebase -i', 'git rebase -i', true],
    ['a short flag is needed', 'rebase -i', 'git rebase', false],
    ['a flag in quotes', '"push --force"', 'git push --force', true],
    ['a flag in quotes that is only a word', '"push --force"', 'push force', false],
    ['an excluded name of code', 'code -c++', 'code in C++', false],
    ['a particle in a query', '서울에서', '서울은 밤에도 밝다', true],
    ['a particle behind another script', 'AI가', 'AI는', true],
    ['a verb in its forms', '映画を見る', '昨日見た映画', true],
    ['a verb in quotes is as it is written', '"食べる"', '食べた', false],
    ['an excluded verb too', '寿司 -食べる', '寿司を食べた', true],
    ['Chinese particles join too', '北京的天气', '天气预报：北京', true],
    ['a character that is a particle elsewhere', '目的地', '目标和地方', false],
  ])('%s: %s', (_rule, text, content, found) => {
    expect(finds(text, content, { tags: [['title', 'title']] })).toBe(found);
  });

  it('that is empty or has only extensions counts as no query', () => {
    for (const text of ['', '  ', 'include:spam', 'domain:example.com  nsfw:false'])
      expect(parseSearch(text)).toBeUndefined();
    expect(parseFilter({ search: ' ' }, { 'limits.filterValuesMax': 10 })).toEqual({ tags: [] });
  });

  it('without a usable word matches nothing', () => {
    for (const text of [
      '"http://--"',
      '-"https://__"',
      'http://--',
      '!!!',
      '""',
      '-',
      '& | ! <-> :*',
      '\u0000',
      '\ud800',
    ]) {
      expect(matchSearch(query(text), wordsIn(`a ${text} b`)), text).toBe(false);
      expect(matchesNothing(parseFilter({ search: text }, { 'limits.filterValuesMax': 10 }) as Filter)).toBe(
        true,
      );
    }
  });

  it('reads no places of a phrase that lacks a word, and those of each word once for all queries', () => {
    class Counted extends Map<string, readonly number[]> {
      reads = 0;
      override get(lexeme: string): readonly number[] | undefined {
        this.reads += 1;
        return super.get(lexeme);
      }
    }
    const words = new Counted(wordsIn('a '.repeat(300)));
    const phrase = `"${'a '.repeat(100)}b"`;
    expect(matchSearch(query(phrase), words)).toBe(false);
    expect(words.reads).toBe(0);
    for (let again = 0; again < 10; again += 1)
      expect(matchSearch(query(`"${'a '.repeat(100 + again)}"`), words)).toBe(true);
    expect(words.reads).toBe(1);
  });

  it('finds a phrase wherever it stands, and only there', () => {
    const word = fc.constantFrom('a', 'b', 'c');
    const text = fc.array(word, { minLength: 1, maxLength: 120 });
    fc.assert(
      fc.property(text, fc.array(word, { minLength: 2, maxLength: 6 }), (post, phrase) => {
        const expected = ` ${post.join(' ')} `.includes(` ${phrase.join(' ')} `);
        expect(finds(`"${phrase.join(' ')}"`, post.join(' '))).toBe(expected);
      }),
    );
  });

  it('puts required terms before excluded ones, and counts its words', () => {
    expect(query('-red boat -blue "old sail"').terms.map(({ excluded }) => excluded)).toEqual([
      false,
      false,
      true,
      true,
    ]);
    const filter = (search: string) => parseFilter({ search, kinds: [1] }, { 'limits.filterValuesMax': 10 });
    expect(valuesIn([filter('boat -red') as Filter])).toBe(21);
  });

  it('for one character uses the first characters of words, which are computed once', () => {
    const words = wordsIn(Array.from({ length: 500 }, (_, at) => `港${at} w${at}`).join(' '));
    const keys = vi.spyOn(words, 'keys');
    for (let time = 0; time < 5; time += 1) {
      expect(matchSearch(query('港'), words)).toBe(true);
      expect(matchSearch(query('海'), words)).toBe(false);
    }
    expect(keys).toHaveBeenCalledTimes(1);
  });

  it('is refused when it is too long or has too many words', () => {
    expect(isRefusal(parseSearch('a'.repeat(256)))).toBe(false);
    expect(parseSearch('a'.repeat(257))).toMatchObject({ refused: 'invalid' });
    expect(isRefusal(parseSearch('boat '.repeat(16)))).toBe(false);
    expect(parseSearch('boat '.repeat(17))).toMatchObject({ refused: 'invalid' });
  });

  it('as SQL has weights only where neighbours matter, and is escaped', () => {
    expect(toTsquery(query('東京 boats'), undefined)).toBe("('东京') & ('boat')");
    expect(toTsquery(query('東京都'), undefined)).toBe(
      "(('东京':ABC <-> '都':ABC) | ('东京':D <-> '京都':D))",
    );
    expect(toTsquery(query('港'), undefined)).toBe("('港':*)");
    expect(toTsquery(query('-spam'), new Set(["It's", 'b']))).toBe("!('spam') & ('#it''s' | '#b')");
    expect(toTsquery(query('sea'), new Set(['b', ' ']))).toBe("('sea')");
    expect(toRankQuery(query('red -blue "old boat"'))).toBe("'red' | 'old' | 'boat'");
    expect(toRankQuery(query('-blue'))).toBeUndefined();
  });
});

describe('public keys in texts', () => {
  it('are read with their checksum', () => {
    expect(pubkeyOf(nip19.npubEncode(KEY))).toBe(KEY);
    expect(pubkeyOf(nip19.nprofileEncode({ pubkey: KEY, relays: ['wss://relay.example'] }))).toBe(KEY);
    const wrong = nip19.npubEncode(KEY).replace(/.$/, (last) => (last === 'q' ? 'p' : 'q'));
    for (const text of [wrong, nip19.noteEncode(KEY), 'npub1', 'npub1b', '', 'nprofile1qqqqqqqqqqqq'])
      expect(pubkeyOf(text), text).toBeUndefined();
  });
});

describe('a score', () => {
  const settings = settingsFrom(new Map());
  const DAY = 86_400;
  const score = (references: number, ageDays: number, over = {}) =>
    scoreOf({ text: 0.1, references }, 100 * DAY, (100 + ageDays) * DAY, { ...settings, ...over });

  it('is the score of the words, raised by freshness and by references', () => {
    expect(score(0, 0)).toBe(0.15);
    expect(score(0, 7)).toBe(0.125);
    expect(score(100, 0)).toBe(0.18);
    expect(score(5_000, 0)).toBe(0.18);
    expect(score(0, 3_000)).toBe(0.1);
  });

  it('follows the settings; a post dated tomorrow is no fresher than one of now', () => {
    const none = { 'search.freshnessWeight': 0, 'search.popularityWeight': 0 };
    expect(score(50, 0, none)).toBe(0.1);
    expect(score(0, -30)).toBe(score(0, 0));
    expect(score(0, 14, { 'search.freshnessDays': 14 })).toBe(0.125);
  });
});
