/** Terms and privacy policy: their versions and texts, and who agreed. */
import { IconFileCertificate } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/policies',
    load: () => import('./list.js'),
    nav: {
      group: 'people',
      order: 50,
      label: { en: 'Terms and consents', ja: '規約と同意' },
      icon: IconFileCertificate,
    },
  },
  { path: '/policies/$type/$version', load: () => import('./version.js') },
];
