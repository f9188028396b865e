/** All routes of the API. */
import { type AdminOptions, adminRoutes } from './admin.js';
import { consentRoutes } from './consents.js';
import type { Route } from './contract.js';
import { labelRoutes } from './labels.js';
import { ownModerationRoutes } from './own-moderation.js';
import { type PersonalDataOptions, personalDataRoutes } from './personal-data.js';
import { policyRoutes } from './policies.js';
import { reportRoutes } from './reports.js';
import { type SearchOptions, searchRoutes } from './search.js';
import { type SignInOptions, signInRoutes } from './sign-in.js';
import { subscriptionRoutes } from './subscriptions.js';
import { type TopicOptions, topicRoutes } from './topics.js';
import { trustRoutes } from './trust.js';
import { usageRoutes } from './usage.js';
import { webhookRoutes } from './webhook.js';

/** What the handlers stand on. */
export interface RouteOptions
  extends TopicOptions,
    AdminOptions,
    SignInOptions,
    PersonalDataOptions,
    SearchOptions {}

export function routesOf(options: RouteOptions): Route[] {
  return [
    ...signInRoutes(options),
    ...topicRoutes(options),
    ...subscriptionRoutes(options),
    ...policyRoutes(options),
    ...consentRoutes(options),
    ...usageRoutes(options),
    ...webhookRoutes(options),
    ...reportRoutes(options),
    ...trustRoutes(options),
    ...labelRoutes(options),
    ...ownModerationRoutes(options),
    ...searchRoutes(options),
    ...personalDataRoutes(options),
    ...adminRoutes(options),
  ];
}
