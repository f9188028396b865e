/** The place of a copy, in the database: a run that was killed continues there. */
import type { Pool } from 'pg';
import { readState, writeState } from '../../node/state.sql.js';
import type { Place } from './source.sql.js';

const STATE_KEY = 'events_copy';

/** Everything before the section, and the section up to its place, is copied. */
export interface Checkpoint<Section extends string> {
  readonly section: Section | 'done';
  readonly place: Place;
  /** The last offset of the log when the events were begun. */
  readonly pin: number;
  /** To PostgreSQL: offsets below this one are in use. */
  readonly free?: number;
}

export type CopyState = 'none' | 'unfinished' | 'done';

export async function copyState(pool: Pool): Promise<CopyState> {
  const checkpoint = await readCheckpoint(pool);
  if (checkpoint === undefined) return 'none';
  return checkpoint.section === 'done' ? 'done' : 'unfinished';
}

export async function readCheckpoint<Section extends string>(
  pool: Pool,
): Promise<Checkpoint<Section> | undefined> {
  const text = await readState(pool, STATE_KEY);
  return text === undefined || text === '' ? undefined : (JSON.parse(text) as Checkpoint<Section>);
}

export async function writeCheckpoint(pool: Pool, checkpoint: Checkpoint<string>): Promise<void> {
  await writeState(pool, STATE_KEY, JSON.stringify(checkpoint));
}

export async function forgetCopy(pool: Pool): Promise<void> {
  await writeState(pool, STATE_KEY, '');
}
