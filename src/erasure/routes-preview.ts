/** What an erasure of a member would delete, in numbers, before it is requested. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { isDenial } from '../api/rules-errors.js';
import { pubkey } from '../api/schemas.js';
import { readMember } from '../members/members.sql.js';
import type { CountHeld } from './preview.js';
import { sum } from './rules.js';

export interface PreviewOptions {
  readonly pool: Pool;
  readonly countHeld: CountHeld;
}

const count = z.number().int();

export function previewRoute({ pool, countHeld }: PreviewOptions): Route {
  return route({
    method: 'GET',
    url: '/admin/members/:pubkey/erasure-preview',
    summary: 'What is held about a key: what an erasure would delete, and what disabling would stop',
    description:
      'Counted now, store by store. 503 `UNAVAILABLE` if the count takes more than ten seconds, and 429 ' +
      '`RATE_LIMITED` while other counts run.',
    tags: ['admin: erasures'],
    who: 'operator',
    params: z.strictObject({ pubkey }),
    response: z.strictObject({
      pubkey,
      rows: count.describe('In all stores that were counted'),
      stores: z.array(
        z.strictObject({ name: z.string(), rows: count.nullable().describe('Null: not counted') }),
      ),
      active_subscriptions: count,
      pending_requests: count,
    }),
    errors: [],
    handler: async ({ community: { id: community }, params }) => {
      const held = await countHeld({ type: 'member', community, pubkey: params.pubkey });
      if (isDenial(held)) return held;
      const member = await readMember(pool, community, params.pubkey);
      const counted = [...held.succeeded].map(([name, rows]) => ({ name, rows }));
      const unknown = [...held.failed.keys()].map((name) => ({ name, rows: null }));
      return {
        pubkey: params.pubkey,
        rows: sum(Object.fromEntries(held.succeeded)),
        stores: [...counted, ...unknown].sort((one, other) => (one.name < other.name ? -1 : 1)),
        active_subscriptions: member?.active ?? 0,
        pending_requests: member?.pending ?? 0,
      };
    },
  });
}
