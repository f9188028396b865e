/**
 * The id and signature checks of arriving events. They run in threads, in the line of their sender (I18), and
 * the bytes that wait for them are bounded (I14).
 */
import type { Metrics } from '../node/metrics.js';
import { BUSY, type Refusal, WRONG_ID, WRONG_SIGNATURE } from './rules/reply.js';
import type { Verifier } from './verify/pool.js';

const WAITING_BYTES_MAX = 64 * 1_048_576;

export class SignatureChecks {
  private waitingBytes = 0;

  constructor(
    private readonly verifier: Verifier,
    private readonly metrics: Metrics,
  ) {}

  /** `payload`: the serialized event. `from`: the line that it waits in. */
  async refuse(payload: string, from: readonly string[]): Promise<Refusal | undefined> {
    if (this.waitingBytes >= WAITING_BYTES_MAX) return BUSY;
    const done = this.metrics.verify.startTimer();
    this.waitingBytes += payload.length;
    const verdict = await this.verifier.verify({ payload, from }).finally(() => {
      this.waitingBytes -= payload.length;
      done();
    });
    if (verdict === 'wrong-id') return WRONG_ID;
    return verdict === 'wrong-signature' ? WRONG_SIGNATURE : undefined;
  }
}
