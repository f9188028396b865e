/**
 * The checkpoint of a long command: its position in a small JSON file beside its input or output file, so
 * that a later run can resume.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import type { z } from 'zod';

export interface Checkpoint<T> {
  readonly path: string;
  /**
   * Undefined when there is none, or it cannot be parsed: then the work starts from the beginning, which is
   * always correct.
   */
  read(): Promise<T | undefined>;
  write(state: T): Promise<void>;
  remove(): Promise<void>;
}

export function checkpointAt<T>(path: string, schema: z.ZodType<T>): Checkpoint<T> {
  return {
    path,
    read: async () => {
      const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return undefined;
        throw error;
      });
      return text === undefined ? undefined : parse(text, schema);
    },
    // Renamed into place: a kill at any moment leaves the old state or the new one.
    write: async (state) => {
      const draft = `${path}.new`;
      await writeFile(draft, `${JSON.stringify(state)}\n`);
      await rename(draft, path);
    },
    remove: async () => {
      await rm(path, { force: true });
      await rm(`${path}.new`, { force: true });
    },
  };
}

/** A file that a power cut has truncated is no checkpoint. */
function parse<T>(text: string, schema: z.ZodType<T>): T | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
