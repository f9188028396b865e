/**
 * The roles of people who run a community, pure. Each role may do everything that the one before it may. A
 * route of the API declares the least role that it needs (`role` in api/contract.ts).
 */
import { type Denial, denial } from '../api/rules-errors.js';

/**
 * `viewer`: reads what is not secret. `moderator`: also reports, cases, labels and held posts. `operator`:
 * everything.
 */
export const ROLES = ['viewer', 'moderator', 'operator'] as const;
export type Role = (typeof ROLES)[number];

export function hasRole(role: Role | undefined, least: Role): boolean {
  return role !== undefined && ROLES.indexOf(role) >= ROLES.indexOf(least);
}

/** The refusal names the role that is needed. */
export function refuseRole(role: Role | undefined, least: Role): Denial | undefined {
  return hasRole(role, least) ? undefined : denial('OPERATORS_ONLY', { role: least });
}
