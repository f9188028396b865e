/** The trust in one person. */
import { IconShieldCheck } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/trust',
    load: () => import('./start.js'),
    nav: {
      group: 'people',
      order: 60,
      label: { en: 'Trust', ja: '信頼度' },
      icon: IconShieldCheck,
    },
  },
  { path: '/trust/$pubkey', load: () => import('./trust.js') },
];
