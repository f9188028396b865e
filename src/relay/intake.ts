/**
 * Frames that wait to be worked on, of all clients in turn. Work goes in short slices, so that a flood of frames never keeps
 * the event loop from what else is due: answers of the database to the lane, deliveries, other clients.
 * How much may wait is bounded by each client's connection, which then stops reading its socket.
 */

/** Without slices a full read of eight sockets took 20 ms, and the lane waited as long for each answer of the database. */
const SLICE_MS = 1;

export interface FrameSource {
  /** Works on the next frame. True when there is another. */
  takeFrame(): boolean;
}

export class Intake {
  /** In the order of their turns. */
  private readonly waiting = new Set<FrameSource>();
  private scheduled = false;

  add(source: FrameSource): void {
    this.waiting.add(source);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      this.work();
    });
  }

  private work(): void {
    const end = performance.now() + SLICE_MS;
    // A source that is added again while this goes round stands last, and has its turn in the same round.
    for (const source of this.waiting) {
      this.waiting.delete(source);
      if (source.takeFrame()) this.waiting.add(source);
      if (performance.now() >= end) break;
    }
    if (this.waiting.size > 0) this.schedule();
  }
}
