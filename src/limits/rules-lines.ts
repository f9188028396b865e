/**
 * The line in which an item waits, the widest part first: network, address, author. Pure. Lines are served
 * round robin (rules-fair-queue.ts), so items of a sender wait only behind its own (I18).
 */

export interface LineClient {
  readonly rateKey: string;
  readonly networkKey: string;
}

/** The line of the operator's imports, of exempt clients on this machine, and of the node itself. */
const OPERATOR: readonly string[] = [''];

/**
 * Undefined for a sender that shares the operator's line. Events of one author from one address keep their
 * order.
 */
export function lineOf(client: LineClient | undefined, author: string): readonly string[] | undefined {
  if (client === undefined) return undefined;
  const { rateKey: address, networkKey: network } = client;
  return network === address ? [address, author] : [network, address, author];
}

/** The line in which a signature check waits. Its first part is the community. */
export function verifyLineOf(
  community: number,
  client: LineClient | undefined,
  author: string,
): readonly string[] {
  return [String(community), ...(lineOf(client, author) ?? OPERATOR)];
}
