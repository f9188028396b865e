/**
 * The contract of operators' sessions in a browser, each with a token against forged requests (CSRF). They
 * are in PostgreSQL, or in Redis when it is configured. Only hashes of both tokens are stored, so that nobody
 * who reads the store can use them.
 */
import type { Pool } from 'pg';
import type { Log } from '../node/log.js';
import { PostgresSessions } from './postgres.js';

export interface SessionHolder {
  readonly community: number;
  readonly pubkey: string;
}

export interface SessionRef extends SessionHolder {
  /** SHA-256 of the token, hex. */
  readonly tokenHash: string;
}

export interface Session {
  readonly createdAt: number;
  readonly expiresAt: number;
  /** SHA-256 of the CSRF token, hex. */
  readonly csrfHash: string;
}

export interface ListedSession {
  readonly tokenHash: string;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** The most that a list has. */
export const LISTED_MAX = 200;

/** Every method rejects when the store does not respond. An ended session is ended on every instance. */
export interface Sessions {
  create(ref: SessionRef, session: Session): Promise<void>;
  /** Undefined when it is unknown, belongs to another community or key, was ended, or has expired. */
  find(ref: SessionRef, now: number): Promise<Session | undefined>;
  /** The newest that have not expired, newest first, at most LISTED_MAX. */
  list(holder: SessionHolder, now: number): Promise<ListedSession[]>;
  /** False when there was no such session. */
  end(ref: SessionRef): Promise<boolean>;
  /** Returns how many there were. */
  endAll(holder: SessionHolder): Promise<number>;
  close(): Promise<void>;
}

export async function openSessions(redisUrl: string | undefined, pool: Pool, log: Log): Promise<Sessions> {
  if (redisUrl === undefined) return new PostgresSessions(pool);
  // A node without Redis does not load its client.
  const { openRedisSessions } = await import('./redis.js');
  return openRedisSessions(redisUrl, log);
}
