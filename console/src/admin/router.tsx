/** The paths of the console. Each folder of `pages` declares its own (`route.tsx`). */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Navigate,
} from '@tanstack/react-router';
import { Loading } from '../shared/components/states.js';
import { adminBase } from '../shared/place.js';
import { GROUPS, mayAct, type NavEntry, type PageRoute } from './page.js';
import { useSession } from './session.js';
import { NotFound, Shell } from './shell.js';

const folders = import.meta.glob<{ readonly routes: readonly PageRoute[] }>('./pages/*/route.tsx', {
  eager: true,
});
const pages = Object.values(folders).flatMap(({ routes }) => routes);

export interface Listed extends NavEntry {
  readonly path: string;
}

/** The navigation, in its order. */
export const navigation: readonly Listed[] = pages
  .flatMap(({ path, nav }) => (nav === undefined ? [] : [{ ...nav, path }]))
  .sort((a, b) => GROUPS.indexOf(a.group) - GROUPS.indexOf(b.group) || a.order - b.order);

const root = createRootRoute({
  component: () => <Shell navigation={navigation} />,
  notFoundComponent: NotFound,
});
const start = createRoute({
  getParentRoute: () => root,
  path: '/',
  component: Start,
});

/** The first page that this role may see. */
function Start() {
  const { role } = useSession();
  const first = navigation.find(({ role: least = 'viewer' }) => mayAct(role, least));
  return first === undefined ? <NotFound /> : <Navigate to={first.path} replace />;
}

const own = pages.map(({ path, load }) =>
  createRoute({ getParentRoute: () => root, path, component: lazyRouteComponent(load) }),
);

export const router = createRouter({
  routeTree: root.addChildren([start, ...own]),
  basepath: adminBase,
  defaultPreload: 'intent',
  defaultPendingComponent: Loading,
  scrollRestoration: true,
});
