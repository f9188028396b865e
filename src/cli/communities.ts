import { Command } from 'commander';
import { watchCommunities } from '../communities.js';
import { prepareDatabase } from '../prepare.js';
import { addCommunity, readTotals } from '../store/communities.js';
import { withDatabase } from './context.js';

export function communitiesCommand(): Command {
  const communities = new Command('communities').description('the communities of this node');
  communities
    .command('list', { isDefault: true })
    .description('show them, with what they hold')
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
    .description('make a community; it answers at /c/<slug>, and at its host name if it has one')
    .option('--host <name>', 'host name, for example art.example.org')
    .action((slug: string, options: { host?: string }) =>
      withDatabase(async ({ database, config, log }) => {
        await prepareDatabase(database, config, Date.now, log);
        await addCommunity(database.pool, slug, options.host, Date.now());
        process.stdout.write(
          `${slug} answers at /c/${slug}${options.host ? ` and at ${options.host}` : ''}\n`,
        );
      }),
    );
  return communities;
}
