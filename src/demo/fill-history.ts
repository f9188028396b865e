/**
 * Writes the figures of past weeks. Only a node of the demo's own gets them: they are those of the whole
 * node, and the history of a node that people use stays as it was.
 */
import { readTotals } from '../communities/communities.sql.js';
import { writeSamples, writeSizes } from '../overview/samples.sql.js';
import { readSizes } from '../storage/storage.sql.js';
import type { Filling } from './filling.js';
import { Dice } from './rules-dice.js';
import { makeHistory } from './rules-history.js';

export async function fillHistory({ pool, community, story, tally }: Filling): Promise<void> {
  const { id } = community();
  const { events, bytes } = await readTotals(pool, id);
  const now = { events, bytes, databaseBytes: (await readSizes(pool)).bytes };
  const { minutes, hours, sizes } = makeHistory(new Dice('minato demo/history'), story, now);
  const written = await writeSamples(pool, 'minute', minutes);
  await writeSamples(pool, 'hour', hours);
  await writeSizes(pool, id, sizes);
  tally.note('history', written > 0);
}
