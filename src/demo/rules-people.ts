/**
 * The people of the demo: invented names from a harbour, with a profile that says so. Pure. The first places
 * have a part in the story (`PARTS`).
 */
import type { Dice } from './rules-dice.js';

export type Language = 'en' | 'ja';

/** What happens to the person at each of the first places. */
export const PARTS = [
  'harbourmaster',
  'moderator',
  /** Asks to vanish (NIP-62). */
  'vanishing',
  /** Is erased, with a certificate. */
  'erased',
  /** Has asked for an erasure and is in the grace period. */
  'leaving',
  'spammer',
  /** Was rude once, and appeals. */
  'rude',
  'disabled',
  /** Joins with an invite. */
  'invited',
  /** Has a post that a rule holds by mistake. */
  'misunderstood',
] as const;
export type Part = (typeof PARTS)[number];

export const MEMBERS_MIN = 16;
export const MEMBERS_MAX = 400;

export interface Person {
  readonly place: number;
  readonly part: Part | 'neighbour';
  readonly language: Language;
  /** Also the NIP-05 name. */
  readonly name: string;
  readonly shownName: string;
  readonly about: string;
}

const EN_FIRST = [
  ...['Barnacle', 'Lantern', 'Driftwood', 'Pebble', 'Compass', 'Halyard', 'Kelp', 'Foghorn', 'Anchor'],
  ...['Mooring', 'Tidepool', 'Sailcloth', 'Cormorant', 'Oyster', 'Buoy', 'Marlin', 'Gull', 'Limpet'],
];
const EN_LAST = [
  ...['Bea', 'Otto', 'Mabel', 'Quill', 'Juno', 'Fitz', 'Pippa', 'Ned', 'Wren', 'Hugo', 'Tilly', 'Basil'],
  ...['Coral', 'Finn', 'Dot', 'Ivo', 'Nell', 'Rufus'],
];
const JA_FIRST: readonly (readonly [shown: string, name: string])[] = [
  ...([
    ['カモメの', 'kamome'],
    ['灯台の', 'toudai'],
    ['波止場の', 'hatoba'],
    ['いかりの', 'ikari'],
  ] as const),
  ...([
    ['網元の', 'amimoto'],
    ['潮だまりの', 'shiodamari'],
    ['浮きの', 'uki'],
    ['帆布の', 'hanpu'],
  ] as const),
  ...([
    ['朝凪の', 'asanagi'],
    ['夕凪の', 'yuunagi'],
    ['干物屋の', 'himono'],
    ['渡船の', 'tosen'],
  ] as const),
  ...([
    ['船大工の', 'funadaiku'],
    ['海霧の', 'umigiri'],
    ['磯の', 'iso'],
    ['汽笛の', 'kiteki'],
  ] as const),
];
const JA_LAST: readonly (readonly [shown: string, name: string])[] = [
  ...([
    ['ミナ', 'mina'],
    ['ハル', 'haru'],
    ['タロ', 'taro'],
    ['ナギ', 'nagi'],
    ['ソラ', 'sora'],
  ] as const),
  ...([
    ['コハル', 'koharu'],
    ['ウミ', 'umi'],
    ['シオン', 'shion'],
    ['リク', 'riku'],
  ] as const),
  ...([
    ['トモ', 'tomo'],
    ['アオイ', 'aoi'],
    ['マホ', 'maho'],
    ['ケンタ', 'kenta'],
  ] as const),
  ...([
    ['サヨ', 'sayo'],
    ['イサナ', 'isana'],
    ['ツムギ', 'tsumugi'],
  ] as const),
];

const EN_ABOUT = [
  'Mends nets in the morning and keyboards at night.',
  'Knows every cat between the pier and the post office.',
  'Grows tomatoes in old fish crates.',
  'Takes one photo of the lighthouse every day.',
  'Writes small Nostr tools and drinks large coffees.',
  'Keeps the ferry timetable in a notebook, with remarks.',
  'Fishes badly, cooks well.',
  'Carries the second drum at the summer festival.',
  'Reads tide tables for fun.',
  'Paints boats, mostly the right colour.',
];
const JA_ABOUT = [
  '朝は網、夜はキーボードをなおしています。',
  '桟橋から郵便局までの猫はみんな友だち。',
  '魚の箱でトマトを育てています。',
  '毎日いちまい、灯台の写真を撮ります。',
  '小さなNostrの道具と大きなコーヒーが好き。',
  'フェリーの時刻表は手書き派です。',
  '釣りは下手、料理は得意。',
  '夏祭りでは二番太鼓の担当です。',
  '潮見表を読むのが趣味です。',
  '船のペンキ塗りならおまかせください。',
];

const SUFFIX: Record<Language, string> = {
  en: 'A demo persona: invented, like the town.',
  ja: 'デモ用の架空の人物です。',
};

const PART_ABOUT: Partial<Record<Part, string>> = {
  harbourmaster: 'Harbourmaster of this town: announcements, keys, lost umbrellas.',
  moderator: 'Keeps the conversation friendly. Write to me when something is wrong.',
  spammer: 'Offers, offers, offers.',
};

type Named = Pick<Person, 'name' | 'shownName'>;

/** All names of a language, in an order of their own. */
function names(dice: Dice): Record<Language, Named[]> {
  const en = EN_FIRST.flatMap((first) =>
    EN_LAST.map((last) => ({
      name: `${first}-${last}`.toLowerCase(),
      shownName: `${first} ${last}`,
    })),
  );
  const ja = JA_FIRST.flatMap(([shownFirst, first]) =>
    JA_LAST.map(([shownLast, last]) => ({ name: `${first}-${last}`, shownName: shownFirst + shownLast })),
  );
  return { en: dice.for('en').shuffled(en), ja: dice.for('ja').shuffled(ja) };
}

export function makePeople(dice: Dice, members: number): Person[] {
  const left = names(dice.for('names'));
  const about = dice.for('about');
  return Array.from({ length: members }, (_, place): Person => {
    const part = PARTS[place] ?? 'neighbour';
    // The person with a held post writes English: the words of the rule are English in that post.
    const language = part === 'misunderstood' || place % 5 < 3 ? 'en' : 'ja';
    const said = PART_ABOUT[part as Part] ?? about.pick(language === 'en' ? EN_ABOUT : JA_ABOUT);
    const spaced = language === 'en' || PART_ABOUT[part as Part] !== undefined ? ' ' : '';
    return { place, part, language, ...left[language].pop()!, about: `${said}${spaced}${SUFFIX[language]}` };
  });
}

/** The content of a profile (kind 0). No picture: it would be loaded from somewhere else. */
export function profileOf({ name, shownName, about }: Person, remark = ''): string {
  return JSON.stringify({ name, display_name: shownName, about: `${about}${remark}` });
}
