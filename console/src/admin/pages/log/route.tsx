/** The log of the node, live. */
import { IconTerminal2 } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/log',
    load: () => import('./log.js'),
    nav: {
      group: 'node',
      order: 90,
      label: { en: 'Log', ja: 'ログ' },
      icon: IconTerminal2,
      role: 'operator',
    },
  },
];
