import { Command } from 'commander';
import { checkVersion } from '../postgres/database.js';
import { MIGRATION_MS_MAX, migrate, schemaState } from '../postgres/migrate.js';
import { withDatabase } from './context.js';

export function migrateCommand(): Command {
  return new Command('migrate')
    .description('migrate the schema of the database to this version; serve also does it')
    .option('--dry-run', 'only show what would be applied')
    .action((options: { dryRun?: boolean }) =>
      withDatabase(async ({ database }) => {
        const client = await database.connect({ statementTimeoutMs: MIGRATION_MS_MAX });
        try {
          await checkVersion(client);
          const names = options.dryRun ? (await schemaState(client)).pending : await migrate(client);
          const what = options.dryRun ? 'would apply' : 'applied';
          process.stdout.write(names.length === 0 ? 'the schema is up to date\n' : '');
          for (const name of names) process.stdout.write(`${what} ${name}\n`);
        } finally {
          await client.end();
        }
      }),
    );
}
