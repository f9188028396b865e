/** Who has a role, and sessions. */
import { IconUserShield } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/operators',
    load: () => import('./operators.js'),
    nav: { group: 'people', order: 80, label: { en: 'Roles', ja: '役割' }, icon: IconUserShield },
  },
];
