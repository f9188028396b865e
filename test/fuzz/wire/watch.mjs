/** Loaded into the node before its program: answers questions about its heap, and reports lost rejections. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

// The threads of the node load it too, and have no channel.
if (isMainThread) watch();

function watch() {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  process.on('message', (question) => {
    if (question !== 'heap') return;
    collect();
    collect();
    process.send({ heapBytes: process.memoryUsage().heapUsed });
  });
  process.on('unhandledRejection', (error) => process.send({ lost: String(error?.stack ?? error) }));
  // The channel must not keep the node running.
  process.channel.unref();
}
