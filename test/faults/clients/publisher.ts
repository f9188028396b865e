/**
 * Publishes to one instance in one community. It connects again when it is cut, and sends again whatever has
 * no final answer: so every event ends accepted or refused for a reason. It checks I2: one OK for each EVENT.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import type { Violations } from '../violations.js';
import { type Frame, Socket } from './socket.js';

const AGAIN_MS = 150;
const RESEND_MS = 400;
/**
 * The longest that the node may take for an OK: a batch is tried again for 30 s, with statements of 25 s.
 * Then the client gives up the connection; a node that runs must not let it come to this.
 */
export const ANSWER_MS_MAX = 90_000;

export interface Answer {
  readonly accepted: boolean;
  readonly message: string;
}

/** A refusal that says "not now". Others are final. */
const isForNow = ({ accepted, message }: Answer) =>
  !accepted && !/^(blocked|duplicate): |^invalid: (expired|signature|id )/.test(message);

interface Waiting {
  readonly event: VerifiedEvent;
  readonly resolve: (answer: Answer) => void;
  sentAt: number;
  /** EVENTs on this connection without an OK. */
  unanswered: number;
  /** The last temporary refusal. */
  refusedWith?: string;
}

export interface PublisherOptions {
  readonly port: () => number;
  readonly path: string;
  readonly violations: Violations;
  readonly isHealthy: () => boolean;
  readonly onAccepted: () => void;
}

export class Publisher {
  private readonly waiting = new Map<string, Waiting>();
  private socket: Socket | undefined;
  private isRunning = true;
  private readonly loop: Promise<void>;
  /** The final answers. */
  readonly answers = new Map<string, Answer>();
  /** The temporary refusals by their first words. */
  readonly refusals = new Map<string, number>();
  sent = 0;

  constructor(private readonly options: PublisherOptions) {
    this.loop = this.run();
  }

  /** What each event without a final answer was told last. */
  get unanswered(): string[] {
    return [...this.waiting.values()].map(
      ({ event, refusedWith }) =>
        `${event.id.slice(0, 8)} of kind ${event.kind}: ${refusedWith ?? 'nothing'}`,
    );
  }

  publish(event: VerifiedEvent): Promise<Answer> {
    const known = this.answers.get(event.id);
    if (known !== undefined) return Promise.resolve(known);
    return new Promise((resolve) => {
      const waiting: Waiting = { event, resolve, sentAt: 0, unanswered: 0 };
      this.waiting.set(event.id, waiting);
      this.sendOne(waiting);
    });
  }

  /** Cuts the connection: what is unanswered is sent again on a new one. */
  cut(): void {
    this.socket?.cut();
  }

  async stop(): Promise<void> {
    this.isRunning = false;
    this.socket?.cut();
    await this.loop;
  }

  private sendOne(waiting: Waiting): void {
    if (this.socket?.isOpen !== true) return;
    waiting.sentAt = Date.now();
    waiting.unanswered += 1;
    this.sent += 1;
    this.socket.send(['EVENT', waiting.event]);
  }

  private async run(): Promise<void> {
    const { port, path } = this.options;
    while (this.isRunning) {
      let isOpen = true;
      this.socket = await Socket.open(port(), path, {
        onFrame: (frame) => this.onFrame(frame),
        onClose: () => {
          isOpen = false;
        },
      }).catch(() => undefined);
      if (this.socket === undefined) {
        await delay(AGAIN_MS);
        continue;
      }
      for (const waiting of this.waiting.values()) {
        waiting.unanswered = 0;
        this.sendOne(waiting);
      }
      while (isOpen && this.isRunning) {
        await delay(RESEND_MS);
        this.sendRefusedAgain();
      }
    }
  }

  /** Those without any answer are waited for; those that were refused for now are sent again. */
  private sendRefusedAgain(): void {
    for (const waiting of this.waiting.values()) {
      if (waiting.unanswered === 0) this.sendOne(waiting);
      else if (Date.now() - waiting.sentAt > ANSWER_MS_MAX) {
        const { isHealthy, violations } = this.options;
        if (isHealthy())
          violations.add('I15', `EVENT ${waiting.event.id} has no OK after ${ANSWER_MS_MAX} ms`);
        this.socket?.cut();
        return;
      }
    }
  }

  private onFrame(frame: Frame): void {
    if (frame[0] !== 'OK') return;
    const [, id, accepted, message] = frame as ['OK', string, boolean, string];
    const answer = { accepted, message };
    const waiting = this.waiting.get(id);
    if (waiting === undefined || waiting.unanswered === 0) {
      this.options.violations.add('I2', `an OK that nobody asked for: ${JSON.stringify(frame)}`);
      return;
    }
    waiting.unanswered -= 1;
    if (accepted) this.options.onAccepted();
    if (isForNow(answer)) {
      const words = message.slice(0, 60);
      waiting.refusedWith = message;
      this.refusals.set(words, (this.refusals.get(words) ?? 0) + 1);
      return;
    }
    this.waiting.delete(id);
    this.answers.set(id, answer);
    waiting.resolve(answer);
  }
}
