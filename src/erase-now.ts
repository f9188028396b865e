/** Erasures that are carried out in this process without its being a node, or before it is one. */
import type { JobContext } from './jobs/job.js';
import type { NodeKeys } from './keys.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import { type Assisting, assistConsumers } from './services/assist.js';
import { consumersOf } from './services/list.js';

export interface Reading extends JobContext {
  readonly keys: NodeKeys;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** The work, while the consumers read the outbox here, unless another process has their leases. */
export async function withConsumers<T>(
  context: Reading,
  work: (consumers: Assisting) => Promise<T>,
): Promise<T> {
  const { subjectKey } = context.erasing;
  const consumers = await assistConsumers({ ...context, consumers: consumersOf({ ...context, subjectKey }) });
  try {
    return await work(consumers);
  } finally {
    await consumers.stop();
  }
}
