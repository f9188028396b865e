/** Requests of members for topics: the queue, and what was decided. */
import { IconInbox } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/requests',
    load: () => import('./list.js'),
    nav: { group: 'people', order: 10, label: { en: 'Requests', ja: '参加申請' }, icon: IconInbox },
  },
];
