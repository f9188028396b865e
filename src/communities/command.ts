/** The command `minato communities`: lists and adds communities. */
import { Command } from 'commander';
import { withDatabase } from '../cli/context.js';
import { prepareDatabase } from '../node/prepare.js';
import { watchCommunities } from './communities.js';
import { addCommunity, readTotals } from './communities.sql.js';

export function communitiesCommand(): Command {
  const communities = new Command('communities').description('the communities of this node');
  communities
    .command('list', { isDefault: true })
    .description('show the communities, with their events and bytes')
    .action(() =>
      withDatabase(async ({ database, config, log }) => {
        await prepareDatabase(database, config, Date.now, log);
        const watched = await watchCommunities(database.pool, log);
        await watched.stop();
        for (const { id, slug, host } of watched.all()) {
          const { events, bytes } = await readTotals(database.pool, id);
          process.stdout.write(
            `${slug.padEnd(20)} ${(host ?? '-').padEnd(30)} ${events} events, ${bytes} bytes\n`,
          );
        }
      }),
    );
  communities
    .command('add <slug>')
    .description('create a community, reachable at /c/<slug> and at its host name if it has one')
    .option('--host <name>', 'host name, for example art.example.org')
    .action((slug: string, options: { host?: string }) =>
      withDatabase(async ({ database, config, log }) => {
        await prepareDatabase(database, config, Date.now, log);
        await addCommunity(database.pool, slug, options.host, Date.now());
        process.stdout.write(
          `${slug} is reachable at /c/${slug}${options.host ? ` and at ${options.host}` : ''}\n`,
        );
      }),
    );
  return communities;
}
