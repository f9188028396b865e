/** Texts of the search as members have it. */
import { defineTexts } from '../../../shared/i18n.js';

export const texts = defineTexts('search', {
  en: {
    title: 'Search',
    about: 'What somebody who has not signed in finds here: the same index, the same order, the same rules.',
    words: 'Words',
    wordsHint: 'Words, "a phrase", -without, #hashtag',
    topic: 'Topic',
    topicHint: 'All topics',
    results: 'Results',
    score: 'Score {{score}}',
    start: 'Search as your members do',
    startText: 'A post must have all the words. The best match comes first; newer posts rank higher.',
    none: 'Nothing found',
    noneText: 'Members find nothing for these words either. Try fewer words, or another spelling.',
    closed: 'Only members search here',
    closedText:
      'Clients must sign in to this community. To search as yourself, use the key of your browser extension.',
    sign: 'Search with my extension',
    noExtension:
      'This browser has no Nostr extension (NIP-07). Find posts by words on the page Events instead.',
    toEvents: 'Find in events',
    needsTopic: 'Name a topic: in this community every search is in a topic.',
    behind: 'Changes that are not in the index yet: {{count}}',
    rebuilding: 'The index is being rebuilt: older posts may be missing.',
    notReady: 'The index is not complete yet',
    notReadyText: 'It is being built. The page Consumers shows how far it is.',
  },
  ja: {
    title: '検索',
    about: 'サインインしていない人の検索結果です。索引も順序も規則も、メンバー向けの検索と同じです。',
    words: '言葉',
    wordsHint: '言葉、"フレーズ"、-除外、#ハッシュタグ',
    topic: 'トピック',
    topicHint: 'すべてのトピック',
    results: '検索結果',
    score: 'スコア {{score}}',
    start: 'メンバーと同じように検索できます',
    startText: 'すべての言葉を含む投稿を、よく一致する順に表示します。新しい投稿ほど上位になります。',
    none: '見つかりませんでした',
    noneText: 'メンバーが検索しても見つかりません。言葉を減らすか、表記を変えてみてください。',
    closed: '検索できるのはメンバーだけです',
    closedText:
      'このコミュニティではサインインが必要です。ご自身として検索するには、ブラウザー拡張機能の鍵を使ってください。',
    sign: '拡張機能の鍵で検索',
    noExtension:
      'このブラウザーには Nostr の拡張機能（NIP-07）がありません。代わりに「イベント」のページで言葉から探せます。',
    toEvents: 'イベントから探す',
    needsTopic: 'トピックを指定してください。このコミュニティではトピックごとに検索します。',
    behind: '索引に未反映の変更：{{count}} 件',
    rebuilding: '索引を作り直しています。古い投稿が見つからないことがあります。',
    notReady: '索引はまだ完成していません',
    notReadyText: '作成中です。進み具合は「コンシューマー」のページで確認できます。',
  },
});
