/** Texts of blocks. */
import { defineTexts } from '../../../shared/i18n.js';

export const texts = defineTexts('blocks', {
  en: {
    title: 'Blocks',
    about:
      'What is refused on arrival. A change applies within a second. Posts that are stored already stay.',
    kinds: { authors: 'Authors', words: 'Words', addresses: 'Addresses' },
    kindsAbout: {
      authors: 'New posts by these keys are refused.',
      words: 'Posts with these words in their text are refused, in any spelling.',
      addresses: 'Clients from these addresses and networks are refused, and their connections are closed.',
    },
    value: { authors: 'Author', words: 'Word', addresses: 'Address or network' },
    example: { authors: 'npub1…', words: 'casino', addresses: '192.0.2.0/24' },
    reason: 'Reason',
    since: 'Since',
    banInCase: 'Ban in a case',
    block: 'Block',
    blocked: 'Blocked: {{value}}',
    unblock: 'Unblock',
    unblockOne: 'Unblock {{value}}',
    unblocked: 'No longer blocked: {{value}}',
    notAKey: 'This is neither an npub nor 64 hex characters.',
    none: {
      authors: 'No author is blocked',
      words: 'No word is blocked',
      addresses: 'No address is blocked',
    },
    noneAbout: 'Operators can block here. A ban in a case blocks its author.',
  },
  ja: {
    title: 'ブロック',
    about: '届いた時点で拒否するものです。変更は 1 秒以内に反映されます。保存済みの投稿は残ります。',
    kinds: { authors: '投稿者', words: '言葉', addresses: 'アドレス' },
    kindsAbout: {
      authors: 'これらの鍵による新しい投稿を拒否します。',
      words: '本文にこれらの言葉を含む投稿を、表記の違いも含めて拒否します。',
      addresses: 'これらのアドレスやネットワークからの接続を拒否し、接続中のものは切断します。',
    },
    value: { authors: '投稿者', words: '言葉', addresses: 'アドレスまたはネットワーク' },
    example: { authors: 'npub1…', words: 'カジノ', addresses: '192.0.2.0/24' },
    reason: '理由',
    since: '開始',
    banInCase: 'ケースでのブロック',
    block: 'ブロックする',
    blocked: 'ブロックしました：{{value}}',
    unblock: '解除',
    unblockOne: '{{value}} のブロックを解除',
    unblocked: 'ブロックを解除しました：{{value}}',
    notAKey: 'npub でも 64 桁の 16 進数でもありません。',
    none: {
      authors: 'ブロック中の投稿者はいません',
      words: 'ブロック中の言葉はありません',
      addresses: 'ブロック中のアドレスはありません',
    },
    noneAbout: 'オペレーターがここでブロックできます。ケースで投稿者をブロックした場合もここに表示されます。',
  },
});
