/** Search as members have it. */
import { IconListSearch } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/search',
    load: () => import('./search.js'),
    nav: {
      group: 'content',
      order: 30,
      label: { en: 'Search', ja: '検索' },
      icon: IconListSearch,
    },
  },
];
