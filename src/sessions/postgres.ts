/** The sessions in PostgreSQL. */
import type { Pool } from 'pg';
import { createSession, endSession, endSessionsOf, findSession } from '../store/sessions.js';
import type { Session, SessionHolder, SessionRef, Sessions } from './shared.js';

export class PostgresSessions implements Sessions {
  constructor(private readonly pool: Pool) {}

  create(ref: SessionRef, session: Session): Promise<void> {
    return createSession(this.pool, { ...ref, ...session });
  }

  find(ref: SessionRef, now: number): Promise<Session | undefined> {
    return findSession(this.pool, ref, now);
  }

  end(ref: SessionRef): Promise<boolean> {
    return endSession(this.pool, ref);
  }

  endAll(holder: SessionHolder): Promise<number> {
    return endSessionsOf(this.pool, holder);
  }

  /** The pool is its owner's. */
  async close(): Promise<void> {}
}
