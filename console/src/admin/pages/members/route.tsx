/** Members: the list with its search, and one page for each. */
import { IconUsers } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/members',
    load: () => import('./list.js'),
    nav: { group: 'people', order: 20, label: { en: 'Members', ja: 'メンバー' }, icon: IconUsers },
  },
  { path: '/members/$pubkey', load: () => import('./member.js') },
];
