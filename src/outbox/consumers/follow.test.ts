import { expect, it } from 'vitest';
import { FOLLOW_ROWS_MAX, liveCourse } from './follow.js';

it('a page is larger while an erasure waits for the consumer, and never without a bound', () => {
  const follower = {
    ...{ consumer: 'search', holder: 'one', now: () => 0, recent: undefined },
    ...{ rate: () => 0, onPassed: () => undefined },
  };
  const flags = { paused: false, rebuilds: false, retries: false };
  const lease = { generation: 1, lastSeq: 7, holder: 'one', beat: 1, ...flags };
  expect(liveCourse(follower, lease)).toMatchObject({ rowsMax: FOLLOW_ROWS_MAX, from: 7 });
  expect(liveCourse(follower, lease, true).rowsMax).toBe(4 * FOLLOW_ROWS_MAX);
});
