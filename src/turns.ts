/** Long work of the relay's own process, done in turns: its clients do not wait for it. */
import { setImmediate as nextTurn } from 'node:timers/promises';

const TURN_MS = 5;

/** Lets others have their turn where the work allows it and enough time has gone by since the last. */
export class Turns {
  private since = performance.now();

  async rest(): Promise<void> {
    if (performance.now() - this.since < TURN_MS) return;
    await nextTurn();
    this.since = performance.now();
  }
}

export async function inTurns<T>(work: Generator<undefined, T>, turns = new Turns()): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
    await turns.rest();
  }
}
