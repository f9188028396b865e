/** The sessions in PostgreSQL. */
import type { Pool } from 'pg';
import { createSession, endSession, endSessionsOf, findSession, listSessions } from './sessions.sql.js';
import {
  LISTED_MAX,
  type ListedSession,
  type Session,
  type SessionHolder,
  type SessionRef,
  type Sessions,
} from './shared.js';

export class PostgresSessions implements Sessions {
  constructor(private readonly pool: Pool) {}

  create(ref: SessionRef, session: Session): Promise<void> {
    return createSession(this.pool, { ...ref, ...session });
  }

  find(ref: SessionRef, now: number): Promise<Session | undefined> {
    return findSession(this.pool, ref, now);
  }

  list(holder: SessionHolder, now: number): Promise<ListedSession[]> {
    return listSessions(this.pool, holder, now, LISTED_MAX);
  }

  end(ref: SessionRef): Promise<boolean> {
    return endSession(this.pool, ref);
  }

  endAll(holder: SessionHolder): Promise<number> {
    return endSessionsOf(this.pool, holder);
  }

  /** The caller owns the pool and closes it. */
  async close(): Promise<void> {}
}
