/** The names of keys, for pages that show people beside what they did. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { pubkey } from '../api/schemas.js';
import { readNames } from './names.sql.js';

const KEYS_MAX = 40;
const KEYS = new RegExp(`^[0-9a-f]{64}(,[0-9a-f]{64}){0,${KEYS_MAX - 1}}$`);

export function nameRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/names',
      summary: 'The names of keys',
      description: 'A key without a name is not in the answer. Anybody can choose any name in a profile.',
      tags: ['admin: members'],
      who: 'operator',
      role: 'viewer',
      query: z.strictObject({
        pubkeys: z
          .string()
          .regex(KEYS, `1 to ${KEYS_MAX} public keys, hex, separated by commas`)
          .describe(`At most ${KEYS_MAX} public keys, separated by commas`),
      }),
      response: z.strictObject({
        items: z.array(
          z.strictObject({
            pubkey,
            profile_name: z.string().nullable().describe('From the profile (kind 0)'),
            name: z.string().nullable().describe('The name in /.well-known/nostr.json (NIP-05)'),
          }),
        ),
      }),
      errors: [],
      handler: async ({ community, query: { pubkeys }, now }) => {
        const named = await readNames(pool, community.id, [...new Set(pubkeys.split(','))], now);
        return {
          items: named.map(({ pubkey: key, profileName, name }) => ({
            pubkey: key,
            profile_name: profileName ?? null,
            name,
          })),
        };
      },
    }),
  ];
}
