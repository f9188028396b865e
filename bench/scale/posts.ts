/** Single posts, one after another: the time until each OK. */
import { setTimeout as sleep } from 'node:timers/promises';
import { newAuthor, sign } from '../../test/support/events.js';
import { Connection, frameType } from '../client.js';
import { latency } from '../measure.js';

const PAUSE_MS = 10;

export async function postOneByOne(url: string, posts: number): Promise<ReturnType<typeof latency>> {
  const author = newAuthor();
  const connection = await Connection.open(url);
  const timesMs: number[] = [];
  try {
    for (let place = 0; place < posts; place += 1) {
      const event = sign(author, { tags: [['t', 'posts']], content: `${place} `.padEnd(200, 'x') });
      const answered = new Promise<void>((resolve, reject) => {
        connection.onLost = reject;
        connection.onFrame = (frame) => {
          if (frameType(frame) === 'OK') resolve();
        };
      });
      const startMs = performance.now();
      connection.send(JSON.stringify(['EVENT', event]));
      await answered;
      timesMs.push(performance.now() - startMs);
      await sleep(PAUSE_MS);
    }
  } finally {
    connection.close();
  }
  return latency(timesMs);
}
