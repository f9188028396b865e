/**
 * The one way to wait for another process (I15): PostgreSQL, Redis, DynamoDB or a thread. What does not come
 * in time is an error that names who did not answer. What was asked may be done all the same, or later.
 */

/** Somebody outside this process did not answer, or the connection to them broke. */
export class NoAnswer extends Error {
  /** As Node or the server calls it, where there is one. */
  readonly code: string | undefined;

  constructor(text: string, cause?: unknown) {
    super(text, cause === undefined ? undefined : { cause });
    this.name = 'NoAnswer';
    const code = (cause as { code?: unknown } | undefined)?.code;
    this.code = typeof code === 'string' ? code : undefined;
  }
}

/** Also where another error was made of it. */
export function isNoAnswer(error: unknown): boolean {
  if (error instanceof NoAnswer) return true;
  return error instanceof Error && error.cause !== undefined && isNoAnswer(error.cause);
}

/** `who`: the subject of the sentence, such as "Redis". */
export async function inTime<T>(answer: Promise<T>, msMax: number, who: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    // One more look at the sockets: while this process was busy itself, the answer may have come.
    const giveUp = () => reject(new NoAnswer(`${who} did not answer within ${msMax} ms`));
    timer = setTimeout(() => setImmediate(giveUp), msMax);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
