/**
 * What one client receives in answer to its own frames, with the challenge of NIP-42 where an answer needs
 * one.
 */
import {
  type Accepted,
  authFrame,
  closedFrame,
  isRefusal,
  NEGENTROPY_DISABLED,
  NEGENTROPY_OFF,
  negErrFrame,
  negMsgFrame,
  noticeFrame,
  okFrame,
  type Refusal,
  refusal,
} from '../events/rules/reply.js';
import type { Outgoing } from './outgoing.js';

const SUBSCRIPTION_ID_SHOWN_MAX = 256;

export class Replies {
  private hasHinted = false;

  constructor(
    private readonly outgoing: Outgoing,
    private readonly challengeText: string,
  ) {}

  /**
   * NIP-42, the same challenge each time. Where nobody has to authenticate, it is sent only with an
   * answer that needs it: some clients break on a challenge they do not expect, and some miss one that comes
   * with the handshake.
   */
  challenge(): void {
    this.outgoing.send(authFrame(this.challengeText));
  }

  /**
   * An answer leaves out private kinds, which a client gets that authenticates. Said once, and without a
   * challenge, because the answer does not need it. A query of private kinds alone gets the challenge.
   */
  hintAtAuth(): void {
    if (this.hasHinted) return;
    this.hasHinted = true;
    this.notice(
      refusal('auth-required', 'private kinds are left out; a query of these kinds alone gets a challenge'),
    );
  }

  ok(id: string, outcome: Accepted | Refusal): void {
    if (isRefusal(outcome) && outcome.refused === 'auth-required') this.challenge();
    this.outgoing.send(okFrame(id, outcome));
  }

  closed(id: string, why: Refusal): void {
    if (why.refused === 'auth-required') this.challenge();
    this.outgoing.send(closedFrame(id, why));
  }

  notice(why: Refusal): void {
    this.outgoing.send(noticeFrame(why));
  }

  negentropy(id: string, hex: string): void {
    this.outgoing.send(negMsgFrame(id, hex));
  }

  /** Where it is turned off, both answers are sent, because clients wait for one or the other. */
  negentropyError(id: string, why: Refusal): void {
    if (why.refused === 'auth-required') this.challenge();
    this.outgoing.send(negErrFrame(id.slice(0, SUBSCRIPTION_ID_SHOWN_MAX), why));
    if (why === NEGENTROPY_OFF) this.outgoing.send(NEGENTROPY_DISABLED);
  }
}
