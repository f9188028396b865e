/** Plans and usage: what members may use, what they used, and the secret of the payment provider. */
import { IconCreditCard } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/plans',
    load: () => import('./plans.js'),
    nav: {
      group: 'people',
      order: 40,
      label: { en: 'Plans and usage', ja: 'プランと利用状況' },
      icon: IconCreditCard,
    },
  },
];
