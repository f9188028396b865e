/** The audit log. */
import { IconHistory } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/audit',
    load: () => import('./audit.js'),
    nav: {
      group: 'node',
      order: 60,
      label: { en: 'Audit log', ja: '監査ログ' },
      icon: IconHistory,
      role: 'operator',
    },
  },
];
