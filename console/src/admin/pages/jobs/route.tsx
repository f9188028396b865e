/** The jobs of the node. */
import { IconCalendarClock } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/jobs',
    load: () => import('./jobs.js'),
    nav: { group: 'node', order: 30, label: { en: 'Jobs', ja: 'ジョブ' }, icon: IconCalendarClock },
  },
];
