/**
 * A route that counts takes one use of the caller's plan right before its handler, and gives it back when the handler refuses or
 * fails. A process that is killed in between leaves it counted; the same request, sent again, is then not counted again.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { isDenial } from '../core/errors.js';
import type { Log } from '../log.js';
import { type Counting, countUse, giveBack } from '../store/usage.js';
import type { Call, Route } from './contract.js';

export interface CountedRequest {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
  /** As its sender named it. */
  readonly id: string | undefined;
}

interface Options {
  readonly pool: Pool;
  readonly log: Log;
}

/** What the handler answers, or the denial of the quota. */
export async function counted(
  { pool, log }: Options,
  { counts, handler }: Pick<Route, 'counts' | 'handler'>,
  request: CountedRequest,
  call: Call<'reader'>,
): Promise<unknown> {
  const { community, pubkey, now } = call;
  // Who has not signed has no plan.
  if (counts === undefined || pubkey === undefined) return handler(call);
  const counting = { community: community.id, pubkey, metric: counts, requestId: identityOf(request), now };
  const use = await countUse(pool, counting);
  if (isDenial(use)) return use;
  try {
    const answer = await handler(call);
    if (isDenial(answer)) await giveBackQuietly(pool, log, counting);
    return answer;
  } catch (error) {
    await giveBackQuietly(pool, log, counting);
    throw error;
  }
}

/** The same id for something else is another request: one id must not open the door to everything. */
export function identityOf({ method, url, bytes, id }: CountedRequest): string | undefined {
  if (id === undefined) return undefined;
  const content = createHash('sha256').update(`${method} ${url}\n`).update(bytes).digest('hex');
  return `${id} ${content.slice(0, 32)}`;
}

/** What the handler said matters more than a use that stays counted. */
async function giveBackQuietly(pool: Pool, log: Log, counting: Counting): Promise<void> {
  await giveBack(pool, counting).catch((error: unknown) =>
    log.warn({ error: String(error) }, 'a use was counted though nothing was done'),
  );
}
