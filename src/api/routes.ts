/** All routes of the API. */
import { type AdminOptions, adminRoutes } from './admin.js';
import { consentRoutes } from './consents.js';
import type { Route } from './contract.js';
import { policyRoutes } from './policies.js';
import { reportRoutes } from './reports.js';
import { subscriptionRoutes } from './subscriptions.js';
import { type TopicOptions, topicRoutes } from './topics.js';

/** What the handlers stand on. */
export interface RouteOptions extends TopicOptions, AdminOptions {}

export function routesOf(options: RouteOptions): Route[] {
  return [
    ...topicRoutes(options),
    ...subscriptionRoutes(options),
    ...policyRoutes(options),
    ...consentRoutes(options),
    ...reportRoutes(options),
    ...adminRoutes(options),
  ];
}
