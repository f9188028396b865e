/** The first page: what needs attention, live figures and charts. */
import { IconActivity } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/overview',
    load: () => import('./overview.js'),
    nav: { group: 'now', order: 10, label: { en: 'Overview', ja: '概要' }, icon: IconActivity },
  },
];
