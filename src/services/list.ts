/** Every consumer of a node. */
import type { Communities } from '../communities.js';
import type { Log } from '../log.js';
import type { Consumer } from './consumer.js';
import { searchConsumer } from './search.js';

export interface ConsumerContext {
  readonly communities: Communities;
  readonly log: Log;
  readonly now: () => number;
}

export function consumersOf({ communities }: ConsumerContext): readonly Consumer[] {
  return [searchConsumer({ communities })];
}
