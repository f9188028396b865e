/** Counts the searches of members against their plans. A search that failed is not counted. */
import type { Refusal } from '../events/rules/reply.js';

export interface SearchUse {
  /** Why the plan has no room for one more. */
  count(community: number, pubkey: string): Promise<Refusal | undefined>;
  giveBack(community: number, pubkey: string): Promise<void>;
}

/**
 * Does the work as one use of the payer's plan, where there is a payer. `failed` gives the client's reply to
 * an error.
 */
export async function countedUse(
  use: SearchUse,
  { community, payer }: { readonly community: number; readonly payer: string | undefined },
  work: () => Promise<void>,
  failed: (error: unknown) => Refusal,
): Promise<Refusal | undefined> {
  try {
    const refused = payer && (await use.count(community, payer));
    if (refused) return refused;
  } catch (error) {
    return failed(error);
  }
  try {
    await work();
    return undefined;
  } catch (error) {
    if (payer !== undefined) await use.giveBack(community, payer).catch(() => undefined);
    return failed(error);
  }
}
