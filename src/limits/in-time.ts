/**
 * Waits for another process or a thread with a deadline (I15): PostgreSQL, Redis, DynamoDB. A late answer is
 * an error that names the peer. The peer may still have done what it was asked, or do it later.
 */
import { errorCode } from '../postgres/rules-error-code.js';

/** Another process did not answer, or the connection to it broke. */
export class NoAnswer extends Error {
  /** The error code of Node.js or of the server, if there is one. */
  readonly code: string | undefined;

  constructor(text: string, cause?: unknown) {
    super(text, cause === undefined ? undefined : { cause });
    this.name = 'NoAnswer';
    this.code = errorCode(cause);
  }
}

/** True also for an error that has a NoAnswer as its cause. */
export function isNoAnswer(error: unknown): boolean {
  if (error instanceof NoAnswer) return true;
  return error instanceof Error && error.cause !== undefined && isNoAnswer(error.cause);
}

/** `who`: the subject of the sentence, such as "Redis". */
export async function inTime<T>(answer: Promise<T>, msMax: number, who: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    // Reads the sockets once more: the answer may have arrived while this process was busy.
    const giveUp = () => reject(new NoAnswer(`${who} did not answer within ${msMax} ms`));
    timer = setTimeout(() => setImmediate(giveUp), msMax);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
