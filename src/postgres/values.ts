/** Converts keys and ids for SQL, and the type of a connection or pool. */
import type { ClientBase, Pool } from 'pg';

/** A session, or any session of a pool. */
export type Db = ClientBase | Pool;

/** A text that is not a UUID is treated as an unknown id. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}

export function bytes(hex: string): Buffer {
  return Buffer.from(hex, 'hex');
}

export function bytesOrNull(hex: string | undefined): Buffer | null {
  return hex === undefined ? null : bytes(hex);
}
