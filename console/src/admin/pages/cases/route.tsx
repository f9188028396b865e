/** Cases, one case, and held posts. */
import { IconGavel, IconHourglass } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/cases',
    load: () => import('./cases.js'),
    nav: {
      group: 'moderation',
      order: 10,
      label: { en: 'Cases', ja: 'ケース' },
      icon: IconGavel,
      role: 'moderator',
    },
  },
  { path: '/cases/$caseId', load: () => import('./case.js') },
  {
    path: '/held',
    load: () => import('./held.js'),
    nav: {
      group: 'moderation',
      order: 20,
      label: { en: 'Held posts', ja: '保留中の投稿' },
      icon: IconHourglass,
      role: 'moderator',
    },
  },
];
