/**
 * Settings of the whole node are changed only by operators of the node: keys of MINATO_ADMIN_PUBKEYS that
 * call the default community. An operator who was added to a community, even to the default one, is not one
 * of them.
 */

import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import type { Call } from './contract.js';
import { type Denial, denial } from './rules-errors.js';

export interface NodeOperators {
  readonly adminPubkeys: readonly string[];
}

type Caller = Pick<Call<'operator'>, 'community' | 'pubkey'>;

export function isNodeOperator({ adminPubkeys }: NodeOperators, { community, pubkey }: Caller): boolean {
  return community.slug === DEFAULT_SLUG && adminPubkeys.includes(pubkey);
}

/** `what` begins the sentence: "Consumers belong to the whole node". */
export function refuseOthers(operators: NodeOperators, caller: Caller, what: string): Denial | undefined {
  if (isNodeOperator(operators, caller)) return undefined;
  return denial('OPERATORS_ONLY', {
    explanation:
      `${what}: only operators of the node (MINATO_ADMIN_PUBKEYS) may do this, ` +
      'and only at the default community.',
  });
}
