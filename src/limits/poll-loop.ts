/**
 * Repeats work with a pause in between, until it is stopped. The work handles its own failures.
 */
import { setTimeout as delay } from 'node:timers/promises';

export interface PollOptions {
  /** Starts without a pause. */
  readonly atOnce?: boolean;
}

/** Returns a function that stops the loop: at once during a pause, otherwise after the current work. */
export function startPolling(
  everyMs: number,
  work: () => Promise<void>,
  { atOnce = false }: PollOptions = {},
): () => Promise<void> {
  const stopping = new AbortController();
  const { signal } = stopping;
  const loop = async (): Promise<void> => {
    if (atOnce) await work();
    for (;;) {
      await delay(everyMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await work();
    }
  };
  const running = loop();
  return () => {
    stopping.abort();
    return running;
  };
}
