/** Gossip with other nodes. */
import { IconAffiliate } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/p2p',
    load: () => import('./p2p.js'),
    nav: { group: 'node', order: 35, label: { en: 'Gossip', ja: 'ゴシップ' }, icon: IconAffiliate },
  },
];
