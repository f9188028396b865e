/** All routes of the API. */
import { type AdminOptions, adminRoutes } from './admin.js';
import type { Route } from './contract.js';
import { type PersonalDataOptions, personalDataRoutes } from './personal-data.js';
import { subscriptionRoutes } from './subscriptions.js';
import { type TopicOptions, topicRoutes } from './topics.js';

/** What the handlers stand on. */
export interface RouteOptions extends TopicOptions, AdminOptions, PersonalDataOptions {}

export function routesOf(options: RouteOptions): Route[] {
  return [
    ...topicRoutes(options),
    ...subscriptionRoutes(options),
    ...personalDataRoutes(options),
    ...adminRoutes(options),
  ];
}
