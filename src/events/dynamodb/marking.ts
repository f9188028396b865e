/**
 * Marks that the control plane makes, with rows that must take effect at the same moment. The marks are
 * written before the control plane commits: after a crash in between they hide and refuse, and the work is
 * run again.
 */
import type { Pool } from 'pg';
import { isDenial } from '../../api/rules-errors.js';
import { BEGIN_BRIEFLY, inTransaction } from '../../postgres/transaction.js';
import { writeVanishMarks } from '../postgres/batch.js';
import type { TagHash } from '../postgres/tag-hash.js';
import type { Marking } from '../store.js';
import type { Dynamodb } from './client.js';
import { writeMark } from './marks.js';
import { appendMark } from './stream/log.sql.js';

export interface MarkingIn {
  readonly db: Dynamodb;
  readonly pool: Pool;
  readonly tagHash: TagHash;
  readonly onMark?: (() => void) | undefined;
}

export async function writeMarks(
  { db, pool, tagHash, onMark }: MarkingIn,
  work: Marking,
  now: number,
): Promise<void> {
  const done = await inTransaction(pool, BEGIN_BRIEFLY, async (tx) => {
    const marks = await work(tx, now);
    for (const mark of marks) await writeMark(db, mark);
    if (marks.length > 0) {
      await writeVanishMarks(tx, { vanishMarks: marks }, tagHash);
      await appendMark(tx);
    }
    return true;
  });
  onMark?.();
  if (isDenial(done)) throw new Error('a mark was denied');
}
