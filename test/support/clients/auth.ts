/** NIP-42 as a client does it. */

import { type Author, type Draft, sign } from '../events.js';
import type { RawClient } from './client.js';

/**
 * The challenge of the connection. Where AUTH is optional, the node sends it only with an answer that needs
 * it.
 */
export async function challengeOf(client: RawClient): Promise<string> {
  if (client.challenge === undefined) client.askForChallenge();
  await client.until(() => client.challenge !== undefined);
  return client.challenge!;
}

export async function proofOf(client: RawClient, author: Author, relay: string, draft: Draft = {}) {
  const tags = [
    ['relay', relay],
    ['challenge', await challengeOf(client)],
  ];
  return sign(author, { kind: 22_242, tags, ...draft });
}

/** Sends a signed AUTH event and returns `[accepted, message]`. */
export async function authenticate(
  client: RawClient,
  author: Author,
  relay: string,
  draft: Draft = {},
): Promise<[boolean, string]> {
  const proof = await proofOf(client, author, relay, draft);
  const from = client.frames.length;
  client.send(['AUTH', proof]);
  const [, , accepted, message] = await client.waitFor(
    ([verb, id]) => verb === 'OK' && id === proof.id,
    from,
  );
  return [accepted as boolean, message as string];
}
