/**
 * Long work on the event loop, in slices. All work of the process shares them: in each pass of the event loop
 * one piece of work runs, for about 1 ms, and the others wait in line. So a pass is delayed by one slice,
 * however much work there is (I18).
 */
const SLICE_MS = 1;

/** Work that waits for its slice. */
const waiting: (() => void)[] = [];
let sliceBeganMs = Number.NEGATIVE_INFINITY;

/** Gives the first in line its slice; the next one comes in the next pass. */
function giveSlice(): void {
  sliceBeganMs = performance.now();
  waiting.shift()?.();
  if (waiting.length > 0) setImmediate(giveSlice);
}

/** To be called between two steps: resolves at once within the slice, else when the next slice is given. */
export async function rest(): Promise<void> {
  if (performance.now() - sliceBeganMs < SLICE_MS) return;
  await new Promise<void>((resolve) => {
    waiting.push(resolve);
    if (waiting.length === 1) setImmediate(giveSlice);
  });
}

/**
 * Runs work that yields between its steps. It may also yield a question that takes too long for one step:
 * `away` answers it outside of the event loop.
 */
export async function inTimeSlices<T, Question = never, Reply = never>(
  work: Generator<Question | undefined, T, Reply | undefined>,
  away?: (question: Question) => Promise<Reply>,
): Promise<T> {
  let reply: Reply | undefined;
  for (;;) {
    const { done, value } = work.next(reply);
    if (done) return value;
    reply = value === undefined ? undefined : await away?.(value);
    if (value === undefined) await rest();
  }
}
