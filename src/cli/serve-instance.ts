/**
 * One instance of `minato serve --instances N`, started by its primary. It stops when the primary asks for
 * it, on a signal, and when the primary is gone.
 */
import { Instance, tellFailure } from '../node/instances/instance.js';
import { openDatabase } from '../postgres/database.js';
import { withoutPassword } from '../postgres/rules-database-url.js';
import { sentenceOf } from './answers.js';
import { boot, loadNode, serveNode, stopOnSignal } from './serve-node.js';

export async function serveInstance(): Promise<void> {
  const wanted = new AbortController();
  const instance = await Instance.join(() => wanted.abort());
  const { name, database: connection, isFirst, roles: listed } = instance.start;
  const { config, log, logLines } = boot(name);
  let stop = async (): Promise<void> => process.exit(1);
  const end = stopOnSignal(log, () => stop());
  if (wanted.signal.aborted) end();
  else wanted.signal.addEventListener('abort', end, { once: true });
  const database = openDatabase(connection ?? { url: config.databaseUrl! });
  const where =
    connection === undefined
      ? withoutPassword(config.databaseUrl!)
      : `embedded PostgreSQL in ${config.dataDir}`;
  const roles = new Set(listed);
  try {
    const served = await serveNode(await loadNode(), {
      ...{ database, config, log, logLines, roles, where, isFirst },
      passed: instance,
      scrape: () => instance.scrape(),
      runSoon: (job) => instance.runSoon(job),
      readyWord: 'instance ready',
    });
    const { node } = served;
    stop = async () => {
      await served.stop();
      await database.close();
      log.info('stopped');
    };
    const { schedule } = node;
    instance.serve({
      metrics: node.metrics,
      runJob: schedule && ((job) => schedule.trigger(job)),
    });
  } catch (error) {
    await tellFailure(sentenceOf(error));
    process.exit(1);
  }
}
