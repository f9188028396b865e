/** Labels in force. */
import { IconTags } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/labels',
    load: () => import('./labels.js'),
    nav: { group: 'moderation', order: 50, label: { en: 'Labels', ja: 'ラベル' }, icon: IconTags },
  },
];
