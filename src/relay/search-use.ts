/** Searches of members are counted: one that gave nothing is given back. */
import type { Refusal } from '../core/reply.js';

export interface SearchUse {
  /** Why the plan has no room for one more. */
  count(community: number, pubkey: string): Promise<Refusal | undefined>;
  giveBack(community: number, pubkey: string): Promise<void>;
}

/** Does the work as one use of the payer's plan, where there is a payer. `failed`: what the client hears of an error. */
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
