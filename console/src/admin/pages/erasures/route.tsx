/** Erasures: their progress, holds and certificates. */
import { IconEraser } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/erasures',
    load: () => import('./erasures.js'),
    nav: { group: 'people', order: 60, label: { en: 'Erasures', ja: '消去' }, icon: IconEraser },
  },
];
