/**
 * The way of an event up to its OK: shape → cheap checks → already seen? → id and signature → lane.
 * Sockets and import go the same way. I2: every event gets exactly one outcome.
 */
import { LRUCache } from 'lru-cache';
import type { Community } from './communities.js';
import { type NostrEvent, parseEvent, serializeEvent } from './core/event.js';
import { factKey } from './core/plan.js';
import { refuseArrival } from './core/policy.js';
import { isRefusal, type Outcome, type Refusal, refusal } from './core/reply.js';
import type { Lane } from './lane.js';
import type { Metrics } from './metrics.js';
import type { Verifier } from './verify/pool.js';

const RECENT_IDS_MAX = 100_000;
/** Bytes of events that wait for their signature check. */
const VERIFY_BYTES_MAX = 64 * 1_048_576;

/**
 * Ids that were announced lately, so that a repeat is answered without a signature check or a query. It follows the
 * outbox and nothing else: an id enters with its `upsert` and leaves with its `delete`, in that order.
 */
export class RecentIds {
  private readonly ids = new LRUCache<string, true>({ max: RECENT_IDS_MAX });

  has(community: number, id: string): boolean {
    return this.ids.get(factKey(community, id)) === true;
  }
  add(community: number, id: string): void {
    this.ids.set(factKey(community, id), true);
  }
  forget(community: number, id: string): void {
    this.ids.delete(factKey(community, id));
  }
}

export interface AdmissionOptions {
  readonly lane: Lane;
  readonly verifier: Verifier;
  readonly recent: RecentIds;
  readonly metrics: Metrics;
  readonly now: () => number;
}

export interface Admission {
  admit(community: Community, input: unknown): Promise<Outcome | Refusal>;
}

export function createAdmission({ lane, verifier, recent, metrics, now }: AdmissionOptions): Admission {
  let verifyingBytes = 0;

  const verify = async (event: NostrEvent, preimage: string): Promise<Refusal | undefined> => {
    if (verifyingBytes >= VERIFY_BYTES_MAX)
      return refusal('rate-limited', 'the relay is busy, try again in a moment');
    const done = metrics.verify.startTimer();
    const { id, pubkey, sig } = event;
    verifyingBytes += preimage.length;
    const verdict = await verifier.verify({ id, pubkey, sig, preimage }).finally(() => {
      verifyingBytes -= preimage.length;
      done();
    });
    if (verdict === 'wrong-id') return refusal('invalid', 'id is not the hash of the event');
    return verdict === 'wrong-signature' ? refusal('invalid', 'signature verification failed') : undefined;
  };

  const admit = async (community: Community, input: unknown): Promise<Outcome | Refusal> => {
    const event = parseEvent(input);
    if (isRefusal(event)) return event;
    const { payload, preimage } = serializeEvent(event);
    const nowSeconds = Math.floor(now() / 1_000);
    const bytes = Buffer.byteLength(payload);
    const refused = refuseArrival({ event, bytes, settings: community.settings, nowSeconds });
    if (refused !== undefined) return refused;
    if (recent.has(community.id, event.id)) return 'duplicate';
    const wrong = await verify(event, preimage);
    if (wrong !== undefined) return wrong;
    return lane.submit({ community: community.id, event, payload });
  };

  return {
    admit: async (community, input) => {
      const outcome = await admit(community, input).catch(() =>
        refusal('error', 'failed to check the event'),
      );
      metrics.events.inc({ outcome: typeof outcome === 'string' ? outcome : outcome.refused });
      return outcome;
    },
  };
}
