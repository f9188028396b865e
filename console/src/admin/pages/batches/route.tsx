/** Batches: one action on many stored events or cases, undone as one. */
import { IconStack2 } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/batches',
    load: () => import('./batches.js'),
    nav: {
      group: 'moderation',
      order: 40,
      label: { en: 'Batches', ja: '一括処理' },
      icon: IconStack2,
      role: 'moderator',
    },
  },
  { path: '/batches/new', load: () => import('./new-batch.js') },
  { path: '/batches/$batchId', load: () => import('./batch.js') },
];
