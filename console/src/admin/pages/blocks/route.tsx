/** Authors, words and addresses that are refused on arrival. */
import { IconBan } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/blocks',
    load: () => import('./blocks.js'),
    nav: {
      group: 'moderation',
      order: 60,
      label: { en: 'Blocks', ja: 'ブロック' },
      icon: IconBan,
      role: 'moderator',
    },
  },
];
