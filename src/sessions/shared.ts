/**
 * Sessions of operators in a browser, with the token that guards each against forged requests (CSRF). In PostgreSQL, or in Redis when
 * there is one. Neither token is kept anywhere: only their hashes are, so that nobody who reads the store can use one.
 */
import type { Pool } from 'pg';
import type { Log } from '../log.js';
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
  /** SHA-256 of the token against forged requests, hex. */
  readonly csrfHash: string;
}

/** Each rejects when its store does not answer. What is ended is ended on every instance. */
export interface Sessions {
  create(ref: SessionRef, session: Session): Promise<void>;
  /** Undefined when it is unknown here, of another community or key, ended, or past its time. */
  find(ref: SessionRef, now: number): Promise<Session | undefined>;
  /** False when there was none. */
  end(ref: SessionRef): Promise<boolean>;
  /** How many there were. */
  endAll(holder: SessionHolder): Promise<number>;
  close(): Promise<void>;
}

export async function openSessions(redisUrl: string | undefined, pool: Pool, log: Log): Promise<Sessions> {
  if (redisUrl === undefined) return new PostgresSessions(pool);
  // A node without Redis does not load its client.
  const { openRedisSessions } = await import('./redis.js');
  return openRedisSessions(redisUrl, log);
}
