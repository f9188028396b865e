/** The communities of the node. */
import { IconBuildingCommunity } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/communities',
    load: () => import('./communities.js'),
    nav: {
      group: 'node',
      order: 20,
      label: { en: 'Communities', ja: 'コミュニティ' },
      icon: IconBuildingCommunity,
      role: 'operator',
    },
  },
];
