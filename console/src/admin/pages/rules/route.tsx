/** Rules that judge each event before it is stored. */
import { IconListCheck } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/rules',
    load: () => import('./rules.js'),
    nav: {
      group: 'moderation',
      order: 30,
      label: { en: 'Rules', ja: 'ルール' },
      icon: IconListCheck,
      role: 'moderator',
    },
  },
  { path: '/rules/$ruleId', load: () => import('./rule.js') },
];
