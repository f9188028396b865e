/** The communities of the node over HTTP, for operators of the node only: list and add. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type NodeOperators, refuseOthers } from '../api/node-operators.js';
import { isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, showPage } from '../api/schemas.js';
import { HOST, SLUG } from './communities.sql.js';
import { createCommunity, LISTED_COUNT_MAX, type ListedCommunity, listCommunities } from './list.sql.js';

const COMMUNITIES = '/admin/communities';
const WHAT = 'Communities belong to the whole node';

export interface CommunityOptions extends NodeOperators {
  readonly pool: Pool;
}

const count = z.number().int();
const bounded = z.strictObject({
  count,
  more: z.boolean().describe(`True: more than ${LISTED_COUNT_MAX}`),
});
const community = z.strictObject({
  slug: z.string(),
  name: z.string().nullable().describe('relay.name; null while it is not set'),
  host: z.string().nullable(),
  path: z.string().describe('Where it answers, besides its host name'),
  created_at: milliseconds,
  closed_at: milliseconds.nullable().describe('Since then it is being erased, and nobody reaches it'),
  members: bounded,
  topics: bounded,
  events: count,
  bytes: count,
});

const shownCount = (found: number): z.output<typeof bounded> => ({
  count: Math.min(found, LISTED_COUNT_MAX),
  more: found > LISTED_COUNT_MAX,
});

function show({
  createdAt,
  closedAt,
  members,
  topics,
  ...same
}: ListedCommunity): z.output<typeof community> {
  return {
    ...same,
    path: `/c/${same.slug}`,
    created_at: createdAt,
    closed_at: closedAt,
    members: shownCount(members),
    topics: shownCount(topics),
  };
}

export function communityRoutes(options: CommunityOptions): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: communities'], who: 'operator', url: COMMUNITIES } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      summary: 'The communities of this node, by name',
      query: pageQuery,
      response: pageOf(community),
      errors: [],
      handler: async (call) =>
        refuseOthers(options, call, WHAT) ?? showPage(await listCommunities(pool, call.query), show),
    }),
    route({
      ...shared,
      method: 'POST',
      summary: 'Add a community; it answers at /c/<slug>, and at its host name if it has one',
      body: z.strictObject({
        slug: z.string().regex(SLUG, '1 to 63 of a–z, 0–9 and -, starting with a letter or digit'),
        host: z
          .string()
          .toLowerCase()
          .pipe(z.string().regex(HOST, 'not a host name'))
          .optional()
          .describe('For example art.example.org'),
      }),
      status: 201,
      response: community,
      errors: ['COMMUNITY_EXISTS'],
      handler: async (call) => {
        const refused = refuseOthers(options, call, WHAT);
        if (refused !== undefined) return refused;
        const made = await createCommunity(pool, { ...call.body, actor: call.pubkey }, call.now);
        return isDenial(made) ? made : show(made);
      },
    }),
  ];
}
