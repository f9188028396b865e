/** All routes of the API. */

import type { EventStore } from '../events/store.js';
import { labelRoutes } from '../labels/routes.js';
import { inviteRoutes } from '../members/routes-invites.js';
import { ownModerationRoutes } from '../moderation/routes-own.js';
import { type PersonalDataOptions, personalDataRoutes } from '../personal-data/routes.js';
import { usageRoutes } from '../plans/routes.js';
import { webhookRoutes } from '../plans/routes-webhook.js';
import { policyRoutes } from '../policies/routes.js';
import { consentRoutes } from '../policies/routes-consents.js';
import { reportRoutes } from '../reports/routes.js';
import { type SearchOptions, searchRoutes } from '../search/routes.js';
import { linkRoutes } from '../sessions/routes-link.js';
import { type SignInOptions, signInRoutes } from '../sessions/routes-sign-in.js';
import { type SetupOptions, setupRoutes } from '../setup/routes.js';
import { type TopicOptions, topicRoutes } from '../topics/routes.js';
import { type ChangesOptions, changeRoutes } from '../topics/routes-changes.js';
import { subscriptionRoutes } from '../topics/routes-subscriptions.js';
import { trustRoutes } from '../trust/routes.js';
import { type AdminOptions, adminRoutes } from './admin.js';
import type { Route } from './contract.js';

/** The dependencies of the handlers. */
export interface RouteOptions
  extends TopicOptions,
    AdminOptions,
    SignInOptions,
    PersonalDataOptions,
    SearchOptions,
    SetupOptions,
    ChangesOptions {
  readonly events: EventStore;
}

export function routesOf(options: RouteOptions): Route[] {
  return [
    ...signInRoutes(options),
    ...linkRoutes(options),
    ...setupRoutes(options),
    ...topicRoutes(options),
    ...changeRoutes(options),
    ...subscriptionRoutes(options),
    ...inviteRoutes(options),
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
