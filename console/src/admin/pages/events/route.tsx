/** Stored events: the finder, and the page of one event. */
import { IconTimelineEvent } from '@tabler/icons-react';
import type { PageRoute } from '../../page.js';

export const routes: readonly PageRoute[] = [
  {
    path: '/events',
    load: () => import('./finder.js'),
    nav: {
      group: 'content',
      order: 20,
      label: { en: 'Events', ja: 'イベント' },
      icon: IconTimelineEvent,
    },
  },
  { path: '/events/$eventId', load: () => import('./event.js') },
];
