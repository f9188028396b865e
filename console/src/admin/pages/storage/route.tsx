/** Storage: how long what is kept, and how much space it takes. */
import { IconDatabase } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/storage',
    load: () => import('./storage.js'),
    nav: { group: 'node', order: 30, label: { en: 'Storage', ja: 'ストレージ' }, icon: IconDatabase },
  },
];
