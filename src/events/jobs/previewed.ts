/** Dry runs of jobs on a store whose events are not rows of PostgreSQL. */
import type { DryRunCount } from '../../jobs/job.js';
import { Tally } from '../../jobs/tally.js';
import type { DryRunState } from '../postgres/dry-run.js';
import type { Hidden } from '../rules/hidden.js';
import type { EventPreviews, Previewed } from '../store.js';

/** Versions that are not served occupy no space of their community. */
const HIDDEN: readonly string[] = ['superseded', 'deleted'];

/** Counts each event once: a later job does not find what an earlier one takes. */
export async function tallyPreviews(
  preview: EventPreviews['preview'],
  state: DryRunState,
  reason: Hidden,
  selections: readonly Previewed[],
): Promise<DryRunCount[]> {
  const how = { served: !HIDDEN.includes(reason) };
  const tally = new Tally();
  for (const which of selections)
    for (const { community, event } of await preview(which))
      if (state.takeNamed(community, event, how)) tally.addEvent(event);
  return tally.counts(reason);
}
