/**
 * File descriptors: each connection needs one, and so do the database, Redis, files and threads. Some are
 * reserved for those, so that a flood of connections never cuts the node off from its own database.
 */
import { readFile } from 'node:fs/promises';

/** For what a node opens besides its clients: about 30 PostgreSQL sessions, Redis, threads, export files. */
export const RESERVED_DESCRIPTORS = 200;
/** The least number of connections, even with a lower limit. */
const CONNECTIONS_MIN = 32;
const HTTP_SHARE = 0.25;

/** How many files a process may open; undefined if the system does not report it. */
export async function readDescriptorLimit(process: number | 'self' = 'self'): Promise<number | undefined> {
  const limits = await readFile(`/proc/${process}/limits`, 'utf8').catch(() => '');
  const [, soft] = /^Max open files\s+(\d+)/m.exec(limits) ?? [];
  return soft === undefined ? undefined : Number(soft);
}

export interface Room {
  readonly http: number;
  readonly websockets: number;
}

/** The number of connections that the descriptors allow, at most those wanted. */
export function roomFor(descriptors: number | undefined, wanted: Room): Room {
  const room = Math.max(CONNECTIONS_MIN, (descriptors ?? Number.POSITIVE_INFINITY) - RESERVED_DESCRIPTORS);
  if (room >= wanted.http + wanted.websockets) return wanted;
  const http = Math.min(wanted.http, Math.ceil(room * HTTP_SHARE));
  return { http, websockets: room - http };
}
