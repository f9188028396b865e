/** All routes of the API. */
import type { Pool } from 'pg';
import type { Route } from './contract.js';

/** What the handlers stand on. */
export interface RouteOptions {
  readonly pool: Pool;
}

export function routesOf(_options: RouteOptions): Route[] {
  return [];
}
