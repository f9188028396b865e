/** A frame as it comes in, and what it says about its event before the event is checked. */

export interface Frame {
  readonly data: Buffer;
  readonly isBinary: boolean;
}

/** The id to answer to: the text that the client gave, cut to a sane length; even a malformed event gets its OK (I2). */
export function eventIdOf(input: unknown): string | undefined {
  if (typeof input !== 'object' || input === null) return undefined;
  const { id } = input as { id?: unknown };
  return typeof id === 'string' ? id.slice(0, 128) : undefined;
}

/** -1 for what is no kind at all. */
export function kindOf(input: unknown): number {
  const { kind } = (input ?? {}) as { kind?: unknown };
  return typeof kind === 'number' ? kind : -1;
}
