/** Consumers of the outbox, and the page of one of them. */
import { IconArrowsSplit2 } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/consumers',
    load: () => import('./consumers.js'),
    nav: {
      group: 'node',
      order: 20,
      label: { en: 'Consumers', ja: 'コンシューマー' },
      icon: IconArrowsSplit2,
    },
  },
  { path: '/consumers/$name', load: () => import('./consumer.js') },
];
