/** Topics: which ones the node carries, how large they are, and how long they are kept. */
import { IconHash } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/topics',
    load: () => import('./list.js'),
    nav: { group: 'content', order: 10, label: { en: 'Topics', ja: 'トピック' }, icon: IconHash },
  },
];
