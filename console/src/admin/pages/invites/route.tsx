/** Invites: codes that let one request pass without a review. */
import { IconTicket } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/invites',
    load: () => import('./list.js'),
    nav: { group: 'people', order: 30, label: { en: 'Invites', ja: '招待' }, icon: IconTicket },
  },
];
