/** The paths of the members' pages. The server knows their first parts too (src/pages/members.ts). */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from '@tanstack/react-router';
import { Loading } from '../shared/components/states.js';
import { membersBase } from '../shared/place.js';
import { Landing } from './pages/landing.js';
import { NotFound, Shell } from './shell.js';

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });
const start = createRoute({ getParentRoute: () => root, path: '/', component: Landing });

const LAZY = {
  '/topics/$topic': () => import('./pages/topic.js'),
  '/topics/$topic/$post': () => import('./pages/thread.js'),
  '/latest': () => import('./pages/latest.js'),
  '/latest/$post': () => import('./pages/thread.js'),
  '/search': () => import('./pages/search.js'),
  '/join': () => import('./pages/join.js'),
  '/join/$code': () => import('./pages/join.js'),
  '/remote': () => import('./pages/remote.js'),
  '/me': () => import('./pages/me.js'),
  '/me/terms': () => import('./pages/terms.js'),
  '/me/moderation': () => import('./pages/moderation.js'),
  '/me/data': () => import('./pages/data.js'),
} as const;

const lazy = Object.entries(LAZY).map(([path, load]) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load) }),
);

export const router = createRouter({
  routeTree: root.addChildren([start, ...lazy]),
  basepath: membersBase,
  defaultPreload: 'intent',
  defaultPendingComponent: Loading,
  scrollRestoration: true,
});
