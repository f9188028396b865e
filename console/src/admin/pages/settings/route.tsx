/** Settings of the community, and of the node. */
import { IconSettings } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/settings',
    load: () => import('./settings.js'),
    nav: { group: 'node', order: 10, label: { en: 'Settings', ja: '設定' }, icon: IconSettings },
  },
];
