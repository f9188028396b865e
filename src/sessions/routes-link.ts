/**
 * Signs a key in with a browser by a one-time code of `minato operators link`. The code is in the body of the
 * request: so it is in no log.
 */
import { z } from 'zod';
import { checkRole, refuseAccount } from '../api/auth.js';
import { type Route, route } from '../api/contract.js';
import { isDenial } from '../api/rules-errors.js';
import { spendLink } from './links.sql.js';
import { type AdminSessionOptions, shownSession, signIn } from './routes.js';

export function linkRoutes(options: AdminSessionOptions): Route[] {
  const { pool } = options;
  return [
    route({
      method: 'POST',
      url: '/sessions/link',
      summary: 'Sign in with a browser by a one-time code: starts a session and sets its cookie',
      description:
        'The code is printed by `minato operators link`. It works once, for ten minutes, in its community, ' +
        'and only while its key has a role there.',
      tags: ['auth'],
      who: 'public',
      body: z.strictObject({ code: z.string().min(1).max(100) }),
      status: 201,
      response: shownSession,
      errors: ['INVALID_LINK', 'ACCOUNT_DISABLED', 'ACCOUNT_DELETED', 'BEING_ERASED', 'OPERATORS_ONLY'],
      handler: async ({ community, body: { code }, now }) => {
        const pubkey = await spendLink(pool, community.id, code, now);
        if (isDenial(pubkey)) return pubkey;
        const refused = await refuseAccount(options, community, pubkey, { who: 'operator' });
        if (refused !== undefined) return refused;
        const role = await checkRole(options, community, pubkey, 'viewer');
        return isDenial(role) ? role : signIn(options, community, { pubkey, role, by: 'link' }, now);
      },
    }),
  ];
}
