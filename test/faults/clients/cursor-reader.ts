/**
 * A client that keeps a copy by cursor alone (docs/cursors.md): it comes back to either instance, as often as
 * it is cut, and in the end its copy equals what is served (I10, I6).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { isEphemeral } from '../model.js';
import type { Violations } from '../violations.js';
import { type Frame, Socket } from './socket.js';

const AGAIN_MS = 200;

export class CursorReader {
  readonly copy = new Map<string, VerifiedEvent>();
  resumed = 0;
  began = 0;
  isLive = false;
  private cursor = '';
  private socket: Socket | undefined;
  private isRunning = true;
  private readonly loop: Promise<void>;

  constructor(
    private readonly ports: () => readonly number[],
    private readonly filter: object,
    private readonly violations: Violations,
  ) {
    this.loop = this.run();
  }

  /** Goes away and comes back, so that it has to use its cursor. */
  leave(): void {
    this.socket?.cut();
  }

  async stop(): Promise<void> {
    this.isRunning = false;
    this.socket?.cut();
    await this.loop;
  }

  private async run(): Promise<void> {
    for (let turn = 0; this.isRunning; turn += 1) {
      let isOpen = true;
      this.isLive = false;
      const ports = this.ports();
      this.socket = await Socket.open(ports[turn % ports.length]!, '/', {
        onFrame: (frame) => this.onFrame(frame),
        onClose: () => {
          isOpen = false;
          this.isLive = false;
        },
      }).catch(() => undefined);
      if (this.socket !== undefined) {
        if (this.cursor === '') {
          // A first answer that was cut short has no cursor.
          this.copy.clear();
          this.began += 1;
        } else this.resumed += 1;
        this.socket.send(['REQ', 'copy', { ...this.filter, cursor: this.cursor }]);
      }
      while (isOpen && this.socket !== undefined && this.isRunning) await delay(AGAIN_MS);
      await delay(AGAIN_MS);
    }
  }

  private onFrame(frame: Frame): void {
    switch (frame[0]) {
      case 'EVENT': {
        const [, , event, cursor] = frame as ['EVENT', string, VerifiedEvent, string | undefined];
        // Live only: it has no cursor and is not kept.
        if (isEphemeral(event.kind)) return;
        if (this.copy.has(event.id))
          this.violations.add('I10', `by cursor ${event.id} "${event.content}" came although it is held`);
        this.copy.set(event.id, event);
        if (cursor !== undefined) this.cursor = cursor;
        return;
      }
      case 'GONE':
        this.copy.delete(frame[2] as string);
        this.cursor = frame[3] as string;
        return;
      case 'EOSE':
        this.cursor = frame[3] as string;
        this.isLive = true;
        return;
      case 'CLOSED':
        this.onClosed(String(frame[2]));
    }
  }

  private onClosed(why: string): void {
    const beginsAgain = /^invalid: |no longer kept|what you may see has changed/.test(why);
    if (beginsAgain) {
      this.copy.clear();
      this.cursor = '';
    }
    this.socket?.cut();
  }
}
