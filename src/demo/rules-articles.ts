/**
 * The articles of the demo (kind 30023, addressable): each has its first text and the paragraphs that later
 * revisions add. Pure.
 */
import type { Language } from './rules-people.js';
import type { Theme } from './rules-texts.js';

export interface Article {
  readonly slug: string;
  readonly language: Language;
  readonly theme: Theme;
  readonly title: string;
  readonly summary: string;
  readonly paragraphs: readonly string[];
  /** What each later revision adds. */
  readonly additions: readonly string[];
}

export const ARTICLES: readonly Article[] = [
  {
    slug: 'a-walk-around-the-harbour',
    language: 'en',
    theme: 'harbour',
    title: 'A walk around the harbour in one hour',
    summary: 'Eight stops, two benches, one very good bun.',
    paragraphs: [
      'Begin at the ferry landing, before the first boat. The ropes are wet and the gulls are still polite.',
      'Walk past the fish market to the north pier. The third bollard has a bottle opener, nobody knows why.',
      'The lighthouse is closed, but its step is warm from ten o’clock on. Sit there for a while.',
    ],
    additions: [
      'Since the new fence was put up, take the stairs behind the boat shed instead of the ramp.',
      'A reader adds: the kiosk sells buns only until they are gone, which is at nine.',
    ],
  },
  {
    slug: 'reading-the-tide-table',
    language: 'en',
    theme: 'fishing',
    title: 'How to read the tide table',
    summary: 'What the small numbers mean, and when to stay at home.',
    paragraphs: [
      'The table has four times a day: two high, two low. The number beside each is the height in metres.',
      'Fish move with the water. The two hours around the turn are the best, and the bait matters less.',
      'If the wind is against the tide, the sea gets steep. Go home and mend something.',
    ],
    additions: ['Corrected: the heights are given from the chart datum, not from the pier.'],
  },
  {
    slug: 'a-relay-for-a-small-town',
    language: 'en',
    theme: 'nostr',
    title: 'A relay for a small town',
    summary: 'Why we run our own, and what we learned about deleting things.',
    paragraphs: [
      'We wanted one place where ferry delays, tomatoes and pull requests may stand next to each other.',
      'Topics keep the noise down: the festival committee talks a lot, and not everybody needs to hear it.',
      'The best part is boring: when somebody deletes a post, it is gone from the search as well.',
    ],
    additions: [
      'Update: we now have terms, and everybody accepted them, even the cats.',
      'Update: moderation is two people and a spreadsheet that we no longer need.',
    ],
  },
  {
    slug: 'minato-no-asa',
    language: 'ja',
    theme: 'photos',
    title: '港の朝を撮る',
    summary: '早起きと、あたたかい上着と、少しの待ち時間。',
    paragraphs: [
      '日の出の三十分前、北の桟橋に立ちます。水面はまだ青く、街灯がひとつずつ消えていきます。',
      '三脚より大事なのは手袋です。シャッターは急がず、船が通りすぎるのを待ちましょう。',
      '帰りに売店で熱いコーヒーを買えば、その日はもう勝ちです。',
    ],
    additions: ['追記：冬は防波堤の先がすべります。手前の階段からでも十分きれいです。'],
  },
  {
    slug: 'shiokaze-to-hatake',
    language: 'ja',
    theme: 'garden',
    title: '潮風に負けない畑づくり',
    summary: '貝殻、古い網、そして隣の人の知恵。',
    paragraphs: [
      '海のそばの畑は、まず風よけからです。古い網を二重に張るだけで、葉の傷みがずいぶん減ります。',
      '土には砕いた貝殻をまぜます。カタツムリよけにもなって一石二鳥です。',
      '水やりは朝のうちに。夕方の水は潮を呼ぶと、祖母はいつも言っていました。',
    ],
    additions: [
      '追記：さつまいもは思った以上に丈夫でした。来年は畝を増やします。',
      '追記：ローズマリーは風の通り道に植えると元気です。',
    ],
  },
  {
    slug: 'taiko-hajimete',
    language: 'ja',
    theme: 'festival',
    title: 'はじめての太鼓当番',
    summary: '夏祭りで太鼓をたたく人のための覚え書き。',
    paragraphs: [
      '練習は週に一度、船小屋の裏です。ばちは貸し出しますので、手ぶらで来てください。',
      '最初の節はゆっくり三回。提灯行列が角を曲がったら、二番太鼓に合図を送ります。',
      '終わったら水を飲んで、となりの人をほめること。これがいちばん大事です。',
    ],
    additions: ['追記：今年は出発が十五分早くなりました。'],
  },
];

/** The text of a revision; 0 is the first one. */
export function articleText({ title, paragraphs, additions }: Article, revision: number): string {
  return [`# ${title}`, ...paragraphs, ...additions.slice(0, revision)].join('\n\n');
}
