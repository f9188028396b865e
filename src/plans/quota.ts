/**
 * Counts the use of routes that a plan limits. A use is counted right before the handler, and given back when
 * the handler refuses or fails. If the process is killed in between, the use stays counted; the same request,
 * sent again, is not counted twice.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import type { Call, Route } from '../api/contract.js';
import { isDenial } from '../api/rules-errors.js';
import type { Log } from '../node/log.js';
import { type Counting, countUse, giveBack } from './usage.sql.js';

export interface CountedRequest {
  readonly method: string;
  readonly url: string;
  readonly bytes: Uint8Array;
  /** The request id that the client sent. */
  readonly id: string | undefined;
}

interface Options {
  readonly pool: Pool;
  readonly log: Log;
}

/** Returns the handler's result, or the denial of the quota. */
export async function counted(
  { pool, log }: Options,
  { counts, handler }: Pick<Route, 'counts' | 'handler'>,
  request: CountedRequest,
  call: Call<'reader'>,
): Promise<unknown> {
  const { community, pubkey, now } = call;
  // A caller without a signature has no plan.
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

/** The id counts together with the content, so that one id cannot be reused for other requests. */
export function identityOf({ method, url, bytes, id }: CountedRequest): string | undefined {
  if (id === undefined) return undefined;
  const content = createHash('sha256').update(`${method} ${url}\n`).update(bytes).digest('hex');
  return `${id} ${content.slice(0, 32)}`;
}

/** A failure here must not hide the handler's result. */
async function giveBackQuietly(pool: Pool, log: Log, counting: Counting): Promise<void> {
  await giveBack(pool, counting).catch((error: unknown) =>
    log.warn({ error: String(error) }, 'cannot give back a use that was counted for a failed request'),
  );
}
